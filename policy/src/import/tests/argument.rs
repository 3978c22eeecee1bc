//! Arguments of statements: values of maps, and limits of answers.

use super::{has, import, iptables, rule, why};
use crate::import::{Import, NoteKind, Why};
use crate::model::{Action, Excess, Helper, Logging, MssClamp, NatAction, RejectWith};

const ARGUMENT: &str = include_str!("../../../tests/import/argument.nft.json");
const ARCH: &str = include_str!("../../../tests/import/arch.nft.json");

/// Address and port may come from two maps by one key, which fit no packet but by equal keys.
#[test]
fn translations_by_two_maps_are_joined() {
    let import = import("nft", ARGUMENT);
    let found: Vec<String> = import
        .policy
        .nats
        .iter()
        .map(|nat| match &nat.action {
            NatAction::Forward { target, target_port, ports, .. } => {
                format!("{} to {target}:{}", ports[0].first, target_port.unwrap())
            }
            NatAction::Redirect { ports, to_port } => format!("{} to {}", ports[0].first, to_port.unwrap()),
            other => format!("{other:?}"),
        })
        .collect();
    let joined = ["1000 to 10.0.0.1:1234", "2000 to 10.0.0.2:2345"];
    let to_one = ["1000 to 10.0.0.9:1234", "2000 to 10.0.0.9:2345"];
    let to_own = ["53 to 5353", "80 to 8080"];
    assert_eq!(found, [joined, to_one, to_own].concat());
}

#[test]
fn helpers_come_from_maps() {
    let import = import("nft", ARGUMENT);
    let reasons: Vec<Why> = why(&import).into_iter().map(|(_, why)| why).collect();
    assert_eq!(reasons, [Why::Feature("ct helper tftp over udp".to_owned()), Why::Limit, Why::Limit]);
    // A limit that has a name is a rule's own where no other one has it.
    let limited = rule(&import, "forward-3").rate.unwrap();
    assert_eq!((limited.count, limited.burst), (50, 20));
    let helped: Vec<_> = import.policy.rules.iter().filter(|rule| rule.helper == Some(Helper::Ftp)).collect();
    assert_eq!(helped.len(), 1);
    assert_eq!((helped[0].conditions.dports[0].first, helped[0].conditions.dports[0].last), (21, 21));
}

/// As in Arch Linux: answers up to a rate, and the rest in silence.
#[test]
fn what_exceeds_a_limit_of_answers_is_dropped() {
    let import = import("nft", ARCH);
    assert_eq!(why(&import), []);
    let (above, within) = (rule(&import, "input-7"), rule(&import, "input-7-2"));
    assert_eq!((above.rate.unwrap().count, above.action), (5, Action::Drop));
    assert_eq!((within.rate, within.action), (None, Action::Reject(RejectWith::AdminProhibited)));
    assert_eq!(above.conditions, within.conditions);
    // What is dropped anyway needs no limit, and what is accepted behind has no counterpart.
    let dropped = iptables("-A FORWARD -p icmp -m limit --limit 3/min -j DROP");
    assert_eq!((why(&dropped), rule(&dropped, "forward-1").rate), (vec![], None));
    let accepted = iptables("-A INPUT -p icmp -m limit --limit 3/min -j REJECT");
    assert_eq!(why(&accepted), [(4, Why::Limit)]);
}

/// The excess of a limit has the log that its own rule has.
#[test]
fn what_exceeds_a_limit_is_logged_where_it_is_dropped() {
    let rules = "-A FORWARD -p icmp -m limit --limit 3/min -j ACCEPT\n\
                 -A FORWARD -p udp -m limit --limit 3/min -j REJECT\n\
                 -A FORWARD -p tcp -m connlimit --connlimit-upto 3 -j ACCEPT\n\
                 -A FORWARD -j LOG\n-A FORWARD -j DROP";
    let import = iptables(rules);
    assert_eq!(why(&import), []);
    assert_eq!(rule(&import, "forward-1").excess, Excess::Next);
    assert_eq!(
        (rule(&import, "forward-2").action, rule(&import, "forward-2").log),
        (Action::Drop, Logging::On)
    );
    assert_eq!(rule(&import, "forward-2-2").log, Logging::Off);
    assert!(rule(&import, "forward-3").connections.is_some() && has(&import, &NoteKind::ExcessUnlogged));
    let silent = iptables(&rules.replace("-A FORWARD -j LOG\n", ""));
    assert_eq!(rule(&silent, "forward-1").excess, Excess::Drop);
    assert_eq!(rule(&silent, "forward-2").log, Logging::Off);
    assert!(!has(&silent, &NoteKind::ExcessUnlogged));
}

/// As in libvirt's rules: a repair of checksums changes no verdict.
#[test]
fn checksums_need_no_rule() {
    let table = "*mangle\n:POSTROUTING ACCEPT [0:0]\n\
                 -A POSTROUTING -o virbr0 -p udp -m udp --dport 68 -j CHECKSUM --checksum-fill\nCOMMIT\n";
    let import = import("iptables", table);
    assert_eq!(why(&import), []);
    assert!(has(&import, &NoteKind::ChecksumFill));
}

