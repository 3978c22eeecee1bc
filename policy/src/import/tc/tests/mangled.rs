//! Sources that nobody wrote on purpose: never a panic, always an account, never without bound.

use std::fmt::Write;
use std::time::Instant;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn changed_sources_are_met(which in 0..9usize, changes in proptest::collection::vec((any::<u32>(), any::<u8>(), 0..3u8), 1..12)) {
        let all = [HTB, HTB_TEXT, HTB_STATS, HTB_JSON, INGRESS, INGRESS_TEXT, CAKE, CAKE_JSON, SERVER];
        let mut bytes = all[which].as_bytes().to_vec();
        for (at, byte, how) in changes {
            let at = at as usize % bytes.len();
            match how {
                0 => bytes[at] = byte,
                1 => { bytes.remove(at); }
                _ => {
                    let part: Vec<u8> = bytes[at..].iter().copied().take(usize::from(byte)).collect();
                    let to = usize::from(byte) * 7 % bytes.len();
                    bytes.splice(to..to, part);
                }
            }
        }
        if let Ok(import) = find("tc").unwrap().import(&bytes, None) {
            account(&import);
        }
    }

    /// Words of tc in any order.
    #[test]
    fn any_words_are_met(lines in proptest::collection::vec(proptest::collection::vec(0..WORDS.len(), 0..14), 0..30)) {
        let mut text = String::from("tc qdisc add dev e root handle 1: htb default 10\ntc class add dev e parent 1: classid 1:1 htb rate 1mbit\n");
        for line in lines {
            let words: Vec<&str> = line.into_iter().map(|word| WORDS[word]).collect();
            writeln!(text, "{}", words.join(" ")).unwrap();
        }
        if let Ok(import) = find("tc").unwrap().import(text.as_bytes(), None) {
            account(&import);
        }
    }
}

const WORDS: &[&str] = &[
    "tc",
    "qdisc",
    "class",
    "filter",
    "add",
    "change",
    "del",
    "show",
    "dev",
    "e",
    "f",
    "root",
    "parent",
    "1:",
    "1:1",
    "1:10",
    "handle",
    "classid",
    "flowid",
    "htb",
    "tbf",
    "prio",
    "cake",
    "fq_codel",
    "u32",
    "flower",
    "matchall",
    "match",
    "ip",
    "rate",
    "ceil",
    "1mbit",
    "5kbit",
    "0",
    "burst",
    "10k",
    "protocol",
    "dport",
    "80",
    "0xffff",
    "police",
    "drop",
    "action",
    "mirred",
    "egress",
    "redirect",
    "ingress",
    "ifb0",
    "bands",
    "priomap",
    "2",
    "bandwidth",
    "diffserv4",
    "wash",
    "overhead",
    "quantum",
    "limit",
    "default",
    "10",
    "-4",
    "99999999999",
    "all",
    "ipv6",
    "pref",
    "atm",
    "linklayer",
    "latency",
    "50ms",
    "\\",
    "$X",
    "#",
    "'",
    "[{",
    "}]",
    "2:",
    "2:1",
    "mq",
    "pfifo",
    "src",
    "10.0.0.0/8",
    "tos",
    "0xb8",
];

#[test]
fn large_sources_take_little_time() {
    let mut text = String::from(
        "tc qdisc add dev e root handle 1: htb default 2\ntc class add dev e parent 1: classid 1:1 htb rate 1gbit\n",
    );
    for class in 2..8_000 {
        writeln!(text, "tc class add dev e parent 1:1 classid 1:{class:x} htb rate 100kbit ceil 1gbit")
            .unwrap();
        writeln!(text, "tc qdisc add dev e parent 1:{class:x} fq_codel").unwrap();
        let address = std::net::Ipv4Addr::from(0x0a00_0000 + class);
        writeln!(
            text,
            "tc filter add dev e parent 1: protocol ip prio 1 u32 match ip dst {address} flowid 1:{class:x}"
        )
        .unwrap();
    }
    let start = Instant::now();
    let import = find("tc").unwrap().import(text.as_bytes(), None).unwrap();
    assert_eq!(import.count.untranslated, 0, "{:?}", import.untranslated.first());
    assert_eq!(import.policy.queues.len(), 7_999);
    eprintln!("{} classes in {:?}", import.policy.queues.len(), start.elapsed());
}

#[test]
fn what_nests_or_multiplies_without_bound_is_cut() {
    let mut deep = String::from("tc qdisc add dev e root handle 1: htb default 2\n");
    let mut before = String::new();
    for class in 1..3_000 {
        writeln!(deep, "tc class add dev e parent 1:{before} classid 1:{class:x} htb rate 1mbit").unwrap();
        before = format!("{class:x}");
    }
    let import = import(&deep);
    assert!(import.untranslated.iter().any(|missing| missing.why == Why::Levels));
    let mut loops = String::from("tc qdisc add dev e root handle 1: htb default 3\n");
    loops += "tc class add dev e parent 1: classid 1:1 htb rate 1mbit\ntc class add dev e parent 1:1 classid 1:2 htb rate 1mbit\n";
    loops += "tc class add dev e parent 1:1 classid 1:3 htb rate 1mbit\n";
    for port in 0..40 {
        writeln!(
            loops,
            "tc filter add dev e parent 1: protocol ip prio 1 u32 match ip dport {port} 0xffff flowid 1:1"
        )
        .unwrap();
        writeln!(
            loops,
            "tc filter add dev e parent 1:1 protocol ip prio 1 u32 match ip sport {port} 0xffff flowid 1:1"
        )
        .unwrap();
    }
    let import = find("tc").unwrap().import(loops.as_bytes(), None).unwrap();
    assert!(import.untranslated.iter().any(|missing| matches!(missing.why, Why::TooDeep | Why::TooMany)));
}
