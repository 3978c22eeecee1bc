//! Idioms of real rule sets.

use super::{find, import, iptables, rule, text, why};
use crate::import::{Import, IpVersion, NoteKind, Why};
use crate::model::{
    Action, DnatStatus, Excess, Helper, Logging, NatAction, PortRange, RejectWith, Scope, Sticky,
};

/// Returns the import of an nftables rule set: chains and rules, each rule with its chain and expressions.
fn nft(chains: &[(&str, &str, i64, &str)], rules: &[(&str, &str)]) -> Import {
    let chain = |&(name, kind, priority, policy): &(&str, &str, i64, &str)| {
        format!(
            "{{\"chain\":{{\"family\":\"ip\",\"table\":\"t\",\"name\":\"{name}\",\"type\":\"{kind}\",\
             \"hook\":\"{name}\",\"prio\":{priority},\"policy\":\"{policy}\"}}}}"
        )
    };
    let rule = |&(chain, expressions): &(&str, &str)| {
        format!(
            "{{\"rule\":{{\"family\":\"ip\",\"table\":\"t\",\"chain\":\"{chain}\",\"expr\":[{expressions}]}}}}"
        )
    };
    let objects: Vec<String> = chains.iter().map(chain).chain(rules.iter().map(rule)).collect();
    import("nft", &format!("{{\"nftables\":[{}]}}", objects.join(",")))
}

fn equal(protocol: &str, field: &str, right: &str) -> String {
    format!(
        "{{\"match\":{{\"op\":\"==\",\"left\":{{\"payload\":{{\"protocol\":\"{protocol}\",\"field\":\"{field}\"}}}},\
         \"right\":{right}}}}}"
    )
}

#[test]
fn filters_before_routing_come_first() {
    let drop = format!("{},{{\"drop\":null}}", equal("ip", "saddr", "\"10.0.0.1\""));
    let chains = [("prerouting", "filter", -300, "accept"), ("forward", "filter", 0, "accept")];
    let import = nft(&chains, &[("prerouting", &drop), ("forward", "{\"accept\":null}")]);
    assert_eq!(why(&import), []);
    let names: Vec<&str> = import.policy.rules.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(names[..2], ["prerouting-1", "input-policy"]);
    assert_eq!(
        (rule(&import, "prerouting-1").conditions.to.as_slice(), rule(&import, "prerouting-1").action),
        (&["self".to_owned()][..], Action::Drop)
    );
    assert_eq!(rule(&import, "prerouting-1-2").action, Action::Drop);
}

/// A filter before routing sees the destination before its translation; rules here see it after.
#[test]
fn a_filter_before_a_translation_is_not_one_after_it() {
    let aimed = "-A PREROUTING -p tcp -m tcp --dport 80 -j DROP";
    let raw =
        |nat: &str| import("iptables", &format!("*raw\n:PREROUTING ACCEPT [0:0]\n{aimed}\nCOMMIT\n{nat}"));
    assert_eq!(why(&raw("")), []);
    let nat = "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -d 192.0.2.1 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.1\nCOMMIT\n";
    assert_eq!(why(&raw(nat)), [(3, Why::Hook("prerouting".to_owned()))]);
}

