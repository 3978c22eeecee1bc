//! `wirerate replay`: what would this policy do to this traffic?

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use dataplane::Replay;
use gateway::log::line::Line;
use replay::capture::Moment;
use replay::decrypt::{self, TableError};
use replay::summary::{Conserved, Span};
use replay::{Captures, Decryptor, Named, Observer, Player, Readdress, Summary, Window};
use tally::NoTally;
use wire::Nanos;

use crate::failure::{Exit, Failure, Fault, InputError, OutputError, PolicyError, UsageError};
use crate::output::{Came, Inner, Optional, Outputs};
use crate::policy_file::{self, Loaded, StaticKeys};
use crate::progress::{Progress, Unit};
use crate::{screen, summary, with_exit_codes};

mod plot;

/// Play captures through a policy and say what became of them
///
/// Captures are pcap or pcapng, of Ethernet, raw IP, Linux cooked, loopback or ATM. They are merged by time, and time
/// is theirs: the same input gives the same bytes, whenever and wherever it is played. Neighbours that the
/// policy does not name are assumed to be there.
///
/// Which capture comes in by which interface: `lan=a.pcap` says it. Otherwise the capture's own interface name
/// decides (pcapng), or the file's name (lan.pcapng), if the policy has such an interface. Otherwise each packet
/// comes in where its source is at home by the policy's networks and routes, so that one capture of both sides is
/// taken apart; those of unknown home come in by the default route's interface. Frames in such a capture are
/// taken whoever's link-layer address they are for, and answers from beyond the default route to inside hosts
/// come in addressed to the translation that their sender would have seen. The summary says what was inferred,
/// and how.
///
/// Every frame has one fate: received = forwarded + delivered + answered + dropped + held.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate generate traffic --seconds 5 --out . \\
    --policy policies/home-office.toml
  wirerate replay policies/home-office.toml \\
    lan=lan.pcapng wan=wan.pcapng --out out
  wirerate replay policies/home-office.toml \\
    lan.pcapng wan.pcapng --json | jq .reasons
  tshark -r out/dropped.pcapng -T fields -e frame.number -e frame.comment
  wirerate replay policies/home-office.toml \\
    lan.pcapng wan.pcapng --plot rates.svg --by class

--out DIR is made if it is not there, and holds:
  IFACE.pcapng    what left by each interface, also those that are VLANs;
                  a comment is on each answer (ICMP error, TCP reset).
                  Of a tunnel: inner packets, in and out of it, as a comment says;
                  the outer ones are those of the interface that leads to the peer
  dropped.pcapng  what was dropped, as it was captured; a comment on each gives
                  the reason, the rule and the interface it came in by
  logged.pcapng   where a rule says `log = true`: packets that met such a rule
                  (of a connection, the first)
  decrypted.pcapng  with --esp-sa: inner packets, with SPI and number in comments

--json prints one object:
  frames    received forwarded delivered answered dropped held
  reasons   name: frames answered and dropped for it
            (`answered` and `dropped` have them apart)
  rules     name: frames, bytes
            (of IP packets; of all packets of the connections it let in)
  nats      name: frames, bytes
  classes   name: frames, bytes, green, yellow, red; of its packets that left:
            sent, sent_bytes, rate_bps, marked (ECN), delay_ns, ipdv_ns, each
            with p50 p90 p95 p99 max; lost, by reason
  queues    of trees: interface, side (on, from), name; frames and bytes sent;
            full and early: dropped; marked; rate_bps; lost, by reason;
            delay_ns and ipdv_ns. Of a port without a tree that has a rate
            the name is null
  sas       of tunnels: tunnel, direction, spi, algorithm, auth; packets and
            bytes encrypted or decrypted; number: the highest; lost: numbers
            that never came; replayed, icv_wrong, length, trailer, selector,
            expired, sequence: refused; reached: the lifetime, soft or hard
  esp_sa    with --esp-sa, for each association: line, spi; decrypted, icv_wrong,
            malformed: packets; tunnel: that of the policy that has it
  flows     created ended live peak
  seconds   how long it took; mpps: millions of packets a second
  bytes     received
  inputs    by which interface each capture's packets came in, and how that
            was known
  notes     what else there is to say, in words

