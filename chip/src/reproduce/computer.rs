//! PCs and processors of RENA-CHIP's study as chips: what their processors forward, what their buses carry, and how long their ciphers take.
//!
//! As the study measured (section 3.1): packets of IPv6 in frames of 66 bytes, the shortest with UDP, go both ways between two cards. Of the filter's rules, each
//! about a source and a destination, the last two are those that let them pass; what has no rule, passes too.

use ciphers::{ALL, Optimisation};
use ipnet::IpNet;
use lookup::classify::Algorithm;
use wire::Nanos;

use super::known::Known;
use super::workload::Workload;
use super::{Model, ReproduceError, shipped};
use crate::cipher::CipherRun;
use crate::description::Chip;
use crate::estimate::published::Processor;
use crate::estimate::{Equation, Point};
use crate::machine::Ideal;
use crate::report::Report;
use crate::traffic::{Flows, Rate, Size, Stream, Ways};

/// A processor of the study, and the chip that it is modelled as.
#[derive(Clone, Copy, Debug)]
pub(super) struct Computer {
    pub(super) chip: &'static str,
    pub(super) processor: Processor,
}

/// Runs that claims share.
#[derive(Default)]
pub(super) struct Measured {
    micros: Known<(&'static str, u32), f64>,
    ciphers: Known<&'static str, f64>,
}

/// Numbers of rules that the study measured with.
pub(super) const RULES: [u32; 4] = [0, 64, 128, 256];

/// Frames of a run, both ways together, and those of them that fill the computer.
const FRAMES: u64 = 6_000;
const WARM: u64 = 2_000;

/// Bytes of the shortest frame of IPv6 and UDP, with its check sequence.
const SHORTEST: u16 = 66;

/// Instructions of a packet, and of a rule, that are fewer than ours: so the frames offered are more than a processor carries.
const LEAST: [f64; 2] = [300.0, 24.0];

/// Frames offered a second, both ways together, to a processor of that speed whose packets meet so many rules.
fn offered(processor: Processor, rules: u32) -> f64 {
    processor.dmips * 1e6 / (LEAST[0] + LEAST[1] * f64::from(rules))
}

/// Hosts on both sides.
const HOSTS: [&str; 2] = ["2001:db8:1::10", "2001:db8:2::10"];

/// Interfaces of both sides, and a filter of so many rules.
fn policy(rules: u32) -> String {
    let mut text = String::from(
        "mode = \"stateless\"\n[default]\n\"any > any\" = \"accept\"\n\
         [interface.lan]\nzone = \"lan\"\naddresses = [\"2001:db8:1::1/64\"]\nmac = \"02:00:00:00:00:01\"\nsource-check = \"off\"\n\
         [interface.wan]\nzone = \"wan\"\naddresses = [\"2001:db8:2::1/64\"]\nmac = \"02:00:00:00:00:02\"\nsource-check = \"off\"\n",
    );
    let mut rule = |name: String, source: &str, destination: &str| {
        text.push_str(&format!(
            "[[rule]]\nname = \"{name}\"\nsource = \"{source}\"\ndestination = \"{destination}\"\naction = \"accept\"\n"
        ));
    };
    for number in 2..rules {
        rule(
            format!("other-{number}"),
            &format!("2001:db8:8::{number:x}"),
            &format!("2001:db8:9::{number:x}"),
        );
    }
    if rules >= 2 {
        rule("out".to_owned(), HOSTS[0], HOSTS[1]);
        rule("in".to_owned(), HOSTS[1], HOSTS[0]);
    }
    text
}

fn host(place: usize) -> Option<IpNet> {
    format!("{}/128", HOSTS[place]).parse().ok()
}

/// One run, both ways.
struct Run {
    size: u16,
    rules: u32,
    rate: Rate,
    ideal: Ideal,
}

impl Run {
    fn report(&self, model: &Model, chip: &Chip) -> Result<Report, ReproduceError> {
        let mapping = shipped::mapping(&format!("{}-pool", chip.name), chip)?;
        let policy = shipped::policy(&policy(self.rules), "pc")?;
        let stream = Stream {
            size: Size::Fixed(self.size),
            rate: self.rate,
            flows: Flows::Fixed(1),
            frames: model.frames(FRAMES / 2),
            ways: Ways::Both,
            source: host(0),
            destination: host(1),
            ..Stream::new("lan", "wan")
        };
        let workload = Workload {
            chip,
            mapping: &mapping,
            policy: &policy,
            algorithm: Algorithm::named("linear"),
            streams: &[(stream, Nanos(0))],
            warm: model.frames(WARM),
        };
        Ok(workload.run(self.ideal)?)
    }
}

/// Returns the microseconds of a packet that meets so many rules, where neither lines nor a bus hold it up, as none did at the
/// study's rates.
pub(super) fn micros(model: &Model, computer: Computer, rules: u32) -> Result<f64, ReproduceError> {
    model.computer.micros.get((computer.chip, rules), || {
        let chip = model.chip_with(computer.chip, &[("ports.rate", "10 Gbit/s")])?;
        let each_way = Rate::Frames(offered(computer.processor, rules) / 2.0);
        let run = Run { size: SHORTEST, rules, rate: each_way, ideal: Ideal::Bus(0) };
        Ok(1.0 / run.report(model, &chip)?.dealt_mpps())
    })
}

/// Equation (1) with coefficients fitted to the modelled computers, each with the study's numbers of rules.
pub(super) fn equation(model: &Model, computers: &[Computer]) -> Result<Equation, ReproduceError> {
    let mut points = Vec::new();
    for computer in computers {
        for rules in RULES {
            let micros = micros(model, *computer, rules)?;
            points.push(Point { rules, micros, speed: computer.processor.dmips });
        }
    }
    Ok(Equation::fitted(&points)?)
}

/// Mbit/s of frames of 1,518 bytes that leave a chip each way, of full lines, without rules.
pub(super) fn throughput(model: &Model, chip: &Chip) -> Result<f64, ReproduceError> {
    let run = Run { size: 1_518, rules: 0, rate: Rate::Line(1.0), ideal: Ideal::Nothing };
    Ok(run.report(model, chip)?.gbps * 1e3 / 2.0)
}

/// Bytes of text of a frame of 1,000 bytes: the packet of 986, and ESP's padding and trailer.
const TEXT: u32 = 992;

/// Bytes that an HMAC digests of it: a block of the key, ESP's header, an initialisation vector and the text; then another block of
/// the key and the digest's.
const DIGESTED: u32 = 64 + 8 + 16 + TEXT + 64 + 64;

/// Returns the microseconds that a cipher of that name takes for a frame of 1,000 bytes on the chip `pc4`, in code by the rules for any
/// processor.
pub(super) fn cipher(model: &Model, name: &'static str) -> Result<f64, ReproduceError> {
    model.computer.ciphers.get(name, || {
        let chip = model.chip("pc4")?;
        let found = ALL.into_iter().find(|cipher| cipher.about.name == name);
        let cipher = found.ok_or_else(|| ReproduceError::Shipped(format!("there is no cipher {name}")))?;
        let message = if cipher.about.kind == ciphers::Kind::Hash { DIGESTED } else { TEXT };
        let run = CipherRun::of(&chip, cipher, Optimisation::Generic, message);
        Ok(f64::from(message) * 8.0 / model.recorded().measure(&run)?.mbps)
    })
}

#[cfg(test)]
mod tests {
    use super::super::Model;
    use super::{Computer, RULES, micros, offered, policy};
    use crate::estimate::published::{CN3120, MIPS32, PC1, PC4};

    /// Otherwise it would be the frames offered that are measured.
    #[test]
    fn more_is_offered_than_a_processor_carries() {
        let model = Model::default();
        for (chip, processor) in [("pc1", PC1), ("pc4", PC4), ("mips32", MIPS32), ("cn3120", CN3120)] {
            for rules in RULES {
                let each = micros(&model, Computer { chip, processor }, rules).unwrap();
                let carried = 1e6 / each;
                let offered = offered(processor, rules);
                assert!(carried < 0.9 * offered, "{chip}, {rules} rules: {carried} of {offered}");
            }
        }
    }

    #[test]
    fn the_last_two_rules_let_the_packets_pass() {
        for rules in RULES {
            let checked = policy::check(&policy(rules), "pc");
            assert_eq!(checked.diagnostics.len(), 0, "{:?}", checked.diagnostics);
            assert_eq!(checked.policy.unwrap().rules.len(), rules as usize);
        }
    }
}
