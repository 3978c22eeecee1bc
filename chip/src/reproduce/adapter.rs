//! PCs and catalogue processors of RENA-CHIP's study, a network adapter: R1 to R27.
//!
//! The study's own estimates are arithmetic on its inputs, done again here by [`crate::estimate`]. They show that the equations are
//! read as they were meant, and where the study's numbers do not follow from one another; none of them is blind. Blind is what its PCs and
//! processors, as chips, make of the pipeline and of ciphers; DMIPS, clocks, memories and buses are inputs to that.

use wire::BitRate;

use super::computer::{self, Computer};
use super::inline;
use super::shaper::{self, Tick};
use super::{Claim, Model, Outcome, ReproduceError, Study};
use crate::estimate::published::{CN3120, IXP2325, MIPS32, PACKAGES, PC1, PC2, PC3, PC4, Processor};
use crate::estimate::{DOUBLING, Equation, EstimateError, Heat, packets, years};
use crate::traffic::Size;

pub(super) const CLAIMS: &[Claim] = &[
    on("R1", &["rena"], wire_rate),
    on("R2", &["rena"], security),
    on("R3", &["ixp2325"], catalogue),
    claim("R4", instructions),
    on("R5", &["cn3120"], octeon),
    claim("R6", octeon_speed),
    untested("R7", "Sizes of packages: no prediction has them for a result."),
    untested("R8", "Prices, of which the study has no numbers."),
    claim("R9", speeds),
    untested(
        "R10",
        "How the study measured its PCs; `wirerate estimate --measure` measures a machine like that.",
    ),
    on("R11", &["pc2", "pc3"], buses),
    on("R12", &["pc1", "pc2", "pc3", "pc4"], coefficients),
    on("R13", &["pc1", "pc2", "pc3", "pc4", "mips32"], embedded),
    claim("R14", without_filter),
    claim("R15", with_rules),
    claim("R16", improvement),
    claim("R17", by_ticks),
    claim("R18", shaped),
    claim("R19", shaped_long),
    claim("R20", timer),
    on("R21", &["pc4"], ciphers),
    on("R22", &["pc4"], order_of_ciphers),
    on("R23", &["pc4"], share_of_ciphers),
    claim("R24", aes),
    on("R25", &["rena"], accelerator),
    claim("R26", heat),
    untested(
        "R27",
        "Packets and algorithms that the study measured IPsec with; its times of short packets are not in the text.",
    ),
];

const fn claim(id: &'static str, test: fn(&Model) -> Result<Vec<Outcome>, ReproduceError>) -> Claim {
    on(id, &[], test)
}

const fn on(
    id: &'static str,
    chips: &'static [&'static str],
    test: fn(&Model) -> Result<Vec<Outcome>, ReproduceError>,
) -> Claim {
    Claim { id, study: Study::Adapter, untested: "", chips, test }
}

const fn untested(id: &'static str, why: &'static str) -> Claim {
    Claim { id, study: Study::Adapter, untested: why, chips: &[], test: |_| Ok(Vec::new()) }
}

/// The study's PCs and processors as chips.
const COMPUTERS: [Computer; 4] = [
    Computer { chip: "pc1", processor: PC1 },
    Computer { chip: "pc2", processor: PC2 },
    Computer { chip: "pc3", processor: PC3 },
    Computer { chip: "pc4", processor: PC4 },
];
const EMBEDDED: Computer = Computer { chip: "mips32", processor: MIPS32 };
const OCTEON: Computer = Computer { chip: "cn3120", processor: CN3120 };
const ENGINES: Computer = Computer { chip: "ixp2325", processor: IXP2325 };

const NOT_LINUX: &str = "The study's PCs ran Linux and netfilter, the modelled ones run this pipeline, whose instructions were counted for network processors.";

/// Both directions of a gigabit.
const LINE: BitRate = BitRate(2_000_000_000);

/// Bytes of the shortest Ethernet frame, and of the shortest that the study sent through IPsec (section 3.3).
const SHORTEST: u32 = 64;
const SHORTEST_IPSEC: u32 = 66;

/// Packets a second that the study writes beside 2 Gbit/s (table 1, section 3.1).
const STATED: f64 = 2.8e6;

/// Microseconds of PC4 for a packet in a frame of 1,000 bytes (section 3.3).
const TRIPLE_DES: f64 = 65.361;
const SHA1: f64 = 23.05;
const AES: f64 = 14.101;
const LONG: u32 = 1_000;

