//! `wirerate capture`: live packets of a running gateway, with what became of each.

use std::fs::File;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Args;
use gateway::capture::CaptureQuery;
use gateway::signal::interrupt;
use gateway::{Client, ClientError};

use super::live::{Ends, SOCKET};
use crate::failure::{Exit, Failure, GatewayError, InputError, OutputError, UsageError};
use crate::screen::{self, count};
use crate::with_exit_codes;

/// Capture packets of a running gateway, as pcapng with a comment on each: where it was seen, what became of it and why
///
/// Without --stage each packet is there once, at the end of its way, with its verdict: as it is sent, as it is given to
/// Linux, or as it was when it was dropped. Options narrow down which packets; all of them must hold, of the packet as it
/// came or of its flow, before or after translation; of what a tunnel carries, of the inner packet. Ends with Ctrl-C. What cannot be written fast enough is lost to the
/// capture, never to the network: how many is told at the end, and in the file.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate capture -o wan.pcapng --interface wan --seconds 10
  wirerate capture -o dropped.pcapng --verdict dropped --count 100
  wirerate capture -o - --host 192.168.1.20 | tshark -r - -V
  wirerate capture -o nat.pcapng --stage received,sent --port 443
  wirerate capture -o why.pcapng --stage before-filter,filter \\
    --reason rule-drop
  wirerate capture -o inner.pcapng --stage inner --interface site-b
  wirerate capture -o both.pcapng --stage inner,outer
  wirerate capture -o streams.pcapng --whole --protocol tcp --snap 128

Points for --stage:
  received              as it came in
  parse, decap, track, replicate, dnat, route, filter, classify, snat, rewrite, answer, encap, fragment, queue
                        behind that stage, if the packet went through it; those
                        that the policy does not need are refused
  before-STAGE          in front of it
  sent                  as it leaves: forwarded, or turned into an answer
  inner                 of packets of tunnels: before encryption, or decrypted
  outer                 the same as ESP: encrypted, or before decryption
  delivered             as it is given to Linux
  dropped, held         as it is then"))]
pub(crate) struct Arguments {
    /// Where to write; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,

    /// Where on their way packets are seen, with commas between
    #[arg(long, value_name = "POINT")]
    stage: Option<String>,

    #[command(flatten)]
    ends: Ends,

    /// The interface that it came in or leaves by; `self` for the gateway itself
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,

    /// The rule that decided
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,

    /// A translation that applies
    #[arg(long, value_name = "NAME")]
    nat: Option<String>,

    /// forwarded, delivered, answered, dropped or held
    #[arg(long, value_name = "VERDICT")]
    verdict: Option<String>,

    /// Why it was dropped, answered or held: `wirerate reasons` has them
    #[arg(long, value_name = "REASON")]
    reason: Option<String>,

    /// End after so many packets
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// End after so many seconds
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,

    /// At most so many bytes of each packet
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    snap: Option<u32>,

    /// Packets of many segments in one piece of up to 64 KiB, as Linux hands them over and takes them back; otherwise, and where a capture
    /// without this runs beside it, the gateway cuts them while it is being captured, and each segment is there as on a wire
    #[arg(long)]
    whole: bool,

    /// Where the gateway takes commands
    #[arg(long, value_name = "PATH", default_value = SOCKET, env = "WIRERATE_SOCKET")]
    socket: PathBuf,

    /// Print as JSON how many packets there were; not with `-o -`
    #[arg(long)]
    json: bool,
}

/// Interval of checks for the end.
const TICK: Duration = Duration::from_millis(50);

