use wire::random::Random;

use super::version::EVENTS;
use super::*;
use crate::classify::generate::{Like, Locality, rules, trace};
use crate::classify::tree::layout::{Branch, NUMBER, Node};
use crate::classify::tree::select::Selection;
use crate::classify::update::revised;
use crate::classify::{AddressSpan, Admit, Linear, PortSpan};

fn made(like: Like, count: usize, seed: u64) -> (Vec<Pattern>, Vec<Header>) {
    let patterns: Vec<Pattern> = rules(like, count, seed).iter().map(|rule| rule.pattern()).collect();
    let headers = trace(&patterns, 400, Locality::new(0.1), seed).iter().map(|aimed| aimed.header).collect();
    (patterns, headers)
}

fn updatable(patterns: &[Pattern], bounds: Bounds) -> UpdatableTree {
    UpdatableTree::new(&Tree::new(patterns, bounds).unwrap(), patterns).unwrap()
}

/// Answers are those of the scan, and the account is right.
fn holds(tree: &UpdatableTree, patterns: &[Pattern], headers: &[Header]) {
    finds(tree, patterns, headers);
    assert_eq!(tree.budget.taken(), tree.memory_bytes());
    assert!(tree.memory_bytes() <= tree.budget.bounds().memory);
    if let Some(trees) = &tree.trees {
        account(&trees.v4, tree);
        account(&trees.v6, tree);
    }
}

fn finds(search: &dyn Classifier, patterns: &[Pattern], headers: &[Header]) {
    let linear = Linear::new(patterns);
    let mut bulk = vec![0; headers.len()];
    search.classify_bulk(headers, &mut bulk);
    for (header, bulk) in headers.iter().zip(bulk) {
        let wanted = linear.classify(header);
        assert_eq!(search.classify(header), wanted, "{header:?}");
        assert_eq!(bulk, wanted.unwrap_or(NO_MATCH), "{header:?}, in bulk");
    }
}

/// Each leaf has as many branches as are counted, and its rules in order; no root begins behind a rule of its tree.
fn account<S: Shape>(trees: &Editable<S>, tree: &UpdatableTree) {
    let order = tree.rules.numbers.positions();
    let mut references = vec![0; trees.octets];
    for root in &trees.forest.roots {
        let mut left = vec![root.branch];
        while let Some(branch) = left.pop() {
            if branch.is_node() {
                let node = Node::of(&trees.forest.octets[branch.octet()]);
                let cells = 1 << Selection::<S>::of_node(&node).bits();
                left.extend_from_slice(&trees.forest.branches[node.first as usize..][..cells]);
            } else if branch != Branch::NOWHERE {
                references[branch.octet()] += 1;
                let mut slots = Vec::new();
                trees.read(branch.octet() as u32, order, &mut slots);
                let positions: Vec<Position> =
                    slots.iter().map(|slot| order.position(slot.number())).collect();
                assert!(positions.is_sorted(), "{positions:?}");
                assert!(positions.first().is_none_or(|first| root.first <= *first));
            }
        }
    }
    assert!(trees.forest.roots.is_sorted_by_key(|root| root.first));
    let counted: Vec<u32> = trees.leaves().collect();
    for leaf in &counted {
        assert_eq!(trees.references(*leaf), references[*leaf as usize], "leaf {leaf}");
    }
    assert_eq!(counted.len(), references.iter().filter(|references| **references > 0).count());
    let tags = counted.iter().flat_map(|leaf| trees.blocks(*leaf));
    let tags = tags.flat_map(|block| trees.forest.octets[block + trees.length - 1].0);
    let removed = tags
        .map(|tag| tag & NUMBER)
        .filter(|number| *number != NUMBER && order.position(*number) == NO_MATCH);
    assert!(tree.rules.removed() > 0 || removed.count() == 0);
}

