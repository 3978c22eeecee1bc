//! Builds forwarding information bases, looks up a few addresses, and prints memory and the references of a look-up.

use std::net::{Ipv4Addr, Ipv6Addr};

use lookup::fib::{Fib4, Fib6, FibError, Route4, Route6};
use tally::{Count, Region};

fn main() -> Result<(), FibError> {
    let route4 = |address: [u8; 4], length, value| Route4 {
        address: Ipv4Addr::from(address).to_bits(),
        length,
        value,
    };
    let mut routes =
        vec![route4([0, 0, 0, 0], 0, 1), route4([10, 0, 0, 0], 8, 2), route4([10, 1, 0, 0], 16, 3)];
    // Hosts of 10.1.2.0/24, each by a next hop of its own.
    routes.extend((0..=255).map(|host| route4([10, 1, 2, host], 32, 100 + u32::from(host))));
    let fib = Fib4::new(&routes)?;
    println!("{} IPv4 routes in {} bytes", routes.len(), fib.memory_bytes());
    for address in [Ipv4Addr::new(10, 1, 2, 9), Ipv4Addr::new(10, 1, 3, 9), Ipv4Addr::new(198, 51, 100, 1)] {
        let mut count = Count::default();
        report(&address.to_string(), fib.lookup(address.to_bits(), &mut count), &count);
    }

    let route6 = |address: &[u16; 8], length, value| Route6 {
        address: Ipv6Addr::from(*address).to_bits(),
        length,
        value,
    };
    let routes = [
        route6(&[0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, 1),
        route6(&[0x2001, 0xdb8, 7, 0, 0, 0, 0, 0], 48, 2),
        route6(&[0x2001, 0xdb8, 7, 0, 0, 0, 0, 1], 128, 3),
    ];
    let fib = Fib6::new(&routes)?;
    println!("{} IPv6 routes in {} bytes", routes.len(), fib.memory_bytes());
    for tail in [[7, 1], [7, 2], [8, 1]] {
        let address = Ipv6Addr::new(0x2001, 0xdb8, tail[0], 0, 0, 0, 0, tail[1]);
        let mut count = Count::default();
        report(&address.to_string(), fib.lookup(address.to_bits(), &mut count), &count);
    }
    let stranger = Ipv6Addr::new(0x2001, 0xdb9, 0, 0, 0, 0, 0, 1);
    let mut count = Count::default();
    report(&stranger.to_string(), fib.lookup(stranger.to_bits(), &mut count), &count);
    Ok(())
}

fn report(address: &str, value: Option<u32>, count: &Count) {
    let value = value.map_or("no route".to_owned(), |value| format!("value {value}"));
    let references = count.references(Region::RouteTable);
    println!(
        "  {address:<16} {value:<10} {} reads, {} bytes, {} instructions",
        references.reads,
        references.bytes,
        count.executed_total()
    );
}
