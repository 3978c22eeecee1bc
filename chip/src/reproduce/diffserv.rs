//! The DiffServ edge router of Lin et al. on the IXP1200: D1 to D18.
//!
//! Frames of 64 bytes come by eight ports of 100 Mbit/s and one of a gigabit. What comes by the former leaves by the latter and the
//! other way round, so that no line out of the chip is full. Rules ask for all that the study's six dimensions have but the input,
//! and the last one alone is met: its worst case.

use dataplane::replay::Witness;
use dataplane::{Tables, Verdict, extent};
use lookup::classify::Algorithm;
use policy::Policy;
use wire::{Frame, Nanos, PortId};

use super::known::Known;
use super::workload::{self, Workload};
use super::{Claim, Model, Outcome, ReproduceError, Study, shipped};
use crate::description::Chip;
use crate::host::{Entry, Onlooker};
use crate::machine::{Ideal, PROGRAMS};
use crate::mapping::{Mapping, PoolPlace, Work};
use crate::report::{EngineReport, Report};
use crate::run::RunError;
use crate::traffic::{Flows, Rate, Size, Stream};

pub(super) const CLAIMS: &[Claim] = &[
    claim("D1", processor),
    claim("D2", bus),
    claim("D3", programs),
    claim("D4", threads),
    claim("D5", forwarding),
    claim("D6", curve),
    claim("D7", aggregate),
    claim("D8", one_flow),
    claim("D9", fairness),
    claim("D10", scaling),
    claim("D11", bottlenecks),
    claim("D12", linear),
    claim("D13", range_match),
    claim("D14", vectors),
    untested(
        "D15",
        "Six queues for each port, quanta of twice the next class's: the policy has them, nothing is predicted.",
    ),
    untested("D16", "Memory of other classifiers, quoted from their authors."),
    claim("D17", remedies),
    untested(
        "D18",
        "The study contradicts itself: SRAM is one of two bottlenecks in its measurements, and 35.3 % busy in its simulation of them.",
    ),
];

const fn claim(id: &'static str, test: fn(&Model) -> Result<Vec<Outcome>, ReproduceError>) -> Claim {
    Claim { id, study: Study::DiffServ, untested: "", chips: &["ixp1200"], test }
}

const fn untested(id: &'static str, why: &'static str) -> Claim {
    Claim { id, study: Study::DiffServ, untested: why, chips: &[], test: |_| Ok(Vec::new()) }
}

/// Ports of 100 Mbit/s; the one behind them has a gigabit.
const FAST: u16 = 8;

/// Frames of 64 bytes a second on a line of 100 Mbit/s.
const LINE: f64 = 100e6 / (84.0 * 8.0);

/// Numbers of rules between the study's 290 Mbit/s and its 180; a vector of its has 512 bits.
pub(super) const RULES: [u32; 6] = [1, 4, 16, 64, 256, 512];

/// Destination port of the first flow that has a rule of its own.
const OWN: u16 = 20_000;

/// Frames of a run by a port of 100 Mbit/s, and arrivals by each that are left out while queues fill.
const FRAMES: u64 = 3_000;
const WARM: u64 = 1_000;

fn chip(model: &Model) -> Result<Chip, ReproduceError> {
    model.chip("ixp1200")
}

fn mapping(chip: &Chip) -> Result<Mapping, ReproduceError> {
    shipped::mapping("ixp1200-diffserv", chip)
}

/// Use of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Met {
    /// Every packet meets the last rule, and no other.
    Last,
    /// Each flow meets a rule of its own, which admits so many packets a second.
    Own(u32),
}

