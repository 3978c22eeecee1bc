//! Discovery (SSDP; UPnP Device Architecture 1.1, section 1): searches read, answers and announcements written.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use httparse::{EMPTY_HEADER, Request, Status};

use super::device::{Device, Part};
use super::service::kind;

/// Port of searches and announcements, and of the devices' documents and services.
pub(crate) const PORT: u16 = 1900;

/// Group of searches and announcements.
pub(super) const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 255, 250);

/// Longest search that is read.
pub(super) const LONGEST: usize = 1500;

/// Time for which an announcement holds: the least that may be (section 1.2.2).
pub(super) const MAX_AGE: Duration = Duration::from_secs(1800);

/// Longest time that a host gives devices for their answers (section 1.3.2).
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Headers of a search, at most.
const MOST_HEADERS: usize = 32;

/// Name of the software in each message and response.
pub(super) const SOFTWARE: &str = concat!("Linux UPnP/1.1 wirerate/", env!("CARGO_PKG_VERSION"));

/// Search for devices or services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Search {
    /// Type or name that is looked for.
    pub(super) target: String,
    /// Time within which answers are spread.
    pub(super) wait: Duration,
}

impl Search {
    /// Parses a search; `None` for what is none.
    pub(super) fn parse(bytes: &[u8]) -> Option<Search> {
        let mut headers = [EMPTY_HEADER; MOST_HEADERS];
        let mut request = Request::new(&mut headers);
        if !matches!(request.parse(bytes), Ok(Status::Complete(_))) {
            return None;
        }
        if (request.method, request.path, request.version) != (Some("M-SEARCH"), Some("*"), Some(1)) {
            return None;
        }
        let text = |name: &str| {
            let found = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
            std::str::from_utf8(found.value).ok().map(str::trim)
        };
        if text("man")?.trim_matches('"') != "ssdp:discover" {
            return None;
        }
        // Many programs leave the time out of searches that they send to all.
        let seconds = text("mx").and_then(|seconds| seconds.parse().ok()).unwrap_or(1);
        let wait = Duration::from_secs(seconds).min(LONGEST_WAIT);
        Some(Search { target: text("st")?.to_owned(), wait })
    }
}

/// Announced name: a type or name, and the unique name of the device or service that has it (section 1.2.2, table 1-1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    /// Type of a device or service, name of a device, or `upnp:rootdevice`.
    pub(super) target: String,
    /// Unique service name.
    unique: String,
}

/// Names of a device and of all in it.
pub(super) fn names(device: &Device) -> Vec<Name> {
    let mut names = Vec::new();
    for part in Part::ALL {
        let udn = device.udn(part);
        let mut add = |target: String| names.push(Name { unique: format!("{udn}::{target}"), target });
        if part == Part::Root {
            add("upnp:rootdevice".to_owned());
        }
        add(kind("device", part.name(), device.version));
        add(part.service().kind(device.version));
        names.push(Name { target: udn.clone(), unique: udn });
    }
    names
}

/// Names of a device that a search looks for.
pub(super) fn found(device: &Device, search: &Search) -> Vec<Name> {
    let mut names = names(device);
    names.retain(|name| search.target == "ssdp:all" || name.target == search.target);
    names
}

/// A device at an address.
pub(super) struct Place<'a> {
    /// Device.
    pub(super) device: &'a Device,
    /// Address.
    pub(super) address: Ipv4Addr,
    /// Number of the start: later ones are larger (section 1.2.2, BOOTID.UPNP.ORG).
    pub(super) boot: u32,
}

impl Place<'_> {
    /// Returns the answer to a search that a name meets.
    pub(super) fn answer(&self, name: &Name) -> String {
        format!(
            "HTTP/1.1 200 OK\r\nCACHE-CONTROL: max-age={}\r\nEXT:\r\nLOCATION: {}\r\nSERVER: {SOFTWARE}\r\nST: {}\r\nUSN: {}\r\n{}\r\n",
            MAX_AGE.as_secs(),
            self.location(),
            name.target,
            name.unique,
            self.numbers()
        )
    }

    /// Returns the announcement that a device is there.
    pub(super) fn alive(&self, name: &Name) -> String {
        format!(
            "{}CACHE-CONTROL: max-age={}\r\nLOCATION: {}\r\nSERVER: {SOFTWARE}\r\nNTS: ssdp:alive\r\n\r\n",
            self.notify(name),
            MAX_AGE.as_secs(),
            self.location()
        )
    }

    /// Returns the announcement that a device is no longer there.
    pub(super) fn gone(&self, name: &Name) -> String {
        format!("{}NTS: ssdp:byebye\r\n\r\n", self.notify(name))
    }

    fn notify(&self, name: &Name) -> String {
        format!(
            "NOTIFY * HTTP/1.1\r\nHOST: {GROUP}:{PORT}\r\nNT: {}\r\nUSN: {}\r\n{}",
            name.target,
            name.unique,
            self.numbers()
        )
    }

    fn location(&self) -> String {
        let own = SocketAddrV4::new(self.address, PORT);
        format!("http://{own}{}/device.xml", self.device.path())
    }

    fn numbers(&self) -> String {
        format!("BOOTID.UPNP.ORG: {}\r\nCONFIGID.UPNP.ORG: 1\r\n", self.boot)
    }
}

#[cfg(test)]
mod tests;
