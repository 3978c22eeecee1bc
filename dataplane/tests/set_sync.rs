//! Two gateways with the same dynamic sets: what rules and requests do at one is done at the other.

use dataplane::import::Refused;
use dataplane::replay::Way;
use dataplane::set::{Element, SetChange, SetOutcome, TakenElements};
use dataplane::state::{ElementRecord, Names, RemovalRecord};
use dataplane::sync::CopySweep;
use dataplane::{Shard, Tables, Verdict};
use proptest::collection::vec;
use proptest::prelude::*;
use wire::build;
use wire::ethernet::Mac;
use wire::{Nanos, PortId};

use crate::scene::{Arrival, Gateway, START, setup};
use crate::sync::policy;

const BANNED: u16 = 0;
const GUESTS: u16 = 1;

/// Dynamic sets and rules, for the policy of `sync`.
const SETS: &str = r#"
[dynamic-set.banned]
size = 20000
[dynamic-set.guests]
size = 100
[[rule]]
name = "banned"
source = "@banned"
action = "drop"
[[rule]]
name = "trap"
protocol = "udp"
dport = 23
add-source = "@banned"
for = "100s"
action = "drop"
[[rule]]
name = "rest"
action = "accept"
"#;

/// One of two gateways.
struct Box(Gateway);

impl Box {
    fn new(sets: &str) -> Box {
        let mut gateway = Gateway::new(&policy(2, sets), Way::Run);
        gateway.shard = Shard::new(&gateway.tables, setup(START)).unwrap();
        gateway.shard.keep_changes(&gateway.tables).unwrap();
        Box(gateway)
    }

    /// A datagram from this host, to a port.
    fn receive(&mut self, from: [u8; 4], dport: u16, at: Nanos) -> Result<(), Verdict> {
        let link = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 1]));
        let bytes = link.ipv4(from.into(), [192, 168, 1, 10].into()).udp(7, dport).payload(&[7; 8]).to_vec();
        self.0.receive(&[Arrival { port: PortId(1), at: START + at, number: 0, bytes }]);
        self.0.out(usize::MAX).ended.first().map_or(Ok(()), |(_, verdict)| Err(*verdict))
    }

    fn change(&mut self, change: &SetChange, at: Nanos) -> SetOutcome {
        self.0.shard.change_set(&self.0.tables, change, START + at)
    }

    fn add(&mut self, set: u16, prefix: &str, lasts: Option<u64>, at: Nanos) -> SetOutcome {
        let until = lasts.map(|seconds| START + at + Nanos::from_secs(seconds));
        self.change(&SetChange::Add(Element { set, prefix: prefix.parse().unwrap(), until }), at)
    }

    fn remove(&mut self, set: u16, prefix: &str, at: Nanos) -> SetOutcome {
        self.change(&SetChange::Remove { set, prefix: prefix.parse().unwrap() }, at)
    }

    fn take(&mut self, most: usize, at: Nanos) -> TakenElements {
        let mut taken = TakenElements::default();
        self.0.shard.take_set_changes(&self.0.tables, START + at, most, &mut taken);
        taken
    }

    fn take_all(&mut self, at: Nanos) -> TakenElements {
        let (mut taken, mut next) = (TakenElements::default(), Some(0));
        while let Some(first) = next {
            next = self.0.shard.take_all_elements(&self.0.tables, START + at, first, 2, &mut taken);
        }
        taken
    }

    /// Takes in what the other has told; returns the refusals.
    fn hear(&mut self, from: &Tables, told: &TakenElements, round: u8, at: Nanos) -> Vec<Refused> {
        let Gateway { shard, tables, .. } = &mut self.0;
        let places = Names::of(from).places_in(tables);
        for removal in &told.removed {
            let removal = RemovalRecord { set: places.moved_set(removal.set), ..*removal };
            shard.remove_synced(tables, &removal, START + at);
        }
        let there = |record: &ElementRecord| ElementRecord { set: places.moved_set(record.set), ..*record };
        let records = told.elements.iter().map(there);
        records.filter_map(|record| shard.take_in_element(tables, &record, START + at, round).err()).collect()
    }

    /// Tells the other all changes.
    fn tell(&mut self, other: &mut Box, at: Nanos) {
        let told = self.take(usize::MAX, at);
        assert_eq!(other.hear(&self.0.tables, &told, 1, at), []);
    }

    /// Sweeps in steps; returns the number of elements that went.
    fn sweep(&mut self, sweep: CopySweep, at: Nanos) -> usize {
        let (mut gone, mut next) = (0, Some(0));
        while let Some(first) = next {
            let Gateway { shard, tables, .. } = &mut self.0;
            let swept = shard.sweep_element_copies(tables, sweep, START + at, first, 3);
            gone += swept.removed.len();
            next = swept.next;
        }
        gone
    }

    fn elements(&self, set: u16, at: Nanos) -> Vec<(String, Option<Nanos>)> {
        let mut found = Vec::new();
        let give = |element: Element| found.push((element.prefix.to_string(), element.until));
        self.0.shard.set_elements(&self.0.tables, set, 0, u32::MAX, START + at, give);
        found.sort_unstable();
        found
    }
}

