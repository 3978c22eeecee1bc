//! `wirerate queues`: rates, backlog, drops and delays of a running gateway's queues and of their subscribers.

use std::io::Write;
use std::time::{Duration, Instant};

use clap::Args;
use gateway::api::QueueQuery;
use gateway::subscriber::{SubscriberOrder, SubscriberQuery, SubscriberView};
use gateway::view::{DelayView, LeafView, QueueView};
use serde::Serialize;

use super::live::{Ask, Table};
use crate::failure::{Exit, Failure};
use crate::screen::{self, DIM};
use crate::with_exit_codes;

/// Show the queues of a running gateway: what goes through them, what waits and for how long, and what is dropped
///
/// Each interface has a queue, or the trees of queues that the policy gives it. Rates, drops and delays of the queues of trees
/// are those of a second, during which the gateway is watched; --seconds says how long, and 0 shows what has been counted since
/// the start. With --subscribers those who have queues of their own (`per`) are listed in the place of queues.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate queues
  wirerate queues --seconds 10
  wirerate queues --json | jq '.[].queues[] | {name, now}'
  wirerate queues --subscribers 20
  wirerate queues --subscribers 5 --of subscriber --by backlog --json

Drops are `full` for want of room, and `early` by active queue management, which \
in their place marks packets that know ECN. Delays are times in the queue of the \
packets that left it, to an eighth: what 50, 90 and 99 % did not exceed, and the longest.

--json prints an array of interfaces: interface, waiting, capacity (frames), \
worker (that serves the trees, where one of several does), and \
queues, each with name, side, classes, waiting, waiting_bytes, and, since the start, \
sent (packets, bytes), dropped_full, dropped_early, marked, delay (nanoseconds); and \
`now`, over the seconds watched: rate_bps, packets, full, early and marked a second, and delay.
With --subscribers it is an array of subscribers: subscriber (address or prefix), \
queue, interface, side, rate_bps, waiting, waiting_bytes, sent, dropped_full, \
dropped_early, delay_ns, a mean in which each packet counts one eighth, and delay (p50, p90, \
p99, in nanoseconds), of one in sixteen of the last packets, to a power of two."))]
pub(crate) struct Arguments {
    /// Time over which rates, drops and delays are taken; 0: since the start
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    seconds: f64,

    /// List the N subscribers with the highest rates instead
    #[arg(long, value_name = "N")]
    subscribers: Option<usize>,

    /// Subscribers of this queue only
    #[arg(long, value_name = "QUEUE", requires = "subscribers")]
    of: Option<String>,

    /// Order of subscribers: by rate, or by bytes that wait
    #[arg(long, value_enum, default_value = "rate", requires = "subscribers")]
    by: Order,

    #[command(flatten)]
    ask: Ask,
}

/// Order of subscribers.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Order {
    /// Highest rates first.
    Rate,
    /// Most bytes that wait first.
    Backlog,
}

/// A time of 0 to 30 seconds.
fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds == 0.0 || (0.1..=30.0).contains(seconds));
    seconds.ok_or_else(|| "0, or from 0.1 to 30 seconds".to_owned())
}

/// Queue of a tree, with what happened between two looks.
#[derive(Serialize)]
struct Watched {
    #[serde(flatten)]
    leaf: LeafView,
    #[serde(skip_serializing_if = "Option::is_none")]
    now: Option<Now>,
}

/// Events between two looks, by the second.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Now {
    pub(crate) rate_bps: f64,
    pub(crate) packets: f64,
    pub(crate) full: f64,
    pub(crate) early: f64,
    pub(crate) marked: f64,
    pub(crate) delay: DelayView,
}

impl Now {
    /// Events of a queue since `before`, which was so long ago.
    pub(crate) fn of(leaf: &LeafView, before: &LeafView, ago: Duration) -> Now {
        let seconds = ago.as_secs_f64().max(1e-3);
        // After a restart of the gateway, counts begin at zero.
        let rate = |of: fn(&LeafView) -> u64| of(leaf).saturating_sub(of(before)) as f64 / seconds;
        Now {
            rate_bps: 8.0 * rate(|leaf| leaf.sent.bytes),
            packets: rate(|leaf| leaf.sent.packets),
            full: rate(|leaf| leaf.dropped_full),
            early: rate(|leaf| leaf.dropped_early),
            marked: rate(|leaf| leaf.marked),
            delay: DelayView::of(&leaf.delays_since(before)),
        }
    }
}

/// The queue of an earlier look that is this one.
pub(crate) fn same<'a>(before: &'a [QueueView], interface: &str, leaf: &LeafView) -> Option<&'a LeafView> {
    let queues = before.iter().filter(|view| view.interface == interface).flat_map(|view| &view.queues);
    queues.into_iter().find(|before| before.name == leaf.name && before.side == leaf.side)
}

