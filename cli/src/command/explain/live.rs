//! Simulation of a running gateway: its policy, routes, neighbours and flows, copied here, so that a packet can be tried on
//! them and nothing live is touched.

use std::net::IpAddr;
use std::ops::ControlFlow;
use std::time::Duration;

use dataplane::explain::{Account, SaMet};
use dataplane::flow::Ends;
use dataplane::meter::MeteredEnds;
use dataplane::nat::Endpoint;
use dataplane::replay::{Way, answered_ends};
use dataplane::sa::{SaStandIn, Senders};
use dataplane::set::{Element, SetChange};
use dataplane::state::{FlowRecord, Item, Names, Standing};
use dataplane::tables::OWN_ACCORD;
use dataplane::{Replay, Tables};
use gateway::about::About;
use gateway::api::{BasisQuery, BasisView, Listed, MeterView};
use gateway::flows::{FlowQuery, FlowView};
use gateway::near::Near;
use gateway::sa::AssociationView;
use gateway::set::{ElementView, Elements, SetQuery};
use gateway::store::{self, Entry};
use gateway::{Client, ClientError};
use policy::Policy;
use policy::model::NatAction;
use replay::StaticKeys;
use report::explain::{Chosen, key};
use serde_json::{Value, json};
use wire::Nanos;
use wire::esp::{Direction, Suite, Udp};
use wire::ethernet::{self, EtherType, Mac};
use wire::header::Protocol;
use wire::{ipv4, ipv6};

use crate::failure::{Failure, PolicyError};

/// Policy and state of a running gateway.
pub(super) struct Live {
    client: Client,
    pub(super) policy: Policy,
    basis: BasisView,
    /// Ends of the packet, where it has any.
    about: Option<About>,
    /// Flows of the gateway that concern the packet.
    flows: Vec<FlowRecord>,
}

/// Timeout of waiting for a part of an answer before checking again.
const TICK: Duration = Duration::from_secs(1);

/// Limit on the flow table here, in flows: only the flows that concern one packet are loaded.
const FLOWS: u32 = 65_536;

impl Live {
    /// Asks a gateway for its policy, so far without the routes of Linux, of which there may be a million: those near the packet are
    /// asked for when it is known.
    pub(super) fn ask(client: Client) -> Result<(Live, Tables), Failure> {
        let (policy, basis) = effective(&client, &Near::default())?;
        let tables = compile(&policy)?;
        Ok((Live { client, policy, basis, about: None, flows: Vec::new() }, tables))
    }

    /// A gateway here that goes by the same, and remembers what bears on the packet; `tables` are those of [`Live::ask`].
    pub(super) fn replay(&mut self, tables: &Tables, at: Nanos, packet: &[u8]) -> Result<Replay, Failure> {
        let about = answered_ends(packet).zip(sender(packet)).map(|(ends, from)| about(ends, from));
        let state = about.as_ref().map_or(Ok(Vec::new()), |about| self.state(about))?;
        let near = self.near(packet, about.as_ref(), &items(&state, tables)?);
        (self.policy, self.basis) = effective(&self.client, &near)?;
        let tables = compile(&self.policy)?;
        let setup = |error| PolicyError::Setup { file: "the policy in force".to_owned(), error };
        let mut replay = Replay::resolved_by_host(tables, at, Way::Step).map_err(setup)?;
        for known in &self.basis.neighbours {
            let interface = replay.tables.interface_named(&known.interface);
            if let (Some(interface), Ok(mac)) = (interface, known.mac.parse::<Mac>()) {
                // One more than there is room for stays unknown, as there.
                let _ = replay.shard.update_neighbour(&replay.tables, interface, known.address.into(), mac);
            }
        }
        self.load_meters(&mut replay, at, packet)?;
        self.load_sas(&mut replay)?;
        self.load_sets(&mut replay, &near, at)?;
        self.about = about;
        for item in items(&state, &replay.tables)? {
            // What cannot be here, where there is nothing else, cannot be there either.
            if replay.shard.import(&replay.tables, &item, at).is_ok() {
                self.flows.extend(match item {
                    Item::Flow(flow) => Some(flow),
                    Item::Debt(_)
                    | Item::Own(_)
                    | Item::Meter(_)
                    | Item::Sa(_)
                    | Item::Element(_)
                    | Item::PortMapping(_) => None,
                });
            }
        }
        Ok(replay)
    }

