//! Estimate of the processor that packet filtering needs, by regression of a packet's time on its number of rules.
//!
//! Equation (1) of Nishida, "Architecture of RENA-CHIP" (NTT Technical Review, 2006, section 3.1):
//!
//! ```text
//! time = (C0 + C1 R) / DMIPS
//! ```
//!
//! `time` is that of one packet, `R` the number of rules that the packet meets, `DMIPS` the VAX MIPS of the processor by the Dhrystone
//! benchmark. The study gives C0 and C1 no unit; its results follow where they are microseconds x DMIPS, that is instructions of a VAX.
//! An [`Equation`] has the study's coefficients, or those of a least-squares line through [`Point`]s of one's own, with intervals.
//! Points of one processor alone need no DMIPS: that processor is then the unit of speed.
//!
//! Equation (2), section 4, is [`Heat::limit`].

use toml::de::DeValue;
use wire::BitRate;
use wire::link::ETHERNET_OVERHEAD;

use crate::value;

pub mod line;
pub mod points;
pub mod published;
#[cfg(test)]
mod tests;

pub use line::{Estimate, Fit, Line};

/// Measured packet time of a processor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Number of rules that a packet meets.
    pub rules: u32,
    /// Time of a packet, in microseconds.
    pub micros: f64,
    /// Speed of the processor in DMIPS; 1 where the processor itself is the unit.
    pub speed: f64,
}

impl Point {
    /// Returns the work of a packet: its time multiplied by the speed, in microseconds x DMIPS.
    pub fn work(&self) -> f64 {
        self.micros * self.speed
    }
}

/// Reason that there is no estimate.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EstimateError {
    /// Points that no interval can be had from.
    #[error("{0} points are too few for a regression")]
    TooFew(usize),
    /// Points at a single number of rules.
    #[error("all points have the same number of rules, {0}: they have no slope")]
    OneCount(u32),
    /// A point with a time or a speed that is zero, negative or not finite.
    #[error("point {number}: {micros} us at a speed of {speed} is no measurement")]
    NoMeasurement {
        /// Its number, from 1.
        number: usize,
        /// Its time, in microseconds.
        micros: f64,
        /// Its speed.
        speed: f64,
    },
    /// A fitted line that falls as rules are added.
    #[error("the fitted time, at a speed of 1, falls by {:.4} us with each rule", -.slope)]
    Falling {
        /// Slope of the line.
        slope: f64,
    },
    /// A fitted line that gives no positive time.
    #[error("the fitted line gives a packet no time with {rules} rules")]
    NoTime {
        /// The number of rules.
        rules: u32,
    },
}

impl EstimateError {
    /// Returns advice on the error.
    pub fn hint(&self) -> &'static str {
        match self {
            EstimateError::TooFew(_) => {
                "give three points or more: a line fits two of them exactly, whatever they are, and has no interval"
            }
            EstimateError::OneCount(_) => "measure with two numbers of rules at least, better with four",
            EstimateError::NoMeasurement { .. } => "give a time and a speed above 0",
            EstimateError::Falling { .. } => {
                "rules cannot save time: compare the points' residuals, and measure again with more rules or for longer"
            }
            EstimateError::NoTime { .. } => "ask for a number of rules that was measured, or measure near it",
        }
    }
}

/// Equation (1) with its coefficients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Equation {
    /// Work of a packet by the number of rules, in microseconds x the unit of speed.
    pub line: Line,
    /// Regression that the coefficients are from; `None` where they are as published.
    pub fit: Option<Fit>,
}

impl Equation {
    /// Coefficients of RENA-CHIP's study. The points behind them are not published.
    pub const RENA_CHIP: Equation =
        Equation { line: Line { intercept: 7_610.874, slope: 144.846_2 }, fit: None };

