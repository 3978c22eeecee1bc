//! Dynamic sets of a live gateway: lists from files and URLs, and changes on request.
//!
//! Each worker has the elements of all sets. A set with a file or a URL has a thread, which reads the list again when it changes or is
//! due; the supervisor compares it with the list in force and sends the workers the difference. A source that cannot be
//! read, or yields no list, leaves the list in force as it is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::SystemTime;

use dataplane::Tables;
use ipnet::IpNet;
use policy::Policy;
use policy::model::SetSource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::{error, info, warn};

use crate::event::Event;
use crate::worker::Report;

mod download;
mod list;
mod source;

pub use list::LineFault;
pub(crate) use list::{Difference, prefix};
pub(crate) use source::{Directories, Outcome};

use list::Faults;
use source::{Loaded, Plan};

/// Lines with faults that are logged, of each reading.
const LOGGED_FAULTS: usize = 10;

/// View of a dynamic set for operators.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SetView {
    /// Name.
    pub name: String,
    /// Elements now, the expired ones that still take room included.
    pub elements: u64,
    /// Elements, at most.
    pub size: u64,
    /// Elements that were not added because the set was full.
    pub refused: u64,
    /// Elements that have expired.
    pub expired: u64,
    /// File or URL that fills the set; none where rules and requests do.
    pub source: Option<String>,
    /// Time at which the list in force was read, in RFC 3339; none without a list.
    pub loaded: Option<String>,
    /// Seconds since then.
    pub age_seconds: Option<f64>,
    /// Lines of the list that say no address.
    pub faults: u64,
    /// Reason that the source could not be read at the last attempt; none where it was.
    pub trouble: Option<String>,
}

/// Element of a dynamic set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ElementView {
    /// Address or network.
    pub element: String,
    /// Seconds until the element expires; none where it stays.
    pub expires_seconds: Option<f64>,
}

impl ElementView {
    /// Network that the element says; an address is one of its own.
    pub fn prefix(&self) -> Option<IpNet> {
        prefix(&self.element).ok()
    }
}

/// Response: elements of a dynamic set, in no order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Elements {
    /// Elements.
    pub elements: Vec<ElementView>,
    /// Place to go on from; none at the end.
    pub next: Option<u32>,
}

/// Response: lines of a set's list that say no address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetFaults {
    /// Number of such lines.
    pub count: u64,
    /// The first of them.
    pub faults: Vec<LineFault>,
}

/// Query for a dynamic set, or its elements.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetQuery {
    /// Name of the set.
    pub set: String,
    /// Place to go on from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u32>,
    /// Addresses and networks ([`Near`](crate::near::Near)): elements that have none of them in common are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<String>,
}

/// Request to add elements to a dynamic set, or to remove them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetRequest {
    /// Name of the set.
    pub set: String,
    /// Addresses and networks; to be added, each may have a time of its own to expire: `192.0.2.7 timeout 1h`.
    pub elements: Vec<String>,
    /// Time after which added elements expire, such as `1h`; else the set's `timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
}

/// Response: outcome of a change of a dynamic set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetChanged {
    /// Elements that were added.
    pub added: u64,
    /// Elements that were there, and have another time to expire now.
    pub refreshed: u64,
    /// Elements that were removed.
    pub removed: u64,
    /// Elements to remove that were not there.
    pub absent: u64,
    /// Elements that found no room.
    pub refused: u64,
}

impl SetChanged {
    /// Adds the outcome of another part of the change.
    pub fn add(&mut self, part: &SetChanged) {
        self.added += part.added;
        self.refreshed += part.refreshed;
        self.removed += part.removed;
        self.absent += part.absent;
        self.refused += part.refused;
    }
}

/// Changes of dynamic sets that a worker makes between two turns, at most: well under a millisecond's work.
pub(crate) const AT_ONCE: usize = 2048;

/// Outcome of reading the source of a set.
#[derive(Debug)]
pub struct SetNews {
    /// Set.
    set: String,
    /// Number of the source: another source of that set has another.
    number: u64,
    /// Outcome.
    outcome: Outcome,
}

