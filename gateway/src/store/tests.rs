//! Import of state files: complete, or none at all if truncated, altered or unfinished.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::{PermissionsExt, symlink};

use dataplane::flow::{Ends, FlowId, State, Windows};
use dataplane::state::{DebtRecord, FlowRecord, OwnRecord, Standing, Through};
use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
use proptest::sample::Index;
use wire::{Nanos, PortId};

use super::*;

/// Temporary directory, removed when dropped.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("wirerate-{}-store-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    fn state(&self) -> PathBuf {
        self.0.join("state")
    }

    /// Names of the files present.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn flow(number: u16) -> Item {
    let [client, server] = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)));
    let original = Ends { source: client, destination: server, sport: number, dport: 53, protocol: 17 };
    let reply = Ends { source: server, destination: client, sport: 53, dport: number, protocol: 17 };
    Item::Flow(FlowRecord {
        id: FlowId(number.into()),
        original,
        reply,
        ingress: Some(PortId(0)),
        state: State::Udp,
        windows: Windows::default(),
        idle: Nanos::from_secs(3),
        age: Nanos::from_secs(70),
        standing: Standing::Validated,
        rule: Some(7),
        destination: Through::None,
        source: Through::Nat(1),
        mapping: None,
        inward: None,
        kind: 0,
        ds_field: 0,
        tcp_flags: 0,
        wan: None,
        mac: None,
        handshake: dataplane::flow::Handshake::Direct,
    })
}

fn items(count: u16) -> Vec<Item> {
    let own = Item::Own(OwnRecord { next_id: 9, errors: Nanos::from_millis(5) });
    let source = Some(IpAddr::V6(Ipv6Addr::LOCALHOST));
    let debt = Item::Debt(DebtRecord { rule: 3, source, debt: Nanos(77) });
    [own, debt].into_iter().chain((0..count).map(flow)).collect()
}

fn stamp(occasion: Occasion) -> Stamp {
    Stamp {
        occasion,
        boot: "a boot".to_owned(),
        uptime: Nanos::from_secs(9),
        time_of_day: Nanos::from_secs(1 << 30),
    }
}

/// Stamp four seconds later in the same boot, whatever the time of day.
fn later() -> Stamp {
    Stamp { uptime: Nanos::from_secs(13), time_of_day: Nanos(0), ..stamp(Occasion::End) }
}

/// Takes a state file that must be valid.
fn taken(path: &Path) -> BufReader<File> {
    take(path, &later()).unwrap().unwrap().file
}

fn names() -> Names {
    Names { interfaces: vec!["lan".to_owned(), "wan".to_owned()], ..Names::default() }
}

fn fill<W: Write>(writer: &mut Writer<W>, items: &[Item]) -> io::Result<()> {
    writer.names(names())?;
    writer.items(items.to_vec())
}

fn bytes(items: &[Item]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), stamp(Occasion::End)).unwrap();
    fill(&mut writer, items).unwrap();
    writer.end().unwrap()
}

/// Returns all entries of a state that is complete.
fn all(bytes: &[u8]) -> Result<Vec<Entry>, StoreError> {
    let mut entries = Vec::new();
    check(bytes)?;
    read(bytes, |entry| entries.push(entry))?;
    Ok(entries)
}

fn entries(items: &[Item]) -> Vec<Entry> {
    let head = [Entry::Stamp(stamp(Occasion::End)), Entry::Names(names())];
    head.into_iter().chain(items.iter().copied().map(Entry::Item)).collect()
}

/// Frames a block, as the writer does.
fn framed(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap().to_le_bytes();
    [&length, &crc32fast::hash(bytes).to_le_bytes(), bytes].concat()
}

/// Stamp block of a file.
fn first() -> Vec<u8> {
    framed(&postcard::to_stdvec(&Block::Stamp(stamp(Occasion::End))).unwrap())
}

#[test]
fn what_is_written_is_read_also_in_several_blocks() {
    for count in [0, 1, 1021, 1022, 1023, 5000] {
        let items = items(count);
        assert_eq!(all(&bytes(&items)).unwrap(), entries(&items));
    }
}

#[test]
fn what_is_cut_off_anywhere_is_an_error() {
    let whole = bytes(&items(3));
    for length in 0..whole.len() {
        assert!(matches!(all(&whole[..length]), Err(StoreError::Foreign | StoreError::Damaged)), "{length}");
    }
}

