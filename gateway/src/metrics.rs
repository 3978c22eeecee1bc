//! Metrics for Prometheus, in OpenMetrics text format: base units, and labels of bounded cardinality, by the policy's
//! names: rule, translation, interface, reason. Never addresses of traffic.

use std::collections::BTreeMap;
use std::fmt;

use policy::model::Colour;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeMetric, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use crate::balance::{ServerHealth, ServerView};
use crate::health::CheckView;
use crate::ipfix::CollectorState;
use crate::multicast::MulticastView;
use crate::port::{Carrier, Presence};
use crate::port_mapping::PortMappingCounts;
use crate::request::Overview;
use crate::sa::{DirectionStatus, TunnelStatus};
use crate::set::SetView;
use crate::sync::{HandedOver, OwnerStatus, ReceivedCounts, SyncState, SyncStatus};
use crate::view::{Count, LeafView, QueueView, Status};
use crate::wan::{Standing, WanView};

/// Content type of the metrics.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Renders all metrics.
pub fn text(overview: &Overview) -> String {
    let mut registry = Registry::with_prefix("wirerate");
    registry.register_collector(Box::new(Collected(overview.clone())));
    let mut out = String::new();
    // Writing to a string cannot fail; an overview is all there is to write.
    let _ = text::encode(&mut out, &registry);
    out
}

struct Collected(Overview);

impl fmt::Debug for Collected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Collected")
    }
}

/// Metric family: values by the value of one label.
struct Family<'a> {
    name: &'a str,
    help: &'a str,
    unit: Option<Unit>,
    label: &'a str,
}

impl Family<'_> {
    fn counters<'v>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        values: impl Iterator<Item = (&'v str, u64)>,
    ) -> fmt::Result {
        let kind = ConstCounter::new(0u64).metric_type();
        let mut family = encoder.encode_descriptor(self.name, self.help, self.unit.as_ref(), kind)?;
        for (value, count) in values {
            ConstCounter::new(count).encode(family.encode_family(&[(self.label, value)])?)?;
        }
        Ok(())
    }

    fn gauges<'v>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        values: impl Iterator<Item = (&'v str, impl EncodeGaugeValue)>,
    ) -> fmt::Result {
        let kind = ConstGauge::new(0i64).metric_type();
        let mut family = encoder.encode_descriptor(self.name, self.help, self.unit.as_ref(), kind)?;
        for (value, gauge) in values {
            ConstGauge::new(gauge).encode(family.encode_family(&[(self.label, value)])?)?;
        }
        Ok(())
    }
}

