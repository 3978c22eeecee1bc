//! Any bytes as what a second gateway sends by the state synchronisation.
//!
//! Beyond not crashing: the session ends with the connection, and says why in words; the worker goes on, with no more flows, elements
//! and port mappings than its policy allows. The other side is a worker without ports, with translations and dynamic sets.
//!
//! The first byte says how the rest comes: as it is, or behind the greeting that this gateway would send itself.
#![no_main]

use std::sync::mpsc::channel;
use std::sync::{Arc, LazyLock};
use std::thread;

use dataplane::Tables;
use dataplane::hop::Resolve;
use dataplane::nat::Share;
use dataplane::port_mapping::MappingsByOrigin;
use dataplane::shard::Setup;
use gateway::clock::Clock;
use gateway::sync::{Start, converse};
use gateway::worker::{Command, CommandSender, Parts, Worker, command_channel};
use libfuzzer_sys::fuzz_target;
use policy::Policy;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, duplex};
use tokio::runtime::{Builder, Runtime};
use wire::Pool;

const POLICY: &str = include_str!("../sync.toml");

/// Flows, elements of a set, and port mappings, at most, by the policy.
const MOST: u32 = 64;

static GATEWAY: LazyLock<Gateway> = LazyLock::new(Gateway::begin);

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads"));

struct Gateway {
    policy: Policy,
    tables: Arc<Tables>,
    worker: CommandSender,
}

fuzz_target!(|data: &[u8]| {
    let Some((how, said)) = data.split_first() else { return };
    let Gateway { policy, tables, worker } = &*GATEWAY;
    let start = Start {
        sync: policy.gateway.sync.clone(),
        workers: vec![worker.clone()],
        steering: None,
        tables: tables.clone(),
        instance: [1, 1],
        epoch: Arc::default(),
    };
    let status = RUNTIME.block_on(async {
        let (ours, theirs) = duplex(1 << 16);
        let served = tokio::spawn(converse(theirs, start));
        let (reader, mut writer) = tokio::io::split(ours);
        let mut reader = BufReader::new(reader);
        let mut greeting = Vec::new();
        if how % 2 == 1 {
            let _ = reader.read_until(b'\n', &mut greeting).await;
        }
        // The gateway may hang up before all is said.
        let say = async {
            let _ = writer.write_all(&greeting).await;
            let _ = writer.write_all(said).await;
            let _ = writer.shutdown().await;
        };
        let mut heard = Vec::new();
        let hear = async {
            let _ = reader.read_to_end(&mut heard).await;
        };
        tokio::join!(say, hear);
        served.await.expect("it does not panic").expect("the policy has a peer")
    });
    assert!(status.trouble.is_some_and(|words| !words.is_empty() && !words.contains(char::is_control)));
    let (to, told) = channel();
    worker.send(Command::Report(to));
    let report = told.recv().expect("the worker goes on");
    assert!(report.flows <= MOST && report.sets.iter().all(|set| set.elements <= MOST));
    let MappingsByOrigin { pcp, nat_pmp, upnp, operator } = report.port_mappings.live;
    assert!(pcp + nat_pmp + upnp + operator <= MOST);
});

impl Gateway {
    fn begin() -> Gateway {
        let policy = policy::parse(POLICY, "sync.toml").policy.expect("it is right");
        let tables = Arc::new(Tables::compile(&policy, 1).expect("they are small"));
        let (worker, commands) = command_channel().expect("a descriptor");
        let clock = Clock::start();
        let parts = Parts {
            number: 0,
            tables: tables.clone(),
            setup: Setup { seed: [1, 2], now: clock.now(), resolve: Resolve::ByHost, share: Share::WHOLE },
            pool: Pool::new(64, 2048).expect("memory"),
            clock,
            commands,
            events: Box::new(|_| true),
            shared: None,
            log: None,
            export: None,
            fast_path: None,
        };
        let work = Worker::new(parts).expect("memory");
        thread::spawn(move || work.work());
        Gateway { policy, tables, worker }
    }
}
