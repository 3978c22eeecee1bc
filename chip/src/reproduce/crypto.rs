//! The ciphers of Yin, Tan et al. on the IXP2800.
//!
//! Messages are of 1,024 bytes; the study does not say. Block ciphers are chained (CBC), and each thread has a flow of
//! its own. "Optimised" is its last step.

use std::sync::Arc;

use ciphers::des::TEXTBOOK;
use ciphers::{ALL, Cipher, Kind, Optimisation};

use super::known::Known;
use super::{Claim, Model, Outcome, ReproduceError, Study, TOLERANCE};
use crate::cipher::{CipherReport, CipherRun, Recording};
use crate::description::Chip;

pub(super) const CLAIMS: &[Claim] = &[
    claim("C1", chip_parameters),
    claim("C2", bursts),
    claim("C3", tables),
    claim("C4", code_sizes),
    claim("C5", mix),
    claim("C6", memory_shares),
    claim("C7", |model| optimised(model, "C7", "MD5, one thread, optimised", "md5", 1219.0)),
    claim("C8", des),
    claim("C9", order),
    claim("C10", seal),
    claim("C11", steps),
    claim("C12", utilisation),
    claim("C13", scaling),
    Claim {
        id: "C14",
        study: Study::Crypto,
        untested: "How the study measured: on Intel's simulator, Workbench 3.1, in code that MicroC 3.1 compiled with -O2. \
                   It states nothing that could be held against a prediction.",
        chips: &[],
        test: |_| Ok(Vec::new()),
    },
];

const fn claim(id: &'static str, test: fn(&Model) -> Result<Vec<Outcome>, ReproduceError>) -> Claim {
    Claim { id, study: Study::Crypto, untested: "", chips: &["ixp2800"], test }
}

/// Bytes of a message.
const MESSAGE: u32 = 1_024;

fn chip(model: &Model) -> Result<Chip, ReproduceError> {
    model.chip("ixp2800")
}

/// Key of a measurement: cipher, step of optimisation, engines, threads.
type Key = (&'static str, &'static str, u32, u32);

/// Runs that claims share.
#[derive(Default)]
pub(super) struct Measured {
    runs: Known<Key, CipherReport>,
}

/// Ciphers' code, by cipher, step of optimisation and bytes of a message.
#[derive(Default)]
pub(super) struct Recorded(Known<(&'static str, &'static str, u32), Arc<Recording>>);

impl Recorded {
    /// Measures; the code is recorded where that has not been done.
    pub(super) fn measure(&self, run: &CipherRun<'_>) -> Result<CipherReport, ReproduceError> {
        let key = (run.cipher.about.name, run.optimisation.name(), run.message);
        let recording = self.0.get(key, || run.record().map(Arc::new))?;
        Ok(run.measure_recorded(&recording)?)
    }
}

/// Makes one measurement, or takes it from the cache: several claims need the same.
pub(super) fn measure(
    model: &Model,
    cipher: &'static Cipher,
    optimisation: Optimisation,
    engines: u32,
    threads: u32,
) -> Result<CipherReport, ReproduceError> {
    model.crypto.runs.get((cipher.about.name, optimisation.name(), engines, threads), || {
        let chip = chip(model)?;
        let one = CipherRun::of(&chip, cipher, optimisation, MESSAGE);
        model.recorded().measure(&CipherRun { engines, threads, ..one })
    })
}

/// Measures raw code on one thread, whose tables lie where the optimised code has them.
pub(super) fn raw_with_near_tables(
    model: &Model,
    cipher: &'static Cipher,
) -> Result<CipherReport, ReproduceError> {
    let chip = chip(model)?;
    let raw = CipherRun::of(&chip, cipher, Optimisation::Raw, MESSAGE);
    model.recorded().measure(&CipherRun { placement: Optimisation::Overlap, ..raw })
}

fn one_thread(
    model: &Model,
    cipher: &'static Cipher,
    optimisation: Optimisation,
) -> Result<CipherReport, ReproduceError> {
    measure(model, cipher, optimisation, 1, 1)
}

fn by_name(name: &str) -> Result<&'static Cipher, ReproduceError> {
    let found = ALL.into_iter().find(|cipher| cipher.about.name == name);
    found.ok_or_else(|| ReproduceError::Shipped(format!("there is no cipher {name}")))
}

