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

/// Sources with a number at each `N`, in the units of the options.
const NUMBERS: [&str; 7] = [
    "tc qdisc add dev e root tbf rate Nbit burst Nb peakrate Nbit mtu Nb latency Nms overhead N mpu N",
    "tc qdisc add dev e root handle 1: tbf rate 1gbit burst Nb limit Nb\ntc qdisc add dev e parent 1:1 bfifo limit N",
    "tc qdisc add dev e root handle 1: htb default 2 r2q N direct_qlen N\n\
     tc class add dev e parent 1: classid 1:1 htb rate Nbit ceil Nbit burst N cburst N quantum N prio N overhead N mpu N\n\
     tc class add dev e parent 1:1 classid 1:2 htb rate Nbit ceil Nbit burst N cburst N quantum N\n\
     tc class add dev e parent 1:1 classid 1:3 htb rate Nbit quantum N\n\
     tc qdisc add dev e parent 1:2 fq_codel limit N flows N quantum N target Nus interval Nus memory_limit N\n\
     tc qdisc add dev e parent 1:3 pie limit N target Nus\n\
     tc filter add dev e parent 1: protocol ip prio N u32 match ip dport 80 0xffff police rate Nbit burst N mtu N drop flowid 1:3",
    "tc qdisc add dev e root cake bandwidth Nbit rtt Nus overhead N mpu N memlimit N besteffort",
    "tc qdisc add dev e root handle 1: prio bands N\ntc qdisc add dev e parent 1:1 red limit N min N max N avpkt N burst N probability 0.1\n\
     tc qdisc add dev e parent 1:2 sfq limit N quantum N divisor N perturb N\n\
     tc qdisc add dev e parent 1:3 fq limit N quantum N flow_limit N",
    // Shapers in one another.
    "tc qdisc add dev e root handle 1: tbf rate Nbit burst 1mb limit 1mb\ntc qdisc add dev e parent 1:1 handle 2: htb default 1\n\
     tc class add dev e parent 2: classid 2:1 htb rate Nbit ceil Nbit\ntc qdisc add dev e parent 2:1 handle 3: cake bandwidth Nbit diffserv4",
    "tc qdisc add dev e root handle 1: cake bandwidth Nbit diffserv8\ntc qdisc add dev f root handle 1: htb default 1\n\
     tc class add dev f parent 1: classid 1:1 htb rate Nbit ceil Nbit\ntc class add dev f parent 1:1 classid 1:2 htb rate Nbit ceil Nbit\n\
     tc qdisc add dev f parent 1:2 handle 2: prio\ntc qdisc add dev f parent 2:1 handle 3: tbf rate Nbit burst 1mb peakrate Nbit mtu 1mb latency 1ms\n\
     tc qdisc add dev f parent 3:1 handle 4: tbf rate Nbit burst 1mb limit 1mb\ntc qdisc add dev f parent 2:2 cake bandwidth Nbit diffserv3",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever its numbers, what is imported is a policy that can be read and checked.
    #[test]
    fn numbers_out_of_all_ranges_are_bounded_or_left_out(
        which in 0..NUMBERS.len(),
        numbers in proptest::collection::vec(prop_oneof![0..3_u64, 1..5_000_u64, any::<u64>().prop_flat_map(|n| (0..64_u32).prop_map(move |shift| n >> shift))], 40),
    ) {
        let mut numbers = numbers.into_iter();
        let text: String = NUMBERS[which]
            .split_inclusive('N')
            .map(|part| match part.strip_suffix('N') {
                Some(before) => format!("{before}{}", numbers.next().unwrap_or(1)),
                None => part.to_owned(),
            })
            .collect();
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
fn numbers_past_the_largest_are_noted() {
    for (source, given) in [
        ("tbf rate 100gbit burst 200gb latency 50ms", "burst 200gb"),
        ("tbf rate 100gbit burst 2mb peakrate 200gbit mtu 200gb latency 50ms", "mtu 200gb"),
        ("tbf rate 100gbit burst 2mb limit 900gb", "limit 900gb"),
        ("tbf rate 1tbit burst 2mb latency 99s", "latency 99s"),
        ("fq_codel limit 2000000", "limit 2000000"),
        ("fq_codel quantum 1", "quantum 1"),
        ("fq_codel flows 100000", "flows 100000"),
        ("codel target 11s", "target 11s"),
        ("pie target 11s", "target 11s"),
        ("bfifo limit 200gb", "limit 200gb"),
        ("sfq divisor 100000", "divisor 100000"),
        ("cake bandwidth 1gbit interplanetary", "rtt 1h"),
    ] {
        let import = import(&format!("tc qdisc add dev e root {source}\n"));
        let is_noted = |note: &crate::import::Note| matches!(&note.kind, NoteKind::Bounded { given: of, .. } if of == given);
        assert!(import.notes.iter().any(is_noted), "{source}: {:?}", import.notes);
        assert_eq!(import.untranslated, [], "{source}");
    }
    let classes = |burst: &str| {
        import(&format!(
            "tc qdisc add dev e root handle 1: htb default 2\ntc class add dev e parent 1: classid 1:2 htb rate 1gbit {burst}\n"
        ))
    };
    let import = classes("burst 200gb cburst 300gb");
    assert_eq!(import.notes.iter().filter(|note| matches!(note.kind, NoteKind::Bounded { .. })).count(), 2);
}

/// `tc class show` prints no quantum without `-d`, which is said where shares depend on it; a command without one leaves it to the kernel.
#[test]
fn quanta_that_a_listing_lacks_are_noted() {
    let noted = |source: &str| {
        let import = import(source);
        import.notes.iter().filter(|note| matches!(note.kind, NoteKind::Quanta { .. })).count()
    };
    assert_eq!(noted(HTB), 0);
    assert_eq!(noted(HTB_JSON), 1);
    assert_eq!(noted(&HTB_TEXT.replace(" rate", " quantum 60000 rate")), 0);
}

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
