//! The floors of the building: a crate of this workspace may use only crates of lower floors.
//!
//! Reads `cargo metadata` and fails on an edge that goes up or sideways (those of dev- and build-dependencies too, but for
//! the few of [`TESTED_FROM_ABOVE`]), on a crate that does not state its floor, and on a floor other than the design's.
//! Each refusal is tried below on made-up workspaces, so that the check is known to be able to fail.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

/// The design's table. A crate that is not listed has no place yet: add it here and in ARCHITECTURE.md.
const FLOORS: &[(&str, u64)] = &[
    ("tally", 0),
    ("config", 0),
    ("ipsecmb", 0),
    ("wire", 1),
    ("ciphers", 1),
    ("lookup", 2),
    ("esp", 2),
    ("policy", 2),
    ("ports", 2),
    ("traffic", 3),
    ("dataplane", 4),
    ("analysis", 5),
    ("cases", 5),
    ("replay", 5),
    ("gateway", 5),
    ("report", 6),
    ("chip", 6),
    ("cli", 7),
    ("python", 7),
];

/// Dev-dependencies that may go up: the crate, and the one above it that its integration tests use.
///
/// An integration test is a crate of its own, above the one that it tests, and may use what else is above that; cargo
/// has no key for its dependencies but `[dev-dependencies]`. Unit tests may not use them: they belong to another build of
/// their crate than that which the crate above uses, so that the same type is two, and `src` must not depend on what is
/// above it. As all tests of a crate wait for its dev-dependencies, each one here is small and needs nothing from
/// outside that the crate does not need itself.
const TESTED_FROM_ABOVE: &[(&str, &str)] = &[
    // A stage's tests are cases.
    ("dataplane", "cases"),
];

#[test]
fn no_crate_uses_one_of_its_own_floor_or_above() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");

    let seen = packages(&metadata).len();
    assert!(seen >= 5, "only {seen} crates found: is this the workspace?");
    let faults = faults(&metadata);
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn only_integration_tests_use_a_crate_above() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace is above its crates");
    for (user, used) in TESTED_FROM_ABOVE {
        let (mut files, path) = (Vec::new(), format!("{used}::"));
        rust_files(&root.join(user).join("src"), &mut files);
        assert!(!files.is_empty(), "{user} has no source");
        for file in files {
            let source = fs::read_to_string(&file).expect("a Rust file is UTF-8");
            assert!(!says(&source, &path), "{} uses {used}, which is above {user}", file.display());
        }
    }
}

/// True if a source names an item of a crate, whose name and `::` are `path`.
fn says(source: &str, path: &str) -> bool {
    let is_name = |character: char| character.is_alphanumeric() || character == '_';
    source.match_indices(path).any(|(at, _)| !source[..at].ends_with(is_name))
}

fn rust_files(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory of the project") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The folder of a package, by which crates are known here: packages have names that are nobody else's.
fn folder(package: &str) -> &str {
    if package == "wirerate" { "cli" } else { package.strip_prefix("wirerate-").unwrap_or(package) }
}

/// Every breach of the rule, as a sentence; none for a sound workspace.
fn faults(metadata: &Value) -> Vec<String> {
    let packages = packages(metadata);
    let mut faults = Vec::new();
    let mut floor_of = BTreeMap::new();
    for package in packages {
        let name = folder(text(package, "name"));
        let stated = package.pointer("/metadata/wirerate/level").and_then(Value::as_u64);
        let designed = FLOORS.iter().find(|(known, _)| *known == name).map(|(_, floor)| *floor);
        match (stated, designed) {
            (None, _) => faults.push(format!("{name} states no level in [package.metadata.wirerate]")),
            (Some(_), None) => faults.push(format!("{name} has no place in the design's table of levels")),
            (Some(stated), Some(designed)) if stated != designed => {
                faults.push(format!("{name} states level {stated}, the design says {designed}"));
            }
            (Some(stated), Some(_)) => {
                floor_of.insert(name, stated);
            }
        }
    }
    for package in packages {
        let user = folder(text(package, "name"));
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let used = folder(text(dependency, "name"));
            let (Some(above), Some(below)) = (floor_of.get(user), floor_of.get(used)) else { continue };
            let kind = dependency["kind"].as_str().unwrap_or("normal");
            let is_for_tests = kind == "dev" && TESTED_FROM_ABOVE.contains(&(user, used));
            if below >= above && !is_for_tests {
                faults.push(format!(
                    "{user} (level {above}) uses {used} (level {below}): only lower levels may be used ({kind} dependency)"
                ));
            }
        }
    }
    faults
}