#[test]
fn what_is_changed_anywhere_is_an_error() {
    let whole = bytes(&items(3));
    for place in 0..whole.len() {
        for bit in 0..8 {
            let mut changed = whole.clone();
            changed[place] ^= 1 << bit;
            let outcome = all(&changed);
            assert!(matches!(outcome, Err(StoreError::Foreign | StoreError::Damaged)), "{place}, {bit}");
        }
    }
}

#[test]
fn what_follows_the_end_is_of_no_account() {
    let mut longer = bytes(&items(3));
    longer.extend_from_slice(b"more");
    assert_eq!(all(&longer).unwrap(), entries(&items(3)));
}

proptest! {
    #[test]
    fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(all(&bytes).is_err());
        prop_assert!(all(&[HEAD, &bytes].concat()).is_err());
        // A block that means anything at all is one among very many.
        let _ = all(&[HEAD, &framed(&bytes)].concat());
        let _ = all(&[HEAD, &first(), &framed(&bytes)].concat());
    }

    #[test]
    fn two_places_changed_are_an_error(places in any::<[Index; 2]>(), to in any::<[u8; 2]>()) {
        let whole = bytes(&items(3));
        let mut changed = whole.clone();
        for (place, to) in places.iter().zip(to) {
            changed[place.index(whole.len())] = to;
        }
        prop_assert_eq!(all(&changed).is_ok(), changed == whole);
    }
}

#[test]
fn a_length_without_bytes_takes_no_memory() {
    // As long as a block may be, and longer.
    for length in [LONGEST, LONGEST + 1, u32::MAX] {
        let bytes = [HEAD, &length.to_le_bytes(), &[0; 8]].concat();
        assert!(matches!(all(&bytes), Err(StoreError::Damaged)));
    }
}

#[test]
fn a_block_has_no_more_items_than_it_may() {
    let own = Item::Own(OwnRecord::default());
    for (count, is_well) in [(BLOCK_ITEMS, true), (BLOCK_ITEMS + 1, false), (1 << 20, false)] {
        let block = postcard::to_stdvec(&Block::Items(vec![own; count])).unwrap();
        let end = postcard::to_stdvec(&Block::End(count as u64)).unwrap();
        let outcome = check(&*[HEAD, &first(), &framed(&block), &framed(&end)].concat());
        assert_eq!(outcome.is_ok(), is_well, "{count}");
    }
    // More of them than there are bytes.
    let block = [&[2][..], &[0xff, 0xff, 0xff, 0xff, 0x0f]].concat();
    assert!(matches!(all(&[HEAD, &first(), &framed(&block)].concat()), Err(StoreError::Damaged)));
}

#[test]
fn a_stamp_is_first_and_only_there() {
    let end = postcard::to_stdvec(&Block::End(0)).unwrap();
    let names = postcard::to_stdvec(&Block::Names(names())).unwrap();
    let whole = |blocks: &[Vec<u8>]| check(&*[HEAD, &blocks.concat()].concat()).is_ok();
    assert!(whole(&[first(), framed(&names), framed(&end)]));
    assert!(!whole(&[framed(&names), framed(&end)]));
    assert!(!whole(&[framed(&names), first(), framed(&end)]));
    assert!(!whole(&[first(), first(), framed(&end)]));
}

#[test]
fn only_the_state_of_a_clean_end_is_taken() {
    let place = Place::new("clean");
    write_file(&place.state(), stamp(Occasion::Save), |writer| fill(writer, &items(3))).unwrap();
    assert!(matches!(take(&place.state(), &later()), Err(StoreError::Saved)));
    write_file(&place.state(), stamp(Occasion::End), |writer| fill(writer, &items(3))).unwrap();
    let another_boot = |time_of_day| Stamp { boot: "another".to_owned(), time_of_day, ..later() };
    let before = another_boot(Nanos::from_secs((1 << 30) - 1));
    assert!(matches!(take(&place.state(), &before), Err(StoreError::Ageless)));
    assert_eq!(place.names(), ["state"], "it is left aside");
    let after = another_boot(Nanos::from_secs((1 << 30) + 70));
    assert_eq!(take(&place.state(), &after).unwrap().unwrap().age, Nanos::from_secs(70));
    write_file(&place.state(), stamp(Occasion::End), |writer| fill(writer, &items(3))).unwrap();
    assert_eq!(take(&place.state(), &later()).unwrap().unwrap().age, Nanos::from_secs(4));
    assert!(place.names().is_empty());
}

