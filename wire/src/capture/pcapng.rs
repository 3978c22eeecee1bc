//! The newer format: sections of blocks, with several interfaces, their clocks, and comments.
//!
//! Blocks that carry neither packets nor interfaces are passed over. Two things are done here and not left
//! to `pcap-parser` 0.17: the framing, so that no length is believed before it is bounded, and the clock,
//! since it refuses resolutions that are powers of two and reads `if_tsoffset` in little endian only.

use std::borrow::Cow;
use std::io::Read;

use pcap_parser::{
    OptionCode, PcapNGOption, parse_enhancedpacketblock_be, parse_enhancedpacketblock_le,
    parse_interfacedescriptionblock_be, parse_interfacedescriptionblock_le, parse_simplepacketblock_be,
    parse_simplepacketblock_le,
};

use super::input::{Input, Order};
use super::{CaptureError, Interface, LinkType, MAX_CAPTURED, Problem, Record};
use crate::unit::Nanos;

/// A block type that reads the same in both byte orders.
pub(super) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
pub(super) const BYTE_ORDER: u32 = 0x1a2b_3c4d;
pub(super) const INTERFACE_DESCRIPTION: u32 = 1;
/// Obsolete; an enhanced packet block but for the first four bytes of its body.
const PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
pub(super) const INTERFACE_STATISTICS: u32 = 5;
pub(super) const ENHANCED_PACKET: u32 = 6;

/// The most bytes of a block that is read: a packet, its options, and room for more of these than any
/// tool writes.
const MAX_BLOCK: usize = 2 * MAX_CAPTURED;
const MAX_INTERFACES: usize = 4096;
const MAX_NAME: usize = 255;

/// State of a pcapng file at the current offset: byte order, interfaces, clocks.
#[derive(Debug)]
pub(super) struct Pcapng {
    order: Order,
    interfaces: Vec<Interface>,
    /// The clock and the snap length of each interface.
    clocks: Vec<Clock>,
    /// The first interface of this section.
    section: usize,
    /// The time of the last record.
    last: Nanos,
}

impl Pcapng {
    /// Reads the first section header, of which the block type has been read.
    pub(super) fn open<R: Read>(input: &mut Input<R>) -> Result<Pcapng, CaptureError> {
        let mut pcapng = Pcapng {
            order: Order::Little,
            interfaces: Vec::new(),
            clocks: Vec::new(),
            section: 0,
            last: Nanos(0),
        };
        if !pcapng.begin_section(input)? {
            return Err(input.fail(Problem::HeaderCut));
        }
        Ok(pcapng)
    }