fn share(report: &CipherReport, kind: &str) -> f64 {
    report.mix.iter().filter(|share| share.name == kind).map(|share| share.share).sum()
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.collect();
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Measures every cipher at one step of optimisation, on one thread of one engine.
fn all(
    model: &Model,
    optimisation: Optimisation,
) -> Result<Vec<(&'static Cipher, CipherReport)>, ReproduceError> {
    ALL.into_iter().map(|cipher| Ok((cipher, one_thread(model, cipher, optimisation)?))).collect()
}

/// Names in a list.
fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn chip_parameters(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let chip = chip(model)?;
    let engine = chip.engines.first();
    let memory = |name: &str| chip.memories.iter().find(|memory| memory.name == name);
    let mhz = |name: &str| memory(name).map_or(0.0, |memory| memory.clock.0 as f64 / 1e6);
    let input = |statement, published, value, unit| {
        Outcome::number("C1", statement, published, value, unit).not_blind().note("An input.")
    };
    Ok(vec![
        input("engines", 16.0, engine.map_or(0, |kind| kind.count).into(), "engines"),
        input("clock of an engine", 1400.0, engine.map_or(0.0, |kind| kind.clock.0 as f64 / 1e6), "MHz"),
        input("threads of an engine", 8.0, engine.map_or(0, |kind| kind.threads).into(), "threads"),
        input("clock of SRAM", 200.0, mhz("sram"), "MHz"),
        input("clock of RDRAM", 400.0, mhz("dram"), "MHz"),
        input(
            "least latency of scratch memory",
            100.0,
            memory("scratch").map_or(0.0, |memory| memory.latency.0 as f64),
            "cycles",
        ),
    ])
}

fn bursts(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let chip = chip(model)?;
    let burst = |name: &str| {
        chip.memories.iter().find(|memory| memory.name == name).map_or(0.0, |memory| memory.burst.0 as f64)
    };
    Ok(vec![
        Outcome::number("C2", "bytes of an SRAM or scratch burst", 32.0, burst("sram"), "bytes")
            .not_blind()
            .note("An input. The hardware manual has 1 to 16 words, 64 bytes; text is read by blocks, and never so many."),
        Outcome::number("C2", "bytes of an RDRAM burst", 64.0, burst("dram"), "bytes")
            .not_blind()
            .note("An input. The hardware manual has up to 128 bytes; text is read by blocks, and never so many."),
    ])
}

fn tables(_: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    const PUBLISHED: [(&str, f64); 9] = [
        ("des", 256.0),
        ("aes", 5120.0),
        ("idea", 0.0),
        ("rc5", 136.0),
        ("rc6", 176.0),
        ("blowfish", 4168.0),
        ("rc4", 256.0),
        ("md5", 0.0),
        ("sha1", 0.0),
    ];
    let bytes = |name| Ok::<_, ReproduceError>(by_name(name)?.about.table_bytes());
    let mut outcomes = Vec::new();
    for (name, published) in PUBLISHED {
        let statement = format!("bytes of the tables of {name}");
        outcomes.push(Outcome::number("C3", &statement, published, bytes(name)? as f64, "bytes"));
    }
    let seal = bytes("seal")?;
    outcomes.push(Outcome::quality(
        "C3",
        "bytes of the tables of seal, the upper bound",
        "up to 4096",
        seal.to_string(),
        seal <= 4096,
    ));
    Ok(outcomes.into_iter().map(|outcome| outcome.not_blind().note("By construction.")).collect())
}

fn code_sizes(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let raw = all(model, Optimisation::Raw)?;
    // Hash functions are the next row's business.
    let large: Vec<&str> = raw
        .iter()
        .filter(|(cipher, report)| cipher.about.kind != Kind::Hash && report.code_size >= 200)
        .map(|(cipher, _)| cipher.about.name)
        .collect();
    let sizes_of = |name: &str| {
        raw.iter().find(|(cipher, _)| cipher.about.name == name).map_or(0, |(_, report)| report.code_size)
    };
    let of_kind = |kind: Kind| {
        mean(
            raw.iter()
                .filter(|(cipher, _)| cipher.about.kind == kind)
                .map(|(_, report)| f64::from(report.code_size)),
        )
    };
    Ok(vec![
        Outcome::quality(
            "C4",
            "raw code of block and stream ciphers is below 200 lines, but for DES",
            "all but des",
            format!("200 or more: {}; des {}", list(large.iter().copied()), sizes_of("des")),
            large == ["des"],
        ),
        Outcome::quality(
            "C4",
            "hash functions need more code",
            "more",
            format!("{:.0} on average, block ciphers {:.0}", of_kind(Kind::Hash), of_kind(Kind::Block)),
            of_kind(Kind::Hash) > of_kind(Kind::Block),
        ),
    ])
}

fn mix(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let raw = all(model, Optimisation::Raw)?;
    let average = |kinds: &[&str]| {
        100.0 * mean(raw.iter().map(|(_, report)| kinds.iter().map(|kind| share(report, kind)).sum::<f64>()))
    };
    Ok(vec![
        Outcome::number("C5", "ALU instructions, on average", 79.9, average(&["alu", "multiply"]), "%")
            .note("Steps of multiplications are ALU instructions."),
        Outcome::number("C5", "branch instructions, on average", 1.5, average(&["branch"]), "%"),
    ])
}

fn memory_shares(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let raw = all(model, Optimisation::Raw)?;
    let names = |holds: &dyn Fn(&CipherReport) -> bool| {
        list(raw.iter().filter(|(_, report)| holds(report)).map(|(cipher, _)| cipher.about.name))
    };
    let heavy = names(&|report| share(report, "memory") > 0.15);
    let average = 100.0 * mean(raw.iter().map(|(_, report)| share(report, "memory")));
    let of_hashes = |optimisation| {
        let shares =
            all(model, optimisation)?.into_iter().filter(|(cipher, _)| cipher.about.kind == Kind::Hash);
        Ok::<_, ReproduceError>(
            100.0 * shares.map(|(_, report)| share(&report, "memory")).fold(0.0, f64::max),
        )
    };
    let (hashes, bursts) = (of_hashes(Optimisation::Raw)?, of_hashes(Optimisation::Memory)?);
    Ok(vec![
        Outcome::quality(
            "C6",
            "memory instructions exceed 15 % in stream ciphers, AES and Blowfish",
            "aes, blowfish, rc4, seal",
            heavy.clone(),
            heavy == "aes, blowfish, rc4, seal",
        ),
        Outcome::number("C6", "memory instructions, on average", 4.0, average, "%")
            .contradictory()
            .note("Four of ten above 15 % make 6 % at least, however few the others have."),
        Outcome::quality(
            "C6",
            "memory instructions of hash functions are below 1 %",
            "below 1 %",
            format!("{hashes:.1} % at most; {bursts:.1} % with bursts"),
            hashes < 1.0,
        )
        .note("Held to raw code, as figure 2 is of raw code; which it is the sentence does not say."),
    ])
}

fn optimised(
    model: &Model,
    id: &'static str,
    statement: &str,
    name: &str,
    published: f64,
) -> Result<Vec<Outcome>, ReproduceError> {
    let report = one_thread(model, by_name(name)?, Optimisation::Overlap)?;
    Ok(vec![Outcome::number(id, statement, published, report.mbps, "Mbit/s")])
}

fn des(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    const PUBLISHED: f64 = 32.2;
    let textbook = one_thread(model, &TEXTBOOK, Optimisation::Overlap)?;
    let mut rows = optimised(model, "C8", "DES, one thread, optimised", "des", PUBLISHED)?;
    let row = Outcome::number("C8", "the same, as a textbook has it", PUBLISHED, textbook.mbps, "Mbit/s");
    rows.push(row.not_blind().note("An experiment: P bit by bit, S-boxes packed."));
    Ok(rows)
}

fn order(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let best = all(model, Optimisation::Overlap)?;
    let of = |kind: Kind| {
        mean(best.iter().filter(|(cipher, _)| cipher.about.kind == kind).map(|(_, report)| report.mbps))
    };
    let (hash, stream, block) = (of(Kind::Hash), of(Kind::Stream), of(Kind::Block));
    let slowest = best
        .iter()
        .min_by(|one, other| one.1.mbps.total_cmp(&other.1.mbps))
        .map_or("", |(cipher, _)| cipher.about.name);
    let fastest = best
        .iter()
        .max_by(|one, other| one.1.mbps.total_cmp(&other.1.mbps))
        .map_or("", |(cipher, _)| cipher.about.name);
    Ok(vec![
        Outcome::quality(
            "C9",
            "hash functions are fastest, then stream, then block ciphers",
            "hash > stream > block",
            format!("on average {hash:.0}, {stream:.0}, {block:.0} Mbit/s"),
            hash > stream && stream > block,
        ),
        Outcome::quality("C9", "MD5 is fastest", "md5", fastest.to_owned(), fastest == "md5"),
        Outcome::quality("C8", "DES is slowest", "des", slowest.to_owned(), slowest == "des"),
    ])
}

fn seal(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let seal = by_name("seal")?;
    let before = one_thread(model, seal, Optimisation::Generic)?.mbps;
    let after = one_thread(model, seal, Optimisation::Overlap)?.mbps;
    Ok(vec![
        Outcome::number("C10", "SEAL by memory optimisation, times", 4.38, after / before, "times")
            .contradictory()
            .note("The paper has a boost of 438 %: 4.38 times as much, or 5.38 times. Which is meant decides the verdict, so there is none."),
    ])
}

fn steps(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let [raw, generic, overlap] =
        [Optimisation::Raw, Optimisation::Generic, Optimisation::Overlap].map(|step| all(model, step));
    let (raw, generic, overlap) = (raw?, generic?, overlap?);
    let gains: Vec<(&str, f64, f64)> = raw
        .iter()
        .zip(&generic)
        .zip(&overlap)
        .map(|((raw, generic), overlap)| {
            (raw.0.about.name, generic.1.mbps / raw.1.mbps, overlap.1.mbps / generic.1.mbps)
        })
        .collect();
    let against = list(gains.iter().filter(|(_, generic, memory)| generic >= memory).map(|(name, ..)| *name));
    let (generic, memory) =
        (mean(gains.iter().map(|(_, generic, _)| *generic)), mean(gains.iter().map(|(.., memory)| *memory)));
    Ok(vec![
        Outcome::quality(
            "C11",
            "generic optimisation brings little",
            "little",
            format!("{generic:.2} times on average"),
            generic < 1.25,
        ),
        Outcome::quality(
            "C11",
            "memory optimisation brings more than generic, even for hash functions",
            "for all",
            format!("{memory:.1} times on average; not for: {against}"),
            against == "none",
        ),
    ])
}

/// Ciphers whose bottleneck is not the engine, by the study.
const WAITING: [&str; 3] = ["aes", "blowfish", "seal"];

fn utilisation(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let best = all(model, Optimisation::Overlap)?;
    let busy = |report: &CipherReport| {
        report.engines.first().map_or(0.0, |engine| engine.executing + engine.aborted)
    };
    let stalled = best
        .iter()
        .filter_map(|(_, report)| report.engines.first())
        .map(|engine| engine.stalled)
        .fold(0.0, f64::max);
    let idle = best.iter().filter(|(_, report)| busy(report) < 0.9);
    let text: Vec<String> = idle
        .clone()
        .map(|(cipher, report)| format!("{} {:.0} %", cipher.about.name, 100.0 * busy(report)))
        .collect();
    let names: Vec<&str> = idle.map(|(cipher, _)| cipher.about.name).collect();
    Ok(vec![
        Outcome::quality(
            "C12",
            "engines are nearly fully used, but for AES, Blowfish and SEAL",
            &WAITING.join(", "),
            if text.is_empty() { "none".to_owned() } else { text.join(", ") },
            names == WAITING,
        )
        .note("One thread; below 90 % counts as not fully used."),
        Outcome::quality(
            "C12",
            "no engine stalls for a full queue",
            "none",
            format!("{:.1} % at most", stalled * 100.0),
            stalled < 0.005,
        ),
    ])
}

fn scaling(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let mut text = Vec::new();
    let mut scales = true;
    for cipher in ALL.into_iter().filter(|cipher| !WAITING.contains(&cipher.about.name)) {
        let alone = measure(model, cipher, Optimisation::Overlap, 1, 8)?.mbps;
        let together = measure(model, cipher, Optimisation::Overlap, 8, 8)?.mbps;
        let times = together / alone;
        scales &= (times / 8.0 - 1.0).abs() <= TOLERANCE;
        text.push(format!("{} {times:.1}", cipher.about.name));
    }
    Ok(vec![
        Outcome::quality(
            "C13",
            "eight engines do eight times as much where engines are the limit",
            "8 times",
            text.join(", "),
            scales,
        )
        .note("Eight threads each. Figure 5 has no numbers in the text: it follows from C12, of all but AES, Blowfish and SEAL."),
    ])
}
