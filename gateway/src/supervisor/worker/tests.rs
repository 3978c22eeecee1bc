//! Deletion of a security association that packets come in by: what had arrived under it is decrypted first, by whichever worker.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;
use std::sync::mpsc::Receiver;

use dataplane::Reason;
use dataplane::sa::{Keys, SaRequest};
use esp::format::{layout, trailer};
use ports::{Line, Statistics};
use wire::esp::{Esn, HEADER_LEN, HeaderMut, Secret, Suite, Tfc};
use wire::ethernet::Mac;
use wire::header::Protocol;
use wire::{Batch, Port, PortError, Received, build, ethernet};

use super::*;

const SPI: u32 = 0x2000;

const POLICY: &str = "[interface.lan]\nzone = \"lan\"\naddresses = [\"10.1.0.1/16\"]\n\
    [interface.wan]\nzone = \"wan\"\naddresses = [\"192.0.2.1/24\"]\n\
    [interface.peer]\nzone = \"vpn\"\n[interface.peer.esp]\nlocal = \"192.0.2.1\"\nremote = \"192.0.2.2\"\n\
    [[interface.peer.esp.sa]]\ndirection = \"out\"\nspi = 0x1000\nalgorithm = \"aes128-gcm\"\n\
    key = \"6c61622d6b65792d612d746f2d622d30315a5a5a\"\n\
    [[interface.peer.esp.sa]]\ndirection = \"in\"\nspi = 0x1001\nalgorithm = \"aes128-gcm\"\n\
    key = \"6c61622d6b65792d612d746f2d622d30325a5a5a\"\n\
    [default]\n\"any > any\" = \"accept\"\n[[route]]\nto = \"10.2.0.0/16\"\ninterface = \"peer\"\n[limit]\nflows = 1024\n";

/// Longest time that a test waits for a worker.
const PATIENCE: Duration = Duration::from_secs(20);

/// A port with a ring that a test fills.
struct Filled {
    ring: Receiver<Vec<u8>>,
    gate: Arc<Mutex<()>>,
    wakes: WakeUp,
}

impl Port for Filled {
    fn name(&self) -> &str {
        "filled"
    }

    fn receive(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<Received, PortError> {
        let _scheduled = self.gate.lock().unwrap();
        let before = batch.len();
        while let Some(bytes) = (!batch.is_full()).then(|| self.ring.try_recv().ok()).flatten() {
            let frame = batch.extend_from(pool).unwrap();
            assert!(frame.fill(&bytes));
            frame.meta.received = ports::now();
        }
        Ok(match batch.len() - before {
            0 => Received::Nothing,
            frames => Received::Frames(frames),
        })
    }

    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<(), PortError> {
        batch.drain().for_each(|frame| pool.put(frame));
        Ok(())
    }
}

impl Line for Filled {
    fn fd(&self) -> BorrowedFd<'_> {
        self.wakes.as_fd()
    }

    fn statistics(&mut self) -> Statistics {
        Statistics::default()
    }

    fn reclaim(&mut self, _: &mut Pool) {}
}

/// Workers of a gateway with a tunnel.
struct Crew {
    workers: Workers,
    tables: Arc<Tables>,
    /// Rings of the workers' outer ports.
    rings: Vec<Sender<Vec<u8>>>,
    /// Held while no worker is scheduled.
    gate: Arc<Mutex<()>>,
}

impl Crew {
    fn new(count: usize) -> Crew {
        let checked = policy::check(POLICY, "policy");
        let tables = Arc::new(Tables::compile(&checked.policy.unwrap(), 1).unwrap());
        let channels: Vec<_> = (0..count).map(|_| command_channel().unwrap()).collect();
        let wake_ups: Vec<WakeUp> = channels.iter().map(|(_, commands)| commands.wake_up().clone()).collect();
        let steering = steering(count, &tables).unwrap();
        let (clock, clients) = (Clock::start(), Arc::<Clients>::default());
        let gate = Arc::<Mutex<()>>::default();
        let (mut handles, mut rings) = (Vec::new(), Vec::new());
        for ((number, (sender, commands)), exchange) in
            channels.into_iter().enumerate().zip(Exchange::between(&wake_ups))
        {
            let share = Share::new(number as u16, count as u16).unwrap_or(Share::WHOLE);
            let setup = Setup { seed: [1, 2], now: clock.now(), resolve: Resolve::Assume, share };
            let pool = Pool::new(3_000, 2048).unwrap();
            let memory = pool.memory();
            let shared =
                steering.clone().map(|steering| Shared { steering, clients: clients.clone(), exchange });
            let (tables, events) = (tables.clone(), Box::new(|_| true));
            let parts = Parts {
                number,
                tables,
                setup,
                pool,
                clock,
                commands,
                events,
                shared,
                log: None,
                export: None,
                fast_path: None,
            };
            let worker = Worker::new(parts).unwrap();
            let (fill, ring) = channel();
            for (interface, ring) in [("wan", ring), ("lan", channel().1)] {
                let line: Box<dyn Line> =
                    Box::new(Filled { ring, gate: gate.clone(), wakes: WakeUp::new().unwrap() });
                let ends = Attachment { line: Some(line), punt: None, fast: None };
                sender.send(Command::Attach { interface: interface.to_owned(), ends, done: None });
            }
            let thread = thread::spawn(move || worker.work());
            handles.push(WorkerHandle { commands: sender, memory, setup, thread });
            rings.push(fill);
        }
        let workers = Workers { handles, steering, clock, fast_path: None, panics: 0 };
        Crew { workers, tables, rings, gate }
    }

