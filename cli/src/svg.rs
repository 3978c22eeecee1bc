//! Drawings as SVG: cards of text, joined by lines.
//!
//! Letters have a fixed width, so that text that fits here fits in every viewer. The ground is opaque and follows the viewer's
//! scheme, light or dark: a drawing is legible on pages of any colour.

use std::fmt::Write;

use crate::html::escape;

/// Space between a card's rim and its text.
pub(crate) const PAD: f64 = 9.0;
/// Height of a line of a title.
const TITLE_LINE: f64 = 15.0;
/// Height of a line of text.
const TEXT_LINE: f64 = 13.5;
/// Width of a letter of 11 pixels; monospaced fonts have 0.60 of their size.
const LETTER: f64 = 6.63;
/// Width of a letter of a title, of 12 pixels.
const TITLE_LETTER: f64 = 7.23;
/// Rows that one piece of text may take.
const MOST_ROWS: usize = 4;

const STYLE: &str = "\
text { font: 11px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; fill: #1f2933 }
.title { font-size: 12px; font-weight: bold }
.heading { font-size: 14px; font-weight: bold }
.dim { fill: #52616f }
.ground { fill: #ffffff }
.card { stroke-width: 1 }
.queue { fill: #e6f0fa; stroke: #2b6cb0 }
.node { fill: #f1f4f7; stroke: #66788a }
.class { fill: #fdf3e7; stroke: #c05621 }
.meter { fill: #e6f6f4; stroke: #2c7a7b }
.port { fill: #ede9f8; stroke: #6b46c1 }
.rest { fill: #ffffff; stroke: #66788a; stroke-dasharray: 4 3 }
.group { fill: none; stroke: #6b46c1; stroke-dasharray: 5 3 }
.line { fill: none; stroke: #66788a; stroke-width: 1.2 }
.by-code-point { fill: none; stroke: #66788a; stroke-width: 1; stroke-dasharray: 2 3 }
@media (prefers-color-scheme: dark) {
text { fill: #e4e9ee }
.dim { fill: #a5b1bd }
.ground { fill: #16191d }
.queue { fill: #1b2c40; stroke: #63a4e0 }
.node { fill: #24292f; stroke: #8d9aa7 }
.class { fill: #38271a; stroke: #e08b4c }
.meter { fill: #17322f; stroke: #4fb8ac }
.port { fill: #2b2344; stroke: #a58be6 }
.rest { fill: #16191d; stroke: #8d9aa7 }
.group { stroke: #a58be6 }
.line, .by-code-point { stroke: #8d9aa7 }
}
";

/// Kind of a card, by which it is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Leaf, where packets wait.
    Queue,
    /// Node above leaves.
    Node,
    /// Traffic class.
    Class,
    /// Meter.
    Meter,
    /// Port.
    Port,
    /// Elements that are not drawn one by one.
    Rest,
}

impl Kind {
    const fn class(self) -> &'static str {
        match self {
            Kind::Queue => "queue",
            Kind::Node => "node",
            Kind::Class => "class",
            Kind::Meter => "meter",
            Kind::Port => "port",
            Kind::Rest => "rest",
        }
    }
}

/// Card: a title, and text below it, broken into lines that fit its width.
#[derive(Clone, Debug)]
pub(crate) struct Card {
    kind: Kind,
    width: f64,
    title: Vec<String>,
    rows: Vec<String>,
    /// All of the text, shown where the pointer rests.
    whole: String,
    /// True if the card stands for several.
    is_stack: bool,
}

impl Card {
    /// A card of that width.
    pub(crate) fn new(kind: Kind, width: f64, title: &str, text: &[String]) -> Card {
        let fits = |letter: f64| ((width - 2.0 * PAD) / letter) as usize;
        let rows = text.iter().flat_map(|line| broken(line, fits(LETTER))).collect();
        let whole =
            std::iter::once(title).chain(text.iter().map(String::as_str)).collect::<Vec<_>>().join("\n");
        Card { kind, width, title: broken(title, fits(TITLE_LETTER)), rows, whole, is_stack: false }
    }

    /// The same as a stack, for several of a kind.
    pub(crate) fn stacked(self) -> Card {
        Card { is_stack: true, ..self }
    }

    /// Height that the card takes.
    pub(crate) fn height(&self) -> f64 {
        let text = self.title.len() as f64 * TITLE_LINE + self.rows.len() as f64 * TEXT_LINE;
        text + PAD + 5.0 + if self.is_stack { 2.0 * STACK } else { 0.0 }
    }
}

/// Offset of the cards of a stack.
const STACK: f64 = 3.0;

/// Text in lines of so many letters at most; of more than there are rows for, the end is left out.
fn broken(text: &str, most: usize) -> Vec<String> {
    let most = most.max(2);
    let mut rows = Vec::new();
    let mut rest: Vec<char> = text.chars().collect();
    while rest.len() > most {
        let head = &rest[..most];
        let is_good = |letter: &char| letter.is_whitespace() || "-_./:,+".contains(*letter);
        // Behind a space, or a sign within a name, unless that leaves most of the line empty.
        let cut = match rest[most].is_whitespace() {
            true => most,
            false => head.iter().rposition(is_good).map_or(most, |place| place + 1),
        };
        let cut = if cut > most / 3 { cut } else { most };
        let row: String = rest.drain(..cut).collect();
        rows.push(row.trim_end().to_owned());
        let blanks = rest.iter().take_while(|letter| letter.is_whitespace()).count();
        rest.drain(..blanks);
    }
    if !rest.is_empty() || rows.is_empty() {
        rows.push(rest.into_iter().collect());
    }
    if rows.len() > MOST_ROWS {
        rows.truncate(MOST_ROWS);
        if let Some(last) = rows.last_mut() {
            *last = last.chars().take(most - 1).chain(['…']).collect();
        }
    }
    rows
}

/// Drawing so far.
#[derive(Debug, Default)]
pub(crate) struct Drawing {
    /// Lines, below all cards.
    lines: String,
    body: String,
    width: f64,
    height: f64,
}

impl Drawing {
    fn reach(&mut self, x: f64, y: f64) {
        self.width = self.width.max(x);
        self.height = self.height.max(y);
    }

    /// Puts a card with its upper left corner there.
    pub(crate) fn card(&mut self, card: &Card, x: f64, y: f64) {
        let class = card.kind.class();
        let whole = card.height();
        let copies = if card.is_stack { 2 } else { 0 };
        let (width, height) = (card.width, whole - f64::from(copies) * STACK);
        self.reach(x + width + 2.0 * STACK, y + whole);
        // Writing to a string does not fail.
        let _ = write!(self.body, "<g><title>{}</title>", escape(&card.whole));
        for copy in (0..=copies).rev().map(|copy| f64::from(copy) * STACK) {
            let (x, y) = (x + copy, y + copy);
            let _ = write!(
                self.body,
                "<rect class=\"card {class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"4\"/>"
            );
        }
        let mut at = y + 2.0;
        for row in &card.title {
            at += TITLE_LINE;
            self.text_in(x + PAD, at - 1.0, "title", row);
        }
        for row in &card.rows {
            at += TEXT_LINE;
            self.text_in(x + PAD, at, "dim", row);
        }
        self.body.push_str("</g>\n");
    }

    fn text_in(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let text = escape(text);
        let _ = write!(self.body, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>");
    }

    /// Puts a heading, with a line of text beside it.
    pub(crate) fn heading(&mut self, x: f64, y: f64, heading: &str, text: &str) {
        /// Width of a letter of 14 pixels.
        const LETTER_OF_HEADING: f64 = 8.43;
        self.text_in(x, y, "heading", heading);
        let beside = x + (heading.chars().count() + 2) as f64 * LETTER_OF_HEADING;
        self.text_in(beside, y, "dim", text);
        self.body.push('\n');
        self.reach(beside + text.chars().count() as f64 * LETTER, y + 4.0);
    }

    /// Puts a line of text.
    pub(crate) fn text(&mut self, x: f64, y: f64, text: &str) {
        self.text_in(x, y, "dim", text);
        self.body.push('\n');
        self.reach(x + text.chars().count() as f64 * LETTER, y + 4.0);
    }

    /// Frames a part of the drawing, of which there are several instances, with a text in the frame's upper corner.
    pub(crate) fn frames(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), text: &str) {
        let lines = &mut self.lines;
        for copy in [2.0 * STACK, STACK, 0.0] {
            let (x, y) = (x + copy, y + copy);
            let _ = writeln!(
                lines,
                "<rect class=\"group\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"7\"/>"
            );
        }
        self.reach(x + width + 2.0 * STACK, y + height + 2.0 * STACK);
        self.text(x + PAD + 2.0 * STACK, y + 2.0 * STACK + 14.0, text);
    }

    /// Joins two points: by a curve within the first `bend` pixels, then straight on.
    pub(crate) fn join(&mut self, line: Stroke, (x, y): (f64, f64), (to_x, to_y): (f64, f64), bend: f64) {
        let class = match line {
            Stroke::Full => "line",
            Stroke::Dotted => "by-code-point",
        };
        let (middle, end) = (x + bend / 2.0, x + bend);
        let _ = writeln!(
            self.lines,
            "<path class=\"{class}\" d=\"M{x:.1} {y:.1}C{middle:.1} {y:.1} {middle:.1} {to_y:.1} {end:.1} {to_y:.1}H{to_x:.1}\"/>"
        );
        self.reach(to_x, y.max(to_y));
    }

    /// Lower edge of what is there.
    pub(crate) fn bottom(&self) -> f64 {
        self.height
    }

    /// The text of the SVG file.
    pub(crate) fn finish(self, title: &str) -> String {
        const MARGIN: f64 = 16.0;
        let (width, height) = (self.width + MARGIN, self.height + MARGIN);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} \
             {height:.0}\" role=\"img\">\n<title>{}</title>\n<style>\n{STYLE}</style>\n<rect class=\"ground\" width=\"100%\" \
             height=\"100%\"/>\n{}{}</svg>\n",
            escape(title),
            self.lines,
            self.body
        )
    }
}

/// Stroke of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stroke {
    /// A full line.
    Full,
    /// A dotted line.
    Dotted,
}

#[cfg(test)]
mod tests {
    use super::{Card, Kind, broken};

    #[test]
    fn text_is_broken_where_it_fits() {
        assert_eq!(broken("short", 10), ["short"]);
        assert_eq!(broken("two words", 5), ["two", "words"]);
        assert_eq!(broken("uplink-best-effort", 8), ["uplink-", "best-", "effort"]);
        assert_eq!(broken("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(broken(&"x".repeat(100), 10).len(), 4);
        assert_eq!(broken(&"x".repeat(100), 10)[3], "xxxxxxxxx…");
        assert_eq!(broken("", 10), [""]);
        for text in ["a-b-c-d-e-f-g-h", "aaaa bbbb cccc", "rate 100 Mbit/s, burst 15000"] {
            for most in 2..20 {
                assert!(broken(text, most).iter().all(|row| row.chars().count() <= most), "{text} {most}");
            }
        }
    }

    #[test]
    fn a_card_has_room_for_its_lines() {
        let one = Card::new(Kind::Queue, 100.0, "name", &[]);
        let two = Card::new(Kind::Queue, 100.0, "name", &["limit 32 packets, 100000 bytes".to_owned()]);
        assert!(two.height() > one.height() + 20.0);
        assert!(two.clone().stacked().height() > two.height());
    }
}
