//! Following of Linux's state.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use gateway::linux::cow::Map;
use gateway::linux::{Neighbour, NeighbourChange, NeighbourKey, News, Options, State, Watch, watch};

use wire::random::Random;

use crate::netns::{ip, ip_may_fail, within};
use crate::oracle::{address, differs};

/// Watch under test, and its reports.
pub(crate) struct Follower {
    pub(crate) state: Arc<State>,
    pub(crate) changes: Vec<NeighbourChange>,
    pub(crate) told: usize,
    /// Number of overruns reported.
    pub(crate) lost: usize,
    /// Neighbours by the watch's reports, after the first state.
    neighbours: Map<NeighbourKey, Neighbour>,
    news: Receiver<News>,
    _watch: Watch,
}

impl Follower {
    pub(crate) fn start(options: Options) -> Follower {
        let (to, news) = channel();
        let watch = watch(options, to).unwrap();
        let mut follower = Follower {
            state: Arc::default(),
            changes: Vec::new(),
            told: 0,
            lost: 0,
            neighbours: Map::default(),
            news,
            _watch: watch,
        };
        while follower.told == 0 {
            follower.hear(Duration::from_secs(20));
        }
        follower
    }

    /// Processes pending reports; if there are none, waits for one up to that time.
    pub(crate) fn hear(&mut self, patience: Duration) {
        let mut next = self.news.recv_timeout(patience);
        while !matches!(next, Err(RecvTimeoutError::Timeout)) {
            self.take(next);
            next = self.news.recv_timeout(Duration::ZERO);
        }
    }

    fn take(&mut self, news: Result<News, RecvTimeoutError>) {
        match news {
            Ok(News::State(newest)) => {
                let mut state = newest.take();
                if self.told == 0 {
                    self.neighbours = state.neighbours.clone();
                }
                // Neighbours are as they were told one by one: nothing may be missing there.
                Arc::make_mut(&mut state).neighbours = self.neighbours.clone();
                self.state = state;
                self.told += 1;
            }
            Ok(News::Neighbour(change)) => {
                let known = self.state.links.contains_key(&change.key.link);
                assert!(known || change.now.is_none(), "{change:?} on an interface that was not told of");
                match change.now {
                    Some(now) => self.neighbours.insert(change.key, now),
                    None => self.neighbours.remove(&change.key),
                };
                Arc::make_mut(&mut self.state).neighbours = self.neighbours.clone();
                self.changes.push(change);
            }
            Ok(News::Lost) => self.lost += 1,
            Ok(News::Trouble(error)) => panic!("{error}"),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => panic!("the watch has ended"),
        }
    }

    /// Waits until the state equals that of `ip`.
    pub(crate) fn settle(&mut self) {
        if let Err(difference) = self.settles(Duration::from_secs(10)) {
            panic!("{difference}");
        }
    }

    /// Waits up to that time for the state to equal that of `ip`; returns the differences otherwise.
    pub(crate) fn settles(&mut self, within: Duration) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            self.hear(Duration::ZERO);
            match differs(&self.state) {
                None => return Ok(()),
                Some(difference) if begun.elapsed() > within => return Err(difference),
                Some(_) => self.hear(Duration::from_millis(100)),
            }
        }
    }
}

#[test]
fn links_addresses_routes_and_neighbours_are_as_ip_has_them() {
    within("follow::links_addresses_routes_and_neighbours_are_as_ip_has_them", || {
        ip("link set lo up");
        ip("link add name east type veth peer name west");
        ip("addr add 192.0.2.1/24 dev east");
        let mut follower = Follower::start(Options::default());
        follower.settle();
        for step in [
            "link set east up",
            "link set west up",
            "addr add 2001:db8::1/64 dev east nodad",
            "addr add 10.0.0.1 peer 10.0.0.2/32 dev west",
            "route add 198.51.100.0/24 via 192.0.2.2",
            "route add 203.0.113.0/24 nexthop via 192.0.2.2 weight 3 nexthop via 192.0.2.3 weight 5",
            "route add blackhole 10.9.0.0/16",
            "-6 route add 2001:db8:1::/48 via 2001:db8::2",
            "-6 route append 2001:db8:1::/48 via 2001:db8::3",
            "-6 route add unreachable 2001:db8:2::/48",
            "neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev east",
            "neigh add 2001:db8::2 lladdr 02:00:00:00:00:02 dev east nud stale router",
            "link set west name sunset",
            "link set sunset mtu 1400",
            "addr del 10.0.0.1 peer 10.0.0.2/32 dev sunset",
            "neigh del 192.0.2.2 dev east",
            // Forgets its neighbours, too.
            "link set east address 02:00:00:00:00:01",
            "link add name bridge type bridge",
            "link set sunset master bridge",
            "link set sunset nomaster",
            "link del dev bridge",
            "nexthop add id 1 via 192.0.2.2 dev east",
            "nexthop add id 2 via 192.0.2.3 dev east",
            "nexthop add id 3 group 1,2/2,7",
            "nexthop add id 4 blackhole",
            "route add 10.1.0.0/16 nhid 1",
            "route add 10.3.0.0/16 nhid 3",
            "route add 10.4.0.0/16 nhid 4",
            "nexthop replace id 1 via 192.0.2.4 dev east",
            // Takes routes along without a word.
            "nexthop del id 4",
            "link set east down",
            "link set east up",
            "addr add 192.0.2.1/24 dev sunset",
            "route add 10.5.0.0/16 via 192.0.2.9 src 192.0.2.1",
            "addr del 192.0.2.1/24 dev sunset",
            "link del east",
        ] {
            ip(step);
            follower.settle();
        }
        let told: Vec<_> =
            follower.changes.iter().filter(|change| change.key.address == address("192.0.2.2")).collect();
        // Linux says of one that is deleted that it failed, first.
        assert!(told[0].now.is_some_and(|now| now.usable().is_some()), "{told:?}");
        assert!(told[1..].iter().all(|change| change.now.is_none_or(|now| now.usable().is_none())));
        assert_eq!(told.last().and_then(|change| change.now), None, "{told:?}");
    });
}

