//! Runner: plays a case on every host, and reports failures.

use dataplane::port_mapping::{Holder, Label, PortRequest};
use dataplane::replay::ReplayError;
use dataplane::set::{Element, SetChange, SetOutcome};
use dataplane::tables::{CompileError, LOCAL, OTHER};
use dataplane::verdict::Reason;
use dataplane::{Shard, Tables, Verdict};
use policy::Policy;
use policy::model::{Colour, OTHER_ZONE, SELF_ZONE};
use wire::vlan::Tags;
use wire::{Meta, Nanos, PortId};

use super::build::{self, Link};
use super::diff::{compare, show};
use super::dissect;
use super::fault::What;
use super::host::{Batching, End, Host, Input, Player, REPLAY, Record, Sent};
use super::packet::{Packet, Variables};
use super::reassemble::{Reassembly, Wrong};
use super::{Case, Counter, Departure, Fate, In, PortStep, PortWish, SetStep, SetWish, Step};

/// A result that is not as expected.
#[derive(Debug)]
pub struct Failure {
    /// Line of the expectation, from 1; 0 for none.
    pub line: usize,
    /// Description, in one line or more.
    pub text: Vec<String>,
}

/// Reason for refusing to start a case.
#[derive(Debug, thiserror::Error)]
pub enum Unplayable {
    /// A policy compiles to no tables.
    #[error(transparent)]
    Compile(CompileError),
    /// A host could not start.
    #[error(transparent)]
    Replay(ReplayError),
}

/// The moment at which every case begins: any, but none at which a clock starts.
const START: Nanos = Nanos::from_secs(1_700_000_000);

/// Largest number of failures reported of one case.
const MOST: usize = 12;

/// Largest size of all packets received, in MiB: they and their output are kept until the end.
const MOST_MIB: usize = 256;

/// Failure of a reassembled datagram.
const REASSEMBLED: &str = "the datagram that this fragment completes has a wrong checksum";

/// Plays a case on the replay host, in all of its ways, and on `further` hosts, which must do the same. Returns the
/// failures: none for a case that passes.
pub fn play(case: &Case, further: &[Host]) -> Result<Vec<Failure>, Unplayable> {
    let tables = || Tables::compile(&case.policy, 1).map_err(Unplayable::Compile);
    // Those that follow one another, by which what happened under each is told.
    let mut turns = vec![tables()?];
    for step in &case.steps {
        if let Step::Reload(policy) = step {
            turns.push(Tables::compile(policy, 1).map_err(Unplayable::Compile)?);
        }
    }
    let [first, others @ ..] = &REPLAY;
    let player = (first.start)(tables()?, START).map_err(Unplayable::Replay)?;
    let mut play = Play {
        player,
        variables: Variables::new(),
        acts: Vec::new(),
        inputs: Vec::with_capacity(case.packets as usize),
        seen: Vec::new(),
        came: Vec::with_capacity(case.packets as usize),
        reassembly: Reassembly::default(),
        failures: Vec::new(),
        bytes: 0,
        now: START,
        turns,
    };
    play.all(case);
    for host in others.iter().chain(further) {
        let mut player = (host.start)(tables()?, START).map_err(Unplayable::Replay)?;
        if let Err(error) = again(&mut *player, &play.acts, host.batching) {
            play.fail(0, vec![format!("host `{}`: {error}", host.name)]);
        }
        if let Some(fault) = player.fault() {
            play.fail(0, vec![format!("host `{}` did not play to the end: {fault}", host.name)]);
        }
        // First what is a fault of the program, then what is one of the case, perhaps.
        let different = differ(&*play.player, &*player, host.name, &play.inputs);
        play.failures.splice(..0, different);
    }
    if play.failures.len() > MOST {
        let more = play.failures.len() - MOST;
        play.failures.truncate(MOST);
        play.failures.push(Failure { line: 0, text: vec![format!("and {more} more")] });
    }
    Ok(play.failures)
}

