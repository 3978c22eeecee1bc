//! Packets wait for neighbours that nobody has told of, and what they opened meanwhile is right afterwards.

use dataplane::hop::{MOST_ASKED, MOST_EACH, MOST_WAITING, Resolve, Wanted};
use dataplane::replay::Way;
use dataplane::tables::{Address, LOCAL, Neighbour};
use dataplane::{Reason, Verdict};
use wire::build::{Icmp, Packet};
use wire::ethernet::Mac;
use wire::header::Fragment;
use wire::tcp::Flags;
use wire::{PortId, icmpv4, icmpv6};

use crate::scene::check::Seen;
use crate::scene::pair::{Pair, link, tcp, v4, v6};
use crate::scene::{Gateway, Out, tables};

const LAN: PortId = PortId(0);
const WAN: PortId = PortId(1);

const POLICY: &str = r#"
[interface.lan]
zone = "lan"
addresses = ["192.168.1.1/24", "2001:db8:1::1/64"]
[interface.wan]
zone = "wan"
addresses = ["203.0.113.2/24", "2001:db8:ffff::2/64"]
mtu = 1280
[default]
"wan > lan" = "reject"
[[route]]
to = "0.0.0.0/0"
via = "203.0.113.1"
[[route]]
to = "::/0"
via = "2001:db8:ffff::1"
[[neighbour]]
interface = "lan"
address = "192.168.1.9"
mac = "02:00:00:00:09:09"
[[nat]]
name = "out"
kind = "masquerade"
to = "wan"
source = "192.168.1.0/24"
ports = "4000-4003"
[[rule]]
name = "limited"
from = "lan"
to = "wan"
protocol = "tcp"
rate = "1/minute burst 2"
connections = 2
action = "accept"
[[rule]]
name = "rest"
from = "lan"
to = "wan"
action = "accept"
[[rule]]
name = "in"
from = "wan"
to = "lan"
protocol = "udp"
dport = "9-10"
action = "accept"
"#;

const HOST: [u8; 4] = [192, 168, 1, 5];
const FAR: [u8; 4] = [8, 8, 8, 8];
const OUTSIDE: [u8; 4] = [203, 0, 113, 2];
const ROUTER: Wanted = Wanted { interface: WAN, address: Address::v4(0xcb00_7101) };
const INSIDE: Wanted = Wanted { interface: LAN, address: Address::v4(0xc0a8_0105) };
const ROUTER_MAC: Mac = Mac([2, 0, 0, 0, 1, 1]);
const HOST_MAC: Mac = Mac([2, 0, 0, 0, 5, 5]);

/// A gateway that knows nobody but the policy's neighbour.
fn pair() -> Pair {
    Pair::resolved_by_host(POLICY)
}

/// One that knows the router and a host inside.
fn known() -> Pair {
    let mut pair = pair();
    pair.learn(ROUTER, ROUTER_MAC);
    pair.learn(INSIDE, HOST_MAC);
    pair
}

/// Returns the destination MAC addresses of the frames sent.
fn to(out: &Out) -> Vec<&[u8]> {
    out.sent.iter().map(|sent| &sent.bytes[..6]).collect()
}

fn rule(pair: &Pair, place: usize) -> u64 {
    pair.shard().counters.rules[place].frames
}

