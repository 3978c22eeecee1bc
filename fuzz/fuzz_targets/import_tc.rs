//! Any bytes as what tc shows, or as its commands.
//!
//! Beyond not crashing: every rule of the source is accounted for, and the policy that comes of it is the same
//! when it is printed and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use policy::import;

fuzz_target!(|data: &[u8]| {
    let importer = import::find("tc").expect("it is registered");
    let import = match importer.import(data, None) {
        Ok(import) => import,
        Err(error) => {
            let _ = error.to_string();
            return;
        }
    };
    let count = import.count;
    assert_eq!(count.rules, count.translated + count.implied + count.untranslated);
    assert!(count.untranslated == 0 || !import.untranslated.is_empty());
    let printed = import.policy.to_string();
    let again = policy::parse(&printed, "printed.toml").policy;
    assert_eq!(again.as_ref(), Some(&import.policy), "printed:\n{printed}");
});