impl Arguments {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let is_piped = self.out == Path::new("-");
        if is_piped && self.json {
            return Err(UsageError::Clash { one: "--json", other: "-o -" }.into());
        }
        let seconds = self.seconds.map(Duration::try_from_secs_f64).transpose();
        let limit =
            seconds.map_err(|_| UsageError::Clash { one: "--seconds", other: "time that cannot be" })?;
        let query = CaptureQuery {
            stage: self.stage,
            host: self.ends.host,
            port: self.ends.port,
            protocol: self.ends.protocol,
            interface: self.interface,
            rule: self.rule,
            nat: self.nat,
            verdict: self.verdict,
            reason: self.reason,
            snap: self.snap,
            whole: self.whole,
        };
        let told = interrupt().map_err(|error| InputError::Read { path: "/proc/self".into(), error })?;
        let mut blocks = Blocks::new(self.out, self.count);
        let mut end = Ended::Early;
        let begun = Instant::now();
        let outcome = Client::at(&self.socket).listen("/capture", &query, TICK, |piece| {
            let is_full = blocks.take(piece.unwrap_or_default())? == Room::None;
            let is_late = limit.is_some_and(|limit| begun.elapsed() >= limit);
            if is_full || is_late || told.load(Ordering::Relaxed) {
                end = Ended::AsTold;
                return Ok(ControlFlow::Break(()));
            }
            Ok(ControlFlow::Continue(()))
        });
        match outcome {
            Ok(()) => {}
            // It broke off: what came before is as good as it was.
            Err(Failure::Gateway(GatewayError::Client(ClientError::Garbled(_)))) if blocks.file.is_some() => {
            }
            Err(failure) => return Err(failure),
        }
        let Blocks { packets, lost, .. } = blocks;
        if self.json {
            writeln!(screen::out(), "{:#}", serde_json::json!({ "packets": packets, "lost": lost }))?;
        } else {
            let all = count(packets, "packet", "packets");
            screen::note(&format_args!("{all} captured, {lost} lost to the capture"));
        }
        if end == Ended::Early {
            screen::error(
                &"the gateway has ended, and with it the capture",
                Some("what came before is there"),
            );
            return Ok(Exit::NoGateway);
        }
        Ok(Exit::Done)
    }
}

/// Reason for the end of the capture.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// The requested end.
    AsTold,
    /// End of the gateway's stream.
    Early,
}

/// Room for more packets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    Some,
    None,
}

/// Writer of the blocks of a pcapng stream, each whole; counts their packets.
struct Blocks {
    path: PathBuf,
    /// The file, opened when the gateway has begun to answer: a refused command overwrites nothing.
    file: Option<Out>,
    /// Bytes of a block that is not complete yet.
    rest: Vec<u8>,
    most: Option<u64>,
    packets: u64,
    lost: u64,
    written: u64,
}

enum Out {
    File(File),
    Pipe(io::StdoutLock<'static>),
}

const PACKET: u32 = 6;
const STATISTICS: u32 = 5;
const IF_DROP: u16 = 5;

/// No block is longer: a packet, and a comment.
const LONGEST: usize = 1 << 20;

impl Blocks {
    fn new(path: PathBuf, most: Option<u64>) -> Blocks {
        Blocks { path, file: None, rest: Vec::new(), most, packets: 0, lost: 0, written: 0 }
    }

    /// Takes what has come, and writes what is whole.
    fn take(&mut self, piece: &[u8]) -> Result<Room, Failure> {
        self.rest.extend_from_slice(piece);
        let mut at = 0;
        let mut room = Room::Some;
        while room == Room::Some {
            let Some((kind, block)) = block(self.rest.get(at..).unwrap_or_default())? else { break };
            at += block.len();
            match kind {
                PACKET => self.packets += 1,
                STATISTICS => self.lost = lost(block).unwrap_or(self.lost),
                _ => {}
            }
            if self.most == Some(self.packets) {
                room = Room::None;
            }
        }
        let whole: Vec<u8> = self.rest.drain(..at).collect();
        self.write(&whole)?;
        Ok(room)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if bytes.is_empty() {
            return Ok(());
        }
        let out = match self.file.take() {
            Some(out) => Ok(out),
            None if self.path == Path::new("-") => Ok(Out::Pipe(io::stdout().lock())),
            None => File::create(&self.path).map(Out::File),
        };
        let written = out.and_then(|mut out| {
            let written = match &mut out {
                Out::File(file) => file.write_all(bytes),
                Out::Pipe(pipe) => pipe.write_all(bytes).and_then(|()| pipe.flush()),
            };
            self.file = Some(out);
            written
        });
        match (written, &self.file) {
            (Ok(()), _) => {
                self.written += bytes.len() as u64;
                Ok(())
            }
            (Err(error), Some(Out::Pipe(_))) => Err(OutputError::Standard(error).into()),
            (Err(error), file) => {
                let mut packets = 0;
                if let Some(Out::File(file)) = file {
                    packets = self.keep_whole(file, bytes);
                }
                Err(OutputError::CaptureFile { path: self.path.clone(), packets, error }.into())
            }
        }
    }

