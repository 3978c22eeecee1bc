//! Two gateways with the same port mappings: what hosts and operators ask of one holds at the other.

use std::collections::{BTreeMap, VecDeque};

use dataplane::nat::{Endpoint, Restore};
use dataplane::port_mapping::{
    Holder, Label, MappedBy, NotTaken, PortMappingEvent, PortMappingUpdate, PortRefusal, PortRequest,
    PortWish, TakenPortMappings, UnmapCause,
};
use dataplane::replay::Way;
use dataplane::shard::Setup;
use dataplane::state::{Cursor, Item, Names};
use dataplane::sync::{CopySweep, Synced};
use dataplane::{Reason, Shard, Verdict};
use proptest::collection::vec;
use proptest::prelude::*;
use wire::build;
use wire::ethernet::Mac;
use wire::{Nanos, PortId};

use crate::scene::{Arrival, Gateway, START, setup};
use crate::sync;

const UDP: u8 = 17;
const MOVED: [u8; 4] = [203, 0, 113, 10];
const PEER: [u8; 4] = [198, 51, 100, 7];

/// The policy of `sync`, whose hosts may ask for ports; `mapping` and `more` follow in their places.
fn policy(own: u8, mapping: &str, more: &str) -> String {
    let asks = format!("random = true\nfrom = \"lan\"\n[nat.port-mapping]\n{mapping}\n");
    sync::policy(own, more).replace("random = true\n", &asks)
}

/// A mapping as it is compared: outside port, nonce, label and seconds left.
type Mapped = (u16, [u8; 12], String, Option<u64>);

/// One of two gateways; the clock of the second is an hour ahead.
struct Box {
    gateway: Gateway,
    own: u8,
    ahead: Nanos,
}

impl Box {
    fn new(own: u8, mapping: &str) -> Box {
        let mut gateway = Gateway::new(&policy(own, mapping, ""), Way::Run);
        let ahead = Nanos::from_secs(if own == 3 { 3600 } else { 0 });
        let seed = [u64::from(own), 99];
        let setup = Setup { seed, ..setup(START + ahead) };
        gateway.shard = Shard::new(&gateway.tables, setup).unwrap();
        gateway.shard.keep_changes(&gateway.tables).unwrap();
        Box { gateway, own, ahead }
    }

    fn time(&self, at: Nanos) -> Nanos {
        START + self.ahead + at
    }

    fn map(&mut self, request: &PortRequest, at: Nanos) -> Result<u16, PortRefusal> {
        let now = self.time(at);
        let Gateway { shard, tables, .. } = &mut self.gateway;
        shard.map_port(tables, request, now).map(|mapping| mapping.outside.port)
    }

    fn unmap(&mut self, inside: &Endpoint, holder: &Holder, at: Nanos) -> Result<u32, PortRefusal> {
        let now = self.time(at);
        self.gateway.shard.unmap_port(inside, holder, now)
    }

    fn take(&mut self, most: usize, at: Nanos) -> TakenPortMappings {
        let (now, mut taken) = (self.time(at), TakenPortMappings::default());
        let Gateway { shard, tables, .. } = &mut self.gateway;
        shard.take_port_mapping_changes(tables, now, most, &mut taken);
        taken
    }

    fn take_all(&mut self, at: Nanos) -> TakenPortMappings {
        self.gateway.shard.list_port_mappings_anew();
        self.take(usize::MAX, at)
    }

    /// Takes in what the other has told.
    fn hear(
        &mut self,
        from: &Gateway,
        told: &TakenPortMappings,
        round: u8,
        at: Nanos,
    ) -> Vec<Result<Synced, NotTaken>> {
        let now = self.time(at);
        let Gateway { shard, tables, .. } = &mut self.gateway;
        let places = Names::of(&from.tables).places_in(tables);
        for removal in &told.removed {
            shard.end_synced_port_mapping(removal);
        }
        let updates = told.mappings.iter().map(|update| {
            let Item::PortMapping(record) = places.moved(&Item::PortMapping(update.record)) else {
                unreachable!("a port mapping")
            };
            PortMappingUpdate { record, ..*update }
        });
        updates.map(|update| shard.take_in_port_mapping(tables, &update, now, round)).collect()
    }

