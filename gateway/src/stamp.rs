//! Identity of a file's content, by which a file that is read again when it changes is compared with what was read.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Device, inode, length, and the times of the last changes of content and of metadata: a file that has become readable is another, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp([i64; 7]);

impl Stamp {
    /// Returns the stamp of the file at a path; `None` where there is none, or the process may not know.
    pub(crate) fn of(path: &Path) -> Option<Stamp> {
        let found = fs::metadata(path).ok()?;
        Some(Stamp([
            found.dev() as i64,
            found.ino() as i64,
            found.len() as i64,
            found.mtime(),
            found.mtime_nsec(),
            found.ctime(),
            found.ctime_nsec(),
        ]))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_that_becomes_readable_or_is_replaced_is_another() {
        let path = std::env::temp_dir().join(format!("wirerate-stamp-{}", std::process::id()));
        fs::write(&path, "one").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let first = Stamp::of(&path);
        assert!(first.is_some() && Stamp::of(&path) == first);
        // Times are as coarse as the kernel's clock tick.
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let readable = Stamp::of(&path);
        assert_ne!(readable, first);
        let other = path.with_extension("new");
        fs::write(&other, "two").unwrap();
        fs::rename(&other, &path).unwrap();
        assert_ne!(Stamp::of(&path), readable);
        fs::remove_file(&path).unwrap();
        assert_eq!(Stamp::of(&path), None);
    }
}
