//! First policies for machines that are described as data: each is sound, and says what it should to packets.
#![allow(clippy::unwrap_used)]

use std::net::IpAddr;

use dataplane::Tables;
use gateway::linux::interface::Condition;
use policy::Policy;
use policy::model::{Action, LinkKind, MssClamp, NatAction, SourceCheck};

use super::answer::{AnswerError, Answers, SshFrom, Suggestion, Wishes};
use super::carry::{Carried, carry};
use super::machine::{
    Address, DefaultRoute, Interface, Machine, Origin, Session, Version, Vlan, parse_session, vlans,
};
use super::{PAGE, draft, question};

/// Interface that is up; addresses with `!` in front are learnt.
fn interface(name: &str, kind: &str, addresses: &[&str]) -> Interface {
    Interface {
        name: name.to_owned(),
        link: if kind == "ppp" { LinkKind::Ip } else { LinkKind::Ethernet },
        kind: kind.to_owned(),
        vlan: None,
        master: None,
        condition: Condition::Running,
        addresses: addresses
            .iter()
            .map(|text| {
                let origin = if text.starts_with('!') { Origin::Learnt } else { Origin::Static };
                Address { net: text.trim_start_matches('!').parse().unwrap(), origin }
            })
            .collect(),
        defaults: Vec::new(),
    }
}

fn by_default(mut interface: Interface, version: Version, metric: u32, via: Option<&str>) -> Interface {
    let via = via.map(|via| via.parse().unwrap());
    interface.defaults.push(DefaultRoute { version, metric, via });
    interface
}

fn session(client: &str) -> Option<Session> {
    Some(Session { client: client.parse().unwrap(), port: 22 })
}

/// A router: PPPoE by the first card, a VLAN for guests on the second, Docker and a VPN beside them.
fn router() -> Machine {
    let guests = Interface {
        vlan: Some(Vlan { parent: "eth1".to_owned(), id: 20 }),
        ..interface("eth1.20", "vlan", &["192.168.20.1/24"])
    };
    Machine {
        interfaces: vec![
            interface("docker0", "bridge", &["172.17.0.1/16"]),
            interface("eth0", "", &[]),
            interface("eth1", "", &["192.168.1.1/24", "2001:db8:1::1/64"]),
            guests,
            by_default(interface("ppp0", "ppp", &["!203.0.113.2/32"]), Version::V4, 0, None),
            interface("wg0", "wireguard", &["10.8.0.1/24"]),
        ],
        session: None,
    }
}

fn host() -> Machine {
    let eth0 = interface("eth0", "", &["!198.51.100.20/24"]);
    Machine {
        interfaces: vec![by_default(eth0, Version::V4, 100, Some("198.51.100.1"))],
        session: session("203.0.113.7"),
    }
}

fn suggested(machine: &Machine) -> Answers {
    let suggestion = Suggestion::of(machine, None, None);
    let ssh_from = suggestion.ssh_from.unwrap();
    Answers { wan: suggestion.wan, lan: suggestion.lan, ssh_from, ssh_port: 22 }
}

/// Policy for a machine, sound and fit to be carried out.
fn sound(machine: &Machine, answers: &Answers, carried: &Carried) -> (String, Policy) {
    sound_with(machine, answers, &Wishes::default(), carried)
}

fn sound_with(machine: &Machine, answers: &Answers, wishes: &Wishes, carried: &Carried) -> (String, Policy) {
    answers.check(machine).unwrap();
    wishes.check(answers).unwrap();
    let text = draft(machine, answers, wishes, carried);
    let checked = policy::check(&text, "policy.toml");
    let errors: Vec<_> = checked.errors().collect();
    assert!(errors.is_empty(), "{errors:?}\n{text}");
    let policy = checked.policy.unwrap();
    Tables::compile(&policy, 1).unwrap();
    (text, policy)
}

