//! Sets whose elements come and go.

use super::{Import, has, import, iptables, why};
use crate::import::{NoteKind, Why};
use crate::model::{Action, AddressItem, Addresses, FamilyMatch, Helper, Nat, NatAction, Rule};
use wire::Nanos;

/// Source or destination in short, by the names of sets.
fn end(addresses: &Addresses) -> String {
    let item = |item: &AddressItem| match item {
        AddressItem::Set(name) => format!("@{name}"),
        AddressItem::Range(range) => format!("{}-{}", range.first, range.last),
    };
    let all: Vec<String> = addresses.items.iter().map(item).collect();
    format!("{}{}", if addresses.except { "!" } else { "" }, all.join("+"))
}

/// A rule in short.
fn said(rule: &Rule) -> String {
    let mut words = vec![rule.name.clone()];
    let conditions = &rule.conditions;
    words.extend(Some(format!("from {}", conditions.from.join("+"))).filter(|_| !conditions.from.is_empty()));
    match conditions.family {
        FamilyMatch::Both => {}
        FamilyMatch::V4 => words.push("v4".to_owned()),
        FamilyMatch::V6 => words.push("v6".to_owned()),
    }
    for (word, addresses) in [("source", &conditions.source), ("destination", &conditions.destination)] {
        words.extend(Some(format!("{word} {}", end(addresses))).filter(|_| !addresses.items.is_empty()));
    }
    words.extend(conditions.dports.iter().map(|range| format!("dport {}", range.first)));
    words.extend(rule.add_source.iter().map(|set| format!("add {set}")));
    words.extend(rule.add_for.map(|Nanos(time)| format!("for {}s", time / 1_000_000_000)));
    words.push(
        match rule.action {
            Action::Accept => "accept",
            Action::Drop => "drop",
            Action::Reject(_) => "reject",
        }
        .to_owned(),
    );
    words.join(" ")
}

/// Rules in short, but for that of the input chain's policy.
fn rules(import: &Import) -> Vec<String> {
    let of_source = |rule: &&Rule| !rule.name.starts_with("input-policy");
    import.policy.rules.iter().filter(of_source).map(said).collect()
}

#[test]
fn sets_of_nftables_with_timeouts() {
    let import = import("nft", include_str!("../../../tests/import/dynamic.nft.json"));
    let expected = [
        "quiet v4 source @banned add banned drop",
        "logins v4 dport 22 drop",
        "ssh dport 22 accept",
        "trap v4 dport 23 add banned for 7200s drop",
        // Those who are in the set stay no longer for it.
        "trap6 v6 source @banned6 dport 23 drop",
        "trap6-2 v6 dport 23 add banned6 drop",
        // The rule stands before established connections are accepted.
        "fixed-answers v4 destination @fixed+@fixed-elements drop",
        "fixed v4 source @fixed+@fixed-elements drop",
        "nets v4 destination @nets drop",
        "forever from wan v4 dport 2323 add fixed drop",
        "guest from guest v4 source @guests accept",
        "stranger from guest v4 source !@guests reject",
        // What `mail` adds, `lan` accepts.
        "lan from lan v4 dport 25 add seen accept",
        "lan-2 from lan accept",
        "of-seen from dmz v4 source @seen accept",
    ];
    assert_eq!(rules(&import), expected);
    let sets: Vec<_> =
        import.policy.dynamic_sets.iter().map(|set| (&*set.name, set.size, set.timeout)).collect();
    let hours = |hours: u64| Some(Nanos::from_secs(hours * 3_600));
    assert_eq!(
        sets,
        [
            ("banned", 10_000, hours(1)),
            ("banned6", 65_535, Some(Nanos::from_secs(1_800))),
            ("fixed", 1_000, None),
            ("nets", 65_536, hours(24)),
            ("guests", 65_536, hours(8)),
            ("seen", 65_535, Some(Nanos::from_secs(600))),
        ]
    );
    for kind in [
        NoteKind::ConnectionsAdd,
        NoteKind::SetsDecideAnew,
        NoteKind::PassingElements { set: "banned".to_owned(), count: 1 },
    ] {
        assert!(has(&import, &kind), "{kind:?}: {:?}", import.notes);
    }
    let missing: Vec<Why> = import.untranslated.iter().map(|missing| missing.why.clone()).collect();
    assert_eq!(
        missing,
        [
            Why::Feature("add @destinations of anything but a source address".to_owned()),
            Why::Limit,
            Why::Memberships,
            Why::Feature("delete @banned".to_owned()),
        ]
    );
}

