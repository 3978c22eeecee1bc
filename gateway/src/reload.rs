//! From what is asked for and what Linux says to tables: made on a thread of its own, one after the other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use dataplane::Tables;
use dataplane::tables::CompileError;
use policy::Policy;
use policy::model::Listener;

use crate::effective::{Effective, effective};
use crate::history::By;
use crate::linux::State;
use crate::request::{Applied, Refusal, Reply};
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
    pub trial: Option<Trial>,
    asked: VecDeque<Asked>,
    /// Linux has changed since the tables that are in force or being made.
    dirty: bool,
    building: bool,
    /// What sockets of the machine listen on.
    listeners: Arc<[Listener]>,
    sender: Sender<Event>,
}

/// A policy goes unless it is confirmed.
pub struct Trial {
    /// What it goes back to.
    pub before: Arc<Policy>,
    /// When.
    pub until: Instant,
    /// How it is kept once it is confirmed.
    pub keep: Keep,
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
    pub fn new(
        policy: Arc<Policy>,
        effective: Arc<Effective>,
        tables: Arc<Tables>,
        sender: Sender<Event>,
    ) -> Reload {
        Reload {
            policy,
            effective,
            tables,
            trial: None,
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
