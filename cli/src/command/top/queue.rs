//! Queues on the screen of `wirerate top`: those whose packets wait or are lost come first.

use std::cmp::Reverse;

use gateway::view::LeafView;
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::Span;
use ratatui::widgets::{Block, Cell, Row, Table};

use super::{DIM, HEAD, Screen, right, short};
use crate::command::queues::{Now, millis_text, same};

const TITLES: [&str; 14] = [
    "queue",
    "interface",
    "",
    "bit/s",
    "packets/s",
    "waiting",
    "bytes",
    "full/s",
    "early/s",
    "marked/s",
    "p50 ms",
    "p90 ms",
    "p99 ms",
    "max ms",
];

const WIDTHS: [u16; 13] = [12, 5, 8, 9, 8, 8, 7, 7, 8, 9, 9, 9, 9];

/// Draws the queues of trees.
pub(super) fn table(frame: &mut Frame<'_>, area: Rect, screen: &Screen) {
    let ago = screen.now.at.duration_since(screen.before.at);
    let mut all: Vec<(&str, &LeafView, Now)> = Vec::new();
    for view in &screen.now.queues {
        for leaf in &view.queues {
            let before = same(&screen.before.queues, &view.interface, leaf).unwrap_or(leaf);
            all.push((&view.interface, leaf, Now::of(leaf, before, ago)));
        }
    }
    // The order of the policy among equals, so that rows do not jump.
    all.sort_by_key(|(_, leaf, now)| {
        let lost = now.full + now.early;
        Reverse((lost as u64, u64::from(leaf.waiting > 0), now.rate_bps as u64 >> 16))
    });
    let title = match all.len() {
        0 => " no trees of queues: each interface has one queue ".to_owned(),
        _ => " queues ".to_owned(),
    };
    let rows = all.iter().map(|(interface, leaf, now)| {
        let lost = if now.full + now.early > 0.0 { Style::from(Color::Red) } else { Style::new() };
        Row::new([
            Cell::from(Span::styled(leaf.name.clone(), lost)),
            Cell::from(*interface),
            Cell::from(leaf.side.as_str()),
            right(short(now.rate_bps)),
            right(short(now.packets)),
            right(leaf.waiting.to_string()),
            right(short(leaf.waiting_bytes as f64)),
            right(short(now.full)),
            right(short(now.early)),
            right(short(now.marked)),
            right(millis_text(now.delay.p50)),
            right(millis_text(now.delay.p90)),
            right(millis_text(now.delay.p99)),
            right(millis_text(now.delay.max)),
        ])
    });
    let widths = [Constraint::Min(14)].into_iter().chain(WIDTHS.map(Constraint::Length));
    let table = Table::new(rows, widths)
        .header(Row::new(TITLES.map(Cell::from)).style(HEAD))
        .block(Block::bordered().title(title).border_style(DIM));
    frame.render_widget(table, area);
}
