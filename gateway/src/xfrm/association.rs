//! Security associations of XFRM in the project's own words, or the reason why the data plane cannot carry one.

use std::net::IpAddr;

use esp::Keys;
use wire::esp::{Cipher, Direction, EcnUse, Esn, Integrity, Mode, SUITES, Secret, Suite};

use super::message::{Algorithm, ESN, ESP, Encap, Errno, Lifetimes, Sa, Selector};
use super::parse::Refusal;

/// Security association, complete: what the data plane needs to seal and open its packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Association {
    /// Security parameters index.
    pub spi: u32,
    /// Source of outer packets.
    pub source: IpAddr,
    /// Destination of outer packets.
    pub destination: IpAddr,
    /// Direction, where the message tells it; else it follows from which end is the gateway's.
    pub direction: Option<Direction>,
    /// Cipher and integrity algorithm.
    pub suite: &'static Suite,
    /// Their keys.
    pub keys: Keys,
    /// Mode.
    pub mode: Mode,
    /// Extended sequence numbers.
    pub esn: Esn,
    /// Numbers in the window against replay; 0 for none.
    pub window: u32,
    /// Ports of UDP encapsulation: source and destination. A source of 0 is a peer's that is not known: strongSwan 6 gives it to associations of
    /// one processor, as the peer may send each by a port of its own.
    pub udp: Option<[u16; 2]>,
    /// Seconds between keepalives through a NAT.
    pub keepalive: Option<u32>,
    /// Last number sent, and highest received, of an association that goes on.
    pub numbers: Numbers,
    /// Number that binds it to policies; 0 for none.
    pub reqid: u32,
    /// Number of its interface; 0 for none.
    pub if_id: u32,
    /// Processor whose packets alone leave by it (RFC 9611); `None` for all.
    pub cpu: Option<u16>,
    /// Packets that may be in it; `None` for any that a policy sends.
    pub selector: Option<Selector>,
    /// Bounds.
    pub lifetimes: Lifetimes,
    /// Copying of the DS field.
    pub dscp: DscpCopy,
    /// Congestion notification across the tunnel.
    pub ecn: EcnUse,
    /// Bit "don't fragment" of outer packets.
    pub df: DfCopy,
    /// Length to which inner packets are padded; 0 for none.
    pub tfc: u32,
}

/// Numbers of an association.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Last number sent; 0 if none.
    pub sent: u64,
    /// Highest number received; 0 if none.
    pub received: u64,
}

/// Copying of the DS field between inner and outer header (RFC 2983).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DscpCopy {
    /// Outer header of packets that leave.
    pub outwards: Copied,
    /// Inner header of packets that come in.
    pub inwards: Copied,
}

/// Copying of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    /// The field is copied.
    Yes,
    /// The field stays as it is, or 0.
    No,
}

/// Bit "don't fragment" of outer packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DfCopy {
    /// As the inner packet has it.
    Copy,
    /// Never set.
    Clear,
}

/// Reason why an association cannot be carried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// Protocol other than ESP.
    #[error("protocol {0} is not supported: only ESP (50)")]
    Protocol(u8),
    /// Mode other than transport and tunnel.
    #[error("mode {0} is not supported: only transport (0) and tunnel (1)")]
    Mode(u8),
    /// SPI that is reserved.
    #[error("SPI {0:#x} is reserved: from 0x100")]
    Spi(u32),
    /// No cipher.
    #[error("there is neither `aead` nor `enc`: encryption `ecb(cipher_null)` is to be asked for by name")]
    NoCipher,
    /// Cipher that authenticates beside an integrity algorithm, or beside another cipher.
    #[error("{0} authenticates by itself and stands alone")]
    Needless(String),
    /// Unknown name.
    #[error("no suite has the algorithm {0}")]
    Algorithm(String),
    /// Unknown length of the key, or of key and ICV together.
    #[error("no suite has {name} with a key of {key} bits")]
    KeyLength {
        /// Linux's name of the algorithm.
        name: String,
        /// Bits of the key, salt included.
        key: usize,
    },
    /// Unknown length of the ICV.
    #[error("no suite has {name} with an ICV of {bits} bits")]
    IcvLength {
        /// Linux's name of the algorithm.
        name: String,
        /// Bits of the ICV.
        bits: u32,
    },
    /// Nothing protects the packets.
    #[error("neither encryption nor integrity")]
    Unprotected,
    /// Extended numbers without a window.
    #[error("extended sequence numbers need a window: `replay-window` is 0")]
    EsnWithoutWindow,
    /// Extended numbers without the attribute that holds them.
    #[error("extended sequence numbers without their window (attribute REPLAY_ESN_VAL)")]
    EsnWithoutNumbers,
    /// Encapsulation other than that of RFC 3948.
    #[error("encapsulation {0} is not supported: only espinudp (2)")]
    Encap(u16),
    /// Encapsulation in UDP without a destination port.
    #[error("UDP encapsulation needs a destination port")]
    EncapPort,
    /// Padding for the confidentiality of traffic flow in transport mode.
    #[error("padding to a length (TFC) is for tunnel mode")]
    TransportTfc,
    /// Number of a processor that no machine has.
    #[error("there is no processor {0}: up to 65535")]
    Cpu(u32),
    /// Direction other than in and out.
    #[error("no direction of an SA is {0}: 1 for in, 2 for out")]
    Direction(u8),
}