    /// Tells the other all changes; returns the refusals.
    fn tell(&mut self, other: &mut Box, at: Nanos) -> Vec<NotTaken> {
        let told = self.take(usize::MAX, at);
        other.hear(&self.gateway, &told, 1, at).into_iter().filter_map(Result::err).collect()
    }

    fn sweep(&mut self, sweep: CopySweep) -> u32 {
        let mut all = 0;
        loop {
            let ended = self.gateway.shard.sweep_port_mapping_copies(sweep, 2);
            all += ended;
            if ended < 2 {
                return all;
            }
        }
    }

    /// All mappings: outside port, holder and seconds left, by inside endpoint.
    fn mapped(&self, at: Nanos) -> BTreeMap<(u128, u16), Mapped> {
        let now = self.time(at);
        let all = self.gateway.shard.port_mappings(None, now);
        let about = all.map(|own| {
            let left = own.until.map(|until| until.since(now).0 / 1_000_000_000);
            let Holder { nonce, label, .. } = own.holder;
            ((own.inside.address, own.inside.port), (own.outside.port, nonce, label.text().to_owned(), left))
        });
        about.collect()
    }

    /// A datagram from outside to an outside port: the host and port that it comes to.
    fn inward(&mut self, sport: u16, port: u16, at: Nanos) -> Result<([u8; 4], u16), Verdict> {
        let link = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 1]));
        let bytes = link.ipv4(PEER.into(), MOVED.into()).udp(sport, port).payload(&[7; 8]).to_vec();
        let at = self.time(at);
        self.gateway.receive(&[Arrival { port: PortId(1), at, number: 0, bytes }]);
        let out = self.gateway.out(usize::MAX);
        let Some(sent) = out.sent.first() else { return Err(out.ended[0].1) };
        let mut host = [0; 4];
        host.copy_from_slice(&sent.bytes[30..34]);
        Ok((host, u16::from_be_bytes([sent.bytes[36], sent.bytes[37]])))
    }
}

fn boxes(mapping: &str) -> [Box; 2] {
    [Box::new(2, mapping), Box::new(3, mapping)]
}

fn seconds(seconds: u64) -> Nanos {
    Nanos::from_secs(seconds)
}

fn inside(number: u8, port: u16) -> Endpoint {
    Endpoint::v4(u32::from_be_bytes([192, 168, 1, number]), port, UDP)
}

fn by(nonce: u8) -> Holder {
    Holder { by: MappedBy::Pcp, nonce: [nonce; 12], label: Label::default() }
}

fn request(number: u8, port: u16, outside: u16, lasts: u64) -> PortRequest {
    let lasts = Some(seconds(lasts));
    PortRequest { inside: inside(number, port), port: PortWish::Only(outside), lasts, holder: by(number) }
}

#[test]
fn a_mapping_lets_packets_in_at_the_other_for_the_rest_of_its_time() {
    let [mut one, mut two] = boxes("");
    let closed = Err(Verdict::Dropped(Reason::DefaultDrop));
    assert_eq!(two.inward(9, 5001, seconds(0)), closed);
    assert_eq!(one.map(&request(10, 80, 5001, 60), seconds(1)), Ok(5001));
    assert!(one.gateway.shard.has_port_mapping_changes());
    let told = one.take(10, seconds(21));
    assert!(!one.gateway.shard.has_port_mapping_changes());
    assert_eq!(told.mappings[0].record.left, Some(seconds(40)), "a span, so that clocks need not agree");
    assert_eq!(two.hear(&one.gateway, &told, 1, seconds(21)), [Ok(Synced::Created)]);
    assert_eq!(two.inward(9, 5001, seconds(30)), Ok(([192, 168, 1, 10], 80)));
    assert_eq!(two.inward(10, 5001, seconds(60)), Ok(([192, 168, 1, 10], 80)));
    assert_eq!(two.inward(11, 5001, seconds(61)), closed, "its time is over");
    // Told once, and not told back.
    assert_eq!(one.take(10, seconds(22)), TakenPortMappings::default());
    assert_eq!(two.take(10, seconds(22)), TakenPortMappings::default());
    assert_eq!(two.take_all(seconds(22)), TakenPortMappings::default());
    assert_eq!(two.gateway.shard.take_port_mapping_news().len(), 1, "the expiry alone is news there");
}

