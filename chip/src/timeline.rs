//! Timeline of a run: the work of each thread over time, as a file that Perfetto and chrome://tracing open.
//!
//! The format is the Trace Event Format's JSON object (Chromium's document of that name). An engine is a process and its
//! threads are its tracks: a slice (`B`, `E`) for each task and its frame, and in it further slices for the engine's work
//! for the thread: "execute", "abort" for branches, "switch", "stall" where no command could be issued. In the rest of a
//! task the thread waited, or another thread had the engine. Idle threads that poll have a track of their engine together: "poll" is the time of
//! their looks, one after the other. References to memory are asynchronous slices (`b`, `e`) of
//! the memory's process, rings are counters (`C`), a frame's path from task to task is a flow (`s`, `t`, `f`), a lost
//! frame is an instant (`i`). Times are microseconds of modelled time, to the picosecond, rounded down.
//!
//! Slices are not written as complete ones (`X`), though shorter: viewers that round beginnings and durations to
//! nanoseconds, each for itself, have some slices end a nanosecond after the beginning of the next, and drop the latter.
//!
//! Only a window is written: from a moment on, until a number of frames that came in since are done. Events go to the
//! file at once; memory does not grow with their number.

use std::io::{self, Write};
use std::ops::Range;

use serde_json::json;

use crate::description::Chip;
use crate::kernel::{Ticks, Timebase};
use crate::machine::{Purpose, Reference, Spends, Track, Watch};
use crate::mapping::{Mapping, PoolPlace, Work, stages};
use crate::trace::Access;

#[cfg(test)]
mod tests;

/// Part of a run to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Begin of the part in modelled time, in nanoseconds.
    pub from: wire::Nanos,
    /// Number of frames that come in from then on; the part ends when all have left, ended or been lost.
    pub frames: u64,
}

/// Size of a written timeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Frames followed.
    pub frames: u64,
    /// Frames of these that were lost.
    pub lost: u64,
    /// Entries of the file.
    pub events: u64,
}

/// Writes a run down.
pub struct Timeline<'a, W> {
    out: W,
    failed: Option<io::Error>,
    chip: &'a Chip,
    mapping: &'a Mapping,
    part: Part,
    time: Timebase,
    from: Ticks,
    state: State,
    written: Written,
    /// Frames that have come in at all.
    came: u64,
    outstanding: u64,
    lanes: Vec<Lane>,
    /// Track for looks of each engine, if threads of it poll.
    looks: Vec<Option<u64>>,
    slots: Vec<Slot>,
    tasks: Vec<Vec<String>>,
    references: u64,
    memories: u64,
    rings: u64,
    ports: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Before,
    Open,
    /// Closed at that time.
    Closed(Ticks),
}

/// A thread's track.
#[derive(Clone, Copy, Debug)]
struct Lane {
    pid: u64,
    tid: u64,
    pool: usize,
    task: usize,
    job: u32,
    /// The frame that its open slice is for.
    frame: u64,
    slice: Slice,
    /// End of the last slice on it.
    last: Ticks,
}

/// State of a task's slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slice {
    /// The thread has no task.
    None,
    /// The thread has a task, and nothing of the slice is written.
    Due,
    /// The beginning of the slice is written.
    Open,
}

/// A frame under way.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    number: u64,
    way: Way,
}

/// State of a frame's flow (`s`, `t`, `f`) in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Way {
    /// The frame is not followed.
    #[default]
    Aside,
    /// The frame is followed, and nothing is written yet.
    New,
    /// The beginning is written.
    Begun,
    /// All events are written.
    Done,
}

