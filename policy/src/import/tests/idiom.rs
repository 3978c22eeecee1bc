//! What real rule sets are full of.

use super::{import, iptables, rule, why};
use crate::import::{Import, NoteKind, Why};
use crate::model::{Action, NatAction, PortRange, Scope};

/// A rule set of nftables: the chains and the rules, each with chain and expressions.
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
        (rule(&import, "prerouting-1").to.as_slice(), rule(&import, "prerouting-1").action),
        (&["self".to_owned()][..], Action::Drop)
    );
    assert_eq!(rule(&import, "prerouting-1-2").action, Action::Drop);
}

/// A filter before routing sees the destination before its translation, and rules here see it after that.
#[test]
fn a_filter_before_a_translation_is_not_one_after_it() {
    let aimed = "-A PREROUTING -p tcp -m tcp --dport 80 -j DROP";
    let raw =
        |nat: &str| import("iptables", &format!("*raw\n:PREROUTING ACCEPT [0:0]\n{aimed}\nCOMMIT\n{nat}"));
    assert_eq!(why(&raw("")), []);
    let nat = "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -d 192.0.2.1 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.1\nCOMMIT\n";
    assert_eq!(why(&raw(nat)), [(3, Why::Hook("prerouting".to_owned()))]);
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
    assert!(rule(&syn, "forward-1").source.except);
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
    assert_eq!((rule(&import, "forward-1").action, scope(&import)), (Action::Accept, Scope::Source));
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
