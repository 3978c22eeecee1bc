//! The policy in force, on trial or for good, and the policies that are asked for: from these and from what Linux says to
//! tables, compiled on a thread of their own, one after the other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use dataplane::Tables;
use dataplane::tables::CompileError;
use policy::Policy;
use policy::model::Listener;
use tracing::{info, warn};

use crate::effective::{Effective, effective};
use crate::history::{By, History, HistoryView};
use crate::linux::State;
use crate::request::{Applied, NoTrial, Refusal, Reply};
use crate::supervisor::Event;

/// What is in force, what is asked for, and what is being made of it.
pub struct Reload {
    /// The policy in force, as it was asked for.
    pub policy: Arc<Policy>,
    /// The same, with what Linux adds.
    pub effective: Arc<Effective>,
    /// The tables in force.
    pub tables: Arc<Tables>,
    /// The policy in force is on trial.
    trial: Option<Trial>,
    /// Policies that were put in force; none where they are not kept.
    history: Option<History>,
    asked: VecDeque<Asked>,
    /// Linux has changed since the tables that are in force or being made.
    dirty: bool,
    building: bool,
    /// What sockets of the machine listen on.
    listeners: Arc<[Listener]>,
    sender: Sender<Event>,
}

/// A policy goes unless it is confirmed.
struct Trial {
    /// What it goes back to.
    before: Arc<Policy>,
    /// When.
    until: Instant,
    /// How it is kept once it is confirmed.
    keep: Keep,
}

/// How a policy is kept over a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Not: it was in force before, and is kept already.
    No,
    /// As read from the policy file.
    Reread,
    /// As applied.
    Applied(By),
}

/// Somebody asked for another policy.
pub struct Asked {
    /// It.
    pub policy: Arc<Policy>,
    /// Time in which it must be confirmed.
    pub confirm: Option<Duration>,
    /// How it is kept over a restart.
    pub keep: Keep,
    /// Who asked; nobody for one that goes back.
    pub reply: Option<Reply<Result<Applied, Refusal>>>,
}

impl Asked {
    /// Answers who asked that the policy is not put in force.
    pub fn refuse(self, refusal: Refusal) {
        if let Some(reply) = self.reply {
            // Who asked may have gone.
            let _ = reply.send(Err(refusal));
        }
    }
}

/// What came of making tables.
pub struct Built {
    /// Who asked; nobody where Linux had changed.
    pub asked: Option<Asked>,
    /// The policy with what Linux adds.
    pub effective: Arc<Effective>,
    /// The tables; none where they would be those in force.
    pub tables: Result<Option<Arc<Tables>>, CompileError>,
}

impl Reload {
    /// With the tables that the gateway begins with.
    pub(crate) fn new(
        policy: Arc<Policy>,
        effective: Arc<Effective>,
        tables: Arc<Tables>,
        history: Option<History>,
        sender: Sender<Event>,
    ) -> Reload {
        Reload {
            policy,
            effective,
            tables,
            trial: None,
            history,
            asked: VecDeque::new(),
            dirty: false,
            building: false,
            listeners: Arc::new([]),
            sender,
        }
    }

    /// Sockets of the machine listen on these endpoints.
    pub fn sockets_listen(&mut self, listeners: Vec<Listener>, linux: &Arc<State>) {
        if *self.listeners != *listeners {
            self.listeners = listeners.into();
            self.dirty = true;
            self.next(linux);
        }
    }

    /// Linux has changed.
    pub fn linux_changed(&mut self, linux: &Arc<State>) {
        self.dirty = true;
        self.next(linux);
    }

    /// Somebody asks for another policy.
    pub fn ask(&mut self, asked: Asked, linux: &Arc<State>) {
        self.asked.push_back(asked);
        self.next(linux);
    }

    /// What was being made is made.
    pub fn finished(&mut self, linux: &Arc<State>) {
        self.building = false;
        self.next(linux);
    }

    /// Says that the gateway has begun with the policy in force.
    pub fn begun(&mut self) {
        if let Some(history) = &mut self.history {
            history.begun();
        }
    }