    /// Reads blocks up to and with the next packet.
    pub(super) fn next<'a, R: Read>(
        &mut self,
        input: &'a mut Input<R>,
    ) -> Result<Option<Record<'a>>, CaptureError> {
        match self.next_packet(input)? {
            Some(SIMPLE_PACKET) => self.simple_packet(input).map(Some),
            Some(_) => self.enhanced_packet(input).map(Some),
            None => Ok(None),
        }
    }

    pub(super) fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Reads blocks until one with a packet is in the input's record; returns its type.
    fn next_packet<R: Read>(&mut self, input: &mut Input<R>) -> Result<Option<u32>, CaptureError> {
        loop {
            input.begin();
            if !input.read(4)? {
                return Ok(None);
            }
            let kind = self.order.u32_at(input.record(), 0);
            let whole = match kind {
                SECTION_HEADER => self.begin_section(input)?,
                INTERFACE_DESCRIPTION => self.read_block(input, "interface description block")?,
                PACKET => self.read_block(input, "packet block")?,
                SIMPLE_PACKET => self.read_block(input, "simple packet block")?,
                ENHANCED_PACKET => self.read_block(input, "enhanced packet block")?,
                _ => self.skip_block(input)?,
            };
            if !whole {
                return Ok(None);
            }
            match kind {
                INTERFACE_DESCRIPTION => self.add_interface(input)?,
                PACKET => {
                    self.turn_into_enhanced(input.record_mut());
                    return Ok(Some(ENHANCED_PACKET));
                }
                SIMPLE_PACKET | ENHANCED_PACKET => return Ok(Some(kind)),
                _ => {}
            }
        }
    }

    /// Reads the rest of a section header, of which the block type has been read. `false` at a cut.
    fn begin_section<R: Read>(&mut self, input: &mut Input<R>) -> Result<bool, CaptureError> {
        const BLOCK: &str = "section header block";
        if !input.read(8)? {
            return Ok(false);
        }
        self.order = match Order::Little.u32_at(input.record(), 8) {
            BYTE_ORDER => Order::Little,
            other if other == BYTE_ORDER.swap_bytes() => Order::Big,
            _ => return Err(input.fail(Problem::Malformed(BLOCK))),
        };
        self.section = self.interfaces.len();
        let length = self.block_length(input, BLOCK)?;
        if length < 28 {
            return Err(input.fail(Problem::Malformed(BLOCK)));
        }
        // All that is of use has been read: nothing depends on the header's options.
        input.skip(length - 12)
    }

    /// Reads the rest of a block whose type has been read. `false` at a cut.
    fn read_block<R: Read>(&self, input: &mut Input<R>, block: &'static str) -> Result<bool, CaptureError> {
        if !input.read(4)? {
            return Ok(false);
        }
        let length = self.block_length(input, block)?;
        if length > MAX_BLOCK as u64 {
            return Err(input.fail(Problem::Oversize { length, limit: MAX_BLOCK as u64 }));
        }
        if !input.read(length as usize - 8)? {
            return Ok(false);
        }
        if u64::from(self.order.u32_at(input.record(), length as usize - 4)) != length {
            return Err(input.fail(Problem::Malformed(block)));
        }
        Ok(true)
    }

    fn skip_block<R: Read>(&self, input: &mut Input<R>) -> Result<bool, CaptureError> {
        if !input.read(4)? {
            return Ok(false);
        }
        let length = self.block_length(input, "block")?;
        input.skip(length - 8)
    }

    /// The length that the block in `input` claims, at least its own frame of 12 bytes.
    fn block_length<R: Read>(&self, input: &mut Input<R>, block: &'static str) -> Result<u64, CaptureError> {
        let length = self.order.u32_at(input.record(), 4);
        if length < 12 || length % 4 != 0 {
            return Err(input.fail(Problem::Malformed(block)));
        }
        Ok(u64::from(length))
    }

    fn add_interface<R: Read>(&mut self, input: &mut Input<R>) -> Result<(), CaptureError> {
        if self.interfaces.len() == MAX_INTERFACES {
            return Err(input.fail(Problem::TooManyInterfaces(MAX_INTERFACES)));
        }
        let parsed = match self.order {
            Order::Little => parse_interfacedescriptionblock_le(input.record()),
            Order::Big => parse_interfacedescriptionblock_be(input.record()),
        };
        let Ok((_, block)) = parsed else {
            return Err(input.fail(Problem::Malformed("interface description block")));
        };
        let mut clock = Clock { snaplen: block.snaplen, ..Clock::default() };
        let mut name = None;
        for option in options(&block.options) {
            let Ok(value) = option.as_bytes() else { continue };
            match option.code {
                OptionCode::IfName => {
                    let name_bytes = value.get(..MAX_NAME).unwrap_or(value);
                    name = Some(String::from_utf8_lossy(name_bytes).trim_end_matches('\0').to_owned());
                }
                OptionCode::IfTsresol => clock.resolution = value.first().copied().unwrap_or(6),
                OptionCode::IfTsoffset => {
                    clock.offset = value.first_chunk().map_or(0, |eight| self.order.i64(*eight));
                }
                _ => {}
            }
        }
        self.interfaces.push(Interface { name, link: LinkType(block.linktype.0 as u16) });
        self.clocks.push(clock);
        Ok(())
    }

    /// Rewrites an obsolete packet block as an enhanced one: its interface is 16 bits wide, followed by a drop count.
    fn turn_into_enhanced(&self, block: &mut [u8]) {
        if let Some(head) = block.first_chunk_mut::<12>() {
            let interface = u32::from(self.order.u16([head[8], head[9]]));
            head[..4].copy_from_slice(&self.order.bytes(ENHANCED_PACKET));
            head[8..].copy_from_slice(&self.order.bytes(interface));
        }
    }

    fn enhanced_packet<'a, R: Read>(&mut self, input: &'a mut Input<R>) -> Result<Record<'a>, CaptureError> {
        let captured = self.order.u32_at(input.record(), 20) as usize;
        if captured > MAX_CAPTURED {
            let problem = Problem::Oversize { length: captured as u64, limit: MAX_CAPTURED as u64 };
            return Err(input.fail(problem));
        }
        let interface = self.interface(input, self.order.u32_at(input.record(), 8))?;
        let parse = match self.order {
            Order::Little => parse_enhancedpacketblock_le,
            Order::Big => parse_enhancedpacketblock_be,
        };
        let input = &*input;
        let Ok((_, block)) = parse(input.record()) else {
            return Err(input.error(Problem::Malformed("enhanced packet block")));
        };
        let units = u64::from(block.ts_high) << 32 | u64::from(block.ts_low);
        self.last = self.clocks.get(interface).copied().unwrap_or_default().time(units);
        let comment = options(&block.options)
            .find(|option| option.code == OptionCode::Comment)
            .and_then(|option| match option.value {
                Cow::Borrowed(value) => value.get(..usize::from(option.len)),
                Cow::Owned(_) => None,
            })
            .map(String::from_utf8_lossy);
        Ok(Record {
            interface,
            link: self.interfaces[interface].link,
            original_len: block.origlen,
            comment,
            ..Record::new(self.last, block.data.get(..captured).unwrap_or(block.data))
        })
    }

    fn simple_packet<'a, R: Read>(&mut self, input: &'a mut Input<R>) -> Result<Record<'a>, CaptureError> {
        let interface = self.interface(input, 0)?;
        let parse = match self.order {
            Order::Little => parse_simplepacketblock_le,
            Order::Big => parse_simplepacketblock_be,
        };
        let input = &*input;
        let Ok((_, block)) = parse(input.record()) else {
            return Err(input.error(Problem::Malformed("simple packet block")));
        };
        // The captured length is not written down: it is the shorter of the original and the snap length,
        // and the block must hold it.
        let snaplen = match self.clocks.get(interface).map_or(0, |clock| clock.snaplen) {
            0 => u32::MAX,
            bytes => bytes,
        };
        let captured = block.origlen.min(snaplen) as usize;
        Ok(Record {
            interface,
            link: self.interfaces[interface].link,
            original_len: block.origlen,
            ..Record::new(self.last, block.data.get(..captured).unwrap_or(block.data))
        })
    }

    /// The interface `index` of this section, as an index into all.
    fn interface<R: Read>(&self, input: &mut Input<R>, index: u32) -> Result<usize, CaptureError> {
        let place = self.section.saturating_add(index as usize);
        match self.interfaces.get(place) {
            None => Err(input.fail(Problem::NoInterface(index))),
            Some(found) if !found.link.is_supported() => {
                Err(input.error(Problem::UnsupportedLink(found.link)))
            }
            Some(_) => Ok(place),
        }
    }
}

