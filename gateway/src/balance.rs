//! Servers of translations of the kind `balance`: their standing, and the checks that have a server taken as down or up.
//!
//! A server is up until its check has failed so many times in a row, a new one too: a gateway that begins refuses nobody before it
//! knows. A reload keeps the health of a server that has a check before and after.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use dataplane::Tables;
use dataplane::tables::{NewDestination, Servers};
use policy::Policy;
use policy::model::{Balance, NatAction, OnFailure, Pace, Probe, Scheme, Server, ServerState, StatusRange};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use crate::effective::Effective;
use crate::event::Event;
use crate::health::echo::Ping;
use crate::health::http::{self, Question, SystemTls, Tls};
use crate::health::{Ask, Check, CheckView, Checker, Counts, Failed, Health, ServerKey, Task, Trouble};

/// Longest time over which the first questions of checks that begin together are spread.
const SPREAD: Duration = Duration::from_secs(1);

/// State of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ServerHealth {
    /// New connections go to it.
    Up,
    /// The policy has it out of service.
    OutOfService,
    /// Its check has failed.
    Failed,
}

/// Standing of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerStanding {
    /// Server.
    pub key: ServerKey,
    /// State.
    pub state: ServerHealth,
    /// Reason of a failure, in words.
    pub trouble: Option<String>,
}

/// View of a server for operators.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServerView {
    /// Translation.
    pub nat: String,
    /// Address and port.
    pub server: String,
    /// State: `up`, or the reason that it is down.
    pub state: ServerHealth,
    /// Reason of a failed check, in words.
    pub trouble: Option<String>,
    /// Weight.
    pub weight: u8,
    /// Share of new connections, 0 to 1.
    pub share: f64,
    /// Check; none of a server out of service, and where the policy has none.
    pub check: Option<CheckView>,
}

/// Verdict of a server's check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerNews {
    /// Server.
    pub(crate) key: ServerKey,
    /// Number of the check: another check of that server has another.
    pub(crate) number: u64,
    /// Verdict.
    pub(crate) health: Health,
    /// Reason of a failure.
    pub(crate) trouble: Option<Trouble>,
}

/// Checks of all servers.
#[derive(Default)]
pub(crate) struct ServerChecks {
    running: BTreeMap<ServerKey, Running>,
    /// Servers that have failed their check, with the reason.
    failed: BTreeMap<ServerKey, String>,
    /// Number of the next check.
    next: u64,
}

/// A check: it ends when this is dropped.
struct Running {
    plan: Plan,
    number: u64,
    counts: Arc<Counts>,
    /// Holder of the check; none where it could not begin, which has been logged.
    _task: Option<Task>,
}

/// Check of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Plan {
    address: IpAddr,
    target: Target,
    pace: Pace,
}

/// Question to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Ping,
    Tcp(u16),
    Http { port: u16, path: String, authority: String, status: Vec<StatusRange>, tls: Option<String> },
}

/// A question with what it takes.
enum Asker {
    Ping(Ping),
    Tcp(SocketAddr),
    Http(SocketAddr, Question),
}

impl Ask for Asker {
    async fn ask(&mut self) -> Result<(), Trouble> {
        match self {
            Asker::Ping(ping) => ping.ask().await,
            Asker::Tcp(to) => http::connect(*to, None).await.map(drop),
            Asker::Http(to, question) => http::ask(*to, None, question).await,
        }
    }
}

impl Plan {
    /// The check of a server that is in service, if it has one.
    fn of(balance: &Balance, server: &Server) -> Option<Plan> {
        let check = balance.check.as_ref().filter(|_| server.state == ServerState::Up)?;
        let own = server.port.or_else(|| balance.ports.first().map(|range| range.first));
        let target = match &check.probe {
            Probe::Ping => Target::Ping,
            Probe::Tcp => Target::Tcp(own?),
            Probe::TcpPort(port) => Target::Tcp(*port),
            Probe::Url(url) => {
                let port = url.port.or(own)?;
                let authority = match url.host.is_empty() {
                    true => SocketAddr::new(server.address, port).to_string(),
                    false => url.authority(""),
                };
                let tls = (url.scheme == Scheme::Https).then(|| url.host.clone());
                let (path, status) = (url.path.clone(), check.status.clone());
                Target::Http { port, path, authority, status, tls }
            }
        };
        Some(Plan { address: server.address, target, pace: check.pace })
    }

