//! Options of IPv4: which are refused, and what a router writes into them on the way.
//!
//! Source routes are refused, and so are options that cannot be read. Where a sender asks for it, the gateway writes down
//! the address of the interface that the packet leaves by (record route) and the time (timestamp): RFC 791, section 3.1;
//! RFC 1812, section 5.2.4. Options are rare: nothing here runs for a packet without.

use wire::Nanos;
use wire::checksum::Sum;
use wire::header::RawOptions;
use wire::ipv4::option::{LOOSE_SOURCE_ROUTE, RECORD_ROUTE, STRICT_SOURCE_ROUTE, TIMESTAMP};
use wire::ipv4::{Header, HeaderMut, MIN_HEADER_LEN};

use crate::verdict::Reason;

/// A timestamp alone.
const TIME_ONLY: u8 = 0;
/// An address before each timestamp.
const WITH_ADDRESS: u8 = 1;
/// Addresses are given beforehand; only who has the next one writes.
const GIVEN_ADDRESS: u8 = 3;

/// Not milliseconds since midnight, universal time (RFC 791, section 3.1): hosts need not know the date.
const NOT_STANDARD: u32 = 1 << 31;

/// Refuses options that ask for a route of the sender's choice, and those that cannot be read. Where a bad length hides
/// what comes next, whatever could be a source route counts as one: others may read on in another way.
#[cold]
pub(super) fn check(options: &[u8]) -> Result<(), Reason> {
    let is_route = |kind: u8| matches!(kind, LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE);
    let mut readable = true;
    for option in RawOptions::new(options) {
        match option {
            Ok(option) if is_route(option.kind) => return Err(Reason::Ipv4SourceRoute),
            Ok(option) => readable &= is_readable(option.kind, option.data),
            Err(bad) => {
                let rest = options.get(bad.at..).unwrap_or(&[]);
                let hides = rest.iter().any(|byte| is_route(*byte));
                return Err(if hides { Reason::Ipv4SourceRoute } else { Reason::Ipv4HeaderLength });
            }
        }
    }
    if readable { Ok(()) } else { Err(Reason::Ipv4HeaderLength) }
}

/// True if an option that routers write into has room where it says so, or none at all. `data` follows type and length.
fn is_readable(kind: u8, data: &[u8]) -> bool {
    let (least, entry) = match (kind, data) {
        (RECORD_ROUTE, [_, ..]) => (4, 4),
        (TIMESTAMP, [_, flags, ..]) => match flags & 0xf {
            TIME_ONLY => (5, 4),
            WITH_ADDRESS | GIVEN_ADDRESS => (5, 8),
            _ => return false,
        },
        (RECORD_ROUTE | TIMESTAMP, _) => return false,
        _ => return true,
    };
    let (len, pointer) = (data.len() + 2, usize::from(data[0]));
    // RFC 791: some room, but not enough, is an error; and so is a count of those that found none that runs over.
    let runs_over =
        kind == TIMESTAMP && pointer > len && data[1] & 0xf != GIVEN_ADDRESS && data[1] >> 4 == 15;
    pointer >= least && (pointer > len || pointer + entry - 1 <= len) && !runs_over
}

/// Writes `own` address and the time into the options of the packet, as far as they ask for it and have room. The checksum
/// of the header is updated incrementally. `is_own` says of an address whether it is the gateway's.
#[cold]
#[inline(never)]
pub(super) fn record(packet: &mut [u8], own: u32, now: Nanos, is_own: impl Fn(u32) -> bool) {
    let Some(len) = Header::of(packet).map(Header::header_len) else { return };
    let Some(options) = packet.get_mut(MIN_HEADER_LEN..len) else { return };
    let before = Sum::of(options);
    let mut at = 0;
    while let Some((kind, len)) = next(options, &mut at) {
        let Some(option) = options.get_mut(at..at + len) else { break };
        write(kind, option, own, now, &is_own);
        at += len;
    }
    let after = Sum::of(options);
    let [before, after] = [before, after].map(Sum::fold);
    if let Some(mut header) = HeaderMut::of(packet) {
        let checksum = wire::checksum::update16(header.view().checksum(), before, after);
        header.set_checksum(checksum);
    }
}

/// The type and length of the option at `at`, or behind the padding there.
fn next(options: &[u8], at: &mut usize) -> Option<(u8, usize)> {
    while options.get(*at) == Some(&1) {
        *at += 1;
    }
    match *options.get(*at..)? {
        [0, ..] => None,
        [kind, len, ..] if len >= 2 => Some((kind, usize::from(len))),
        _ => None,
    }
}