/// Rules come and go by the thousand.
#[test]
fn thousands_of_changes_keep_answers_and_account() {
    for like in [Like::Acl, Like::Fw, Like::Ipc] {
        let (pool, headers) = made(like, 900, 11);
        let mut random = Random::new(12);
        let mut list = pool[..300].to_vec();
        let mut tree = updatable(&list, Bounds::default());
        for step in 0..4000 {
            // Up to a thousand, down to few, and up again.
            let grows = if step / 1000 % 2 == 0 { 7 } else { 3 };
            if random.below(10) < grows {
                let at = random.below(list.len() as u64 + 1) as usize;
                let pattern = match random.below(200) {
                    0 => Pattern::default(),
                    _ => pool[random.below(pool.len() as u64) as usize].clone(),
                };
                tree.insert(at as Position, &pattern).unwrap();
                list.insert(at, pattern);
            } else if !list.is_empty() {
                let at = random.below(list.len() as u64) as usize;
                tree.remove(at as Position);
                list.remove(at);
            }
            if step % 100 == 99 {
                holds(&tree, &list, &headers);
            }
        }
        assert_eq!(tree.count(), list.len());
        assert!((0..).zip(&list).all(|(position, pattern)| tree.pattern(position) == Some(pattern)));
    }
}

#[test]
fn rules_that_were_hidden_come_back() {
    let (rules, headers) = made(Like::Fw, 500, 13);
    let mut list = vec![Pattern::default()];
    list.extend(rules);
    list.insert(200, Pattern { v6: Admit::No, protocols: vec![6], ..Pattern::default() });
    let mut tree = updatable(&list, Bounds::default());
    assert!(tree.trees.as_ref().is_some_and(|trees| trees.hiding.hides(0)));
    holds(&tree, &list, &headers);
    for gone in [0, 199, 0, 300] {
        tree.remove(gone);
        list.remove(gone as usize);
        holds(&tree, &list, &headers);
    }
    // And through trees that are only searched.
    let mut list: Vec<Pattern> = [Pattern::default()].into_iter().chain(list).collect();
    let tree = Box::new(updatable(&list, Bounds::default())).into_classifier();
    list.remove(0);
    let mut tree = tree.to_updatable(&[vec![Pattern::default()], list.clone()].concat()).unwrap();
    tree.remove(0);
    finds(&*tree, &list, &headers);
}

