//! Searching rules: the first pattern, in order, that matches a packet's header.
//!
//! A [`Classifier`] is built from [`Pattern`]s and answers with the position of the first that matches; what
//! follows from a match is not its business. An algorithm is one file and one line in [`ALGORITHMS`].

use std::fmt;

use tally::{Offload, Region, Tally};
use wire::Family;

pub mod bdd;
mod budget;
mod choice;
pub mod coded;
mod field;
pub mod generate;
pub mod linear;
mod pattern;
mod prefix;
pub mod range_match;
#[cfg(target_arch = "x86_64")]
mod simd_tree;
mod simd_vector;
pub mod tree;
pub mod tuple;
pub mod update;

pub use bdd::Bdd;
pub use choice::{Choice, Made, Task};
pub use coded::Coded;
pub use linear::Linear;
pub use pattern::{AddressSpan, Admit, ClassSpan, Pattern, PortSpan, TypeMatch};
pub use range_match::RangeMatch;
pub use tree::Tree;
pub use tuple::Tuple;
pub use update::Updatable;

/// Packet header as rules see it: addresses before source and after destination translation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Header {
    /// Source address; IPv4 in the low 32 bits.
    pub source: u128,
    /// Destination address; IPv4 in the low 32 bits.
    pub destination: u128,
    /// Transport protocol.
    pub protocol: u8,
    /// TCP flags, else 0.
    pub tcp_flags: u8,
    /// DiffServ code point, 0 to 63.
    pub dscp: u8,
    /// IPv4 or IPv6.
    pub family: Family,
    /// Source port of TCP, UDP, SCTP or DCCP, else 0.
    pub sport: u16,
    /// Destination port likewise; of ICMP, type << 8 | code.
    pub dport: u16,
    /// Zone of origin, 0 to 63; 0 is the gateway itself.
    pub from: u8,
    /// Zone of destination likewise.
    pub to: u8,
    /// Interface of origin.
    pub ingress: u16,
    /// Interface of destination; `u16::MAX` for the gateway itself.
    pub egress: u16,
    /// Class of the source MAC address: the number, from 1 on, of an interval of addresses within which no rule tells one from
    /// another, made by who makes the patterns. 0 where there is no such address, or no rule asks for any.
    pub source_mac: u16,
    /// Memberships of the addresses in sets that change while the patterns stay, a bit each, made by who makes the patterns.
    pub sets: u32,
}

/// The position in the list of patterns, from 0.
pub type Position = u32;

/// No pattern matches, in the result of a bulk search.
pub const NO_MATCH: Position = Position::MAX;

/// An algorithm to search patterns. All give the answers of the linear scan.
pub trait Classifier: Send + Sync {
    /// Returns the position of the first pattern that matches.
    fn classify(&self, header: &Header) -> Option<Position>;

    /// Finds the first match of each header; `positions` is as long as `headers`.
    fn classify_bulk(&self, headers: &[Header], positions: &mut [Position]) {
        for (header, position) in headers.iter().zip(positions) {
            *position = self.classify(header).unwrap_or(NO_MATCH);
        }
    }

    /// [`Classifier::classify`], reporting its cost to `tally`.
    fn classify_tallied(&self, header: &Header, tally: &mut dyn Tally) -> Option<Position>;

    /// Returns the memory that the classifier uses, in bytes.
    fn memory_bytes(&self) -> usize;

    /// Returns the size of [`Region::RuleTable`] for [`Classifier::classify_tallied`], in bytes.
    fn region_bytes(&self) -> u64;

    /// Returns the size of the search in an engine's control store, in instructions.
    fn program(&self) -> u32;

    /// Returns a copy that can be changed pattern by pattern; `None` if the algorithm has none, or there is no memory for it
    /// within the bounds. `patterns` are those that the classifier was made of: not every algorithm keeps them.
    fn to_updatable(&self, patterns: &[Pattern]) -> Option<Box<dyn Updatable>> {
        let _ = patterns;
        None
    }
}

