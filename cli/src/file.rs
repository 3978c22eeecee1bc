//! Reads files that people or other programs wrote, whole, up to a bound: a path may lead to something without end.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// The longest file that is taken, in bytes.
const MOST: u64 = 64 << 20;

/// All bytes of a file. One longer than 64 MiB is [`ErrorKind::FileTooLarge`].
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST {
        return Err(ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// A file of text. One that is not UTF-8 is [`ErrorKind::InvalidData`].
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}
