//! Captures out: what left by each interface, what was dropped, with the reason beside each packet, and what rules
//! say to log.
//!
//! The same replay writes the same bytes. Packets that were dropped are written as they were captured; they
//! are kept from when they come in until their fate is known.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use dataplane::flag;
use dataplane::pipeline::Watch;
use dataplane::replay::Witness;
use dataplane::stage::decap::Decap;
use dataplane::stage::encap::Encap;
use dataplane::stage::{Cx, Stage};
use dataplane::tables::LOCAL;
use dataplane::{Reason, Tables, Verdict, tunnel};
use policy::model::Logging;
use replay::fate::left_by;
use tally::Tally;
use wire::atm::cell_of;
use wire::capture::{CaptureError, PcapngWriter, Record};
use wire::{Frame, Nanos, PortId};

use crate::failure::{Failure, OutputError, UsageError};

/// The file of dropped packets.
const DROPPED: &str = "dropped.pcapng";

/// The file of packets that met a rule with `log = true`; it is there only if there is such a rule.
const LOGGED: &str = "logged.pcapng";

/// Reason that a chip loses packets: more come than it can take.
pub(crate) const OVERLOAD: &str = "overload";

/// A packet as it came in, before anything was done to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Came<'a> {
    /// Time of arrival.
    pub(crate) at: Nanos,
    /// Interface of arrival.
    pub(crate) ingress: PortId,
    /// Length on the wire, in bytes.
    pub(crate) original_len: u32,
    /// The frame, as captured.
    pub(crate) bytes: &'a [u8],
}

impl<'a> From<&replay::capture::Packet<'a>> for Came<'a> {
    /// The packet as captured, before readdressing.
    fn from(packet: &replay::capture::Packet<'a>) -> Came<'a> {
        let replay::capture::Packet { at, ingress, original_len, captured: bytes, .. } = *packet;
        Came { at, ingress, original_len, bytes }
    }
}

/// The files of one replay.
pub(crate) struct Outputs {
    names: Names,
    /// Files of packets sent, by place of the interface.
    sent: Vec<Sent>,
    /// VLANs carried, by place of the interface: outer tag, inner tag (0 where there is none), and port of the VLAN.
    vlans: Vec<Vec<(u16, u16, PortId)>>,
    dropped: PcapngWriter,
    logged: Option<PcapngWriter>,
    kept: HashMap<u32, Kept>,
    /// Space of packets whose fate is known.
    spare: Vec<Vec<u8>>,
    /// The first thing that could not be written; nothing is written after it.
    failed: Option<CaptureError>,
}

/// Inner packets of tunnels, copied as they pass the stages.
#[derive(Default)]
pub(crate) struct Inner(Vec<InnerCopy>);

struct InnerCopy {
    tunnel: PortId,
    at: Nanos,
    way: &'static str,
    bytes: Vec<u8>,
}

impl Inner {
    fn copy(&mut self, tunnel: PortId, way: &'static str, frame: &Frame) {
        let (at, bytes) = (frame.meta.received, frame.bytes().to_vec());
        self.0.push(InnerCopy { tunnel, at, way, bytes });
    }
}

impl<T: Tally> Watch<T> for Inner {
    fn before(&mut self, stage: &'static str, frame: &Frame, _: &mut Cx<'_, T>) {
        if stage == Encap::ABOUT.name {
            self.copy(frame.meta.egress, "into the tunnel", frame);
        }
    }

    fn after(&mut self, stage: &'static str, frame: &Frame, _: &mut Cx<'_, T>) {
        if stage == Decap::ABOUT.name && frame.meta.tunnel & tunnel::IN != 0 {
            self.copy(frame.meta.ingress, "out of the tunnel", frame);
        }
    }
}

/// Packets sent by one interface.
struct Sent {
    writer: PcapngWriter,
    /// File of cells that left by the interface's line as cells; none where there is no line.
    cells: Option<PcapngWriter>,
    /// Time when the last packet left: a packet that waited leaves no earlier than those that left meanwhile.
    last: Nanos,
}

/// A packet whose fate is not known.
struct Kept {
    at: Nanos,
    ingress: PortId,
    original_len: u32,
    bytes: Vec<u8>,
}