#[test]
fn packets_of_a_new_flow_wait_and_leave_in_their_order() {
    let mut pair = pair();
    for data in ["one", "two", "three"] {
        pair.waits(LAN, &v4(HOST, FAR).udp(1_000, 53).payload(data.as_bytes()));
    }
    pair.waits(LAN, &v4([192, 168, 1, 6], FAR).udp(1_000, 53));
    assert_eq!(pair.wanted(), [ROUTER], "asked once");
    assert_eq!(pair.wanted(), [], "and told of once");
    assert_eq!((pair.shard().flows.len(), pair.shard().counters.held, rule(&pair, 1)), (2, 4, 0));
    let out = pair.learn(ROUTER, ROUTER_MAC);
    assert_eq!(to(&out), [&ROUTER_MAC.0; 4]);
    let data: Vec<&[u8]> = out.sent.iter().map(|sent| &sent.bytes[42..]).collect();
    assert_eq!(data, [&b"one"[..], b"two", b"three", b""]);
    assert!(out.sent.iter().all(|sent| Seen::of(&sent.bytes).unwrap().source == 0xcb00_7102));
    assert_eq!((pair.shard().counters.held, rule(&pair, 1)), (0, 4));
    assert_eq!((pair.shard().flows.len(), pair.shard().mappings.iter().count()), (2, 2));
    // It goes on at once.
    pair.forwarded(LAN, &v4(HOST, FAR).udp(1_000, 53));
}

/// Also when they come free together with a batch.
#[test]
fn what_came_free_goes_before_the_next_batch() {
    let mut pair = pair();
    pair.waits(LAN, &v4(HOST, FAR).udp(1_000, 53).payload(b"first"));
    pair.do_both(|gateway| gateway.learn(ROUTER, ROUTER_MAC));
    assert_eq!((pair.shard().counters.held, pair.shard().hops.held()), (1, 0));
    let out = pair.receive(LAN, &v4(HOST, FAR).udp(1_000, 53).payload(b"second"));
    assert_eq!((&out.sent[0].bytes[42..], &out.sent[1].bytes[42..]), (&b"first"[..], &b"second"[..]));
}

#[test]
fn a_connection_whose_packets_wait_is_tracked_and_limited_once() {
    let mut pair = pair();
    let syn = |sport| tcp(v4(HOST, FAR), [sport, 443], 7, 0, Flags::SYN);
    pair.waits(LAN, &syn(1_000));
    pair.waits(LAN, &syn(1_000));
    pair.waits(LAN, &syn(1_001));
    assert_eq!(pair.fate(LAN, &syn(1_002)), Verdict::Dropped(Reason::RateLimit));
    let out = pair.learn(ROUTER, ROUTER_MAC);
    assert_eq!((out.sent.len(), rule(&pair, 0), pair.shard().flows.len()), (3, 4, 2));
    pair.learn(INSIDE, HOST_MAC);
    let port = u16::from_be_bytes(out.sent[0].bytes[34..36].try_into().unwrap());
    pair.forwarded(WAN, &tcp(v4(FAR, OUTSIDE), [443, port], 20, 8, Flags::SYN_ACK));
    pair.forwarded(LAN, &tcp(v4(HOST, FAR), [1_000, 443], 8, 21, Flags::ACK));
    // Both are given back when they end.
    pair.now += 120_000;
    pair.do_both(|gateway| gateway.shard.clear_flows());
    assert_eq!(pair.shard().mappings.iter().count(), 0);
    pair.forwarded(LAN, &syn(1_003));
    pair.forwarded(LAN, &syn(1_004));
    let flows = pair.shard().flows.len();
    assert_eq!((flows, pair.fate(LAN, &syn(1_005))), (2, Verdict::Dropped(Reason::RateLimit)));
}

/// A reset that waits behind data does not make the data late for its connection.
#[test]
fn what_waits_is_tracked_in_the_order_in_which_it_came() {
    let mut pair = known();
    pair.forwarded(LAN, &tcp(v4(HOST, FAR), [1_000, 443], 7, 0, Flags::SYN));
    pair.forwarded(WAN, &tcp(v4(FAR, OUTSIDE), [443, 4_000], 20, 8, Flags::SYN_ACK));
    pair.forwarded(LAN, &tcp(v4(HOST, FAR), [1_000, 443], 8, 21, Flags::ACK));
    pair.do_both(|gateway| gateway.forget(ROUTER));
    pair.waits(LAN, &tcp(v4(HOST, FAR), [1_000, 443], 8, 21, Flags::ACK).payload(b"last words"));
    pair.waits(LAN, &tcp(v4(HOST, FAR), [1_000, 443], 18, 21, Flags::RST));
    assert_eq!(pair.learn(ROUTER, ROUTER_MAC).sent.len(), 2);
}