    /// Addresses that a route or the element of a set may meet the packet by: its own, those of its flows, and those that the policy
    /// gives packets.
    fn near(&self, packet: &[u8], about: Option<&About>, items: &[Item]) -> Near {
        let mut near = Near::default();
        let mut ends: Vec<IpAddr> = addresses(packet).into_iter().flatten().collect();
        ends.extend(about.into_iter().flat_map(|about| [about.one, about.other]));
        ends.iter().for_each(|address| near.add(*address));
        for item in items {
            if let Item::PortMapping(record) = item {
                near.add(record.mapping.inside.ip());
            }
            if let Item::Flow(flow) = item {
                for ends in [&flow.original, &flow.reply] {
                    near.add(ends.source);
                    near.add(ends.destination);
                }
            }
        }
        for nat in &self.policy.nats {
            match &nat.action {
                NatAction::Forward { target, .. } => near.add(*target),
                NatAction::Balance(balance) => {
                    balance.servers.iter().for_each(|server| near.add(server.address))
                }
                NatAction::OneToOne { inside, outside, .. } | NatAction::Npt { inside, outside, .. } => {
                    near.add_net(*inside);
                    near.add_net(*outside);
                }
                NatAction::Nat64(nat64) => {
                    let embedded = ends.iter().filter_map(|end| match end {
                        IpAddr::V6(address) => nat64.prefix.extract(*address),
                        IpAddr::V4(_) => None,
                    });
                    embedded.for_each(|address| near.add(address.into()));
                }
                NatAction::Clat(clat) => {
                    let under_prefix = ends.iter().filter_map(|end| match end {
                        IpAddr::V4(address) => Some(clat.prefix.embed(*address)),
                        IpAddr::V6(_) => None,
                    });
                    under_prefix.for_each(|address| near.add(address.into()));
                }
                NatAction::Masquerade { .. }
                | NatAction::Source { .. }
                | NatAction::Exempt
                | NatAction::Redirect { .. } => {}
            }
        }
        for tunnel in self.policy.interfaces.iter().filter_map(|own| own.esp.as_deref()) {
            near.add(tunnel.local);
            tunnel.remote.into_iter().for_each(|remote| near.add(remote));
        }
        near
    }

    /// Gives the dynamic sets the elements that they have there for the packet's addresses.
    fn load_sets(&self, replay: &mut Replay, near: &Near, at: Nanos) -> Result<(), Failure> {
        for (place, spec) in (0..).zip(&self.policy.dynamic_sets) {
            let mut after = Some(0);
            while after.is_some() {
                let query = SetQuery { set: spec.name.clone(), after, near: Some(near.to_string()) };
                let Elements { elements, next } = self.client.get_with("/sets/elements", &query)?;
                for element in elements {
                    let until = left(&element).map(|left| at + left);
                    if let Some(prefix) = element.prefix() {
                        let element = Element { set: place, prefix, until };
                        replay.shard.change_set(&replay.tables, &SetChange::Add(element), at);
                    }
                }
                after = next;
            }
        }
        Ok(())
    }

    /// Gives the meters the tokens that they have there for the packet.
    fn load_meters(&self, replay: &mut Replay, at: Nanos, packet: &[u8]) -> Result<(), Failure> {
        if replay.tables.classes.meters.is_empty() {
            return Ok(());
        }
        let ends = answered_ends(packet);
        let destination = ends.map(|ends| ends.source);
        let ends = MeteredEnds { source: sender(packet), destination };
        let views: Vec<MeterView> = self.client.get_with("/meters", &ends)?;
        for view in views {
            let place = replay.tables.classes.meters.iter().position(|meter| meter.name == view.name);
            if let Some(place) = place {
                replay.shard.set_meter(&replay.tables, place as u16, ends, &view.state, at);
            }
        }
        Ok(())
    }

    /// Gives the tunnels the security associations that they have there: their names and numbers, as keys never leave the gateway.
    fn load_sas(&self, replay: &mut Replay) -> Result<(), Failure> {
        if replay.tables.tunnels.is_empty() {
            return Ok(());
        }
        let views: Vec<AssociationView> = self.client.get("/sas")?;
        let sas: Vec<SaStandIn<'_>> = views.iter().filter_map(stand_in).collect();
        replay.shard.stand_in_for_sas(&replay.tables, &sas);
        Ok(())
    }