/// Metrics of the synchronisation with a second gateway.
fn synchronisation(encoder: &mut DescriptorEncoder<'_>, sync: &SyncStatus) -> fmt::Result {
    let flag = |is: bool| f64::from(u8::from(is));
    let is_up = flag(sync.state != SyncState::Waiting);
    gauge(encoder, "sync_up", "1 while there is a connection to the second gateway.", None, is_up)?;
    let help = "1 while both gateways forward packets of the same flows.";
    gauge(encoder, "sync_both_active", help, None, flag(sync.both_active))?;
    let help = "Keys of tunnels by which both gateways send.";
    gauge(encoder, "sync_shared_keys", help, None, sync.shared_keys as f64)?;
    if let Some(ahead) = sync.clock_ahead_seconds {
        let help = "Time by which the second gateway's clock is ahead.";
        gauge(encoder, "sync_clock_ahead", help, Some(Unit::Seconds), ahead)?;
    }
    if let Some(owner) = &sync.owner {
        handed_over(encoder, owner)?;
    }
    let help = "Connections to the second gateway.";
    counter(encoder, "sync_connections", help, sync.connections)?;
    let help = "Full synchronisations sent to the second gateway.";
    counter(encoder, "sync_full", help, sync.full)?;
    let help = "Times that more flows ended than are kept for the second gateway.";
    counter(encoder, "sync_overflows", help, sync.overflows)?;
    let help = "Flows sent to the second gateway, by what became of them here.";
    let sent = [("changed", sync.flows_sent), ("ended", sync.ended_sent)];
    Family { name: "sync_sent_flows", help, unit: None, label: "event" }
        .counters(encoder, sent.into_iter())?;
    let help = "Elements of dynamic sets sent to the second gateway, by event.";
    let sent = [("added", sync.elements_sent), ("removed", sync.removed_sent)];
    Family { name: "sync_sent_elements", help, unit: None, label: "event" }
        .counters(encoder, sent.into_iter())?;
    let help = "Elements of dynamic sets taken in from the second gateway, by event.";
    let received = [("added", sync.elements_received), ("removed", sync.removed_received)];
    Family { name: "sync_received_elements", help, unit: None, label: "event" }
        .counters(encoder, received.into_iter())?;
    let help = "Port mappings sent to the second gateway, by event.";
    let sent = [("changed", sync.port_mappings_sent), ("ended", sync.unmapped_sent)];
    Family { name: "sync_sent_port_mappings", help, unit: None, label: "event" }
        .counters(encoder, sent.into_iter())?;
    let help = "Port mappings taken in from the second gateway, by event.";
    let received = [("changed", sync.port_mappings_received), ("ended", sync.unmapped_received)];
    Family { name: "sync_received_port_mappings", help, unit: None, label: "event" }
        .counters(encoder, received.into_iter())?;
    let help = "Flows received from the second gateway, by outcome; refused elements and port mappings, too.";
    let ReceivedCounts { created, updated, older, conflicts, ended } = sync.received;
    let received = [
        ("created", created),
        ("updated", updated),
        ("older", older),
        ("conflict", conflicts),
        ("ended", ended),
        ("refused", sync.refused.values().sum()),
    ];
    Family { name: "sync_received_flows", help, unit: None, label: "outcome" }
        .counters(encoder, received.into_iter())
}

/// Metrics of frames that two gateways hand over to one another.
fn handed_over(encoder: &mut DescriptorEncoder<'_>, owner: &OwnerStatus) -> fmt::Result {
    let is_on = f64::from(u8::from(owner.handed_over != HandedOver::None));
    gauge(encoder, "sync_hands_over", "1 while packets are handed over to the second gateway.", None, is_on)?;
    let help = "Frames handed over between the two gateways, by what became of them here.";
    let frames = [
        ("sent", owner.frames_sent),
        ("lost", owner.frames_lost),
        ("taken", owner.frames_taken),
        ("refused", owner.refused.values().sum()),
    ];
    Family { name: "sync_handed_over_frames", help, unit: None, label: "outcome" }
        .counters(encoder, frames.into_iter())
}

/// Metrics of WANs, by name.
fn wans(encoder: &mut DescriptorEncoder<'_>, wans: &[WanView]) -> fmt::Result {
    let family = |name, help| Family { name, help, unit: None, label: "wan" };
    let names = || wans.iter().map(|wan| wan.name.as_str());
    let up = wans.iter().map(|wan| i64::from(wan.standing == Standing::Up));
    family("wan_up", "Whether new flows may go by it.").gauges(encoder, names().zip(up))?;
    let checked = || wans.iter().filter_map(|wan| Some((wan.name.as_str(), wan.check?)));
    let rounds = checked().map(|(name, check)| (name, check.rounds));
    family("wan_check_rounds", "Rounds of its check.").counters(encoder, rounds)?;
    let lost = checked().map(|(name, check)| (name, check.lost));
    family("wan_check_lost", "Rounds of its check without an answer that passes.").counters(encoder, lost)?;
    let round_trips = checked().filter_map(|(name, check)| Some((name, check.round_trip_seconds?)));
    let help = "Time that the last answer to its check took.";
    let unit = Some(Unit::Seconds);
    Family { name: "wan_round_trip", help, unit, label: "wan" }.gauges(encoder, round_trips)
}

/// Metrics of multicast routes, by group, source and interface, where there are any.
fn multicast(encoder: &mut DescriptorEncoder<'_>, status: &Status) -> fmt::Result {
    let help = "Further copies of packets to multicast groups.";
    counter(encoder, "multicast_copies", help, status.copied)?;
    let label = |view: &MulticastView| {
        let source = view.source.map_or_else(|| "any".to_owned(), |source| source.to_string());
        [("group", view.group.clone()), ("source", source), ("from", view.from.clone())]
    };
    let kind = ConstCounter::new(0u64).metric_type();
    let help = "Packets of a multicast route, each once.";
    let mut family = encoder.encode_descriptor("multicast_route_packets", help, None, kind)?;
    for view in &status.multicast_routes {
        ConstCounter::new(view.packets).encode(family.encode_family(&label(view))?)?;
    }
    Ok(())
}

