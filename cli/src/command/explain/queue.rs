//! Queues of a running gateway that an explained packet would wait in.

use std::time::{Duration, Instant};

use dataplane::egress::TreeSide;
use dataplane::explain::Account;
use dataplane::tables::NodeKind;
use dataplane::{Tables, Verdict};
use gateway::Client;
use gateway::api::QueueQuery;
use gateway::view::{LeafView, QueueView};
use policy::dropper_name;
use report::explain::{LeafAt, queued};
use serde_json::{Value, json};

use crate::command::queues::{Now, same};
use crate::failure::Failure;
use crate::screen::{self, count, number};

/// Queue of a running gateway that the packet would wait in.
pub(super) struct LiveWait {
    interface: String,
    leaf: LeafView,
    now: Now,
    limit: u64,
    limit_bytes: u64,
    dropper: &'static str,
}

/// Time over which a running gateway is watched.
const WATCHED: Duration = Duration::from_millis(500);

/// Asks a gateway for the queues of trees that the packet would wait in.
pub(super) fn live(
    client: &Client,
    account: &Account,
    tables: &Tables,
    received: &[u8],
) -> Result<Vec<LiveWait>, Failure> {
    let mut waits = Vec::new();
    if account.verdict != Verdict::Forwarded {
        return Ok(waits);
    }
    let wanted: Vec<LeafAt> =
        queued(account, tables, received).into_iter().filter(|at| at.leaf.is_some()).collect();
    if wanted.is_empty() {
        return Ok(waits);
    }
    let look = || client.get_with::<Vec<QueueView>>("/queues", &QueueQuery { delays: true });
    let (begun, before) = (Instant::now(), look()?);
    std::thread::sleep(WATCHED);
    let (ago, views) = (begun.elapsed(), look()?);
    for at in wanted {
        let tree = match at.side {
            TreeSide::On => tables.queues.on(at.port),
            TreeSide::From => tables.queues.from(at.port),
        };
        let node = tree.zip(at.leaf).and_then(|(tree, leaf)| tree.nodes.get(leaf as usize));
        let Some((node, interface)) = node.zip(tables.interface(at.port)) else { continue };
        let NodeKind::Leaf(settings) = &node.kind else { continue };
        let view = views.iter().find(|view| view.interface == interface.name);
        let leaf = view.and_then(|view| {
            view.queues.iter().find(|leaf| leaf.name == node.name && leaf.side == at.side.name())
        });
        let Some(leaf) = leaf else { continue };
        let earlier = same(&before, &interface.name, leaf).unwrap_or(leaf);
        waits.push(LiveWait {
            interface: interface.name.clone(),
            now: Now::of(leaf, earlier, ago),
            leaf: LeafView { delays: Vec::new(), ..leaf.clone() },
            limit: settings.limit.into(),
            limit_bytes: settings.limit_bytes,
            dropper: dropper_name(settings.drop),
        });
    }
    Ok(waits)
}

impl LiveWait {
    /// True if a packet that comes now finds no room.
    fn is_full(&self) -> bool {
        self.leaf.waiting >= self.limit || self.leaf.waiting_bytes >= self.limit_bytes
    }

    /// Sentences on the queue that the packet would meet.
    pub(super) fn text(&self) -> String {
        let LiveWait { interface, leaf, now, limit, dropper, .. } = self;
        let packets = count(leaf.waiting, "packet waits", "packets wait");
        let bytes = screen::bytes(leaf.waiting_bytes);
        let mut text = format!(
            "Queue \"{}\" ({} {interface}): {packets} now, {bytes}; limit {}, drop {dropper}.",
            leaf.name,
            leaf.side,
            number(*limit)
        );
        let millis = |nanos: u64| format!("{:.3}", nanos as f64 / 1e6);
        if now.packets > 0.0 {
            let (p50, p99) = (millis(now.delay.p50), millis(now.delay.p99));
            text += &format!(
                " What has left it in the last half second had waited {p50} ms, 99 % of it {p99} ms at most; {} a second.",
                screen::rate(now.rate_bps).replace("/s", "")
            );
        } else {
            text += " Nothing has left it in the last half second.";
        }
        let lost = now.full + now.early;
        if self.is_full() {
            text += " It is full: the packet would be dropped.";
        } else if lost > 0.0 {
            text += &format!(" It drops {lost:.0} packets a second.");
        }
        text
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "interface": self.interface, "side": self.leaf.side, "name": self.leaf.name,
            "waiting": self.leaf.waiting, "waiting_bytes": self.leaf.waiting_bytes, "limit": self.limit,
            "drop": self.dropper, "is_full": self.is_full(), "now": self.now,
        })
    }
}