/// The nftables wiki's port knocking: a set of addresses and ports is a set of addresses for each port.
#[test]
fn port_knocking_of_nftables() {
    let import = import("nft", include_str!("../../../tests/import/knock.nft.json"));
    assert_eq!(why(&import), []);
    let expected = [
        "input-4 v4 source @candidates_ipv4-10003 dport 10003 add clients_ipv4 for 10s accept",
        "input-5 v4 source @clients_ipv4 dport 22 accept",
        "input-7 dport 22 reject",
        "input-2 v4 source @candidates_ipv4-10002 dport 10001 accept",
        "input-2-2 v4 dport 10001 add candidates_ipv4-10002 for 1s accept",
        "input-3 v4 source @candidates_ipv4-10002 dport 10002 add candidates_ipv4-10003 for 1s accept",
    ];
    assert_eq!(rules(&import), expected);
    // A rule for who is in both sets there is not.
    assert!(has(&import, &NoteKind::AddingRenews { set: "clients_ipv4".to_owned() }));
}

const IPSET: &str = "create ban hash:ip family inet hashsize 1024 maxelem 2000 timeout 3600\n\
    add ban 192.0.2.9 timeout 100\nadd ban 192.0.2.10 timeout 0\n\
    create office hash:net family inet hashsize 1024 maxelem 65536\nadd office 10.1.0.0/16\nadd office 10.2.0.1\n\
    create pairs hash:ip,port family inet hashsize 1024 maxelem 65536\n";

fn with_ipset(rules: &str) -> Import {
    import(
        "iptables",
        &format!("{IPSET}*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n{rules}\nCOMMIT\n"),
    )
}

#[test]
fn sets_of_ipset() {
    let import = with_ipset(
        "-A FORWARD -m set --match-set ban src -j DROP\n\
         -A FORWARD -p tcp -m tcp --dport 23 -j SET --add-set ban src --exist --timeout 60\n\
         -A FORWARD -p tcp -m tcp --dport 23 -j DROP\n\
         -A FORWARD -m set --match-set office src -j ACCEPT\n\
         -A FORWARD -m set ! --match-set other dst -j ACCEPT",
    );
    assert_eq!(why(&import), []);
    let expected = [
        "forward-1 v4 source @ban+@ban-elements drop",
        "forward-3 v4 dport 23 add ban for 60s drop",
        "forward-4 source @office accept",
        "forward-5 v4 destination !@other accept",
    ];
    assert_eq!(rules(&import), expected);
    assert_eq!(import.policy.dynamic_set("ban").map(|set| set.size), Some(2_000));
    assert!(has(&import, &NoteKind::PassingElements { set: "ban".to_owned(), count: 1 }));
    assert!(has(&import, &NoteKind::SetAssumed { set: "other".to_owned() }));
}

#[test]
fn sets_of_ipset_without_a_counterpart_are_missing() {
    let feature = |what: &str| Why::Feature(what.to_owned());
    for (words, missing) in [
        ("-m set --match-set pairs src,dst -j DROP", feature("--match-set pairs src,dst")),
        ("-m set --match-set pairs src -j DROP", feature("ipset hash:ip,port")),
        ("-j SET --add-set ban dst", feature("--add-set ban dst")),
        ("-j SET --del-set ban src", feature("--del-set")),
        ("-m limit --limit 3/min -j SET --add-set ban src", Why::Limit),
    ] {
        let import = with_ipset(&format!("-A FORWARD {words}"));
        assert_eq!(why(&import), [(11, missing)], "{words}");
    }
}

/// A list that nobody asks for is as none.
#[test]
fn lists_of_recent_sources_that_nobody_asks_for() {
    let import = iptables("-A FORWARD -p tcp -m tcp --dport 22 -m recent --set --name A -j ACCEPT");
    assert_eq!((why(&import), rules(&import)), (vec![], vec!["forward-1 v4 dport 22 accept".to_owned()]));
}

