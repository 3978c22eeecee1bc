use proptest::prelude::{ProptestConfig, prop_assert_eq, proptest};
use wire::Nanos;

use super::{Setting, Settings};
use crate::model::TcpFlagsMatch;
use crate::model::arbitrary;
use crate::parse::parse;
use crate::value::packet::TCP_FLAGS;
use crate::value::time::duration_text;
use crate::value::{Form, key, quoted};
use crate::word::{self, word_for};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn what_is_printed_reads_back_as_the_same(policy in arbitrary::policy()) {
        let text = policy.to_string();
        let parsed = parse(&text, "printed");
        let wrong: Vec<String> = parsed.diagnostics.iter().map(|wrong| format!("{wrong:?}")).collect();
        prop_assert_eq!(parsed.policy, Some(policy), "{}\n{}", text, wrong.join("\n"));
    }

    #[test]
    fn printing_is_canonical(policy in arbitrary::policy()) {
        let text = policy.to_string();
        let again = parse(&text, "printed").policy.unwrap().to_string();
        prop_assert_eq!(text, again);
    }
}

#[test]
fn the_empty_policy_is_an_empty_text() {
    assert_eq!(crate::Policy::default().to_string(), "");
}

#[test]
fn a_policy_prints_as_an_operator_would_write_it() {
    let text = r#"[interface.lan]
zone = "lan"
addresses = ["192.168.1.1/24", "2001:db8:1::1/64"]
mss = "mtu"

[interface."eth0.20"]
zone = "guest"
parent = "eth0"
vlan = 20

[set]
servers = ["192.168.1.20", "192.168.1.30-192.168.1.39", "2001:db8:1::/64"]

[default]
"lan > wan" = "accept"

[[route]]
to = "0.0.0.0/0"
via = ["203.0.113.1", { via = "203.0.113.3", interface = "wan", weight = 2 }]

[[rule]]
name = "ssh"
from = "wan"
source = { except = ["@servers", "10.0.0.0/8"] }
protocol = "tcp"
dport = [22, "8000-8010"]
tcp-flags = "syn,!ack"
dscp = ["ef", 63]
rate = "10/second burst 20 per source"
action = "reject tcp-reset"

[[rule]]
name = "ping"
protocol = "icmp"
icmp = ["echo-request", "port-unreachable", "3/7", 250]
action = "accept"

[limit.fragments]
held = 128

[timeout]
udp = "2m30s"
"#;
    let parsed = parse(text, "p.toml");
    assert_eq!(parsed.diagnostics, []);
    assert_eq!(parsed.policy.unwrap().to_string(), text);
}

#[test]
fn strings_are_quoted_as_toml_wants() {
    assert_eq!(quoted("a\"b\\c\n"), r#""a\"b\\c\u000A""#);
    assert_eq!(key("eth0"), "eth0");
    assert_eq!(key("eth0.20"), "\"eth0.20\"");
    assert_eq!(key(""), "\"\"");
}

#[test]
fn durations_name_the_longest_units_first() {
    assert_eq!(duration_text(Nanos(0)), "0s");
    assert_eq!(duration_text(Nanos::from_secs(7_440)), "2h4m");
    assert_eq!(duration_text(Nanos(1_250_000_001)), "1s250ms1ns");
}

#[test]
fn flags_that_must_be_clear_have_an_exclamation_mark() {
    assert_eq!(TCP_FLAGS.print(&TcpFlagsMatch { mask: 0x12, value: 0x02 }), "\"syn,!ack\"");
}

#[test]
fn every_value_of_a_closed_kind_has_a_word() {
    use crate::model::{Action, Checksum, Mode, Pickup, RejectWith, SourceCheck, State, TcpWindow, WhenFull};
    for action in [
        Action::Accept,
        Action::Drop,
        Action::Reject(RejectWith::Fitting),
        Action::Reject(RejectWith::TcpReset),
        Action::Reject(RejectWith::PortUnreachable),
        Action::Reject(RejectWith::HostUnreachable),
        Action::Reject(RejectWith::AdminProhibited),
    ] {
        assert!(word_for(word::ACTION, &action).is_some(), "{action:?}");
    }
    for state in [State::New, State::Established, State::Related, State::Invalid] {
        assert!(word_for(word::STATE, &state).is_some(), "{state:?}");
    }
    for check in [SourceCheck::Strict, SourceCheck::Loose, SourceCheck::Off] {
        assert!(word_for(word::SOURCE_CHECK, &check).is_some(), "{check:?}");
    }
    assert!(word_for(word::MODE, &Mode::Stateless).is_some());
    assert!(word_for(word::WHEN_FULL, &WhenFull::EvictIdle).is_some());
    assert!(word_for(word::TCP_WINDOW, &TcpWindow::Off).is_some());
    assert!(word_for(word::PICKUP, &Pickup::Accept).is_some());
    assert!(word_for(word::CHECKSUM, &Checksum::Ignore).is_some());
}

/// What is listed of an item is what the text of a policy of that item alone says.
#[test]
fn settings_are_those_of_the_text() {
    let policy = crate::check(include_str!("../../../policies/diffserv-edge.toml"), "edge").policy.unwrap();
    let written = |settings: Vec<Setting>| -> Vec<String> {
        let value = |setting: &Setting| match &setting.values[..] {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        settings.iter().map(|setting| format!("{} = {}", setting.key, value(setting))).collect()
    };
    let text = |alone: crate::Policy| -> Vec<String> {
        let text = alone.to_string().replace('"', "");
        text.lines().skip(1).map(str::to_owned).collect()
    };
    assert!(policy.queues.len() > 5 && policy.classes.len() > 3 && policy.meters.len() > 3);
    for queue in &policy.queues {
        let alone = crate::Policy { queues: vec![queue.clone()], ..Default::default() };
        assert_eq!(written(queue.settings()), text(alone));
    }
    for class in &policy.classes {
        let alone = crate::Policy { classes: vec![class.clone()], ..Default::default() };
        assert_eq!(written(class.settings()), text(alone));
    }
    for meter in &policy.meters {
        let alone = crate::Policy { meters: vec![meter.clone()], ..Default::default() };
        assert_eq!(written(meter.settings()), text(alone));
    }
}
