//! Source addresses of Ethernet frames: `ether saddr` and `-m mac`.

use super::{account, find, import, iptables, rule, why};
use crate::import::{Import, NoteKind, Why};
use crate::model::{Action, FamilyMatch, Macs, Rule};

const SAMPLE: &str = include_str!("../../../tests/import/mac.nft.json");

const SADDR: &str = "{\"payload\":{\"protocol\":\"ether\",\"field\":\"saddr\"}}";

/// Returns one nftables chain at `forward` with a policy of drop.
fn forward(rules: &[String]) -> Import {
    let chain = "{\"chain\":{\"family\":\"inet\",\"table\":\"t\",\"name\":\"f\",\"type\":\"filter\",\
                 \"hook\":\"forward\",\"prio\":0,\"policy\":\"drop\"}}";
    let rule = |expressions: &String| {
        format!(
            "{{\"rule\":{{\"family\":\"inet\",\"table\":\"t\",\"chain\":\"f\",\"expr\":[{expressions}]}}}}"
        )
    };
    let rules: Vec<String> = rules.iter().map(rule).collect();
    find("nft")
        .unwrap()
        .import(format!("{{\"nftables\":[{chain},{}]}}", rules.join(",")).as_bytes(), None)
        .unwrap()
}

fn saddr(left: &str, op: &str, right: &str) -> String {
    format!("{{\"match\":{{\"op\":\"{op}\",\"left\":{left},\"right\":{right}}}}},{{\"accept\":null}}")
}

/// Conditions of the rules made of a match.
fn macs(import: &Import) -> Vec<Macs> {
    let rules = import.policy.rules.iter().filter(|rule| rule.name.starts_with("f"));
    rules.map(|rule| rule.conditions.source_macs.clone()).collect()
}

fn matches(macs: &Macs, mac: u64) -> bool {
    macs.items.iter().any(|item| item.first.to_bits() <= mac && mac <= item.last.to_bits()) != macs.except
}

fn text(rule: &Rule) -> String {
    let items: Vec<String> = rule
        .conditions
        .source_macs
        .items
        .iter()
        .map(|item| {
            if item.first == item.last {
                item.first.to_string()
            } else {
                format!("{}-{}", item.first, item.last)
            }
        })
        .collect();
    format!("{}{}", if rule.conditions.source_macs.except { "! " } else { "" }, items.join(" "))
}

/// Every form of a match against its literal meaning, at and beside each address of the form.
#[test]
fn matches_mean_what_they_say() {
    const A: u64 = 0x0200_5e10_0001;
    const B: u64 = 0x0200_5e10_0007;
    let (a, b) = ("\"02:00:5e:10:00:01\"", "\"02:00:5e:10:00:07\"");
    let range = format!("{{\"range\":[{a},{b}]}}");
    let masked = |mask: &str| format!("{{\"&\":[{SADDR},\"{mask}\"]}}");
    let (vendor, local, odd) =
        (masked("ff:ff:ff:00:00:00"), masked("02:00:00:00:00:00"), masked("ff:ff:ff:ff:ff:01"));
    type Meaning = fn(u64) -> bool;
    let forms: [(&str, &str, String, Meaning); 19] = [
        ("==", SADDR, a.to_owned(), |m| m == A),
        ("!=", SADDR, a.to_owned(), |m| m != A),
        ("==", SADDR, "\"2:0:5E:10:0:1\"".to_owned(), |m| m == A),
        ("==", SADDR, format!("{{\"set\":[{a},{b}]}}"), |m| m == A || m == B),
        ("!=", SADDR, format!("{{\"set\":[{a},{b}]}}"), |m| m != A && m != B),
        ("==", SADDR, format!("{{\"set\":[{{\"elem\":{{\"val\":{a},\"comment\":\"x\"}}}}]}}"), |m| m == A),
        ("==", SADDR, range.clone(), |m| (A..=B).contains(&m)),
        ("!=", SADDR, range.clone(), |m| !(A..=B).contains(&m)),
        ("==", SADDR, format!("{{\"set\":[{range},\"fe:00:00:00:00:00\"]}}"), |m| {
            (A..=B).contains(&m) || m == 0xfe00_0000_0000
        }),
        ("==", SADDR, format!("{{\"prefix\":{{\"addr\":{a},\"len\":24}}}}"), |m| m >> 24 == A >> 24),
        ("!=", SADDR, format!("{{\"prefix\":{{\"addr\":{a},\"len\":47}}}}"), |m| m >> 1 != A >> 1),
        ("==", &vendor, "\"02:00:5e:00:00:00\"".to_owned(), |m| m >> 24 == A >> 24),
        ("!=", &vendor, "{\"set\":[\"02:00:5e:00:00:00\",\"00:00:00:00:00:00\"]}".to_owned(), |m| {
            m >> 24 != A >> 24 && m >> 24 != 0
        }),
        ("==", &local, "\"02:00:00:00:00:00\"".to_owned(), |m| m & 0x0200_0000_0000 != 0),
        ("==", &odd, a.to_owned(), |m| m >> 8 == A >> 8 && m & 1 == 1),
        // No frame has a bit that the mask takes away.
        ("==", &vendor, a.to_owned(), |_| false),
        ("<", SADDR, a.to_owned(), |m| m < A),
        (">", SADDR, a.to_owned(), |m| m > A),
        (">=", SADDR, b.to_owned(), |m| m >= B),
    ];
    let near = [0, A, B, 1 << 24, A >> 24 << 24, 0xfe00_0000_0000, 0x0300_0000_0000, 0x0400_0000_0000];
    for (op, left, right, meaning) in forms {
        let import = forward(&[saddr(left, op, &right)]);
        account(&import);
        assert_eq!(why(&import), [], "{left} {op} {right}");
        let found = macs(&import);
        for mac in near.into_iter().flat_map(|mac| [mac.wrapping_sub(1), mac, mac + 1, mac + 2]) {
            let mac = mac & 0xffff_ffff_ffff;
            let holds = found.iter().any(|macs| matches(macs, mac));
            assert_eq!(holds, meaning(mac), "{left} {op} {right}: {mac:#x} {found:?}");
        }
        // Without a header none matches, so no list may be empty.
        assert!(found.iter().all(|macs| !macs.items.is_empty()), "{left} {op} {right}: {found:?}");
    }
}

