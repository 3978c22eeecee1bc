//! Example policies of the project: valid, without a warning, and printed unchanged.

use std::path::Path;

use policy::{load, parse};

#[test]
fn the_examples_are_right_without_a_warning() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../policies");
    let mut count = 0;
    for entry in std::fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        count += 1;
        let checked = load(&path).unwrap();
        let wrong: Vec<String> = checked
            .diagnostics
            .iter()
            .map(|wrong| format!("{}: {wrong} ({})", wrong.place.as_ref().unwrap(), wrong.code))
            .collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        let policy = checked.policy.unwrap();
        assert_eq!(
            parse(&policy.to_string(), "printed").policy.as_ref(),
            Some(&policy),
            "{}",
            path.display()
        );
    }
    assert!(count >= 3, "the examples are in {}", dir.display());
}