Rates are means over the time from the first arrival to the last departure, of \
bytes of IP packets. The delay of a queue is the time in it, that of a class the \
time from arrival to departure. IPDV is inter-packet delay variation (RFC 3393): \
by how much the delays of two packets differ that leave a queue, or are of a \
class, one after the other. Percentiles are exact to 1 %; the 1024 queues and \
classes that send first have them.

--plot draws, over time, the seven queues (or with --by class, classes) that sent \
most and the sum of the others: rate, longest delay, packets that wait, losses.

A line of --esp-sa has IP version, source, destination (an address, a network or *), \
SPI, cipher and key, integrity algorithm and key, in Wireshark's words:

  \"IPv4\",\"198.51.100.2\",\"203.0.113.2\",\"0x1002\",
      \"AES-GCM with 16 octet ICV [RFC4106]\",\"0x...\",\"NULL\",\"\"

in one line; # begins a comment. Ciphers: NULL, AES-CBC [RFC3602], \
AES-GCM [RFC4106] and the one above (the key with the salt behind it), ChaCha20 with Poly1305 \
[RFC7634], TripleDES-CBC [RFC2451], DES-CBC [RFC2405]. Integrity: NULL, \
HMAC-SHA-1-96 [RFC2404], HMAC-SHA-256-128, HMAC-SHA-384-192, HMAC-SHA-512-256 \
[RFC4868], HMAC-MD5-96 [RFC2403], or ANY 96 bit authentication [no checking] \
(64, 128, 192, 256). Two more fields may say `64-bit` and the upper half of the \
first number, as in Wireshark 4.2; else 32 bits are tried, then 64.

A capture that breaks off is played up to there, which a note says. \
One that is damaged further in is played up to there, too, but then the exit code is 3."))]
pub(crate) struct Arguments {
    /// The policy (TOML)
    policy: PathBuf,

    /// Captures, each with the interface that its packets come in by
    #[arg(required = true, value_name = "[IFACE=]CAPTURE")]
    captures: Vec<Named>,

    /// Write what left by each interface, and what was dropped, into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Write log records into this file, as the live gateway would: a JSON object a line
    ///
    /// Of rules with `log = true`, and what `[gateway] log-events` names; all of them, whatever `log-rate` says.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,

    /// Draw rate, delay, backlog and losses over time, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    /// Whose curves are drawn
    #[arg(long, value_enum, default_value = "queue", requires = "plot")]
    by: plot::By,

    /// Print one JSON object instead of the summary
    #[arg(long)]
    json: bool,

    /// Play packets from this moment on
    ///
    /// Seconds from the first packet on (12.5), a duration from then on ("1m 30s"), or a time of UTC (2026-11-29T18:30:00Z). What was before is
    /// unknown: connections that began there have no flow, unless the policy says `pickup = "accept"`.
    #[arg(long, value_name = "MOMENT")]
    from: Option<Moment>,

    /// Play packets before this moment
    #[arg(long, value_name = "MOMENT")]
    to: Option<Moment>,

    /// Take frames for other machines' link-layer addresses, too, as if they were for the gateway
    ///
    /// Otherwise an interface whose `mac` the policy gives drops them (other-host), unless it was inferred
    /// from addresses.
    #[arg(long)]
    any_mac: bool,

    #[command(flatten)]
    keys: StaticKeys,

