//! WANs: links to the Internet that share the default routes, and policy routes to them.

use std::net::IpAddr;

use wire::Nanos;

use super::{CheckUrl, Conditions, Interface, LinkKind, Pace, StatusRange};

/// A link to the Internet. The WANs of a policy share its default routes, of IPv4 and IPv6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wan {
    /// Name.
    pub name: String,
    /// Interface that its packets leave by.
    pub interface: String,
    /// Routers of the provider, one of each IP version at most. None of a version: packets of that version do not leave by
    /// this WAN, unless its link carries bare IP packets.
    pub gateways: Vec<IpAddr>,
    /// Share of the new flows among the WANs of a tier, 1 to 255.
    pub weight: u8,
    /// Order of use, 1 to 255: new flows go by the WANs that are up of the lowest tier that has any.
    pub tier: u8,
    /// Treatment of the flows that left by this WAN when it goes down.
    pub on_failure: OnFailure,
    /// Check by a live gateway; none where absent.
    pub check: Option<WanCheck>,
    /// Administrative state. A live gateway takes a WAN as down that has failed, too.
    pub state: WanState,
}

/// Check of a WAN by echo requests or by HTTP, in rounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WanCheck {
    /// Hosts that are asked in each round, of which one must answer; the WAN's routers where there are none.
    pub ping: Vec<IpAddr>,
    /// URLs that are asked for in each round in the place of echo requests; one must answer with a status that passes.
    pub urls: Vec<CheckUrl>,
    /// Statuses of HTTP that pass.
    pub status: Vec<StatusRange>,
    /// Interval and hysteresis.
    pub pace: Pace,
}

impl WanCheck {
    /// Interval and hysteresis where the policy says nothing.
    pub const PACE: Pace = Pace { every: Nanos::from_secs(1), timeout: None, fall: 3, rise: 5 };
    /// Most hosts, and most URLs.
    pub const MOST_HOSTS: usize = 8;
}

impl Default for WanCheck {
    fn default() -> WanCheck {
        WanCheck {
            ping: Vec::new(),
            urls: Vec::new(),
            status: vec![StatusRange::SUCCESSFUL],
            pace: WanCheck::PACE,
        }
    }
}

/// State of a WAN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WanState {
    /// New flows go by it.
    #[default]
    Up,
    /// No new flow goes by it.
    Down,
}

/// Treatment of the flows that left by a WAN that goes down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// They end at their next packet: a TCP client gets a reset, and opens another connection.
    #[default]
    Kill,
    /// They stay with the WAN, and go on when it is up again.
    Keep,
}

/// A policy route: traffic that leaves by one WAN, where the default route leads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyRoute {
    /// Name.
    pub name: String,
    /// Conditions on the first packet of a flow, after destination translation. There is none on where it leaves.
    pub conditions: Conditions,
    /// Name of the WAN.
    pub via: String,
    /// Treatment of new flows while the WAN is down.
    pub when_down: WhenDown,
}

/// Treatment of the new flows of a policy route while its WAN is down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenDown {
    /// They go by the other WANs.
    #[default]
    FallBack,
    /// They are dropped.
    Drop,
}

impl Wan {
    /// Most WANs of a policy.
    pub const MOST: usize = 32;

    /// A WAN with nothing but its name and interface.
    pub fn new(name: &str, interface: &str) -> Wan {
        Wan {
            name: name.to_owned(),
            interface: interface.to_owned(),
            gateways: Vec::new(),
            weight: 1,
            tier: 1,
            on_failure: OnFailure::default(),
            check: None,
            state: WanState::default(),
        }
    }

    /// Router of an IP version.
    pub fn gateway(&self, like: IpAddr) -> Option<IpAddr> {
        self.gateways.iter().copied().find(|gateway| gateway.is_ipv4() == like.is_ipv4())
    }

    /// True if packets of the IP version of `like` can leave by this WAN, whose interface is `interface`: to its router, or
    /// by a link that needs none.
    pub fn carries(&self, like: IpAddr, interface: &Interface) -> bool {
        if !self.gateways.is_empty() || interface.link != LinkKind::Ip {
            return self.gateway(like).is_some();
        }
        let own = &interface.addresses;
        own.is_empty() || own.iter().any(|net| net.addr().is_ipv4() == like.is_ipv4())
    }
}