/// The router's policy: rules, each with a leaky bucket and a code point, and six queues for each port; without rules it forwards.
fn policy(rules: u32, met: Met) -> Result<Policy, ReproduceError> {
    let mut text = String::from("mode = \"stateless\"\n[default]\n\"any > any\" = \"accept\"\n");
    for port in 0..=FAST {
        let rate = if port == FAST { "1 Gbit/s" } else { "100 Mbit/s" };
        text.push_str(&format!(
            "[interface.p{port}]\nzone = \"p{port}\"\naddresses = [\"10.{port}.0.1/16\"]\nmac = \"02:00:00:00:00:{port:02x}\"\n\
             source-check = \"off\"\nrate = \"{rate}\"\n"
        ));
    }
    for port in 0..=FAST {
        text.push_str(&format!("[[route]]\nto = \"172.{}.0.0/16\"\nvia = \"10.{port}.0.2\"\n", 16 + port));
    }
    for rule in 0..rules {
        let (place, name) = (rule + 1, format!("rule-{rule}"));
        let conditions = match met {
            Met::Last if place == rules => {
                "protocol = \"udp\"\nsource = \"10.0.0.0/8\"\ndestination = \"172.16.0.0/12\"\n\
                                            sport = \"1-65535\"\ndport = \"1-65535\"\n"
                    .to_owned()
            }
            Met::Last => format!(
                "protocol = \"udp\"\nsource = \"192.168.{}.{}\"\ndestination = \"192.169.{}.{}\"\nsport = \"{}\"\ndport = \"{}\"\n\
                 dscp = [{}]\n",
                place / 256,
                place % 256,
                place / 256,
                place % 256,
                10_000 + place,
                20_000 + place,
                place % 64
            ),
            Met::Own(_) => format!("protocol = \"udp\"\ndport = \"{}\"\n", OWN + rule as u16),
        };
        let (rate, burst) = match met {
            Met::Last => ("10 Gbit/s".to_owned(), 150_000),
            Met::Own(packets) => (format!("{} bit/s", packets * 84 * 8), 1_538),
        };
        text.push_str(&format!(
            "[[class]]\nname = \"{name}\"\n{conditions}mark = \"{}\"\nmeter = \"{name}\"\n[[meter]]\nname = \"{name}\"\n\
             kind = \"leaky-bucket\"\nrate = \"{rate}\"\nburst = {burst}\noverhead = \"ethernet\"\n",
            ["ef", "af11", "af21", "af31", "af41", "be"][rule as usize % 6]
        ));
    }
    if rules > 0 {
        for port in 0..=FAST {
            text.push_str(&format!(
                "[[queue]]\nname = \"q{port}\"\non = \"p{port}\"\ntemplate = \"diffserv\"\n"
            ));
        }
    }
    shipped::policy(&text, "diffserv")
}

/// Ports that traffic comes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum From {
    /// The first port.
    One,
    /// The first two: threads of two engines.
    Two,
    /// Four whose threads are one engine's.
    Four,
    /// All of 100 Mbit/s.
    Eight,
    /// All.
    All,
}

impl From {
    fn ports(self) -> &'static [u16] {
        match self {
            From::One => &[0],
            From::Two => &[0, 1],
            // Threads are told out over the engines one by one.
            From::Four => &[0, 2, 4, 6],
            From::Eight | From::All => &[0, 1, 2, 3, 4, 5, 6, 7],
        }
    }
}

/// Classifier of the study's router, in whose place it has linear search, too.
const RANGE_MATCH: &str = "range_match";

/// The router with its rules.
struct Router<'a> {
    chip: &'a Chip,
    mapping: &'a Mapping,
    policy: &'a Policy,
    algorithm: &'a str,
}

impl Router<'_> {
    /// Runs streams, each of which begins so long after the start; the first `warm` frames are left out.
    fn run(&self, streams: &[(Stream, Nanos)], warm: u64, ideal: Ideal) -> Result<Report, ReproduceError> {
        Ok(self.workload(streams, warm).run(ideal)?)
    }

    fn workload<'a>(&'a self, streams: &'a [(Stream, Nanos)], warm: u64) -> Workload<'a> {
        Workload {
            chip: self.chip,
            mapping: self.mapping,
            policy: self.policy,
            algorithm: Algorithm::named(self.algorithm),
            streams,
            warm,
        }
    }
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Run {
    rules: u32,
    algorithm: &'static str,
    from: From,
    /// Share of a line, in thousandths.
    load: u32,
    bytes: u16,
}

impl Run {
    fn of(rules: u32, from: From) -> Run {
        Run { rules, algorithm: RANGE_MATCH, from, load: 1_000, bytes: 64 }
    }