/// Creates two links, with addresses to reach routers by.
fn two_links() {
    ip("link set lo up");
    for (pair, number) in [(("east", "east-end"), 1), (("west", "west-end"), 2)] {
        ip(&format!("link add name {} type veth peer name {}", pair.0, pair.1));
        ip(&format!("addr add 192.0.{number}.1/24 dev {}", pair.0));
        ip(&format!("addr add 2001:db8:{number}::1/64 dev {} nodad", pair.0));
        ip(&format!("link set {} up", pair.0));
        ip(&format!("link set {} up", pair.1));
    }
}

#[test]
fn whatever_is_done_to_routes_is_followed() {
    within("follow::whatever_is_done_to_routes_is_followed", || {
        two_links();
        for number in 1..=2 {
            let link = ["east", "west"][number - 1];
            ip(&format!("nexthop add id {number} via 192.0.{number}.9 dev {link}"));
            ip(&format!("nexthop add id 1{number} via 2001:db8:{number}::9 dev {link}"));
        }
        ip("nexthop add id 3 group 1,3/2,5");
        ip("nexthop add id 13 group 11/12");
        ip("nexthop add id 4 blackhole");
        let mut follower = Follower::start(Options::default());
        let mut random = Random::new(7);
        let mut done: Vec<String> = Vec::new();
        for round in 0..60 {
            for _ in 0..8 {
                let command = route_command(&mut random);
                // Many make no sense, such as deleting what is not there: ip may refuse.
                let refused = ip_may_fail(&command).is_err();
                done.push(format!("{command}{}", if refused { " (refused)" } else { "" }));
            }
            if round % 10 == 9 {
                let link = one_of(&mut random, &["east", "west"]);
                let number = if *link == "east" { 1 } else { 2 };
                let both = [
                    [format!("link set {link} down"), format!("link set {link} up")],
                    [
                        format!("addr del 192.0.{number}.1/24 dev {link}"),
                        format!("addr add 192.0.{number}.1/24 dev {link}"),
                    ],
                ];
                for command in one_of(&mut random, &both) {
                    ip(command);
                    done.push(command.clone());
                }
                let address = format!("addr replace 2001:db8:{number}::1/64 dev {link} nodad");
                ip(&address);
                done.push(address);
            }
            if let Err(difference) = follower.settles(Duration::from_secs(5)) {
                let last = &done[done.len().saturating_sub(60)..];
                panic!("in round {round}, after\n{}\n{difference}", last.join("\n"));
            }
        }
    });
}

/// Random command of `ip` on a route.
fn route_command(random: &mut Random) -> String {
    let v6 = random.below(2) == 1;
    let how = *one_of(random, &["add", "append", "prepend", "replace", "del", "del", "change"]);
    let number = random.below(3);
    let destination = if v6 { format!("2001:db8:ff0{number}::/48") } else { format!("10.{number}.0.0/16") };
    let metric = one_of(random, &["", "metric 5", "metric 5"]);
    let tos = if v6 { "" } else { one_of(random, &["", "", "", "tos 0x10"]) };
    let protocol = one_of(random, &["", "", "proto 119", "proto bird"]);
    let router = |random: &mut Random| {
        let (link, host) = (random.below(2), random.below(3));
        let name = ["east", "west"][link as usize];
        if v6 {
            format!("via 2001:db8:{}::{} dev {name}", link + 1, host + 2)
        } else {
            format!("via 192.0.{}.{} dev {name}", link + 1, host + 2)
        }
    };
    // Where IPv6 routes that unite stand among others, Linux's list leaves those others out (`fib6_dump_node` jumps from the
    // first of those united to the last): no oracle. So each destination has its kind.
    let kinds = match (v6, number) {
        (false, _) => (0, 12),
        (true, 0) => (0, 4),
        (true, _) => (5, 7),
    };
    let (kind, target) = match kinds.0 + random.below(kinds.1) {
        0 => ("blackhole ", String::new()),
        1 => ("unreachable ", String::new()),
        2 => ("prohibit ", String::new()),
        3 => ("", format!("dev {}", one_of(random, &["east", "west"]))),
        4 => {
            ("", format!("nhid {}", one_of(random, if v6 { &["11", "12", "13"] } else { &["1", "3", "4"] })))
        }
        5..8 => {
            let hops: Vec<String> = (0..2 + random.below(2))
                .map(|_| format!("nexthop {} weight {}", router(random), 1 + random.below(4)))
                .collect();
            ("", hops.join(" "))
        }
        _ => ("", router(random)),
    };
    // Half of what is deleted is described by less.
    let target = if how == "del" && random.below(2) == 0 { String::new() } else { target };
    let version = if v6 { "-6" } else { "-4" };
    format!("{version} route {how} {kind}{destination} {tos} {protocol} {metric} {target}")
}

fn one_of<'a, T>(random: &mut Random, of: &'a [T]) -> &'a T {
    random.pick(of).unwrap()
}