#[test]
fn flows_wait_for_neighbours_that_are_forgotten() {
    let mut pair = known();
    pair.forwarded(LAN, &v4(HOST, FAR).udp(1_000, 53));
    pair.forwarded(WAN, &v4(FAR, OUTSIDE).udp(53, 4_000));
    pair.do_both(|gateway| gateway.forget(ROUTER));
    pair.do_both(|gateway| gateway.forget(INSIDE));
    pair.waits(LAN, &v4(HOST, FAR).udp(1_000, 53));
    pair.waits(WAN, &v4(FAR, OUTSIDE).udp(53, 4_000));
    assert_eq!(pair.wanted(), [ROUTER, INSIDE]);
    let moved = Mac([2, 0, 0, 0, 5, 6]);
    assert_eq!(to(&pair.learn(INSIDE, moved)), [&moved.0]);
    assert_eq!(to(&pair.learn(ROUTER, ROUTER_MAC)), [&ROUTER_MAC.0]);
    let sent = pair.forwarded(WAN, &v4(FAR, OUTSIDE).udp(53, 4_000));
    assert_eq!(sent[..6], moved.0);
}

/// The first packet that comes back may find that its neighbour is unknown, too.
#[test]
fn answers_wait_for_those_who_asked() {
    let mut pair = pair();
    pair.learn(ROUTER, ROUTER_MAC);
    pair.forwarded(LAN, &v4(HOST, FAR).udp(1_000, 53));
    pair.waits(WAN, &v4(FAR, OUTSIDE).udp(53, 4_000));
    let error = Icmp { kind: icmpv4::Type::TIME_EXCEEDED.0, code: 0, rest: [0; 4] };
    let quote = v4(OUTSIDE, FAR).udp(4_000, 53).to_vec();
    pair.waits(WAN, &v4([203, 0, 113, 1], OUTSIDE).icmpv4(error).payload(&quote[14..]));
    assert_eq!(pair.wanted(), [INSIDE], "the host inside, not the outside address");
    let out = pair.learn(INSIDE, HOST_MAC);
    assert_eq!(to(&out), [&HOST_MAC.0; 2]);
    assert!(out.sent.iter().all(|sent| Seen::of(&sent.bytes).unwrap().destination == 0xc0a8_0105));
}

/// Says of the one frame that left that it tells that the host is unreachable.
fn is_told_unreachable(out: &Out, from: &str, asked: &Packet<'_>) {
    let [sent] = out.sent.as_slice() else { panic!("{out:?}") };
    assert_eq!(sent.verdict, Some(Verdict::Answered(Reason::NeighbourUnknown)));
    let (seen, sender) = (Seen::of(&sent.bytes).unwrap(), Seen::of(&asked.to_vec()).unwrap().source);
    assert_eq!((seen.destination, seen.transport_is_right), (sender, Some(true)));
    let quote = asked.to_vec()[14..].to_vec();
    let error = if from.contains(':') {
        let error = Icmp { kind: icmpv6::Type::DESTINATION_UNREACHABLE.0, code: 3, rest: [0; 4] };
        v6(from, "2001:db8:beef::1").icmpv6(error).payload(&quote).to_vec()
    } else {
        let error = Icmp { kind: icmpv4::Type::DESTINATION_UNREACHABLE.0, code: 1, rest: [0; 4] };
        v4(OUTSIDE, FAR).icmpv4(error).payload(&quote).to_vec()
    };
    let at = if from.contains(':') { 54 } else { 34 };
    assert_eq!(sent.bytes[at..], error[at..], "it quotes what was sent");
}

