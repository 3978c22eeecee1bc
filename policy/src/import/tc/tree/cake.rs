//! CAKE: a shaper with tins by code point, each fair to hosts and flows. With the usual tins it is what a shape is.

use wire::{BitRate, Dscp, Nanos};

use super::{Builder, Entry, counted};
use crate::expand::shape::{CLASSES, Class, QUANTUM, Times, leaf};
use crate::import::cond::Cond;
use crate::import::note::{NoteKind, Why};
use crate::import::range::ByteSet;
use crate::import::tc::ledger::Ledger;
use crate::import::tc::option::Options;
use crate::import::tc::unit;
use crate::model::{Dropper, Fairness, Isolation, Overhead, Queue, Scheduler};
use crate::value::time::duration_text;

/// CAKE's configuration.
#[derive(Clone, Debug)]
pub(in crate::import::tc) struct Cake {
    pub(in crate::import::tc) rate: Option<BitRate>,
    tins: &'static str,
    flows: &'static str,
    pub(in crate::import::tc) overhead: Overhead,
    times: Times,
    is_washed: bool,
}

/// Words for tins, and for flows; of each, the first is what CAKE does if a source does not say.
const TINS: [&str; 6] = ["diffserv3", "diffserv4", "diffserv", "diffserv8", "precedence", "besteffort"];
const FLOWS: [&str; 8] =
    ["triple-isolate", "dual-srchost", "dual-dsthost", "flows", "flowblind", "srchost", "dsthost", "hosts"];

/// Round-trip times by name, in microseconds.
const TIMES: [(&str, u64); 8] = [
    ("datacentre", 100),
    ("lan", 1_000),
    ("metro", 10_000),
    ("regional", 30_000),
    ("internet", 100_000),
    ("oceanic", 300_000),
    ("satellite", 1_000_000),
    ("interplanetary", 3_600_000_000),
];

/// Link layers by name: bytes, cells or PTM, and the shortest packet (tc-cake(8)).
const LAYERS: [(&str, i64, Option<Coding>, u64); 15] = [
    ("conservative", 48, Some(Coding::Atm), 0),
    ("ipoa-vcmux", 8, Some(Coding::Atm), 0),
    ("ipoa-llcsnap", 16, Some(Coding::Atm), 0),
    ("bridged-vcmux", 24, Some(Coding::Atm), 0),
    ("bridged-llcsnap", 32, Some(Coding::Atm), 0),
    ("pppoa-vcmux", 10, Some(Coding::Atm), 0),
    ("pppoa-llc", 14, Some(Coding::Atm), 0),
    ("pppoe-vcmux", 32, Some(Coding::Atm), 0),
    ("pppoe-llcsnap", 40, Some(Coding::Atm), 0),
    ("pppoe-ptm", 30, Some(Coding::Ptm), 0),
    ("bridged-ptm", 22, Some(Coding::Ptm), 0),
    ("ethernet", 38, None, 84),
    ("ether-vlan", 4, None, 0),
    ("docsis", 18, Some(Coding::Plain), 64),
    ("via-ethernet", 0, None, 0),
];

/// Coding of packets on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    Plain,
    Atm,
    Ptm,
}

