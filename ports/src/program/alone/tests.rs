#![allow(clippy::unwrap_used)]

use std::io;
use std::os::fd::AsFd;

use wire::build::{self, Tcp};
use wire::ethernet::{EtherType, Mac};
use wire::header::Protocol;
use wire::tcp::Flags;

use super::Fate::{Accept, Drop};
use super::*;
use crate::sys::bpf::tests::run_on;
use crate::sys::bpf::{self, Hook};

const HERE: &str = "10.0.0.1";
const HERE6: &str = "fd00::1";

fn alone(rules: &[SelfRule]) -> Alone {
    let own = [HERE, HERE6, "10.0.0.9"].map(|address| address.parse().unwrap());
    Alone { own: own.to_vec(), rules: rules.to_vec(), vlans: vec![20] }
}

fn ip(source: &str, destination: &str) -> build::Packet<'static> {
    let frame = build::ethernet(Mac([2; 6]), Mac([4; 6]));
    match (source.parse().unwrap(), destination.parse().unwrap()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => frame.ipv4(source, destination),
        (IpAddr::V6(source), IpAddr::V6(destination)) => frame.ipv6(source, destination),
        _ => panic!("of two versions"),
    }
}

fn tcp(source: &str, destination: &str, dport: u16, flags: u8) -> Vec<u8> {
    ip(source, destination).tcp(Tcp { sport: 40_000, dport, flags: Flags(flags), ..Tcp::default() }).to_vec()
}

fn udp(source: &str, destination: &str, sport: u16, dport: u16) -> Vec<u8> {
    ip(source, destination).udp(sport, dport).payload(b"hello").to_vec()
}

