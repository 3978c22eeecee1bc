//! Decryption of captured ESP by a table of security associations as Wireshark has them (`esp_sa`), whoever's they are: inner packets as a
//! capture, and associations for the tunnels of a replay.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use dataplane::Replay;
use dataplane::sa::{SaAddition, SaChange, SaId, SaRequest};
use dataplane::tables::Address;
use esp::wireshark::{self, BadLine, Check, TableSa};
use esp::{Packet, SPARE, Transform, sequence};
use serde_json::{Value, json};
use wire::capture::{CaptureError, PcapngWriter, Record};
use wire::esp::{Direction, Esn, HEADER_LEN, Header, Suite};
use wire::ethernet::{self, EtherType};
use wire::{LinkKind, Nanos, link_kind};
use zeroize::Zeroizing;

use crate::number::count;

mod fragment;
mod outer;

use fragment::Fragments;
use outer::Outer;

/// ESP within ESP, at most: what is deeper stays as it is.
const DEPTH: usize = 4;

/// The file of inner packets.
pub const FILE: &str = "decrypted.pcapng";

/// Associations of a table, and what has been decrypted by them.
pub struct Decryptor {
    path: PathBuf,
    sas: Vec<Known>,
    /// Associations that no tunnel has been given, each with the reason.
    joined: Vec<String>,
    by_spi: HashMap<u32, Vec<usize>>,
    out: Option<PcapngWriter>,
    /// Outer packets that come in fragments.
    fragments: Fragments,
    /// Packets that an association was for, and that the capture has cut.
    cut: u64,
    failed: Option<CaptureError>,
}

/// Association, with its counts.
struct Known {
    sa: TableSa,
    transform: Option<Box<dyn Transform>>,
    /// Extended numbers, once known, and the highest number.
    esn: Option<Esn>,
    top: u64,
    /// Tunnel that has it.
    tunnel: Option<String>,
    counts: Counts,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    decrypted: u64,
    icv_wrong: u64,
    malformed: u64,
}

/// Line of a table that cannot be read. Its text has nothing that may be a key.
#[derive(Debug, thiserror::Error)]
#[error("{}:{line}: {}", .path.display(), config::masked_message(.error.to_string()))]
pub struct RefusedLine {
    /// The file.
    pub path: PathBuf,
    /// Number of the line, from 1.
    pub line: usize,
    /// Reason; a field in the place of another is repeated, and may be a key.
    error: BadLine,
}

/// Reason for refusing a table.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The file cannot be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the system call.
        error: io::Error,
    },
    /// The table has lines that cannot be read, or no association.
    #[error("{path} has {}", of_lines(.bad.len()))]
    Lines {
        /// The file.
        path: PathBuf,
        /// All such lines.
        bad: Vec<RefusedLine>,
    },
}

impl TableError {
    /// The error, and all lines that cannot be read, each on a line of its own.
    pub fn with_lines(&self) -> String {
        let bad: &[RefusedLine] = match self {
            TableError::Read { .. } => &[],
            TableError::Lines { bad, .. } => bad,
        };
        bad.iter().fold(self.to_string(), |text, line| format!("{text}\n{line}"))
    }
}

fn of_lines(number: usize) -> String {
    match number {
        0 => "no security association".to_owned(),
        1 => "a line that cannot be read".to_owned(),
        many => format!("{many} lines that cannot be read"),
    }
}

/// Reason why a packet cannot be opened.
enum Fault {
    Icv,
    Form,
}

