//! Reads files that people or other programs wrote, whole, up to a bound, as a path may lead to something without end; and replaces files,
//! whole or not at all.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
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

/// Writes a file that is whole or as it was: written as `FILE.new` with those permissions, brought to the disk, and then renamed.
pub(crate) fn replace(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let beside = path.with_file_name(name);
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&beside)?;
    // Whatever the process's mask is.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    File::open(directory_of(path))?.sync_all()
}

/// Directory that a file lies in.
pub(crate) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
