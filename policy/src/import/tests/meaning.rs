//! Imports that keep the meaning of the rules: each case was once wrong.

use super::{has, import, iptables, rule, why};
use crate::import::{Import, NoteKind, Origin, find};
use crate::model::{Action, FamilyMatch, Mode, Rule, TcpFlagsMatch};

macro_rules! example {
    ($name:literal) => {
        include_str!(concat!("../../../tests/import/", $name))
    };
}

fn names(import: &Import) -> Vec<&str> {
    import.policy.rules.iter().map(|rule| rule.name.as_str()).collect()
}

/// The first rule that decides a TCP packet to a port, by zones, IP version and port alone.
fn decides<'a>(import: &'a Import, from: &str, to: &str, v6: bool, dport: u16) -> Option<&'a Rule> {
    let zone = |list: &[String], zone: &str| list.is_empty() || list.iter().any(|one| one == zone);
    let version = |rule: &Rule| match rule.conditions.family {
        FamilyMatch::Both => true,
        FamilyMatch::V4 => !v6,
        FamilyMatch::V6 => v6,
    };
    let port = |rule: &Rule| {
        rule.conditions.dports.is_empty() || rule.conditions.dports.iter().any(|range| range.contains(dport))
    };
    let mut rules = import.policy.rules.iter();
    rules.find(|rule| {
        zone(&rule.conditions.from, from) && zone(&rule.conditions.to, to) && version(rule) && port(rule)
    })
}

fn action(import: &Import, from: &str, to: &str, v6: bool, dport: u16) -> Action {
    let default = import.policy.default_action(from, to);
    decides(import, from, to, v6, dport).map_or(default, |rule| rule.action)
}

#[test]
fn a_forward_rule_for_all_interfaces_does_not_open_the_gateway() {
    let nft = import("nft", example!("input-open.nft.json"));
    let iptables = import("iptables", example!("input-open.v4"));
    for import in [nft, iptables] {
        assert_eq!(why(&import), []);
        assert_eq!(action(&import, "lan", "self", false, 22), Action::Drop, "{:?}", names(&import));
        assert_eq!(action(&import, "lan", "elsewhere", false, 22), Action::Accept);
    }
}

#[test]
fn each_ip_version_has_chains_and_policies_of_its_own() {
    let both = import("nft", example!("two-families.nft.json"));
    assert_eq!(why(&both), []);
    for v6 in [false, true] {
        assert_eq!(action(&both, "lan", "wan", v6, 80), Action::Accept, "{:#?}", both.policy.rules);
        assert_eq!(action(&both, "lan", "wan", v6, 22), Action::Drop);
    }
    // One version's policy accepts, and the other's drops.
    let text =
        example!("two-families.nft.json").replacen("\"policy\": \"drop\"", "\"policy\": \"accept\"", 1);
    let import = import("nft", &text);
    assert_eq!(action(&import, "lan", "wan", false, 22), Action::Accept);
    assert_eq!(action(&import, "lan", "wan", true, 22), Action::Drop);
    // A rule of a table of both versions stays one, where a version has more chains than the other.
    let text = text.replacen(
        "\"family\": \"ip6\", \"table\": \"filter\"",
        "\"family\": \"inet\", \"table\": \"filter\"",
        9,
    );
    let import = super::import(
        "nft",
        &text.replace("\"prio\": 0, \"policy\": \"drop\"", "\"prio\": 1, \"policy\": \"drop\""),
    );
    let wide: Vec<_> =
        import.policy.rules.iter().filter(|rule| rule.conditions.family == FamilyMatch::Both).collect();
    assert!(wide.iter().any(|rule| !rule.conditions.dports.is_empty()), "{:#?}", import.policy.rules);
}

#[test]
fn what_the_source_is_silent_about_is_dropped() {
    let import = iptables("-A FORWARD -p tcp -j ACCEPT");
    assert_eq!(action(&import, "lan", "self", false, 22), Action::Accept);
    assert_eq!(action(&import, "lan", "self", true, 22), Action::Drop);
    assert!(import.notes.iter().any(|note| matches!(note.kind, NoteKind::Silent { .. })));
}

