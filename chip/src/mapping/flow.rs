//! The ways of frames through a mapping: each frame meets every stage once, in order, between `receive` and
//! `transmit`, whether its flow is new or known.

use std::collections::HashSet;
use std::ops::Range;

use super::{Lines, Mapping, PoolPlace, Task, Who, Work};
use crate::description::{Chip, Reach};
use crate::diagnostic::Code;
use crate::load::{Handling, Standing};
use crate::value::{Complaint, Sink};

/// The stage that finds out whether a frame's flow is known.
const TELLS: &str = "track";

/// The stage behind which it is known whether a frame is answered, delivered or held.
const DECIDES: &str = "rewrite";

pub(super) fn check(sink: &Sink, mapping: &Mapping, chip: &Chip, stages: &[&str], lines: &Lines) {
    let ways = Ways { sink, mapping, chip, stages, lines };
    ways.ends();
    ways.ports();
    ways.unmapped();
    ways.rings();
    ways.order();
    if !ways.cycles() {
        ways.follow();
    }
}

/// A task, by the places of its pool and of itself in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct At {
    pool: usize,
    task: usize,
}

/// A frame on its way.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Step {
    at: At,
    /// Number of stages passed, all those before this index.
    met: usize,
    standing: Standing,
    handling: Handling,
}

struct Ways<'a> {
    sink: &'a Sink,
    mapping: &'a Mapping,
    chip: &'a Chip,
    stages: &'a [&'a str],
    lines: &'a Lines,
}

impl<'a> Ways<'a> {
    fn tasks(&self) -> impl Iterator<Item = (At, &'a Task)> + use<'a> {
        let pools = self.mapping.pools.iter().enumerate();
        pools
            .flat_map(|(pool, of)| of.tasks.iter().enumerate().map(move |(task, of)| (At { pool, task }, of)))
    }

    fn task(&self, at: At) -> &'a Task {
        &self.mapping.pools[at.pool].tasks[at.task]
    }

    fn span(&self, at: At, key: &str) -> Range<usize> {
        let pool = &self.lines.pools[at.pool];
        self.lines.tasks[at.pool].get(at.task).unwrap_or(pool).span_of(key, None)
    }