/// Metrics of servers, by translation and server.
fn servers(encoder: &mut DescriptorEncoder<'_>, servers: &[ServerView]) -> fmt::Result {
    let label = |view: &ServerView| [("nat", view.nat.clone()), ("server", view.server.clone())];
    let kind = ConstGauge::new(0i64).metric_type();
    let help = "Whether new connections may go to it.";
    let mut family = encoder.encode_descriptor("server_up", help, None, kind)?;
    for view in servers {
        let is_up = i64::from(view.state == ServerHealth::Up);
        ConstGauge::new(is_up).encode(family.encode_family(&label(view))?)?;
    }
    let checked: Vec<(&ServerView, CheckView)> =
        servers.iter().filter_map(|view| Some((view, view.check?))).collect();
    let kind = ConstCounter::new(0u64).metric_type();
    for (name, help, of) in [
        ("server_checks", "Checks of a server.", (|check| check.rounds) as fn(&CheckView) -> u64),
        ("server_checks_failed", "Checks of a server without an answer that passes.", |check| check.lost),
    ] {
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        for (view, check) in &checked {
            ConstCounter::new(of(check)).encode(family.encode_family(&label(view))?)?;
        }
    }
    let kind = ConstGauge::new(0f64).metric_type();
    let help = "Time that the last answer to a check took.";
    let mut family = encoder.encode_descriptor("server_check_duration", help, Some(&Unit::Seconds), kind)?;
    for (view, check) in &checked {
        if let Some(seconds) = check.round_trip_seconds {
            ConstGauge::new(seconds).encode(family.encode_family(&label(view))?)?;
        }
    }
    Ok(())
}

/// Metrics of dynamic sets, by name.
fn sets(encoder: &mut DescriptorEncoder<'_>, sets: &[SetView]) -> fmt::Result {
    let family = |name, help| Family { name, help, unit: None, label: "set" };
    let each = |value: fn(&SetView) -> u64| sets.iter().map(move |set| (set.name.as_str(), value(set)));
    let gauges = |value: fn(&SetView) -> u64| each(value).map(|(name, count)| (name, count as i64));
    family("set_elements", "Elements of a dynamic set.").gauges(encoder, gauges(|set| set.elements))?;
    family("set_size", "Elements that a dynamic set can have.").gauges(encoder, gauges(|set| set.size))?;
    let help = "Elements that found no room in a dynamic set.";
    family("set_refused", help).counters(encoder, each(|set| set.refused))?;
    family("set_expired", "Elements that have expired.").counters(encoder, each(|set| set.expired))?;
    let listed = || sets.iter().filter(|set| set.source.is_some());
    let failed = listed().map(|set| (set.name.as_str(), i64::from(set.trouble.is_some())));
    let help = "Whether the file or URL of a set could not be read at the last attempt.";
    family("set_source_failed", help).gauges(encoder, failed)?;
    let faults = listed().map(|set| (set.name.as_str(), set.faults as i64));
    family("set_list_faults", "Lines of a set's list that say no address.").gauges(encoder, faults)?;
    let ages = listed().filter_map(|set| Some((set.name.as_str(), set.age_seconds?)));
    let (help, unit) =
        ("Age of a set's list: since the file changed, or the URL was asked.", Some(Unit::Seconds));
    Family { name: "set_list_age", help, unit, label: "set" }.gauges(encoder, ages)
}

