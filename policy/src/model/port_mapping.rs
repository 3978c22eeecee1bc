//! Port mappings: outside ports that inside hosts ask for.

use wire::Nanos;

use super::PortRange;

/// Outside ports that hosts behind a source translation may ask for (PCP, NAT-PMP, UPnP), and an operator may map for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortMapping {
    /// Outside ports that may be asked for, as far as the translation allocates them; never empty.
    pub ports: Vec<PortRange>,
    /// Longest lifetime that a host gets; it may ask again before the end.
    pub lifetime: Nanos,
    /// Most mappings of one inside address.
    pub per_host: u32,
    /// Most mappings of the translation, on each worker.
    pub size: u32,
    /// Requests by UPnP.
    pub upnp: Upnp,
    /// Longest lifetime that a request by UPnP gets, and the one of those without an end.
    pub upnp_lifetime: Nanos,
}

/// Requests by UPnP, beside those by PCP and NAT-PMP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Upnp {
    /// Requests are answered.
    On,
    /// Requests are not answered.
    #[default]
    Off,
}

impl PortMapping {
    /// Longest lifetime where the policy says nothing.
    pub const LIFETIME: Nanos = Nanos::from_secs(7_200);

    /// Longest lifetime that a policy may grant: a day (RFC 6887, section 15).
    pub const MOST_LIFETIME: Nanos = Nanos::from_secs(86_400);

    /// Longest lifetime of requests by UPnP where the policy says nothing, and the longest that a policy may grant: a week
    /// (WANIPConnection:2, PortMappingLeaseDuration).
    pub const UPNP_LIFETIME: Nanos = Nanos::from_secs(604_800);

    /// Most mappings of one inside address where the policy says nothing.
    pub const PER_HOST: u32 = 32;

    /// Most mappings of a translation where the policy says nothing.
    pub const SIZE: u32 = 1_024;

    /// Most mappings that a policy may ask for.
    pub const MOST_SIZE: u32 = 16_384;
}

impl Default for PortMapping {
    fn default() -> PortMapping {
        PortMapping {
            ports: vec![PortRange { first: 1024, last: 65535 }],
            lifetime: PortMapping::LIFETIME,
            per_host: PortMapping::PER_HOST,
            size: PortMapping::SIZE,
            upnp: Upnp::Off,
            upnp_lifetime: PortMapping::UPNP_LIFETIME,
        }
    }
}
