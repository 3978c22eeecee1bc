//! Picture of a front: the first objective over each other one.

use chip::sweep::objective::{Better, Objective};
use plotters::prelude::{
    ChartBuilder, Circle, Color, DrawingArea, IntoDrawingArea, LineSeries, RGBColor, SVGBackend,
};

use super::{Found, figure};
use crate::plot::{BLUE, Drawn, FONT, PALE, style, svg};

/// Width and height of the part for each pair of objectives.
const PART: (u32, u32) = (480, 360);

/// Space beyond the outermost points, as a share of their distance.
const ROOM: f64 = 0.06;

/// Draws the front as SVG; the error is what the library says.
pub(super) fn of(objectives: &[Objective], found: &Found) -> Result<String, String> {
    let Some((first, others)) = objectives.split_first() else { return Ok(String::new()) };
    let parts = others.len().max(1);
    svg((PART.0 * parts as u32, PART.1), |backend| {
        let root = backend.into_drawing_area();
        for (area, other) in root.split_evenly((1, parts)).iter().zip(others) {
            pair(area, [first, other], found)?;
        }
        root.present()?;
        Ok(())
    })
}

/// Draws all configurations by two objectives, and those of the front in another colour, joined by steps: what lies on the worse side of
/// the steps is surpassed in these two.
fn pair(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    [first, other]: [&Objective; 2],
    found: &Found,
) -> Drawn {
    let point = |place: usize| {
        let trial = &found.trials[place];
        Some((scaled(other, figure(trial, other)?), scaled(first, figure(trial, first)?)))
    };
    let all: Vec<(f64, f64)> = (0..found.trials.len()).filter_map(point).collect();
    let mut front: Vec<(f64, f64)> = found.front.iter().filter_map(|place| point(*place)).collect();
    let (x, y) = (axis(all.iter().map(|at| at.0)), axis(all.iter().map(|at| at.1)));
    let mut chart = ChartBuilder::on(area)
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(x.0..x.1, y.0..y.1)?;
    style(&mut chart.configure_mesh(), FONT)
        .x_labels(6)
        .y_labels(6)
        .x_desc(name(other))
        .y_desc(name(first))
        .x_label_formatter(&|value| short(*value, x))
        .y_label_formatter(&|value| short(*value, y))
        .draw()?;
    let (pale, blue) = (RGBColor::from(PALE), RGBColor::from(BLUE));
    chart.draw_series(all.iter().map(|at| Circle::new(*at, 3, pale.mix(0.7).filled())))?;
    chart.draw_series(LineSeries::new(steps(&front, first, other), blue.mix(0.6).stroke_width(1)))?;
    front.dedup();
    chart.draw_series(front.iter().map(|at| Circle::new(*at, 4, blue.filled())))?;
    Ok(())
}

/// Returns the corners of the steps through those points that none of the others surpasses in the two objectives.
fn steps(front: &[(f64, f64)], first: &Objective, other: &Objective) -> Vec<(f64, f64)> {
    let is_better = |objective: &Objective, value: f64, than: f64| match objective.better {
        Better::More => value > than,
        Better::Less => value < than,
    };
    let mut sorted = front.to_vec();
    // From the best in the other objective to the worst; of those as good, the best in the first comes first.
    sorted.sort_by(|one, two| {
        let by = |objective: &Objective, one: f64, two: f64| match objective.better {
            Better::More => two.total_cmp(&one),
            Better::Less => one.total_cmp(&two),
        };
        by(other, one.0, two.0).then(by(first, one.1, two.1))
    });
    let mut corners: Vec<(f64, f64)> = Vec::new();
    for (x, y) in sorted {
        match corners.last() {
            Some((_, last)) if !is_better(first, y, *last) => {}
            Some((_, last)) => {
                let last = *last;
                corners.extend([(x, last), (x, y)]);
            }
            None => corners.push((x, y)),
        }
    }
    corners
}

/// A value in the unit of the axis.
fn scaled(objective: &Objective, value: f64) -> f64 {
    match objective.unit {
        "ns" => value / 1e3,
        "B" => value / 1_048_576.0,
        _ => value,
    }
}

/// An objective with the unit of the axis.
fn name(objective: &Objective) -> String {
    match objective.unit {
        "ns" => format!("{}, us", objective.name),
        "B" => format!("{}, MB", objective.name),
        "" => objective.name.to_owned(),
        unit => format!("{}, {unit}", objective.name),
    }
}

/// Ends of an axis with room for all values.
fn axis(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let (low, high) = (values.clone().fold(f64::MAX, f64::min), values.fold(f64::MIN, f64::max));
    if low > high {
        return (0.0, 1.0);
    }
    let room = ((high - low) * ROOM).max(high.abs() * 0.01).max(1e-6);
    ((low - room).max(if low >= 0.0 { 0.0 } else { f64::MIN }), high + room)
}

/// A label with as many decimals as the axis needs.
fn short(value: f64, (low, high): (f64, f64)) -> String {
    let decimals = (2.0 - (high - low).log10().floor()).clamp(0.0, 6.0) as usize;
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use chip::sweep::objective::Objective;

    use super::{axis, short, steps};

    fn objective(name: &str) -> Objective {
        name.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn steps_leave_out_what_is_surpassed_in_these_two() {
        let front = [(1.0, 1.0), (3.0, 2.0), (2.0, 1.0), (4.0, 5.0), (1.0, 0.5)];
        // Throughput over latency: more is better upwards, less to the right.
        let corners = steps(&front, &objective("throughput"), &objective("latency"));
        assert_eq!(corners, [(1.0, 1.0), (3.0, 1.0), (3.0, 2.0), (4.0, 2.0), (4.0, 5.0)]);
        // Engines over throughput: the best are at the lower right.
        let corners = steps(&front, &objective("engines"), &objective("throughput"));
        assert_eq!(
            corners,
            [(4.0, 5.0), (3.0, 5.0), (3.0, 2.0), (2.0, 2.0), (2.0, 1.0), (1.0, 1.0), (1.0, 0.5)]
        );
        assert!(steps(&[], &objective("engines"), &objective("power")).is_empty());
    }

    #[test]
    fn an_axis_has_room_and_labels_that_differ() {
        let (low, high) = axis([2.0, 2.0].into_iter());
        assert!(low < 2.0 && high > 2.0);
        assert_eq!(axis(std::iter::empty()), (0.0, 1.0));
        assert_eq!(axis([0.0, 10.0].into_iter()).0, 0.0);
        assert_eq!([short(0.5, (0.0, 1.0)), short(50.0, (0.0, 300.0))], ["0.50", "50"]);
    }
}
