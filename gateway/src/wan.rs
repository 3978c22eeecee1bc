//! WANs of a live gateway: their standing, and the checks by echo requests or URLs that have a WAN taken as down or up.
//!
//! Each WAN with a check has a task beside those of servers. It asks out of the WAN's interface and of no other, and says when the WAN has
//! failed and when it is back. The gateway lets such requests out by a WAN that is down.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use dataplane::Tables;
use policy::Policy;
use policy::model::{Pace, Wan};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};
use wire::Family;

use crate::effective::Effective;
use crate::event::Event;
use crate::health::http::SystemTls;
use crate::health::{Ask, Check, CheckView, Checker, Counts, Health, Task, Trouble};

mod ping;
mod url;

/// Standing of a WAN, with the reason where it is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// New flows may go by it.
    Up,
    /// The policy has it out of service.
    OutOfService,
    /// Linux has no interface of that name, or it is switched off.
    NoInterface,
    /// Its interface has no carrier.
    NoCarrier,
    /// No router is known, of either IP version.
    NoGateway,
    /// Echo requests are not answered.
    Unanswered,
    /// No URL of its check is answered with a status that passes.
    UrlFailed,
}

impl Standing {
    /// The reason that a WAN is down, in words; `None` where it is up.
    pub const fn trouble(self) -> Option<&'static str> {
        match self {
            Standing::Up => None,
            Standing::OutOfService => Some("out of service by the policy"),
            Standing::NoInterface => Some("its interface is absent or switched off"),
            Standing::NoCarrier => Some("its interface has no carrier"),
            Standing::NoGateway => Some("no router is known"),
            Standing::Unanswered => Some("echo requests are not answered"),
            Standing::UrlFailed => Some("no URL of its check is answered as it should be"),
        }
    }
}

/// View of a WAN for operators.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WanView {
    /// Name.
    pub name: String,
    /// Interface.
    pub interface: String,
    /// Standing: `up`, or the reason that it is down.
    pub standing: Standing,
    /// Failure of the check that it is down by, in words.
    pub trouble: Option<String>,
    /// Routers, learnt ones too.
    pub gateways: Vec<IpAddr>,
    /// Tier.
    pub tier: u8,
    /// Weight.
    pub weight: u8,
    /// Share of new IPv4 flows, 0 to 1.
    pub share_ipv4: f64,
    /// Share of new IPv6 flows, 0 to 1.
    pub share_ipv6: f64,
    /// Check; none where the policy has none.
    pub check: Option<CheckView>,
}

/// Verdict of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckNews {
    /// WAN.
    pub wan: String,
    /// Number of the check: another check of that name has another.
    pub number: u64,
    /// Verdict.
    pub(crate) health: Health,
    /// Reason of a failure.
    pub(crate) trouble: Option<Trouble>,
}

/// Checks of all WANs.
#[derive(Default)]
pub(crate) struct Checks {
    running: BTreeMap<String, Running>,
    /// WANs that have failed their check, with the failure where it is known.
    failed: BTreeMap<String, Option<Trouble>>,
    /// Number of the next check.
    next: u64,
}

/// A check: it ends when this is dropped.
struct Running {
    plan: Plan,
    number: u64,
    counts: Arc<Counts>,
    /// None where it could not begin, which has been logged.
    _task: Option<Task>,
}

/// Check of a WAN.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Plan {
    Ping(ping::Plan),
    Url(url::Plan),
}

impl Plan {
    fn of(wan: &Wan) -> Option<Plan> {
        ping::Plan::of(wan).map(Plan::Ping).or_else(|| url::Plan::of(wan).map(Plan::Url))
    }
}

impl Checks {
    /// Starts the checks of these WANs, ends those of others, and restarts those that have changed.
    pub(crate) fn follow(&mut self, effective: &Policy, checker: &mut Checker, events: &Sender<Event>) {
        let plans: BTreeMap<&str, Plan> =
            effective.wans.iter().filter_map(|wan| Some((wan.name.as_str(), Plan::of(wan)?))).collect();
        self.running.retain(|name, running| plans.get(name.as_str()) == Some(&running.plan));
        self.failed.retain(|name, _| plans.contains_key(name.as_str()));
        let mut tls = SystemTls::default();
        for (name, plan) in plans {
            if self.running.contains_key(name) {
                continue;
            }
            let (number, counts) = (self.next, Arc::new(Counts::default()));
            self.next += 1;
            let health = if self.failed.contains_key(name) { Health::Down } else { Health::Up };
            let told = {
                let (wan, events) = (name.to_owned(), events.clone());
                move |health, trouble| {
                    // The supervisor has gone: so has the need.
                    let _ = events.send(Event::Wan(CheckNews { wan: wan.clone(), number, health, trouble }));
                }
            };
            let task = begin(&plan, &mut tls, checker, health, &counts, told);
            if let Err(error) = &task {
                warn!(wan = name, "WAN not checked, taken as up: {error}");
                self.failed.remove(name);
            }
            self.running.insert(name.to_owned(), Running { plan, number, counts, _task: task.ok() });
        }
    }

