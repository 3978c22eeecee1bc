//! Any bytes as a state file, and as what its blocks say: flows, translations and rates of before a restart.
//!
//! Beyond not crashing: what is whole is the same when written and read again, what is cut is not whole, and whatever items a
//! shard takes in it can give again, and end.
//!
//! Blocks carry checksums, which no guess gets past; so the first byte says whether the rest is the file, or blocks for one.
#![no_main]

use std::sync::LazyLock;

use dataplane::hop::Resolve;
use dataplane::nat::Share;
use dataplane::shard::Setup;
use dataplane::state::{Cursor, Names};
use dataplane::{Shard, Tables};
use gateway::clock::Clock;
use gateway::store::{Entry, Stamp, Writer, check, read};
use libfuzzer_sys::fuzz_target;
use wire::Nanos;

const HEAD: &[u8] = b"wirerate state 8\n";

static TABLES: LazyLock<Tables> = LazyLock::new(|| {
    let text = "[interface.lan]\nzone = \"a\"\naddresses = [\"192.168.1.1/24\"]\n\
                [interface.wan]\nzone = \"b\"\naddresses = [\"192.0.2.1/24\"]\n\
                [[nat]]\nname = \"house\"\nkind = \"masquerade\"\nfrom = \"a\"\nto = \"b\"\n\
                [[rule]]\nname = \"some\"\nfrom = \"a\"\nto = \"b\"\naction = \"accept\"\nrate = \"10/second per source\"\n\
                [limit]\nflows = 64\n";
    let checked = policy::check(text, "fuzz.toml");
    let policy = checked.policy.unwrap_or_else(|| panic!("{:?}", checked.diagnostics));
    Tables::compile(&policy, 1).expect("they are small")
});

fuzz_target!(|data: &[u8]| {
    let Some((how, rest)) = data.split_first() else { return };
    let file = if how % 2 == 0 { rest.to_vec() } else { framed(rest) };
    let mut entries = Vec::new();
    let outcome = read(&*file, |entry| entries.push(entry));
    assert_eq!(outcome.as_ref().ok(), check(&*file).as_ref().ok());
    if outcome.is_ok() {
        let again = written(&entries);
        let mut same = Vec::new();
        assert!(read(&*again, |entry| same.push(entry)).is_ok());
        assert_eq!(entries, same);
        assert!(check(&again[..again.len() - 1]).is_err());
    }
    take_in(&entries);
});

/// A file of blocks: each is a length of two bytes, and as many bytes. The last one may be shorter.
fn framed(mut data: &[u8]) -> Vec<u8> {
    let mut file = HEAD.to_vec();
    while let [low, high, rest @ ..] = data {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (block, behind) = rest.split_at(length);
        file.extend_from_slice(&(length as u32).to_le_bytes());
        file.extend_from_slice(&crc32fast::hash(block).to_le_bytes());
        file.extend_from_slice(block);
        data = behind;
    }
    file
}

fn written(entries: &[Entry]) -> Vec<u8> {
    let Some((Entry::Stamp(stamp), entries)) = entries.split_first() else {
        panic!("a state begins with its stamp")
    };
    let mut writer = Writer::new(Vec::new(), stamp.clone()).expect("memory takes all");
    for entry in entries {
        match entry {
            Entry::Stamp(_) => panic!("a state has one stamp"),
            Entry::Names(names) => writer.names(names.clone()).expect("memory takes all"),
            Entry::Item(item) => writer.items(vec![*item]).expect("memory takes all"),
        }
    }
    writer.end().expect("memory takes all")
}

/// Takes the entries in, as a starting gateway does.
fn take_in(entries: &[Entry]) {
    let tables = &*TABLES;
    let setup = Setup { seed: [1, 2], now: Clock::BEGIN, resolve: Resolve::ByHost, share: Share::WHOLE };
    let mut shard = Shard::new(tables, setup).expect("it is small");
    let mut places = Names::default().places_in(tables);
    let (mut taken, mut age) = (0_u64, Nanos(0));
    for entry in entries {
        match entry {
            Entry::Stamp(stamp) => {
                age = stamp
                    .age(&Stamp { boot: String::new(), time_of_day: Nanos(1 << 62), ..stamp.clone() })
                    .unwrap_or_default()
            }
            Entry::Names(names) => places = names.places_in(tables),
            Entry::Item(item) => {
                taken += u64::from(shard.import(tables, &places.moved(item).aged(age), Clock::BEGIN).is_ok());
            }
        }
    }
    let now = Clock::BEGIN + Nanos::from_secs(1);
    let (mut next, mut given) = (Some(Cursor::default()), 0);
    while let Some(cursor) = next {
        next = shard.export(tables, now, cursor, 16, |_| given += 1);
    }
    // One item, of what the gateway itself sends, is always there.
    assert!(given <= taken + 1, "{given} of {taken}");
}