/// An event on the first host, for the others to repeat.
enum Act<'a> {
    Receive(Input),
    Flush(Nanos),
    Clear(Nanos),
    Set(&'a SetStep, Nanos),
    Port(&'a PortStep, Nanos),
    Reload(&'a Policy, Nanos),
}

/// Expectation of a frame.
struct Expected<'a> {
    input: &'a In,
    turn: u64,
}

/// The first host at play.
struct Play<'a> {
    player: Box<dyn Player>,
    variables: Variables,
    acts: Vec<Act<'a>>,
    /// By number of the frame.
    inputs: Vec<Expected<'a>>,
    /// Number of departed frames already compared, by port.
    seen: Vec<usize>,
    /// Number of frames sent for each frame received.
    came: Vec<usize>,
    /// Fragments sent.
    reassembly: Reassembly,
    failures: Vec<Failure>,
    /// Bytes received so far.
    bytes: usize,
    now: Nanos,
    turns: Vec<Tables>,
}

impl<'a> Play<'a> {
    fn all(&mut self, case: &'a Case) {
        for step in &case.steps {
            match step {
                Step::At(at) => self.go_on(START + *at),
                Step::In(input) => self.receive(input),
                Step::Clear => {
                    self.flush();
                    self.player.clear();
                    self.acts.push(Act::Clear(self.now));
                }
                Step::Set(step) => {
                    self.flush();
                    if let Err(error) = change_set(&mut *self.player, step, self.now) {
                        self.fail(step.line, vec![error]);
                    }
                    self.acts.push(Act::Set(step, self.now));
                }
                Step::Port(step) => {
                    self.flush();
                    if let Err(error) = change_port(&mut *self.player, step, self.now) {
                        self.fail(step.line, vec![error]);
                    }
                    self.acts.push(Act::Port(step, self.now));
                }
                Step::Reload(policy) => {
                    self.flush();
                    if let Err(error) = reload(&mut *self.player, policy, self.now) {
                        self.fail(0, vec![error]);
                    }
                    self.acts.push(Act::Reload(policy, self.now));
                }
                Step::Counter(counter) => {
                    self.flush();
                    self.acts.push(Act::Flush(self.now));
                    self.count(counter);
                }
            }
        }
        self.player.finish();
        self.look_at_all();
        self.finish();
    }

    fn fail(&mut self, line: usize, text: Vec<String>) {
        self.failures.push(Failure { line, text });
    }

    fn go_on(&mut self, at: Nanos) {
        if at != self.now {
            self.player.advance(at);
            self.look_at_all();
            self.now = at;
        }
    }

    fn receive(&mut self, input: &'a In) {
        let tables = self.player.tables();
        let named = tables.interface_named(&input.interface);
        let id = match input.interface.as_str() {
            SELF_ZONE => Some(LOCAL),
            OTHER_ZONE => named.or(Some(OTHER)),
            _ => named,
        };
        let Some(link) = id.and_then(|id| Link::of(tables, id)) else { return };
        for turn in 0..input.times {
            if turn > 0 {
                self.go_on(self.now + input.every);
            }
            let bytes = match build::frame(&input.packet, &link, &self.variables, turn) {
                Ok(bytes) => bytes,
                Err(what) => return self.fail(input.line, vec![what.to_string()]),
            };
            self.bytes += bytes.len();
            if self.bytes > MOST_MIB << 20 {
                return self.fail(input.line, vec![What::TooLarge(MOST_MIB).to_string()]);
            }
            let frame = Input { number: self.inputs.len() as u32, port: link.port, at: self.now, bytes };
            self.inputs.push(Expected { input, turn });
            self.came.push(0);
            self.player.receive(&frame);
            self.acts.push(Act::Receive(frame));
        }
    }

    /// Flushes the host, so that frames due by now depart, and checks the output.
    fn flush(&mut self) {
        self.player.flush();
        self.look_at_all();
    }

    /// Checks the output since the last check.
    fn look_at_all(&mut self) {
        let ports = self.player.record().sent.len();
        self.seen.resize(ports, 0);
        for port in 0..ports {
            while let Some(sent) = self.player.record().sent[port].get(self.seen[port]).cloned() {
                self.seen[port] += 1;
                self.look(PortId(port as u16), &sent);
            }
        }
    }