fn number(id: &'static str, statement: &str, published: f64, predicted: f64, unit: &'static str) -> Outcome {
    Outcome::number(id, statement, published, predicted, unit).not_blind()
}

/// Packets a second of a processor without rules, in thousands.
fn kpps(processor: Processor) -> Result<f64, EstimateError> {
    Ok(Equation::RENA_CHIP.packets(processor.dmips, 0)? / 1e3)
}

/// DMIPS that so many packets a second and rules need.
fn dmips(packets: f64, rules: u32) -> Result<f64, EstimateError> {
    Ok(Equation::RENA_CHIP.speed(packets, rules)?.value)
}

fn catalogue(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let modelled = 1.0 / computer::micros(model, ENGINES, 0)?;
    let row = number("R3", "packets of the IXP2325, by its 2,500 DMIPS", 1_000.0, kpps(IXP2325)?, "kpps");
    let row = row.contradictory().note(
        "The catalogue has more than a million; equation (1), by which the study finds it 9 times too slow (R16), a third of that.",
    );
    let engines = Outcome::quality(
        "R3",
        "packets that its two microengines forward",
        "more than 1 Mpps",
        format!("{modelled:.2} Mpps"),
        modelled > 1.0,
    );
    Ok(vec![row, engines.note("The catalogue's have VLANs and QoS, too.")])
}

fn instructions(_: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    // An engine issues an instruction a cycle.
    let (engines, clock) = (2.0, 600e6);
    let predicted = engines * clock / 1e9;
    let row = number(
        "R4",
        "instructions a second of the IXP2325's two engines at 600 MHz",
        2.5,
        predicted,
        "10^9/s",
    );
    Ok(vec![row.contradictory().note("Not even with its XScale at 900 MHz: 2.1.")])
}

fn octeon(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let modelled = 1e3 / computer::micros(model, OCTEON, 0)?;
    let kpps = kpps(CN3120)?;
    let bytes = 1_500.0;
    Ok(vec![
        number("R5", "packets of the CN3120, by its 1,543 DMIPS", 202.0, kpps, "kpps"),
        number(
            "R5",
            "the same, of 1,500 bytes without preamble and gap",
            2.4,
            kpps * bytes * 8.0 / 1e6,
            "Gbit/s",
        ),
        Outcome::number("R5", "packets that its two cores forward", 202.0, modelled, "kpps").note(NOT_LINUX),
    ])
}

fn octeon_speed(_: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let (known, clock, cores, own) = (455.0, 310.0, 2.0, 550.0);
    let predicted = known / clock * own * cores;
    let row = number(
        "R6",
        "speed of two MIPS64 at 550 MHz, from 455 DMIPS at 310 MHz",
        CN3120.dmips,
        predicted,
        "DMIPS",
    );
    Ok(vec![row.contradictory().note("A misprint: 435 DMIPS at 310 MHz make it 1543.")])
}

fn speeds(_: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let published = [(764.588, PC1), (1_191.991, PC2), (2_021.28, PC3), (2_539.61, PC4)];
    let row = |(published, processor): (f64, Processor)| {
        number("R9", &format!("speed of {}", processor.name), published, processor.dmips, "DMIPS")
    };
    Ok(published.map(row).into())
}

/// Mbit/s each way at which the throughput of PC2 peaks, and the clock at which PC3 passes it.
const BY_PCI: f64 = 200.0;
const SLOWED: &str = "1600 MHz";

fn buses(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let by_pci = computer::throughput(model, &model.chip("pc2")?)?;
    let by_pci_x = computer::throughput(model, &model.chip_with("pc3", &[("clock", SLOWED)])?)?;
    Ok(vec![
        Outcome::number("R11", "throughput of PC2 by way of PCI, long frames, each way", BY_PCI, by_pci, "Mbit/s")
            .not_blind()
            .note("Cycles lost between bursts are chosen within the 800 to 900 Mbit/s that the study gives the bus."),
        Outcome::quality(
            "R11",
            "PC3, slowed to 1.6 GHz, passes that by way of PCI-X",
            "more than 200 Mbit/s",
            format!("{by_pci_x:.0} Mbit/s"),
            by_pci_x > BY_PCI,
        ),
    ])
}

