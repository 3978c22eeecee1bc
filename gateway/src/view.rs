//! Views of a running gateway for operators: plain data, the same for tables on a screen and for JSON.
//!
//! Counters are sums over all workers since the start of the gateway; by name, they continue over a change of policy.

use std::collections::BTreeMap;
use std::time::Duration;

use dataplane::counter::{ClassTraffic, Counters, NatTraffic, Traffic};
use dataplane::{Reason, Tables, ppp};
use ports::FastPath;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wire::PortId;

use crate::balance::ServerView;
use crate::guard::GuardState;
use crate::ipfix::IpfixCounts;
use crate::log::LogCounts;
use crate::multicast::MulticastView;
use crate::port::{Carrier, PortState, Presence};
use crate::privilege::Confinement;
use crate::request::Overview;
use crate::sa::TunnelStatus;
use crate::sync::SyncStatus;
use crate::wan::WanView;
use crate::worker::Report;

mod queue;

pub use queue::{DelayCount, DelayView, LeafView, QueueView};

/// Status of the gateway as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// Version of the program.
    pub version: String,
    /// Seconds since the start.
    pub uptime_seconds: f64,
    /// Epoch of the tables in force, counted from 1.
    pub epoch: u16,
    /// Name of the rules' classifier.
    pub classifier: String,
    /// Memory of the classifier, in bytes.
    pub classifier_bytes: u64,
    /// VRFs beside the default one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vrfs: Vec<VrfView>,
    /// Seconds until the policy on trial is rolled back; none where no policy is on trial.
    pub trial_seconds: Option<f64>,
    /// Frames received, by ports and from Linux.
    pub received: u64,
    /// Further copies of packets to multicast groups.
    #[serde(default)]
    pub copied: u64,
    /// Frames handed over to a second gateway, which owns their flow.
    #[serde(default)]
    pub handed_over: u64,
    /// Frames sent by a port.
    pub forwarded: u64,
    /// Frames for the gateway itself.
    pub delivered: u64,
    /// Frames turned into an answer.
    pub answered: u64,
    /// Frames dropped.
    pub dropped: u64,
    /// Frames held now, or on handoff between workers.
    pub held: u64,
    /// Frames queued at ports now.
    pub queued: u64,
    /// Frames received by one worker and handed off to another.
    pub handed_off: u64,
    /// Flows in existence.
    pub flows: u64,
    /// Flows, at most.
    pub flow_capacity: u64,
    /// Fast path; none where the kernel carries no flows.
    #[serde(default)]
    pub fast_path: Option<FastPathStatus>,
    /// Flows begun since the start.
    pub flows_begun: u64,
    /// Flows ended since the start.
    pub flows_ended: u64,
    /// Memory of the state of all workers, in bytes.
    pub memory_bytes: u64,
    /// Memory by part, in bytes: flows, translations, limits, counters, neighbours, queues, fragments.
    pub memory_by_part: BTreeMap<String, u64>,
    /// Status of each worker.
    pub workers: Vec<WorkerStatus>,
    /// Restarts of workers after a failure.
    pub worker_failures: u64,
    /// Log records written and left out.
    pub log: LogCounts,
    /// Flow records and NAT events exported and lost.
    #[serde(default)]
    pub ipfix: IpfixCounts,
    /// State synchronisation with a second gateway; none where the policy has no peer.
    #[serde(default)]
    pub sync: Option<SyncStatus>,
    /// Interfaces that are not up.
    pub ports_not_up: Vec<String>,
    /// Ports without a carrier.
    #[serde(default)]
    pub ports_without_carrier: Vec<String>,
    /// Tunnels, with their security associations and what these, and those before them, have carried and refused.
    #[serde(default)]
    pub tunnels: Vec<TunnelStatus>,
    /// WANs.
    #[serde(default)]
    pub wans: Vec<WanView>,
    /// Multicast routes.
    #[serde(default)]
    pub multicast_routes: Vec<MulticastView>,
    /// Servers of translations.
    #[serde(default)]
    pub servers: Vec<ServerView>,
    /// PPP sessions.
    #[serde(default)]
    pub sessions: Vec<SessionStatus>,
    /// Guards of interfaces.
    pub guards: Vec<GuardState>,
    /// Privileges of the process.
    #[serde(default)]
    pub confinement: Confinement,
    /// Entries of Linux's state left out.
    pub notes: Vec<String>,
}

