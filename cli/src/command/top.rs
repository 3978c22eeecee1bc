//! `wirerate top`: a running gateway on one screen, second by second.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use gateway::api::QueueQuery;
use gateway::{Client, view};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table};
use ratatui::{DefaultTerminal, Frame};

use super::live::SOCKET;
use crate::failure::{Exit, Failure};
use crate::with_exit_codes;

mod queue;

/// Watch a running gateway, second by second
///
/// Shows what goes through each port, which rules and translations are busy, and what is dropped and why; `tab` changes to the
/// queues of the policy, with rates, what waits, drops and delays, and back. `q` ends it.
/// Where standard output is no terminal, or one without a size, a line is printed for each interval.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate top
  wirerate top --seconds 10 | cat"))]
pub(crate) struct Arguments {
    /// Where the gateway takes commands
    #[arg(long, value_name = "PATH", default_value = SOCKET, env = "WIRERATE_SOCKET")]
    socket: PathBuf,

    /// Seconds between two looks, at least 0.1
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,

    /// End after this many seconds
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
}

/// True if there is anything to draw on. A serial line, and what plays a terminal, may have no size.
fn has_screen() -> bool {
    let is_large = || terminal::size().is_ok_and(|(columns, rows)| columns > 0 && rows > 0);
    io::stdout().is_terminal() && is_large()
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "from 0.1 to 3600 seconds".to_owned())
}

impl Arguments {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let client = Client::at(&self.socket);
        let end = self.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        // Before the screen is taken over: an error is then seen.
        let first = Look::take(&client)?;
        if has_screen() {
            let terminal = ratatui::init();
            let outcome = watch(terminal, &client, first, self.interval, end);
            ratatui::restore();
            outcome?;
        } else {
            print(&client, first, self.interval, end)?;
        }
        Ok(Exit::Done)
    }
}

/// Snapshot of a gateway.
struct Look {
    at: Instant,
    status: view::Status,
    ports: Vec<view::PortView>,
    rules: Vec<view::RuleView>,
    nats: Vec<view::NatView>,
    drops: Vec<view::DropView>,
    queues: Vec<view::QueueView>,
}

impl Look {
    fn take(client: &Client) -> Result<Look, Failure> {
        Ok(Look {
            at: Instant::now(),
            status: client.get("/status")?,
            ports: client.get("/ports")?,
            rules: client.get("/rules")?,
            nats: client.get("/nat")?,
            drops: client.get("/drops")?,
            queues: client.get_with("/queues", &QueueQuery { delays: true })?,
        })
    }
}

/// Two looks one after the other, and what happened in between.
struct Screen {
    before: Look,
    now: Look,
    /// Frames received a second, the newest last.
    history: Vec<u64>,
    page: Page,
}

/// Page below the head of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Page {
    /// Ports, rules and drops.
    #[default]
    Ports,
    /// Queues of trees.
    Queues,
}

impl Screen {
    fn seconds(&self) -> f64 {
        self.now.at.duration_since(self.before.at).as_secs_f64().max(1e-3)
    }

    /// Returns the growth of a count per second. After a restart of the gateway, counts begin at zero.
    fn rate(&self, before: u64, now: u64) -> f64 {
        now.saturating_sub(before) as f64 / self.seconds()
    }

    fn received(&self) -> f64 {
        self.rate(self.before.status.received, self.now.status.received)
    }

    fn advance(&mut self, next: Look) {
        self.before = std::mem::replace(&mut self.now, next);
        self.history.push(self.received() as u64);
        if self.history.len() > 600 {
            self.history.remove(0);
        }
    }

    /// Share of the time in which the workers had something to do, in per cent of one core.
    fn busy(&self) -> f64 {
        let sum = |look: &Look| look.status.workers.iter().map(|worker| worker.busy_seconds).sum::<f64>();
        100.0 * (sum(&self.now) - sum(&self.before)).max(0.0) / self.seconds()
    }
}

/// Looks again and again, on a screen, until it is told to end.
fn watch(
    mut terminal: DefaultTerminal,
    client: &Client,
    first: Look,
    interval: Duration,
    end: Option<Instant>,
) -> Result<(), Failure> {
    let second = Look::take(client)?;
    let mut screen = Screen { before: first, now: second, history: Vec::new(), page: Page::default() };
    let mut next = Instant::now() + interval;
    loop {
        terminal.draw(|frame| draw(frame, &screen))?;
        loop {
            let wait = next.saturating_duration_since(Instant::now());
            if wait.is_zero() || !event::poll(wait)? {
                break;
            }
            match event::read()? {
                Event::Key(key) if key.kind == KeyEventKind::Press => {
                    let interrupted =
                        key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                    if interrupted || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                        return Ok(());
                    }
                    if key.code == KeyCode::Tab {
                        screen.page = match screen.page {
                            Page::Ports => Page::Queues,
                            Page::Queues => Page::Ports,
                        };
                        terminal.draw(|frame| draw(frame, &screen))?;
                    }
                }
                Event::Resize(..) => {
                    terminal.draw(|frame| draw(frame, &screen))?;
                }
                _ => {}
            }
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            return Ok(());
        }
        next = Instant::now() + interval;
        screen.advance(Look::take(client)?);
    }
}

