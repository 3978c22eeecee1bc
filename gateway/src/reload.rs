//! The policy in force, on trial or for good, the policies requested, and the compilation of tables from these and the state of
//! Linux: one after the other.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dataplane::Tables;
use dataplane::sa::SaError;
use dataplane::tables::{CompileError, MulticastRoutes};
use lookup::classify::Made;
use policy::Policy;
use policy::keys::{self, KeyFileError};
use policy::model::Listener;
use tracing::{info, warn};

use crate::effective::{Effective, effective};
use crate::health::{Failed, ServerKey};
use crate::history::{By, History, HistoryView};
use crate::linux::State;
use crate::request::{Applied, NoTrial, Refusal};
use crate::sa::{ReserveError, Spi};
use crate::worker::Reply;

/// Policy in force, policies requested, and tables under compilation.
pub struct Reload {
    /// Policy in force, as requested.
    pub policy: Arc<Policy>,
    /// Policy in force, merged with the state of Linux.
    pub effective: Arc<Effective>,
    /// Tables in force.
    pub tables: Arc<Tables>,
    /// Multicast routes newer than those of the tables in force; none where these are the newest.
    pub multicast: Option<Arc<MulticastRoutes>>,
    /// Trial of the policy in force, if any.
    trial: Option<Trial>,
    /// Policies that were put in force; none where they are not kept.
    history: Option<History>,
    asked: VecDeque<Asked>,
    /// True if Linux has changed since the tables in force or under compilation.
    dirty: bool,
    building: bool,
    /// Endpoints that sockets of the machine listen on.
    listeners: Arc<[Listener]>,
    /// WANs and servers that have failed their check.
    failed: Arc<Failed>,
    /// Directory that the policy's files of keys are relative to.
    directory: Arc<Path>,
}

/// Trial of a policy, which is rolled back unless confirmed.
struct Trial {
    /// Policy to roll back to.
    before: Arc<Policy>,
    /// Time of the rollback.
    until: Instant,
    /// Entry in the history once confirmed.
    keep: Keep,
}

/// Entry of a policy in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keep {
    /// None: the policy was in force before, and has an entry.
    No,
    /// As reread from the policy file.
    Reread,
    /// As applied by an operator.
    Applied(By),
}

/// Request for another policy.
pub struct Asked {
    /// Policy requested.
    pub policy: Arc<Policy>,
    /// Time in which the policy must be confirmed.
    pub confirm: Option<Duration>,
    /// Entry in the history.
    pub keep: Keep,
    /// Reply channel of the client; none for a rollback.
    pub reply: Option<Reply<Result<Applied, Refusal>>>,
}

impl Asked {
    /// True for a rollback: nobody has asked for it.
    pub fn is_rollback(&self) -> bool {
        self.reply.is_none()
    }

    /// Answers the request with a refusal.
    pub fn refuse(self, refusal: Refusal) {
        if let Some(reply) = self.reply {
            // Who asked may have gone.
            let _ = reply.send(Err(refusal));
        }
    }
}

/// Compilation of tables, for a thread that has time for it.
pub struct Compilation {
    /// Request for the policy; none where Linux has changed.
    asked: Option<Asked>,
    policy: Arc<Policy>,
    linux: Arc<State>,
    listeners: Arc<[Listener]>,
    failed: Arc<Failed>,
    /// Directory that the policy's files of keys are relative to.
    directory: Arc<Path>,
    /// Effective policy and tables in force, and newer multicast routes.
    before: Arc<Effective>,
    old: Arc<Tables>,
    multicast: Option<Arc<MulticastRoutes>>,
}

/// Result of a compilation.
pub struct Built {
    /// Request that the tables are for; none where Linux had changed.
    pub asked: Option<Asked>,
    /// Policy merged with the state of Linux.
    pub effective: Arc<Effective>,
    /// Outcome of the compilation.
    pub outcome: Result<Outcome, BuildError>,
}

/// Outcome of a compilation.
pub enum Outcome {
    /// The tables would equal those in force.
    Same,
    /// Only multicast routes are others: they take their places in the tables in force.
    Multicast(Arc<MulticastRoutes>),
    /// Other tables.
    Tables(Arc<Tables>),
}

