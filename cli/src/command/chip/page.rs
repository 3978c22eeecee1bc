//! Report of a chip run as a page with plots: one HTML file that needs nothing else.
//!
//! Bars are elements of the page, so that their numbers can be read and copied; the curve of latency is drawn by
//! plotters.

use std::fmt::Write;

use chip::description::Chip;
use chip::report::Report;
use plotters::prelude::{AreaSeries, ChartBuilder, Color, IntoDrawingArea, IntoLogRange, RGBColor};

use super::table::{FICTION, time};
use crate::html::{STYLE, escape};
use crate::plot::{BLUE, FONT, style, svg};
use crate::screen::number;

/// Width and height of the curve.
const PLOT: (u32, u32) = (880, 300);

/// The page; the error is what the plot's library says.
pub(super) fn of(report: &Report, chip: &Chip, title: &str) -> Result<String, String> {
    let mut page = String::new();
    let (name, about) = (escape(&report.chip), escape(&report.mapping));
    let title = escape(title);
    let text = |page: &mut String, text: &str| page.push_str(text);
    text(&mut page, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    text(&mut page, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    text(&mut page, &format!("<title>{name}: {title}</title><style>{STYLE}</style></head><body><main>"));
    text(&mut page, &format!("<h1>{name}</h1><p class=\"about\">{about}<br>{title}</p>"));
    tiles(&mut page, report);
    if let Some(found) = &report.bottleneck {
        let class = if report.lost == 0 { "good" } else { "bad" };
        text(
            &mut page,
            &format!("<p class=\"verdict {class}\"><b>Bottleneck</b> {}</p>", escape(&found.text)),
        );
    }
    engines(&mut page, report);
    memories(&mut page, report);
    caches(&mut page, report);
    relief(&mut page, report);
    if !report.latency_curve.is_empty() {
        text(
            &mut page,
            "<h2>Latency</h2><p class=\"note\">Share of frames that took no longer, from the last bit in to the last bit out.</p>",
        );
        text(&mut page, &curve(report)?);
    }
    rings(&mut page, report);
    others(&mut page, report);
    mix(&mut page, report);
    assumed(&mut page, chip);
    text(&mut page, &format!("<p class=\"note\">{}</p></main></body></html>\n", escape(FICTION)));
    Ok(page)
}

fn tiles(page: &mut String, report: &Report) {
    let tile = |page: &mut String, name: &str, value: String, unit: &str| {
        page.push_str(&format!("<div class=\"tile\"><span>{name}</span><b>{value}</b><i>{unit}</i></div>"));
    };
    page.push_str("<section class=\"tiles\">");
    tile(page, "offered", format!("{:.3}", report.offered_mpps), "Mpps");
    tile(page, "delivered", format!("{:.3}", report.delivered_mpps), "Mpps");
    tile(page, "throughput", format!("{:.3}", report.gbps), "Gbit/s");
    tile(page, "ended by the policy", format!("{:.3}", report.ended_mpps), "Mpps");
    tile(page, "lost to overload", number(report.lost), "frames");
    tile(page, "reordered", number(report.reordered), "frames");
    tile(page, "latency, median", time(report.latency_ns.p50), "");
    tile(page, "latency, 99 %", time(report.latency_ns.p99), "");
    tile(page, "instructions", format!("{:.0}", report.instructions_per_packet), "a packet");
    page.push_str("</section>");
}

/// A row with a bar of parts, each a share of 1 with its class.
fn row(page: &mut String, name: &str, parts: &[(f64, &str)], note: &str) {
    let mut bar = String::new();
    for (share, class) in parts {
        let width = share.clamp(0.0, 1.0) * 100.0;
        // Writing to a string does not fail.
        let _ = write!(
            bar,
            "<span class=\"{class}\" style=\"width:{width:.3}%\" title=\"{class} {width:.1} %\"></span>"
        );
    }
    let (name, note) = (escape(name), escape(note));
    page.push_str(&format!(
        "<div class=\"row\"><span class=\"name\">{name}</span><span class=\"bar\">{bar}</span><span \
         class=\"value\">{note}</span></div>"
    ));
}

fn engines(page: &mut String, report: &Report) {
    page.push_str("<h2>Engines</h2><p class=\"key\">");
    for class in ["executing", "aborted", "stalled", "polling", "idle"] {
        page.push_str(&format!("<span class=\"swatch {class}\"></span>{class} "));
    }
    page.push_str("</p>");
    for engine in &report.engines {
        let parts = [
            (engine.executing, "executing"),
            (engine.aborted, "aborted"),
            (engine.stalled, "stalled"),
            (engine.polling, "polling"),
        ];
        let note = format!("{:.1} % · {}", engine.executing * 100.0, engine.pools.join(", "));
        row(page, &engine.name, &parts, &note);
    }
}

fn memories(page: &mut String, report: &Report) {
    page.push_str("<h2>Memories</h2>");
    for memory in &report.memories {
        let fullest = memory
            .fullest_channel()
            .map(|share| format!(", {:.1} % in the fullest channel", share * 100.0))
            .unwrap_or_default();
        let note = format!("{:.1} %{fullest} · {:.2} waiting", memory.utilisation * 100.0, memory.queue);
        row(page, &memory.name, &[(memory.utilisation, "busy")], &note);
    }
    page.push_str(
        "<table><tr><th>memory</th><th>region</th><th>references</th><th>bytes</th><th>mean</th><th>worst</th></tr>",
    );
    for memory in &report.memories {
        for region in &memory.regions {
            page.push_str(&format!(
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                escape(&memory.name),
                escape(&region.name),
                number(region.references),
                number(region.bytes),
                time(region.mean_ns),
                time(region.worst_ns)
            ));
        }
    }
    page.push_str("</table>");
}

fn caches(page: &mut String, report: &Report) {
    if report.caches.is_empty() {
        return;
    }
    page.push_str("<h2>Caches</h2>");
    for cache in &report.caches {
        let note = format!(
            "{:.1} % of {} look-ups, {} lines written back",
            cache.hit_ratio * 100.0,
            number(cache.lookups),
            number(cache.written_back)
        );
        row(page, &cache.name, &[(cache.hit_ratio, "hits")], &note);
    }
}

fn relief(page: &mut String, report: &Report) {
    let Some(found) = report.bottleneck.as_ref().filter(|found| !found.relief.is_empty()) else { return };
    page.push_str("<h2>What each resource would bring, infinitely fast</h2>");
    let most = found.relief.iter().map(|relief| relief.speed_up).fold(1.0, f64::max);
    for relief in &found.relief {
        // From now to the best there is; what makes it worse has no bar.
        let gained = if most > 1.0 { (relief.speed_up - 1.0) / (most - 1.0) } else { 0.0 };
        let note = format!("× {:.3} · {:.3} Mpps", relief.speed_up, relief.mpps);
        row(page, &relief.name, &[(gained, "gain")], &note);
    }
}

fn rings(page: &mut String, report: &Report) {
    if report.rings.is_empty() {
        return;
    }
    page.push_str(
        "<h2>Rings</h2><p class=\"note\">Frames after a put, on average, of the room there is.</p>",
    );
    for ring in &report.rings {
        let share = ring.mean / f64::from(ring.entries.max(1));
        let note = format!("{:.1} of {} · blocked {}", ring.mean, ring.entries, number(ring.blocked));
        row(page, &ring.name, &[(share, "busy")], &note);
    }
}

fn others(page: &mut String, report: &Report) {
    if report.others.is_empty() {
        return;
    }
    page.push_str("<h2>Units, buses and lines</h2>");
    for share in &report.others {
        row(page, &share.name, &[(share.share, "busy")], &format!("{:.1} %", share.share * 100.0));
    }
}

fn mix(page: &mut String, report: &Report) {
    page.push_str("<h2>Instructions of stages</h2>");
    for kind in report.mix.iter().filter(|kind| kind.share > 0.0) {
        row(page, &kind.name, &[(kind.share, "executing")], &format!("{:.1} %", kind.share * 100.0));
    }
}

fn assumed(page: &mut String, chip: &Chip) {
    let mut list = chip.assumed().peekable();
    if list.peek().is_none() {
        return;
    }
    page.push_str("<h2>Assumed parameters</h2><ul>");
    for source in list {
        page.push_str(&format!("<li><code>{}</code> {}</li>", escape(&source.path), escape(&source.text)));
    }
    page.push_str("</ul>");
}

/// The curve of latency, on a logarithmic axis.
fn curve(report: &Report) -> Result<String, String> {
    let first = report.latency_curve.first().map_or(1.0, |point| point.ns).max(1.0);
    let last = report.latency_curve.last().map_or(first, |point| point.ns);
    let (low, high) = (first / 1.1, last.max(first) * 1.1);
    let points = || report.latency_curve.iter().map(|point| (point.ns.max(low), point.share * 100.0));
    let blue = RGBColor::from(BLUE);
    svg(PLOT, |backend| {
        let root = backend.into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(56)
            .build_cartesian_2d((low..high).log_scale(), 0.0..100.0)?;
        style(&mut chart.configure_mesh(), FONT)
            .x_labels(8)
            .y_labels(5)
            .x_label_formatter(&|ns| time(*ns))
            .y_label_formatter(&|share| format!("{share:.0} %"))
            .draw()?;
        chart
            .draw_series(AreaSeries::new(points(), 0.0, blue.mix(0.12)).border_style(blue.stroke_width(2)))?;
        root.present()?;
        Ok(())
    })
}