impl<'a, W: Write> Timeline<'a, W> {
    /// Makes a timeline of a run of `chip` with `mapping`, written into `out`.
    pub fn new(out: W, chip: &'a Chip, mapping: &'a Mapping, part: Part) -> Timeline<'a, W> {
        Timeline {
            out,
            failed: None,
            chip,
            mapping,
            part,
            time: Timebase::new(1),
            from: Ticks::ZERO,
            state: State::Before,
            written: Written::default(),
            came: 0,
            outstanding: 0,
            lanes: Vec::new(),
            looks: Vec::new(),
            slots: Vec::new(),
            tasks: Vec::new(),
            references: 0,
            memories: 0,
            rings: 0,
            ports: 0,
        }
    }

    /// Ends the file. It is whole only if this says so.
    pub fn finish(mut self) -> io::Result<Written> {
        self.close(Ticks::ZERO);
        self.raw(if self.written.events == 0 { "{\"traceEvents\":[]}\n" } else { "\n]}\n" });
        match self.failed {
            Some(error) => Err(error),
            None => self.out.flush().map(|()| self.written),
        }
    }

    /// Names the tracks.
    pub(crate) fn open(&mut self, time: Timebase, tracks: &[Track]) {
        self.time = time;
        self.from = time.of_nanos(self.part.from.0);
        let engines = self.engine_names();
        (self.memories, self.rings) = (engines.len() as u64 + 1, 0);
        self.rings = self.memories + self.chip.memories.len() as u64;
        self.ports = self.rings + 1;
        let stages = stages();
        let range = |of: &Range<usize>| match stages.get(of.clone()) {
            Some([only]) => (*only).to_owned(),
            Some([first, .., last]) => format!("{first} to {last}"),
            _ => "nothing".to_owned(),
        };
        let name = |work: &Work| match work {
            Work::Receive(of) if of.is_empty() => "receive".to_owned(),
            Work::Receive(of) => format!("receive, {}", range(of)),
            Work::Transmit => "transmit".to_owned(),
            Work::Stages(of) => range(of),
        };
        let pools = self.mapping.pools.iter();
        self.tasks = pools.map(|pool| pool.tasks.iter().map(|task| name(&task.work)).collect()).collect();
        let mut threads = vec![0; engines.len()];
        let mut polls = vec![false; engines.len()];
        for track in tracks {
            let Some(tid) = threads.get_mut(track.engine) else { continue };
            let pid = track.engine as u64 + 1;
            if *tid == 0 {
                self.name("process_name", pid, 0, &engines[track.engine]);
            }
            *tid += 1;
            let tid = *tid;
            polls[track.engine] |= self.mapping.pools.get(track.pool).is_some_and(|pool| pool.poll.is_some());
            let pools = self.mapping.pools.iter().map(|pool| &pool.name);
            let mut names = pools.chain(self.mapping.timers.iter().map(|timer| &timer.name));
            let name = names.nth(track.pool).cloned().unwrap_or_default();
            self.name("thread_name", pid, tid, &format!("{name} {tid}"));
            self.lanes.push(Lane {
                pid,
                tid,
                pool: track.pool,
                task: 0,
                job: 0,
                frame: 0,
                slice: Slice::None,
                last: Ticks::ZERO,
            });
        }
        self.looks = threads.iter().zip(polls).map(|(count, polls)| polls.then_some(count + 1)).collect();
        for engine in 0..self.looks.len() {
            if let Some(tid) = self.looks[engine] {
                self.name("thread_name", engine as u64 + 1, tid, "looks");
            }
        }
        for (place, memory) in self.chip.memories.iter().enumerate() {
            self.name("process_name", self.memories + place as u64, 0, &format!("memory {}", memory.name));
        }
        self.name("process_name", self.rings, 0, "rings");
        self.name("process_name", self.ports, 0, "ports");
    }

    /// Returns the names of the machine's engines, in its order: those of the chip, then the units that stages run in.
    fn engine_names(&self) -> Vec<String> {
        let engines = self.chip.engines.iter();
        let engines = engines.flat_map(|of| (0..of.count).map(move |number| format!("{}.{number}", of.name)));
        let units = self.mapping.pools.iter().filter_map(|pool| match pool.place {
            PoolPlace::Unit(unit) => self.chip.units.get(unit),
            PoolPlace::Engines { .. } => None,
        });
        let units = units
            .flat_map(|unit| (0..unit.count.max(1)).map(move |number| format!("{}.{number}", unit.name)));
        engines.chain(units).collect()
    }

    fn name(&mut self, what: &str, pid: u64, tid: u64, name: &str) {
        let event = json!({ "ph": "M", "name": what, "pid": pid, "tid": tid, "args": { "name": name } });
        self.event(&event.to_string());
    }

    fn raw(&mut self, text: &str) {
        if self.failed.is_none() {
            self.failed = self.out.write_all(text.as_bytes()).err();
        }
    }

    fn event(&mut self, text: &str) {
        self.raw(if self.written.events == 0 {
            "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"
        } else {
            ",\n"
        });
        self.raw(text);
        self.written.events += 1;
    }

    /// True if events at `now` are to be written.
    fn is_open(&mut self, now: Ticks) -> bool {
        if self.state == State::Before && now >= self.from {
            self.state = State::Open;
        }
        self.state == State::Open
    }

    fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed(_))
    }

    /// Ends the window: open slices end at `now`.
    fn close(&mut self, now: Ticks) {
        if self.is_closed() {
            return;
        }
        for thread in 0..self.lanes.len() {
            self.end_slice(now, thread);
        }
        self.state = State::Closed(now);
    }

    fn close_if_done(&mut self, now: Ticks) {
        if self.state == State::Open && self.written.frames >= self.part.frames && self.outstanding == 0 {
            self.close(now);
        }
    }

    /// Microseconds, with six digits behind the point.
    fn stamp(&self, at: Ticks) -> Stamp {
        Stamp(self.time.to_picos(at))
    }

    fn begin_slice(&mut self, at: Ticks, thread: usize) {
        let Some(lane) = self.lanes.get_mut(thread).filter(|lane| lane.slice == Slice::Due) else { return };
        lane.slice = Slice::Open;
        lane.last = lane.last.max(at);
        let slot = self.slots.get(lane.job as usize).copied().unwrap_or_default();
        lane.frame = slot.number;
        let Lane { job, last, .. } = *lane;
        self.bound("B", thread);
        let phase = match slot.way {
            Way::New => "s",
            Way::Begun => "t",
            Way::Aside | Way::Done => return,
        };
        self.flow(phase, last, thread, job);
        self.slots[job as usize].way = Way::Begun;
    }

    fn flow(&mut self, phase: &str, at: Ticks, thread: usize, job: u32) {
        let Lane { pid, tid, .. } = self.lanes[thread];
        let (ts, number) = (self.stamp(at), self.slots[job as usize].number);
        let bound = if phase == "f" { ",\"bp\":\"e\"" } else { "" };
        self.event(&format!(
            "{{\"ph\":\"{phase}\",\"cat\":\"frame\",\"name\":\"frame\",\"id\":{number},\"pid\":{pid},\"tid\":{tid},\"ts\":{ts}{bound}}}"
        ));
    }

    fn end_slice(&mut self, now: Ticks, thread: usize) {
        let Some(lane) = self.lanes.get_mut(thread) else { return };
        if std::mem::replace(&mut lane.slice, Slice::None) != Slice::Open {
            return;
        }
        lane.last = lane.last.max(now);
        self.bound("E", thread);
    }

    /// The beginning or the end of a task's slice. The end is called as the beginning is, since some viewers look for
    /// that.
    fn bound(&mut self, phase: &str, thread: usize) {
        let Lane { pid, tid, pool, task, frame, last, .. } = self.lanes[thread];
        let ts = self.stamp(last);
        let name = json!(self.tasks.get(pool).and_then(|tasks| tasks.get(task)));
        self.event(&format!(
            "{{\"ph\":\"{phase}\",\"cat\":\"task\",\"name\":{name},\"pid\":{pid},\"tid\":{tid},\"ts\":{ts},\"args\":{{\"frame\":{frame}}}}}"
        ));
    }
}

