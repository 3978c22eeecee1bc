//! Grammar of packets: those to receive, and those expected to be sent.
//!
//! ```text
//! [eth MAC > MAC] [vlan N[.N]] [pcp N] [dei] PROTOCOL SOURCE[:PORT] > DESTINATION[:PORT] [WORD [VALUE]]... [quoting PACKET]
//! ```
//!
//! `docs/cases.md` is the manual.

use std::collections::BTreeMap;
use std::net::IpAddr;

use config::word::meaning;
use wire::ethernet::EtherType;
use wire::header::Protocol;
use wire::tcp::Flags;

use super::fault::What;
use super::field::{self, FIELDS, Field, Fields, Shape, Slot, Value};
use super::word::{Values, Word, Words};

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

    /// True if a stated address is of that kind.
    fn is_of(&self, kind: fn(&IpAddr) -> bool) -> bool {
        [Field::Source, Field::Destination].iter().any(|field| match self.slots.get(field) {
            Some(Slot::Is(Value::Address(address)) | Slot::Counts(Value::Address(address))) => kind(address),
            _ => false,
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
            Some(_) => Err(What::Twice(field.word())),
        }
    }

    fn number(&mut self, field: Field, number: impl Into<u64>) -> Result<(), What> {
        self.set(field, Slot::Is(Value::Number(number.into())))
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

/// The most packets that are quoted within one another.
const DEEPEST: usize = 4;

/// Reads a packet up to the end or `=>`.
pub(crate) fn read(words: &mut Words<'_>) -> Result<Packet, What> {
    within(words, 0)
}

/// Reads a packet that is quoted within so many others.
fn within(words: &mut Words<'_>, depth: usize) -> Result<Packet, What> {
    if depth > DEEPEST {
        return Err(What::TooDeep(DEEPEST));
    }
    let mut packet = Packet::default();
    while let Some(word) = words.next_if(|word| matches!(word, "eth" | "vlan" | "untagged" | "pcp" | "dei")) {
        take(&mut packet, word, words, depth)?;
    }
    let mut portless = None;
    match words.next("a protocol")? {
        "hex" => {
            let mut bytes = Vec::new();
            while words.peek().is_some() {
                bytes.extend(words.hex()?);
            }
            packet.raw = Some(bytes);
            return Ok(packet);
        }
        "any" if words.values == Values::Patterns => return Ok(packet),
        "ethertype" => {
            let read = |word: &str| u16::from_str_radix(word.strip_prefix("0x")?, 16).ok();
            packet.number(Field::Ethertype, words.value("an Ethernet type as 0x88cc", read)?)?;
        }
        "arp" => {
            packet.number(Field::Ethertype, EtherType::ARP.0)?;
            ends(&mut packet, words)?;
            let kinds = [("request", 1_u8), ("reply", 2)];
            let kind = words.value("request or reply", |word| meaning(&kinds, word))?;
            packet.number(Field::Type, kind)?;
        }
        word => {
            let protocol: Result<Protocol, _> = word.strip_prefix("ip:").unwrap_or(word).parse();
            let wanted = "a protocol: a name such as tcp, a number, arp, ethertype or hex";
            packet.number(Field::Protocol, protocol.map_err(|_| What::value(word, wanted))?.0)?;
            portless = ends(&mut packet, words)?;
        }
    }
    while let Some(word) = words.more() {
        take(&mut packet, word, words, depth)?;
    }
    // A later fragment has no ports.
    match (portless, packet.slots.get(&Field::Offset)) {
        (None, _) => Ok(packet),
        (_, Some(Slot::Is(Value::Number(1..)))) => Ok(packet),
        (Some(end), _) => {
            words.at = end;
            Err(What::NoPort(end.text.to_owned()))
        }
    }
}

/// Reads `SOURCE > DESTINATION`. Returns the last of the two that has no port, if the protocol has ports.
fn ends<'a>(packet: &mut Packet, words: &mut Words<'a>) -> Result<Option<Word<'a>>, What> {
    let protocol = packet.protocol();
    let has_ports = protocol.is_some_and(Protocol::has_ports);
    let address = |words: &Words<'_>, text: &str| {
        let text = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        words.slot(text, "an IP address", |text| text.parse().ok().map(Value::Address))
    };
    let mut portless = None;
    for (host, port) in [(Field::Source, Field::Sport), (Field::Destination, Field::Dport)] {
        if host == Field::Destination {
            arrow(words)?;
        }
        let word = words.next("an address")?;
        let whole = address(words, word);
        let split = word
            .rsplit_once(':')
            .and_then(|(host, number)| address(words, host).ok().map(|address| (address, number)));
        match (whole, split) {
            (_, Some((address, number))) if has_ports => {
                let read = |text: &str| text.parse().ok().map(|port: u16| Value::Number(port.into()));
                packet.set(port, words.slot(number, "a port from 0 to 65535", read)?)?;
                packet.set(host, address)?;
            }
            (Err(_), Some(_)) => return Err(What::Port(word.to_owned())),
            (address, _) => {
                packet.set(host, address?)?;
                portless = has_ports.then_some(words.at).or(portless);
            }
        }
    }
    match (packet.is_of(IpAddr::is_ipv4), packet.is_of(IpAddr::is_ipv6), protocol) {
        (true, true, _) => Err(What::Families),
        (true, _, Some(icmp @ Protocol::ICMPV6)) | (_, true, Some(icmp @ Protocol::ICMP))
            // A case may be about it.
            if words.values == Values::Fixed =>
        {
            Err(What::Version(icmp))
        }
        _ => Ok(portless),
    }
}

