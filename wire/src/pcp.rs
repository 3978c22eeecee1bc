//! Port Control Protocol (RFC 6887), as a server reads and answers it: MAP and ANNOUNCE, with PREFER_FAILURE.
//!
//! PEER, THIRD_PARTY and FILTER are refused by their own result codes, and so is every other opcode and mandatory option.

use std::net::{IpAddr, Ipv6Addr};

/// UDP port of servers of PCP and NAT-PMP.
pub const PORT: u16 = 5351;

/// Version of the protocol; 0 is that of NAT-PMP.
pub const VERSION: u8 = 2;

/// Longest message (section 7).
pub const LONGEST: usize = 1100;

/// Length of the header of requests and responses.
const HEADER: usize = 24;

/// Length of a MAP opcode's data.
const MAP: usize = 36;

/// Bit of the second byte that is set in responses.
const RESPONSE: u8 = 0x80;

const OPCODE_ANNOUNCE: u8 = 0;
const OPCODE_MAP: u8 = 1;
const OPTION_PREFER_FAILURE: u8 = 2;

/// Result code of a response (section 7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ResultCode {
    /// SUCCESS.
    Success = 0,
    /// UNSUPP_VERSION.
    UnsupportedVersion = 1,
    /// NOT_AUTHORIZED.
    NotAuthorized = 2,
    /// MALFORMED_REQUEST.
    MalformedRequest = 3,
    /// UNSUPP_OPCODE.
    UnsupportedOpcode = 4,
    /// UNSUPP_OPTION.
    UnsupportedOption = 5,
    /// MALFORMED_OPTION.
    MalformedOption = 6,
    /// NETWORK_FAILURE.
    NetworkFailure = 7,
    /// NO_RESOURCES.
    NoResources = 8,
    /// UNSUPP_PROTOCOL.
    UnsupportedProtocol = 9,
    /// USER_EX_QUOTA.
    QuotaExceeded = 10,
    /// CANNOT_PROVIDE_EXTERNAL.
    CannotProvideExternal = 11,
    /// ADDRESS_MISMATCH.
    AddressMismatch = 12,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Address of the client as it knows it itself.
    pub client: IpAddr,
    /// Lifetime asked for, in seconds.
    pub lifetime: u32,
    /// Operation.
    pub body: Body,
}

/// Operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// ANNOUNCE: is the server the same as before?
    Announce,
    /// MAP.
    Map(Map),
}

/// Data of the opcode MAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Map {
    /// Nonce, by which the client is known again.
    pub nonce: [u8; 12],
    /// Protocol; 0 for all.
    pub protocol: u8,
    /// Inside port; 0 for all.
    pub internal_port: u16,
    /// Outside port suggested; 0 for any.
    pub external_port: u16,
    /// Outside address suggested; unspecified for any.
    pub external: IpAddr,
    /// Response where the suggestion cannot be met.
    pub otherwise: Otherwise,
}

/// Response where a suggested outside address or port cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// Another port.
    Another,
    /// An error: option PREFER_FAILURE.
    Failure,
}

/// Reason why a message is no request that can be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Neither a request nor long enough to be answered: dropped in silence (section 8.2).
    Silence,
    /// To be [answered](error) with a result code.
    Answer(ResultCode),
}

/// Parses a message.
///
/// # Errors
/// [`Fault`] says whether and how to answer.
pub fn parse(bytes: &[u8]) -> Result<Request, Fault> {
    let header: &[u8; HEADER] = bytes.first_chunk().ok_or(Fault::Silence)?;
    if header[1] & RESPONSE != 0 {
        return Err(Fault::Silence);
    }
    if header[0] != VERSION {
        return Err(Fault::Answer(ResultCode::UnsupportedVersion));
    }
    if bytes.len() > LONGEST || bytes.len() % 4 != 0 {
        return Err(Fault::Answer(ResultCode::MalformedRequest));
    }
    let lifetime = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    let client = address(&header[8..24]);
    let rest = &bytes[HEADER..];
    let (body, options) = match header[1] {
        OPCODE_ANNOUNCE => (Body::Announce, rest),
        OPCODE_MAP => {
            let (data, options) =
                rest.split_first_chunk::<MAP>().ok_or(Fault::Answer(ResultCode::MalformedRequest))?;
            (Body::Map(map(data)?), options)
        }
        _ => return Err(Fault::Answer(ResultCode::UnsupportedOpcode)),
    };
    let body = with_options(body, options).map_err(Fault::Answer)?;
    Ok(Request { client, lifetime, body })
}

