//! Decryption of captured ESP by a table of security associations as Wireshark has them (`esp_sa`), whoever's they are: inner packets as a
//! capture, and associations for the tunnels of a replay.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use dataplane::Replay;
use dataplane::sa::{SaAddition, SaChange, SaId, SaRequest};
use dataplane::tables::Address;
use esp::wireshark::{self, Check, TableSa};
use esp::{Packet, SPARE, Transform, sequence};
use serde_json::{Value, json};
use wire::capture::{CaptureError, PcapngWriter, Record};
use wire::esp::{Direction, Esn, HEADER_LEN, Header, Suite};
use wire::ethernet::{self, EtherType};
use wire::{LinkKind, Nanos, link_kind};
use zeroize::Zeroizing;

use crate::failure::{Failure, InputError};
use crate::screen::{self, count};

mod fragment;
mod outer;

use fragment::Fragments;
use outer::Outer;

/// ESP within ESP, at most: what is deeper stays as it is.
const DEPTH: usize = 4;

/// The file of inner packets.
pub(crate) const FILE: &str = "decrypted.pcapng";

/// Associations of a table, and what has been decrypted by them.
pub(crate) struct Decryptor {
    path: PathBuf,
    sas: Vec<Known>,
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

/// Reason why a packet cannot be opened.
enum Fault {
    Icv,
    Form,
}

impl Decryptor {
    /// Reads a table. Every line that cannot be read is told.
    pub(crate) fn read(path: &Path) -> Result<Decryptor, Failure> {
        let read = |error| InputError::Read { path: path.to_owned(), error };
        let bytes = Zeroizing::new(fs::read(path).map_err(read)?);
        let text = std::str::from_utf8(&bytes)
            .map_err(|_| read(std::io::Error::new(std::io::ErrorKind::InvalidData, "it is no text")))?;
        let (sas, bad) = wireshark::parse(text);
        for (line, error) in &bad {
            // A field in the place of another is repeated, and may be a key.
            let error = config::masked_message(error.to_string());
            screen::error(&format_args!("{}:{line}: {error}", path.display()), None);
        }
        if !bad.is_empty() {
            return Err(InputError::Associations { path: path.to_owned(), lines: bad.len() }.into());
        }
        let mut known = Vec::with_capacity(sas.len());
        let mut by_spi: HashMap<u32, Vec<usize>> = HashMap::new();
        for sa in sas {
            by_spi.entry(sa.spi).or_default().push(known.len());
            known.push(Known::new(sa));
        }
        if known.is_empty() {
            return Err(InputError::Associations { path: path.to_owned(), lines: 0 }.into());
        }
        Ok(Decryptor {
            path: path.to_owned(),
            sas: known,
            by_spi,
            out: None,
            fragments: Fragments::default(),
            cut: 0,
            failed: None,
        })
    }

    /// The table.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Has inner packets written to a file in this directory.
    pub(crate) fn write_into(&mut self, directory: &Path) -> Result<(), Failure> {
        let mut out = PcapngWriter::create(directory.join(FILE))?;
        out.interface_of("esp", LinkKind::Ip)?;
        self.out = Some(out);
        Ok(())
    }

    /// Gives tunnels of a replay the associations of packets to them, in the place of those whose keys are not there. Returns what is to
    /// be said of it.
    pub(crate) fn join(&mut self, replay: &mut Replay) -> Vec<String> {
        self.sas.iter_mut().filter_map(|known| known.join(replay)).collect()
    }

    /// Decrypts a frame as it was captured, if it has ESP of an association; `len` is its length on the wire.
    pub(crate) fn take(&mut self, at: Nanos, frame: &[u8], len: u32) {
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
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        if let Some(error) = self.failed.take() {
            return Err(error.into());
        }
        if let Some(out) = self.out.take() {
            out.finish()?;
        }
        Ok(())
    }

    /// Notes on the outcome, for operators.
    pub(crate) fn notes(&self) -> Vec<String> {
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
        vec![text]
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
