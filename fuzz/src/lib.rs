//! Checks that several fuzz targets have in common.

use policy::import::{self, IpVersion};

/// Imports any bytes, as a source of no version and of those given.
///
/// Beyond not crashing: every rule of the source is accounted for, and the policy that comes of it is the same when it is printed
/// and read again.
///
/// # Panics
/// One of these does not hold, or there is no importer of that name.
pub fn imports(name: &str, data: &[u8], versions: &[IpVersion]) {
    let importer = import::find(name).expect("it is registered");
    for version in std::iter::once(None).chain(versions.iter().copied().map(Some)) {
        let import = match importer.import(data, version) {
            Ok(import) => import,
            Err(error) => {
                let _ = error.to_string();
                continue;
            }
        };
        let count = import.count;
        assert_eq!(count.rules, count.translated + count.implied + count.untranslated);
        assert!(count.untranslated == 0 || !import.untranslated.is_empty());
        let printed = import.policy.to_string();
        let again = policy::parse(&printed, "printed.toml").policy;
        assert_eq!(again.as_ref(), Some(&import.policy), "printed:\n{printed}");
    }
}