fn arrow(words: &mut Words<'_>) -> Result<(), What> {
    match words.next("`>` between source and destination")? {
        ">" | "->" => Ok(()),
        word => Err(What::Arrow(word.to_owned())),
    }
}

/// Reads what `word` begins: a field and its value, TCP flags, the name of an ICMP message, a packet quoted.
fn take(packet: &mut Packet, word: &str, words: &mut Words<'_>, depth: usize) -> Result<(), What> {
    let protocol = packet.protocol();
    let is_icmp = matches!(protocol, Some(Protocol::ICMP | Protocol::ICMPV6));
    match word {
        "quoting" => {
            packet.quoted = Some(Box::new(within(words, depth + 1)?));
            return Ok(());
        }
        "extension" => {
            let protocol =
                words.value("the name or number of an extension header", |word| word.parse().ok())?;
            packet.extensions.push((protocol, words.hex()?));
            return Ok(());
        }
        "eth" => {
            value(packet, Field::EthSource, Shape::Mac, words)?;
            arrow(words)?;
            return value(packet, Field::EthDestination, Shape::Mac, words);
        }
        "untagged" => return packet.set(Field::Vlans, Slot::Is(Value::Vlans(Vec::new()))),
        _ => {}
    }
    // `ack` is a flag, and with a number behind it a field.
    let numbered =
        |word: &str| word.starts_with(|first: char| first.is_ascii_digit() || first == '$' || first == '*');
    let is_field = word == "ack" && words.peek().is_some_and(numbered);
    if let (Some(Protocol::TCP), false, Ok(flags)) = (protocol, is_field, word.parse::<Flags>()) {
        let before = packet.slots.remove(&Field::Flags);
        let before = if let Some(Slot::Is(Value::Number(flags))) = before { flags } else { 0 };
        return packet.number(Field::Flags, before | u64::from(flags.0));
    }
    if is_icmp {
        let otherwise = protocol == Some(Protocol::ICMPV6) && !packet.is_of(IpAddr::is_ipv4);
        let v6 = packet.is_of(IpAddr::is_ipv6) || otherwise;
        if let Some(message) = field::icmp(word, v6) {
            packet.number(Field::Type, message.kind)?;
            // A name without a code of its own is of code 0, if no other is stated.
            return match message.code {
                None if words.peek() == Some("code") => Ok(()),
                code => packet.number(Field::Code, code.unwrap_or(0)),
            };
        }
    }
    let fits = |field: Field| match field {
        Field::IcmpId | Field::IcmpSeq => is_icmp,
        Field::Seq => !is_icmp,
        _ => true,
    };
    let known = FIELDS.iter().filter(|(field, _, shape)| *shape != Shape::Hidden && fits(*field));
    match known.clone().find(|(_, name, _)| *name == word) {
        Some((field, _, shape)) => value(packet, *field, *shape, words),
        None => Err(What::unknown(word, known.map(|(_, name, _)| *name))),
    }
}