    fn asker(&self, tls: &mut SystemTls) -> Result<Asker, Trouble> {
        let to = |port: u16| SocketAddr::new(self.address, port);
        Ok(match &self.target {
            Target::Ping => Asker::Ping(Ping::new(self.address, None)),
            Target::Tcp(port) => Asker::Tcp(to(*port)),
            Target::Http { port, path, authority, status, tls: name } => {
                let tls = match name {
                    Some(name) => Some(Tls { name: name.clone(), config: tls.get()? }),
                    None => None,
                };
                let (path, authority, status) = (path.clone(), authority.clone(), status.clone());
                Asker::Http(to(*port), Question { path, authority, status, tls })
            }
        })
    }
}

impl ServerChecks {
    /// Starts the checks of a policy's servers, ends those of others, and restarts those that have changed.
    pub(crate) fn follow(&mut self, policy: &Policy, checker: &mut Checker, events: &Sender<Event>) {
        let plans: BTreeMap<ServerKey, Plan> = servers(policy)
            .filter_map(|(key, balance, server)| Some((key, Plan::of(balance, server)?)))
            .collect();
        self.running.retain(|key, running| plans.get(key) == Some(&running.plan));
        self.failed.retain(|key, _| plans.contains_key(key));
        let new: Vec<_> = plans.into_iter().filter(|(key, _)| !self.running.contains_key(key)).collect();
        let (count, mut tls) = (new.len().max(1) as u32, SystemTls::default());
        for (place, (key, plan)) in (0u32..).zip(new) {
            let number = self.next;
            self.next += 1;
            let counts = Arc::new(Counts::default());
            let health = if self.failed.contains_key(&key) { Health::Down } else { Health::Up };
            let told = {
                let (key, events) = (key.clone(), events.clone());
                move |health, trouble| {
                    // The supervisor has gone: so has the need.
                    let _ =
                        events.send(Event::Server(ServerNews { key: key.clone(), number, health, trouble }));
                }
            };
            let first = Duration::from_nanos(plan.pace.every.0).min(SPREAD) * place / count;
            let begun = plan.asker(&mut tls).map_err(|trouble| trouble.to_string()).and_then(|ask| {
                let check = Check { ask, pace: plan.pace, first, health, counts: Arc::clone(&counts) };
                checker.spawn(check, told).map_err(|error| format!("no thread: {error}"))
            });
            if let Err(error) = &begun {
                warn!(nat = key.nat, server = key.server, "server not checked, taken as up: {error}");
                self.failed.remove(&key);
            }
            self.running.insert(key, Running { plan, number, counts, _task: begun.ok() });
        }
    }

    /// Takes a verdict. True if it changes which servers have failed.
    pub(crate) fn heard(&mut self, news: ServerNews) -> bool {
        let ServerNews { key, number, health, trouble } = news;
        if self.running.get(&key).is_none_or(|running| running.number != number) {
            return false;
        }
        match health {
            Health::Down => {
                let trouble = trouble.map_or_else(String::new, |trouble| trouble.to_string());
                self.failed.insert(key, trouble).is_none()
            }
            Health::Up => self.failed.remove(&key).is_some(),
        }
    }

    /// Servers that have failed their check, with the reason.
    pub(crate) fn failed(&self) -> &BTreeMap<ServerKey, String> {
        &self.failed
    }