impl Decryptor {
    /// Reads a table.
    ///
    /// # Errors
    /// [`TableError`], with every line that cannot be read.
    pub fn read(path: &Path) -> Result<Decryptor, TableError> {
        let read = |error| TableError::Read { path: path.to_owned(), error };
        let bytes = Zeroizing::new(fs::read(path).map_err(read)?);
        let text = std::str::from_utf8(&bytes)
            .map_err(|_| read(io::Error::new(io::ErrorKind::InvalidData, "it is no text")))?;
        let (sas, bad) = wireshark::parse(text);
        if sas.is_empty() || !bad.is_empty() {
            let path = path.to_owned();
            let bad = bad.into_iter();
            let bad = bad.map(|(line, error)| RefusedLine { path: path.clone(), line, error }).collect();
            return Err(TableError::Lines { path, bad });
        }
        let mut known = Vec::with_capacity(sas.len());
        let mut by_spi: HashMap<u32, Vec<usize>> = HashMap::new();
        for sa in sas {
            by_spi.entry(sa.spi).or_default().push(known.len());
            known.push(Known::new(sa));
        }
        Ok(Decryptor {
            path: path.to_owned(),
            sas: known,
            joined: Vec::new(),
            by_spi,
            out: None,
            fragments: Fragments::default(),
            cut: 0,
            failed: None,
        })
    }

    /// The table.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Has inner packets written to a [file](FILE) in this directory.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_into(&mut self, directory: &Path) -> Result<(), CaptureError> {
        let mut out = PcapngWriter::create(directory.join(FILE))?;
        out.interface_of("esp", LinkKind::Ip)?;
        self.out = Some(out);
        Ok(())
    }

    /// Gives tunnels of a replay the associations of packets to them, in the place of those whose keys are not there.
    pub fn join(&mut self, replay: &mut Replay) {
        self.joined = self.sas.iter_mut().filter_map(|known| known.join(replay)).collect();
    }

    /// Decrypts a frame as it was captured, if it has ESP of an association; `len` is its length on the wire.
    pub fn take(&mut self, at: Nanos, frame: &[u8], len: u32) {
        let Ok(layer) = ethernet::parse(frame) else { return };
        if !matches!(layer.ethertype, EtherType::IPV4 | EtherType::IPV6) {
            return;
        }
        if (len as usize) > frame.len() {
            let known = Outer::of(layer.payload).and_then(|outer| self.place_of(&outer));
            self.cut += u64::from(known.is_some());
            return;
        }
        let whole = self.fragments.take(layer.payload, at);
        let Some(packet) =
            whole.as_deref().or(Some(layer.payload)).filter(|packet| !fragment::is_one(packet))
        else {
            return;
        };
        let mut opened = Vec::new();
        let mut inner = self.open(packet, &mut opened);
        // ESP within ESP, which may have been fragmented in between.
        while let Some(packet) = &inner {
            let whole = self.fragments.take(packet, at);
            let next = whole.as_deref().unwrap_or(packet);
            if opened.len() == DEPTH || !self.is_known(next) {
                break;
            }
            let before = opened.len();
            let deeper = self.open(next, &mut opened);
            if opened.len() == before {
                break;
            }
            inner = deeper;
        }
        if let Some(inner) = inner {
            self.write(at, &inner, opened.join(", "));
        }
    }

    /// Place of the association of an outer packet.
    fn place_of(&self, outer: &Outer<'_>) -> Option<usize> {
        let places = self.by_spi.get(&Header::of(outer.esp)?.spi())?;
        let ends =
            |known: &Known| known.sa.source.has(outer.source) && known.sa.destination.has(outer.destination);
        places.iter().copied().find(|place| ends(&self.sas[*place]))
    }

    /// True for a whole packet of ESP of an association.
    fn is_known(&self, packet: &[u8]) -> bool {
        !fragment::is_one(packet) && Outer::of(packet).and_then(|outer| self.place_of(&outer)).is_some()
    }

    /// Opens a packet of ESP: the inner packet, if there is one. What is said of it is added to `opened`.
    fn open(&mut self, packet: &[u8], opened: &mut Vec<String>) -> Option<Vec<u8>> {
        let outer = Outer::of(packet)?;
        let place = self.place_of(&outer)?;
        let known = &mut self.sas[place];
        match known.open(&outer) {
            Ok((number, inner)) => {
                known.counts.decrypted += 1;
                let Outer { source, destination, .. } = outer;
                opened.push(format!("esp {source} > {destination} sa {:#x} num {number}", known.sa.spi));
                return inner;
            }
            Err(Fault::Icv) => known.counts.icv_wrong += 1,
            Err(Fault::Form) => known.counts.malformed += 1,
        }
        None
    }

    fn write(&mut self, at: Nanos, inner: &[u8], comment: String) {
        let (Some(out), None) = (&mut self.out, &self.failed) else { return };
        // The writer takes frames, and leaves the header of a link without one out.
        let link = link_kind::received(inner).unwrap_or_default();
        let framed = [&link[..], inner].concat();
        let record = Record { comment: Some(comment.into()), ..Record::new(at, &framed) };
        self.failed = out.write(&record).err();
    }

    /// Writes out what is still buffered.
    ///
    /// # Errors
    /// A packet could not be written, the first of all or one that is.
    pub fn finish(&mut self) -> Result<(), CaptureError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if let Some(out) = self.out.take() {
            out.finish()?;
        }
        Ok(())
    }

    /// Notes on the outcome, for operators.
    pub(crate) fn notes(&self) -> impl Iterator<Item = String> {
        let all = |of: fn(&Counts) -> u64| self.sas.iter().map(|known| of(&known.counts)).sum::<u64>();
        let (decrypted, icv_wrong, malformed) =
            (all(|counts| counts.decrypted), all(|counts| counts.icv_wrong), all(|counts| counts.malformed));
        let used = self.sas.iter().filter(|known| known.counts.decrypted > 0).count();
        let mut text = format!(
            "{} of ESP decrypted, by {used} of the {} of {}",
            count(decrypted, "packet", "packets"),
            count(self.sas.len() as u64, "security association", "security associations"),
            self.path.display()
        );
        for (number, what) in [
            (icv_wrong, "failed the integrity check"),
            (malformed, "had no form that decrypts (other algorithms, or NULL cut short)"),
            (self.cut, "were cut by the capture"),
            (self.fragments.left(), "were fragments without the others"),
        ] {
            if number > 0 {
                text.push_str(&format!("; {number} {what}"));
            }
        }
        self.joined.iter().cloned().chain([text])
    }

    /// The same for scripts, one for each line.
    pub(crate) fn to_json(&self) -> Value {
        let row = |Known { sa, tunnel, counts, .. }: &Known| {
            let Counts { decrypted, icv_wrong, malformed } = *counts;
            json!({
                "line": sa.line, "spi": sa.spi, "tunnel": tunnel,
                "decrypted": decrypted, "icv_wrong": icv_wrong, "malformed": malformed,
            })
        };
        self.sas.iter().map(row).collect()
    }
}

