use proptest::prelude::*;

use super::*;
use crate::model::{
    Action, AddressItem, Addresses, Excess, Hairpin, Logging, Mode, MssClamp, NatAction, PortRange, Protocol,
    RejectWith, Rule, TcpFlagsMatch,
};

mod argument;
mod chain;
mod code_point;
mod dynamic_set;
mod idiom;
mod mac;
mod meaning;
mod tool;

const HOME: &str = include_str!("../../tests/import/home.nft.json");
const EVERYTHING: &str = include_str!("../../tests/import/everything.nft.json");
const DOCKER: &str = include_str!("../../tests/import/docker.v4");
const ROUTER: &str = include_str!("../../tests/import/router.v4");
const FILTERS: &str = "@10.0.0.0/8\t0.0.0.0/0\t0 : 65535\t80 : 80\t0x06/0xFF\t0x0200/0x1200\n\
    @1.2.3.4/32\t5.6.7.0/24\t0 : 65535\t0 : 65535\t0x01/0xFF\t0x0800/0xff00\n\
    @1.2.3.4/32\t5.6.7.0/24\t0 : 65535\t0 : 65535\t0x06/0x0F\t0x0000/0x0000\n\
    @0.0.0.0/0\t0.0.0.0/0\t0 : 65535\t0 : 65535\t0x00/0x00\t0x0000/0x0000\n";

fn import(name: &str, text: &str) -> Import {
    let import = find(name).unwrap().import(text.as_bytes(), None).unwrap();
    account(&import);
    import
}

fn iptables(rules: &str) -> Import {
    import("iptables", &format!("*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n{rules}\nCOMMIT\n"))
}

/// Asserts that every rule is accounted for.
pub(super) fn account(import: &Import) {
    let Count { rules, translated, implied, untranslated } = import.count;
    assert_eq!(rules, translated + implied + untranslated);
    assert_eq!(untranslated == 0, import.untranslated.is_empty());
    // What an import writes can be read, and has no errors.
    let written = import.policy.to_string();
    let checked = crate::check::check(&written, "import.toml");
    let errors: Vec<String> = checked.errors().map(ToString::to_string).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    assert_eq!(checked.policy.as_ref(), Some(&import.policy));
    let mut names: Vec<&str> = import.policy.rules.iter().map(|rule| rule.name.as_str()).collect();
    names.extend(import.policy.nats.iter().map(|nat| nat.name.as_str()));
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all, "names are unique");
}

fn rule<'a>(import: &'a Import, name: &str) -> &'a Rule {
    let found = import.policy.rules.iter().find(|rule| rule.name == name);
    found.unwrap_or_else(|| panic!("no rule {name}: {:#?}", import.policy.rules))
}

fn why(import: &Import) -> Vec<(u32, Why)> {
    import.untranslated.iter().map(|missing| (missing.origin.number(), missing.why.clone())).collect()
}

fn has(import: &Import, kind: &NoteKind) -> bool {
    import.notes.iter().any(|note| note.kind == *kind)
}

/// Returns addresses as ranges and names of sets.
fn text(addresses: &Addresses) -> String {
    let item = |item: &AddressItem| match item {
        AddressItem::Range(range) => format!("{}-{}", range.first, range.last),
        AddressItem::Set(name) => name.clone(),
    };
    let all: Vec<String> = addresses.items.iter().map(item).collect();
    format!("{}{}", if addresses.except { "!" } else { "" }, all.join(" "))
}

#[test]
fn a_home_router_in_nftables_is_whole() {
    let import = import("nft", HOME);
    assert_eq!(why(&import), []);
    assert_eq!(import.policy.mode, Mode::Stateful);
    assert_eq!(import.policy.default_action("lan", "wan"), Action::Drop);
    let services = rule(&import, "lan-services");
    assert_eq!(
        (services.conditions.from.clone(), services.conditions.to.clone()),
        (vec!["lan".into()], vec!["self".into()])
    );
    assert_eq!(services.conditions.dports, [22, 53, 80].map(PortRange::single));
    assert_eq!(rule(&import, "input-5").rate.unwrap().burst, 5);
    let web = rule(&import, "web");
    assert_eq!(
        (web.conditions.from.clone(), web.conditions.to.clone()),
        (vec!["wan".into()], vec!["lan".into()])
    );
    let denied = rule(&import, "forward-4");
    assert_eq!((denied.log, denied.action), (Logging::On, Action::Drop));
    assert_eq!(import.policy.nats.len(), 2);
    assert!(matches!(
        import.policy.nats[0].action,
        NatAction::Forward { outside: None, hairpin: Hairpin::Off, target_port: None, .. }
    ));
    assert!(matches!(import.policy.nats[1].action, NatAction::Masquerade { .. }));
    assert_eq!(import.policy.nats[1].to, ["wan"]);
}

