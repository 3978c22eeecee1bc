//! A port made of memory: frames in by a list, frames out into a list. For tests and benchmarks.

use std::collections::VecDeque;

use crate::batch::Batch;
use crate::pool::Pool;
use crate::port::{Port, PortError, Received};
use crate::unit::Nanos;

/// A packet and the moment it was received or sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamped {
    /// Time of receipt or sending.
    pub at: Nanos,
    /// The packet, from its link-layer header on.
    pub bytes: Vec<u8>,
}

/// A port that receives packets from `input` and appends sent packets to `output`.
#[derive(Debug, Default)]
pub struct MemoryPort {
    name: String,
    /// Packets to receive, first to last.
    pub input: VecDeque<Stamped>,
    /// Packets sent, first to last.
    pub output: Vec<Stamped>,
}

impl MemoryPort {
    /// A port called `name` with nothing to receive.
    pub fn new(name: impl Into<String>) -> MemoryPort {
        MemoryPort { name: name.into(), ..MemoryPort::default() }
    }
}

impl Port for MemoryPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn receive(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<Received, PortError> {
        if self.input.is_empty() {
            return Ok(Received::End);
        }
        let before = batch.len();
        while !batch.is_full() && !self.input.is_empty() {
            let Some(mut frame) = pool.take() else { break };
            let Some(next) = self.input.pop_front() else { break };
            frame.meta.received = next.at;
            if !frame.fill(&next.bytes) {
                pool.put(frame);
                return Err(PortError {
                    port: self.name.clone(),
                    operation: "receive a packet",
                    cause: format!("{} bytes do not fit a slot of {}", next.bytes.len(), pool.slot_bytes())
                        .into(),
                });
            }
            if let Err(frame) = batch.push(frame) {
                pool.put(frame);
            }
        }
        match batch.len() - before {
            0 => Ok(Received::Nothing),
            frames => Ok(Received::Frames(frames)),
        }
    }

    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<(), PortError> {
        for frame in batch.drain() {
            self.output.push(Stamped { at: frame.meta.received, bytes: frame.bytes().to_vec() });
            pool.put(frame);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out_in_order() {
        let mut pool = Pool::new(8, 2048).unwrap();
        let mut port = MemoryPort::new("lan");
        for n in 0..20u8 {
            port.input.push_back(Stamped { at: Nanos(u64::from(n)), bytes: vec![n; 60] });
        }
        let mut batch = Batch::new();
        let mut rounds = 0;
        while port.receive(&mut batch, &mut pool).unwrap() != Received::End {
            port.transmit(&mut batch, &mut pool).unwrap();
            rounds += 1;
        }
        assert_eq!(rounds, 3, "a pool of eight slots lets eight frames in at a time");
        assert_eq!(port.output.len(), 20);
        assert!(port.output.iter().enumerate().all(|(n, sent)| sent.bytes == vec![n as u8; 60]));
        assert_eq!(pool.available(), 8);
    }
}
