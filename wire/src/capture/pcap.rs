//! The older format: one interface, and records that are a time, two lengths and the bytes.

use std::io::Read;

use pcap_parser::{parse_pcap_frame, parse_pcap_frame_be, parse_pcap_frame_modified, parse_pcap_header};

use super::input::{Input, Order};
use super::{CaptureError, Interface, LinkType, MAX_CAPTURED, Problem, Record};
use crate::unit::Nanos;

/// A pcap file's header.
#[derive(Debug)]
pub(super) struct Pcap {
    interface: Interface,
    order: Order,
    /// Nanoseconds in a unit of the timestamps' fractional part.
    fraction: u64,
    /// Alexey Kuznetsov's variant, with eight more bytes before each packet.
    modified: bool,
}

impl Pcap {
    /// Reads the file header, of which the magic number has been read.
    pub(super) fn open<R: Read>(input: &mut Input<R>) -> Result<Pcap, CaptureError> {
        let magic = *input.record().first_chunk().unwrap_or(&[0; 4]);
        let known = [0xa1b2_c3d4u32, 0xa1b2_3c4d, 0xa1b2_cd34].map(u32::to_le_bytes);
        let swapped = [0xa1b2_c3d4u32, 0xa1b2_3c4d].map(u32::to_be_bytes);
        if !known.contains(&magic) && !swapped.contains(&magic) {
            return Err(input.fail(Problem::BadMagic(magic)));
        }
        if !input.read(20)? {
            return Err(input.fail(Problem::HeaderCut));
        }
        let Ok((_, header)) = parse_pcap_header(input.record()) else {
            return Err(input.fail(Problem::Malformed("file header")));
        };
        // The upper bits tell of a frame check sequence (draft-ietf-opsawg-pcap, section 4).
        let link = LinkType((header.network.0 as u32 & 0xffff) as u16);
        if !link.is_supported() {
            return Err(input.fail(Problem::UnsupportedLink(link)));
        }
        Ok(Pcap {
            interface: Interface { name: None, link },
            order: if header.is_bigendian() { Order::Big } else { Order::Little },
            fraction: if header.is_nanosecond_precision() { 1 } else { 1000 },
            modified: header.is_modified_format(),
        })
    }

    /// Reads the next record.
    pub(super) fn next<'a, R: Read>(
        &self,
        input: &'a mut Input<R>,
    ) -> Result<Option<Record<'a>>, CaptureError> {
        input.begin();
        if !input.read(if self.modified { 24 } else { 16 })? {
            return Ok(None);
        }
        let captured = self.order.u32_at(input.record(), 8) as usize;
        if captured > MAX_CAPTURED {
            let problem = Problem::Oversize { length: captured as u64, limit: MAX_CAPTURED as u64 };
            return Err(input.fail(problem));
        }
        if !input.read(captured)? {
            return Ok(None);
        }
        let parse = match (self.order, self.modified) {
            (Order::Big, _) => parse_pcap_frame_be,
            (Order::Little, false) => parse_pcap_frame,
            (Order::Little, true) => parse_pcap_frame_modified,
        };
        let input = &*input;
        let Ok((_, frame)) = parse(input.record()) else {
            return Err(input.error(Problem::Malformed("record")));
        };
        let at = u64::from(frame.ts_sec) * 1_000_000_000 + u64::from(frame.ts_usec) * self.fraction;
        Ok(Some(Record {
            link: self.interface.link,
            original_len: frame.origlen,
            ..Record::new(Nanos(at), frame.data)
        }))
    }

    pub(super) fn interfaces(&self) -> &[Interface] {
        std::slice::from_ref(&self.interface)
    }
}
