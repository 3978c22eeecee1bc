//! The account of counted words: independent of the data, in order, within bounds, and equal to a count by hand.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use ciphers::{ALL, Cipher, Home, Kind, Optimisation, Report, Room, home};
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};
use tally::{Access, Branch, Op, Reference, Region, Tally, Ticket};

/// Every event reported, with tickets numbered from 1.
#[derive(Default)]
struct Events(Vec<Event>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Execute(Op, u32),
    Issue(Reference, Ticket),
    Wait(Ticket),
    Branch(Branch),
}

impl Tally for Events {
    fn execute(&mut self, op: Op, count: u32) {
        self.0.push(Event::Execute(op, count));
    }
    fn read(&mut self, _: Region, _: usize, _: u32) {
        unreachable!("references are issued");
    }
    fn write(&mut self, _: Region, _: usize, _: u32) {
        unreachable!("references are issued");
    }
    fn atomic(&mut self, _: Region, _: usize, _: u32) {
        unreachable!("nothing is atomic");
    }
    fn hash(&mut self, _: u32) {
        unreachable!("there is no hash unit");
    }
    fn issue(&mut self, reference: Reference) -> Ticket {
        let ticket = Ticket(self.0.len() as u32 + 1);
        self.0.push(Event::Issue(reference, ticket));
        ticket
    }
    fn wait(&mut self, ticket: Ticket) {
        self.0.push(Event::Wait(ticket));
    }
    fn branch(&mut self, branch: Branch) {
        self.0.push(Event::Branch(branch));
    }
}

fn events(cipher: &Cipher, optimisation: Optimisation, bytes: usize) -> (Vec<Event>, Report) {
    let mut events = Events::default();
    let report = measured(cipher, optimisation, &mut ramp(bytes), &mut events);
    (events.0, report)
}

fn measured(cipher: &Cipher, optimisation: Optimisation, text: &mut [u8], tally: &mut dyn Tally) -> Report {
    cipher.measure(optimisation, &ramp(cipher.about.key_bytes), text, tally).unwrap()
}

fn ramp(bytes: usize) -> Vec<u8> {
    (1..=bytes).map(|byte| byte as u8).collect()
}

fn each() -> impl Iterator<Item = (&'static Cipher, Optimisation)> {
    ALL.into_iter().flat_map(|cipher| Optimisation::ALL.map(|optimisation| (cipher, optimisation)))
}

#[test]
fn table_1_is_as_published() {
    let published = [
        ("des", Some(64), Some(16), 256),
        ("aes", Some(128), Some(10), 5120),
        ("idea", Some(64), Some(9), 0),
        ("rc5", Some(64), Some(16), 136),
        ("rc6", Some(128), Some(20), 176),
        ("blowfish", Some(64), Some(16), 4168),
        ("rc4", None, None, 256),
        // "<4096", as an upper bound.
        ("seal", None, Some(64 + 2), 4096),
        ("md5", Some(512), Some(64), 0),
        ("sha1", Some(512), Some(80), 0),
    ];
    let ours = ALL.map(|cipher| {
        let about = &cipher.about;
        (about.name, about.block_bits, about.rounds, about.table_bytes())
    });
    assert_eq!(ours, published);
}

/// Homes of the tables of ciphers that have some, with optimised memory.
fn homes(region: Region, room: Room) -> BTreeMap<&'static str, Home> {
    ALL.into_iter()
        .filter(|cipher| cipher.about.tables.iter().any(|table| table.region == region))
        .map(|cipher| (cipher.about.name, home(&cipher.about, region, Optimisation::Overlap, room)))
        .collect()
}

#[test]
fn a_table_that_fits_lies_near_once_memory_is_optimised() {
    for cipher in ALL {
        let raw = home(&cipher.about, Region::CipherTable, Optimisation::Generic, Room::ONE_THREAD);
        assert_eq!(raw, Home::Sram);
    }
    let expected = [
        ("aes", Home::Scratch),
        ("blowfish", Home::Scratch),
        ("des", Home::Local),
        ("rc4", Home::Local),
        ("seal", Home::Scratch),
    ];
    assert_eq!(homes(Region::CipherTable, Room::ONE_THREAD), BTreeMap::from(expected));
    assert!(homes(Region::CipherKey, Room::ONE_THREAD).values().all(|home| *home == Home::Local));
}

