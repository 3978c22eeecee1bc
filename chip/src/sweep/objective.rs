//! Objectives of a search among configurations, and bounds that its results have to keep.

use std::str::FromStr;

/// Figure that a configuration is to have as high or as low as can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Objective {
    /// Name.
    pub name: &'static str,
    /// Column of a sweep's rows that has its values.
    pub column: &'static str,
    /// Direction that is better.
    pub better: Better,
    /// Unit of the column's values; empty for a number.
    pub unit: &'static str,
    /// Meaning, in a line.
    pub about: &'static str,
}

/// Direction that is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// The more, the better.
    More,
    /// The less, the better.
    Less,
}

/// All objectives, in the order of help.
pub const OBJECTIVES: [Objective; 9] = [
    Objective {
        name: "throughput",
        column: "throughput_gbps",
        better: Better::More,
        unit: "Gbit/s",
        about: "highest load, up to that of the traffic, at which no larger share of frames is lost than --loss says; by a search",
    },
    Objective {
        name: "delivered",
        column: "gbps",
        better: Better::More,
        unit: "Gbit/s",
        about: "bits of frames that leave at the load of the traffic, whatever is lost; by one run",
    },
    Objective {
        name: "latency",
        column: "p99_ns",
        better: Better::Less,
        unit: "ns",
        about: "99th percentile at the load of the traffic, of frames that leave",
    },
    Objective {
        name: "median",
        column: "p50_ns",
        better: Better::Less,
        unit: "ns",
        about: "median of the same",
    },
    Objective {
        name: "lost",
        column: "lost",
        better: Better::Less,
        unit: "",
        about: "frames lost to overload at the load of the traffic",
    },
    Objective {
        name: "power",
        column: "watts",
        better: Better::Less,
        unit: "W",
        about: "watts at the load of the traffic, by a linear model of the chip's [power]",
    },
    Objective {
        name: "memory",
        column: "memory_bytes",
        better: Better::Less,
        unit: "B",
        about: "bytes of tables, rings and lists where the mapping puts them, once for each engine in local memories; and of caches",
    },
    Objective {
        name: "engines",
        column: "engines",
        better: Better::Less,
        unit: "",
        about: "engines with threads or timers",
    },
    Objective { name: "threads", column: "threads", better: Better::Less, unit: "", about: "threads" },
];

/// Text that is no objective.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is no objective; {hint}")]
pub struct BadObjective {
    /// The text.
    pub name: String,
    /// The nearest, or all.
    pub hint: String,
}

impl FromStr for Objective {
    type Err = BadObjective;

    fn from_str(text: &str) -> Result<Objective, BadObjective> {
        let name = text.trim();
        let found = OBJECTIVES.into_iter().find(|objective| objective.name == name);
        found.ok_or_else(|| {
            let known = || OBJECTIVES.iter().map(|objective| objective.name);
            let all = || format!("there are {}", known().collect::<Vec<_>>().join(", "));
            BadObjective { name: name.to_owned(), hint: config::did_you_mean(name, known(), all) }
        })
    }
}

/// Bound that a configuration has to keep: `throughput>=1Gbit/s`, `latency<=5us`.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// Objective that is bounded.
    pub objective: Objective,
    /// Column of a sweep's rows that is compared: of the unit that was given.
    pub column: &'static str,
    /// Side on which values are to be.
    pub side: Side,
    /// The bound, in the column's unit.
    pub value: f64,
}

/// Side of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// That value or more.
    AtLeast,
    /// That value or less.
    AtMost,
}

/// Text that is no bound.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBound {
    /// There are not a name, a sign and a value.
    #[error(
        "`{0}` is no requirement: write NAME>=VALUE or NAME<=VALUE, as throughput>=1Gbit/s, latency<=5us or engines<=4"
    )]
    Incomplete(String),
    /// There is no such objective.
    #[error(transparent)]
    Objective(#[from] BadObjective),
    /// The value is no number.
    #[error("`{value}` is no value of {name}: write a number of 0 or more, and {units}")]
    Number {
        /// Value as written.
        value: String,
        /// The objective.
        name: &'static str,
        /// Units that there are.
        units: String,
    },
    /// The unit is another one's.
    #[error("`{unit}` is no unit of {name}: write {units}")]
    Unit {
        /// Unit as written; empty without one.
        unit: String,
        /// The objective.
        name: &'static str,
        /// Units that there are.
        units: String,
    },
}

/// A unit: its name, the column that it is of, and the value of one in that column.
type Unit = (&'static str, &'static str, f64);

/// Units of an objective's bounds; the empty one is for numbers.
fn units(objective: &Objective) -> &'static [Unit] {
    match objective.name {
        "throughput" => &[
            ("Gbit/s", "throughput_gbps", 1.0),
            ("Mbit/s", "throughput_gbps", 1e-3),
            ("kbit/s", "throughput_gbps", 1e-6),
            ("Mpps", "throughput_mpps", 1.0),
            ("kpps", "throughput_mpps", 1e-3),
            ("%", "throughput_share", 1e-2),
        ],
        "delivered" => &[
            ("Gbit/s", "gbps", 1.0),
            ("Mbit/s", "gbps", 1e-3),
            ("kbit/s", "gbps", 1e-6),
            ("Mpps", "delivered_mpps", 1.0),
            ("kpps", "delivered_mpps", 1e-3),
        ],
        "latency" => {
            &[("ns", "p99_ns", 1.0), ("us", "p99_ns", 1e3), ("ms", "p99_ns", 1e6), ("s", "p99_ns", 1e9)]
        }
        "median" => {
            &[("ns", "p50_ns", 1.0), ("us", "p50_ns", 1e3), ("ms", "p50_ns", 1e6), ("s", "p50_ns", 1e9)]
        }
        "power" => &[("W", "watts", 1.0), ("mW", "watts", 1e-3)],
        "memory" => &[
            ("B", "memory_bytes", 1.0),
            ("KB", "memory_bytes", 1024.0),
            ("MB", "memory_bytes", 1_048_576.0),
            ("GB", "memory_bytes", 1_073_741_824.0),
        ],
        "lost" => &[("", "lost", 1.0)],
        "engines" => &[("", "engines", 1.0)],
        _ => &[("", "threads", 1.0)],
    }
}

