use std::net::TcpListener;
use std::sync::mpsc::channel;
use std::time::Instant;

use super::*;

fn policy(targets: &str, check: &str) -> Policy {
    let text = format!(
        "[interface.lan]\nzone = \"lan\"\naddresses = [\"127.0.0.1/8\"]\n[[nat]]\nname = \"web\"\nkind = \"balance\"\n\
         outside = \"192.0.2.1\"\nprotocol = \"tcp\"\nport = 80\ntargets = [{targets}]\n{check}\n"
    );
    let parsed = policy::parse(&text, "balance.toml");
    parsed.policy.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics))
}

fn key(server: &str) -> ServerKey {
    ServerKey { nat: "web".to_owned(), server: server.to_owned() }
}

fn failed(servers: &[&str]) -> Failed {
    let servers = servers.iter().map(|server| (key(server), "connection refused".to_owned())).collect();
    Failed { servers, ..Failed::default() }
}

fn states(policy: &Policy) -> Vec<ServerState> {
    servers(policy).map(|(_, _, server)| server.state).collect()
}

#[test]
fn a_failed_server_is_down_while_it_is_checked() {
    let targets = "\"192.0.2.7:80\", \"192.0.2.8:80\", \"192.0.2.9:80 down\"";
    let mut made = policy(targets, "check = {}");
    let standings = follow(&mut made, &failed(&["192.0.2.8:80", "192.0.2.9:80", "192.0.2.10:80"]));
    let found: Vec<_> = standings.iter().map(|standing| standing.state).collect();
    assert_eq!(found, [ServerHealth::Up, ServerHealth::Failed, ServerHealth::OutOfService]);
    assert_eq!(standings[1].trouble.as_deref(), Some("connection refused"));
    assert_eq!(states(&made), [ServerState::Up, ServerState::Down, ServerState::Down]);
    let mut made = policy(targets, "");
    follow(&mut made, &failed(&["192.0.2.8:80"]));
    assert_eq!(states(&made), [ServerState::Up, ServerState::Up, ServerState::Down]);
}

#[test]
fn ports_and_hosts_are_those_of_the_probe_or_of_the_server() {
    let plan = |target: &str, probe: &str| {
        let policy = policy(&format!("\"{target}\""), &format!("check = {{ probe = \"{probe}\" }}"));
        let (_, balance, server) = servers(&policy).next().unwrap();
        match Plan::of(balance, server).unwrap().target {
            Target::Ping => "ping".to_owned(),
            Target::Tcp(port) => format!("tcp {port}"),
            Target::Http { port, path, authority, tls, .. } => format!("{port} {authority}{path} {tls:?}"),
        }
    };
    assert_eq!(plan("192.0.2.7", "tcp"), "tcp 80");
    assert_eq!(plan("192.0.2.7:8080", "tcp"), "tcp 8080");
    assert_eq!(plan("192.0.2.7:8080", "tcp:81"), "tcp 81");
    assert_eq!(plan("192.0.2.7", "ping"), "ping");
    assert_eq!(plan("192.0.2.7:8080", "http:///x"), "8080 192.0.2.7:8080/x None");
    assert_eq!(plan("192.0.2.7:8080", "http://:81/x"), "81 192.0.2.7:81/x None");
    assert_eq!(plan("192.0.2.7:8080", "http://a/x"), "8080 a/x None");
    assert_eq!(plan("192.0.2.7:8080", "https://a:443/x"), "443 a:443/x Some(\"a\")");
}

/// Verdicts until the servers that are expected have failed.
fn until_failed(checks: &mut ServerChecks, events: &std::sync::mpsc::Receiver<Event>, expected: &[&str]) {
    let end = Instant::now() + Duration::from_secs(20);
    while checks.failed.keys().map(|key| key.server.as_str()).ne(expected.iter().copied()) {
        let left = end.saturating_duration_since(Instant::now());
        match events.recv_timeout(left) {
            Ok(Event::Server(news)) => {
                checks.heard(news);
            }
            Ok(_) => {}
            Err(_) => panic!("{:?} have failed, not {expected:?}", checks.failed),
        }
    }
}

#[test]
fn a_reload_keeps_the_health_of_what_stays() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let up = listener.local_addr().unwrap().to_string();
    // Nobody listens on the discard port of these.
    let [one, two] = ["127.0.0.2:9", "127.0.0.3:9"];
    let quick = "check = { every = \"100ms\", fall = 2, rise = 2 }";
    let (sender, events) = channel();
    let (mut checks, mut checker) = (ServerChecks::default(), Checker::default());
    checks.follow(&policy(&format!("\"{up}\", \"{one}\""), quick), &mut checker, &sender);
    until_failed(&mut checks, &events, &[one]);
    assert_eq!(checks.failed.get(&key(one)).map(String::as_str), Some("connection refused"));
    let number = checks.running[&key(one)].number;
    // One more: the others go on, and it is up until it has failed.
    checks.follow(&policy(&format!("\"{up}\", \"{one}\", \"{two}\""), quick), &mut checker, &sender);
    assert_eq!(checks.running[&key(one)].number, number);
    assert!(checks.failed.contains_key(&key(one)) && !checks.failed.contains_key(&key(two)));
    until_failed(&mut checks, &events, &[one, two]);
    // Another check of the same servers begins with the health that they have.
    let other = "check = { every = \"100ms\", fall = 2, rise = 200 }";
    checks.follow(&policy(&format!("\"{up}\", \"{one}\""), other), &mut checker, &sender);
    assert!(checks.running[&key(one)].number > number);
    assert_eq!(checks.failed.keys().collect::<Vec<_>>(), [&key(one)]);
    // A verdict of the check before is none of this one's.
    let late = ServerNews { key: key(one), number, health: Health::Up, trouble: None };
    assert!(!checks.heard(late));
    // Out of service it is not checked.
    checks.follow(&policy(&format!("\"{up}\", \"{one} down\""), other), &mut checker, &sender);
    assert!(checks.failed.is_empty() && checks.running.len() == 1);
}
