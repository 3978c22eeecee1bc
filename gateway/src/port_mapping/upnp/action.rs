//! Actions carried out, each for the host that has sent it alone: a host sees its own mappings, and maps ports to itself.

use std::net::{IpAddr, Ipv4Addr};

use dataplane::nat::Endpoint;
use dataplane::port_mapping::{Holder, Label, MappedBy, PortMapping, PortRefusal, PortRequest, PortWish};
use wire::Nanos;
use wire::header::Protocol;

use super::device::{Device, Part};
use super::service::{FORWARDING, Service, WAN_IP};
use super::soap::{Call, Choice, Fault};
use super::xml;
use crate::port_mapping::{Ending, Granted, Mapper, v4};

/// Mappings of a list, at most; a host asks for the others by another range.
const MOST_LISTED: usize = 256;

/// Reason why a request has no response.
#[derive(Clone, Copy, Debug)]
pub(super) enum Failure {
    /// Fault, for the host.
    Fault(Fault),
    /// End of the gateway, or of a worker.
    Ending,
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Failure {
        Failure::Fault(fault)
    }
}

impl From<Ending> for Failure {
    fn from(_: Ending) -> Failure {
        Failure::Ending
    }
}

/// A host that asks, of a device.
pub(super) struct Asking<'a> {
    /// Host.
    pub(super) host: Ipv4Addr,
    /// Device that it asks.
    pub(super) device: &'a Device,
    /// Access to the workers' mappings.
    pub(super) mapper: &'a Mapper,
}

/// Request for a mapping.
struct Wanted {
    inside: Endpoint,
    external_port: u16,
    lasts: Option<Nanos>,
    holder: Holder,
}