    /// Fits the equation to points: a least-squares line through the work of each by its number of rules.
    ///
    /// # Errors
    /// Fewer than three points, one number of rules, or a value that is no measurement.
    pub fn fitted(points: &[Point]) -> Result<Equation, EstimateError> {
        for (number, Point { micros, speed, .. }) in (1..).zip(points) {
            if ![*micros, *speed].iter().all(|value| value.is_finite() && *value > 0.0) {
                return Err(EstimateError::NoMeasurement { number, micros: *micros, speed: *speed });
            }
        }
        if points.len() < 3 {
            return Err(EstimateError::TooFew(points.len()));
        }
        if points.iter().all(|point| point.rules == points[0].rules) {
            return Err(EstimateError::OneCount(points[0].rules));
        }
        let pairs: Vec<(f64, f64)> = points.iter().map(|point| (point.rules.into(), point.work())).collect();
        let fit = Fit::of(&pairs);
        Ok(Equation { line: fit.line, fit: Some(fit) })
    }

    /// Predicts the work of a packet, with the interval in which one more measurement would lie.
    ///
    /// # Errors
    /// A line that falls, or gives no positive time for so many rules.
    pub fn work(&self, rules: u32) -> Result<Estimate, EstimateError> {
        let value = self.line.at(rules.into());
        if self.line.slope < 0.0 {
            return Err(EstimateError::Falling { slope: self.line.slope });
        }
        if value <= 0.0 {
            return Err(EstimateError::NoTime { rules });
        }
        // No packet takes less than no time.
        let interval = self.fit.map(|fit| fit.prediction(rules.into()).map(|end| end.max(0.0)));
        Ok(Estimate { value, interval })
    }

    /// Predicts the speed, in DMIPS or in processors like the one measured, that `packets` a second with so many rules need.
    ///
    /// # Errors
    /// See [`Equation::work`].
    pub fn speed(&self, packets: f64, rules: u32) -> Result<Estimate, EstimateError> {
        self.work(rules).map(|work| work.times(packets / 1e6))
    }

    /// Predicts the packets a second of a processor of that speed.
    ///
    /// # Errors
    /// See [`Equation::work`].
    pub fn packets(&self, speed: f64, rules: u32) -> Result<f64, EstimateError> {
        self.work(rules).map(|work| speed * 1e6 / work.value)
    }
}

/// Reads the rate of a line, a number with a unit: "2 Gbit/s". The error says what is wrong.
pub fn line_rate(text: &str) -> Result<BitRate, String> {
    value::rate(&DeValue::String(text.into())).map_err(|complaint| complaint.message)
}

/// Bytes of an Ethernet frame's check sequence.
const CHECK_SEQUENCE: u64 = 4;

/// Returns the frames a second of an Ethernet line: frames of `bytes` bytes with their check sequence, and 20 of preamble, start
/// delimiter and gap beside each (IEEE 802.3).
pub fn packets(rate: BitRate, bytes: u32) -> f64 {
    let slot = u64::from(bytes) + ETHERNET_OVERHEAD.0 - CHECK_SEQUENCE;
    rate.0 as f64 / (8 * slot) as f64
}

/// Months in which processors become twice as fast, by Moore's law as it is mostly quoted.
pub const DOUBLING: f64 = 18.0;

/// Returns the years after which processors are `times` as fast, where their speed doubles in `months`.
pub fn years(times: f64, months: f64) -> f64 {
    times.log2() * months / 12.0
}

/// Heat of a chip without a heat sink.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Heat {
    /// Power consumption, in watts.
    pub watts: f64,
    /// Highest temperature of the chip, in degrees Celsius.
    pub junction: f64,
    /// Highest temperature of the air, in degrees Celsius.
    pub ambient: f64,
}

impl Heat {
    /// Returns the limit of equation (2) on the thermal resistance of a package from junction to air, in K/W. The study writes
    /// `theta_jc`, junction to case; a difference to the temperature of the air belongs to `theta_ja`.
    pub fn limit(&self) -> f64 {
        (self.junction - self.ambient) / self.watts
    }
}