fn coefficients(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let modelled = computer::equation(model, &COMPUTERS)?;
    let straight = modelled.fit.and_then(|fit| fit.r_squared).unwrap_or_default();
    let own = |statement, published, value| {
        Outcome::number("R12", statement, published, value, "us x DMIPS").note(NOT_LINUX)
    };
    let line = Equation::RENA_CHIP.line;
    let note = "The study states no unit; by this one R5, R14 and R15 come out.";
    Ok(vec![
        number("R12", "C0 of equation (1)", 7_610.874, line.intercept, "us x DMIPS").note(note),
        number("R12", "C1 of equation (1)", 144.846_2, line.slope, "us x DMIPS").note(note),
        own("C0 of the modelled PCs", 7_610.874, modelled.line.intercept),
        own("C1 of the modelled PCs", 144.846_2, modelled.line.slope),
        Outcome::quality(
            "R12",
            "packet times lie on straight lines over rules",
            "straight lines",
            format!("coefficient of determination {straight:.4}, of four PCs by their DMIPS"),
            straight > 0.98,
        ),
    ])
}

fn embedded(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let equation = computer::equation(model, &COMPUTERS)?;
    let mut most: f64 = 0.0;
    for rules in computer::RULES {
        let by_equation = 1.0 / equation.packets(EMBEDDED.processor.dmips, rules)?;
        let modelled = computer::micros(model, EMBEDDED, rules)? / 1e6;
        most = most.max((by_equation / modelled - 1.0).abs());
    }
    let kpps = |rules| Ok::<_, ReproduceError>(1e3 / computer::micros(model, EMBEDDED, rules)?);
    let by_study =
        |rules| Ok::<_, ReproduceError>(Equation::RENA_CHIP.packets(EMBEDDED.processor.dmips, rules)? / 1e3);
    let row = |statement, rules| {
        let row = Outcome::number("R13", statement, by_study(rules)?, kpps(rules)?, "kpps").within(OFF);
        Ok::<_, ReproduceError>(row.note(NOT_LINUX))
    };
    Ok(vec![
        Outcome::number(
            "R13",
            "largest difference of a MIPS32 at 200 MHz from an equation fitted to the PCs",
            OFF * 100.0,
            most * 100.0,
            "%",
        )
        .note("The study's equation is of its own PCs, the predicted one of the modelled PCs; by throughput, of 0, 64, 128 and 256 rules."),
        row("packets of the MIPS32 without rules, within 20 % of equation (1)", 0)?,
        row("the same with 256 rules", 256)?,
    ])
}

/// Share by which equation (1) was off for the MIPS32, at most (section 3.1).
const OFF: f64 = 0.20;

const TWO_RATES: &str = "2 Gbit/s are 2.976 million packets a second of 64-byte frames, and 2.8 million of 70-byte frames. R14 is worked out with \
     the one, R15 with the other; the study writes 2.8.";

fn without_filter(_: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    Ok(vec![
        number(
            "R14",
            "2 Gbit/s of 64-byte frames without a filter",
            22_650.0,
            dmips(packets(LINE, SHORTEST), 0)?,
            "DMIPS",
        ),
        number(
            "R14",
            "the same, by the 2.8 million packets a second that are stated",
            22_650.0,
            dmips(STATED, 0)?,
            "DMIPS",
        )
        .contradictory()
        .note(TWO_RATES),
    ])
}

fn with_rules(_: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    Ok(vec![
        number("R15", "2.8 million packets a second with 256 rules", 125_000.0, dmips(STATED, 256)?, "DMIPS"),
        number(
            "R15",
            "the same, at the rate of R14",
            125_000.0,
            dmips(packets(LINE, SHORTEST), 256)?,
            "DMIPS",
        )
        .contradictory()
        .note(TWO_RATES),
    ])
}

fn improvement(_: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let needed = dmips(packets(LINE, SHORTEST), 0)?;
    let times = [IXP2325, CN3120].map(|processor| needed / processor.dmips);
    let [soonest, latest] = times.map(|times| years(times, DOUBLING));
    let period = format!("Speed is taken to double in {DOUBLING} months; the study does not say.");
    let quality = |statement, published, predicted, holds| {
        Outcome::quality("R16", statement, published, predicted, holds).not_blind().note(&period)
    };
    Ok(vec![
        number("R16", "improvement that the IXP2325 needs for R14", 9.0, times[0], "times"),
        number("R16", "improvement that the CN3120 needs for R14", 15.0, times[1], "times"),
        quality(
            "years until an IXP2325 has it, by Moore's law",
            "4 to 5",
            format!("{soonest:.1}"),
            (4.0..=5.0).contains(&soonest),
        ),
        quality(
            "years that RENA-CHIP is ahead of both",
            "4 to 6",
            format!("{soonest:.1} to {latest:.1}"),
            4.0 <= soonest && latest <= 6.0,
        ),
    ])
}

