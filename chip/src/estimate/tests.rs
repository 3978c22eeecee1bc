use wire::BitRate;

use super::line::{Fit, Line};
use super::points::{Unit, parse};
use super::published::PROCESSORS;
use super::{Equation, EstimateError, Heat, Point, packets, years};

/// NIST's Statistical Reference Dataset "Norris": value and place.
const NORRIS: [(f64, f64); 36] = [
    (0.1, 0.2),
    (338.8, 337.4),
    (118.1, 118.2),
    (888.0, 884.6),
    (9.2, 10.1),
    (228.1, 226.5),
    (668.5, 666.3),
    (998.5, 996.3),
    (449.1, 448.6),
    (778.9, 777.0),
    (559.2, 558.2),
    (0.3, 0.4),
    (0.1, 0.6),
    (778.1, 775.5),
    (668.8, 666.9),
    (339.3, 338.0),
    (448.9, 447.5),
    (10.8, 11.6),
    (557.7, 556.0),
    (228.3, 228.1),
    (998.0, 995.8),
    (888.8, 887.6),
    (119.6, 120.2),
    (0.3, 0.3),
    (0.6, 0.3),
    (557.6, 556.8),
    (339.3, 339.1),
    (888.0, 887.2),
    (998.5, 999.0),
    (778.9, 779.0),
    (10.2, 11.1),
    (117.6, 118.3),
    (228.9, 229.2),
    (668.4, 669.1),
    (449.2, 448.9),
    (0.2, 0.5),
];

#[track_caller]
fn close(found: f64, expected: f64, share: f64) {
    assert!((found - expected).abs() <= share * expected.abs(), "{found} is not {expected}");
}

fn fit(points: &[(f64, f64)]) -> Fit {
    Fit::of(points)
}

/// <https://www.itl.nist.gov/div898/strd/lls/data/LINKS/DATA/Norris.dat>
#[test]
fn nists_certified_values_are_met() {
    let points: Vec<(f64, f64)> = NORRIS.iter().map(|(value, place)| (*place, *value)).collect();
    let fit = fit(&points);
    close(fit.line.intercept, -0.262_323_073_774_029, 1e-11);
    close(fit.intercept_error(), 0.232_818_234_301_152, 1e-12);
    close(fit.line.slope, 1.002_116_818_020_45, 1e-13);
    close(fit.slope_error(), 0.429_796_848_199_937e-3, 1e-12);
    close(fit.deviation, 0.884_796_396_144_373, 1e-12);
    close(fit.r_squared.unwrap(), 0.999_993_745_883_712, 1e-14);
    // t of 0.975 with 34 degrees of freedom is 2.032 (NIST's handbook, section 1.3.6.7.2).
    let [low, high] = fit.slope().interval.unwrap();
    close((high - low) / 2.0 / fit.slope_error(), 2.032, 2.5e-4);
    // Far away the line's own error is all that counts; at the mean, that of one value more.
    let half = |place| {
        let [low, high] = fit.prediction(place);
        (high - low) / 2.0
    };
    close(half(1e9), 1e9 * (high - low) / 2.0, 1e-6);
    let mean = points.iter().map(|(place, _)| place).sum::<f64>() / 36.0;
    close(half(mean), 2.032_244_5 * fit.deviation * (1.0_f64 + 1.0 / 36.0).sqrt(), 1e-6);
}

/// Quantiles of 0.975 as tables of Student's t distribution have them.
#[test]
fn quantiles_are_those_of_the_tables() {
    for (freedom, expected) in
        [(1.0, 12.706), (2.0, 4.303), (5.0, 2.571), (10.0, 2.228), (18.0, 2.101), (100.0, 1.984)]
    {
        close(super::line::quantile(freedom), expected, 3e-4);
    }
}

#[test]
fn a_line_without_residuals_has_no_width() {
    let fit = fit(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]);
    assert_eq!(
        (fit.line, fit.deviation, fit.r_squared),
        (Line { intercept: 1.0, slope: 2.0 }, 0.0, Some(1.0))
    );
    assert_eq!(fit.prediction(10.0), [21.0, 21.0]);
    let flat = Fit::of(&[(0.0, 4.0), (1.0, 4.0), (2.0, 4.0)]);
    assert_eq!((flat.line.slope, flat.r_squared), (0.0, None));
}

fn point(rules: u32, micros: f64, speed: f64) -> Point {
    Point { rules, micros, speed }
}

/// Points that the equation itself makes lead back to its coefficients, over processors of all speeds.
#[test]
fn coefficients_come_back() {
    let Equation { line, .. } = Equation::RENA_CHIP;
    let points: Vec<Point> = PROCESSORS
        .iter()
        .flat_map(|of| {
            [0, 64, 128, 256].map(|rules| point(rules, line.at(rules.into()) / of.dmips, of.dmips))
        })
        .collect();
    let equation = Equation::fitted(&points).unwrap();
    close(equation.line.intercept, 7_610.874, 1e-12);
    close(equation.line.slope, 144.846_2, 1e-12);
    let fit = equation.fit.unwrap();
    close(fit.r_squared.unwrap(), 1.0, 1e-12);
    let need = equation.speed(2.8e6, 256).unwrap();
    close(need.value, 125_136.0, 1e-5);
    let [low, high] = need.interval.unwrap();
    assert!(low <= need.value && need.value <= high && high - low < 1e-3, "{low} {high}");
}

