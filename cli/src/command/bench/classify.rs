//! `wirerate bench classify`: every way to search rules, side by side.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use lookup::classify::generate::{self, Locality};
use lookup::classify::{ALGORITHMS, Algorithm, Bounds, Choice, Task};
use serde_json::{Value, json};

use crate::bench::classify::peer::{self, Peer, Peers};
use crate::bench::classify::{Answers, Contender, Disagreement, Plan, ROUNDS, Worst, scan, subject, update};
use crate::failure::{Failure, Fault};
use crate::{screen, with_exit_codes};

/// Look-ups in rules by every algorithm that there is, 64 headers at a time.
///
/// All are built from the same rules, held to the linear scan, and then measured by turns on the same headers, on one core.
/// Where there are too many rules and headers for the scan, it answers a sample of them; on all headers the algorithms are
/// held to one another. Their speed depends on the headers: to compare with another program, give both the same --trace.
///
/// updates/s is how many rules a second come or go while look-ups go on: removed and inserted at random in one version,
/// and again in the other, which was looked up in, where the algorithm can be changed in place; any other is built anew for
/// each, and it is 1 / build.
///
/// The worst case is said twice. worst, ns: the slowest batch of 64 of the trace, per look-up, the best of three passes,
/// so that what interrupts a pass does not count. worst instr: the most instructions that one header of the trace takes by the
/// account that chips are timed by, which no cache or clock touches; --json has references to memory, too.
///
/// An algorithm that would need more than --memory gives way, and is listed with what it would have needed.
///
/// DPDK's rte_acl is measured beside them, in both of its build settings (its own default, and a large max_size, which makes
/// fewer and larger tries), with AVX2, 64 and 1,024 headers at a time; the row `rte_acl` is the best of these.
/// It is a program of its own: WIRERATE_RTE_ACL, else wirerate-rte-acl on the PATH, else what `make -C bench/peers build/acl`
/// builds in the source that this came from. It knows IPv4 without zones, interfaces and DSCP: rules that ask for more leave
/// it out.
#[derive(Args, Debug)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate generate rules --like acl --count 1000 --out acl.rules
  wirerate bench classify acl.rules
  wirerate bench classify acl.rules --algorithm linear --json
  wirerate bench classify policies/isp-edge.toml

--json prints an array with an object for each: `algorithm rules mlookups memory_bytes build_seconds \
updates_per_second worst_ns worst_instructions worst_references gave_way picked`, null where there is none. `picked` is what \
a policy with these rules is compiled to. rte_acl has `setting` and `settings`, too."))]
pub(super) struct Classify {
    /// The rules: a ClassBench filter set, or a policy (TOML).
    rules: PathBuf,
    /// Headers to look up, as `wirerate generate trace` writes them.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Only this one; may be given several times. rte_acl is one, too.
    #[arg(long, value_name = "NAME", value_parser = named)]
    algorithm: Vec<Named>,
    /// What the headers follow from, without --trace.
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "trace")]
    seed: u64,
    /// Number of headers, without --trace.
    #[arg(long, value_name = "N", default_value_t = 65_536, conflicts_with = "trace",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    headers: u32,
    /// How long each is measured.
    #[arg(long, value_name = "S", default_value_t = 0.4, value_parser = seconds)]
    seconds: f64,
    /// The memory that each may take, while it is built, too.
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    memory: u32,
    /// How long rte_acl may take to be built in each of its settings.
    #[arg(long, value_name = "S", default_value_t = 30.0, value_parser = seconds)]
    patience: f64,
    /// Print an array of `{algorithm, rules, mlookups, memory_bytes, build_seconds, updates_per_second, ...}`.
    #[arg(long)]
    json: bool,
}

