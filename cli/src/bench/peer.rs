//! Peers: programs of bench/peers on DPDK, which are asked for a round whenever it is their turn.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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

/// Returns the arguments of DPDK's EAL: no devices; memory from huge pages where so many are free, else up to so many MiB.
pub(crate) fn eal(huge_pages: u64, most_mebibytes: u64) -> Vec<String> {
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