    fn streams(self, model: &Model) -> Vec<Stream> {
        let rate = LINE * f64::from(self.load) / 1e3 * 84.0 / (f64::from(self.bytes) + 20.0);
        let stream = |from: u16, to: u16, rate: f64, frames: u64| Stream {
            rate: Rate::Frames(rate),
            flows: Flows::Fixed(1),
            frames,
            size: Size::Fixed(self.bytes),
            ..Stream::new(&format!("p{from}"), &format!("p{to}"))
        };
        let frames = model.frames(FRAMES);
        let mut streams: Vec<Stream> =
            self.from.ports().iter().map(|port| stream(*port, FAST, rate, frames)).collect();
        if self.from == From::All {
            let (share, frames) = (rate * 10.0 / 8.0, frames * 10 / 8);
            streams.extend((0..FAST).map(|port| stream(FAST, port, share, frames)));
        }
        streams
    }

    fn report(self, model: &Model, ideal: Ideal) -> Result<Report, ReproduceError> {
        // Lines that can carry it.
        let chip = match self.load {
            0..=1_000 => chip(model)?,
            _ => model.chip_with("ixp1200", &[("port.fast.rate", "1 Gbit/s")])?,
        };
        self.on(model, &chip, &mapping(&chip)?, ideal)
    }

    /// Runs it on another chip, or with another mapping.
    fn on(
        self,
        model: &Model,
        chip: &Chip,
        mapping: &Mapping,
        ideal: Ideal,
    ) -> Result<Report, ReproduceError> {
        let streams = self.streams(model).into_iter().map(|stream| (stream, Nanos(0))).collect::<Vec<_>>();
        let policy = policy(self.rules, Met::Last)?;
        let router = Router { chip, mapping, policy: &policy, algorithm: self.algorithm };
        router.run(&streams, model.frames(WARM) * streams.len() as u64, ideal)
    }

    fn measured(self, model: &Model) -> Result<Report, ReproduceError> {
        model.diffserv.runs.get(self, || self.report(model, Ideal::Nothing))
    }
}

/// Runs that claims share, and what was found by several.
#[derive(Default)]
pub(super) struct Measured {
    runs: Known<Run, Report>,
    no_loss: Known<(), u32>,
    /// The test of fairness, by the load in thousandths of a line.
    flows: Known<u32, (Report, Vec<f64>)>,
}

/// Bits a second of frames of 64 bytes, as the study counts: without preamble and gap.
fn mbps(report: &Report) -> f64 {
    report.dealt_mpps() * 512.0
}

fn processor(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let chip = chip(model)?;
    let engine = chip.engines.first();
    let input = |statement, published, value, unit| {
        Outcome::number("D1", statement, published, value, unit).not_blind().note("An input.")
    };
    Ok(vec![
        input("clock", 200.0, chip.clock.0 as f64 / 1e6, "MHz"),
        input("microengines", 6.0, engine.map_or(0, |kind| kind.count).into(), "engines"),
        input("threads of an engine", 4.0, engine.map_or(0, |kind| kind.threads).into(), "threads"),
        input(
            "control store",
            1_024.0,
            engine.and_then(|kind| kind.store).unwrap_or(0).into(),
            "instructions",
        ),
    ])
}

fn bus(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let chip = chip(model)?;
    let gbps = chip.buses.first().map_or(0.0, |bus| bus.clock.0 as f64 * bus.width.0 as f64 * 8.0 / 1e9);
    let row = Outcome::number("D2", "IX bus", 4.2, gbps, "Gbit/s");
    Ok(vec![row.not_blind().note("Arithmetic on inputs: 64 bits at 66 MHz.")])
}

/// Tables of the router with so many rules.
fn tables(rules: u32) -> Result<Tables, ReproduceError> {
    let policy = policy(rules, Met::Last)?;
    Ok(workload::tables(&policy, Algorithm::named(RANGE_MATCH)).map_err(RunError::Source)?)
}

/// Instructions of the study's three programs, which have what its figure 3 has: all up to the queue is the receiver's.
fn programs(_: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let tables = tables(64)?;
    let end = |name| PROGRAMS.iter().find(|program| program.0 == name).map_or(0, |program| program.1);
    let stages: u32 = extent::programs(&tables).iter().map(|(_, size)| size).sum();
    let (receiver, transmitter) = (f64::from(end("receive") + stages), f64::from(end("transmit")));
    let note =
        "Ours has IPv6, options, VLANs, ICMP errors and fragments in it, and the scheduler of the queues.";
    Ok(vec![
        Outcome::number(
            "D3",
            "instructions of a receiver, up to the queue",
            1_012.0,
            receiver,
            "instructions",
        )
        .note(note),
        Outcome::quality(
            "D3",
            "receiver and transmitter do not fit one store of 1,024",
            "1564",
            format!("{:.0}", receiver + transmitter),
            receiver + transmitter > 1_024.0,
        ),
    ])
}

