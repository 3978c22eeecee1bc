//! Code points that rules give packets, as classes.

use super::{has, import, iptables, why};
use crate::import::{Import, NoteKind, Why};
use crate::model::{Class, FamilyMatch, Mode};

const DSCP: &str = include_str!("../../../tests/import/dscp.nft.json");

/// Classes in a line each: zones, IP version, ports, and the mark.
fn classes(import: &Import) -> Vec<String> {
    let line = |class: &Class| {
        let conditions = &class.conditions;
        let zone = |names: &[String]| names.first().cloned().unwrap_or("any".to_owned());
        let family = match conditions.family {
            FamilyMatch::V4 => " ipv4",
            FamilyMatch::V6 => " ipv6",
            FamilyMatch::Both => "",
        };
        let protocols = conditions.protocols.iter().map(|protocol| format!(" {}", protocol.0));
        let sports = conditions.sports.iter().map(|ports| format!(" sport {}", ports.first));
        let dports = conditions.dports.iter().map(|ports| format!(" dport {}", ports.first));
        let dscp = conditions.dscp.iter().map(|dscp| format!(" dscp {}", dscp.value()));
        let rest: String = protocols.chain(sports).chain(dports).chain(dscp).collect();
        let mark = class.mark.map_or("none".to_owned(), |mark| mark.value().to_string());
        format!("{} > {}{family}{rest}: {mark}", zone(&conditions.from), zone(&conditions.to))
    };
    import.policy.classes.iter().map(line).collect()
}

/// Rules for all packets come first, and each later one is an exception; of rules for answers connections are, in front of what is for all.
#[test]
fn the_last_code_point_of_a_packet_is_that_of_the_first_class() {
    let import = import("nft", DSCP);
    let flags = Why::Feature("a change of the DSCP by TCP flags".to_owned());
    assert_eq!(why(&import), [(10, flags), (11, Why::Limit)]);
    let expected = [
        "any > any ipv4 17 dport 53: 32",
        "any > wan ipv6 6: 10",
        "wan > any ipv4 6 sport 80 sport 443: 18",
        "any > any ipv4 17 dport 5060: 46",
        "wan > any ipv6 6: 10",
        "any > any ipv6: 0",
        "any > any ipv4 17 sport 53: 32",
        "any > wan ipv4 6 dport 80 dport 443: 18",
        "any > any ipv4 17 sport 5060: 46",
        "any > any ipv4: 0",
    ];
    assert_eq!(classes(&import), expected);
    assert!(import.notes.iter().any(|note| note.kind == NoteKind::MarksWidened && note.origin.is_some()));
    assert_eq!(import.policy.mode, Mode::Stateful);
}

/// Without connections each packet meets the classes, as it does there.
#[test]
fn without_connections_answers_have_their_own() {
    let mangle = |rules: &str| {
        let tables = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\nCOMMIT\n";
        let chains =
            ":FORWARD ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n:PREROUTING ACCEPT [0:0]\n:voice - [0:0]";
        import("iptables", &format!("{tables}*mangle\n{chains}\n{rules}\nCOMMIT\n"))
    };
    let plain = mangle("-A FORWARD -o wan -p tcp -j DSCP --set-dscp-class AF11");
    assert_eq!((plain.policy.mode, why(&plain)), (Mode::Stateless, vec![]));
    assert_eq!(classes(&plain), ["any > wan ipv4 6: 10"]);
    // Of each packet the flags are its own.
    let flags = mangle("-A FORWARD -p tcp -m tcp --tcp-flags SYN,ACK ACK -j DSCP --set-dscp 0x28");
    assert_eq!((why(&flags), classes(&flags)), (vec![], vec!["any > any ipv4 6: 40".to_owned()]));
    // What is accepted first keeps its code point.
    let kept = mangle(
        "-A FORWARD -p udp -m udp --dport 53 -j ACCEPT\n-A FORWARD -j voice\n-A FORWARD -p tcp -j ACCEPT\n-A voice -j DSCP --set-dscp 0x2e",
    );
    assert_eq!(classes(&kept), ["any > any ipv4 17 dport 53: none", "any > any ipv4: 46"]);
    // A packet that has been marked keeps that mark where it is accepted in front of another one.
    let between = mangle(
        "-A FORWARD -j DSCP --set-dscp 0x08\n-A FORWARD -p udp -j ACCEPT\n-A FORWARD -j DSCP --set-dscp 0x2e",
    );
    assert_eq!(classes(&between), ["any > any ipv4 17: 8", "any > any ipv4: 46"]);
    // Conditions are on the code points that packets come with.
    let asked = mangle("-A FORWARD -m dscp --dscp 0x2e -j DSCP --set-dscp 0x28");
    assert_eq!((why(&asked), classes(&asked)), (vec![], vec!["any > any ipv4 dscp 46: 40".to_owned()]));
    let changed = mangle(
        "-A FORWARD -p udp -j DSCP --set-dscp 0x2e\n-A FORWARD -m dscp --dscp 0x2e -j DSCP --set-dscp 0x28",
    );
    let asks = "a change of the DSCP in front of a rule that asks for it".to_owned();
    assert_eq!(why(&changed), [(10, Why::Feature(asks.clone()))]);
    let before = mangle("-A PREROUTING -p udp -j DSCP --set-dscp 0x2e\n-A INPUT -m dscp --dscp 0x2e -j DROP");
    assert_eq!((why(&before), classes(&before)), (vec![(10, Why::Feature(asks))], vec![]));
    // Before routing and after it, too.
    let around = mangle(
        "-A PREROUTING -i lan -j DSCP --set-dscp 0x08\n-A POSTROUTING -o wan -j DSCP --set-dscp-class EF",
    );
    assert_eq!(
        (why(&around), classes(&around)),
        (vec![], vec!["any > wan ipv4: 46".to_owned(), "lan > any ipv4: 8".to_owned()])
    );
    assert!(has(&around, &NoteKind::EachPacket) || around.policy.mode == Mode::Stateless);
}

