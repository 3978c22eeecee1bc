//! Curves and columns of the figures, as SVG.

use chip::reproduce::figure::{
    AGGREGATE, COUNTS, Curve, Implementation, Mix, MixCurve, SETTING, Scaling, Shaped, Steps,
};
use plotters::chart::ChartContext;
use plotters::coord::Shift;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::{
    BLACK, Cartesian2d, ChartBuilder, Circle, Color, DashedLineSeries, DrawingArea, IntoDrawingArea,
    IntoLogRange, LineSeries, Polygon, RGBColor, Ranged, Rectangle, SVGBackend,
};

use crate::plot::{BLUE, Colour, Drawn, FONT, INK, ORANGE, PALE, PURPLE, RED, SMALL, TEAL, style, svg};

/// Legend of published points.
pub(super) const PUBLISHED: &str = "published";

/// Kinds of instructions, in the order of the reports.
pub(super) const KINDS: [(&str, Colour); 5] =
    [("ALU", BLUE), ("multiply", PALE), ("load immediate", PURPLE), ("branch", ORANGE), ("memory", TEAL)];

/// Steps of optimisation.
pub(super) const STEPS: [(&str, Colour); 4] =
    [("raw", PALE), ("generic", BLUE), ("memory", TEAL), ("overlap", PURPLE)];

/// States of an engine.
pub(super) const STATES: [(&str, Colour); 3] = [("executing", BLUE), ("aborted", ORANGE), ("stalled", RED)];

/// Threads of an engine.
pub(super) const THREADS: [(&str, Colour); 4] =
    [("1 thread", PALE), ("2 threads", BLUE), ("4 threads", TEAL), ("8 threads", PURPLE)];

/// The colour of an implementation.
pub(super) const fn of(implementation: Implementation) -> Colour {
    match implementation {
        Implementation::OneSram => ORANGE,
        Implementation::Sram => BLUE,
        Implementation::Local => TEAL,
        Implementation::Coded => PURPLE,
    }
}

/// Half the width of a published point, in pixels.
const HALF: i32 = 6;

/// A diamond where something was published.
const DIAMOND: [(i32, i32); 4] = [(0, -HALF), (HALF, 0), (0, HALF), (-HALF, 0)];

/// Ways of a tick to let packets go.
pub(super) const TICKS: [(&str, Colour); 2] = [("a packet a tick", BLUE), ("a token bucket a tick", TEAL)];

/// Rate put out over the rate set, in Mbit/s; dashed, what was asked for.
pub(super) fn shaped(rates: &[Shaped]) -> Result<String, String> {
    svg((960, 320), |backend| {
        let root = backend.into_drawing_area();
        let mut chart = framed(&root).build_cartesian_2d(0.0..26.0, 0.0..26.0)?;
        axes(&mut chart, ["shaping rate, Mbit/s", "put out, Mbit/s"], 0)?;
        let asked = [(0.0, 0.0), (25.0, 25.0)];
        chart.draw_series(DashedLineSeries::new(
            asked,
            7,
            5,
            RGBColor::from(INK).mix(0.5).stroke_width(1),
        ))?;
        let out: [fn(&Shaped) -> f64; 2] = [|rate| rate.one, |rate| rate.burst];
        for (out, (_, colour)) in out.into_iter().zip(TICKS) {
            let colour = RGBColor::from(colour);
            let points = || rates.iter().map(|rate| (rate.set as f64, out(rate)));
            chart.draw_series(LineSeries::new(points(), colour.stroke_width(2)))?;
            chart.draw_series(points().map(|point| Circle::new(point, 3, colour.filled())))?;
        }
        for rate in rates {
            if let Some(published) = rate.published {
                diamond(&root, chart.backend_coord(&(rate.set as f64, published)), TEAL)?;
            }
        }
        root.present()?;
        Ok(())
    })
}

