//! The DiffServ router of Lin et al. (ICDCS Workshops 2003), section 4.1.1: 500 flows that match 500 rules, each with a bandwidth of
//! its own of 148 packets a second, half of what a port of 100 Mbit/s carries (claim D9): meters at the ingress, the paper's queues and
//! fair queueing at the egress, and both together.

use dataplane::replay::{Way, Witness};
use dataplane::{Reason, Replay, Tables, Verdict};
use policy::model::Colour;
use wire::build;
use wire::ethernet::Mac;
use wire::{Frame, Nanos, PortId};

const FLOWS: u64 = 500;
const RATE: u64 = 148;
/// Packets that a flow may send at once.
const BURST: u64 = 2;
const START: Nanos = Nanos::from_secs(1_700_000_000);
const SECONDS: u64 = 2;

/// Meters of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meters {
    None,
    OfEach,
}

/// A stateless edge router, as the paper's: a class for each flow, found by ranges of several fields, perhaps with a meter; and queues
/// before a port of 100 Mbit/s, or none.
fn router(meters: Meters, queues: &str) -> Replay {
    let rate = if queues.is_empty() { "" } else { "rate = \"100 Mbit/s\"\n" };
    let mut text = format!(
        "mode = \"stateless\"\n[classifier]\nalgorithm = \"range_match\"\n\
         [interface.lan]\nzone = \"lan\"\naddresses = [\"10.0.0.1/16\"]\n\
         [interface.wan]\nzone = \"wan\"\naddresses = [\"203.0.113.2/24\"]\n{rate}\
         [[route]]\nto = \"0.0.0.0/0\"\nvia = \"203.0.113.1\"\n[default]\n\"lan > wan\" = \"accept\"\n{queues}",
    );
    for flow in 0..FLOWS {
        let (a, b) = (flow / 250 + 1, flow % 250 + 1);
        text.push_str(&format!(
            "[[class]]\nname = \"flow-{flow}\"\nfrom = \"lan\"\nsource = \"10.0.{a}.{b}\"\nprotocol = \"udp\"\n\
             dport = \"{}-{}\"\nmark = \"af11\"\n",
            5_000 + flow,
            5_003 + flow,
        ));
        if meters == Meters::OfEach {
            text.push_str(&format!(
                "meter = \"meter-{flow}\"\n\
                 [[meter]]\nname = \"meter-{flow}\"\nkind = \"leaky-bucket\"\nrate = \"{RATE} packets/s\"\nburst = {BURST}\n",
            ));
        }
    }
    let checked = policy::check(&text, "edge.toml");
    let policy = checked.policy.unwrap_or_else(|| panic!("{:?}", checked.diagnostics));
    let tables = Tables::compile(&policy, 1).expect("the policy compiles");
    Replay::new(tables, START, Way::Run).expect("there is memory")
}

/// Sends packets of 64 bytes for some seconds, evenly: flow `n` as many a second as `rate` says. Returns the packets offered.
fn offer(router: &mut Replay, rate: impl Fn(u64) -> u64) -> Vec<u64> {
    offer_to(router, rate, &mut ())
}

/// [`offer`], to a witness of departures.
fn offer_to(router: &mut Replay, rate: impl Fn(u64) -> u64, witness: &mut impl Witness) -> Vec<u64> {
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
        router.receive(PortId(0), START + Nanos(at), number, &bytes, witness);
        offered[flow as usize] += 1;
    }
    router.finish(witness);
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
    let mut router = router(Meters::OfEach, "");
    let offered = offer(&mut router, |_| RATE);
    assert_eq!(passed(&router, &offered), offered);
}

/// Every other flow sends three times as much as it may: it is held to its bandwidth, and the others keep theirs.
#[test]
fn flows_beyond_their_bandwidth_take_nothing_from_others() {
    let mut router = router(Meters::OfEach, "");
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

/// Departures by flow, and those within the seconds of the offer; the longest delay.
#[derive(Default)]
struct Departures {
    all: Vec<u64>,
    by_flow: Vec<u64>,
    most_delay: u64,
    dropped: u64,
}

impl Witness for Departures {
    fn sent(&mut self, _: PortId, at: Nanos, frame: &Frame, _: Option<Verdict>) {
        let flow = usize::from(u16::from_be_bytes([frame.bytes()[36], frame.bytes()[37]])) - 5_001;
        self.all.resize(FLOWS as usize, 0);
        self.by_flow.resize(FLOWS as usize, 0);
        self.all[flow] += 1;
        if at < START + Nanos::from_secs(SECONDS) {
            self.by_flow[flow] += 1;
        }
        self.most_delay = self.most_delay.max(at.since(frame.meta.received).0);
    }

    fn ended(&mut self, _: &Frame, _: Verdict) {
        self.dropped += 1;
    }
}

const EDGE: &str = "[[queue]]\nname = \"edge\"\non = \"wan\"\noverhead = 38\ntemplate = \"diffserv\"\n";

/// Half of the port's load: the whole router, its meters and the paper's six queues, delivers each flow's 148 packets a second.
#[test]
fn the_whole_router_delivers_half_a_load() {
    for meters in [Meters::OfEach, Meters::None] {
        let (mut router, mut departures) = (router(meters, EDGE), Departures::default());
        let offered = offer_to(&mut router, |_| RATE, &mut departures);
        assert_eq!((departures.dropped, offered.iter().sum::<u64>()), (0, FLOWS * RATE * SECONDS));
        // The last packets may be on their way at the end.
        for (departed, offered) in departures.by_flow.iter().zip(&offered) {
            assert!((offered - 1..=*offered).contains(departed), "{departed} of {offered}");
        }
        // Phases differ: no packet meets more than a few others. One takes 6.72 us.
        assert!(departures.most_delay < 100_000, "{} ns", departures.most_delay);
    }
}

/// Every other flow sends six times as much, 1.7 times what the port carries. With meters that is held off before the queues; without,
/// fair queueing lets those that send their share keep it, and the others divide the rest evenly.
#[test]
fn the_whole_router_protects_flows_from_an_overload() {
    let fair = "[[queue]]\nname = \"edge\"\non = \"wan\"\noverhead = 38\nscheduler = \"fq\"\nflows = 4096\nlimit = 4096\n";
    for (meters, queues) in [(Meters::OfEach, EDGE), (Meters::None, fair)] {
        let (mut router, mut departures) = (router(meters, queues), Departures::default());
        let offered =
            offer_to(&mut router, |flow| if flow % 2 == 0 { RATE } else { 6 * RATE }, &mut departures);
        let seconds = SECONDS as f64;
        for (flow, departed) in departures.by_flow.iter().enumerate() {
            if flow % 2 == 0 {
                assert_eq!(departures.all[flow], offered[flow], "{meters:?} {flow}");
                continue;
            }
            let rate = *departed as f64 / seconds;
            let due = match meters {
                Meters::OfEach => RATE as f64,
                // 100 Mbit/s are 148,810 packets of 46 bytes of IP, with 38; half of the flows leave the rest to 250.
                Meters::None => (100e6 / 8.0 / 84.0 - 250.0 * RATE as f64) / 250.0,
            };
            // A turn is 18 packets, of some 900.
            assert!((rate / due - 1.0).abs() < 0.05, "{meters:?} {flow}: {rate}, due {due}");
        }
        assert!(departures.dropped > 0);
    }
}