/// Names of what stands in comments.
struct Names {
    interfaces: Vec<String>,
    zones: Vec<String>,
    zone_of: Vec<u8>,
    rules: Vec<String>,
    /// Logging, by place of the rule.
    logs: Vec<Logging>,
}

impl Outputs {
    /// Makes the directory and the files, over those that are there.
    pub(crate) fn create<'a>(
        directory: &Path,
        tables: &Tables,
        inputs: impl Iterator<Item = &'a Path>,
    ) -> Result<Outputs, Failure> {
        fs::create_dir_all(directory)
            .map_err(|error| OutputError::Write { path: directory.to_owned(), error })?;
        let read: Vec<PathBuf> = inputs.filter_map(|path| path.canonicalize().ok()).collect();
        let create = |name: &str| {
            let path = directory.join(name);
            if path.canonicalize().is_ok_and(|path| read.contains(&path)) {
                return Err(UsageError::Overwrites { path });
            }
            Ok(path)
        };
        let mut paths = Vec::with_capacity(tables.interfaces.len());
        for (name, cells) in file_names(tables) {
            paths.push((create(&name)?, cells.map(|name| create(&name)).transpose()?));
        }
        // Only now that nothing read would be written over.
        let mut dropped = PcapngWriter::create(create(DROPPED)?)?;
        let mut logged = match tables.filter.rules.iter().any(|rule| rule.log == Logging::On) {
            true => Some(PcapngWriter::create(create(LOGGED)?)?),
            false => None,
        };
        let mut sent = Vec::with_capacity(paths.len());
        for ((path, cells), interface) in paths.iter().zip(&tables.interfaces) {
            // Of all kinds of links, as if of Ethernet: libpcap reads no file with two kinds.
            dropped.interface(&interface.name)?;
            if let Some(logged) = &mut logged {
                logged.interface(&interface.name)?;
            }
            let mut writer = PcapngWriter::create(path)?;
            match interface.channel {
                Some(channel) => writer.interface_of_channel(&interface.name, interface.link, channel)?,
                None => writer.interface_of(&interface.name, interface.link)?,
            };
            let mut cells = cells.as_ref().map(PcapngWriter::create).transpose()?;
            if let Some(cells) = &mut cells {
                cells.interface_of_cells(&interface.name)?;
            }
            sent.push(Sent { writer, cells, last: Nanos::default() });
        }
        Ok(Outputs {
            names: Names::of(tables),
            sent,
            vlans: tables.interfaces.iter().map(|interface| interface.vlans.clone()).collect(),
            dropped,
            logged,
            kept: HashMap::new(),
            spare: Vec::new(),
            failed: None,
        })
    }

    /// Writes inner packets of tunnels, each into the file of its tunnel.
    pub(crate) fn write_inner(&mut self, inner: &mut Inner) {
        for InnerCopy { tunnel, at, way, bytes } in inner.0.drain(..) {
            let Some(sent) = self.sent.get_mut(usize::from(tunnel.0)).filter(|_| self.failed.is_none())
            else {
                continue;
            };
            sent.last = sent.last.max(at);
            let record = Record { comment: Some(Cow::Borrowed(way)), ..Record::new(sent.last, &bytes) };
            let written = sent.writer.write(&record);
            self.note(written);
        }
    }

    /// Keeps a packet until its fate is known.
    pub(crate) fn keep(&mut self, number: u32, packet: &Came<'_>) {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(packet.bytes);
        let Came { at, ingress, original_len, .. } = *packet;
        self.kept.insert(number, Kept { at, ingress, original_len, bytes });
    }

    /// Writes a packet that was lost to overload beside those that were dropped.
    pub(crate) fn lose(&mut self, number: u32) {
        self.write_unseen(number, &format!("lost: {OVERLOAD}"));
    }

    /// Writes a packet that no stage has seen beside those that were dropped.
    fn write_unseen(&mut self, number: u32, why: &str) {
        let Some(kept) = self.kept.remove(&number) else { return };
        if self.failed.is_none() {
            let ingress = self.names.interfaces.get(usize::from(kept.ingress.0)).map_or("?", String::as_str);
            let record = Record {
                interface: usize::from(kept.ingress.0),
                original_len: kept.original_len,
                comment: Some(Cow::Owned(format!("{why}, in by {ingress}"))),
                ..Record::new(kept.at, &kept.bytes)
            };
            let written = self.dropped.write(&record);
            self.note(written);
        }
        self.spare.push(kept.bytes);
    }

    /// Writes out what is still buffered.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        if let Some(error) = self.failed {
            return Err(error.into());
        }
        self.dropped.finish()?;
        if let Some(logged) = self.logged {
            logged.finish()?;
        }
        for sent in self.sent {
            sent.writer.finish()?;
            if let Some(cells) = sent.cells {
                cells.finish()?;
            }
        }
        Ok(())
    }

    /// Writes a packet that met a rule which says to log, as it was captured.
    fn log(&mut self, frame: &Frame, verdict: Verdict, kept: &Kept) {
        let Some(logged) = self.logged.as_mut().filter(|_| self.failed.is_none()) else { return };
        let Some(rule) = self.names.logged_rule(frame) else { return };
        let ingress = self.names.interface(frame.meta.ingress).map_or(kept.ingress, |_| frame.meta.ingress);
        let record = Record {
            interface: usize::from(ingress.0),
            original_len: kept.original_len,
            comment: Some(Cow::Owned(format!("rule \"{rule}\": {verdict}"))),
            ..Record::new(kept.at, &kept.bytes)
        };
        let written = logged.write(&record);
        self.note(written);
    }

    fn note(&mut self, written: Result<(), CaptureError>) {
        if let Err(error) = written {
            self.failed.get_or_insert(error);
        }
    }
}