impl Cake {
    /// Reads the options of a qdisc; `header` are the bytes of the link layer that tc counts.
    pub(in crate::import::tc) fn read(ledger: &mut Ledger, qdisc: usize, header: u64) -> Cake {
        let mut options = Options::of("cake", &ledger.objects[qdisc].words);
        let tins = options.last(&TINS).and_then(|word| TINS.into_iter().find(|tin| *tin == word));
        let flows = options.last(&FLOWS).and_then(|word| FLOWS.into_iter().find(|flow| *flow == word));
        let mut missing = Vec::new();
        let mut rate = None;
        for (key, value) in options.all(&["bandwidth", "unlimited"]) {
            rate = match value.as_deref() {
                Some("unlimited") | None => None,
                Some(word) => {
                    let found = unit::rate(word).filter(|rate| (1..=10_000_000_000_000).contains(rate));
                    if found.is_none() {
                        missing.push(Why::Value(format!("{key} {word}")));
                    }
                    found
                }
            };
        }
        let overhead = layers(&mut options, header, &mut missing);
        let mut trip = 100_000_000;
        let names = TIMES.map(|(name, _)| name);
        for (key, value) in options.all(&[&names[..], &["rtt"]].concat()) {
            let named = TIMES.iter().find(|(name, _)| *name == key).map(|(_, micros)| micros * 1_000);
            match named.or_else(|| unit::time(value.as_deref()?).map(|time| time.0)) {
                Some(nanos) => trip = nanos,
                None => missing.push(Why::Value(format!("{key} {}", value.unwrap_or_default()))),
            }
        }
        let given = trip;
        let trip = given.clamp(20_000, Queue::MOST_DELAY.0);
        if trip != given {
            let [given, becomes] = [given, trip].map(|nanos| duration_text(Nanos(nanos)));
            ledger.note(Some(qdisc), NoteKind::Bounded { given: format!("rtt {given}"), becomes });
        }
        // A listing has three digits of the target's twentieth, too.
        let times = Times { target: trip / 20, interval: trip };
        let is_washed = options.last(&["wash", "nowash"]).as_deref() == Some("wash");
        if options.last(&["ingress", "egress"]).as_deref() == Some("ingress") {
            ledger.note(Some(qdisc), NoteKind::DropsDoNotCount);
        }
        if let Some(filter) = options.last(&["ack-filter", "ack-filter-aggressive", "no-ack-filter"]) {
            if filter != "no-ack-filter" {
                missing.push(Why::Feature(filter));
            }
        }
        if options.word(&["fwmark"]).is_some_and(|mark| unit::number(&mark) != Some(0)) {
            missing.push(Why::Mark);
        }
        if options.flag("autorate-ingress") {
            missing.push(Why::Feature("autorate-ingress".to_owned()));
        }
        // Addresses here are those inside anyway, packets come as they were on the wire, and memory is bounded otherwise.
        options.all(&["nat", "nonat", "split-gso", "no-split-gso", "memlimit"]);
        missing.extend(options.rest());
        missing.into_iter().for_each(|why| ledger.miss(qdisc, why));
        Cake {
            rate: rate.map(BitRate),
            tins: tins.unwrap_or(TINS[0]),
            flows: flows.unwrap_or(FLOWS[0]),
            overhead,
            times,
            is_washed,
        }
    }

    /// Parties of a shape that does the same; `None` if there is no such shape.
    pub(in crate::import::tc) fn fairness(&self, is_in: bool) -> Option<Fairness> {
        let is_usual = self.tins == "diffserv3" && self.times == Times::USUAL && !self.is_washed;
        let hosts = if is_in { "dual-dsthost" } else { "dual-srchost" };
        match self.flows {
            _ if !is_usual || self.rate.is_none() => None,
            "flows" => Some(Fairness::Flow),
            "triple-isolate" => Some(Fairness::Host),
            flows => (flows == hosts).then_some(Fairness::Host),
        }
    }
}

/// Takes what is said of the link layer.
fn layers(options: &mut Options, header: u64, missing: &mut Vec<Why>) -> Overhead {
    let names = LAYERS.map(|(name, ..)| name);
    let keys = [&names[..], &["overhead", "mpu", "raw", "atm", "ptm", "noatm"]].concat();
    let (mut bytes, mut coding, mut minimum, mut is_raw, mut is_said) =
        (0_i64, Coding::Plain, 0, false, false);
    for (key, value) in options.all(&keys) {
        match (key.as_str(), value.as_deref()) {
            ("overhead", Some(word)) => match word.parse() {
                Ok(number) => (bytes, is_said) = (number, true),
                Err(_) => missing.push(Why::Value(format!("overhead {word}"))),
            },
            ("mpu", Some(word)) => match unit::size(word) {
                Some(number) => minimum = number,
                None => missing.push(Why::Value(format!("mpu {word}"))),
            },
            ("raw", _) => (is_raw, coding) = (true, Coding::Plain),
            ("atm", _) => coding = Coding::Atm,
            ("ptm", _) => coding = Coding::Ptm,
            ("noatm", _) => coding = Coding::Plain,
            (name, _) => {
                let Some((_, more, of, shortest)) = LAYERS.iter().find(|(layer, ..)| *layer == name) else {
                    continue;
                };
                bytes = if name == "conservative" { *more } else { bytes.saturating_add(*more) };
                coding = of.unwrap_or(coding);
                minimum = if *shortest > 0 { *shortest } else { minimum };
                is_said |= name != "via-ethernet";
            }
        }
    }
    // Without an overhead, or raw, the packet counts as tc sees it; else from the IP header on.
    let header = if is_raw || !is_said { i64::try_from(header).unwrap_or(0) } else { 0 };
    let layer = match coding {
        Coding::Plain => Overhead::Fixed,
        Coding::Atm => Overhead::Atm,
        Coding::Ptm => Overhead::Ptm,
    };
    let found = counted(bytes.saturating_add(header), minimum, layer);
    missing.extend(found.missing);
    found.overhead.unwrap_or(Overhead::IP)
}

