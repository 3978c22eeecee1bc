//! Pcapng writer for captured frames: each packet has a comment with capture point and verdict.

use std::collections::HashMap;
use std::fmt::{Display, Write};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use dataplane::flow::Ends;
use dataplane::tables::{LOCAL, OTHER};
use dataplane::{Tables, Verdict, tunnel};
use hyper::body::Bytes;
use policy::model::{OTHER_ZONE, SELF_ZONE};
use wire::Nanos;
use wire::capture::{CaptureError, PcapngWriter, Record};
use wire::header::{Endpoint, Protocol};
use wire::{Part, PortId};

use super::{Account, CaptureQuery, Chunk, MOST_CHUNKS, Point, Seen, Tap};
use crate::flows::{protocol_name, query_name, state_name};
use crate::stream::{Broken, Pieces};

/// Time between two checks for a reader that has gone, while no copies arrive.
const TICK: Duration = Duration::from_millis(50);

/// Approximate size of a chunk of pcapng, in bytes.
const PIECE: usize = 256 << 10;

/// Creates a capture: the tap for the workers, and the recorder that writes their copies.
pub(crate) fn capture(query: CaptureQuery) -> (Tap, Recorder) {
    let (sender, receiver) = sync_channel(MOST_CHUNKS);
    let account = Arc::new(Account::default());
    let tap = Tap { query: Arc::new(query), sender, account: account.clone() };
    let writer = PcapngWriter::over("the capture", Vec::new());
    (tap, Recorder { receiver, account, writer, interfaces: Interfaces::default(), told: 0, last: Nanos(0) })
}

/// Writer of a capture; see [`capture`].
pub(crate) struct Recorder {
    receiver: Receiver<Chunk>,
    account: Arc<Account>,
    writer: Result<PcapngWriter<Vec<u8>>, CaptureError>,
    interfaces: Interfaces,
    /// Losses reported so far.
    told: u64,
    /// Time of the last packet.
    last: Nanos,
}

impl Recorder {
    /// Writes on a thread of its own until the reader or all workers have gone, then calls `end`.
    pub(crate) fn start(
        mut self,
        tables: &Tables,
        pieces: Pieces,
        end: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<()> {
        let names: Vec<String> = tables.interfaces.iter().map(|interface| interface.name.clone()).collect();
        let body = move || {
            if self.record(&names, &pieces).is_err() {
                // Who reads may have gone.
                let _ = pieces.blocking_send(Err(Broken));
            }
            drop(self);
            end();
        };
        thread::Builder::new().name("capture".to_owned()).spawn(body).map(drop)
    }

    fn record(&mut self, names: &[String], pieces: &Pieces) -> Result<(), CaptureError> {
        let mut writer = mem::replace(&mut self.writer, PcapngWriter::over("", Vec::new()))?;
        for name in names {
            self.interfaces.id(&mut writer, name)?;
        }
        loop {
            let mut is_over = false;
            match self.receiver.recv_timeout(TICK) {
                Ok(chunk) => {
                    let mut written = self.write(&mut writer, &chunk)?;
                    while written < PIECE {
                        let Ok(chunk) = self.receiver.try_recv() else { break };
                        written += self.write(&mut writer, &chunk)?;
                    }
                }
                Err(RecvTimeoutError::Timeout) => is_over = pieces.is_closed(),
                Err(RecvTimeoutError::Disconnected) => is_over = true,
            }
            self.tell_losses(&mut writer)?;
            writer.flush()?;
            let piece = mem::take(writer.get_mut());
            if !piece.is_empty() && pieces.blocking_send(Ok(Bytes::from(piece))).is_err() {
                return Ok(());
            }
            if is_over {
                return Ok(());
            }
        }
    }

    /// Writes copies, and returns their size in bytes.
    fn write(&mut self, writer: &mut PcapngWriter<Vec<u8>>, chunk: &Chunk) -> Result<usize, CaptureError> {
        self.account.waiting.fetch_sub(chunk.weight(), Ordering::Relaxed);
        self.last = chunk.at;
        let mut rest = chunk.bytes.as_slice();
        for seen in &chunk.seen {
            let (bytes, further) = rest.split_at_checked(seen.copied as usize).unwrap_or((rest, &[]));
            rest = further;
            let at = match seen.point {
                Point::Sent | Point::Inner | Point::Outer => seen.egress.unwrap_or(seen.ingress),
                _ => seen.ingress,
            };
            let record = Record {
                interface: self.interfaces.id(writer, name(&chunk.tables, at))?,
                original_len: seen.length,
                comment: Some(comment(seen, &chunk.tables).into()),
                ..Record::new(chunk.at, bytes)
            };
            writer.write(&record)?;
        }
        Ok(chunk.bytes.len() + 200 * chunk.seen.len())
    }

    /// Reports copies lost since the last report, on the first interface: the ingress interface of lost copies is
    /// unknown.
    fn tell_losses(&mut self, writer: &mut PcapngWriter<Vec<u8>>) -> Result<(), CaptureError> {
        let lost = self.account.lost.load(Ordering::Relaxed);
        if lost == self.told {
            return Ok(());
        }
        self.told = lost;
        self.interfaces.id(writer, SELF_ZONE)?;
        let comment =
            format!("{lost} packets of all interfaces were lost to the capture: it was not read in time");
        writer.lost(0, self.last, lost, &comment)
    }
}

/// Interface IDs in a file, by name.
#[derive(Default)]
pub(crate) struct Interfaces(HashMap<String, usize>);

impl Interfaces {
    /// Returns the ID of an interface, which is described in the file when it is new.
    pub(crate) fn id(
        &mut self,
        writer: &mut PcapngWriter<Vec<u8>>,
        name: &str,
    ) -> Result<usize, CaptureError> {
        if let Some(number) = self.0.get(name) {
            return Ok(*number);
        }
        let number = writer.interface(name)?;
        self.0.insert(name.to_owned(), number);
        Ok(number)
    }
}

fn name(tables: &Tables, id: PortId) -> &str {
    match id {
        LOCAL => SELF_ZONE,
        OTHER => OTHER_ZONE,
        _ => tables.interface(id).map_or("?", |interface| &interface.name),
    }
}

/// Words for a packet that is sent without a verdict of its own, which only packets that were received have.
fn without_verdict(seen: &Seen) -> &'static str {
    if seen.tunnel & tunnel::KEEPALIVE != 0 {
        "sent by the gateway itself: NAT keepalive of a tunnel"
    } else if seen.part == Part::Later || seen.tunnel & tunnel::OUTER != 0 {
        "forwarded: a further fragment of a packet"
    } else {
        "sent by the gateway itself: its SYN proxy's answer to a server"
    }
}