#[test]
fn a_router_in_iptables() {
    let import = import("iptables", ROUTER);
    assert_eq!(why(&import), []);
    // The excess of the limit of line 23 is rejected there, and dropped here. Packets that return early from `ssh` match the
    // rules after the jump; the others do not.
    let order: Vec<&str> = import.policy.rules.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(
        order,
        [
            "input-7",
            "ssh-2",
            "ssh-3",
            "input-5",
            "input-6",
            "input-7-2",
            "input-policy",
            "office-out",
            "forward-3",
            "forward-4",
            "forward-5"
        ]
    );
    assert!(rule(&import, "input-5").rate.is_some());
    assert_eq!(rule(&import, "input-6").action, Action::Reject(RejectWith::TcpReset));
    assert_eq!(rule(&import, "forward-5").log, Logging::On);
    let proxy = &import.policy.nats[1];
    assert_eq!(proxy.action, NatAction::Redirect { ports: vec![PortRange::single(80)], to_port: Some(3128) });
    assert_eq!(proxy.from, ["eth1"]);
    let exempt = &import.policy.nats[2];
    assert_eq!(exempt.action, NatAction::Exempt);
    let ppp0 = import.policy.interface("ppp0").unwrap();
    assert_eq!(ppp0.mss, MssClamp::Mtu);
    assert_eq!(import.policy.interface("eth1").unwrap().mss, MssClamp::Off);
}

#[test]
fn containers() {
    let import = import("iptables", DOCKER);
    assert_eq!(why(&import), [(8, Why::OwnPackets)]);
    let outward = rule(&import, "forward-5");
    assert_eq!(
        (outward.conditions.from.clone(), outward.conditions.to.clone()),
        (vec!["docker0".into()], vec!["elsewhere".into()])
    );
    assert!(import.policy.rules.iter().all(|rule| !rule.name.starts_with("docker-isolation")));
    let forward = &import.policy.nats[0];
    assert_eq!(forward.from, ["elsewhere"]);
    assert!(matches!(&forward.action, NatAction::Forward { outside: None, target_port: Some(80), ports, .. }
        if *ports == [PortRange::single(8080)]));
}

#[test]
fn conditions_of_iptables() {
    for (words, holds) in [
        ("-p tcp -m tcp --dport 22", "dports: [PortRange { first: 22, last: 22 }]"),
        (
            "-p tcp -m tcp ! --dport 22:24",
            "dports: [PortRange { first: 0, last: 21 }, PortRange { first: 25, last: 65535 }]",
        ),
        ("! -s 10.0.0.0/8", "except: true"),
        ("-p icmp -m icmp --icmp-type 3/4", "icmp: [IcmpMatch { kind: 3, code: Some(4) }]"),
        ("-m dscp --dscp 0x0a", "dscp: [Dscp(10)]"),
        ("-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN", "TcpFlagsMatch { mask: 23, value: 2 }"),
        (
            "-p tcp -m connlimit --connlimit-upto 20 --connlimit-mask 32 --connlimit-saddr",
            "ConnectionLimit { most: 20, scope: Source }",
        ),
        (
            "-m hashlimit --hashlimit-upto 5/min --hashlimit-burst 9 --hashlimit-mode srcip --hashlimit-name x",
            "Rate { count: 5, per: Nanos(60000000000), burst: 9, scope: Source }",
        ),
    ] {
        let import = iptables(&format!("-A FORWARD {words} -j ACCEPT"));
        assert_eq!(why(&import), [], "{words}");
        let debug = format!("{:?}", rule(&import, "forward-1"));
        assert!(debug.contains(holds), "{words}: {debug}");
    }
}

