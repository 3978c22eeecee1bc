//! Commands to a worker, carried out and answered between two turns.

use std::time::SystemTime;

use dataplane::flow::FlowId;
use dataplane::sa::SaChange;
use wire::esp::Direction;

use super::command::{Command, FoundFlows, FoundSubscribers, Known, Retired, Swap, WorkerEvent};
use super::processing::Processing;
use super::report::{Account, Report};
use super::{Then, Worker};
use crate::drops::FoundDrops;
use crate::flows::{FlowQuery, FlowView, NotKnown};
use crate::view::SessionStatus;

impl Worker {
    /// Carries out the pending commands. Who asked may have gone; then the answer is dropped.
    pub(super) fn run_commands(&mut self) -> Then {
        while let Some(command) = self.commands.next() {
            match command {
                Command::Attach { interface, ends, done } => {
                    self.links.attach(&interface, ends, &mut self.processing.pool);
                    self.serve_fast_ports();
                    drop(done);
                }
                Command::Swap { swap, done } => {
                    let _ = done.send(self.swap(*swap));
                }
                Command::Neighbour(known) => self.update_neighbour(&known),
                Command::Announce { interface, addresses } => {
                    let (tables, pool) = (&self.processing.tables, &mut self.processing.pool);
                    self.links.announce(&interface, &addresses, tables, pool);
                }
                Command::Neighbours(all) => all.iter().for_each(|known| self.update_neighbour(known)),
                Command::Multicast { routes, epoch, done } => {
                    let _ = done.send(self.processing.shard.route_multicast(routes, epoch));
                }
                Command::Flows { query, first, most, reply } => {
                    let _ = reply.send(self.flows(&query, first, most));
                }
                Command::Kill { query, first, most, reply } => {
                    let _ = reply.send(self.kill(&query, first, most));
                }
                Command::Meters { ends, reply } => {
                    let (tables, now) = (self.processing.tables.clone(), self.clock.now());
                    let states = self.processing.shard.meters(&tables, ends, now);
                    let _ = reply.send((tables, states));
                }
                Command::Subscribers { first, most, reply } => {
                    let _ = reply.send(self.subscribers(first, most));
                }
                Command::Drops { reasons, reply } => {
                    let Processing { shard, tables, .. } = &self.processing;
                    let (packets, tables) = (shard.recorder.packets(&reasons), tables.clone());
                    let (now, at) = (self.clock.now(), SystemTime::now());
                    let _ = reply.send(FoundDrops { packets, tables, now, at });
                }
                Command::Export { about, from, most, reply } => {
                    let now = self.clock.now();
                    let _ = reply.send(self.processing.export(about.as_deref(), now, from, most));
                }
                Command::Import { tables, items, reply } => {
                    let _ = reply.send(self.processing.import(&tables, &items, self.clock));
                }
                Command::Changes { all, most, into, reply } => {
                    let _ = reply.send(self.processing.changes(all, most, into, self.clock.now()));
                }
                Command::Peer { link, reply } => {
                    self.follow_peer(link);
                    let _ = reply.send(());
                }
                Command::TakeIn { tables, flows, ended, round, reply } => {
                    let now = self.clock.now();
                    let _ = reply.send(self.processing.take_in(&tables, &flows, &ended, round, now));
                    // Logs and records of flows that have ended.
                    self.send_records();
                }
                Command::SweepCopies { sweep, first, most, reply } => {
                    let _ = reply.send(self.processing.shard.sweep_copies(sweep, first, most));
                    self.send_records();
                }
                Command::SetChanges { all, most, into, reply } => {
                    let _ = reply.send(self.set_changes(all, most, into));
                }
                Command::TakeInSets { tables, removed, elements, round, reply } => {
                    let _ = reply.send(self.take_in_sets(&tables, &removed, &elements, round));
                }
                Command::SweepSetCopies { sweep, first, most, reply } => {
                    let _ = reply.send(self.sweep_set_copies(sweep, first, most));
                }
                Command::PortMappingChanges { asked, most, reply } => {
                    let _ = reply.send(self.port_mapping_changes(asked, most));
                }
                Command::TakeInPortMappings { tables, removed, mappings, round, reply } => {
                    let _ = reply.send(self.take_in_port_mappings(&tables, &removed, &mappings, round));
                    self.send_records();
                }
                Command::SweepPortMappingCopies { sweep, most, reply } => {
                    let _ = reply.send(self.processing.shard.sweep_port_mapping_copies(sweep, most));
                    self.send_records();
                }
                Command::Capture { id, tap, reply } => {
                    let _ = reply.send(self.processing.captures.add(id, *tap, &self.processing.tables));
                    self.processing.pause_publication();
                }
                Command::Drain(done) => {
                    self.links.drain();
                    self.drains.push(done);
                }
                Command::Sa { change, done } => {
                    if matches!(&change, SaChange::Delete(id) if id.direction == Direction::In) {
                        self.take_all_handed_off();
                    }
                    let Processing { shard, tables, .. } = &mut self.processing;
                    let _ = done.send(shard.change_sa(tables, change, self.clock.now()));
                }
                Command::ChangeSets { changes, reply } => {
                    let changed = self.change_sets(&changes);
                    if let Some(reply) = reply {
                        let _ = reply.send(Ok(changed));
                    }
                }
                Command::CopySets(to) => self.copy_sets(&to),
                Command::SetElements { set, first, most, reply } => {
                    let _ = reply.send(self.set_elements(&set, first, most));
                }
                Command::MapPort { request, reply } => {
                    let _ = reply.send(self.map_port(&request));
                }
                Command::UnmapPort { inside, holder, reply } => {
                    let _ = reply.send(self.unmap_port(&inside, &holder));
                }
                Command::MappedAddress { host, reply } => {
                    let now = self.clock.now();
                    let Processing { shard, tables, .. } = &mut self.processing;
                    let _ = reply.send(shard.mapped_address(tables, host, now));
                }
                Command::PortMappings { host, reply } => {
                    let _ = reply.send(self.list_port_mappings(host));
                }
                Command::EndCapture(id) => {
                    self.processing.captures.end(id);
                    self.processing.pause_publication();
                }
                Command::PausePublication(pause) => {
                    self.processing.pause = pause;
                    self.processing.pause_publication();
                }
                Command::Report(to) => {
                    let _ = to.send(self.report());
                }
                Command::Stop => return Then::Stop,
            }
        }
        Then::Continue
    }