/// Aggregate throughput in Mbit/s over rules, on a logarithmic axis; dashed, the ends of the published range.
pub(super) fn aggregate(points: &[(u32, f64)]) -> Result<String, String> {
    let most = points.iter().map(|(_, mbps)| *mbps).fold(AGGREGATE[0], f64::max) * 1.1;
    svg((960, 320), |backend| {
        let root = backend.into_drawing_area();
        let mut chart = framed(&root).build_cartesian_2d((1.0..600.0).log_scale(), 0.0..most)?;
        axes(&mut chart, ["rules", "Mbit/s"], 0)?;
        for end in AGGREGATE {
            let line = [(1.0, end), (600.0, end)];
            chart.draw_series(DashedLineSeries::new(
                line,
                7,
                5,
                RGBColor::from(INK).mix(0.7).stroke_width(2),
            ))?;
        }
        let colour = RGBColor::from(BLUE);
        let points = || points.iter().map(|(rules, mbps)| (f64::from(*rules), *mbps));
        chart.draw_series(LineSeries::new(points(), colour.stroke_width(2)))?;
        chart.draw_series(points().map(|point| Circle::new(point, 3, colour.filled())))?;
        root.present()?;
        Ok(())
    })
}

/// Loads of the test of fairness, as shares of a line.
pub(super) const LOADS: [(&str, Colour); 2] = [("half a line", TEAL), ("a whole line", ORANGE)];

/// Packets a second of each flow, by its number, at each load; dashed, what its bucket admits.
pub(super) fn fairness(loads: &[Vec<f64>; 2]) -> Result<String, String> {
    let most = loads.iter().flatten().fold(SETTING, |most, rate| most.max(*rate)) * 1.1;
    let flows = loads[0].len() as f64;
    svg((960, 260), |backend| {
        let root = backend.into_drawing_area();
        let mut chart = framed(&root).build_cartesian_2d(0.0..flows, 0.0..most)?;
        axes(&mut chart, ["flow", "packets a second"], 0)?;
        let line = [(0.0, SETTING), (flows, SETTING)];
        chart.draw_series(DashedLineSeries::new(line, 7, 5, RGBColor::from(INK).mix(0.7).stroke_width(2)))?;
        // Half a line last: nearly all of its points are on the dashed line, where many of the other's are.
        for (rates, (_, colour)) in loads.iter().zip(LOADS).rev() {
            let points = rates.iter().enumerate().map(|(flow, rate)| (flow as f64, *rate));
            chart.draw_series(points.map(|point| Circle::new(point, 2, RGBColor::from(colour).filled())))?;
        }
        root.present()?;
        Ok(())
    })
}

/// Cases of PRO3's packets.
pub(super) const CASES: [(&str, Colour); 2] = [("let pass", TEAL), ("translated", BLUE)];

/// Throughput of PRO3 in Gbit/s over lengths or mixes of packets; dashed, what the line brings.
pub(super) fn mixed(of: Mix, unit: &str, curves: &[MixCurve]) -> Result<String, String> {
    let its = || curves.iter().filter(|curve| curve.of == of);
    let places = || its().flat_map(|curve| curve.points.iter().map(|(at, _)| f64::from(*at)));
    let (first, last) = (places().fold(f64::MAX, f64::min), places().fold(0.0, f64::max));
    svg((960, 260), |backend| {
        let root = backend.into_drawing_area();
        let mut chart = framed(&root).build_cartesian_2d(first..last, 0.0..2.8)?;
        axes(&mut chart, [unit, "Gbit/s"], 1)?;
        let line = [(first, LINE), (last, LINE)];
        chart.draw_series(DashedLineSeries::new(line, 7, 5, RGBColor::from(INK).mix(0.5).stroke_width(1)))?;
        for curve in its() {
            let colour = RGBColor::from(CASES[usize::from(curve.translated)].1);
            let points = || curve.points.iter().map(|(at, gbps)| (f64::from(*at), *gbps));
            chart.draw_series(LineSeries::new(points(), colour.stroke_width(2)))?;
            chart.draw_series(points().map(|point| Circle::new(point, 3, colour.filled())))?;
        }
        diamond(&root, chart.backend_coord(&(f64::from(of.published()), LINE)), BLUE)?;
        root.present()?;
        Ok(())
    })
}

/// Gbit/s of PRO3's line.
const LINE: f64 = 2.5;