impl Witness for Outputs {
    fn sent(&mut self, port: PortId, at: Nanos, frame: &Frame, verdict: Option<Verdict>) {
        if let Some(verdict) = verdict {
            if let Some(kept) = self.kept.remove(&frame.meta.number) {
                self.log(frame, verdict, &kept);
                self.spare.push(kept.bytes);
            }
        }
        if self.failed.is_some() {
            return;
        }
        let comment = match verdict {
            Some(verdict @ Verdict::Answered(_)) => Some(self.names.comment(verdict, frame)),
            _ => None,
        };
        let vlans = self.vlans.get(usize::from(port.0)).map_or(&[][..], Vec::as_slice);
        let interface = left_by(port, vlans, frame.bytes());
        let Some(sent) = self.sent.get_mut(usize::from(interface.0)) else { return };
        // Records of a file are in the order of time, whatever a clock that goes back does.
        sent.last = sent.last.max(at);
        let record = Record { comment: comment.map(Cow::Owned), ..Record::new(sent.last, frame.bytes()) };
        let written = match &mut sent.cells {
            Some(cells) if cell_of(frame.bytes()).is_some() => cells.write(&record),
            _ => sent.writer.write(&record),
        };
        self.note(written);
    }

    fn ended(&mut self, frame: &Frame, verdict: Verdict) {
        let Some(kept) = self.kept.remove(&frame.meta.number) else { return };
        self.log(frame, verdict, &kept);
        if matches!(verdict, Verdict::Dropped(_)) && self.failed.is_none() {
            let ingress =
                self.names.interface(frame.meta.ingress).map_or(kept.ingress, |_| frame.meta.ingress);
            let record = Record {
                interface: usize::from(ingress.0),
                original_len: kept.original_len,
                comment: Some(Cow::Owned(self.names.comment(verdict, frame))),
                ..Record::new(kept.at, &kept.bytes)
            };
            let written = self.dropped.write(&record);
            self.note(written);
        }
        self.spare.push(kept.bytes);
    }

    fn refused(&mut self, number: u32, _: PortId, reason: Reason) {
        self.write_unseen(number, &format!("dropped: {}", reason.name()));
    }
}

impl Names {
    fn of(tables: &Tables) -> Names {
        Names {
            interfaces: tables.interfaces.iter().map(|interface| interface.name.clone()).collect(),
            zones: tables.zones.clone(),
            zone_of: tables.interfaces.iter().map(|interface| interface.zone).collect(),
            rules: tables.filter.rules.iter().map(|rule| rule.name.clone()).collect(),
            logs: tables.filter.rules.iter().map(|rule| rule.log).collect(),
        }
    }