/// True if a rule accepts TCP to a port of the machine itself, from a zone and an address: read off the model, first match first.
fn accepts(policy: &Policy, zone: &str, source: &str, port: u16) -> bool {
    let source: IpAddr = source.parse().unwrap();
    let rule = policy.rules.iter().find(|rule| {
        let conditions = &rule.conditions;
        let ranges: Vec<_> = conditions
            .source
            .items
            .iter()
            .filter_map(|item| match item {
                policy::model::AddressItem::Range(range) => Some(*range),
                policy::model::AddressItem::Set(_) => None,
            })
            .collect();
        (conditions.from.is_empty() || conditions.from.iter().any(|from| from == zone))
            && (conditions.to.is_empty() || conditions.to.iter().any(|to| to == "self"))
            && (conditions.protocols.is_empty()
                || conditions.protocols.contains(&policy::model::Protocol::TCP))
            && (conditions.dports.is_empty()
                || conditions.dports.iter().any(|range| (range.first..=range.last).contains(&port)))
            && (ranges.is_empty() || ranges.iter().any(|range| (range.first..=range.last).contains(&source)))
    });
    rule.map_or(policy.default_action(zone, "self"), |rule| rule.action) == Action::Accept
}

#[test]
fn a_router_is_found_behind_a_session_of_pppoe() {
    let machine = router();
    let answers = suggested(&machine);
    assert_eq!(answers.wan, ["ppp0"]);
    // Neither the card below the session nor what Docker and the VPN have for themselves.
    assert_eq!(answers.lan, ["eth1", "eth1.20"]);
    assert_eq!(answers.ssh_from, [SshFrom::Lan]);
    let (text, policy) = sound(&machine, &answers, &Carried::default());
    let ppp0 = policy.interface("ppp0").unwrap();
    assert_eq!((ppp0.link, ppp0.mss), (LinkKind::Ip, MssClamp::Mtu));
    let guests = policy.interface("eth1.20").unwrap();
    assert_eq!((guests.parent.as_deref(), &guests.vlans[..]), (Some("eth1"), &[20][..]));
    assert!(policy.interfaces.iter().all(|interface| interface.addresses.is_empty()));
    assert!(matches!(policy.nats[0].action, NatAction::Masquerade { .. }));
    assert_eq!(policy.default_action("lan", "wan"), Action::Accept);
    assert_eq!(policy.default_action("wan", "lan"), Action::Drop);
    assert!(accepts(&policy, "lan", "192.168.1.10", 22) && !accepts(&policy, "wan", "198.51.100.7", 22));
    assert!(!accepts(&policy, "lan", "192.168.1.10", 80));
    assert!(text.contains("stay Linux's") && text.contains("docker0, eth0, wg0."), "{text}");
}

/// The VLAN alone: its frames come by its own device.
#[test]
fn a_vlan_without_its_parent_is_an_interface_as_any() {
    let machine = router();
    let answers = Answers {
        wan: vec!["ppp0".to_owned()],
        lan: vec!["eth1.20".to_owned()],
        ssh_from: vec![],
        ssh_port: 22,
    };
    let (_, policy) = sound(&machine, &answers, &Carried::default());
    assert_eq!(policy.interface("eth1.20").unwrap().parent, None);
    assert!(!accepts(&policy, "lan", "192.168.20.10", 22));
}

#[test]
fn a_line_has_its_rates_and_the_page_its_users() {
    let machine = router();
    let answers = Answers { wan: vec!["ppp0".to_owned()], ..suggested(&machine) };
    let wishes = Wishes {
        rate: Some("95 Mbit/s / 19mbit".to_owned()),
        page_tokens: Some("/etc/wirerate/page.tokens".into()),
    };
    let (_, policy) = sound_with(&machine, &answers, &wishes, &Carried::default());
    let [shape] = policy.shapes.as_slice() else { panic!("{:?}", policy.shapes) };
    let rates = [shape.down, shape.up].map(|rate| rate.unwrap().to_string());
    assert_eq!(
        (shape.interface.as_str(), rates),
        ("ppp0", ["95000000 bit/s", "19000000 bit/s"].map(str::to_owned))
    );
    assert_eq!(policy.gateway.page, Some(PAGE.parse().unwrap()));
    let refused = |rate: &str, answers: &Answers| {
        Wishes { rate: Some(rate.to_owned()), ..Wishes::default() }.check(answers).unwrap_err()
    };
    for rate in ["fast", "", "5 Mbit/s\"\n[x]"] {
        assert_eq!(refused(rate, &answers), AnswerError::Rate(rate.to_owned()));
    }
    let two = Answers { wan: vec!["ppp0".to_owned(), "eth0".to_owned()], ..answers };
    assert_eq!(refused("5 Mbit/s", &two), AnswerError::Lines(2));
}

