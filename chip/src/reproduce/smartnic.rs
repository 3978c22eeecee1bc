//! Network processors on cards that can be bought: N1.
//!
//! Of the NFP-4000 its maker gives no measurement of plain forwarding, but what it has to carry: a packet of 64 bytes in 13 ns.

use super::{Claim, Model, Outcome, ReproduceError, Study, base};
use crate::traffic::{Flows, Rate, Stream, Ways};

pub(super) const CLAIMS: &[Claim] =
    &[Claim { id: "N1", study: Study::SmartNic, untested: "", chips: &["nfp-4000"], test: line_rate }];

/// Frames each way, those of both that fill the chip, and flows.
const FRAMES: u64 = 60_000;
const WARM: u64 = 20_000;
const FLOWS: u32 = 1_000;

/// Packets of 64 bytes a second of 50 Gbit/s, in millions: with preamble and gap 84 bytes each, and 13.4 ns.
const MPPS: f64 = 50e3 / (84.0 * 8.0);

fn line_rate(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let stream = Stream {
        rate: Rate::Line(1.0),
        flows: Flows::Fixed(FLOWS),
        frames: model.frames(FRAMES),
        ways: Ways::Both,
        ..Stream::new("lan", "wan")
    };
    let report = base::forwarded(&model.chip("nfp-4000")?, "nfp-4000-pool", stream, model.frames(WARM))?;
    let busy = report.engines.iter().map(|engine| engine.executing + engine.aborted).fold(0.0, f64::max);
    let row = Outcome::number(
        "N1",
        "packets of 64 bytes that 48 cores of an NFP-4000 forward at 50 Gbit/s",
        MPPS,
        report.dealt_mpps(),
        "Mpps",
    );
    Ok(vec![row.note(&format!(
        "Netronome, NFP: Theory of Operation: at 50 Gbit/s a card has 13 ns for a packet. What a part has to do, not what was measured; lines \
         are full, and the busiest core is busy for {:.0} % of the time.",
        busy * 100.0
    ))])
}