impl Asking<'_> {
    /// Carries out an action, whose arguments are there. Returns the values of the response in order.
    ///
    /// # Errors
    /// [`Failure`].
    pub(super) async fn perform(&self, service: &Service, call: &Call) -> Result<Vec<String>, Failure> {
        if service.name == FORWARDING.name {
            return self.forwarding(call);
        }
        if service.name != WAN_IP.name {
            // No rate is known of what is behind the interface.
            let status = if self.outside().await?.is_some() { "Up" } else { "Down" };
            return Ok(["Ethernet", "0", "0", status].map(str::to_owned).to_vec());
        }
        let mut done = Vec::new();
        match call.action.as_str() {
            "SetConnectionType" => return Err(Fault::ReadOnly.into()),
            "GetConnectionTypeInfo" => done.extend(["IP_Routed", "IP_Routed"].map(str::to_owned)),
            "RequestConnection" => {
                self.outside().await?.ok_or(Fault::Failed)?;
            }
            "ForceTermination" => return Err(Fault::NotAuthorized.into()),
            "GetStatusInfo" => {
                let status = if self.outside().await?.is_some() { "Connected" } else { "Disconnected" };
                let uptime = self.mapper.epoch.age().as_secs().to_string();
                done.extend([status.to_owned(), "ERROR_NONE".to_owned(), uptime]);
            }
            "GetNATRSIPStatus" => done.extend(["0", "1"].map(str::to_owned)),
            "GetExternalIPAddress" => {
                done.push(self.outside().await?.map_or_else(String::new, |address| address.to_string()));
            }
            "GetGenericPortMappingEntry" => {
                let index: usize = call.number("NewPortMappingIndex")?;
                let mappings = self.mappings().await?;
                let found = mappings.get(index).ok_or(Fault::Index)?;
                let PortMapping { inside, outside, .. } = found.mapping;
                done.extend([String::new(), outside.port.to_string(), word(inside.protocol).to_owned()]);
                done.extend(details(found));
            }
            "GetSpecificPortMappingEntry" => done.extend(details(&self.named(call).await?)),
            "AddPortMapping" => self.add(&self.wanted(call)?).await?,
            "AddAnyPortMapping" => done.push(self.add_any(&self.wanted(call)?).await?.to_string()),
            "DeletePortMapping" => {
                let inside = self.named(call).await?.mapping.inside;
                self.remove(inside).await?;
            }
            "DeletePortMappingRange" => {
                for found in self.in_range(call).await? {
                    self.remove(found.mapping.inside).await?;
                }
            }
            "GetListOfPortMappings" => {
                let most = match call.number::<u16>("NewNumberOfPorts")? {
                    0 => MOST_LISTED,
                    most => usize::from(most).min(MOST_LISTED),
                };
                let entries: Vec<String> = self.in_range(call).await?.iter().take(most).map(entry).collect();
                done.push(xml::listing(&entries));
            }
            _ => return Err(Fault::Action.into()),
        }
        Ok(done)
    }

    /// The connection by which packets leave is the only one.
    fn forwarding(&self, call: &Call) -> Result<Vec<String>, Failure> {
        let connection = format!(
            "{}:WANConnectionDevice:{},{}",
            self.device.udn(Part::Connection),
            self.device.version as u8,
            WAN_IP.id
        );
        match call.action.as_str() {
            "GetDefaultConnectionService" => Ok(vec![connection]),
            _ => Err(Fault::NotAuthorized.into()),
        }
    }

    /// Outside address of the host's mappings; none where the translation has none now.
    async fn outside(&self) -> Result<Option<Ipv4Addr>, Failure> {
        match self.mapper.address(IpAddr::V4(self.host)).await? {
            Ok(address) => Ok(Some(v4(address))),
            Err(PortRefusal::NoAddress) => Ok(None),
            Err(refusal) => Err(fault_of(refusal).into()),
        }
    }

    /// The host's mappings, whoever has asked for them.
    async fn mappings(&self) -> Result<Vec<Granted>, Failure> {
        Ok(self.mapper.of_host(IpAddr::V4(self.host)).await?)
    }

    /// Mapping that a request names by its outside port.
    async fn named(&self, call: &Call) -> Result<Granted, Failure> {
        let (port, protocol) = (call.number::<u16>("NewExternalPort")?, protocol_of(call)?);
        let mut all = self.mappings().await?.into_iter();
        // A mapping of certain remote hosts is none that there is.
        let is_any = is_wildcard(call.text("NewRemoteHost"));
        let found = all.find(|found| {
            let PortMapping { inside, outside, .. } = found.mapping;
            is_any && (outside.port, inside.protocol) == (port, protocol)
        });
        Ok(found.ok_or(Fault::NoEntry)?)
    }

    /// Mappings of a range of outside ports.
    async fn in_range(&self, call: &Call) -> Result<Vec<Granted>, Failure> {
        let (first, last) = (call.number::<u16>("NewStartPort")?, call.number::<u16>("NewEndPort")?);
        let protocol = protocol_of(call)?;
        // To see those of other hosts takes rights that nobody has.
        call.choice("NewManage")?;
        if first > last {
            return Err(Fault::Inconsistent.into());
        }
        let mut all = self.mappings().await?;
        all.retain(|found| {
            let PortMapping { inside, outside, .. } = found.mapping;
            inside.protocol == protocol && (first..=last).contains(&outside.port)
        });
        all.sort_by_key(|found| found.mapping.outside.port);
        if all.is_empty() { Err(Fault::NoneInRange.into()) } else { Ok(all) }
    }

    fn wanted(&self, call: &Call) -> Result<Wanted, Fault> {
        let external_port = call.number("NewExternalPort")?;
        let internal_port = call.number("NewInternalPort")?;
        let protocol = protocol_of(call)?;
        let lasts = call.number::<u32>("NewLeaseDuration")?;
        if !is_wildcard(call.text("NewRemoteHost")) {
            return Err(Fault::RemoteHost);
        }
        if internal_port == 0 {
            return Err(Fault::AnyInternalPort);
        }
        if call.text("NewInternalClient").parse() != Ok(self.host) {
            return Err(Fault::NotAuthorized);
        }
        // A mapping that is there and does nothing is none that there is.
        if call.choice("NewEnabled")? == Choice::No {
            return Err(Fault::Failed);
        }
        let label = Label::of(call.text("NewPortMappingDescription"));
        Ok(Wanted {
            inside: Endpoint::new(IpAddr::V4(self.host), internal_port, protocol),
            external_port,
            lasts: (lasts != 0).then_some(Nanos::from_secs(lasts.into())),
            holder: holder(label),
        })
    }

    /// Maps that outside port, or none. What the host has mapped by UPnP with the same outside port, or for the same inside port, is replaced: the
    /// later request counts (WANIPConnection:1, section 2.4.16).
    async fn add(&self, wanted: &Wanted) -> Result<(), Failure> {
        if wanted.external_port == 0 {
            return Err(Fault::AnyExternalPort.into());
        }
        let mut replaced = self.mappings().await?;
        replaced.retain(|found| {
            let PortMapping { inside, outside, holder, .. } = found.mapping;
            let same = [outside.port == wanted.external_port, inside.port == wanted.inside.port];
            holder.by == MappedBy::Upnp && inside.protocol == wanted.inside.protocol && same[0] != same[1]
        });
        for found in &replaced {
            self.remove(found.mapping.inside).await?;
        }
        let refusal = match self.map(wanted, PortWish::Only(wanted.external_port)).await {
            Ok(_) => return Ok(()),
            Err(refusal) => refusal,
        };
        for Granted { mapping, now } in replaced {
            let before = Wanted {
                inside: mapping.inside,
                external_port: mapping.outside.port,
                lasts: mapping.until.map(|until| until.since(now)),
                holder: mapping.holder,
            };
            // Its port was given back a moment ago; who has taken it since has it.
            match self.map(&before, PortWish::Only(before.external_port)).await {
                Ok(_) | Err(Failure::Fault(_)) => {}
                Err(ending) => return Err(ending),
            }
        }
        Err(refusal)
    }

    /// Maps that outside port, or another.
    async fn add_any(&self, wanted: &Wanted) -> Result<u16, Failure> {
        let wish = match wanted.external_port {
            0 => PortWish::Any,
            port => PortWish::Suggested(port),
        };
        match self.map(wanted, wish).await {
            // Of all ports none is left.
            Err(Failure::Fault(Fault::Conflict)) => Err(Fault::Full.into()),
            mapped => mapped,
        }
    }

    async fn map(&self, wanted: &Wanted, port: PortWish) -> Result<u16, Failure> {
        let Wanted { inside, lasts, holder, .. } = *wanted;
        let granted = self.mapper.map(PortRequest { inside, port, lasts, holder }).await?;
        Ok(granted.map_err(fault_of)?.mapping.outside.port)
    }

    async fn remove(&self, inside: Endpoint) -> Result<(), Failure> {
        match self.mapper.unmap(inside, holder(Label::default())).await? {
            Ok(_) => Ok(()),
            Err(_) => Err(Fault::NotAuthorized.into()),
        }
    }
}