    /// Decrypt ESP in the captures by this table of Wireshark's: its file `esp_sa`
    ///
    /// For captures whose keys are known, from strongSwan's plugin save-keys, `wirerate run --key-log`, or by hand. Two things are done
    /// with each line. All packets of its SPI and ends, whichever way they go and whatever the policy says, are decrypted to
    /// DIR/decrypted.pcapng with --out. And where its destination and source are `local` and `remote` of a tunnel of the policy, the tunnel
    /// has it as a security association: what comes in by it goes on through the policy.
    ///
    /// Keys in files are not needed then: associations whose keys are not there drop what comes in by them, and what leaves by them has zeros in
    /// the place of text and integrity check.
    #[arg(long, value_name = "FILE")]
    esp_sa: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let mut decryptor = self.esp_sa.as_deref().map(read_table).transpose()?;
        let Loaded { file, policy, tables, .. } = match &decryptor {
            // The table has the keys; those that it has not stay away.
            Some(_) if !self.keys.are_read() => policy_file::load(&self.policy)?,
            _ => policy_file::load_keyed(&self.policy, self.keys)?,
        };
        let readdress = if self.any_mac { Readdress::Always } else { Readdress::Inferred };
        let mut captures = Captures::open(&self.captures, &tables, readdress)?;
        let window = Window { from: self.from, to: self.to };
        captures.select(window, &tables).map_err(UsageError::NoPackets)?;
        let inputs = captures.sources().iter().map(|source| source.path.as_path());
        let outputs = match &self.out {
            Some(directory) => Some(Outputs::create(directory, &tables, inputs)?),
            None => None,
        };
        if let (Some(decryptor), Some(directory)) = (&mut decryptor, &self.out) {
            let path = directory.join(decrypt::FILE);
            not_an_input(&path, &self.captures)?;
            if path.canonicalize().ok() == decryptor.path().canonicalize().ok() {
                return Err(UsageError::Overwrites { path }.into());
            }
            decryptor.write_into(directory)?;
        }
        if let Some(plot) = &self.plot {
            not_an_input(plot, &self.captures)?;
        }
        let mut observer = Observer::new(Optional(outputs), &tables, captures.start());
        let mut player = Player::new(tables, captures).map_err(|error| PolicyError::Setup { file, error })?;
        if let Some(decryptor) = &mut decryptor {
            decryptor.join(&mut player.replay);
        }
        let mut log = match &self.log {
            Some(path) => Some(RecordFile::create(path, &self.captures, &mut player.replay)?),
            None => None,
        };
        let has_tunnels = !player.replay.tables.tunnels.is_empty();
        let mut inner = (has_tunnels && self.out.is_some()).then(Inner::default);
        let begun = Instant::now();
        let mut progress = Progress::new("replay", Unit::Packet, player.captures.size());
        while let Some(at) = player.step(&mut observer, |number, packet, outputs: &mut Optional| {
            if let Some(outputs) = &mut outputs.0 {
                outputs.keep(number, &Came::from(packet));
            }
            if let Some(decryptor) = &mut decryptor {
                decryptor.take(packet.at, packet.captured, packet.original_len);
            }
        }) {
            let Player { replay, captures, .. } = &mut player;
            if let Some(inner) = &mut inner {
                replay.pass_watched(&mut observer, &mut NoTally, inner);
                observer.outputs.0.iter_mut().for_each(|outputs| outputs.write_inner(inner));
            }
            if let Some(log) = &mut log {
                // One by one, so that each record has the time of its packet.
                replay.pass(&mut observer);
                log.write(replay, at)?;
            }
            progress.step(captures.read());
        }
        player.finish(&mut observer);
        let elapsed = begun.elapsed();
        progress.finish();
        let Observer { outputs, measured, .. } = observer;
        if let Some(outputs) = outputs.0 {
            outputs.finish()?;
        }
        if let Some(decryptor) = &mut decryptor {
            decryptor.finish()?;
        }
        if let Some(path) = &self.plot {
            let drawn =
                plot::draw(&measured, &player.replay.tables, self.by, &self.title()).map_err(Fault::Draw)?;
            fs::write(path, drawn).map_err(|error| OutputError::Write { path: path.clone(), error })?;
        }
        if let Some(log) = log {
            log.finish()?;
        }
        let span = Span { start: player.start(), end: player.end(), elapsed };
        let Player { mut replay, captures, .. } = player;
        let mut summary = Summary::new(&mut replay, &policy, &captures, &measured, span);
        if let Some(decryptor) = &decryptor {
            summary.add_decrypted(decryptor);
        }
        let mut out = screen::out();
        if self.json {
            writeln!(out, "{:#}", summary.to_json())?;
        } else {
            summary::print(&summary, &mut out)?;
            if let Some(directory) = &self.out {
                writeln!(out, "Written to {}.", directory.display())?;
            }
            if let Some(path) = &self.plot {
                writeln!(out, "Drawn to {}.", path.display())?;
            }
        }
        if summary.conserved() == Conserved::No {
            return Err(Fault::NotConserved.into());
        }
        Ok(self.tell_problems(&captures))
    }

    /// Title of the plot: policy and captures, by their names.
    fn title(&self) -> String {
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let captures: Vec<String> = self.captures.iter().map(|named| name(&named.path)).collect();
        let captures = match captures.as_slice() {
            [first, _, _, _, ..] => format!("{first} and {} more", captures.len() - 1),
            few => few.join(", "),
        };
        format!("{}: {captures}", name(&self.policy))
    }

    /// Says on standard error, too, what could not be read.
    fn tell_problems(&self, captures: &Captures) -> Exit {
        let mut exit = Exit::Done;
        for source in captures.sources() {
            if let Some(problem) = &source.problem {
                screen::error(problem, Some("everything before that was played; the rest was not"));
                exit = Exit::Unreadable;
            }
            if let Some(cut) = source.cut_short() {
                screen::warning(&format_args!("{} is {cut}", source.path.display()));
            }
        }
        exit
    }
}

