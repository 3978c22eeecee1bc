//! Answers to requests of PCP (RFC 6887) and NAT-PMP (RFC 6886), each for the host that has sent it alone.

use std::net::{IpAddr, Ipv4Addr};

use dataplane::nat::Endpoint;
use dataplane::port_mapping::{Holder, Label, MappedBy, PortRefusal, PortRequest, PortWish};
use wire::Nanos;
use wire::header::Protocol;
use wire::nat_pmp::{self, Transport};
use wire::pcp::{self, Body, Fault, Otherwise, ResultCode};

use super::{Ending, Granted, Mapper, v4};

/// Lifetime of an error that may be another soon, in seconds (RFC 6887, section 7.4).
const SHORT: u32 = 30;

/// Lifetime of other errors.
const LONG: u32 = 1800;

/// Answers a packet from a host; `None` where it gets no answer.
///
/// # Errors
/// The gateway is ending.
pub(super) async fn answer(bytes: &[u8], host: Ipv4Addr, mapper: &Mapper) -> Result<Option<Vec<u8>>, Ending> {
    let epoch = mapper.epoch.answer().as_secs() as u32;
    match bytes.first() {
        Some(&nat_pmp::VERSION) => by_nat_pmp(bytes, host, epoch, mapper).await,
        _ => by_pcp(bytes, host, epoch, mapper).await,
    }
}

async fn by_pcp(
    bytes: &[u8],
    host: Ipv4Addr,
    epoch: u32,
    mapper: &Mapper,
) -> Result<Option<Vec<u8>>, Ending> {
    let refuse = |code: ResultCode| {
        let lifetime = match code {
            ResultCode::NetworkFailure
            | ResultCode::NoResources
            | ResultCode::QuotaExceeded
            | ResultCode::CannotProvideExternal => SHORT,
            _ => LONG,
        };
        Ok(Some(pcp::error(bytes, code, lifetime, epoch)))
    };
    let request = match pcp::parse(bytes) {
        Ok(request) => request,
        Err(Fault::Silence) => return Ok(None),
        Err(Fault::Answer(code)) => return refuse(code),
    };
    if request.client != IpAddr::V4(host) {
        return refuse(ResultCode::AddressMismatch);
    }
    let map = match request.body {
        Body::Announce => return Ok(Some(pcp::announced(bytes, epoch))),
        Body::Map(map) => map,
    };
    // All ports, or all protocols, of a host.
    if ![Protocol::TCP.0, Protocol::UDP.0].contains(&map.protocol) || map.internal_port == 0 {
        return refuse(ResultCode::UnsupportedProtocol);
    }
    let inside = Endpoint::new(IpAddr::V4(host), map.internal_port, map.protocol);
    let holder = Holder { by: MappedBy::Pcp, nonce: map.nonce, label: Label::default() };
    if request.lifetime == 0 {
        return match mapper.unmap(inside, holder).await? {
            // One that is not there is removed, too (section 15).
            Ok(_) => Ok(Some(pcp::mapped(&map, 0, epoch, map.external, map.external_port))),
            Err(refusal) => refuse(code_of(refusal)),
        };
    }
    let asks_address = !map.external.is_unspecified() && map.otherwise == Otherwise::Failure;
    if asks_address && mapper.address(IpAddr::V4(host)).await? != Ok(map.external) {
        return refuse(ResultCode::CannotProvideExternal);
    }
    let port = match (map.external_port, map.otherwise) {
        (0, _) => PortWish::Any,
        (port, Otherwise::Another) => PortWish::Suggested(port),
        (port, Otherwise::Failure) => PortWish::Only(port),
    };
    let lasts = Some(Nanos::from_secs(request.lifetime.into()));
    match mapper.map(PortRequest { inside, port, lasts, holder }).await? {
        Ok(granted) => {
            let outside = granted.mapping.outside;
            Ok(Some(pcp::mapped(&map, seconds(&granted), epoch, outside.ip(), outside.port)))
        }
        Err(refusal) => refuse(code_of(refusal)),
    }
}