/// Bytes of the frames that stand for VoIP, and of long ones.
const VOICE: u64 = 242;
const FULL: u64 = 1_500;

/// Shaping rates of 242-byte frames, and rates that the study measured (its figure 3), in Mbit/s. Of 6 Mbit/s the text has only that it was
/// not kept.
pub(super) const SHAPED: [(u64, Option<f64>); 5] =
    [(1, Some(1.0)), (3, Some(3.0)), (6, None), (12, Some(7.0)), (25, Some(7.0))];

/// Rate of 242-byte frames at a shaping rate, both in Mbit/s.
pub(super) fn put_out(set: u64, tick: Tick) -> Result<f64, ReproduceError> {
    shaper::output(set * 1_000_000, VOICE, tick)
}

fn by_ticks(_: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    // More than ticks carry.
    let rate = put_out(25, Tick::One)?;
    let row = Outcome::number(
        "R17",
        "highest rate of 242-byte frames at a timer of 2,048 Hz, a frame a tick",
        3.96,
        rate,
        "Mbit/s",
    );
    Ok(vec![row.note("The scheduler is offered an opportunity at each tick, and one frame takes it.")])
}

fn shaped(_: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let note = "A tick lets go what the bucket of an HTB class holds by default, rate / HZ + 1,600 bytes; the study does not say which \
                burst was set.";
    let mut rows = Vec::new();
    for (set, published) in SHAPED {
        let predicted = put_out(set, Tick::DefaultBurst)?;
        let statement = format!("242-byte frames put out at a shaping rate of {set} Mbit/s");
        let row = match published {
            Some(published) => Outcome::number("R18", &statement, published, predicted, "Mbit/s"),
            // The packets of a tick within a second are no deviation.
            None => {
                let is_below = predicted < 0.99 * set as f64;
                Outcome::quality(
                    "R18",
                    &statement,
                    "less than that",
                    format!("{predicted:.2} Mbit/s"),
                    is_below,
                )
            }
        };
        rows.push(row.note(note));
    }
    Ok(rows)
}

fn shaped_long(_: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let predicted = shaper::output(25_000_000, FULL, Tick::DefaultBurst)?;
    Ok(vec![number(
        "R19",
        "1,500-byte frames put out at a shaping rate of 25 Mbit/s",
        25.0,
        predicted,
        "Mbit/s",
    )])
}

fn timer(_: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let nanos = 1e9 / packets(BitRate(1_000_000_000), SHORTEST);
    Ok(vec![number("R20", "precision that a timer needs for 64-byte frames at 1 Gbit/s", 672.0, nanos, "ns")])
}

/// Microseconds of PC4 for a frame of 1,000 bytes (section 3.3), by the names of our ciphers and those of the study. An HMAC stands by its
/// hash.
const TIMES: [(&str, &str, f64); 4] =
    [("des", "DES", 33.72), ("aes", "AES", AES), ("md5", "HMAC-MD5", 9.30), ("sha1", "HMAC-SHA-1", SHA1)];

/// 3DES is three of DES; the permutations between them cancel, and are a small part.
fn modelled_triple_des(model: &Model) -> Result<f64, ReproduceError> {
    Ok(3.0 * computer::cipher(model, "des")?)
}

const BY_RULES: &str = "Code by the rules for any processor (loops unrolled, constants loaded beforehand), without what it takes to call it.";

fn ciphers(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let mut rows = Vec::new();
    for (name, title, published) in TIMES {
        let micros = computer::cipher(model, name)?;
        rows.push(
            Outcome::number("R21", &format!("{title} of 1,000-byte frames, PC4"), published, micros, "us")
                .note(BY_RULES),
        );
    }
    let triple = modelled_triple_des(model)?;
    rows.insert(
        1,
        Outcome::number("R21", "3DES of 1,000-byte frames, PC4", TRIPLE_DES, triple, "us")
            .note("Three times DES."),
    );
    Ok(rows)
}

