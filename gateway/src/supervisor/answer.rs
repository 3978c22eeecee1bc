//! What is asked of the supervisor, and what it answers.

use std::sync::Arc;
use std::time::Instant;

use super::Supervisor;
use crate::linux::State;
use crate::reload::{Asked, Keep};
use crate::request::{Basis, NoTrial, Overview, Refusal, Request};

/// True if a policy has nothing to carry out: an empty file, say, that was being written. Nobody wants that of a gateway that
/// runs.
pub(super) fn is_empty(policy: &policy::Policy) -> bool {
    policy.interfaces.is_empty()
}

/// A note for operators where Linux forwards, and has interfaces that the policy does not name.
pub(super) fn forwarding(policy: &policy::Policy, linux: &State) -> Option<String> {
    let is_on = |path: &str| std::fs::read_to_string(path).is_ok_and(|value| value.trim() != "0");
    let settings = [
        ("net.ipv4.ip_forward", "/proc/sys/net/ipv4/ip_forward"),
        ("net.ipv6.conf.all.forwarding", "/proc/sys/net/ipv6/conf/all/forwarding"),
    ];
    let on: Vec<&str> = settings.iter().filter(|(_, path)| is_on(path)).map(|(name, _)| *name).collect();
    let punts: Vec<String> = linux.links.keys().map(|index| format!("wr{}", index.0)).collect();
    let mut outside = linux.links.values().map(|link| link.name.as_str()).filter(|name| {
        *name != "lo" && policy.interface(name).is_none() && !punts.iter().any(|punt| punt == name)
    });
    let first = outside.next().filter(|_| !on.is_empty())?;
    let more = match outside.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let fate = if policy.admits_other() {
        "meets the rules of the zone \"other\" where it would leave by an interface of the policy"
    } else {
        "is dropped (other-drop) where it would leave by an interface of the policy"
    };
    let on = on.join(", ");
    Some(format!(
        "Linux forwards ({on}), also from {first}{more}, not of the policy: what comes from there {fate}"
    ))
}

impl Supervisor {
    /// Answers, now or when it is done. Whoever asked may have gone; then nobody hears it.
    pub(super) fn answer(&mut self, request: Request) {
        match request {
            Request::Overview(reply) => {
                let _ = reply.send(self.overview());
            }
            Request::Apply { policy, confirm, by, reply } => {
                if self.reload.trial.is_some() {
                    let _ = reply.send(Err(Refusal::OnTrial));
                    return;
                }
                if is_empty(&policy) {
                    let _ = reply.send(Err(Refusal::Empty));
                    return;
                }
                if let Some(what) = self.needs_restart(&policy) {
                    let _ = reply.send(Err(Refusal::Restart(what)));
                    return;
                }
                let asked =
                    Asked { policy: Arc::new(*policy), confirm, keep: Keep::Applied(by), reply: Some(reply) };
                self.reload.ask(asked, &self.linux);
            }
            Request::Confirm(reply) => {
                let confirmed = self.reload.trial.take().map(|trial| self.keep(trial.keep));
                let _ = reply.send(confirmed.ok_or(NoTrial));
            }
            Request::Rollback(reply) => {
                let outcome = if self.reload.trial.is_some() { Ok(()) } else { Err(NoTrial) };
                self.roll_back();
                let _ = reply.send(outcome);
            }
            Request::History(reply) => {
                let on_trial = self.reload.trial.is_some();
                let _ = reply.send(self.history.as_ref().map(|history| history.view(on_trial)));
            }
            Request::Kept { number, reply } => {
                let _ = reply.send(self.history.as_ref().and_then(|history| history.text(number)));
            }
            Request::Release { interfaces, reply } => {
                let _ = reply.send(self.ports.guards.release(&interfaces).map_err(|error| error.to_string()));
            }
            Request::Workers(reply) => {
                let _ = reply.send(self.workers.commands());
            }
            Request::Policy(reply) => {
                let _ = reply.send(self.reload.policy.clone());
            }
            Request::Basis(reply) => {
                let _ = reply.send(Basis {
                    tables: self.reload.tables.clone(),
                    effective: self.reload.effective.clone(),
                    steering: self.workers.steering(),
                    neighbours: self.known(),
                });
            }
        }
    }

    /// What in `policy` cannot change while the gateway runs.
    pub(super) fn needs_restart(&self, policy: &policy::Policy) -> Option<String> {
        let (old, new) = (&self.reload.policy.gateway, &policy.gateway);
        if old.workers.unwrap_or(1) != new.workers.unwrap_or(1) {
            return Some("the number of workers".to_owned());
        }
        if (old.metrics, &old.metrics_access) != (new.metrics, &new.metrics_access) {
            return Some("where metrics are given".to_owned());
        }
        let elsewhere = self.places.out_of_reach(new).filter(|_| self.confinement.landlock.is_some())?;
        Some(format!("the directory of log files to that of {}", elsewhere.display()))
    }

    fn overview(&mut self) -> Overview {
        let beside = self.notes_beside();
        let notes = self.reload.effective.notes.iter().map(ToString::to_string);
        let notes = notes.chain(beside).collect();
        Overview {
            tables: self.reload.tables.clone(),
            reports: self.workers.reports(),
            ports: self.ports.states(&self.reload, &self.linux),
            guards: self.ports.guards.states(),
            uptime: self.started.elapsed(),
            panics: self.panics,
            log: self.log.counts(),
            confinement: self.confinement.clone(),
            notes,
            trial: self
                .reload
                .trial
                .as_ref()
                .map(|trial| trial.until.saturating_duration_since(Instant::now())),
        }
    }
}