#[test]
fn comments_become_valid_names() {
    let nft = import("nft", example!("comment.nft.json"));
    assert_eq!(names(&nft)[0], "allow-ssh-from-the-office");
    let twice = iptables(
        "-A FORWARD -p tcp -m comment --comment \"a, b\" -j ACCEPT\n\
         -A FORWARD -p udp -m comment --comment \"a (b)\" -j ACCEPT\n\
         -A FORWARD -p sctp -m comment --comment \"...\" -j ACCEPT\n\
         :weird~\u{e9} - [0:0]\n-A FORWARD -j weird~\u{e9}\n-A weird~\u{e9} -p gre -j ACCEPT",
    );
    let found = names(&twice);
    for name in ["a-b", "a-b-2", "forward-3", "weird-1"] {
        assert!(found.contains(&name), "{name}: {found:?}");
    }
}

#[test]
fn a_set_of_flags_holds_values() {
    let import = import("nft", example!("flags-set.nft.json"));
    assert_eq!(why(&import), []);
    let flags: Vec<_> = import.policy.rules.iter().filter_map(|rule| rule.conditions.tcp_flags).collect();
    // The other value opens no connection, and needs no rule.
    assert_eq!(flags, [TcpFlagsMatch { mask: 255, value: 2 }]);
}

/// Every form of a match on flags against its literal meaning, for every value of the flags.
#[test]
fn flags_mean_what_they_say() {
    let set = "{\"set\":[\"syn\",{\"|\":[\"syn\",\"ack\"]}]}";
    let masked = "{\"&\":[{\"payload\":{\"protocol\":\"tcp\",\"field\":\"flags\"}},[\"fin\",\"syn\",\"rst\",\"ack\"]]}";
    let plain = "{\"payload\":{\"protocol\":\"tcp\",\"field\":\"flags\"}}";
    type Meaning = fn(u8) -> bool;
    let forms: [(&str, &str, &str, Meaning); 11] = [
        ("in", plain, "\"syn\"", |f| f & 2 != 0),
        ("in", plain, "[\"syn\",\"ack\"]", |f| f & 18 != 0),
        ("==", plain, "\"syn\"", |f| f == 2),
        ("!=", plain, "18", |f| f != 18),
        ("==", plain, set, |f| f == 2 || f == 18),
        ("!=", plain, set, |f| f != 2 && f != 18),
        ("==", masked, "\"syn\"", |f| f & 23 == 2),
        ("!=", masked, "\"syn\"", |f| f & 23 != 2),
        ("==", masked, set, |f| f & 23 == 2 || f & 23 == 18),
        ("!=", masked, set, |f| f & 23 != 2 && f & 23 != 18),
        ("!", plain, "[\"fin\",\"rst\"]", |f| f & 5 == 0),
    ];
    for (op, left, right, meaning) in forms {
        let text = format!(
            "{{\"nftables\":[{{\"chain\":{{\"family\":\"inet\",\"table\":\"t\",\"name\":\"f\",\"type\":\"filter\",\
             \"hook\":\"forward\",\"prio\":0,\"policy\":\"drop\"}}}},{{\"rule\":{{\"family\":\"inet\",\"table\":\"t\",\
             \"chain\":\"f\",\"expr\":[{{\"match\":{{\"op\":\"{op}\",\"left\":{left},\"right\":{right}}}}},\
             {{\"accept\":null}}]}}}}]}}"
        );
        let import = import("nft", &text);
        assert_eq!(why(&import), [], "{op} {right}");
        let rules = import.policy.rules.iter().filter(|rule| rule.name.starts_with("f-"));
        let flags: Vec<_> = rules.map(|rule| rule.conditions.tcp_flags).collect();
        for value in 0..=255 {
            let matches = flags.iter().any(|flags| flags.is_none_or(|f| value & f.mask == f.value));
            assert_eq!(matches, meaning(value), "{op} {right}: {value:#x} {flags:?}");
        }
    }
}

