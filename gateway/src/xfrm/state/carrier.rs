//! Data plane behind the databases.

use std::sync::Arc;
use std::time::Duration;

use crate::xfrm::association::{Association, Numbers};
use crate::xfrm::message::Selector;
use crate::xfrm::parse::Refusal;

/// What carries associations out.
///
/// A method returns when the data plane does as told: only then is the daemon answered, and lets its peer send.
pub trait Carrier {
    /// Puts an association in force as policies say.
    ///
    /// # Errors
    /// A tunnel for it that cannot have it, or no room.
    fn add(&mut self, association: &Arc<Association>, protected: &Protected) -> Result<(), Refusal>;

    /// Changes ends, bounds or packets of an association, whose keys and numbers stay.
    ///
    /// # Errors
    /// A tunnel for it that cannot have it any more.
    fn change(
        &mut self,
        old: &Association,
        new: &Arc<Association>,
        protected: &Protected,
    ) -> Result<(), Refusal>;

    /// Takes associations out of force.
    fn remove(&mut self, associations: &[&Association]);

    /// Returns the use of an association so far.
    fn usage(&mut self, association: &Association) -> Usage;
}

/// Protection by an association, as policies say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Protected {
    /// Packets that it may protect; any where there are none.
    pub packets: Vec<Selector>,
    /// True while the policies that ask for one like it name another one by its SPI, and none leaves it open: it protects nothing yet. A
    /// daemon that answers a rekeying adds an outbound association before its peer can receive by it. For a second, too, of one of a processor's
    /// own beside another that the processor can send by.
    pub stands_by: bool,
    /// True where one of them asks for an association of each processor's own beside it (`XFRM_POLICY_CPU_ACQUIRE`, RFC 9611).
    pub per_cpu: bool,
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
