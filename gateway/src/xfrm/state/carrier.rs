//! Data plane behind the databases.

use std::sync::Arc;
use std::time::Duration;

use crate::xfrm::association::{Association, Numbers};
use crate::xfrm::parse::Refusal;

/// What carries associations out.
///
/// A method returns when the data plane does as told: only then is the daemon answered, and lets its peer send.
pub trait Carrier {
    /// Puts an association in force.
    ///
    /// # Errors
    /// No tunnel for it, or no room.
    fn add(&mut self, association: &Arc<Association>) -> Result<(), Refusal>;

    /// Changes ends, bounds or selector of an association, whose keys and numbers stay.
    ///
    /// # Errors
    /// No tunnel for it any more.
    fn change(&mut self, old: &Association, new: &Arc<Association>) -> Result<(), Refusal>;

    /// Takes an association out of force.
    fn remove(&mut self, association: &Association);

    /// Returns the use of an association so far.
    fn usage(&mut self, association: &Association) -> Usage;
}

/// Keeper of associations that no data plane carries: requests are answered, and no packet is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kept;

impl Carrier for Kept {
    fn add(&mut self, _: &Arc<Association>) -> Result<(), Refusal> {
        Ok(())
    }

    fn change(&mut self, _: &Association, _: &Arc<Association>) -> Result<(), Refusal> {
        Ok(())
    }

    fn remove(&mut self, _: &Association) {}

    fn usage(&mut self, association: &Association) -> Usage {
        Usage { numbers: association.numbers, ..Usage::default() }
    }
}

/// Use of an association so far, as the data plane counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of inner packets.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// Time since first use.
    pub since_first: Option<Duration>,
    /// Time since last use.
    pub since_last: Option<Duration>,
    /// Numbers sent and received.
    pub numbers: Numbers,
    /// Packets outside the window, repeated, and forged.
    pub failures: [u32; 3],
}