#[test]
fn who_calls_a_host_that_is_not_there_is_told() {
    let mut pair = pair();
    pair.learn(ROUTER, ROUTER_MAC);
    let call = v4(FAR, HOST).udp(1_000, 9).payload(b"are you there?");
    // The host says so.
    pair.waits(WAN, &call);
    assert_eq!(pair.wanted(), [INSIDE]);
    pair.do_both(|gateway| gateway.unreachable(INSIDE));
    is_told_unreachable(&pair.tend(0), "203.0.113.2", &call);
    // It says nothing, and no frame comes.
    pair.waits(WAN, &call);
    assert_eq!(pair.wanted(), [INSIDE], "it is asked for again");
    assert_eq!(pair.tend(2_000), Out::default());
    is_told_unreachable(&pair.tend(1_125), "203.0.113.2", &call);
    // It says nothing, and other frames come.
    pair.waits(WAN, &call);
    pair.now += 3_125;
    is_told_unreachable(&pair.receive(WAN, &v4(FAR, OUTSIDE).udp(1, 2)), "203.0.113.2", &call);
    // Errors are not answered.
    let quote = v4(HOST, FAR).udp(9, 1_000).to_vec();
    let error = Icmp { kind: icmpv4::Type::TIME_EXCEEDED.0, code: 0, rest: [0; 4] };
    pair.waits(WAN, &v4(FAR, HOST).icmpv4(error).payload(&quote[14..]));
    let ended = pair.tend(3_125).ended;
    assert_eq!(ended[0].1, Verdict::Dropped(Reason::NeighbourUnknown));
}

#[test]
fn so_it_is_with_ipv6() {
    let mut pair = pair();
    let router = "2001:db8:ffff::1".parse::<std::net::IpAddr>().unwrap();
    let call = v6("2001:db8:beef::1", "2001:db8:1::5").udp(1_000, 9).payload(b"are you there?");
    pair.waits(WAN, &call);
    let host = "2001:db8:1::5".parse::<std::net::IpAddr>().unwrap();
    assert_eq!(pair.wanted(), [Wanted { interface: LAN, address: host.into() }]);
    // Nobody knows the way back either: it is asked for, but the answer does not wait.
    let ended = pair.tend(3_125).ended;
    assert_eq!(ended[0].1, Verdict::Dropped(Reason::NeighbourUnknown));
    let router = Wanted { interface: WAN, address: router.into() };
    assert_eq!(pair.wanted(), [router]);
    pair.learn(router, ROUTER_MAC);
    pair.waits(WAN, &call);
    is_told_unreachable(&pair.tend(3_125), "2001:db8:ffff::2", &call);
}

#[test]
fn the_gateway_itself_waits_and_is_told_like_others() {
    let mut pair = pair();
    pair.waits(LOCAL, &v4(OUTSIDE, FAR).ttl(1).udp(1_000, 53));
    let out = pair.learn(ROUTER, ROUTER_MAC);
    assert_eq!((to(&out), Seen::of(&out.sent[0].bytes).unwrap().ttl), (vec![&ROUTER_MAC.0[..]], 1));
    assert_eq!(pair.fate(WAN, &v4(FAR, OUTSIDE).udp(53, 1_000)), Verdict::Delivered);
    pair.waits(LOCAL, &v4([192, 168, 1, 1], HOST).udp(1_000, 53));
    let out = pair.tend(3_125);
    assert_eq!(out.local[0].verdict, Verdict::Answered(Reason::NeighbourUnknown));
    assert_eq!(Seen::of(&out.local[0].bytes).unwrap().destination, 0xc0a8_0101);
}

