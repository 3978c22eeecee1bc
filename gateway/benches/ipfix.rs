//! Rate of the IPFIX exporter: `cargo bench -p wirerate-gateway --bench ipfix`.
//!
//! Flow reports of one worker, each of a translated connection of both directions, so two data records, go to a collector on the
//! loopback interface, which reads and counts records by sequence numbers. As fast as it goes, and at 100,000 data records a second, where
//! the processor time of the exporter's thread is of interest. What the account does not have is reported as lost, and must be nothing.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dataplane::Tables;
use dataplane::accounting::{Counts, End, FlowReport, Record};
use dataplane::flow::{Direction, Ends};
use dataplane::log::Connection;
use gateway::clock::Clock;
use gateway::ipfix::Exporter;
use policy::model::{Collector, Ipfix};
use wire::{Nanos, PortId};

const POLICY: &str = "[interface.lo]\nzone = \"a\"\naddresses = [\"192.0.2.1/24\"]\n";

/// Flow reports of a measurement.
const MANY: u64 = 1_000_000;

fn main() {
    println!(
        "{:<10} {:>14} {:>14} {:>12} {:>10}",
        "transport", "offered, /s", "exported, /s", "lost", "missing"
    );
    for collector in [udp, tcp] {
        for rate in [None, Some(100_000)] {
            measure(collector, rate);
        }
    }
}

/// Collector on the loopback interface, and the number of data records that it has received.
type Start = fn(Arc<AtomicU64>) -> Collector;

fn measure(start: Start, rate: Option<u64>) {
    let received = Arc::new(AtomicU64::new(0));
    let collector = start(received.clone());
    let policy = policy::parse(POLICY, "policy").policy.expect("a policy");
    let tables = Arc::new(Tables::compile(&policy, 1).expect("tables"));
    let clock = Clock::start();
    let ipfix = Ipfix { collector: Some(collector), ..Ipfix::default() };
    let exporter = Exporter::start(&ipfix, clock).expect("a thread");
    let mut feed = exporter.feed();
    let (begin, mut made) = (Instant::now(), 0);
    while made < MANY {
        let Some(mut records) = feed.buffer() else {
            thread::sleep(Duration::from_micros(50));
            continue;
        };
        // Two data records each; a hundredth of a second at a time.
        let some = rate.map_or(records.capacity() as u64, |rate| (rate / 200).min(records.capacity() as u64));
        records.extend((made..made + some).map(|number| report(number, clock.now())));
        made += some;
        feed.send(tables.clone(), clock.now(), records, Vec::new());
        if let Some(rate) = rate {
            let due = Duration::from_secs_f64((2 * made) as f64 / rate as f64);
            thread::sleep(due.saturating_sub(begin.elapsed()));
            if begin.elapsed() > Duration::from_secs(5) {
                break;
            }
        }
    }
    let offered = begin.elapsed().as_secs_f64();
    while exporter.counts().records + exporter.counts().lost < 2 * made {
        thread::sleep(Duration::from_millis(1));
    }
    let took = begin.elapsed().as_secs_f64();
    let counts = exporter.counts();
    drop(feed);
    exporter.finish();
    thread::sleep(Duration::from_millis(300));
    let missing = counts.records.saturating_sub(received.load(Ordering::Relaxed));
    println!(
        "{:<10} {:>14.0} {:>14.0} {:>12} {missing:>10}",
        if matches!(collector, Collector::Udp(_)) { "udp" } else { "tcp" },
        (2 * made) as f64 / offered,
        counts.records as f64 / took,
        counts.lost,
    );
}

fn report(number: u64, now: Nanos) -> Record {
    let host = Ipv4Addr::from(0x0a00_0000 + number as u32 % 65_536);
    let ends = |source: Ipv4Addr, destination: Ipv4Addr, sport, dport| Ends {
        source: source.into(),
        destination: destination.into(),
        sport,
        dport,
        protocol: 6,
    };
    let (server, outside) = (Ipv4Addr::new(198, 51, 100, 7), Ipv4Addr::new(203, 0, 113, 2));
    let port = (number % 60_000) as u16 + 1_024;
    let mut counts = Counts::default();
    counts.add(Direction::Original, 7, 900, now);
    counts.add(Direction::Reply, 5, 4_000, now);
    Record::Flow(FlowReport {
        connection: Connection {
            original: ends(host, server, port, 443),
            reply: ends(server, outside, 443, port),
            ingress: 1,
            dnat: 0,
            snat: 1,
        },
        egress: Some(PortId(0)),
        kind: 0,
        end: End::Closed,
        counts,
    })
}

fn udp(received: Arc<AtomicU64>) -> Collector {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let at = socket.local_addr().expect("an address");
    thread::spawn(move || {
        let mut buffer = [0; 65_536];
        while let Ok(len) = socket.recv(&mut buffer) {
            received.fetch_add(records_in(&buffer[..len]), Ordering::Relaxed);
        }
    });
    Collector::Udp(at)
}

fn tcp(received: Arc<AtomicU64>) -> Collector {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let at: SocketAddr = listener.local_addr().expect("an address");
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut buffer = [0; 65_536];
        while stream.read_exact(&mut buffer[..16]).is_ok() {
            let len = usize::from(u16::from_be_bytes([buffer[2], buffer[3]]));
            if stream.read_exact(&mut buffer[16..len]).is_err() {
                break;
            }
            received.fetch_add(records_in(&buffer[..len]), Ordering::Relaxed);
        }
    });
    Collector::Tcp(at)
}

/// Flow records of a message.
fn records_in(message: &[u8]) -> u64 {
    let (mut at, mut records) = (16, 0);
    while let Some(&[a, b, c, d]) = message.get(at..at + 4).and_then(|head| head.first_chunk()) {
        let (id, len) = (u16::from_be_bytes([a, b]), usize::from(u16::from_be_bytes([c, d])));
        records += match id {
            // A translated flow of IPv4 with ports.
            258 => (len as u64 - 4) / RECORD,
            // The exporter's own: templates, sums, and the name of the loopback interface.
            _ => 0,
        };
        at += len.max(4);
    }
    records
}

/// Bytes of the data record of a translated flow of IPv4 with ports.
const RECORD: u64 = 16 + 8 + 4 + 4 + 8 + 16 + 8 + 4;
