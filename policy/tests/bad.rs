//! Bad policies as data: `tests/bad/*.toml`, each with its expected diagnostics at the end, as
//! `# expect: code line:column`, or `# expect: code` for one without a position.

use std::collections::BTreeSet;
use std::path::PathBuf;

use policy::{Code, Diagnostic, load};

/// Codes tested elsewhere: of files too long to keep, in unit tests of `parse` and `check`; of the data plane's analysis, in
/// tests of the command.
const NOT_HERE: [Code; 7] = [
    Code::Common(config::Code::TooLarge),
    Code::Common(config::Code::TooManyDiagnostics),
    Code::ShadowedRule,
    Code::RedundantRule,
    Code::OverlappingRules,
    Code::EmptyClass,
    Code::EmptyQueue,
];

fn cases() -> Vec<PathBuf> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/bad");
    let mut cases: Vec<PathBuf> =
        std::fs::read_dir(dir).expect("tests/bad").map(|entry| entry.expect("an entry").path()).collect();
    cases.sort();
    cases
}

fn found(diagnostic: &Diagnostic) -> String {
    match &diagnostic.place {
        Some(place) => format!("{} {}:{}", diagnostic.code, place.line(), place.column()),
        None => diagnostic.code.to_string(),
    }
}

#[test]
fn bad_policies_are_told_what_is_wrong_and_where() {
    let mut wrong = Vec::new();
    for path in cases() {
        let bytes = std::fs::read(&path).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let expected: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# expect: ")).collect();
        let checked = load(&path).unwrap();
        let found: Vec<String> = checked.diagnostics.iter().map(found).collect();
        if found != expected {
            let list: Vec<String> = checked
                .diagnostics
                .iter()
                .zip(&found)
                .map(|(diagnostic, found)| {
                    format!(
                        "# expect: {found}\n    {diagnostic}\n    {}",
                        diagnostic.hint.as_deref().unwrap_or("-")
                    )
                })
                .collect();
            wrong.push(format!("{}: expected {expected:#?}, found\n{}", path.display(), list.join("\n")));
        }
        assert_eq!(checked.policy.is_none(), checked.errors().next().is_some(), "{}", path.display());
        for diagnostic in &checked.diagnostics {
            assert!(diagnostic.hint.is_some(), "{}: {diagnostic} has no hint", path.display());
            assert!(!diagnostic.message.ends_with('.'), "{diagnostic}");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn every_code_has_a_case() {
    let seen: BTreeSet<Code> = cases()
        .iter()
        .flat_map(|path| load(path).unwrap().diagnostics)
        .map(|diagnostic| diagnostic.code)
        .collect();
    let common = config::Code::ALL.iter().map(|(code, name)| (Code::Common(*code), *name));
    let missing: Vec<&str> = common
        .chain(Code::ALL.iter().map(|(code, name, _)| (*code, *name)))
        .filter(|(code, _)| !seen.contains(code) && !NOT_HERE.contains(code))
        .map(|(_, name)| name)
        .collect();
    assert!(missing.is_empty(), "no bad policy shows {missing:?}");
}
