//! Peers: programs of bench/peers on DPDK, which are asked for a round whenever it is their turn.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// Directory of the programs' sources when this was built.
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/peers");

/// Returns the path of a program: that of the environment variable, else the one of that name on the PATH, else `target`, which is
/// built first where its source is and can be.
pub(crate) fn program(variable: &str, name: &str, target: &str) -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(variable).filter(|path| !path.is_empty()) {
        return Some(path.into());
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let installed = std::env::split_paths(&paths).map(|path| path.join(name)).find(|path| path.is_file());
    installed.or_else(|| {
        let (source, built) = (Path::new(SOURCE), format!("build/{target}"));
        let quiet = |command: &mut Command| {
            let done = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
            done.is_ok_and(|status| status.success())
        };
        (source.join(format!("{target}.c")).is_file()
            && quiet(Command::new("pkg-config").args(["--exists", "libdpdk"]))
            && quiet(Command::new("make").arg("-C").arg(source).arg(&built)))
        .then(|| source.join(built))
    })
}

/// Memory of a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// Huge pages, each 2 MiB, from which it has its memory where so many are free.
    pub(crate) huge_pages: u64,
    /// Most MiB otherwise.
    pub(crate) most_mebibytes: u64,
}

/// Running peer, which waits for its turns. Killed on drop.
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Process {
    /// Runs a program with these arguments behind those of DPDK.
    ///
    /// # Errors
    /// The program cannot be run.
    pub(crate) fn start(
        program: &Path,
        memory: Memory,
        arguments: &[impl AsRef<OsStr>],
    ) -> Result<Process, String> {
        let mut child = Command::new(program)
            .args(eal(memory))
            .arg("--")
            .args(arguments)
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
        Ok(Process { child, input, lines })
    }

    /// Asks for a round, in a line.
    pub(crate) fn ask(&mut self, line: &str) -> Option<()> {
        writeln!(self.input, "{line}").and_then(|()| self.input.flush()).ok()
    }

    /// Next answer; `None` where none comes within `patience`.
    pub(crate) fn answer(&mut self, patience: Duration) -> Option<Value> {
        serde_json::from_str(&self.lines.recv_timeout(patience).ok()?).ok()
    }

    /// True if the program goes on.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the arguments of DPDK's EAL: no devices; memory from huge pages where so many are free, else up to so many MiB.
fn eal(Memory { huge_pages, most_mebibytes }: Memory) -> Vec<String> {
    let free = fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    let is_huge =
        free.ok().and_then(|text| text.trim().parse().ok()).is_some_and(|free: u64| free >= huge_pages);
    let memory: Vec<String> = if is_huge {
        vec!["--in-memory".to_owned()]
    } else {
        let mebibytes = (free_memory() >> 21).clamp(256, most_mebibytes);
        ["--no-huge", "--no-shconf", "-m"]
            .map(str::to_owned)
            .into_iter()
            .chain([mebibytes.to_string()])
            .collect()
    };
    let rest = ["--no-pci", "--no-telemetry", "--log-level=error", "--force-max-simd-bitwidth=512"];
    // On the core that this program may run on, where that is one; else on the first of them.
    let core = fs::read_to_string("/proc/self/status").ok().and_then(|status| {
        let cores = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        cores.trim().split([',', '-']).next().map(str::to_owned)
    });
    let lcores = core.map(|core| vec!["--lcores".to_owned(), format!("0@{core}")]).unwrap_or_default();
    lcores.into_iter().chain(rest.map(str::to_owned)).chain(memory).collect()
}

/// Bytes of memory that the machine could give; 4 GiB where it does not say.
fn free_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibibytes = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kibibytes.map_or(4 << 30, |kibibytes| kibibytes << 10)
}