fn boxes() -> [Box; 2] {
    [Box::new(SETS), Box::new(SETS)]
}

fn seconds(seconds: u64) -> Nanos {
    Nanos::from_secs(seconds)
}

const SCANNER: [u8; 4] = [198, 51, 100, 7];

#[test]
fn who_is_banned_at_one_is_banned_at_the_other_for_the_rest_of_the_time() {
    let [mut one, mut two] = boxes();
    assert_eq!(two.receive(SCANNER, 80, seconds(0)), Ok(()));
    assert!(one.receive(SCANNER, 23, seconds(1)).is_err());
    let told = one.take(10, seconds(11));
    assert_eq!(told.elements.len(), 1);
    assert_eq!(told.elements[0].left, Some(seconds(90)), "a span, so that clocks need not agree");
    // The clock of the other is an hour ahead.
    let hour = seconds(3600);
    assert_eq!(two.hear(&one.0.tables, &told, 1, hour + seconds(11)), []);
    assert!(two.receive(SCANNER, 80, hour + seconds(100)).is_err());
    assert_eq!(two.receive(SCANNER, 81, hour + seconds(102)), Ok(()), "his time is over");
    // Told once, and not told back.
    for taken in [one.take(10, seconds(12)), two.take(10, hour + seconds(12))] {
        assert_eq!(taken, TakenElements::default());
    }
    assert_eq!(two.take_all(hour + seconds(12)), TakenElements::default());
}

#[test]
fn what_a_request_removes_is_gone_on_both_whichever_added_it() {
    let [mut one, mut two] = boxes();
    let now = seconds(1);
    one.add(GUESTS, "192.0.2.1/32", None, now);
    one.add(GUESTS, "192.0.2.2/32", Some(5), now);
    one.add(GUESTS, "2001:db8::/32", None, now);
    one.tell(&mut two, now);
    assert_eq!(two.elements(GUESTS, now), one.elements(GUESTS, now));
    // At the standby, of an element that it has only been told of.
    two.remove(GUESTS, "192.0.2.1/32", now);
    two.tell(&mut one, now);
    assert_eq!(one.elements(GUESTS, now).len(), 2);
    // One that is removed and added at once is there.
    one.remove(GUESTS, "192.0.2.2/32", now);
    one.add(GUESTS, "192.0.2.2/32", Some(3), now);
    one.tell(&mut two, now);
    assert_eq!(two.elements(GUESTS, now), one.elements(GUESTS, now), "the shorter time, too");
    one.change(&SetChange::Flush { set: GUESTS }, now);
    one.add(GUESTS, "192.0.2.9/32", None, now);
    one.tell(&mut two, now);
    assert_eq!(two.elements(GUESTS, now), [("192.0.2.9/32".to_owned(), None)]);
    assert_eq!(two.take(10, now), TakenElements::default());
}

