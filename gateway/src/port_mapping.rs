//! Port mappings of a live gateway: outside ports that hosts ask for by PCP, NAT-PMP and UPnP, and an operator for them.
//!
//! A worker has the mappings of the hosts that it owns; [`Mapper`] asks that one. The supervisor has the server of the protocols
//! (`server.rs`) listen where the policy in force lets hosts ask.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use dataplane::flow::SteeringTable;
use dataplane::nat::Endpoint;
use dataplane::port_mapping::{
    Holder, MappedBy, MappingsByOrigin, PortMapping, PortMappingEvent, PortMappingNews, PortRefusal,
    PortRequest,
};
use dataplane::tables::Address;
use ipnet::IpNet;
use policy::Policy;
use policy::model::{NatAction, Upnp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tracing::info;
use wire::Nanos;
use wire::header::Protocol;

use crate::event::Event;
use crate::linux::State;
use crate::request::Request;
use crate::worker::{Command, CommandSender, Reply, Report};

mod answer;
mod epoch;
mod limit;
pub(crate) mod server;
mod upnp;

pub use epoch::Epoch;
pub(crate) use epoch::EpochRecord;
pub(crate) use server::{End, Server, Service};

/// Port mapping, for operators.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PortMappingView {
    /// Transport protocol: tcp or udp.
    pub protocol: String,
    /// Outside address.
    pub outside: String,
    /// Outside port.
    pub outside_port: u16,
    /// Address of the host.
    pub inside: String,
    /// Port of the host.
    pub inside_port: u16,
    /// Origin of the request: pcp, nat-pmp, upnp or operator.
    pub by: String,
    /// Seconds until the mapping is over; none where it stays.
    pub expires_seconds: Option<f64>,
    /// Description.
    pub description: String,
}

impl PortMappingView {
    pub(crate) fn of(mapping: &PortMapping, now: Nanos) -> PortMappingView {
        let PortMapping { inside, outside, until, holder } = mapping;
        PortMappingView {
            protocol: Protocol(inside.protocol).to_string(),
            outside: outside.ip().to_string(),
            outside_port: outside.port,
            inside: inside.ip().to_string(),
            inside_port: inside.port,
            by: word(holder.by).to_owned(),
            expires_seconds: until.map(|until| until.since(now).as_secs_f64()),
            description: holder.label.text().to_owned(),
        }
    }
}

/// Response: port mappings of all workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PortMappings {
    /// Mappings, by inside address and port.
    pub mappings: Vec<PortMappingView>,
    /// Counts since the start.
    pub counts: PortMappingCounts,
}

/// Counts of port mappings since the start of the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PortMappingCounts {
    /// Mappings now.
    pub live: u64,
    /// Mappings now, by the origin of their requests.
    pub by: OriginCounts,
    /// Mappings made.
    pub made: u64,
    /// Requests refused.
    pub refused: u64,
    /// Mappings that have expired.
    pub expired: u64,
}

/// Numbers of port mappings by the origin of their requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct OriginCounts {
    /// By PCP.
    pub pcp: u64,
    /// By NAT-PMP.
    pub nat_pmp: u64,
    /// By UPnP.
    pub upnp: u64,
    /// By an operator.
    pub operator: u64,
}

impl OriginCounts {
    fn with(self, own: MappingsByOrigin) -> OriginCounts {
        OriginCounts {
            pcp: self.pcp + u64::from(own.pcp),
            nat_pmp: self.nat_pmp + u64::from(own.nat_pmp),
            upnp: self.upnp + u64::from(own.upnp),
            operator: self.operator + u64::from(own.operator),
        }
    }

    /// Counts with the names of their origins.
    pub(crate) fn named(&self) -> [(&'static str, u64); 4] {
        [
            (word(MappedBy::Pcp), self.pcp),
            (word(MappedBy::NatPmp), self.nat_pmp),
            (word(MappedBy::Upnp), self.upnp),
            (word(MappedBy::Operator), self.operator),
        ]
    }
}

impl PortMappingCounts {
    /// Sums those of all workers.
    pub(crate) fn of(reports: &[Report]) -> PortMappingCounts {
        reports.iter().map(|report| report.port_mappings).fold(PortMappingCounts::default(), |sum, one| {
            let by = sum.by.with(one.live);
            PortMappingCounts {
                live: by.named().iter().map(|(_, count)| count).sum(),
                by,
                made: sum.made + one.made,
                refused: sum.refused + one.refused,
                expired: sum.expired + one.expired,
            }
        })
    }
}

/// Request of an operator: a mapping to be added, or removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PortMappingRequest {
    /// Transport protocol: tcp or udp.
    pub protocol: String,
    /// Address of the host.
    pub inside: String,
    /// Port of the host.
    pub inside_port: u16,
    /// Outside port, which the mapping gets or none; without it the inside port, where that is free, or another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside_port: Option<u16>,
    /// Time after which the mapping is over, such as `1h`; without it the mapping stays until it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// Description, of up to 32 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// Response: number of mappings removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PortMappingsRemoved {
    /// Mappings.
    pub removed: u32,
}

/// Mapping as it is at a time.
#[derive(Clone, Copy, Debug)]
pub struct Granted {
    /// Mapping.
    pub mapping: PortMapping,
    /// Time of the worker's clock.
    pub now: Nanos,
}

/// Access to the workers' port mappings.
#[derive(Clone)]
pub struct Mapper {
    /// Command channels to the workers.
    pub(crate) workers: Vec<CommandSender>,
    /// Flow steering table; none with a single worker.
    pub(crate) steering: Option<Arc<SteeringTable>>,
    /// Epoch of the answers.
    pub(crate) epoch: Arc<Epoch>,
}