#[test]
fn a_wrong_count_is_an_error() {
    let block = postcard::to_stdvec(&Block::Items(items(1))).unwrap();
    for count in [0, 2, 4, u64::MAX] {
        let end = postcard::to_stdvec(&Block::End(count)).unwrap();
        assert!(check(&*[HEAD, &first(), &framed(&block), &framed(&end)].concat()).is_err());
    }
}

#[test]
fn a_file_is_there_as_a_whole_and_for_its_owner_alone() {
    let place = Place::new("file");
    assert!(take(&place.state(), &later()).unwrap().is_none());
    for count in [5, 3] {
        assert_eq!(
            write_file(&place.state(), stamp(Occasion::End), |writer| fill(writer, &items(count))).unwrap(),
            2 + u64::from(count)
        );
        let mut got = Vec::new();
        assert_eq!(fs::metadata(place.state()).unwrap().permissions().mode() & 0o7777, 0o600);
        assert_eq!(place.names(), ["state"]);
        read(taken(&place.state()), |entry| got.push(entry)).unwrap();
        assert_eq!(got, entries(&items(count)));
    }
}

#[test]
fn a_file_that_cannot_be_written_leaves_the_one_before() {
    let place = Place::new("failing");
    write_file(&place.state(), stamp(Occasion::End), |writer| fill(writer, &items(3))).unwrap();
    let outcome = write_file(&place.state(), stamp(Occasion::End), |writer| {
        fill(writer, &items(100))?;
        Err(io::Error::from(io::ErrorKind::StorageFull))
    });
    assert!(matches!(outcome, Err(StoreError::System { .. })));
    assert_eq!(place.names(), ["state"]);
    // A directory that is not there, and one that is a file.
    for path in [place.0.join("nowhere/state"), place.state().join("state")] {
        assert!(matches!(
            write_file(&path, stamp(Occasion::End), |_| Ok(())),
            Err(StoreError::System { .. })
        ));
    }
    assert_eq!(check(taken(&place.state())).unwrap(), 5);
}

#[test]
fn a_disk_that_is_full_is_told() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut writer = Writer::new(BufWriter::new(full), stamp(Occasion::End)).unwrap();
    let outcome = fill(&mut writer, &items(3)).and_then(|()| writer.end().map(drop));
    assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::StorageFull);
}

#[test]
fn what_a_killed_process_left_is_no_harm() {
    let place = Place::new("left");
    write_file(&place.state(), stamp(Occasion::End), |writer| fill(writer, &items(3))).unwrap();
    let left = unfinished(&place.state());
    fs::write(&left, &bytes(&items(50))[..100]).unwrap();
    assert_eq!(check(taken(&place.state())).unwrap(), 5, "it is not what is read");
    write_file(&place.state(), stamp(Occasion::End), |writer| fill(writer, &items(4))).unwrap();
    assert_eq!(place.names(), ["state"]);
    fs::write(&left, "half").unwrap();
    discard_unfinished(&place.state()).unwrap();
    discard_unfinished(&place.state()).unwrap();
    assert_eq!(place.names(), ["state"]);
}

#[test]
fn a_link_in_the_way_is_not_followed() {
    let place = Place::new("link");
    let precious = place.0.join("precious");
    fs::write(&precious, "data").unwrap();
    symlink(&precious, unfinished(&place.state())).unwrap();
    write_file(&place.state(), stamp(Occasion::End), |writer| fill(writer, &items(3))).unwrap();
    assert_eq!(fs::read_to_string(&precious).unwrap(), "data");
    assert_eq!(place.names(), ["precious", "state"]);
}

#[test]
fn what_is_no_state_is_told_apart_from_what_cannot_be_read() {
    let place = Place::new("foreign");
    for content in [&b""[..], b"wirerate", b"wirerate state 1\n", b"\x7fELF and much that comes behind it"] {
        fs::write(place.state(), content).unwrap();
        assert!(matches!(take(&place.state(), &later()), Err(StoreError::Foreign)));
    }
    assert_eq!(place.names(), ["state"], "it is left aside");
    assert!(matches!(take(&place.0, &later()), Err(StoreError::NoFile)), "a directory");
    assert!(matches!(take(Path::new("/dev/zero"), &later()), Err(StoreError::NoFile)), "a device");
    let fifo = place.0.join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).unwrap();
    assert!(matches!(take(&fifo, &later()), Err(StoreError::NoFile)), "nobody writes into it");
}