fn order_of_ciphers(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let mut times = vec![("3DES", modelled_triple_des(model)?)];
    for (name, title, _) in TIMES {
        times.push((title.trim_start_matches("HMAC-"), computer::cipher(model, name)?));
    }
    times.sort_by(|one, other| other.1.total_cmp(&one.1));
    let order: Vec<&str> = times.iter().map(|(title, _)| *title).collect();
    let (order, published) = (order.join(" > "), "3DES > DES > SHA-1 > AES > MD5");
    let holds = order == published;
    Ok(vec![Outcome::quality("R22", "order of ciphers by the time that they take", published, order, holds)])
}

fn share_of_ciphers(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let modelled = modelled_triple_des(model)? + computer::cipher(model, "sha1")?;
    let pipeline = computer::micros(model, COMPUTERS[3], 0)?;
    let ciphers = TRIPLE_DES + SHA1;
    let forwarding = Equation::RENA_CHIP.work(0)?.value / PC4.dmips;
    let share = ciphers / (ciphers + forwarding) * 100.0;
    Ok(vec![
        number("R23", "time of 3DES and SHA-1 together, 1,000-byte frames, PC4", 88.0, ciphers, "us"),
        Outcome::number("R23", "their share of a packet's time, the rest by equation (1)", 77.0, share, "%").note(
            "Equation (1) is of Linux that forwards IPv6; the study's IPsec ran on FreeBSD, with a tunnel. Its own numbers leave 26.4 us for the rest.",
        ),
        Outcome::number("R23", "time of 3DES and SHA-1 together on the modelled PC4", 88.0, modelled, "us").note(BY_RULES),
        Outcome::number(
            "R23",
            "their share of a packet's time, the rest by the modelled PC4",
            77.0,
            modelled / (modelled + pipeline) * 100.0,
            "%",
        )
        .note("Forwarding alone, without a tunnel's headers."),
    ])
}

fn aes(_: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let times = |bytes| AES * 1e-6 * packets(LINE, bytes);
    let note = "41 sets the time of a 1,000-byte frame against the time that 2 Gbit/s leave a 66-byte frame.";
    Ok(vec![
        number(
            "R24",
            "improvement for AES at 2 Gbit/s, frames of 66 bytes",
            41.0,
            times(SHORTEST_IPSEC),
            "times",
        )
        .note(note),
        number(
            "R24",
            "the same, frames of 1,000 bytes, as those whose time it is",
            41.0,
            times(LONG),
            "times",
        )
        .contradictory()
        .note(note),
    ])
}

fn wire_rate(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let short = inline::both_ways(model, Size::Fixed(Size::LEAST))?;
    let mut lost = Vec::new();
    for size in [Size::LEAST, 128, 256, 512, 1_024, 1_518] {
        lost.push(inline::both_ways(model, Size::Fixed(size))?.lost);
    }
    let note =
        "The intervals of its units are from this number; that nothing else holds frames up is the run's.";
    Ok(vec![
        Outcome::number("R1", "packets of 64 bytes, both ways", 2.8, short.delivered_mpps, "Mpps")
            .not_blind()
            .note(note),
        Outcome::quality(
            "R1",
            "frames of all sizes pass both ways at the full rate",
            "no loss",
            format!("{} lost", lost.iter().sum::<u64>()),
            lost.iter().all(|lost| *lost == 0),
        )
        .not_blind(),
    ])
}

fn security(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let report = inline::encrypted(model, "inline")?;
    Ok(vec![
        Outcome::quality(
            "R2",
            "IPsec at the full rate of a line",
            "no loss",
            format!("{} lost, {:.2} Gbit/s of ESP", report.lost, report.gbps),
            report.lost == 0,
        )
        .not_blind()
        .note(
            "The speed of its security engine is the study's; in the other direction there is another one.",
        ),
    ])
}

/// GB a second that cross the packet memory where a line's packets are encrypted.
fn crossing(model: &Model, frames: &str) -> Result<f64, ReproduceError> {
    let report = inline::encrypted(model, frames)?;
    let packets = report.memories.iter().filter(|memory| memory.name == "packet");
    let bytes: u64 = packets.flat_map(|memory| &memory.regions).map(|region| region.bytes).sum();
    Ok(bytes as f64 / report.seconds / 1e9)
}