/// End of the gateway, or of a worker, while it is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending;

impl Mapper {
    /// Asks the supervisor for access.
    pub(crate) async fn ask(events: &Sender<Event>) -> Result<Mapper, Ending> {
        let (reply, answer) = oneshot::channel();
        events.send(Event::Request(Request::PortMapper(reply))).map_err(|_| Ending)?;
        answer.await.map_err(|_| Ending)
    }

    /// Makes a mapping, or changes its end.
    pub(crate) async fn map(&self, request: PortRequest) -> Result<Result<Granted, PortRefusal>, Ending> {
        self.ask_owner(request.inside.ip(), |reply| Command::MapPort { request: Box::new(request), reply })
            .await
    }

    /// Removes a mapping, or with port 0 all those that the holder has for the address and protocol.
    pub(crate) async fn unmap(
        &self,
        inside: Endpoint,
        holder: Holder,
    ) -> Result<Result<u32, PortRefusal>, Ending> {
        self.ask_owner(inside.ip(), |reply| Command::UnmapPort { inside, holder, reply }).await
    }

    /// Outside address of a host's mappings.
    pub(crate) async fn address(&self, host: IpAddr) -> Result<Result<IpAddr, PortRefusal>, Ending> {
        self.ask_owner(host, |reply| Command::MappedAddress { host, reply }).await
    }

    /// Mappings of a host, the oldest first.
    pub(crate) async fn of_host(&self, host: IpAddr) -> Result<Vec<Granted>, Ending> {
        self.ask_owner(host, |reply| Command::PortMappings { host: Some(host), reply }).await
    }

    /// All mappings.
    pub(crate) async fn list(&self) -> Result<Vec<PortMappingView>, Ending> {
        let mut all = Vec::new();
        for worker in &self.workers {
            let own = ask_worker(worker, |reply| Command::PortMappings { host: None, reply }).await?;
            all.extend(own.iter().map(|granted| PortMappingView::of(&granted.mapping, granted.now)));
        }
        all.sort_by_key(|view: &PortMappingView| {
            (view.inside.parse::<IpAddr>().ok(), view.inside_port, view.protocol.clone())
        });
        Ok(all)
    }

    async fn ask_owner<T>(
        &self,
        host: IpAddr,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, Ending> {
        let own = |steering: &Arc<SteeringTable>| steering.home_of_source(Address::from(host).bits);
        let owner = self.steering.as_ref().map_or(0, own);
        ask_worker(self.workers.get(usize::from(owner)).ok_or(Ending)?, command).await
    }
}

async fn ask_worker<T>(
    worker: &CommandSender,
    command: impl FnOnce(Reply<T>) -> Command,
) -> Result<T, Ending> {
    let (reply, answer) = oneshot::channel();
    if !worker.send(command(reply)) {
        return Err(Ending);
    }
    answer.await.map_err(|_| Ending)
}

/// Addresses at which hosts may ask: those of the interfaces in the zones of translations with a `port-mapping`.
pub(crate) fn ends(policy: &Policy, linux: &State) -> Vec<End> {
    let (mut zones, mut upnp_zones) = (BTreeSet::new(), BTreeSet::new());
    for nat in &policy.nats {
        if let NatAction::Masquerade { ports } | NatAction::Source { ports, .. } = &nat.action {
            let Some(mapping) = &ports.mapping else { continue };
            zones.extend(&nat.from);
            if mapping.upnp == Upnp::On {
                upnp_zones.extend(&nat.from);
            }
        }
    }
    let mut ends = Vec::new();
    for interface in policy.interfaces.iter().filter(|own| zones.contains(&own.zone)) {
        let Some((index, link)) = linux.link_named(&interface.name) else { continue };
        for net in &interface.addresses {
            let IpNet::V4(network) = *net else { continue };
            let end = |service| End {
                interface: interface.name.clone(),
                link: index.0,
                network,
                mac: link.mac,
                service,
            };
            ends.push(end(Service::Pcp));
            if upnp_zones.contains(&interface.zone) {
                ends.push(end(Service::Upnp));
            }
        }
    }
    ends
}

/// Logs news of mappings. Returns true if mappings have gone without a request, so that hosts have to ask again.
pub(crate) fn log(news: &[PortMappingNews]) -> bool {
    for PortMappingNews { mapping, event } in news {
        let (outside, inside, by) = (mapping.outside, mapping.inside, word(mapping.holder.by));
        let protocol = Protocol(inside.protocol);
        let from = format!("{}:{}", outside.ip(), outside.port);
        let to = format!("{}:{}", inside.ip(), inside.port);
        let what = match event {
            PortMappingEvent::Made => "made",
            PortMappingEvent::Expired => "expired",
            PortMappingEvent::Removed => "removed",
            PortMappingEvent::Gone => "ended: the policy or the outside address no longer has it",
        };
        let label = mapping.holder.label;
        info!(by, description = label.text(), "port mapping of {protocol} {from} to {to} {what}");
    }
    news.iter().any(|news| news.event == PortMappingEvent::Gone)
}

/// Name of the origin of a mapping.
pub(crate) fn word(by: MappedBy) -> &'static str {
    match by {
        MappedBy::Pcp => "pcp",
        MappedBy::NatPmp => "nat-pmp",
        MappedBy::Upnp => "upnp",
        MappedBy::Operator => "operator",
    }
}

/// Outside address of IPv4; unspecified for another.
pub(crate) fn v4(address: IpAddr) -> Ipv4Addr {
    match address {
        IpAddr::V4(address) => address,
        IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    }
}