/// Who has come to one port is let in, or kept out, at another for some time.
#[test]
fn lists_of_recent_sources_are_sets() {
    let own = |name: &str| format!("--name {name} --mask 255.255.255.255 --rsource");
    let import = iptables(&format!(
        "-A INPUT -m recent --update --seconds 3600 {ban} -j DROP\n\
         -A INPUT -p tcp -m tcp --dport 139 -m recent --set {ban} -j DROP\n\
         -A INPUT -p tcp -m tcp --dport 7000 -m recent --set {first} -j DROP\n\
         -A INPUT -p tcp -m tcp --dport 8000 -m recent --rcheck --seconds 10 {first} -m recent --set {second} -j DROP\n\
         -A INPUT -p tcp -m tcp --dport 22 -m recent --rcheck --seconds 30 {second} -j ACCEPT\n\
         -A INPUT -p tcp -m tcp --dport 22 -j DROP",
        ban = own("BAN"),
        first = own("FIRST"),
        second = own("SECOND"),
    ));
    assert_eq!(why(&import), []);
    let expected = [
        "input-1 v4 source @BAN add BAN drop",
        "input-2 v4 dport 139 add BAN drop",
        "input-3 v4 dport 7000 add FIRST drop",
        "input-4 v4 source @FIRST dport 8000 add SECOND drop",
        "input-5 v4 source @SECOND dport 22 accept",
        "input-6 v4 dport 22 drop",
    ];
    assert_eq!(rules(&import), expected);
    let lasts = |name: &str| import.policy.dynamic_set(name).and_then(|set| set.timeout);
    assert_eq!([lasts("BAN"), lasts("SECOND")], [3_600, 30].map(|seconds| Some(Nanos::from_secs(seconds))));
}

/// One list with two times, one that rules take from, and an addition that a later match does not narrow.
#[test]
fn lists_of_recent_sources_with_other_uses_are_missing() {
    let feature = Why::Feature("-m recent".to_owned());
    for rules in [
        "-A INPUT -m recent --rcheck --seconds 10 --name A -j ACCEPT\n-A INPUT -m recent --rcheck --seconds 20 --name A -j DROP",
        "-A INPUT -m recent --rcheck --name A -j ACCEPT\n-A INPUT -m recent --remove --name A",
        "-A INPUT -m recent --rcheck --name A -j ACCEPT\n-A INPUT -m recent --set --name A -m tcp -p tcp --dport 22",
    ] {
        assert_eq!(why(&iptables(rules)), [(4, feature.clone()), (5, feature.clone())], "{rules}");
    }
}

/// A rule that only adds has those that decide on its packets add them; who is added is a member from there on.
#[test]
fn additions_that_go_on() {
    let add = "-A FORWARD -p udp -j SET --add-set seen src --exist";
    let import = iptables(&format!("{add}\n-A FORWARD -m set --match-set seen src -j ACCEPT"));
    assert_eq!(why(&import), []);
    let expected =
        ["forward-2 v4 add seen accept".to_owned(), "forward-2-2 v4 source @seen accept".to_owned()];
    assert_eq!(rules(&import), expected);
    assert_eq!(import.policy.rules.last().map(|rule| rule.conditions.protocols.len()), Some(0));
    // Not to be in the set, nobody is who is being added; the first packet does not show that here.
    let import = iptables(&format!("{add}\n-A FORWARD -m set ! --match-set seen src -j ACCEPT"));
    assert_eq!(why(&import), [(5, Why::DynamicSet("seen".to_owned()))]);
    // The chain's policy decides.
    assert_eq!(rules(&iptables(add)), ["forward-1 v4 add seen drop"]);
    // Two rules would have a limit each.
    let limited = format!("{add}\n-A FORWARD -m limit --limit 3/min -j ACCEPT");
    assert_eq!(why(&iptables(&limited)), [(4, Why::Limit)]);
    // Packets of established connections add nothing here.
    let established = "-A FORWARD -m conntrack --ctstate ESTABLISHED -j SET --add-set seen src --exist";
    assert_eq!(why(&iptables(established)), [(4, Why::State)]);
    // Nor do translations.
    let nat = "*nat\n:POSTROUTING ACCEPT [0:0]\n-A POSTROUTING -j SET --add-set seen src\nCOMMIT\n";
    assert_eq!(why(&super::import("iptables", nat)).len(), 1);
}