/// Of eight threads, RC4's permutations are 8 KB of the 2.5 KB of local memory, and DES's S-boxes, which all share, leave no room for eight keys.
#[test]
fn tables_and_keys_of_all_threads_have_to_fit() {
    let eight = Room { threads: 8, ..Room::ONE_THREAD };
    let tables = homes(Region::CipherTable, eight);
    assert_eq!((tables["rc4"], tables["des"]), (Home::Scratch, Home::Local));
    let rc4 = ALL.into_iter().find(|cipher| cipher.about.name == "rc4").unwrap();
    assert_eq!(rc4.about.region_bytes(Region::CipherTable, Optimisation::Overlap, 8), 8 * 1_024);
    let far = |room| -> Vec<&str> {
        let keys = homes(Region::CipherKey, room).into_iter();
        keys.filter(|(_, home)| *home == Home::Scratch).map(|(name, _)| name).collect()
    };
    assert_eq!(far(eight), ["des"]);
    // Without local memory nothing is local.
    let none = Room { local: 0, threads: 1 };
    assert_eq!(far(none).len(), homes(Region::CipherKey, none).len());
    assert!(homes(Region::CipherTable, none).values().all(|home| *home == Home::Scratch));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// All but IDEA's, whose multiplication branches on zeros. Offsets differ, numbers do not.
    #[test]
    fn what_is_told_does_not_depend_on_the_data(seed in any::<u8>(), text in vec(any::<u8>(), 256)) {
        for (cipher, optimisation) in each().filter(|(cipher, _)| cipher.about.name != "idea") {
            let key: Vec<u8> = ramp(cipher.about.key_bytes).iter().map(|byte| byte ^ seed).collect();
            let told = |key: &[u8], text: &[u8]| {
                let mut events = Events::default();
                cipher.measure(optimisation, key, &mut text.to_vec(), &mut events).unwrap();
                let without_offsets = |event| match event {
                    Event::Issue(reference, ticket) => Event::Issue(Reference { at: 0, ..reference }, ticket),
                    other => other,
                };
                events.0.into_iter().map(without_offsets).collect::<Vec<_>>()
            };
            let (one, other) = (told(&key, &text), told(&ramp(key.len()), &[0; 256]));
            prop_assert_eq!(one.len(), other.len(), "{} {}", cipher.about.name, optimisation.name());
            prop_assert!(one == other, "{} {}", cipher.about.name, optimisation.name());
        }
    }
}

#[test]
fn references_stay_in_the_text_and_the_tables() {
    for (cipher, optimisation) in each() {
        let aligned = optimisation >= Optimisation::Memory;
        let (events, _) = events(cipher, optimisation, 2048);
        for event in events {
            let Event::Issue(reference, _) = event else { continue };
            let end = reference.at + reference.bytes as usize;
            let fits = match reference.region {
                Region::Frame => end <= 2048,
                region => cipher.about.tables.iter().filter(|table| table.region == region).any(|table| {
                    let bytes = if aligned { table.aligned_bytes } else { table.bytes };
                    table.at <= reference.at && end <= table.at + bytes
                }),
            };
            assert!(fits, "{} {}: {reference:?}", cipher.about.name, optimisation.name());
        }
    }
}

#[test]
fn all_of_the_text_is_read_once_and_all_of_a_ciphers_written() {
    for (cipher, optimisation) in each() {
        let (_, report) = events(cipher, optimisation, 2048);
        let ways = if cipher.about.kind == Kind::Hash { 1 } else { 2 };
        assert_eq!(report.count.references(Region::Frame).bytes, ways * 2048, "{}", cipher.about.name);
    }
}

/// Nothing is waited for twice or before it is issued, and nothing is left under way.
#[test]
fn each_reference_is_waited_for_once() {
    for (cipher, optimisation) in each() {
        let (events, _) = events(cipher, optimisation, 512);
        let mut under_way = Vec::new();
        for event in events {
            match event {
                Event::Issue(_, ticket) => under_way.push(ticket),
                Event::Wait(ticket) => {
                    let index = under_way.iter().position(|&other| other == ticket);
                    under_way.remove(index.expect("under way"));
                }
                _ => {}
            }
        }
        assert_eq!(under_way, [], "{} {}", cipher.about.name, optimisation.name());
    }
}

/// Latency is hidden in the last step only, and there by each of them.
#[test]
fn work_goes_on_under_references_only_in_the_last_step() {
    for (cipher, optimisation) in each() {
        let (events, _) = events(cipher, optimisation, 512);
        let at_once = events
            .windows(2)
            .filter(|pair| matches!(pair[0], Event::Issue(..)))
            .all(|pair| matches!((pair[0], pair[1]), (Event::Issue(_, issued), Event::Wait(waited)) if issued == waited));
        assert_eq!(
            at_once,
            optimisation < Optimisation::Overlap,
            "{} {}",
            cipher.about.name,
            optimisation.name()
        );
    }
}