fn threads(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let mapping = mapping(&chip(model)?)?;
    let count = |has: fn(&Work) -> bool| {
        let pools = mapping.pools.iter().filter(|pool| pool.tasks.iter().any(|task| has(&task.work)));
        let threads = pools.map(|pool| match &pool.place {
            PoolPlace::Engines { numbers, threads, .. } => numbers.len() as f64 * f64::from(*threads),
            PoolPlace::Unit(_) => 0.0,
        });
        threads.sum::<f64>()
    };
    let input = |statement, published, value| {
        Outcome::number("D4", statement, published, value, "threads")
            .not_blind()
            .note("An input: the mapping.")
    };
    Ok(vec![
        input("threads that receive", 16.0, count(|work| matches!(work, Work::Receive(_)))),
        input("threads that transmit", 6.0, count(|work| *work == Work::Transmit)),
        input("threads that schedule", 2.0, count(|work| matches!(work, Work::Stages(_)))),
    ])
}

fn forwarding(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let plain = |bytes| Run { bytes, ..Run::of(0, From::All) }.measured(model);
    let report = plain(64)?;
    let gbps = 1.8 * (report.dealt_mpps() / report.offered_mpps).min(1.0);
    let mut shortest = None;
    for bytes in [64, 128, 256, 512, 1_024, 1_518] {
        if plain(bytes)?.lost == 0 {
            shortest = Some(bytes);
            break;
        }
    }
    let shown = shortest.map_or("at no length".to_owned(), |bytes| format!("from {bytes} bytes on"));
    Ok(vec![
        Outcome::number("D5", "IP forwarding at wire speed, frames of 64 bytes", 1.8, gbps, "Gbit/s")
            .note("The study does not say of which length its packets were."),
        Outcome::quality(
            "D5",
            "IP forwarding at wire speed, frames of some length",
            "at 1.8 Gbit/s",
            shown,
            shortest.is_some(),
        ),
    ])
}

/// Aggregate throughput of all ports with so many rules, in Mbit/s.
pub(super) fn aggregate_mbps(model: &Model, rules: u32) -> Result<f64, ReproduceError> {
    Ok(mbps(&Run::of(rules, From::All).measured(model)?))
}

fn curve(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let mut found = Vec::new();
    for rules in RULES {
        found.push(aggregate_mbps(model, rules)?);
    }
    let falls = found.windows(2).all(|pair| pair[1] <= pair[0] * 1.005) && found.last() < found.first();
    let below = |limit: f64| {
        let rules = RULES.iter().zip(&found).find(|(_, mbps)| **mbps < limit);
        rules.map_or("at none of these".to_owned(), |(rules, _)| format!("at {rules}"))
    };
    let list: Vec<String> =
        RULES.iter().zip(&found).map(|(rules, mbps)| format!("{mbps:.0} with {rules}")).collect();
    let words = format!("{} Mbit/s; below 290 {}, below 180 {}", list.join(", "), below(290.0), below(180.0));
    let last = found.last().copied().unwrap_or_default();
    Ok(vec![
        Outcome::quality("D6", "aggregate throughput falls with the number of rules", "290 to 180 Mbit/s", words, falls),
        Outcome::number("D6", "with the most rules, 512", 180.0, last, "Mbit/s").note(
            "The numbers of rules are in a figure that the text does not have; vectors of 512 bits are for no more than 512.",
        ),
    ])
}

fn aggregate(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let kpps = Run::of(1, From::All).measured(model)?.dealt_mpps() * 1e3;
    let row = Outcome::number("D7", "aggregate throughput", 568.0, kpps, "kpps");
    Ok(vec![row.note("290 Mbit/s, the upper end of the study's range: with the fewest rules.")])
}

/// The highest share of a line, in thousandths, at which one flow by one port loses nothing.
fn no_loss(model: &Model) -> Result<u32, ReproduceError> {
    model.diffserv.no_loss.get((), || {
        let (mut good, mut bad) = (0, 1_001);
        while bad - good > 5 {
            let load = u32::midpoint(good, bad);
            if (Run { load, ..Run::of(500, From::One) }).report(model, Ideal::Nothing)?.lost == 0 {
                good = load;
            } else {
                bad = load;
            }
        }
        Ok(good)
    })
}