fn code_of(refusal: PortRefusal) -> ResultCode {
    match refusal {
        PortRefusal::NotAllowed | PortRefusal::NotHolder => ResultCode::NotAuthorized,
        PortRefusal::Protocol => ResultCode::UnsupportedProtocol,
        PortRefusal::HostFull => ResultCode::QuotaExceeded,
        PortRefusal::TableFull => ResultCode::NoResources,
        PortRefusal::PortTaken => ResultCode::CannotProvideExternal,
        PortRefusal::NoAddress => ResultCode::NetworkFailure,
    }
}

async fn by_nat_pmp(
    bytes: &[u8],
    host: Ipv4Addr,
    epoch: u32,
    mapper: &Mapper,
) -> Result<Option<Vec<u8>>, Ending> {
    let map = match nat_pmp::parse(bytes) {
        None => return Ok(None),
        Some(nat_pmp::Request::Unknown(opcode)) => return Ok(Some(nat_pmp::unsupported(opcode, epoch))),
        Some(nat_pmp::Request::Address) => {
            let (code, shown) = match mapper.address(IpAddr::V4(host)).await? {
                Ok(shown) => (nat_pmp::ResultCode::Success, v4(shown)),
                Err(refusal) => (nat_pmp_code_of(refusal), Ipv4Addr::UNSPECIFIED),
            };
            return Ok(Some(nat_pmp::address(code, epoch, shown)));
        }
        Some(nat_pmp::Request::Map(map)) => map,
    };
    let protocol = match map.transport {
        Transport::Udp => Protocol::UDP.0,
        Transport::Tcp => Protocol::TCP.0,
    };
    let inside = Endpoint::new(IpAddr::V4(host), map.internal_port, protocol);
    let holder = Holder { by: MappedBy::NatPmp, nonce: [0; 12], label: Label::default() };
    let refuse = |refusal| Ok(Some(nat_pmp::mapped(&map, nat_pmp_code_of(refusal), epoch, 0, 0)));
    if map.lifetime == 0 {
        return match mapper.unmap(inside, holder).await? {
            Ok(_) => Ok(Some(nat_pmp::mapped(&map, nat_pmp::ResultCode::Success, epoch, 0, 0))),
            Err(refusal) => refuse(refusal),
        };
    }
    if map.internal_port == 0 {
        return refuse(PortRefusal::PortTaken);
    }
    let port = if map.external_port == 0 { PortWish::Any } else { PortWish::Suggested(map.external_port) };
    let lasts = Some(Nanos::from_secs(map.lifetime.into()));
    match mapper.map(PortRequest { inside, port, lasts, holder }).await? {
        Ok(granted) => {
            let port = granted.mapping.outside.port;
            let code = nat_pmp::ResultCode::Success;
            Ok(Some(nat_pmp::mapped(&map, code, epoch, port, seconds(&granted))))
        }
        Err(refusal) => refuse(refusal),
    }
}

fn nat_pmp_code_of(refusal: PortRefusal) -> nat_pmp::ResultCode {
    match refusal {
        PortRefusal::NotAllowed | PortRefusal::NotHolder | PortRefusal::Protocol => {
            nat_pmp::ResultCode::NotAuthorized
        }
        PortRefusal::HostFull | PortRefusal::TableFull | PortRefusal::PortTaken => {
            nat_pmp::ResultCode::OutOfResources
        }
        PortRefusal::NoAddress => nat_pmp::ResultCode::NetworkFailure,
    }
}

/// Lifetime granted, in seconds: rounded, as some time has gone by since.
fn seconds(granted: &Granted) -> u32 {
    let left = granted.mapping.until.map_or(u64::MAX, |until| until.since(granted.now).0);
    u32::try_from(left.div_ceil(1_000_000_000)).unwrap_or(u32::MAX)
}
