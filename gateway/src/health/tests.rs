use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::channel;

use policy::model::StatusRange;
use wire::Nanos;

use super::http::Question;
use super::*;

fn told(fall: u8, rise: u8, outcomes: &str) -> String {
    let pace = Pace { every: Nanos::from_secs(1), timeout: None, fall, rise };
    let mut hysteresis = Hysteresis::new(Health::Up, &pace);
    let health = |outcome| if outcome == '+' { Health::Up } else { Health::Down };
    let told = outcomes.chars().map(|outcome| match hysteresis.note(health(outcome)) {
        None => '.',
        Some(Health::Up) => 'U',
        Some(Health::Down) => 'D',
    });
    told.collect()
}

#[test]
fn only_so_many_in_a_row_change_the_health() {
    assert_eq!(told(3, 2, "+--+--+---"), ".........D");
    assert_eq!(told(3, 2, "---+-+-++-"), "..D.....U.");
    assert_eq!(told(1, 1, "-+-+"), "DUDU");
    assert_eq!(told(255, 1, &"-".repeat(255)).find('D'), Some(254));
}

/// A server that reads a request and writes this, and then, where it is told to, goes on and on.
fn server(answer: &'static [u8], goes_on: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut request = [0; 1024];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(answer);
            while goes_on && stream.write_all(&[b'a'; 65_536]).is_ok() {}
        }
    });
    address
}

struct Http(SocketAddr, Question);

impl Ask for Http {
    async fn ask(&mut self) -> Result<(), Trouble> {
        http::ask(self.0, None, &self.1).await
    }
}

fn question() -> Question {
    let status = vec![StatusRange::SUCCESSFUL];
    Question { path: "/health".to_owned(), authority: "shop.example".to_owned(), status, tls: None }
}

/// Outcome of the first check of a server; `None` where it passes.
fn outcome(checker: &mut Checker, address: SocketAddr) -> Option<String> {
    let pace =
        Pace { every: Nanos::from_secs(3_600), timeout: Some(Nanos::from_millis(500)), fall: 1, rise: 1 };
    let (sender, told) = channel();
    let counts = Arc::new(Counts::default());
    let begin = |health| Check {
        ask: Http(address, question()),
        pace,
        first: Duration::ZERO,
        health,
        counts: Arc::clone(&counts),
    };
    let sender2 = sender.clone();
    // One of them changes.
    let _down = checker.spawn(begin(Health::Up), move |_, trouble| drop(sender.send(trouble))).unwrap();
    let _up = checker.spawn(begin(Health::Down), move |_, trouble| drop(sender2.send(trouble))).unwrap();
    let outcome = told.recv_timeout(Duration::from_secs(10)).expect("a verdict");
    outcome.map(|trouble| trouble.to_string())
}

#[test]
fn an_answer_passes_by_its_status_and_whatever_is_no_answer_fails() {
    let mut checker = Checker::default();
    let mut outcome = |answer, goes_on| outcome(&mut checker, server(answer, goes_on));
    assert_eq!(outcome(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", false), None);
    assert_eq!(outcome(b"HTTP/1.0 204 No Content\r\n\r\n", false), None);
    // A gigabyte is not waited for, nor a body that does not come.
    assert_eq!(outcome(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n", true), None);
    assert_eq!(outcome(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n", false), None);
    let status = |text: &str| Some(format!("the status is {text}"));
    assert_eq!(outcome(b"HTTP/1.1 500 Out of order\r\n\r\n", false), status("500"));
    assert_eq!(outcome(b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:9/\r\n\r\n", false), status("302"));
    let no_http = Some("the answer is no HTTP".to_owned());
    assert_eq!(outcome(b"SSH-2.0-OpenSSH_9.2\r\n\r\n", false), no_http);
    assert_eq!(outcome(b"\0\xff\xfe", true), no_http);
    assert_eq!(outcome(b"HTTP/1.1 200 OK\r\nendless: ", true), no_http);
    assert_eq!(outcome(b"", false), Some("the connection ends before an answer".to_owned()));
    assert_eq!(outcome(b"HTTP/1.1 2", false), Some("the connection ends before an answer".to_owned()));
}

#[test]
fn what_hangs_fails_in_time_and_delays_nobody() {
    let mut checker = Checker::default();
    // It takes connections, by the backlog, and never reads one.
    let hung = TcpListener::bind("127.0.0.1:0").unwrap();
    let hung = hung.local_addr().map(|address| (address, hung)).unwrap();
    let pace = Pace { every: Nanos::from_secs(60), timeout: Some(Nanos::from_secs(50)), fall: 1, rise: 1 };
    let waiting: Vec<Task> = (0..100)
        .map(|_| {
            let (ask, counts) = (Http(hung.0, question()), Arc::new(Counts::default()));
            let check = Check { ask, pace, first: Duration::ZERO, health: Health::Up, counts };
            checker.spawn(check, |_, _| {}).unwrap()
        })
        .collect();
    assert_eq!(outcome(&mut checker, server(b"HTTP/1.1 200 OK\r\n\r\n", false)), None);
    assert_eq!(outcome(&mut checker, hung.0), Some("no answer in time".to_owned()));
    drop(waiting);
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).unwrap();
    assert_eq!(outcome(&mut checker, closed), Some("connection refused".to_owned()));
}

#[test]
fn the_first_of_several_questions_that_is_passed_is_enough() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let ask = |outcomes: &'static [Option<u16>]| {
        runtime.block_on(first_passed(outcomes.iter().map(|outcome| async move {
            match outcome {
                Some(200) => Ok(()),
                Some(status) => Err(Trouble::Status(*status)),
                None => std::future::pending().await,
            }
        })))
    };
    assert_eq!(ask(&[Some(500), None, Some(200)]), Ok(()));
    assert_eq!(ask(&[None, Some(200)]), Ok(()));
    assert!(matches!(ask(&[Some(500), Some(503)]), Err(Trouble::Status(_))));
    assert_eq!(ask(&[]), Err(Trouble::Closed));
}

#[test]
fn a_name_keeps_its_addresses_while_it_is_resolved_again() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut address = Named::new("::1", 443);
        assert_eq!(address.addresses().await, Ok(vec![SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 443))]));
        let mut name = Named::new("localhost", 80);
        let found = name.addresses().await.expect("a name of every system");
        assert!(found.iter().all(|address| address.ip().is_loopback() && address.port() == 80), "{found:?}");
        // Nobody answered: it is resolved again, and the addresses are there meanwhile.
        assert!(
            poll_fn(|context| Poll::Ready(std::pin::pin!(name.addresses()).poll(context))).await.is_ready()
        );
        name.answered();
        assert_eq!(name.addresses().await, Ok(found));
    });
}