fn holder(label: Label) -> Holder {
    Holder { by: MappedBy::Upnp, nonce: [0; 12], label }
}

/// True for all remote hosts.
fn is_wildcard(host: &str) -> bool {
    host.is_empty() || host == "*" || host == "0.0.0.0"
}

fn protocol_of(call: &Call) -> Result<u8, Fault> {
    let name = call.text("NewProtocol");
    let known = [Protocol::TCP, Protocol::UDP].into_iter();
    let found = known.map(|known| known.0).find(|number| word(*number).eq_ignore_ascii_case(name));
    found.ok_or(Fault::Arguments)
}

fn word(protocol: u8) -> &'static str {
    if protocol == Protocol::TCP.0 { "TCP" } else { "UDP" }
}

/// Inside port and host, state, description and rest of its time.
fn details(found: &Granted) -> [String; 5] {
    let PortMapping { inside, until, holder, .. } = found.mapping;
    let left = until.map_or(0, |until| until.since(found.now).0.div_ceil(1_000_000_000));
    let label = holder.label.text().to_owned();
    [inside.port.to_string(), inside.ip().to_string(), "1".to_owned(), label, left.to_string()]
}

/// Elements of a mapping in a list.
fn entry(found: &Granted) -> String {
    let PortMapping { inside, outside, .. } = found.mapping;
    let [port, client, enabled, label, left] = details(found);
    let outside = outside.port.to_string();
    let values = [
        ("p:NewRemoteHost", ""),
        ("p:NewExternalPort", &outside),
        ("p:NewProtocol", word(inside.protocol)),
        ("p:NewInternalPort", &port),
        ("p:NewInternalClient", &client),
        ("p:NewEnabled", &enabled),
        ("p:NewDescription", &label),
        ("p:NewLeaseTime", &left),
    ];
    values.map(|(name, value)| xml::element(name, value)).concat()
}

fn fault_of(refusal: PortRefusal) -> Fault {
    match refusal {
        PortRefusal::NotAllowed => Fault::NotAuthorized,
        PortRefusal::Protocol => Fault::Arguments,
        PortRefusal::NotHolder => Fault::OtherMechanism,
        PortRefusal::HostFull | PortRefusal::TableFull => Fault::Full,
        PortRefusal::PortTaken => Fault::Conflict,
        PortRefusal::NoAddress => Fault::Failed,
    }
}