#[test]
fn its_host_renews_it_at_the_other_and_nobody_else_does() {
    let [mut one, mut two] = boxes("");
    let wish = request(10, 80, 5001, 60);
    one.map(&wish, seconds(0)).unwrap();
    one.tell(&mut two, seconds(0));
    let foreign = PortRequest { holder: by(77), ..wish };
    assert_eq!(two.map(&foreign, seconds(10)), Err(PortRefusal::NotHolder));
    assert_eq!(two.unmap(&wish.inside, &by(77), seconds(10)), Err(PortRefusal::NotHolder));
    assert_eq!(two.map(&request(10, 80, 5001, 600), seconds(10)), Ok(5001));
    assert_eq!(two.tell(&mut one, seconds(10)), []);
    assert_eq!(one.mapped(seconds(20)), two.mapped(seconds(20)));
    assert_eq!(one.mapped(seconds(20))[&(wish.inside.address, 80)].3, Some(590));
    // What was told of it before, and comes late, changes nothing.
    let late = one.take(10, seconds(20));
    assert_eq!(
        (late.mappings.len(), late.removed.len()),
        (0, 1),
        "it is the other's now, the version superseded"
    );
    two.hear(&one.gateway, &late, 1, seconds(20));
    assert_eq!(one.mapped(seconds(20)), two.mapped(seconds(20)));
    // A shorter time is one as well.
    assert_eq!(two.map(&request(10, 80, 5001, 5), seconds(20)), Ok(5001));
    two.tell(&mut one, seconds(20));
    assert!(one.mapped(seconds(26)).is_empty());
}

#[test]
fn a_removal_on_either_side_goes_on_both_and_the_port_is_free() {
    let [mut one, mut two] = boxes("upnp = true");
    let label = Label::of("a game");
    let upnp = Holder { by: MappedBy::Upnp, nonce: [0; 12], label };
    let wish = PortRequest { holder: upnp, lasts: None, ..request(10, 80, 5001, 0) };
    for removes_at_first in [true, false] {
        one.map(&wish, seconds(0)).unwrap();
        one.tell(&mut two, seconds(0));
        let [here, there] =
            [&one, &two].map(|own| own.mapped(seconds(0))[&(wish.inside.address, 80)].clone());
        assert_eq!(here, there);
        assert_eq!((there.2.as_str(), there.3), ("a game", Some(7 * 86_400)));
        let [from, to] = if removes_at_first { [&mut one, &mut two] } else { [&mut two, &mut one] };
        assert_eq!(from.unmap(&wish.inside, &upnp, seconds(1)), Ok(1));
        assert_eq!(from.tell(to, seconds(1)), []);
        assert!(to.mapped(seconds(1)).is_empty());
        assert_eq!(to.map(&request(11, 80, 5001, 60), seconds(1)), Ok(5001));
        to.unmap(&inside(11, 80), &by(11), seconds(1)).unwrap();
        to.tell(from, seconds(1));
    }
    // The next one's, who has the port at once: what the peer had is outdated.
    one.map(&wish, seconds(2)).unwrap();
    one.tell(&mut two, seconds(2));
    one.unmap(&wish.inside, &upnp, seconds(3)).unwrap();
    one.map(&request(12, 81, 5001, 60), seconds(3)).unwrap();
    let told = TakenPortMappings { removed: vec![], ..one.take(10, seconds(3)) };
    assert_eq!(
        two.hear(&one.gateway, &told, 1, seconds(3)),
        [Ok(Synced::Created)],
        "even without the removal"
    );
    assert_eq!(two.mapped(seconds(3)), one.mapped(seconds(3)));
}