/// Metrics of port mappings.
fn port_mappings(encoder: &mut DescriptorEncoder<'_>, counts: &PortMappingCounts) -> fmt::Result {
    let help = "Outside ports that hosts, or an operator for them, have asked for.";
    let by = counts.by.named().into_iter().map(|(origin, count)| (origin, count as f64));
    Family { name: "port_mappings", help, unit: None, label: "by" }.gauges(encoder, by)?;
    counter(encoder, "port_mappings_made", "Port mappings made.", counts.made)?;
    counter(encoder, "port_mappings_refused", "Requests for port mappings refused.", counts.refused)?;
    counter(encoder, "port_mappings_expired", "Port mappings that have expired.", counts.expired)
}

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        let status = self.0.status();
        gauge(encoder, "uptime", "Time since the start.", Some(Unit::Seconds), status.uptime_seconds)?;
        gauge(encoder, "policy_epoch", "Which tables are in force.", None, f64::from(status.epoch))?;
        counter(encoder, "received_packets", "Frames received, by ports and from Linux.", status.received)?;
        Family { name: "packets", help: "Frames by verdict.", unit: None, label: "verdict" }.counters(
            encoder,
            [
                ("forwarded", status.forwarded),
                ("delivered", status.delivered),
                ("answered", status.answered),
                ("dropped", status.dropped),
            ]
            .into_iter(),
        )?;
        let help = "Frames that wait before a port.";
        gauge(encoder, "queued_packets", help, None, status.queued as f64)?;
        gauge(encoder, "held_packets", "Frames that wait for something.", None, status.held as f64)?;
        let help = "Frames that one worker received and another one went on with.";
        counter(encoder, "handed_off_packets", help, status.handed_off)?;
        gauge(encoder, "flows", "Flows that exist.", None, status.flows as f64)?;
        gauge(encoder, "flow_capacity", "Flows that there can be.", None, status.flow_capacity as f64)?;
        if let Some(fast) = &status.fast_path {
            gauge(encoder, "fast_path_flows", "Flows that Linux's kernel carries.", None, fast.flows as f64)?;
            let help = "Frames that Linux's kernel carried, which count as received and forwarded, too.";
            counter(encoder, "fast_path_packets", help, fast.packets)?;
            let help = "Packets that went to workers, by reason.";
            let kept = fast.kept.iter().map(|(reason, packets)| (reason.as_str(), *packets));
            Family { name: "fast_path_kept_packets", help, unit: None, label: "reason" }
                .counters(encoder, kept)?;
            let help = "Packets lost between the kernel's decision and its work.";
            counter(encoder, "fast_path_lost_packets", help, fast.lost)?;
            let help = "Packets dropped while a worker was far behind, before their flows went by.";
            counter(encoder, "fast_path_overload_packets", help, fast.overload)?;
            let help = "Frames at XDP that the kernel sent on and the device did not take.";
            counter(encoder, "fast_path_unsent_packets", help, fast.unsent)?;
        }
        sets(encoder, &self.0.sets)?;
        port_mappings(encoder, &PortMappingCounts::of(&self.0.reports))?;
        let help = "Messages of connections with a helper that passed as they were.";
        let unread = self.0.reports.iter().map(|report| report.counters.helper_unread).sum();
        counter(encoder, "helper_unread_messages", help, unread)?;
        wans(encoder, &status.wans)?;
        multicast(encoder, &status)?;
        servers(encoder, &status.servers)?;
        counter(encoder, "flows_begun", "Flows begun.", status.flows_begun)?;
        counter(encoder, "flows_ended", "Flows ended.", status.flows_ended)?;
        counter(encoder, "worker_failures", "Workers that failed and began anew.", status.worker_failures)?;
        let log = status.log;
        let help = "Log records, by what became of them.";
        let log = [("written", log.written), ("left_out", log.left_out), ("not_written", log.not_written)];
        Family { name: "log_records", help, unit: None, label: "fate" }.counters(encoder, log.into_iter())?;
        let ipfix = status.ipfix;
        if ipfix.collector != CollectorState::None {
            let help = "IPFIX records, by what became of them.";
            let records = [("exported", ipfix.records), ("lost", ipfix.lost)];
            Family { name: "ipfix_records", help, unit: None, label: "fate" }
                .counters(encoder, records.into_iter())?;
            counter(encoder, "ipfix_messages", "IPFIX messages sent.", ipfix.messages)?;
            let is_up = f64::from(u8::from(ipfix.collector == CollectorState::Up));
            gauge(encoder, "ipfix_collector_up", "1 while the IPFIX collector is reached.", None, is_up)?;
        }
        if let Some(sync) = &status.sync {
            synchronisation(encoder, sync)?;
        }
        let help = "Memory of what is remembered, by part.";
        let memory = status.memory_by_part.iter().map(|(part, bytes)| (part.as_str(), *bytes as i64));
        Family { name: "state_memory", help, unit: Some(Unit::Bytes), label: "part" }
            .gauges(encoder, memory)?;
        self.reasons(encoder)?;
        self.named(encoder)?;
        self.associations(encoder)?;
        self.ports(encoder)
    }
}