    /// Cuts off what could not be written to its end, and says how many packets are in the file.
    fn keep_whole(&self, file: &File, bytes: &[u8]) -> u64 {
        let length = file.metadata().map_or(self.written, |metadata| metadata.len());
        let (mut end, mut whole, mut lacking) = (self.written, self.written, 0);
        let mut rest = bytes;
        while let Ok(Some((kind, block))) = block(rest) {
            rest = rest.get(block.len()..).unwrap_or_default();
            end += block.len() as u64;
            if end <= length {
                whole = end;
            } else {
                lacking += u64::from(kind == PACKET);
            }
        }
        // A device has no length; then there is nothing to cut.
        let _ = file.set_len(whole);
        self.packets - lacking
    }
}

/// The first block, if it is all there, and its type.
fn block(bytes: &[u8]) -> Result<Option<(u32, &[u8])>, Failure> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let (Some(kind), Some(length)) = (word(0), word(4)) else { return Ok(None) };
    let length = length as usize;
    if !(12..=LONGEST).contains(&length) || length % 4 != 0 {
        let what = "its capture has a block of an impossible length".to_owned();
        return Err(ClientError::Garbled(what).into());
    }
    Ok(bytes.get(..length).map(|block| (kind, block)))
}

/// Returns the number of packets lost, by a block of statistics.
fn lost(block: &[u8]) -> Option<u64> {
    let mut options = block.get(20..block.len().checked_sub(4)?)?;
    loop {
        let (code, rest) = options.split_at_checked(2)?;
        let (length, rest) = rest.split_at_checked(2)?;
        let code = u16::from_le_bytes(code.try_into().ok()?);
        let length = usize::from(u16::from_le_bytes(length.try_into().ok()?));
        if code == IF_DROP {
            return Some(u64::from_le_bytes(rest.get(..8)?.try_into().ok()?));
        }
        if code == 0 {
            return None;
        }
        options = rest.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use wire::Nanos;
    use wire::capture::{PcapngWriter, Record};

    use super::*;

    /// Four packets, with losses told in between; and the block that each ends with.
    fn stream() -> Vec<u8> {
        let mut writer = PcapngWriter::over("test", Vec::new()).unwrap();
        writer.interface("lan").unwrap();
        for number in 0..4u8 {
            let bytes = [number; 33];
            let comment = Some(format!("packet {number}").into());
            writer.write(&Record { comment, ..Record::new(Nanos(number.into()), &bytes) }).unwrap();
            writer.lost(0, Nanos(1), u64::from(number) * 10, "lost").unwrap();
        }
        writer.finish().unwrap()
    }

    #[test]
    fn blocks_are_found_however_they_come() {
        let path = std::env::temp_dir().join(format!("wirerate-blocks-{}", std::process::id()));
        let stream = stream();
        for size in [1, 7, 64, stream.len()] {
            let mut blocks = Blocks::new(path.clone(), None);
            for piece in stream.chunks(size) {
                assert!(blocks.take(piece).unwrap() == Room::Some);
            }
            assert_eq!((blocks.packets, blocks.lost, blocks.rest.len()), (4, 30, 0));
            assert_eq!(fs::read(&path).unwrap(), stream);
        }
        let mut blocks = Blocks::new(path.clone(), Some(2));
        assert!(blocks.take(&stream).unwrap() == Room::None);
        assert_eq!(blocks.packets, 2);
        let mut reader = wire::capture::Reader::open(&path).unwrap();
        assert_eq!(reader.next().unwrap().unwrap().bytes, [0; 33]);
        assert_eq!(reader.next().unwrap().unwrap().bytes, [1; 33]);
        assert!(reader.next().unwrap().is_none() && reader.cut_short().is_none());
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_is_no_capture_is_no_capture() {
        for length in [0u32, 11, 13, 1 << 21] {
            let bytes = [6u32.to_le_bytes(), length.to_le_bytes()].concat();
            assert!(block(&bytes).is_err(), "{length}");
        }
        assert!(block(&[6, 0, 0]).unwrap().is_none());
    }

    #[test]
    fn what_was_not_written_to_its_end_is_cut_off() {
        let path = std::env::temp_dir().join(format!("wirerate-whole-{}", std::process::id()));
        let stream = stream();
        let mut blocks = Blocks::new(path.clone(), None);
        blocks.packets = 4;
        for end in 0..=stream.len() {
            fs::write(&path, &stream[..end]).unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            let packets = blocks.keep_whole(&file, &stream);
            let mut found = 0;
            let kept = fs::read(&path).unwrap();
            let mut rest = kept.as_slice();
            while let Some((kind, block)) = block(rest).unwrap() {
                found += u64::from(kind == PACKET);
                rest = &rest[block.len()..];
            }
            assert_eq!((packets, rest.len()), (found, 0), "{end}");
            assert!(stream.starts_with(&kept));
        }
        fs::remove_file(&path).unwrap();
    }
}