#[test]
fn what_cannot_be_there_is_refused_for_its_reason() {
    let mut one = Box::new(2, "upnp = true");
    for (port, outside) in [(80, 5001), (81, 5002), (82, 5003), (83, 2000)] {
        one.map(&request(10, port, outside, 60), seconds(0)).unwrap();
    }
    let upnp = Holder { by: MappedBy::Upnp, nonce: [0; 12], label: Label::default() };
    one.map(&PortRequest { holder: upnp, ..request(11, 80, 5004, 60) }, seconds(0)).unwrap();
    let told = one.take(10, seconds(0));
    let other = |own: &mut Box| {
        let outcomes = own.hear(&one.gateway, &told, 1, seconds(0));
        let refused: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
        assert_eq!(own.mapped(seconds(0)).len(), 5 - refused.len());
        assert_eq!(
            own.gateway.shard.mappings.len() as usize,
            5 - refused.len(),
            "no port is held for nothing"
        );
        refused
    };
    let mut full = Box::new(3, "upnp = true\nper-host = 2");
    assert_eq!(other(&mut full), [NotTaken::HostFull; 2]);
    assert_eq!(other(&mut Box::new(3, "upnp = true\nsize = 4")), [NotTaken::TableFull]);
    let narrow = "port = \"5000-6000\"";
    assert_eq!(other(&mut Box::new(3, narrow)), [NotTaken::NotAllowed; 2]);
    let mut taken = Box::new(3, "upnp = true");
    taken.map(&request(12, 90, 5002, 60), seconds(0)).unwrap();
    let outcomes = taken.hear(&one.gateway, &told, 1, seconds(0));
    assert_eq!(outcomes[1], Err(NotTaken::Mapping(Restore::PortTaken)));
    // Under another name, without virtual addresses, without a port-mapping.
    let with = |text: String| {
        let mut own = Box::new(3, "");
        own.gateway = Gateway::new(&text, Way::Run);
        own
    };
    let named = policy(3, "upnp = true", "").replace("name = \"out\"", "name = \"other\"");
    assert_eq!(other(&mut with(named)), [NotTaken::NameGone; 5]);
    let own = policy(3, "upnp = true", "").replace("virtual-addresses = [\"203.0.113.10\"]\n", "");
    assert_eq!(other(&mut with(own)), [NotTaken::Mapping(Restore::AddressGone); 5]);
    assert_eq!(other(&mut with(sync::policy(3, ""))), [NotTaken::NameGone; 5]);
}

#[test]
fn a_full_synchronisation_takes_away_what_it_leaves_out_but_nothing_of_ones_own() {
    let [mut one, mut two] = boxes("per-host = 20");
    for port in 0..8 {
        one.map(&request(10, 80 + port, 5001 + port, 60), seconds(0)).unwrap();
    }
    one.tell(&mut two, seconds(0));
    two.map(&request(11, 80, 6001, 60), seconds(0)).unwrap();
    two.map(&request(10, 81, 5002, 90), seconds(0)).unwrap();
    // The connection is away meanwhile; 81 has been renewed at the other, and is removed here.
    for port in [81, 82, 83, 84] {
        one.unmap(&inside(10, port), &by(10), seconds(0)).unwrap();
    }
    let all = one.take_all(seconds(0));
    assert_eq!((all.mappings.len(), all.removed.len()), (4, 4));
    // Were removals lost, what is left out goes all the same.
    let all = TakenPortMappings { removed: vec![], ..all };
    two.hear(&one.gateway, &all, 2, seconds(0));
    assert_eq!(two.sweep(CopySweep::Purge { round: 2 }), 3);
    assert_eq!(two.mapped(seconds(0)).len(), 4 + 2);
    assert_eq!(two.tell(&mut one, seconds(0)), []);
    assert_eq!(one.mapped(seconds(0)), two.mapped(seconds(0)));
    // A gateway that has begun anew is told of what it had.
    let mut anew = Box::new(2, "per-host = 20");
    assert_eq!(two.take_all(seconds(0)).mappings.len(), 2, "copies are not told back");
    two.sweep(CopySweep::Adopt);
    let all = two.take_all(seconds(0));
    anew.hear(&two.gateway, &all, 1, seconds(0));
    assert_eq!(anew.mapped(seconds(0)), two.mapped(seconds(0)));
    assert_eq!(two.sweep(CopySweep::Purge { round: 3 }), 0, "they are its own");
}