#[test]
fn a_burst_holds_what_one_reference_may() {
    for (cipher, optimisation) in each() {
        let (events, _) = events(cipher, optimisation, 512);
        let largest = |text: bool, access| {
            let sizes = events.iter().filter_map(|event| match event {
                Event::Issue(reference, _)
                    if (reference.region == Region::Frame) == text && reference.access == access =>
                {
                    Some(reference.bytes)
                }
                _ => None,
            });
            sizes.max().unwrap_or(0)
        };
        let block = cipher.about.block_bits.map_or(64, |bits| bits / 8);
        let text = if optimisation < Optimisation::Memory { 4 } else { block };
        assert_eq!(largest(true, Access::Read), text, "{} {}", cipher.about.name, optimisation.name());
        assert!(largest(false, Access::Read) <= 32 && largest(false, Access::Write) <= 4);
    }
}

/// The second step and the third save instructions, or at least cost none; the last one only moves them.
#[test]
fn each_step_saves_instructions() {
    for cipher in ALL {
        let counts =
            Optimisation::ALL.map(|optimisation| events(cipher, optimisation, 1024).1.instructions());
        assert!(counts[0] > counts[1], "{}: {counts:?}", cipher.about.name);
        assert!(counts[1] >= counts[2] && counts[2] == counts[3], "{}: {counts:?}", cipher.about.name);
    }
}

/// If everything is unrolled, one block executes each instruction of the code once.
#[test]
fn unrolled_code_is_as_long_as_what_it_executes() {
    for cipher in ALL.into_iter().filter(|cipher| cipher.about.kind == Kind::Block) {
        let bytes = cipher.about.block_bits.unwrap() as usize / 8;
        for optimisation in [Optimisation::Generic, Optimisation::Memory, Optimisation::Overlap] {
            let (_, report) = events(cipher, optimisation, bytes);
            assert_eq!(u64::from(report.code_size), report.instructions(), "{}", cipher.about.name);
        }
        let (_, rolled) = events(cipher, Optimisation::Raw, bytes);
        assert!(2 * u64::from(rolled.code_size) < rolled.instructions(), "{}", cipher.about.name);
    }
}

#[test]
fn shares_sum_to_one() {
    for (cipher, optimisation) in each() {
        let mix = events(cipher, optimisation, 256).1.mix();
        let sum = mix.alu + mix.multiply + mix.immediate + mix.branch + mix.memory;
        assert!((sum - 1.0).abs() < 1e-12, "{}: {mix:?}", cipher.about.name);
    }
}

/// Instructions that an additional block takes.
fn block_of(name: &str, optimisation: Optimisation) -> u64 {
    let cipher = ALL.into_iter().find(|cipher| cipher.about.name == name).unwrap();
    let bytes = cipher.about.block_bits.unwrap() as usize / 8;
    let of = |blocks: usize| events(cipher, optimisation, blocks * bytes).1.instructions();
    of(11) - of(10)
}

/// Counted by hand from the algorithm and the table of costs.
#[test]
fn a_block_of_rc5_is_what_a_hand_would_count() {
    // 2 xors to chain, 4 to reverse bytes, 2 additions; a round has 2 xors, 2 rotations of 3, 2 additions; 4 to
    // reverse; 2 of the loop over blocks and its branch; a burst each way.
    let straight = 2 + 4 + 2 + 16 * 10 + 4 + 3 + 2;
    assert_eq!(block_of("rc5", Optimisation::Memory), straight);
    // The loop over rounds adds its counter's load, decrement and branch, and two addresses a round; words add a
    // reference each way.
    assert_eq!(block_of("rc5", Optimisation::Raw), straight + 1 + 16 * 4 + 2);
}

#[test]
fn a_block_of_md5_is_what_a_hand_would_count() {
    // 48 functions of 3 instructions and 16 of 2; 4 additions, a rotation and an addition; 32 to reverse bytes; 4
    // to add to the state; 3 of the loop over blocks; a burst.
    let straight = 48 * 3 + 16 * 2 + 64 * 5 + 32 + 4 + 3 + 1;
    assert_eq!(block_of("md5", Optimisation::Memory), straight);
    // Constants take two instructions each, but for 0xffff5bb1, which fits in one; words take fifteen references
    // more.
    assert_eq!(block_of("md5", Optimisation::Raw), straight + 64 * 2 - 1 + 15);
}

#[test]
fn a_block_of_aes_is_what_a_hand_would_count() {
    // Chain and first key: 8. Nine rounds of 16 indices, 16 references, 16 xors; the last has 16 masks more. Loop
    // and bursts: 5.
    let straight = 8 + 10 * (16 + 16 + 16) + 16 + 5;
    assert_eq!(block_of("aes", Optimisation::Memory), straight);
}