/// Subject of a measurement.
#[derive(Clone, Copy, Debug)]
enum Named {
    Ours(&'static Algorithm),
    RteAcl,
}

/// Name of DPDK's classifier.
const RTE_ACL: &str = "rte_acl";

fn named(name: &str) -> Result<Named, String> {
    if name == RTE_ACL {
        return Ok(Named::RteAcl);
    }
    Algorithm::named(name).map(Named::Ours).ok_or_else(|| {
        let known: Vec<_> = ALGORITHMS.iter().map(|algorithm| algorithm.name).chain([RTE_ACL]).collect();
        format!("there are {}", known.join(", "))
    })
}

/// Parses a time to measure.
pub(super) fn seconds(word: &str) -> Result<f64, String> {
    let value: f64 = word.parse().map_err(|_| "not a number".to_owned())?;
    if (0.01..=3_600.0).contains(&value) { Ok(value) } else { Err("from 0.01 to 3600".to_owned()) }
}

/// Row of the report: one subject.
struct Row {
    algorithm: String,
    mlookups: Option<f64>,
    memory: Option<u64>,
    build: Option<f64>,
    updates: Option<f64>,
    worst: Option<Worst>,
    gave_way: Option<String>,
    /// True for the algorithm that a policy with these rules is compiled to.
    is_picked: bool,
    more: Value,
}

impl Classify {
    pub(super) fn run(self) -> Result<(), Failure> {
        let patterns = subject::rules(&self.rules)?;
        let headers = match &self.trace {
            Some(path) => subject::headers(path)?,
            None => {
                let aimed = generate::trace(&patterns, self.headers as usize, Locality::LOW, self.seed);
                aimed.iter().map(|aimed| aimed.header).collect()
            }
        };
        let plan = Plan {
            patterns: &patterns,
            headers: &headers,
            bounds: Bounds { memory: (self.memory as usize) << 20 },
            time: Duration::from_secs_f64(self.seconds),
        };
        let (mut contenders, mut peers) = self.contenders(&plan)?;
        for round in 1..=ROUNDS {
            screen::doing(&format_args!("round {round} of {ROUNDS}"));
            contenders.iter_mut().for_each(|contender| contender.round(&plan));
            peers.built.iter_mut().for_each(|peer| peer.round(&plan));
        }
        let mut rows: Vec<Row> = contenders
            .iter()
            .map(|contender| row(contender, &plan))
            .collect::<Result<_, _>>()
            .map_err(Fault::Disagree)?;
        rows.extend(of_peers(&mut peers.built, &plan));
        rows.extend(peers.gave_way.map(Row::that_gave_way));
        let task = Task { patterns: patterns.clone(), wanted: None, bounds: plan.bounds };
        let picked = Choice::new(task).algorithm.name;
        rows.iter_mut().for_each(|row| row.is_picked = row.algorithm == picked);
        let mut out = screen::out();
        if self.json {
            let rows: Vec<Value> = rows.iter().map(|row| row.json(patterns.len())).collect();
            writeln!(out, "{}", Value::from(rows))?;
            return Ok(());
        }
        writeln!(
            out,
            "{:<18} {:>12} {:>10} {:>10} {:>12} {:>10} {:>12}",
            "algorithm", "M look-ups/s", "MiB", "build, s", "updates/s", "worst, ns", "worst instr"
        )?;
        for row in &rows {
            row.print(&mut out)?;
        }
        let many = screen::count(patterns.len() as u64, "rule", "rules");
        writeln!(out, "For these {many} a policy is compiled to {picked}.")?;
        Ok(())
    }

