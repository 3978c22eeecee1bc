//! Frames over the link, between two sockets of this machine; and what is no frame of the peer's.

use std::net::{Ipv4Addr, UdpSocket};

use policy::model::vni;
use wire::build;

use super::*;

const POLICY: &str = r#"
[interface.lan]
zone = "lan"
addresses = ["192.168.1.1/24"]
mac = "02:00:00:00:00:77"
[interface.guest]
zone = "guest"
parent = "lan"
vlan = 20
addresses = ["192.168.20.1/24"]
[interface.tun]
zone = "wan"
link = "ip"
addresses = ["203.0.113.2/32"]
"#;

fn tables() -> Tables {
    Tables::compile(&policy::parse(POLICY, "policy").policy.unwrap(), 1).unwrap()
}

/// A socket at an address of loopback of its own: tests run side by side.
fn at(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 58, 0, last))
}

struct End {
    link: PeerLink,
    standing: Arc<Standing>,
    pool: Pool,
    batch: Batch,
    buffer: Buffer,
    tables: Tables,
}

impl End {
    fn new(own: u8, peer: u8) -> End {
        let standing = Arc::<Standing>::default();
        let socket = Arc::new(PeerSocket::open(at(own)).unwrap());
        assert_eq!(socket.address().unwrap(), at(own));
        let link = PeerLink::new(socket, at(peer), standing.clone());
        let (pool, batch) = (Pool::new(70, 2048).unwrap(), Batch::new());
        End { link, standing, pool, batch, buffer: Buffer::new(), tables: tables() }
    }

    /// Receives until so many datagrams have come, and returns the frames.
    fn receive(&mut self, count: usize) -> Vec<Frame> {
        let mut found = 0;
        while found < count {
            let End { link, pool, batch, buffer, tables, .. } = self;
            found += link.receive(&mut Intake::new(batch, pool, tables, buffer, Nanos(7)));
        }
        assert_eq!(found, count);
        self.batch.drain().collect()
    }

    fn frame(&mut self, interface: &str, bytes: &[u8]) -> Frame {
        let mut frame = self.pool.take().unwrap();
        assert!(frame.fill(bytes));
        frame.meta.ingress = self.tables.interface_named(interface).unwrap();
        frame
    }
}

fn packet() -> Vec<u8> {
    build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 1]))
        .ipv4([192, 168, 1, 9].into(), [8, 8, 8, 8].into())
        .udp(1, 2)
        .payload(&[5; 1400])
        .to_vec()
}

#[test]
fn a_frame_comes_by_the_interface_of_that_name_to_its_card() {
    let (mut one, mut two) = (End::new(1, 2), End::new(2, 1));
    for (interface, root) in [("lan", "lan"), ("guest", "lan")] {
        let mut frame = one.frame(interface, &packet());
        one.link.send(&mut frame, &one.tables).unwrap();
        assert_eq!(frame.bytes(), packet(), "as it was");
        let [taken] = &two.receive(1)[..] else { panic!("one frame") };
        assert_eq!(taken.meta.ingress, two.tables.interface_named(root).unwrap());
        assert_eq!(taken.meta.received, Nanos(7));
        assert_eq!(taken.bytes()[..6], [2, 0, 0, 0, 0, 0x77]);
        assert_eq!(taken.bytes()[6..], packet()[6..]);
    }
    assert_eq!((one.standing.handed_over(), two.standing.taken()), (2, 2));
    assert_eq!((two.standing.handed_over(), one.standing.taken(), one.standing.lost()), (0, 0, 0));
}

#[test]
fn what_is_no_frame_of_the_peer_s_is_refused_and_counted() {
    let mut one = End::new(11, 12);
    let of = |own: u8| UdpSocket::bind((at(own), 0)).unwrap();
    let (peer, stranger) = (of(12), of(13));
    let framed = |name: &str, bytes: &[u8]| [&vxlan::header(vni(name)), bytes].concat();
    let send = |from: &UdpSocket, bytes: &[u8]| from.send_to(bytes, (at(11), vxlan::PORT)).unwrap();
    send(&stranger, &framed("lan", &packet()));
    for wrong in [&[][..], &[8; 7], &[0; 80], &vxlan::header(vni("lan")), &framed("lan", &packet()[..13])] {
        send(&peer, wrong);
    }
    // Of no interface, of a VLAN's, and of one without Ethernet.
    for name in ["wan", "guest", "tun"] {
        send(&peer, &framed(name, &packet()));
    }
    send(&peer, &framed("lan", &[7; 9000]));
    assert!(one.receive(10).is_empty());
    let counts = Refused::ALL.map(|reason| one.standing.refused(reason));
    assert_eq!(counts, [1, 5, 3, 1]);
    // Behind all that a frame comes through, and where no frame is free it is refused.
    send(&peer, &framed("lan", &packet()));
    let frames = one.receive(1);
    assert_eq!(frames.len(), 1);
    let held: Vec<Frame> = std::iter::from_fn(|| one.pool.take()).collect();
    send(&peer, &framed("lan", &packet()));
    assert!(one.receive(1).is_empty());
    assert_eq!(one.standing.refused(Refused::Room), 2);
    drop(held);
}

#[test]
fn a_link_that_takes_nothing_says_so() {
    let mut one = End::new(21, 22);
    // Nobody is at a broadcast address: the socket may not send there.
    let nowhere = IpAddr::V4(Ipv4Addr::BROADCAST);
    one.link = PeerLink::new(one.link.socket.clone(), nowhere, one.standing.clone());
    let mut frame = one.frame("lan", &packet());
    assert!(one.link.send(&mut frame, &one.tables).is_err());
    assert_eq!((one.standing.lost(), one.standing.handed_over()), (1, 0));
    assert_eq!(frame.bytes(), packet());
}