impl From<Unsupported> for Refusal {
    fn from(reason: Unsupported) -> Refusal {
        let errno = match reason {
            Unsupported::Protocol(_) => Errno::PROTONOSUPPORT,
            Unsupported::Algorithm(_) => Errno::NOSYS,
            Unsupported::Cpu(_) => Errno::RANGE,
            _ => Errno::INVAL,
        };
        Refusal::new(errno, reason.to_string())
    }
}

/// Ciphers that authenticate, by Linux's names.
const COMBINED: [([&str; 1], Cipher); 3] = [
    (["rfc4106(gcm(aes))"], Cipher::Gcm),
    (["rfc7539esp(chacha20,poly1305)"], Cipher::ChaCha20Poly1305),
    (["rfc4543(gcm(aes))"], Cipher::Gmac),
];

/// Ciphers that do not, by both of Linux's names for each.
const PLAIN: [([&str; 2], Cipher); 4] = [
    (["cbc(aes)", "aes"], Cipher::AesCbc),
    (["cbc(des3_ede)", "des3_ede"], Cipher::TripleDesCbc),
    (["cbc(des)", "des"], Cipher::DesCbc),
    (["ecb(cipher_null)", "cipher_null"], Cipher::Null),
];

/// Hashes, by both of Linux's names for each, and the bits of the ICV where the message does not tell them (Linux's `xfrm_algo.c`).
const HASHES: [([&str; 2], (Integrity, u32)); 6] = [
    (["hmac(sha1)", "sha1"], (Integrity::HmacSha1_96, 96)),
    (["hmac(sha256)", "sha256"], (Integrity::HmacSha256_128, 96)),
    (["hmac(sha384)", "sha384"], (Integrity::HmacSha384_192, 192)),
    (["hmac(sha512)", "sha512"], (Integrity::HmacSha512_256, 256)),
    (["hmac(md5)", "md5"], (Integrity::HmacMd5_96, 96)),
    (["digest_null", "digest_null"], (Integrity::None, 0)),
];

impl Association {
    /// The association of a message.
    ///
    /// # Errors
    /// [`Unsupported`], with what to ask for instead where there is something.
    pub fn of(sa: &Sa) -> Result<Association, Unsupported> {
        let info = &sa.info;
        if info.id.protocol != ESP {
            return Err(Unsupported::Protocol(info.id.protocol));
        }
        if info.id.spi < 256 {
            return Err(Unsupported::Spi(info.id.spi));
        }
        let mode = match info.mode {
            0 => Mode::Transport,
            1 => Mode::Tunnel,
            other => return Err(Unsupported::Mode(other)),
        };
        // The parser lets no other families through.
        let unspecified = IpAddr::from([0; 4]);
        let address = |address: super::message::Address| address.ip(info.family).unwrap_or(unspecified);
        let (suite, keys) = suite(sa)?;
        let tfc = sa.tfc.unwrap_or(0);
        if tfc != 0 && mode == Mode::Transport {
            return Err(Unsupported::TransportTfc);
        }
        let (esn, window) = window(sa)?;
        Ok(Association {
            spi: info.id.spi,
            source: address(info.source),
            destination: address(info.id.destination),
            direction: match sa.direction {
                None => None,
                Some(IN) => Some(Direction::In),
                Some(OUT) => Some(Direction::Out),
                Some(other) => return Err(Unsupported::Direction(other)),
            },
            suite,
            keys,
            mode,
            esn,
            window,
            udp: sa.encap.as_ref().map(ports).transpose()?,
            keepalive: sa.keepalive.filter(|seconds| *seconds != 0),
            numbers: numbers(sa),
            reqid: info.reqid,
            if_id: sa.if_id.unwrap_or(0),
            cpu: sa.cpu.map(cpu).transpose()?,
            selector: Some(info.selector).filter(|selector| *selector != Selector::default()),
            lifetimes: info.lifetimes,
            dscp: DscpCopy {
                outwards: copied(sa.extra_flags.unwrap_or(0) & DONT_ENCAP_DSCP == 0),
                inwards: copied(info.flags & DECAP_DSCP != 0),
            },
            ecn: if info.flags & NO_ECN == 0 { EcnUse::Copy } else { EcnUse::Off },
            df: if info.flags & NO_PMTU_DISCOVERY == 0 { DfCopy::Copy } else { DfCopy::Clear },
            tfc,
        })
    }

    /// True if the other association has the same keys, and so the same numbers.
    pub fn has_keys_of(&self, other: &Association) -> bool {
        self.suite == other.suite && self.keys == other.keys
    }
}

/// Directions of the attribute SA_DIR.
const IN: u8 = 1;
const OUT: u8 = 2;

