//! Any bytes as a connection to the gateway's control socket.
//!
//! Beyond not crashing: the connection ends; what it is answered begins as HTTP does, with 200 or a number from 400 on, and an
//! error that the gateway itself tells is JSON with words. The other side is a worker without ports and a supervisor that
//! knows one policy.
//!
//! The first byte says how the rest comes: as it is, or as question and body of a request in order.
#![no_main]

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

use dataplane::Tables;
use dataplane::hop::Resolve;
use dataplane::nat::Share;
use dataplane::shard::Setup;
use gateway::api::{self, Trouble};
use gateway::clock::Clock;
use gateway::event::Event;
use gateway::ipfix::IpfixCounts;
use gateway::log::LogCounts;
use gateway::privilege::Confinement;
use gateway::request::{Applied, NoTrial, Overview, Refusal, Request};
use gateway::server::connection::{Bounds, converse};
use gateway::worker::{Command, CommandSender, Parts, Worker, command_channel};
use libfuzzer_sys::fuzz_target;
use policy::Policy;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::runtime::{Builder, Runtime};
use wire::Pool;

static DESK: LazyLock<Sender<Event>> = LazyLock::new(desk);

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads"));

fuzz_target!(|data: &[u8]| {
    let Some((how, rest)) = data.split_first() else { return };
    let said = match how % 3 {
        0 => rest.to_vec(),
        // A question in order: method, path and query, body.
        kind => {
            let method = if kind == 1 { "GET" } else { "POST" };
            let mut parts = rest.splitn(2, |byte| *byte == 0);
            let (path, body) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            let head = format!(" HTTP/1.1\r\nhost: g\r\ncontent-length: {}\r\n\r\n", body.len());
            [method.as_bytes(), b" /", path, head.as_bytes(), body].concat()
        }
    };
    let answer = RUNTIME.block_on(async {
        let (ours, theirs) = duplex(4096);
        let router = api::control(DESK.clone());
        let served = tokio::spawn(converse(theirs, router, Bounds::CONTROL, Arc::default()));
        let (mut reader, mut writer) = tokio::io::split(ours);
        let mut answer = Vec::new();
        let say = async {
            // It may hang up before all is said.
            let _ = writer.write_all(&said).await;
            if how % 3 == 0 || *how >= 128 {
                let _ = writer.shutdown().await;
            }
        };
        let read = async {
            let _ = tokio::time::timeout(Duration::from_millis(200), reader.read_to_end(&mut answer)).await;
        };
        tokio::join!(say, read);
        drop((reader, writer));
        served.await.expect("it does not panic");
        answer
    });
    judge(&answer);
});

/// Asserts the invariants of an answer.
fn judge(answer: &[u8]) {
    let text = String::from_utf8_lossy(answer);
    // Who is to go on may have gone.
    let text = text.strip_prefix("HTTP/1.1 100 Continue\r\n\r\n").unwrap_or(&text);
    if text.is_empty() {
        return;
    }
    let code = text.strip_prefix("HTTP/1.1 ").or_else(|| text.strip_prefix("HTTP/1.0 "));
    let code: u16 = code.and_then(|rest| rest.get(..3)).and_then(|code| code.parse().ok()).expect("a code");
    assert!(code == 200 || (400..600).contains(&code), "{text}");
    assert_ne!(code, 500, "{text}");
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return };
    if code != 200 && head.contains("application/json") && !body.is_empty() && !head.contains("chunked") {
        let trouble: Trouble = serde_json::from_str(body).expect("words");
        assert!(!trouble.error.is_empty());
    }
}

/// Answers as a supervisor would.
fn desk() -> Sender<Event> {
    let text = "[interface.east]\nzone = \"a\"\naddresses = [\"192.0.2.1/24\"]\n[limit]\nflows = 64\n";
    let policy = Arc::new(policy::parse(text, "fuzz.toml").policy.expect("it is right"));
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
    let (sender, events) = channel();
    thread::spawn(move || {
        for event in events {
            if let Event::Request(request) = event {
                answer(request, &worker, &policy, &tables);
            }
        }
    });
    sender
}

fn answer(request: Request, worker: &CommandSender, policy: &Arc<Policy>, tables: &Arc<Tables>) {
    match request {
        Request::Overview(reply) => {
            let (to, told) = channel();
            worker.send(Command::Report(to));
            let _ = reply.send(Overview {
                tables: tables.clone(),
                reports: told.iter().collect(),
                tunnels: Vec::new(),
                wans: Vec::new(),
                servers: Vec::new(),
                sets: Vec::new(),
                multicast_routes: Vec::new(),
                ports: Vec::new(),
                guards: Vec::new(),
                fast_path: None,
                uptime: Duration::ZERO,
                panics: 0,
                log: LogCounts::default(),
                ipfix: IpfixCounts::default(),
                sync: None,
                confinement: Confinement::default(),
                notes: Vec::new(),
                trial: None,
            });
        }
        Request::Apply { policy, reply, .. } => {
            let is_empty = policy.interfaces.is_empty();
            let _ = reply.send(if is_empty { Err(Refusal::OnTrial) } else { Ok(Applied { epoch: 2 }) });
        }
        Request::Rollback(reply) => drop(reply.send(Err(NoTrial))),
        Request::Workers(reply) => drop(reply.send(vec![worker.clone()])),
        Request::Policy(reply) => drop(reply.send(policy.clone())),
        // What gets no answer is told that the gateway is ending.
        _ => {}
    }
}