#[test]
fn what_was_removed_while_the_other_was_away_is_not_restored_there_and_what_is_new_there_stays() {
    let [mut one, mut two] = boxes("");
    for port in [80, 81, 82] {
        one.map(&request(10, port, 5000 + port, 60), seconds(0)).unwrap();
    }
    one.tell(&mut two, seconds(0));
    // The first stops, with a state file, and comes back; the second is asked meanwhile.
    let mut items = Vec::new();
    let mut cursor = Some(Cursor::default());
    while let Some(from) = cursor {
        cursor = one.gateway.shard.export(&one.gateway.tables, START, from, 9, |item| items.push(item));
    }
    for port in [80, 81] {
        two.unmap(&inside(10, port), &by(10), seconds(1)).unwrap();
    }
    let mut one = Box::new(2, "");
    for item in items.iter().filter(|item| matches!(item, Item::PortMapping(_))) {
        one.gateway.shard.import(&one.gateway.tables, item, START).unwrap();
    }
    assert_eq!(one.mapped(seconds(1)).len(), 3);
    // Before there is a connection, its host maps one of the two anew.
    one.unmap(&inside(10, 81), &by(10), seconds(1)).unwrap();
    one.map(&request(10, 81, 5081, 60), seconds(1)).unwrap();
    two.sweep(CopySweep::Adopt);
    let all = two.take_all(seconds(2));
    one.hear(&two.gateway, &all, 1, seconds(2));
    let left: Vec<u16> = one.mapped(seconds(2)).into_keys().map(|(_, port)| port).collect();
    assert_eq!(left, [81, 82]);
    assert_eq!(one.tell(&mut two, seconds(2)), []);
    assert_eq!(two.mapped(seconds(2)).keys().map(|(_, port)| *port).collect::<Vec<_>>(), left);
}

#[test]
fn what_the_policy_no_longer_has_ends_at_the_other_unless_that_one_has_made_it() {
    let [mut one, mut two] = boxes("");
    one.map(&request(10, 80, 5001, 60), seconds(0)).unwrap();
    two.map(&request(11, 80, 5002, 60), seconds(0)).unwrap();
    one.tell(&mut two, seconds(0));
    two.tell(&mut one, seconds(0));
    let at = one.time(seconds(1));
    one.gateway.reload(&policy(2, "port = \"6000-7000\"", ""), at);
    assert!(one.mapped(seconds(1)).is_empty());
    let told = one.take(10, seconds(1));
    assert_eq!(told.removed.iter().map(|removal| removal.cause).collect::<Vec<_>>(), [UnmapCause::Gone]);
    two.hear(&one.gateway, &told, 1, seconds(1));
    assert_eq!(two.mapped(seconds(1)).len(), 1);
    let gone = one.gateway.shard.take_port_mapping_news();
    assert_eq!(gone.iter().filter(|news| news.event == PortMappingEvent::Gone).count(), 2);
}

