//! Any text as a case file, read and played.
//!
//! Beyond not crashing: a case has faults, or a policy to play with; every frame has one fate, and all hosts do the
//! same. The modelled chips are hosts by the command's own source.
#![no_main]

#[path = "../../cli/src/command/test/chip.rs"]
mod on_chip;

use std::io;
use std::path::Path;

use cases::Unusable;
use libfuzzer_sys::fuzz_target;

/// More packets than this, or larger tables, take longer and show nothing more.
const PACKETS: u64 = 500;
const FLOWS: u32 = 256;

/// Beginnings of failures that are faults of the program, not of the case.
const OWN_FAULTS: [&str; 3] = ["host `", "frames are not conserved", "the packet has two fates"];

fuzz_target!(|text: &str| {
    let mut case = match cases::read(text, Path::new("fuzz.case"), open) {
        Ok(case) => case,
        Err(Unusable::Faults(faults)) => {
            assert!(!faults.is_empty(), "neither a case nor a fault");
            for fault in faults {
                assert!(fault.line <= text.lines().count().max(1));
                let _ = fault.to_string();
            }
            return;
        }
        Err(Unusable::Policy(diagnostics)) => {
            assert!(diagnostics.iter().any(policy::Diagnostic::is_error));
            return;
        }
    };
    assert!(!case.title.contains('\n'), "a title is one line");
    if case.packets > PACKETS {
        return;
    }
    let limits = &mut case.policy.limits;
    limits.flows = limits.flows.min(FLOWS);
    limits.queue = limits.queue.min(2_048);
    limits.fragments.datagrams = limits.fragments.datagrams.min(FLOWS);
    limits.fragments.held = limits.fragments.held.min(FLOWS);
    match cases::play(&case, on_chip::HOSTS) {
        Ok(failures) => {
            for failure in failures {
                let told = failure.text.join("\n");
                assert!(!OWN_FAULTS.iter().any(|own| told.starts_with(own)), "line {}: {told}", failure.line);
            }
        }
        Err(error) => drop(error.to_string()),
    }
});

/// Opens no file: any name stands for the policy that most of the project's cases begin with.
fn open(_: &Path) -> io::Result<String> {
    Ok(include_str!("../../tests/cases/edge.toml").to_owned())
}