#[test]
fn what_iptables_says_and_policies_cannot() {
    for words in [
        "-m set --match-set bad src,src -j DROP",
        "-m mark --mark 0x1 -j ACCEPT",
        "-m limit --limit 3/min -j DROP",
        "-m conntrack --ctstate ESTABLISHED -j DROP",
        "-m conntrack --ctstate SNAT -j ACCEPT",
        "-p tcp -j NFQUEUE --queue-num 1",
        "-j nowhere",
        "-f -j DROP",
        "-p tcp -m tcp --dport 99999 -j DROP",
    ] {
        let import = iptables(&format!("-A FORWARD {words}\n-A FORWARD -j ACCEPT"));
        assert_eq!(why(&import).len(), 1, "{words}");
        assert!(!rule(&import, "forward-2").name.is_empty());
    }
}

#[test]
fn what_exceeds_a_limit_is_dropped_or_meets_the_next_rules() {
    let limited = "-A FORWARD -p udp -m limit --limit 3/min -j ACCEPT";
    let excess = |import: &Import| {
        let rule = rule(import, "forward-1");
        (rule.rate.is_some(), rule.excess)
    };
    assert_eq!(excess(&iptables(limited)), (true, Excess::Drop));
    let after = iptables(&format!("{limited}\n-A FORWARD -p tcp -j ACCEPT\n-A FORWARD -j DROP"));
    assert_eq!((why(&after), excess(&after)), (vec![], (true, Excess::Drop)));
    let passes = iptables(&format!("{limited}\n-A FORWARD -s 10.0.0.0/8 -j ACCEPT"));
    assert_eq!((why(&passes), excess(&passes)), (vec![], (true, Excess::Next)));
    // As many as there are bits for.
    let many: Vec<String> = (1..=40)
        .map(|port| format!("-A FORWARD -p udp -m udp --dport {port} -m limit --limit 3/min -j ACCEPT"))
        .collect();
    let many = iptables(&format!("{}\n-A FORWARD -s 10.0.0.0/8 -j ACCEPT", many.join("\n")));
    assert_eq!(why(&many), (35..44).map(|line| (line, Why::Limit)).collect::<Vec<_>>());
}

#[test]
fn negated_flags_become_a_rule_for_each_flag() {
    let import = iptables("-A FORWARD -p tcp -m tcp ! --tcp-flags SYN,ACK SYN -j DROP");
    let flags: Vec<_> = import.policy.rules.iter().filter_map(|rule| rule.conditions.tcp_flags).collect();
    assert_eq!(flags, [TcpFlagsMatch { mask: 2, value: 0 }, TcpFlagsMatch { mask: 16, value: 16 }]);
}

#[test]
fn chains_that_call_themselves_end() {
    let import = iptables(":a - [0:0]\n-A FORWARD -j a\n-A a -s 10.0.0.0/8 -j RETURN\n-A a -j a\n-A a -g a");
    assert!(import.untranslated.iter().any(|missing| matches!(missing.why, Why::TooDeep | Why::TooMany)));
}

/// A table of both families is translated for both. A policy's masquerade is of IPv6 only if it says so.
#[test]
fn a_masquerade_of_both_families_stays_one() {
    let chain = |family: &str, expressions: &str| {
        format!(
            "{{\"nftables\":[{{\"table\":{{\"family\":\"{family}\",\"name\":\"t\"}}}},\
             {{\"chain\":{{\"family\":\"{family}\",\"table\":\"t\",\"name\":\"post\",\"type\":\"nat\",\
             \"hook\":\"postrouting\",\"prio\":100,\"policy\":\"accept\"}}}},\
             {{\"rule\":{{\"family\":\"{family}\",\"table\":\"t\",\"chain\":\"post\",\"expr\":[{expressions}]}}}}]}}"
        )
    };
    let source = |family: &str, expressions: &str| {
        let import = import("nft", &chain(family, expressions));
        assert_eq!(why(&import), []);
        let [nat] = &import.policy.nats[..] else { panic!("{:?}", import.policy.nats) };
        import
            .policy
            .to_string()
            .lines()
            .find(|line| line.starts_with("source"))
            .map(str::to_owned)
            .ok_or(nat.name.clone())
    };
    let out = "{\"match\":{\"op\":\"==\",\"left\":{\"meta\":{\"key\":\"oifname\"}},\"right\":\"wan\"}}";
    let all = format!("{out},{{\"masquerade\":null}}");
    assert_eq!(source("inet", &all).as_deref(), Ok("source = [\"0.0.0.0/0\", \"::/0\"]"));
    assert_eq!(source("ip", &all).as_deref(), Ok("source = \"0.0.0.0/0\""));
    assert_eq!(source("ip6", &all).as_deref(), Ok("source = \"::/0\""));
}

