use std::io::Write;

use super::{check, load};
use crate::diagnostic::Code;

#[test]
fn a_file_that_is_not_there_is_an_error_that_names_it() {
    let error = load("/nonexistent/policy.toml".as_ref()).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/policy.toml"), "{error}");
}

#[test]
fn bytes_that_are_not_utf8_are_a_diagnostic() {
    let path = std::env::temp_dir().join(format!("wirerate-not-utf8-{}.toml", std::process::id()));
    std::fs::File::create(&path).unwrap().write_all(b"mode = \"stateful\"\n\xff").unwrap();
    let checked = load(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(checked.policy.is_none());
    assert_eq!(checked.diagnostics[0].code, Code::NotUtf8);
    assert!(checked.diagnostics[0].message.contains("byte 18, on line 2"), "{}", checked.diagnostics[0]);
}

#[test]
fn a_text_past_the_bound_is_a_diagnostic() {
    let checked = check(&" ".repeat((64 << 20) + 1), "p.toml");
    assert_eq!(checked.diagnostics[0].code, Code::TooLarge);
    assert!(check(&" ".repeat(1 << 20), "p.toml").policy.is_some());
}

#[test]
fn a_file_without_end_is_not_read_to_its_end() {
    if std::path::Path::new("/dev/zero").exists() {
        assert_eq!(load("/dev/zero".as_ref()).unwrap().diagnostics[0].code, Code::TooLarge);
    }
}
