//! NAT Port Mapping Protocol (RFC 6886), as a server reads and answers it. It has the port of [PCP](crate::pcp).

use std::net::Ipv4Addr;

/// Version of the protocol.
pub const VERSION: u8 = 0;

/// Added to the opcode in responses.
const RESPONSE: u8 = 128;

/// Result code of a response (section 3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum ResultCode {
    /// Success.
    Success = 0,
    /// Not authorized, or refused.
    NotAuthorized = 2,
    /// Network failure: there is no outside address.
    NetworkFailure = 3,
    /// Out of resources.
    OutOfResources = 4,
    /// Unsupported opcode.
    UnsupportedOpcode = 5,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// The outside address.
    Address,
    /// A mapping.
    Map(Map),
    /// An operation that nobody knows, to be answered so.
    Unknown(u8),
}

/// Request for a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Map {
    /// Transport protocol.
    pub transport: Transport,
    /// Inside port.
    pub internal_port: u16,
    /// Outside port suggested; 0 for any.
    pub external_port: u16,
    /// Lifetime in seconds; 0 to remove the mapping.
    pub lifetime: u32,
}

/// Transport protocol of a mapping, by the opcode that asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Transport {
    /// UDP.
    Udp = 1,
    /// TCP.
    Tcp = 2,
}

/// Parses a message; `None` for what is not answered: a response, another version, or one cut short.
pub fn parse(bytes: &[u8]) -> Option<Request> {
    let [VERSION, opcode, rest @ ..] = bytes else { return None };
    let transport = match *opcode {
        0 => return Some(Request::Address),
        1 => Transport::Udp,
        2 => Transport::Tcp,
        RESPONSE.. => return None,
        other => return Some(Request::Unknown(other)),
    };
    let [_, _, a, b, c, d, e, f, g, h, ..] = *rest else { return None };
    Some(Request::Map(Map {
        transport,
        internal_port: u16::from_be_bytes([a, b]),
        external_port: u16::from_be_bytes([c, d]),
        lifetime: u32::from_be_bytes([e, f, g, h]),
    }))
}

/// Returns the response with the outside address.
pub fn address(code: ResultCode, epoch: u32, address: Ipv4Addr) -> Vec<u8> {
    [&head(0, code, epoch)[..], &address.octets()].concat()
}

/// Returns the response to a request for a mapping; the outside port is 0 where there is none.
pub fn mapped(map: &Map, code: ResultCode, epoch: u32, external_port: u16, lifetime: u32) -> Vec<u8> {
    let mut response = head(map.transport as u8, code, epoch).to_vec();
    response.extend(map.internal_port.to_be_bytes());
    response.extend(external_port.to_be_bytes());
    response.extend(lifetime.to_be_bytes());
    response
}

/// Returns the response to an operation that nobody knows.
pub fn unsupported(opcode: u8, epoch: u32) -> Vec<u8> {
    head(opcode, ResultCode::UnsupportedOpcode, epoch).to_vec()
}

fn head(opcode: u8, code: ResultCode, epoch: u32) -> [u8; 8] {
    let ([a, b], [c, d, e, f]) = ((code as u16).to_be_bytes(), epoch.to_be_bytes());
    [VERSION, opcode | RESPONSE, a, b, c, d, e, f]
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn requests_are_those_of_the_rfc() {
        assert_eq!(parse(&[0, 0]), Some(Request::Address));
        // TCP port 80 as port 8080 for an hour, as natpmpc sends it.
        let request = [0, 2, 0, 0, 0, 80, 0x1f, 0x90, 0, 0, 0x0e, 0x10];
        let map = Map { transport: Transport::Tcp, internal_port: 80, external_port: 8080, lifetime: 3600 };
        assert_eq!(parse(&request), Some(Request::Map(map)));
        assert_eq!(parse(&[0, 9]), Some(Request::Unknown(9)));
        for silent in [&[][..], &[0], &[0, 128], &[0, 1, 0, 0], &[1, 0], &request[..11]] {
            assert_eq!(parse(silent), None, "{silent:?}");
        }
    }

    #[test]
    fn responses_are_those_of_the_rfc() {
        let shown = address(ResultCode::Success, 0x0102_0304, Ipv4Addr::new(203, 0, 113, 2));
        assert_eq!(shown, [0, 128, 0, 0, 1, 2, 3, 4, 203, 0, 113, 2]);
        let map = Map { transport: Transport::Udp, internal_port: 80, external_port: 8080, lifetime: 3600 };
        let response = mapped(&map, ResultCode::OutOfResources, 5, 0, 0);
        assert_eq!(response, [0, 129, 0, 4, 0, 0, 0, 5, 0, 80, 0, 0, 0, 0, 0, 0]);
        assert_eq!(unsupported(9, 5), [0, 137, 0, 5, 0, 0, 0, 5]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic_and_no_answer_is_a_request(bytes in vec(0_u8..8, 0..40), epoch: u32) {
            let answer = match parse(&bytes) {
                None => return Ok(()),
                Some(Request::Address) => address(ResultCode::Success, epoch, Ipv4Addr::LOCALHOST),
                Some(Request::Map(map)) => mapped(&map, ResultCode::Success, epoch, 1, 1),
                Some(Request::Unknown(opcode)) => unsupported(opcode, epoch),
            };
            prop_assert_eq!(parse(&answer), None);
        }
    }
}