/// Status of the fast path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FastPathStatus {
    /// Flows that the kernel carries.
    pub flows: u64,
    /// Packets that the kernel has carried, as if cut to segments; they count as received and forwarded, too.
    pub packets: u64,
    /// Packets that went to workers, by reason: `not-plain`, `not-published`, `mtu`, `tcp-window`, `order`. Packets of many segments count once.
    pub kept: BTreeMap<String, u64>,
    /// Packets lost in the kernel between its decision and its work.
    pub lost: u64,
    /// Packets dropped while a worker was far behind, so that those after them go by without overtaking any.
    #[serde(default)]
    pub overload: u64,
    /// Packets that devices and their queueing disciplines dropped behind the gateway, those of workers and of Linux included: `tx-dropped`,
    /// `qdisc-dropped`. They count as forwarded.
    #[serde(default)]
    pub lost_at_egress: BTreeMap<String, u64>,
    /// Frames at XDP that the kernel sent on, and that the device they were to leave by did not take.
    #[serde(default)]
    pub unsent: u64,
    /// Slots of the table in use, two for each flow, those of flows of the last second included.
    pub slots_in_use: u64,
    /// Slots of the table.
    pub slots: u64,
    /// Memory of the table, in bytes.
    pub memory_bytes: u64,
}

/// Status of a PPP session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionStatus {
    /// Name of the interface.
    pub interface: String,
    /// Phase: `dead`, `discovery`, `establish`, `authenticate`, `network` or `terminate`.
    pub phase: String,
    /// Link-layer address of the other end of PPP over Ethernet, while there is a session.
    pub peer: Option<String>,
    /// PPPoE session identifier.
    pub session: Option<u16>,
    /// IPv4 is open.
    pub ipv4: bool,
    /// IPv6 is open.
    pub ipv6: bool,
}

impl SessionStatus {
    /// Returns the status of a session; `None` if its interface has gone.
    pub(crate) fn of(view: &ppp::View, tables: &Tables) -> Option<SessionStatus> {
        let interface = tables.interface(view.interface)?.name.clone();
        let link = view.link;
        let ethernet = link.filter(|link| link.session != 0);
        Some(SessionStatus {
            interface,
            phase: view.phase.to_owned(),
            peer: ethernet.map(|link| link.peer.to_string()),
            session: ethernet.map(|link| link.session),
            ipv4: link.is_some_and(|link| link.v4),
            ipv6: link.is_some_and(|link| link.v6),
        })
    }
}

/// Status of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerStatus {
    /// Number of the worker, from 0.
    pub worker: usize,
    /// Seconds since the start with work to do.
    pub busy_seconds: f64,
    /// Flows owned by the worker.
    pub flows: u32,
    /// Frames received.
    pub received: u64,
    /// Frames handed off to other workers.
    pub given: u64,
    /// Frames handed off by other workers.
    pub taken: u64,
    /// Free frames of its frame pool.
    pub free_frames: usize,
}

/// Frames and bytes of IP packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Count {
    /// Number of frames.
    pub packets: u64,
    /// Bytes of IP packets.
    pub bytes: u64,
}

/// VRF, as operators see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VrfView {
    /// Name of the VRF.
    pub name: String,
    /// Names of its interfaces.
    pub interfaces: Vec<String>,
}

