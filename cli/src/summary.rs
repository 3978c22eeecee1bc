//! Summary of a replay as tables, for people; as one object for scripts it is [`Summary::to_json`].

use std::io::{self, Write};

use dataplane::counter::Traffic;
use replay::summary::{Conserved, Entered, Flows, Frames, ReasonCount, Summary};

use crate::screen::{BAD, CARE, DIM, GOOD, HEADING, Table, bytes, count, number};

mod queue;
mod sa;

/// Prints all of it.
pub(crate) fn print(summary: &Summary, out: &mut impl Write) -> io::Result<()> {
    print_inputs(summary, out)?;
    let Frames { received, forwarded, delivered, answered, dropped, held, .. } = summary.frames;
    writeln!(out, "{HEADING}Frames{HEADING:#}")?;
    let share = |frames: u64| match received.frames {
        0 => String::new(),
        all => format!("{:.1} %", frames as f64 * 100.0 / all as f64),
    };
    let mut table = Table::new(&[1, 2]);
    table.row(["received".to_owned(), number(received.frames), bytes(received.bytes)]);
    for (name, frames) in [
        ("forwarded", forwarded),
        ("delivered to the gateway", delivered),
        ("answered", answered),
        ("dropped", dropped),
        ("held", held),
    ] {
        table.row([name.to_owned(), number(frames), share(frames)]);
    }
    write!(out, "{table}")?;
    print_reasons(summary, out)?;
    print_traffic(out, "Rules", &summary.rules)?;
    print_traffic(out, "Translations", &summary.nats)?;
    queue::print_classes(out, &summary.classes)?;
    queue::print_queues(out, &summary.queues)?;
    sa::print(out, &summary.sas)?;
    let Flows { created, ended, live, peak, .. } = summary.flows;
    writeln!(out, "{HEADING}Flows{HEADING:#}")?;
    let (created, ended, live, peak) = (number(created), number(ended), number(live), number(peak));
    writeln!(out, "  {created} created, {ended} ended, {live} live at the end, {peak} at the most")?;
    for note in &summary.notes {
        writeln!(out, "{CARE}Note{CARE:#}: {note}.")?;
    }
    let seconds = summary.elapsed.as_secs_f64();
    writeln!(out, "{DIM}Played in {seconds:.3} s, {:.2} million packets a second.{DIM:#}", summary.mpps())
}

fn print_inputs(summary: &Summary, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{HEADING}Captures{HEADING:#}")?;
    for input in &summary.inputs {
        writeln!(out, "  {}: {}", input.file, count(input.packets, "packet", "packets"))?;
        for Entered { how, interface, packets } in &input.entered {
            writeln!(out, "    {} in by {interface} {DIM}({}){DIM:#}", number(*packets), how.text())?;
        }
    }
    Ok(())
}

fn print_reasons(summary: &Summary, out: &mut impl Write) -> io::Result<()> {
    if summary.reasons.is_empty() {
        return writeln!(out, "{GOOD}Nothing was dropped or answered.{GOOD:#}");
    }
    writeln!(out, "{HEADING}Reasons{HEADING:#} {DIM}(wirerate reasons NAME tells what to do){DIM:#}")?;
    let mut table = Table::new(&[1]);
    for ReasonCount { reason, answered, dropped } in &summary.reasons {
        for (name, frames) in [("dropped", *dropped), ("answered", *answered)] {
            if frames > 0 {
                let entry = reason.entry();
                let cause = entry.cause.to_owned();
                table.row([entry.name.to_owned(), number(frames), name.to_owned(), cause]);
            }
        }
    }
    write!(out, "{table}")?;
    if summary.frames.conserved == Conserved::No {
        writeln!(out, "{BAD}The counts do not add up.{BAD:#}")?;
    }
    Ok(())
}

fn print_traffic(out: &mut impl Write, heading: &str, list: &[(String, Traffic)]) -> io::Result<()> {
    let mut table = Table::new(&[1, 2]);
    for (name, traffic) in list {
        table.row([name.clone(), number(traffic.frames), bytes(traffic.bytes)]);
    }
    if table.is_empty() {
        return Ok(());
    }
    writeln!(out, "{HEADING}{heading}{HEADING:#}")?;
    write!(out, "{table}")
}
