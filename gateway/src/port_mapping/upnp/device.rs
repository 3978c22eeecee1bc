//! Devices as hosts see them: an InternetGatewayDevice of each version, with a WANDevice and a WANConnectionDevice in it.
//!
//! Programs written for version 1 look for that type and service, and many know no other; those for version 2 find the other device. Each has
//! names of its own, so that neither seems to change when both are seen.

use sha2::{Digest, Sha256};

use super::service::{FORWARDING, LINK, Service, Version, WAN_IP};
use crate::port_mapping::End;

/// Root device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Device {
    /// Version.
    pub(super) version: Version,
    /// Text from which its names follow, the same after a restart.
    seed: String,
}

/// Device of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// InternetGatewayDevice.
    Root,
    /// WANDevice.
    Wan,
    /// WANConnectionDevice.
    Connection,
}

impl Part {
    /// Parts, from the root on.
    pub(super) const ALL: [Part; 3] = [Part::Root, Part::Wan, Part::Connection];

    /// Name in the type of the device.
    pub(super) fn name(self) -> &'static str {
        match self {
            Part::Root => "InternetGatewayDevice",
            Part::Wan => "WANDevice",
            Part::Connection => "WANConnectionDevice",
        }
    }

    /// Service of the part.
    pub(super) fn service(self) -> &'static Service {
        match self {
            Part::Root => &FORWARDING,
            Part::Wan => &LINK,
            Part::Connection => &WAN_IP,
        }
    }

    /// Device within.
    pub(super) fn within(self) -> Option<Part> {
        match self {
            Part::Root => Some(Part::Wan),
            Part::Wan => Some(Part::Connection),
            Part::Connection => None,
        }
    }
}

impl Device {
    /// The devices of an interface.
    pub(super) fn of(end: &End) -> [Device; 2] {
        let mac = end.mac.map_or_else(|| end.network.addr().to_string(), |mac| mac.to_string());
        let seed = format!("{} {mac}", end.interface);
        [Version::One, Version::Two].map(|version| Device { version, seed: seed.clone() })
    }

    /// Path below which its documents and services are.
    pub(super) fn path(&self) -> String {
        format!("/{}", self.version as u8)
    }

    /// Unique device name of a part: a UUID made of a hash (RFC 9562, section 5.8).
    pub(super) fn udn(&self, part: Part) -> String {
        let named = format!("UPnP {} {} {}", self.seed, part.name(), self.version as u8);
        let mut bits = [0; 16];
        bits.copy_from_slice(&Sha256::digest(named.as_bytes())[..16]);
        bits[6] = bits[6] & 0x0f | 0x80;
        bits[8] = bits[8] & 0x3f | 0x80;
        let hex: String = bits.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("uuid:{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }
}