/// Fates of received frames under these rules; `None` if the kernel does not let us load programs.
fn fates(rules: &[SelfRule], frames: &[Vec<u8>]) -> Option<Vec<Fate>> {
    let made = bpf::program_array().and_then(|array| Ok((array, bpf::recent_map(ANSWER_KEY, 16)?)));
    let (array, answers) = match made {
        Ok(made) => made,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            eprintln!("SKIPPED: no programs may be loaded here: {error}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let program = ingress(array.as_fd(), answers.as_fd(), &alone(rules)).unwrap();
    let verdict = |frame: &Vec<u8>| match run_on(frame, Hook::TcxIngress, &program, 0).unwrap().0 {
        TCX_DROP => Drop,
        TCX_NEXT => Accept,
        other => panic!("{other}"),
    };
    Some(frames.iter().map(verdict).collect())
}

fn ranges(first: &str, last: &str) -> Vec<(IpAddr, IpAddr)> {
    vec![(first.parse().unwrap(), last.parse().unwrap())]
}

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

#[test]
fn without_rules_only_what_needs_none_comes_in() {
    let frames = [
        tcp("10.0.0.2", HERE, 22, SYN),
        udp("10.0.0.2", HERE, 53, 5000),
        ip("10.0.0.2", HERE).echo_request(1, 1).to_vec(),
        udp("10.0.0.2", HERE, 67, 68),
        udp("10.0.0.2", "255.255.255.255", 67, 68),
        udp("10.0.0.2", "10.0.0.77", 67, 68),
        udp("fe80::2", HERE6, 547, 546),
        build::ethernet(Mac([2; 6]), Mac([4; 6])).ethertype(EtherType(0x88cc)).payload(&[0; 50]).to_vec(),
    ];
    if let Some(fates) = fates(&[], &frames) {
        assert_eq!(fates, [Drop, Drop, Drop, Accept, Accept, Drop, Accept, Drop]);
    }
}

#[test]
fn the_first_rule_that_matches_decides_about_what_is_for_the_machine() {
    let rules = [
        SelfRule { sources: ranges("10.0.0.66", "10.0.0.66"), ..SelfRule::default() },
        SelfRule {
            fate: Accept,
            protocols: vec![6],
            dports: vec![(22, 22), (8000, 8080)],
            sources: [ranges("10.0.0.0", "10.0.0.255"), ranges("fd00::", "fd00::ff:0")].concat(),
            ..SelfRule::default()
        },
        SelfRule {
            fate: Accept,
            version: Some(Version::V6),
            icmp: vec![(128, Some(0))],
            ..SelfRule::default()
        },
        SelfRule {
            fate: Accept,
            destinations: ranges("10.0.0.9", "10.0.0.9"),
            sports: vec![(53, 53)],
            ..SelfRule::default()
        },
        SelfRule { fate: Accept, protocols: vec![89], ..SelfRule::default() },
    ];
    let frames = [
        (tcp("10.0.0.2", HERE, 22, SYN), Accept),
        (tcp("10.0.0.2", HERE, 8080, SYN), Accept),
        (tcp("10.0.0.2", HERE, 8081, SYN), Drop),
        (tcp("10.0.0.2", HERE, 22, ACK), Drop),
        (tcp("10.0.0.2", "10.0.0.3", 22, SYN), Drop),
        (tcp("10.0.0.66", HERE, 22, SYN), Drop),
        (tcp("10.0.1.2", HERE, 22, SYN), Drop),
        (tcp("fd00::fe:1", HERE6, 22, SYN), Accept),
        (tcp("fd00::ff:1", HERE6, 22, SYN), Drop),
        (tcp("fd00::2", "fd00::3", 22, SYN), Drop),
        (udp("10.0.0.2", HERE, 53, 22), Drop),
        (udp("10.0.0.2", "10.0.0.9", 53, 22), Accept),
        (ip("fd00::2", HERE6).echo_request(1, 1).to_vec(), Accept),
        (ip("10.0.0.2", HERE).echo_request(1, 1).to_vec(), Drop),
        (ip("10.0.0.2", "224.0.0.5").protocol(Protocol(89)).payload(&[0; 40]).to_vec(), Accept),
        (ip("10.0.0.2", "224.0.1.5").protocol(Protocol(89)).payload(&[0; 40]).to_vec(), Drop),
    ];
    let (frames, wanted): (Vec<_>, Vec<_>) = frames.into_iter().unzip();
    if let Some(fates) = fates(&rules, &frames) {
        assert_eq!(fates, wanted);
    }
}

#[test]
fn what_a_rule_accepts_at_a_pace_comes_once_in_that_time() {
    let pace = |scope| SelfRule {
        fate: Accept,
        pace: Some(Pace { interval: 1 << 40, scope }),
        ..SelfRule::default()
    };
    let frames = ["10.0.0.2", "10.0.0.2", "10.0.0.3"].map(|source| tcp(source, HERE, 22, SYN));
    for (scope, wanted) in [(Scope::Rule, [Accept, Drop, Drop]), (Scope::Source, [Accept, Drop, Accept])] {
        if let Some(fates) = fates(&[pace(scope)], &frames) {
            assert_eq!(fates, wanted, "{scope:?}");
        }
    }
}

#[test]
fn what_a_rule_drops_above_a_pace_goes_on_below_it() {
    let pace = |scope| SelfRule {
        fate: Drop,
        dports: vec![(22, 22)],
        pace: Some(Pace { interval: 1 << 40, scope }),
        ..SelfRule::default()
    };
    let ssh = SelfRule { fate: Accept, dports: vec![(22, 23)], ..SelfRule::default() };
    let ends = [("10.0.0.2", 22), ("10.0.0.2", 22), ("10.0.0.3", 22), ("10.0.0.2", 23), ("10.0.0.2", 24)];
    let frames = ends.map(|(source, port)| tcp(source, HERE, port, SYN));
    for (scope, third) in [(Scope::Rule, Drop), (Scope::Source, Accept)] {
        if let Some(fates) = fates(&[pace(scope), ssh.clone()], &frames) {
            assert_eq!(fates, [Accept, Drop, third, Accept, Drop], "{scope:?}");
        }
    }
}

#[test]
fn a_default_that_accepts_is_the_end_of_a_program() {
    let all = SelfRule { fate: Accept, ..SelfRule::default() };
    let frames = [udp("10.0.0.2", HERE, 1, 2), udp("10.0.0.2", "10.0.0.4", 1, 2)];
    if let Some(fates) = fates(&[all.clone(), all], &frames) {
        assert_eq!(fates, [Accept, Drop]);
    }
}

#[test]
fn many_rules_fit_and_too_many_are_refused() {
    let rule = SelfRule { fate: Accept, protocols: vec![6], dports: vec![(22, 22)], ..SelfRule::default() };
    let frames = [tcp("10.0.0.2", HERE, 23, SYN)];
    let many = vec![rule.clone(); 1_000];
    if let Some(fates) = fates(&many, &frames) {
        assert_eq!(fates, [Drop]);
    }
    let none = io::stdin();
    assert_eq!(ingress(none.as_fd(), none.as_fd(), &alone(&vec![rule; 10_000])), None);
}
