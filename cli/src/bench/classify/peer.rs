//! DPDK's rte_acl as a contender: a program of its own (bench/peers/acl.c), which builds from the same rules and is
//! asked for a round whenever it is its turn.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use dataplane::classify::Header;
use serde_json::Value;
use wire::Family;

use super::{Answers, Disagreement, Plan, median, subject};

/// The environment variable with the program's path.
pub(crate) const VARIABLE: &str = "WIRERATE_RTE_ACL";

/// What the program is called on the PATH.
pub(crate) const PROGRAM: &str = "wirerate-rte-acl";

/// rte_acl's build parameter: nothing, and what allows the fewest and largest tries.
const SETTINGS: [(&str, &str); 2] = [("default", "0"), ("large", "1073741824")];

/// The program, built and waiting for its turns, with one of the settings.
pub(crate) struct Peer {
    /// `default`, or `large` for a large `max_size`.
    pub(crate) setting: &'static str,
    /// Seconds to build.
    pub(crate) build: f64,
    /// Bytes that it takes.
    pub(crate) memory: u64,
    /// What its answers come to.
    pub(crate) answers: Answers,
    /// Millions of look-ups a second, of each round: 64 at a time and 1,024 at a time.
    rounds: [Vec<f64>; 2],
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

/// Files that the program reads; they are gone when this is.
struct Files {
    directory: PathBuf,
}

/// Builds rte_acl in each setting that takes no longer than `patience`, and holds it to `answers`. Why one is not
/// there goes to `note`.
pub(crate) fn start(
    plan: &Plan<'_>,
    answers: Option<Answers>,
    patience: Duration,
    note: &mut dyn FnMut(String),
) -> Result<Vec<Peer>, Disagreement> {
    let mut peers = Vec::new();
    let Some(program) = program() else {
        note(format!(
            "rte_acl is left out: neither {VARIABLE} nor {PROGRAM} on the PATH names the program that `make -C bench/peers` builds"
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
                peers.push(peer);
            }
            Err(why) => note(format!("rte_acl, {setting} setting, is left out: {why}")),
        }
    }
    Ok(peers)
}

/// Where the program is.
fn program() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return Some(path.into());
    }
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths).map(|path| path.join(PROGRAM)).find(|path| path.is_file())
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
        let trace: String = plan.headers.iter().map(|header| subject::line(header, 0) + "\n").collect();
        let directory = std::env::temp_dir().join(format!("wirerate-acl-{}", std::process::id()));
        let files = Files { directory };
        let written = fs::create_dir_all(&files.directory)
            .and_then(|()| fs::write(files.rules(), rules))
            .and_then(|()| fs::write(files.trace(), trace));
        written.map(|()| files).map_err(|error| format!("its input cannot be written: {error}"))
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

/// Huge pages that rte_acl needs to have its memory from them, each 2 MiB.
const HUGE_PAGES: u64 = 900;

/// What DPDK is told: no devices; memory from huge pages where enough are free.
fn eal() -> Vec<String> {
    let free = fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    let is_huge =
        free.ok().and_then(|text| text.trim().parse().ok()).is_some_and(|free: u64| free >= HUGE_PAGES);
    let memory: &[&str] =
        if is_huge { &["--in-memory"] } else { &["--no-huge", "--no-shconf", "-m", "6000"] };
    let rest = ["--no-pci", "--no-telemetry", "--log-level=error", "--force-max-simd-bitwidth=512"];
    // On the core that this program may run on, where that is one; else on the first of them.
    let core = fs::read_to_string("/proc/self/status").ok().and_then(|status| {
        let cores = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        cores.trim().split([',', '-']).next().map(str::to_owned)
    });
    let lcores = core.map(|core| vec!["--lcores".to_owned(), format!("0@{core}")]).unwrap_or_default();
    lcores.into_iter().chain(rest.iter().chain(memory).map(|word| (*word).to_owned())).collect()
}

impl Peer {
    fn start(
        program: &Path,
        files: &Files,
        (setting, max_size): (&'static str, &str),
        patience: Duration,
    ) -> Result<Peer, String> {
        let mut child = Command::new(program)
            .args(eal())
            .arg("--")
            .args([files.rules(), files.trace()])
            .arg(max_size)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{} cannot be run: {error}", program.display()))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("it has no input or output".to_owned());
        };
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // DPDK talks, too.
                if line.starts_with('{') && sender.send(line).is_err() {
                    return;
                }
            }
        });
        let answers = Answers { matches: 0, checksum: 0 };
        let rounds = [Vec::new(), Vec::new()];
        let mut peer = Peer { setting, build: 0.0, memory: 0, answers, rounds, child, input, lines };
        let built = peer.answer(patience).ok_or_else(|| match peer.child.try_wait() {
            Ok(None) => format!("it is not built within {} s", patience.as_secs()),
            _ => "it ended; run it by itself to see why".to_owned(),
        })?;
        peer.build = built["build_seconds"].as_f64().unwrap_or(0.0);
        peer.memory = built["memory_bytes"].as_u64().unwrap_or(0);
        peer.answers = Answers {
            matches: built["matches"].as_u64().unwrap_or(0),
            checksum: built["checksum"].as_u64().unwrap_or(0),
        };
        Ok(peer)
    }

    fn answer(&mut self, patience: Duration) -> Option<Value> {
        serde_json::from_str(&self.lines.recv_timeout(patience).ok()?).ok()
    }

    /// Measures a round, with AVX2.
    pub(crate) fn round(&mut self) {
        if let Some(found) = self.ask("avx2") {
            for (rounds, rate) in self.rounds.iter_mut().zip(found) {
                rounds.push(rate);
            }
        }
    }

    /// Millions of look-ups a second of one round with the implementation of that name, 64 and 1,024 at a time.
    pub(crate) fn ask(&mut self, implementation: &str) -> Option<[f64; 2]> {
        writeln!(self.input, "{implementation}").and_then(|()| self.input.flush()).ok()?;
        let found = self.answer(Duration::from_secs(30))?;
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

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
