//! PPP sessions.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use wire::esp::Secret;

/// PPP session that is an interface's link (RFC 1661): over Ethernet (RFC 2516) with a parent, over AAL5 (RFC 2364) with an ATM channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ppp {
    /// Side of the session.
    pub role: PppRole,
    /// Service that a client asks for, or that a server offers; empty for any.
    pub service: String,
    /// Name of the access concentrator: that a client accepts alone, any if empty; or a server's own.
    pub ac_name: String,
    /// Authentication of the client.
    pub authentication: Authentication,
    /// Name that the client authenticates itself by.
    pub user: String,
    /// Password; empty where there is none, or where its file has not been read.
    pub password: Secret,
    /// File that the password is in, relative to the directory of the policy; none of a password that is in the policy.
    pub password_file: Option<PathBuf>,
    /// The peer's IPv4 address: what a server gives, or a client accepts alone.
    pub peer: Option<Ipv4Addr>,
}

impl Ppp {
    /// Returns a client with the defaults of the policy file.
    pub fn new() -> Ppp {
        Ppp {
            role: PppRole::Client,
            service: String::new(),
            ac_name: String::new(),
            authentication: Authentication::Chap,
            user: String::new(),
            password: Secret::new(Box::default()),
            password_file: None,
            peer: None,
        }
    }
}

impl Default for Ppp {
    fn default() -> Ppp {
        Ppp::new()
    }
}

/// Side of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PppRole {
    /// Opens the session, and authenticates itself.
    #[default]
    Client,
    /// Waits for a client, and demands authentication: an access concentrator.
    Server,
}

/// Authentication of a session's client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authentication {
    /// None.
    None,
    /// Password in clear (RFC 1334). A client that accepts it answers challenges, too.
    Pap,
    /// Challenge and response with MD5 (RFC 1994).
    #[default]
    Chap,
}
