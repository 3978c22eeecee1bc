//! Checker of a file against the Trace Event Format (Chromium's document of that name, sections "Event Descriptions" and
//! "Metadata Events"), independent of the writer.
//!
//! Slices have to lie in one another also for a viewer that rounds all times to nanoseconds, as Perfetto's does.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// A track: process and thread.
type Track = (u64, u64);

/// Picoseconds.
type Time = u64;

/// Returns the faults in the events of a file, in their order.
pub(super) fn faults(file: &Value) -> Vec<String> {
    let mut reader = Reader::default();
    if !matches!(file["displayTimeUnit"].as_str(), None | Some("ms" | "ns")) {
        reader.faults.push(format!("displayTimeUnit is {}", file["displayTimeUnit"]));
    }
    match file["traceEvents"].as_array() {
        Some(events) => events.iter().for_each(|event| reader.event(event)),
        None => reader.faults.push("there is no list traceEvents".to_owned()),
    }
    reader.end();
    reader.faults
}

/// The slices of a track.
#[derive(Default)]
struct Slices {
    /// Beginning and name of each open slice.
    open: Vec<(Time, Value)>,
    /// Time of the last event.
    last: Time,
    /// Time of the last event in nanoseconds, each time rounded for itself.
    last_nanos: u64,
}

#[derive(Default)]
struct Reader {
    faults: Vec<String>,
    processes: BTreeSet<u64>,
    threads: BTreeSet<Track>,
    slices: BTreeMap<Track, Slices>,
    /// Asynchronous slices that are open, by category and identifier.
    asynchronous: BTreeMap<(String, String), (Value, Time)>,
    /// Flows, by category, name and identifier: when they were last told of, and whether they have ended.
    flows: BTreeMap<(String, String, String), (Time, bool)>,
    counters: BTreeMap<(u64, String), Time>,
}

impl Reader {
    fn event(&mut self, event: &Value) {
        if let Err(why) = self.read(event) {
            self.faults.push(format!("{why}: {event}"));
        }
    }

    fn read(&mut self, event: &Value) -> Result<(), String> {
        let phase = event["ph"].as_str().ok_or("no phase")?;
        let pid = event["pid"].as_u64().ok_or("no process")?;
        let name = event["name"].as_str();
        if phase != "E" && name.is_none_or(str::is_empty) {
            return Err("no name".to_owned());
        }
        let name = name.unwrap_or_default().to_owned();
        if phase == "M" {
            return self.metadata(event, pid, &name);
        }
        if !self.processes.contains(&pid) {
            return Err("a process without a name".to_owned());
        }
        let at = time(&event["ts"])?;
        if phase == "C" {
            return self.counter(event, (pid, name), at);
        }
        let track = (pid, event["tid"].as_u64().ok_or("no thread")?);
        match phase {
            "B" | "E" | "X" => {
                if !self.threads.contains(&track) {
                    return Err("a thread without a name".to_owned());
                }
                self.slice(event, phase, track, at)
            }
            "b" | "e" => self.asynchronous(event, phase, name, at),
            "s" | "t" | "f" => self.flow(event, phase, name, track, at),
            "i" => match event["s"].as_str() {
                Some("g" | "p" | "t") => Ok(()),
                _ => Err("no scope".to_owned()),
            },
            _ => Err("an unknown phase".to_owned()),
        }
    }

    fn metadata(&mut self, event: &Value, pid: u64, name: &str) -> Result<(), String> {
        if event["args"]["name"].as_str().is_none_or(str::is_empty) {
            return Err("a name that is none".to_owned());
        }
        let is_new = match name {
            "process_name" => self.processes.insert(pid),
            "thread_name" => self.threads.insert((pid, event["tid"].as_u64().ok_or("no thread")?)),
            _ => return Err("unknown metadata".to_owned()),
        };
        if is_new { Ok(()) } else { Err("named twice".to_owned()) }
    }