/// A drop before routing of packets that no translation touches is a drop here.
#[test]
fn a_filter_before_routing_beside_a_translation_stays() {
    let rules = "-A PREROUTING -s 10.9.0.0/16 -j DROP\n-A PREROUTING -p tcp -m tcp --dport 23 -j DROP\n\
                 -A PREROUTING -d 10.0.0.1/32 -p tcp -j DROP";
    let nat = "-A PREROUTING -d 192.0.2.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.1:8080\n\
               -A POSTROUTING -o wan -j MASQUERADE";
    let text = format!(
        "*raw\n:PREROUTING ACCEPT [0:0]\n{rules}\nCOMMIT\n*nat\n:PREROUTING ACCEPT [0:0]\n\
         :POSTROUTING ACCEPT [0:0]\n{nat}\nCOMMIT\n*filter\n:FORWARD ACCEPT [0:0]\nCOMMIT\n"
    );
    let import = import("iptables", &text);
    // The second sees answers before their ports are put back; the third would drop what is forwarded.
    assert_eq!(why(&import), [(4, Why::State), (5, Why::Hook("prerouting".to_owned()))]);
    let names: Vec<&str> = import.policy.rules.iter().map(|rule| rule.name.as_str()).collect();
    for name in ["prerouting-1", "prerouting-1-2", "prerouting-2", "prerouting-2-2", "prerouting-1-answers"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    let answers = rule(&import, "prerouting-1-answers");
    assert_eq!((answers.conditions.source.items.len(), answers.conditions.destination.items.len()), (0, 1));
    assert_eq!(names.iter().position(|name| *name == "prerouting-1-answers"), Some(4), "{names:?}");
}

/// A packet to the gateway's own addresses is never forwarded.
#[test]
fn a_rule_for_own_addresses_is_none_for_others() {
    let own = "-A PREROUTING -p tcp -m addrtype --dst-type LOCAL -m tcp --dport 22 -j DROP";
    let import = import(
        "iptables",
        &format!(
            "*mangle\n:PREROUTING ACCEPT [0:0]\n{own}\nCOMMIT\n*filter\n:FORWARD ACCEPT [0:0]\nCOMMIT\n"
        ),
    );
    assert_eq!(why(&import), []);
    let drops: Vec<&str> = import
        .policy
        .rules
        .iter()
        .filter(|rule| rule.conditions.dports.iter().any(|ports| ports.first == 22))
        .map(|rule| rule.conditions.to[0].as_str())
        .collect();
    assert_eq!(drops, ["self"]);
}

/// Answers that the source drops before it looks at connections make no connection.
#[test]
fn answers_that_are_dropped_make_no_connection() {
    let before = |drop: &str| {
        iptables(&format!(
            "-A FORWARD {drop}\n-A FORWARD -m state --state RELATED,ESTABLISHED -j ACCEPT\n-A FORWARD -j ACCEPT"
        ))
    };
    let import = before("-s 10.0.0.0/8 -i wan -p udp -m udp --sport 53 -j DROP");
    assert_eq!(why(&import), []);
    let turned = rule(&import, "forward-1-answers");
    assert_eq!((turned.conditions.to.as_slice(), turned.action), (&["wan".to_owned()][..], Action::Drop));
    assert_eq!(
        (
            turned.conditions.dports.len(),
            turned.conditions.sports.len(),
            turned.conditions.destination.items.len()
        ),
        (1, 0, 1)
    );
    let echo = before("-p icmp -m icmp --icmp-type 0 -j DROP");
    assert_eq!(rule(&echo, "forward-1-answers").conditions.icmp[0].kind, 8);
    // Flags that no later segment has say nothing of connections; those that one has would be missed.
    assert_eq!(why(&before("-p tcp -m tcp --tcp-flags FIN,SYN FIN,SYN -j DROP")), []);
    assert_eq!(why(&before("-p tcp -m tcp --tcp-flags FIN,ACK FIN,ACK -j DROP")), [(4, Why::State)]);
    assert_eq!(why(&before("-m dscp --dscp 0x08 -j DROP")), [(4, Why::State)]);
    // Errors about connections that the rule leaves alone would be dropped, too.
    let all_but = before("! -p udp -j DROP");
    assert_eq!(why(&all_but), [(4, Why::State)]);
    assert_eq!(rule(&all_but, "forward-1-answers").conditions.protocols.len(), 255);
    assert_eq!(why(&before("-p icmp -j DROP")), [(4, Why::State)]);
    assert_eq!(why(&before("! -p icmp -j DROP")), []);
    assert_eq!(why(&before("-p gre -j DROP")), []);
    // Some of the answers pass before.
    let part = iptables(
        "-A FORWARD -s 10.0.0.1/32 -j ACCEPT\n-A FORWARD -s 10.0.0.0/8 -j DROP\n\
         -A FORWARD -m state --state ESTABLISHED -j ACCEPT",
    );
    assert_eq!(why(&part), [(5, Why::State)]);
}

#[test]
fn a_pattern_that_fits_no_interface_is_one() {
    let import = iptables(
        "-A FORWARD -i ppp+ -j DROP\n-A FORWARD -i eth0 -o ppp+ -j ACCEPT\n-A FORWARD -i eth+ -j DROP",
    );
    assert_eq!(why(&import), []);
    assert_eq!(rule(&import, "forward-1").conditions.from, ["ppp0"]);
    assert_eq!(rule(&import, "forward-3").conditions.from, ["eth0"]);
    let kind = NoteKind::PatternInterface { pattern: "ppp+".to_owned(), interface: "ppp0".to_owned() };
    assert!(import.notes.iter().any(|note| note.kind == kind), "{:#?}", import.notes);
}

/// The guides' defence against password guessing.
#[test]
fn recent_sources_become_a_rate() {
    let ssh = "-A INPUT -p tcp -m tcp --dport 22 -m state --state NEW -m recent";
    let set = format!("{ssh} --set --name SSH --mask 255.255.255.255 --rsource");
    let check = format!(
        "{ssh} --update --seconds 60 --hitcount 4 --name SSH --mask 255.255.255.255 --rsource -j DROP"
    );
    let accept = "-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT";
    let import = iptables(&format!("{set}\n{check}\n{accept}"));
    assert_eq!(why(&import), []);
    let rate = rule(&import, "input-2").rate.unwrap();
    assert_eq!(
        (rate.count, rate.per, rate.burst, rate.scope),
        (1, wire::Nanos::from_secs(60), 3, Scope::Source)
    );
    assert!(import.notes.iter().any(|note| note.kind == NoteKind::RecentRate));
    // Checked before it is set: as many as are counted pass. A tenth of an hour is a rate of ten an hour.
    let before = format!("{ssh} --rcheck --seconds 360 --hitcount 4 --name SSH --rsource -j DROP");
    let import = iptables(&format!("{before}\n{ssh} --set --name SSH --rsource -j ACCEPT"));
    assert_eq!(why(&import), []);
    let rate = rule(&import, "input-1").rate.unwrap();
    assert_eq!((rate.count, rate.per, rate.burst), (10, wire::Nanos::from_secs(3600), 4));
    // A rule in between takes some of what is counted; a list that another rule has is no rate; nor is one of all time.
    let between = format!("{set}\n{accept}\n{check}\n{accept}");
    let knock = format!(
        "{set}\n{check}\n-A INPUT -m recent --rcheck --seconds 5 --name SSH --rsource -j ACCEPT\n{accept}"
    );
    let ever = format!("{set}\n{ssh} --update --hitcount 4 --name SSH --rsource -j DROP\n{accept}");
    for text in [between, knock, ever] {
        let import = iptables(&text);
        assert!(!why(&import).is_empty(), "{text}");
        assert!(
            why(&import).iter().all(|(_, why)| *why == Why::Feature("-m recent".to_owned())),
            "{:?}",
            why(&import)
        );
    }
}

#[test]
fn limits_that_count_other_packets_are_none_of_a_rule() {
    // The kernel asks in the order of the matches.
    let late = "-A INPUT -p tcp -m limit --limit 3/min -m tcp --dport 22 -j ACCEPT\n-A INPUT -j DROP";
    assert_eq!(why(&iptables(late)), [(4, Why::Limit)]);
    let shared = "-m hashlimit --hashlimit-upto 3/min --hashlimit-mode srcip --hashlimit-name one -j ACCEPT";
    let rules = format!(
        "-A INPUT -p tcp -m tcp --dport 22 {shared}\n-A INPUT -p tcp -m tcp --dport 23 {shared}\n-A INPUT -j DROP"
    );
    assert_eq!(why(&iptables(&rules)), [(4, Why::Limit), (5, Why::Limit)]);
    // Shorewall logs at one rate for all rules. Logs have none here.
    let logged = "-m hashlimit --hashlimit-upto 1/sec --hashlimit-mode srcip --hashlimit-name lograte -j LOG";
    let rules =
        format!("-A INPUT -i eth0 {logged}\n-A INPUT -i eth0 -j DROP\n-A INPUT {logged}\n-A INPUT -j DROP");
    let import = iptables(&rules);
    assert_eq!(why(&import), []);
    assert!(import.notes.iter().any(|note| note.kind == NoteKind::LogUnlimited));
    assert!(import.policy.rules.iter().filter(|rule| rule.log == Logging::On).count() == 2);
    assert_eq!(why(&iptables("-A INPUT -m addrtype --dst-type ANYCAST -j DROP")), []);
}

#[test]
fn a_target_without_a_counterpart_is_called_by_its_name() {
    let proxy = "-A INPUT -p tcp -m tcp --syn -j SYNPROXY --sack-perm --timestamp --wscale 7 --mss 1460";
    assert_eq!(why(&iptables(proxy)), [(4, Why::Feature("SYNPROXY".to_owned()))]);
}

/// As in ufw: the excess of a limit goes to a chain that logs and refuses.
#[test]
fn a_limit_may_lead_to_a_refusal() {
    let import = import("iptables", include_str!("../../../tests/import/ufw.v4"));
    assert_eq!(why(&import), [(48, Why::Log)]);
    let rate = rule(&import, "ufw-user-input-2").rate.unwrap();
    assert_eq!((rate.count, rate.burst, rate.scope), (2, 5, Scope::Source));
}

/// As in ufw's own rules: limits decide which packets a chain logs, and broadcasts are told from what is for one host.
#[test]
fn limits_of_chains_that_only_log_are_left_out() {
    let import = import("iptables", include_str!("../../../tests/import/ufw-default.v4"));
    assert_eq!(why(&import), []);
    let lines = |kind: &NoteKind| -> Vec<_> {
        let notes = import.notes.iter().filter(|note| note.kind == *kind);
        notes.filter_map(|note| Some(note.origin?.number())).collect()
    };
    assert_eq!(lines(&NoteKind::LogUnlimited), [25, 43, 48]);
    assert_eq!(lines(&NoteKind::BroadcastOfAll), [24, 47]);
    // All that is for the gateway returns from `ufw-not-local`, whose own rules are for nothing then.
    assert!(!import.policy.rules.iter().any(|rule| rule.name.starts_with("ufw-not-local")));
    assert_eq!(destination(&import, "ufw-skip-to-policy-input-1-7"), "255.255.255.255-255.255.255.255");
    assert_eq!(rule(&import, "ufw-after-logging-input-1").log, Logging::On);
}

/// Returns the destinations of a rule.
fn destination(import: &Import, name: &str) -> String {
    text(&rule(import, name).conditions.destination)
}

#[test]
fn types_of_destinations_are_addresses() {
    let of = |op: &str, right: &str| {
        format!(
            "{{\"match\":{{\"op\":\"{op}\",\"left\":{{\"fib\":{{\"result\":\"type\",\"flags\":[\"daddr\"]}}}},\"right\":{right}}}}},\
             {{\"drop\":null}}"
        )
    };
    let asked = of("==", "{\"set\":[\"broadcast\",\"anycast\",\"multicast\"]}");
    let others = of("!=", "\"multicast\"");
    let local = of("==", "\"local\"");
    let chains = [("input", "filter", 0, "accept"), ("forward", "filter", 0, "accept")];
    let import = nft(&chains, &[("input", &asked), ("input", &others), ("forward", &local)]);
    assert_eq!(why(&import), []);
    assert_eq!(destination(&import, "input-1"), "224.0.0.0-239.255.255.255 255.255.255.255-255.255.255.255");
    assert_eq!(destination(&import, "input-2"), "!224.0.0.0-239.255.255.255");
    assert!(import.notes.iter().any(|note| note.kind == NoteKind::BroadcastOfAll));
    let names: Vec<&str> = import.policy.rules.iter().map(|rule| rule.name.as_str()).collect();
    assert!(!names.contains(&"forward-1"), "what is forwarded is not for the gateway");
    let others = iptables("-A INPUT -m addrtype ! --dst-type BROADCAST -j DROP");
    assert_eq!((why(&others), destination(&others, "input-1").as_str()), (vec![], "0.0.0.0-255.255.255.254"));
    // Nothing comes from such an address.
    let sources = iptables(
        "-A INPUT -m addrtype --src-type BROADCAST -j ACCEPT\n-A INPUT -m addrtype ! --src-type MULTICAST -j DROP",
    );
    assert_eq!((why(&sources), rule(&sources, "input-2").conditions.source.items.len()), (vec![], 0));
    assert!(!sources.policy.rules.iter().any(|rule| rule.name == "input-1"));
    let saddr = of("==", "\"broadcast\"").replace("daddr", "saddr");
    let import = nft(&chains, &[("input", &saddr), ("input", &saddr.replace("broadcast", "blackhole"))]);
    assert_eq!(why(&import), [(2, Why::Feature("fib saddr type blackhole".to_owned()))]);
    assert!(!import.policy.rules.iter().any(|rule| rule.name == "input-1"));
    // IPv6 has none, and other types are missing.
    let six = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n-A INPUT -m addrtype --dst-type BROADCAST -j DROP\nCOMMIT\n";
    let six = find("iptables").unwrap().import(six.as_bytes(), Some(IpVersion::V6)).unwrap();
    assert!(six.policy.rules.iter().all(|rule| rule.conditions.destination.items.is_empty()), "{six:#?}");
    let unknown = nft(&chains, &[("input", &of("==", "\"unreachable\""))]);
    let reasons: Vec<Why> = why(&unknown).into_iter().map(|(_, why)| why).collect();
    assert_eq!(reasons, [Why::Feature("fib daddr type".to_owned())]);
}

/// As in Arch Linux' rules: Linux tells types of packets by link-layer addresses, which follow from destinations.
#[test]
fn types_of_packets_are_destinations() {
    let of = |op: &str, right: &str| {
        let left = "{\"meta\":{\"key\":\"pkttype\"}}";
        format!("{{\"match\":{{\"op\":\"{op}\",\"left\":{left},\"right\":{right}}}}},{{\"drop\":null}}")
    };
    let (host, group) = (of("==", "\"host\""), of("==", "{\"set\":[\"broadcast\",\"multicast\"]}"));
    let (others, unknown) = (of("!=", "\"host\""), of("==", "\"loopback\""));
    let chains = [("input", "filter", 0, "accept"), ("forward", "filter", 0, "accept")];
    let rules = [&host, &group, &others, &unknown].map(|rule| ("input", rule.as_str()));
    let import = nft(&chains, &rules);
    assert_eq!(why(&import), [(4, Why::Value("loopback".to_owned()))]);
    let groups = "224.0.0.0-239.255.255.255 255.255.255.255-255.255.255.255";
    assert_eq!(destination(&import, "input-1"), "0.0.0.0-223.255.255.255 240.0.0.0-255.255.255.254");
    assert_eq!(destination(&import, "input-2"), groups);
    assert_eq!(destination(&import, "input-3"), groups);
    assert!(import.notes.iter().any(|note| note.kind == NoteKind::PacketType));
    let saved = iptables(
        "-A INPUT -m pkttype --pkt-type broadcast -j DROP\n-A INPUT -m pkttype ! --pkt-type unicast -j DROP",
    );
    assert_eq!(why(&saved), []);
    assert_eq!(destination(&saved, "input-1"), "255.255.255.255-255.255.255.255");
    assert_eq!(destination(&saved, "input-2"), groups);
}

/// As in OpenWrt: the excess of a limit is rejected.
#[test]
fn what_exceeds_a_limit_may_be_rejected_there() {
    let import = iptables("-A INPUT -p icmp -m limit --limit 3/min -j ACCEPT\n-A INPUT -j REJECT");
    assert_eq!(why(&import), []);
    let limited = rule(&import, "input-1");
    assert!(limited.rate.is_some() && limited.excess == Excess::Next);
    assert!(!import.notes.iter().any(|note| matches!(note.kind, NoteKind::NearestReject { .. })));
}

/// Rule sets in the style of real ones: the policies have no errors, whatever is missing.
#[test]
fn samples_of_real_files_are_sound() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/import");
    let mut read = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let importer = match path.extension().and_then(|word| word.to_str()) {
            Some("json") => "nft",
            Some("v4" | "v6") => "iptables",
            _ => continue,
        };
        let import = import(importer, &std::fs::read_to_string(&path).unwrap());
        assert!(import.count.translated > 0, "{}", path.display());
        read += 1;
    }
    assert!(read >= 13, "{read}");
}

