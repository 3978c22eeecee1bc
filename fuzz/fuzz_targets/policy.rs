//! Any text as a policy.
//!
//! Beyond not crashing: there is a policy or an error, places lie within the text, and a policy that is found
//! right is the same when it is printed and read again, and compiles or says why not.
#![no_main]

use dataplane::Tables;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let checked = policy::check(text, "fuzz.toml");
    for diagnostic in &checked.diagnostics {
        if let Some(place) = &diagnostic.place {
            assert!(place.span().start <= place.span().end && place.span().end <= text.len());
            let _ = (place.line(), place.column());
        }
    }
    let wrong = checked.errors().next().is_some();
    let Some(policy) = checked.policy else {
        assert!(wrong, "no policy, and no error");
        return;
    };
    assert!(!wrong, "a policy in spite of errors");
    let printed = policy.to_string();
    let again = policy::check(&printed, "printed.toml");
    match again.policy {
        Some(again) => assert_eq!(again, policy, "printed:\n{printed}"),
        None => panic!("printed and refused: {:?}\n{printed}", again.diagnostics),
    }
    if let Err(error) = Tables::compile(&policy, 1) {
        let _ = error.to_string();
    }
});