impl VrfView {
    /// Views of all VRFs but the default one.
    fn all(tables: &Tables) -> Vec<VrfView> {
        let ids = || (0..tables.interfaces.len() as u16).map(PortId);
        let of = |name: &String| VrfView {
            name: name.clone(),
            interfaces: ids()
                .filter(|id| tables.vrf_name(*id) == Some(name.as_str()))
                .filter_map(|id| Some(tables.interface(id)?.name.clone()))
                .collect(),
        };
        tables.vrfs.list.iter().map(|vrf| of(&vrf.name)).collect()
    }
}

/// Rule, with its counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RuleView {
    /// Name of the rule.
    pub name: String,
    /// `accept`, `drop` or `reject`.
    pub action: String,
    /// Packets that the rule decided on, and packets of flows that it accepted.
    #[serde(flatten)]
    pub count: Count,
}

/// Translation, with its counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NatView {
    /// Name of the translation.
    pub name: String,
    /// `source` or `destination`.
    pub side: String,
    /// Packets translated.
    #[serde(flatten)]
    pub count: Count,
    /// Flows refused for want of NAT ports.
    pub refused: u64,
    /// Blocks of ports that hosts have, of a translation that gives them on demand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<u64>,
}

/// Traffic class, with its counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClassView {
    /// Name of the class.
    pub name: String,
    /// Packets of the class.
    #[serde(flatten)]
    pub count: Count,
    /// Packets that were metered, by colour: green, yellow, red.
    pub colours: [u64; 3],
}

/// Port, with its counters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PortView {
    /// Interface, state and driver of the port.
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
    /// Packets of many segments received whole, which count as these in the numbers of frames.
    #[serde(default)]
    pub whole: u64,
    /// Frames lost by the system before the gateway saw them, for want of room.
    pub missed: u64,
    /// Frames that could not be sent.
    pub unsent: u64,
    /// Times that the device accepted only some of the frames offered.
    pub backpressure: u64,
    /// Frames delivered to Linux.
    pub delivered: u64,
    /// Frames that Linux did not accept.
    pub undelivered: u64,
    /// Frames sent by Linux.
    pub originated: u64,
}

