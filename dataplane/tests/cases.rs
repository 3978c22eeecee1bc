//! Plays the project's cases on the replay host, each as a test of its own, named by its path below `tests/cases`:
//! `cargo test -p wirerate-dataplane --test cases nat/` plays those of NAT.
//!
//! A change of a stage that breaks a case thus shows before anything above this crate is built. `wirerate test` plays
//! the same cases on the modelled chips, too.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace is above its crates")
        .join("tests/cases");
    let mut files = Vec::new();
    cases::collect(&directory, &mut files).expect("the project's cases");
    assert!(!files.is_empty(), "no case in {}", directory.display());
    let trial = |file: &Path| {
        let name = file.strip_prefix(&directory).expect("below it").with_extension("").display().to_string();
        let file = file.to_owned();
        Trial::test(name, move || play(&file))
    };
    let trials = files.iter().map(|file| trial(file)).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn play(file: &Path) -> Result<(), Failed> {
    let text = fs::read_to_string(file)?;
    cases::pass(&text, file, |path| fs::read_to_string(path), &[])?;
    Ok(())
}
