//! Algorithms of ESP and the lengths of what they put on the wire; no cryptography. Policies, tables and cases name suites; crate `esp`
//! carries them out.

use std::fmt;

use crate::meta::Family;
use crate::{esp, ipv4, ipv6, udp};

/// UDP port of IKE and of encapsulated ESP behind a NAT (RFC 3948).
pub const NAT_PORT: u16 = 4500;

/// Smallest SPI that is not reserved (RFC 4303, section 2.1).
pub const LEAST_SPI: u32 = 256;

/// Bytes of pad length and next header, behind the padding (RFC 4303, section 2).
pub const TRAILER_LEN: usize = 2;

/// Cipher of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cipher {
    /// AES in Galois/counter mode, with its own integrity (RFC 4106).
    Gcm,
    /// ChaCha20 with Poly1305 (RFC 7634).
    ChaCha20Poly1305,
    /// The integrity of AES-GCM over text in clear (RFC 4543).
    Gmac,
    /// AES in cipher block chaining (RFC 3602).
    AesCbc,
    /// DES in cipher block chaining (RFC 2405).
    DesCbc,
    /// DES three times, in cipher block chaining (RFC 2451).
    TripleDesCbc,
    /// Text in clear (RFC 2410).
    Null,
}

/// Integrity algorithm of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Integrity {
    /// The cipher's own.
    Combined,
    /// No integrity: laboratories only (RFC 4303, section 3.3.5).
    None,
    /// HMAC-SHA-1, 96 bits of it (RFC 2404).
    HmacSha1_96,
    /// HMAC-SHA-256, 128 bits of it (RFC 4868).
    HmacSha256_128,
    /// HMAC-SHA-384, 192 bits of it (RFC 4868).
    HmacSha384_192,
    /// HMAC-SHA-512, 256 bits of it (RFC 4868).
    HmacSha512_256,
    /// HMAC-MD5, 96 bits of it (RFC 2403).
    HmacMd5_96,
}

/// Fitness of a suite for use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Sound today.
    Current,
    /// Weak: for laboratories, by explicit choice (RFC 8221).
    Legacy,
}

/// UDP encapsulation of ESP (RFC 3948).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Udp {
    /// ESP directly above IP.
    #[default]
    No,
    /// A UDP header between IP and ESP.
    Yes,
}

/// Mode of an SA (RFC 4301, section 4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// A whole IP packet is carried, behind an outer IP header.
    #[default]
    Tunnel,
    /// The payload of the IP header is carried; the header stays.
    Transport,
}

/// Extended sequence numbers (RFC 4303, section 2.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Esn {
    /// Numbers of 32 bits.
    #[default]
    Off,
    /// Numbers of 64 bits; the upper half is authenticated, and not sent.
    On,
}

/// Direction of an SA, as seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Received packets are opened.
    In,
    /// Sent packets are sealed.
    Out,
}

impl Direction {
    /// The direction's word in policies and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Direction::In => "in",
            Direction::Out => "out",
        }
    }

    /// The direction of that word.
    pub fn named(name: &str) -> Option<Direction> {
        [Direction::In, Direction::Out].into_iter().find(|direction| direction.name() == name)
    }
}

/// Traffic flow confidentiality padding (RFC 4303, section 2.7): zeros between the inner packet and the padding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Tfc {
    /// None.
    #[default]
    Off,
    /// Up to the next multiple of so many bytes; 0 and 1 add nothing.
    Multiple(u16),
    /// Up to the tunnel's MTU: all packets are of one length.
    Mtu,
}

/// Congestion notification across a tunnel (RFC 6040).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EcnUse {
    /// Copied outwards, and what routers marked outside taken in.
    #[default]
    Copy,
    /// Nothing goes across: outer packets say that they are not capable of it.
    Off,
}

