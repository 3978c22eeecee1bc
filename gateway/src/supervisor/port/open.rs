//! Opening of ports on the seven kinds of interfaces: port, VLAN of Linux, VLAN of the gateway, tunnel, PPPoE session, TAP, cells over UDP.

use std::sync::Arc;

use policy::Policy;
use policy::model::{Driver, FastPath as FastPathWish, Interface, LinkKind, Offload};
use ports::{
    Bypass, CellSocket, CellSpec, Copying, FastEgress, FastHook, FastPath, FastPort, Held, OpenError, Opened,
    Punt, PuntHeld, Spec, Tagged, Tap, TapHeld, Wish,
};
use tracing::warn;
use wire::PoolMemory;

use crate::linux::State;
use crate::reload::Reload;
use crate::supervisor::worker::Workers;
use crate::worker::Attachment;

/// Parameters for opening ports.
pub(super) struct Opener<'a> {
    /// Policy in force, merged with the state of Linux.
    policy: &'a Policy,
    linux: &'a State,
    offload: ports::Offload,
    fast_path: Option<Arc<FastPath>>,
    /// The fast path again, where it is to be in front of AF_XDP too.
    fast_path_xdp: Option<Arc<FastPath>>,
    /// The frame pool of each worker.
    memories: Vec<PoolMemory>,
}

/// Opened interface: attachments of each worker, and the driver in use.
pub(super) struct Ends {
    pub(super) ends: Vec<Attachment>,
    pub(super) driver: String,
    /// Tags of frames received: `Tagged::Yes` where each frame keeps its own.
    pub(super) tagged: Tagged,
    pub(super) refused: Vec<String>,
    pub(super) kept: Kept,
    /// Device of the punt that Linux's sending by the interface is diverted to; none where the gateway has made the interface.
    pub(super) punt: Option<u32>,
}

/// Kernel objects that live as long as the port.
#[derive(Default)]
pub(super) struct Kept {
    _port: Option<Held>,
    _punt: Option<PuntHeld>,
    _made: Option<TapHeld>,
}

