use proptest::prelude::*;
use wire::{BitRate, Bytes};

use super::*;
use crate::import::tests::account;
use crate::import::{Count, find};
use crate::model::{ColourAction, Dropper, Isolation, Mode, Overhead, Policy, Queue, Scheduler};

mod mangled;
mod source;

const HTB: &str = include_str!("../../../tests/import/tc/htb.sh");
const HTB_TEXT: &str = include_str!("../../../tests/import/tc/htb.txt");
const HTB_STATS: &str = include_str!("../../../tests/import/tc/htb.stats.txt");
const HTB_JSON: &str = include_str!("../../../tests/import/tc/htb.json");
const INGRESS: &str = include_str!("../../../tests/import/tc/ingress.sh");
const INGRESS_TEXT: &str = include_str!("../../../tests/import/tc/ingress.txt");
const CAKE: &str = include_str!("../../../tests/import/tc/cake.txt");
const CAKE_JSON: &str = include_str!("../../../tests/import/tc/cake.json");
const SERVER: &str = include_str!("../../../tests/import/tc/server.json");

fn import(text: &str) -> Import {
    let import = find("tc").unwrap().import(text.as_bytes(), None).unwrap();
    account(&import);
    import
}

fn why(import: &Import) -> Vec<String> {
    import.untranslated.iter().map(|missing| format!("{}: {}", missing.origin, missing.why)).collect()
}

fn queue<'a>(policy: &'a Policy, name: &str) -> &'a Queue {
    let found = policy.queues.iter().find(|queue| queue.name == name);
    found.unwrap_or_else(|| panic!("no queue {name}:\n{policy}"))
}

/// Imports a script that is whole.
fn whole(script: &str) -> Policy {
    let import = import(script);
    assert_eq!(why(&import), Vec::<String>::new(), "{script}");
    import.policy
}

/// Imports a script, of which something is missing: what.
fn missing(script: &str) -> Vec<String> {
    let import = import(script);
    import.untranslated.iter().map(|missing| missing.why.to_string()).collect()
}

fn mbit(rate: u64) -> Option<BitRate> {
    Some(BitRate(rate * 1_000_000))
}

#[test]
fn an_uplink_of_htb_is_the_policy_beside_it() {
    let expected = include_str!("../../../tests/import/tc/htb.toml");
    for source in [HTB, HTB_TEXT, HTB_STATS, HTB_JSON] {
        let import = import(source);
        assert_eq!(why(&import), Vec::<String>::new());
        let named = import.policy.to_string().replace("interface.interface", "interface.eth0");
        let named = named.replace("\"interface", "\"eth0");
        assert_eq!(named, expected, "{source}");
    }
}

#[test]
fn incoming_packets_have_a_tree_of_their_own() {
    let expected = include_str!("../../../tests/import/tc/ingress.toml");
    for source in [INGRESS, INGRESS_TEXT] {
        let import = import(source);
        assert_eq!(why(&import), Vec::<String>::new());
        assert_eq!(import.policy.to_string(), expected, "{source}");
    }
}

#[test]
fn rates_are_guarantees_and_ceilings_rates() {
    let import = import(HTB);
    let policy = &import.policy;
    assert_eq!(policy.mode, Mode::Stateless);
    let root = queue(policy, "eth0");
    assert_eq!((root.rate, root.overhead), (mbit(20), Some(Overhead::Fixed(Bytes(14)))));
    let voice = queue(policy, "eth0-1:10");
    assert_eq!((voice.guarantee, voice.rate, voice.priority, voice.limit), (mbit(2), mbit(4), 0, Some(100)));
    let rest = queue(policy, "eth0-1:30");
    assert_eq!((rest.guarantee, rest.rate), (Some(BitRate(60_000)), mbit(20)));
    assert_eq!((rest.limit_bytes, rest.classes.len()), (Some(Bytes(65_536)), 0));
    assert_eq!(queue(policy, "eth0-1:22").parent.as_deref(), Some("eth0-1:20"));
    // Of an inner class the sum: 4 and 6 Mbit/s by a tenth, in bytes, are 50,000 and 75,000.
    let siblings = [queue(policy, "eth0-1:21").weight, queue(policy, "eth0-1:22").weight];
    assert_eq!((siblings, queue(policy, "eth0-1:20").quantum), ([2, 3], Some(Bytes(25_000))));
    assert_eq!(policy.classes.len(), 5);
}