    /// Returns the state that concerns a packet, as a state file has it.
    fn state(&self, about: &About) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        self.client.listen("/state", about, TICK, |piece| {
            bytes.extend_from_slice(piece.unwrap_or_default());
            Ok::<_, ClientError>(ControlFlow::Continue(()))
        })?;
        Ok(bytes)
    }

    /// The flow of the gateway that the packet was found to belong to, or has the ends of, though it did not fit.
    pub(super) fn flow(&self, account: &Account) -> Option<&FlowRecord> {
        let found = account.visits.iter().find_map(|visit| visit.flow.as_ref());
        let found = found.map(|flow| Ends::of(flow.original()));
        self.flows.iter().find(|flow| match &found {
            Some(original) => flow.original == *original,
            None => self.about.as_ref().is_some_and(|about| about.is_between(flow)),
        })
    }

    /// Path of a flow's plain packets.
    pub(super) fn path(&self, flow: &FlowRecord) -> Result<PacketPath, Failure> {
        let Ends { source, sport, destination, dport, protocol } = flow.original;
        let query = FlowQuery {
            host: Some(source.to_string()),
            port: Some(sport).filter(|port| *port != 0),
            protocol: Some(protocol.to_string()),
            ..FlowQuery::default()
        };
        let listed: Listed = self.client.get_with("/flows", &query)?;
        let ports = flow.original.ports().map(|_| (sport, dport));
        let same = |of: &&FlowView| {
            (of.source, of.destination) == (source, destination) && of.sport.zip(of.dport) == ports
        };
        let is_fast = listed.flows.iter().find(same).is_some_and(|flow| flow.fast_path);
        Ok(if is_fast { PacketPath::Kernel } else { PacketPath::Worker })
    }

    /// Returns the parts of a translation that the gateway chooses only when the packet comes.
    pub(super) fn chosen(&self, account: &Account, tables: &Tables) -> Option<Chosen> {
        let visit = account.visits.iter().find(|visit| visit.stage == "snat")?;
        let reply = visit.flow.as_ref()?.reply();
        let protocol = Protocol(reply.protocol());
        if !protocol.has_ports() && !matches!(protocol, Protocol::ICMP | Protocol::ICMPV6) {
            // Its address alone is translated, and nothing is written down of that.
            return None;
        }
        let outside = Endpoint::new(reply.destination(), reply.dport(), reply.protocol());
        let mappings = || self.flows.iter().filter_map(|flow| flow.mapping);
        if mappings().any(|known| known.outside == outside) {
            return None;
        }
        let place = tables.nat.places(visit.after.nat).1.map_or(OWN_ACCORD, |place| place as u16);
        let own = tables.nat.pools.iter().zip(&tables.nat.owners);
        let mut pools =
            own.filter(|(pool, owner)| owner.source == place && pool.has(outside.ip())).map(|(pool, _)| pool);
        let pool = pools.next()?;
        let inside = visit.flow.as_ref()?.original().source();
        let family = |address: &IpAddr| address.is_ipv4() == outside.ip().is_ipv4();
        let of_family: Vec<_> = pool.addresses.iter().filter(|range| family(&range.first)).collect();
        let is_one = matches!(of_family.as_slice(), [range] if range.first == range.last);
        // A host keeps to the address that it has.
        let is_kept = mappings().any(|known| known.nat == Some(place) && known.inside.ip() == inside);
        Some(Chosen {
            address: outside.ip(),
            port: outside.port,
            is_address_known: is_one || is_kept || pool.block.is_some(),
        })
    }

    /// Returns, in words, the facts that are unknown before the packet comes.
    pub(super) fn unknown(&self, chosen: Option<&Chosen>, account: &Account, tables: &Tables) -> Vec<String> {
        let mut told = Vec::new();
        if let Some(chosen) = chosen {
            told.push(match chosen.is_address_known {
                true => "which free port the translation takes: the gateway chooses it when the packet comes".to_owned(),
                false => "which free address and port the translation takes: the gateway chooses them when the packet \
                          comes"
                    .to_owned(),
            });
        }
        let comes_by =
            account.visits.iter().find_map(|visit| visit.sa.filter(|met| met.direction() == Direction::In));
        if let Some(SaMet::In { sa, top, .. }) = comes_by {
            told.push(format!(
                "whether it is genuine, and what it carries: keys stay in the gateway. Of the security association {:#x} it is known that {top} is the highest \
                 number accepted, not which of those below it were",
                sa.spi
            ));
        }
        let opens = account.visits.iter().find(|visit| visit.stage == "filter");
        let rule = opens.and_then(|visit| tables.filter.rules.get(visit.after.rule as usize));
        if let Some(rule) = rule.filter(|rule| rule.connections.is_some()) {
            told.push(format!(
                "how many connections rule `{}` has let in: only those of the sender are counted here",
                rule.name
            ));
        }
        told
    }
}

/// Time until an element expires; none where it stays.
fn left(element: &ElementView) -> Option<Nanos> {
    let left = Duration::try_from_secs_f64(element.expires_seconds?).ok()?;
    Some(left.into())
}