    fn pool(&self, at: At) -> &'a str {
        &self.mapping.pools[at.pool].name
    }

    fn ring(&self, ring: usize) -> &'a str {
        &self.mapping.rings[ring].name
    }

    /// Checks that a task receives and a task transmits.
    fn ends(&self) {
        let receives: fn(&Task) -> bool = Task::receives;
        let transmits: fn(&Task) -> bool = |task| task.work == Work::Transmit;
        for (has, name, hint) in [
            (receives, "receives", "to = \"the ring of the first stage\""),
            (transmits, "transmits", "from = \"the ring of the last stage\""),
        ] {
            if !self.tasks().any(|(_, task)| has(task)) {
                let message = format!("no pool {name} frames");
                let word = name.trim_end_matches('s');
                let complaint = Complaint::new(Code::NoEnd, message);
                self.sink
                    .report(complaint.hint(format!("write a pool with work = \"{word}\" and {hint}")), 0..0);
            }
        }
    }

    /// Checks that a thread receives from each port.
    fn ports(&self) {
        let count = u16::try_from(self.chip.ports.count()).unwrap_or(u16::MAX);
        let mut unserved: Vec<u16> = (0..count).collect();
        for (at, task) in self.tasks().filter(|(_, task)| task.receives()) {
            let pool = &self.mapping.pools[at.pool];
            let threads = match &pool.place {
                PoolPlace::Engines { numbers, threads, .. } => numbers.len() * *threads as usize,
                PoolPlace::Unit(_) if task.ports.bound => {
                    let complaint =
                        Complaint::new(Code::UnservedPort, "a unit has no threads to give a port each");
                    self.sink.report(complaint.hint("leave `bound` out"), self.span(at, "bound"));
                    usize::MAX
                }
                PoolPlace::Unit(_) => usize::MAX,
            };
            let ports = task.ports.of(count);
            if task.ports.bound && threads < ports.len() {
                let message = format!(
                    "\"{}\" has {threads} threads for {} ports, each bound to one of them",
                    pool.name,
                    ports.len()
                );
                let complaint = Complaint::new(Code::UnservedPort, message);
                let hint = "take more engines or threads, fewer kinds of ports, or leave `bound` out";
                self.sink.report(complaint.hint(hint), self.span(at, "bound"));
            }
            unserved.retain(|port| !ports.contains(port));
        }
        let mut kinds: Vec<&str> =
            (unserved.iter()).filter_map(|port| self.chip.ports.kind_of(*port)?.name.as_deref()).collect();
        kinds.dedup();
        if !kinds.is_empty() && kinds.len() < self.chip.ports.0.len() {
            let message = format!("nobody receives from the ports {}", kinds.join(", "));
            let hint = "name them in `ports` of a pool with work = \"receive\", or leave `ports` out";
            self.sink.report(Complaint::new(Code::UnservedPort, message).hint(hint), 0..0);
        }
    }

    fn mapped(&self, stage: usize) -> bool {
        self.tasks().any(|(_, task)| task.stages().contains(&stage))
    }

    fn unmapped(&self) {
        let missing: Vec<&str> = (0..self.stages.len())
            .filter(|place| !self.mapped(*place))
            .map(|place| self.stages[place])
            .collect();
        if missing.is_empty() {
            return;
        }
        let (kind, them) = if missing.len() == 1 { ("stage", "it") } else { ("stages", "them") };
        let complaint =
            Complaint::new(Code::UnmappedStage, format!("nobody does the {kind} {}", missing.join(", ")));
        let hint = format!("give {them} to a pool, in the order of the pipeline: {}", self.stages.join(", "));
        self.sink.report(complaint.hint(hint), 0..0);
    }

    /// Rings have two ends, which they can reach, and are no more than the chip has.
    fn rings(&self) {
        let mut used = vec![0; self.chip.rings.len()];
        for (place, ring) in self.mapping.rings.iter().enumerate() {
            let entry = &self.lines.rings[place];
            let kind = &self.chip.rings[ring.kind];
            let producers: Vec<At> = self
                .tasks()
                .filter(|(_, task)| task.to.iter().any(|exit| exit.ring == place))
                .map(|(at, _)| at)
                .collect();
            let consumers: Vec<At> =
                self.tasks().filter(|(_, task)| task.from == Some(place)).map(|(at, _)| at).collect();
            if producers.is_empty() {
                let complaint = Complaint::new(
                    Code::NoProducer,
                    format!("nobody puts frames into the ring \"{}\"", ring.name),
                );
                self.sink
                    .report(complaint.hint("name it as `to` of a pool, or leave it out"), entry.span.clone());
            }
            if consumers.is_empty() {
                let message = format!(
                    "nobody takes frames from the ring \"{}\": they never reach `transmit`",
                    ring.name
                );
                let complaint = Complaint::new(Code::NoConsumer, message);
                self.sink.report(complaint.hint("name it as `from` of a pool"), entry.span.clone());
            }
            if kind.reach == Reach::Neighbour {
                self.neighbours(place, &producers, &consumers);
            }
            used[ring.kind] += 1;
            if used[ring.kind] == kind.count + 1 {
                let message = format!("the chip has {} rings of the kind \"{}\"", kind.count, kind.name);
                let complaint = Complaint::new(Code::TooManyRings, message);
                self.sink.report(
                    complaint.hint("do more stages in one pool, or take another kind"),
                    entry.span.clone(),
                );
            }
        }
    }

    /// Checks that rings in the order of a unit lead to transmission, all by the same unit.
    fn order(&self) {
        let ordered = |ring: usize| self.mapping.rings[ring].order;
        let first = self.mapping.rings.iter().find_map(|ring| ring.order);
        for (place, ring) in self.mapping.rings.iter().enumerate() {
            let entry = &self.lines.rings[place];
            let other = first.filter(|first| ordered(place).is_some_and(|unit| unit != *first));
            if let Some(first) = other {
                let message = format!("the order of \"{}\" is that of another unit", ring.name);
                let name = &self.chip.units[first].name;
                let complaint = Complaint::new(Code::MisplacedOrder, message);
                let hint = format!("a frame has one ticket: take \"{name}\" for all rings, or for none");
                self.sink.report(complaint.hint(hint), entry.span_of("order", None));
            }
            let mut takers = self.tasks().filter(|(_, task)| task.from == Some(place));
            let taker = takers.find(|(_, task)| task.work != Work::Transmit);
            if let Some((at, _)) = taker.filter(|_| ring.order.is_some()) {
                let message =
                    format!("the ring \"{}\" is in order, but leads to \"{}\"", ring.name, self.pool(at));
                let complaint = Complaint::new(Code::MisplacedOrder, message);
                let hint = "frames are put in order before they are transmitted: write `order` at the ring that `transmit` takes from";
                self.sink.report(complaint.hint(hint), entry.span_of("order", None));
            }
        }
    }

    /// A ring between neighbours leads from one engine to the one numbered next.
    fn neighbours(&self, ring: usize, producers: &[At], consumers: &[At]) {
        let engines = |ends: &[At]| -> HashSet<(usize, u32)> {
            let places = ends.iter().map(|at| &self.mapping.pools[at.pool].place);
            places
                .flat_map(|place| match place {
                    PoolPlace::Engines { kind, numbers, .. } => {
                        numbers.iter().map(|number| (*kind, *number)).collect()
                    }
                    // A unit is nobody's neighbour.
                    PoolPlace::Unit(unit) => vec![(usize::MAX, *unit as u32)],
                })
                .collect()
        };
        let (from, to) = (engines(producers), engines(consumers));
        let fits = match (from.iter().next(), to.iter().next()) {
            (Some(a), Some(b)) => {
                from.len() == 1 && to.len() == 1 && a.0 == b.0 && a.0 != usize::MAX && b.1 == a.1 + 1
            }
            // That an end is missing is said elsewhere.
            _ => true,
        };
        if !fits {
            let list = |ends: &HashSet<(usize, u32)>| {
                let mut numbers: Vec<u32> = ends.iter().map(|end| end.1).collect();
                numbers.sort_unstable();
                numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
            };
            let message = format!(
                "the ring \"{}\" leads from engine {} to engine {}, which are no neighbours",
                self.ring(ring),
                list(&from),
                list(&to)
            );
            let complaint = Complaint::new(Code::OutOfReach, message);
            let hint =
                "it leads from one engine to the one numbered next; take another kind of ring otherwise";
            self.sink.report(complaint.hint(hint), self.lines.rings[ring].span.clone());
        }
    }

    /// True if frames can go round, which is said.
    fn cycles(&self) -> bool {
        let count = self.mapping.rings.len();
        let mut done = vec![false; count];
        let mut found = false;
        for ring in 0..count {
            let mut way = Vec::new();
            found |= self.round(ring, &mut way, &mut done);
        }
        found
    }

    fn round(&self, ring: usize, way: &mut Vec<usize>, done: &mut [bool]) -> bool {
        if let Some(start) = way.iter().position(|before| *before == ring) {
            let names: Vec<&str> = way[start..].iter().chain([&ring]).map(|ring| self.ring(*ring)).collect();
            let message = format!("frames go round for ever: {}", names.join(" -> "));
            let last = way[way.len() - 1];
            let closing = self
                .tasks()
                .find(|(_, task)| task.from == Some(last) && task.to.iter().any(|exit| exit.ring == ring));
            let complaint = Complaint::new(Code::RingCycle, message);
            let hint = "rings lead from `receive` to `transmit`, each further than the one before";
            self.sink.report(complaint.hint(hint), closing.map_or(0..0, |(at, _)| self.span(at, "to")));
            return true;
        }
        if done[ring] {
            return false;
        }
        done[ring] = true;
        way.push(ring);
        let mut found = false;
        for (_, task) in self.tasks().filter(|(_, task)| task.from == Some(ring)) {
            for exit in &task.to {
                found |= self.round(exit.ring, way, done);
            }
        }
        way.pop();
        found
    }

    /// Follows new frames and known ones from `receive`.
    fn follow(&self) {
        let mut seen = HashSet::new();
        let mut said = HashSet::new();
        let receivers: Vec<At> = self.tasks().filter(|(_, task)| task.receives()).map(|(at, _)| at).collect();
        let mut open: Vec<Step> = receivers
            .iter()
            .flat_map(|at| {
                let (new, known) = (Standing::New, Standing::Known);
                let (plain, exception) = (Handling::Plain, Handling::Exception);
                [(new, plain), (known, plain), (new, exception), (known, exception)]
                    .map(|(standing, handling)| Step { at: *at, met: 0, standing, handling })
            })
            .collect();
        while let Some(step) = open.pop() {
            if !seen.insert(step) {
                continue;
            }
            let task = self.task(step.at);
            let met = self.meets(step, &mut said);
            let parting = task.to.iter().find_map(|exit| match exit.who {
                Who::New | Who::Known => Some((TELLS, "new frames another way than known ones")),
                Who::Exception | Who::Rest => Some((DECIDES, "exceptions another way than the rest")),
                Who::All => None,
            });
            if let Some((stage, what)) = parting {
                let told =
                    self.stages.iter().position(|name| *name == stage).is_some_and(|place| met > place);
                if !told && said.insert((step.at, usize::MAX)) {
                    let message = format!(
                        "\"{}\" sends {what} before `{stage}` has told them apart",
                        self.pool(step.at)
                    );
                    let complaint = Complaint::new(Code::EarlyParting, message);
                    let hint = format!("let the ways part at the pool that does `{stage}`, or after it");
                    self.sink.report(complaint.hint(hint), self.span(step.at, "to"));
                }
            }
            for exit in task.to.iter().filter(|exit| exit.who.takes(step.standing, step.handling)) {
                let next = self.tasks().filter(|(_, task)| task.from == Some(exit.ring));
                open.extend(next.map(|(at, _)| Step { at, met, ..step }));
            }
        }
    }

    /// Returns the number of stages that a frame has passed after a task; reports a wrong order, once for each task.
    fn meets(&self, step: Step, said: &mut HashSet<(At, usize)>) -> usize {
        let (first, end) = match &self.task(step.at).work {
            Work::Receive(stages) if stages.is_empty() => return step.met,
            Work::Receive(stages) | Work::Stages(stages) => (stages.start, stages.end),
            Work::Transmit => (self.stages.len(), self.stages.len()),
        };
        let from = self.task(step.at).from.map_or("", |ring| self.ring(ring));
        let together = self.tasks().all(|(_, task)| task.to.iter().all(|exit| exit.who == Who::All));
        let parts = |one: Who| self.tasks().any(|(_, task)| task.to.iter().any(|exit| exit.who == one));
        let frames = match (step.standing, step.handling) {
            _ if together => "frames",
            (_, Handling::Exception) if parts(Who::Exception) => "exceptions",
            _ if !parts(Who::New) => "frames that are no exceptions",
            (Standing::Known, _) => "known frames",
            (Standing::New, _) => "new frames",
        };
        let key = if matches!(self.task(step.at).work, Work::Transmit) { "work" } else { "stages" };
        if first > step.met {
            // What nobody does is said once, elsewhere.
            let skipped: Vec<&str> = (step.met..first)
                .filter(|place| self.mapped(*place))
                .map(|place| self.stages[place])
                .collect();
            if !skipped.is_empty() && said.insert((step.at, step.met)) {
                let message = format!(
                    "{frames} come to \"{}\" by the ring \"{from}\" without having met {}",
                    self.pool(step.at),
                    skipped.join(", ")
                );
                let complaint = Complaint::new(Code::SkippedStage, message);
                let hint = "every frame passes every stage, those too that have nothing to do for it";
                self.sink.report(complaint.hint(hint), self.span(step.at, key));
            }
        }
        if first < step.met && said.insert((step.at, step.met)) {
            let again: Vec<&str> = self.stages[first..step.met.min(end)].to_vec();
            let message = format!(
                "{frames} come to \"{}\" by the ring \"{from}\" having met {} already",
                self.pool(step.at),
                again.join(", ")
            );
            let complaint = Complaint::new(Code::RepeatedStage, message);
            self.sink.report(
                complaint.hint("on one way each stage is done once, in the order of the pipeline"),
                self.span(step.at, key),
            );
        }
        end.max(step.met)
    }
}
