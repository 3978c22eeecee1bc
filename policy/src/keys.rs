//! Files of keys, which a policy names and does not contain. A policy with the keys read is for compiling alone: it is never printed, kept or
//! sent anywhere.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use wire::esp::{BadHex, Secret};
use zeroize::Zeroizing;

use crate::model::{Policy, Ppp, Reading, StaticSa};

/// Longest file, in bytes.
const MOST: u64 = 4_096;

/// Permission bits that a file of a key must not have: those of its group and of others.
const OTHERS: u32 = 0o077;

/// Reason why a key cannot be read from its file. Holds nothing of the key.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// Refusal by the system.
    #[error("{}: could not {operation} the file of a key: {error}", .path.display())]
    System {
        /// File.
        path: PathBuf,
        /// Operation that failed.
        operation: &'static str,
        /// Error.
        error: io::Error,
    },
    /// Others may read the file.
    #[error(
        "{}: its group or others have permissions on the file of a key (mode {mode:03o}): `chmod 600` it, `chown` it to the user that the \
         gateway runs as, and use another key if somebody may have read it",
        .path.display()
    )]
    Open {
        /// File.
        path: PathBuf,
        /// Permission bits.
        mode: u32,
    },
    /// Directory or device.
    #[error("{}: a key is in a plain file of {MOST} bytes at most", .path.display())]
    NoFile {
        /// File.
        path: PathBuf,
    },
    /// Text that is no key.
    #[error("{}: {error}: a key is one line of hexadecimal digits", .path.display())]
    Text {
        /// File.
        path: PathBuf,
        /// Fault of the text.
        error: BadHex,
    },
    /// Text that is no password.
    #[error("{}: a password is one line of 1 to 255 bytes", .path.display())]
    Password {
        /// File.
        path: PathBuf,
    },
    /// Two security associations with one key: of a counter mode, numbers would be used twice under one key (RFC 4106, section 3.1).
    #[error("{} has the key of another security association: give each direction a key of its own", .path.display())]
    Same {
        /// File.
        path: PathBuf,
    },
}

/// True if a key of the policy is in a file.
pub fn has_files(policy: &Policy) -> bool {
    all(policy).any(|sa| paths(sa).next().is_some()) || password_files(policy).next().is_some()
}

/// The first interface with a key or a password in the policy itself.
pub fn inline(policy: &Policy) -> Option<&str> {
    let is_password = |ppp: &Ppp| !ppp.password.is_empty() && ppp.password_file.is_none();
    let mut sessions = policy.interfaces.iter().filter(|own| own.ppp.as_deref().is_some_and(is_password));
    if let Some(session) = sessions.next() {
        return Some(&session.name);
    }
    let tunnels = policy.interfaces.iter().filter_map(|own| Some((own.name.as_str(), own.esp.as_ref()?)));
    let is_inline = |sa: &StaticSa| {
        let StaticSa { key, auth_key, files, .. } = sa;
        !key.is_empty() && files.key.is_none() || !auth_key.is_empty() && files.auth_key.is_none()
    };
    let mut inline = tunnels.filter(|(_, tunnel)| tunnel.sas.iter().any(is_inline));
    inline.next().map(|(name, _)| name)
}

/// Files of keys, by their paths as the policy in `directory` means them.
pub fn files(policy: &Policy, directory: &Path) -> Vec<PathBuf> {
    all(policy).flat_map(paths).chain(password_files(policy)).map(|file| directory.join(file)).collect()
}