/// Translations in short.
fn translations(import: &Import) -> Vec<String> {
    let said = |nat: &Nat| {
        let action = match &nat.action {
            NatAction::Masquerade { .. } => "masquerade".to_owned(),
            NatAction::Source { .. } => "snat".to_owned(),
            NatAction::Exempt => "exempt".to_owned(),
            NatAction::Forward { outside, target, .. } => {
                let outside = outside.map_or_else(|| "own".to_owned(), |outside| outside.to_string());
                format!("forward {outside} > {target}")
            }
            NatAction::Redirect { .. } => "redirect".to_owned(),
            other => panic!("{other:?}"),
        };
        let ends = [("source", &nat.source), ("destination", &nat.destination)];
        let ends = ends.into_iter().filter(|(_, addresses)| !addresses.items.is_empty());
        let ends: Vec<String> = ends.map(|(word, addresses)| format!(" {word} {}", end(addresses))).collect();
        format!("{} {action}{}", nat.name, ends.concat())
    };
    import.policy.nats.iter().map(said).collect()
}

/// A translation asks for sets as a rule does. Of an exception all addresses of the other IP version say that it is not for that.
#[test]
fn translations_of_iptables_by_sets() {
    let import = import(
        "iptables",
        &format!(
            "{IPSET}*nat\n:PREROUTING ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n\
             -A PREROUTING -i wan -d 192.0.2.1/32 -p tcp -m set --match-set ban src -m tcp --dport 80 -j DNAT --to-destination 10.1.0.9:8080\n\
             -A PREROUTING -i lan -p tcp -m set ! --match-set guests src -m tcp --dport 80 -j REDIRECT --to-ports 8081\n\
             -A PREROUTING -i lan -p udp -m set --match-set ban dst -m udp --dport 53 -j REDIRECT\n\
             -A PREROUTING -i wan -p tcp -m set --match-set ban dst -m tcp --dport 81 -j DNAT --to-destination 10.1.0.9\n\
             -A PREROUTING -m addrtype --dst-type LOCAL -p tcp -m set --match-set guests dst -m tcp --dport 82 -j DNAT --to-destination 10.1.0.9\n\
             -A POSTROUTING -o wan -m set --match-set office src -m set --match-set guests dst -j ACCEPT\n\
             -A POSTROUTING -o wan -m set --match-set ban src -j SNAT --to-source 192.0.2.1\n\
             -A POSTROUTING -o wan -m set ! --match-set guests dst -j MASQUERADE\n\
             -A POSTROUTING -o wan -s 10.1.0.0/16 -m set --match-set ban src -j MASQUERADE\nCOMMIT\n"
        ),
    );
    let all6 = "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
    let expected = [
        "prerouting-1 forward 192.0.2.1 > 10.1.0.9 source @ban+@ban-elements".to_owned(),
        format!("prerouting-2 redirect source !@guests+{all6}"),
        "prerouting-3 redirect destination @ban+@ban-elements".to_owned(),
        "prerouting-5 forward own > 10.1.0.9 destination @guests".to_owned(),
        "postrouting-1 exempt source @office destination @guests".to_owned(),
        "postrouting-2 snat source @ban+@ban-elements".to_owned(),
        "postrouting-3 masquerade source 0.0.0.0-255.255.255.255 destination !@guests".to_owned(),
    ];
    assert_eq!(translations(&import), expected);
    // An address of a set is no address of the gateway; and one list is asked for, of a set or of addresses.
    let missing: Vec<Why> = import.untranslated.iter().map(|missing| missing.why.clone()).collect();
    assert_eq!(missing, [Why::NatDestination, Why::Memberships]);
    // A connection keeps its translation there and here.
    assert!(!has(&import, &NoteKind::SetsDecideAnew), "{:?}", import.notes);
}

