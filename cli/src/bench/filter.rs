//! Time of a packet by its number of rules: the whole pipeline on one core, frames from memory, no I/O.
//!
//! As RENA-CHIP's study measured its PCs (section 3.1): no connections are tracked, rules are compared one after the other, packets of
//! IPv6 go both ways, and of the rules only the last two let them pass, each by its source and destination address.

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use chip::estimate::Point;
use tally::NoTally;
use wire::PortId;
use wire::build;
use wire::ethernet::Mac;

use super::in_memory::{self, Arrival, BenchError, Gateway};

/// Numbers of rules of the study.
const RULES: [u32; 4] = [0, 64, 128, 256];

/// Rounds at each number of rules, a point each.
const ROUNDS: u32 = 5;

/// Least duration of a round.
const ROUND: Duration = Duration::from_millis(200);

/// Bytes of a frame without its check sequence: the shortest with UDP over IPv6, 66 bytes with it, as in the study.
const LEN: usize = 62;

/// Frames that are passed between two looks at the clock.
const FRAMES: usize = 4_096;

/// Hosts at both ends.
const LAN: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 9);
const WAN: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 9);

/// Measures; points have the core as the unit of speed. `progress` is told what is being done.
pub(crate) fn measure(progress: &mut dyn FnMut(&str)) -> Result<Vec<Point>, BenchError> {
    rounds(ROUND, progress)
}

fn rounds(round: Duration, progress: &mut dyn FnMut(&str)) -> Result<Vec<Point>, BenchError> {
    let load = load();
    progress("building classifiers");
    let mut gateways = Vec::with_capacity(RULES.len());
    for rules in RULES {
        let mut gateway = Gateway::new(&in_memory::policy(&policy(rules))?)?;
        gateway.pass(&load, &mut NoTally, &mut |_| ());
        gateways.push((rules, gateway));
    }
    progress("measuring");
    let mut points = Vec::with_capacity(RULES.len() * ROUNDS as usize);
    // By turns, so that a machine that becomes slower does so for all.
    for _ in 0..ROUNDS {
        for (rules, gateway) in &mut gateways {
            let (started, mut packets) = (Instant::now(), 0);
            let elapsed = loop {
                gateway.pass(&load, &mut NoTally, &mut |_| ());
                packets += load.len();
                let elapsed = started.elapsed();
                if elapsed >= round {
                    break elapsed;
                }
            };
            let micros = elapsed.as_secs_f64() * 1e6 / packets as f64;
            points.push(Point { rules: *rules, micros, speed: 1.0 });
        }
    }
    gateways.iter().try_for_each(|(_, gateway)| gateway.check_all_passed())?;
    Ok(points)
}

/// A stateless policy with that many rules, none or two at least.
fn policy(rules: u32) -> String {
    let mut text = String::from(
        "mode = \"stateless\"\n[classifier]\nalgorithm = \"linear\"\n[default]\n\"any > any\" = \"accept\"\n\
         [interface.lan]\nzone = \"lan\"\naddresses = [\"2001:db8:1::1/64\"]\nmac = \"02:00:00:00:00:01\"\n\
         [interface.wan]\nzone = \"wan\"\naddresses = [\"2001:db8:2::1/64\"]\nmac = \"02:00:00:00:00:02\"\n",
    );
    let mut rule = |name: String, source: Ipv6Addr, destination: Ipv6Addr, action: &str| {
        text.push_str(&format!(
            "[[rule]]\nname = \"{name}\"\nsource = \"{source}\"\ndestination = \"{destination}\"\naction = \"{action}\"\n"
        ));
    };
    for number in 0..rules.saturating_sub(2) {
        let host = |network| Ipv6Addr::new(0x2001, 0xdb8, network, number as u16, 0, 0, 0, 1);
        rule(format!("other-{number}"), host(8), host(9), "drop");
    }
    if rules > 0 {
        rule("out".to_owned(), LAN, WAN, "accept");
        rule("back".to_owned(), WAN, LAN, "accept");
    }
    text
}

/// A frame, and the port it comes in by.
#[derive(Clone, Copy)]
struct Load {
    bytes: [u8; LEN],
    ingress: PortId,
}

impl Arrival for Load {
    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    #[inline(always)]
    fn ingress(&self) -> PortId {
        self.ingress
    }
}

/// Frames of both directions, by turns.
fn load() -> Vec<Load> {
    let directions = [(LAN, WAN, 1), (WAN, LAN, 2)].map(|(source, destination, interface)| {
        let link = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, interface]));
        let mut bytes = [0; LEN];
        // The lengths are constants that fit.
        let _ = link.ipv6(source, destination).udp(5_004, 5_004).write(&mut bytes);
        Load { bytes, ingress: PortId(u16::from(interface) - 1) }
    });
    directions.into_iter().cycle().take(FRAMES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_is_a_point_and_every_packet_meets_its_rule() {
        let points = rounds(Duration::ZERO, &mut |_| ()).expect("every frame is forwarded");
        assert_eq!(points.len(), RULES.len() * ROUNDS as usize);
        for rules in RULES {
            let its = points.iter().filter(|point| point.rules == rules);
            assert_eq!(its.clone().count(), ROUNDS as usize);
            assert!(its.clone().all(|point| point.micros > 0.0 && point.speed == 1.0));
        }
        // The last two rules let them pass, and not the default.
        let text = policy(64).replace("\"any > any\" = \"accept\"", "\"any > any\" = \"drop\"");
        let mut gateway = Gateway::new(&in_memory::policy(&text).expect("a sound policy")).expect("memory");
        gateway.pass(&load(), &mut NoTally, &mut |_| ());
        assert!(gateway.check_all_passed().is_ok());
    }
}