impl Reload {
    /// Creates the reload state with the tables that the gateway starts with.
    pub(crate) fn new(
        policy: Arc<Policy>,
        effective: Arc<Effective>,
        tables: Arc<Tables>,
        history: Option<History>,
        directory: PathBuf,
    ) -> Reload {
        Reload {
            policy,
            effective,
            tables,
            multicast: None,
            trial: None,
            history,
            asked: VecDeque::new(),
            dirty: false,
            building: false,
            listeners: Arc::new([]),
            failed: Arc::default(),
            directory: directory.into(),
        }
    }

    /// Multicast routes in force.
    pub fn multicast_routes(&self) -> &MulticastRoutes {
        self.multicast.as_deref().unwrap_or(&self.tables.multicast)
    }

    /// Updates the endpoints that sockets of the machine listen on.
    pub fn sockets_listen(&mut self, listeners: Vec<Listener>) {
        if *self.listeners != *listeners {
            self.listeners = listeners.into();
            self.dirty = true;
        }
    }

    /// Updates the WANs that have failed their check.
    pub(crate) fn wans_failed(&mut self, failed: &BTreeSet<String>) {
        if self.failed.wans != *failed {
            Arc::make_mut(&mut self.failed).wans.clone_from(failed);
            self.dirty = true;
        }
    }

    /// Updates the servers that have failed their check.
    pub(crate) fn servers_failed(&mut self, failed: &BTreeMap<ServerKey, String>) {
        if self.failed.servers != *failed {
            Arc::make_mut(&mut self.failed).servers.clone_from(failed);
            self.dirty = true;
        }
    }

    /// Notes a change of Linux.
    pub fn linux_changed(&mut self) {
        self.dirty = true;
    }

    /// Queues a request for another policy.
    pub fn ask(&mut self, asked: Asked) {
        self.asked.push_back(asked);
    }

    /// Notes the end of a compilation.
    pub fn finished(&mut self) {
        self.building = false;
    }

    /// Says that the gateway has begun with the policy in force.
    pub fn begun(&mut self) {
        if let Some(history) = &mut self.history {
            history.begun();
        }
    }

    /// Puts a requested policy in force, and answers the request.
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

    /// Saves the policy in force over a restart, where requested.
    fn keep(&mut self, keep: Keep) {
        let Some(history) = &mut self.history else { return };
        match keep {
            Keep::No => {}
            Keep::Reread => history.keep_reread(&self.policy),
            Keep::Applied(by) => history.keep_applied(&self.policy, by),
        }
    }

    /// Directory of the policy file.
    pub fn directory(&self) -> &Path {
        &self.directory
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
    pub fn roll_back(&mut self) -> Result<(), NoTrial> {
        let trial = self.trial.take().ok_or(NoTrial)?;
        self.ask(Asked { policy: trial.before, confirm: None, keep: Keep::No, reply: None });
        Ok(())
    }

    /// Rolls back the policy on trial, if its time is over.
    pub fn expire_trial(&mut self) {
        if self.end_of_trial().is_some_and(|until| until <= Instant::now()) {
            warn!("policy not confirmed in time; rolling back to the one before");
            // It is on trial.
            let _ = self.roll_back();
        }
    }

    /// Policies that were put in force; none where they are not kept.
    pub fn history(&self) -> Option<HistoryView> {
        self.history.as_ref().map(|history| history.view(self.is_on_trial()))
    }

    /// Fault for which the policy in force is not kept over a restart, in words, if there is one.
    pub(crate) fn history_fault(&self) -> Option<&str> {
        self.history.as_ref().and_then(History::fault)
    }

    /// The text of one of them, if there is such.
    pub fn kept(&self, number: u64) -> Option<String> {
        self.history.as_ref().and_then(|history| history.text(number))
    }

    /// Begins the next compilation, if any is due and none is running: of the first policy requested, or of the policy in
    /// force if Linux has changed.
    pub fn next(&mut self, linux: &Arc<State>) -> Option<Compilation> {
        if self.building || (!self.dirty && self.asked.is_empty()) {
            return None;
        }
        self.building = true;
        self.dirty = false;
        let asked = self.asked.pop_front();
        let policy = asked.as_ref().map_or(&self.policy, |asked| &asked.policy).clone();
        let (linux, listeners) = (linux.clone(), self.listeners.clone());
        let (before, old, multicast) = (self.effective.clone(), self.tables.clone(), self.multicast.clone());
        let (directory, failed) = (self.directory.clone(), self.failed.clone());
        Some(Compilation { asked, policy, linux, listeners, failed, directory, before, old, multicast })
    }
}

impl Compilation {
    /// Merges the policy with the state of Linux, and compiles the tables.
    pub fn run(self) -> Built {
        let Compilation { asked, policy, linux, listeners, failed, directory, before, old, multicast } = self;
        let mut effective = effective(&policy, &linux, &failed);
        // Only translations ask.
        if !effective.policy.nats.is_empty() {
            effective.policy.listeners = listeners.to_vec();
        }
        let present = multicast.as_deref().unwrap_or(&old.multicast);
        let change =
            if asked.is_some() { Change::Any } else { change(&before.policy, &mut effective.policy) };
        let outcome = match change {
            Change::None => Ok(Outcome::Same),
            Change::Multicast => match old.with_multicast_routes(&effective.policy, present) {
                Ok(Some(routes)) => Ok(Outcome::Multicast(Arc::new(routes))),
                Ok(None) => compiled(&effective.policy, &directory, &old, present),
                Err(error) => Err(error.into()),
            },
            Change::Any => compiled(&effective.policy, &directory, &old, present),
        };
        Built { asked, effective: Arc::new(effective), outcome }
    }
}

/// Difference of an effective policy from the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    /// Multicast routes alone.
    Multicast,
    Any,
}