/// An MSS of a number of bytes, and clamps of some values alone: a clamp never raises an MSS.
#[test]
fn an_mss_is_a_number_or_follows_the_mtu() {
    let mss = |import: &Import, interface: &str| {
        assert_eq!(why(import), []);
        import.policy.interface(interface).unwrap().mss
    };
    let of = |options: &str| {
        iptables(&format!("-A FORWARD -o ppp0 -p tcp -m tcp --tcp-flags SYN,RST SYN {options}"))
    };
    assert_eq!(mss(&of("-j TCPMSS --set-mss 1452"), "ppp0"), MssClamp::Bytes(1452));
    assert_eq!(mss(&of("-m tcpmss --mss 1400:65495 -j TCPMSS --clamp-mss-to-pmtu"), "ppp0"), MssClamp::Mtu);
    assert_eq!(why(&of("-j TCPMSS --set-mss 100")), [(4, Why::Value("--set-mss 100".to_owned()))]);
    let both = "-j TCPMSS --set-mss 1412\n-A FORWARD -o ppp0 -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS";
    assert_eq!(mss(&of(&format!("{both} --set-mss 1452")), "ppp0"), MssClamp::Bytes(1412));
    assert_eq!(mss(&of(&format!("{both} --clamp-mss-to-pmtu")), "ppp0"), MssClamp::Bytes(1412));
    let dropped = of("-m tcpmss --mss 0:500 -j DROP");
    assert_eq!(why(&dropped), [(4, Why::Feature("-m tcpmss".to_owned()))]);
    let value = |value: &str| {
        let text = include_str!("../../../tests/import/fw4.nft.json");
        text.replace("\"value\": {\"rt\": {\"key\": \"mtu\"}}", value)
    };
    assert_eq!(mss(&import("nft", &value("\"value\": 1452")), "pppoe-wan"), MssClamp::Bytes(1452));
}

/// Translations of networks, of which rules for both directions are one here.
#[test]
fn networks_are_translated_one_by_one() {
    let translated = |import: &Import| -> Vec<String> {
        let nats = import.policy.nats.iter();
        nats.map(|nat| match &nat.action {
            NatAction::OneToOne { outside, inside, .. } => {
                format!("{inside} as {outside} at {}", nat.from.join(" "))
            }
            other => format!("{other:?}"),
        })
        .collect()
    };
    let expected = ["192.168.1.0/24 as 10.9.1.0/24 at vpn", "192.168.2.0/24 as 10.9.2.0/24 at vpn2"];
    let saved = import("iptables", include_str!("../../../tests/import/netmap.v4"));
    assert_eq!(translated(&saved), expected);
    // By protocol, and of two sizes.
    assert_eq!(why(&saved), [(10, Why::NatCondition), (11, Why::NatTarget)]);
    assert!(has(&saved, &NoteKind::BothWays) && !has(&saved, &NoteKind::PortOrder));
    let listed = import("nft", include_str!("../../../tests/import/netmap.nft.json"));
    assert_eq!((translated(&listed), why(&listed)), (expected.map(str::to_owned).to_vec(), vec![]));
    assert!(!has(&listed, &NoteKind::PortOrder));
}

/// Rules of a dormant table are not in force; nft 1.0.6 prints a table's name for its flags.
#[test]
fn dormant_tables_are_left_out() {
    let of = |flags: &str| {
        let table = |name: &str, flags: &str| {
            format!("{{\"table\":{{\"family\":\"inet\",\"name\":\"{name}\",\"handle\":1{flags}}}}}")
        };
        let chain = |name: &str, policy: &str| {
            format!(
                "{{\"chain\":{{\"family\":\"inet\",\"table\":\"{name}\",\"name\":\"c\",\"type\":\"filter\",\
                 \"hook\":\"forward\",\"prio\":0,\"policy\":\"{policy}\"}}}}"
            )
        };
        let objects =
            [table("asleep", flags), chain("asleep", "drop"), table("awake", ""), chain("awake", "accept")];
        import("nft", &format!("{{\"nftables\":[{}]}}", objects.join(",")))
    };
    let forwards = |import: &Import| import.policy.default_action("lan", "wan") == Action::Accept;
    let dormant = NoteKind::Dormant { table: "inet asleep".to_owned() };
    for flags in [",\"flags\":\"dormant\"", ",\"flags\":[\"owner\",\"dormant\"]"] {
        let import = of(flags);
        assert!(forwards(&import) && has(&import, &dormant), "{:?}", import.notes);
    }
    assert!(!forwards(&of("")) && !forwards(&of(",\"flags\":\"owner\"")));
    let unsaid = of(",\"flags\":\"asleep\"");
    assert!(!forwards(&unsaid) && has(&unsaid, &NoteKind::TableFlags { table: "inet asleep".to_owned() }));
}

#[test]
fn marks_are_called_by_what_they_are() {
    let set = |key: &str| {
        let table = "{\"chain\":{\"family\":\"ip\",\"table\":\"t\",\"name\":\"c\",\"type\":\"filter\",\"hook\":\"forward\",\"prio\":0,\"policy\":\"accept\"}}";
        let rule = format!(
            "{{\"rule\":{{\"family\":\"ip\",\"table\":\"t\",\"chain\":\"c\",\"handle\":7,\"expr\":[{{\"mangle\":{{\"key\":{key},\"value\":1}}}}]}}}}"
        );
        why(&import("nft", &format!("{{\"nftables\":[{table},{rule}]}}")))
    };
    assert_eq!(set("{\"meta\":{\"key\":\"mark\"}}"), [(7, Why::Mark)]);
    assert_eq!(set("{\"ct\":{\"key\":\"mark\"}}"), [(7, Why::Mark)]);
    let ttl = set("{\"payload\":{\"protocol\":\"ip\",\"field\":\"ttl\"}}");
    assert_eq!(ttl, [(7, Why::Feature("ip ttl set".to_owned()))]);
    for rule in
        ["-m mark --mark 0x1 -j ACCEPT", "-j MARK --set-xmark 0x1/0xffffffff", "-j CONNMARK --restore-mark"]
    {
        assert_eq!(why(&iptables(&format!("-A FORWARD {rule}"))), [(4, Why::Mark)], "{rule}");
    }
}
