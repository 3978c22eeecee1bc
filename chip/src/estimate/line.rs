//! Simple linear regression: ordinary least squares of a straight line, with intervals by Student's t distribution.
//!
//! Residuals are taken as independent, normal and of one variance at all places.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// Confidence of all intervals.
pub const CONFIDENCE: f64 = 0.95;

/// Straight line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// Value at 0.
    pub intercept: f64,
    /// Increase for each unit of the place.
    pub slope: f64,
}

impl Line {
    /// Returns the value at `place`.
    pub fn at(&self, place: f64) -> f64 {
        self.intercept + self.slope * place
    }
}

/// Value, and the ends of its interval, the lower first; `None` where there is no regression behind it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Value.
    pub value: f64,
    /// Ends of the interval.
    pub interval: Option<[f64; 2]>,
}

impl Estimate {
    /// Returns the estimate multiplied by a positive `factor`.
    #[must_use]
    pub fn times(self, factor: f64) -> Estimate {
        Estimate {
            value: self.value * factor,
            interval: self.interval.map(|ends| ends.map(|end| end * factor)),
        }
    }
}

/// Least-squares line through points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// The line.
    pub line: Line,
    /// Number of points.
    pub points: usize,
    /// Standard deviation of the residuals, over `points - 2` degrees of freedom.
    pub deviation: f64,
    /// Coefficient of determination; `None` where all values are equal, and there is no variance to explain.
    pub r_squared: Option<f64>,
    /// Mean of the places, and the sum of their squared distances from it.
    mean: f64,
    spread: f64,
    /// Quantile of Student's t distribution that intervals reach to.
    quantile: f64,
}

impl Fit {
    /// Fits a line to places and values: three at least, at two places at least.
    pub(super) fn of(points: &[(f64, f64)]) -> Fit {
        let count = points.len() as f64;
        let mean = points.iter().map(|(place, _)| place).sum::<f64>() / count;
        let height = points.iter().map(|(_, value)| value).sum::<f64>() / count;
        // About the means, so that no large sums cancel.
        let about = |each: &dyn Fn(f64, f64) -> f64| {
            points.iter().map(|(place, value)| each(place - mean, value - height)).sum::<f64>()
        };
        let spread = about(&|place, _| place * place);
        let slope = about(&|place, value| place * value) / spread;
        let line = Line { intercept: height - slope * mean, slope };
        let residual = about(&|place, value| (value - slope * place).powi(2));
        let total = about(&|_, value| value * value);
        Fit {
            line,
            points: points.len(),
            deviation: (residual / (count - 2.0)).sqrt(),
            r_squared: (total > 0.0).then(|| 1.0 - residual / total),
            mean,
            spread,
            quantile: quantile(count - 2.0),
        }
    }

    /// Standard error of the slope.
    pub fn slope_error(&self) -> f64 {
        self.deviation / self.spread.sqrt()
    }

    /// Standard error of the intercept.
    pub fn intercept_error(&self) -> f64 {
        self.mean_error(0.0)
    }

    /// Returns the slope with its confidence interval.
    pub fn slope(&self) -> Estimate {
        let Line { slope, .. } = self.line;
        Estimate { value: slope, interval: Some(self.around(slope, self.slope_error())) }
    }

    /// Returns the intercept with its confidence interval.
    pub fn intercept(&self) -> Estimate {
        let Line { intercept, .. } = self.line;
        Estimate { value: intercept, interval: Some(self.around(intercept, self.intercept_error())) }
    }

    /// Returns the prediction interval at `place`: that in which one more value would lie.
    pub fn prediction(&self, place: f64) -> [f64; 2] {
        self.around(self.line.at(place), self.mean_error(place).hypot(self.deviation))
    }

    /// Standard error of the line's own value at `place`.
    fn mean_error(&self, place: f64) -> f64 {
        let share = 1.0 / self.points as f64 + (place - self.mean).powi(2) / self.spread;
        self.deviation * share.sqrt()
    }

    fn around(&self, value: f64, error: f64) -> [f64; 2] {
        let half = self.quantile * error;
        [value - half, value + half]
    }
}

/// Quantile of Student's t distribution for two-sided intervals of [`CONFIDENCE`].
pub(crate) fn quantile(freedom: f64) -> f64 {
    // Refused are only degrees of freedom that are not positive, and no fit has those.
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |t| t.inverse_cdf(0.5 + CONFIDENCE / 2.0))
}
