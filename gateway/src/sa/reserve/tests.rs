//! Numbers over ends of a gateway: in good order, and not.

use dataplane::shard::{Setup, Shard};
use dataplane::{hop::Resolve, nat::Share};
use wire::Nanos;

use super::*;

/// A directory of its own for a state file.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let place = std::env::temp_dir().join(format!("wirerate-reserve-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(&place).unwrap();
        Place(place)
    }

    fn state(&self) -> PathBuf {
        self.0.join("state")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Tables of a site with tunnels, as a gateway that begins has them.
fn tables(reserve: &mut Reserve, sequences: Sequences) -> Tables {
    let text = include_str!("../../../../tests/cases/esp/site.toml");
    let policy = policy::check(text, "site.toml").policy.expect("a sound policy");
    let tables = Tables::compile(&policy, 1).expect("sound tables").going_on(sequences);
    reserve.top_up(&tables, &[]).expect("numbers");
    tables
}

fn shard(tables: &Tables) -> Shard {
    let share = Share::new(0, 1).unwrap();
    Shard::new(tables, Setup { seed: [1, 2], now: Nanos(0), resolve: Resolve::ByHost, share }).unwrap()
}

#[test]
fn numbers_of_a_gateway_that_was_killed_are_behind_all_that_it_may_have_sent() {
    let place = Place::new("killed");
    let (mut reserve, none) = Reserve::open(Some(&place.state()), Clock::start()).unwrap();
    assert_eq!(none.all().len(), 0);
    let first = tables(&mut reserve, none);
    let shard = shard(&first);
    let sequence = &shard.sas.outbound(0).unwrap().sequence;
    assert_eq!((sequence.last(), sequence.ceiling()), (0, STEP));
    // Half of it is used, and more is reserved before it is over.
    sequence.raise(STEP / 2 + 1);
    reserve.top_up(&first, &[]).unwrap();
    let ceiling = sequence.ceiling();
    assert!(ceiling > STEP);
    // Killed here, and another begins.
    let (mut reserve, known) = Reserve::open(Some(&place.state()), Clock::start()).unwrap();
    let second = tables(&mut reserve, known);
    assert_eq!(second.tunnels.list[0].out.as_ref().unwrap().sequence.last(), ceiling);
    assert_eq!(second.tunnels.list[1].out.as_ref().unwrap().sequence.last(), STEP);
}

#[test]
fn numbers_of_a_gateway_that_ends_in_good_order_have_no_gap() {
    let place = Place::new("ended");
    let (mut reserve, none) = Reserve::open(Some(&place.state()), Clock::start()).unwrap();
    let first = tables(&mut reserve, none);
    first.tunnels.list[0].out.as_ref().unwrap().sequence.raise(7);
    first.tunnels.list[0].inward[0].sequence.raise(9);
    reserve.finish(&first).unwrap();
    let (mut reserve, known) = Reserve::open(Some(&place.state()), Clock::start()).unwrap();
    let second = tables(&mut reserve, known);
    assert_eq!(second.tunnels.list[0].out.as_ref().unwrap().sequence.last(), 7);
    assert_eq!(second.tunnels.list[0].inward[0].sequence.last(), 9);
    assert_eq!(
        shard(&second)
            .sas
            .inbound(second.tunnels.list[0].inward[0].spi, second.tunnels.list[0].local)
            .unwrap()
            .window
            .top(),
        9
    );
}

/// A number that another gateway may have used is far past the reserve: as many behind it are reserved at once, and on disk.
#[test]
fn numbers_behind_those_of_another_gateway_are_reserved_before_they_are_used() {
    let place = Place::new("behind");
    let (mut reserve, none) = Reserve::open(Some(&place.state()), Clock::start()).unwrap();
    let first = tables(&mut reserve, none);
    let out = first.tunnels.list[0].out.as_ref().unwrap();
    let others = first.tunnels.list[1].out.as_ref().unwrap().sequence.ceiling();
    let far = 100 * STEP;
    reserve.go_on_behind(&first, &HashMap::from([(out.fingerprint, far)])).unwrap();
    out.sequence.raise(far);
    assert_eq!((out.sequence.last(), out.sequence.ceiling()), (far, far + STEP));
    assert_eq!(first.tunnels.list[1].out.as_ref().unwrap().sequence.ceiling(), others);
    // Killed here, and another begins.
    let (mut reserve, known) = Reserve::open(Some(&place.state()), Clock::start()).unwrap();
    let second = tables(&mut reserve, known);
    assert_eq!(second.tunnels.list[0].out.as_ref().unwrap().sequence.last(), far + STEP);
    // What cannot be written is not raised.
    let out = &second.tunnels.list[0].out.as_ref().unwrap();
    let ceiling = out.sequence.ceiling();
    reserve.path = Some(place.0.join("nowhere").join(NAME));
    assert!(reserve.go_on_behind(&second, &HashMap::from([(out.fingerprint, 2 * far)])).is_err());
    assert_eq!(out.sequence.ceiling(), ceiling);
}

#[test]
fn without_a_file_there_are_no_numbers() {
    let (mut reserve, none) = Reserve::open(None, Clock::start()).unwrap();
    let text = include_str!("../../../../tests/cases/esp/site.toml");
    let policy = policy::check(text, "site.toml").policy.unwrap();
    let tables = Tables::compile(&policy, 1).unwrap().going_on(none);
    assert!(matches!(reserve.top_up(&tables, &[]), Err(ReserveError::NoState)));
    assert_eq!(tables.tunnels.list[0].out.as_ref().unwrap().sequence.ceiling(), 0);
    let place = Place::new("unwritable");
    fs::create_dir_all(place.0.join(NAME)).unwrap();
    assert!(matches!(Reserve::open(Some(&place.state()), Clock::start()), Err(ReserveError::Read { .. })));
}

/// Lifetimes are those of keys, whoever runs meanwhile (RFC 4301, section 4.4.2.1).
#[test]
fn counters_and_lifetimes_of_a_key_go_on() {
    let place = Place::new("used");
    let clock = Clock::start();
    let (mut reserve, none) = Reserve::open(Some(&place.state()), clock).unwrap();
    let first = tables(&mut reserve, none);
    let errors = SaErrors { replayed: 5, icv_wrong: 4, sequence: 1, ..SaErrors::default() };
    let day = Nanos::from_secs(86_400);
    let usage = Usage { packets: 7, bytes: 700, errors, age: Some(day) };
    let mut all = first.tunnels.sequences().all();
    for known in &mut all {
        let used = Used::going_on(&usage, clock.now());
        known.sequence = Arc::new(Sequence::going_on(known.sequence.last(), u64::MAX, used));
    }
    let sequences = Sequences::new(all, Numbering::Reserved);
    let used = tables(&mut reserve, sequences);
    reserve.finish(&used).unwrap();
    let file = place.0.join(NAME);
    // Three days pass.
    let text = fs::read_to_string(&file).unwrap();
    let moment = Moment { now: clock.now(), wall: Moment::now(clock).wall + 3 * 86_400_000 };
    let known = parse(&text, &moment).unwrap();
    assert_eq!(known.len(), used.tunnels.sequences().all().len());
    for known in &known {
        let now = known.sequence.used.usage(moment.now);
        let age = now.age.expect("an age");
        assert!(age >= Nanos(4 * day.0) && age < Nanos(4 * day.0 + Nanos::from_secs(60).0), "{age:?}");
        assert_eq!(Usage { age: usage.age, ..now }, usage);
    }
    // The wall clock has been set back: the key is no younger for it.
    let back = Moment { wall: 0, ..moment };
    assert!(parse(&text, &back).unwrap()[0].sequence.used.usage(back.now).age >= Some(day));
    // A shard shows it at once.
    let second = tables(&mut reserve, Sequences::new(known, Numbering::Reserved));
    let views = shard(&second).sas.views(moment.now);
    assert!(
        views.iter().all(|view| (view.packets, view.bytes, view.errors) == (7, 700, errors)),
        "{views:?}"
    );
}

/// A gateway of before went by numbers alone.
#[test]
fn a_file_without_the_use_of_keys_is_read() {
    let body = format!(
        "{HEAD_OF_NUMBERS}\nout {} 1048576\nin {} 9\n",
        "0a".repeat(Fingerprint::LEN),
        "0b".repeat(Fingerprint::LEN)
    );
    let text = format!("{body}end {:08x}\n", crc32fast::hash(body.as_bytes()));
    let known = parse(&text, &Moment { now: Clock::BEGIN, wall: 0 }).unwrap();
    let last: Vec<u64> = known.iter().map(|known| known.sequence.last()).collect();
    assert_eq!(last, [1_048_576, 9]);
    assert_eq!(known[0].sequence.used.usage(Clock::BEGIN), Usage::default());
}

/// What cannot be read must not be taken for a first start.
#[test]
fn a_damaged_file_is_refused() {
    let place = Place::new("damaged");
    let (mut reserve, none) = Reserve::open(Some(&place.state()), Clock::start()).unwrap();
    tables(&mut reserve, none);
    let file = place.0.join(NAME);
    let whole = fs::read_to_string(&file).unwrap();
    assert!(whole.lines().count() > 3 && !whole.contains("000102030405"), "{whole}");
    for at in 0..whole.len() {
        fs::write(&file, &whole[..at]).unwrap();
        assert!(Reserve::open(Some(&place.state()), Clock::start()).is_err(), "cut at {at}");
        let mut changed = whole.clone().into_bytes();
        changed[at] ^= 1;
        fs::write(&file, changed).unwrap();
        assert!(Reserve::open(Some(&place.state()), Clock::start()).is_err(), "changed at {at}");
    }
}