#[test]
fn a_reload_forgets_neither_changes_nor_whose_mappings_are() {
    for more in ["", "[limit]\nflows = 900\n"] {
        let [mut one, mut two] = boxes("");
        one.map(&request(10, 80, 5001, 60), seconds(0)).unwrap();
        one.map(&request(10, 81, 5002, 60), seconds(0)).unwrap();
        two.map(&request(11, 80, 5003, 60), seconds(0)).unwrap();
        two.tell(&mut one, seconds(0));
        one.tell(&mut two, seconds(0));
        one.map(&request(10, 82, 5004, 60), seconds(0)).unwrap();
        one.unmap(&inside(10, 81), &by(10), seconds(0)).unwrap();
        let at = one.time(seconds(1));
        one.gateway.reload(&policy(2, "", more), at);
        let told = one.take(10, seconds(1));
        assert_eq!((told.removed.len(), told.mappings.len()), (1, 1), "what is told, or a copy, is not told");
        two.hear(&one.gateway, &told, 1, seconds(1));
        assert_eq!(two.mapped(seconds(1)), one.mapped(seconds(1)));
        assert_eq!(one.take_all(seconds(1)).mappings.len(), 2);
        assert_eq!(one.sweep(CopySweep::Purge { round: 9 }), 1);
    }
}

#[test]
fn more_removals_than_are_kept_are_counted() {
    let mut one = Box::new(2, "");
    for _ in 0..5000 {
        one.map(&request(10, 80, 5001, 60), seconds(0)).unwrap();
        one.unmap(&inside(10, 80), &by(10), seconds(0)).unwrap();
        one.gateway.shard.take_port_mapping_news();
    }
    let taken = one.take(usize::MAX, seconds(0));
    assert_eq!((taken.removed.len(), taken.lost, taken.mappings.len()), (4096, 5000 - 4096, 0));
    assert_eq!(one.take(10, seconds(0)), TakenPortMappings::default());
}

/// A step of a scene: at one of the two, of one of some inside endpoints.
#[derive(Clone, Debug)]
enum Act {
    Map {
        at: usize,
        number: u8,
        port: u8,
        other: u16,
        nonce: u8,
        lasts: u64,
    },
    Unmap {
        at: usize,
        number: u8,
        port: u8,
        operator: bool,
    },
    /// Changes go on their way; a few at once.
    Take {
        from: usize,
        most: usize,
    },
    /// One message comes to the other.
    Deliver {
        from: usize,
    },
    /// The connection breaks with all that is on its way, and both begin with a full synchronisation.
    Break,
    Reload {
        at: usize,
        other: bool,
    },
    Pass(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let (at, number, port) = (|| 0..2usize, || 10..12u8, || 0..2u8);
    prop_oneof![
        6 => (at(), number(), port(), 0..2u16, 0..2u8, 1..40u64)
            .prop_map(|(at, number, port, other, nonce, lasts)| Act::Map { at, number, port, other, nonce, lasts }),
        3 => (at(), number(), port(), any::<bool>())
            .prop_map(|(at, number, port, operator)| Act::Unmap { at, number, port, operator }),
        5 => (at(), 1..4usize).prop_map(|(from, most)| Act::Take { from, most }),
        5 => at().prop_map(|from| Act::Deliver { from }),
        1 => Just(Act::Break),
        1 => (at(), any::<bool>()).prop_map(|(at, other)| Act::Reload { at, other }),
        2 => (1..9u64).prop_map(Act::Pass),
    ]
}

/// A message on its way.
enum Message {
    Changes(TakenPortMappings),
    FullBegins,
    FullEnds,
}

/// Two gateways, with what is on its way between them.
struct Pair {
    boxes: [Box; 2],
    /// From each to the other.
    ways: [VecDeque<Message>; 2],
    /// Rounds of the peer's full synchronisations, at each.
    rounds: [u8; 2],
    now: Nanos,
}

impl Pair {
    fn take(&mut self, from: usize, most: usize) {
        let taken = self.boxes[from].take(most, self.now);
        self.ways[from].push_back(Message::Changes(taken));
    }

