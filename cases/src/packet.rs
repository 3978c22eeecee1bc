//! Packets in words: those to receive, and those expected to be sent.
//!
//! ```text
//! [eth MAC > MAC] [vlan N [vlan N]] PROTOCOL SOURCE[:PORT] > DESTINATION[:PORT] [WORD [VALUE]]... [quoting PACKET]
//! ```
//!
//! `docs/cases.md` is the manual.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::vec::IntoIter;

use wire::ethernet::Mac;
use wire::header::Protocol;
use wire::tcp::Flags;

use super::fault::What;
use super::field::{self, FIELDS, Field, Fields, Shape, Value};

/// A value as it stands in a case file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// A fixed value.
    Is(Value),
    /// The value bound to a variable.
    Variable(String),
    /// The value bound to a variable, plus a number.
    After(String, u64),
    /// A value, plus one for each repetition.
    Counts(Value),
    /// Any value.
    Any,
}

/// A packet in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Packet {
    /// Values of the fields that the packet states.
    pub(crate) slots: BTreeMap<Field, Slot>,
    /// IPv6 extension headers: protocol and body.
    pub(crate) extensions: Vec<(Protocol, Vec<u8>)>,
    /// The packet that an ICMP error quotes.
    pub(crate) quoted: Option<Box<Packet>>,
    /// The whole frame, where it is given in hexadecimal.
    pub(crate) raw: Option<Vec<u8>>,
}

/// Values of variables, by name.
pub(crate) type Variables = BTreeMap<String, Value>;

impl Packet {
    /// The fields' values in the repetition `turn`, or the first variable that stands for nothing yet. Fields
    /// that may be anything are left out.
    pub(crate) fn fields(&self, variables: &Variables, turn: u64) -> Result<Fields, String> {
        let mut fields = Fields::new();
        for (field, slot) in &self.slots {
            let value = match slot {
                Slot::Is(value) => value.clone(),
                Slot::Counts(value) => counted(value, turn),
                Slot::Variable(name) => variables.get(name).cloned().ok_or_else(|| name.clone())?,
                Slot::After(name, by) => after(variables.get(name).ok_or_else(|| name.clone())?, *by),
                Slot::Any => continue,
            };
            fields.insert(*field, value);
        }
        Ok(fields)
    }

    /// True if the addresses are IPv6; `None` if no address is a literal value.
    pub(crate) fn is_v6(&self) -> Option<bool> {
        [Field::Source, Field::Destination].iter().find_map(|field| match self.slots.get(field) {
            Some(Slot::Is(Value::Address(address)) | Slot::Counts(Value::Address(address))) => {
                Some(address.is_ipv6())
            }
            _ => None,
        })
    }

    fn protocol(&self) -> Option<Protocol> {
        match self.slots.get(&Field::Protocol) {
            Some(Slot::Is(Value::Number(number))) => Some(Protocol(*number as u8)),
            _ => None,
        }
    }

    fn set(&mut self, field: Field, slot: Slot) -> Result<(), What> {
        match self.slots.insert(field, slot) {
            None => Ok(()),
            Some(_) => Err(What::Twice(field.word().to_owned())),
        }
    }
}

/// A value so many further on; numbers of 32 bits begin anew.
fn after(value: &Value, by: u64) -> Value {
    match value {
        Value::Number(number) => Value::Number(number.wrapping_add(by) & 0xffff_ffff),
        other => counted(other, by),
    }
}

fn counted(value: &Value, turn: u64) -> Value {
    match value {
        Value::Number(number) => Value::Number(number.wrapping_add(turn)),
        Value::Address(IpAddr::V4(address)) => {
            Value::Address(IpAddr::V4((address.to_bits().wrapping_add(turn as u32)).into()))
        }
        Value::Address(IpAddr::V6(address)) => {
            Value::Address(IpAddr::V6((address.to_bits().wrapping_add(u128::from(turn))).into()))
        }
        other => other.clone(),
    }
}

/// Words still to be read.
pub(crate) type Words = std::iter::Peekable<IntoIter<String>>;

/// The most packets that are quoted within one another.
const DEEPEST: usize = 4;

/// Reads a packet up to the end or `=>`.
pub(crate) fn read(words: &mut Words) -> Result<Packet, What> {
    within(words, 0)
}