fn units_in_words(objective: &Objective) -> String {
    match units(objective) {
        [("", ..)] => "no unit".to_owned(),
        units => units.iter().map(|(name, ..)| *name).collect::<Vec<_>>().join(", "),
    }
}

impl FromStr for Bound {
    type Err = BadBound;

    fn from_str(text: &str) -> Result<Bound, BadBound> {
        let incomplete = || BadBound::Incomplete(text.to_owned());
        let (name, value, side) = match (text.split_once(">="), text.split_once("<=")) {
            (Some((name, value)), None) => (name, value, Side::AtLeast),
            (None, Some((name, value))) => (name, value, Side::AtMost),
            _ => return Err(incomplete()),
        };
        if name.trim().is_empty() || value.trim().is_empty() {
            return Err(incomplete());
        }
        let objective: Objective = name.parse()?;
        let value = value.trim();
        let units_of = || units_in_words(&objective);
        let end = value.find(|letter: char| !matches!(letter, '0'..='9' | '.' | '-' | '+'));
        let (digits, unit) = value.split_at(end.unwrap_or(value.len()));
        let number = digits.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
        let Some(number) = number else {
            return Err(BadBound::Number {
                value: value.to_owned(),
                name: objective.name,
                units: units_of(),
            });
        };
        let unit = unit.trim().replace('µ', "u");
        let known = units(&objective).iter().find(|(name, ..)| *name == unit);
        let Some((_, column, scale)) = known else {
            return Err(BadBound::Unit { unit, name: objective.name, units: units_of() });
        };
        Ok(Bound { objective, column, side, value: number * scale })
    }
}

#[cfg(test)]
mod tests {
    use super::{BadBound, Bound, OBJECTIVES, Objective, Side, units};
    use crate::sweep::Figures;

    #[test]
    fn every_column_is_one_of_a_sweep() {
        let columns = Figures::columns(1, Some(0.0));
        for objective in OBJECTIVES {
            let of_units = units(&objective).iter().map(|(_, column, _)| *column);
            for column in of_units.chain([objective.column]) {
                assert!(columns.iter().any(|known| known == column), "{column}");
            }
            // A value without a factor is in the objective's own column.
            let own = units(&objective).iter().find(|(name, ..)| *name == objective.unit);
            assert_eq!(own.map(|(_, column, scale)| (*column, *scale)), Some((objective.column, 1.0)));
        }
    }

    #[test]
    fn bounds_are_read_with_their_units() {
        let cases = [
            ("throughput>=1Gbit/s", "throughput_gbps", Side::AtLeast, 1.0),
            ("throughput >= 100 %", "throughput_share", Side::AtLeast, 1.0),
            ("throughput>=1.488Mpps", "throughput_mpps", Side::AtLeast, 1.488),
            ("delivered>=250 Mbit/s", "gbps", Side::AtLeast, 0.25),
            ("latency<=5us", "p99_ns", Side::AtMost, 5_000.0),
            ("median<=2.5µs", "p50_ns", Side::AtMost, 2_500.0),
            ("memory<=2 MB", "memory_bytes", Side::AtMost, 2_097_152.0),
            ("power<=500mW", "watts", Side::AtMost, 0.5),
            ("engines<=4", "engines", Side::AtMost, 4.0),
            ("threads>=8", "threads", Side::AtLeast, 8.0),
            ("lost<=0", "lost", Side::AtMost, 0.0),
        ];
        for (text, column, side, value) in cases {
            let bound: Bound = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!((bound.column, bound.side), (column, side), "{text}");
            assert!((bound.value - value).abs() <= 1e-12 * value, "{text}: {}", bound.value);
        }
    }

    #[test]
    fn what_is_no_bound_or_objective_is_told() {
        let cases = [
            ("throughput", "write NAME>=VALUE"),
            ("throughput>1Gbit/s", "write NAME>=VALUE"),
            (">=1", "write NAME>=VALUE"),
            ("engines>=", "write NAME>=VALUE"),
            ("1<=engines<=4>=2", "write NAME>=VALUE"),
            ("througput>=1Gbit/s", "did you mean \"throughput\"?"),
            ("speed>=1", "there are throughput, delivered, "),
            ("throughput>=1", "`` is no unit of throughput: write Gbit/s, "),
            ("throughput>=1W", "`W` is no unit of throughput: write Gbit/s, "),
            ("engines<=4MB", "write no unit"),
            ("latency<=fast", "`fast` is no value of latency: write a number of 0 or more, and ns, us"),
            ("latency<=-1us", "no value of latency"),
        ];
        for (text, part) in cases {
            let told = text.parse::<Bound>().unwrap_err().to_string();
            assert!(told.contains(part), "{text}: {told}");
        }
        assert!(matches!("power<=1".parse::<Bound>(), Err(BadBound::Unit { .. })));
        assert!(
            "latancy".parse::<Objective>().unwrap_err().to_string().ends_with("did you mean \"latency\"?")
        );
    }
}
