//! Flows that other workers look for, too: each is in a steering table from its beginning to its end, however it ends.

use std::sync::Arc;

use super::FlowTable;
use crate::flow::SteeringTable;

/// A worker's part in a steering table.
#[derive(Clone, Debug)]
pub struct Member {
    /// The steering table, which all workers share. They hash by the same seed.
    pub steering: Arc<SteeringTable>,
    /// The worker, from 0.
    pub worker: u16,
}

impl FlowTable {
    /// Shows its flows, those of today and those to come, in a steering table, and in no other one.
    pub fn join(&mut self, member: Member) {
        self.withdraw_all();
        self.member = Some(member);
        self.each_hash(|member, hash| member.steering.publish(hash, member.worker));
    }

    /// Where it shows its flows; nowhere where it is the only worker's.
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

/// Whose flows are gone has none to show.
impl Drop for FlowTable {
    fn drop(&mut self) {
        self.withdraw_all();
    }
}