    /// The rule that a packet met, if it says to log. Later packets of a flow meet none.
    fn logged_rule(&self, frame: &Frame) -> Option<&str> {
        let place = frame.meta.rule as usize;
        let met = frame.meta.flags & flag::HIT == 0 && self.logs.get(place) == Some(&Logging::On);
        if met { self.rules.get(place).map(String::as_str) } else { None }
    }

    /// Returns the comment of a packet: `dropped: rule-drop by rule "no-mail", in by lan`.
    fn comment(&self, verdict: Verdict, frame: &Frame) -> String {
        let reason = verdict.reason().map_or("", Reason::name);
        let mut text = format!("{}: {reason}", verdict.name());
        match verdict.reason() {
            Some(
                Reason::RuleDrop
                | Reason::RuleReject
                | Reason::SynProxied
                | Reason::RateLimit
                | Reason::ConnectionLimit,
            ) => {
                if let Some(rule) = self.rules.get(frame.meta.rule as usize) {
                    text.push_str(&format!(" by rule \"{rule}\""));
                }
            }
            Some(Reason::DefaultDrop | Reason::DefaultReject) => {
                let (from, to) = (self.zone(frame.meta.ingress), self.zone(frame.meta.egress));
                text.push_str(&format!(" for \"{from} > {to}\""));
            }
            _ => {}
        }
        if let Some(interface) = self.interface(frame.meta.ingress) {
            text.push_str(&format!(", in by {interface}"));
        }
        text
    }

    fn interface(&self, id: PortId) -> Option<&str> {
        self.interfaces.get(usize::from(id.0)).map(String::as_str)
    }

    fn zone(&self, interface: PortId) -> &str {
        let zone = if interface == LOCAL {
            dataplane::tables::SELF
        } else {
            self.zone_of.get(usize::from(interface.0)).copied().unwrap_or(dataplane::tables::SELF)
        };
        self.zones.get(usize::from(zone)).map_or("self", String::as_str)
    }
}

/// The file of what leaves by an interface.
pub(crate) fn file_name(interface: &str) -> String {
    let name = interface.replace(['/', '\\'], "_");
    let file = format!("{name}.pcapng");
    // What was dropped, logged or decrypted has its own file, whatever interfaces are called.
    if [DROPPED, LOGGED, replay::decrypt::FILE].contains(&file.as_str()) {
        format!("{name}_.pcapng")
    } else {
        file
    }
}

/// The file of cells that left by the line of an interface with this file.
fn cells_file_name(file: &str) -> String {
    format!("{}.cells.pcapng", file.trim_end_matches(".pcapng"))
}

/// The files of all interfaces, each its own, with those of cells where there is a line of ATM: of names that differ only in what a
/// file name cannot have, the later get a mark.
fn file_names(tables: &Tables) -> Vec<(String, Option<String>)> {
    let mut taken: Vec<String> = Vec::with_capacity(tables.interfaces.len());
    let mut names = Vec::with_capacity(tables.interfaces.len());
    for interface in &tables.interfaces {
        let files = |name: &str| {
            let file = file_name(name);
            let cells = interface.channel.map(|_| cells_file_name(&file));
            (file, cells)
        };
        let mut name = interface.name.clone();
        let (file, cells) = loop {
            let (file, cells) = files(&name);
            if !taken.contains(&file) && cells.as_ref().is_none_or(|cells| !taken.contains(cells)) {
                break (file, cells);
            }
            name.push('_');
        };
        taken.extend(cells.iter().chain([&file]).cloned());
        names.push((file, cells));
    }
    names
}

/// Writes files if there are any to write, and says nothing otherwise.
pub(crate) struct Optional(pub(crate) Option<Outputs>);

impl Witness for Optional {
    fn sent(&mut self, port: PortId, at: Nanos, frame: &Frame, verdict: Option<Verdict>) {
        if let Some(outputs) = &mut self.0 {
            outputs.sent(port, at, frame, verdict);
        }
    }

    fn ended(&mut self, frame: &Frame, verdict: Verdict) {
        if let Some(outputs) = &mut self.0 {
            outputs.ended(frame, verdict);
        }
    }

    fn refused(&mut self, number: u32, ingress: PortId, reason: Reason) {
        if let Some(outputs) = &mut self.0 {
            outputs.refused(number, ingress, reason);
        }
    }
}