#[test]
fn what_no_filter_sends_anywhere_has_the_default_class_or_none() {
    let tree = "tc qdisc add dev e root handle 1: htb DEFAULT\n\
                tc class add dev e parent 1: classid 1:1 htb rate 10mbit\n\
                tc class add dev e parent 1:1 classid 1:a htb rate 4mbit ceil 10mbit\n\
                tc class add dev e parent 1:1 classid 1:b htb rate 6mbit ceil 10mbit\n\
                tc filter add dev e parent 1: protocol ip u32 match ip protocol 17 0xff flowid 1:a\n";
    for default in ["default b", "default 0xb", "default 000b"] {
        let policy = whole(&tree.replace("DEFAULT", default));
        assert_eq!(policy.queues.len(), 3, "{policy}");
        assert!(queue(&policy, "e-1:b").classes.is_empty());
        assert_eq!(queue(&policy, "e-1:a").classes, ["e-1:a"]);
    }
    // Without one, or with one that is no leaf, they pass at once and without a rate.
    for default in ["", "default 0", "default 1", "default 99"] {
        let import = import(&tree.replace("DEFAULT", default));
        let direct = queue(&import.policy, "e-1:direct");
        assert_eq!(
            (direct.priority, direct.rate, direct.parent.as_deref()),
            (0, None, Some("e")),
            "{default}"
        );
        assert_eq!(queue(&import.policy, "e").rate, None);
        assert_eq!(
            (queue(&import.policy, "e-1:1").rate, queue(&import.policy, "e-1:1").priority),
            (mbit(10), 1)
        );
        assert!(import.notes.iter().any(|note| note.kind == NoteKind::Direct));
        // Nothing leads to the other class, which is not forgotten.
        assert_eq!(import.untranslated.len(), 1, "{:?}", why(&import));
        assert_eq!(import.untranslated[0].why, Why::NoFilter);
        assert_eq!(queue(&import.policy, "e-1:b").classes, ["e-1:b"]);
    }
}

/// A tree has eight levels: what is deeper waits in the eighth class, whose rate binds it there, too, and is told.
#[test]
fn packets_of_classes_that_are_too_deep_wait_above_them() {
    let mut script = String::from("tc qdisc add dev eth0 root handle 1: htb default 99\n");
    script += "tc class add dev eth0 parent 1: classid 1:1 htb rate 10mbit\n";
    for class in 2..=11 {
        let line = format!(
            "tc class add dev eth0 parent 1:{} classid 1:{class} htb rate 1mbit ceil 9mbit\n",
            class - 1
        );
        script += &line;
    }
    script += "tc class add dev eth0 parent 1:1 classid 1:99 htb rate 1mbit\n";
    script += "tc filter add dev eth0 parent 1: prio 1 u32 match ip dport 22 0xffff flowid 1:11\n";
    let import = import(&script);
    let told = why(&import);
    assert_eq!(told.iter().filter(|why| why.contains("eight levels")).count(), 3, "{told:?}");
    let policy = &import.policy;
    let deepest = queue(policy, "eth0-1:8");
    assert_eq!((deepest.rate, deepest.guarantee), (mbit(9), mbit(1)));
    // The one filter's packets.
    assert_eq!(deepest.classes, ["eth0-1:8"]);
    let classes: Vec<&str> = policy.classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!(classes, ["eth0-1:8"]);
}

#[test]
fn promises_that_cannot_be_kept_are_reported() {
    let import = import(
        "tc qdisc add dev e root handle 1: htb default 20\n\
         tc class add dev e parent 1: classid 1:1 htb rate 10mbit ceil 100mbit\n\
         tc class add dev e parent 1:1 classid 1:10 htb rate 12mbit ceil 20mbit\n\
         tc class add dev e parent 1:1 classid 1:20 htb rate 8mbit\n\
         tc filter add dev e parent 1: protocol ip u32 match ip protocol 17 0xff flowid 1:10",
    );
    assert_eq!(import.untranslated[0].why, Why::Oversubscribed);
    assert!(import.untranslated[0].text.contains("classid 1:1 "));
    // 10 and 8 that there may be, in proportion.
    let policy = &import.policy;
    assert_eq!(
        queue(policy, "e-1:10").guarantee.unwrap().0 + queue(policy, "e-1:20").guarantee.unwrap().0,
        9_999_999
    );
    assert!(import.notes.iter().any(|note| note.kind == NoteKind::NothingToBorrow));
    assert_eq!(queue(policy, "e").rate, mbit(10));
}