/// Looks again and again, and prints a line each time.
fn print(client: &Client, first: Look, interval: Duration, end: Option<Instant>) -> Result<(), Failure> {
    let mut before = first;
    let mut out = crate::screen::out();
    loop {
        std::thread::sleep(interval);
        let now = Look::take(client)?;
        let screen = Screen { before, now, history: Vec::new(), page: Page::default() };
        let status = &screen.now.status;
        let dropped = screen.rate(screen.before.status.dropped, status.dropped);
        writeln!(
            out,
            "up {:.0} s  received {}/s  dropped {}/s  flows {}  busy {:.0} %",
            status.uptime_seconds,
            short(screen.received()),
            short(dropped),
            status.flows,
            screen.busy()
        )?;
        out.flush()?;
        if end.is_some_and(|end| Instant::now() >= end) {
            return Ok(());
        }
        before = screen.now;
    }
}

const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const HEAD: Style = Style::new().add_modifier(Modifier::BOLD);

fn draw(frame: &mut Frame<'_>, screen: &Screen) {
    if screen.page == Page::Queues {
        let [top, below] = Layout::vertical([Constraint::Length(3), Constraint::Min(4)]).areas(frame.area());
        head(frame, top, screen);
        return queue::table(frame, below, screen);
    }
    let ports = screen.now.ports.len() as u16 + 3;
    let [top, curve, middle, below] = Layout::vertical([
        Constraint::Length(3),
        Constraint::Length(5),
        Constraint::Length(ports),
        Constraint::Min(4),
    ])
    .areas(frame.area());
    head(frame, top, screen);
    let title = format!(" received: {}/s ", short(screen.received()));
    let width = usize::from(curve.width.saturating_sub(2));
    let shown = &screen.history[screen.history.len().saturating_sub(width)..];
    let block = Block::bordered().title(title).border_style(DIM);
    frame.render_widget(Sparkline::default().block(block).data(shown).style(Color::Green), curve);
    port_table(frame, middle, screen);
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(55), Constraint::Percentage(45)]).areas(below);
    names(frame, left, screen);
    drops(frame, right, screen);
}

fn head(frame: &mut Frame<'_>, area: Rect, screen: &Screen) {
    let status = &screen.now.status;
    let mut first = vec![
        Span::styled(format!("wirerate {}", status.version), HEAD),
        Span::raw(format!(
            "  up {}  epoch {}  flows {} of {}  busy {:.0} %",
            time(status.uptime_seconds),
            status.epoch,
            short(status.flows as f64),
            short(status.flow_capacity as f64),
            screen.busy()
        )),
    ];
    if let Some(seconds) = status.trial_seconds {
        let text = format!("  policy on trial: back in {seconds:.0} s");
        first.push(Span::styled(text, Color::Yellow));
    }
    let before = &screen.before.status;
    let each = [
        ("forwarded", before.forwarded, status.forwarded),
        ("delivered", before.delivered, status.delivered),
        ("answered", before.answered, status.answered),
        ("dropped", before.dropped, status.dropped),
    ];
    let second: Vec<Span<'_>> = each
        .iter()
        .map(|(name, before, now)| Span::raw(format!("{name} {}/s  ", short(screen.rate(*before, *now)))))
        .chain([Span::raw(format!("held {}", status.held))])
        .collect();
    let other = match screen.page {
        Page::Ports => "queues",
        Page::Queues => "ports and rules",
    };
    let keys = Line::styled(format!("q ends, tab shows {other}"), DIM);
    frame.render_widget(Paragraph::new(vec![Line::from(first), Line::from(second), keys]), area);
}

fn port_table(frame: &mut Frame<'_>, area: Rect, screen: &Screen) {
    let titles =
        ["port", "state", "driver", "in/s", "out/s", "in bit/s", "out bit/s", "missed", "to Linux/s"];
    let rows = screen.now.ports.iter().map(|now| {
        let name = &now.port.interface;
        let before = screen.before.ports.iter().find(|view| view.port.interface == *name).unwrap_or(now);
        let rate = |of: fn(&view::PortView) -> u64| screen.rate(of(before), of(now));
        let state = now.port.state.to_string();
        let colour = if state == "up" { Color::Green } else { Color::Red };
        Row::new([
            Cell::from(name.clone()),
            Cell::from(Span::styled(state, colour)),
            Cell::from(now.port.driver.clone()),
            right(short(rate(|view| view.received))),
            right(short(rate(|view| view.sent))),
            right(short(8.0 * rate(|view| view.received_bytes))),
            right(short(8.0 * rate(|view| view.sent_bytes))),
            right(now.missed.to_string()),
            right(short(rate(|view| view.delivered))),
        ])
    });
    let widths = [12, 7, 18, 8, 8, 9, 9, 8, 10].map(Constraint::Length);
    let table = Table::new(rows, widths)
        .header(Row::new(titles.map(Cell::from)).style(HEAD))
        .block(Block::bordered().title(" ports ").border_style(DIM));
    frame.render_widget(table, area);
}