#[test]
fn nobody_is_asked_for_the_sake_of_what_may_not_pass() {
    let mut pair = pair();
    pair.learn(ROUTER, ROUTER_MAC);
    let out = pair.receive(WAN, &v4(FAR, HOST).udp(1_000, 11));
    assert_eq!(out.sent[0].verdict, Some(Verdict::Answered(Reason::DefaultReject)));
    let out = pair.receive(WAN, &v4(FAR, HOST).ttl(1).udp(1_000, 9));
    assert_eq!(out.sent[0].verdict, Some(Verdict::Answered(Reason::TtlExpired)));
    assert_eq!((pair.wanted(), pair.shard().flows.len()), (vec![], 0));
    // The policy's own neighbours are known, whatever is said of them.
    let named = Wanted { interface: LAN, address: Address::v4(0xc0a8_0109) };
    pair.do_both(|gateway| gateway.forget(named));
    pair.do_both(|gateway| gateway.unreachable(named));
    pair.learn(named, HOST_MAC);
    let sent = pair.forwarded(WAN, &v4(FAR, [192, 168, 1, 9]).udp(1_000, 9));
    assert_eq!(sent[..6], [2, 0, 0, 0, 9, 9]);
}

#[test]
fn where_nothing_is_tracked_packets_wait_too() {
    let text = POLICY.split("[[nat]]").next().unwrap();
    let mut pair = Pair::resolved_by_host(&format!(
        "mode = \"stateless\"\n{text}[[rule]]\nname = \"few\"\nfrom = \"lan\"\nrate = \"1/minute burst 3\"\n\
         action = \"accept\"\n"
    ));
    let packets = [1, 2, 3].map(|sport| (LAN, v4(HOST, FAR).udp(sport, 53)));
    assert_eq!(pair.receive_all(&packets), Out::default());
    assert_eq!(pair.learn(ROUTER, ROUTER_MAC).sent.len(), 3, "limits are charged once");
    assert_eq!(pair.fate(LAN, &v4(HOST, FAR).udp(4, 53)), Verdict::Dropped(Reason::RateLimit));
    pair.do_both(|gateway| gateway.forget(ROUTER));
    pair.now += 180_000;
    pair.waits(LAN, &v4(HOST, FAR).udp(1, 53));
    pair.learn(INSIDE, HOST_MAC);
    // Among frames that come later, too.
    pair.now += 3_125;
    let out = pair.receive_all(&packets);
    assert_eq!(out.sent.len(), 1, "{out:?}");
    assert_eq!(out.sent[0].verdict, Some(Verdict::Answered(Reason::NeighbourUnknown)));
}

/// An ICMP error quotes what waited in vain as it came; what goes on is metered and counted once, by its own code point.
#[test]
fn what_waits_is_metered_once_and_marked_when_it_leaves() {
    let classes = "[[class]]\nname = \"low\"\ndscp = \"cs1\"\nmark = \"ef\"\nmeter = \"few\"\n\
                   [[class]]\nname = \"rest\"\nmark = \"af11\"\n\
                   [[meter]]\nname = \"few\"\nrate = \"1 packets/s\"\nburst = 2\n";
    for mode in ["", "mode = \"stateless\"\n"] {
        let interfaces = POLICY.split("[[nat]]").next().unwrap();
        let accept = "[[rule]]\nname = \"all\"\nfrom = \"lan\"\naction = \"accept\"\n";
        let mut pair = Pair::resolved_by_host(&format!("{mode}{interfaces}{accept}{classes}"));
        let low = |sport| v4(HOST, FAR).ds_field(8 << 2 | 1).udp(sport, 53);
        for sport in [1, 2] {
            pair.waits(LAN, &low(sport));
        }
        assert_eq!(pair.fate(LAN, &low(3)), Verdict::Dropped(Reason::Policed));
        let out = pair.learn(ROUTER, ROUTER_MAC);
        let fields: Vec<u8> = out.sent.iter().map(|sent| sent.bytes[15]).collect();
        assert_eq!(fields, [46 << 2 | 1; 2], "{mode}");
        let low_count = pair.shard().counters.classes[0];
        assert_eq!(
            (low_count.traffic.frames, low_count.colours, pair.shard().counters.classes[1].traffic.frames),
            (3, [2, 0, 1], 0)
        );
        // In vain: what is quoted has the code point that it came with.
        pair.do_both(|gateway| gateway.forget(ROUTER));
        pair.learn(INSIDE, HOST_MAC);
        pair.now += 180_000;
        pair.waits(LAN, &low(1));
        pair.now += 3_125;
        let out = pair.receive(LAN, &low(9));
        let error =
            out.sent.iter().find(|sent| sent.verdict == Some(Verdict::Answered(Reason::NeighbourUnknown)));
        // Ethernet, IP, ICMP, and of the packet quoted the second byte.
        assert_eq!(error.map(|error| error.bytes[14 + 20 + 8 + 1]), Some(8 << 2 | 1), "{mode}");
    }
}