/// Rules that hide others, broad and narrow, nested and crossing, go in any order while others come; what they hid is found again. Of narrow
/// ones, the rules that others hide stay hidden.
#[test]
fn rules_that_hide_others_go_in_any_order() {
    let mut random = Random::new(27);
    let net = |random: &mut Random, v6: bool, length: u64| {
        let bits = if v6 { 128 } else { 32 };
        let address = u128::from(random.below(4)) << (bits - 2) | u128::from(random.below(8)) << (bits - 11);
        let host = (u128::MAX >> (128 - bits)) >> length;
        (length > 0).then(|| vec![AddressSpan { v6, first: address & !host, last: address | host }])
    };
    let mut one = |broad: bool| {
        let (v6, low) = (random.below(3) == 0, random.below(40_000) as u16);
        let lengths = if broad { [0, 1, 2] } else { [2, 10, 16] };
        let [source, destination] = [0; 2].map(|_| {
            let length = lengths[random.below(3) as usize];
            net(&mut random, v6, length)
        });
        let destination = if broad && source.is_none() { net(&mut random, v6, 1) } else { destination };
        let ports = vec![PortSpan { first: low, last: low + random.below(20_000) as u16 }];
        Pattern {
            source,
            destination,
            dports: if random.below(if broad { 8 } else { 2 }) == 0 { ports } else { Vec::new() },
            protocols: if random.below(3) == 0 { vec![6] } else { Vec::new() },
            ..Pattern::default()
        }
    };
    let (broad, narrow): (Vec<Pattern>, Vec<Pattern>) =
        ((0..60).map(|_| one(true)).collect(), (0..600).map(|_| one(false)).collect());
    let headers: Vec<Header> =
        trace(&narrow, 200, Locality::NONE, 28).iter().map(|aimed| aimed.header).collect();
    let (mut most, mut kept) = (0, 0);
    for round in 0..8 {
        // The first rounds begin with narrow rules in front of broad ones; in the last ones, broad ones hide nearly all.
        let mut list = narrow[..400].to_vec();
        for pattern in &broad {
            let span = list.len() as u64 / (1 + round);
            list.insert(random.below(span + 1) as usize, pattern.clone());
        }
        let mut tree = updatable(&list, Bounds::default());
        let hidden = |tree: &UpdatableTree| {
            tree.trees.as_ref().map_or(0, |trees| trees.hiding.clone().compare().len())
        };
        most = most.max(hidden(&tree));
        let mut left = broad.len();
        while left > 0 {
            if random.below(3) == 0 {
                let at = random.below(list.len() as u64 + 1) as usize;
                let pattern = &narrow[random.below(600) as usize];
                tree.insert(at as Position, pattern).unwrap();
                list.insert(at, pattern.clone());
                continue;
            }
            let broad_now: Vec<usize> = (0..list.len()).filter(|at| broad.contains(&list[*at])).collect();
            let at = broad_now[random.below(broad_now.len() as u64) as usize];
            let before = hidden(&tree);
            let hides =
                tree.rules.numbers.number(at as Position).is_some_and(|number| {
                    tree.trees.as_ref().is_some_and(|trees| trees.hiding.hides(number))
                });
            tree.remove(at as Position);
            list.remove(at);
            kept += u32::from(hides && hidden(&tree) > before / 2);
            left = broad_now.len() - 1;
            finds(&tree, &list, &headers);
        }
        holds(&tree, &list, &headers);
    }
    assert!(most > 100 && kept > 20, "{most} hidden, {kept} times most of them stayed so");
}

/// Comparing is given up, of many rules that hide many, before it takes longer than having all of them in their leaves.
#[test]
fn rules_of_which_many_hide_many_are_not_compared_for_ever() {
    let net = |first: u128, host: u128| Pattern {
        source: Some(vec![AddressSpan { v6: false, first, last: first | host }]),
        v6: Admit::No,
        ..Pattern::default()
    };
    let mut list = Vec::new();
    for number in 0..256 {
        list.push(net(number << 24, 0x00ff_ffff));
        list.extend((0..12).map(|inner| net(number << 24 | inner << 16, 0xffff)));
    }
    let header = |source| Header { source, family: wire::Family::V4, ..Header::default() };
    let headers: Vec<Header> = (0..1024).map(|number| header(number << 22 | 7)).collect();
    let mut tree = updatable(&list, Bounds::default());
    let hiding =
        |tree: &UpdatableTree| tree.trees.as_ref().map(|trees| trees.hiding.clone()).unwrap_or_default();
    assert_eq!(hiding(&tree).compare().len(), 12 * 256);
    for gone in 0..2 * COMPARED as Position {
        assert!(gone > 16 || !hiding(&tree).compare().is_empty());
        tree.remove(12 * gone);
        list.remove(12 * gone as usize);
    }
    assert!(hiding(&tree).compare().is_empty());
    holds(&tree, &list, &headers);
}

/// To remove a rule may need memory, for those that it hid: there is an answer without any.
#[test]
fn rules_that_were_hidden_come_back_without_memory() {
    let (rules, headers) = made(Like::Fw, 800, 14);
    let mut list = vec![Pattern::default()];
    list.extend(rules);
    let mut tree = updatable(&list, Bounds::default());
    let bounds = Bounds { memory: tree.memory_bytes() };
    tree.keep_within(bounds).unwrap();
    tree.remove(0);
    list.remove(0);
    assert!(tree.trees.is_none());
    holds(&tree, &list, &headers[..50]);
    let mut count = tally::Count::default();
    assert_eq!(tree.classify_tallied(&headers[0], &mut count), tree.classify(&headers[0]));
    assert!(tree.region_bytes() > 0 && tree.program() > 0);
    // It is changed as any other, and has trees again when there is memory.
    tree.keep_within(Bounds::default()).unwrap();
    for _ in 0..=CHANGES {
        tree.remove(7);
        tree.insert(9, &list[7]).unwrap();
        let moved = list.remove(7);
        list.insert(9, moved);
    }
    assert!(tree.trees.is_some());
    holds(&tree, &list, &headers);
}