#[test]
fn what_is_no_address_is_listed() {
    let wide = format!("{{\"&\":[{SADDR},\"00:00:00:00:00:01\"]}}");
    for (left, right) in [
        (SADDR, "\"02:00:5e:10:00\""),
        (SADDR, "\"02:00:5e:10:00:01:02\""),
        (SADDR, "\"02:00:5e:10:00:001\""),
        (SADDR, "\"02:00:5e:10:00:0g\""),
        (SADDR, "\"02-00-5e-10-00-01\""),
        (SADDR, "\"+2:00:5e:10:00:01\""),
        (SADDR, "\"\""),
        (SADDR, "7"),
        (SADDR, "{\"range\":[\"02:00:5e:10:00:07\",\"02:00:5e:10:00:01\"]}"),
        (SADDR, "{\"range\":[\"02:00:5e:10:00:07\"]}"),
        (SADDR, "{\"prefix\":{\"addr\":\"02:00:5e:10:00:07\",\"len\":49}}"),
        (SADDR, "{\"prefix\":{\"addr\":\"10.0.0.0\",\"len\":8}}"),
        (SADDR, "{\"set\":[\"02:00:5e:10:00:07\",\"10.0.0.1\"]}"),
    ] {
        for op in ["==", "!=", "<"] {
            let import = forward(&[saddr(left, op, right)]);
            account(&import);
            assert!(matches!(why(&import)[..], [(1, Why::Value(_))]), "{op} {right}: {:?}", why(&import));
            assert!(import.policy.rules.iter().all(|rule| !rule.name.starts_with('f')), "{op} {right}");
        }
    }
    let many = vec!["\"00:00:00:00:00:00\""; 200].join(",");
    let unicast = format!("{{\"&\":[{SADDR},\"01:00:00:00:00:00\"]}}");
    assert_eq!(
        why(&forward(&[saddr(&unicast, "==", &format!("{{\"set\":[{many}]}}"))])),
        [(1, Why::TooMany)]
    );
    // More ranges than anybody would read.
    assert_eq!(why(&forward(&[saddr(&wide, "==", "\"00:00:00:00:00:01\"")])), [(1, Why::TooMany)]);
    for words in ["02:00:5e:10:00", "02:00:5e:10:00:0g", "", "02:00:5e:10:00:01 x"] {
        let import = iptables(&format!("-A FORWARD -m mac --mac-source {words} -j ACCEPT"));
        assert!(matches!(why(&import)[..], [(4, Why::Value(_))]), "{words}: {:?}", why(&import));
    }
}