fn accelerator(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let (inline, by_accelerator) = (crossing(model, "inline")?, crossing(model, "memory")?);
    // From the port to memory, to the accelerator, back, and to the port.
    let crossings = 4.0;
    let (gigabit, width, clock, usage) = (1e9 / 8.0, 4.0, 133e6, 0.5);
    let double_rate = |clock: f64| width * clock * 2.0;
    let both = crossings * 2.0 * gigabit;
    Ok(vec![
        number(
            "R25",
            "memory bandwidth for an accelerator, one direction",
            500.0,
            crossings * gigabit / 1e6,
            "MB/s",
        ),
        number("R25", "the same, both directions", 1.0, both / 1e9, "GB/s"),
        number(
            "R25",
            "bandwidth of DDR SDRAM of 32 bits at 133 MHz",
            1.064,
            double_rate(clock) / 1e9,
            "GB/s",
        ),
        number(
            "R25",
            "clock for both directions at a use of 50 %",
            266.0,
            clock * both / usage / double_rate(clock) / 1e6,
            "MHz",
        )
        .note("Memory comes at multiples of 133 MHz."),
        Outcome::quality(
            "R25",
            "a frame crosses the memory bus twice as often with an accelerator as inline",
            "4 times for 2",
            format!("{by_accelerator:.2} GB/s for {inline:.2}, {:.2} times", by_accelerator / inline),
            (1.8..2.2).contains(&(by_accelerator / inline)),
        )
        .not_blind()
        .note("Runs of one direction, outer headers included."),
    ])
}

/// Chip of table 1: its power consumption in watts, and that of the processor it needs, its package's side in millimetres, and whether
/// the study's figure 5 has it without a heat sink.
struct Part {
    name: &'static str,
    watts: f64,
    beside: f64,
    side: f64,
    is_bare: bool,
}

const PARTS: [Part; 3] = [
    Part { name: "RENA-CHIP", watts: 2.0, beside: 0.37, side: 27.0, is_bare: true },
    Part { name: "IXP2325", watts: 9.5, beside: 0.0, side: 42.5, is_bare: false },
    Part { name: "CN3120", watts: 7.0, beside: 0.0, side: 40.0, is_bare: false },
];

fn heat(_: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let limit = |watts| Heat { watts, junction: 120.0, ambient: 50.0 }.limit();
    let row = |part: &Part| {
        // Packages next in size on both sides, or the one of its size.
        let below = PACKAGES.iter().rev().find(|package| package.side <= part.side);
        let above = PACKAGES.iter().find(|package| package.side >= part.side);
        let ends = below.into_iter().chain(above).flat_map(|package| package.theta);
        let (least, most) = (ends.clone().fold(f64::INFINITY, f64::min), ends.fold(0.0, f64::max));
        let whole = limit(part.watts + part.beside);
        let (is_bare, needs_sink) = (most < whole, least >= limit(part.watts));
        let with = if part.beside > 0.0 { format!(", {whole:.1} with its CPU") } else { String::new() };
        let predicted =
            format!("limit {:.1} K/W{with}; packages of its size {least} to {most}", limit(part.watts));
        let published = if part.is_bare { "no heat sink" } else { "a heat sink" };
        let holds = if part.is_bare { is_bare } else { needs_sink };
        Outcome::quality("R26", &format!("{} needs", part.name), published, predicted, holds).not_blind().note(
            "The limits are arithmetic, to the air, not to the case as the study writes. Its packages are lines of figure 5, which are not in the \
             text; these are NEC Electronics' in still air.",
        )
    };
    Ok(PARTS.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::super::{Model, reproduce};
    use super::CLAIMS;

    /// Only of these may something count as predicted: all else follows from the study's own inputs.
    #[test]
    fn what_is_arithmetic_is_not_blind() {
        let outcomes = reproduce(&Model::default(), CLAIMS, &|_| ()).unwrap();
        let mut blind: Vec<&str> =
            outcomes.iter().filter(|outcome| outcome.blind).map(|outcome| outcome.id).collect();
        blind.dedup();
        assert_eq!(blind, ["R3", "R5", "R11", "R12", "R13", "R17", "R18", "R21", "R22", "R23"]);
        for id in 1..=27 {
            assert!(CLAIMS.iter().any(|claim| claim.id == format!("R{id}")), "R{id}");
        }
    }
}
