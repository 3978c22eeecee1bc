use std::sync::mpsc;
use std::thread;

use super::super::tests::many::{headers, patterns};
use super::super::{ALGORITHMS, Algorithm, Bounds, Header, NO_MATCH, Tuple};
use super::*;

/// The algorithms whose searches can be changed.
fn changing() -> impl Iterator<Item = &'static Algorithm> {
    ["tuple", "tree"].into_iter().filter_map(Algorithm::named)
}

fn made(algorithm: &Algorithm, rules: &[Pattern], bounds: Bounds) -> Box<dyn Updatable> {
    (algorithm.build)(rules, bounds).unwrap().to_updatable(rules).expect(algorithm.name)
}

fn scan(search: &dyn Updatable, header: &Header) -> Option<Position> {
    (0..).take(search.count()).find(|at| search.pattern(*at).is_some_and(|pattern| pattern.matches(header)))
}

/// A thread looks up in whatever version it was sent last; each answer is that of the scan of that version. Ten thousand
/// rules come meanwhile, in the middle of the list.
#[test]
fn look_ups_go_on_while_rules_come() {
    changing().for_each(look_ups_go_on);
}

fn look_ups_go_on(algorithm: &Algorithm) {
    let rules = patterns(11_000, 30);
    let headers = headers(&rules, 64, 31);
    let (first, more) = rules.split_at(1_000);
    let mut versions = Versions::new(made(algorithm, first, Bounds::default()));
    let (send, receive) = mpsc::channel::<Arc<dyn Updatable>>();
    let mut held = versions.current();
    let looking = thread::spawn(move || {
        let (mut found, mut seen) = (0, 1);
        let mut ends = false;
        while !ends {
            let mut positions = [0; 64];
            held.classify_bulk(&headers, &mut positions);
            for (header, position) in headers.iter().zip(positions).skip(seen % 8).step_by(8) {
                let wanted = scan(&*held, header);
                assert_eq!(position, wanted.unwrap_or(NO_MATCH));
                found += u32::from(wanted.is_some());
            }
            // Between two batches, all that has come.
            loop {
                match receive.try_recv() {
                    Ok(next) => (held, seen) = (next, seen + 1),
                    Err(mpsc::TryRecvError::Empty) => break,
                    Err(mpsc::TryRecvError::Disconnected) => {
                        ends = true;
                        break;
                    }
                }
            }
        }
        (found, seen, held)
    });
    let mut list = first.to_vec();
    for (round, rules) in more.chunks(50).enumerate() {
        let at = |place: usize| (list.len() / 2 + place) as Position;
        let edits =
            rules.iter().enumerate().map(|(place, rule)| Edit::Insert(at(place), Box::new(rule.clone())));
        let next = versions.next(edits.collect()).unwrap();
        let middle = list.len() / 2;
        list.splice(middle..middle, rules.iter().cloned());
        assert_eq!(next.count(), 1_000 + 50 * (round + 1));
        send.send(next).unwrap();
    }
    drop(send);
    let (found, seen, last) = looking.join().unwrap();
    assert!(found > 0);
    assert_eq!(seen, 201);
    let same = (0..).zip(&list).all(|(at, rule)| last.pattern(at) == Some(rule));
    assert!(same && last.count() == list.len());
}

#[test]
fn two_copies_take_turns_unless_one_is_held() {
    changing().for_each(two_copies_take_turns);
}

fn two_copies_take_turns(algorithm: &Algorithm) {
    let rules = patterns(40, 32);
    let mut versions = Versions::new(made(algorithm, &rules[..10], Bounds::default()));
    let address = |search: &Arc<dyn Updatable>| Arc::as_ptr(search).cast::<()>();
    let first = address(&versions.current());
    let second = address(&versions.next(vec![Edit::Insert(3, Box::new(rules[10].clone()))]).unwrap());
    assert_ne!(first, second);
    assert_eq!(address(&versions.next(vec![Edit::Remove(0)]).unwrap()), first);
    let held = versions.current();
    assert_eq!(address(&versions.next(vec![Edit::Insert(0, Box::new(rules[11].clone()))]).unwrap()), second);
    let third = versions.next(vec![Edit::Insert(99, Box::new(rules[12].clone()))]).unwrap();
    assert!(![first, second].contains(&address(&third)));
    assert_eq!(held.count(), 10);
    let wanted = [11, 1, 2, 10, 3, 4, 5, 6, 7, 8, 9, 12].map(|at| Some(&rules[at]));
    assert!((0..).zip(wanted).all(|(at, wanted)| third.pattern(at) == wanted) && third.count() == 12);
}

#[test]
fn a_version_that_finds_no_memory_is_none() {
    changing().for_each(no_version_without_memory);
}

fn no_version_without_memory(algorithm: &Algorithm) {
    let rules = patterns(3_000, 33);
    let mut versions = Versions::new(made(algorithm, &rules[..10], Bounds { memory: 200_000 }));
    let many = rules.iter().map(|rule| Edit::Insert(5, Box::new(rule.clone()))).collect();
    assert!(versions.next(many).is_err());
    assert_eq!(versions.current().count(), 10);
    for at in 10..20 {
        versions.next(vec![Edit::Insert(at, Box::new(rules[at as usize].clone()))]).unwrap();
    }
    let last = versions.current();
    assert!((0..20).all(|at| last.pattern(at) == Some(&rules[at as usize])));
}

#[test]
fn a_search_is_revised_where_little_changes() {
    let rules = patterns(3_000, 34);
    let headers = headers(&rules, 200, 35);
    for algorithm in changing() {
        let before = &rules[..2_000];
        let search = (algorithm.build)(before, Bounds::default()).unwrap();
        let mut list = before.to_vec();
        list.splice(500..520, rules[2_000..2_050].iter().cloned());
        list.swap(0, 1_999);
        list.push(rules[2_100].clone());
        let next = revised(&*search, before, &list, Bounds::default()).unwrap();
        let again = revised(&*next, &list, before, Bounds::default()).unwrap();
        for header in &headers {
            let wanted = list.iter().position(|pattern| pattern.matches(header)).map(|at| at as Position);
            assert_eq!(next.classify(header), wanted, "{}", algorithm.name);
            // It is its own.
            assert_eq!(again.classify(header), search.classify(header), "{}", algorithm.name);
        }
        assert!(revised(&*search, before, &rules, Bounds::default()).is_none(), "too many");
        assert!(revised(&*search, before, &list, Bounds { memory: 100 }).is_none(), "there is no memory");
    }
    let list = &rules[..2_000];
    let linear = (ALGORITHMS[0].build)(list, Bounds::default()).unwrap();
    assert!(revised(&*linear, list, list, Bounds::default()).is_none(), "it cannot be changed");
    let (narrow, few) = (Bounds { memory: 60_000 }, &rules[..10]);
    let tuple = Tuple::new(few, narrow).unwrap();
    assert!(revised(&tuple, few, &rules[..20], narrow).is_some());
    assert!(revised(&tuple, few, &rules[..200], narrow).is_none(), "there is no memory");
    assert!(revised(&tuple, few, &rules[..200], Bounds::default()).is_some(), "now there is");
    assert!(revised(&tuple, few, few, Bounds { memory: 100 }).is_none(), "now there is less");
}

#[test]
fn an_algorithm_says_whether_it_can_be_changed() {
    let can = |name: &str| {
        let algorithm = ALGORITHMS.iter().find(|algorithm| algorithm.name == name).unwrap();
        (algorithm.build)(&[], Bounds::default()).unwrap().to_updatable(&[]).is_some()
    };
    assert!(can("tuple") && can("tree") && !can("linear") && !can("range_match"));
}