#[test]
fn codes_of_icmp_have_names() {
    let import = iptables("-A INPUT -p icmp -m icmp --icmp-type communication-prohibited -j ACCEPT");
    assert_eq!(why(&import), []);
    let only = &rule(&import, "input-1").conditions.icmp[0];
    assert_eq!((only.kind, only.code), (3, Some(13)));
}

#[test]
fn own_packets_are_one_line() {
    let rules = "-A OUTPUT -o lo -j ACCEPT\n-A OUTPUT -m owner --uid-owner 33 -j DROP\n-A OUTPUT -p udp -j own\n\
                 :own - [0:0]\n-A own -m owner --gid-owner 5 -j REJECT";
    let import = iptables(rules);
    assert_eq!(why(&import), [(4, Why::OwnPackets)]);
    assert_eq!(import.untranslated[0].text, "4 rules at `OUTPUT`");
    assert_eq!(import.count.untranslated, 4);
    assert_eq!(why(&iptables("-A OUTPUT -o lo -j ACCEPT\n-A OUTPUT -j ACCEPT")), []);
}

#[test]
fn untracked_packets_are_tracked() {
    let text = "*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p udp -m udp --dport 53 -j NOTRACK\n\
                -A PREROUTING -p udp -m udp --sport 53 -j CT --notrack\nCOMMIT\n";
    let import = import("iptables", text);
    assert_eq!(why(&import), []);
    assert!(import.notes.iter().any(|note| note.kind == NoteKind::Tracked));
}