/// Rules and translations, the busiest first.
fn names(frame: &mut Frame<'_>, area: Rect, screen: &Screen) {
    let rules = screen.now.rules.iter().map(|now| {
        let before = screen.before.rules.iter().find(|view| view.name == now.name).map(|view| view.count);
        ("rule", &now.name, &now.action, before.unwrap_or(now.count), now.count)
    });
    let nats = screen.now.nats.iter().map(|now| {
        let same = |view: &&view::NatView| view.name == now.name && view.side == now.side;
        let before = screen.before.nats.iter().find(same).map(|view| view.count);
        ("nat", &now.name, &now.side, before.unwrap_or(now.count), now.count)
    });
    let mut all: Vec<_> = rules.chain(nats).collect();
    all.sort_by_key(|(.., before, now)| {
        std::cmp::Reverse((now.packets.saturating_sub(before.packets), now.packets))
    });
    let rows = all.into_iter().map(|(kind, name, what, before, now)| {
        Row::new([
            Cell::from(kind),
            Cell::from(name.clone()),
            Cell::from(what.clone()),
            right(short(screen.rate(before.packets, now.packets))),
            right(short(now.packets as f64)),
        ])
    });
    let widths = [
        Constraint::Length(5),
        Constraint::Min(12),
        Constraint::Length(12),
        Constraint::Length(9),
        Constraint::Length(9),
    ];
    let table = Table::new(rows, widths)
        .header(Row::new(["", "name", "", "packets/s", "packets"].map(Cell::from)).style(HEAD))
        .block(Block::bordered().title(" rules and translations ").border_style(DIM));
    frame.render_widget(table, area);
}

fn drops(frame: &mut Frame<'_>, area: Rect, screen: &Screen) {
    let mut all: Vec<_> = screen
        .now
        .drops
        .iter()
        .map(|now| {
            let before = screen.before.drops.iter().find(|view| view.reason == now.reason);
            let sum = |view: &view::DropView| view.dropped + view.answered;
            (&now.reason, before.map_or(0, sum), sum(now))
        })
        .collect();
    all.sort_by_key(|(_, before, now)| std::cmp::Reverse((now.saturating_sub(*before), *now)));
    let rows = all.into_iter().map(|(reason, before, now)| {
        Row::new([
            Cell::from(reason.clone()),
            right(short(screen.rate(before, now))),
            right(short(now as f64)),
        ])
    });
    let widths = [Constraint::Min(16), Constraint::Length(9), Constraint::Length(9)];
    let table = Table::new(rows, widths)
        .header(Row::new(["reason", "frames/s", "frames"].map(Cell::from)).style(HEAD))
        .block(Block::bordered().title(" dropped and answered ").border_style(DIM));
    frame.render_widget(table, area);
}

fn right(text: String) -> Cell<'static> {
    Cell::from(Line::from(text).right_aligned())
}

/// Three digits and a unit of a thousand: `1.23 M`.
fn short(number: f64) -> String {
    let units = ["", "k", "M", "G", "T"];
    let mut value = number.max(0.0);
    let mut unit = 0;
    // What would be rounded to 1000 has the next unit.
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    match (unit, value) {
        (0, value) => format!("{value:.0}"),
        (_, value) if value < 9.995 => format!("{value:.2} {}", units[unit]),
        (_, value) if value < 99.95 => format!("{value:.1} {}", units[unit]),
        (_, value) => format!("{value:.0} {}", units[unit]),
    }
}

/// Hours, minutes and seconds.
fn time(seconds: f64) -> String {
    let whole = seconds as u64;
    let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
    if hours > 0 { format!("{hours}h{minutes:02}m") } else { format!("{minutes}m{seconds:02}s") }
}

#[cfg(test)]
mod tests {
    use super::{short, time};

    #[test]
    fn numbers_have_three_digits() {
        let told: Vec<String> =
            [0.0, 7.4, 999.0, 999.6, 1234.0, 45_678.0, 999_600.0, 2.5e9, 1e16].map(short).into();
        assert_eq!(told, ["0", "7", "999", "1.00 k", "1.23 k", "45.7 k", "1.00 M", "2.50 G", "10000 T"]);
    }

    #[test]
    fn times_are_short() {
        assert_eq!([time(0.9), time(61.0), time(7_260.0)], ["0m00s", "1m01s", "2h01m"]);
    }
}
