//! scapy's end of a security association: `scapy_peer.py`, asked line by line.
#![allow(clippy::unwrap_used)]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Debian's own Python, for which Debian's scapy is installed.
const PYTHON: &str = "/usr/bin/python3";

/// Programs that the peer needs, for a test that is skipped without it.
pub(crate) const NEEDS: &str =
    "/usr/bin/python3 with scapy and cryptography (Debian: python3-scapy, python3-cryptography)";

/// True if scapy and its ciphers are installed.
pub(crate) fn is_there() -> bool {
    let mut command = Command::new(PYTHON);
    command.args(["-c", "import scapy.layers.ipsec, cryptography"]).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Answers of the peer, one to each line. `crate_esp` is the directory of this crate.
pub(crate) fn ask(crate_esp: &Path, lines: String) -> Vec<String> {
    let mut peer = Command::new(PYTHON)
        .arg(crate_esp.join("tests/scapy_peer.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut stdin = peer.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = peer.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}