/// Returns the policy, whose file is in `directory`, with the keys that are in files.
///
/// # Errors
/// [`KeyFileError`], of the first file that cannot be read.
pub fn read(policy: &Policy, directory: &Path) -> Result<Policy, KeyFileError> {
    let mut keyed = policy.clone();
    let mut known: Vec<Secret> = Vec::new();
    for sa in keyed.interfaces.iter_mut().filter_map(|own| own.esp.as_mut()).flat_map(|esp| &mut esp.sas) {
        let StaticSa { suite, key: cipher, auth_key, files, .. } = sa;
        for (secret, file) in [(&mut *cipher, &files.key), (&mut *auth_key, &files.auth_key)] {
            if let Some(file) = file {
                *secret = key(&directory.join(file))?;
            }
        }
        files.reading = Reading::Done;
        // Of text in clear the key is that of the integrity algorithm.
        let (own, file) = if suite.key > 0 { (cipher, &files.key) } else { (auth_key, &files.auth_key) };
        match file {
            // An empty one is refused for its length.
            Some(file) if !own.is_empty() && known.contains(own) => {
                return Err(KeyFileError::Same { path: directory.join(file) });
            }
            _ => known.push(own.clone()),
        }
    }
    for ppp in keyed.interfaces.iter_mut().filter_map(|own| own.ppp.as_mut()) {
        if let Some(file) = &ppp.password_file {
            ppp.password = password(&directory.join(file))?;
        }
    }
    Ok(keyed)
}

fn password_files(policy: &Policy) -> impl Iterator<Item = &PathBuf> {
    policy.interfaces.iter().filter_map(|own| own.ppp.as_ref()?.password_file.as_ref())
}

/// Reads the file of a password: its first line, without the line's end.
fn password(path: &Path) -> Result<Secret, KeyFileError> {
    let text = contents(path)?;
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() || line.len() > usize::from(u8::MAX) {
        return Err(KeyFileError::Password { path: path.to_owned() });
    }
    Ok(Secret::new(line.into()))
}

fn paths(sa: &StaticSa) -> impl Iterator<Item = &PathBuf> {
    [&sa.files.key, &sa.files.auth_key].into_iter().flatten()
}

fn all(policy: &Policy) -> impl Iterator<Item = &StaticSa> {
    policy.interfaces.iter().filter_map(|own| own.esp.as_ref()).flat_map(|esp| &esp.sas)
}

/// Reads the file of a key.
///
/// # Errors
/// [`KeyFileError`]
pub fn key(path: &Path) -> Result<Secret, KeyFileError> {
    let text = contents(path)?;
    let text = std::str::from_utf8(&text).map_err(|_| KeyFileError::NoFile { path: path.to_owned() })?;
    Secret::of_hex(text.trim()).map_err(|error| KeyFileError::Text { path: path.to_owned(), error })
}

/// Reads the file of a secret, which nobody but its owner may read.
fn contents(path: &Path) -> Result<Zeroizing<Vec<u8>>, KeyFileError> {
    let failed = |operation| {
        let path = path.to_owned();
        move |error| KeyFileError::System { path, operation, error }
    };
    // To open a FIFO would wait for a writer.
    let found = fs::metadata(path).map_err(failed("open"))?;
    let file = if found.is_file() { Some(File::open(path).map_err(failed("open"))?) } else { None };
    let Some(file) = file else { return Err(KeyFileError::NoFile { path: path.to_owned() }) };
    let found = file.metadata().map_err(failed("look at"))?;
    if !found.is_file() || found.len() > MOST {
        return Err(KeyFileError::NoFile { path: path.to_owned() });
    }
    let mode = mode(&found);
    if mode & OTHERS != 0 {
        return Err(KeyFileError::Open { path: path.to_owned(), mode });
    }
    text(file).map_err(failed("read"))
}

/// Permission bits of a file.
#[cfg(unix)]
fn mode(found: &Metadata) -> u32 {
    std::os::unix::fs::MetadataExt::mode(found) & 0o777
}

/// Permission bits of a file: no others, where a system knows none.
#[cfg(not(unix))]
fn mode(_: &Metadata) -> u32 {
    0
}

