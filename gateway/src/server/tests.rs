//! Arbitrary input on the socket: answered with an error or disconnected, while well-behaved clients are served. Behind
//! the socket are a worker without ports, and a supervisor that knows one policy.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dataplane::Tables;
use dataplane::hop::Resolve;
use dataplane::nat::Share;
use dataplane::shard::Setup;
use policy::parse::MOST_BYTES;
use rustix::fs::Mode;
use wire::Pool;

use super::*;
use crate::api::{InForce, Killed, Listed};
use crate::client::{Client, ClientError};
use crate::clock::Clock;
use crate::privilege::Confinement;
use crate::request::{Applied, NoTrial, Overview, Refusal, Request};
use crate::view::Status;
use crate::worker::{Command, CommandSender, Parts, Worker, command_channel};

const POLICY: &str =
    "[interface.east]\nzone = \"a\"\naddresses = [\"192.0.2.1/24\"]\n[limit]\nflows = 1024\n";

/// Temporary directory, removed when dropped.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("wirerate-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("control.sock")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn nothing_public() -> Public {
    Public::open(&policy::model::Gateway::default()).unwrap()
}

/// Stub of the supervisor.
pub(crate) fn desk() -> Sender<Event> {
    let policy = Arc::new(policy::parse(POLICY, "policy").policy.unwrap());
    let tables = Arc::new(Tables::compile(&policy, 1).unwrap());
    let (worker, commands) = command_channel().unwrap();
    let clock = Clock::start();
    let setup = Setup { seed: [1, 2], now: clock.now(), resolve: Resolve::ByHost, share: Share::WHOLE };
    let parts = Parts {
        number: 0,
        tables: tables.clone(),
        setup,
        pool: Pool::new(64, 2048).unwrap(),
        clock,
        commands,
        events: Box::new(|_| true),
        shared: None,
        log: None,
        export: None,
        fast_path: None,
    };
    let work = Worker::new(parts).unwrap();
    thread::spawn(move || work.work());
    let (sender, events) = channel();
    thread::spawn(move || {
        for event in events {
            let Event::Request(request) = event else { continue };
            answer(request, &worker, &policy, &tables);
        }
        worker.send(Command::Stop);
    });
    sender
}

fn answer(request: Request, worker: &CommandSender, policy: &Arc<policy::Policy>, tables: &Arc<Tables>) {
    match request {
        Request::Overview(reply) => {
            let (to, told) = channel();
            worker.send(Command::Report(to));
            let _ = reply.send(Overview {
                sets: Vec::new(),
                multicast_routes: Vec::new(),
                tunnels: Vec::new(),
                tables: tables.clone(),
                reports: told.iter().collect(),
                wans: Vec::new(),
                servers: Vec::new(),
                ports: Vec::new(),
                uptime: Duration::ZERO,
                panics: 0,
                log: Default::default(),
                ipfix: Default::default(),
                sync: None,
                guards: Vec::new(),
                fast_path: None,
                confinement: Confinement::default(),
                notes: Vec::new(),
                trial: None,
            });
        }
        Request::Apply { policy, reply, .. } => {
            let is_empty = policy.interfaces.is_empty();
            let _ = reply.send(if is_empty { Err(Refusal::Empty) } else { Ok(Applied { epoch: 2 }) });
        }
        Request::Release { reply, .. } => drop(reply.send(Ok(Vec::new()))),
        Request::Rollback(reply) => drop(reply.send(Err(NoTrial))),
        Request::Workers(reply) => drop(reply.send(vec![worker.clone()])),
        Request::Policy(reply) => drop(reply.send(policy.clone())),
        // No test asks anything else.
        _ => {}
    }
}

fn refused<T: std::fmt::Debug>(outcome: Result<T, ClientError>) -> String {
    match outcome {
        Err(ClientError::Refused(trouble)) => {
            assert!(!trouble.hint.is_empty());
            trouble.error
        }
        other => panic!("{other:?}"),
    }
}

fn works(client: &Client) {
    assert_eq!(client.get::<Status>("/status").unwrap().epoch, 1);
}

