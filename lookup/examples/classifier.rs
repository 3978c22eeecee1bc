//! Searches a short list of rules with each algorithm, and prints the rule found and what the search cost.

use std::net::Ipv4Addr;

use lookup::classify::{ALGORITHMS, AddressSpan, Bounds, Header, Pattern, PortSpan, TooLarge};
use tally::{Count, Region};
use wire::Family;

const TCP: u8 = 6;
const UDP: u8 = 17;

fn main() -> Result<(), TooLarge> {
    let office = network([192, 168, 0, 0], 16);
    let rules = [
        ("no telnet", Pattern { protocols: vec![TCP], dports: port(23), ..Pattern::default() }),
        (
            "ssh to the server",
            Pattern {
                source: office.clone(),
                destination: network([203, 0, 113, 7], 32),
                protocols: vec![TCP],
                dports: port(22),
                ..Pattern::default()
            },
        ),
        (
            "dns",
            Pattern {
                source: office.clone(),
                protocols: vec![TCP, UDP],
                dports: port(53),
                ..Pattern::default()
            },
        ),
        ("the rest of the office", Pattern { source: office, ..Pattern::default() }),
    ];
    let patterns: Vec<Pattern> = rules.iter().map(|(_, pattern)| pattern.clone()).collect();
    let host = Header { family: Family::V4, source: address([192, 168, 1, 5]), ..Header::default() };
    let headers = [
        ("ssh", Header { destination: address([203, 0, 113, 7]), protocol: TCP, dport: 22, ..host }),
        ("dns", Header { destination: address([9, 9, 9, 9]), protocol: UDP, dport: 53, ..host }),
        ("https", Header { destination: address([198, 51, 100, 1]), protocol: TCP, dport: 443, ..host }),
        ("stranger", Header { source: address([198, 51, 100, 1]), protocol: TCP, dport: 443, ..host }),
    ];

    println!(
        "{:<12} {:<9} {:<24} {:>6} {:>6} {:>13}",
        "algorithm", "packet", "rule", "reads", "bytes", "instructions"
    );
    for algorithm in ALGORITHMS {
        let classifier = (algorithm.build)(&patterns, Bounds::default())?;
        for (packet, header) in &headers {
            let mut count = Count::default();
            let found = classifier.classify_tallied(header, &mut count);
            let rule = found.map_or("none", |position| rules[position as usize].0);
            let references = count.references(Region::RuleTable);
            println!(
                "{:<12} {packet:<9} {rule:<24} {:>6} {:>6} {:>13}",
                algorithm.name,
                references.reads,
                references.bytes,
                count.executed_total()
            );
        }
    }
    Ok(())
}

/// A header has IPv4 addresses in the low 32 bits.
fn address(octets: [u8; 4]) -> u128 {
    Ipv4Addr::from(octets).to_bits().into()
}

fn network(octets: [u8; 4], length: u32) -> Option<Vec<AddressSpan>> {
    let hosts = u32::MAX.checked_shr(length).unwrap_or(0);
    let first = address(octets);
    Some(vec![AddressSpan { v6: false, first, last: first | u128::from(hosts) }])
}

fn port(number: u16) -> Vec<PortSpan> {
    vec![PortSpan { first: number, last: number }]
}