/// The options up to the end-of-options mark, behind which anything may stand.
fn options<'o, 'a>(all: &'o [PcapNGOption<'a>]) -> impl Iterator<Item = &'o PcapNGOption<'a>> {
    all.iter().take_while(|option| option.code != OptionCode::EndOfOpt)
}

/// Timestamp units and snap length of an interface.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// `if_tsresol`: a second is 10 to this power of units, or with the top bit set 2 to the rest.
    resolution: u8,
    /// `if_tsoffset`, in seconds.
    offset: i64,
    /// `if_snaplen`, in bytes; 0 is no limit.
    snaplen: u32,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock { resolution: 6, offset: 0, snaplen: 0 }
    }
}

impl Clock {
    /// Time that a timestamp of `units` stands for; times before 1970 or after 2554 are clamped.
    fn time(self, units: u64) -> Nanos {
        let exponent = u32::from(self.resolution & 0x7f);
        let base: u128 = if self.resolution & 0x80 == 0 { 10 } else { 2 };
        // A unit too small for 128 bits makes every timestamp of 64 bits less than a nanosecond.
        let since_offset = match base.checked_pow(exponent) {
            Some(per_second) => u128::from(units) * 1_000_000_000 / per_second,
            None => 0,
        };
        let nanos =
            i128::try_from(since_offset).unwrap_or(i128::MAX) + i128::from(self.offset) * 1_000_000_000;
        Nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }
}
