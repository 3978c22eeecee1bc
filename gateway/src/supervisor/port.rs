//! The ports, and the guards of their interfaces: a port whose interface appears is opened and given to all workers; one
//! whose interface goes is taken away from them.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use dataplane::fast_path::Pause;
use policy::Policy;
use policy::model::{Channel, Driver, FastPath, Interface, LinkKind, Offload};
use ports::{CellSocket, CellSpec, CellsIn, OpenError, Tagged};
use tracing::{info, warn};
use wire::ethernet::Mac;

use super::kernel::Kernel;
use super::worker::Workers;
use crate::guard::Guards;
use crate::guard::alone::{self, Terms};
use crate::linux::interface::{Condition, Link};
use crate::linux::{LinkIndex, State};
use crate::port::{Carrier, PortState, Presence};
use crate::reload::Reload;

mod open;

use open::{Ends, Kept, Opener, tags};

/// The ports of the policy in force.
pub(super) struct Ports {
    attached: BTreeMap<String, Attached>,
    /// Sockets of the lines of cells in the policy, each for all interfaces of its line, by their ends.
    sockets: BTreeMap<CellEnds, CellSocket>,
    /// Guards that keep Linux off the interfaces of the policy.
    pub(super) guards: Guards,
    /// Failures to open ports that are in the log already.
    logged: Vec<PortState>,
}

/// Properties of a port that a policy asks for. Others mean another port.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Asked {
    driver: Driver,
    offload: Offload,
    front: Front,
    /// Cells, and MTU in bytes, where the gateway carries the cells itself.
    cells: Option<(Cells, u16)>,
}

/// Program in front of a port of AF_XDP.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Front {
    Nothing,
    /// The fast path, whose program knows the interface's link-layer address.
    FastPath,
}

/// Own end of UDP that carries cells, and the other one.
type CellEnds = (SocketAddr, SocketAddr);

/// ATM channel that the gateway carries itself.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Cells {
    channel: Channel,
    kind: LinkKind,
    ends: CellEnds,
    receives: CellsIn,
}

/// Port that was opened, or failed to open.
struct Attached {
    /// Interface of Linux: index, since another interface may get its name, and MTU, in bytes. None where the gateway has
    /// created the interface, whose removal is then up to the gateway.
    on: Option<(LinkIndex, u32)>,
    /// Link-layer address of that interface.
    mac: Option<Mac>,
    state: PortState,
    /// Properties that the policy asked for at the time of opening.
    asked: Asked,
    /// Tags of frames received.
    tagged: Tagged,
    _kept: Kept,
}

impl Attached {
    /// True if the port is up.
    fn is_up(&self) -> bool {
        self.state.state == Presence::Up
    }

    /// True if the interface of the port still exists, unchanged.
    fn is_there(&self, name: &str, linux: &State) -> bool {
        let Some((index, mtu)) = self.on else { return true };
        // Shorter packets are no reason to open it anew, and to let Linux see frames meanwhile.
        let same = |now, link: &Link| {
            let is_known = self.asked.front == Front::Nothing || link.mac == self.mac;
            now == index && link.mtu <= mtu && is_known && link.condition != Condition::Down
        };
        linux.link_named(name).is_some_and(|(now, link)| same(now, link))
    }
}

impl Ports {
    /// Creates the set without ports, on interfaces with these guards.
    pub(super) fn new(guards: Guards) -> Ports {
        Ports { attached: BTreeMap::new(), sockets: BTreeMap::new(), guards, logged: Vec::new() }
    }

    /// Puts guards on the interfaces of a policy.
    pub(super) fn name_guards(&self, policy: &Policy, linux: &State) {
        self.guards.name(terms(policy, linux));
    }

    /// True if the port of an interface is up.
    pub(super) fn is_up(&self, name: &str) -> bool {
        self.attached.get(name).is_some_and(Attached::is_up)
    }