#[test]
fn a_full_synchronisation_takes_away_what_it_leaves_out_but_nothing_of_ones_own() {
    let [mut one, mut two] = boxes();
    let now = seconds(1);
    for number in 0..10 {
        one.add(GUESTS, &format!("192.0.2.{number}/32"), None, now);
    }
    one.tell(&mut two, now);
    two.add(GUESTS, "198.51.100.1/32", None, now);
    two.add(GUESTS, "192.0.2.3/32", None, now);
    // The connection is away meanwhile.
    one.remove(GUESTS, "192.0.2.3/32", now);
    one.remove(GUESTS, "192.0.2.4/32", now);
    let all = one.take_all(now);
    assert_eq!((all.elements.len(), all.removed.len()), (8, 0));
    assert_eq!(one.take(10, now).removed, [], "a full synchronisation stands for all");
    two.hear(&one.0.tables, &all, 2, now);
    assert_eq!(two.sweep(CopySweep::Purge { round: 2 }, now), 1);
    assert_eq!(two.elements(GUESTS, now).len(), 10);
    // A gateway that has begun anew is told of what it had.
    let mut anew = Box::new(SETS);
    assert_eq!(two.take_all(now).elements.len(), 2, "copies are not told back");
    two.sweep(CopySweep::Adopt, now);
    let all = two.take_all(now);
    anew.hear(&two.0.tables, &all, 1, now);
    assert_eq!(anew.elements(GUESTS, now), two.elements(GUESTS, now));
    assert_eq!(two.sweep(CopySweep::Purge { round: 3 }, now), 0, "they are its own");
}

#[test]
fn sets_that_the_policies_do_not_have_alike_are_refused() {
    let mut one = Box::new(SETS);
    let other = SETS
        .replace("[dynamic-set.banned]", "[dynamic-set.more]\nfile = \"/etc/hosts\"\n[dynamic-set.banned]")
        .replace("size = 100\n", "size = 1\n");
    let mut two = Box::new(&other);
    let mut three = Box::new(&SETS.replace("guests", "more"));
    let mut four = Box::new(
        &SETS.replace("[dynamic-set.guests]", "[dynamic-set.guests]\nurl = \"https://a.example/list\""),
    );
    let now = seconds(1);
    one.add(BANNED, "192.0.2.1/32", None, now);
    one.add(GUESTS, "192.0.2.2/32", None, now);
    one.add(GUESTS, "192.0.2.3/32", None, now);
    let told = one.take(10, now);
    assert_eq!(two.hear(&one.0.tables, &told, 1, now), [Refused::TableFull]);
    assert_eq!(two.elements(1, now).len(), 1, "by the name of the set, not by its place");
    assert_eq!(three.hear(&one.0.tables, &told, 1, now), [Refused::NameGone; 2]);
    // Lists are each gateway's own, whatever is done with them.
    four.add(GUESTS, "10.0.0.0/8", None, now);
    assert_eq!(four.hear(&one.0.tables, &told, 1, now), [Refused::NameGone; 2]);
    let flush = TakenElements {
        removed: vec![RemovalRecord { set: Some(GUESTS), prefix: None }],
        ..TakenElements::default()
    };
    four.hear(&one.0.tables, &flush, 1, now);
    assert_eq!(four.elements(GUESTS, now).len(), 1);
    four.remove(GUESTS, "10.0.0.0/8", now);
    assert_eq!(four.take(10, now), TakenElements::default());
}

#[test]
fn more_removals_than_are_kept_are_counted() {
    let [mut one, _] = boxes();
    let now = seconds(1);
    for number in 0..17_000u32 {
        let prefix = format!("10.0.{}.{}/32", number >> 8, number & 255);
        one.add(BANNED, &prefix, None, now);
        one.remove(BANNED, &prefix, now);
    }
    let taken = one.take(usize::MAX, now);
    assert_eq!((taken.removed.len(), taken.lost, taken.elements.len()), (16_384, 17_000 - 16_384, 0));
    assert_eq!(one.take(10, now), TakenElements::default());
}