/// Bounds are kept, and a rule is refused only where trees that are grown of all rules have no memory for it either.
#[test]
fn bounds_are_kept() {
    let mut grown = 0;
    for (like, more) in [(Like::Acl, 200_000), (Like::Fw, 500_000), (Like::Ipc, 200_000)] {
        let (pool, headers) = made(like, 3000, 15);
        let mut list = pool[..200].to_vec();
        let mut tree = updatable(&list, Bounds::default());
        let narrow = Bounds { memory: tree.memory_bytes() + more };
        tree.keep_within(narrow).unwrap();
        assert!(tree.keep_within(Bounds { memory: 1000 }).is_err());
        let mut refused = 0;
        for (step, pattern) in pool.iter().enumerate() {
            let age = tree.age;
            match tree.insert(100, pattern) {
                Ok(()) => {
                    grown += usize::from(tree.age < age);
                    list.insert(100, pattern.clone());
                }
                Err(too_large) => {
                    assert!(too_large.needed > too_large.bound && too_large.bound == narrow.memory);
                    if tree.age > tree.change_of_many() {
                        let left = Bounds { memory: (narrow.memory - tree.rules.bytes()) / 9 * 8 };
                        let all = [std::slice::from_ref(pattern), &list].concat();
                        assert!(Tree::new(&all, left).is_err());
                    }
                    refused += 1;
                }
            }
            assert!(tree.memory_bytes() <= narrow.memory);
            if step % 300 == 0 {
                holds(&tree, &list, &headers[..100]);
            }
            if refused > 20 {
                break;
            }
        }
        assert!(refused > 20);
        holds(&tree, &list, &headers);
        for _ in 0..150 {
            tree.remove(50);
            list.remove(50);
        }
        holds(&tree, &list, &headers);
        assert!(tree.insert(0, &pool[0]).is_ok());
    }
    assert!(grown > 0);
}

/// Zones and MAC addresses are compared by leaves only where the trees have been grown for them.
#[test]
fn rules_may_ask_for_more_than_leaves_compare() {
    let (mut list, headers) = made(Like::Acl, 300, 16);
    let mut tree = updatable(&list, Bounds::default());
    let zone = Pattern { from: 1 << 3, to: 1 << 4 | 1 << 5, ..Pattern::default() };
    let interface =
        Pattern { ingress: vec![7], dports: vec![PortSpan { first: 1, last: 999 }], ..Pattern::default() };
    for pattern in [zone, interface] {
        tree.insert(50, &pattern).unwrap();
        list.insert(50, pattern);
    }
    let shown = headers.iter().enumerate().map(|(place, header)| Header {
        from: (place % 5) as u8,
        to: (place % 7) as u8,
        ingress: 6 + (place % 2) as u16,
        ..*header
    });
    holds(&tree, &list, &shown.collect::<Vec<_>>());
}

/// Each rule goes and comes back: it is copied into about as many leaves as when the trees were grown.
#[test]
fn rules_that_come_back_take_as_much_memory() {
    for like in [Like::Acl, Like::Fw, Like::Ipc] {
        let (list, headers) = made(like, 3000, 22);
        let mut tree = updatable(&list, Bounds::default());
        let bytes = |tree: &UpdatableTree| tree.trees.as_ref().map_or(0, |trees| trees.v4.forest.bytes());
        let grown = bytes(&tree);
        for step in 0..list.len() {
            // In an order in which neighbours do not follow each other.
            let at = (step * 1201) % list.len();
            tree.remove(at as Position);
            tree.insert(at as Position, &list[at]).unwrap();
        }
        assert_eq!(tree.age, 2 * list.len(), "never grown anew");
        assert!(bytes(&tree) < 2 * grown, "{like:?}: {} of {grown}", bytes(&tree));
        holds(&tree, &list, &headers);
    }
}