impl Known {
    fn new(sa: TableSa) -> Known {
        let suite = match sa.check {
            Check::Suite(suite) => Some(suite),
            Check::Unchecked(suite, _) => suite,
        };
        let mut keys = sa.keys.clone();
        if matches!(sa.check, Check::Unchecked(..)) {
            keys.auth = wire::esp::Secret::new(Box::default());
        }
        // The table has been checked: lengths are right, and a library has each suite.
        let transform = suite.and_then(|suite| esp::expand(suite, &keys, Direction::In).ok());
        let (esn, top) = match sa.esn {
            Some((esn, high)) => (Some(esn), u64::from(high) << 32),
            None => (None, 0),
        };
        Known { sa, transform, esn, top, tunnel: None, counts: Counts::default() }
    }

    fn join(&mut self, replay: &mut Replay) -> Option<String> {
        let sa = &self.sa;
        let spi = sa.spi;
        let Check::Suite(suite) = sa.check else { return None };
        let tables = &replay.tables;
        let is_ours = |tunnel: &&dataplane::tables::Tunnel| {
            let is_peer = |remote: Address| sa.source.has(remote.to_ip());
            sa.destination.has(tunnel.local.to_ip()) && tunnel.remote.is_none_or(is_peer)
        };
        let mut found: Vec<_> = tables.tunnels.list.iter().filter(is_ours).collect();
        let (mut esn, mut replaced) = (self.esn.unwrap_or_default(), None);
        if let Some(first) = found.first() {
            if let Some(own) = replay.shard.sas.inbound(spi, first.local) {
                if own.transform.library(0) != "none" {
                    return Some(format!("{spi:#x} of {}: the policy has it, with its key", self.at()));
                }
                // Known by the policy, but for its key.
                (esn, replaced) = (own.esn, Some(first.local));
                let number = usize::from(own.tunnel);
                found = tables.tunnels.list.get(number).into_iter().collect();
            }
        }
        let [tunnel] = found[..] else {
            return (found.len() > 1).then(|| {
                format!("{spi:#x} of {} may be of {} tunnels: give its ends", self.at(), found.len())
            });
        };
        let name = tables.interface(tunnel.interface)?.name.clone();
        let request = SaRequest {
            tunnel: &name,
            direction: Direction::In,
            spi,
            esn,
            suite,
            keys: &sa.keys,
            selectors: &[],
            agreed: None,
        };
        let added = SaAddition::new(tables, &request).and_then(|addition| {
            if let Some(destination) = replaced {
                let id = SaId { direction: Direction::In, spi, destination };
                replay.shard.change_sa(tables, SaChange::Delete(id), Nanos(0))?;
            }
            if esn == Esn::On {
                // Numbers go on from the upper half that the table has.
                addition.known().sequence.raise(self.top);
            }
            Ok(replay.shard.change_sa(tables, addition.prepare(), Nanos(0)).map(drop)?)
        });
        match added {
            Ok(()) => {
                self.tunnel = Some(name);
                None
            }
            Err(error) => Some(format!("{spi:#x} of {} is not given to {name}: {error}", self.at())),
        }
    }