fn packages(metadata: &Value) -> &[Value] {
    metadata["packages"].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or("")
}

#[test]
fn a_sound_workspace_has_no_fault() {
    let metadata =
        workspace(&[("tally", 0, &[]), ("wire", 1, &["tally", "arrayvec"]), ("policy", 2, &["wire"])]);
    assert_eq!(faults(&metadata), [""; 0]);
}

#[test]
fn an_edge_upward_is_a_fault() {
    let metadata = workspace(&[("wire", 1, &["policy"]), ("policy", 2, &[])]);
    let faults = faults(&metadata);
    assert_eq!(faults.len(), 1);
    assert!(faults[0].starts_with("wire (level 1) uses policy (level 2)"), "{}", faults[0]);
}

#[test]
fn an_edge_sideways_is_a_fault() {
    let metadata = workspace(&[("analysis", 5, &["gateway"]), ("gateway", 5, &[])]);
    let faults = faults(&metadata);
    assert_eq!(faults.len(), 1);
    assert!(faults[0].starts_with("analysis (level 5) uses gateway (level 5)"), "{}", faults[0]);
}

#[test]
fn a_dev_dependency_counts() {
    let mut metadata = workspace(&[("tally", 0, &["wire"]), ("wire", 1, &[])]);
    metadata["packages"][0]["dependencies"][0]["kind"] = json!("dev");
    let faults = faults(&metadata);
    assert_eq!(faults.len(), 1);
    assert!(faults[0].ends_with("(dev dependency)"), "{}", faults[0]);
}

#[test]
fn a_dev_dependency_for_integration_tests_may_go_up() {
    let mut metadata = workspace(&[("dataplane", 4, &["cases"]), ("cases", 5, &["dataplane"])]);
    let kind = |metadata: &mut Value, kind| metadata["packages"][0]["dependencies"][0]["kind"] = kind;
    kind(&mut metadata, json!("dev"));
    assert_eq!(faults(&metadata), [""; 0]);
    for other in [Value::Null, json!("build")] {
        kind(&mut metadata, other);
        assert_eq!(faults(&metadata).len(), 1, "{metadata}");
    }
}

#[test]
fn a_crate_is_named_by_a_path() {
    assert!(says("use cases::play;", "cases::") && says("fn f() { ::cases::play() }", "cases::"));
    assert!(!says("use policy::many_cases::Case;", "cases::") && !says("let cases: Vec<u8>;", "cases::"));
}

#[test]
fn a_crate_without_a_level_is_a_fault() {
    let mut metadata = workspace(&[("tally", 0, &[])]);
    metadata["packages"][0]["metadata"] = Value::Null;
    assert_eq!(faults(&metadata), ["tally states no level in [package.metadata.wirerate]"]);
}

#[test]
fn a_level_other_than_the_designs_is_a_fault() {
    let metadata = workspace(&[("policy", 3, &[]), ("dashboard", 4, &[])]);
    assert_eq!(
        faults(&metadata),
        [
            "policy states level 3, the design says 2",
            "dashboard has no place in the design's table of levels"
        ]
    );
}

/// Returns the output of `cargo metadata` for crates of these names, levels and dependencies, as far as it is read here.
fn workspace(crates: &[(&str, u64, &[&str])]) -> Value {
    let package = |&(name, level, uses): &(&str, u64, &[&str])| {
        let dependencies: Vec<Value> =
            uses.iter().map(|used| json!({ "name": used, "kind": null })).collect();
        json!({ "name": name, "metadata": { "wirerate": { "level": level } }, "dependencies": dependencies })
    };
    json!({ "packages": crates.iter().map(package).collect::<Vec<_>>() })
}