/// Chart with room for the labels of both axes.
fn framed<'a, 'b>(root: &'a Area<'b>) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut chart = ChartBuilder::on(root);
    chart.margin(12).x_label_area_size(44).y_label_area_size(56);
    chart
}

/// Axes with what they stand for, whatever the scale of the first; labels of the second have so many decimals.
fn axes<X: Ranged<ValueType = f64> + ValueFormatter<f64>>(
    chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, RangedCoordf64>>,
    [x, y]: [&str; 2],
    decimals: usize,
) -> Drawn {
    style(&mut chart.configure_mesh(), FONT)
        .x_desc(x)
        .y_desc(y)
        .x_label_formatter(&|value| format!("{value:.0}"))
        .y_label_formatter(&|value| format!("{value:.decimals$}"))
        .draw()?;
    Ok(())
}

/// Axes for throughput in % over rules, whatever the scale of the rules.
fn share_by_rules<X: Ranged<ValueType = f64> + ValueFormatter<f64>>(
    chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, RangedCoordf64>>,
) -> Drawn {
    style(&mut chart.configure_mesh(), FONT)
        .x_desc("rules")
        .y_labels(6)
        .x_label_formatter(&|rules| format!("{rules:.0}"))
        .y_label_formatter(&|share| format!("{share:.0} %"))
        .draw()?;
    Ok(())
}