#[test]
fn all_that_nftables_prints_has_a_fate() {
    let import = import("nft", EVERYTHING);
    let missing: Vec<String> = import.untranslated.iter().map(|missing| missing.why.to_string()).collect();
    for word in ["ip6 hoplimit", "have no marks"] {
        assert!(missing.iter().any(|why| why.contains(word)), "{word}: {missing:#?}");
    }
    assert!(!missing.iter().any(|why| why.contains("ether saddr")), "{missing:#?}");
    assert!(import.count.translated > 20, "{:?}", import.count);
    // No rule names an interface of that pattern: one of its own stands for it.
    assert!(import.policy.interface("guest0").is_some());
    assert!(import.policy.set("admins").is_none() || import.policy.set("admins").unwrap().items.len() == 3);
}

#[test]
fn classbench() {
    let import = import("classbench", FILTERS);
    assert_eq!(import.count, Count { rules: 4, translated: 3, implied: 0, untranslated: 1 });
    assert_eq!(import.untranslated[0].before.as_deref(), Some("r000004"));
    let first = &import.policy.rules[0];
    assert_eq!(first.conditions.tcp_flags, Some(TcpFlagsMatch { mask: 0x12, value: 0x02 }));
    assert_eq!(first.conditions.protocols, [Protocol::TCP]);
    assert!(text(&first.conditions.source).contains("10.255.255.255"));
    assert_eq!(import.policy.rules[1].conditions.icmp[0].kind, 8);
}

#[test]
fn classbench_real_sets() {
    let folder = std::env::var_os("WIRERATE_DATA").map_or_else(
        || std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data"),
        std::path::PathBuf::from,
    );
    let Ok(files) = std::fs::read_dir(folder.join("rules")) else {
        eprintln!("SKIPPED: no rule sets in {}", folder.display());
        return;
    };
    for file in files.map(|file| file.unwrap().path()) {
        let bytes = std::fs::read(&file).unwrap();
        let import = find("classbench").unwrap().import(&bytes, None).unwrap();
        account(&import);
        assert!(import.untranslated.len() * 20 < import.count.rules, "{:?}", import.untranslated.first());
    }
}

#[test]
fn errors_say_where() {
    let error = find("nft").unwrap().import(b"{\n \"nftables\": [}", None).unwrap_err();
    assert_eq!(error, ImportError::Json { line: 2, column: 15 });
    assert_eq!(find("nft").unwrap().import(b"{}", None), Err(ImportError::NotNftables));
    let known = |name: &str| find(name).unwrap().import(b"hello\nworld\n", None);
    assert!(matches!(known("iptables"), Err(ImportError::NothingKnown { .. })));
    assert!(matches!(known("classbench"), Err(ImportError::NothingKnown { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_met(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        for importer in IMPORTERS {
            if let Ok(import) = importer.import(&bytes, None) {
                account(&import);
            }
        }
    }

    #[test]
    fn changed_rule_sets_are_met(which in 0..5usize, changes in proptest::collection::vec((any::<u32>(), any::<u8>(), 0..3u8), 1..12)) {
        let (name, text) =
            [("nft", HOME), ("nft", EVERYTHING), ("iptables", DOCKER), ("iptables", ROUTER), ("classbench", FILTERS)][which];
        let mut bytes = text.as_bytes().to_vec();
        for (at, byte, how) in changes {
            let at = at as usize % bytes.len();
            match how {
                0 => bytes[at] = byte,
                1 => { bytes.remove(at); }
                _ => {
                    let line: Vec<u8> = bytes[at..].iter().copied().take(usize::from(byte)).collect();
                    let to = usize::from(byte) * 7 % bytes.len();
                    bytes.splice(to..to, line);
                }
            }
        }
        if let Ok(import) = find(name).unwrap().import(&bytes, None) {
            account(&import);
        }
    }
}