/// Reports the cost of a search, if the tally is kept.
#[inline(always)]
pub fn tell<T: Tally>(classifier: &dyn Classifier, header: &Header, tally: &mut T) {
    if tally.is_kept() {
        // Addresses, ports and protocol, and what comes of two zones.
        let bytes = if header.family == Family::V4 { 15 } else { 39 };
        tally.begin_offload(Offload::Search { region: Region::RuleTable, bytes });
        let position = classifier.classify_tallied(header, tally);
        tally.end_offload();
        debug_assert_eq!(position, classifier.classify(header));
    }
}

/// A known algorithm.
#[derive(Clone, Copy, Debug)]
pub struct Algorithm {
    /// Name, as an operator writes it.
    pub name: &'static str,
    /// Description, one line.
    pub summary: &'static str,
    /// Builds a classifier.
    pub build: fn(&[Pattern], Bounds) -> Built,
}

/// A classifier, or the error that it does not fit its bounds.
pub type Built = Result<Box<dyn Classifier>, TooLarge>;

/// Limits on the resources of a classifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of memory, during construction too.
    pub memory: usize,
}

/// An algorithm cannot search these patterns within the bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge {
    /// Bytes that it was about to take when it gave up.
    pub needed: usize,
    /// Bytes that it may take.
    pub bound: usize,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "needs {} bytes or more; it may take {}", self.needed, self.bound)
    }
}

impl std::error::Error for TooLarge {}

impl Default for Bounds {
    /// 64 MiB.
    fn default() -> Bounds {
        Bounds::of(0)
    }
}

impl Bounds {
    /// # Errors
    /// `needed` bytes are more than it may take.
    pub fn admit(self, needed: usize) -> Result<(), TooLarge> {
        if needed > self.memory { Err(TooLarge { needed, bound: self.memory }) } else { Ok(()) }
    }
}

/// All algorithms; the first is the reference, and takes any patterns within any bounds.
pub const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "linear",
        summary: "compares one pattern after the other, as netfilter does",
        build: |patterns, _| Ok(Box::new(Linear::new(patterns))),
    },
    Algorithm {
        name: "coded",
        summary: "patterns translated to code, which compares only what each of them asks for",
        build: |patterns, _| Ok(Box::new(Coded::new(patterns))),
    },
    Algorithm {
        name: "range_match",
        summary: "ANDs a bit vector per field's interval, as Lakshman and Stiliadis do",
        build: |patterns, bounds| Ok(Box::new(RangeMatch::new(patterns, bounds)?)),
    },
    Algorithm {
        name: "tuple",
        summary: "hash tables by prefix lengths, merged as TupleMerge does; changed pattern by pattern",
        build: |patterns, bounds| Ok(Box::new(Tuple::new(patterns, bounds)?)),
    },
    Algorithm {
        name: "bdd",
        summary: "a binary decision diagram: one bit of the header after the other, each once at most",
        build: |patterns, bounds| Ok(Box::new(Bdd::new(patterns, bounds)?)),
    },
    Algorithm {
        name: "tree",
        summary: "decision trees that gather bits, with leaves compared eight at a time; changed pattern by pattern",
        build: |patterns, bounds| Ok(Box::new(Tree::new(patterns, bounds)?)),
    },
];

/// Former names of algorithms, each with the one of today: policies, mappings and scripts may still say them.
pub const RENAMED: &[(&str, &str)] = &[("diagram", "bdd")];

impl PartialEq for Algorithm {
    fn eq(&self, other: &Algorithm) -> bool {
        self.name == other.name
    }
}

impl Algorithm {
    /// The algorithm of that name, or of that former name ([`RENAMED`]).
    pub fn named(name: &str) -> Option<&'static Algorithm> {
        let name = RENAMED.iter().find(|(former, _)| *former == name).map_or(name, |(_, today)| *today);
        ALGORITHMS.iter().find(|algorithm| algorithm.name == name)
    }
}

#[cfg(test)]
mod tests;