/// Sources of all sets.
pub(crate) struct Sources {
    running: BTreeMap<String, Running>,
    directories: Directories,
    /// Number of the next source.
    next: u64,
}

/// Source of a set: its thread ends when this is dropped.
struct Running {
    plan: Plan,
    number: u64,
    label: String,
    /// List in force, ascending.
    list: Arc<[IpNet]>,
    loaded: Option<SystemTime>,
    faults: Arc<Faults>,
    trouble: Option<String>,
    _until: Sender<()>,
}

/// Difference to be made in a set.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SetDifference {
    pub(crate) set: String,
    pub(crate) from: Base,
    pub(crate) difference: Difference,
    /// Elements of the list that the difference leads to.
    pub(crate) length: usize,
}

/// Content of a set that a difference is applied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// The list before.
    List,
    /// Nothing: all elements that the set has are removed first.
    Nothing,
}

impl Sources {
    /// No sources.
    pub(crate) fn new(directories: Directories) -> Sources {
        Sources { running: BTreeMap::new(), directories, next: 0 }
    }

    /// Starts the sources of the sets of this policy, and ends those of others. Returns what is to be changed in sets whose source is another than
    /// before.
    pub(crate) fn follow(&mut self, policy: &Policy, events: &Sender<Event>) -> Vec<SetDifference> {
        let plan_of = |set| Plan::of(set, &self.directories);
        let plans: BTreeMap<&str, (Plan, String)> = policy
            .dynamic_sets
            .iter()
            .filter_map(|set| Some((set.name.as_str(), (plan_of(set)?, label(&set.source)))))
            .collect();
        let mut before: BTreeMap<String, Arc<[IpNet]>> = BTreeMap::new();
        self.running.retain(|name, running| {
            let is_same = plans.get(name.as_str()).is_some_and(|(plan, _)| *plan == running.plan);
            if !is_same {
                before.insert(name.clone(), running.list.clone());
            }
            is_same
        });
        let nothing = |set: String| SetDifference {
            set,
            from: Base::Nothing,
            difference: Difference::default(),
            length: 0,
        };
        // Sets that rules and requests fill from now on.
        let left = before.keys().filter(|name| !plans.contains_key(name.as_str()));
        let mut differences: Vec<SetDifference> = left.cloned().map(nothing).collect();
        for (name, (plan, label)) in plans {
            if self.running.contains_key(name) {
                continue;
            }
            let had = before.remove(name);
            if had.is_none() {
                // Of rules and requests, or of the state of an earlier process.
                differences.push(nothing(name.to_owned()));
            }
            differences.extend(self.start(name, plan, label, had.unwrap_or_default(), events));
        }
        differences
    }

    /// Starts a source, after it has been read for the first time.
    fn start(
        &mut self,
        name: &str,
        plan: Plan,
        label: String,
        list: Arc<[IpNet]>,
        events: &Sender<Event>,
    ) -> Vec<SetDifference> {
        let number = self.next;
        self.next += 1;
        let (until, ended) = channel();
        let begun = plan.begin();
        let (faults, loaded, trouble) = (Arc::default(), None, None);
        let running =
            Running { plan: plan.clone(), number, label, list, loaded, faults, trouble, _until: until };
        self.running.insert(name.to_owned(), running);
        let news = begun.into_iter().map(|outcome| SetNews { set: name.to_owned(), number, outcome });
        let differences = news.filter_map(|news| self.heard(news)).collect();
        let told = {
            let (set, events) = (name.to_owned(), events.clone());
            move |outcome| {
                // The supervisor has gone: so has the need.
                let _ = events.send(Event::Set(Box::new(SetNews { set: set.clone(), number, outcome })));
            }
        };
        if let Err(error) = source::follow(plan, ended, told) {
            error!(set = name, "list not followed, it stays as it is: no thread: {error}");
        }
        differences
    }