/// Writes into one option.
fn write(kind: u8, option: &mut [u8], own: u32, now: Nanos, is_own: &impl Fn(u32) -> bool) {
    let Some(pointer) = option.get(2).map(|byte| usize::from(*byte)) else { return };
    let is_full = pointer > option.len();
    let time = (now.0 / 1_000_000 % 86_400_000) as u32 | NOT_STANDARD;
    let wanted = match kind {
        RECORD_ROUTE => [Some(own), None],
        TIMESTAMP => match option.get(3).map(|byte| byte & 0xf) {
            Some(TIME_ONLY) => [Some(time), None],
            Some(WITH_ADDRESS) => [Some(own), Some(time)],
            Some(GIVEN_ADDRESS) => {
                let given = pointer.checked_sub(1).and_then(|at| option.get(at..)?.first_chunk::<4>());
                let Some(given) = given.map(|bytes| u32::from_be_bytes(*bytes)) else { return };
                if !is_own(given) {
                    return;
                }
                [Some(given), Some(time)]
            }
            _ => return,
        },
        _ => return,
    };
    if is_full {
        if kind == TIMESTAMP {
            // How many found no room, in the upper four bits; `check` has seen that it does not run over.
            option[3] = option[3].wrapping_add(0x10);
        }
        return;
    }
    let mut at = pointer.wrapping_sub(1);
    for word in wanted.into_iter().flatten() {
        let Some(place) = option.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>()) else { return };
        *place = word.to_be_bytes();
        at += 4;
    }
    option[2] = (at + 1) as u8;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OWN: u32 = 0xcb00_7102;

    fn packet(options: &[u8]) -> Vec<u8> {
        let len = 20 + options.len().next_multiple_of(4);
        let mut bytes = vec![0; len];
        bytes[0] = 0x40 | (len / 4) as u8;
        bytes[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        bytes[20..20 + options.len()].copy_from_slice(options);
        wire::ipv4::fill_checksum(&mut bytes);
        bytes
    }

    fn recorded(options: &[u8]) -> Vec<u8> {
        let mut bytes = packet(options);
        record(&mut bytes, OWN, Nanos::from_secs(86_400 * 3 + 2), |address| address == OWN);
        assert!(wire::ipv4::parse(&bytes).is_ok(), "the checksum");
        bytes[20..20 + options.len()].to_vec()
    }

    #[test]
    fn a_route_and_times_are_written_where_there_is_room() {
        assert_eq!(recorded(&[7, 7, 4, 0, 0, 0, 0]), [7, 7, 8, 0xcb, 0, 0x71, 2]);
        assert_eq!(recorded(&[1, 7, 7, 8, 9, 9, 9, 9]), [1, 7, 7, 8, 9, 9, 9, 9]);
        // 2,000 ms past midnight.
        assert_eq!(recorded(&[68, 8, 5, 0, 0, 0, 0, 0]), [68, 8, 9, 0, 0x80, 0, 7, 0xd0]);
        assert_eq!(recorded(&[68, 8, 9, 0x20, 1, 1, 1, 1]), [68, 8, 9, 0x30, 1, 1, 1, 1]);
        let [with, given] = [1, 3].map(|flag| [68, 12, 5, flag, 0xcb, 0, 0x71, 2, 0, 0, 0, 0]);
        for (asked, flag) in [(with, 1), (given, 3)] {
            assert_eq!(recorded(&asked), [68, 12, 13, flag, 0xcb, 0, 0x71, 2, 0x80, 0, 7, 0xd0]);
        }
        let other = [68, 12, 5, 3, 10, 0, 0, 1, 0, 0, 0, 0];
        assert_eq!(recorded(&other), other);
        let alert = [148, 4, 0, 0];
        assert_eq!(recorded(&alert), alert);
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for good in [
            &[7, 7, 4, 0, 0, 0, 0][..],
            &[7, 3, 4],
            &[7, 7, 8, 1, 2, 3, 4],
            &[68, 8, 5, 0, 0, 0, 0, 0],
            &[68, 8, 9, 0xe0, 0, 0, 0, 0],
            &[148, 4, 0, 0],
            &[1, 1, 1, 0, 131],
        ] {
            assert_eq!(check(good), Ok(()), "{good:?}");
        }
        for bad in [
            &[7, 0, 4, 0][..],
            &[7, 1, 4, 0],
            &[7],
            &[7, 255, 4, 0],
            &[7, 2, 0, 0],
            &[7, 7, 3, 0, 0, 0, 0],
            &[7, 7, 5, 0, 0, 0, 0],
            &[68, 8, 4, 0, 0, 0, 0, 0],
            &[68, 8, 5, 1, 0, 0, 0, 0],
            &[68, 8, 5, 2, 0, 0, 0, 0],
            &[68, 8, 9, 0xf0, 0, 0, 0, 0],
        ] {
            assert_eq!(check(bad), Err(Reason::Ipv4HeaderLength), "{bad:?}");
        }
        for route in [&[131, 3, 4][..], &[7, 2, 137, 3, 4], &[68, 0, 0, 131], &[131, 0, 4, 0], &[1, 137]] {
            assert_eq!(check(route), Err(Reason::Ipv4SourceRoute), "{route:?}");
        }
    }

    proptest! {
        #[test]
        fn any_options_keep_a_right_checksum_and_their_length(
            options in prop::collection::vec(prop_oneof![any::<u8>(), Just(7), Just(68), 0..9_u8], 0..=40),
        ) {
            let before = packet(&options);
            let mut after = before.clone();
            record(&mut after, OWN, Nanos::from_secs(5), |_| true);
            prop_assert!(wire::ipv4::parse(&after).is_ok());
            prop_assert_eq!(before.len(), after.len());
            prop_assert_eq!(&before[12..20], &after[12..20]);
        }
    }
}