    fn look(&mut self, port: PortId, sent: &Sent) {
        let Sent { number, at, ref bytes } = *sent;
        let got = dissect::frame(bytes);
        let name = interface_of(self.player.tables(), port, bytes);
        let Some(Expected { input, turn }) = self.inputs.get(number as usize) else { return };
        let turn = *turn;
        let place = self.came[number as usize];
        self.came[number as usize] += 1;
        let Some(out) = input.outs.get(place) else {
            let mut text = vec![format!("nothing more was to come out; out {name} {}", show(&got))];
            text.extend(compare(&Packet::default(), &got, &mut self.variables, turn));
            if self.reassembly.add(bytes) == Some(Wrong::Checksum) {
                text.push(REASSEMBLED.to_owned());
            }
            return self.fail(input.line, told(text, turn));
        };
        let mut differences = compare(&out.packet, &got, &mut self.variables, turn);
        if self.reassembly.add(bytes) == Some(Wrong::Checksum) {
            differences.push(REASSEMBLED.to_owned());
        }
        if out.interface != name {
            differences.insert(0, format!("interface: expected {}, got {name}", out.interface));
        }
        if let Some(Departure { at: expected, every }) = out.departure {
            let (expected, got) = (expected + Nanos(every.0.saturating_mul(turn)), at.since(START));
            if expected != got {
                differences.insert(0, format!("departure: expected at {expected}, got at {got}"));
            }
        }
        if !differences.is_empty() {
            let mut text = vec![format!("not the packet that was to come out; out {name} {}", show(&got))];
            text.extend(differences);
            self.fail(out.line, told(text, turn));
        }
    }

    fn count(&mut self, counter: &Counter) {
        match value(&counter.name, self.player.tables(), self.player.shard()) {
            Some(value) if value == counter.value => {}
            Some(value) => {
                let text = format!("{}: expected {}, got {value}", counter.name, counter.value);
                self.fail(counter.line, vec![text]);
            }
            None => self.fail(counter.line, vec![What::Counter(counter.name.clone()).to_string()]),
        }
    }

    /// Looks at every frame's fate, and whether all came out that should.
    fn finish(&mut self) {
        let mut found = Vec::new();
        let record = self.player.record();
        for (number, Expected { input, turn }) in self.inputs.iter().enumerate() {
            let got = record.fates.get(number).copied().flatten();
            if let Some(text) = wrong_fate(&input.fate, got, &self.turns) {
                found.push(Failure { line: input.line, text: told(vec![text], *turn) });
            }
            for out in input.outs.iter().skip(self.came[number]) {
                let text = vec!["this packet did not come out".to_owned()];
                found.push(Failure { line: out.line, text: told(text, *turn) });
            }
        }
        if !self.player.shard().counters.are_conserved() {
            let text = "frames are not conserved: received + copied is not forwarded + delivered + answered + dropped + queued + held";
            found.push(Failure { line: 0, text: vec![text.to_owned()] });
        }
        for number in &record.twice {
            let line = self.inputs.get(*number as usize).map_or(0, |expected| expected.input.line);
            found.push(Failure { line, text: vec!["the packet has two fates".to_owned()] });
        }
        self.failures.extend(found);
    }
}

/// Says which repetition it is about.
fn told(mut text: Vec<String>, turn: u64) -> Vec<String> {
    if turn > 0 {
        text.insert(1, format!("in repetition {}", turn + 1));
    }
    text
}

/// The name of the interface that a frame left by: that of its port and tags.
fn interface_of(tables: &Tables, port: PortId, bytes: &[u8]) -> String {
    let tags = wire::ethernet::parse(bytes).map_or(Tags::NONE, |layer| layer.tags);
    // A tag of VLAN 0 says a priority, and no VLAN.
    let ids = |tags: &Tags| {
        let ids = tags.as_slice().iter().map(|tag| tag.id());
        ids.filter(|id| *id != 0).collect::<Vec<_>>()
    };
    tables
        .interfaces
        .iter()
        // A PPP session's frames are its carrier's.
        .filter(|interface| interface.ppp.is_none() || interface.channel.is_some())
        .find(|interface| interface.root == port && ids(&interface.tags) == ids(&tags))
        .map_or_else(|| format!("port {}", port.0), |interface| interface.name.clone())
}