/// Cipher and integrity algorithm, with the lengths of all that they put on the wire or need, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Suite {
    /// Cipher.
    pub cipher: Cipher,
    /// Integrity algorithm.
    pub integrity: Integrity,
    /// Key of the cipher, without its salt.
    pub key: u8,
    /// Salt, behind the key in what operators and IKE daemons give (RFC 4106, section 8.1).
    pub salt: u8,
    /// Key of the integrity algorithm.
    pub auth_key: u8,
    /// Initialisation vector in front of the text.
    pub iv: u8,
    /// Length of which the text, padding and trailer included, is a multiple: a power of two.
    pub align: u8,
    /// Integrity check value behind the text.
    pub icv: u8,
    /// Fitness for use.
    pub standing: Standing,
}

/// Integrity algorithms by name, each with the lengths of its key and ICV.
const INTEGRITIES: [(&str, Integrity, u8, u8, Standing); 6] = [
    ("hmac-sha256-128", Integrity::HmacSha256_128, 32, 16, Standing::Current),
    ("hmac-sha384-192", Integrity::HmacSha384_192, 48, 24, Standing::Current),
    ("hmac-sha512-256", Integrity::HmacSha512_256, 64, 32, Standing::Current),
    ("hmac-sha1-96", Integrity::HmacSha1_96, 20, 12, Standing::Current),
    ("hmac-md5-96", Integrity::HmacMd5_96, 16, 12, Standing::Legacy),
    ("none", Integrity::None, 0, 0, Standing::Legacy),
];

/// Ciphers that authenticate, with the lengths of their keys.
const COMBINED: [(&str, Cipher, u8); 5] = [
    ("aes128-gcm", Cipher::Gcm, 16),
    ("aes256-gcm", Cipher::Gcm, 32),
    ("chacha20-poly1305", Cipher::ChaCha20Poly1305, 32),
    ("aes128-gmac", Cipher::Gmac, 16),
    ("aes256-gmac", Cipher::Gmac, 32),
];

/// Ciphers that need an integrity algorithm: length of the key, and of block and IV.
const PLAIN: [(&str, Cipher, u8, u8, Standing); 6] = [
    ("aes128-cbc", Cipher::AesCbc, 16, 16, Standing::Current),
    ("aes192-cbc", Cipher::AesCbc, 24, 16, Standing::Current),
    ("aes256-cbc", Cipher::AesCbc, 32, 16, Standing::Current),
    ("3des-cbc", Cipher::TripleDesCbc, 24, 8, Standing::Legacy),
    ("des-cbc", Cipher::DesCbc, 8, 8, Standing::Legacy),
    ("null", Cipher::Null, 0, 0, Standing::Current),
];

/// All suites: the combined ciphers, then each other cipher with each integrity algorithm. Null without integrity protects nothing
/// and is not among them.
pub static SUITES: [Suite; COMBINED.len() + PLAIN.len() * INTEGRITIES.len() - 1] = suites();

const fn suites() -> [Suite; COMBINED.len() + PLAIN.len() * INTEGRITIES.len() - 1] {
    let first = Suite {
        cipher: Cipher::Gcm,
        integrity: Integrity::Combined,
        key: 16,
        salt: 4,
        auth_key: 0,
        iv: 8,
        align: 4,
        icv: 16,
        standing: Standing::Current,
    };
    let mut all = [first; COMBINED.len() + PLAIN.len() * INTEGRITIES.len() - 1];
    let mut at = 0;
    while at < COMBINED.len() {
        let (_, cipher, key) = COMBINED[at];
        all[at] = Suite { cipher, key, ..first };
        at += 1;
    }
    let mut of = 0;
    while of < PLAIN.len() * INTEGRITIES.len() {
        let (_, cipher, key, block, cipher_standing) = PLAIN[of / INTEGRITIES.len()];
        let (_, integrity, auth_key, icv, standing) = INTEGRITIES[of % INTEGRITIES.len()];
        of += 1;
        if matches!((cipher, integrity), (Cipher::Null, Integrity::None)) {
            continue;
        }
        let standing = match (cipher_standing, standing) {
            (Standing::Current, Standing::Current) => Standing::Current,
            _ => Standing::Legacy,
        };
        // RFC 4303, section 2.4: the trailer ends on a multiple of 4 whatever the cipher's block.
        let align = if block > 4 { block } else { 4 };
        all[at] = Suite { cipher, integrity, key, salt: 0, auth_key, iv: block, align, icv, standing };
        at += 1;
    }
    all
}