/// A rule set of nftables with the sets `four` and `six`, and one rule in a chain of source translations.
fn masqueraded(expr: &str) -> Import {
    let set = |name: &str, kind: &str| {
        format!(
            "{{\"set\":{{\"family\":\"inet\",\"table\":\"t\",\"name\":\"{name}\",\"type\":\"{kind}\",\"flags\":[\"timeout\"],\"timeout\":60}}}}"
        )
    };
    import(
        "nft",
        &format!(
            "{{\"nftables\":[{},{},{{\"chain\":{{\"family\":\"inet\",\"table\":\"t\",\"name\":\"post\",\"type\":\"nat\",\
             \"hook\":\"postrouting\",\"prio\":100,\"policy\":\"accept\"}}}},\
             {{\"rule\":{{\"family\":\"inet\",\"table\":\"t\",\"chain\":\"post\",\"handle\":5,\"expr\":[{expr},{{\"masquerade\":null}}]}}}}]}}",
            set("four", "ipv4_addr"),
            set("six", "ipv6_addr"),
        ),
    )
}

#[test]
fn masquerades_of_nftables_by_sets_are_of_their_version() {
    let of = |op: &str, protocol: &str, field: &str, set: &str| {
        let import = masqueraded(&format!(
            "{{\"match\":{{\"op\":\"{op}\",\"left\":{{\"payload\":{{\"protocol\":\"{protocol}\",\"field\":\"{field}\"}}}},\"right\":\"@{set}\"}}}}"
        ));
        assert_eq!(why(&import), []);
        translations(&import).join(", ")
    };
    let (all4, all6) = ("0.0.0.0-255.255.255.255", "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
    assert_eq!(of("==", "ip", "saddr", "four"), "post-1 masquerade source @four");
    assert_eq!(of("==", "ip6", "saddr", "six"), "post-1 masquerade source @six");
    assert_eq!(of("!=", "ip", "saddr", "four"), format!("post-1 masquerade source !@four+{all6}"));
    assert_eq!(of("!=", "ip6", "saddr", "six"), format!("post-1 masquerade source !@six+{all4}"));
    assert_eq!(of("==", "ip", "daddr", "four"), "post-1 masquerade destination @four");
    assert_eq!(of("==", "ip6", "daddr", "six"), format!("post-1 masquerade source {all6} destination @six"));
    assert_eq!(of("!=", "ip6", "daddr", "six"), format!("post-1 masquerade source {all6} destination !@six"));
}

#[test]
fn helpers_of_iptables() {
    let text = |words: &str| {
        format!(
            "*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING {words}\nCOMMIT\n\
             *filter\n:FORWARD DROP [0:0]\n-A FORWARD -p tcp -m tcp --dport 21 -j ACCEPT\nCOMMIT\n"
        )
    };
    let import = import("iptables", &text("-p tcp -m tcp --dport 21 -j CT --helper ftp"));
    assert_eq!(why(&import), []);
    let helped: Vec<_> = import.policy.rules.iter().filter_map(|rule| rule.helper).collect();
    assert_eq!(helped, [Helper::Ftp]);
    for words in
        ["-p tcp -m tcp --dport 69 -j CT --helper tftp", "-p udp -m udp --dport 21 -j CT --helper ftp"]
    {
        let import = super::import("iptables", &text(words));
        assert!(matches!(why(&import).as_slice(), [(3, Why::Feature(what))] if what.contains("--helper")));
    }
}

/// Elements that a map holds at present would stand in the policy for good. Versions of nft print its changes as texts.
#[test]
fn maps_that_rules_change_are_missing() {
    let import = import("nft", include_str!("../../../tests/import/map.nft.json"));
    let map = |name: &str| Why::DynamicMap(name.to_owned());
    let change = |text: &str| Why::Feature(text.to_owned());
    let expected = [
        (6, map("m")),
        (7, map("m2")),
        (9, change("update @m { ip saddr : ip daddr }")),
        (10, change("add @m2 { ip saddr : 10.0.0.9 }")),
    ];
    assert_eq!(why(&import), expected);
    assert!(import.policy.nats.is_empty() && import.policy.rules.iter().any(|rule| rule.name == "forw-1"));
}