impl Collected {
    fn reasons(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let drops = self.0.drops();
        let dropped = drops.iter().map(|view| (view.reason.as_str(), view.dropped));
        let help = "Frames dropped, by reason.";
        Family { name: "dropped_packets", help, unit: None, label: "reason" }.counters(encoder, dropped)?;
        let answered = drops.iter().map(|view| (view.reason.as_str(), view.answered));
        let help = "Frames answered, by reason.";
        Family { name: "answered_packets", help, unit: None, label: "reason" }.counters(encoder, answered)
    }

    /// Encodes the metrics of rules, translations and traffic classes.
    fn named(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (rules, nats) = (self.0.rules(), self.0.nats());
        let rules = || rules.iter().map(|view| (view.name.as_str(), view.count));
        let blocks = nats.iter().filter(|view| view.blocks.is_some());
        let blocks = blocks.map(|view| (view.name.as_str(), view.blocks.unwrap_or(0) as i64));
        let nats = || nats.iter().map(|view| (view.name.as_str(), view.count));
        let packets = |(name, count): (_, Count)| (name, count.packets);
        let bytes = |(name, count): (_, Count)| (name, count.bytes);
        let help = "Frames of flows that a rule let in, and frames that it refused.";
        Family { name: "rule_packets", help, unit: None, label: "rule" }
            .counters(encoder, rules().map(packets))?;
        let help = "The same, in bytes of IP packets.";
        Family { name: "rule", help, unit: Some(Unit::Bytes), label: "rule" }
            .counters(encoder, rules().map(bytes))?;
        let help = "Frames translated.";
        Family { name: "nat_packets", help, unit: None, label: "nat" }
            .counters(encoder, nats().map(packets))?;
        let help = "The same, in bytes of IP packets.";
        Family { name: "nat", help, unit: Some(Unit::Bytes), label: "nat" }
            .counters(encoder, nats().map(bytes))?;
        let help = "Blocks of ports that hosts have, of a translation that gives them on demand.";
        Family { name: "nat_port_blocks", help, unit: None, label: "nat" }.gauges(encoder, blocks)?;
        let classes = self.0.classes();
        let class = |name, help, unit| Family { name, help, unit, label: "class" };
        let packets = classes.iter().map(|view| (view.name.as_str(), view.count.packets));
        class("class_packets", "Packets of a traffic class.", None).counters(encoder, packets)?;
        let bytes = classes.iter().map(|view| (view.name.as_str(), view.count.bytes));
        class("class", "The same, in bytes of IP packets.", Some(Unit::Bytes)).counters(encoder, bytes)?;
        for (colour, name, help) in [
            (Colour::Green, "class_green_packets", "Packets within the committed rate of their meter."),
            (
                Colour::Yellow,
                "class_yellow_packets",
                "Packets above the committed rate, within the excess or peak rate.",
            ),
            (Colour::Red, "class_red_packets", "Packets above the rates of their meter."),
        ] {
            let counts = classes.iter().map(|view| (view.name.as_str(), view.colours[colour as usize]));
            class(name, help, None).counters(encoder, counts)?;
        }
        Ok(())
    }