impl Opener<'_> {
    /// Opens ports of the policy in force for these workers.
    pub(super) fn new<'a>(reload: &'a Reload, linux: &'a State, workers: &Workers) -> Opener<'a> {
        let offload = match reload.policy.gateway.offload {
            Offload::Whole => ports::Offload::Whole,
            Offload::Segment => ports::Offload::Segment,
            Offload::Refuse => ports::Offload::Refuse,
        };
        let (fast_path, memories) = (workers.fast_path(), workers.memories());
        let fast_path_xdp =
            fast_path.clone().filter(|_| reload.policy.gateway.fast_path == FastPathWish::Xdp);
        Opener { policy: &reload.effective.policy, linux, offload, fast_path, fast_path_xdp, memories }
    }

    /// Opens an interface of Linux, and its punt path.
    pub(super) fn port(&self, name: &str, mtu: u32, wish: Driver) -> Result<Ends, OpenError> {
        let wish = match wish {
            Driver::Auto => Wish::Auto,
            Driver::Xdp => Wish::Xdp,
            Driver::Packet => Wish::Packet,
            Driver::Tap => Wish::Tap,
        };
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
        let tagged = tags(self.policy, name);
        let spec = Spec {
            name: name.to_owned(),
            mtu,
            wish,
            tagged,
            offload: self.offload,
            fast_path: self.fast_path.clone(),
            fast_path_xdp: self.fast_path_xdp.clone(),
            ..Spec::default()
        };
        // First the way to Linux: what the port takes must not be lost to it meanwhile.
        let punt = Punt::open(name, ports::MARK, self.memories.len())?;
        let Opened { driver, copying, tagged, ifindex, lines, refused, held, bypass } =
            ports::open(&spec, &self.memories)?;
        let fast = self.fast_port(name, driver, ifindex, &bypass);
        let driver = match (driver, copying) {
            (ports::Driver::Xdp, Copying::ZeroCopy) => format!("{driver}, zero-copy"),
            (ports::Driver::Xdp, Copying::Copy) => format!("{driver}, copy"),
            _ => driver.to_string(),
        };
        let ends = lines.into_iter().zip(punt.lines).map(|(line, punt)| Attachment {
            line: Some(line),
            punt: Some(Box::new(punt)),
            fast,
        });
        Ok(Ends {
            ends: ends.collect(),
            driver,
            tagged,
            refused: refused.iter().map(ToString::to_string).collect(),
            kept: Kept { _port: Some(held), _punt: Some(punt.held), _made: None },
            punt: Some(punt.ifindex),
        })
    }

    /// The fast path's view of a port; none where packets do not go by.
    fn fast_port(
        &self,
        name: &str,
        driver: ports::Driver,
        ifindex: u32,
        bypass: &Bypass,
    ) -> Option<FastPort> {
        match bypass {
            Bypass::Off => return None,
            Bypass::Refused(error) => {
                warn!(interface = name, "no fast path: {error}");
                return None;
            }
            Bypass::On => {}
        }
        let hook = if driver == ports::Driver::Xdp { FastHook::Xdp } else { FastHook::Tc };
        if let Some(path) = self.fast_path_xdp.as_ref().filter(|_| hook == FastHook::Xdp) {
            if let Err(error) = path.count_unsent() {
                warn!(interface = name, "frames that devices refuse are not counted: {error}");
            }
        }
        let egress = match &self.fast_path_xdp {
            None => FastEgress::Buffers,
            Some(_) => FastEgress::of(ifindex).unwrap_or_else(|error| {
                warn!(interface = name, "could not ask whether the device takes frames from XDP: {error}");
                FastEgress::Buffers
            }),
        };
        if hook == FastHook::Xdp && egress == FastEgress::Buffers {
            warn!(
                interface = name,
                "no fast path for what leaves by it: the device takes no frames from XDP (a veth does if its peer has GRO)"
            );
        }
        Some(FastPort { ifindex, hook, egress })
    }

    /// Opens the punt path of a VLAN interface of Linux, whose frames arrive at the parent's port.
    pub(super) fn punt(&self, name: &str) -> Result<Ends, OpenError> {
        let punt = Punt::open(name, ports::MARK, self.memories.len())?;
        let kept = Kept { _port: None, _punt: Some(punt.held), _made: None };
        Ok(Ends { kept, punt: Some(punt.ifindex), ..alone(punt.lines, "Linux's VLAN interface") })
    }

    /// Creates a TAP interface for a VLAN that has no interface in Linux.
    pub(super) fn vlan(&self, interface: &Interface) -> Result<Ends, OpenError> {
        // As VLAN interfaces of Linux have it; another one at each start would be unknown to everybody on the link.
        let parent = interface.parent.as_deref().and_then(|parent| self.linux.link_named(parent));
        let mac = interface.mac.or(parent.and_then(|(_, link)| link.mac));
        let tap = Tap::open(&interface.name, interface.mtu, mac, self.memories.len())?;
        warn_unmarked(&interface.name, &tap);
        let kept = Kept { _made: tap.held, ..Kept::default() };
        Ok(Ends { kept, ..alone(tap.lines, "VLAN") })
    }

    /// Creates the TUN interface of a tunnel or a PPP session, by which Linux's own packets go into it and come out of it. The outer
    /// packets are those of other ports.
    pub(super) fn soft(&self, interface: &Interface, mtu: u16, driver: &str) -> Result<Ends, OpenError> {
        let tun = Tap::bare(&interface.name, mtu, self.memories.len())?;
        warn_unmarked(&interface.name, &tun);
        let kept = Kept { _made: tun.held, ..Kept::default() };
        Ok(Ends { kept, ..alone(tun.lines, driver) })
    }

    /// Creates a TUN or TAP interface for Linux, by the kind of link, and carries what it has at its other end in ATM cells over UDP.
    pub(super) fn cells(
        &self,
        interface: &Interface,
        spec: &CellSpec,
        socket: &CellSocket,
    ) -> Result<Ends, OpenError> {
        let lines = spec.open(socket, self.memories.len())?;
        let near = match spec.kind {
            LinkKind::Ip => Tap::bare(&interface.name, interface.mtu, self.memories.len())?,
            LinkKind::Ethernet => {
                Tap::open(&interface.name, interface.mtu, interface.mac, self.memories.len())?
            }
        };
        warn_unmarked(&interface.name, &near);
        let kept = Kept { _made: near.held, ..Kept::default() };
        let mut ends = Ends { kept, ..alone(near.lines, &ports::Driver::Cells.to_string()) };
        for (ends, line) in ends.ends.iter_mut().zip(lines) {
            ends.line = Some(Box::new(line));
        }
        Ok(ends)
    }

    /// Creates a TAP interface for Linux, and a second one, linked to it, for a bridge, a guest or a namespace.
    pub(super) fn tap(&self, interface: &Interface) -> Result<Ends, OpenError> {
        let near = Tap::open(&interface.name, interface.mtu, interface.mac, self.memories.len())?;
        warn_unmarked(&interface.name, &near);
        let far = Spec {
            name: format!("{}{FAR}", interface.name),
            mtu: interface.mtu,
            wish: Wish::Tap,
            offload: self.offload,
            ..Spec::default()
        };
        let far = ports::open(&far, &self.memories)?;
        let kept = Kept { _made: near.held, ..Kept::default() };
        let mut ends = Ends { kept, ..alone(near.lines, "TAP") };
        for (ends, line) in ends.ends.iter_mut().zip(far.lines) {
            ends.line = Some(line);
        }
        Ok(ends)
    }
}

/// Tags that frames on the port of an interface must keep: those of its VLANs, and priorities that classes or meters go by.
pub(super) fn tags(policy: &Policy, name: &str) -> Tagged {
    let carries =
        |interface: &Interface| interface.parent.as_deref() == Some(name) && interface.ppp.is_none();
    let is_needed = policy.interfaces.iter().any(carries) || policy.reads_priority();
    if is_needed { Tagged::Yes } else { Tagged::No }
}

/// Suffix of the interface name at the far end of a TAP link.
const FAR: &str = "-far";

/// Returns punt paths without a port of their own.
fn alone(lines: Vec<ports::TapLine>, driver: &str) -> Ends {
    let ends =
        lines.into_iter().map(|line| Attachment { line: None, punt: Some(Box::new(line)), fast: None });
    let (kept, punt) = (Kept::default(), None);
    let (driver, tagged) = (driver.to_owned(), Tagged::Yes);
    Ends { ends: ends.collect(), driver, tagged, refused: Vec::new(), kept, punt }
}

/// Warns operators where frames that Linux forwards cannot be told from frames that Linux originates.
fn warn_unmarked(name: &str, tap: &Tap) {
    if tap.held.is_none() {
        warn!(
            interface = name,
            "no BPF program can be loaded: what Linux forwards from interfaces outside the policy passes as its own; keep \
             net.ipv4.ip_forward off"
        );
    }
}