    /// Adds the association, whose key these bytes are.
    fn add(&self, key: u8) -> SaId {
        let request = SaRequest {
            tunnel: "peer",
            direction: Direction::In,
            spi: SPI,
            esn: Esn::Off,
            suite: suite(),
            keys: &keys(key),
            selectors: &[],
            agreed: None,
        };
        let sa = SaAddition::new(&self.tables, &request).unwrap();
        self.workers.change_sa(&sa.id, || sa.prepare()).unwrap();
        sa.id
    }

    fn receive(&self, worker: usize, packets: impl Iterator<Item = Vec<u8>>) {
        packets.for_each(|packet| self.rings[worker].send(packet).unwrap());
        self.workers.handles[worker].commands.send(Command::PausePublication(Pause::No));
    }

    fn has_sa(&self) -> bool {
        self.workers.reports().iter().flat_map(|report| &report.sas).any(|sa| sa.spi == SPI)
    }

    /// Packets forwarded by all workers, and those of an unknown association, once there are as many.
    fn fates(&self, packets: u64) -> [u64; 2] {
        let until = Instant::now() + PATIENCE;
        loop {
            let reports = self.workers.reports();
            let sum = |count: &dyn Fn(&Report) -> u64| reports.iter().map(count).sum();
            let fates = [
                sum(&|report| report.counters.forwarded()),
                sum(&|report| report.counters.dropped_for(Reason::SpiUnknown)),
            ];
            if fates[0] + fates[1] >= packets || Instant::now() > until {
                return fates;
            }
        }
    }
}

fn suite() -> &'static Suite {
    Suite::named("aes128-gcm", None).unwrap()
}

fn keys(key: u8) -> Keys {
    Keys { cipher: Secret::new(vec![key; 20].into()), auth: Secret::new(Vec::new().into()) }
}

/// Packets of the peer's, of numbers from that on.
fn sealed(key: u8, first: u32, count: u32) -> impl Iterator<Item = Vec<u8>> {
    let transform = esp::expand(suite(), &keys(key), Direction::Out).unwrap();
    let link = || build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 10]));
    let inner = link().ipv4([10, 2, 0, 9].into(), [10, 1, 0, 5].into()).udp(7, 8).payload(b"data").to_vec();
    let inner = inner[ethernet::HEADER_LEN..].to_vec();
    (first..first + count).map(move |number| {
        let layout = layout(inner.len(), suite(), Tfc::Off, 1_400).unwrap();
        // Four bytes in front are the sealer's.
        let mut packet = vec![0; 4 + usize::from(layout.total)];
        let at = 4 + HEADER_LEN + usize::from(suite().iv);
        packet[at..at + inner.len()].copy_from_slice(&inner);
        trailer(&mut packet[at..at + usize::from(layout.text)], &layout, Protocol::IPV4);
        let mut header = HeaderMut::of(&mut packet[4..]).unwrap();
        header.set_spi(SPI);
        header.set_sequence(number);
        transform.seal(esp::Packet { bytes: &mut packet, number: number.into(), esn: Esn::Off });
        let outer = link().ipv4([192, 0, 2, 2].into(), [192, 0, 2, 1].into()).protocol(Protocol::ESP);
        outer.payload(&packet[4..]).to_vec()
    })
}

/// The packets are in the ring of one worker, the owner or another, none of which is scheduled until the deletion has been asked for.
#[test]
fn packets_that_have_arrived_are_decrypted_before_their_sa_is_deleted() {
    const PACKETS: u32 = 1_500;
    for count in 1..=3 {
        for receiver in 0..count {
            let crew = Crew::new(count);
            let id = crew.add(7);
            let starved = crew.gate.lock().unwrap();
            crew.receive(receiver, sealed(7, 1, PACKETS));
            let deleted = thread::scope(|scope| {
                let asker = scope.spawn(|| {
                    crew.workers.drain_for(Direction::In);
                    crew.workers.delete_sa(&id)
                });
                thread::sleep(Duration::from_millis(30));
                drop(starved);
                asker.join().unwrap()
            });
            assert!(deleted && !crew.has_sa());
            assert_eq!(crew.fates(PACKETS.into()), [PACKETS.into(), 0], "worker {receiver} of {count}");
            crew.receive(receiver, sealed(7, PACKETS + 1, 10));
            assert_eq!(crew.fates(u64::from(PACKETS) + 10), [PACKETS.into(), 10]);
            crew.workers.stop();
        }
    }
}

/// Commands behind a deletion find it done.
#[test]
fn an_sa_may_be_added_again_once_it_has_been_deleted() {
    let crew = Crew::new(2);
    for key in 1..=3 {
        let id = crew.add(key);
        crew.receive(0, sealed(key, 1, 100));
        crew.workers.drain_for(Direction::In);
        assert!(crew.workers.delete_sa(&id));
        assert!(!crew.workers.delete_sa(&id), "there is one");
    }
    assert_eq!(crew.fates(300), [300, 0]);
    crew.workers.stop();
}

/// A worker that is stopped, and one that has ended, keep nobody waiting.
#[test]
fn a_worker_that_stops_ends_the_wait() {
    let crew = Crew::new(2);
    let starved = crew.gate.lock().unwrap();
    let began = Instant::now();
    thread::scope(|scope| {
        let asker = scope.spawn(|| crew.workers.drain());
        thread::sleep(Duration::from_millis(30));
        crew.workers.handles.iter().for_each(|handle| assert!(handle.commands.send(Command::Stop)));
        drop(starved);
        asker.join().unwrap();
    });
    crew.workers.drain();
    assert!(began.elapsed() < DRAIN_PATIENCE);
    crew.workers.stop();
}