    /// Encodes the metrics of security associations, by tunnel and direction: indices come and go with each rekey.
    fn associations(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut sums: BTreeMap<(String, String), (i64, u64)> = BTreeMap::new();
        for sa in self.0.associations() {
            let sum = sums.entry((sa.tunnel, sa.direction)).or_default();
            sum.0 += 1;
            sum.1 += sa.lost;
        }
        let label = |tunnel: &String, direction: &String| {
            [("tunnel", tunnel.clone()), ("direction", direction.clone())]
        };
        let kind = ConstGauge::new(0i64).metric_type();
        let mut family = encoder.encode_descriptor("sas", "Security associations.", None, kind)?;
        for ((tunnel, direction), (count, _)) in &sums {
            ConstGauge::new(*count).encode(family.encode_family(&label(tunnel, direction))?)?;
        }
        let help = "Security associations of each direction that can be added at run time.";
        gauge(encoder, "sa_capacity", help, None, self.0.tables.limits.sas.into())?;
        let kind = ConstGauge::new(0i64).metric_type();
        let help = "Sequence numbers for which no packet came, of the associations that are there now.";
        let mut family = encoder.encode_descriptor("sa_lost_packets", help, None, kind)?;
        for ((tunnel, direction), (_, lost)) in sums.iter().filter(|((_, direction), _)| direction == "in") {
            let lost = i64::try_from(*lost).unwrap_or(i64::MAX);
            ConstGauge::new(lost).encode(family.encode_family(&label(tunnel, direction))?)?;
        }
        self.totals(encoder)
    }

    /// Encodes the counters of tunnels: they go on over rekeys.
    fn totals(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let rows = self.0.tunnels.iter().flat_map(|TunnelStatus { tunnel, inward, outward }| {
            [(tunnel.as_str(), "in", inward), (tunnel.as_str(), "out", outward)]
        });
        let rows: Vec<(&str, &str, &DirectionStatus)> = rows.collect();
        let kind = ConstCounter::new(0u64).metric_type();
        for (name, help, unit, of) in [
            (
                "sa_packets",
                "Packets that went into a tunnel, or came out of it.",
                None,
                (|status| status.packets) as fn(&DirectionStatus) -> u64,
            ),
            ("sa", "The same, in bytes that were encrypted.", Some(Unit::Bytes), |status| status.bytes),
        ] {
            let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
            for (tunnel, direction, status) in &rows {
                let label = [("tunnel", *tunnel), ("direction", *direction)];
                ConstCounter::new(of(status)).encode(family.encode_family(&label)?)?;
            }
        }
        let help = "Packets of a tunnel that were refused.";
        let mut family = encoder.encode_descriptor("sa_errors", help, None, kind)?;
        for (tunnel, direction, status) in &rows {
            for (error, count) in status.errors() {
                let label = [("tunnel", *tunnel), ("direction", *direction), ("error", error)];
                ConstCounter::new(count).encode(family.encode_family(&label)?)?;
            }
        }
        Ok(())
    }

    fn ports(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let ports = self.0.port_views();
        let port = |name, help| Family { name, help, unit: None, label: "port" };
        let names = || ports.iter().map(|view| view.port.interface.as_str());
        let up = ports.iter().map(|view| i64::from(view.port.state == Presence::Up));
        port("port_up", "Whether frames come and go.").gauges(encoder, names().zip(up))?;
        let linked = ports.iter().filter(|view| view.port.carrier != Carrier::Unknown);
        let linked =
            linked.map(|view| (view.port.interface.as_str(), i64::from(view.port.carrier == Carrier::Up)));
        port("port_carrier", "Whether somebody is at the other end of the link.").gauges(encoder, linked)?;
        let bytes = |name, help| Family { name, help, unit: Some(Unit::Bytes), label: "port" };
        let received = ports.iter().map(|view| view.received_bytes);
        bytes("port_received", "Bytes of frames received.").counters(encoder, names().zip(received))?;
        let sent = ports.iter().map(|view| view.sent_bytes);
        bytes("port_sent", "Bytes of frames sent.").counters(encoder, names().zip(sent))?;
        let received = ports.iter().map(|view| view.received);
        port("port_received_packets", "Frames received.").counters(encoder, names().zip(received))?;
        let sent = ports.iter().map(|view| view.sent);
        port("port_sent_packets", "Frames sent.").counters(encoder, names().zip(sent))?;
        let whole = ports.iter().map(|view| view.whole);
        port(
            "port_whole_packets",
            "Packets of many segments received whole; their segments count as frames.",
        )
        .counters(encoder, names().zip(whole))?;
        let missed = ports.iter().map(|view| view.missed);
        port("port_missed_packets", "Frames lost by the system before they were received.")
            .counters(encoder, names().zip(missed))?;
        let unsent = ports.iter().map(|view| view.unsent);
        port("port_unsent_packets", "Frames that could not be sent.")
            .counters(encoder, names().zip(unsent))?;
        let dropped = ports.iter().map(|view| view.port.egress.device);
        port(
            "port_tx_dropped_packets",
            "Packets that the device dropped, of the fast path, workers and Linux.",
        )
        .counters(encoder, names().zip(dropped))?;
        let dropped = ports.iter().map(|view| view.port.egress.qdisc);
        port("port_qdisc_dropped_packets", "Packets that Linux's queueing discipline dropped.")
            .counters(encoder, names().zip(dropped))?;
        let backpressure = ports.iter().map(|view| view.backpressure);
        port("port_backpressure", "Times that the device did not take all frames that it was given.")
            .counters(encoder, names().zip(backpressure))?;
        let queues = self.0.queues();
        let waiting = queues.iter().map(|view| (view.interface.as_str(), view.waiting as i64));
        port("port_queued_packets", "Frames that wait to be sent.").gauges(encoder, waiting)?;
        queue_metrics(encoder, &queues)
    }
}