/// Reads the value of a field.
fn value(packet: &mut Packet, field: Field, shape: Shape, words: &mut Words<'_>) -> Result<(), What> {
    let slot = match shape {
        Shape::Number(most) => {
            let wanted = format!("a number from 0 to {most}");
            let word = words.next(&wanted)?;
            if field == Field::IpLength {
                words.length = words.at;
            }
            let read = |text: &str| {
                let hex = text.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16).ok());
                let number = hex.unwrap_or_else(|| text.parse().ok())?;
                (number <= most).then_some(Value::Number(number))
            };
            words.slot(word, &wanted, read)?
        }
        Shape::Mac => {
            let wanted = "an Ethernet address as 02:00:5e:10:00:01";
            let word = words.next(wanted)?;
            words.slot(word, wanted, |text| text.parse().ok().map(Value::Mac))?
        }
        Shape::Dscp => {
            let wanted = "a code point: its name, such as ef, or a number from 0 to 63";
            let word = words.next(wanted)?;
            words.slot(word, wanted, |text| field::dscp(text).map(Value::Number))?
        }
        Shape::Bytes => Slot::Is(Value::Bytes(words.hex()?)),
        Shape::Checksum => {
            let kinds = [("right", "right"), ("bad", "bad"), ("none", "none")];
            Slot::Is(Value::Word(words.value("right, bad or none", |word| meaning(&kinds, word))?))
        }
        // `df` and `df no`.
        Shape::Set => {
            let clear = words.next_if(|word| word == "no").is_some();
            Slot::Is(Value::Word(if clear { "no" } else { "yes" }))
        }
        Shape::Part => {
            let wanted = "the first byte and the one past the last as 0..1480";
            let ends = |word: &str| {
                word.split_once("..").and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)))
            };
            let (from, until): (u64, u64) = words.value(wanted, ends)?;
            packet.number(Field::Until, until)?;
            Slot::Is(Value::Number(from))
        }
        Shape::Fragment => {
            let wanted = "an offset in bytes, a multiple of 8, and + if more fragments follow";
            let (offset, more) = words.value(wanted, |word| {
                let digits = word.strip_suffix('+');
                let offset: u16 = digits.unwrap_or(word).parse().ok()?;
                (offset % 8 == 0).then_some((offset, digits.is_some()))
            })?;
            packet.set(Field::More, Slot::Is(Value::Word(if more { "yes" } else { "no" })))?;
            Slot::Is(Value::Number(offset.into()))
        }
        Shape::Vlans => {
            let wanted = "a VLAN from 0 to 4095, or two with a dot between";
            let id = |id: &str| id.parse().ok().filter(|id: &u16| *id <= 4095);
            let mut ids: Vec<u16> = words.value(wanted, |word| word.split('.').map(id).collect())?;
            match packet.slots.get_mut(&field) {
                Some(Slot::Is(Value::Vlans(outer))) if !outer.is_empty() => {
                    outer.append(&mut ids);
                    return Ok(());
                }
                _ => Slot::Is(Value::Vlans(ids)),
            }
        }
        Shape::Pcps => {
            let wanted = "a priority from 0 to 7, or two with a dot between";
            let point = |point: &str| point.parse().ok().filter(|point: &u16| *point <= 7);
            let mut points: Vec<u16> =
                words.value(wanted, |word| word.split('.').map(point).collect::<Option<_>>())?;
            points.dedup();
            Slot::Is(Value::Vlans(points))
        }
        Shape::Hidden => return Err(What::unknown(field.word(), [])),
    };
    packet.set(field, slot)
}
