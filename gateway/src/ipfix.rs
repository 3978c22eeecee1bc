//! Export of flow records and NAT events by IPFIX (RFC 7011, RFC 8158).
//!
//! Workers send the records of their shards by a bounded channel to a thread, which encodes and sends them to the policy's collector,
//! by a socket of Linux's. Workers never wait: a record that finds no room is counted as lost, as is one that could not be sent, and
//! the collector is told the sum. Flow records are of one direction each.

mod data;
mod element;
mod exporter;
mod interface;
mod message;
mod session;
mod template;
#[cfg(test)]
mod tests;
mod transport;

pub use exporter::{CollectorState, Exporter, IpfixCounts, RecordFeed};