    /// Swaps the tables; returns the retired state, for a thread that has time to free it.
    fn swap(&mut self, swap: Swap) -> Retired {
        let now = self.clock.now();
        let Swap { tables, plan, steering } = swap;
        if let Some(log) = &mut self.log {
            log.tell_left_out_at_once(&mut self.processing.shard.log, &self.processing.tables);
        }
        self.send_accounts();
        let Ok(applied) = self.processing.apply(plan, &tables, now) else {
            let message = "tables out of turn".to_owned();
            self.tell(WorkerEvent::Panicked { worker: self.number, message });
            return Retired { _tables: tables, _applied: None };
        };
        // What has ended by it is known to the tables of before.
        self.send_records();
        self.send_accounts();
        let old = self.processing.follow(tables);
        if let Some(log) = &mut self.log {
            log.follow(&self.processing.tables);
        }
        if let Some(export) = &mut self.export {
            export.begin(&mut self.processing.shard);
        }
        if let Some(steering) = steering {
            self.processing.join(steering);
        }
        self.links.follow(&self.processing.tables, &mut self.processing.pool);
        self.serve_fast_ports();
        self.settle();
        self.timers.tend_at_once();
        Retired { _tables: old, _applied: Some(applied) }
    }

    /// Applies a neighbour update. Packets that have waited for it go on at once.
    fn update_neighbour(&mut self, known: &Known) {
        let Some(interface) = self.processing.tables.interface_named(&known.interface) else { return };
        self.processing.update_neighbour(interface, known.address, known.found);
        self.timers.tend_at_once();
    }

    fn flows(&mut self, query: &FlowQuery, first: FlowId, most: u32) -> Result<FoundFlows, NotKnown> {
        let filter = query.filter(&self.processing.tables)?;
        let mut flows = Vec::new();
        let (limit, mut beyond) = (query.limit.unwrap_or(usize::MAX), None);
        let (now, places) = (self.clock.now(), first.0..first.0.saturating_add(most));
        self.processing.shard.update_published(places.clone());
        let (shard, tables) = (&self.processing.shard, &self.processing.tables);
        let next = shard.list_flows(tables, now, places, &filter, |flow| {
            if flows.len() == limit {
                beyond = beyond.or(Some(flow.id));
                return;
            }
            let fast_path = shard.is_published(flow.id);
            flows.push(FlowView { fast_path, ..FlowView::of(self.number, &flow, tables) });
        });
        Ok(FoundFlows { flows, beyond, next })
    }

    fn subscribers(&self, first: u32, most: u32) -> FoundSubscribers {
        let mut subscribers = Vec::new();
        let egress = &self.processing.shard.egress;
        let next = egress.subscribers(first, most, |subscriber| subscribers.push(subscriber));
        FoundSubscribers { subscribers, tables: self.processing.tables.clone(), next }
    }

    fn kill(
        &mut self,
        query: &FlowQuery,
        first: FlowId,
        most: u32,
    ) -> Result<(u64, Option<FlowId>), NotKnown> {
        let (shard, tables) = (&self.processing.shard, &self.processing.tables);
        let filter = query.filter(tables)?;
        let mut found = Vec::new();
        let (now, places) = (self.clock.now(), first.0..first.0.saturating_add(most));
        let next = shard.list_flows(tables, now, places, &filter, |flow| {
            found.push((flow.id, flow.original));
        });
        for (id, original) in &found {
            self.processing.shard.end_flow_of(*id, original);
            let shard = &self.processing.shard;
            if shard.log.is_half_full() || shard.accounting.is_half_full() {
                self.send_records();
            }
        }
        self.send_records();
        Ok((found.len() as u64, next))
    }

    fn report(&mut self) -> Report {
        self.processing.shard.sweep_all_published(self.clock.now());
        let Processing { shard, tables, .. } = &self.processing;
        let Account { turns, busy } = self.account;
        Report {
            worker: self.number,
            links: self.links.report(self.fast_path.as_ref().map(|(_, ports)| ports)),
            counters: shard.counters.clone(),
            nat_blocks: shard.blocks_of_sources(tables),
            queued: shard.egress.lengths().collect(),
            trees: shard.egress.trees().collect(),
            sas: shard.sas.views(self.clock.now()),
            sets: (0..tables.sets.len() as u16).map(|set| shard.set_report(set)).collect(),
            port_mappings: shard.port_mappings.report(),
            sessions: shard.sessions.views().filter_map(|view| SessionStatus::of(&view, tables)).collect(),
            flows: shard.flows.len(),
            published: shard.fast_path.published() as u32,
            flow_capacity: shard.flows.capacity(),
            flow_turnover: [shard.flows.created(), shard.flows.ended()],
            memory: shard.memory().collect(),
            free_frames: self.processing.pool.available(),
            now: self.clock.now(),
            busy,
            turns,
        }
    }
}
