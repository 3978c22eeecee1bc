//! Packets of the [drop recorder](dataplane::recorder), of all workers, for operators: as JSON and as pcapng.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dataplane::describe::Description;
use dataplane::recorder::{Interface, Recorded};
use dataplane::{Reason, Tables};
use policy::model::{OTHER_ZONE, SELF_ZONE};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wire::Nanos;
use wire::capture::{CaptureError, PcapngWriter, Record};

use crate::capture::record::{Comment, Interfaces};
use crate::flows::NotKnown;
use crate::log::line::time_text;

/// Query parameters of recorded packets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropQuery {
    /// Name of the reason; packets of all reasons if absent.
    pub reason: Option<String>,
    /// Packets of each reason, at most: the latest; all that there are if absent.
    pub last: Option<usize>,
}

/// A packet that was dropped or answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DroppedPacket {
    /// Time of the verdict: UTC, to the microsecond.
    pub time: String,
    /// Name of the reason; `wirerate reasons NAME` explains it.
    pub reason: String,
    /// `dropped` or `answered`.
    pub verdict: String,
    /// Interface that the packet came in by; `self` for the gateway itself, none where unknown.
    pub interface: Option<String>,
    /// Interface that the packet was to leave by, where one had been chosen.
    pub egress: Option<String>,
    /// Name of the rule that decided.
    pub rule: Option<String>,
    /// Name of the traffic class.
    pub class: Option<String>,
    /// Names of the translations that apply.
    pub translations: Vec<String>,
    /// Number of the worker.
    pub worker: usize,
    /// The packet in one line, as far as the bytes recorded tell.
    pub packet: String,
    /// Bytes of the frame.
    pub length: u32,
    /// First bytes of the frame, from the link-layer header on, in hexadecimal.
    pub bytes: String,
}

/// Packets recorded by one worker.
pub struct FoundDrops {
    /// Packets, in any order.
    pub packets: Vec<Recorded>,
    /// Tables of the worker.
    pub tables: Arc<Tables>,
    /// Time of the reply on the clock of the worker.
    pub now: Nanos,
    /// The same moment, as the time of day.
    pub at: SystemTime,
}

/// Packets recorded by all workers, in the order of time.
pub(crate) struct Drops {
    /// Lists of workers, each with the worker's number.
    lists: Vec<(usize, FoundDrops)>,
    /// Time of day, number of the list, place in it.
    order: Vec<(SystemTime, usize, usize)>,
}

impl DropQuery {
    /// Returns the reasons asked for.
    ///
    /// # Errors
    /// There is no such reason.
    pub(crate) fn reasons(&self) -> Result<Vec<Reason>, NotKnown> {
        match &self.reason {
            Some(name) => Ok(vec![NotKnown::or("reason", name, Reason::of_name(name))?]),
            None => Ok(Reason::ALL.iter().map(|entry| entry.reason).collect()),
        }
    }
}

impl Drops {
    /// Merges the packets of workers, and leaves out all but the last of each reason.
    pub(crate) fn merged(lists: Vec<(usize, FoundDrops)>, last: Option<usize>) -> Drops {
        let mut order = Vec::new();
        for (list, (worker, found)) in lists.iter().enumerate() {
            let age = |packet: &Recorded| Duration::from_nanos(found.now.since(packet.at).0);
            let time = |packet| found.at.checked_sub(age(packet)).unwrap_or(UNIX_EPOCH);
            order.extend(found.packets.iter().enumerate().map(|(place, packet)| {
                let key = (time(packet), *worker, packet.sequence);
                (key, list, place)
            }));
        }
        order.sort();
        let most = last.unwrap_or(usize::MAX);
        let mut kept = [0_usize; Reason::COUNT];
        let mut is_kept = |list: usize, place: usize| {
            let reason = lists[list].1.packets[place].verdict.reason();
            let kept = reason.and_then(|reason| kept.get_mut(reason as usize));
            kept.is_some_and(|kept| {
                *kept += 1;
                *kept <= most
            })
        };
        // From the latest on.
        let latest = order.into_iter().rev().filter(|(_, list, place)| is_kept(*list, *place));
        let mut order: Vec<_> = latest.map(|((time, ..), list, place)| (time, list, place)).collect();
        order.reverse();
        Drops { lists, order }
    }

    /// Packets with the time of day, their worker and its tables, the earliest first.
    fn packets(&self) -> impl DoubleEndedIterator<Item = (SystemTime, usize, &Tables, &Recorded)> {
        self.order.iter().filter_map(|(time, list, place)| {
            let (worker, found) = self.lists.get(*list)?;
            Some((*time, *worker, &*found.tables, found.packets.get(*place)?))
        })
    }

    /// Views of the packets, the latest first.
    pub(crate) fn views(&self) -> Vec<DroppedPacket> {
        self.packets()
            .rev()
            .map(|(time, worker, tables, packet)| view(time, worker, tables, packet))
            .collect()
    }

    /// Packets as pcapng, the earliest first: each at the interface that it came in by, with its original length, and with a comment
    /// as a live capture has it.
    ///
    /// # Errors
    /// A block that cannot be written.
    pub(crate) fn pcapng(&self, tables: &Tables) -> Result<Vec<u8>, CaptureError> {
        let mut writer = PcapngWriter::over("the record of drops", Vec::new())?;
        let mut interfaces = Interfaces::default();
        for interface in &tables.interfaces {
            interfaces.id(&mut writer, &interface.name)?;
        }
        for (time, _, tables, packet) in self.packets() {
            let name = packet.ingress(tables).map_or("?", name);
            let record = Record {
                interface: interfaces.id(&mut writer, name)?,
                original_len: packet.length,
                comment: Some(comment(packet, tables).into()),
                ..Record::new(
                    Nanos::from(time.duration_since(UNIX_EPOCH).unwrap_or_default()),
                    packet.bytes(),
                )
            };
            writer.write(&record)?;
        }
        writer.finish()
    }
}

fn name(interface: Interface<'_>) -> &str {
    match interface {
        Interface::Named(name) => name,
        Interface::Itself => SELF_ZONE,
        Interface::Other => OTHER_ZONE,
    }
}

fn comment(packet: &Recorded, tables: &Tables) -> String {
    let comment = Comment {
        point: "",
        verdict: Some(packet.verdict),
        rule: packet.rule(tables),
        ingress: packet.ingress(tables).map_or("?", name),
        egress: packet.egress(tables).map(name),
    };
    comment.text(tables.nat.names(packet.nat))
}

fn view(time: SystemTime, worker: usize, tables: &Tables, packet: &Recorded) -> DroppedPacket {
    let owned = |name: &str| name.to_owned();
    DroppedPacket {
        time: time_text(time),
        reason: packet.verdict.reason().map_or_else(String::new, |reason| reason.name().to_owned()),
        verdict: packet.verdict.name().to_owned(),
        interface: packet.ingress(tables).map(name).map(owned),
        egress: packet.egress(tables).map(name).map(owned),
        rule: packet.rule(tables).map(owned),
        class: packet.class(tables).map(owned),
        translations: tables.nat.names(packet.nat).map(|name| name.to_string()).collect(),
        worker,
        packet: Description::of(packet.bytes()).headline,
        length: packet.length,
        bytes: packet.bytes().iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

#[cfg(test)]
mod tests;