    /// Opens missing ports where possible, and closes those whose interface has gone or changed.
    pub(super) fn attach_all(&mut self, reload: &Reload, linux: &State, workers: &Workers) {
        let is_off = reload.policy.gateway.fast_path == FastPath::Off;
        workers.pause_publication(if is_off { Pause::Yes } else { Pause::No });
        let policy = &reload.effective.policy;
        let wanted = |name: &str| policy.interfaces.iter().any(|interface| interface.name == name);
        let gone: Vec<String> = self
            .attached
            .iter()
            .filter(|(name, port)| {
                let loses_tags = port.tagged == Tagged::No && tags(policy, name) == Tagged::Yes;
                let is_as_asked = port.asked == asked_for(name, reload) && !loses_tags;
                !wanted(name) || !port.is_there(name, linux) || !is_as_asked
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            self.detach(&name, workers);
        }
        let lines = policy.interfaces.iter().filter_map(|interface| cells_of(interface, policy));
        let ends: Vec<CellEnds> = lines.map(|cells| cells.ends).collect();
        self.sockets.retain(|own, _| ends.contains(own));
        for interface in &policy.interfaces {
            if !self.attached.contains_key(&interface.name) {
                self.attach(interface, reload, linux, workers);
            }
        }
    }

    /// Detaches a port from the workers, and closes it.
    pub(super) fn detach(&mut self, name: &str, workers: &Workers) {
        let Some(port) = self.attached.remove(name) else { return };
        if let Some((index, _)) = port.on {
            self.guards.close(index);
        }
        info!(interface = name, "port detached");
        workers.detach(name);
        self.guards.unmake(name);
    }

    /// Retries failed ports.
    pub(super) fn attach_failed(&mut self, reload: &Reload, linux: &State, workers: &Workers) {
        let failed = |port: &Attached| port.state.state == Presence::Failed;
        if self.attached.values().any(failed) {
            let logged: Vec<PortState> =
                self.attached.values().filter(|port| failed(port)).map(|port| port.state.clone()).collect();
            self.attached.retain(|_, port| !failed(port));
            self.logged = logged;
            self.attach_all(reload, linux, workers);
            self.logged.clear();
        }
    }

    /// Returns the interfaces with ports of their own, thus no VLANs and tunnels, if all of them failed to open. An interface that is
    /// absent or down has not failed.
    pub(super) fn all_failed(&self, reload: &Reload) -> Option<Vec<String>> {
        let interfaces = reload.effective.policy.interfaces.iter();
        let is_root = |own: &&Interface| own.parent.is_none() && own.esp.is_none();
        let roots = interfaces.filter(is_root);
        let names: Vec<String> = roots.map(|interface| interface.name.clone()).collect();
        let failed =
            |name: &String| self.attached.get(name).is_some_and(|port| port.state.state == Presence::Failed);
        (!names.is_empty() && names.iter().all(failed)).then_some(names)
    }

    fn attach(&mut self, interface: &Interface, reload: &Reload, linux: &State, workers: &Workers) {
        let name = &interface.name;
        let is_session = interface.ppp.is_some() && interface.parent.is_some();
        let is_vlan = interface.parent.is_some() && !is_session;
        let is_tunnel = interface.esp.is_some();
        let asked = asked_for(name, reload);
        let wish = asked.driver;
        let cells = cells_of(interface, &reload.effective.policy);
        let opener = Opener::new(reload, linux, workers);
        let link = linux.link_named(name).map(|(index, link)| (index, link.mtu, link.condition));
        let opened = match link {
            None if is_vlan || is_tunnel || is_session || cells.is_some() || wish == Driver::Tap => {
                self.guards.make(name);
                let made = match (&interface.esp, &cells) {
                    (Some(_), _) => opener.soft(interface, mtu_of(name, reload), "tunnel"),
                    (None, _) if is_session => opener.soft(interface, interface.mtu, "PPPoE"),
                    (None, Some(cells)) => self.socket(name, cells.ends).and_then(|socket| {
                        let Cells { channel, kind, receives, .. } = *cells;
                        let spec = CellSpec { name: name.clone(), receives, channel, kind };
                        opener.cells(interface, &spec, &socket)
                    }),
                    (None, None) if is_vlan => opener.vlan(interface),
                    (None, None) => opener.tap(interface),
                };
                match made {
                    Ok(_) => self.guards.made(name),
                    Err(_) => self.guards.unmake(name),
                }
                made
            }
            None | Some((_, _, Condition::Down)) => return,
            // What Linux has under that name speaks no PPP.
            Some(_) if is_tunnel || interface.ppp.is_some() || cells.is_some() => {
                let cause = ports::Cause::NameTaken;
                let refused = vec![ports::Refusal { driver: ports::Driver::Tap, cause }];
                Err(OpenError { interface: name.clone(), refused })
            }
            Some(_) if is_vlan => opener.punt(name),
            Some((_, mtu, _)) => opener.port(name, mtu, wish),
        };
        let on = link.map(|(index, mtu, _)| (index, mtu));
        let mac = linux.link_named(name).and_then(|(_, link)| link.mac);
        let opened = opened.and_then(|ends| match (on, ends.punt) {
            (Some((index, _)), Some(punt)) => {
                self.guards.open(index, name, punt).map(|()| ends).map_err(|error| {
                    let cause = ports::Cause::Kernel { operation: error.operation, error: error.error };
                    OpenError {
                        interface: name.clone(),
                        refused: vec![ports::Refusal { driver: ports::Driver::Tap, cause }],
                    }
                })
            }
            _ => Ok(ends),
        });
        let (state, kept, tagged, ends) = match opened {
            Ok(Ends { ends, driver, refused, kept, tagged, .. }) => {
                info!(interface = name, driver, "port attached");
                for reason in &refused {
                    info!(interface = name, "driver not used: {reason}");
                }
                let state = PortState { driver, refused, ..PortState::new(name, Presence::Up) };
                (state, kept, tagged, ends)
            }
            Err(error) => {
                let refused: Vec<String> = error.refused.iter().map(ToString::to_string).collect();
                let state = PortState { refused, ..PortState::new(name, Presence::Failed) };
                // What is tried again and again is logged once.
                if !self.logged.contains(&state) {
                    warn!("{error}");
                }
                (state, Kept::default(), Tagged::Yes, Vec::new())
            }
        };
        workers.attach(name, ends);
        self.attached.insert(name.clone(), Attached { on, mac, state, asked, tagged, _kept: kept });
    }

    /// Returns the socket of a line of cells, and opens it for the first interface of the line.
    fn socket(&mut self, name: &str, ends: CellEnds) -> Result<CellSocket, OpenError> {
        if let Some(socket) = self.sockets.get(&ends) {
            return Ok(socket.clone());
        }
        let socket = CellSocket::open(name, ends.0, ends.1)?;
        self.sockets.insert(ends, socket.clone());
        Ok(socket)
    }

    /// All ports, in the order of the policy's interfaces.
    pub(super) fn states(&self, reload: &Reload, kernel: &Kernel) -> Vec<PortState> {
        let interfaces = reload.effective.policy.interfaces.iter();
        interfaces
            .map(|interface| {
                let link = kernel.state.link_named(&interface.name);
                let condition = link.map(|(_, link)| link.condition);
                let egress = link.map(|(index, _)| kernel.egress.drops(index.0)).unwrap_or_default();
                let carrier = match condition {
                    Some(Condition::Running) => Carrier::Up,
                    Some(Condition::NoCarrier) => Carrier::Down,
                    Some(Condition::Down) | None => Carrier::Unknown,
                };
                let state = match self.attached.get(&interface.name) {
                    Some(port) => port.state.clone(),
                    None => {
                        let state = if condition.is_some() { Presence::Down } else { Presence::Absent };
                        PortState::new(&interface.name, state)
                    }
                };
                PortState { carrier, egress, ..state }
            })
            .collect()
    }

    /// Closes all ports. Guards stay.
    pub(super) fn close_all(&mut self) {
        self.attached.clear();
        self.sockets.clear();
    }
}

/// Returns what the policy requests for the port of an interface.
fn asked_for(name: &str, reload: &Reload) -> Asked {
    let gateway = &reload.policy.gateway;
    let is_named = gateway.drivers.iter().any(|own| own.interface == name);
    let bare = reload.effective.policy.interface(name).is_some_and(|own| own.link == LinkKind::Ip);
    // What is said of all interfaces is meant of those that can have it.
    let driver = if bare && !is_named { Driver::Packet } else { gateway.driver_of(name) };
    let own = reload.policy.interface(name);
    let cells = own.and_then(|own| Some((cells_of(own, &reload.policy)?, own.mtu)));
    let may_be_xdp = matches!(driver, Driver::Auto | Driver::Xdp);
    let front =
        if may_be_xdp && gateway.fast_path == FastPath::Xdp { Front::FastPath } else { Front::Nothing };
    Asked { driver, offload: gateway.offload, front, cells }
}

/// Returns the ATM channel that the gateway carries itself for an interface.
fn cells_of(interface: &Interface, policy: &Policy) -> Option<Cells> {
    let channel = interface.atm.as_ref()?.channel;
    let line = policy.interface(interface.line())?;
    let carrier = line.atm.as_ref()?;
    let receives = if line.name == interface.name { CellsIn::All } else { CellsIn::None };
    Some(Cells { channel, kind: interface.link, ends: (carrier.local?, carrier.remote?), receives })
}

/// Largest packet of a tunnel, by the tables in force.
fn mtu_of(name: &str, reload: &Reload) -> u16 {
    let tables = &reload.tables;
    let found = tables.interface_named(name).and_then(|place| tables.interface(place));
    found.map_or(policy::tunnel::LEAST_MTU, |interface| interface.mtu)
}

/// Returns the rules, by interface, that guards apply while no gateway runs.
pub(super) fn terms(policy: &Policy, linux: &State) -> BTreeMap<String, Terms> {
    let interfaces = policy.interfaces.iter();
    interfaces.map(|interface| (interface.name.clone(), alone::terms(policy, interface, linux))).collect()
}
