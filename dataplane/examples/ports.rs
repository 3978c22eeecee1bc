//! The pipeline behind I/O of one's own: two ports whose frames travel in datagrams of UDP on this machine, a gateway between them, and a
//! host at either end. `cargo run -p wirerate-dataplane --example ports` sends a query through it, and the answer back.

use std::error::Error;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use dataplane::egress::Next;
use dataplane::hop::Resolve;
use dataplane::nat::Share;
use dataplane::shard::Setup;
use dataplane::stage::Cx;
use dataplane::{Pipeline, Shard, Tables};
use tally::NoTally;
use wire::ethernet::Mac;
use wire::{Batch, Frame, Nanos, Pool, Port, PortError, PortId, Received, build, ethernet, ipv4};

const POLICY: &str = r#"
[interface.lan]
zone = "lan"
addresses = ["192.168.1.1/24"]

[interface.wan]
zone = "wan"
addresses = ["203.0.113.2/24"]

[default]
"lan > wan" = "accept"

[[route]]
to = "0.0.0.0/0"
via = "203.0.113.1"

[[nat]]
name = "house"
kind = "masquerade"
from = "lan"
to = "wan"
"#;

/// A port whose frames are datagrams.
struct Datagrams {
    name: String,
    socket: UdpSocket,
    begun: Instant,
}

impl Datagrams {
    fn failed(&self, operation: &'static str, cause: std::io::Error) -> PortError {
        PortError { port: self.name.clone(), operation, cause: cause.into() }
    }
}

impl Port for Datagrams {
    fn name(&self) -> &str {
        &self.name
    }

    fn receive(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<Received, PortError> {
        let mut bytes = [0; 2048];
        let mut frames = 0;
        while !batch.is_full() {
            let len = match self.socket.recv(&mut bytes) {
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(self.failed("receive", error)),
            };
            // Without a slot, or too long for one: lost, as by a card.
            let Some(frame) = batch.extend_from(pool) else { break };
            if frame.fill(bytes.get(..len).unwrap_or_default()) {
                frame.meta.received = Nanos(self.begun.elapsed().as_nanos() as u64);
                frames += 1;
            } else if let Some(frame) = batch.pop() {
                pool.put(frame);
            }
        }
        Ok(if frames > 0 { Received::Frames(frames) } else { Received::Nothing })
    }

    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<(), PortError> {
        for frame in batch.drain() {
            let sent = self.socket.send(frame.bytes());
            pool.put(frame);
            sent.map_err(|error| self.failed("send", error))?;
        }
        Ok(())
    }
}

/// A gateway that takes what its ports have, and sends what is due.
struct Gateway {
    tables: Tables,
    shard: Shard,
    pool: Pool,
    pipeline: Pipeline,
    ports: Vec<Datagrams>,
    begun: Instant,
}

impl Gateway {
    fn turn(&mut self) -> Result<(), PortError> {
        let mut ended: Vec<Frame> = Vec::new();
        for (port, id) in self.ports.iter_mut().zip((0..).map(PortId)) {
            let mut batch = Batch::new();
            port.receive(&mut batch, &mut self.pool)?;
            batch.iter_mut().for_each(|frame| frame.meta.ingress = id);
            let mut cx = Cx {
                tables: &self.tables,
                shard: &mut self.shard,
                pool: &mut self.pool,
                tally: &mut NoTally,
            };
            self.pipeline.run(&mut batch, &mut ended, &mut cx);
        }
        ended.drain(..).for_each(|frame| self.pool.put(frame));
        let now = Nanos(self.begun.elapsed().as_nanos() as u64);
        for (port, id) in self.ports.iter_mut().zip((0..).map(PortId)) {
            let mut batch = Batch::new();
            while !batch.is_full() {
                match self.shard.next(id, now) {
                    // There is room.
                    Next::Frame(frame, _) => batch.push(frame).unwrap_or_else(|frame| self.pool.put(frame)),
                    Next::Dropped(frame, ..) => self.pool.put(frame),
                    Next::Wait(_) | Next::Empty => break,
                }
            }
            port.transmit(&mut batch, &mut self.pool)?;
        }
        Ok(())
    }
}

/// A cable: a port, and the socket of the host at its other end.
fn cable(name: &str, begun: Instant) -> Result<(Datagrams, UdpSocket), std::io::Error> {
    let [here, there] = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)));
    let (here, there) = (here?, there?);
    here.connect(there.local_addr()?)?;
    there.connect(here.local_addr()?)?;
    here.set_nonblocking(true)?;
    there.set_read_timeout(Some(Duration::from_secs(5)))?;
    Ok((Datagrams { name: name.to_owned(), socket: here, begun }, there))
}

/// Source and destination of a frame that has arrived.
fn ends(frame: &[u8]) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let layer = ethernet::parse(frame).ok()?;
    let header = ipv4::Header::of(layer.payload)?;
    Some((header.src(), header.dst()))
}

fn main() -> Result<(), Box<dyn Error>> {
    let policy = policy::check(POLICY, "ports.toml").policy.ok_or("the policy has faults")?;
    let tables = Tables::compile(&policy, 1)?;
    let begun = Instant::now();
    // A live host has a secret seed, and resolves neighbours.
    let setup = Setup { seed: [1, 2], now: Nanos(0), resolve: Resolve::Assume, share: Share::WHOLE };
    let shard = Shard::new(&tables, setup)?;
    let (lan, host) = cable("lan", begun)?;
    let (wan, server) = cable("wan", begun)?;
    let (pool, pipeline, ports) = (Pool::new(64, 2048)?, Pipeline::default(), vec![lan, wan]);
    let mut gateway = Gateway { tables, shard, pool, pipeline, ports, begun };

    let [inside, outside] = [Ipv4Addr::new(192, 168, 1, 10), Ipv4Addr::new(198, 51, 100, 7)];
    let link = || build::ethernet(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
    let mut bytes = [0; 2048];
    host.send(&link().ipv4(inside, outside).udp(4000, 53).payload(b"query").to_vec())?;
    gateway.turn()?;
    let len = server.recv(&mut bytes)?;
    let (source, _) = ends(&bytes[..len]).ok_or("no packet of IPv4")?;
    println!("the server has a query from {source}");

    let layer = ethernet::parse(&bytes[..len]).map_err(|_| "no frame")?;
    let sport =
        layer.payload.get(20..22).and_then(|port| port.first_chunk()).copied().map(u16::from_be_bytes);
    let port = sport.ok_or("no UDP")?;
    server.send(&link().ipv4(outside, source).udp(53, port).payload(b"answer").to_vec())?;
    gateway.turn()?;
    let len = host.recv(&mut bytes)?;
    let (source, destination) = ends(&bytes[..len]).ok_or("no packet of IPv4")?;
    println!("the host at {destination} has an answer from {source}");
    if destination != inside || !bytes[..len].ends_with(b"answer") {
        return Err("the answer went astray".into());
    }
    Ok(())
}

#[test]
fn it_runs() {
    main().expect("a query and its answer");
}