fn one_flow(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let row = Outcome::number(
        "D8",
        "the most that one flow sends without a loss",
        58.0,
        f64::from(no_loss(model)?) / 10.0,
        "% of 100 Mbit/s",
    );
    Ok(vec![row.note("With 500 rules, as in the test of fairness that follows on it.")])
}

/// Flows of the test of fairness.
const FLOWS: u16 = 500;

/// Packets a second that each one's bucket admits.
pub(super) const SETTING: u32 = 149;

/// Packets of each by which a bucket that overflows is full.
const FILL: u64 = 40;

/// Packets that are sent on of each flow, from some arrival on.
struct Departures {
    /// Arrivals before those that count.
    warm: u64,
    arrivals: u64,
    of_flow: Vec<u64>,
}

impl Witness for Departures {
    fn sent(&mut self, _: PortId, _: Nanos, frame: &Frame, _: Option<Verdict>) {
        let flow = frame.meta.dport.wrapping_sub(OWN);
        if let Some(packets) = self.of_flow.get_mut(usize::from(flow)).filter(|_| self.arrivals > self.warm) {
            *packets += 1;
        }
    }

    fn ended(&mut self, _: &Frame, _: Verdict) {}
}

impl Onlooker for Departures {
    fn came(&mut self, _: u32, _: &Entry, _: &[u8]) {
        self.arrivals += 1;
    }
}

/// Runs flows by one port, in turn, each of which meets a rule of its own, at so many thousandths of the line. Returns each flow's packets a
/// second, too.
fn flows(model: &Model, load: u32) -> Result<(Report, Vec<f64>), ReproduceError> {
    model.diffserv.flows.get(load, || run_flows(model, load))
}

fn run_flows(model: &Model, load: u32) -> Result<(Report, Vec<f64>), ReproduceError> {
    let (rate, fill) = (LINE * (f64::from(load) / 1e3), model.frames(FILL));
    let stream = |flow: u16| Stream {
        rate: Rate::Frames(rate / f64::from(FLOWS)),
        flows: Flows::Fixed(1),
        frames: 2 * fill,
        dport: OWN + flow,
        ..Stream::new("p0", &format!("p{FAST}"))
    };
    let streams: Vec<(Stream, Nanos)> =
        (0..FLOWS).map(|flow| (stream(flow), Nanos((f64::from(flow) * 1e9 / rate) as u64))).collect();
    let policy = policy(FLOWS.into(), Met::Own(SETTING))?;
    let chip = chip(model)?;
    let warm = fill * u64::from(FLOWS);
    let mut departures = Departures { warm, arrivals: 0, of_flow: vec![0; FLOWS.into()] };
    let router = Router { chip: &chip, mapping: &mapping(&chip)?, policy: &policy, algorithm: RANGE_MATCH };
    let report = router.workload(&streams, warm).watch(&mut departures)?;
    let rates = departures.of_flow.iter().map(|packets| *packets as f64 / report.seconds).collect();
    Ok((report, rates))
}

/// Packets a second of each of the flows of the test of fairness, at half a line and at a whole one.
pub(super) fn each_flow(model: &Model) -> Result<[Vec<f64>; 2], ReproduceError> {
    Ok([flows(model, 500)?.1, flows(model, 1_000)?.1])
}

fn fairness(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let ((half, of_half), (_, of_overloaded)) = (flows(model, 500)?, flows(model, 1_000)?);
    let extent = |rates: &[f64]| {
        let (least, most) =
            (rates.iter().copied().fold(f64::MAX, f64::min), rates.iter().copied().fold(0.0, f64::max));
        format!("{least:.0} to {most:.0}")
    };
    let limited = of_overloaded.iter().filter(|rate| **rate <= f64::from(SETTING) * 1.15).count();
    let each = half.delivered_mpps * 1e6 / f64::from(FLOWS);
    Ok(vec![
        Outcome::number("D9", "packets of each of 500 flows at half a line", 148.0, each, "packets/s").note(
            &format!(
                "74,405 packets a second by 500; the study prints 148 for 148.8. By flow: {}.",
                extent(&of_half)
            ),
        ),
        Outcome::quality(
            "D9",
            "at half a line flows have all of it",
            "no loss",
            format!(
                "{} lost to overload, {:.1} % by their buckets",
                half.lost,
                half.ended_mpps / half.offered_mpps * 100.0
            ),
            half.lost == 0 && half.ended_mpps <= half.offered_mpps * 1e-3,
        ),
        Outcome::quality(
            "D9",
            "overloaded, flows are limited to their settings, most of them",
            "149 packets/s",
            format!("{limited} of {FLOWS} flows at most 15 % above; {} packets/s", extent(&of_overloaded)),
            limited * 2 > FLOWS.into(),
        )
        .note("At a whole line, twice as much as the buckets admit."),
    ])
}

