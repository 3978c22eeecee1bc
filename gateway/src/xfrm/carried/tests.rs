use std::sync::mpsc::channel;
use std::thread;

use super::super::message::Request;
use super::super::parse::tests::asked;

use super::*;

fn association() -> Arc<Association> {
    let (_, request) = asked("ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1000");
    let Request::NewSa(sa) = request else { panic!() };
    Arc::new(Association::of(&sa).unwrap())
}

/// A carrier whose supervisor answers each change by `answer`.
fn supervised(answer: impl Fn(ChangeKind) -> Result<(), Refusal> + Send + 'static) -> Carried {
    let (sender, events) = channel();
    thread::spawn(move || {
        for event in events {
            let Event::Ike(Change { kind, done }) = event else { panic!() };
            let _ = done.send(answer(kind));
        }
    });
    Carried::new(sender)
}

#[test]
fn use_is_counted_from_the_associations_beginning() {
    let sequence = Arc::new(Sequence::from(5));
    let shared = Arc::clone(&sequence);
    let mut carried = supervised(move |kind| {
        if let ChangeKind::Add(Carriage { counts, .. }) = kind {
            let before = Count { packets: 0, bytes: 0, replayed: 0, forged: 0 };
            counts.set(Counts { direction: Direction::Out, sequence: Arc::clone(&shared), before }).unwrap();
        }
        Ok(())
    });
    let association = association();
    assert_eq!(carried.usage(&association), Usage::default());
    carried.add(&association, &Protected::default()).unwrap();
    let usage = carried.usage(&association);
    assert_eq!((usage.packets, usage.since_first, usage.since_last), (0, None, None));
    assert_eq!(usage.numbers, Numbers { sent: 5, received: 0 });
    sequence.raise(9);
    assert_eq!(carried.usage(&association).numbers.sent, 9);
    carried.remove(&[&association]);
    assert_eq!(carried.usage(&association), Usage::default());
}

#[test]
fn first_and_last_use_are_the_looks_that_found_packets() {
    let at = Instant::now();
    let later = |seconds| at + Duration::from_secs(seconds);
    let counts = Arc::<OnceLock<Counts>>::default();
    let mut used = Use { counts: Arc::clone(&counts), packets: 0, looks: None };
    // In reserve nothing is known of it.
    assert_eq!(used.look(at), Usage::default());
    used.looks = Some([later(3), later(5)]);
    let sequence = Arc::new(Sequence::from(0));
    let before = Count::of(&sequence);
    counts.set(Counts { direction: Direction::In, sequence, before }).unwrap();
    let usage = used.look(later(9));
    assert_eq!(
        (usage.since_first, usage.since_last),
        (Some(Duration::from_secs(6)), Some(Duration::from_secs(4)))
    );
}

#[test]
fn refusals_and_the_end_of_the_gateway_are_passed_on() {
    let association = association();
    let mut refusing = supervised(|_| Err(Refusal::new(Errno::NOBUFS, "no room")));
    assert_eq!(refusing.add(&association, &Protected::default()).unwrap_err().errno, Errno::NOBUFS);
    assert_eq!(refusing.usage(&association), Usage::default());
    let (sender, events) = channel();
    drop(events);
    let mut alone = Carried::new(sender);
    assert_eq!(alone.add(&association, &Protected::default()).unwrap_err().errno, Errno::CONNRESET);
    alone.remove(&[&association]);
}
