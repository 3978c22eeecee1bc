//! Network namespace per test: the test's binary runs the test once more, in a new namespace.

use std::io::Write;
use std::process::{Command, Stdio};

/// Environment variable set for a test already in its own namespace.
const INSIDE: &str = "WIRERATE_TEST_NETNS";

/// Runs `test`, the test function of that name, in a namespace of its own; without privileges, reports that it was
/// skipped.
pub(crate) fn within(name: &str, test: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        test();
        return;
    }
    let able = Command::new("unshare").args(["-n", "ip", "link"]).stdout(Stdio::null()).status();
    if !able.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: {name}: needs root, and unshare and ip (Debian: util-linux, iproute2)");
        return;
    }
    let own = std::env::current_exe().expect("a test has a file");
    let output = Command::new("unshare")
        .arg("-n")
        .arg(own)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .output()
        .expect("unshare ran a moment ago");
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let ran = said[0].contains("1 passed");
    assert!(output.status.success() && ran, "in its namespace:\n{}\n{}", said[0], said[1]);
    eprint!("{}", said[1]);
}

/// Runs `ip` with these arguments, and returns its output.
pub(crate) fn ip(words: &str) -> String {
    ip_may_fail(words).unwrap_or_else(|error| panic!("ip {words}: {error}"))
}

/// Runs `ip` with these arguments, and returns its output or its error message.
pub(crate) fn ip_may_fail(words: &str) -> Result<String, String> {
    let output = Command::new("ip").args(words.split_whitespace()).output().expect("ip");
    let text = |bytes| String::from_utf8(bytes).expect("ip prints UTF-8");
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// Returns the output of `ip -j`, parsed.
pub(crate) fn ip_json(words: &str) -> Vec<serde_json::Value> {
    let text = ip(&format!("-j {words}"));
    if text.trim().is_empty() { Vec::new() } else { serde_json::from_str(&text).expect("ip -j prints JSON") }
}

/// Runs many commands of `ip` in one batch.
pub(crate) fn ip_batch(commands: &str) {
    let mut child = Command::new("ip")
        .args(["-force", "-batch", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ip");
    child.stdin.take().expect("a pipe").write_all(commands.as_bytes()).expect("ip reads");
    let output = child.wait_with_output().expect("ip ends");
    assert!(output.status.success(), "ip -batch: {}", String::from_utf8_lossy(&output.stderr));
}