    fn counter(&mut self, event: &Value, of: (u64, String), at: Time) -> Result<(), String> {
        let values = event["args"].as_object().filter(|values| !values.is_empty()).ok_or("no values")?;
        if !values.values().all(Value::is_number) {
            return Err("a value that is no number".to_owned());
        }
        let last = self.counters.insert(of, at).unwrap_or_default();
        if at < last { Err("it goes back in time".to_owned()) } else { Ok(()) }
    }

    /// The slices of a track lie one after another or in one another, and are told in the order of their beginnings.
    fn slice(&mut self, event: &Value, phase: &str, track: Track, at: Time) -> Result<(), String> {
        let Slices { open, last, last_nanos } = self.slices.entry(track).or_default();
        if at < *last {
            return Err(format!("it overlaps what ends at {last} ps"));
        }
        if nanos(at) < *last_nanos {
            return Err(format!("rounded, it overlaps what ends at {last_nanos} ns"));
        }
        (*last, *last_nanos) = (at, nanos(at));
        match phase {
            "B" => open.push((at, event["name"].clone())),
            "E" => {
                let (_, name) = open.pop().ok_or("an end without a beginning")?;
                if !event["name"].is_null() && event["name"] != name {
                    return Err(format!("the end of another slice than {name}"));
                }
            }
            _ => {
                let span = time(&event["dur"]).map_err(|_| "no duration")?;
                (*last, *last_nanos) = (at + span, nanos(at) + nanos(span));
            }
        }
        Ok(())
    }

    fn asynchronous(&mut self, event: &Value, phase: &str, name: String, at: Time) -> Result<(), String> {
        let key = (category(event)?, identifier(event)?);
        // Begun and ended on the same process, under the same name.
        let place = serde_json::json!([name, event["pid"]]);
        if phase == "b" {
            return match self.asynchronous.insert(key, (place, at)) {
                Some(_) => Err("begun twice".to_owned()),
                None => Ok(()),
            };
        }
        match self.asynchronous.remove(&key) {
            Some((begun, from)) if begun == place && from <= at => Ok(()),
            _ => Err("an end without a beginning".to_owned()),
        }
    }

    /// A flow binds to the slice that is open on its track, and goes forward in time.
    fn flow(
        &mut self,
        event: &Value,
        phase: &str,
        name: String,
        track: Track,
        at: Time,
    ) -> Result<(), String> {
        let key = (category(event)?, name, identifier(event)?);
        let in_slice =
            self.slices.get(&track).is_some_and(|of| of.open.last().is_some_and(|(begun, _)| *begun <= at));
        if !in_slice {
            return Err("outside of a slice".to_owned());
        }
        // Without that, its end binds to the next slice.
        if phase == "f" && event["bp"] != "e" {
            return Err("an end that binds to what comes next".to_owned());
        }
        let known = self.flows.get(&key).copied();
        match (phase, known) {
            ("s", None) => {}
            ("t" | "f", Some((last, false))) if last <= at => {}
            _ => return Err(format!("out of order after {known:?}")),
        }
        self.flows.insert(key, (at, phase == "f"));
        Ok(())
    }

    fn end(&mut self) {
        let open = self.slices.iter().filter(|(_, of)| !of.open.is_empty());
        self.faults.extend(open.map(|(track, _)| format!("a slice of {track:?} does not end")));
        self.faults.extend(self.asynchronous.keys().map(|key| format!("{key:?} does not end")));
    }
}

fn category(event: &Value) -> Result<String, String> {
    event["cat"].as_str().map(str::to_owned).ok_or_else(|| "no category".to_owned())
}

fn identifier(event: &Value) -> Result<String, String> {
    match &event["id"] {
        Value::Null => Err("no identifier".to_owned()),
        id => Ok(id.to_string()),
    }
}

/// Picoseconds, rounded to nanoseconds.
fn nanos(time: Time) -> u64 {
    (time + 500) / 1_000
}

/// Microseconds, as picoseconds.
fn time(value: &Value) -> Result<Time, String> {
    match value.as_f64() {
        Some(micros) if (0.0..1e9).contains(&micros) => Ok((micros * 1e6).round() as u64),
        _ => Err("no time".to_owned()),
    }
}