/// Queues of trees, by interface, side and name.
fn queue_metrics(encoder: &mut DescriptorEncoder<'_>, queues: &[QueueView]) -> fmt::Result {
    let named = queues.iter().flat_map(|queue| {
        queue.queues.iter().map(|leaf| (format!("{} {} {}", queue.interface, leaf.side, leaf.name), leaf))
    });
    let named: Vec<(String, &LeafView)> = named.collect();
    let family = |name, help, unit| Family { name, help, unit, label: "queue" };
    let of = |value: fn(&LeafView) -> u64| named.iter().map(move |(name, leaf)| (name.as_str(), value(leaf)));
    family("queue_packets", "Packets sent from a queue.", None)
        .counters(encoder, of(|leaf| leaf.sent.packets))?;
    family("queue", "The same, in bytes of IP packets.", Some(Unit::Bytes))
        .counters(encoder, of(|leaf| leaf.sent.bytes))?;
    family("queue_full_packets", "Packets dropped for want of room in a queue.", None)
        .counters(encoder, of(|leaf| leaf.dropped_full))?;
    family("queue_early_packets", "Packets dropped by active queue management.", None)
        .counters(encoder, of(|leaf| leaf.dropped_early))?;
    family("queue_marked_packets", "Packets marked in the place of a drop (ECN).", None)
        .counters(encoder, of(|leaf| leaf.marked))?;
    let gauge = |value: fn(&LeafView) -> u64| {
        named.iter().map(move |(name, leaf)| (name.as_str(), i64::try_from(value(leaf)).unwrap_or(i64::MAX)))
    };
    family("queue_waiting_packets", "Packets that wait in a queue.", None)
        .gauges(encoder, gauge(|leaf| leaf.waiting))?;
    family("queue_waiting", "The same, in bytes of IP packets.", Some(Unit::Bytes))
        .gauges(encoder, gauge(|leaf| leaf.waiting_bytes))?;
    let help = "Delay that half of a queue's packets did not exceed.";
    family("queue_delay_p50_nanoseconds", help, None).gauges(encoder, gauge(|leaf| leaf.delay.p50))?;
    family("queue_delay_p99_nanoseconds", "Delay that 99 % of a queue's packets did not exceed.", None)
        .gauges(encoder, gauge(|leaf| leaf.delay.p99))?;
    let help = "Subscribers that have had queues in the tree of a queue.";
    family("queue_subscribers", help, None).gauges(encoder, gauge(|leaf| leaf.subscribers as u64))
}

fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    let metric = ConstCounter::new(value);
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<Unit>,
    value: f64,
) -> fmt::Result {
    let metric = ConstGauge::new(value);
    metric.encode(encoder.encode_descriptor(name, help, unit.as_ref(), metric.metric_type())?)
}
