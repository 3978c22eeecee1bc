//! Bursts of changes, some beyond the receive buffer.

use std::fmt::Write;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use gateway::linux::{Options, State};

use crate::follow::Follower;
use crate::netns::{ip, ip_batch, within};
use crate::oracle::differs;

/// Creates an interface with a router behind it.
fn one_link() {
    ip("link add name east type veth peer name far");
    ip("link set east up");
    ip("link set far up");
    ip("addr add 192.0.2.1/24 dev east");
}

/// Commands for `ip` about `count` routes.
fn routes(what: &str, count: u32) -> String {
    let mut commands = String::new();
    for number in 0..count {
        let [_, a, b, c] = number.to_be_bytes();
        writeln!(commands, "route {what} 10.{a}.{b}.{c}/32 via 192.0.2.9").unwrap();
    }
    commands
}

impl Follower {
    /// Waits until the state has that many destinations.
    fn hear_until(&mut self, destinations: usize) {
        let begun = Instant::now();
        while self.state.routes.len() != destinations {
            assert!(begun.elapsed() < Duration::from_secs(60), "{} routes", self.state.routes.len());
            self.hear(Duration::from_millis(50));
        }
    }
}

#[test]
fn many_routes_are_told_together() {
    within("burst::many_routes_are_told_together", || {
        one_link();
        let options = Options::default();
        let mut follower = Follower::start(options);
        follower.settle();
        let (routes_before, told_before) = (follower.state.routes.len(), follower.told);
        let begun = Instant::now();
        let adding = std::thread::spawn(|| ip_batch(&routes("add", 50_000)));
        follower.hear_until(routes_before + 50_000);
        adding.join().unwrap();
        let told = follower.told - told_before;
        let most = begun.elapsed().as_millis() / options.gap.as_millis() + 2;
        assert!(told >= 1 && told as u128 <= most, "{told} times, {most} at most");
        assert_eq!(follower.lost, 0);
        assert_eq!(differs(&follower.state), None);
        // All gone with their interface, of which Linux says nothing.
        ip("link set east down");
        follower.settle();
    });
}

#[test]
fn what_was_lost_is_found_again() {
    within("burst::what_was_lost_is_found_again", || {
        one_link();
        // As little as Linux grants: a handful of events.
        let mut follower = Follower::start(Options { buffer: 1, ..Options::default() });
        follower.settle();
        for round in 0..3 {
            let mut commands = routes(if round == 1 { "del" } else { "add" }, 3000);
            for number in 0..500 {
                let what = if round == 1 { "del" } else { "replace" };
                let (high, low) = (number / 250, number % 250);
                let mac = format!("02:00:00:00:{round:02x}:{low:02x}");
                let more = if round == 1 { String::new() } else { format!("lladdr {mac}") };
                writeln!(commands, "neigh {what} 192.0.{}.{} dev east {more}", 2 + high, low + 2).unwrap();
            }
            writeln!(commands, "link set far mtu {}", 1300 + round).unwrap();
            writeln!(commands, "addr add 10.99.{round}.1/24 dev far").unwrap();
            ip_batch(&commands);
            let begun = Instant::now();
            loop {
                follower.settle();
                let mut anew = Follower::start(Options::default());
                anew.settle();
                // An address may have ceased to be tentative between the two.
                if follower.state == anew.state {
                    break;
                }
                let differs = difference(&follower.state, &anew.state);
                assert!(begun.elapsed() < Duration::from_secs(10), "the states go on to differ: {differs}");
            }
        }
        assert!(follower.lost > 0, "nothing was lost: the test did not test anything");
    });
}

#[test]
fn interfaces_are_told_of_before_their_neighbours() {
    within("burst::interfaces_are_told_of_before_their_neighbours", || {
        one_link();
        // So long that no state comes by itself between the first two.
        let mut follower = Follower::start(Options { gap: Duration::from_secs(1), ..Options::default() });
        let mut commands = String::new();
        for number in 0..20 {
            writeln!(commands, "link add name a{number} type veth peer name b{number}").unwrap();
            writeln!(commands, "link set a{number} up").unwrap();
            writeln!(commands, "neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev a{number}").unwrap();
        }
        ip_batch(&commands);
        follower.settle();
        assert!(follower.changes.len() >= 20);
    });
}

/// Differences between two states, for a message.
fn difference(a: &State, b: &State) -> String {
    let mut said = String::new();
    if a.links != b.links {
        writeln!(said, "links {:?}\n{:?}", a.links, b.links).unwrap();
    }
    if a.addresses != b.addresses {
        writeln!(said, "addresses {:?}\n{:?}", a.addresses, b.addresses).unwrap();
    }
    for (destination, routes) in a.routes.iter().chain(b.routes.iter()) {
        if a.routes.get(destination) != b.routes.get(destination) {
            writeln!(said, "{destination} {routes:?}").unwrap();
        }
    }
    writeln!(said, "{:?}", a.neighbours.differences(&b.neighbours)).unwrap();
    said
}

#[test]
fn what_bird_announces_is_seen() {
    within("burst::what_bird_announces_is_seen", || {
        if Command::new("bird").arg("--version").output().is_err() {
            eprintln!("SKIPPED: burst::what_bird_announces_is_seen: needs bird (Debian: bird2)");
            return;
        }
        one_link();
        ip("addr add 2001:db8::1/64 dev east nodad");
        let mut follower = Follower::start(Options::default());
        follower.settle();
        let before = follower.state.routes.len();
        let place = std::env::temp_dir().join(format!("wirerate-bird-{}", std::process::id()));
        fs::create_dir_all(&place).unwrap();
        let mut config = String::from(
            "router id 192.0.2.1;\nprotocol device {}\n\
             protocol kernel { ipv4 { export all; }; }\nprotocol kernel { ipv6 { export all; }; }\n\
             protocol static { ipv6;\n\
             route 2001:db8:5::/48 via 2001:db8::9;\n\
             route 2001:db8:6::/48 via 2001:db8::8 via 2001:db8::9;\n\
             route 2001:db8:7::/48 unreachable;\n}\n\
             protocol static { ipv4;\n\
             route 10.200.0.0/16 via 192.0.2.8 weight 2 via 192.0.2.9;\n\
             route 10.201.0.0/16 blackhole;\n",
        );
        for number in 0..2000 {
            writeln!(config, "route 10.{}.{}.0/24 via 192.0.2.9;", number / 250, number % 250).unwrap();
        }
        config += "}\n";
        fs::write(place.join("bird.conf"), config).unwrap();
        let mut bird = Command::new("bird")
            .args(["-f", "-c"])
            .arg(place.join("bird.conf"))
            .arg("-s")
            .arg(place.join("socket"))
            .spawn()
            .unwrap();
        follower.hear_until(before + 2005);
        follower.settle();
        // Asked to end, it takes its routes away.
        let ended = Command::new("kill").arg(bird.id().to_string()).status().unwrap();
        assert!(ended.success());
        bird.wait().unwrap();
        follower.hear_until(before);
        follower.settle();
        fs::remove_dir_all(&place).unwrap();
    });
}
