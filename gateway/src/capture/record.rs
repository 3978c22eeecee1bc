//! Pcapng writer for captured frames: each packet has a comment with capture point and verdict.

use std::collections::HashMap;
use std::fmt::Write;
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
    (tap, Recorder { receiver, account, writer, interfaces: HashMap::new(), told: 0, last: Nanos(0) })
}

/// Writer of a capture; see [`capture`].
pub(crate) struct Recorder {
    receiver: Receiver<Chunk>,
    account: Arc<Account>,
    writer: Result<PcapngWriter<Vec<u8>>, CaptureError>,
    /// Interface IDs in the file, by name.
    interfaces: HashMap<String, usize>,
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
            self.interface(&mut writer, name)?;
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
                interface: self.interface(writer, name(&chunk.tables, at))?,
                original_len: seen.length,
                comment: Some(comment(seen, &chunk.tables).into()),
                ..Record::new(chunk.at, bytes)
            };
            writer.write(&record)?;
        }
        Ok(chunk.bytes.len() + 200 * chunk.seen.len())
    }

    /// Returns the ID of an interface in the file.
    fn interface(&mut self, writer: &mut PcapngWriter<Vec<u8>>, name: &str) -> Result<usize, CaptureError> {
        if let Some(number) = self.interfaces.get(name) {
            return Ok(*number);
        }
        let number = writer.interface(name)?;
        self.interfaces.insert(name.to_owned(), number);
        Ok(number)
    }

    /// Reports copies lost since the last report, on the first interface: the ingress interface of lost copies is
    /// unknown.
    fn tell_losses(&mut self, writer: &mut PcapngWriter<Vec<u8>>) -> Result<(), CaptureError> {
        let lost = self.account.lost.load(Ordering::Relaxed);
        if lost == self.told {
            return Ok(());
        }
        self.told = lost;
        self.interface(writer, SELF_ZONE)?;
        let comment =
            format!("{lost} packets of all interfaces were lost to the capture: it was not read in time");
        writer.lost(0, self.last, lost, &comment)
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
fn comment(seen: &Seen, tables: &Tables) -> String {
    let mut text = String::new();
    let stage = |place: usize| dataplane::pipeline::names().get(place).copied().unwrap_or("?");
    let verdict = Verdict::of_fate(seen.fate);
    match seen.point {
        Point::Received => text.push_str("received"),
        Point::Before(place) => {
            let _ = write!(text, "before {}", stage(place));
        }
        Point::After(place) => {
            let _ = write!(text, "after {}", stage(place));
        }
        Point::Inner => text.push_str("inner"),
        Point::Outer => text.push_str("outer"),
        Point::Sent | Point::Delivered | Point::Dropped | Point::Held => {}
    }
    match verdict {
        Some(verdict) => {
            let lead = if text.is_empty() { "" } else { ": " };
            let _ = write!(text, "{lead}{}", verdict.name());
            if let Some(reason) = verdict.reason() {
                let _ = write!(text, ": {}", reason.name());
            }
        }
        None if seen.point == Point::Sent => text.push_str(without_verdict(seen)),
        None => {}
    }
    if let Some(rule) = tables.filter.rules.get(seen.rule as usize) {
        let _ = write!(text, " by rule \"{}\"", rule.name);
    }
    let _ = write!(text, ", in by {}", name(tables, seen.ingress));
    if let Some(egress) = seen.egress.filter(|_| verdict != Some(Verdict::Delivered)) {
        let _ = write!(text, ", out by {}", name(tables, egress));
    }
    for nat in tables.nat.names(seen.nat) {
        let _ = write!(text, ", translation \"{nat}\"");
    }
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
