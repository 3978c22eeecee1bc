use std::io::Write;

use proptest::prelude::{ProptestConfig, any, prop, prop_assert, prop_assert_eq, proptest};

use super::{check, load};
use crate::diagnostic::Code;
use crate::lines::Lines;
use crate::validate::validate;

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
    assert_eq!(checked.diagnostics[0].code, config::Code::NotUtf8.into());
    assert!(checked.diagnostics[0].message.contains("byte 18, on line 2"), "{}", checked.diagnostics[0]);
}

#[test]
fn a_text_past_the_bound_is_a_diagnostic() {
    let checked = check(&" ".repeat((64 << 20) + 1), "p.toml");
    assert_eq!(checked.diagnostics[0].code, config::Code::TooLarge.into());
    assert!(check(&" ".repeat(1 << 20), "p.toml").policy.is_some());
}

#[test]
fn a_file_without_end_is_not_read_to_its_end() {
    if std::path::Path::new("/dev/zero").exists() {
        let found = &load("/dev/zero".as_ref()).unwrap().diagnostics[0];
        assert_eq!(found.code, config::Code::TooLarge.into());
        assert!(found.hint.as_ref().unwrap().contains("prefixes"), "{found:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_policy_can_be_checked(policy in crate::model::arbitrary::policy()) {
        let from_model = validate(&policy, &Lines::default());
        let from_text = check(&policy.to_string(), "p.toml");
        let mut a: Vec<_> = from_model.iter().map(|wrong| (wrong.code, wrong.message.clone())).collect();
        // The text has lines, and messages name some.
        let mut b: Vec<_> = from_text.diagnostics.iter().map(|wrong| (wrong.code, wrong.message.clone())).collect();
        prop_assert_eq!(a.len(), b.len());
        a.sort();
        b.sort();
        prop_assert!(a.iter().zip(&b).all(|(a, b)| a.0 == b.0));
        prop_assert!(from_text.diagnostics.iter().all(|wrong| wrong.place.is_some() || wrong.code == Code::TooMany));
    }

    #[test]
    fn any_text_can_be_checked(text in ".{0,200}") {
        let _ = check(&text, "p.toml");
    }

    #[test]
    fn a_damaged_policy_can_be_checked(
        at in any::<prop::sample::Index>(),
        length in 0..12_usize,
        with in "[\\[\\]{}\"'=.,0-9a-z\n -]{0,6}",
    ) {
        let whole = include_str!("../parse/whole.toml");
        let from = at.index(whole.len());
        let to = (from + length).min(whole.len());
        let text = format!("{}{with}{}", &whole[..from], &whole[to..]);
        let checked = check(&text, "p.toml");
        prop_assert_eq!(checked.policy.is_none(), checked.errors().next().is_some());
    }
}