impl<W: Write> Watch for Timeline<'_, W> {
    fn comes(&mut self, now: Ticks, job: Option<u32>) {
        self.came += 1;
        let follow = self.is_open(now) && self.written.frames < self.part.frames;
        if follow {
            self.written.frames += 1;
        }
        match job {
            Some(job) => {
                let place = job as usize;
                if self.slots.len() <= place {
                    self.slots.resize(place + 1, Slot::default());
                }
                self.slots[place] =
                    Slot { number: self.came, way: if follow { Way::New } else { Way::Aside } };
                self.outstanding += u64::from(follow);
            }
            None if follow => {
                self.written.lost += 1;
                let (ts, pid, number) = (self.stamp(now), self.ports, self.came);
                self.event(&format!(
                    "{{\"ph\":\"i\",\"s\":\"p\",\"name\":\"lost\",\"pid\":{pid},\"tid\":0,\"ts\":{ts},\"args\":{{\"frame\":{number}}}}}"
                ));
                self.close_if_done(now);
            }
            None => {}
        }
    }

    fn begins(&mut self, now: Ticks, thread: usize, task: usize, job: u32) {
        if let Some(lane) = self.lanes.get_mut(thread) {
            (lane.task, lane.job, lane.slice) = (task, job, Slice::Due);
        }
        if self.is_open(now) {
            self.begin_slice(now, thread);
        }
    }

    fn finishes(&mut self, now: Ticks, thread: usize) {
        if self.is_open(now) {
            self.end_slice(now, thread);
        }
    }

    fn spends(&mut self, thread: usize, how: Spends, at: Ticks, span: Ticks) {
        // It may be later than now: what is to be told of it does not begin the window.
        if span == Ticks::ZERO || at < self.from || self.is_closed() {
            return;
        }
        self.begin_slice(at, thread);
        let Some(lane) = self.lanes.get_mut(thread) else { return };
        lane.last = at + span;
        let Lane { pid, tid, .. } = *lane;
        let name = match how {
            Spends::Executing => "execute",
            Spends::Aborted => "abort",
            Spends::Switching => "switch",
            Spends::Stalled => "stall",
        };
        let (ts, end) = (self.stamp(at), self.stamp(at + span));
        let common = format!("\"cat\":\"engine\",\"name\":\"{name}\",\"pid\":{pid},\"tid\":{tid}");
        self.event(&format!("{{\"ph\":\"B\",{common},\"ts\":{ts}}}"));
        self.event(&format!("{{\"ph\":\"E\",{common},\"ts\":{end}}}"));
    }

    fn polls(&mut self, engine: usize, at: Ticks, span: Ticks) {
        let end = match self.state {
            // It is told when it is over: the window may have been closed meanwhile.
            State::Closed(closed) => closed.min(at + span),
            State::Before | State::Open => at + span,
        };
        let at = at.max(self.from);
        let Some(tid) = self.looks.get(engine).copied().flatten().filter(|_| at < end) else { return };
        let (pid, ts, end) = (engine as u64 + 1, self.stamp(at), self.stamp(end));
        let common = format!("\"cat\":\"engine\",\"name\":\"poll\",\"pid\":{pid},\"tid\":{tid}");
        self.event(&format!("{{\"ph\":\"B\",{common},\"ts\":{ts}}}"));
        self.event(&format!("{{\"ph\":\"E\",{common},\"ts\":{end}}}"));
    }

    fn refers(&mut self, now: Ticks, reference: &Reference) {
        if !self.is_open(now) {
            return;
        }
        let Reference { thread, memory, purpose, access, bytes, at, done } = *reference;
        let Some(lane) = self.lanes.get(thread) else { return };
        self.references += 1;
        let frame = match purpose {
            Purpose::Timer => 0,
            _ => self.slots.get(lane.job as usize).map_or(0, |slot| slot.number),
        };
        let (id, pid) = (self.references, self.memories + memory as u64);
        let (ts, end) = (self.stamp(at), self.stamp(done));
        let what = match purpose {
            Purpose::Region(region) | Purpose::Transfer(region) => region.name(),
            Purpose::Ring => "rings",
            Purpose::List => "lists",
            Purpose::Extra => "extra",
            Purpose::Timer => "timers",
        };
        let how = match access {
            Access::Read => "read",
            Access::Write => "write",
            Access::Atomic => "atomic",
        };
        let common =
            format!("\"cat\":\"memory\",\"name\":\"{what} {how}\",\"id\":{id},\"pid\":{pid},\"tid\":0");
        self.event(&format!(
            "{{\"ph\":\"b\",{common},\"ts\":{ts},\"args\":{{\"bytes\":{bytes},\"frame\":{frame}}}}}"
        ));
        self.event(&format!("{{\"ph\":\"e\",{common},\"ts\":{end}}}"));
    }

    fn fills(&mut self, now: Ticks, ring: usize, filled: usize) {
        if !self.is_open(now) {
            return;
        }
        let Some(name) = self.mapping.rings.get(ring).map(|ring| json!(ring.name)) else { return };
        let (ts, pid) = (self.stamp(now), self.rings);
        self.event(&format!(
            "{{\"ph\":\"C\",\"name\":{name},\"pid\":{pid},\"ts\":{ts},\"args\":{{\"frames\":{filled}}}}}"
        ));
    }

    fn sends(&mut self, now: Ticks, thread: usize, job: u32) {
        let is_open =
            self.is_open(now) && self.lanes.get(thread).is_some_and(|lane| lane.slice == Slice::Open);
        let way = self.slots.get(job as usize).map(|slot| slot.way);
        if is_open && way == Some(Way::Begun) {
            self.flow("f", now, thread, job);
            self.slots[job as usize].way = Way::Done;
        }
    }

    fn leaves(&mut self, now: Ticks, job: u32) {
        let Some(slot) = self.slots.get_mut(job as usize) else { return };
        if std::mem::take(&mut slot.way) != Way::Aside {
            self.outstanding -= 1;
            self.close_if_done(now);
        }
    }

    fn has_enough(&self) -> bool {
        self.is_closed()
    }
}

/// A time in picoseconds, written in microseconds.
#[derive(Clone, Copy, Debug)]
struct Stamp(u128);

impl std::fmt::Display for Stamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}