/// Compares an effective policy with the one before.
fn change(before: &Policy, now: &mut Policy) -> Change {
    let routes = std::mem::replace(&mut now.multicast_routes, before.multicast_routes.clone());
    let is_same = *now == *before;
    now.multicast_routes = routes;
    match (is_same, now.multicast_routes == before.multicast_routes) {
        (true, true) => Change::None,
        (true, false) => Change::Multicast,
        (false, _) => Change::Any,
    }
}

/// Compiles the next tables, whose multicast routes go on counting where the present ones stop.
fn compiled(
    policy: &Policy,
    directory: &Path,
    old: &Tables,
    present: &MulticastRoutes,
) -> Result<Outcome, BuildError> {
    let mut tables = compile(policy, directory, Some(old))?;
    tables.multicast.go_on(present);
    Ok(Outcome::Tables(Arc::new(tables)))
}

/// Reason why a policy has no tables in a live gateway.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Error of any compilation.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// A key in the policy itself, which is shown, sent and kept.
    #[error(
        "the interface `{0}` has a key or a password in the policy itself, which a live gateway shows and keeps: write it into a file of mode \
         0600 and name that by `key-file` or `password-file`; `replay`, `chip`, `explain` and `test` take it as it is"
    )]
    InlineKey(String),
    /// A key cannot be read.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// No numbers can be reserved.
    #[error(transparent)]
    Reserve(#[from] ReserveError),
    /// A security association added at run time cannot go on with the policy.
    #[error(
        "the security association {spi} ({direction}) of the tunnel \"{tunnel}\", which was added at run time, cannot go on with this \
         policy: {error}; `wirerate sa delete` it first"
    )]
    Added {
        /// Tunnel.
        tunnel: String,
        /// Direction: `in` or `out`.
        direction: &'static str,
        /// Security parameters index.
        spi: Spi,
        /// Reason.
        error: SaError,
    },
}

/// Compiles the tables of a live gateway from a policy whose file is in `directory`; they take the place of `old` if there are any.
///
/// # Errors
/// [`BuildError`]
pub(crate) fn compile(policy: &Policy, directory: &Path, old: Option<&Tables>) -> Result<Tables, BuildError> {
    if let Some(tunnel) = keys::inline(policy) {
        return Err(BuildError::InlineKey(tunnel.to_owned()));
    }
    let keyed = if keys::has_files(policy) {
        Cow::Owned(keys::read(policy, directory)?)
    } else {
        Cow::Borrowed(policy)
    };
    Ok(match old {
        Some(old) => Tables::compile_after(&keyed, old)?,
        None => Tables::compile(&keyed, 1)?,
    })
}