fn scaling(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let of = |from| Ok::<_, ReproduceError>(Run::of(64, from).measured(model)?.dealt_mpps() * 1e3);
    let (one, two, four, eight) = (of(From::One)?, of(From::Two)?, of(From::Four)?, of(From::Eight)?);
    let row = |statement, published: &str, times: f64, holds| {
        Outcome::quality("D10", statement, published, format!("{times:.2} times"), holds)
    };
    Ok(vec![
        row(
            "two threads of two engines do as one twice",
            "about 2 times",
            two / one,
            (two / one / 2.0 - 1.0).abs() <= 0.1,
        ),
        row(
            "four threads of one engine do less than one four times",
            "less than 4 times",
            four / one,
            four < 3.8 * one,
        ),
        row(
            "eight of two engines do less than four twice",
            "less than 2 times",
            eight / four,
            eight < 1.9 * four,
        ),
    ])
}

/// Resource that brings most, of the engines that receive and of SRAM. Lines of 100 Mbit/s would hide what one port's thread could do.
fn brings_most(model: &Model, from: From) -> Result<String, ReproduceError> {
    let load = if from == From::All { 1_000 } else { 5_000 };
    let run = Run { load, ..Run::of(64, from) };
    let chip = chip(model)?;
    let mapping = mapping(&chip)?;
    let sram = chip.memories.iter().position(|memory| memory.name == "sram").unwrap_or(0);
    let pool = mapping.pools.iter().position(|pool| pool.name == "fast").unwrap_or(0);
    let now = run.measured(model)?.dealt_mpps();
    let gain = |ideal| Ok::<_, ReproduceError>(run.report(model, ideal)?.dealt_mpps() / now);
    let (engines, memory) = (gain(Ideal::Pool(pool))?, gain(Ideal::Memory(sram))?);
    Ok(format!(
        "{}: SRAM would bring {memory:.2} times, engines {engines:.2}",
        if memory > engines { "memory" } else { "engines" }
    ))
}

fn bottlenecks(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let row = |statement, from, published: &str| {
        let found = brings_most(model, from)?;
        let holds = found.starts_with(published);
        Ok::<_, ReproduceError>(Outcome::quality("D11", statement, published, found, holds))
    };
    Ok(vec![
        row("bottleneck of one port", From::One, "memory")?,
        row("bottleneck of four ports of one engine", From::Four, "engines")?,
        row("bottleneck of all ports", From::All, "memory")?,
    ])
}

/// Utilisation of the engines that receive, in per cent: not idle.
fn receivers(report: &Report) -> f64 {
    let engines: Vec<&EngineReport> = report
        .engines
        .iter()
        .filter(|engine| engine.pools.iter().any(|pool| pool == "fast" || pool == "gigabit"))
        .collect();
    let busy: f64 = engines.iter().map(|engine| engine.executing + engine.aborted + engine.stalled).sum();
    busy / engines.len().max(1) as f64 * 100.0
}

fn busy(report: &Report, name: &str) -> f64 {
    let memory = report.memories.iter().find(|memory| memory.name == name);
    memory.map_or(0.0, |memory| memory.utilisation * 100.0)
}

fn linear(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let report = Run { algorithm: "linear", ..Run::of(64, From::All) }.measured(model)?;
    let row = |statement, published, found| Outcome::number("D12", statement, published, found, "%");
    Ok(vec![
        row("linear search, 64 rules: receivers' engines busy", 80.0, receivers(&report)),
        row("SRAM busy", 55.0, busy(&report, "sram")),
        Outcome::quality(
            "D12",
            "SDRAM is little used",
            "low",
            format!("{:.0} %", busy(&report, "dram")),
            busy(&report, "dram") < 20.0,
        ),
    ])
}