impl Suite {
    /// The suite of a policy's words: `algorithm` as "aes128-gcm" or "aes128-cbc", `auth` as "hmac-sha1-96" for ciphers that do not
    /// authenticate by themselves. `None` for an unknown word, and where `auth` is needed or needless.
    pub fn named(algorithm: &str, auth: Option<&str>) -> Option<&'static Suite> {
        SUITES.iter().find(|suite| suite.name().algorithm() == algorithm && suite.name().auth() == auth)
    }

    /// The suite's words in policies.
    pub fn name(&self) -> SuiteName {
        SuiteName(*self)
    }

    /// True for the length of a text, padding and trailer included.
    #[inline(always)]
    pub const fn is_whole(&self, text: usize) -> bool {
        text & (self.align as usize - 1) == 0
    }

    /// Bytes that ESP adds to an inner packet in tunnel mode, at most: outer header, UDP header, ESP header, IV, padding, trailer, ICV.
    pub const fn overhead(&self, outer: Family, udp: Udp) -> u16 {
        self.fixed(outer, udp) + self.align as u16 - 1 + TRAILER_LEN as u16
    }

    /// Length of the longest packet that becomes an outer packet of `outer_mtu` bytes at most; 0 if none does.
    ///
    /// In transport mode the header that stays is counted without options.
    pub const fn inner_mtu(&self, outer_mtu: u16, outer: Family, udp: Udp, mode: Mode) -> u16 {
        let left = outer_mtu.saturating_sub(self.fixed(outer, udp));
        let text = left & !(self.align as u16 - 1);
        let inner = text.saturating_sub(TRAILER_LEN as u16);
        match mode {
            Mode::Tunnel => inner,
            Mode::Transport if inner == 0 => 0,
            Mode::Transport => inner + ip_header(outer),
        }
    }

    /// Bytes around the text.
    const fn fixed(&self, outer: Family, udp: Udp) -> u16 {
        let udp = match udp {
            Udp::No => 0,
            Udp::Yes => udp::HEADER_LEN as u16,
        };
        ip_header(outer) + udp + esp::HEADER_LEN as u16 + self.iv as u16 + self.icv as u16
    }
}

const fn ip_header(family: Family) -> u16 {
    match family {
        Family::V4 => ipv4::MIN_HEADER_LEN as u16,
        _ => ipv6::HEADER_LEN as u16,
    }
}

/// Name of a suite: prints as "aes128-gcm" or "aes128-cbc, hmac-sha1-96".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuiteName(Suite);

impl SuiteName {
    /// The cipher's word.
    pub fn algorithm(self) -> &'static str {
        let Suite { cipher, key, .. } = self.0;
        let combined = COMBINED.iter().map(|&(name, of, len)| (name, of, len));
        let plain = PLAIN.iter().map(|&(name, of, len, ..)| (name, of, len));
        let mut all = combined.chain(plain);
        all.find(|&(_, of, len)| (of, len) == (cipher, key)).map_or("unknown", |(name, ..)| name)
    }

    /// The integrity algorithm's word, for ciphers that do not authenticate by themselves.
    pub fn auth(self) -> Option<&'static str> {
        INTEGRITIES.iter().find(|(_, integrity, ..)| *integrity == self.0.integrity).map(|(name, ..)| *name)
    }
}

impl fmt::Display for SuiteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.algorithm())?;
        self.auth().map_or(Ok(()), |auth| write!(f, ", {auth}"))
    }
}

#[cfg(test)]
mod tests;