/// The listing of nft omits the match implied by an answer.
#[test]
fn an_answer_is_for_its_own_ip_version() {
    let import = import("nft", example!("reject.nft.json"));
    assert_eq!(why(&import), []);
    let at = |n: &str| rule(&import, n);
    assert_eq!(at("forward-2").conditions.family, FamilyMatch::V6);
    assert_eq!(at("forward-5").conditions.family, FamilyMatch::V4);
    assert_eq!(at("forward-3").conditions.protocols, [crate::model::Protocol::TCP]);
}

#[test]
fn a_translation_makes_it_stateful_and_says_so() {
    let text = "*nat\n:POSTROUTING ACCEPT [0:0]\n-A POSTROUTING -o wan -j MASQUERADE\nCOMMIT\n\
                *filter\n:FORWARD DROP [0:0]\n-A FORWARD -i lan -o wan -j ACCEPT\nCOMMIT\n";
    let import = import("iptables", text);
    assert_eq!(import.policy.mode, Mode::Stateful);
    assert!(import.notes.iter().any(|note| note.kind == NoteKind::StatefulByNat));
}

#[test]
fn what_established_connections_meet_is_said() {
    let kinds =
        |rules: &str| -> Vec<NoteKind> { iptables(rules).notes.into_iter().map(|note| note.kind).collect() };
    let established = "-A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT\n";
    let drop = "-A FORWARD -s 10.0.0.0/8 -j DROP\n";
    let accept = "-A FORWARD -i lan -j ACCEPT\n";
    let after = kinds(&format!("{established}{drop}{accept}"));
    assert!(!after.contains(&NoteKind::BeforeEstablished) && !after.contains(&NoteKind::EstablishedPass));
    assert!(kinds(&format!("{drop}{established}{accept}")).contains(&NoteKind::AnswersRefused));
    let input = "-A INPUT -s 10.0.0.0/8 -j DROP\n-A INPUT -m state --state ESTABLISHED -j ACCEPT\n";
    assert!(kinds(input).contains(&NoteKind::BeforeEstablished));
    assert!(
        kinds("-A FORWARD -i lan -m conntrack --ctstate NEW -j ACCEPT\n")
            .contains(&NoteKind::EstablishedPass)
    );
}

#[test]
fn a_handle_is_called_one() {
    let text = example!("comment.nft.json").replace("{\"accept\": null}]}}]}", "{\"quota\": null}]}}]}");
    let import = find("nft").unwrap().import(text.as_bytes(), None).unwrap();
    assert_eq!(import.untranslated[0].origin, Origin::Handle(3));
    assert!(import.untranslated[0].to_string().starts_with("handle 3: "), "{}", import.untranslated[0]);
}

/// As guides have it for scans: segments that belong to no connection meet no rule here, and are dropped.
#[test]
fn segments_that_open_nothing_need_no_rule() {
    let import = iptables(
        "-A INPUT -m state --state ESTABLISHED -j ACCEPT\n\
         -A INPUT -p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN -m state --state NEW -j LOG --log-prefix \"New not syn:\"\n\
         -A INPUT -p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN -m state --state NEW -j DROP\n\
         -A INPUT -p tcp -m tcp --tcp-flags FIN,SYN,RST,PSH,ACK,URG NONE -j DROP\n\
         -A INPUT -p tcp -m tcp --tcp-flags SYN,RST SYN -m tcp --dport 25 -j DROP\n\
         -A INPUT -p tcp -j ACCEPT",
    );
    assert_eq!(why(&import), []);
    assert_eq!(names(&import), ["input-5", "input-6", "input-policy", "input-policy-2"]);
    assert!(has(&import, &NoteKind::StateImplied));
    assert_eq!((import.count.translated, import.count.implied), (2, 4));
    // Without connections each segment meets the rules.
    let each = iptables("-A INPUT -p tcp -m tcp ! --syn -j DROP\n-A INPUT -j ACCEPT");
    assert_eq!(each.policy.rules[0].action, Action::Drop);
}