#[test]
fn what_is_asked_in_order_is_answered() {
    let place = Place::new("order");
    let _server = Server::start(&place.socket(), nothing_public(), desk()).unwrap();
    let client = Client::at(&place.socket());
    works(&client);
    assert_eq!(client.get_text("/policy").unwrap(), policy::parse(POLICY, "").policy.unwrap().to_string());
    assert!(client.get::<Listed>("/flows?port=53&limit=10").unwrap().flows.is_empty());
    assert_eq!(client.post::<Killed>("/flows/kill?host=10.0.0.0/8", String::new()).unwrap().ended, 0);
    let applied = client.post::<InForce>("/apply?confirm=60", POLICY.to_owned()).unwrap();
    assert_eq!(applied, InForce { epoch: 2, confirm_seconds: Some(60) });
    assert!(client.get_text("/metrics").unwrap().contains("wirerate_"));
}

#[test]
fn what_nobody_can_answer_is_refused_in_words() {
    let place = Place::new("words");
    let _server = Server::start(&place.socket(), nothing_public(), desk()).unwrap();
    let client = Client::at(&place.socket());
    let of = |question: &str| refused(client.get_text(question));
    assert_eq!(of("/nothing/here?at=all"), "the gateway has no /nothing/here");
    assert_eq!(of("/confirm"), "/confirm does not take GET");
    assert_eq!(refused(client.tell("/status")), "/status does not take POST");
    assert_eq!(refused(client.tell("/rollback")), "no policy is on trial");
    for (question, word) in
        [("/flows?limit=many", "limit"), ("/flows?port=65536", "port"), ("/flows?limit=-1", "limit")]
    {
        let told = of(question);
        assert!(told.contains(word), "{told}");
    }
    assert_eq!(of("/flows?host=nowhere"), "there is no address or prefix \"nowhere\"");
    assert_eq!(of("/flows?rule=gone"), "there is no rule \"gone\"");
    assert_eq!(refused(client.tell("/flows/kill?state=merry")), "there is no state \"merry\"");
    let sas = client.get_text("/sas?tunnel=nowhere");
    assert!(
        matches!(&sas, Err(ClientError::Refused(trouble)) if trouble.hint == "the policy in force has no tunnel")
    );
    assert_eq!(refused(sas), "there is no tunnel \"nowhere\"");
    works(&client);
}

#[test]
fn a_policy_that_cannot_be_is_refused_in_words() {
    let place = Place::new("apply");
    let _server = Server::start(&place.socket(), nothing_public(), desk()).unwrap();
    let client = Client::at(&place.socket());
    let of = |path: &str, body: &str| refused(client.post::<InForce>(path, body.to_owned()));
    let told = of("/apply", "[interface.east]\n");
    assert!(told.starts_with("the policy has an error: line 1: "), "{told}");
    let told = of("/apply", "[interface.east]\n[interface.west]\n");
    assert!(told.starts_with("the policy has 2 errors; the first: line 1: "), "{told}");
    assert_eq!(of("/apply", ""), "the policy has no interface");
    // A trial that ends when time does.
    for confirm in ["0", "86401", "18446744073709551615"] {
        let told = of(&format!("/apply?confirm={confirm}"), POLICY);
        assert_eq!(told, "a trial takes from 1 to 86400 seconds");
    }
    assert!(of("/apply?confirm=soon", POLICY).contains("confirm"));
    assert_eq!(of("/apply", &"#".repeat(MOST_BYTES + 1)), "the policy is longer than 64 MiB");
    works(&client);
}

