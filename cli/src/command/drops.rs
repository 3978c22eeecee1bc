//! `wirerate drops`: what a running gateway has dropped and answered, by reason, and the last packets of each.

use std::fs;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use gateway::drops::{DropQuery, DroppedPacket};
use gateway::view::DropView;
use serde::Serialize;

use super::live::{Ask, Table};
use crate::failure::{Exit, Failure, OutputError};
use crate::screen::{self, DIM, count};
use crate::with_exit_codes;

/// Packets shown of each reason where no reason is named.
const SHOWN: usize = 3;

/// Interval of checks whether an answer still comes.
const TICK: Duration = Duration::from_secs(1);

/// Show what a running gateway has dropped and answered, by reason, with the last packets of each
///
/// The gateway remembers the last packets of each reason, on each worker, in memory alone: their first 192 bytes, with time,
/// interfaces, rule and class; `drop-record` in `[gateway]` says how many (16), and 0 switches it off. With a reason all of its packets are
/// shown, else the last three of each. Times are UTC.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate drops
  wirerate drops rule-drop
  wirerate drops --json | jq '.[].packets[0].packet'
  wirerate drops --pcapng dropped.pcapng
  wirerate drops default-drop --pcapng - | tshark -r -
  wirerate reasons rule-drop

A packet dropped while it is decided on is as it came in (of a tunnel, as it was
inside), one dropped from a queue as it would have left, an answered one as it
was before its answer. In pcapng each is at the interface that it came in by,
with its original length; a comment gives verdict, reason, rule and interfaces,
as `wirerate capture` has it. Counts are of all packets since the start."))]
pub(crate) struct Arguments {
    /// Only this reason: `wirerate reasons` has them
    reason: Option<String>,

    /// Write the packets as pcapng; `-` is standard output
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pcapng: Option<PathBuf>,

    #[command(flatten)]
    ask: Ask,
}

/// A reason in JSON.
#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    count: DropView,
    /// The latest first.
    packets: Vec<DroppedPacket>,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let client = self.ask.client();
        if let Some(path) = &self.pcapng {
            let query = DropQuery { reason: self.reason.clone(), last: None };
            let mut bytes = Vec::new();
            client.listen::<Failure>("/drops/pcapng", &query, TICK, |piece| {
                bytes.extend_from_slice(piece.unwrap_or_default());
                Ok(ControlFlow::Continue(()))
            })?;
            return write(path, &bytes);
        }
        let is_for_screen = !self.ask.is_json();
        let last = (is_for_screen && self.reason.is_none()).then_some(SHOWN);
        let query = DropQuery { reason: self.reason.clone(), last };
        let packets: Vec<DroppedPacket> = client.get_with("/drops/packets", &query)?;
        let mut counts: Vec<DropView> = client.get("/drops")?;
        if let Some(reason) = &self.reason {
            counts.retain(|view| view.reason == *reason);
        }
        let of = |reason: &str| packets.iter().filter(|packet| packet.reason == reason).cloned().collect();
        let rows: Vec<Row> =
            counts.into_iter().map(|count| Row { packets: of(&count.reason), count }).collect();
        if self.ask.as_json(&rows)? {
            return Ok(Exit::Done);
        }
        let mut table = Table::new(["reason", "dropped", "answered"]);
        for Row { count, .. } in &rows {
            table.row([count.reason.clone(), count.dropped.to_string(), count.answered.to_string()]);
        }
        table.print()?;
        let mut out = screen::out();
        for Row { count, packets } in rows.iter().filter(|row| !row.packets.is_empty()) {
            writeln!(out, "\n{}", count.reason)?;
            for packet in packets {
                writeln!(out, "  {DIM}{}{DIM:#}  {}", packet.time, line(packet, count))?;
            }
        }
        Ok(Exit::Done)
    }
}

/// Writes a file, or to standard output.
fn write(path: &Path, bytes: &[u8]) -> Result<Exit, Failure> {
    if path == Path::new("-") {
        let mut out = io::stdout().lock();
        let written = out.write_all(bytes).and_then(|()| out.flush());
        written.map_err(OutputError::Standard)?;
    } else {
        fs::write(path, bytes).map_err(|error| OutputError::Write { path: path.to_owned(), error })?;
        screen::note(&format_args!(
            "{} written to {}",
            count(bytes.len() as u64, "byte", "bytes"),
            path.display()
        ));
    }
    Ok(Exit::Done)
}

/// A packet in a line: where it came in, itself, and what decided.
fn line(packet: &DroppedPacket, count: &DropView) -> String {
    let mut text = packet.interface.as_deref().unwrap_or("?").to_owned();
    if let Some(egress) = packet.egress.as_ref().filter(|egress| Some(*egress) != packet.interface.as_ref()) {
        text += &format!(" > {egress}");
    }
    text += &format!("  {}", packet.packet);
    if let Some(rule) = &packet.rule {
        text += &format!(", rule \"{rule}\"");
    }
    if let Some(class) = &packet.class {
        text += &format!(", class \"{class}\"");
    }
    for translation in &packet.translations {
        text += &format!(", translation \"{translation}\"");
    }
    // Where all of the reason have one verdict, the table says which.
    if count.dropped > 0 && count.answered > 0 {
        text += &format!(", {}", packet.verdict);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet() -> DroppedPacket {
        DroppedPacket {
            time: "2026-11-28T08:00:00.000001Z".to_owned(),
            reason: "rule-drop".to_owned(),
            verdict: "dropped".to_owned(),
            interface: Some("lan".to_owned()),
            egress: Some("wan".to_owned()),
            rule: Some("no-mail".to_owned()),
            class: None,
            translations: Vec::new(),
            worker: 0,
            packet: "tcp 192.168.1.20:4000 > 198.51.100.7:25 syn ttl 64 length 60".to_owned(),
            length: 74,
            bytes: String::new(),
        }
    }

    #[test]
    fn a_line_names_what_decided() {
        let mut count = DropView { reason: "rule-drop".to_owned(), dropped: 1, answered: 0 };
        let told =
            "lan > wan  tcp 192.168.1.20:4000 > 198.51.100.7:25 syn ttl 64 length 60, rule \"no-mail\"";
        assert_eq!(line(&packet(), &count), told);
        count.answered = 1;
        assert_eq!(line(&packet(), &count), format!("{told}, dropped"));
        let bare = DroppedPacket { interface: None, egress: None, rule: None, ..packet() };
        assert!(line(&bare, &count).starts_with("?  tcp "));
    }
}