#[test]
fn the_file_that_was_checked_is_the_one_that_is_read() {
    let place = Place::new("same");
    write_file(&place.state(), stamp(Occasion::End), |writer| fill(writer, &items(3))).unwrap();
    let opened = taken(&place.state());
    assert!(place.names().is_empty(), "a state is taken once");
    write_file(&place.state(), stamp(Occasion::End), |writer| fill(writer, &items(4))).unwrap();
    assert_eq!(check(opened).unwrap(), 5);
}

fn state(names: usize) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), stamp(Occasion::End)).unwrap();
    for _ in 0..names {
        writer.names(Names { interfaces: vec!["lan".to_owned()], ..Names::default() }).unwrap();
        writer.items(vec![Item::Own(OwnRecord::default())]).unwrap();
    }
    writer.end().unwrap()
}

#[test]
fn what_comes_from_elsewhere_is_whole_or_not_there() {
    let place = Place::new("receive");
    let path = place.state();
    let whole = state(3);
    receive_file(&path, |out| out.write_all(&whole).map_err(system("write"))).unwrap();
    assert_eq!(fs::read(&path).unwrap(), whole);
    // Cut anywhere, or with anything changed, it does not take the place of what was there.
    for cut in 0..whole.len() {
        let received = receive_file(&path, |out| out.write_all(&whole[..cut]).map_err(system("write")));
        assert!(matches!(received, Err(StoreError::Foreign | StoreError::Damaged)), "{cut}: {received:?}");
    }
    let failed = receive_file(&path, |_| Err(StoreError::Damaged));
    assert!(matches!(failed, Err(StoreError::Damaged)));
    assert_eq!(fs::read(&path).unwrap(), whole);
    assert_eq!(place.names(), ["state"]);
}

#[test]
fn what_is_taken_piece_by_piece_is_the_same() {
    let mut writer = Writer::new(Vec::new(), stamp(Occasion::End)).unwrap();
    let mut pieces = writer.take();
    for _ in 0..3 {
        writer.names(Names { interfaces: vec!["lan".to_owned()], ..Names::default() }).unwrap();
        writer.items(vec![Item::Own(OwnRecord::default())]).unwrap();
        pieces.extend(writer.take());
    }
    pieces.extend(writer.end().unwrap());
    assert_eq!(pieces, state(3));
}

#[test]
fn only_files_are_written_over() {
    for path in ["/dev/null", "/"] {
        let written = write_file(Path::new(path), stamp(Occasion::End), |_| Ok(()));
        assert!(matches!(written, Err(StoreError::NoFile)), "{path}");
    }
}

/// Saved by a gateway of that version, with connections in and out, translated ones among them.
const VERSION_7: &[u8] = include_bytes!("version-7.state");

#[test]
fn files_of_the_version_before_are_read_to_their_end() {
    let entries = all(VERSION_7).unwrap();
    let [Entry::Stamp(stamp), Entry::Names(names), rest @ ..] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!(stamp.occasion, Occasion::Save);
    assert_eq!(names.interfaces, ["lan", "guest", "wan"]);
    assert!(names.rules.iter().any(|rule| rule == "web-in") && names.sets.is_empty());
    let flows = rest.iter().filter_map(|entry| match entry {
        Entry::Item(Item::Flow(flow)) => Some(flow),
        _ => None,
    });
    let flows: Vec<&FlowRecord> = flows.collect();
    let to = |port| flows.iter().filter(|flow| flow.original.dport == port).count();
    assert_eq!((flows.len(), to(80), to(443), to(5000)), (6, 1, 1, 1));
    assert!(flows.iter().any(|flow| flow.mapping.is_some()), "{flows:?}");
    for length in 0..VERSION_7.len() {
        assert!(all(&VERSION_7[..length]).is_err(), "{length}");
    }
    // What it says is no file of this version, nor the other way round.
    for (bytes, head) in [(VERSION_7.to_vec(), HEAD), (bytes(&items(3)), former::HEAD)] {
        let mut bytes = bytes;
        bytes[..HEAD.len()].copy_from_slice(head);
        assert!(matches!(all(&bytes), Err(StoreError::Damaged)));
    }
}