    /// A policy that was asked for is in force, with the tables in force. Answers who asked.
    pub fn put_in_force(&mut self, asked: Asked) {
        let Asked { policy, confirm, keep, reply } = asked;
        let before = std::mem::replace(&mut self.policy, policy);
        self.trial = match confirm {
            Some(time) => Some(Trial { before, until: Instant::now() + time, keep }),
            None => {
                self.keep(keep);
                None
            }
        };
        info!(epoch = self.tables.epoch, "policy applied");
        log_classifier(&self.tables);
        if let Some(reply) = reply {
            // Who asked may have gone.
            let _ = reply.send(Ok(Applied { epoch: self.tables.epoch }));
        }
    }

    /// Keeps the policy in force over a restart, where that is asked for.
    fn keep(&mut self, keep: Keep) {
        let Some(history) = &mut self.history else { return };
        match keep {
            Keep::No => {}
            Keep::Reread => history.keep_reread(&self.policy),
            Keep::Applied(by) => history.keep_applied(&self.policy, by),
        }
    }

    /// True if the policy in force is on trial.
    pub fn is_on_trial(&self) -> bool {
        self.trial.is_some()
    }

    /// The end of the trial, if the policy in force is on trial.
    pub fn end_of_trial(&self) -> Option<Instant> {
        self.trial.as_ref().map(|trial| trial.until)
    }

    /// Time until the policy in force is rolled back, if it is on trial.
    pub fn time_on_trial(&self) -> Option<Duration> {
        self.end_of_trial().map(|until| until.saturating_duration_since(Instant::now()))
    }

    /// Has the policy on trial stay.
    ///
    /// # Errors
    /// None is on trial.
    pub fn confirm(&mut self) -> Result<(), NoTrial> {
        let trial = self.trial.take().ok_or(NoTrial)?;
        self.keep(trial.keep);
        Ok(())
    }

    /// Asks for the policy before the one on trial.
    ///
    /// # Errors
    /// None is on trial.
    pub fn roll_back(&mut self, linux: &Arc<State>) -> Result<(), NoTrial> {
        let trial = self.trial.take().ok_or(NoTrial)?;
        self.ask(Asked { policy: trial.before, confirm: None, keep: Keep::No, reply: None }, linux);
        Ok(())
    }

    /// Rolls back the policy on trial, if its time is over.
    pub fn expire_trial(&mut self, linux: &Arc<State>) {
        if self.end_of_trial().is_some_and(|until| until <= Instant::now()) {
            warn!("policy not confirmed in time; rolling back to the one before");
            // It is on trial.
            let _ = self.roll_back(linux);
        }
    }

    /// Policies that were put in force; none where they are not kept.
    pub fn history(&self) -> Option<HistoryView> {
        self.history.as_ref().map(|history| history.view(self.is_on_trial()))
    }

    /// The text of one of them, if there is such.
    pub fn kept(&self, number: u64) -> Option<String> {
        self.history.as_ref().and_then(|history| history.text(number))
    }

    /// Begins to make the next tables, if there is anything to make and none are being made.
    fn next(&mut self, linux: &Arc<State>) {
        if self.building || (!self.dirty && self.asked.is_empty()) {
            return;
        }
        self.building = true;
        self.dirty = false;
        let asked = self.asked.pop_front();
        let policy = asked.as_ref().map_or(&self.policy, |asked| &asked.policy).clone();
        let (before, old) = (self.effective.clone(), self.tables.clone());
        let (linux, sender, listeners) = (linux.clone(), self.sender.clone(), self.listeners.clone());
        thread::spawn(move || {
            let mut effective = effective(&policy, &linux);
            // Only translations ask.
            if !effective.policy.nats.is_empty() {
                effective.policy.listeners = listeners.to_vec();
            }
            let effective = Arc::new(effective);
            let tables = if asked.is_none() && effective.policy == before.policy {
                Ok(None)
            } else {
                Tables::compile_after(&effective.policy, &old).map(|tables| Some(Arc::new(tables)))
            };
            // The supervisor has gone: so has the need.
            let _ = sender.send(Event::Built(Box::new(Built { asked, effective, tables })));
        });
    }
}

/// Logs which classifier the tables have, and which fell back to it.
pub(crate) fn log_classifier(tables: &Tables) {
    for (algorithm, why) in &tables.filter.search.gave_way {
        warn!("classifier {} not used: it {why}; falling back", algorithm.name);
    }
    let (algorithm, rules) = (tables.filter.search.algorithm.name, tables.filter.rules.len());
    info!(algorithm, rules, bytes = tables.filter.search.classifier.memory_bytes(), "classifier built");
}