#[test]
fn sizes_of_packets() {
    let of = |words: &str| {
        let policy = import(&format!(
            "tc qdisc add dev e root handle 1: htb default 1\ntc class add dev e parent 1: classid 1:1 htb rate 1mbit {words}"
        ))
        .policy;
        queue(&policy, "e").overhead.unwrap()
    };
    // Linux hands packets to the card without their padding.
    assert_eq!(of(""), Overhead::Fixed(Bytes(14)));
    assert_eq!(of("mpu 60"), Overhead::LAYER_2);
    assert_eq!(of("overhead 24"), Overhead::Fixed(Bytes(38)));
    assert_eq!(of("overhead 24 mpu 84"), Overhead::ETHERNET);
    assert_eq!(of("overhead 26 linklayer atm"), Overhead::Atm(Bytes(40)));
    let stab = whole(
        "tc qdisc add dev ppp0 root stab linklayer atm overhead 32 tsize 256 tbf rate 1mbit burst 5k limit 20k",
    );
    assert_eq!(queue(&stab, "ppp0").overhead, Some(Overhead::Atm(Bytes(32))));
    assert_eq!(
        missing("tc qdisc add dev e root stab overhead 4 mpu 64 tbf rate 1mbit burst 5k limit 20k"),
        ["nothing here does what `mpu 64` does"]
    );
}

#[test]
fn cake_on_both_sides_is_a_shape() {
    for source in [CAKE, CAKE_JSON] {
        let policy = whole(source);
        let printed = policy.to_string();
        assert!(
            printed.contains("[shape.eth0]\nrate = \"95 Mbit/s / 19 Mbit/s\"\noverhead = 18\n"),
            "{printed}"
        );
        assert!(policy.queues.is_empty());
    }
    let cake = |words: &str| {
        whole(&format!("tc qdisc add dev eth0 root cake bandwidth 20mbit ethernet {words}")).to_string()
    };
    assert!(cake("").contains("rate = \"unlimited / 20 Mbit/s\"\n"), "{}", cake(""));
    assert!(!cake("").contains("overhead"), "{}", cake(""));
    assert!(cake("flows nat").contains("per = \"flow\""));
    for words in [
        "besteffort",
        "diffserv4",
        "diffserv8",
        "precedence",
        "rtt 20ms",
        "dual-dsthost",
        "wash",
        "flowblind",
    ] {
        assert!(!cake(words).contains("[shape") && cake(words).contains("codel"), "{words}: {}", cake(words));
    }
}

#[test]
fn trees_of_cake() {
    let policy =
        whole("tc qdisc add dev eth0 root cake bandwidth 16mbit diffserv4 dual-srchost raw rtt 200ms");
    let root = queue(&policy, "eth0");
    assert_eq!((root.rate, root.overhead), (mbit(16), Some(Overhead::Fixed(Bytes(14)))));
    let video = queue(&policy, "eth0-video");
    assert_eq!((video.guarantee, video.weight, video.isolate), (mbit(8), 8, Isolation::Source));
    assert_eq!((video.target.unwrap().0, video.interval.unwrap().0), (10_000_000, 200_000_000));
    let points: u64 = video.phbs.iter().fold(0, |all, phb| all | phb.code_points());
    assert_eq!(points.count_ones(), 1 + 4 + 4 + 3, "TOS4, CS2 and AF2, CS3 and AF3, AF4");
    let eight = whole("tc qdisc add dev eth0 root cake bandwidth 16mbit diffserv8");
    assert_eq!(eight.queues.len(), 9);
    let washed = whole("tc qdisc add dev eth0 root cake bandwidth 16mbit wash");
    assert_eq!(washed.classes.len(), 3);
    assert!(washed.classes.iter().all(|class| class.mark.is_some_and(|mark| mark.value() == 0)));
    // The last is for all that is left, without a queue of its own.
    assert_eq!(washed.queues.iter().map(|queue| queue.classes.len()).sum::<usize>(), 2);
    let ptm = whole("tc qdisc add dev eth0 root cake bandwidth 65mbit besteffort pppoe-ptm");
    assert_eq!(
        (queue(&ptm, "eth0").rate, queue(&ptm, "eth0").overhead),
        (mbit(65), Some(Overhead::Ptm(Bytes(30))))
    );
    assert_eq!(
        missing("tc qdisc add dev eth0 root cake bandwidth 1mbit docsis ack-filter fwmark 0xf"),
        [
            "nothing here does what `ack-filter` does",
            "nothing here does what `mpu 64` does",
            "packets have no marks here: write the conditions that the mark stood for",
        ]
    );
}

