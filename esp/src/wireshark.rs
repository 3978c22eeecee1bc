//! Security associations in the words of Wireshark: the table `esp_sa`, by which it decrypts captures, and which strongSwan's plugin `save-keys`
//! writes too.
//!
//! A line has eight fields in quotes: IP version, source, destination, SPI, cipher, its key, integrity algorithm, its key; since Wireshark 4.2 two
//! more, for extended sequence numbers. Empty lines, and those that begin with `#`, are comments. Keys are zeroised, and no error repeats one.

use std::fmt::Write as _;
use std::net::IpAddr;

use wire::esp::{BadHex, Cipher, Esn, Integrity, SUITES, Secret, Suite};
use zeroize::Zeroizing;

use crate::Keys;

/// Security association of a table.
#[derive(Debug)]
pub struct TableSa {
    /// Line in the file, from 1.
    pub line: usize,
    /// Outer source.
    pub source: End,
    /// Outer destination.
    pub destination: End,
    /// Security parameters index.
    pub spi: u32,
    /// Check of packets.
    pub check: Check,
    /// Keys.
    pub keys: Keys,
    /// Extended sequence numbers, where the line says so, with the upper half that they begin with.
    pub esn: Option<(Esn, u32)>,
}

/// Cipher, and integrity check of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// By the suite.
    Suite(&'static Suite),
    /// None ("no checking"): the cipher alone; so many bytes of the packet's end are no text. `None` is NULL.
    Unchecked(Option<&'static Suite>, u8),
}

/// Outer address of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// `*`.
    Any,
    /// An address, or the network of so many bits.
    Net(IpAddr, u8),
}

