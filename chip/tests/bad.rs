//! Bad chips and mappings as data: `tests/bad/{chip,mapping}/*.toml`, each with its expected diagnostics at the end, as
//! `# expect: code line:column`, or `# expect: code` where there is no position.
//!
//! A mapping is read for the chip "tetra", or for the one that it names. Lines `# size: region bytes` and
//! `# program: name instructions` stand for the demands of a policy.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use chip::description::{self, Chip};
use chip::diagnostic::{Code, Diagnostic};
use chip::mapping::{self, Extent, Program};
use tally::Region;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn cases(kind: &str) -> Vec<PathBuf> {
    let dir = root().join("tests/bad").join(kind);
    let mut cases: Vec<PathBuf> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    cases
}

fn shipped(name: &str) -> Chip {
    description::load(&root().join(format!("../chips/{name}.toml"))).unwrap().chip.unwrap()
}

/// The lines `# key: word number`.
fn numbers<'t>(text: &'t str, key: &str) -> Vec<(&'t str, u64)> {
    let lines =
        text.lines().filter_map(|line| line.strip_prefix("# ")?.strip_prefix(key)?.strip_prefix(": "));
    lines
        .map(|line| line.split_once(' ').unwrap())
        .map(|(word, number)| (word, number.parse().unwrap()))
        .collect()
}

/// Returns the diagnostics of a bad file, and true if a chip or a mapping was made of it.
fn said(kind: &str, path: &Path) -> (Vec<Diagnostic>, bool) {
    if kind == "chip" {
        let checked = description::load(path).unwrap();
        return (checked.diagnostics, checked.chip.is_some());
    }
    let text = std::fs::read_to_string(path).unwrap();
    let named = mapping::chip_of(&text).filter(|_| !path.ends_with("other-chip.toml"));
    let chip = shipped(&named.unwrap_or_else(|| "tetra".to_owned()));
    let checked = mapping::load(path, &chip).unwrap();
    let mut diagnostics = checked.diagnostics;
    if let Some(mapping) = &checked.mapping {
        let extents: Vec<Extent> = numbers(&text, "size")
            .into_iter()
            .map(|(name, bytes)| Extent {
                region: Region::ALL.into_iter().find(|region| region.name() == name).unwrap(),
                bytes,
            })
            .collect();
        let programs: Vec<Program<'_>> = numbers(&text, "program")
            .into_iter()
            .map(|(name, length)| Program { name, instructions: length.try_into().unwrap() })
            .collect();
        diagnostics.extend(mapping::check_fit(&chip, mapping, &checked.lines, &extents, &programs));
        return (diagnostics, false);
    }
    (diagnostics, false)
}

fn found(diagnostic: &Diagnostic) -> String {
    match &diagnostic.place {
        Some(place) => format!("{} {}:{}", diagnostic.code, place.line(), place.column()),
        None => diagnostic.code.to_string(),
    }
}

#[test]
fn bad_chips_and_mappings_are_told_what_is_wrong_and_where() {
    let mut wrong = Vec::new();
    for kind in ["chip", "mapping"] {
        for path in cases(kind) {
            let bytes = std::fs::read(&path).unwrap();
            let text = String::from_utf8_lossy(&bytes);
            let expected: Vec<&str> =
                text.lines().filter_map(|line| line.strip_prefix("# expect: ")).collect();
            let (diagnostics, made) = said(kind, &path);
            let found: Vec<String> = diagnostics.iter().map(found).collect();
            if found != expected {
                let list = diagnostics.iter().zip(&found).map(|(diagnostic, found)| {
                    format!(
                        "# expect: {found}\n    {diagnostic}\n    {}",
                        diagnostic.hint.as_deref().unwrap_or("-")
                    )
                });
                let list: Vec<String> = list.collect();
                wrong.push(format!("{}: expected {expected:#?}, found\n{}", path.display(), list.join("\n")));
            }
            let errors = diagnostics.iter().any(Diagnostic::is_error);
            assert!(!diagnostics.is_empty() && made != errors || kind == "mapping", "{}", path.display());
            for diagnostic in &diagnostics {
                assert!(diagnostic.hint.is_some(), "{}: {diagnostic} has no hint", path.display());
                assert!(!diagnostic.message.ends_with('.'), "{diagnostic}");
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn every_code_has_a_case() {
    let all = ["chip", "mapping"]
        .into_iter()
        .flat_map(|kind| cases(kind).into_iter().map(move |path| (kind, path)));
    let seen: BTreeSet<Code> =
        all.flat_map(|(kind, path)| said(kind, &path).0).map(|diagnostic| diagnostic.code).collect();
    let missing: Vec<&str> = Code::ALL.iter().filter(|row| !seen.contains(&row.0)).map(|row| row.1).collect();
    assert!(missing.is_empty(), "nothing bad shows {missing:?}");
}