/// Reads a packet that is quoted within so many others.
fn within(words: &mut Words, depth: usize) -> Result<Packet, What> {
    if depth > DEEPEST {
        return Err(What::TooDeep(DEEPEST));
    }
    let mut packet = Packet::default();
    link(&mut packet, words)?;
    let word = next(words, "a protocol")?;
    match word.as_str() {
        "hex" => {
            let mut bytes = Vec::new();
            while words.peek().is_some_and(|word| word != "=>") {
                bytes.extend(hex(&next(words, "bytes")?)?);
            }
            packet.raw = Some(bytes);
            return Ok(packet);
        }
        "any" => return Ok(packet),
        "ethertype" => {
            let word = next(words, "an Ethernet type")?;
            let number = word.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
            let number = number.filter(|number| *number <= 0xffff);
            let number = number.ok_or(What::Value { word, wanted: "an Ethernet type as 0x88cc" })?;
            packet.set(Field::Ethertype, Slot::Is(Value::Number(number)))?;
        }
        "arp" => {
            packet.set(Field::Ethertype, Slot::Is(Value::Number(0x0806)))?;
            ends(&mut packet, words, Ports::None)?;
            let kind = match next(words, "request or reply")?.as_str() {
                "request" => 1,
                "reply" => 2,
                word => return Err(What::Value { word: word.to_owned(), wanted: "request or reply" }),
            };
            packet.set(Field::Type, Slot::Is(Value::Number(kind)))?;
        }
        _ => {
            let name = word.strip_prefix("ip:").unwrap_or(&word);
            let wanted = "a protocol, hex, arp, ethertype or any";
            let protocol: Protocol = name.parse().map_err(|_| What::Value { word: word.clone(), wanted })?;
            packet.set(Field::Protocol, Slot::Is(Value::Number(u64::from(protocol.0))))?;
            let ports = if protocol.has_ports() { Ports::Both } else { Ports::None };
            ends(&mut packet, words, ports)?;
            first_word(&mut packet, protocol, words)?;
        }
    }
    rest(&mut packet, words, depth)?;
    Ok(packet)
}

/// Ports beside addresses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ports {
    None,
    Both,
}

fn link(packet: &mut Packet, words: &mut Words) -> Result<(), What> {
    if words.next_if(|word| word == "eth").is_some() {
        for field in [Field::EthSource, Field::EthDestination] {
            if field == Field::EthDestination {
                arrow(words)?;
            }
            let word = next(words, "an Ethernet address")?;
            let slot = match word.as_str() {
                "*" => Slot::Any,
                text => {
                    let wanted = "an Ethernet address as 02:00:5e:10:00:01, or *";
                    let mac: Mac = text.parse().map_err(|_| What::Value { word: text.to_owned(), wanted })?;
                    Slot::Is(Value::Mac(mac))
                }
            };
            packet.set(field, slot)?;
        }
    }
    if words.next_if(|word| word == "untagged").is_some() {
        return packet.set(Field::Vlans, Slot::Is(Value::Vlans(Vec::new())));
    }
    let mut ids = Vec::new();
    while words.next_if(|word| word == "vlan").is_some() {
        let word = next(words, "a VLAN")?;
        let id: u16 = word.parse().map_err(|_| What::Value { word, wanted: "a VLAN from 0 to 4095" })?;
        ids.push(id & 0xfff);
    }
    if !ids.is_empty() {
        packet.set(Field::Vlans, Slot::Is(Value::Vlans(ids)))?;
    }
    Ok(())
}

/// `SOURCE > DESTINATION`, with ports or without.
fn ends(packet: &mut Packet, words: &mut Words, ports: Ports) -> Result<(), What> {
    let sides = [(Field::Source, Field::Sport), (Field::Destination, Field::Dport)];
    for (place, (address, port)) in sides.into_iter().enumerate() {
        if place == 1 {
            arrow(words)?;
        }
        let word = next(words, "an address")?;
        let (host, number) = if ports == Ports::None {
            (word.as_str(), None)
        } else {
            let missing = || What::Value { word: word.clone(), wanted: "ADDRESS:PORT or [ADDRESS]:PORT" };
            let (host, number) = word.rsplit_once(':').ok_or_else(missing)?;
            (host, Some(number))
        };
        let host = host.trim_start_matches('[').replace(']', "");
        packet.set(address, slot(&host, |text| text.parse().ok().map(Value::Address), "an IP address")?)?;
        if let Some(number) = number {
            let read = |text: &str| text.parse::<u16>().ok().map(|port| Value::Number(u64::from(port)));
            packet.set(port, slot(number, read, "a port from 0 to 65535")?)?;
        }
    }
    Ok(())
}

/// TCP flags, or the kind of an ICMP message, stand directly behind the addresses.
fn first_word(packet: &mut Packet, protocol: Protocol, words: &mut Words) -> Result<(), What> {
    match protocol {
        Protocol::TCP => {
            if let Some(flags) = words.peek().and_then(|word| word.parse::<Flags>().ok()) {
                words.next();
                packet.set(Field::Flags, Slot::Is(Value::Number(u64::from(flags.0))))?;
            }
        }
        Protocol::ICMP | Protocol::ICMPV6 => {
            let v6 = packet.is_v6().unwrap_or(protocol == Protocol::ICMPV6);
            let Some((kind, code)) = words.peek().and_then(|word| field::icmp_kind(word, v6)) else {
                return Ok(());
            };
            words.next();
            packet.set(Field::Type, Slot::Is(Value::Number(u64::from(kind))))?;
            packet.set(Field::Code, Slot::Is(Value::Number(u64::from(code))))?;
        }
        _ => {}
    }
    Ok(())
}

