//! Messages: a header, and sets of templates or of data records (RFC 7011, section 3).

use super::data::Data;
use super::template::{self, Template};

/// IPFIX.
const VERSION: u16 = 10;

const HEADER_LEN: usize = 16;
const SET_HEADER_LEN: usize = 4;

const TEMPLATE_SET: u16 = 2;
const OPTIONS_TEMPLATE_SET: u16 = 3;

/// A message to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) bytes: Vec<u8>,
    /// Number of data records.
    pub(super) records: u32,
    /// Number of flow records and events among them: all but the exporter's own.
    pub(super) flow_records: u32,
}

/// Makes messages of records, none longer than a bound.
#[derive(Debug)]
pub(super) struct Messages {
    domain: u32,
    most: usize,
    /// Data records in earlier messages, modulo 2^32.
    sequence: u32,
    /// The message so far; empty before its first record.
    bytes: Vec<u8>,
    /// The set so far.
    set: Option<Set>,
    records: u32,
    flow_records: u32,
    record: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Set {
    id: u16,
    /// Offset of its header.
    at: usize,
}

impl Messages {
    /// Begins a transport session, with messages of `most` bytes at most.
    pub(super) fn new(domain: u32, most: usize) -> Messages {
        let (bytes, record) = (Vec::new(), Vec::new());
        Messages { domain, most, sequence: 0, bytes, set: None, records: 0, flow_records: 0, record }
    }

    /// Observation domain.
    pub(super) fn domain(&self) -> u32 {
        self.domain
    }

    /// Adds a data record. Returns the message before, if the record did not fit in any more; `now` are seconds since 1970.
    pub(super) fn add(&mut self, data: &Data<'_>, now: u32) -> Option<Message> {
        let mut record = std::mem::take(&mut self.record);
        record.clear();
        data.put(&mut record);
        let full = self.append(data.template().id, &record, now);
        self.records += 1;
        self.flow_records += u32::from(data.template().scopes == 0);
        self.record = record;
        full
    }

    /// Adds all templates. Returns the messages before, if not all fit in one.
    pub(super) fn add_templates(&mut self, now: u32) -> Vec<Message> {
        let of = |template: &Template| {
            let set = if template.scopes == 0 { TEMPLATE_SET } else { OPTIONS_TEMPLATE_SET };
            self.append(set, &definition(template), now)
        };
        template::ALL.iter().filter_map(of).collect()
    }

    /// Ends the message, if it has any record.
    pub(super) fn finish(&mut self, now: u32) -> Option<Message> {
        if self.bytes.is_empty() {
            return None;
        }
        self.close_set();
        let records = std::mem::take(&mut self.records);
        let flow_records = std::mem::take(&mut self.flow_records);
        let mut bytes = std::mem::take(&mut self.bytes);
        let len = bytes.len() as u16;
        let mut header = Vec::with_capacity(HEADER_LEN);
        header.extend(VERSION.to_be_bytes());
        header.extend(len.to_be_bytes());
        header.extend(now.to_be_bytes());
        header.extend(self.sequence.to_be_bytes());
        header.extend(self.domain.to_be_bytes());
        bytes.splice(..HEADER_LEN, header);
        self.sequence = self.sequence.wrapping_add(records);
        Some(Message { bytes, records, flow_records })
    }

    fn append(&mut self, set: u16, record: &[u8], now: u32) -> Option<Message> {
        let is_same = |own: &Set| own.id == set;
        let more = record.len() + if self.set.as_ref().is_some_and(is_same) { 0 } else { SET_HEADER_LEN };
        let full = if self.bytes.len() + more > self.most { self.finish(now) } else { None };
        if self.bytes.is_empty() {
            self.bytes.reserve(self.most.min(2_048));
            self.bytes.resize(HEADER_LEN, 0);
        }
        if !self.set.as_ref().is_some_and(is_same) {
            self.close_set();
            self.set = Some(Set { id: set, at: self.bytes.len() });
            self.bytes.extend(set.to_be_bytes());
            self.bytes.extend([0; 2]);
        }
        self.bytes.extend(record);
        full
    }

    /// Writes the length of the set so far.
    fn close_set(&mut self) {
        let Some(set) = self.set.take() else { return };
        let len = (self.bytes.len() - set.at) as u16;
        if let Some(place) = self.bytes.get_mut(set.at + 2..set.at + 4) {
            place.copy_from_slice(&len.to_be_bytes());
        }
    }
}

/// A template's own record.
fn definition(template: &Template) -> Vec<u8> {
    let mut record = Vec::new();
    record.extend(template.id.to_be_bytes());
    record.extend((template.elements().count() as u16).to_be_bytes());
    if template.scopes > 0 {
        record.extend(template.scopes.to_be_bytes());
    }
    for element in template.elements() {
        record.extend(element.id().to_be_bytes());
        record.extend(element.len().to_be_bytes());
    }
    record
}
