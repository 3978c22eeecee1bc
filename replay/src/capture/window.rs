//! A window of time: packets outside of it are not played.
//!
//! Nothing is known of what was before the window: connections that began there have no flow, and are picked up only where the policy says so
//! (`pickup = "accept"` in `[limit]`).

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use wire::Nanos;

/// Moment in captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Time since 1970.
    At(Nanos),
    /// Time since the first packet of all captures.
    After(Nanos),
}

/// Text that is no moment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is no moment: seconds from the first packet on (12.5), a duration from then on (1m 30s), or a time of UTC (2026-11-29T18:30:00Z)"
)]
pub struct NoMoment(String);

/// Packets that are played: those from one moment on, and before another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// The first moment; the first packet if absent.
    pub from: Option<Moment>,
    /// The moment behind the last; no bound if absent.
    pub to: Option<Moment>,
}

/// Times of packets that are played, since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) from: Nanos,
    pub(super) to: Option<Nanos>,
}

impl Window {
    /// True if all packets are played.
    pub fn is_whole(self) -> bool {
        self == Window::default()
    }

    /// Bounds, where the first packet of all captures has this time.
    pub(super) fn bounds(self, start: Nanos) -> Bounds {
        let since_1970 = |moment| match moment {
            Moment::At(at) => at,
            Moment::After(span) => Nanos(start.0.saturating_add(span.0)),
        };
        Bounds { from: self.from.map_or(Nanos(0), since_1970), to: self.to.map(since_1970) }
    }
}

impl FromStr for Moment {
    type Err = NoMoment;

    fn from_str(text: &str) -> Result<Moment, NoMoment> {
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).ok().map(Nanos);
        let seconds = || text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let span = || seconds().or_else(|| humantime::parse_duration(text).ok());
        let time = || {
            let time = humantime::parse_rfc3339_weak(text).ok()?;
            time.duration_since(SystemTime::UNIX_EPOCH).ok()
        };
        let after = span().and_then(nanos).map(Moment::After);
        after.or_else(|| time().and_then(nanos).map(Moment::At)).ok_or_else(|| NoMoment(text.to_owned()))
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Moment::At(at) => {
                let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(at.0);
                humantime::format_rfc3339(time).fmt(f)
            }
            Moment::After(span) => {
                write!(
                    f,
                    "{} behind the first packet",
                    humantime::format_duration(Duration::from_nanos(span.0))
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_times_or_spans() {
        let after = |nanos| Ok(Moment::After(Nanos(nanos)));
        assert_eq!("0".parse(), after(0));
        assert_eq!("12.5".parse(), after(12_500_000_000));
        assert_eq!("1m 30s".parse(), after(90_000_000_000));
        assert_eq!("250ms".parse(), after(250_000_000));
        assert_eq!("1970-01-02T00:00:00.5Z".parse(), Ok(Moment::At(Nanos(86_400_500_000_000))));
        assert_eq!("1970-01-01 00:00:01".parse(), Ok(Moment::At(Nanos(1_000_000_000))));
        for text in ["", "-1", "soon", "1e30", "NaN", "1969-12-31T23:59:59Z", "2026-13-01T00:00:00Z"] {
            assert_eq!(text.parse::<Moment>(), Err(NoMoment(text.to_owned())));
        }
    }

    #[test]
    fn spans_begin_at_the_first_packet() {
        let window = Window { from: Some(Moment::After(Nanos(5))), to: Some(Moment::At(Nanos(90))) };
        assert_eq!(window.bounds(Nanos(70)), Bounds { from: Nanos(75), to: Some(Nanos(90)) });
        assert!(Window::default().is_whole() && !window.is_whole());
        assert_eq!(Window::default().bounds(Nanos(70)), Bounds { from: Nanos(0), to: None });
    }
}