    fn deliver(&mut self, from: usize) {
        let Some(message) = self.ways[from].pop_front() else { return };
        let to = 1 - from;
        let [one, two] = &mut self.boxes;
        let (from, own) = if from == 0 { (one, two) } else { (two, one) };
        let round = &mut self.rounds[to];
        match message {
            Message::Changes(told) => {
                for outcome in own.hear(&from.gateway, &told, *round, self.now) {
                    assert!(outcome.is_ok(), "{outcome:?}");
                }
            }
            Message::FullBegins => *round = round.wrapping_add(1),
            Message::FullEnds => drop(own.sweep(CopySweep::Purge { round: *round })),
        }
    }

    fn deliver_all(&mut self) {
        // What is superseded is told back.
        for from in [0, 1, 0, 1, 0, 1] {
            self.take(from, usize::MAX);
            while !self.ways[from].is_empty() {
                self.deliver(from);
            }
        }
    }

    fn reconnect(&mut self) {
        for from in [0, 1] {
            self.ways[from].clear();
            self.ways[from].push_back(Message::FullBegins);
            let all = self.boxes[from].take_all(self.now);
            self.ways[from].extend([Message::Changes(all), Message::FullEnds]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever is asked for at either, and in whatever order they learn of it, through broken connections and reloads: both come to the
    /// same. No two inside endpoints ask for the same outside port here, as the later one's would be refused by the other.
    #[test]
    fn both_come_to_the_same_whoever_changes(acts in vec(act(), 1..80)) {
        let mut pair = Pair { boxes: boxes(""), ways: Default::default(), rounds: [0; 2], now: seconds(0) };
        pair.reconnect();
        for act in acts {
            let now = pair.now;
            match act {
                Act::Map { at, number, port, other, nonce, lasts } => {
                    let outside = 5000 + u16::from(number - 10) * 10 + u16::from(port) * 2 + other;
                    let wish = request(number, 80 + u16::from(port), outside, lasts);
                    let _ = pair.boxes[at].map(&PortRequest { holder: by(nonce), ..wish }, now);
                }
                Act::Unmap { at, number, port, operator } => {
                    let holder = if operator { Holder::operator(Label::default()) } else { by(0) };
                    let _ = pair.boxes[at].unmap(&inside(number, 80 + u16::from(port)), &holder, now);
                }
                Act::Take { from, most } => pair.take(from, most),
                Act::Deliver { from } => pair.deliver(from),
                Act::Break => pair.reconnect(),
                Act::Reload { at, other } => {
                    let own = &mut pair.boxes[at];
                    let more = if other { "[limit]\nflows = 900\n" } else { "" };
                    let (text, time) = (policy(own.own, "", more), own.time(now));
                    own.gateway.reload(&text, time);
                }
                // Spans are of the time at which they are told.
                Act::Pass(more) => {
                    pair.deliver_all();
                    pair.now += seconds(more);
                }
            }
            for own in &mut pair.boxes {
                own.gateway.shard.take_port_mapping_news();
            }
        }
        pair.deliver_all();
        let now = pair.now;
        prop_assert_eq!(pair.boxes[0].mapped(now), pair.boxes[1].mapped(now));
        for own in &mut pair.boxes {
            prop_assert_eq!(own.take(10, now), TakenPortMappings::default());
        }
        // Each is one's own at one of them at least: a gateway that begins anew gets it.
        let mut own: Vec<_> = pair.boxes.iter_mut().flat_map(|one| one.take_all(now).mappings).collect();
        own.sort_unstable_by_key(|update| (update.record.mapping.inside.address, update.record.mapping.inside.port));
        own.dedup_by_key(|update| update.record.mapping.inside);
        prop_assert_eq!(own.len(), pair.boxes[0].mapped(now).len());
    }
}