#[test]
fn a_host_is_shut_but_for_the_one_who_is_there() {
    let machine = host();
    let answers = suggested(&machine);
    assert_eq!((answers.wan.len(), answers.lan.len()), (1, 0));
    let (_, policy) = sound(&machine, &answers, &Carried::default());
    assert!(policy.nats.is_empty() && policy.defaults.is_empty());
    assert!(accepts(&policy, "wan", "203.0.113.7", 22));
    assert!(!accepts(&policy, "wan", "203.0.113.8", 22) && !accepts(&policy, "wan", "203.0.113.7", 443));
    // Who asks for another port gets that one.
    let answers = Answers { ssh_from: vec![SshFrom::Anywhere], ssh_port: 2222, ..answers };
    let (_, policy) = sound(&machine, &answers, &Carried::default());
    assert!(accepts(&policy, "wan", "192.0.2.1", 2222) && !accepts(&policy, "wan", "203.0.113.7", 22));
}

#[test]
fn a_machine_may_know_ipv6_alone() {
    let wan = interface("wan0", "", &["!2001:db8:ffff::2/64"]);
    let machine = Machine {
        interfaces: vec![
            interface("lan0", "", &["2001:db8:1::1/64"]),
            by_default(wan, Version::V6, 1024, Some("fe80::1")),
        ],
        session: session("2001:db8:1::10"),
    };
    let answers = suggested(&machine);
    assert_eq!((&answers.wan[..], &answers.lan[..]), (&["wan0".to_owned()][..], &["lan0".to_owned()][..]));
    assert_eq!(answers.ssh_from, [SshFrom::Lan]);
    let (_, policy) = sound(&machine, &answers, &Carried::default());
    assert!(accepts(&policy, "lan", "2001:db8:1::10", 22) && !accepts(&policy, "wan", "2001:db8::1", 22));
}

#[test]
fn of_several_ways_out_the_preferred_one_is_first() {
    let slow = by_default(interface("wwan0", "", &["!100.64.0.2/30"]), Version::V4, 700, None);
    let fast = by_default(interface("eth0", "", &["!198.51.100.20/24"]), Version::V4, 100, None);
    let v6 = by_default(interface("eth9", "", &["2001:db8::2/64"]), Version::V6, 1, None);
    let machine = Machine { interfaces: vec![slow, v6, fast], session: session("192.0.2.1") };
    let answers = suggested(&machine);
    assert_eq!(answers.wan, ["eth0", "wwan0", "eth9"]);
    let (_, policy) = sound(&machine, &answers, &Carried::default());
    assert!(policy.interfaces.iter().all(|interface| interface.source_check == SourceCheck::Loose));
}