/// Numbers that the study prints, and those worked out by hand from its coefficients.
#[test]
fn processors_are_those_of_the_study() {
    let equation = Equation::RENA_CHIP;
    close(packets(BitRate(2_000_000_000), 64), 2e9 / 672.0, 1e-12);
    let need = equation.speed(packets(BitRate(2_000_000_000), 64), 0).unwrap();
    close(need.value, 22_651.4, 1e-5);
    assert_eq!(need.interval, None);
    close(equation.packets(1_543.0, 0).unwrap(), 202_740.0, 1e-4);
    close(equation.packets(764.588, 256).unwrap(), 17_110.0, 1e-3);
    close(years(8.0, 18.0), 4.5, 1e-12);
    close(Heat { watts: 2.0, junction: 120.0, ambient: 50.0 }.limit(), 35.0, 1e-12);
}

#[test]
fn points_without_a_regression_are_refused() {
    let refused = |points: &[Point]| Equation::fitted(points).unwrap_err();
    let good = point(0, 1.0, 100.0);
    assert_eq!(refused(&[]), EstimateError::TooFew(0));
    assert_eq!(refused(&[good, point(64, 2.0, 100.0)]), EstimateError::TooFew(2));
    assert_eq!(
        refused(&[point(64, 1.0, 1.0), point(64, 2.0, 1.0), point(64, 3.0, 1.0)]),
        EstimateError::OneCount(64)
    );
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        for point in [point(64, bad, 100.0), point(64, 1.0, bad)] {
            let error = refused(&[good, point, good]);
            assert!(matches!(error, EstimateError::NoMeasurement { number: 2, .. }), "{error}");
        }
    }
    assert!(refused(&[]).hint().contains("three"));
}

#[test]
fn a_line_that_makes_no_sense_predicts_nothing() {
    let falling = Equation::fitted(&[point(0, 9.0, 1.0), point(64, 5.0, 1.0), point(128, 1.0, 1.0)]).unwrap();
    assert_eq!(falling.speed(1e6, 0), Err(EstimateError::Falling { slope: -0.0625 }));
    // Through the points, but below zero without rules.
    let steep = Equation::fitted(&[point(10, 1.0, 1.0), point(20, 11.0, 1.0), point(30, 21.0, 1.0)]).unwrap();
    assert_eq!(steep.work(0), Err(EstimateError::NoTime { rules: 0 }));
    close(steep.work(20).unwrap().value, 11.0, 1e-12);
    // Scattered so far that the interval would begin below no time at all.
    let wide = Equation::fitted(&[point(0, 1.0, 1.0), point(1, 9.0, 1.0), point(2, 3.0, 1.0)]).unwrap();
    assert_eq!(wide.work(0).unwrap().interval.unwrap()[0], 0.0);
}

#[test]
fn files_of_points_are_read() {
    let text = "[[point]]\nrules = 0\npackets-per-second = 100_000\ndmips = 764.588\n\
                [[point]]\nrules = 64\nmicroseconds = 22.5\ndmips = 1000\n";
    let points = parse(text, "points.toml").points.unwrap();
    assert_eq!((points.unit, points.list[1]), (Unit::Dmips, point(64, 22.5, 1_000.0)));
    close(points.list[0].micros, 10.0, 1e-12);
    let text = "[[point]]\nrules = 7\nmicroseconds = 2\n";
    let points = parse(text, "points.toml").points.unwrap();
    assert_eq!((points.unit, points.list), (Unit::Itself, vec![point(7, 2.0, 1.0)]));
}

#[test]
fn what_is_wrong_with_a_file_of_points_has_a_line() {
    for (text, line, part) in [
        ("[[point]]\nrules = 1\nmicroseconds = 0\n", 3, "out of range"),
        ("[[point]]\nrules = 1\nmicroseconds = nan\n", 3, "out of range"),
        ("[[point]]\nrules = 1\nmicroseconds = inf\n", 3, "out of range"),
        ("[[point]]\nrules = -1\nmicroseconds = 1\n", 2, "out of range"),
        ("[[point]]\nrules = 1\npackets-per-second = -4.5\n", 3, "out of range"),
        ("[[point]]\nrules = 1\nmicroseconds = 1\ndmips = 0\n", 4, "out of range"),
        ("[[point]]\nrules = 1\nmicroseconds = 1\npackets-per-second = 1\n", 4, "no meaning here"),
        ("[[point]]\nrules = 1\nmicrosecond = 1\n", 3, "no key `microsecond`"),
        ("[[point]]\nmicroseconds = 1\n", 1, "needs the key `rules`"),
        (
            "[[point]]\nrules = 1\nmicroseconds = 1\ndmips = 9\n[[point]]\nrules = 2\nmicroseconds = 1\n",
            5,
            "`dmips`",
        ),
        ("points = 3\n", 1, "no key `points`"),
        ("rules 3", 1, "not TOML"),
    ] {
        let checked = parse(text, "points.toml");
        assert!(checked.points.is_none(), "{text}");
        let told: Vec<String> = checked
            .diagnostics
            .iter()
            .map(|found| format!("{}: {found}", found.place.as_ref().unwrap()))
            .collect();
        let begin = format!("points.toml:{line}:");
        assert!(told.iter().any(|told| told.starts_with(&begin) && told.contains(part)), "{text}: {told:?}");
    }
}
