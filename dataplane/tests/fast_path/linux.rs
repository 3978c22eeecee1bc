//! Linux's kernel: the programs of the fast path, tried on each frame, as the carrier of a shard's flows.
//!
//! All interfaces are the kernel's first one here, which is all that a test run needs: a frame whose flow is published for another interface is not
//! tried. Time is the test's: the kernel's own is not that of the scene.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};

use dataplane::Verdict;
use dataplane::fast_path::{Account, Carried, Carrier, Published, Tag, Way};
use dataplane::flow::{Direction, Ends, FlowId, TcpSide};
use ports::{Entry, FastPath, Place, Trial, Tried, Tuple, Window};
use wire::ethernet::Mac;
use wire::header::Protocol;
use wire::{Nanos, PortId};

use super::{Kernel, Shared, in_turn, untagged};
use crate::scene::{Arrival, Sent};

/// Table and programs: loading them takes longer than most of what is tried.
pub(super) struct Programs {
    path: Arc<FastPath>,
    trial: Trial,
}

impl Programs {
    /// Loads the programs; `None`, with a message, if the kernel does not let us.
    pub(super) fn load() -> Option<Arc<Programs>> {
        let path = FastPath::open(4_096, [5, 6], ports::MARK).map(Arc::new);
        match path.and_then(|path| Ok(Programs { trial: Trial::new(path.clone())?, path })) {
            Ok(programs) => Some(Arc::new(programs)),
            Err(error) if error.error.kind() == std::io::ErrorKind::PermissionDenied => {
                eprintln!("SKIPPED: no programs may be loaded here: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// The kernel, carrying nothing yet.
    pub(super) fn kernel(self: &Arc<Programs>) -> Shared {
        let (index, flows) = (HashMap::new(), BTreeMap::new());
        Arc::new(Mutex::new(Linux { programs: self.clone(), index, flows, last: 0, carried: 0 }))
    }
}

struct Linux {
    programs: Arc<Programs>,
    /// Flow, direction and port of packets as they arrive, by ends and VLAN.
    index: HashMap<(Ends, u16), (FlowId, Direction, PortId)>,
    flows: BTreeMap<u32, Flow>,
    /// Number that the last flow in turn had.
    last: u32,
    carried: u64,
}

struct Flow {
    places: [Place; 2],
    ways: [Way; 2],
    tag: Tag,
    /// Account so far, per direction.
    before: [Carried; 2],
    /// Time of the last packet.
    seen: Option<Nanos>,
}

impl Kernel for Linux {
    fn carry(&mut self, arrival: &Arrival, own: Mac, is_behind: bool) -> Option<Sent> {
        let Programs { trial, .. } = &*self.programs;
        if !is_behind {
            trial.settle();
        }
        let known = untagged(&arrival.bytes).and_then(|(frame, vlan)| Some((ends(&frame)?, vlan)));
        let known = known.and_then(|key| self.index.get(&key).copied());
        if known.is_some_and(|(.., ingress)| ingress != arrival.port) {
            return None;
        }
        let mut frame = arrival.bytes.clone();
        if let Some((destination, _)) = frame.split_first_chunk_mut::<6>() {
            // The kernel's first interface has an address of zeros.
            *destination = if *destination == own.0 { [0; 6] } else { [2, 0xff, 0, 0, 0, 1] };
        }
        let bytes = match trial.receive(&frame).unwrap() {
            Tried::Kept => return None,
            Tried::Gone(bytes) => bytes,
            Tried::Lost => panic!("the programs do not agree about {frame:02x?}"),
        };
        let (id, of, _) = known.expect("what goes by is published");
        let flow = self.flows.get_mut(&id.0).expect("with its flow");
        flow.seen = Some(arrival.at);
        self.carried += 1;
        let (port, verdict) = (flow.ways[of as usize].egress.port.0, Some(Verdict::Forwarded));
        Some(Sent { port, number: arrival.number, verdict, bytes })
    }

    fn carried(&self) -> u64 {
        self.carried
    }
}

impl Carrier for Linux {
    fn publish(&mut self, id: FlowId, ways: &[Way; 2], tag: Tag) -> Published {
        let Some(places) = self.programs.path.publish(&ways.each_ref().map(entry)) else {
            return Published::No;
        };
        for (way, of) in ways.iter().zip([Direction::Original, Direction::Reply]) {
            self.index.insert((way.arrives, way.ingress.vlan()), (id, of, way.ingress.port));
        }
        let flow = Flow { places, ways: *ways, tag, before: Default::default(), seen: None };
        assert!(self.flows.insert(id.0, flow).is_none(), "published twice");
        Published::Yes
    }

    fn account(&mut self, id: FlowId) -> Option<Account> {
        let path = &self.programs.path;
        let flow = self.flows.get_mut(&id.0)?;
        let all = flow.places.map(|place| path.account(place));
        assert_eq!(all.iter().any(|all| all.seen != Nanos(0)), flow.seen.is_some());
        let mut carried = all.map(|all| Carried {
            packets: all.packets,
            packet_bytes: all.bytes.0,
            frame_bytes: all.frame_bytes.0,
        });
        for (now, before) in carried.iter_mut().zip(&mut flow.before) {
            let all = *now;
            now.packets -= before.packets;
            now.packet_bytes -= before.packet_bytes;
            now.frame_bytes -= before.frame_bytes;
            *before = all;
        }
        let sides = flow.places.map(|place| path.window(place).map(side));
        Some(Account {
            tag: flow.tag,
            carried,
            seen: flow.seen,
            sides: sides[0].zip(sides[1]).map(|(original, reply)| [original, reply]),
            is_live: flow.places.iter().all(|place| path.is_live(*place)),
        })
    }

    fn set_side(&mut self, id: FlowId, direction: Direction, side: TcpSide) {
        let TcpSide { end, max_window, allows, scale } = side;
        let window = Window { end, max_window, grants: allows, scale };
        self.programs.path.set_window(self.flows[&id.0].places[direction as usize], window);
    }

    fn take_back(&mut self, id: FlowId) -> Option<Account> {
        let account = self.account(id)?;
        let flow = self.flows.remove(&id.0)?;
        for way in flow.ways {
            let key = (way.arrives, way.ingress.vlan());
            if self.index.get(&key).is_some_and(|(known, ..)| *known == id) {
                self.index.remove(&key);
            }
        }
        // No program runs meanwhile.
        let path = &self.programs.path;
        flow.places.iter().for_each(|place| path.retract(*place));
        flow.places.iter().for_each(|place| path.free(*place));
        Some(account)
    }

    fn take_all_back(&mut self) {
        self.programs.path.advance_generation();
    }

    fn remainder(&mut self, _: Nanos) -> Option<Account> {
        None
    }

    fn next(&mut self) -> Option<FlowId> {
        in_turn(&self.flows, &mut self.last)
    }

    fn published(&self) -> usize {
        self.flows.len()
    }
}

impl Drop for Linux {
    fn drop(&mut self) {
        while let Some(id) = self.next() {
            self.take_back(id);
        }
    }
}

fn entry(way: &Way) -> Entry {
    let tuple = |ends: &Ends| Tuple {
        source: ends.source,
        destination: ends.destination,
        sport: ends.sport,
        dport: ends.dport,
    };
    let window = |side: TcpSide| Window {
        end: side.end,
        max_window: side.max_window,
        grants: side.allows,
        scale: side.scale,
    };
    Entry {
        from: tuple(&way.arrives),
        protocol: Protocol(way.arrives.protocol),
        ifindex: 1,
        vlan: way.ingress.vlan(),
        to: tuple(&way.leaves),
        link: way.header,
        tag: way.egress.tag,
        mtu: way.mtu,
        out: 1,
        dscp: way.dscp,
        mark: way.mark,
        window: way.side.map(window),
    }
}

fn side(window: Window) -> TcpSide {
    let Window { end, max_window, grants, scale } = window;
    TcpSide { end, max_window, allows: grants, scale }
}

/// Ends of a packet without options or extension headers, in a frame without tags; anything of another packet, and `None` of a short one.
fn ends(frame: &[u8]) -> Option<Ends> {
    let v4 = |at: usize| Some(IpAddr::V4(Ipv4Addr::from(*frame.get(at..)?.first_chunk::<4>()?)));
    let v6 = |at: usize| Some(IpAddr::V6(Ipv6Addr::from(*frame.get(at..)?.first_chunk::<16>()?)));
    let port = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    let (source, destination, protocol, transport) = match frame.get(12..14)? {
        [0x08, 0x00] => (v4(26)?, v4(30)?, *frame.get(23)?, 34),
        [0x86, 0xdd] => (v6(22)?, v6(38)?, *frame.get(20)?, 54),
        _ => return None,
    };
    Some(Ends { source, destination, sport: port(transport)?, dport: port(transport + 2)?, protocol })
}