/// Asks a gateway for its policy with the state of Linux, of the routes those near some addresses.
fn effective(client: &Client, near: &Near) -> Result<(Policy, BasisView), Failure> {
    let basis: BasisView = client.get_with("/basis", &BasisQuery { to: Some(near.to_string()) })?;
    let parsed = policy::parse::parse(&basis.policy, "the policy in force");
    let mut policy = parsed.policy.ok_or_else(|| {
        let first = parsed.diagnostics.iter().find(|diagnostic| diagnostic.is_error());
        garbled(first.map_or("cannot be read", |first| &first.message))
    })?;
    policy.limits.flows = policy.limits.flows.min(FLOWS);
    Ok((policy, basis))
}

fn compile(policy: &Policy) -> Result<Tables, Failure> {
    let compiled = replay::compile(policy, StaticKeys::Left);
    Ok(compiled.map_err(|error| garbled(&error.to_string()))?.tables)
}

fn garbled(what: &str) -> ClientError {
    ClientError::Garbled(format!("its policy, with Linux's routes, {what}"))
}

/// Reads the items of a state file, their places those of `tables`.
fn items(bytes: &[u8], tables: &Tables) -> Result<Vec<Item>, Failure> {
    let mut places = Names::default().places_in(tables);
    let mut items = Vec::new();
    store::read(bytes, |entry| match entry {
        // It is of this moment.
        Entry::Stamp(_) => {}
        Entry::Names(names) => places = names.places_in(tables),
        // Whether it has been validated there is worth telling; here it is validated in any case.
        Entry::Item(Item::Flow(flow)) => {
            let Item::Flow(moved) = places.moved(&Item::Flow(flow)) else { return };
            items.push(Item::Flow(FlowRecord { standing: flow.standing, ..moved }));
        }
        Entry::Item(item) => items.push(places.moved(&item)),
    })
    .map_err(|error| ClientError::Garbled(error.to_string()))?;
    Ok(items)
}

/// The association without its keys.
fn stand_in(view: &AssociationView) -> Option<SaStandIn<'_>> {
    let AssociationView { tunnel, direction, spi, remote, udp, algorithm, auth, number, cpu, .. } = view;
    let direction = Direction::named(direction)?;
    let suite = Suite::named(algorithm, auth.as_deref())?;
    let udp = if *udp { Udp::Yes } else { Udp::No };
    // Of a peer that is not known yet it is no address.
    let remote = remote.parse::<IpAddr>().ok().map(Into::into);
    let senders = cpu.map_or(Senders::All, Senders::One);
    Some(SaStandIn { tunnel, direction, spi: *spi, remote, udp, suite, number: *number, senders })
}

/// Path of a flow's plain packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketPath {
    /// The worker that owns the flow.
    Worker,
    /// Linux's kernel, by the fast path.
    Kernel,
}

impl PacketPath {
    /// Sentence on the path, where there is something to tell.
    pub(super) fn text(self) -> &'static str {
        match self {
            PacketPath::Worker => "",
            PacketPath::Kernel => {
                " Its plain packets go by the fast path: Linux's kernel does to them what is told here."
            }
        }
    }
}

/// The flow, as it is in the gateway.
pub(super) fn flow_text(flow: &FlowRecord) -> String {
    let validated = match flow.standing {
        Standing::Validated => "",
        Standing::Waits => ", decided by an earlier policy",
    };
    let ends = flow.original.to_key().map_or_else(|| "a flow".to_owned(), |ends| key(&ends));
    format!(
        "The gateway has the flow {ends}, {} old, idle for {}{validated}.",
        seconds(flow.age),
        seconds(flow.idle)
    )
}

/// Returns a flow as JSON, for scripts.
pub(super) fn flow_json(flow: &FlowRecord, path: PacketPath) -> Value {
    json!({
        "age_seconds": flow.age.as_secs_f64(),
        "idle_seconds": flow.idle.as_secs_f64(),
        "validated": flow.standing == Standing::Validated,
        "fast_path": path == PacketPath::Kernel,
    })
}

fn seconds(time: Nanos) -> String {
    format!("{:.0} s", time.as_secs_f64())
}

fn about(ends: Ends, from: IpAddr) -> About {
    About {
        one: ends.source,
        one_port: ends.sport,
        other: ends.destination,
        other_port: ends.dport,
        protocol: ends.protocol,
        from,
    }
}

/// The source address of a frame.
fn sender(frame: &[u8]) -> Option<IpAddr> {
    addresses(frame).map(|[source, _]| source)
}

/// Source and destination address of a frame.
fn addresses(frame: &[u8]) -> Option<[IpAddr; 2]> {
    let layer = ethernet::parse(frame).ok()?;
    match layer.ethertype {
        EtherType::IPV4 => {
            ipv4::Header::of(layer.payload).map(|header| [header.src().into(), header.dst().into()])
        }
        EtherType::IPV6 => {
            ipv6::Header::of(layer.payload).map(|header| [header.src().into(), header.dst().into()])
        }
        _ => None,
    }
}
