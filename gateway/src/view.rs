//! What operators see of a running gateway: plain data, the same for tables on a screen and for JSON.
//!
//! Counts are sums over all workers, from the start of the gateway on; they keep going over a change of policy, by
//! name.

use std::collections::BTreeMap;
use std::time::Duration;

use dataplane::Reason;
use dataplane::counter::{Counters, NatTraffic, Traffic};
use serde::{Deserialize, Serialize};

use crate::guard::GuardState;
use crate::log::LogCounts;
use crate::privilege::Confinement;
use crate::request::Overview;
use crate::supervisor::{Carrier, PortState, Presence};
use crate::worker::Report;

/// The gateway as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The version of the program.
    pub version: String,
    /// Since the start.
    pub uptime_seconds: f64,
    /// Which tables are in force, counted from 1.
    pub epoch: u16,
    /// The algorithm that searches the rules.
    pub classifier: String,
    /// Bytes that it takes.
    pub classifier_bytes: u64,
    /// Seconds until the policy on trial goes back to the one before; none where none is on trial.
    pub trial_seconds: Option<f64>,
    /// Frames received, by ports and from Linux.
    pub received: u64,
    /// Frames that left by a port.
    pub forwarded: u64,
    /// Frames for the gateway itself.
    pub delivered: u64,
    /// Frames that were turned into an answer.
    pub answered: u64,
    /// Frames dropped.
    pub dropped: u64,
    /// Frames that wait for something now, or are on their way from one worker to another.
    pub held: u64,
    /// Frames that wait before a port now.
    pub queued: u64,
    /// Frames that one worker received and another one went on with.
    pub handed_off: u64,
    /// Flows that exist.
    pub flows: u64,
    /// The most there can be.
    pub flow_capacity: u64,
    /// Flows begun since the start.
    pub flows_begun: u64,
    /// Flows ended since the start.
    pub flows_ended: u64,
    /// Bytes of memory that the state of all workers takes.
    pub memory_bytes: u64,
    /// The same by part: flows, translations, limits, counters, neighbours, queues, fragments.
    pub memory_by_part: BTreeMap<String, u64>,
    /// The workers.
    pub workers: Vec<WorkerStatus>,
    /// Workers that failed and began anew.
    pub worker_failures: u64,
    /// Log records written and left out.
    pub log: LogCounts,
    /// Interfaces that are not up.
    pub ports_not_up: Vec<String>,
    /// Ports at the other end of whose link nobody is.
    #[serde(default)]
    pub ports_without_carrier: Vec<String>,
    /// What keeps Linux off interfaces.
    pub guards: Vec<GuardState>,
    /// What the process may do.
    #[serde(default)]
    pub confinement: Confinement,
    /// What Linux says that could not be taken over.
    pub notes: Vec<String>,
}

/// One worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Its number, from 0.
    pub worker: usize,
    /// Seconds since the start in which it had something to do.
    pub busy_seconds: f64,
    /// Flows that are its own.
    pub flows: u32,
    /// Frames received.
    pub received: u64,
    /// Frames that it handed off to other workers.
    pub given: u64,
    /// Frames that other workers handed off to it.
    pub taken: u64,
    /// Frames of its pool that are free.
    pub free_frames: usize,
}

/// Frames and bytes of IP packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Number of frames.
    pub packets: u64,
    /// How many bytes of IP packets.
    pub bytes: u64,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleView {
    /// Its name.
    pub name: String,
    /// `accept`, `drop` or `reject`.
    pub action: String,
    /// What it decided, and the flows that it let in.
    #[serde(flatten)]
    pub count: Count,
}

/// A translation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NatView {
    /// Its name.
    pub name: String,
    /// `source` or `destination`.
    pub side: String,
    /// What it translated.
    #[serde(flatten)]
    pub count: Count,
    /// Flows refused for want of ports.
    pub refused: u64,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PortView {
    /// Its interface, whether it is there, and by which driver.
    #[serde(flatten)]
    pub port: PortState,
    /// Frames received.
    pub received: u64,
    /// Frames sent.
    pub sent: u64,
    /// Bytes of frames received.
    pub received_bytes: u64,
    /// Bytes of frames sent.
    pub sent_bytes: u64,
    /// Frames that the system lost before the gateway saw them, for want of room.
    pub missed: u64,
    /// Frames that could not be sent.
    pub unsent: u64,
    /// Times that the device did not take all frames that it was given.
    pub backpressure: u64,
    /// Frames given to Linux.
    pub delivered: u64,
    /// Frames that Linux did not take.
    pub undelivered: u64,
    /// Frames that Linux sent.
    pub originated: u64,
}