/// Who set up masquerading alone let everything through; that is not carried over, and what was translated still is.
#[test]
fn a_masquerade_of_nftables_goes_on_and_its_open_doors_do_not() {
    let ruleset = br#"{"nftables": [
        {"metainfo": {"version": "1.0.6", "json_schema_version": 1}},
        {"table": {"family": "ip", "name": "nat", "handle": 1}},
        {"chain": {"family": "ip", "table": "nat", "name": "post", "handle": 1, "type": "nat", "hook": "postrouting",
                   "prio": 100, "policy": "accept"}},
        {"rule": {"family": "ip", "table": "nat", "chain": "post", "handle": 2, "expr": [
            {"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}},
                       "right": {"prefix": {"addr": "192.168.1.0", "len": 24}}}},
            {"match": {"op": "==", "left": {"meta": {"key": "oifname"}}, "right": "ppp0"}},
            {"masquerade": null}]}},
        {"chain": {"family": "ip", "table": "nat", "name": "pre", "handle": 3, "type": "nat", "hook": "prerouting",
                   "prio": -100, "policy": "accept"}},
        {"rule": {"family": "ip", "table": "nat", "chain": "pre", "handle": 4, "expr": [
            {"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "eth1"}},
            {"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 80}},
            {"redirect": {"port": 3128}}]}}]}"#;
    let machine = router();
    let answers = suggested(&machine);
    let carried = carry(ruleset, &answers).unwrap();
    assert_eq!(carried.left_out, Vec::<String>::new());
    let (text, policy) = sound(&machine, &answers, &carried);
    assert_eq!(policy.nats.len(), 2, "{text}");
    assert_eq!((&policy.nats[1].to[..], policy.nats[1].source.items.len()), (&["wan".to_owned()][..], 1));
    // What is redirected gets in.
    assert!(accepts(&policy, "lan", "192.168.1.10", 3128) && !accepts(&policy, "wan", "198.51.100.7", 3128));
    assert_eq!(policy.default_action("lan", "wan"), Action::Accept);
    assert_eq!(policy.default_action("wan", "lan"), Action::Drop);
    assert!(!accepts(&policy, "wan", "198.51.100.7", 22) && !accepts(&policy, "wan", "198.51.100.7", 80));
}

/// Sets whose elements come and go are the draft's, too, where rules and translations name them.
#[test]
fn dynamic_sets_are_carried_over() {
    let ruleset = br#"{"nftables": [
        {"set": {"family": "ip", "table": "nat", "name": "guests", "type": "ipv4_addr", "flags": ["timeout"], "timeout": 3600}},
        {"chain": {"family": "ip", "table": "nat", "name": "post", "handle": 1, "type": "nat", "hook": "postrouting",
                   "prio": 100, "policy": "accept"}},
        {"rule": {"family": "ip", "table": "nat", "chain": "post", "handle": 2, "expr": [
            {"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": "@guests"}},
            {"match": {"op": "==", "left": {"meta": {"key": "oifname"}}, "right": "ppp0"}},
            {"masquerade": null}]}}]}"#;
    let machine = router();
    let answers = suggested(&machine);
    let carried = carry(ruleset, &answers).unwrap();
    assert_eq!(carried.left_out, Vec::<String>::new());
    let (text, policy) = sound(&machine, &answers, &carried);
    assert_eq!((policy.nats.len(), policy.dynamic_sets.len()), (1, 1), "{text}");
}

/// A rule set that has SSH open, closes it for all but the answer; the rest stays as it was.
#[test]
fn rules_of_nftables_are_carried_over() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../policy/tests/import/home.nft.json");
    let ruleset = std::fs::read(path).unwrap();
    let wan = by_default(interface("wan", "", &["203.0.113.2/24"]), Version::V4, 0, Some("203.0.113.1"));
    let machine = Machine {
        interfaces: vec![interface("lan", "", &["192.168.1.1/24"]), wan],
        session: session("198.51.100.7"),
    };
    let net = SshFrom::Net("198.51.100.7/32".parse().unwrap());
    let answers = Answers {
        wan: vec!["wan".to_owned()],
        lan: vec!["lan".to_owned()],
        ssh_from: vec![net],
        ssh_port: 22,
    };
    let carried = carry(&ruleset, &answers).unwrap();
    let (text, policy) = sound(&machine, &answers, &carried);
    assert!(accepts(&policy, "wan", "198.51.100.7", 22) && !accepts(&policy, "wan", "198.51.100.8", 22));
    // It was open to the inside there.
    assert!(!accepts(&policy, "lan", "192.168.1.10", 22) && accepts(&policy, "lan", "192.168.1.10", 80));
    assert_eq!(policy.default_action("lan", "wan"), Action::Drop, "a rule says it: {text}");
    assert!(policy.rules.iter().any(|rule| rule.name == "web"));
    // Without the interface that rules are about there is nothing for them.
    let answers = Answers { lan: vec![], ..answers };
    let carried = carry(&ruleset, &answers).unwrap();
    assert!(carried.left_out.iter().any(|line| line.contains("rule web")), "{:?}", carried.left_out);
    sound(&machine, &answers, &carried);
}