/// Frames dropped or answered for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DropView {
    /// Name of the reason; `wirerate reasons NAME` explains it.
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

    /// Status of the gateway as a whole.
    pub fn status(&self) -> Status {
        let sum = |of: fn(&Counters) -> u64| self.reports.iter().map(|report| of(&report.counters)).sum();
        let add = |of: fn(&Report) -> u64| self.reports.iter().map(of).sum();
        let seconds = |time: Duration| time.as_secs_f64();
        let memory_by_part = self.memory_by_part();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: seconds(self.uptime),
            epoch: self.tables.epoch,
            classifier: self.tables.filter.search.algorithm.name.to_owned(),
            classifier_bytes: self.tables.filter.search.classifier.memory_bytes() as u64,
            vrfs: VrfView::all(&self.tables),
            trial_seconds: self.trial.map(seconds),
            received: sum(|counters| counters.received.frames),
            copied: sum(|counters| counters.copied),
            forwarded: sum(Counters::forwarded),
            delivered: sum(Counters::delivered),
            answered: sum(Counters::answered),
            dropped: sum(Counters::dropped),
            held: self.held(),
            queued: sum(|counters| counters.queued()),
            handed_off: sum(|counters| counters.given),
            handed_over: sum(|counters| counters.handed_over),
            flows: add(|report| report.flows.into()),
            flow_capacity: add(|report| report.flow_capacity.into()),
            fast_path: self.fast_path.as_ref().map(|path| self.fast_path_status(path)),
            flows_begun: add(|report| report.flow_turnover[0]),
            flows_ended: add(|report| report.flow_turnover[1]),
            memory_bytes: memory_by_part.values().sum(),
            memory_by_part,
            workers: self.reports.iter().map(WorkerStatus::of).collect(),
            worker_failures: self.panics,
            log: self.log,
            ipfix: self.ipfix,
            sync: self.sync.clone(),
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
            tunnels: self.tunnels.clone(),
            wans: self.wans.clone(),
            multicast_routes: self.multicast_routes.clone(),
            servers: self.servers.clone(),
            sessions: self.reports.iter().flat_map(|report| report.sessions.clone()).collect(),
            guards: self.guards.clone(),
            confinement: self.confinement.clone(),
            notes: self.notes.clone(),
        }
    }

    fn fast_path_status(&self, path: &FastPath) -> FastPathStatus {
        let kept = path.fall_through();
        let links = self.reports.iter().flat_map(|report| &report.links);
        FastPathStatus {
            flows: self.reports.iter().map(|report| u64::from(report.published)).sum(),
            packets: links.map(|link| link.fast.received).sum(),
            kept: [
                ("not-plain", kept.unplain),
                ("not-published", kept.unknown),
                ("mtu", kept.too_big),
                ("tcp-window", kept.window),
                ("order", kept.order),
            ]
            .map(|(reason, packets)| (reason.to_owned(), packets))
            .into(),
            lost: kept.stale,
            overload: kept.overload,
            lost_at_egress: [
                ("tx-dropped", self.ports.iter().map(|port| port.egress.device).sum()),
                ("qdisc-dropped", self.ports.iter().map(|port| port.egress.qdisc).sum()),
            ]
            .map(|(place, packets): (&str, u64)| (place.to_owned(), packets))
            .into(),
            unsent: kept.unsent,
            slots_in_use: path.in_use().into(),
            slots: path.capacity().into(),
            memory_bytes: path.memory().0,
        }
    }

    /// Frames held now, or on handoff. Workers report at different times, so a handoff may be counted in before it is
    /// counted out.
    fn held(&self) -> u64 {
        let each = |counters: &Counters| counters.held as i64 + counters.given as i64 - counters.taken as i64;
        self.reports.iter().map(|report| each(&report.counters)).sum::<i64>().try_into().unwrap_or(0)
    }

    /// Rules, in order.
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

    /// Translations: of destinations, then of sources, each in order.
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
            blocks: None,
        });
        let sources = nat.sources.iter().enumerate().map(|(place, rule)| NatView {
            name: rule.name.clone(),
            side: "source".to_owned(),
            count: sum(&|traffic| traffic.sources.get(place).copied()),
            refused: self.reports.iter().filter_map(|report| report.counters.nat_refused.get(place)).sum(),
            blocks: self.blocks_of(place),
        });
        destinations.chain(sources).collect()
    }

    /// Number of blocks of ports that hosts have, of a source translation that gives them on demand.
    fn blocks_of(&self, source: usize) -> Option<u64> {
        let nat = &self.tables.nat;
        let mut pools = nat.pools.iter().zip(&nat.owners);
        let has = pools.any(|(pool, of)| usize::from(of.source) == source && pool.on_demand.is_some());
        let counts = self.reports.iter().filter_map(|report| report.nat_blocks.get(source));
        has.then(|| counts.map(|count| u64::from(*count)).sum())
    }

    /// Traffic classes, in order.
    pub fn classes(&self) -> Vec<ClassView> {
        let classes = self.tables.classes.list.iter().enumerate();
        classes
            .map(|(place, class)| {
                let mut sum = ClassTraffic::default();
                let counted = self.reports.iter().filter_map(|report| report.counters.classes.get(place));
                counted.for_each(|count| sum.add(count));
                ClassView {
                    name: class.name.clone(),
                    count: Count { packets: sum.traffic.frames, bytes: sum.traffic.bytes },
                    colours: sum.colours,
                }
            })
            .collect()
    }

    /// Ports, in the order of the policy's interfaces.
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
                    whole: links().filter_map(|link| link.driver).map(|driver| driver.whole).sum(),
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

    /// Frames dropped and answered, by reason; reasons that never occurred are left out.
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

/// Name of an action.
pub(crate) fn action(action: policy::model::Action) -> &'static str {
    match action {
        policy::model::Action::Accept => "accept",
        policy::model::Action::Drop => "drop",
        policy::model::Action::Reject(_) => "reject",
    }
}