#[test]
fn fragments_wait_for_their_first_and_then_for_the_neighbour() {
    let mut pair = pair();
    let datagram = v4(HOST, FAR).udp(1_000, 53).payload(&[7; 92]).to_vec();
    let part = |offset: u16, more: bool, len: usize| {
        let fragment = Fragment { id: 5, offset, more };
        let begin = 34 + usize::from(offset);
        let data = datagram[begin..begin + len].to_vec();
        v4(HOST, FAR).fragment(fragment).protocol(wire::header::Protocol::UDP).payload(data.leak())
    };
    assert_eq!(pair.receive(LAN, &part(48, false, 52)), Out::default());
    assert_eq!(pair.shard().fragments.held(), 1);
    assert_eq!(pair.receive(LAN, &part(0, true, 48)), Out::default());
    assert_eq!((pair.shard().fragments.held(), pair.shard().hops.held()), (0, 2));
    let out = pair.learn(ROUTER, ROUTER_MAC);
    let lens: Vec<usize> = out.sent.iter().map(|sent| sent.bytes.len()).collect();
    assert_eq!((lens, pair.shard().flows.len()), (vec![34 + 48, 34 + 52], 1));
    assert!(out.sent.iter().all(|sent| Seen::of(&sent.bytes).unwrap().source == 0xcb00_7102));
}

#[test]
fn what_is_too_big_is_found_so_when_the_neighbour_is_known() {
    let mut pair = pair();
    pair.learn(INSIDE, HOST_MAC);
    pair.waits(LAN, &v4(HOST, FAR).udp(1_000, 53).payload(&[0; 1_400]));
    pair.waits(LAN, &v4(HOST, FAR).dont_fragment().udp(1_000, 53).payload(&[0; 1_400]));
    let out = pair.learn(ROUTER, ROUTER_MAC);
    let verdicts: Vec<_> = out.sent.iter().map(|sent| (sent.port, sent.verdict)).collect();
    let too_big = Verdict::Answered(Reason::PacketTooBig);
    assert_eq!(verdicts, [(0, Some(too_big)), (1, Some(Verdict::Forwarded)), (1, None)]);
}

/// Packets from outside to so many hosts inside.
fn scan(hosts: std::ops::Range<u32>) -> Vec<(PortId, Packet<'static>)> {
    let to = |host: u32| std::net::Ipv6Addr::from_bits(0x2001_0db8_0001 << 80 | u128::from(host + 0x100));
    let from = "2001:db8:beef::1".parse().unwrap();
    hosts.map(|host| (WAN, link().ipv6(from, to(host)).udp(1_000, 9))).collect()
}

#[test]
fn as_many_wait_as_there_is_room_for() {
    let mut pair = pair();
    pair.waits(LAN, &v4(HOST, FAR).udp(1_000, 53));
    for _ in 1..MOST_EACH {
        pair.waits(LAN, &v4(HOST, FAR).udp(1_000, 53));
    }
    let full = Verdict::Dropped(Reason::NeighbourQueueFull);
    assert_eq!(pair.fate(LAN, &v4(HOST, FAR).udp(1_000, 53)), full);
    pair.wanted();
    // Of neighbours, those that have been asked for longest give way: here with all that waits for the router.
    let mut ended = 0;
    for batch in scan(0..MOST_ASKED as u32).chunks(64) {
        let out = pair.receive_all(batch);
        assert!(out.ended.iter().all(|(_, verdict)| *verdict == full));
        ended += out.ended.len();
    }
    assert_eq!((ended, pair.wanted().len()), (MOST_EACH as usize, MOST_ASKED));
    assert_eq!(pair.shard().hops.held() as usize, MOST_ASKED);
    // Of frames likewise.
    for _ in 0..20 {
        pair.receive_all(&scan(100..164));
    }
    assert_eq!(pair.shard().hops.held(), MOST_WAITING);
    let out = pair.tend(3_125);
    assert_eq!((out.ended.len(), pair.shard().hops.held()), (MOST_WAITING as usize, 0));
    assert_eq!((pair.wanted().len(), pair.shard().counters.held), (1, 0), "only the way back to who called");
}