#[test]
fn a_session_is_not_cut_off() {
    let machine = host();
    let away = Answers { ssh_from: vec!["10.0.0.0/8".parse().unwrap()], ..suggested(&machine) };
    let error = away.check(&machine).unwrap_err();
    assert_eq!(error, AnswerError::CutOff("203.0.113.7".parse().unwrap()));
    assert!(error.hint().contains("--ssh-from 203.0.113.7"), "{}", error.hint());
    // Who says so means it.
    Answers { ssh_from: vec![], ..away }.check(&machine).unwrap();
}

#[test]
fn answers_that_will_not_do_are_refused_in_words() {
    let mut machine = router();
    machine.interfaces[1].master = Some("br0".to_owned());
    let answers = suggested(&machine);
    let with = |wan: &str, lan: &str| {
        Answers { wan: question::words(wan), lan: question::words(lan), ..answers.clone() }
            .check(&machine)
            .unwrap_err()
    };
    let unknown = with("pp0", "eth1");
    assert!(unknown.hint().starts_with("did you mean ppp0?"), "{}", unknown.hint());
    assert_eq!(with("none", "eth1"), AnswerError::NoWan);
    assert_eq!(with("ppp0", "eth1, ppp0"), AnswerError::Both("ppp0".to_owned()));
    assert_eq!(with("eth0", "eth1"), AnswerError::Port { name: "eth0".to_owned(), master: "br0".to_owned() });
    assert_eq!(with("ppp0", "none"), AnswerError::NoLan);
    assert!(matches!("everywhere".parse::<SshFrom>(), Err(AnswerError::Source(_))));
}

#[test]
fn questions_are_asked_until_an_answer_will_do() {
    let machine = router();
    let begun = question::Begun { wan: None, lan: None, ssh_from: None, ssh_port: 22 };
    let mut typed = "eth7\n\neth1\nmoon\nlan 198.51.100.7\n".as_bytes();
    let answers = question::ask_all(&machine, begun.clone(), &mut typed).unwrap().unwrap();
    assert_eq!((&answers.wan[..], &answers.lan[..]), (&["ppp0".to_owned()][..], &["eth1".to_owned()][..]));
    assert_eq!(answers.ssh_from, [SshFrom::Lan, "198.51.100.7".parse().unwrap()]);
    assert_eq!(question::ask_all(&machine, begun, &mut "\n".as_bytes()).unwrap(), None);
}

#[test]
fn what_linux_and_sshd_say_is_read() {
    let text = "VLAN Dev name\t | VLAN ID\nName-Type: VLAN_NAME_TYPE_RAW_PLUS_VID_NO_PAD\neth1.20        | 20  | eth1\n";
    let found = vlans(text);
    assert_eq!(found.len(), 1);
    assert_eq!(found["eth1.20"], Vlan { parent: "eth1".to_owned(), id: 20 });
    let told = parse_session("fe80::1%eth0 50000 fe80::2%eth0 2222").unwrap();
    assert_eq!((told.client, told.port), ("fe80::1".parse().unwrap(), 2222));
    let told = parse_session("::ffff:192.0.2.1 50000 ::ffff:192.0.2.2 22").unwrap();
    assert_eq!(told.client, "192.0.2.1".parse::<IpAddr>().unwrap());
    assert_eq!(parse_session("192.0.2.1"), None);
}