/// A tin: its queue, and its number in the table of code points.
struct Tin(Class, u8);

const fn tin(name: &'static str, number: u8, weight: u32, shift: u32, is_guaranteed: bool) -> Tin {
    Tin(Class { name, phbs: &[], weight, shift, is_guaranteed }, number)
}

/// Tins of four: by the shares of sch_cake, 16 to 1 to 8 to 4, and their rates.
const FOUR: [Tin; 4] = [
    tin("voice", 3, 4, 2, true),
    tin("video", 2, 8, 1, true),
    tin("best-effort", 0, 16, 0, false),
    tin("bulk", 1, 1, 4, true),
];

/// Tin of each code point, of four.
const POINTS_OF_FOUR: [u8; 64] = [
    0, 1, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, //
    3, 0, 2, 0, 2, 0, 2, 0, 3, 0, 0, 0, 3, 0, 3, 0, 3, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0,
];

/// Tin of each code point, of eight; that of the rest is 2.
const POINTS_OF_EIGHT: [u8; 64] = [
    2, 0, 1, 2, 4, 2, 2, 2, 0, 2, 1, 2, 1, 2, 1, 2, 5, 2, 4, 2, 4, 2, 4, 2, 3, 2, 3, 2, 3, 2, 3, 2, //
    6, 2, 3, 2, 3, 2, 3, 2, 6, 2, 2, 2, 6, 2, 6, 2, 7, 2, 2, 2, 2, 2, 2, 2, 7, 2, 2, 2, 2, 2, 2, 2,
];

const EIGHT: [&str; 8] = ["tin0", "tin1", "tin2", "tin3", "tin4", "tin5", "tin6", "tin7"];