fn rest(packet: &mut Packet, words: &mut Words, depth: usize) -> Result<(), What> {
    let is_icmp = matches!(packet.protocol(), Some(Protocol::ICMP | Protocol::ICMPV6));
    while let Some(word) = words.next_if(|word| word != "=>") {
        match word.as_str() {
            "quoting" => {
                packet.quoted = Some(Box::new(within(words, depth + 1)?));
                return Ok(());
            }
            "extension" => {
                let name = next(words, "an extension header")?;
                let wanted = "the name or number of an extension header";
                let protocol = name.parse().map_err(|_| What::Value { word: name, wanted })?;
                let body = next(words, "the extension header's bytes")?;
                packet.extensions.push((protocol, hex(&body)?));
                continue;
            }
            _ => {}
        }
        let fits = |field: Field| match field {
            Field::IcmpId | Field::IcmpSeq => is_icmp,
            Field::Seq => !is_icmp,
            _ => true,
        };
        let known = FIELDS
            .iter()
            .find(|(field, name, shape)| *name == word && *shape != Shape::Hidden && fits(*field));
        let Some((field, _, shape)) = known else { return Err(What::Unknown(word)) };
        value(packet, *field, *shape, words)?;
    }
    Ok(())
}

fn value(packet: &mut Packet, field: Field, shape: Shape, words: &mut Words) -> Result<(), What> {
    if shape == Shape::Set {
        // `df` and `df no`.
        let clear = words.next_if(|word| word == "no").is_some();
        return packet.set(field, Slot::Is(Value::Word(if clear { "no" } else { "yes" })));
    }
    let word = next(words, "a value")?;
    let slot = match shape {
        Shape::Number(most) => {
            let read = |text: &str| {
                let hex = text.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16).ok());
                let number = hex.unwrap_or_else(|| text.parse().ok())?;
                (number <= most).then_some(Value::Number(number))
            };
            slot(&word, read, "a number in its field's range")?
        }
        Shape::Dscp => slot(&word, |text| field::dscp(text).map(Value::Number), "a DiffServ code point")?,
        Shape::Bytes => Slot::Is(Value::Bytes(hex(&word)?)),
        Shape::Checksum => Slot::Is(Value::Word(match word.as_str() {
            "right" => "right",
            "bad" => "bad",
            "none" => "none",
            _ => return Err(What::Value { word, wanted: "right, bad or none" }),
        })),
        Shape::Part => {
            let wanted = "the first byte and the one past the last as 0..1480";
            let ends = word.split_once("..").and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
            let (from, until): (u64, u64) = ends.ok_or(What::Value { word, wanted })?;
            packet.set(Field::Until, Slot::Is(Value::Number(until)))?;
            Slot::Is(Value::Number(from))
        }
        Shape::Set | Shape::Hidden => return Err(What::Unknown(word)),
    };
    packet.set(field, slot)
}

/// A value, a variable `$name`, a value that counts up `1++`, or `*`.
fn slot(word: &str, read: impl Fn(&str) -> Option<Value>, wanted: &'static str) -> Result<Slot, What> {
    if word == "*" {
        return Ok(Slot::Any);
    }
    if let Some(name) = word.strip_prefix('$') {
        let Some((name, by)) = name.split_once('+') else { return Ok(Slot::Variable(name.to_owned())) };
        let by = by.parse::<u32>().map_err(|_| What::Value { word: word.to_owned(), wanted })?;
        return Ok(Slot::After(name.to_owned(), by.into()));
    }
    let wrong = || What::Value { word: word.to_owned(), wanted };
    match word.strip_suffix("++") {
        Some(first) => read(first).map(Slot::Counts).ok_or_else(wrong),
        None => read(word).map(Slot::Is).ok_or_else(wrong),
    }
}

fn arrow(words: &mut Words) -> Result<(), What> {
    match words.next_if(|word| word == ">") {
        Some(_) => Ok(()),
        None => Err(What::Missing("`>` between source and destination")),
    }
}

/// The next word of the packet or line.
pub(crate) fn next(words: &mut Words, wanted: &'static str) -> Result<String, What> {
    words.next_if(|word| word != "=>").ok_or(What::Missing(wanted))
}

/// Bytes from hexadecimal digits, with or without colons between them.
pub(crate) fn hex(word: &str) -> Result<Vec<u8>, What> {
    let wrong = || What::Value { word: word.to_owned(), wanted: "hexadecimal digits, two for each byte" };
    let digits: String = word.chars().filter(|digit| *digit != ':').collect();
    // What reads numbers would take a sign, too.
    if digits.len() % 2 != 0 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    (0..digits.len() / 2)
        .map(|place| u8::from_str_radix(&digits[2 * place..2 * place + 2], 16).map_err(|_| wrong()))
        .collect()
}