/// Logs which classifier the tables have, and which fell back to it.
pub(crate) fn log_classifier(tables: &Tables) {
    for (algorithm, why) in &tables.filter.search.gave_way {
        warn!("classifier {} not used: it {why}; falling back", algorithm.name);
    }
    let search = &tables.filter.search;
    let (algorithm, rules) = (search.algorithm.name, tables.filter.rules.len());
    let bytes = search.classifier.memory_bytes();
    match search.made {
        Made::Built => info!(algorithm, rules, bytes, "classifier built"),
        Made::Revised => info!(algorithm, rules, bytes, "classifier revised"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_policy_with_a_key_in_itself_is_refused_at_the_start_and_later() {
        let text = include_str!("../../tests/cases/esp/site.toml");
        let policy = policy::check(text, "site.toml").policy.expect("a sound policy");
        let plain =
            Policy { interfaces: policy.interfaces[..2].to_vec(), routes: Vec::new(), ..Policy::default() };
        let here = Path::new("");
        let old = compile(&plain, here, None).expect("no tunnel");
        assert!(compile(&plain, here, Some(&old)).is_ok());
        for before in [None, Some(&old)] {
            let error = compile(&policy, here, before).map(|_| ()).expect_err("a key").to_string();
            assert!(error.contains("`site-b`") && error.contains("key-file"), "{error}");
        }
        let mut filed = policy.clone();
        for sa in filed.interfaces.iter_mut().filter_map(|own| own.esp.as_mut()).flat_map(|esp| &mut esp.sas)
        {
            sa.files.key = Some("nowhere".into());
        }
        let error = compile(&filed, here, None).map(|_| ()).expect_err("no file").to_string();
        assert!(error.contains("nowhere"), "{error}");
    }

    /// An empty file is a key of no bytes, not one that nobody has read: no tables are compiled without a key.
    #[test]
    fn a_key_file_without_a_key_is_refused_at_the_start_and_later() {
        let place = std::env::temp_dir().join(format!("wirerate-empty-keys-{}", std::process::id()));
        fs::create_dir_all(&place).unwrap();
        let file = |name: &str, text: &str| {
            fs::write(place.join(name), text).unwrap();
            fs::set_permissions(place.join(name), Permissions::from_mode(0o600)).unwrap();
        };
        for name in ["out", "in", "auth-out", "auth-in"] {
            file(name, &name.bytes().cycle().take(20).map(|byte| format!("{byte:02x}")).collect::<String>());
        }
        let site = |algorithm: &str, auth: bool| {
            let sa = |direction: &str| {
                let auth = match auth {
                    true => format!("auth = \"hmac-sha1-96\"\nauth-key-file = \"auth-{direction}\"\n"),
                    false => String::new(),
                };
                let key = match algorithm {
                    "null" => String::new(),
                    _ => format!("key-file = \"{direction}\"\n"),
                };
                format!(
                    "[[interface.site.esp.sa]]\ndirection = \"{direction}\"\nspi = 0x1000\nalgorithm = \"{algorithm}\"\n{key}{auth}"
                )
            };
            let text = format!(
                "[interface.wan]\nzone = \"wan\"\naddresses = [\"192.0.2.1/24\"]\n[interface.site]\nzone = \"vpn\"\n\
                 addresses = [\"10.9.0.1/30\"]\n[interface.site.esp]\nlocal = \"192.0.2.1\"\nremote = \"192.0.2.2\"\n{}{}",
                sa("out"),
                sa("in")
            );
            let checked = policy::check(&text, "site.toml");
            checked.policy.unwrap_or_else(|| panic!("{:?}", checked.diagnostics))
        };
        let policies = [site("aes128-gcm", false), site("null", true)];
        let before = policies.each_ref().map(|policy| compile(policy, &place, None).expect("good keys"));
        for text in ["", "\n", " \n\n", "0x", "0x\n", "00112233445566778899aabbccddeeff001122\n"] {
            for (policy, names) in policies.iter().zip([["out", "in"], ["auth-out", "auth-in"]]) {
                // One of them alone, and both.
                for names in [&names[..1], &names[1..], &names[..]] {
                    let kept: Vec<String> =
                        names.iter().map(|name| fs::read_to_string(place.join(name)).unwrap()).collect();
                    if text.len() < 10 || names.len() == 1 {
                        names.iter().for_each(|name| file(name, text));
                        for old in [None, Some(&before[0]), Some(&before[1])] {
                            let error = compile(policy, &place, old).map(|_| ()).expect_err(text).to_string();
                            assert!(error.contains("of 20 bytes"), "{text:?}: {error}");
                        }
                    }
                    names.iter().zip(&kept).for_each(|(name, text)| file(name, text));
                }
            }
        }
        fs::remove_dir_all(&place).unwrap();
    }
}