    /// Builds all that are to be measured, and holds them to the scan.
    fn contenders(&self, plan: &Plan<'_>) -> Result<(Vec<Contender>, Peers), Failure> {
        let is_asked_for = |algorithm: &&Algorithm| {
            let is_it = |named: &Named| matches!(named, Named::Ours(one) if one.name == algorithm.name);
            self.algorithm.is_empty() || self.algorithm.iter().any(is_it)
        };
        let scanned = scan(plan);
        let mut answers: Option<Answers> = None;
        let mut contenders = Vec::new();
        for algorithm in ALGORITHMS.iter().filter(is_asked_for) {
            screen::doing(&format_args!("{}: building", algorithm.name));
            let contender = Contender::new(algorithm, plan);
            contender.check(plan, &scanned, &mut answers).map_err(Fault::Disagree)?;
            contenders.push(contender);
        }
        let is_peer = |named: &Named| matches!(named, Named::RteAcl);
        if !(self.algorithm.is_empty() || self.algorithm.iter().any(is_peer)) {
            return Ok((contenders, Peers::default()));
        }
        // It has to be held to somebody, even where nobody else is asked for.
        for algorithm in ALGORITHMS.iter().filter(|algorithm| !is_asked_for(algorithm)) {
            if answers.is_none() {
                let contender = Contender::new(algorithm, plan);
                contender.check(plan, &scanned, &mut answers).map_err(Fault::Disagree)?;
            }
        }
        screen::doing(&format_args!("{RTE_ACL}: building"));
        let patience = Duration::from_secs_f64(self.patience);
        let peers = peer::start(plan, answers, patience, &mut |what| screen::note(&what));
        Ok((contenders, peers.map_err(Fault::Disagree)?))
    }
}

fn row(contender: &Contender, plan: &Plan<'_>) -> Result<Row, Disagreement> {
    let name = contender.algorithm.name.to_owned();
    let build = contender.build.as_secs_f64();
    Ok(match &contender.search {
        Ok(search) => Row {
            algorithm: name,
            mlookups: contender.rate(),
            memory: Some(search.memory_bytes() as u64),
            build: Some(build),
            updates: update::rate(contender.algorithm.name, &**search, plan)?.or(Some(1.0 / build.max(1e-9))),
            worst: contender.worst(plan),
            gave_way: None,
            is_picked: false,
            more: json!({}),
        },
        Err(error) => Row {
            algorithm: name,
            mlookups: None,
            memory: None,
            build: Some(build),
            updates: None,
            worst: None,
            gave_way: Some(error.to_string()),
            is_picked: false,
            more: json!({}),
        },
    })
}

/// rte_acl in its better setting.
fn of_peers(peers: &mut [Peer], plan: &Plan<'_>) -> Option<Row> {
    let wide: Vec<Option<f64>> = peers.iter_mut().map(|peer| peer.round_of_avx512(plan)).collect();
    let better = peers
        .iter()
        .filter(|peer| peer.rate().is_some())
        .max_by(|one, other| one.rate().unwrap_or(0.0).total_cmp(&other.rate().unwrap_or(0.0)))?;
    let settings: Vec<Value> = peers
        .iter()
        .zip(wide)
        .map(|(peer, wide)| {
            let [small, large] = peer.rates().unwrap_or_default();
            json!({
                "setting": peer.setting,
                "mlookups_64": small,
                "mlookups_1024": large,
                "mlookups_avx512": wide,
                "memory_bytes": peer.memory,
                "build_seconds": peer.build,
            })
        })
        .collect();
    Some(Row {
        algorithm: RTE_ACL.to_owned(),
        mlookups: better.rate(),
        memory: Some(better.memory),
        build: Some(better.build),
        updates: Some(1.0 / better.build.max(1e-9)),
        worst: None,
        gave_way: None,
        is_picked: false,
        more: json!({ "setting": better.setting, "settings": settings }),
    })
}

impl Row {
    /// rte_acl, where it could not be built.
    fn that_gave_way(why: String) -> Row {
        Row {
            algorithm: RTE_ACL.to_owned(),
            mlookups: None,
            memory: None,
            build: None,
            updates: None,
            worst: None,
            gave_way: Some(why),
            is_picked: false,
            more: json!({}),
        }
    }

    fn json(&self, rules: usize) -> Value {
        let mut object = json!({
            "algorithm": self.algorithm,
            "rules": rules,
            "mlookups": self.mlookups,
            "memory_bytes": self.memory,
            "build_seconds": self.build,
            "updates_per_second": self.updates,
            "worst_ns": self.worst.map(|worst| worst.nanos),
            "worst_instructions": self.worst.map(|worst| worst.instructions),
            "worst_references": self.worst.map(|worst| worst.references),
            "gave_way": self.gave_way,
            "picked": self.is_picked,
        });
        if let (Some(object), Some(more)) = (object.as_object_mut(), self.more.as_object()) {
            object.extend(more.clone());
        }
        object
    }

    fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        let name = &self.algorithm;
        if let Some(why) = &self.gave_way {
            return writeln!(out, "{name:<18} gave way: {why}");
        }
        let line = |name: &str, rate: f64, memory: u64, build: f64| {
            let memory = memory as f64 / f64::from(1 << 20);
            let digits = if rate < 1.0 { 4 } else { 2 };
            format!("{name:<18} {rate:>12.digits$} {memory:>10.2} {build:>10.4}")
        };
        for setting in self.more["settings"].as_array().into_iter().flatten() {
            let number = |key: &str| setting[key].as_f64().unwrap_or(0.0);
            let name = format!("{name}, {}", setting["setting"].as_str().unwrap_or_default());
            let rate = number("mlookups_64").max(number("mlookups_1024"));
            let memory = setting["memory_bytes"].as_u64().unwrap_or(0);
            let build = number("build_seconds");
            writeln!(out, "{} {:>12.0}", line(&name, rate, memory, build), 1.0 / build.max(1e-9))?;
        }
        if let Some(worst) = self.worst {
            let (rate, memory) = (self.mlookups.unwrap_or(0.0), self.memory.unwrap_or(0));
            writeln!(
                out,
                "{} {:>12.0} {:>10.0} {:>12}",
                line(name, rate, memory, self.build.unwrap_or(0.0)),
                self.updates.unwrap_or(0.0),
                worst.nanos,
                worst.instructions,
            )?;
        }
        Ok(())
    }
}