    /// Views of the servers.
    pub(crate) fn views(&self, effective: &Effective, tables: &Tables) -> Vec<ServerView> {
        let mut shares = HashMap::new();
        for rule in &tables.nat.destinations {
            if let NewDestination::Servers(servers) = &rule.action.to {
                for (name, share) in shares_of(servers) {
                    shares.entry((rule.name.as_str(), name)).or_insert(share);
                }
            }
        }
        let all = servers(&effective.policy).zip(&effective.servers);
        all.map(|((key, _, server), standing)| ServerView {
            share: shares.get(&(key.nat.as_str(), key.server.as_str())).copied().unwrap_or(0.0),
            check: self.running.get(&key).map(|running| running.counts.view()),
            nat: key.nat,
            server: key.server,
            state: standing.state,
            trouble: standing.trouble.clone(),
            weight: server.weight,
        })
        .collect()
    }
}

/// Takes servers of a policy that have failed their check as down, and returns the standings of all.
pub(crate) fn follow(made: &mut Policy, failed: &Failed) -> Vec<ServerStanding> {
    let mut standings = Vec::new();
    for nat in &mut made.nats {
        let NatAction::Balance(balance) = &mut nat.action else { continue };
        let is_checked = balance.check.is_some();
        for server in &mut balance.servers {
            let key = ServerKey { nat: nat.name.clone(), server: server.target() };
            let trouble = failed.servers.get(&key).filter(|_| is_checked);
            let (state, trouble) = match (server.state, trouble) {
                (ServerState::Down, _) => (ServerHealth::OutOfService, None),
                (ServerState::Up, Some(trouble)) => (ServerHealth::Failed, Some(trouble.clone())),
                (ServerState::Up, None) => (ServerHealth::Up, None),
            };
            if state != ServerHealth::Up {
                server.state = ServerState::Down;
            }
            standings.push(ServerStanding { key, state, trouble });
        }
    }
    standings
}

/// Logs the servers whose standing has changed.
pub(crate) fn log_changes(before: &Effective, now: &Effective) {
    let were: HashMap<&ServerKey, ServerHealth> =
        before.servers.iter().map(|standing| (&standing.key, standing.state)).collect();
    let mut up: HashMap<&str, usize> = HashMap::new();
    for standing in &now.servers {
        *up.entry(&standing.key.nat).or_default() += usize::from(standing.state == ServerHealth::Up);
    }
    for ((_, balance, _), ServerStanding { key, state, trouble }) in servers(&now.policy).zip(&now.servers) {
        let was = were.get(key).copied();
        if was == Some(*state) || was.is_none() && *state == ServerHealth::Up {
            continue;
        }
        let (nat, server) = (key.nat.as_str(), key.server.as_str());
        let trouble = match state {
            ServerHealth::Up => {
                info!(nat, server, "server up; new connections go to it by its weight");
                continue;
            }
            ServerHealth::OutOfService => "out of service by the policy",
            ServerHealth::Failed => trouble.as_deref().unwrap_or_default(),
        };
        let new = match up.get(nat).copied().unwrap_or(0) {
            0 => "no other is up, new connections are refused".to_owned(),
            1 => "new connections go to the other one".to_owned(),
            others => format!("new connections go to {others} others"),
        };
        let old = match balance.on_failure {
            OnFailure::Kill => "its own end",
            OnFailure::Keep => "its own stay",
        };
        warn!(nat, server, "server down: {trouble}; {new}, {old}");
    }
}

/// Servers of a policy, in its order.
fn servers(policy: &Policy) -> impl Iterator<Item = (ServerKey, &Balance, &Server)> {
    policy.nats.iter().flat_map(|nat| {
        let balance = match &nat.action {
            NatAction::Balance(balance) => Some(balance),
            _ => None,
        };
        balance.into_iter().flat_map(move |balance| {
            balance.servers.iter().map(move |server| {
                (ServerKey { nat: nat.name.clone(), server: server.target() }, balance, server)
            })
        })
    })
}

/// Servers by name, with their shares of new connections.
fn shares_of(servers: &Servers) -> Vec<(&str, f64)> {
    let shares = servers.shares();
    let all = shares.iter().sum::<usize>().max(1) as f64;
    servers
        .list
        .iter()
        .zip(&shares)
        .map(|(server, share)| (server.name.as_str(), *share as f64 / all))
        .collect()
}

#[cfg(test)]
mod tests;