fn wrong_fate(expected: &Fate, got: Option<End>, turns: &[Tables]) -> Option<String> {
    let held = Verdict::Held(Reason::FragmentWaits);
    let got = got.unwrap_or(End { verdict: held, rule: Meta::NO_RULE, nat: 0, turn: 0 });
    let tables = turns.get(got.turn)?;
    let rule = |index: u32| tables.filter.rules.get(index as usize).map(|rule| rule.name.as_str());
    let nats: Vec<&str> = tables.nat.names(got.nat).collect();
    let rule_is_right = match expected.rule.as_deref() {
        None => true,
        Some("none") => rule(got.rule).is_none(),
        name => rule(got.rule) == name,
    };
    let nats_are_right = expected.nats.as_ref().is_none_or(|names| *names == nats);
    if got.verdict == expected.verdict && rule_is_right && nats_are_right {
        return None;
    }
    let said = |verdict: Verdict, rule: Option<&str>, nats: &[&str]| {
        let reason = verdict.reason().map_or(String::new(), |reason| format!(" {reason}"));
        let rule = rule.map_or(String::new(), |name| format!(" by {name}"));
        let nats = if nats.is_empty() { String::new() } else { format!(" nat {}", nats.join(",")) };
        format!("{}{reason}{rule}{nats}", verdict.name())
    };
    let names: Vec<&str> = expected.nats.iter().flatten().map(String::as_str).collect();
    Some(format!(
        "the packet's fate: expected {}, got {}",
        said(expected.verdict, expected.rule.as_deref(), &names),
        said(got.verdict, rule(got.rule), &nats)
    ))
}

/// Another policy holds from now on.
fn reload(player: &mut dyn Player, policy: &Policy, at: Nanos) -> Result<(), String> {
    let tables = Tables::compile(policy, 1).map_err(|error| error.to_string())?;
    player.reload(tables, at).map_err(|error| error.to_string())
}

/// Changes a port mapping, as an operator does.
fn change_port(player: &mut dyn Player, step: &PortStep, at: Nanos) -> Result<(), String> {
    let holder = Holder::operator(Label::default());
    let inside = step.inside;
    match step.wish {
        PortWish::Map(port, lasts) => {
            let port = dataplane::port_mapping::PortWish::Only(port);
            let mapped = player.map_port(&PortRequest { inside, port, lasts, holder }, at);
            mapped.map(drop).map_err(|error| error.to_string())
        }
        PortWish::Unmap => match player.unmap_port(&inside, at) {
            Ok(0) => Err(format!("there is no port mapping to {inside}")),
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        },
    }
}

/// Changes a dynamic set of the tables in force.
fn change_set(player: &mut dyn Player, step: &SetStep, at: Nanos) -> Result<(), String> {
    let sets = &player.tables().sets;
    let place = sets.iter().position(|set| set.name == step.set);
    let Some(place) = place else { return Err(format!("there is no dynamic set `{}`", step.set)) };
    let (set, own) = (place as u16, sets[place].timeout);
    let change = match step.change {
        SetWish::Add(prefix, lasts) => {
            let until = lasts.or(own).map(|lasts| at + lasts);
            SetChange::Add(Element { set, prefix, until })
        }
        SetWish::Remove(prefix) => SetChange::Remove { set, prefix },
        SetWish::Flush => SetChange::Flush { set },
    };
    match player.change_set(&change, at) {
        SetOutcome::Added | SetOutcome::Refreshed | SetOutcome::Removed => Ok(()),
        SetOutcome::Absent => Err(format!("`{}` has no such element", step.set)),
        SetOutcome::Full => Err(format!("`{}` is full", step.set)),
    }
}

