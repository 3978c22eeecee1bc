//! Linux is followed.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use gateway::linux::{NeighbourChange, News, Options, State, Watch, watch};

use crate::netns::{ip, within};
use crate::oracle::{address, differs};

/// A watch, and what it told.
pub(crate) struct Follower {
    pub(crate) state: Arc<State>,
    pub(crate) changes: Vec<NeighbourChange>,
    pub(crate) told: usize,
    news: Receiver<News>,
    _watch: Watch,
}

impl Follower {
    pub(crate) fn start(options: Options) -> Follower {
        let (to, news) = channel();
        let watch = watch(options, to).unwrap();
        let mut follower =
            Follower { state: Arc::default(), changes: Vec::new(), told: 0, news, _watch: watch };
        while follower.told == 0 {
            follower.hear(Duration::from_secs(20));
        }
        follower
    }

    /// Takes what is told within that time, or one piece of news.
    fn hear(&mut self, patience: Duration) {
        match self.news.recv_timeout(patience) {
            Ok(News::State(newest)) => {
                self.state = newest.take();
                self.told += 1;
            }
            Ok(News::Neighbour(change)) => {
                // A receiver keeps neighbours by itself, from what it is told.
                let state = Arc::make_mut(&mut self.state);
                match change.now {
                    Some(now) => state.neighbours.insert(change.key, now),
                    None => state.neighbours.remove(&change.key),
                };
                self.changes.push(change);
            }
            Ok(News::Trouble(error)) => panic!("{error}"),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => panic!("the watch has ended"),
        }
    }

    /// Waits until the state is what `ip` says.
    pub(crate) fn settle(&mut self) {
        let begun = Instant::now();
        loop {
            let difference = differs(&self.state);
            match difference {
                None => return,
                Some(difference) if begun.elapsed() > Duration::from_secs(10) => panic!("{difference}"),
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
            "link set east address 02:00:00:00:00:01",
            "addr del 10.0.0.1 peer 10.0.0.2/32 dev sunset",
            "neigh del 192.0.2.2 dev east",
            "link set east down",
            "link set east up",
            "link del east",
        ] {
            ip(step);
            follower.settle();
        }
        let told: Vec<_> =
            follower.changes.iter().filter(|change| change.key.address == address("192.0.2.2")).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].now.is_some_and(|now| now.usable().is_some()));
        assert_eq!(told[1].now, None);
    });
}
