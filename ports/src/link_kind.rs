//! Link kind of an interface, by its hardware type in Linux.

use wire::LinkKind;

use crate::refusal::Cause;
use crate::sys::interface::Asker;

/// Link kind of an interface, which must be Ethernet or bare IP.
pub(crate) fn link_kind(name: &str, asker: &Asker) -> Result<LinkKind, Cause> {
    let hardware = asker.hardware(name).map_err(Cause::step("ask what kind of interface it is"))?;
    kind_of(hardware).ok_or(Cause::UnknownLink(hardware))
}

/// Link kind of a hardware type (`ARPHRD_*`); `None` if neither Ethernet nor bare IP.
pub fn kind_of(hardware: u16) -> Option<LinkKind> {
    /// Interfaces from which and to which Linux redirects packets without a link-layer header
    /// (`dev_is_mac_header_xmit` in linux/if_arp.h).
    const BARE: [u16; 8] = [
        libc::ARPHRD_NONE,
        libc::ARPHRD_PPP,
        ARPHRD_RAWIP,
        libc::ARPHRD_TUNNEL,
        libc::ARPHRD_TUNNEL6,
        libc::ARPHRD_SIT,
        libc::ARPHRD_IPGRE,
        ARPHRD_IP6GRE,
    ];
    const ARPHRD_RAWIP: u16 = 519;
    const ARPHRD_IP6GRE: u16 = 823;
    match hardware {
        libc::ARPHRD_ETHER => Some(LinkKind::Ethernet),
        _ if BARE.contains(&hardware) => Some(LinkKind::Ip),
        _ => None,
    }
}