/// Reads a file into memory that is zeroised, and does not grow, so that no copy stays behind.
fn text(file: File) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut text = Zeroizing::new(Vec::with_capacity(MOST as usize + 1));
    file.take(MOST).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const SITE: &str = include_str!("../../tests/cases/esp/site.toml");

    /// A directory of its own, with files of keys of mode 0600.
    struct Keys(PathBuf);

    impl Keys {
        fn new(name: &str, files: &[(&str, &str)]) -> Keys {
            let place = std::env::temp_dir().join(format!("wirerate-keys-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&place);
            fs::create_dir_all(&place).unwrap();
            for (file, text) in files {
                fs::write(place.join(file), text).unwrap();
                fs::set_permissions(place.join(file), Permissions::from_mode(0o600)).unwrap();
            }
            Keys(place)
        }
    }

    impl Drop for Keys {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// The policy of a site whose keys are in files, and the same with the keys in itself.
    fn policies() -> [Policy; 2] {
        let mut text = SITE.to_owned();
        let mut number = 0;
        while let Some(at) = text.find("\nkey = \"") {
            let end = at + 1 + text[at + 1..].find('\n').unwrap();
            text.replace_range(at + 1..end, &format!("key-file = \"{number}\""));
            number += 1;
        }
        [text.as_str(), SITE].map(|text| crate::check(text, "site.toml").policy.expect("a sound policy"))
    }

    fn hex(key: &Secret) -> String {
        key.expose().iter().map(|byte| format!("{byte:02X}")).collect()
    }

    #[test]
    fn keys_in_files_are_as_those_in_the_policy() {
        let [filed, inlined] = policies();
        let texts: Vec<String> = all(&inlined).map(|sa| format!("  {}\n", hex(&sa.key))).collect();
        let names: Vec<String> = (0..texts.len()).map(|number| number.to_string()).collect();
        let files: Vec<(&str, &str)> =
            names.iter().map(String::as_str).zip(texts.iter().map(String::as_str)).collect();
        let keys = Keys::new("read", &files);
        let keyed = read(&filed, &keys.0).unwrap();
        let found: Vec<Secret> = all(&keyed).map(|sa| sa.key.clone()).collect();
        assert!(has_files(&filed) && !has_files(&inlined));
        assert!(inline(&inlined).is_some() && inline(&filed).is_none());
        assert_eq!(found, all(&inlined).map(|sa| sa.key.clone()).collect::<Vec<_>>());
        assert!(all(&filed).all(|sa| sa.files.are_unread()) && !all(&keyed).any(|sa| sa.files.are_unread()));
        let printed = keyed.to_string();
        assert!(texts.iter().all(|text| !printed.to_uppercase().contains(text.trim())), "{printed}");
        assert_eq!(printed, filed.to_string());
    }

    #[test]
    fn files_that_others_can_read_or_that_are_none_are_refused() {
        let keys = Keys::new(
            "refused",
            &[("open", "00"), ("odd", "c0ffee0"), ("none", "c0ffeexy"), ("one", "c0ffee")],
        );
        let at = |name: &str| keys.0.join(name);
        fs::set_permissions(at("open"), Permissions::from_mode(0o640)).unwrap();
        fs::write(at("long"), "0".repeat(5_000)).unwrap();
        fs::set_permissions(at("long"), Permissions::from_mode(0o600)).unwrap();
        let told = |name: &str| key(&at(name)).map(|_| ()).unwrap_err().to_string();
        assert!(told("open").contains("mode 640"), "{}", told("open"));
        assert!(told("odd").contains("odd number") && !told("odd").contains("c0ffee"), "{}", told("odd"));
        assert!(told("none").contains("character 7") && !told("none").contains("xy"), "{}", told("none"));
        assert!(told("long").contains("4096 bytes"), "{}", told("long"));
        assert!(told("absent").contains("could not open"), "{}", told("absent"));
        assert!(told(".").contains("plain file"), "{}", told("."));
        assert_eq!(key(&at("one")).unwrap().expose(), [0xc0, 0xff, 0xee]);
    }

    #[test]
    fn no_two_files_have_one_key() {
        let [filed, _] = policies();
        let names: Vec<String> = (0..all(&filed).count()).map(|number| number.to_string()).collect();
        let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "c0ffee")).collect();
        let keys = Keys::new("same", &files);
        let error = read(&filed, &keys.0).unwrap_err();
        assert!(matches!(error, KeyFileError::Same { .. }), "{error}");
    }
}
