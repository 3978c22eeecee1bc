//! Differences between an expected packet and the one sent, field by field, in the words of the format.

use std::fmt::Write as _;

use wire::header::Endpoint;

use super::build::{self, number};
use super::dissect::Dissected;
use super::field::{Field, Fields, Shown, Slot, Value};
use super::packet::{Packet, Variables};

/// Compares `got` with what is said of it in `expected`; variables that stand for nothing yet stand for what
/// came out from now on. Returns a line for each difference.
pub(crate) fn compare(
    expected: &Packet,
    got: &Dissected,
    variables: &mut Variables,
    turn: u64,
) -> Vec<String> {
    let mut differences = Vec::new();
    packet(expected, got, variables, turn, "", &mut differences);
    differences
}

fn packet(
    expected: &Packet,
    got: &Dissected,
    variables: &mut Variables,
    turn: u64,
    prefix: &str,
    differences: &mut Vec<String>,
) {
    for (field, slot) in &expected.slots {
        if let (Slot::Variable(name), Some(value)) = (slot, got.fields.get(field)) {
            variables.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
    let mut wanted = match expected.fields(variables, turn) {
        Ok(fields) => fields,
        Err(name) => {
            differences.push(format!("{prefix}`${name}`: it has no such field"));
            return;
        }
    };
    derive(&mut wanted, expected.quoted.is_some());
    for (field, value) in wanted.iter().filter(|(field, _)| !field.is_recipe()) {
        match got.fields.get(field) {
            Some(found) if found == value => {}
            Some(found) => differences.push(format!(
                "{prefix}{}: expected {}, got {}",
                field.word(),
                Shown(*field, value),
                Shown(*field, found)
            )),
            None => differences.push(format!(
                "{prefix}{}: expected {}, got none",
                field.word(),
                Shown(*field, value)
            )),
        }
    }
    for fault in &got.faults {
        differences.push(format!("{prefix}{fault}"));
    }
    for field in [Field::HeaderChecksum, Field::Checksum] {
        if got.fields.get(&field) == Some(&Value::Word("bad")) && !wanted.contains_key(&field) {
            differences.push(format!("{prefix}{}: it is wrong", field.word()));
        }
    }
    match (&expected.quoted, &got.quoted) {
        (Some(inner), Some(found)) => {
            packet(inner, found, variables, turn, &format!("{prefix}quoted "), differences);
        }
        (Some(_), None) => differences.push(format!("{prefix}it quotes no packet")),
        (None, Some(found)) => {
            packet(&Packet::default(), found, variables, turn, &format!("{prefix}quoted "), differences);
        }
        (None, None) => {}
    }
}

/// Derives fields from the recipe of a packet: the payload's bytes, a fragment's offset.
fn derive(wanted: &mut Fields, quotes: bool) {
    if let Some(length) = number(wanted, Field::IpLength) {
        let v6 = build::is_v6(wanted);
        wanted.insert(Field::TotalLength, Value::Number(length.saturating_sub(if v6 { 40 } else { 0 })));
    }
    if let (Some(from), Some(until)) = (number(wanted, Field::From), number(wanted, Field::Until)) {
        let whole = build::transport(wanted, &build::payload(wanted));
        let header = whole.len() - build::payload(wanted).len();
        let (first, last) = (from as usize, (until as usize).min(whole.len()));
        let piece = whole.get(first.max(header)..last).unwrap_or(&[]).to_vec();
        wanted.insert(Field::Offset, Value::Number(from));
        wanted.insert(Field::More, Value::Word(if last < whole.len() { "yes" } else { "no" }));
        wanted.insert(Field::Length, Value::Number(piece.len() as u64));
        wanted.insert(Field::Data, Value::Bytes(piece));
        if from > 0 {
            // A later fragment has no transport header.
            for field in [Field::Sport, Field::Dport, Field::Flags, Field::Type, Field::Code] {
                wanted.remove(&field);
            }
            for field in [Field::Checksum, Field::UdpLength, Field::DataOffset] {
                wanted.remove(&field);
            }
            for field in [Field::Seq, Field::Ack, Field::IcmpId, Field::IcmpSeq, Field::Window] {
                wanted.remove(&field);
            }
        }
    } else if wanted.contains_key(&Field::Length) && !quotes {
        wanted.insert(Field::Data, Value::Bytes(build::payload(wanted)));
    }
}

/// A packet that was sent, in the words of the format, without fields that have their usual values.
pub(crate) fn show(got: &Dissected) -> String {
    let fields = &got.fields;
    let mut text = String::new();
    let get = |field: Field| fields.get(&field).map(|value| Shown(field, value).to_string());
    if let Some(Value::Vlans(ids)) = fields.get(&Field::Vlans).filter(|_| get(Field::Vlans).is_some()) {
        for id in ids {
            let _ = write!(text, "vlan {id} ");
        }
    }
    if let Some(points) = get(Field::Pcp).filter(|points| points != "0") {
        let _ = write!(text, "pcp {points} ");
    }
    if fields.get(&Field::Dei) == Some(&Value::Word("yes")) {
        text.push_str("dei ");
    }
    let name = match (get(Field::Protocol), get(Field::Ethertype)) {
        (Some(name), _) => name,
        (None, Some(number)) => format!("ethertype {number}"),
        (None, None) => "?".to_owned(),
    };
    text.push_str(&name);
    for (address, port, before) in
        [(Field::Source, Field::Sport, " "), (Field::Destination, Field::Dport, " > ")]
    {
        if let Some(Value::Address(address)) = fields.get(&address) {
            let port = number(fields, port).map(|port| port as u16);
            let _ = write!(text, "{before}{}", Endpoint { address: *address, port });
        }
    }
    for (field, value) in fields {
        use Field::{
            Code, DataOffset, Flags, HeaderLength, IpOptions, TotalLength, Type, UdpLength, Version,
        };
        let shown = Shown(*field, value);
        let usual = matches!(
            (field, value),
            (Field::Dscp | Field::Ecn | Field::Mtu | Field::Length, Value::Number(0))
                | (Field::Df, Value::Word("no"))
                | (Field::More, _)
                | (Field::Checksum | Field::HeaderChecksum, Value::Word("right"))
                | (TotalLength | Version | HeaderLength | UdpLength | DataOffset, _)
                | (Field::TcpOptions | Field::Data, _)
        );
        let empty = matches!(value, Value::Bytes(bytes) if bytes.is_empty());
        let named = *field < Flags;
        let more = if fields.get(&Field::More) == Some(&Value::Word("yes")) { "+" } else { "" };
        let whole = (field, value, more) == (&Field::Offset, &Value::Number(0), "");
        if usual || empty || named || whole || *field == Code {
            continue;
        }
        let _ = match field {
            Flags => write!(text, " {shown}"),
            Type => write!(text, " {shown}/{}", get(Code).unwrap_or_default()),
            Field::Df => write!(text, " df"),
            Field::Offset => write!(text, " fragment {shown}{more}"),
            IpOptions => write!(text, " ip-options {shown}"),
            _ => write!(text, " {} {shown}", field.word()),
        };
    }
    if let Some(quoted) = &got.quoted {
        let _ = write!(text, " quoting {}", show(quoted));
    }
    text
}
