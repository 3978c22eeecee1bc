//! Flows that other workers look up, too: each is in a steering table from its beginning to its end, however it ends.

use std::sync::Arc;

use super::FlowTable;
use crate::flow::SteeringTable;

/// Membership of a worker in a steering table.
#[derive(Clone, Debug)]
pub struct Member {
    /// The steering table of all workers, which hash with the same seed.
    pub steering: Arc<SteeringTable>,
    /// Number of the worker, from 0.
    pub worker: u16,
}

impl FlowTable {
    /// Publishes the table's flows, present and future, in a steering table, and in no other.
    pub fn join(&mut self, member: Member) {
        self.withdraw_all();
        self.member = Some(member);
        self.each_hash(|member, hash| member.steering.publish(hash, member.worker));
    }

    /// Returns the membership in a steering table; `None` for the only worker.
    #[inline(always)]
    pub fn member(&self) -> Option<&Member> {
        self.member.as_ref()
    }

    #[inline(always)]
    pub(super) fn publish(&self, hash: u64) {
        if let Some(member) = &self.member {
            member.steering.publish(hash, member.worker);
        }
    }

    #[inline(always)]
    pub(super) fn withdraw(&self, hash: u64) {
        if let Some(member) = &self.member {
            member.steering.withdraw(hash, member.worker);
        }
    }

    pub(super) fn withdraw_all(&self) {
        self.each_hash(|member, hash| member.steering.withdraw(hash, member.worker));
    }

    fn each_hash(&self, with: impl Fn(&Member, u64)) {
        let Some(member) = &self.member else { return };
        for (_, flow) in self.iter() {
            with(member, self.hasher.hash(flow.original()));
            if flow.reply().is_some() {
                with(member, self.hasher.hash(flow.reply()));
            }
        }
    }
}

/// Withdraws the flows from the steering table.
impl Drop for FlowTable {
    fn drop(&mut self) {
        self.withdraw_all();
    }
}
