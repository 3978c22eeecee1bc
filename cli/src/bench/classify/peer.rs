//! DPDK's rte_acl as a contender: a program of its own (bench/peers/acl.c), which builds from the same rules and is
//! asked for a round whenever it is its turn.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lookup::classify::Header;
use wire::Family;

use crate::bench::peer::{self, Memory, Process};

use super::{Answers, Disagreement, Plan, ROUNDS, median, subject, trace};

/// The environment variable with the program's path.
pub(crate) const VARIABLE: &str = "WIRERATE_RTE_ACL";

/// Name of the program on the PATH.
pub(crate) const PROGRAM: &str = "wirerate-rte-acl";

/// rte_acl's build parameter: nothing, and what allows the fewest and largest tries.
const SETTINGS: [(&str, &str); 2] = [("default", "0"), ("large", "1073741824")];

/// The program, built and waiting for its turns, with one of the settings.
pub(crate) struct Peer {
    /// `default`, or `large` for a large `max_size`.
    pub(crate) setting: &'static str,
    /// Seconds to build.
    pub(crate) build: f64,
    /// Memory of the tries, in bytes.
    pub(crate) memory: u64,
    /// Summary of its answers.
    pub(crate) answers: Answers,
    /// Millions of look-ups a second, of each round: 64 and 1,024 at a time.
    rounds: [Vec<f64>; 2],
    process: Process,
}

/// Files that the program reads; they are gone when this is.
struct Files {
    directory: PathBuf,
}

/// rte_acl in the settings that could be had.
#[derive(Default)]
pub(crate) struct Peers {
    /// One for each setting.
    pub(crate) built: Vec<Peer>,
    /// Reason that rte_acl could not be built in any setting, though it was required.
    pub(crate) gave_way: Option<String>,
}

/// Builds rte_acl in each setting that takes no longer than `patience`, and holds it to `answers`. Why it is not
/// there goes to `note`.
pub(crate) fn start(
    plan: &Plan<'_>,
    answers: Option<Answers>,
    patience: Duration,
    note: &mut dyn FnMut(String),
) -> Result<Peers, Disagreement> {
    let mut peers = Peers::default();
    let Some(program) = peer::program(VARIABLE, PROGRAM, "acl") else {
        note(format!(
            "rte_acl is left out: neither {VARIABLE} nor {PROGRAM} on the PATH is its program, and `make -C bench/peers \
             build/acl`, where this was built, makes none: it needs DPDK (Debian: libdpdk-dev pkg-config)"
        ));
        return Ok(peers);
    };
    let files = match Files::write(plan) {
        Ok(files) => files,
        Err(why) => {
            note(format!("rte_acl is left out: {why}"));
            return Ok(peers);
        }
    };
    for (setting, max_size) in SETTINGS {
        match Peer::start(&program, &files, (setting, max_size), patience) {
            Ok(peer) => {
                if answers.is_some_and(|answers| answers != peer.answers) {
                    return Err(Disagreement {
                        name: "rte_acl".to_owned(),
                        header: None,
                        found: None,
                        wanted: None,
                    });
                }
                peers.built.push(peer);
            }
            Err(why) => {
                note(format!("rte_acl, {setting} setting, is left out: {why}"));
                peers.gave_way = Some(why);
            }
        }
    }
    if !peers.built.is_empty() {
        peers.gave_way = None;
    }
    Ok(peers)
}

impl Files {
    fn write(plan: &Plan<'_>) -> Result<Files, String> {
        let is_other = |header: &Header| header.family != Family::V4;
        if plan.headers.iter().any(is_other) {
            return Err("the trace is not IPv4 alone".to_owned());
        }
        let mut rules = String::new();
        for (position, pattern) in plan.patterns.iter().enumerate() {
            subject::filters(pattern, position, &mut rules)
                .map_err(|unlike| format!("it is not given {unlike}, as rule {} has", position + 1))?;
        }
        let trace: String = plan.headers.iter().map(|header| trace::line(header, 0) + "\n").collect();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let directory = std::env::temp_dir().join(format!("wirerate-acl-{}-{now}", std::process::id()));
        let failed = |error| format!("its input cannot be written: {error}");
        // A directory of that name that is there already is somebody else's.
        fs::create_dir(&directory).map_err(failed)?;
        let files = Files { directory };
        fs::write(files.rules(), rules).and_then(|()| fs::write(files.trace(), trace)).map_err(failed)?;
        Ok(files)
    }

    fn rules(&self) -> PathBuf {
        self.directory.join("rules")
    }

    fn trace(&self) -> PathBuf {
        self.directory.join("trace")
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Memory that rte_acl needs.
const MEMORY: Memory = Memory { huge_pages: 900, most_mebibytes: 6_000 };

impl Peer {
    fn start(
        program: &Path,
        files: &Files,
        (setting, max_size): (&'static str, &str),
        patience: Duration,
    ) -> Result<Peer, String> {
        let (rules, trace) = (files.rules(), files.trace());
        let process =
            Process::start(program, MEMORY, &[rules.as_os_str(), trace.as_os_str(), max_size.as_ref()])?;
        let answers = Answers { matches: 0, checksum: 0 };
        let rounds = [Vec::new(), Vec::new()];
        let mut peer = Peer { setting, build: 0.0, memory: 0, answers, rounds, process };
        let built = peer.process.answer(patience).ok_or_else(|| match peer.process.is_running() {
            true => format!("it is not built within {} s", patience.as_secs()),
            false => "it ended; run it by itself to see why".to_owned(),
        })?;
        peer.build = built["build_seconds"].as_f64().unwrap_or(0.0);
        peer.memory = built["memory_bytes"].as_u64().unwrap_or(0);
        peer.answers = Answers {
            matches: built["matches"].as_u64().unwrap_or(0),
            checksum: built["checksum"].as_u64().unwrap_or(0),
        };
        Ok(peer)
    }

    /// Measures a round, with AVX2.
    pub(crate) fn round(&mut self, plan: &Plan<'_>) {
        if let Some(found) = self.ask("avx2", plan) {
            for (rounds, rate) in self.rounds.iter_mut().zip(found) {
                rounds.push(rate);
            }
        }
    }

    /// Measures a round with AVX-512; `None` where it cannot be had.
    pub(crate) fn round_of_avx512(&mut self, plan: &Plan<'_>) -> Option<f64> {
        let widest = self.ask("avx512x32", plan).or_else(|| self.ask("avx512x16", plan));
        widest.map(|[small, large]| small.max(large))
    }

    /// Millions of look-ups a second of one round with the implementation of that name, 64 and 1,024 at a time.
    fn ask(&mut self, implementation: &str, plan: &Plan<'_>) -> Option<[f64; 2]> {
        let time = (plan.time / ROUNDS).as_secs_f64();
        self.process.ask(&format!("{implementation} {time}"))?;
        let found = self.process.answer(2 * plan.time + Duration::from_secs(30))?;
        Some([found["mlookups_64"].as_f64()?, found["mlookups_1024"].as_f64()?])
    }

    /// Millions of look-ups a second: medians of the rounds, 64 and 1,024 at a time.
    pub(crate) fn rates(&self) -> Option<[f64; 2]> {
        Some([median(&self.rounds[0])?, median(&self.rounds[1])?])
    }

    /// The better of [`Peer::rates`].
    pub(crate) fn rate(&self) -> Option<f64> {
        self.rates().map(|[small, large]| small.max(large))
    }
}
