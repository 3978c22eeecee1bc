//! Network processors on network cards: N1 to N3.
//!
//! Of the NFP-4000 its maker gives no measurement of plain forwarding, but what it has to carry: a packet of 64 bytes in 13 ns. PsPIN's
//! authors give the summary of a cycle-accurate simulation, in which handlers send packets back, and of BlueField-3's data-path accelerator it
//! was measured how many packets its threads send back.

use super::{Claim, Model, Outcome, ReproduceError, Study, base};
use crate::report::Report;
use crate::traffic::{Flows, Rate, Size, Stream, Ways};

pub(super) const CLAIMS: &[Claim] = &[
    claim("N1", &["nfp-4000"], line_rate),
    claim("N2", &["pspin"], sent_back),
    claim("N3", &["bluefield3-dpa"], ping),
];

const fn claim(
    id: &'static str,
    chips: &'static [&'static str],
    test: fn(&Model) -> Result<Vec<Outcome>, ReproduceError>,
) -> Claim {
    Claim { id, study: Study::SmartNic, untested: "", chips, test }
}

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
        busiest(&report, "fpc") * 100.0
    ))])
}

/// Packets a second of PsPIN's example, one in 20 ns, and their bytes as a frame with its check sequence: as many beats of 64 bytes as of the
/// example's 1,024 bytes.
const OFFERED: f64 = 50e6;
const PACKET: u16 = 1_028;

fn sent_back(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let stream = Stream {
        size: Size::Fixed(PACKET),
        rate: Rate::Frames(OFFERED),
        flows: Flows::Fixed(FLOWS),
        frames: model.frames(FRAMES),
        ..Stream::new("lan", "wan")
    };
    // The simulation's network takes a beat in each cycle.
    let chip = model.chip_with("pspin", &[("ports.rate", "512 Gbit/s")])?;
    let report = base::forwarded(&chip, "pspin-pool", stream, model.frames(WARM))?;
    let row = Outcome::number(
        "N2",
        "packets of 1,024 bytes, one in 20 ns, that 32 cores of PsPIN forward",
        443.2,
        report.gbps,
        "Gbit/s",
    );
    Ok(vec![row.not_blind().note(&format!(
        "github.com/spcl/pspin, docs/examples.md: a handler of 29 instructions exchanges addresses and sends each of 32 packets back. What is \
         offered is 410 Gbit/s; the published rate is more, as answers came 47 ns sooner at last than at first. Here packets are routed, in a \
         steady state; the busiest core is busy for {:.0} % of the time.",
        busiest(&report, "hpu") * 100.0
    ))])
}

/// Packets a second that are offered to a BlueField-3 each way: more than its threads take.
const PINGS: f64 = 60e6;

/// Millions of packets a second that threads of a B3220 send back: 69 % more than the 44.9 of a B3140L.
const SENT_BACK: f64 = 44.9 * 1.69;

fn ping(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let stream = Stream {
        rate: Rate::Frames(PINGS),
        flows: Flows::Fixed(FLOWS),
        frames: model.frames(FRAMES),
        ways: Ways::Both,
        ..Stream::new("lan", "wan")
    };
    let chip = model.chip("bluefield3-dpa")?;
    let report = base::forwarded(&chip, "bluefield3-dpa-pool", stream, model.frames(WARM))?;
    let row = Outcome::number(
        "N3",
        "packets of 64 bytes that 176 threads of a BlueField-3's accelerator forward",
        SENT_BACK,
        report.dealt_mpps(),
        "Mpps",
    );
    Ok(vec![row.note(&format!(
        "Schimmelpfennig et al., DPA-Store, OSDI 2026, section 4.2.9: threads return packets and make no reference to memory, and a B3220 \
         does 69 % more than a B3140L by its packet matching. Here they route in {:.0} instructions, and the busiest core is busy for {:.0} % of \
         the time.",
        report.instructions_per_packet,
        busiest(&report, "dpa") * 100.0
    ))])
}

/// Share of time, from 0 to 1, that the busiest core of a kind executes.
fn busiest(report: &Report, kind: &str) -> f64 {
    let cores = report.engines.iter().filter(|engine| engine.name.starts_with(kind));
    cores.map(|engine| engine.executing + engine.aborted).fold(0.0, f64::max)
}