/// Reads a table of security associations. Every line that cannot be read is told.
fn read_table(path: &Path) -> Result<Decryptor, InputError> {
    Decryptor::read(path).map_err(|error| match error {
        TableError::Read { path, error } => InputError::Read { path, error },
        TableError::Lines { ref bad, .. } => {
            bad.iter().for_each(|line| screen::error(line, None));
            InputError::Associations(error)
        }
    })
}

/// Refuses a file to write that is one of the captures.
fn not_an_input(path: &Path, captures: &[Named]) -> Result<(), Failure> {
    let real = |path: &Path| path.canonicalize().ok();
    if captures.iter().any(|named| real(&named.path).is_some_and(|input| Some(input) == real(path))) {
        return Err(UsageError::Overwrites { path: path.to_owned() }.into());
    }
    Ok(())
}

/// The file of log records.
struct RecordFile {
    path: PathBuf,
    file: BufWriter<File>,
}

/// Records of one packet, and of all that ends or comes free with it.
const RECORDS: usize = 65_536;

impl RecordFile {
    fn create(path: &Path, captures: &[Named], replay: &mut Replay) -> Result<RecordFile, Failure> {
        not_an_input(path, captures)?;
        let failed = |error| OutputError::Write { path: path.to_owned(), error };
        let file = BufWriter::new(File::create(path).map_err(failed)?);
        replay.shard.log.keep(RECORDS, &replay.tables);
        Ok(RecordFile { path: path.to_owned(), file })
    }

    fn write(&mut self, replay: &mut Replay, at: Nanos) -> Result<(), Failure> {
        let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(at.0);
        let RecordFile { path, file } = self;
        for record in replay.shard.log.records() {
            let line = Line::of(record, &replay.tables, time, at);
            writeln!(file, "{}", line.json())
                .map_err(|error| OutputError::Write { path: path.clone(), error })?;
        }
        replay.shard.log.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<(), Failure> {
        let RecordFile { path, file } = &mut self;
        file.flush().map_err(|error| OutputError::Write { path: path.clone(), error })?;
        Ok(())
    }
}