/// Repeats the first host's events on another host.
fn again(player: &mut dyn Player, acts: &[Act<'_>], batching: Batching) -> Result<(), String> {
    let mut now = START;
    for act in acts {
        match act {
            Act::Receive(input) => {
                if batching != Batching::Case && input.at != now {
                    player.advance(input.at);
                }
                now = input.at;
                player.receive(input);
            }
            Act::Flush(at) => {
                player.advance(*at);
                player.flush();
            }
            Act::Clear(at) => {
                player.advance(*at);
                player.flush();
                player.clear();
            }
            Act::Set(step, at) => {
                player.advance(*at);
                player.flush();
                change_set(player, step, *at)?;
            }
            Act::Port(step, at) => {
                player.advance(*at);
                player.flush();
                change_port(player, step, *at)?;
            }
            Act::Reload(policy, at) => {
                player.advance(*at);
                player.flush();
                reload(player, policy, *at)?;
            }
        }
    }
    player.finish();
    Ok(())
}

/// Returns the differences of another host from the first: bytes, verdicts and counters.
fn differ(first: &dyn Player, other: &dyn Player, name: &str, inputs: &[Expected<'_>]) -> Vec<Failure> {
    let mut failures = Vec::new();
    let line = |number: usize| inputs.get(number).map_or(0, |expected| expected.input.line);
    let (one, two): (&Record, &Record) = (first.record(), other.record());
    let nothing = Vec::new();
    for port in 0..one.sent.len().max(two.sent.len()) {
        let (a, b) = (one.sent.get(port).unwrap_or(&nothing), two.sent.get(port).unwrap_or(&nothing));
        let Some(place) = (0..a.len().max(b.len())).find(|place| a.get(*place) != b.get(*place)) else {
            continue;
        };
        let shown = |sent: Option<&Sent>| match sent {
            None => "nothing".to_owned(),
            Some(sent) => format!("at {}, {}", sent.at.since(START), show(&dissect::frame(&sent.bytes))),
        };
        let (x, y) = (a.get(place), b.get(place));
        let number = x.or(y).map_or(0, |sent| sent.number as usize);
        let port = interface_of(first.tables(), PortId(port as u16), &[]);
        let text = vec![
            format!("host `{name}` sends another packet by {port} than host `{}`", REPLAY[0].name),
            format!("{}: {}", REPLAY[0].name, shown(x)),
            format!("{name}: {}", shown(y)),
        ];
        failures.push(Failure { line: line(number), text });
    }
    for number in 0..inputs.len() {
        let (a, b) = (one.fates.get(number).copied().flatten(), two.fates.get(number).copied().flatten());
        if a != b {
            let text =
                format!("host `{name}` decides otherwise than host `{}`: {b:?}, {a:?}", REPLAY[0].name);
            failures.push(Failure { line: line(number), text: vec![text] });
        }
    }
    let counters = |shard: &Shard| format!("{:?} {:?}", shard.counters, shard.sas.views(Nanos(0)));
    let (a, b) = (counters(first.shard()), counters(other.shard()));
    let flows = |shard: &Shard| (shard.flows.len(), shard.flows.created(), shard.flows.peak());
    let reports = |player: &dyn Player| {
        let sets = 0..player.tables().sets.len() as u16;
        sets.map(|set| player.shard().set_report(set)).collect::<Vec<_>>()
    };
    let (of_first, of_other) = (reports(first), reports(other));
    if of_first != of_other {
        let text = format!("host `{name}` has other sets: {of_other:?}, not {of_first:?}");
        failures.push(Failure { line: 0, text: vec![text] });
    }
    if a != b || flows(first.shard()) != flows(other.shard()) {
        failures.push(Failure { line: 0, text: vec![format!("host `{name}` counts otherwise"), a, b] });
    }
    failures
}

/// The value of a counter.
fn value(name: &str, tables: &Tables, shard: &Shard) -> Option<u64> {
    let counters = &shard.counters;
    let (group, rest) = name.split_once('.').unwrap_or((name, ""));
    let reason = || Reason::of_name(rest);
    match (group, rest) {
        ("received", "") => Some(counters.received.frames),
        ("copied", "") => Some(counters.copied),
        ("forwarded", "") => Some(counters.forwarded()),
        ("delivered", "") => Some(counters.delivered()),
        ("answered", "") => Some(counters.answered()),
        ("dropped", "") => Some(counters.dropped()),
        ("held", "") => Some(counters.held),
        ("queued", "") => Some(counters.queued()),
        ("answered", _) => Some(counters.answered_for(reason()?)),
        ("dropped", _) => Some(counters.dropped_for(reason()?)),
        ("reasons", _) => Some(counters.answered_for(reason()?) + counters.dropped_for(reason()?)),
        ("flows", "live") => Some(u64::from(shard.flows.len())),
        ("flows", "created") => Some(shard.flows.created()),
        ("flows", "ended") => Some(shard.flows.ended()),
        ("flows", "peak") => Some(u64::from(shard.flows.peak())),
        ("flows", "evicted") => Some(counters.evicted),
        ("parts", "sent") => Some(counters.parts_sent),
        ("parts", "lost") => Some(counters.parts_lost),
        ("rules", _) => {
            let (rule, unit) = rest.rsplit_once('.')?;
            let place = tables.filter.rules.iter().position(|known| known.name == rule)?;
            let traffic = counters.rules.get(place)?;
            measured(unit, traffic.frames, traffic.bytes)
        }
        ("classes", _) => {
            let (class, unit) = rest.rsplit_once('.')?;
            let place = tables.classes.list.iter().position(|known| known.name == class)?;
            let count = counters.classes.get(place)?;
            let colour = Colour::ALL.into_iter().find(|colour| colour.name() == unit);
            match colour {
                Some(colour) => Some(count.colours[colour as usize]),
                None => measured(unit, count.traffic.frames, count.traffic.bytes),
            }
        }
        ("queues", _) => {
            let (queue, unit) = rest.rsplit_once('.')?;
            let mut sum = None;
            for tree in shard.egress.trees() {
                for (_, counts) in tree.leaves().filter(|(name, _)| *name == queue) {
                    *sum.get_or_insert(0) += match unit {
                        "waiting" => counts.packets,
                        "sent" => counts.sent,
                        "bytes" => counts.sent_bytes,
                        "full" => counts.full,
                        "early" => counts.early,
                        "marked" => counts.marked,
                        _ => return None,
                    };
                }
            }
            sum
        }
        ("sas", _) => {
            let (spi, unit) = rest.rsplit_once('.')?;
            let spi = match spi.strip_prefix("0x") {
                Some(digits) => u32::from_str_radix(digits, 16).ok()?,
                None => spi.parse().ok()?,
            };
            // Those of both directions, and of several tunnels, may have one index.
            let views = shard.sas.views(Nanos(0));
            let of_spi = views.iter().filter(|view| view.spi == spi);
            of_spi.filter_map(|view| view.counter(unit)).reduce(|sum, count| sum + count)
        }
        ("sets", _) => {
            let (set, unit) = rest.rsplit_once('.')?;
            let place = tables.sets.iter().position(|known| known.name == set)?;
            let report = shard.set_report(place as u16);
            match unit {
                "elements" => Some(report.elements.into()),
                "refused" => Some(report.refused),
                "expired" => Some(report.expired),
                "dropped" => Some(report.dropped),
                _ => None,
            }
        }
        ("nats", _) => {
            let (nat, unit) = rest.rsplit_once('.')?;
            let source = tables.nat.sources.iter().position(|known| known.name == nat);
            let destination = tables.nat.destinations.iter().position(|known| known.name == nat);
            if unit == "refused" {
                return counters.nat_refused.get(source?).copied();
            }
            source.or(destination)?;
            let each = counters.nats(tables);
            let out = source.and_then(|place| each.sources.get(place).copied()).unwrap_or_default();
            let inward =
                destination.and_then(|place| each.destinations.get(place).copied()).unwrap_or_default();
            measured(unit, out.frames + inward.frames, out.bytes + inward.bytes)
        }
        _ => None,
    }
}

fn measured(unit: &str, frames: u64, bytes: u64) -> Option<u64> {
    match unit {
        "frames" => Some(frames),
        "bytes" => Some(bytes),
        _ => None,
    }
}
