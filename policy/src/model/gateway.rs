//! Settings of the live daemon.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::{Ipfix, Log, MetricsAccess, PageAccess, Sync};

/// Settings of the live daemon; replay and chip ignore them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gateway {
    /// Number of worker threads; one if absent.
    pub workers: Option<u16>,
    /// Driver of interfaces that `drivers` does not list.
    pub driver: Driver,
    /// Drivers of single interfaces.
    pub drivers: Vec<PortDriver>,
    /// Treatment of frames that GRO merged, or that GSO left unsegmented.
    pub offload: Offload,
    /// Fast path of established flows in Linux's kernel.
    pub fast_path: FastPath,
    /// Listening address and TCP port of the metrics endpoint; none if absent.
    pub metrics: Option<SocketAddr>,
    /// Access control of the metrics endpoint.
    pub metrics_access: MetricsAccess,
    /// Listening address and TCP port of the page and its HTTP API; none if absent.
    pub page: Option<SocketAddr>,
    /// Access control of the page.
    pub page_access: PageAccess,
    /// Log of packets, connections and mappings.
    pub log: Log,
    /// Export of flow records and NAT events.
    pub ipfix: Ipfix,
    /// State synchronisation with a second gateway.
    pub sync: Sync,
    /// Packets that the drop recorder remembers of each reason, 0 for none; [`Gateway::DROP_RECORD`] if absent.
    pub drop_record: Option<u16>,
    /// Source of the SAs of IKE daemons; none if absent.
    pub xfrm: Option<Xfrm>,
    /// State of the interfaces after the gateway has ended.
    pub on_exit: OnExit,
}

impl Gateway {
    /// Packets that the drop recorder remembers of each reason where the policy says nothing.
    pub const DROP_RECORD: u16 = 16;

    /// The most packets that it may remember of each.
    pub const MOST_DROP_RECORD: u16 = 256;

    /// Packets that the drop recorder remembers of each reason; 0 for none.
    pub fn drop_record(&self) -> u16 {
        self.drop_record.unwrap_or(Gateway::DROP_RECORD)
    }
}

/// Source of the SAs of IKE daemons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Xfrm {
    /// A socket of the gateway's at this path, which speaks the messages of Linux's XFRM.
    Socket(PathBuf),
    /// Linux's XFRM itself.
    Linux,
}

/// The driver of one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortDriver {
    /// Name of the interface.
    pub interface: String,
    /// Driver of the interface's frames.
    pub driver: Driver,
}

/// Driver that receives and sends an interface's frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Driver {
    /// The fastest that works.
    #[default]
    Auto,
    /// AF_XDP, with frames in memory shared with Linux.
    Xdp,
    /// AF_PACKET, with a receive ring.
    Packet,
    /// A TAP device, created by the gateway.
    Tap,
}

/// Treatment of frames larger than the link carries: merged by Linux or a card (GRO), or left for a card to segment (GSO).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offload {
    /// Such frames go through whole where their segments would go through alike, and are segmented otherwise.
    #[default]
    Whole,
    /// Such frames are segmented on receipt.
    Segment,
    /// Merging is switched off, and oversized frames are dropped.
    Refuse,
}

/// Fast path: established flows that Linux's kernel carries, without a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FastPath {
    /// By a program at tc, on interfaces of AF_PACKET; none where the kernel refuses it.
    #[default]
    Auto,
    /// As `Auto`, and it is a warning where the kernel refuses it.
    Tc,
    /// As `Tc`, and by a program at XDP on interfaces of AF_XDP, with a warning where the kernel or a device refuses that.
    Xdp,
    /// None.
    Off,
}

/// State of the policy's interfaces after the gateway has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnExit {
    /// Linux forwards nothing by these interfaces, receives only what rules to `self` accept, and answers.
    #[default]
    Closed,
    /// After an orderly shutdown the interfaces are Linux's, unfiltered.
    Open,
}

impl Gateway {
    /// Returns the driver of an interface.
    pub fn driver_of(&self, interface: &str) -> Driver {
        let own = self.drivers.iter().find(|own| own.interface == interface);
        own.map_or(self.driver, |own| own.driver)
    }
}
