//! A port made of capture files: frames in from one, frames out into another.

use std::fmt;
use std::io::{Read, Write};

use super::link::to_ethernet;
use super::{CaptureError, CutShort, PcapngWriter, Reader, Record};
use crate::batch::Batch;
use crate::ethernet::Mac;
use crate::pool::{HEADROOM, Pool};
use crate::port::{Port, PortError, Received};

/// A port that receives the packets of a capture, of every interface in it, and writes sent frames into another
/// capture. Either may be missing: nothing is received, or sent frames are not kept.
///
/// A packet longer than a slot is delivered as far as it fits, like one that a snap length has cut.
pub struct CapturePort<R: Read, W: Write> {
    name: String,
    /// This port's hardware address, for packets that were captured without one.
    address: Mac,
    reader: Option<Reader<R>>,
    writer: Option<PcapngWriter<W>>,
    scratch: Vec<u8>,
}

impl<R: Read, W: Write> CapturePort<R, W> {
    /// A port called `name` with the hardware address `address`. A writer gets one interface, called as
    /// the port is.
    pub fn new(
        name: impl Into<String>,
        address: Mac,
        reader: Option<Reader<R>>,
        mut writer: Option<PcapngWriter<W>>,
    ) -> Result<CapturePort<R, W>, CaptureError> {
        let name = name.into();
        if let Some(writer) = &mut writer {
            writer.interface(&name)?;
        }
        Ok(CapturePort { name, address, reader, writer, scratch: Vec::new() })
    }

    /// Offset of an incomplete last record, known once the port has come to its end.
    pub fn cut_short(&self) -> Option<CutShort> {
        self.reader.as_ref().and_then(Reader::cut_short)
    }

    /// Flushes the writer and returns the sink it wrote into.
    pub fn finish(self) -> Result<Option<W>, CaptureError> {
        self.writer.map(PcapngWriter::finish).transpose()
    }
}

impl<R: Read, W: Write> Port for CapturePort<R, W> {
    fn name(&self) -> &str {
        &self.name
    }

    fn receive(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<Received, PortError> {
        let Some(reader) = &mut self.reader else { return Ok(Received::End) };
        let before = batch.len();
        let mut end = false;
        while !batch.is_full() && !end {
            // The slot comes first: a record that has been read must have a place.
            let Some(mut frame) = pool.take() else { break };
            let record = match reader.next() {
                Ok(Some(record)) => to_ethernet(record, self.address, &mut self.scratch),
                Ok(None) => {
                    pool.put(frame);
                    end = true;
                    continue;
                }
                Err(cause) => {
                    pool.put(frame);
                    return Err(failure(&self.name, "read a capture", cause));
                }
            };
            frame.meta.received = record.at;
            let room = pool.slot_bytes() - HEADROOM;
            // It fits, being cut to the room there is.
            let _ = frame.fill(record.bytes.get(..room).unwrap_or(record.bytes));
            if let Err(frame) = batch.push(frame) {
                pool.put(frame);
            }
        }
        match batch.len() - before {
            0 if end => Ok(Received::End),
            0 => Ok(Received::Nothing),
            frames => Ok(Received::Frames(frames)),
        }
    }

    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<(), PortError> {
        let mut result = Ok(());
        for frame in batch.drain() {
            if let (Some(writer), Ok(())) = (&mut self.writer, &result) {
                result = writer.write(&Record::new(frame.meta.received, frame.bytes()));
            }
            pool.put(frame);
        }
        result.map_err(|cause| failure(&self.name, "write a capture", cause))
    }
}

impl<R: Read, W: Write> fmt::Debug for CapturePort<R, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CapturePort")
            .field("name", &self.name)
            .field("reads", &self.reader.as_ref().map(Reader::file))
            .field("writes", &self.writer.as_ref().map(PcapngWriter::file))
            .finish()
    }
}

fn failure(port: &str, operation: &'static str, cause: CaptureError) -> PortError {
    PortError { port: port.to_owned(), operation, cause: Box::new(cause) }
}