/// Trees that began with nothing, and then had thousands of rules, are as good as others.
#[test]
fn trees_that_have_become_slow_are_grown_anew() {
    let (pool, headers) = made(Like::Ipc, 4000, 17);
    let mut tree = updatable(&[], Bounds::default());
    for (position, pattern) in (0..).zip(&pool) {
        tree.insert(position, pattern).unwrap();
    }
    holds(&tree, &pool, &headers);
    let then = tree.trees.as_ref().map_or(0.0, |trees| trees.v4.forest.time);
    assert!(then > 0.0, "it was grown");
    assert!(!tree.takes_longer(WORN));
    assert!(!updatable(&pool, Bounds::default()).takes_longer(REVISED), "what is new is not worn");
}

/// The openness of trees is chosen anew only for many more rules, or many fewer; else it is what the choice would come to.
#[test]
fn openness_is_chosen_again_for_twice_as_many_rules() {
    let (pool, headers) = made(Like::Fw, 2001, 23);
    let mut list = pool[..1000].to_vec();
    let mut tree = updatable(&list, Bounds::default());
    let time = |tree: &UpdatableTree| tree.trees.as_ref().map_or(0.0, |trees| trees.v4.forest.time);
    for count in [1000, 2000, 2001] {
        for pattern in &pool[list.len()..count] {
            tree.insert(7, pattern).unwrap();
            list.insert(7, pattern.clone());
        }
        tree.grow_anew().unwrap();
        assert_eq!(tree.chosen.rules, if count == 2001 { 2001 } else { 1000 });
        holds(&tree, &list, &headers);
        let built = Tree::new(&list, Bounds::default()).unwrap();
        if count != 2000 {
            assert_eq!(time(&tree), built.pair.v4.time);
        }
    }
}

/// Reload after reload, each of which changes some rules: trees are changed, until they have become slow.
#[test]
fn trees_are_revised_again_and_again() {
    let (pool, headers) = made(Like::Fw, 3000, 18);
    let mut list = pool[..1500].to_vec();
    let mut tree: Box<dyn Classifier> = Box::new(Tree::new(&list, Bounds::default()).unwrap());
    let mut random = Random::new(19);
    let (mut made, mut built) = (0, 0);
    for round in 0..120 {
        let before = list.clone();
        for _ in 0..20 {
            let at = random.below(list.len() as u64) as usize;
            list[at] = pool[random.below(pool.len() as u64) as usize].clone();
        }
        tree = match revised(&*tree, &before, &list, Bounds::default()) {
            Some(tree) => {
                made += 1;
                tree
            }
            None => {
                built += 1;
                Box::new(Tree::new(&list, Bounds::default()).unwrap())
            }
        };
        if round % 10 == 9 {
            finds(&*tree, &list, &headers);
        }
    }
    assert!(made > 10 * built, "{made} revised, {built} built");
    let fresh = Tree::new(&list, Bounds::default()).unwrap().memory_bytes();
    assert!(tree.memory_bytes() < 3 * fresh, "{} of {fresh}", tree.memory_bytes());
}

/// Copies that see the same changes come to the same.
#[test]
fn copies_that_see_the_same_changes_are_alike() {
    let (pool, _) = made(Like::Ipc, 1500, 20);
    let mut one = updatable(&pool[..700], Bounds::default()).copy();
    let mut other = one.copy();
    let mut random = Random::new(21);
    for pattern in &pool[700..] {
        let at = random.below(600) as Position;
        for tree in [&mut one, &mut other] {
            tree.remove(at);
            tree.insert(at / 2, pattern).unwrap();
        }
    }
    let (one, other) = (one.into_classifier(), other.into_classifier());
    assert_eq!(one.memory_bytes(), other.memory_bytes());
    assert_eq!(one.region_bytes(), other.region_bytes());
}