#[test]
fn negation_after_the_option() {
    let old = iptables("-A FORWARD -i ! lan -s ! 10.0.0.0/8 -p tcp -m tcp --dport ! 22 -j ACCEPT");
    let new = iptables("-A FORWARD ! -i lan ! -s 10.0.0.0/8 -p tcp -m tcp ! --dport 22 -j ACCEPT");
    assert_eq!(why(&old), []);
    assert_eq!(old.policy, new.policy);
    let syn = iptables("-A FORWARD -p tcp -m tcp --syn ! -s 10.0.0.0/8 -j ACCEPT");
    assert_eq!(why(&syn), []);
    assert!(rule(&syn, "forward-1").conditions.source.except);
}

#[test]
fn buckets_of_hashlimit() {
    let limited = |words: &str| {
        iptables(&format!(
            "-A FORWARD -p tcp -m tcp --dport 22 -m hashlimit {words} --hashlimit-name x -j ACCEPT"
        ))
    };
    let scope = |import: &Import| rule(import, "forward-1").rate.unwrap().scope;
    assert_eq!(scope(&limited("--hashlimit-upto 5/min --hashlimit-mode srcip,dstport")), Scope::Source);
    assert_eq!(scope(&limited("--hashlimit-upto 5/min --hashlimit-mode dstport")), Scope::Rule);
    assert_eq!(scope(&limited("--hashlimit-upto 5/min")), Scope::Rule);
    assert_eq!(why(&limited("--hashlimit-upto 5/min --hashlimit-mode dstip")).len(), 1);
    let over = "-A FORWARD -p tcp -m tcp --dport 22 -m hashlimit --hashlimit-above 5/min --hashlimit-mode srcip --hashlimit-name x -j DROP\n";
    let import = iptables(&format!("{over}-A FORWARD -p tcp -m tcp --dport 20:30 -j ACCEPT"));
    assert_eq!(why(&import), []);
    assert_eq!((rule(&import, "forward-1").action, scope(&import)), (Action::Drop, Scope::Source));
    // Whatever the rules behind it do.
    let import = iptables(&format!("{over}-A FORWARD -s 10.0.0.0/8 -j ACCEPT\n-A FORWARD -p tcp -j REJECT"));
    assert_eq!((why(&import), scope(&import)), (vec![], Scope::Source));
}