    fn at(&self) -> String {
        format!("line {}", self.sa.line)
    }

    /// Opens a packet: its number, and the inner packet, if it has one.
    fn open(&mut self, outer: &Outer<'_>) -> Result<(u64, Option<Vec<u8>>), Fault> {
        let header = Header::of(outer.esp).ok_or(Fault::Form)?;
        let low = header.sequence();
        let stripped = match self.sa.check {
            Check::Unchecked(_, bytes) => usize::from(bytes),
            Check::Suite(_) => 0,
        };
        let end = outer.esp.len().checked_sub(stripped).ok_or(Fault::Form)?;
        let esp = outer.esp.get(..end).ok_or(Fault::Form)?;
        let Some(transform) = &self.transform else {
            // NULL without a check.
            let text = esp.get(HEADER_LEN..).ok_or(Fault::Form)?;
            return Ok((low.into(), outer.inner(text)?));
        };
        let Suite { iv, icv, align, .. } = *transform.suite();
        let around = HEADER_LEN + usize::from(iv) + usize::from(icv);
        let text_len = esp.len().checked_sub(around).filter(|len| *len > 0).ok_or(Fault::Form)?;
        if text_len % usize::from(align) != 0 {
            return Err(Fault::Form);
        }
        // Tables of before Wireshark 4.2 do not say how long numbers are.
        let tried: &[Esn] = match self.esn {
            Some(Esn::Off) => &[Esn::Off],
            Some(Esn::On) => &[Esn::On],
            None => &[Esn::Off, Esn::On],
        };
        for esn in tried.iter().copied() {
            let number = match esn {
                Esn::Off => low.into(),
                Esn::On => sequence::infer(low, self.top, esp::Window::LARGEST),
            };
            let mut bytes = vec![0; SPARE];
            bytes.extend_from_slice(esp);
            if transform.open(Packet { bytes: &mut bytes, number, esn }).is_err() {
                continue;
            }
            (self.esn, self.top) = (Some(esn), self.top.max(number));
            let start = SPARE + HEADER_LEN + usize::from(iv);
            let text = bytes.get(start..start + text_len).ok_or(Fault::Form)?;
            return Ok((number, outer.inner(text)?));
        }
        Err(Fault::Icv)
    }
}