impl Builder<'_> {
    pub(super) fn cake(&mut self, qdisc: usize, slot: usize) -> Vec<Entry> {
        let cake = Cake::read(self.ledger, qdisc, self.header);
        self.ledger.translated(qdisc);
        if let Some(handle) = self.ledger.objects[qdisc].handle {
            self.imply_classes(handle);
        }
        let is_root = self.forest.nodes[slot].parent.is_none();
        let handle = self.ledger.objects[qdisc].handle.map(|handle| handle.to_string()).unwrap_or_default();
        let mut node = slot;
        if cake.rate.is_some() && self.forest.nodes[slot].queue.rate.is_some() {
            match self.child(slot, &handle, qdisc) {
                Some(inner) => node = inner,
                None => return vec![Entry::all(slot)],
            }
        }
        self.set_overhead(node, cake.overhead);
        if let Some(rate) = cake.rate {
            let ceiling = self.ceiling(node);
            self.node(node).rate = Some(ceiling.map_or(rate, |ceiling| ceiling.min(rate)));
        }
        let tins: Vec<Tin> = match cake.tins {
            "besteffort" => Vec::new(),
            "diffserv3" => {
                let class = |class: &Class| Class { phbs: &[], ..*class };
                let number = |class: &Class| u8::from(class.phbs.is_empty());
                CLASSES.iter().map(|each| Tin(class(each), number(each))).collect()
            }
            "diffserv4" | "diffserv" => FOUR.into_iter().collect(),
            // Each has seven eighths of the share of the one before.
            _ => {
                let weight = |number: usize| (0..number).fold(256_u32, |weight, _| weight * 7 / 8);
                (0..8_u8).map(|at| tin(EIGHT[usize::from(at)], at, weight(at.into()), 0, false)).collect()
            }
        };
        if cake.tins != "diffserv3" && !tins.is_empty() {
            self.ledger.note(Some(qdisc), NoteKind::Tins);
        }
        let isolate = self.isolation(qdisc, cake.flows);
        let longest = self.longest(node);
        if tins.is_empty() {
            let class = Class { name: "", phbs: &[], weight: 1, shift: 0, is_guaranteed: false };
            self.tin(&cake, node, &class, isolate, longest);
            return self.washed(&cake, vec![Entry::all(node)]);
        }
        self.node(node).quantum =
            Some(if cake.tins == "diffserv3" || tins.len() == 4 { QUANTUM } else { Queue::LEAST_QUANTUM });
        let mut entries = Vec::new();
        let mut rest = None;
        for (index, Tin(class, number)) in tins.iter().enumerate() {
            let name = if is_root && node == slot {
                class.name.to_owned()
            } else {
                format!("{handle}{}", class.name)
            };
            let Some(inner) = self.child(node, &name, qdisc) else { return vec![Entry::all(slot)] };
            self.tin(&cake, inner, class, isolate, longest);
            let dscp: ByteSet = match cake.tins {
                "diffserv3" => points(&CLASSES[index]),
                "precedence" => (0..64_u8).filter(|point| point >> 3 == *number).collect(),
                "diffserv4" | "diffserv" => {
                    (0..64_u8).filter(|point| POINTS_OF_FOUR[usize::from(*point)] == *number).collect()
                }
                _ => (0..64_u8).filter(|point| POINTS_OF_EIGHT[usize::from(*point)] == *number).collect(),
            };
            let is_rest = match cake.tins {
                "diffserv3" => CLASSES[index].phbs.is_empty(),
                "diffserv8" => *number == 2,
                _ => *number == 0,
            };
            if is_rest {
                rest = Some(inner);
            } else {
                entries.push(Entry::of(Cond { dscp, ..Cond::default() }, inner));
            }
        }
        entries.extend(rest.map(Entry::all));
        self.washed(&cake, entries)
    }

    /// Marks packets as of no class, where CAKE washes them.
    fn washed(&self, cake: &Cake, entries: Vec<Entry>) -> Vec<Entry> {
        let mark = Dscp::new(0).filter(|_| cake.is_washed);
        entries.into_iter().map(|entry| Entry { mark, ..entry }).collect()
    }

    /// Gives a leaf the queue of a tin.
    fn tin(&mut self, cake: &Cake, node: usize, class: &Class, isolate: Isolation, longest: u64) {
        let rate = cake.rate.and(self.ceiling(node)).or(self.forest.nodes[node].queue.rate);
        let of = leaf("", class, rate.unwrap_or(BitRate(0)), longest, cake.times);
        let queue = self.node(node);
        let is_blind = cake.flows == "flowblind";
        (queue.weight, queue.drop, queue.ecn) =
            (if class.name.is_empty() { queue.weight } else { class.weight }, Dropper::Codel, true);
        queue.scheduler = (!is_blind).then_some(Scheduler::Fq);
        queue.isolate = isolate;
        if rate.is_some() {
            queue.guarantee = of.guarantee.filter(|_| class.is_guaranteed).or(queue.guarantee);
            queue.quantum = of.quantum.filter(|_| !is_blind);
            (queue.limit, queue.target, queue.interval) = (of.limit, of.target, of.interval);
        } else {
            queue.limit = Some(10_240);
            queue.target = Some(Nanos(cake.times.target));
            queue.interval = Some(Nanos(cake.times.interval));
        }
    }

    fn isolation(&mut self, qdisc: usize, flows: &str) -> Isolation {
        let inside = if self.is_in { Isolation::Destination } else { Isolation::Source };
        let (isolate, is_exact) = match flows {
            "flows" | "flowblind" => (Isolation::Flow, true),
            "dual-srchost" => (Isolation::Source, true),
            "dual-dsthost" => (Isolation::Destination, true),
            "srchost" => (Isolation::Source, false),
            "dsthost" => (Isolation::Destination, false),
            _ => (inside, false),
        };
        if !is_exact {
            self.ledger.note(Some(qdisc), NoteKind::NearestScheduler { what: flows.to_owned() });
        }
        isolate
    }
}

/// Code points of a class of a shape.
fn points(class: &Class) -> ByteSet {
    let bits = class.phbs.iter().fold(0_u64, |all, phb| all | phb.code_points());
    (0..64_u8).filter(|point| bits >> point & 1 == 1).collect()
}