#[test]
fn a_policy_that_is_no_text_is_refused_in_words() {
    let place = Place::new("bytes");
    let _server = Server::start(&place.socket(), nothing_public(), desk()).unwrap();
    let answer = said(&place, b"POST /apply HTTP/1.1\r\nhost: g\r\ncontent-length: 4\r\n\r\n# \xff\xfe");
    assert!(answer.starts_with("HTTP/1.1 422 "), "{answer}");
    assert!(answer.contains(r#""error":"the policy is not UTF-8: byte 2""#), "{answer}");
}

/// Sends bytes, and returns the response up to the end of the connection.
fn said(place: &Place, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(place.socket()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn what_is_no_question_is_no_harm() {
    let place = Place::new("noise");
    let _server = Server::start(&place.socket(), nothing_public(), desk()).unwrap();
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(1 << 20));
    let headers = format!("GET /status HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(10_000));
    let bad: [&[u8]; 6] = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /apply HTTP/1.1\r\nhost: g\r\ncontent-length: -1\r\n\r\n",
        b"POST /apply HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        long.as_bytes(),
        headers.as_bytes(),
    ];
    for bytes in bad {
        let mut stream = UnixStream::connect(place.socket()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // It may be given up before all is there.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
        works(&Client::at(&place.socket()));
    }
}

/// Serves a socket with other limits, until the process ends.
fn serve_with(path: &Path, bounds: Bounds, router: axum::Router) {
    let socket = listen(path, SocketType::STREAM, Purpose::Control).unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    thread::spawn(move || {
        runtime.block_on(async move {
            let listener = tokio::net::UnixListener::from_std(socket).unwrap();
            serve(listener, bounds, move |_, _| router.clone()).await;
        });
    });
}

#[test]
fn who_never_finishes_a_question_is_given_up() {
    let place = Place::new("loris");
    // Longer than anybody who finishes takes on a busy machine.
    let head = Duration::from_secs(2);
    serve_with(&place.socket(), Bounds { head, ..Bounds::CONTROL }, api::control(desk()));
    let mut slow = UnixStream::connect(place.socket()).unwrap();
    let mut silent = UnixStream::connect(place.socket()).unwrap();
    slow.write_all(b"GET /status HTTP/1.1\r\nhost: ").unwrap();
    works(&Client::at(&place.socket()));
    for stream in [&mut slow, &mut silent] {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    }
}

#[test]
fn a_thousand_silent_connections_keep_nobody_from_asking() {
    let place = Place::new("thousand");
    let _server = Server::start(&place.socket(), nothing_public(), desk()).unwrap();
    let client = Client::at(&place.socket());
    let mut open = Vec::new();
    for number in 0..1000 {
        let mut stream = UnixStream::connect(place.socket()).unwrap();
        if number % 2 == 0 {
            stream.write_all(b"GET /status HTTP/1.1\r\n").unwrap();
        }
        open.push(stream);
        if number % 100 == 99 {
            works(&client);
        }
    }
    works(&client);
    let mut given_up = 0;
    for stream in &mut open {
        stream.set_nonblocking(true).unwrap();
        given_up += usize::from(stream.read(&mut [0; 1]).is_ok());
    }
    // The last one of those that asked took a place, too.
    assert!((1000 - Bounds::CONTROL.most..1000).contains(&given_up), "{given_up}");
}

#[test]
fn who_does_not_take_the_answer_is_given_up() {
    let place = Place::new("stall");
    let stall = Duration::from_millis(200);
    let long = axum::Router::new().fallback(|| async { "a".repeat(64 << 20) });
    let router = long.route("/short", axum::routing::get(|| async { "b" }));
    // One place: who asks next is answered only when the first is gone. The answer is short, so that it does not matter how fast it is taken.
    serve_with(&place.socket(), Bounds { most: 1, stall, ..Bounds::CONTROL }, router);
    let mut first = UnixStream::connect(place.socket()).unwrap();
    first.write_all(b"GET / HTTP/1.1\r\nhost: g\r\n\r\n").unwrap();
    first.read_exact(&mut [0; 1]).unwrap();
    assert_eq!(Client::at(&place.socket()).get_text("/short").unwrap(), "b");
    let mut rest = Vec::new();
    let _ = first.read_to_end(&mut rest);
    assert!(rest.len() < 64 << 20);
}

#[test]
fn a_policy_under_way_keeps_nobody_from_asking() {
    let place = Place::new("meanwhile");
    let (sender, events) = channel();
    let inner = desk();
    let kept = Arc::new(Mutex::new(Vec::new()));
    let (told, began) = channel();
    let waiting = kept.clone();
    thread::spawn(move || {
        for event in events {
            if let Event::Request(Request::Apply { reply, .. }) = event {
                waiting.lock().unwrap().push(reply);
                told.send(()).unwrap();
            } else {
                inner.send(event).unwrap();
            }
        }
    });
    let _server = Server::start(&place.socket(), nothing_public(), sender).unwrap();
    let client = Client::at(&place.socket());
    let first = client.clone();
    let first = thread::spawn(move || first.post::<InForce>("/apply", POLICY.to_owned()));
    began.recv().unwrap();
    works(&client);
    // The next one waits its turn, even where who asked for the first is gone.
    let second = client.clone();
    let second = thread::spawn(move || second.post::<InForce>("/apply", POLICY.to_owned()));
    assert!(began.recv_timeout(Duration::from_millis(300)).is_err());
    works(&client);
    kept.lock().unwrap().remove(0).send(Ok(Applied { epoch: 2 })).unwrap();
    assert_eq!(first.join().unwrap().unwrap().epoch, 2);
    began.recv().unwrap();
    kept.lock().unwrap().remove(0).send(Ok(Applied { epoch: 3 })).unwrap();
    assert_eq!(second.join().unwrap().unwrap().epoch, 3);
}

#[test]
fn a_stranger_is_told_who_may_ask() {
    let place = Place::new("stranger");
    serve_with(&place.socket(), Bounds::CONTROL, api::forbidden("user 65534".to_owned()));
    let client = Client::at(&place.socket());
    for answer in [client.tell("/apply"), client.tell("/nothing"), client.get_text("/status").map(drop)] {
        assert_eq!(refused(answer), "the gateway takes no questions from user 65534");
    }
}

#[test]
fn the_socket_is_its_owners_whatever_the_umask() {
    let place = Place::new("mode");
    let path = place.0.join("new/control.sock");
    let before = rustix::process::umask(Mode::empty());
    let server = Server::start(&path, nothing_public(), desk());
    rustix::process::umask(before);
    let _server = server.unwrap();
    assert_eq!(fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    let directory = fs::symlink_metadata(path.parent().unwrap()).unwrap();
    assert_eq!(directory.permissions().mode() & 0o7777, 0o755);
}

#[test]
fn what_stands_in_the_way_is_left_alone() {
    let place = Place::new("way");
    let other = place.0.join("precious");
    fs::write(&other, "data").unwrap();
    let error = Server::start(&other, nothing_public(), desk()).err().unwrap();
    assert!(matches!(&error, ServerError::Occupied { path, .. } if *path == other), "{error}");
    let link = place.0.join("link");
    symlink(&other, &link).unwrap();
    let error = Server::start(&link, nothing_public(), desk()).err().unwrap();
    assert!(matches!(&error, ServerError::Occupied { path, .. } if *path == link), "{error}");
    assert_eq!(fs::read_to_string(&other).unwrap(), "data");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    // A link to nowhere would have a socket made where it leads.
    let link = place.0.join("dangling");
    symlink(place.0.join("elsewhere"), &link).unwrap();
    assert!(Server::start(&link, nothing_public(), desk()).is_err());
    assert!(!place.0.join("elsewhere").exists());
}

#[test]
fn a_dead_socket_is_replaced_and_a_living_one_is_not() {
    let place = Place::new("dead");
    drop(UnixListener::bind(place.socket()).unwrap());
    assert!(place.socket().exists());
    let server = Server::start(&place.socket(), nothing_public(), desk()).unwrap();
    let error = Server::start(&place.socket(), nothing_public(), desk()).err().unwrap();
    assert!(matches!(&error, ServerError::Taken { path, .. } if *path == place.socket()), "{error}");
    works(&Client::at(&place.socket()));
    drop(server);
    assert!(!place.socket().exists());
    // Another's that has taken its place stays.
    let server = Server::start(&place.socket(), nothing_public(), desk()).unwrap();
    fs::remove_file(place.socket()).unwrap();
    let _other = UnixListener::bind(place.socket()).unwrap();
    drop(server);
    assert!(place.socket().exists());
}

#[test]
fn an_ended_connection_is_forgotten() {
    let place = Place::new("forgotten");
    // Each is one that has asked, and so none that would be made to go for the next.
    serve_with(&place.socket(), Bounds { most: 4, ..Bounds::CONTROL }, api::control(desk()));
    let client = Client::at(&place.socket());
    for _ in 0..100 {
        works(&client);
    }
}

/// Stub of a stopped or stuck gateway: accepts connections, sends the given bytes after a request, and no more.
fn silent(place: &Place, says: &'static [u8]) -> UnixListener {
    let listener = UnixListener::bind(place.socket()).unwrap();
    let own = listener.try_clone().unwrap();
    thread::spawn(move || {
        let mut open = Vec::new();
        for stream in own.incoming() {
            let mut stream = stream.unwrap();
            // An answer before the question is none.
            let _ = stream.read(&mut [0]);
            let _ = stream.write_all(says);
            open.push(stream);
        }
    });
    listener
}

#[test]
fn a_gateway_that_says_nothing_is_not_waited_for_for_ever() {
    for (name, says) in [
        ("mute", &b""[..]),
        ("half", b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"),
        ("drip", b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 10\r\n\r\n"),
    ] {
        let place = Place::new(name);
        let _listener = silent(&place, says);
        let client = Client::at(&place.socket()).patient(Duration::from_millis(50));
        let outcome = client.get_text("/status");
        assert!(matches!(outcome, Err(ClientError::Silent { .. })), "{name}: {outcome:?}");
        let sent = client.send::<u32>("/state", io::repeat(1).take(1 << 24));
        assert!(matches!(sent, Err(ClientError::Silent { .. })), "{name}: {sent:?}");
    }
}