/// Neighbours come and go for years, and numbers are given again: no flow has one of another neighbour then.
#[test]
fn numbers_of_neighbours_that_are_gone_are_given_again() {
    let slots = 160 + 64 + MOST_WAITING;
    let text = format!("{POLICY}[limit.fragments]\nheld = 64\n");
    let gateways = [Way::Run, Way::Step].map(|way| Gateway::with(tables(&text), way, slots, Resolve::ByHost));
    let mut pair = Pair::of(gateways);
    pair.learn(ROUTER, ROUTER_MAC);
    pair.learn(INSIDE, HOST_MAC);
    pair.forwarded(LAN, &v4(HOST, FAR).udp(1_000, 53));
    pair.forwarded(WAN, &v4(FAR, OUTSIDE).udp(53, 4_000));
    pair.do_both(|gateway| gateway.forget(INSIDE));
    pair.do_both(|gateway| {
        for host in 0..200_000_u32 {
            let address = Address::v6(0x2001_0db8_0001 << 80 | u128::from(host));
            let wanted = Wanted { interface: LAN, address };
            gateway.learn(wanted, Mac([4, 0, 0, 0, 0, 0]));
            gateway.forget(wanted);
        }
    });
    pair.waits(WAN, &v4(FAR, OUTSIDE).udp(53, 4_000));
    assert_eq!(to(&pair.learn(INSIDE, HOST_MAC)), [&HOST_MAC.0]);
    assert_eq!(pair.forwarded(LAN, &v4(HOST, FAR).udp(1_000, 53))[..6], ROUTER_MAC.0);
    // Only when as many are known there is no room.
    pair.do_both(|gateway| {
        let learnt = (0..70_000_u32).filter(|host| {
            let address = Address::v6(0x2001_0db8_0001 << 80 | u128::from(*host));
            gateway.shard.update_neighbour(&gateway.tables, LAN, address, HOST_MAC).is_ok()
        });
        assert_eq!(learnt.count(), 65_535);
    });
}

/// After a reload all neighbours are updated anew, and hops may have other numbers.
#[test]
fn all_is_told_anew() {
    let mut pair = known();
    pair.forwarded(WAN, &v4(FAR, HOST).udp(1_000, 9));
    pair.do_both(|gateway| gateway.forget(ROUTER));
    pair.waits(LAN, &v4(HOST, FAR).udp(1_000, 53));
    let moved = Mac([2, 0, 0, 0, 5, 6]);
    pair.do_both(|gateway| {
        gateway.shard.clear_flows();
        let tables = gateway.tables.clone();
        let of =
            |wanted: Wanted, mac| Neighbour { interface: wanted.interface, address: wanted.address, mac };
        gateway.shard.replace_neighbours(&tables, &[of(INSIDE, moved), of(ROUTER, ROUTER_MAC)]).unwrap();
    });
    assert_eq!(to(&pair.tend(0)), [&ROUTER_MAC.0]);
    assert_eq!(pair.forwarded(WAN, &v4(FAR, HOST).udp(1_000, 9))[..6], moved.0);
    pair.do_both(|gateway| gateway.shard.replace_neighbours(&gateway.tables, &[]).unwrap());
}