#[test]
fn a_rule_set_of_nftables() {
    let import = import("nft", SAMPLE);
    let expected: &[(&str, &str)] = &[
        ("banned", "02:00:5e:10:00:66"),
        ("ssh-of-desks", "! 02:00:5e:10:00:01 02:00:5e:10:00:07"),
        ("phones", "02:00:5e:20:00:00-02:00:5e:20:ff:ff 02:00:5e:30:00:01"),
        ("prefix", "02:00:5e:40:00:00-02:00:5e:40:ff:ff"),
        ("pairs", "02:00:5e:10:00:01"),
        ("pairs-2", "02:00:5e:10:00:07"),
        ("doors", "02:00:5e:10:00:01"),
        ("doors-2", "02:00:5e:10:00:02"),
        ("high", "fe:00:00:00:00:00-ff:ff:ff:ff:ff:ff"),
        ("framed", "00:00:00:00:00:00-ff:ff:ff:ff:ff:ff"),
        ("ethernet", "00:00:00:00:00:00-ff:ff:ff:ff:ff:ff"),
        // What both the jump and the rule ask for.
        ("both", "02:00:5e:10:00:01"),
    ];
    for (name, macs) in expected {
        assert_eq!(text(rule(&import, name)), *macs, "{name}");
    }
    let local = &rule(&import, "random").conditions.source_macs;
    assert_eq!((local.items.len(), local.except), (64, false));
    assert_eq!(rule(&import, "framed").conditions.family, FamilyMatch::V6);
    assert_eq!(
        (rule(&import, "doors").action, rule(&import, "doors-2").action),
        (Action::Accept, Action::Drop)
    );
    // No packet meets the rule of `visitors` for another, nor that for packets of the gateway's own.
    assert!(import.policy.rules.iter().all(|rule| !["never", "own"].contains(&rule.name.as_str())));
    let missing: Vec<&Why> = import.untranslated.iter().map(|missing| &missing.why).collect();
    assert_eq!(
        missing,
        [
            &Why::DynamicSet("seen".to_owned()),
            &Why::Feature("ether daddr".to_owned()),
            &Why::Feature("meta iiftype".to_owned()),
            &Why::NatCondition,
            &Why::NatCondition,
        ]
    );
    // A translation for some frames is none for all.
    assert!(import.policy.nats.is_empty(), "{:?}", import.policy.nats);
}

#[test]
fn rules_of_iptables() {
    for (words, macs) in [
        ("-m mac --mac-source 00:11:22:33:44:AA", "00:11:22:33:44:aa"),
        ("-m mac ! --mac-source 00:11:22:33:44:55", "! 00:11:22:33:44:55"),
        ("-m mac --mac-source ! 00:11:22:33:44:55", "! 00:11:22:33:44:55"),
        ("-p tcp -m mac --mac-source 00:11:22:33:44:55 -m tcp --dport 22", "00:11:22:33:44:55"),
        (
            "-m mac ! --mac-source 00:11:22:33:44:55 -m mac ! --mac-source 00:11:22:33:44:57",
            "! 00:11:22:33:44:55 00:11:22:33:44:57",
        ),
    ] {
        let import = iptables(&format!("-A FORWARD {words} -j ACCEPT"));
        assert_eq!(why(&import), [], "{words}");
        assert_eq!(text(rule(&import, "forward-1")), macs, "{words}");
    }
    // Two addresses at once, no frame has.
    let import = iptables(
        "-A FORWARD -m mac --mac-source 00:11:22:33:44:55 -m mac --mac-source 00:11:22:33:44:57 -j ACCEPT",
    );
    assert_eq!((why(&import), import.count.implied), (vec![], 1));
    // A limit that comes first counts packets of others, too.
    let late = "-A FORWARD -m limit --limit 3/min -m mac --mac-source 00:11:22:33:44:55 -j ACCEPT";
    assert_eq!(why(&iptables(late)), [(4, Why::Limit)]);
}