/// Flags of `xfrm_usersa_info`.
const NO_ECN: u8 = 1;
const DECAP_DSCP: u8 = 2;
const NO_PMTU_DISCOVERY: u8 = 4;

/// Flag of the attribute EXTRA_FLAGS.
const DONT_ENCAP_DSCP: u32 = 1;

/// Number of a processor.
pub(super) fn cpu(number: u32) -> Result<u16, Unsupported> {
    u16::try_from(number).map_err(|_| Unsupported::Cpu(number))
}

fn copied(is_copied: bool) -> Copied {
    if is_copied { Copied::Yes } else { Copied::No }
}

/// Numbers that an association goes on with.
fn numbers(sa: &Sa) -> Numbers {
    match (&sa.esn, &sa.replay) {
        (Some(esn), _) => Numbers { sent: esn.sent, received: esn.received },
        (None, Some(replay)) => {
            Numbers { sent: u64::from(replay.sent), received: u64::from(replay.received) }
        }
        (None, None) => Numbers::default(),
    }
}

fn window(sa: &Sa) -> Result<(Esn, u32), Unsupported> {
    let asked = match &sa.esn {
        Some(esn) => esn.window,
        None => u32::from(sa.info.window),
    };
    match (sa.info.flags & ESN != 0, &sa.esn) {
        (false, _) => Ok((Esn::Off, asked)),
        (true, None) => Err(Unsupported::EsnWithoutNumbers),
        // Linux 6.10 and later have no window of what leaves where the direction is told, and strongSwan 6 asks for none.
        (true, Some(_)) if asked == 0 && sa.direction != Some(OUT) => Err(Unsupported::EsnWithoutWindow),
        (true, Some(_)) => Ok((Esn::On, asked)),
    }
}

fn ports(encap: &Encap) -> Result<[u16; 2], Unsupported> {
    const ESP_IN_UDP: u16 = 2;
    match encap {
        Encap { kind: ESP_IN_UDP, destination_port: 0, .. } => Err(Unsupported::EncapPort),
        Encap { kind: ESP_IN_UDP, source_port, destination_port, .. } => {
            Ok([*source_port, *destination_port])
        }
        other => Err(Unsupported::Encap(other.kind)),
    }
}

fn suite(sa: &Sa) -> Result<(&'static Suite, Keys), Unsupported> {
    let none = || Secret::new(Box::default());
    match (&sa.aead, &sa.cipher, &sa.auth) {
        (Some(aead), None, None) => {
            let cipher = named(&COMBINED, aead)?;
            let suite = of_key(aead, |suite| suite.cipher == cipher)?;
            icv(aead, suite, 128)?;
            Ok((suite, Keys { cipher: aead.key.clone(), auth: none() }))
        }
        (Some(aead), ..) => Err(Unsupported::Needless(aead.name.clone())),
        (None, None, _) => Err(Unsupported::NoCipher),
        (None, Some(cipher), auth) => {
            let wanted = named(&PLAIN, cipher)?;
            let (integrity, usual) = match auth {
                None => (Integrity::None, 0),
                Some(auth) => named(&HASHES, auth)?,
            };
            if (wanted, integrity) == (Cipher::Null, Integrity::None) {
                return Err(Unsupported::Unprotected);
            }
            let suite = of_key(cipher, |suite| (suite.cipher, suite.integrity) == (wanted, integrity))?;
            if let Some(auth) = auth {
                if auth.key.len() != usize::from(suite.auth_key) {
                    return Err(key_length(auth));
                }
                icv(auth, suite, usual)?;
            }
            let auth = auth.as_ref().map_or_else(none, |auth| auth.key.clone());
            Ok((suite, Keys { cipher: cipher.key.clone(), auth }))
        }
    }
}

fn named<T: Copy, const N: usize>(table: &[([&str; N], T)], algorithm: &Algorithm) -> Result<T, Unsupported> {
    let found = table.iter().find(|(names, _)| names.contains(&algorithm.name.as_str()));
    found.map(|(_, value)| *value).ok_or_else(|| Unsupported::Algorithm(algorithm.name.clone()))
}

fn key_length(algorithm: &Algorithm) -> Unsupported {
    Unsupported::KeyLength { name: algorithm.name.clone(), key: algorithm.key.len() * 8 }
}

/// The suite that `fits` and takes a key of this length.
fn of_key(algorithm: &Algorithm, fits: impl Fn(&Suite) -> bool) -> Result<&'static Suite, Unsupported> {
    let has_key = |suite: &&Suite| usize::from(suite.key) + usize::from(suite.salt) == algorithm.key.len();
    SUITES.iter().filter(has_key).find(|suite| fits(suite)).ok_or_else(|| key_length(algorithm))
}

/// Refuses an ICV of another length than the suite's.
fn icv(algorithm: &Algorithm, suite: &Suite, usual: u32) -> Result<(), Unsupported> {
    let bits = algorithm.icv_bits.unwrap_or(usual);
    if bits == u32::from(suite.icv) * 8 {
        return Ok(());
    }
    Err(Unsupported::IcvLength { name: algorithm.name.clone(), bits })
}

#[cfg(test)]
mod tests;