#[test]
fn queues_without_classes() {
    let leaf = |words: &str| queue(&whole(&format!("tc qdisc add dev e root {words}")), "e").clone();
    let fq = leaf("fq_codel limit 1000 flows 1000 quantum 300 target 10ms interval 200ms noecn");
    assert_eq!(
        (fq.scheduler, fq.flows, fq.quantum, fq.ecn),
        (Some(Scheduler::Fq), 1_024, Some(Bytes(300)), false)
    );
    assert_eq!(
        (fq.target.unwrap().0, fq.interval.unwrap().0, fq.limit),
        (10_000_000, 200_000_000, Some(1_000))
    );
    assert!(leaf("fq_codel").ecn);
    assert_eq!(
        (leaf("codel").drop, leaf("codel ecn").ecn, leaf("pie target 20ms").drop),
        (Dropper::Codel, true, Dropper::Pie)
    );
    let red = leaf(
        "red limit 400000 min 30000 max 90000 avpkt 1500 burst 20 bandwidth 10mbit probability 0.05 ecn",
    );
    assert_eq!((red.red[0].min, red.red[0].max, red.red[0].per_mille, red.ecn), (20, 60, 50, true));
    let sfq = leaf("sfq perturb 10");
    assert_eq!((sfq.scheduler, sfq.limit), (Some(Scheduler::Fq), Some(127)));
    let tbf = leaf("tbf rate 1mbit burst 10kb latency 70ms");
    assert_eq!(
        (tbf.rate, tbf.burst, tbf.limit_bytes),
        (mbit(1), Some(Bytes(10_240)), Some(Bytes(8_750 + 10_240)))
    );
    let peak = whole(
        "tc qdisc add dev e root handle 5: tbf rate 1mbit burst 10kb limit 30kb peakrate 2mbit mtu 1540",
    );
    assert_eq!((queue(&peak, "e").rate, queue(&peak, "e-5:rate").rate), (mbit(2), mbit(1)));
    for (words, missed) in [
        ("codel ce_threshold 1ms", "ce_threshold 1ms"),
        ("pie alpha 5", "alpha 5"),
        ("red limit 400000 avpkt 1000 adaptive", "adaptive"),
        ("netem delay 10ms", "qdisc netem"),
        ("hfsc default 1", "qdisc hfsc"),
    ] {
        let missing = missing(&format!("tc qdisc add dev e root {words}"));
        assert_eq!(missing, [format!("nothing here does what `{missed}` does")]);
    }
}

#[test]
fn bands_by_priority_and_by_filter() {
    let policy =
        whole("tc qdisc add dev e root handle 1: prio\ntc qdisc add dev e parent 1:3 handle 30: sfq");
    assert_eq!(queue(&policy, "e").scheduler, Some(Scheduler::Strict));
    let names: Vec<&str> = policy.queues.iter().map(|queue| queue.name.as_str()).collect();
    assert_eq!(names, ["e", "e-1:1", "e-1:2", "e-1:3"]);
    // Low delay, of RFC 1349, is first; cheap and slow is last.
    let has = |name: &str, point: u8| {
        queue(&policy, name).phbs.iter().any(|phb| phb.code_points() >> point & 1 == 1)
    };
    assert!(
        has("e-1:1", 4) && has("e-1:3", 2) && !has("e-1:1", 46) && queue(&policy, "e-1:2").phbs.is_empty()
    );
    let filtered = whole(
        "tc qdisc add dev e root handle 1: prio bands 16 priomap 15 15 15 15 15 15 15 15 15 15 15 15 15 15 15 15\n\
         tc filter add dev e parent 1: protocol ip prio 1 u32 match ip dport 22 0xffff flowid 1:1\n\
         tc filter add dev e parent 1: protocol ip prio 1 u32 match ip sport 22 0xffff flowid 1:2",
    );
    assert_eq!(filtered.queues.len(), 4);
    assert_eq!(queue(&filtered, "e-1:1").classes, ["e-1:1"]);
}

