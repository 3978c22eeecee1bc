//! Which ports hang on which interfaces, and how they come there: a port whose interface appears is opened and
//! given to all workers; one whose interface goes is taken away.

use std::fmt;

use policy::model::{Driver, Interface, LinkKind, Offload};
use ports::{Copying, Held, OpenError, Opened, Punt, PuntHeld, Spec, Tagged, Tap, TapHeld, Wish};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::Supervisor;
use crate::linux::LinkIndex;
use crate::linux::state::{Condition, Link};
use crate::worker::Attachment;

/// A port that was opened, or could not be.
pub(super) struct Attached {
    /// The interface of Linux that it is on: its number, since another one may get its name, and its MTU. None where
    /// the gateway has made it, so that it goes when the gateway wants.
    on: Option<(LinkIndex, u32)>,
    state: PortState,
    /// What the policy asked for when it was opened.
    asked: (Driver, Offload),
    _kept: Kept,
}

impl Attached {
    /// True if frames come and go.
    pub(super) fn is_up(&self) -> bool {
        self.state.state == Presence::Up
    }
}

/// What lives in the kernel as long as the port.
#[derive(Default)]
struct Kept {
    _port: Option<Held>,
    _punt: Option<PuntHeld>,
    _made: Option<TapHeld>,
}

/// What was opened for an interface: its ends for each worker, and how.
struct Ends {
    ends: Vec<Attachment>,
    driver: String,
    refused: Vec<String>,
    kept: Kept,
    /// Device of the punt that Linux's sending by the interface is diverted to; none where the gateway has made the interface.
    punt: Option<u32>,
}

/// A port, as operators see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortState {
    /// Its interface.
    pub interface: String,
    /// Presence.
    pub state: Presence,
    /// Carrier of its link.
    #[serde(default)]
    pub carrier: Carrier,
    /// How frames come and go.
    pub driver: String,
    /// Drivers that were tried and did not work, and why.
    pub refused: Vec<String>,
}

/// Carrier of a link, as Linux says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Carrier {
    /// Somebody is.
    Up,
    /// Nobody is.
    Down,
    /// Linux does not have the interface, or it is switched off.
    #[default]
    Unknown,
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Carrier::Up => "up",
            Carrier::Down => "down",
            Carrier::Unknown => "-",
        })
    }
}

/// Presence of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Presence {
    /// Frames come and go.
    Up,
    /// Linux has the interface, but it is switched off.
    Down,
    /// Linux does not have the interface.
    Absent,
    /// It could not be opened.
    Failed,
}

impl fmt::Display for Presence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Presence::Up => "up",
            Presence::Down => "down",
            Presence::Absent => "absent",
            Presence::Failed => "failed",
        })
    }
}

