//! User that a gateway started as root becomes.

use std::fs;
use std::io;

use caps::{CapSet, Capability};
use rustix::fs::{Gid, Uid};
use rustix::process::geteuid;
use rustix::thread::{set_keep_capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::USER;

/// User of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub(super) uid: Uid,
    pub(super) gid: Gid,
}

/// Reason for not becoming a user.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserError {
    /// No user of that name.
    #[error("there is no user \"{0}\" in /etc/passwd; `useradd --system {0}` makes it")]
    Unknown(String),
    /// Process of another user than root.
    #[error("only root can become user \"{0}\"; leave `--user` out, or begin as root")]
    NotRoot(String),
    /// No permission to change the user: no capabilities, or no such user in the user namespace.
    #[error(
        "it cannot become user \"{0}\", for want of CAP_SETUID and CAP_SETGID or in a user namespace without it"
    )]
    Incapable(String),
}

/// Returns the user to become, if any. A default user that is not available is noted.
///
/// # Errors
/// Requested user not available.
pub(super) fn wanted(asked: Option<&str>, notes: &mut Vec<String>) -> Result<Option<User>, UserError> {
    let name = asked.unwrap_or(USER);
    let found = entry_of(name);
    if !geteuid().is_root() {
        return match (asked, found) {
            (None, _) => Ok(None),
            (Some(_), Some(user)) if user.uid == geteuid() => Ok(None),
            (Some(_), Some(_)) => Err(UserError::NotRoot(name.to_owned())),
            (Some(_), None) => Err(UserError::Unknown(name.to_owned())),
        };
    }
    let Some(user) = found else {
        if asked.is_some() {
            return Err(UserError::Unknown(name.to_owned()));
        }
        notes.push(format!("it stays root: there is no user \"{name}\", and `--user` names no other"));
        return Ok(None);
    };
    if user.uid.is_root() {
        return Ok(None);
    }
    let can = |capability| caps::has_cap(None, CapSet::Effective, capability).unwrap_or(false);
    let may = can(Capability::CAP_SETUID) && can(Capability::CAP_SETGID) && user.is_mapped();
    if !may {
        if asked.is_some() {
            return Err(UserError::Incapable(name.to_owned()));
        }
        notes.push(format!("it stays root: {}", UserError::Incapable(name.to_owned())));
        return Ok(None);
    }
    Ok(Some(user))
}

impl User {
    /// True if the user namespace of this process has the user, and lets groups be changed (user_namespaces(7)).
    fn is_mapped(&self) -> bool {
        let read = |name: &str| fs::read_to_string(format!("/proc/self/{name}"));
        let has = |map: &str, id| read(map).is_ok_and(|map| maps(&map, id));
        has("uid_map", self.uid.as_raw())
            && has("gid_map", self.gid.as_raw())
            && !read("setgroups").is_ok_and(|setting| setting.trim() == "deny")
    }

    /// Changes to the user, without supplementary groups, and keeps the permitted capabilities.
    pub(super) fn become_it(&self) -> io::Result<()> {
        set_keep_capabilities(true)?;
        set_thread_groups(&[])?;
        set_thread_res_gid(self.gid, self.gid, self.gid)?;
        set_thread_res_uid(self.uid, self.uid, self.uid)?;
        set_keep_capabilities(false)?;
        Ok(())
    }
}

/// Name of a user of this machine; the number for a user without one.
pub(crate) fn name_of(uid: u32) -> String {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (number.parse() == Ok(uid)).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| uid.to_string())
}

/// True if a user namespace's map contains an ID: lines of first ID inside, first ID outside, and number of IDs.
fn maps(map: &str, id: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(str::parse);
        let (first, count) = (numbers.next(), numbers.nth(1));
        match (first, count) {
            (Some(Ok(first)), Some(Ok(count))) => (first..first + count).contains(&u64::from(id)),
            _ => false,
        }
    })
}

fn entry_of(name: &str) -> Option<User> {
    entry_in(&fs::read_to_string("/etc/passwd").unwrap_or_default(), name)
}

/// Finds a user by name in text of the form of /etc/passwd (passwd(5)).
fn entry_in(users: &str, name: &str) -> Option<User> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next()? != name {
            return None;
        }
        let (uid, gid) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
        // The kernel takes all ones for "as it is".
        (uid != u32::MAX && gid != u32::MAX)
            .then(|| User { uid: Uid::from_raw(uid), gid: Gid::from_raw(gid) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str = "root:x:0:0:root:/root:/bin/bash\nwirerate2:x:7:8::/:/bin/false\n\
                         wirerate:x:990:991::/:/usr/sbin/nologin\nodd:x:4294967295:1::/:\nshort:x:1\n";

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let user = |uid, gid| Some(User { uid: Uid::from_raw(uid), gid: Gid::from_raw(gid) });
        assert_eq!(entry_in(USERS, "wirerate"), user(990, 991));
        assert_eq!(entry_in(USERS, "root"), user(0, 0));
        for absent in ["wire", "x", "", "odd", "short"] {
            assert_eq!(entry_in(USERS, absent), None, "{absent}");
        }
    }

    #[test]
    fn a_user_namespace_has_who_is_mapped() {
        let all = "         0          0 4294967295\n";
        assert!(maps(all, 0) && maps(all, 990));
        let some = "0 1000 1\n100 200000 10\n";
        let mapped: Vec<u32> = (0..120).filter(|id| maps(some, *id)).collect();
        assert_eq!(mapped, [0, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109]);
        assert!(!maps("", 0));
    }

    #[test]
    fn a_user_that_was_asked_for_must_be_there() {
        let mut notes = Vec::new();
        let asked = wanted(Some("nobody-of-that-name"), &mut notes);
        assert_eq!(asked, Err(UserError::Unknown("nobody-of-that-name".to_owned())));
        assert!(notes.is_empty());
    }
}
