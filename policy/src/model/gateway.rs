//! Knobs of the live daemon.

use std::net::SocketAddr;

use super::{Log, MetricsAccess};

/// Knobs of the live daemon; replay and chip ignore them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gateway {
    /// Worker threads; one where absent.
    pub workers: Option<u16>,
    /// How frames come and go, where nothing else is said for an interface.
    pub driver: Driver,
    /// How they do on single interfaces.
    pub drivers: Vec<PortDriver>,
    /// What becomes of frames that were put together, or left uncut, to spare work.
    pub offload: Offload,
    /// Where metrics can be fetched: an address and TCP port. Nowhere where absent.
    pub metrics: Option<SocketAddr>,
    /// Who may fetch them.
    pub metrics_access: MetricsAccess,
    /// What is logged of packets, and where to.
    pub log: Log,
    /// What becomes of interfaces when the gateway ends.
    pub on_exit: OnExit,
}

/// The driver of one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortDriver {
    /// The interface's name.
    pub interface: String,
    /// How its frames come and go.
    pub driver: Driver,
}

/// How frames come from an interface and go to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Driver {
    /// The fastest that works.
    #[default]
    Auto,
    /// AF_XDP, with frames in memory that is shared with Linux.
    Xdp,
    /// AF_PACKET, with a ring to receive from.
    Packet,
    /// A TAP device, which the gateway makes.
    Tap,
}

/// What becomes of frames larger than the link carries: those that Linux or a card put together (GRO), or that
/// were to be cut by a card (GSO).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offload {
    /// They are cut.
    #[default]
    Segment,
    /// Putting together is switched off, and what comes nevertheless is dropped.
    Refuse,
}

/// What becomes of the policy's interfaces when the gateway has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnExit {
    /// Linux forwards nothing by them, and receives what rules to `self` let in, and answers.
    #[default]
    Closed,
    /// After an end in good order they are Linux's, unfiltered.
    Open,
}

impl Gateway {
    /// The driver of an interface.
    pub fn driver_of(&self, interface: &str) -> Driver {
        let own = self.drivers.iter().find(|own| own.interface == interface);
        own.map_or(self.driver, |own| own.driver)
    }
}