    /// Takes a verdict. True if it changes which WANs have failed.
    pub(crate) fn heard(&mut self, news: &CheckNews) -> bool {
        let is_current = self.running.get(&news.wan).is_some_and(|running| running.number == news.number);
        if !is_current {
            return false;
        }
        if let Some(trouble) = &news.trouble {
            info!(wan = news.wan, "check failed: {trouble}");
        }
        match news.health {
            Health::Down => self.failed.insert(news.wan.clone(), news.trouble.clone()).is_none(),
            Health::Up => self.failed.remove(&news.wan).is_some(),
        }
    }

    /// Names of WANs that have failed their check.
    pub(crate) fn failed(&self) -> BTreeSet<String> {
        self.failed.keys().cloned().collect()
    }

    /// Views of the WANs.
    pub(crate) fn views(&self, effective: &Effective, tables: &Tables) -> Vec<WanView> {
        let shares = [Family::V4, Family::V6].map(|family| tables.wans.shares(family));
        let share = |shares: &[usize], place: usize| {
            let all: usize = shares.iter().sum();
            shares.get(place).map_or(0.0, |own| *own as f64 / all.max(1) as f64)
        };
        let wans = effective.policy.wans.iter().zip(&effective.standings).enumerate();
        wans.map(|(place, (wan, standing))| WanView {
            name: wan.name.clone(),
            interface: wan.interface.clone(),
            standing: *standing,
            trouble: matches!(standing, Standing::Unanswered | Standing::UrlFailed)
                .then(|| self.failed.get(&wan.name)?.as_ref().map(Trouble::to_string))
                .flatten(),
            gateways: wan.gateways.clone(),
            tier: wan.tier,
            weight: wan.weight,
            share_ipv4: share(&shares[0], place),
            share_ipv6: share(&shares[1], place),
            check: self.running.get(&wan.name).map(|running| running.counts.view()),
        })
        .collect()
    }
}

/// Begins a check.
fn begin(
    plan: &Plan,
    tls: &mut SystemTls,
    checker: &mut Checker,
    health: Health,
    counts: &Arc<Counts>,
    told: impl Fn(Health, Option<Trouble>) + Send + 'static,
) -> Result<Task, String> {
    match plan {
        Plan::Ping(plan) => spawn(checker, check(plan.requests(), plan.pace, health, counts), told),
        Plan::Url(plan) => {
            let tls = match plan.needs_tls() {
                true => Some(tls.get().map_err(|trouble| trouble.to_string())?),
                false => None,
            };
            spawn(checker, check(plan.requests(tls.as_ref()), plan.pace, health, counts), told)
        }
    }
}

fn check<A: Ask>(ask: A, pace: Pace, health: Health, counts: &Arc<Counts>) -> Check<A> {
    Check { ask, pace, first: Duration::ZERO, health, counts: Arc::clone(counts) }
}

fn spawn<A: Ask>(
    checker: &mut Checker,
    check: Check<A>,
    told: impl Fn(Health, Option<Trouble>) + Send + 'static,
) -> Result<Task, String> {
    checker.spawn(check, told).map_err(|error| format!("no thread: {error}"))
}

/// Logs the WANs whose standing has changed.
pub(crate) fn log_changes(before: &Effective, now: &Effective) {
    let any_up = now.standings.contains(&Standing::Up);
    for (wan, standing) in now.policy.wans.iter().zip(&now.standings) {
        let was = before.policy.wans.iter().position(|old| old.name == wan.name);
        let was = was.and_then(|place| before.standings.get(place));
        if was == Some(standing) || was.is_none() && *standing == Standing::Up {
            continue;
        }
        let (name, interface) = (wan.name.as_str(), wan.interface.as_str());
        match standing.trouble() {
            None => info!(wan = name, interface, "WAN up; new flows go by it, by tier and weight"),
            Some(trouble) if any_up => {
                warn!(wan = name, interface, "WAN down: {trouble}; new flows go by other WANs");
            }
            Some(trouble) => {
                warn!(wan = name, interface, "WAN down: {trouble}; no WAN is up, new flows are refused")
            }
        }
    }
}
