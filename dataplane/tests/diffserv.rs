//! The DiffServ router of Lin et al. (ICDCS Workshops 2003), section 4.1.1: 500 flows that match 500 rules, each with a bandwidth of
//! its own of 148 packets a second, half of what a port of 100 Mbit/s carries (claim D9).

use dataplane::replay::Way;
use dataplane::{Reason, Replay, Tables};
use policy::model::Colour;
use wire::build;
use wire::ethernet::Mac;
use wire::{Nanos, PortId};

const FLOWS: u64 = 500;
const RATE: u64 = 148;
/// Packets that a flow may send at once.
const BURST: u64 = 2;
const START: Nanos = Nanos::from_secs(1_700_000_000);
const SECONDS: u64 = 2;

/// A stateless edge router, as the paper's: a class with a meter for each flow, found by ranges of several fields.
fn router() -> Replay {
    let mut text = String::from(
        "mode = \"stateless\"\n[classifier]\nalgorithm = \"range_match\"\n\
         [interface.lan]\nzone = \"lan\"\naddresses = [\"10.0.0.1/16\"]\n\
         [interface.wan]\nzone = \"wan\"\naddresses = [\"203.0.113.2/24\"]\n\
         [[route]]\nto = \"0.0.0.0/0\"\nvia = \"203.0.113.1\"\n[default]\n\"lan > wan\" = \"accept\"\n",
    );
    for flow in 0..FLOWS {
        let (a, b) = (flow / 250 + 1, flow % 250 + 1);
        text.push_str(&format!(
            "[[class]]\nname = \"flow-{flow}\"\nfrom = \"lan\"\nsource = \"10.0.{a}.{b}\"\nprotocol = \"udp\"\n\
             dport = \"{}-{}\"\nmeter = \"meter-{flow}\"\nmark = \"af11\"\n\
             [[meter]]\nname = \"meter-{flow}\"\nkind = \"leaky-bucket\"\nrate = \"{RATE} packets/s\"\nburst = {BURST}\n",
            5_000 + flow,
            5_003 + flow,
        ));
    }
    let checked = policy::check(&text, "edge.toml");
    let policy = checked.policy.unwrap_or_else(|| panic!("{:?}", checked.diagnostics));
    let tables = Tables::compile(&policy, 1).expect("the policy compiles");
    Replay::new(tables, START, Way::Run).expect("there is memory")
}

/// Sends packets of 64 bytes for some seconds, evenly: flow `n` as many a second as `rate` says. Returns the packets offered.
fn offer(router: &mut Replay, rate: impl Fn(u64) -> u64) -> Vec<u64> {
    let mut arrivals: Vec<(u64, u64)> = Vec::new();
    for flow in 0..FLOWS {
        let rate = rate(flow);
        // Each with a phase of its own.
        let phase = flow * 1_000_000_000 / RATE / FLOWS;
        arrivals.extend((0..rate * SECONDS).map(|n| (phase + n * 1_000_000_000 / rate, flow)));
    }
    arrivals.sort_unstable();
    let mut offered = vec![0; FLOWS as usize];
    for (number, (at, flow)) in (0..).zip(arrivals) {
        let source = [10, 0, (flow / 250 + 1) as u8, (flow % 250 + 1) as u8];
        let bytes = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0x57, 0x52, 0, 0, 0]))
            .ipv4(source.into(), [198, 51, 100, 7].into())
            .udp(1_000, 5_001 + flow as u16)
            .payload(&[0; 18])
            .to_vec();
        router.receive(PortId(0), START + Nanos(at), number, &bytes, &mut ());
        offered[flow as usize] += 1;
    }
    router.finish(&mut ());
    offered
}

/// Packets that passed, by flow; all others were dropped by their meters.
fn passed(router: &Replay, offered: &[u64]) -> Vec<u64> {
    let counters = &router.shard.counters;
    let green: Vec<u64> =
        counters.classes.iter().map(|class| class.colours[Colour::Green as usize]).collect();
    assert_eq!(counters.received.frames, offered.iter().sum::<u64>());
    assert_eq!(counters.dropped(), counters.dropped_for(Reason::Policed));
    assert_eq!(counters.received.frames - counters.dropped(), green.iter().sum::<u64>());
    green
}

#[test]
fn flows_within_their_bandwidth_lose_nothing() {
    let mut router = router();
    let offered = offer(&mut router, |_| RATE);
    assert_eq!(passed(&router, &offered), offered);
}

/// Every other flow sends three times as much as it may: it is held to its bandwidth, and the others keep theirs.
#[test]
fn flows_beyond_their_bandwidth_take_nothing_from_others() {
    let mut router = router();
    let offered = offer(&mut router, |flow| if flow % 2 == 0 { RATE } else { 3 * RATE });
    for (flow, (passed, offered)) in passed(&router, &offered).into_iter().zip(offered).enumerate() {
        if flow % 2 == 0 {
            assert_eq!(passed, offered, "flow {flow}");
        } else {
            // What came within the time, and the burst, less what had not come when the last packets did.
            let most = RATE * SECONDS + BURST;
            assert!((most - 2..=most).contains(&passed), "flow {flow}: {passed} of {offered}");
        }
    }
}
