//! `wirerate bench classify`: every way to search rules, side by side.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use dataplane::classify::generate::{self, Locality};
use dataplane::classify::{ALGORITHMS, Algorithm, Bounds, choose};
use serde_json::{Value, json};

use crate::bench::classify::peer::{self, Peer};
use crate::bench::classify::{Answers, Contender, Plan, ROUNDS, Worst, scan, subject};
use crate::failure::Failure;
use crate::{screen, with_exit_codes};

/// Look-ups in rules by every algorithm that there is, 64 headers at a time.
#[derive(Args, Debug)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate bench classify acl1.rules
  wirerate bench classify policies/isp-edge.toml --algorithm linear"))]
pub(super) struct Classify {
    /// The rules: a ClassBench filter set, or a policy (TOML).
    rules: PathBuf,
    /// Headers to look up, as `wirerate generate trace` writes them.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Only this algorithm; may be given several times.
    #[arg(long, value_name = "NAME", value_parser = named)]
    algorithm: Vec<&'static Algorithm>,
    /// What the headers follow from, without --trace.
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "trace")]
    seed: u64,
    /// How many headers, without --trace.
    #[arg(long, value_name = "N", default_value_t = 65_536, conflicts_with = "trace",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    headers: u32,
    /// How long each is measured.
    #[arg(long, value_name = "S", default_value_t = 0.5, value_parser = seconds)]
    seconds: f64,
    /// The memory that each may take, while it is built, too.
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    memory: u32,
    /// How long rte_acl may take to be built in each of its settings.
    #[arg(long, value_name = "S", default_value_t = 20.0, value_parser = seconds)]
    patience: f64,
    /// Print an array of `{algorithm, rules, mlookups, memory_bytes, build_seconds, updates_per_second, ...}`.
    #[arg(long)]
    json: bool,
}

fn named(name: &str) -> Result<&'static Algorithm, String> {
    Algorithm::named(name).ok_or_else(|| {
        let known: Vec<_> = ALGORITHMS.iter().map(|algorithm| algorithm.name).collect();
        format!("there are {}", known.join(", "))
    })
}

fn seconds(word: &str) -> Result<f64, String> {
    let value: f64 = word.parse().map_err(|_| "not a number".to_owned())?;
    if (0.01..=3_600.0).contains(&value) { Ok(value) } else { Err("from 0.01 to 3600".to_owned()) }
}

/// What is said of one of them.
struct Row {
    algorithm: String,
    mlookups: Option<f64>,
    memory: Option<u64>,
    build: f64,
    updates: Option<f64>,
    worst: Option<Worst>,
    gave_way: Option<String>,
    more: Value,
}

impl Classify {
    pub(super) fn run(self) -> Result<(), Failure> {
        let patterns = subject::rules(&self.rules)?;
        let headers = match &self.trace {
            Some(path) => subject::trace(path)?,
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
        let all: Vec<&'static Algorithm> =
            if self.algorithm.is_empty() { ALGORITHMS.iter().collect() } else { self.algorithm.clone() };
        let scanned = scan(&plan);
        let mut answers: Option<Answers> = None;
        let mut contenders = Vec::with_capacity(all.len());
        for algorithm in all {
            eprintln!("{}: building", algorithm.name);
            let contender = Contender::new(algorithm, &plan);
            let found = contender.check(&plan, &scanned).map_err(Failure::Disagree)?;
            answers = answers.or(found);
            contenders.push(contender);
        }
        let mut peers = Vec::new();
        if self.algorithm.is_empty() {
            let mut note = |what: String| screen::note(&what);
            peers = peer::start(&plan, answers, Duration::from_secs_f64(self.patience), &mut note)
                .map_err(Failure::Disagree)?;
        }
        for round in 1..=ROUNDS {
            eprintln!("round {round} of {ROUNDS}");
            contenders.iter_mut().for_each(|contender| contender.round(&plan));
            peers.iter_mut().for_each(Peer::round);
        }
        let mut rows: Vec<Row> = contenders.iter().map(|contender| row(contender, &plan)).collect();
        rows.extend(of_peers(&peers));
        let picked = choose(None, &patterns, plan.bounds).algorithm.name;
        if self.json {
            let rows: Vec<Value> = rows.iter().map(|row| row.json(patterns.len())).collect();
            writeln!(screen::out(), "{}", Value::from(rows))?;
        } else {
            let mut out = screen::out();
            writeln!(
                out,
                "{:<18} {:>12} {:>10} {:>10} {:>12} {:>10} {:>12}",
                "algorithm", "M look-ups/s", "MiB", "build, s", "updates/s", "worst, ns", "worst instr"
            )?;
            for row in &rows {
                row.print(&mut out)?;
            }
            writeln!(out, "of {} rules the policy compiler picks {picked}", patterns.len())?;
        }
        Ok(())
    }
}

fn row(contender: &Contender, plan: &Plan<'_>) -> Row {
    let name = contender.algorithm.name.to_owned();
    let build = contender.build.as_secs_f64();
    match &contender.search {
        Ok(search) => Row {
            algorithm: name,
            mlookups: contender.rate(),
            memory: Some(search.memory_bytes() as u64),
            build,
            updates: Some(1.0 / build.max(1e-9)),
            worst: contender.worst(plan),
            gave_way: None,
            more: json!({}),
        },
        Err(error) => Row {
            algorithm: name,
            mlookups: None,
            memory: None,
            build,
            updates: None,
            worst: None,
            gave_way: Some(error.to_string()),
            more: json!({}),
        },
    }
}

/// rte_acl in its better setting.
fn of_peers(peers: &[Peer]) -> Option<Row> {
    let better = peers
        .iter()
        .filter(|peer| peer.rate().is_some())
        .max_by(|one, other| one.rate().unwrap_or(0.0).total_cmp(&other.rate().unwrap_or(0.0)))?;
    let settings: Vec<Value> = peers
        .iter()
        .map(|peer| {
            let [small, large] = peer.rates().unwrap_or_default();
            json!({
                "setting": peer.setting,
                "mlookups_64": small,
                "mlookups_1024": large,
                "memory_bytes": peer.memory,
                "build_seconds": peer.build,
            })
        })
        .collect();
    Some(Row {
        algorithm: "rte_acl".to_owned(),
        mlookups: better.rate(),
        memory: Some(better.memory),
        build: better.build,
        updates: Some(1.0 / better.build.max(1e-9)),
        worst: None,
        gave_way: None,
        more: json!({ "setting": better.setting, "settings": settings }),
    })
}

impl Row {
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
        });
        if let (Some(object), Some(more)) = (object.as_object_mut(), self.more.as_object()) {
            object.extend(more.clone());
        }
        object
    }

    fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        if let Some(why) = &self.gave_way {
            return writeln!(out, "{:<18} gave way: {why}", self.algorithm);
        }
        let worst = self.worst.unwrap_or_default();
        writeln!(
            out,
            "{:<18} {:>12.2} {:>10.2} {:>10.4} {:>12.0} {:>10.0} {:>12}",
            self.algorithm,
            self.mlookups.unwrap_or(0.0),
            self.memory.unwrap_or(0) as f64 / f64::from(1 << 20),
            self.build,
            self.updates.unwrap_or(0.0),
            worst.nanos,
            worst.instructions,
        )
    }
}