/// As scripts for a line's queues have it: a chain of marks that packets return from.
#[test]
fn returns_behind_marks_leave_the_rules_as_they_are() {
    let source = "*mangle\n:POSTROUTING ACCEPT [0:0]\n:QOS - [0:0]\n-A POSTROUTING -o wan -j QOS\n\
        -A QOS -p udp -m udp --dport 5060 -j DSCP --set-dscp-class EF\n-A QOS -p udp -m udp --dport 5060 -j RETURN\n\
        -A QOS -j DSCP --set-dscp-class CS1\nCOMMIT\n\
        *filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n\
        -A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT\n-A FORWARD -i lan -o wan -j ACCEPT\nCOMMIT\n";
    let import = import("iptables", source);
    assert_eq!(why(&import), []);
    let rules: Vec<&str> = import.policy.rules.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(rules, ["input-policy", "input-policy-2", "forward-policy"]);
    let outward = ["any > wan ipv4 17 dport 5060: 46", "any > wan ipv4: 8"];
    let answers = ["wan > any ipv4 17 sport 5060: 46", "wan > any ipv4: 8"];
    assert_eq!(classes(&import), [outward, answers].concat());
    // Nothing is dropped behind routing.
    assert!(!has(&import, &NoteKind::OwnPackets { hook: "postrouting".to_owned() }));
}

/// Code points that first packets alone are given there are not given to connections here.
#[test]
fn established_packets_decide_on_the_mark_of_a_connection() {
    let first = iptables(
        "-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT\n-A FORWARD -p udp -j DSCP --set-dscp-class EF\n-A FORWARD -j ACCEPT",
    );
    assert_eq!((why(&first), classes(&first)), (vec![(5, Why::State)], vec![]));
    let later = iptables(
        "-A FORWARD -p udp -j DSCP --set-dscp-class EF\n-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT\n\
         -A FORWARD -m conntrack --ctstate NEW -j DSCP --set-dscp-class CS1\n-A FORWARD -j ACCEPT",
    );
    assert_eq!(
        (why(&later), classes(&later)),
        (vec![(6, Why::State)], vec!["any > any ipv4 17: 46".to_owned()])
    );
}

#[test]
fn code_points_that_no_class_gives_are_listed() {
    for (rule, expected) in [
        ("-A FORWARD -m limit --limit 3/min -j DSCP --set-dscp 0x2e", Why::Limit),
        ("-A INPUT -j DSCP --set-dscp 0x2e", Why::Hook("input".to_owned())),
        ("-A FORWARD -j DSCP --set-dscp 64", Why::Value("--set-dscp 64".to_owned())),
        ("-A FORWARD -j DSCP", Why::Feature("DSCP".to_owned())),
        ("-A FORWARD -j TOS --set-tos 0x10/0x3f", Why::Feature("--set-tos".to_owned())),
    ] {
        let import = iptables(rule);
        assert_eq!((why(&import), classes(&import)), (vec![(4, expected)], vec![]), "{rule}");
    }
}