/// Throughput in % over rules, on a logarithmic axis.
pub(super) fn throughput(curves: &[Curve]) -> Result<String, String> {
    svg((960, 380), |backend| {
        let root = backend.into_drawing_area();
        let mut chart = framed(&root).build_cartesian_2d((1.0..500.0).log_scale(), 0.0..106.0)?;
        share_by_rules(&mut chart)?;
        for curve in curves {
            let colour = RGBColor::from(of(curve.of));
            let points = || curve.points.iter().map(|(rules, share)| (f64::from(*rules), share * 100.0));
            chart.draw_series(LineSeries::new(points(), colour.stroke_width(2)))?;
            chart.draw_series(points().map(|point| Circle::new(point, 3, colour.filled())))?;
        }
        for curve in curves {
            let at = chart.backend_coord(&(f64::from(curve.of.published()), 100.0));
            diamond(&root, at, of(curve.of))?;
        }
        root.present()?;
        Ok(())
    })
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A diamond at a place of the page, with a rim of its curve's colour.
fn diamond(area: &Area<'_>, (x, y): (i32, i32), rim: Colour) -> Drawn {
    let corners = |scale: i32| {
        DIAMOND.map(|(right, down)| (x + right * scale / HALF, y + down * scale / HALF)).to_vec()
    };
    area.draw(&Polygon::new(corners(HALF + 2), RGBColor::from(rim).filled()))?;
    area.draw(&Polygon::new(corners(HALF), RGBColor::from(INK).filled()))?;
    Ok(())
}

/// Throughput in % over rules, on a linear axis, beside the paper's estimate, where there is one.
pub(super) fn estimates(curves: &[Curve]) -> Result<String, String> {
    svg((960, 340), |backend| {
        let root = backend.into_drawing_area();
        let mut chart = framed(&root).build_cartesian_2d(0.0..80.0, 0.0..106.0)?;
        share_by_rules(&mut chart)?;
        for curve in curves.iter().filter(|curve| curve.of.estimated(1).is_some()) {
            let colour = RGBColor::from(of(curve.of));
            let points = curve.points.iter().map(|(rules, share)| (f64::from(*rules), share * 100.0));
            chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
            let estimate =
                (1..=80).filter_map(|rules| Some((f64::from(rules), curve.of.estimated(rules)? * 100.0)));
            chart.draw_series(DashedLineSeries::new(estimate, 7, 5, colour.mix(0.8).stroke_width(2)))?;
            let at = chart.backend_coord(&(f64::from(curve.of.published()), 100.0));
            diamond(&root, at, of(curve.of))?;
        }
        root.present()?;
        Ok(())
    })
}

/// Published throughput of single ciphers, in Mbit/s, after the last step.
const SINGLE: [(&str, f64); 2] = [("md5", 1219.0), ("des", 32.2)];

/// Columns by cipher and step, on a logarithmic axis.
pub(super) fn steps(steps: &[Steps]) -> Result<String, String> {
    /// The width of a column, where a cipher takes 1.
    const WIDTH: f64 = 0.19;
    let left = |cipher: usize, step: usize| cipher as f64 + (step as f64 - STEPS.len() as f64 / 2.0) * WIDTH;
    let all = || steps.iter().flat_map(|of| &of.reports).map(|report| report.mbps);
    let low = 10_f64.powf(all().fold(f64::MAX, f64::min).max(0.01).log10().floor());
    let high = all().fold(1_500.0, f64::max) * 1.2;
    svg((960, 380), |backend| {
        let root = backend.into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin(12)
            .x_label_area_size(30)
            .y_label_area_size(62)
            .build_cartesian_2d(-0.5..steps.len() as f64 - 0.5, (low..high).log_scale())?;
        let name = |at: &f64| {
            let whole = at.round();
            let of = steps.get(whole as usize).filter(|_| whole >= 0.0 && (at - whole).abs() < 0.01);
            of.map_or_else(String::new, |of| of.cipher.about.name.to_owned())
        };
        style(&mut chart.configure_mesh(), FONT)
            .disable_x_mesh()
            .x_labels(steps.len() + 1)
            .x_label_formatter(&name)
            .y_label_formatter(&|mbps| format!("{mbps:.0}"))
            .y_desc("Mbit/s")
            .draw()?;
        for (cipher, of) in steps.iter().enumerate() {
            let columns = of.reports.iter().zip(STEPS).enumerate().map(|(step, (report, (_, colour)))| {
                let (from, to) = (left(cipher, step), left(cipher, step + 1) - 0.02);
                Rectangle::new([(from, low), (to, report.mbps)], RGBColor::from(colour).filled())
            });
            chart.draw_series(columns)?;
        }
        for (name, published) in SINGLE {
            let Some(cipher) = steps.iter().position(|of| of.cipher.about.name == name) else { continue };
            let last = STEPS.len() - 1;
            let at = chart.backend_coord(&(left(cipher, last) + WIDTH / 2.0, published));
            diamond(&root, at, ORANGE)?;
        }
        root.present()?;
        Ok(())
    })
}

/// A small chart for each cipher: throughput over engines, a line for each number of threads.
pub(super) fn scaling(ciphers: &[Scaling]) -> Result<String, String> {
    svg((960, 420), |backend| {
        let root = backend.into_drawing_area();
        for (area, of) in root.split_evenly((2, 5)).iter().zip(ciphers) {
            let most = of.mbps.iter().flatten().copied().fold(0.0, f64::max) / 1e3;
            let mut chart = ChartBuilder::on(area)
                .margin(6)
                .caption(of.cipher.about.name, ("sans-serif", 14))
                .x_label_area_size(24)
                .y_label_area_size(34)
                .build_cartesian_2d(0.0..8.4, 0.0..most * 1.08)?;
            style(&mut chart.configure_mesh(), SMALL)
                .disable_x_mesh()
                .light_line_style(BLACK.mix(0.0))
                .x_labels(5)
                .y_labels(4)
                .x_label_formatter(&|engines| format!("{engines:.0}"))
                .y_label_formatter(&|gbps| {
                    if most < 1.0 { format!("{gbps:.2}") } else { format!("{gbps:.1}") }
                })
                .draw()?;
            for (threads, (_, colour)) in THREADS.into_iter().enumerate() {
                let colour = RGBColor::from(colour);
                let points = || {
                    let of_threads = of.mbps.iter().filter_map(move |row| row.get(threads));
                    COUNTS.into_iter().zip(of_threads).map(|(engines, mbps)| (f64::from(engines), mbps / 1e3))
                };
                chart.draw_series(LineSeries::new(points(), colour.stroke_width(2)))?;
                chart.draw_series(points().map(|point| Circle::new(point, 2, colour.filled())))?;
            }
        }
        root.present()?;
        Ok(())
    })
}