/// Comment on a packet: `dropped: rule-drop by rule "no-mail", in by lan`.
pub(crate) struct Comment<'a> {
    /// Capture point, in words; empty where the verdict says it.
    pub(crate) point: &'a str,
    pub(crate) verdict: Option<Verdict>,
    pub(crate) rule: Option<&'a str>,
    pub(crate) ingress: &'a str,
    pub(crate) egress: Option<&'a str>,
}

impl Comment<'_> {
    /// The comment, with the names of translations that apply.
    pub(crate) fn text(&self, translations: impl Iterator<Item = impl Display>) -> String {
        let mut text = self.point.to_owned();
        if let Some(verdict) = self.verdict {
            let lead = if text.is_empty() { "" } else { ": " };
            let _ = write!(text, "{lead}{}", verdict.name());
            if let Some(reason) = verdict.reason() {
                let _ = write!(text, ": {}", reason.name());
            }
        }
        if let Some(rule) = self.rule {
            let _ = write!(text, " by rule \"{rule}\"");
        }
        let _ = write!(text, ", in by {}", self.ingress);
        if let Some(egress) = self.egress.filter(|_| self.verdict != Some(Verdict::Delivered)) {
            let _ = write!(text, ", out by {egress}");
        }
        for nat in translations {
            let _ = write!(text, ", translation \"{nat}\"");
        }
        text
    }
}

/// Comment on a captured packet.
fn comment(seen: &Seen, tables: &Tables) -> String {
    let stage = |place: usize| dataplane::pipeline::names().get(place).copied().unwrap_or("?");
    let verdict = Verdict::of_fate(seen.fate);
    let point = match seen.point {
        Point::Received => "received".to_owned(),
        Point::Before(place) => format!("before {}", stage(place)),
        Point::After(place) => format!("after {}", stage(place)),
        Point::Inner => "inner".to_owned(),
        Point::Outer => "outer".to_owned(),
        Point::Sent if verdict.is_none() => without_verdict(seen).to_owned(),
        Point::Sent | Point::Delivered | Point::Dropped | Point::Held => String::new(),
    };
    let rule = tables.filter.rules.get(seen.rule as usize).map(|rule| rule.name.as_str());
    let (ingress, egress) = (name(tables, seen.ingress), seen.egress.map(|egress| name(tables, egress)));
    let comment = Comment { point: &point, verdict, rule, ingress, egress };
    let mut text = comment.text(tables.nat.names(seen.nat));
    if let Some((ends, state)) = seen.flow {
        let Ends { source, destination, sport, dport, protocol } = ends;
        let has_ports = Protocol(protocol).has_ports();
        let end = |address, port| Endpoint { address, port: has_ports.then_some(port) };
        let (from, to) = (end(source, sport), end(destination, dport));
        let _ = write!(text, ", flow {} {from} > {to}", protocol_name(protocol));
        if let Some(asked) = ends.query() {
            let _ = write!(text, " {} id {}", query_name(protocol, asked.kind), asked.id);
        }
        let _ = write!(text, " {}", state_name(state));
    }
    text
}