/// Two versions take turns: each copies what the other one has come to, and is as if it had made the edits itself.
#[test]
fn versions_follow_each_other() {
    for (like, most) in [(Like::Fw, 30), (Like::Acl, 700), (Like::Ipc, 3000)] {
        let (pool, headers) = made(like, 900, 24);
        let mut list = pool[..400].to_vec();
        let mut random = Random::new(25);
        let mut now = updatable(&list, Bounds::default());
        let mut before = now.duplicate();
        let (mut grown, mut copied) = (0, 0);
        for round in 0..3 + 15_000 / most {
            for _ in 0..random.below(most) {
                let age = now.age;
                let (insert, at) = (random.below(2) == 0, random.below(list.len() as u64 + 1) as usize);
                if insert && list.len() < 900 {
                    let pattern = &pool[random.below(900) as usize];
                    now.insert(at as Position, pattern).unwrap();
                    list.insert(at, pattern.clone());
                } else if at < list.len() {
                    now.remove(at as Position);
                    list.remove(at);
                }
                grown += u32::from(now.age < age);
            }
            copied += u32::from(now.base != Some(before.state));
            before.follow(&now, &[]).unwrap();
            for (one, other) in [(&now, &before), (&before, &now)] {
                let (Some(one), Some(other)) = (&one.trees, &other.trees) else { panic!("there is memory") };
                is_written_as(&one.v4, &other.v4);
                is_written_as(&one.v6, &other.v6);
            }
            if round % 20 < 2 {
                holds(&before, &list, &headers);
            }
            std::mem::swap(&mut now, &mut before);
        }
        assert_eq!(
            copied > 0,
            grown > 0 || most > EVENTS as u64,
            "{like:?}: grown {grown} times, copied {copied}"
        );
        // One that the other was not made of is copied, too.
        let mut other = updatable(&pool, Bounds::default());
        other.follow(&now, &[]).unwrap();
        holds(&other, &list, &headers);
    }
}

fn is_written_as<S: Shape>(one: &Editable<S>, other: &Editable<S>) {
    let words = |trees: &Editable<S>| -> Vec<[u32; 8]> {
        trees.forest.octets[..trees.octets].iter().map(|octet| octet.0).collect()
    };
    assert!(words(one) == words(other));
    assert!(one.forest.branches.entries() == other.forest.branches.entries());
    assert!(one.leaves().eq(other.leaves()));
    assert!(one.leaves().all(|leaf| one.references(leaf) == other.references(leaf)));
}

/// Many networks beside each other, and one that contains all.
#[test]
fn a_leaf_that_becomes_long_is_divided() {
    let net = |first: u128, host: u128| Pattern {
        source: Some(vec![AddressSpan { v6: false, first, last: first | host }]),
        v6: Admit::No,
        ..Pattern::default()
    };
    let mut list = vec![net(0x0a00_0000, 0x00ff_ffff)];
    let mut tree = updatable(&list, Bounds::default());
    for number in 0..500 {
        let pattern = net(0x0a00_0000 | number << 8, 0xff);
        tree.insert(0, &pattern).unwrap();
        list.insert(0, pattern);
    }
    let header = |source| Header { source, family: wire::Family::V4, ..Header::default() };
    let headers: Vec<Header> = (0..600).map(|number| header(0x0a00_0007 | number << 8)).collect();
    holds(&tree, &list, &headers);
    let longest = tree
        .trees
        .as_ref()
        .map(|trees| trees.v4.leaves().map(|leaf| trees.v4.blocks(leaf).count()).max().unwrap_or(0));
    assert!(longest <= Some(4), "{longest:?}");
}
