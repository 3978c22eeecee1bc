use wire::esp::{Direction, EcnUse, Esn, Tfc};
use wire::{Dscp, Nanos};

use super::parse;
use crate::diagnostic::Code;
use crate::model::{
    Action, AddressItem, Binding, Checksum, DfBit, FamilyMatch, Hairpin, IcmpMatch, KeySource, Legacy,
    Lifetime, LinkKind, MssClamp, NatAction, PortRange, Protocol, Rate, RouteTarget, Scope, State,
    TcpFlagsMatch,
};

/// Every key of the format.
pub(crate) const WHOLE: &str = include_str!("whole.toml");

#[test]
fn every_key_of_the_format_is_read() {
    let parsed = parse(WHOLE, "whole.toml");
    assert_eq!(parsed.diagnostics, []);
    let policy = parsed.policy.unwrap();
    let lan = policy.interface("lan").unwrap();
    assert_eq!(lan.addresses.len(), 2);
    assert_eq!(lan.mss, MssClamp::Bytes(1452));
    assert_eq!(policy.interface("cpe").unwrap().vlans, [100, 20]);
    assert_eq!(policy.interface("tun").unwrap().link, LinkKind::Ip);
    let tunnel = policy.interface("site-b").unwrap();
    assert_eq!(tunnel.link, LinkKind::Ip);
    let esp = tunnel.esp.as_ref().unwrap();
    assert_eq!(
        (esp.local.to_string(), esp.remote.map(|remote| remote.to_string())),
        ("203.0.113.2".to_owned(), Some("198.51.100.1".to_owned()))
    );
    assert_eq!((esp.window.numbers(), esp.df, esp.ecn), (128, DfBit::Clear, EcnUse::Off));
    assert_eq!((esp.dscp.fixed(), esp.tfc), (Dscp::new(46), Tfc::Multiple(64)));
    assert_eq!(esp.keepalive, Some(Nanos::from_secs(20)));
    let hard =
        Lifetime { bytes: Some(10 << 30), packets: Some(4_294_967_295), time: Some(Nanos::from_secs(3_600)) };
    assert_eq!((esp.sas[0].hard, esp.sas[1].hard), (Lifetime::UNBOUNDED, hard));
    assert_eq!(esp.sas[1].soft, Lifetime { time: Some(Nanos::from_secs(3_000)), ..Lifetime::UNBOUNDED });
    assert_eq!(esp.legacy, Legacy::Allowed);
    assert_eq!(esp.sas.iter().map(|sa| sa.esn).collect::<Vec<_>>(), [Esn::Off, Esn::On, Esn::Off]);
    let daemons = policy.interface("site-c").unwrap().esp.as_ref().unwrap();
    assert_eq!((daemons.keys, daemons.reqid, daemons.if_id), (KeySource::Ike, Some(7), Some(42)));
    assert_eq!(daemons.remote, None);
    assert_eq!((daemons.binding(), esp.keys), (Binding::IfId(42), KeySource::Policy));
    let sas = esp.sas.iter().map(|sa| {
        let lengths = (sa.key.len(), sa.auth_key.len());
        (sa.direction, sa.spi, sa.suite.name().to_string(), lengths)
    });
    let expected = [
        (Direction::Out, 0x1000, "aes128-gcm".to_owned(), (20, 0)),
        (Direction::In, 0x2000, "aes256-cbc, hmac-sha256-128".to_owned(), (32, 32)),
        (Direction::In, 0x2001, "aes128-cbc, hmac-sha1-96".to_owned(), (0, 0)),
    ];
    assert_eq!(sas.collect::<Vec<_>>(), expected);
    let files = &esp.sas[2].files;
    let paths = [&files.key, &files.auth_key].map(|file| file.as_deref().and_then(|file| file.to_str()));
    assert_eq!(paths, [Some("keys/site-b"), Some("keys/site-b-auth")]);
    let names: Vec<&str> = policy.interfaces.iter().map(|interface| interface.name.as_str()).collect();
    let all = ["wan", "lan", "tun", "red0", "dsl", "voice", "pppoe", "pppoa", "site-b", "site-c", "cpe"];
    assert_eq!(names, all);
    assert_eq!(policy.vrfs(), ["red"]);
    let leak = &policy.routes[3];
    assert_eq!(
        (leak.vrf.as_deref(), leak.next_vrf.as_deref(), leak.hop_vrf()),
        (Some("red"), Some("default"), None)
    );
    assert_eq!(policy.set("servers").unwrap().items.len(), 3);
    assert_eq!(policy.default_action("lan", "wan"), Action::Accept);
    let RouteTarget::Via(hops) = &policy.routes[1].target else { panic!("{:?}", policy.routes[1]) };
    assert_eq!(hops.iter().map(|hop| hop.weight).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(hops[0].interface.as_deref(), Some("wan"), "from the route");
    assert_eq!(policy.routes[2].target, RouteTarget::Blackhole);
    let ssh = &policy.rules[0];
    assert_eq!(ssh.conditions.family, FamilyMatch::V4);
    assert_eq!(ssh.conditions.source.items[0], AddressItem::Set("admins".to_owned()));
    assert_eq!(ssh.conditions.dports, [PortRange::single(22), PortRange { first: 8000, last: 8010 }]);
    assert_eq!(ssh.conditions.protocols, [Protocol::TCP]);
    assert_eq!(ssh.conditions.tcp_flags, Some(TcpFlagsMatch { mask: 0x12, value: 0x02 }));
    assert_eq!(ssh.conditions.dscp.iter().map(|dscp| dscp.value()).collect::<Vec<_>>(), [46, 10, 46]);
    assert_eq!(ssh.states, [State::New]);
    assert_eq!(ssh.rate, Some(Rate { count: 10, per: Nanos::from_secs(1), burst: 20, scope: Scope::Source }));
    let ping = &policy.rules[1];
    let icmp = |kind, code| IcmpMatch { kind, code };
    assert_eq!(ping.conditions.icmp, [icmp(8, None), icmp(3, Some(4)), icmp(8, None)]);
    assert!(ping.conditions.source.except);
    let NatAction::Forward { target_port, hairpin, ports, .. } = &policy.nats[2].action else { panic!() };
    assert_eq!((*target_port, *hairpin, ports.len()), (Some(8443), Hairpin::Off, 2));
    assert_eq!(policy.timeouts.tcp_established, Nanos::from_secs(7_440));
    assert_eq!(policy.timeouts.udp, Nanos::from_secs(300), "whole seconds");
    assert_eq!(policy.limits.checksum, Checksum::Ignore);
    assert_eq!(policy.limits.fragments.held, 256);
    assert_eq!(policy.gateway.workers, Some(2));
}

#[test]
fn lines_say_where_named_things_stand() {
    let parsed = parse(WHOLE, "whole.toml");
    let line_of = |text: &str| Some(WHOLE.lines().position(|line| line.contains(text)).unwrap() as u32 + 1);
    assert_eq!(parsed.lines.rule("ssh"), line_of("name = \"ssh\""));
    assert_eq!(parsed.lines.nat("mail"), line_of("name = \"mail\""));
    assert_eq!(parsed.lines.interface("lan"), line_of("[interface.lan]"));
    assert_eq!(parsed.lines.set("servers"), line_of("servers ="));
    assert_eq!(parsed.lines.route(0), line_of("[[route]]"));
    assert_eq!(parsed.lines.rule("nobody"), None);
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let text =
        "mode = 3\n[interface.lan]\nzone = \"lan\"\nmut = 1500\n[[rule]]\nname = \"a\"\ndport = \"https\"\n";
    let parsed = parse(text, "p.toml");
    assert!(parsed.policy.is_none());
    let found: Vec<(Code, u32)> =
        parsed.diagnostics.iter().map(|wrong| (wrong.code, wrong.line().unwrap())).collect();
    let expected = [
        (config::Code::WrongType.into(), 1),
        (config::Code::UnknownKey.into(), 4),
        (config::Code::MissingKey.into(), 5),
        (Code::BadPort, 7),
    ];
    assert_eq!(found, expected);
    assert_eq!(parsed.diagnostics[1].hint.as_deref(), Some("did you mean `mtu`?"));
    assert_eq!(parsed.diagnostics[3].hint.as_deref(), Some("ports are numbers: https is 443"));
}

#[test]
fn several_syntax_errors_are_said_at_once() {
    let parsed = parse("a = \nb = 1\nc = [\n", "p.toml");
    assert!(parsed.policy.is_none());
    assert!(parsed.diagnostics.len() >= 2, "{:?}", parsed.diagnostics);
    assert!(parsed.diagnostics.iter().all(|wrong| wrong.code == config::Code::Syntax.into()));
}

#[test]
fn a_flood_of_mistakes_is_cut_off() {
    let text = format!("[set]\na = [{}]\n", "1,".repeat(5_000));
    let parsed = parse(&text, "p.toml");
    assert_eq!(parsed.diagnostics.len(), 1_001);
    let last = parsed.diagnostics.last().unwrap();
    assert_eq!(last.code, config::Code::TooManyDiagnostics.into());
    assert!(last.message.contains("4000"), "{}", last.message);
}

#[test]
fn a_long_text_of_another_kind_yields_one_error() {
    let text = "?\n".repeat(1 << 20);
    let parsed = parse(&text, "p.toml");
    assert_eq!(parsed.diagnostics.len(), 1);
}

#[test]
fn deep_nesting_is_refused() {
    let text = format!("a = {}", "[".repeat(100_000));
    assert!(parse(&text, "p.toml").policy.is_none());
}
