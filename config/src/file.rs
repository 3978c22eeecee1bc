//! Text files written by people, read whole up to a bound.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::code::{Code, Kind};
use crate::diagnostic::Diagnostic;

/// Longest file that is read, in bytes (64 MiB).
pub const MOST_BYTES: usize = 64 << 20;

/// Reads the file at `path`, which should be a `what`: a policy, say. Yields a diagnostic for a text that is too long
/// or not UTF-8.
pub fn text<C: Kind>(path: &Path, what: &'static str) -> Result<Result<String, Diagnostic<C>>, LoadError> {
    let unreadable = |error| LoadError { what, path: path.to_owned(), error };
    let file = path.display().to_string();
    let mut bytes = Vec::new();
    // One byte more than is taken tells a file that is too long; it may have no end at all.
    File::open(path)
        .and_then(|opened| opened.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes))
        .map_err(unreadable)?;
    if bytes.len() > MOST_BYTES {
        let hint = format!("a {what} is written by hand and far shorter: name another file");
        return Ok(Err(longer_than_taken(&file).hint(hint)));
    }
    Ok(String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        let message = format!("{file} is not UTF-8: byte {at}, on line {line}");
        let hint = format!("save it as UTF-8; a capture or an archive is no {what}");
        Diagnostic::new(Code::NotUtf8, message).hint(hint)
    }))
}

/// Diagnostic for a file of more than [`MOST_BYTES`], without a hint.
pub fn longer_than_taken<C: Kind>(file: &str) -> Diagnostic<C> {
    Diagnostic::new(Code::TooLarge, format!("{file} is longer than {} MiB", MOST_BYTES >> 20))
}

/// Failure to read a file.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the {what} {path}: {error}")]
pub struct LoadError {
    /// Sort of file expected: `policy`, say.
    pub what: &'static str,
    /// Path of the file.
    pub path: PathBuf,
    /// Error of the operating system.
    pub error: io::Error,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::text;
    use crate::Code;

    #[test]
    fn a_file_that_is_not_there_is_an_error_that_names_it() {
        let error = text::<Code>(Path::new("/nonexistent/chip.toml"), "chip").unwrap_err();
        assert!(error.to_string().starts_with("cannot read the chip /nonexistent/chip.toml: "), "{error}");
    }

    #[test]
    fn a_file_without_end_is_not_read_to_its_end() {
        if Path::new("/dev/zero").exists() {
            let found = text::<Code>(Path::new("/dev/zero"), "chip").unwrap().unwrap_err();
            assert_eq!(found.code, Code::TooLarge);
            assert!(found.hint.unwrap().contains("a chip is written by hand"));
        }
    }
}
