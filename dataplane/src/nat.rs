//! stub
#![allow(missing_docs)]
use crate::tables::NatTables;
use tally::Tally;
use wire::Part;
use wire::header::Protocol;
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub address: u128,
    pub port: u16,
    pub protocol: u8,
    pub family: u8,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappingId(pub u32);
pub struct PoolId(pub u16);
pub struct Mapped {
    pub id: MappingId,
    pub outside: Endpoint,
}
pub enum Refusal {
    PortsExhausted,
    QuotaReached,
    TableFull,
    NotInside,
}
#[derive(Debug)]
pub struct NatError;
impl std::fmt::Display for NatError {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Ok(())
    }
}
#[derive(Debug)]
pub struct Mappings;
impl Mappings {
    pub fn new(_: &NatTables, _: u32, _: [u64; 2]) -> Result<Self, NatError> {
        Ok(Mappings)
    }
    pub fn inside_of<T: Tally>(&self, _: Endpoint, _: &mut T) -> Option<(MappingId, Endpoint)> {
        None
    }
    pub fn map<T: Tally>(&mut self, _: PoolId, _: Endpoint, _: &mut T) -> Result<Mapped, Refusal> {
        Err(Refusal::TableFull)
    }
    pub fn map_address<T: Tally>(&mut self, _: PoolId, e: Endpoint, _: &mut T) -> Result<Endpoint, Refusal> {
        Ok(e)
    }
    pub fn release(&mut self, _: MappingId) {}
    pub fn retain(&mut self, _: MappingId) {}
    pub fn memory_bytes(&self) -> usize {
        0
    }
}
pub struct Translation {
    pub old: [Endpoint; 2],
    pub new: [Endpoint; 2],
}
impl Translation {
    pub fn apply(&self, _: &mut [u8], _: usize, _: Protocol, _: Part) {}
    pub fn apply_to_error(&self, _: &mut [u8], _: usize) {}
}