/// Reason why a line cannot be read. No key is in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLine {
    /// Fields are missing, or there are too many.
    #[error("a line has 8 fields in quotes with commas between, or 10; here are {0}")]
    Fields(usize),
    /// A quote is missing.
    #[error("field {0} is not in quotes, or its quote is not closed")]
    Quote(usize),
    /// No IP version.
    #[error("the first field is \"IPv4\" or \"IPv6\", not \"{0}\"")]
    Version(String),
    /// No address.
    #[error("\"{0}\" is no {1} address, network or \"*\"")]
    Address(String, &'static str),
    /// No SPI.
    #[error("\"{0}\" is no SPI: a number from 1, such as \"0x1000\" (\"*\" is not taken)")]
    Spi(String),
    /// An algorithm that is not known here.
    #[error("the {0} \"{1}\" is not known here")]
    Algorithm(&'static str, String),
    /// Algorithms that do not go together.
    #[error("\"{0}\" does not go with \"{1}\"")]
    Together(String, String),
    /// A key of another length.
    #[error("{0} takes no key of {1} bytes")]
    KeyLength(String, usize),
    /// A key that is none.
    #[error("the {0} is no key: {1}")]
    Key(&'static str, BadHex),
    /// A key that does not begin with 0x.
    #[error("the {0} does not begin with 0x: text as a key is not taken")]
    NoHex(&'static str),
    /// No length of sequence numbers.
    #[error("the ninth field is \"32-bit\" or \"64-bit\", and the tenth the upper half of a number")]
    Numbers,
}

/// Ciphers by Wireshark's words, those that are the same first that strongSwan writes.
const CIPHERS: [(&str, Cipher); 7] = [
    ("NULL", Cipher::Null),
    ("TripleDES-CBC [RFC2451]", Cipher::TripleDesCbc),
    ("AES-CBC [RFC3602]", Cipher::AesCbc),
    ("DES-CBC [RFC2405]", Cipher::DesCbc),
    ("AES-GCM [RFC4106]", Cipher::Gcm),
    ("AES-GCM with 16 octet ICV [RFC4106]", Cipher::Gcm),
    ("ChaCha20 with Poly1305 [RFC7634]", Cipher::ChaCha20Poly1305),
];

const INTEGRITIES: [(&str, Integrity); 6] = [
    ("NULL", Integrity::None),
    ("HMAC-SHA-1-96 [RFC2404]", Integrity::HmacSha1_96),
    ("HMAC-SHA-256-128 [RFC4868]", Integrity::HmacSha256_128),
    ("HMAC-SHA-384-192 [RFC4868]", Integrity::HmacSha384_192),
    ("HMAC-SHA-512-256 [RFC4868]", Integrity::HmacSha512_256),
    ("HMAC-MD5-96 [RFC2403]", Integrity::HmacMd5_96),
];

/// Integrity that is not checked, by Wireshark's words, with its bytes.
const UNCHECKED: [(&str, u8); 5] = [
    ("ANY 64 bit authentication [no checking]", 8),
    ("ANY 96 bit authentication [no checking]", 12),
    ("ANY 128 bit authentication [no checking]", 16),
    ("ANY 192 bit authentication [no checking]", 24),
    ("ANY 256 bit authentication [no checking]", 32),
];

/// Reads a table. Returns the associations of all lines that can be read, and the others with their numbers, from 1.
pub fn parse(text: &str) -> (Vec<TableSa>, Vec<(usize, BadLine)>) {
    let (mut sas, mut bad) = (Vec::new(), Vec::new());
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match row(number, line) {
            Ok(sa) => sas.push(sa),
            Err(error) => bad.push((number, error)),
        }
    }
    (sas, bad)
}

/// Writes the line of an association between these addresses, of which one at least is known; `None` for algorithms that Wireshark does not have.
pub fn line(
    source: Option<IpAddr>,
    destination: Option<IpAddr>,
    spi: u32,
    suite: &Suite,
    keys: &Keys,
) -> Option<Zeroizing<String>> {
    let Suite { cipher, integrity, .. } = *suite;
    // Of two words the later one is the clearer: that with the length of the ICV.
    let (cipher, _) = CIPHERS.iter().rev().find(|(_, own)| *own == cipher)?;
    let integrity = match integrity {
        Integrity::Combined => "NULL",
        other => INTEGRITIES.iter().find(|(_, own)| *own == other)?.0,
    };
    let version = if source.or(destination)?.is_ipv4() { "IPv4" } else { "IPv6" };
    let [source, destination] =
        [source, destination].map(|end| end.map_or_else(|| "*".to_owned(), |end| end.to_string()));
    // All at once: growing would leave copies of keys behind.
    let mut text = Zeroizing::new(String::with_capacity(512));
    let key = |text: &mut String, key: &Secret| {
        if !key.is_empty() {
            text.push_str("0x");
            for byte in key.expose() {
                let _ = write!(text, "{byte:02x}");
            }
        }
    };
    let _ = write!(text, "\"{version}\",\"{source}\",\"{destination}\",\"{spi:#010x}\",\"{cipher}\",\"");
    key(&mut text, &keys.cipher);
    let _ = write!(text, "\",\"{integrity}\",\"");
    key(&mut text, &keys.auth);
    text.push('"');
    Some(text)
}

fn row(line: usize, text: &str) -> Result<TableSa, BadLine> {
    let fields = fields(text)?;
    let (fields, numbers) = match &fields[..] {
        [first @ .., bits, high] if first.len() == 8 => (first, Some((*bits, *high))),
        fields => (fields, None),
    };
    let [version, source, destination, spi, cipher, key, integrity, auth_key] = *fields else {
        return Err(BadLine::Fields(fields.len()));
    };
    let is_v6 = match version {
        "IPv4" => false,
        "IPv6" => true,
        other => return Err(BadLine::Version(shown(other))),
    };
    let keys = Keys { cipher: secret(key, "encryption key")?, auth: secret(auth_key, "authentication key")? };
    Ok(TableSa {
        line,
        source: end(source, is_v6)?,
        destination: end(destination, is_v6)?,
        spi: spi_of(spi)?,
        check: check(cipher, integrity, &keys)?,
        keys,
        esn: numbers.map(numbered).transpose()?,
    })
}

/// Splits a line into what is in quotes.
fn fields(text: &str) -> Result<Vec<&str>, BadLine> {
    let mut fields = Vec::new();
    let mut rest = text;
    loop {
        let missing = BadLine::Quote(fields.len() + 1);
        let (field, after) =
            rest.trim_start().strip_prefix('"').and_then(|rest| rest.split_once('"')).ok_or(missing)?;
        fields.push(field);
        match after.trim_start().strip_prefix(',') {
            Some(after) => rest = after,
            None if after.trim().is_empty() => return Ok(fields),
            None => return Err(BadLine::Quote(fields.len())),
        }
    }
}

/// A field as an error may repeat it: not what may be a key in the wrong column.
fn shown(text: &str) -> String {
    if text.len() > 10 && text.starts_with("0x") { "0x...".to_owned() } else { text.to_owned() }
}

fn end(text: &str, is_v6: bool) -> Result<End, BadLine> {
    if text == "*" {
        return Ok(End::Any);
    }
    let family = if is_v6 { "IPv6" } else { "IPv4" };
    let bad = || BadLine::Address(shown(text), family);
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length.parse::<u8>().map_err(|_| bad())?)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| bad())?;
    let most = if is_v6 { 128 } else { 32 };
    let length = length.unwrap_or(most);
    if address.is_ipv6() != is_v6 || length > most {
        return Err(bad());
    }
    Ok(End::Net(address, length))
}

