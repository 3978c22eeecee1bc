//! Stages of the pipeline that a policy needs.

use arrayvec::ArrayVec;

/// The most stages that the lists of [`pipeline`](crate::pipeline) can have.
pub(crate) const ROOM: usize = 24;

/// The stages that a policy needs, by their places in the lists; [`Selection::of`] is beside these.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// All stages of the selection.
    pub(crate) all: Places,
    /// Stages for a whole batch: the stages before `track`, or all stages that decide, without connection tracking.
    pub(crate) front: Places,
    /// Stages between `parse` and `track`, for frames handed off by a worker that has parsed them.
    pub(crate) taken: Places,
    /// `track`, where it is needed.
    pub(crate) track: Places,
    /// Deciding stages after `track`: for the first packet of a flow, and for every packet without connection tracking.
    pub(crate) first: Places,
    /// Stages of `first` up to `snat`, which creates the flow, and the stages after `snat`.
    pub(crate) opening: Places,
    pub(crate) opened: Places,
    /// Stages of `first` for packets of established flows, too.
    pub(crate) decided: Places,
    /// Stages that answer, and egress: for a packet that is not simply queued.
    pub(crate) leaving: Places,
}

/// Places in the lists, ascending.
type Places = ArrayVec<u8, ROOM>;
