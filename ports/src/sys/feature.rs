//! Features of interfaces: the offloads that `ethtool -k` lists, by name.

use std::io;

use super::Plain;
use super::interface::Asker;

/// Most features that are looked at; Linux has had about sixty.
const MOST: usize = 128;
/// Bytes of a name, with the zeros behind it.
const NAME: usize = 32;

impl Asker {
    /// Returns those of the named features that are active on an interface.
    ///
    /// # Errors
    /// There is no such interface, or Linux lists no features.
    pub(crate) fn active<'a>(
        &self,
        interface: &str,
        wanted: impl Iterator<Item = &'a str>,
    ) -> io::Result<Vec<&'a str>> {
        let mut info = Info { command: ETHTOOL_GSSET_INFO, reserved: 0, sets: 1 << FEATURES, counts: [0; 2] };
        self.ethtool(interface, &mut info)?;
        let count = info.counts[0];
        if count == 0 || count as usize > MOST {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut names = Names { command: ETHTOOL_GSTRINGS, set: FEATURES, count, text: [[0; NAME]; MOST] };
        self.ethtool(interface, &mut names)?;
        let blocks = count.div_ceil(32);
        let mut states = States { command: ETHTOOL_GFEATURES, blocks, states: [[0; 4]; MOST / 32] };
        self.ethtool(interface, &mut states)?;
        let place = |wanted: &str| {
            let is_it = |text: &[u8; NAME]| {
                let end = text.iter().position(|byte| *byte == 0).unwrap_or(NAME);
                text[..end] == *wanted.as_bytes()
            };
            names.text.iter().position(is_it)
        };
        let is_active = |place: usize| states.states[place / 32][ACTIVE] >> (place % 32) & 1 != 0;
        Ok(wanted.filter(|wanted| place(wanted).is_some_and(is_active)).collect())
    }
}

// linux/ethtool.h
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
/// `ETH_SS_FEATURES`
const FEATURES: u32 = 4;

/// `struct ethtool_sset_info`, for one set
#[derive(Clone, Copy)]
#[repr(C)]
struct Info {
    command: u32,
    reserved: u32,
    sets: u64,
    counts: [u32; 2],
}

// SAFETY: integers without padding.
unsafe impl Plain for Info {}

/// `struct ethtool_gstrings`
#[derive(Clone, Copy)]
#[repr(C)]
struct Names {
    command: u32,
    set: u32,
    count: u32,
    text: [[u8; NAME]; MOST],
}

// SAFETY: integers without padding.
unsafe impl Plain for Names {}

/// `struct ethtool_gfeatures`: available, requested, active and never changed, of 32 features in each block.
#[derive(Clone, Copy)]
#[repr(C)]
struct States {
    command: u32,
    blocks: u32,
    states: [[u32; 4]; MOST / 32],
}

const ACTIVE: usize = 2;

// SAFETY: integers without padding.
unsafe impl Plain for States {}
