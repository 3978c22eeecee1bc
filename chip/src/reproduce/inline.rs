//! RENA-CHIP itself, as a chip of fixed functions: frames of all sizes both ways at the full rate, and IPsec inline and by an accelerator.

use wire::Nanos;

use super::workload::Workload;
use super::{Model, ReproduceError, shipped};
use crate::description::Chip;
use crate::machine::Ideal;
use crate::report::Report;
use crate::traffic::{Begin, Flows, Rate, Size, Stream, Ways};

/// An adapter without tunnels.
const PLAIN: &str = "[interface.lan]\nzone = \"lan\"\naddresses = [\"192.168.1.1/24\"]\nmac = \"02:00:00:00:00:01\"\n\
    [interface.wan]\nzone = \"wan\"\naddresses = [\"203.0.113.2/24\"]\nmac = \"02:00:00:00:00:02\"\n\
    [default]\n\"lan > wan\" = \"accept\"\n";

/// The adapter that is shipped, with its tunnel.
const ADAPTER: &str = include_str!("../../policies/rena-adapter.toml");

/// Frames of a run, each way, and those of them that fill the chip.
const FRAMES: u64 = 10_000;
const WARM: u64 = 1_000;

fn run(model: &Model, chip: &Chip, policy: &str, stream: Stream) -> Result<Report, ReproduceError> {
    let mapping = shipped::mapping("rena-pool", chip)?;
    let policy = shipped::policy(policy, "rena")?;
    let workload = Workload {
        chip,
        mapping: &mapping,
        policy: &policy,
        algorithm: None,
        streams: &[(stream, Nanos(0))],
        warm: model.frames(WARM),
    };
    Ok(workload.run(Ideal::Nothing)?)
}

/// Frames of that size at the full rate of both lines.
pub(super) fn both_ways(model: &Model, size: Size) -> Result<Report, ReproduceError> {
    let stream = Stream {
        size,
        flows: Flows::Fixed(100),
        frames: model.frames(FRAMES),
        ways: Ways::Both,
        begin: Begin::Established,
        ..Stream::new("lan", "wan")
    };
    run(model, &model.chip("rena")?, PLAIN, stream)
}

/// Bytes of a frame whose packet a tunnel makes as long as an access network's MTU.
const TUNNELLED: u16 = 1_400;

/// Long packets that are encrypted, of nearly a full line, by a security engine that has frames inline, or takes them from memory and brings them back.
pub(super) fn encrypted(model: &Model, frames: &str) -> Result<Report, ReproduceError> {
    let chip = model.chip_with("rena", &[("unit.seal.frames", frames), ("unit.open.frames", frames)])?;
    let stream = Stream {
        size: Size::Fixed(TUNNELLED),
        rate: Rate::Line(0.93),
        flows: Flows::Fixed(100),
        frames: model.frames(FRAMES),
        ..Stream::new("home", "centre")
    };
    run(model, &chip, ADAPTER, stream)
}
