//! Several WANs and many flows: a WAN that goes moves its own flows and no other's, weights hold, and flows keep their WAN over
//! changes of state and of memory, by run and by step alike.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use dataplane::replay::Way;
use dataplane::{Reason, Verdict};
use wire::ethernet::Mac;
use wire::{Nanos, PortId, build};

use crate::scene::{Arrival, Gateway, START};

const LAN: u16 = 0;
const WANS: u16 = 3;
pub(crate) const FLOWS: u16 = 2_000;

/// A policy without translation, so that flows may move; `keys` are those of each WAN.
fn policy(keys: [&str; 3], more: &str) -> String {
    let mut text = "[interface.lan]\nzone = \"lan\"\naddresses = [\"192.0.2.1/24\"]\n".to_owned();
    for number in 1..=WANS {
        text += &format!("[interface.wan{number}]\nzone = \"wan\"\naddresses = [\"10.0.{number}.2/24\"]\n");
    }
    for (number, keys) in (1..=WANS).zip(keys) {
        text +=
            &format!("[wan.w{number}]\ninterface = \"wan{number}\"\ngateway = \"10.0.{number}.1\"\n{keys}\n");
    }
    text + "[default]\n\"lan > wan\" = \"accept\"\n\"wan > lan\" = \"accept\"\n" + more
}

/// A packet of a flow, from inside.
fn packet(flow: u16) -> Vec<u8> {
    build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0x57, 0x52, 0, 0, 0]))
        .ipv4(Ipv4Addr::new(192, 0, 2, 7), Ipv4Addr::new(198, 51, 100, 7))
        .udp(1024 + flow, 53)
        .payload(b"ask")
        .to_vec()
}

/// Sends a packet of each flow from inside, and returns the port by which it left, by flow.
pub(crate) fn ask(gateway: &mut Gateway, at: Nanos) -> BTreeMap<u16, u16> {
    let mut left = BTreeMap::new();
    for batch in (0..FLOWS).collect::<Vec<u16>>().chunks(64) {
        let arrival =
            |flow: &u16| Arrival { port: PortId(LAN), at, number: u32::from(*flow), bytes: packet(*flow) };
        gateway.receive(&batch.iter().map(arrival).collect::<Vec<_>>());
        let out = gateway.out(usize::MAX);
        assert_eq!(out.ended, []);
        left.extend(out.sent.iter().map(|sent| (sent.number as u16, sent.port)));
    }
    assert_eq!(left.len(), usize::from(FLOWS));
    left
}

pub(crate) fn count(left: &BTreeMap<u16, u16>, port: u16) -> f64 {
    left.values().filter(|by| **by == port).count() as f64
}

#[test]
fn weights_hold_over_many_flows() {
    for mode in ["stateful", "stateless"] {
        let text = format!("mode = \"{mode}\"\n") + &policy(["weight = 5", "weight = 3", "weight = 2"], "");
        let [run, step] = [Way::Run, Way::Step].map(|way| ask(&mut Gateway::new(&text, way), START));
        assert_eq!(run, step);
        for (port, weight) in [(1, 0.5), (2, 0.3), (3, 0.2)] {
            let wanted = f64::from(FLOWS) * weight;
            assert!(
                (count(&run, port) - wanted).abs() < 0.15 * wanted,
                "{mode}, {port}: {}",
                count(&run, port)
            );
        }
    }
}

#[test]
fn a_wan_that_goes_moves_its_own_flows_and_no_other() {
    let down = "state = \"down\"";
    for mode in ["stateful", "stateless"] {
        let text = |keys: [&str; 3]| format!("mode = \"{mode}\"\n") + &policy(keys, "");
        for gone in 1..=WANS {
            let mut keys = ["weight = 5", "weight = 3", "weight = 2"];
            let mut gateway = Gateway::new(&text(keys), Way::Run);
            let before = ask(&mut gateway, START);
            let downed = format!("{}\n{down}", keys[usize::from(gone) - 1]);
            keys[usize::from(gone) - 1] = &downed;
            gateway.reload(&text(keys), START + Nanos::from_secs(1));
            let after = ask(&mut gateway, START + Nanos::from_secs(1));
            for (flow, was) in &before {
                if *was == gone {
                    assert_ne!(after[flow], gone, "{mode}: flow {flow}");
                } else {
                    assert_eq!(after[flow], *was, "{mode}: flow {flow}");
                }
            }
            // Back again: flows stay where they are, packets without flows return.
            gateway.reload(&text(["weight = 5", "weight = 3", "weight = 2"]), START + Nanos::from_secs(2));
            let back = ask(&mut gateway, START + Nanos::from_secs(2));
            assert_eq!(back, if mode == "stateful" { after } else { before });
        }
    }
}

/// Also where every flow is taken over into other memory, whose records it must have with it.
#[test]
fn flows_keep_their_wan_over_changes_of_weights_and_of_memory() {
    let keep = "on-failure = \"keep\"";
    let mut gateway = Gateway::new(&policy([keep, keep, keep], ""), Way::Run);
    let before = ask(&mut gateway, START);
    let downed = format!("{keep}\nstate = \"down\"");
    let heavy = format!("{keep}\nweight = 200");
    for (second, (keys, more)) in (1..).zip([
        ([&downed[..], &downed, &heavy], ""),
        ([&heavy[..], keep, &downed], "[limit]\nflows = 4096\n"),
        ([keep, keep, keep], "[limit]\nflows = 8192\n"),
    ]) {
        let at = START + Nanos::from_secs(second);
        gateway.reload(&policy(keys, more), at);
        assert_eq!(ask(&mut gateway, at), before);
    }
}

#[test]
fn with_none_up_new_flows_are_answered_and_kept_ones_go_on() {
    let keep = "on-failure = \"keep\"";
    let mut gateway = Gateway::new(&policy([keep, "", ""], ""), Way::Run);
    let before = ask(&mut gateway, START);
    let down = "state = \"down\"";
    let kept = format!("{keep}\n{down}");
    let at = START + Nanos::from_secs(1);
    gateway.reload(&policy([&kept, down, down], ""), at);
    for (flow, was) in before.iter().take(100) {
        gateway.receive(&[Arrival { port: PortId(LAN), at, number: 1, bytes: packet(*flow) }]);
        let out = gateway.out(usize::MAX);
        let expected = match was {
            1 => (1, Verdict::Forwarded),
            _ => (LAN, Verdict::Answered(Reason::RouteMissing)),
        };
        assert_eq!(
            out.sent.iter().map(|sent| (sent.port, sent.verdict)).collect::<Vec<_>>(),
            [(expected.0, Some(expected.1))]
        );
    }
}