/// Flood protection: up to a rate packets return, and the rest is dropped (OpenWrt).
#[test]
fn what_returns_up_to_a_rate_is_dropped_above_it() {
    let flood = |back: &str, drop: &str| {
        iptables(&format!(
            ":flood - [0:0]\n-A FORWARD -p tcp -m tcp --syn -j flood\n-A FORWARD -p tcp -m tcp --dport 22 -j ACCEPT\n\
             -A flood {back} -j RETURN\n-A flood {drop}"
        ))
    };
    let found = flood("-m limit --limit 25/sec --limit-burst 50", "-j REJECT --reject-with tcp-reset");
    assert_eq!(why(&found), []);
    let refused = rule(&found, "flood-2");
    let rate = refused.rate.unwrap();
    assert_eq!((rate.count, rate.burst, refused.action), (25, 50, Action::Reject(RejectWith::TcpReset)));
    assert_eq!(rule(&found, "forward-2").action, Action::Accept);
    assert_eq!(found.policy.rules.iter().filter(|rule| rule.name.starts_with("flood")).count(), 1);
    // Others than those that return, and limits of both.
    assert_eq!(why(&flood("-m limit --limit 25/sec", "-s 10.0.0.0/8 -j DROP")).len(), 1);
    assert_eq!(why(&flood("-m limit --limit 25/sec", "-m limit --limit 5/sec -j DROP")).len(), 2);

    let import = import("nft", include_str!("../../../tests/import/fw4.nft.json"));
    assert_eq!(why(&import), []);
    assert_eq!(import.policy.rules.iter().filter(|rule| rule.matches_by_rate()).count(), 2);
    assert_eq!(
        import.policy.rules.iter().filter(|rule| rule.dnat == Some(DnatStatus::Translated)).count(),
        2
    );
}

#[test]
fn connections_past_a_bound_are_refused() {
    let over = "-A FORWARD -p tcp -m tcp --dport 22 -m connlimit --connlimit-above 3 -j REJECT --reject-with tcp-reset\n";
    let import = iptables(&format!("{over}-A FORWARD -p tcp -j ACCEPT"));
    assert_eq!(why(&import), []);
    assert_eq!(rule(&import, "forward-1").connections.map(|limit| limit.most), Some(3));
    // What does not pass further on is not let in by the limit.
    let import = iptables(over);
    assert!(
        import.policy.rules.iter().all(|rule| rule.action != Action::Accept || rule.name == "input-policy"),
        "{:#?}",
        import.policy.rules
    );
    // Accepted in part, and in part not: no one rule says that.
    let import = iptables(&format!("{over}-A FORWARD -s 10.0.0.0/8 -j ACCEPT"));
    assert_eq!(why(&import), [(4, Why::Limit)]);
}

#[test]
fn a_limit_whose_excess_is_accepted_is_none() {
    let import = iptables("-A FORWARD -p udp -m limit --limit 3/min -j ACCEPT\n-A FORWARD -p udp -j ACCEPT");
    assert_eq!(why(&import), []);
    assert_eq!(rule(&import, "forward-1").rate, None);
}

#[test]
fn a_set_that_counts_each_source() {
    let add = "{\"set\":{\"op\":\"add\",\"elem\":{\"payload\":{\"protocol\":\"ip\",\"field\":\"saddr\"}},\
               \"stmt\":[{\"limit\":{\"rate\":3,\"burst\":7,\"per\":\"minute\"}}],\"set\":\"@x\"}},{\"accept\":null}";
    let rules = format!("{},{add}", equal("tcp", "dport", "22"));
    let import = nft(&[("forward", "filter", 0, "drop")], &[("forward", &rules)]);
    assert_eq!(why(&import), []);
    let rate = rule(&import, "forward-1").rate.unwrap();
    assert_eq!((rate.count, rate.burst, rate.scope), (3, 7, Scope::Source));
}

