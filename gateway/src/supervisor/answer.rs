//! Requests to the supervisor, and its answers; and the policy file, read again.

use std::sync::Arc;

use policy::{Checked, LoadError};
use tracing::error;

use super::Supervisor;
use crate::multicast::MulticastView;
use crate::reload::{Asked, Keep};
use crate::request::{Basis, Overview, Refusal, Request};
use crate::{api, service};

/// True if a policy has nothing to carry out, as from an empty file that is still being written: unwanted of a running gateway.
fn is_empty(policy: &policy::Policy) -> bool {
    policy.interfaces.is_empty()
}

impl Supervisor {
    /// Answers a request, at once or on completion. The client may have gone; then the answer is dropped.
    pub(super) fn answer(&mut self, request: Request) {
        match request {
            Request::Overview(reply) => {
                let _ = reply.send(self.overview());
            }
            Request::Apply { policy, confirm, by, reply } => {
                if self.reload.is_on_trial() {
                    let _ = reply.send(Err(Refusal::OnTrial));
                    return;
                }
                if is_empty(&policy) {
                    let _ = reply.send(Err(Refusal::Empty));
                    return;
                }
                if let Some(what) = self.process.needs_restart(&self.reload.policy.gateway, &policy.gateway) {
                    let _ = reply.send(Err(Refusal::Restart(what)));
                    return;
                }
                let asked =
                    Asked { policy: Arc::new(*policy), confirm, keep: Keep::Applied(by), reply: Some(reply) };
                self.reload.ask(asked);
            }
            Request::Confirm(reply) => {
                let _ = reply.send(self.reload.confirm());
            }
            Request::Rollback(reply) => {
                let _ = reply.send(self.reload.roll_back());
            }
            Request::History(reply) => {
                let _ = reply.send(self.reload.history());
            }
            Request::Kept { number, reply } => {
                let _ = reply.send(self.reload.kept(number));
            }
            Request::Release { interfaces, reply } => {
                let _ = reply.send(self.ports.guards.release(&interfaces).map_err(|error| error.to_string()));
            }
            Request::AddSa(asked, reply) => {
                let _ = reply.send(self.add_sa(*asked));
            }
            Request::DeleteSa { tunnel, direction, spi, reply } => {
                let _ = reply.send(self.delete_sa(&tunnel, direction, spi));
            }
            Request::FlushSas(tunnel, reply) => {
                let _ = reply.send(self.flush_sas(tunnel.as_deref()));
            }
            Request::Reserve(used, reply) => {
                let _ = reply.send(self.reserve.go_on_behind(&self.reload.tables, &used));
            }
            Request::ChangeSet { set, asked, reply } => self.change_set(&set, asked, reply),
            Request::SetFaults { set, reply } => {
                let _ = reply.send(self.sets.faults(&set));
            }
            Request::PortMapper(reply) => {
                let _ = reply.send(self.port_mapper());
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
                    neighbours: self.neighbours.all(),
                });
            }
        }
    }

    pub(super) fn overview(&mut self) -> Overview {
        let ineffective = self.kernel.notes(&self.reload);
        self.kernel.count_drops();
        let notes = self.reload.effective.notes.iter().map(ToString::to_string);
        let notes = notes.chain(ineffective).chain(self.reload.history_fault().map(str::to_owned)).collect();
        let reports = self.workers.reports();
        let mut overview = Overview {
            tables: self.reload.tables.clone(),
            tunnels: Vec::new(),
            sets: self.sets.views(&self.reload.tables, &reports),
            multicast_routes: MulticastView::all(self.reload.multicast_routes(), &self.reload.tables),
            reports,
            wans: self.checks.views(&self.reload.effective, &self.reload.tables),
            servers: self.servers.views(&self.reload.effective, &self.reload.tables),
            ports: self.ports.states(&self.reload, &self.kernel),
            guards: self.ports.guards.states(),
            fast_path: self.workers.fast_path(),
            uptime: self.process.started.elapsed(),
            panics: self.workers.panics(),
            log: self.process.log.counts(),
            ipfix: self.process.ipfix.counts(),
            sync: self.process.sync.status(),
            confinement: self.process.confinement.clone(),
            notes,
            trial: self.reload.time_on_trial(),
        };
        let views = overview.associations();
        let tables = &self.reload.tables;
        let tunnels = tables.tunnels.list.iter().filter_map(|tunnel| tables.interface(tunnel.interface));
        let names = tunnels.map(|interface| interface.name.as_str());
        overview.tunnels = self.totals.update(names, &views);
        overview
    }

    /// Requests the policy of the reread policy file.
    pub(super) fn reread(&mut self, found: Result<Checked, LoadError>) {
        service::reloading();
        self.process.log.reopen();
        let checked = match found {
            Ok(checked) => checked,
            Err(error) => return error!("{error}; the policy in force stays"),
        };
        let wrong = match &checked.policy {
            None => api::in_short(&checked),
            Some(policy) if is_empty(policy) => "has no interface".to_owned(),
            Some(policy) => match self.process.needs_restart(&self.reload.policy.gateway, &policy.gateway) {
                None => String::new(),
                Some(what) => format!("changes {what}, which takes a restart"),
            },
        };
        match checked.policy {
            Some(policy) if wrong.is_empty() => {
                let asked =
                    Asked { policy: Arc::new(policy), confirm: None, keep: Keep::Reread, reply: None };
                self.reload.ask(asked);
            }
            _ => error!("{} {wrong}; the policy in force stays", self.process.policy_file.display()),
        }
    }
}