/// The queue of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueView {
    /// The interface.
    pub interface: String,
    /// Frames that wait now.
    pub waiting: usize,
    /// The most that can, all workers together.
    pub capacity: usize,
}

/// Frames dropped or answered for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropView {
    /// The reason's name; `wirerate reasons NAME` explains it.
    pub reason: String,
    /// Frames dropped.
    pub dropped: u64,
    /// Frames answered.
    pub answered: u64,
}

impl From<Traffic> for Count {
    fn from(traffic: Traffic) -> Count {
        Count { packets: traffic.frames, bytes: traffic.bytes }
    }
}

impl Overview {
    fn memory_by_part(&self) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for (part, bytes) in self.reports.iter().flat_map(|report| &report.memory) {
            *sums.entry((*part).to_owned()).or_default() += *bytes as u64;
        }
        sums
    }

    /// The gateway as a whole.
    pub fn status(&self) -> Status {
        let sum = |of: fn(&Counters) -> u64| self.reports.iter().map(|report| of(&report.counters)).sum();
        let add = |of: fn(&Report) -> u64| self.reports.iter().map(of).sum();
        let seconds = |time: Duration| time.as_secs_f64();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: seconds(self.uptime),
            epoch: self.tables.epoch,
            classifier: self.tables.filter.search.algorithm.name.to_owned(),
            classifier_bytes: self.tables.filter.search.classifier.memory_bytes() as u64,
            trial_seconds: self.trial.map(seconds),
            received: sum(|counters| counters.received.frames),
            forwarded: sum(Counters::forwarded),
            delivered: sum(Counters::delivered),
            answered: sum(Counters::answered),
            dropped: sum(Counters::dropped),
            held: self.held(),
            queued: sum(|counters| counters.queued()),
            handed_off: sum(|counters| counters.given),
            flows: add(|report| report.flows.into()),
            flow_capacity: add(|report| report.flow_capacity.into()),
            flows_begun: add(|report| report.flow_turnover[0]),
            flows_ended: add(|report| report.flow_turnover[1]),
            memory_bytes: add(|report| report.memory.iter().map(|(_, bytes)| *bytes as u64).sum()),
            memory_by_part: self.memory_by_part(),
            workers: self.reports.iter().map(WorkerStatus::of).collect(),
            worker_failures: self.panics,
            log: self.log,
            ports_not_up: self
                .ports
                .iter()
                .filter(|port| port.state != Presence::Up)
                .map(|port| port.interface.clone())
                .collect(),
            ports_without_carrier: self
                .ports
                .iter()
                .filter(|port| port.carrier == Carrier::Down)
                .map(|port| port.interface.clone())
                .collect(),
            guards: self.guards.clone(),
            confinement: self.confinement.clone(),
            notes: self.notes.clone(),
        }
    }

    /// What each worker says is true at that moment of its own: what was taken since then has not been given yet.
    fn held(&self) -> u64 {
        let each = |counters: &Counters| counters.held as i64 + counters.given as i64 - counters.taken as i64;
        self.reports.iter().map(|report| each(&report.counters)).sum::<i64>().try_into().unwrap_or(0)
    }

    /// The rules, in their order.
    pub fn rules(&self) -> Vec<RuleView> {
        let rules = self.tables.filter.rules.iter().enumerate();
        rules
            .map(|(place, rule)| RuleView {
                name: rule.name.clone(),
                action: action(rule.action).to_owned(),
                count: self.sum(|counters| counters.rules.get(place).copied().unwrap_or_default()),
            })
            .collect()
    }

    /// The translations: of destinations, then of sources, in their order.
    pub fn nats(&self) -> Vec<NatView> {
        let nat = &self.tables.nat;
        let each: Vec<NatTraffic> =
            self.reports.iter().map(|report| report.counters.nats(&self.tables)).collect();
        let sum = |of: &dyn Fn(&NatTraffic) -> Option<Traffic>| {
            let mut sum = Traffic::default();
            each.iter().filter_map(of).for_each(|traffic| sum.add(&traffic));
            Count { packets: sum.frames, bytes: sum.bytes }
        };
        let destinations = nat.destinations.iter().enumerate().map(|(place, rule)| NatView {
            name: rule.name.clone(),
            side: "destination".to_owned(),
            count: sum(&|traffic| traffic.destinations.get(place).copied()),
            refused: 0,
        });
        let sources = nat.sources.iter().enumerate().map(|(place, rule)| NatView {
            name: rule.name.clone(),
            side: "source".to_owned(),
            count: sum(&|traffic| traffic.sources.get(place).copied()),
            refused: self.reports.iter().filter_map(|report| report.counters.nat_refused.get(place)).sum(),
        });
        destinations.chain(sources).collect()
    }

    /// The ports, in the order of the policy's interfaces.
    pub fn port_views(&self) -> Vec<PortView> {
        let ports = self.ports.iter();
        ports
            .map(|port| {
                let links = || {
                    let all = self.reports.iter().flat_map(|report| &report.links);
                    all.filter(|link| link.name == port.interface)
                };
                PortView {
                    port: port.clone(),
                    received: links().map(|link| link.counts.received).sum(),
                    sent: links().map(|link| link.counts.sent).sum(),
                    missed: links()
                        .filter_map(|link| link.driver)
                        .map(|driver| driver.lost + driver.unusable)
                        .sum(),
                    received_bytes: links().map(|link| link.counts.received_bytes).sum(),
                    sent_bytes: links().map(|link| link.counts.sent_bytes).sum(),
                    unsent: links().map(|link| link.counts.unsent).sum(),
                    backpressure: links().map(|link| link.counts.backpressure).sum(),
                    delivered: links().map(|link| link.counts.delivered).sum(),
                    undelivered: links().map(|link| link.counts.undelivered).sum(),
                    originated: links().map(|link| link.counts.originated).sum(),
                }
            })
            .collect()
    }

    /// The queues, in the order of the policy's interfaces.
    pub fn queues(&self) -> Vec<QueueView> {
        let interfaces = self.tables.interfaces.iter().enumerate();
        interfaces
            .map(|(place, interface)| QueueView {
                interface: interface.name.clone(),
                waiting: self.reports.iter().filter_map(|report| report.queued.get(place)).sum(),
                capacity: self.tables.limits.queue as usize * self.reports.len(),
            })
            .collect()
    }

    /// What was dropped and answered, by reason; reasons that never came up are left out.
    pub fn drops(&self) -> Vec<DropView> {
        let reasons = Reason::ALL.iter().map(|entry| entry.reason);
        reasons
            .map(|reason| DropView {
                reason: reason.to_string(),
                dropped: self.reports.iter().map(|report| report.counters.dropped_for(reason)).sum(),
                answered: self.reports.iter().map(|report| report.counters.answered_for(reason)).sum(),
            })
            .filter(|view| view.dropped + view.answered > 0)
            .collect()
    }

    fn sum(&self, of: impl Fn(&Counters) -> Traffic) -> Count {
        let mut sum = Count::default();
        for report in &self.reports {
            let traffic = of(&report.counters);
            sum.packets += traffic.frames;
            sum.bytes += traffic.bytes;
        }
        sum
    }
}

impl WorkerStatus {
    fn of(report: &Report) -> WorkerStatus {
        WorkerStatus {
            worker: report.worker,
            busy_seconds: report.busy.as_secs_f64(),
            flows: report.flows,
            received: report.counters.received.frames,
            given: report.counters.given,
            taken: report.counters.taken,
            free_frames: report.free_frames,
        }
    }
}

fn action(action: policy::model::Action) -> &'static str {
    match action {
        policy::model::Action::Accept => "accept",
        policy::model::Action::Drop => "drop",
        policy::model::Action::Reject(_) => "reject",
    }
}