#[test]
fn policers_are_meters() {
    let policy = whole(
        "tc qdisc add dev e ingress\n\
         tc filter add dev e parent ffff: protocol ip prio 1 u32 match ip src 10.0.0.0/8 police rate 1mbit burst 10k drop flowid :1\n\
         tc filter add dev e parent ffff: protocol all prio 2 matchall action police rate 5mbit burst 20k conform-exceed drop/pass",
    );
    assert_eq!((policy.meters.len(), policy.classes.len()), (2, 2));
    assert_eq!((policy.meters[0].burst, policy.meters[0].overhead), (10_240, Overhead::IP));
    assert_eq!(policy.meters[1].actions[2], ColourAction::Drop);
    assert_eq!(
        (policy.classes[0].conditions.from.as_slice(), &policy.classes[0].meter),
        (&["e".to_owned()][..], &Some(policy.meters[0].name.clone()))
    );
    assert!(missing(
        "tc qdisc add dev e ingress\n\
         tc filter add dev e ingress protocol ip matchall action police rate 1mbit burst 10k conform-exceed continue"
    )[0]
    .contains("continue"));
    // The listing, and JSON, which lacks the rate.
    let listed = "qdisc ingress ffff: dev e parent ffff:fff1 ----------------\n\
        filter dev e parent ffff: protocol all pref 49152 matchall chain 0\n\
        filter dev e parent ffff: protocol all pref 49152 matchall chain 0 handle 0x1\n  not_in_hw\n\
        \taction order 1:  police 0x1 rate 1Mbit burst 10Kb mtu 2Kb action drop overhead 0b\n\tref 1 bind 1\n";
    assert_eq!(whole(listed).meters[0].burst, 10_240);
    let json = r#"[{"kind":"ingress","handle":"ffff:","dev":"e","parent":"ffff:fff1","options":{}}]
        [{"dev":"e","parent":"ffff:","protocol":"all","pref":1,"kind":"matchall","chain":0,"options":{"handle":1,"not_in_hw":true,
        "actions":[{"order":1,"kind":"police","index":1,"control_action":{"type":"drop"},"overhead":0,"ref":1,"bind":1}]}}]"#;
    assert_eq!(
        missing(json),
        ["`tc -j` does not print the rate of a policer: import what `tc` prints without -j"]
    );
}

#[test]
fn packets_of_two_trees_have_a_class_for_each_pair() {
    let policy = whole(
        "tc qdisc add dev a ingress\n\
         tc filter add dev a ingress matchall action mirred egress redirect dev ifb0\n\
         tc qdisc add dev ifb0 root handle 1: htb default 2\n\
         tc class add dev ifb0 parent 1: classid 1:1 htb rate 10mbit\n\
         tc class add dev ifb0 parent 1:1 classid 1:2 htb rate 5mbit\n\
         tc class add dev ifb0 parent 1:1 classid 1:3 htb rate 5mbit\n\
         tc filter add dev ifb0 parent 1: protocol ip u32 match ip protocol 17 0xff flowid 1:3\n\
         tc qdisc add dev b root handle 1: htb default 2\n\
         tc class add dev b parent 1: classid 1:1 htb rate 10mbit\n\
         tc class add dev b parent 1:1 classid 1:2 htb rate 5mbit\n\
         tc class add dev b parent 1:1 classid 1:3 htb rate 5mbit\n\
         tc filter add dev b parent 1: protocol ip u32 match ip dst 10.0.0.0/8 flowid 1:3",
    );
    let classes: Vec<(Vec<String>, Vec<String>)> = policy
        .classes
        .iter()
        .map(|class| (class.conditions.from.clone(), class.conditions.to.clone()))
        .collect();
    let (a, b) = (vec!["a".to_owned()], vec!["b".to_owned()]);
    assert_eq!(classes, [(a.clone(), b.clone()), (a, vec![]), (vec![], b)]);
    assert_eq!(queue(&policy, "ifb0-1:3").classes.len(), 2);
    assert_eq!(queue(&policy, "b-1:3").classes.len(), 2);
    assert_eq!(queue(&policy, "ifb0").from, ["a"]);
}

#[test]
fn a_server_of_many_hardware_queues() {
    let import = import(SERVER);
    assert_eq!(why(&import), Vec::<String>::new());
    assert_eq!(import.policy.queues.len(), 1, "{}", import.policy);
    assert_eq!(import.count, Count { rules: 7, translated: 1, implied: 6, untranslated: 0 });
}

#[test]
fn nothing_is_nothing() {
    for empty in ["", "\n\n", "[]", "[ ]\n[]\n", "[{}]\n", "# nothing\n"] {
        let import = import(empty);
        assert_eq!((import.count, import.policy.queues.len()), (Count::default(), 0), "{empty:?}");
    }
    let hello = find("tc").unwrap().import(b"hello world, 1\nand so on!\n", None);
    assert!(matches!(hello, Err(ImportError::NothingKnown { format: "tc" })), "{hello:?}");
}
