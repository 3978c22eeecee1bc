//! A frame to receive, of a line `INTERFACE PACKET`: `lan tcp 192.168.1.10:50000 > 198.51.100.7:443 syn ttl 3`.
//!
//! The packet is what a case file has behind `in`, with fixed values.

use dataplane::Tables;
use wire::PortId;

use super::build::{self, Link};
use super::fault::{Fault, What};
use super::packet::{self, Variables};
use super::word::{Values, Words};

/// A frame, and its port of ingress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The port that the frame comes in by.
    pub ingress: PortId,
    /// The Ethernet frame.
    pub bytes: Vec<u8>,
}

/// Reads a line and builds its frame.
///
/// # Errors
/// A fault of line 1.
pub fn received(line: &str, tables: &Tables) -> Result<Received, Fault> {
    let mut words = Words::of(line, Values::Fixed);
    build(&mut words, tables).map_err(|what| words.fault(1, what))
}

fn build(words: &mut Words<'_>, tables: &Tables) -> Result<Received, What> {
    let name = words.next("an interface")?;
    let named = tables.interface_named(name).and_then(|id| Link::of(tables, id));
    let link = named.ok_or_else(|| What::Interface {
        name: name.to_owned(),
        known: tables.interfaces.iter().map(|interface| interface.name.clone()).collect(),
    })?;
    let packet = packet::read(words)?;
    words.end()?;
    words.at = words.length;
    let bytes = build::frame(&packet, &link, &Variables::new(), 0)?;
    Ok(Received { ingress: link.port, bytes })
}
