//! Packet classification and longest-prefix match, for IPv4 and IPv6.
//!
//! A router or a firewall asks two questions about each packet. Which rule is the first in the list that matches this
//! header? A [`Classifier`](classify::Classifier) answers with the rule's position. Which is the longest prefix that
//! contains this address? [`Fib4`](fib::Fib4) and [`Fib6`](fib::Fib6) answer with the prefix's value. Actions on the answer
//! are the caller's: this crate knows of no actions, next hops or policy.
//!
//! A third is asked by firewalls: in which sets is this address, while prefixes come and go? [`SetTable`](set::SetTable) answers
//! with a bit for each set.
//!
//! Properties of all:
//!
//! - The answer is that of a linear scan, for every header and every address. Tests hold each structure to that.
//! - A search allocates nothing, takes no lock and never fails. Structures are built beforehand; they can be shared by threads.
//! - Memory is bounded: what would need more says so while it is built, instead of taking it.
//! - A search can tell what it costs: the `_tallied` form of a search, and [`Fib4::lookup`](fib::Fib4::lookup), report their
//!   instructions and memory references to a [`Tally`](tally::Tally), as a single-issue 32-bit engine of a network processor has
//!   them. [`NoTally`](tally::NoTally) compiles to nothing.
//!
//! # Classifiers
//!
//! A [`Pattern`](classify::Pattern) says what a header must show: prefixes or any ranges of addresses, protocols, ranges of
//! ports, ICMP types, TCP flags, DiffServ code points, zones, interfaces and classes of MAC addresses. The first pattern that
//! matches is found, so exceptions stand before what they are exceptions of.
//!
//! ```
//! use lookup::classify::{AddressSpan, Choice, Header, Pattern, PortSpan, Task};
//! use wire::Family;
//!
//! // 10.1.0.0/16 over TCP to port 22, then all of 10.0.0.0/8.
//! let network = |first, last| Some(vec![AddressSpan { v6: false, first, last }]);
//! let patterns = vec![
//!     Pattern {
//!         source: network(0x0a01_0000, 0x0a01_ffff),
//!         protocols: vec![6],
//!         dports: vec![PortSpan { first: 22, last: 22 }],
//!         ..Pattern::default()
//!     },
//!     Pattern { source: network(0x0a00_0000, 0x0aff_ffff), ..Pattern::default() },
//! ];
//!
//! // The fastest search that keeps within the bounds.
//! let choice = Choice::new(Task { patterns, wanted: None, bounds: Default::default() });
//!
//! let ssh = Header { family: Family::V4, source: 0x0a01_0203, protocol: 6, dport: 22, ..Header::default() };
//! assert_eq!(choice.classifier.classify(&ssh), Some(0));
//! assert_eq!(choice.classifier.classify(&Header { dport: 80, ..ssh }), Some(1));
//! assert_eq!(choice.classifier.classify(&Header { source: 0x0b00_0001, ..ssh }), None);
//! ```
//!
//! [`ALGORITHMS`](classify::ALGORITHMS) lists the algorithms:
//!
//! | name | search | good for |
//! |---|---|---|
//! | `linear` | one pattern after the other | up to eight patterns; the oracle of the others |
//! | `coded` | the patterns as a program | network processors with few patterns |
//! | `range_match` | a bit vector for each interval of each field, ANDed | hundreds of patterns: memory grows with their square |
//! | `tuple` | hash tables by prefix lengths | patterns that come and go one by one ([`Updatable`](classify::Updatable)) |
//! | `bdd` | a binary decision diagram | a bounded number of steps, whatever the patterns |
//! | `tree` | decision trees whose leaves compare eight patterns at a time | speed, from ten patterns to 100,000 |
//!
//! `cargo run -p wirerate-lookup --example classifier` asks each of them, and prints what a search costs; the example `beside` puts one of one's
//! own beside them, on a filter set like ClassBench's.
//!
//! # Forwarding information bases
//!
//! ```
//! use lookup::fib::{Fib4, NO_ROUTE, Route4};
//! use tally::NoTally;
//!
//! let fib = Fib4::new(&[
//!     Route4 { address: 0x0a00_0000, length: 8, value: 1 },
//!     Route4 { address: 0x0a01_0000, length: 16, value: 2 },
//! ])?;
//! assert_eq!(fib.lookup(0x0a01_0203, &mut NoTally), Some(2));
//! assert_eq!(fib.lookup(0x0a02_0203, &mut NoTally), Some(1));
//!
//! // In bulk, the look-ups wait for memory side by side.
//! let mut values = [0; 2];
//! fib.lookup_bulk(&[0x0a02_0203, 0x0b00_0001], &mut values);
//! assert_eq!(values, [1, NO_ROUTE]);
//! # Ok::<(), lookup::fib::FibError>(())
//! ```
//!
//! `cargo run -p wirerate-lookup --example fib` builds larger ones, and `cargo bench -p wirerate-lookup` measures them.

pub mod classify;
pub mod fib;
pub mod memory;
pub mod set;