    /// Takes the outcome of reading a source. Returns what is to be changed in the set.
    pub(crate) fn heard(&mut self, news: SetNews) -> Option<SetDifference> {
        let SetNews { set, number, outcome } = news;
        let running = self.running.get_mut(&set).filter(|running| running.number == number)?;
        match outcome {
            Outcome::Loaded(loaded) => {
                let difference = running.take(&set, loaded);
                let (from, length) = (Base::List, running.list.len());
                (difference != Difference::default()).then_some(SetDifference {
                    set,
                    from,
                    difference,
                    length,
                })
            }
            Outcome::Unchanged(at) => {
                running.recover(&set);
                running.loaded = Some(at);
                None
            }
            Outcome::Trouble(error) => {
                let error = error.to_string();
                if running.trouble.as_ref() != Some(&error) {
                    let kept = running.list.len();
                    warn!(set, "{error}; the set keeps the {kept} elements of its last good list");
                }
                running.trouble = Some(error);
                None
            }
        }
    }

    /// Lists in force, of sets that have a source.
    pub(crate) fn lists(&self) -> impl Iterator<Item = (&str, &Arc<[IpNet]>)> {
        self.running.iter().map(|(name, running)| (name.as_str(), &running.list))
    }

    /// Lines with faults of a set's list; none where the set has no source.
    pub(crate) fn faults(&self, set: &str) -> Option<SetFaults> {
        let faults = &self.running.get(set)?.faults;
        Some(SetFaults { count: faults.count, faults: faults.first.clone() })
    }

    /// Views of the sets, by the workers' reports. All workers have the same elements; where they differ for a moment, the larger count is told.
    pub(crate) fn views(&self, tables: &Tables, reports: &[Report]) -> Vec<SetView> {
        let sets = tables.sets.iter().enumerate();
        sets.map(|(place, set)| {
            let of_workers = reports.iter().filter_map(|report| report.sets.get(place));
            let most = |value: fn(&dataplane::set::SetReport) -> u64| {
                of_workers.clone().map(value).max().unwrap_or(0)
            };
            let running = self.running.get(&set.name);
            let loaded = running.and_then(|running| running.loaded);
            let age = loaded.map(|at| at.elapsed().unwrap_or_default().as_secs_f64());
            SetView {
                name: set.name.clone(),
                elements: most(|report| u64::from(report.elements)),
                size: u64::from(set.size),
                refused: most(|report| report.refused),
                expired: most(|report| report.expired),
                source: running.map(|running| running.label.clone()),
                loaded: loaded.map(|at| humantime::format_rfc3339_seconds(at).to_string()),
                age_seconds: age,
                faults: running.map_or(0, |running| running.faults.count),
                trouble: running.and_then(|running| running.trouble.clone()),
            }
        })
        .collect()
    }
}

impl Running {
    /// Takes a list in place of the one in force.
    fn take(&mut self, set: &str, loaded: Loaded) -> Difference {
        let Loaded { list, at } = loaded;
        let difference = Difference::between(&self.list, &list.prefixes);
        self.recover(set);
        let is_first = self.loaded.is_none();
        if is_first || difference != Difference::default() || list.faults != self.faults {
            let (added, removed) = (difference.added.len(), difference.removed.len());
            info!(
                set,
                "list of {} read: {} elements, {added} new, {removed} gone",
                self.label,
                list.prefixes.len()
            );
            self.log_faults(set, &list.faults);
        }
        (self.list, self.faults, self.loaded) = (list.prefixes, list.faults, Some(at));
        difference
    }

    fn log_faults(&self, set: &str, faults: &Faults) {
        for fault in faults.first.iter().take(LOGGED_FAULTS) {
            warn!(
                set,
                "{}, line {}: \"{}\": {}; the line is left out",
                self.label,
                fault.line,
                fault.text,
                fault.fault
            );
        }
        if faults.count > LOGGED_FAULTS as u64 {
            let more = faults.count - LOGGED_FAULTS as u64;
            warn!(
                set,
                "{more} more lines of {} say no address; `wirerate set faults {set}` names them", self.label
            );
        }
    }

    fn recover(&mut self, set: &str) {
        if self.trouble.take().is_some() {
            info!(set, "{} is read again", self.label);
        }
    }
}

/// File or URL.
fn label(source: &SetSource) -> String {
    match source {
        SetSource::Rules => String::new(),
        SetSource::File(path) => path.clone(),
        SetSource::Url { url, .. } => url.clone(),
    }
}
