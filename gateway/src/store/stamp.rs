//! Stamp of a state file: time and occasion of the write, for the age of the file at the import.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use wire::Nanos;

/// File with Linux's ID of the current boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Occasion of writing a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Occasion {
    /// Clean end of the gateway: no flow has changed since.
    End,
    /// Operator's request, while the gateway went on.
    Save,
}

/// Time and occasion of writing a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Occasion.
    pub occasion: Occasion,
    /// Boot ID of Linux; empty where not available.
    pub boot: String,
    /// Time since that boot, suspension included (CLOCK_BOOTTIME).
    pub uptime: Nanos,
    /// Time of day (UTC), since 1970.
    pub time_of_day: Nanos,
}

impl Stamp {
    /// Stamp of the current time.
    pub fn now(occasion: Occasion) -> Stamp {
        let boot = fs::read_to_string(BOOT_ID).unwrap_or_default();
        let since_boot = clock_gettime(ClockId::Boottime);
        let [seconds, rest] =
            [since_boot.tv_sec, since_boot.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
        let time_of_day = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Stamp {
            occasion,
            boot: boot.trim().to_owned(),
            uptime: Nanos(seconds.saturating_mul(1_000_000_000).saturating_add(rest)),
            time_of_day: time_of_day.into(),
        }
    }

    /// Returns the time from this stamp to a later one: by the boot clock within a boot, by the time of day across
    /// boots; `None` where the time of day went backwards.
    pub fn age(&self, now: &Stamp) -> Option<Nanos> {
        let [from, to] = match !self.boot.is_empty() && self.boot == now.boot {
            true => [self.uptime, now.uptime],
            false => [self.time_of_day, now.time_of_day],
        };
        to.0.checked_sub(from.0).map(Nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(boot: &str, uptime: u64, time_of_day: u64) -> Stamp {
        Stamp {
            occasion: Occasion::End,
            boot: boot.to_owned(),
            uptime: Nanos(uptime),
            time_of_day: Nanos(time_of_day),
        }
    }

    #[test]
    fn within_a_boot_the_time_of_day_does_not_count() {
        assert_eq!(stamp("a", 10, 5000).age(&stamp("a", 17, 3)), Some(Nanos(7)));
        assert_eq!(stamp("a", 10, 5000).age(&stamp("a", 9, 6000)), None);
    }

    #[test]
    fn from_boot_to_boot_only_the_time_of_day_counts() {
        assert_eq!(stamp("a", 900, 5000).age(&stamp("b", 3, 5600)), Some(Nanos(600)));
        assert_eq!(stamp("a", 900, 5000).age(&stamp("b", 3, 4999)), None);
        // Two systems that have no name for their boots are not told to be the same.
        assert_eq!(stamp("", 1, 5000).age(&stamp("", 900, 5001)), Some(Nanos(1)));
    }

    #[test]
    fn this_moment_is_not_before_itself() {
        let first = Stamp::now(Occasion::Save);
        assert!(!first.boot.is_empty());
        assert!(first.age(&Stamp::now(Occasion::End)).is_some_and(|age| age < Nanos::from_secs(60)));
    }
}