/// Interface with its queues.
#[derive(Serialize)]
struct Interface {
    interface: String,
    waiting: usize,
    capacity: usize,
    worker: Option<u16>,
    queues: Vec<Watched>,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        if let Some(most) = self.subscribers {
            return self.subscribers(most);
        }
        let client = self.ask.client();
        let wanted = QueueQuery { delays: true };
        let look = || client.get_with::<Vec<QueueView>>("/queues", &wanted);
        let (begun, first) = (Instant::now(), look()?);
        let before = if self.seconds > 0.0 {
            std::thread::sleep(Duration::from_secs_f64(self.seconds));
            Some((first.clone(), begun.elapsed()))
        } else {
            None
        };
        let views = if before.is_some() { look()? } else { first };
        let interfaces: Vec<Interface> =
            views.into_iter().map(|view| watched(view, before.as_ref())).collect();
        if self.ask.as_json(&interfaces)? {
            return Ok(Exit::Done);
        }
        let mut table = Table::new(["queue", "waiting", "capacity", "worker"]);
        for view in &interfaces {
            let worker = view.worker.map_or_else(|| "-".to_owned(), |worker| worker.to_string());
            let (waiting, capacity) = (view.waiting.to_string(), view.capacity.to_string());
            table.row([view.interface.clone(), waiting, capacity, worker]);
        }
        table.print()?;
        if interfaces.iter().any(|view| !view.queues.is_empty()) {
            print(&interfaces, self.seconds)?;
        }
        Ok(Exit::Done)
    }

    fn subscribers(&self, most: usize) -> Result<Exit, Failure> {
        let by = match self.by {
            Order::Rate => SubscriberOrder::Rate,
            Order::Backlog => SubscriberOrder::Backlog,
        };
        // Without a time of its own a rate needs some.
        let millis = if self.seconds > 0.0 { (self.seconds * 1e3) as u64 } else { 1_000 };
        let query = SubscriberQuery { of: self.of.clone(), by, most: Some(most), millis: Some(millis) };
        let found: Vec<SubscriberView> = self.ask.client().get_with("/subscribers", &query)?;
        if self.ask.as_json(&found)? {
            return Ok(Exit::Done);
        }
        if found.is_empty() {
            writeln!(screen::out(), "no subscriber has queues of its own")?;
            return Ok(Exit::Done);
        }
        let mut table = Table::new([
            "subscriber",
            "queue",
            "side",
            "interface",
            "rate",
            "waiting",
            "bytes",
            "packets",
            "full",
            "early",
            "delay ms",
            "p50",
            "p99",
        ]);
        for view in found {
            table.row([
                view.subscriber,
                view.queue,
                view.side,
                view.interface,
                screen::rate(view.rate_bps),
                view.waiting.to_string(),
                view.waiting_bytes.to_string(),
                view.sent.packets.to_string(),
                view.dropped_full.to_string(),
                view.dropped_early.to_string(),
                millis_text(view.delay_ns),
                view.delay.p50.map_or_else(String::new, millis_text),
                view.delay.p99.map_or_else(String::new, millis_text),
            ]);
        }
        table.print().map(|()| Exit::Done)
    }
}

/// An interface, beside an earlier look.
fn watched(view: QueueView, before: Option<&(Vec<QueueView>, Duration)>) -> Interface {
    let QueueView { interface, waiting, capacity, worker, queues } = view;
    let queues = queues.into_iter().map(|leaf| {
        let now =
            before.and_then(|(before, ago)| Some(Now::of(&leaf, same(before, &interface, &leaf)?, *ago)));
        Watched { leaf: LeafView { delays: Vec::new(), ..leaf }, now }
    });
    let queues = queues.collect();
    Interface { interface, waiting, capacity, worker, queues }
}

pub(crate) fn millis_text(nanos: u64) -> String {
    format!("{:.3}", nanos as f64 / 1e6)
}

/// Prints the queues of trees.
fn print(interfaces: &[Interface], seconds: f64) -> Result<(), Failure> {
    let is_now = seconds > 0.0;
    let of_rate = if is_now {
        ["rate", "packets/s", "full/s", "early/s", "marked/s"]
    } else {
        ["bytes", "packets", "full", "early", "marked"]
    };
    let [first, second, full, early, marked] = of_rate;
    let mut table = Table::new([
        "interface",
        "side",
        "queue",
        "class",
        first,
        second,
        "waiting",
        "bytes",
        full,
        early,
        marked,
        "p50 ms",
        "p90 ms",
        "p99 ms",
        "max ms",
    ]);
    for view in interfaces {
        for Watched { leaf, now } in &view.queues {
            let counts = match now {
                Some(now) => [
                    screen::rate(now.rate_bps),
                    format!("{:.0}", now.packets),
                    format!("{:.0}", now.full),
                    format!("{:.0}", now.early),
                    format!("{:.0}", now.marked),
                ],
                None if is_now => Default::default(),
                None => {
                    [leaf.sent.bytes, leaf.sent.packets, leaf.dropped_full, leaf.dropped_early, leaf.marked]
                        .map(|count| count.to_string())
                }
            };
            let [first, second, full, early, marked] = counts;
            let delay = now.map_or(leaf.delay, |now| now.delay);
            table.row([
                view.interface.clone(),
                leaf.side.clone(),
                leaf.name.clone(),
                classes(&leaf.classes),
                first,
                second,
                leaf.waiting.to_string(),
                leaf.waiting_bytes.to_string(),
                full,
                early,
                marked,
                millis_text(delay.p50),
                millis_text(delay.p90),
                millis_text(delay.p99),
                millis_text(delay.max),
            ]);
        }
    }
    writeln!(screen::out())?;
    table.print()?;
    if is_now {
        writeln!(
            screen::out(),
            "{DIM}Over {seconds} s; --seconds 0 shows what has been counted since the start.{DIM:#}"
        )?;
    }
    Ok(())
}

/// The first classes by name, and the number of the others.
fn classes(names: &[String]) -> String {
    match names {
        [] => "-".to_owned(),
        [one] => one.clone(),
        [first, others @ ..] => format!("{first} +{}", others.len()),
    }
}
