//! The claims and the studies' figures, drawn anew, as one HTML file that needs nothing else.

use chip::cipher::CipherReport;
use chip::reproduce::figure::{Figures, Implementation, Mix, Steps};
use chip::reproduce::{Claim, Outcome, SETTLED, Study, Verdict, Weight};

use super::plot::{self, PUBLISHED};
use super::{LISTED, about_weights, cells, error, notes, of_study, range, sentences, untested};
use crate::html::{STYLE, escape};
use crate::plot::{BLUE, Colour, INK};

/// Style sheet of this page alone.
const OWN: &str = "\
main { max-width: 66rem }
.claims td:nth-child(n+5), .claims th:nth-child(n+5) { text-align: left }
.claims td:nth-child(7), .claims th:nth-child(7) { text-align: right; white-space: nowrap }
.claims td:first-child { font-weight: 600 }
.badge { padding: .05rem .5rem; border-radius: 9px; white-space: nowrap; font-size: .78rem }
.yes { background: #c6f6d5 } .no { background: #fed7d7 } .apart { background: #e9eef3; color: var(--dim) }
.sum { border-color: #2b6cb0; background: #f5f7fa }
.key span { white-space: nowrap }
h3 { margin: 1.6rem 0 .2rem; font-size: .95rem }
.row { grid-template-columns: 6rem 1fr 10rem }
.diamond { display: inline-block; width: .6rem; height: .6rem; margin: 0 .5rem 0 1rem; transform: rotate(45deg) }
";

/// The page; the error is what the plot's library says.
pub(super) fn of(
    claims: &[Claim],
    outcomes: &[Outcome],
    weights: &[Weight],
    figures: &Figures,
) -> Result<String, String> {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>Published and predicted</title><style>{STYLE}{OWN}</style></head><body><main>\
         <h1>Published and predicted</h1><p class=\"about\">What studies measured on network processors and PCs, beside what \
         the model says of them.</p><section class=\"verdict sum\">"
    );
    for sentence in sentences(outcomes) {
        page.push_str(&format!("{}<br>", escape(&sentence)));
    }
    page.push_str("</section>");
    for study in Study::ALL {
        let its = of_study(study, claims, outcomes);
        if !its.is_empty() {
            table(&mut page, study, claims, &its);
        }
        match study {
            Study::Base | Study::SmartNic => {}
            Study::Protocol => protocol(&mut page, figures)?,
            Study::Adapter => adapter(&mut page, figures)?,
            Study::DiffServ => router(&mut page, figures)?,
            Study::Firewall => firewall(&mut page, figures)?,
            Study::Crypto => crypto(&mut page, figures)?,
        }
    }
    settled(&mut page);
    if !weights.is_empty() {
        assumptions(&mut page, weights);
    }
    page.push_str("</main></body></html>\n");
    Ok(page)
}

/// Parameters that were settled by published numbers.
fn settled(page: &mut String) {
    page.push_str(
        "<h2>What was settled by what</h2><p class=\"about\">Numbers that settled a parameter are not blind, nor is what follows from them \
         alone.</p><table class=\"claims\"><tr><th>parameter</th><th>settled by</th></tr>",
    );
    for (parameter, by) in SETTLED {
        page.push_str(&format!("<tr><td>{}</td><td>{}</td></tr>", escape(parameter), escape(by)));
    }
    page.push_str("</table>");
}

/// The assumptions that move predictions most.
fn assumptions(page: &mut String, weights: &[Weight]) {
    page.push_str(&format!(
        "<h2>What is assumed</h2><p class=\"about\">{}.</p><table class=\"claims\"><tr><th>assumption</th><th>value</th>\
         <th>moves</th><th>by</th></tr>",
        escape(&about_weights())
    ));
    for weight in weights.iter().take(LISTED) {
        let cells = cells(weight).map(|cell| format!("<td>{}</td>", escape(&cell)));
        page.push_str(&format!("<tr>{}</tr>", cells.concat()));
    }
    page.push_str("</table>");
}

fn table(page: &mut String, study: Study, claims: &[Claim], outcomes: &[&Outcome]) {
    page.push_str(&format!(
        "<h2>{}</h2><p class=\"about\">{}</p><table class=\"claims\"><tr><th></th><th></th><th>published</th><th>predicted</th>\
         <th>range</th><th></th><th>error</th><th>verdict</th></tr>",
        escape(study.title()),
        escape(study.built())
    ));
    for outcome in outcomes {
        let (class, word) = match outcome.verdict {
            Verdict::Contradictory => ("apart", "contradictory"),
            _ if !outcome.blind => ("apart", "not blind"),
            Verdict::Within => ("yes", "within"),
            Verdict::QualitativeRight => ("yes", "right"),
            Verdict::Miss => ("no", "miss"),
            Verdict::QualitativeWrong => ("no", "wrong"),
        };
        page.push_str(&format!(
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td><span class=\"badge {class}\">{word}</span></td></tr>",
            outcome.id,
            escape(&outcome.statement),
            escape(&outcome.published.to_string()),
            escape(&outcome.predicted.to_string()),
            range(outcome),
            outcome.unit,
            error(outcome)
        ));
    }
    page.push_str("</table><p class=\"note\">");
    for (ids, note) in notes(outcomes) {
        page.push_str(&format!("<small><b>{ids}</b> {}<br></small>", escape(note)));
    }
    for claim in untested(study, claims) {
        page.push_str(&format!("<small><b>{}</b> {}<br></small>", claim.id, escape(claim.untested)));
    }
    page.push_str("</p>");
}

/// A figure's heading, what it shows, and what its colours mean.
fn figure(page: &mut String, heading: &str, about: &str, key: &[(&str, Colour)]) {
    page.push_str(&format!("<h3>{}</h3><p class=\"key\">{}<br>", escape(heading), escape(about)));
    for (name, Colour(red, green, blue)) in key {
        let class = if *name == PUBLISHED { "diamond" } else { "swatch" };
        page.push_str(&format!(
            "<span><span class=\"{class}\" style=\"background:rgb({red},{green},{blue})\"></span>{}</span> ",
            escape(name)
        ));
    }
    page.push_str("</p>");
}

fn adapter(page: &mut String, figures: &Figures) -> Result<(), String> {
    let mut key = plot::TICKS.to_vec();
    key.push((PUBLISHED, INK));
    let about =
        "Frames of 242 bytes, by a shaper that a timer of 2,048 Hz drives. Dashed: what was asked for.";
    figure(page, "Figure 3: rate put out over the shaping rate", about, &key);
    page.push_str(&plot::shaped(&figures.shaped)?);
    Ok(())
}

fn router(page: &mut String, figures: &Figures) -> Result<(), String> {
    let about = "Frames of 64 bytes by all ports at their rate. Dashed: the published range, whose numbers of rules the text does not have.";
    figure(page, "Aggregate throughput over rules", about, &[("range matching", BLUE)]);
    page.push_str(&plot::aggregate(&figures.aggregate)?);
    let about = "Packets a second of each of 500 flows with a rule and a bucket of their own. Dashed: what its bucket admits.";
    figure(page, "Figure 5: each of 500 flows", about, &plot::LOADS);
    page.push_str(&plot::fairness(&figures.fairness)?);
    Ok(())
}

fn protocol(page: &mut String, figures: &Figures) -> Result<(), String> {
    let mut key = plot::CASES.to_vec();
    key.push((PUBLISHED, INK));
    for of in Mix::ALL {
        let (heading, about, unit) = match of {
            Mix::Length => (
                "Figure 2: throughput over the mean length",
                "Two cores and TCP of open connections. Dashed: what the line brings.",
                "bytes of a packet, on average",
            ),
            Mix::Small => (
                "Figure 4: over the share of small packets, average case",
                "TCP connections from handshake to close, small packets about 70 bytes, large ones about 170.",
                "% of packets that are small",
            ),
            Mix::Large => (
                "Figure 5: over the share of large packets, worst case",
                "All of TCP that is translated.",
                "% of packets that are large",
            ),
            Mix::Udp => (
                "Figure 6: over the share of UDP",
                "Packets of 69 bytes on average, TCP of the average case.",
                "% of packets that are UDP",
            ),
        };
        figure(page, heading, about, &key);
        page.push_str(&plot::mixed(of, unit, &figures.mixes)?);
    }
    Ok(())
}

fn firewall(page: &mut String, figures: &Figures) -> Result<(), String> {
    let mut key: Vec<(&str, Colour)> =
        Implementation::ALL.into_iter().map(|of| (of.name(), plot::of(of))).collect();
    key.push((PUBLISHED, INK));
    figure(
        page,
        "Figure 5: throughput over rules",
        "100 % is a gigabit of frames of 64 bytes; every packet meets every rule. Published: the most rules at 100 %.",
        &key,
    );
    page.push_str(&plot::throughput(&figures.throughput)?);
    let key = [
        (Implementation::Sram.name(), plot::of(Implementation::Sram)),
        (Implementation::Local.name(), plot::of(Implementation::Local)),
        (PUBLISHED, INK),
    ];
    figure(
        page,
        "Figure 6: beside the paper's simple estimate",
        "Dashed: 403 cycles a packet on each of three engines, less 100, by 50 (SRAM) or 40 (local memory) a rule. Lines: the model.",
        &key,
    );
    page.push_str(&plot::estimates(&figures.throughput)?);
    Ok(())
}

fn crypto(page: &mut String, figures: &Figures) -> Result<(), String> {
    figure(
        page,
        "Figure 2: instruction mix and size of raw code",
        "The published average of ALU instructions is 79.9 %, multiplications included.",
        &plot::KINDS,
    );
    for Steps { cipher, reports } in &figures.steps {
        let Some(raw) = reports.first() else { continue };
        let parts: Vec<(f64, Colour, &str)> = raw
            .mix
            .iter()
            .zip(plot::KINDS)
            .map(|(share, (name, colour))| (share.share, colour, name))
            .collect();
        row(page, cipher.about.name, &parts, &format!("{} instructions", raw.code_size));
    }
    let mut key = plot::STEPS.to_vec();
    key.push((PUBLISHED, INK));
    figure(page, "Figure 3: one thread, by step of optimisation", "Mbit/s, on a logarithmic axis.", &key);
    page.push_str(&plot::steps(&figures.steps)?);
    for (place, (step, _)) in plot::STEPS.into_iter().enumerate() {
        figure(
            page,
            &format!("Figure 4: what the engine did, {step}"),
            "One thread. The rest of the time it was idle.",
            if place == 0 { &plot::STATES } else { &[] },
        );
        for Steps { cipher, reports } in &figures.steps {
            let Some(report) = reports.get(place) else { continue };
            row(page, cipher.about.name, &states(report), &format!("{:.1} Mbit/s", report.mbps));
        }
    }
    figure(
        page,
        "Figure 5: engines and threads",
        "Gbit/s over engines, each cipher on a scale of its own.",
        &plot::THREADS,
    );
    page.push_str(&plot::scaling(&figures.scaling)?);
    Ok(())
}

fn states(report: &CipherReport) -> Vec<(f64, Colour, &'static str)> {
    let Some(engine) = report.engines.first() else { return Vec::new() };
    let shares = [engine.executing, engine.aborted, engine.stalled];
    shares.into_iter().zip(plot::STATES).map(|(share, (name, colour))| (share, colour, name)).collect()
}

/// A bar of parts, each a share of 1.
fn row(page: &mut String, name: &str, parts: &[(f64, Colour, &str)], note: &str) {
    page.push_str(&format!(
        "<div class=\"row\"><span class=\"name\">{}</span><span class=\"bar\">",
        escape(name)
    ));
    for (share, Colour(red, green, blue), part) in parts {
        let width = share.clamp(0.0, 1.0) * 100.0;
        page.push_str(&format!(
            "<span style=\"width:{width:.3}%;background:rgb({red},{green},{blue})\" title=\"{part} {width:.1} %\"></span>"
        ));
    }
    page.push_str(&format!("</span><span class=\"value\">{}</span></div>", escape(note)));
}