impl Supervisor {
    /// Opens what can be opened and is not, and closes what has gone.
    pub(super) fn attach_all(&mut self) {
        let policy = self.reload.effective.clone();
        let wanted = |name: &str| policy.policy.interfaces.iter().any(|interface| interface.name == name);
        let gone: Vec<String> = self
            .attached
            .iter()
            .filter(|(name, port)| {
                !wanted(name) || !self.is_there(name, port) || port.asked != self.asked_for(name)
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            self.detach(&name);
        }
        for interface in &policy.policy.interfaces {
            if !self.attached.contains_key(&interface.name) {
                self.attach(interface);
            }
        }
    }

    /// How the policy wants the port of an interface opened.
    fn asked_for(&self, name: &str) -> (Driver, Offload) {
        let gateway = &self.reload.policy.gateway;
        let is_named = gateway.drivers.iter().any(|own| own.interface == name);
        let bare = self.reload.effective.policy.interface(name).is_some_and(|own| own.link == LinkKind::Ip);
        // What is said of all interfaces is meant of those that can have it.
        let driver = if bare && !is_named { Driver::Packet } else { gateway.driver_of(name) };
        (driver, gateway.offload)
    }

    /// True if what a port was opened on is still there, and as it was.
    fn is_there(&self, name: &str, port: &Attached) -> bool {
        let Some((index, mtu)) = port.on else { return true };
        // Shorter packets are no reason to open it anew, and to let Linux see frames meanwhile.
        let same = |now, link: &Link| now == index && link.mtu <= mtu && link.condition != Condition::Down;
        self.linux.link_named(name).is_some_and(|(now, link)| same(now, link))
    }

    /// Takes a port away from the workers, and closes it.
    pub(super) fn detach(&mut self, name: &str) {
        let Some(port) = self.attached.remove(name) else { return };
        if let Some((index, _)) = port.on {
            self.guards.close(index);
        }
        info!(interface = name, "port detached");
        self.workers.detach(name);
        self.guards.unmake(name);
    }

    /// Tries again to open what could not be opened.
    pub(super) fn attach_failed(&mut self) {
        let failed = |port: &Attached| port.state.state == Presence::Failed;
        if self.attached.values().any(failed) {
            let told: Vec<PortState> =
                self.attached.values().filter(|port| failed(port)).map(|port| port.state.clone()).collect();
            self.attached.retain(|_, port| !failed(port));
            self.told = told;
            self.attach_all();
            self.told.clear();
        }
    }

    /// The interfaces that frames come by, if none of them could be opened for another reason than that Linux does not have it,
    /// or has it switched off. A VLAN's come by its parent's.
    pub(super) fn all_failed(&self) -> Option<Vec<String>> {
        let interfaces = self.reload.effective.policy.interfaces.iter();
        let roots = interfaces.filter(|interface| interface.parent.is_none());
        let names: Vec<String> = roots.map(|interface| interface.name.clone()).collect();
        let failed =
            |name: &String| self.attached.get(name).is_some_and(|port| port.state.state == Presence::Failed);
        (!names.is_empty() && names.iter().all(failed)).then_some(names)
    }

    fn attach(&mut self, interface: &Interface) {
        let name = &interface.name;
        let is_vlan = interface.parent.is_some();
        let asked = self.asked_for(name);
        let (wish, _) = asked;
        let link = self.linux.link_named(name).map(|(index, link)| (index, link.mtu, link.condition));
        let opened = match link {
            None if is_vlan || wish == Driver::Tap => {
                self.guards.make(name);
                let made = if is_vlan { self.soft(interface) } else { self.cable(interface) };
                match made {
                    Ok(_) => self.guards.made(name),
                    Err(_) => self.guards.unmake(name),
                }
                made
            }
            None | Some((_, _, Condition::Down)) => return,
            Some(_) if is_vlan => self.punt(name),
            Some((_, mtu, _)) => self.port(name, mtu, wish),
        };
        let on = link.map(|(index, mtu, _)| (index, mtu));
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
        let (state, kept, ends) = match opened {
            Ok(Ends { ends, driver, refused, kept, .. }) => {
                info!(interface = name, driver, "port attached");
                for reason in &refused {
                    info!(interface = name, "driver not used: {reason}");
                }
                let (state, carrier) = (Presence::Up, Carrier::Unknown);
                (PortState { interface: name.clone(), state, carrier, driver, refused }, kept, ends)
            }
            Err(error) => {
                let refused: Vec<String> = error.refused.iter().map(ToString::to_string).collect();
                let driver = String::new();
                let (state, carrier) = (Presence::Failed, Carrier::Unknown);
                let state = PortState { interface: name.clone(), state, carrier, driver, refused };
                // What is tried again and again is told once.
                if !self.told.contains(&state) {
                    warn!("{error}");
                }
                (state, Kept::default(), Vec::new())
            }
        };
        self.workers.attach(name, ends);
        self.attached.insert(name.clone(), Attached { on, state, asked, _kept: kept });
    }

    /// A port of Linux, and the way to Linux behind it.
    fn port(&self, name: &str, mtu: u32, wish: Driver) -> Result<Ends, OpenError> {
        let wish = match wish {
            Driver::Auto => Wish::Auto,
            Driver::Xdp => Wish::Xdp,
            Driver::Packet => Wish::Packet,
            Driver::Tap => Wish::Tap,
        };
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
        let carries = |interface: &Interface| interface.parent.as_deref() == Some(name);
        let vlans = self.reload.effective.policy.interfaces.iter().any(carries);
        let tagged = if vlans { Tagged::Yes } else { Tagged::No };
        let offload = self.offload();
        let spec = Spec { name: name.to_owned(), mtu, wish, tagged, offload, ..Spec::default() };
        // First the way to Linux: what the port takes must not be lost to it meanwhile.
        let punt = Punt::open(name, ports::MARK, self.workers.count())?;
        let Opened { driver, copying, lines, refused, held, .. } =
            ports::open(&spec, &self.workers.memories())?;
        let driver = match (driver, copying) {
            (ports::Driver::Xdp, Copying::ZeroCopy) => format!("{driver}, zero-copy"),
            (ports::Driver::Xdp, Copying::Copy) => format!("{driver}, copy"),
            _ => driver.to_string(),
        };
        let ends = lines
            .into_iter()
            .zip(punt.lines)
            .map(|(line, punt)| Attachment { line: Some(line), punt: Some(Box::new(punt)) });
        Ok(Ends {
            ends: ends.collect(),
            driver,
            refused: refused.iter().map(ToString::to_string).collect(),
            kept: Kept { _port: Some(held), _punt: Some(punt.held), _made: None },
            punt: Some(punt.ifindex),
        })
    }

    /// The way to Linux behind one of its VLAN interfaces, whose frames come by its parent's port.
    fn punt(&self, name: &str) -> Result<Ends, OpenError> {
        let punt = Punt::open(name, ports::MARK, self.workers.count())?;
        let kept = Kept { _port: None, _punt: Some(punt.held), _made: None };
        Ok(Ends { kept, punt: Some(punt.ifindex), ..alone(punt.lines, "Linux's VLAN interface") })
    }

    /// An interface for Linux, of a VLAN that it has none for.
    fn soft(&self, interface: &Interface) -> Result<Ends, OpenError> {
        // As VLAN interfaces of Linux have it; another one at each start would be unknown to everybody on the link.
        let parent = interface.parent.as_deref().and_then(|parent| self.linux.link_named(parent));
        let mac = interface.mac.or(parent.and_then(|(_, link)| link.mac));
        let tap = Tap::open(&interface.name, interface.mtu, mac, self.workers.count())?;
        warn_unmarked(&interface.name, &tap);
        let kept = Kept { _made: tap.held, ..Kept::default() };
        Ok(Ends { kept, ..alone(tap.lines, "VLAN") })
    }

    /// An interface for Linux, and a cable whose other end is another one, for a bridge, a guest or a namespace.
    fn cable(&self, interface: &Interface) -> Result<Ends, OpenError> {
        let near = Tap::open(&interface.name, interface.mtu, interface.mac, self.workers.count())?;
        warn_unmarked(&interface.name, &near);
        let far = Spec {
            name: format!("{}{FAR}", interface.name),
            mtu: interface.mtu,
            wish: Wish::Tap,
            offload: self.offload(),
            ..Spec::default()
        };
        let far = ports::open(&far, &self.workers.memories())?;
        let kept = Kept { _made: near.held, ..Kept::default() };
        let mut ends = Ends { kept, ..alone(near.lines, "TAP") };
        for (ends, line) in ends.ends.iter_mut().zip(far.lines) {
            ends.line = Some(line);
        }
        Ok(ends)
    }

    fn offload(&self) -> ports::Offload {
        match self.reload.policy.gateway.offload {
            Offload::Segment => ports::Offload::Segment,
            Offload::Refuse => ports::Offload::Refuse,
        }
    }

    /// All ports, in the order of the policy's interfaces.
    pub(super) fn port_states(&self) -> Vec<PortState> {
        let interfaces = self.reload.effective.policy.interfaces.iter();
        interfaces
            .map(|interface| {
                let condition = self.linux.link_named(&interface.name).map(|(_, link)| link.condition);
                let carrier = match condition {
                    Some(Condition::Running) => Carrier::Up,
                    Some(Condition::NoCarrier) => Carrier::Down,
                    Some(Condition::Down) | None => Carrier::Unknown,
                };
                match self.attached.get(&interface.name) {
                    Some(port) => PortState { carrier, ..port.state.clone() },
                    None => {
                        let state = if condition.is_some() { Presence::Down } else { Presence::Absent };
                        let (driver, refused) = (String::new(), Vec::new());
                        PortState { interface: interface.name.clone(), state, carrier, driver, refused }
                    }
                }
            })
            .collect()
    }
}

/// What the name of a cable's other end has behind that of the interface.
const FAR: &str = "-far";

/// Ways to Linux without a port of their own.
fn alone(lines: Vec<ports::TapLine>, driver: &str) -> Ends {
    let ends = lines.into_iter().map(|line| Attachment { line: None, punt: Some(Box::new(line)) });
    let (kept, punt) = (Kept::default(), None);
    Ends { ends: ends.collect(), driver: driver.to_owned(), refused: Vec::new(), kept, punt }
}

/// Tells operators where what Linux forwards cannot be told from what it sends.
fn warn_unmarked(name: &str, tap: &Tap) {
    if tap.held.is_none() {
        warn!(
            interface = name,
            "no BPF program can be loaded: what Linux forwards from interfaces outside the policy passes as its own; keep \
             net.ipv4.ip_forward off"
        );
    }
}
