//! Monotonic clock for the packet path, immune to changes of the wall clock, which only log lines use.

use wire::Nanos;

/// Time since the start of the process. Workers read the clock once a turn.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Start on the clock of ports, which is the machine's monotonic one.
    start: Nanos,
}

impl Clock {
    /// Starts a clock at [`Clock::BEGIN`].
    pub fn start() -> Clock {
        Clock { start: ports::now() }
    }

    /// Time at the start: one year, so that ages of flows older than the process can be expressed. Flow table
    /// timestamps suffice for another 16 years.
    pub const BEGIN: Nanos = Nanos::from_secs(365 * 86_400);

    /// Converts a timestamp of a port, such as a frame's time of reception.
    #[inline]
    pub fn of_port(&self, moment: Nanos) -> Nanos {
        Clock::BEGIN + moment.since(self.start)
    }

    /// Returns the current time.
    #[inline]
    pub fn now(&self) -> Nanos {
        self.of_port(ports::now())
    }
}

#[cfg(test)]
mod tests {
    use dataplane::flow::{Ends, FlowId, State, Windows};
    use dataplane::hop::Resolve;
    use dataplane::nat::Share;
    use dataplane::shard::Setup;
    use dataplane::state::{Cursor, FlowRecord, Item, Standing, Through};
    use dataplane::{Shard, Tables};
    use wire::PortId;

    use super::*;

    /// Ages in a state file are durations, so earlier clocks do not matter; but this clock must reach back as far.
    #[test]
    fn ages_survive_a_clock_that_begins_anew() {
        let text = "[interface.east]\nzone = \"a\"\naddresses = [\"192.0.2.1/24\"]\n";
        let tables = Tables::compile(&policy::parse(text, "policy").policy.unwrap(), 1).unwrap();
        let setup = Setup { seed: [1, 2], now: Clock::BEGIN, resolve: Resolve::ByHost, share: Share::WHOLE };
        let mut shard = Shard::new(&tables, setup).unwrap();
        let [a, b] = ["192.0.2.7", "192.0.2.8"].map(|text| text.parse().unwrap());
        let original = Ends { source: a, destination: b, sport: 5000, dport: 22, protocol: 6 };
        let reply = Ends { source: b, destination: a, sport: 22, dport: 5000, protocol: 6 };
        let before = FlowRecord {
            id: FlowId(0),
            original,
            reply,
            ingress: Some(PortId(0)),
            state: State::Established,
            windows: Windows::default(),
            idle: Nanos::from_secs(3600),
            age: Nanos::from_secs(200 * 86_400),
            standing: Standing::Waits,
            rule: None,
            destination: Through::None,
            source: Through::None,
            mapping: None,
            inward: None,
            kind: 0,
            ds_field: 0,
            tcp_flags: 0,
            wan: None,
            mac: None,
            handshake: dataplane::flow::Handshake::Direct,
        };
        shard.import(&tables, &Item::Flow(before), Clock::BEGIN).unwrap();
        let later = Clock::BEGIN + Nanos::from_secs(5);
        let mut found = Vec::new();
        shard.export(&tables, later, Cursor::default(), 10_000, |item| found.extend(flow(item)));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].idle, before.idle + Nanos::from_secs(5));
        assert_eq!(found[0].age, before.age + Nanos::from_secs(5));
    }

    fn flow(item: Item) -> Option<FlowRecord> {
        match item {
            Item::Flow(flow) => Some(flow),
            Item::Debt(_)
            | Item::Own(_)
            | Item::Meter(_)
            | Item::Sa(_)
            | Item::Element(_)
            | Item::PortMapping(_) => None,
        }
    }
}