fn map(data: &[u8; MAP]) -> Result<Map, Fault> {
    let mut nonce = [0; 12];
    nonce.copy_from_slice(&data[..12]);
    let map = Map {
        nonce,
        protocol: data[12],
        internal_port: u16::from_be_bytes([data[16], data[17]]),
        external_port: u16::from_be_bytes([data[18], data[19]]),
        external: address(&data[20..36]),
        otherwise: Otherwise::Another,
    };
    // All protocols are those of all ports (section 11.1).
    if map.protocol == 0 && map.internal_port != 0 {
        return Err(Fault::Answer(ResultCode::MalformedRequest));
    }
    Ok(map)
}

/// Reads options (section 7.3).
fn with_options(mut body: Body, mut options: &[u8]) -> Result<Body, ResultCode> {
    while let Some((head, rest)) = options.split_first_chunk::<4>() {
        let [code, _, high, low] = *head;
        let len = usize::from(u16::from_be_bytes([high, low]));
        let padded = len.next_multiple_of(4);
        if rest.len() < padded {
            return Err(ResultCode::MalformedOption);
        }
        options = &rest[padded..];
        match (code, &mut body) {
            (OPTION_PREFER_FAILURE, Body::Map(map)) if map.otherwise == Otherwise::Another && len == 0 => {
                map.otherwise = Otherwise::Failure;
            }
            (OPTION_PREFER_FAILURE, _) => return Err(ResultCode::MalformedOption),
            // Optional to process.
            (128.., _) => {}
            _ => return Err(ResultCode::UnsupportedOption),
        }
    }
    Ok(body)
}

/// Returns the response to a request that has failed: its own bytes, as far as a message may be long, behind another header
/// (section 8.2).
pub fn error(request: &[u8], code: ResultCode, lifetime: u32, epoch: u32) -> Vec<u8> {
    let mut response = request[..request.len().min(LONGEST)].to_vec();
    response.resize(response.len().max(HEADER).next_multiple_of(4), 0);
    head(&mut response, code, lifetime, epoch);
    response
}

/// Returns the response to an ANNOUNCE.
pub fn announced(request: &[u8], epoch: u32) -> Vec<u8> {
    let mut response = request[..request.len().min(HEADER)].to_vec();
    response.resize(HEADER, 0);
    head(&mut response, ResultCode::Success, 0, epoch);
    response
}

/// Returns the response to a MAP that has been carried out.
pub fn mapped(map: &Map, lifetime: u32, epoch: u32, external: IpAddr, external_port: u16) -> Vec<u8> {
    let mut response = vec![0; HEADER];
    response[1] = OPCODE_MAP;
    head(&mut response, ResultCode::Success, lifetime, epoch);
    response.extend(map.nonce);
    response.extend([map.protocol, 0, 0, 0]);
    response.extend(map.internal_port.to_be_bytes());
    response.extend(external_port.to_be_bytes());
    response.extend(octets(external));
    if map.otherwise == Otherwise::Failure {
        // Options that were processed are in the response.
        response.extend([OPTION_PREFER_FAILURE, 0, 0, 0]);
    }
    response
}

/// Writes the header of a response; its opcode is there.
fn head(response: &mut [u8], code: ResultCode, lifetime: u32, epoch: u32) {
    response[0] = VERSION;
    response[1] |= RESPONSE;
    response[2] = 0;
    response[3] = code as u8;
    response[4..8].copy_from_slice(&lifetime.to_be_bytes());
    response[8..12].copy_from_slice(&epoch.to_be_bytes());
    response[12..24].fill(0);
}

/// An address of 128 bits: of IPv4 the one that is mapped to IPv6.
fn address(bytes: &[u8]) -> IpAddr {
    let bytes: [u8; 16] = bytes.try_into().unwrap_or_default();
    Ipv6Addr::from(bytes).to_canonical()
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests;