#[test]
fn a_reload_that_moves_the_sets_forgets_neither_changes_nor_whose_they_are() {
    let [mut one, mut two] = boxes();
    let now = seconds(1);
    two.add(GUESTS, "192.0.2.1/32", None, now);
    two.add(GUESTS, "192.0.2.2/32", None, now);
    two.tell(&mut one, now);
    one.add(BANNED, "198.51.100.1/32", None, now);
    one.tell(&mut two, now);
    one.add(GUESTS, "192.0.2.3/32", None, now);
    one.remove(GUESTS, "192.0.2.2/32", now);
    let sets = SETS.replace("[dynamic-set.banned]", "[dynamic-set.new]\n[dynamic-set.banned]");
    one.0.reload(&policy(2, &sets), START + now);
    let told = one.take(10, now);
    assert_eq!(
        (told.removed.len(), told.elements.len()),
        (1, 1),
        "what is a copy, and what is told, is not told: {told:?}"
    );
    two.hear(&one.0.tables, &told, 1, now);
    assert_eq!(two.elements(GUESTS, now), one.elements(2, now));
    assert_eq!(one.take_all(now).elements.len(), 2);
    assert_eq!(one.sweep(CopySweep::Purge { round: 9 }, now), 1);
}

/// A step of a scene: at one of the two, of one of some elements.
#[derive(Clone, Debug)]
enum Act {
    Add { at: usize, number: u8, lasts: Option<u64> },
    Remove { at: usize, number: u8 },
    Flush { at: usize },
    Tell { from: usize },
    Pass(u64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0..2usize, 0..6u8, prop::option::of(1..20u64))
            .prop_map(|(at, number, lasts)| Act::Add { at, number, lasts }),
        3 => (0..2usize, 0..6u8).prop_map(|(at, number)| Act::Remove { at, number }),
        1 => (0..2usize).prop_map(|at| Act::Flush { at }),
        4 => (0..2usize).prop_map(|from| Act::Tell { from }),
        2 => (1..9u64).prop_map(Act::Pass),
    ]
}

fn tell(boxes: &mut [Box; 2], from: usize, now: Nanos) {
    let [one, two] = boxes;
    if from == 0 { one.tell(two, now) } else { two.tell(one, now) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Removals do not cross with additions of the same element here; those that do are put right by the next full synchronisation.
    #[test]
    fn both_come_to_the_same_whoever_changes(acts in vec(act(), 1..60)) {
        let (mut boxes, mut now) = (boxes(), seconds(0));
        for act in acts {
            if matches!(act, Act::Remove { .. } | Act::Flush { .. }) {
                for from in [0, 1] {
                    tell(&mut boxes, from, now);
                }
            }
            match act {
                Act::Add { at, number, lasts } => {
                    boxes[at].add(GUESTS, &format!("192.0.2.{number}/32"), lasts, now);
                }
                Act::Remove { at, number } => {
                    boxes[at].remove(GUESTS, &format!("192.0.2.{number}/32"), now);
                    tell(&mut boxes, at, now);
                }
                Act::Flush { at } => {
                    boxes[at].change(&SetChange::Flush { set: GUESTS }, now);
                    tell(&mut boxes, at, now);
                }
                Act::Tell { from } => tell(&mut boxes, from, now),
                Act::Pass(more) => now += seconds(more),
            }
        }
        for from in [0, 1] {
            tell(&mut boxes, from, now);
        }
        prop_assert_eq!(boxes[0].elements(GUESTS, now), boxes[1].elements(GUESTS, now));
        for one in &mut boxes {
            prop_assert_eq!(one.take(10, now), TakenElements::default());
        }
        // Whatever came to pass, each element is one's own at one of them at least: a gateway that begins anew gets it.
        let mut own: Vec<_> = boxes.iter_mut().flat_map(|one| one.take_all(now).elements).map(|record| record.prefix.first).collect();
        own.sort_unstable();
        own.dedup();
        prop_assert_eq!(own.len(), boxes[0].elements(GUESTS, now).len());
    }
}