fn spi_of(text: &str) -> Result<u32, BadLine> {
    let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.ok().filter(|spi| *spi > 0).ok_or_else(|| BadLine::Spi(shown(text)))
}

fn secret(text: &str, what: &'static str) -> Result<Secret, BadLine> {
    let digits = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => digits,
        None if text.is_empty() => text,
        None => return Err(BadLine::NoHex(what)),
    };
    Secret::of_hex(digits).map_err(|error| BadLine::Key(what, error))
}

fn numbered((bits, high): (&str, &str)) -> Result<(Esn, u32), BadLine> {
    let esn = match bits {
        "32-bit" => Esn::Off,
        "64-bit" => Esn::On,
        _ => return Err(BadLine::Numbers),
    };
    let digits = high.strip_prefix("0x").unwrap_or(high);
    let high = if digits.is_empty() { Ok(0) } else { u32::from_str_radix(digits, 16) };
    Ok((esn, high.map_err(|_| BadLine::Numbers)?))
}

fn check(cipher_word: &str, integrity_word: &str, keys: &Keys) -> Result<Check, BadLine> {
    let cipher = CIPHERS.iter().find(|(word, _)| *word == cipher_word).map(|(_, cipher)| *cipher);
    let cipher = cipher.ok_or_else(|| BadLine::Algorithm("cipher", shown(cipher_word)))?;
    let unchecked = UNCHECKED.iter().find(|(word, _)| *word == integrity_word).map(|(_, bytes)| *bytes);
    let integrity = INTEGRITIES.iter().find(|(word, _)| *word == integrity_word).map(|(_, own)| *own);
    if unchecked.is_none() && integrity.is_none() {
        return Err(BadLine::Algorithm("integrity algorithm", shown(integrity_word)));
    }
    let together = || BadLine::Together(cipher_word.to_owned(), integrity_word.to_owned());
    let wrong = |words: &str, key: &Secret| BadLine::KeyLength(words.to_owned(), key.len());
    let suite = |integrity: Integrity| {
        let fits = |suite: &&Suite| {
            (suite.cipher, suite.integrity) == (cipher, integrity)
                && usize::from(suite.key + suite.salt) == keys.cipher.len()
        };
        SUITES.iter().find(fits)
    };
    if matches!(cipher, Cipher::Gcm | Cipher::ChaCha20Poly1305) {
        // They authenticate by themselves, with 16 bytes: what the table says of it is about these.
        if !(unchecked == Some(16) || integrity == Some(Integrity::None)) {
            return Err(together());
        }
        let suite = suite(Integrity::Combined).ok_or_else(|| wrong(cipher_word, &keys.cipher))?;
        return Ok(Check::Suite(suite));
    }
    if let Some(bytes) = unchecked {
        let bare = suite(Integrity::None);
        return match (cipher, bare) {
            (Cipher::Null, _) if keys.cipher.is_empty() => Ok(Check::Unchecked(None, bytes)),
            (_, Some(suite)) => Ok(Check::Unchecked(Some(suite), bytes)),
            _ => Err(wrong(cipher_word, &keys.cipher)),
        };
    }
    let integrity = integrity.unwrap_or(Integrity::None);
    if (cipher, integrity) == (Cipher::Null, Integrity::None) {
        return Ok(Check::Unchecked(None, 0));
    }
    let suite = suite(integrity).ok_or_else(|| wrong(cipher_word, &keys.cipher))?;
    if usize::from(suite.auth_key) != keys.auth.len() {
        return Err(wrong(integrity_word, &keys.auth));
    }
    Ok(Check::Suite(suite))
}

impl End {
    /// True for an address that the line is about.
    pub fn has(&self, address: IpAddr) -> bool {
        match (*self, address) {
            (End::Any, _) => true,
            (End::Net(IpAddr::V4(net), length), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
                (net.to_bits() ^ address.to_bits()) & mask == 0
            }
            (End::Net(IpAddr::V6(net), length), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
                (net.to_bits() ^ address.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