/// A rule for frames of one address does not decide all packets, nor do its accepts stand for all.
#[test]
fn others_go_on() {
    let import = iptables(
        ":known - [0:0]\n-A FORWARD -m mac --mac-source 00:11:22:33:44:55 -j known\n\
         -A FORWARD -m mac ! --mac-source 00:11:22:33:44:55 -p udp -j ACCEPT\n-A FORWARD -p tcp -j ACCEPT\n\
         -A known -m mac ! --mac-source 00:11:22:33:44:55 -j ACCEPT\n-A known -p tcp -j RETURN\n-A known -j DROP",
    );
    assert_eq!(why(&import), []);
    let said: Vec<(String, Action)> = import
        .policy
        .rules
        .iter()
        .filter(|rule| !rule.name.starts_with("input-policy"))
        .map(|rule| (format!("{} {}", rule.name, text(rule)), rule.action))
        .collect();
    let expected = [
        ("forward-3 00:11:22:33:44:55", Action::Accept),
        ("known-3 00:11:22:33:44:55", Action::Drop),
        ("forward-2 ! 00:11:22:33:44:55", Action::Accept),
        ("forward-3-2 ", Action::Accept),
    ];
    assert_eq!(said, expected.map(|(rule, action)| (rule.to_owned(), action)));
}

#[test]
fn translations_have_no_such_condition() {
    let mac = "-m mac --mac-source 00:11:22:33:44:55";
    for line in [
        format!(
            "-A PREROUTING -d 192.0.2.1/32 -p tcp {mac} -m tcp --dport 80 -j DNAT --to-destination 10.0.0.1"
        ),
        format!("-A POSTROUTING -o wan {mac} -j MASQUERADE"),
    ] {
        let text = format!(
            "*nat\n:PREROUTING ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n{line}\nCOMMIT\n*filter\n:FORWARD ACCEPT [0:0]\nCOMMIT\n"
        );
        let import = import("iptables", &text);
        assert_eq!((why(&import), import.policy.nats.len()), (vec![(4, Why::NatCondition)], 0), "{line}");
    }
    // An exception for some frames keeps others from no translation.
    let text = format!(
        "*nat\n:POSTROUTING ACCEPT [0:0]\n-A POSTROUTING {mac} -j ACCEPT\n-A POSTROUTING -o wan -j MASQUERADE\nCOMMIT\n"
    );
    let import = import("iptables", &text);
    assert_eq!((why(&import), import.policy.nats.len()), (vec![(3, Why::NatCondition)], 1));
}

/// The first packet of a connection does not show the Ethernet source of the answers.
#[test]
fn answers_of_frames_are_not_turned_round() {
    let mac = "-m mac --mac-source 00:11:22:33:44:55 -j DROP";
    let established = "-m state --state RELATED,ESTABLISHED -j ACCEPT";
    let before = |hook: &str, drop: &str| {
        iptables(&format!("-A {hook} {drop}\n-A {hook} {established}\n-A {hook} -j ACCEPT"))
    };
    let import = before("FORWARD", mac);
    assert_eq!(why(&import), [(4, Why::State)]);
    assert_eq!(text(rule(&import, "forward-1")), "00:11:22:33:44:55");
    assert!(import.policy.rules.iter().all(|rule| !rule.name.ends_with("-answers")));
    // No answer asks for an echo.
    assert_eq!(why(&before("FORWARD", &format!("-p icmp -m icmp --icmp-type 8 {mac}"))), []);
    let import = before("INPUT", mac);
    assert_eq!(why(&import), []);
    assert!(import.notes.iter().any(|note| note.kind == NoteKind::BeforeEstablished));
    let after = iptables(&format!("-A FORWARD {established}\n-A FORWARD {mac}\n-A FORWARD -j ACCEPT"));
    assert_eq!(why(&after), []);
}

/// A filter before routing precedes both hooks, and destination translation does not affect it.
#[test]
fn filters_before_routing_and_after_it() {
    let text = "*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -m mac ! --mac-source 00:11:22:33:44:55 -j DROP\nCOMMIT\n\
                *nat\n:PREROUTING ACCEPT [0:0]\n\
                -A PREROUTING -d 192.0.2.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.1\nCOMMIT\n\
                *filter\n:FORWARD ACCEPT [0:0]\nCOMMIT\n";
    let import = import("iptables", text);
    assert_eq!(why(&import), [(3, Why::State)]);
    for (name, to) in [("prerouting-1", &["self".to_owned()][..]), ("prerouting-1-2", &[])] {
        let rule = rule(&import, name);
        assert_eq!((self::text(rule), rule.conditions.to.as_slice()), ("! 00:11:22:33:44:55".to_owned(), to));
    }
}
