//! Errors of a compilation.

use std::net::IpAddr;

use lookup::fib::FibError;

use super::MAX_ZONES;

/// Reason for refusing to compile a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// A rule or translation names a zone that no interface is in.
    #[error("no interface is in zone `{0}`")]
    UnknownZone(String),
    /// An interface that does not exist is named.
    #[error("there is no interface `{0}`")]
    UnknownInterface(String),
    /// A set that does not exist is named.
    #[error("there is no set `{0}`")]
    UnknownSet(String),
    /// A policy route names a WAN that does not exist.
    #[error("there is no WAN `{0}`")]
    UnknownWan(String),
    /// A VRF that no interface is in.
    #[error("no interface is in the VRF \"{0}\"")]
    UnknownVrf(String),
    /// More VRFs than there can be.
    #[error("{0} VRFs are more than {most}", most = super::vrf::MOST)]
    TooManyVrfs(usize),
    /// A class names a meter that does not exist.
    #[error("there is no meter `{0}`")]
    UnknownMeter(String),
    /// A route has neither router nor interface.
    #[error("a route has neither router nor interface")]
    EmptyNextHop,
    /// A router is on no interface's network.
    #[error("the router {0} is on no interface's network")]
    NextHopOffLink(IpAddr),
    /// More zones than 64, the gateway's own included.
    #[error("{0} zones, with `self`; there can be {MAX_ZONES}")]
    TooManyZones(usize),
    /// More interfaces than 65,534.
    #[error("{0} interfaces; there can be 65534")]
    TooManyInterfaces(usize),
    /// Rules tell more classes of source MAC addresses apart than 65,535.
    #[error("{0} intervals between the MAC addresses of rules; there can be 65535")]
    TooManyMacs(usize),
    /// More dynamic sets than 32.
    #[error("{0} dynamic sets; there can be 32")]
    TooManySets(usize),
    /// Conditions ask for more sources and destinations in dynamic sets, and rates, than 31.
    #[error(
        "{0} dynamic sets as sources and as destinations, and rates that are conditions; there can be 31"
    )]
    TooManySetUses(usize),
    /// (destination translations + 1) × (source translations + 1) is more than 65,536.
    #[error(
        "{destinations} destination and {sources} source translations; the product of both, each \
         plus one, can be 65536"
    )]
    TooManyNats {
        /// Destination translations.
        destinations: usize,
        /// Source translations.
        sources: usize,
    },
    /// A tunnel has no security association out, or several.
    #[error("the tunnel `{0}` has not one security association out")]
    TunnelSas(String),
    /// A security association cannot be carried out.
    #[error("tunnel `{tunnel}`, SPI {spi:#x}: {error}")]
    Sa {
        /// Interface of the tunnel.
        tunnel: String,
        /// Security parameters index.
        spi: u32,
        /// Reason.
        error: esp::KeyError,
    },
    /// The routes do not fit.
    #[error("routes: {0}")]
    Fib(FibError),
}
