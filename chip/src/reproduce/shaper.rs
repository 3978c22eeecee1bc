//! Shaper of Linux that is driven by a timer, as RENA-CHIP's study measured it (section 3.2): the project's own scheduler, which is
//! offered opportunities to send at the ticks of a timer of 2,048 Hz only, in virtual time.

use std::net::Ipv4Addr;

use dataplane::egress::Next;
use dataplane::replay::Way;
use dataplane::{Replay, Tables};
use wire::build;
use wire::ethernet::Mac;
use wire::{Nanos, PortId};

use super::{ReproduceError, shipped};

/// Ticks a second.
const TICKS: u64 = 2_048;

const SECOND: u64 = 1_000_000_000;

/// Any moment but that at which a clock starts.
const START: u64 = SECOND;

/// Largest number of packets that wait.
const WAITING: u64 = 16_000;

/// Packets that a tick lets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tick {
    /// One.
    One,
    /// Frames that the token bucket of an HTB class holds tokens for, by its default: `burst = rate / HZ + mtu` bytes, where
    /// `mtu` is 1,600 (iproute2, `tc/q_htb.c`). HZ is taken to be the timer's. The last packet may leave the bucket in debt.
    DefaultBurst,
}

/// MTU of a class of HTB unless said otherwise.
const HTB_MTU: u64 = 1_600;

impl Tick {
    /// Bytes that may have gone before a tick lets go of no more.
    fn bytes(self, rate: u64) -> u64 {
        match self {
            Tick::One => 1,
            Tick::DefaultBurst => rate / 8 / TICKS + HTB_MTU,
        }
    }
}

/// Returns the Mbit/s that leave in a second at a shaping rate of `rate` bit/s, where more packets of `bytes` bytes wait than that.
pub(super) fn output(rate: u64, bytes: u64, tick: Tick) -> Result<f64, ReproduceError> {
    let mut replay = Replay::new(tables(rate)?, Nanos(START), Way::Run)
        .map_err(|error| ReproduceError::Scheduler(error.to_string()))?;
    let packet = packet(bytes);
    // A burst after the pause before them, and a packet that does not fit in.
    let waiting = (rate / 8 / bytes + HTB_MTU).min(WAITING);
    for number in 0..waiting {
        replay.receive(PortId(0), Nanos(START), number as u32, &packet, &mut ());
    }
    replay.pass(&mut ());
    let mut departed = 0;
    for number in 0..TICKS {
        let now = Nanos(START + number * SECOND / TICKS);
        let mut sent = 0;
        while sent < tick.bytes(rate) {
            match replay.shard.next(PortId(1), now) {
                Next::Frame(..) => {
                    departed += 1;
                    sent += bytes;
                }
                Next::Wait(_) => break,
                Next::Dropped(..) | Next::Empty => {
                    return Err(ReproduceError::Scheduler("the shaper's queue ran empty".to_owned()));
                }
            }
        }
    }
    Ok((departed * bytes * 8) as f64 / 1e6)
}

fn tables(rate: u64) -> Result<Tables, ReproduceError> {
    let text = format!(
        "[interface.lan]\nzone = \"lan\"\naddresses = [\"192.168.1.1/24\"]\nmac = \"02:00:00:00:00:01\"\n\
         [interface.wan]\nzone = \"wan\"\naddresses = [\"203.0.113.2/24\"]\nmac = \"02:00:00:00:00:02\"\n\
         [default]\n\"lan > wan\" = \"accept\"\n[limit]\nqueue = 16384\n\
         [[queue]]\nname = \"htb\"\non = \"wan\"\nrate = \"{rate} bit/s\"\noverhead = \"ip\"\nlimit = {WAITING}\n"
    );
    let policy = shipped::policy(&text, "shaper")?;
    Tables::compile(&policy, 1).map_err(|error| ReproduceError::Scheduler(error.to_string()))
}

/// A packet that counts `bytes` bytes.
fn packet(bytes: u64) -> Vec<u8> {
    let headers = 20 + 8;
    build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 1]))
        .ipv4(Ipv4Addr::new(192, 168, 1, 10), Ipv4Addr::new(203, 0, 113, 9))
        .udp(5_004, 5_004)
        .payload(&vec![0; (bytes as usize).saturating_sub(headers)])
        .to_vec()
}

#[cfg(test)]
mod tests {
    use super::{Tick, output};

    /// Asserts a rate, to so many bytes of a second's.
    fn close(found: f64, expected: f64, bytes: f64) {
        assert!((found - expected).abs() <= 1.01 * bytes * 8.0 / 1e6, "{found} is not {expected}");
    }

    /// Rate of one packet a tick, by arithmetic: 242 x 8 x 2,048.
    #[test]
    fn one_packet_a_tick_is_a_ceiling() {
        for (rate, expected) in
            [(1_000_000, 1.0), (3_000_000, 3.0), (6_000_000, 3.964_928), (25_000_000, 3.964_928)]
        {
            close(output(rate, 242, Tick::One).unwrap(), expected, 242.0);
        }
        close(output(25_000_000, 1_500, Tick::One).unwrap(), 24.576, 1_500.0);
    }

    #[test]
    fn what_a_bucket_holds_for_a_tick_keeps_the_rate() {
        for rate in [1_000_000, 6_000_000, 25_000_000] {
            // Those of the last tick go after the second.
            let rest = (rate / 8 / 2_048) as f64 + 242.0;
            close(output(rate, 242, Tick::DefaultBurst).unwrap(), rate as f64 / 1e6, rest);
        }
        // 25 Mbit/s are 3,125,000 / 2,048 bytes a tick; the bucket holds them, and 1,600 more.
        assert_eq!(Tick::DefaultBurst.bytes(25_000_000), 1_525 + 1_600);
    }
}