#[test]
fn forwards_by_a_map() {
    let map = |data: &str| {
        let dnat = format!(
            "{{\"dnat\":{{\"addr\":{{\"map\":{{\"key\":{{\"payload\":{{\"protocol\":\"tcp\",\"field\":\"dport\"}}}},\
             \"data\":{{\"set\":{data}}}}}}}}}}}"
        );
        let rule = format!("{},{dnat}", equal("ip", "daddr", "\"192.0.2.1\""));
        nft(&[("prerouting", "nat", -100, "accept")], &[("prerouting", &rule)])
    };
    let import = map("[[80,\"10.0.0.3\"],[81,{\"concat\":[\"10.0.0.4\",8080]}]]");
    assert_eq!(why(&import), []);
    let found: Vec<String> = import
        .policy
        .nats
        .iter()
        .map(|nat| match &nat.action {
            NatAction::Forward { ports, target, target_port, .. } => {
                assert_eq!(ports.len(), 1);
                format!("{}>{target}:{target_port:?}", PortRange { ..ports[0] }.first)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(found, ["80>10.0.0.3:None", "81>10.0.0.4:Some(8080)"]);
}

/// Numbers that spread connections over servers (numgen, jhash, symhash): one for each, or several as a weight.
#[test]
fn servers_by_numbers() {
    let import = |key: &str, data: &str, rest: &str| {
        let dnat = format!(
            "{{\"dnat\":{{\"addr\":{{\"map\":{{\"key\":{key},\"data\":{{\"set\":{data}}}}}}}{rest}}}}}"
        );
        let rule =
            format!("{},{},{dnat}", equal("ip", "daddr", "\"192.0.2.1\""), equal("tcp", "dport", "80"));
        nft(&[("prerouting", "nat", -100, "accept")], &[("prerouting", &rule)])
    };
    let spread = |key: &str, data: &str, rest: &str| {
        let import = import(key, data, rest);
        assert_eq!(why(&import), []);
        let [nat] = import.policy.nats.as_slice() else { panic!("{:?}", import.policy.nats) };
        let NatAction::Balance(balance) = &nat.action else { panic!("{nat:?}") };
        assert_eq!((balance.outside, balance.ports.len()), (Some("192.0.2.1".parse().unwrap()), 1));
        let servers: Vec<String> = balance
            .servers
            .iter()
            .map(|server| format!("{}:{:?} weight {}", server.address, server.port, server.weight))
            .collect();
        (servers.join(", "), balance.sticky)
    };
    let numgen = |modulus, offset| {
        format!("{{\"numgen\":{{\"mode\":\"inc\",\"mod\":{modulus},\"offset\":{offset}}}}}")
    };
    let two = "[[0,\"10.0.0.3\"],[1,\"10.0.0.4\"]]";
    assert_eq!(
        spread(&numgen(2, 0), two, ""),
        ("10.0.0.3:None weight 1, 10.0.0.4:None weight 1".to_owned(), Sticky::Connection)
    );
    // Numbers 5 to 10, four of them the first server's.
    let weighted = "[[{\"range\":[7,10]},{\"concat\":[\"10.0.0.3\",8080]}],[{\"range\":[5,6]},{\"concat\":[\"10.0.0.4\",8081]}]]";
    assert_eq!(
        spread(&numgen(6, 5), weighted, ""),
        ("10.0.0.3:Some(8080) weight 2, 10.0.0.4:Some(8081) weight 1".to_owned(), Sticky::Connection)
    );
    let source = "{\"payload\":{\"protocol\":\"ip\",\"field\":\"saddr\"}}";
    let port = "{\"payload\":{\"protocol\":\"tcp\",\"field\":\"sport\"}}";
    let jhash = |expression: &str| format!("{{\"jhash\":{{\"mod\":2,\"expr\":{expression}}}}}");
    assert_eq!(
        spread(&jhash(source), two, ",\"port\":8080"),
        ("10.0.0.3:Some(8080) weight 1, 10.0.0.4:Some(8080) weight 1".to_owned(), Sticky::Source)
    );
    let both = jhash(&format!("{{\"concat\":[{source},{port}]}}"));
    assert_eq!(spread(&both, two, "").1, Sticky::Connection);
    assert_eq!(spread("{\"symhash\":{\"mod\":2}}", two, "").1, Sticky::Connection);
    // A number without a server, one with two, and a hash of what is the same for all connections.
    for (key, data) in [
        (numgen(3, 0), two),
        (numgen(2, 1), two),
        (numgen(2, 0), "[[0,\"10.0.0.3\"],[0,\"10.0.0.4\"]]"),
        (numgen(2, 0), "[[0,\"10.0.0.3\"],[1,\"2001:db8::4\"]]"),
        (jhash("{\"payload\":{\"protocol\":\"ip\",\"field\":\"daddr\"}}"), two),
    ] {
        assert_eq!(why(&import(&key, data, "")), [(1, Why::NatTarget)], "{key} {data}");
    }
}

/// A rule set with helpers, as `nft` prints it: an assignment of `kind` before routing, and a forward chain.
fn helped(kind: &str, hook: &str, policy: &str, rules: &[&str]) -> Import {
    helped_by((kind, "tcp"), ("tcp", "21"), (hook, policy), rules)
}

fn helped_by(
    (kind, protocol): (&str, &str),
    (of, port): (&str, &str),
    (hook, policy): (&str, &str),
    rules: &[&str],
) -> Import {
    let chain = |name: &str, priority: i64, policy: &str| {
        format!(
            "{{\"chain\":{{\"family\":\"inet\",\"table\":\"t\",\"name\":\"{name}\",\"type\":\"filter\",\
             \"hook\":\"{name}\",\"prio\":{priority},\"policy\":\"{policy}\"}}}}"
        )
    };
    let rule = |chain: &str, expressions: &str| {
        format!(
            "{{\"rule\":{{\"family\":\"inet\",\"table\":\"t\",\"chain\":\"{chain}\",\"expr\":[{expressions}]}}}}"
        )
    };
    let assignment = format!("{},{{\"ct helper\":\"std\"}}", equal(of, "dport", port));
    let mut objects = vec![
        format!(
            "{{\"ct helper\":{{\"family\":\"inet\",\"name\":\"std\",\"table\":\"t\",\"handle\":1,\
             \"type\":\"{kind}\",\"protocol\":\"{protocol}\",\"l3proto\":\"inet\"}}}}"
        ),
        chain("prerouting", 0, "accept"),
        chain(hook, 0, policy),
        rule("prerouting", &assignment),
    ];
    objects.push(rule(
        hook,
        "{\"match\":{\"op\":\"in\",\"left\":{\"ct\":{\"key\":\"state\"}},\"right\":[\"established\",\"related\"]}},{\"accept\":null}",
    ));
    objects.extend(rules.iter().map(|expressions| rule(hook, expressions)));
    import("nft", &format!("{{\"nftables\":[{}]}}", objects.join(",")))
}

/// Names, helpers and ports of rules for what is forwarded.
fn helpers(import: &Import) -> Vec<(&str, Option<Helper>, Vec<u16>)> {
    let forwarded = import.policy.rules.iter().filter(|rule| rule.conditions.to.is_empty());
    forwarded
        .map(|rule| {
            let ports = rule.conditions.dports.iter().map(|range| range.first).collect();
            (rule.name.as_str(), rule.helper, ports)
        })
        .collect()
}

#[test]
fn a_helper_is_named_by_the_rule_that_accepts_its_connections() {
    let to = |port: &str| format!("{},{{\"accept\":null}}", equal("tcp", "dport", port));
    let [ftp, https] = [to("21"), to("443")];
    let import = helped("ftp", "forward", "drop", &[&ftp, &https]);
    assert_eq!(why(&import), []);
    assert_eq!(
        helpers(&import),
        [("forward-2", Some(Helper::Ftp), vec![21]), ("forward-3", None, vec![443])]
    );
}

/// The rule that accepts more is divided; what a chain's policy accepts gets a rule.
#[test]
fn connections_with_a_helper_get_rules_of_their_own() {
    let all = format!("{},{{\"accept\":null}}", equal("ip", "saddr", "\"192.0.2.1\""));
    let import = helped("ftp", "forward", "drop", &[&all]);
    assert_eq!(why(&import), []);
    let found = helpers(&import);
    assert_eq!(found, [("forward-2", Some(Helper::Ftp), vec![21]), ("forward-2-2", None, vec![])]);
    let import = helped("ftp", "forward", "accept", &[]);
    assert_eq!(why(&import), []);
    assert_eq!(helpers(&import), [("prerouting-1", Some(Helper::Ftp), vec![21])]);
    let checked = crate::check(&import.policy.to_string(), "imported.toml");
    assert_eq!(checked.errors().count(), 0, "{:?}", checked.diagnostics);
}

#[test]
fn pptp_is_assigned_over_tcp() {
    let pptp = format!("{},{{\"accept\":null}}", equal("tcp", "dport", "1723"));
    let import = helped_by(("pptp", "tcp"), ("tcp", "1723"), ("forward", "drop"), &[&pptp]);
    assert_eq!(why(&import), []);
    assert_eq!(helpers(&import), [("forward-2", Some(Helper::Pptp), vec![1723])]);
}

#[test]
fn sip_is_assigned_over_udp() {
    let sip = format!("{},{{\"accept\":null}}", equal("udp", "dport", "5060"));
    let import = helped_by(("sip", "udp"), ("udp", "5060"), ("forward", "drop"), &[&sip]);
    assert_eq!(why(&import), []);
    assert_eq!(helpers(&import), [("forward-2", Some(Helper::Sip), vec![5060])]);
    let checked = crate::check(&import.policy.to_string(), "imported.toml");
    assert_eq!(checked.errors().count(), 0, "{:?}", checked.diagnostics);
}

/// Of the gateway itself, of another kind or protocol, or where nothing is accepted.
#[test]
fn helpers_without_a_counterpart_are_missing() {
    let ftp = format!("{},{{\"accept\":null}}", equal("tcp", "dport", "21"));
    for import in [
        helped("sip", "forward", "drop", &[&ftp]),
        helped("tftp", "forward", "drop", &[&ftp]),
        helped_by(("sip", "udp"), ("tcp", "21"), ("forward", "drop"), &[&ftp]),
        helped("ftp", "input", "drop", &[&ftp]),
        helped("ftp", "forward", "drop", &[]),
    ] {
        let missing = why(&import);
        assert!(
            matches!(missing.as_slice(), [(_, Why::Feature(what))] if what.contains("ct helper")),
            "{missing:?}"
        );
    }
}

/// Firewalls open ports by translations alone, and let in what was translated (OpenWrt, firewalld).
#[test]
fn what_was_translated_may_pass() {
    let status = |op: &str, left: &str, right: &str, verdict: &str| {
        let left = left.replace("STATUS", "{\"ct\":{\"key\":\"status\"}}");
        format!("{{\"match\":{{\"op\":\"{op}\",\"left\":{left},\"right\":{right}}}}},{{\"{verdict}\":null}}")
    };
    let forward = [("forward", "filter", 0, "drop")];
    let of = |expressions: &str| nft(&forward, &[("forward", expressions)]);
    for (op, left, right, dnat) in [
        ("in", "STATUS", "\"dnat\"", DnatStatus::Translated),
        ("!", "STATUS", "\"dnat\"", DnatStatus::Untranslated),
        ("==", "{\"&\":[STATUS,\"dnat\"]}", "\"dnat\"", DnatStatus::Translated),
        ("!=", "{\"&\":[STATUS,32]}", "32", DnatStatus::Untranslated),
    ] {
        let import = of(&status(op, left, right, "accept"));
        assert_eq!(why(&import), [], "{op} {left} {right}");
        assert_eq!(rule(&import, "forward-1").dnat, Some(dnat), "{op} {left} {right}");
    }
    for (op, left, right) in [
        // The bits as a whole, others, and several.
        ("==", "STATUS", "\"dnat\""),
        ("!=", "STATUS", "\"dnat\""),
        ("in", "STATUS", "\"snat\""),
        ("in", "STATUS", "[\"snat\",\"dnat\"]"),
        ("==", "{\"&\":[STATUS,\"snat\"]}", "\"dnat\""),
        ("==", "STATUS", "{\"set\":[\"dnat\"]}"),
    ] {
        assert_eq!(why(&of(&status(op, left, right, "accept"))).len(), 1, "{op} {left} {right}");
    }

    let import = iptables(
        "-A FORWARD -i eth0 -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT\n-A FORWARD -j REJECT",
    );
    assert_eq!(why(&import), []);
    let through = |import: &Import| {
        let rules = import.policy.rules.iter().filter(|rule| rule.name.starts_with("forward"));
        rules.map(|rule| (rule.dnat, rule.action == Action::Accept)).collect::<Vec<_>>()
    };
    assert_eq!(through(&import), [(Some(DnatStatus::Translated), true), (None, false)]);
    let import = iptables("-A FORWARD -m conntrack ! --ctstate INVALID,DNAT -j ACCEPT");
    assert_eq!((why(&import), rule(&import, "forward-1").dnat), (vec![], Some(DnatStatus::Untranslated)));
    // In both directions: of those that are refused, answers are, too.
    let import = iptables(
        "-A FORWARD -m conntrack --ctstate DNAT -j DROP\n-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT",
    );
    assert_eq!(why(&import), []);
    assert_eq!(through(&import), [(Some(DnatStatus::Translated), false); 2]);
}

/// Before a translation nothing has been translated.
#[test]
fn a_filter_before_a_translation_knows_none() {
    let table =
        "*mangle\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -m conntrack --ctstate DNAT -j DROP\nCOMMIT\n";
    let nat = "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -d 192.0.2.1 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.1\nCOMMIT\n";
    assert_eq!(why(&import("iptables", &format!("{table}{nat}"))), [(3, Why::Hook("prerouting".to_owned()))]);
}

/// The answers of what a chain before routing has accepted are accepted, too, where a later chain begins with that.
#[test]
fn established_packets_of_some_are_accepted_before_they_are_refused() {
    let icmp = format!("{},{{\"accept\":null}}", equal("ip", "protocol", "\"icmp\""));
    let established = "{\"match\":{\"op\":\"in\",\"left\":{\"ct\":{\"key\":\"state\"}},\"right\":[\"established\",\"related\"]}},{\"accept\":null}";
    let refuse = format!("{},{{\"drop\":null}}", equal("ip", "daddr", "\"10.0.0.1\""));
    let chains = [("prerouting", "filter", -300, "accept"), ("forward", "filter", 0, "accept")];
    // Without a refusal of its own, a chain before routing is left out.
    let spoofed = format!("{},{{\"drop\":null}}", equal("ip", "saddr", "\"10.9.0.1\""));
    let rules =
        [("prerouting", &*spoofed), ("prerouting", &icmp), ("forward", established), ("forward", &refuse)];
    let import = nft(&chains, &rules);
    assert_eq!(why(&import), []);
}

/// The reverse path filter is each interface's, and no rule.
#[test]
fn a_reverse_path_filter_is_the_source_check() {
    let fib = |flags: &str, right: &str, verdict: &str| {
        format!(
            "{{\"match\":{{\"op\":\"==\",\"left\":{{\"fib\":{{\"result\":\"oif\",\"flags\":{flags}}}}},\"right\":{right}}}}},{{\"{verdict}\":null}}"
        )
    };
    let chains = [("prerouting", "filter", -150, "accept"), ("forward", "filter", 0, "accept")];
    for flags in ["[\"saddr\",\"iif\"]", "[\"saddr\",\"mark\",\"iif\"]", "\"saddr\""] {
        let import = nft(&chains, &[("prerouting", &fib(flags, "false", "drop"))]);
        assert_eq!((why(&import), import.count.implied), (vec![], 1), "{flags}");
        assert!(!import.policy.rules.iter().any(|rule| rule.name.starts_with("prerouting")), "{flags}");
        assert!(import.notes.iter().any(|note| note.kind == NoteKind::ReversePath));
    }
    let found = nft(&chains, &[("forward", &fib("[\"saddr\",\"iif\"]", "true", "drop"))]);
    assert_eq!((why(&found), rule(&found, "forward-1").action), (vec![], Action::Drop));
    assert_eq!(why(&nft(&chains, &[("forward", &fib("\"daddr\"", "false", "drop"))])).len(), 1);

    for words in ["--invert", "--validmark --invert", "--loose --accept-local --invert"] {
        let table =
            format!("*mangle\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -m rpfilter {words} -j DROP\nCOMMIT\n");
        let import = import("iptables", &table);
        assert_eq!((why(&import), import.count.implied), (vec![], 1), "{words}");
    }
}

/// Zones, services, forwards and rich rules of firewalld. Rules for the machine's own packets, and a helper for NetBIOS, have no counterpart.
#[test]
fn the_zones_of_firewalld() {
    let import = import("nft", include_str!("../../../tests/import/firewalld.nft.json"));
    let missing: Vec<String> = import.untranslated.iter().map(|missing| missing.why.to_string()).collect();
    assert!(
        missing.iter().all(|why| why.contains("gateway's own packets") || why.contains("netbios-ns")),
        "{missing:#?}"
    );
    let translated = import.policy.rules.iter().filter(|rule| rule.dnat == Some(DnatStatus::Translated));
    assert!(translated.count() >= 2);
    assert_eq!(import.policy.nats.len(), 3, "{:#?}", import.policy.nats);
}
