//! Decryption of captured ESP by a table of security associations as Wireshark has them (`esp_sa`), whoever's they are: inner packets as a
//! capture, and associations for the tunnels of a replay.

use std::collections::HashMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use dataplane::Replay;
use dataplane::sa::{SaAddition, SaChange, SaId, SaRequest};
use esp::wireshark::{self, Check, TableSa};
use esp::{Packet, SPARE, Transform, sequence};
use serde_json::{Value, json};
use wire::capture::{CaptureError, PcapngWriter, Record};
use wire::esp::{Direction, Esn, HEADER_LEN, Header, NAT_PORT, Suite};
use wire::ethernet::{self, EtherType};
use wire::header::Protocol;
use wire::{LinkKind, Nanos, ipv4, ipv6, link_kind, udp};
use zeroize::Zeroizing;

use crate::failure::{Failure, InputError};
use crate::screen::{self, count};

/// The file of inner packets.
pub(crate) const FILE: &str = "decrypted.pcapng";

/// Associations of a table, and what has been decrypted by them.
pub(crate) struct Decryptor {
    path: PathBuf,
    sas: Vec<Known>,
    by_spi: HashMap<u32, Vec<usize>>,
    out: Option<PcapngWriter>,
    /// Packets that an association was for, but not whole: fragments, or cut by the capture.
    partial: u64,
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

/// Outer packet of ESP.
struct Outer<'a> {
    source: IpAddr,
    destination: IpAddr,
    /// The IP packet from its header on.
    packet: &'a [u8],
    /// ESP, from its header to the ICV.
    esp: &'a [u8],
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
        Ok(Decryptor { path: path.to_owned(), sas: known, by_spi, out: None, partial: 0, failed: None })
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
        let Some(outer) = outer(frame) else { return };
        let Some(header) = Header::of(outer.esp) else { return };
        let Some(places) = self.by_spi.get(&header.spi()) else { return };
        let ends =
            |known: &Known| known.sa.source.has(outer.source) && known.sa.destination.has(outer.destination);
        let Some(place) = places.iter().copied().find(|place| ends(&self.sas[*place])) else { return };
        if (len as usize) > frame.len() || outer.is_fragment() {
            self.partial += 1;
            return;
        }
        let known = &mut self.sas[place];
        match known.open(&outer) {
            Ok((number, inner)) => {
                known.counts.decrypted += 1;
                let (Some(out), Some(inner), None) = (&mut self.out, inner, &self.failed) else { return };
                let Outer { source, destination, .. } = outer;
                let comment = format!("esp {source} > {destination} sa {:#x} num {number}", header.spi());
                // The writer takes frames, and leaves the header of a link without one out.
                let link = link_kind::received(&inner).unwrap_or_default();
                let framed = [&link[..], &inner].concat();
                let record = Record { comment: Some(comment.into()), ..Record::new(at, &framed) };
                self.failed = out.write(&record).err();
            }
            Err(Fault::Icv) => known.counts.icv_wrong += 1,
            Err(Fault::Form) => known.counts.malformed += 1,
        }
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
            (self.partial, "were not whole: outer fragments, or cut by the capture"),
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
            sa.destination.has(tunnel.local.to_ip()) && sa.source.has(tunnel.remote.to_ip())
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
        };
        let added = SaAddition::new(tables, &request).and_then(|addition| {
            if let Some(destination) = replaced {
                let id = SaId { direction: Direction::In, spi, destination };
                replay.shard.change_sa(tables, SaChange::Delete(id))?;
            }
            Ok(replay.shard.change_sa(tables, addition.prepare()).map(drop)?)
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

impl Outer<'_> {
    fn is_fragment(&self) -> bool {
        match self.packet.first().map(|first| first >> 4) {
            Some(4) => ipv4::Header::of(self.packet).is_some_and(|header| header.fragment().is_some()),
            _ => ipv6::parse(self.packet).is_ok_and(|packet| packet.extensions.fragment.is_some()),
        }
    }

    /// Inner packet of a text; none of a dummy packet. Of transport mode: the outer header, as it would be without ESP.
    fn inner(&self, text: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let trailer = esp::format::untrail(text).map_err(|_| Fault::Form)?;
        let payload = text.get(..trailer.before).ok_or(Fault::Form)?;
        // Behind the packet there may be padding against traffic analysis.
        let whole = |len: usize| payload.get(..len).map(<[u8]>::to_vec).ok_or(Fault::Form);
        Ok(Some(match trailer.next {
            Protocol::NO_NEXT => return Ok(None),
            Protocol::IPV4 => {
                let header = ipv4::Header::of(payload).ok_or(Fault::Form)?;
                whole(usize::from(header.total_len()))?
            }
            Protocol::IPV6 => {
                let header = ipv6::Header::of(payload).ok_or(Fault::Form)?;
                whole(ipv6::HEADER_LEN + usize::from(header.payload_len()))?
            }
            next => self.without_esp(next, payload)?,
        }))
    }

    fn without_esp(&self, next: Protocol, payload: &[u8]) -> Result<Vec<u8>, Fault> {
        let is_v4 = self.packet.first().is_some_and(|first| first >> 4 == 4);
        let header_len = match ipv4::Header::of(self.packet) {
            Some(header) if is_v4 => header.header_len(),
            _ => ipv6::HEADER_LEN,
        };
        let mut packet = self.packet.get(..header_len).ok_or(Fault::Form)?.to_vec();
        packet.extend_from_slice(payload);
        let len = packet.len() as u16;
        if is_v4 {
            packet[2..4].copy_from_slice(&len.to_be_bytes());
            packet[9] = next.0;
            ipv4::fill_checksum(&mut packet);
        } else if let Some(mut header) = ipv6::HeaderMut::of(&mut packet) {
            header.set_payload_len(len - ipv6::HEADER_LEN as u16);
            header.set_next_header(next);
        }
        Ok(packet)
    }
}

/// The ESP of a frame, in UDP or not.
fn outer(frame: &[u8]) -> Option<Outer<'_>> {
    let layer = ethernet::parse(frame).ok()?;
    let packet = layer.payload;
    let (source, destination, protocol, payload): (IpAddr, IpAddr, _, _) = match layer.ethertype {
        EtherType::IPV4 => {
            let parsed = ipv4::parse_prefix(packet).ok()?;
            (parsed.header.src().into(), parsed.header.dst().into(), parsed.header.protocol(), parsed.payload)
        }
        EtherType::IPV6 => {
            let parsed = ipv6::parse_prefix(packet).ok()?;
            (parsed.header.src().into(), parsed.header.dst().into(), parsed.protocol(), parsed.payload)
        }
        _ => return None,
    };
    let esp = match protocol {
        Protocol::ESP => payload,
        Protocol::UDP => {
            let header = udp::Header::of(payload)?;
            // The port of the end that is not behind the NAT.
            if header.sport() != NAT_PORT && header.dport() != NAT_PORT {
                return None;
            }
            payload.get(udp::HEADER_LEN..usize::from(header.length()).min(payload.len()))?
        }
        _ => return None,
    };
    Some(Outer { source, destination, packet, esp })
}