fn range_match(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let report = Run::of(64, From::All).measured(model)?;
    let row = |statement, published, found| Outcome::number("D13", statement, published, found, "%");
    Ok(vec![
        row("range matching, 64 rules: receivers' engines busy", 100.0, receivers(&report)),
        row("SRAM busy", 35.3, busy(&report, "sram")),
        row("SDRAM busy", 13.0, busy(&report, "dram")),
    ])
}

fn vectors(_: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let bytes = tables(512)?.classes.region_bytes();
    Ok(vec![Outcome::quality(
        "D14",
        "intervals and vectors of 512 rules fit SRAM of 2 MB",
        "at most 1,023 intervals of 64 bytes in six dimensions: 392,832 bytes, and the intervals",
        format!("{bytes} bytes"),
        bytes <= 2 << 20,
    )])
}

/// Section 5's remedies for SRAM, each a change of the chip or of the mapping: statement, values of the chip, places of regions.
type Remedy =
    (&'static str, &'static [(&'static str, &'static str)], &'static [(&'static str, &'static str)]);

const REMEDIES: [Remedy; 4] = [
    ("routes and rules in SDRAM", &[], &[("region.route-table", "dram"), ("region.rule-table", "dram")]),
    (
        "four SRAMs at interfaces of their own, by turns of 64 bytes",
        &[("memory.sram.channels", "4"), ("memory.sram.interleave", "64 B")],
        &[],
    ),
    // As the IXP2400's: 800 MB/s each way, and addresses with pins of their own.
    (
        "QDR SRAM of 1.6 GB/s",
        &[
            ("memory.sram.data-pins", "separate"),
            ("memory.sram.clock", "200 MHz"),
            ("memory.sram.overhead", "0"),
        ],
        &[],
    ),
    (
        "a cache of 4 KB before SRAM",
        &[("memory.sram.cache", "{ size = \"4 KB\", line = \"32 B\", ways = 32, latency = 4 }")],
        &[],
    ),
];

fn remedies(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let chip = chip(model)?;
    let sram = chip.memories.iter().find(|memory| memory.name == "sram");
    let times = sram.map_or(0.0, |sram| 1.6e9 / (sram.clock.0 as f64 * sram.width.0 as f64));
    let row = Outcome::number(
        "D17",
        "bandwidth of QDR SRAM by this SRAM's, two to three times",
        2.5,
        times,
        "times",
    );
    let mut rows = vec![row.not_blind().contradictory().note("Arithmetic on inputs: 1.6 GB/s by 400 MB/s.")];
    for (statement, values, places) in REMEDIES {
        let chip = model.chip_with("ixp1200", values)?;
        let mapping = shipped::mapping_with("ixp1200-diffserv", &chip, places)?;
        let gain = |rules| {
            let run = Run::of(rules, From::All);
            let changed = run.on(model, &chip, &mapping, Ideal::Nothing)?;
            Ok::<_, ReproduceError>(changed.dealt_mpps() / run.measured(model)?.dealt_mpps())
        };
        let (few, many) = (gain(1)?, gain(512)?);
        let row = Outcome::quality(
            "D17",
            statement,
            "more throughput",
            format!("{few:.2} times with 1 rule, {many:.2} with 512"),
            few > 1.0 && many > 1.0,
        );
        rows.push(row.not_blind().note("Proposed in section 5, and not measured there."));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::{Met, policy};
    use crate::sweep::with_classes;

    /// The policy that the page on fidelity runs is the router of D7, and with more classes its classifier's.
    #[test]
    fn the_policy_that_is_shipped_is_the_routers() {
        let text = include_str!("../../../policies/ixp1200-diffserv.toml").replace("\"rule\"", "\"rule-0\"");
        let shipped = policy::check(&text, "ixp1200-diffserv").policy.unwrap();
        assert_eq!(shipped, policy(1, Met::Last).unwrap());
        let many = with_classes(&shipped, "511").unwrap();
        let conditions = |policy: policy::Policy| -> Vec<policy::model::Conditions> {
            policy.classes.into_iter().map(|class| class.conditions).collect()
        };
        assert_eq!(conditions(many), conditions(policy(512, Met::Last).unwrap()));
    }
}
