//! The page of the gateway and its HTTP API, at `[gateway] page`.
//!
//! The API is that of the control socket ([`crate::api`]), by the same handlers, behind access control: each request must
//! name a host of the gateway, come from the page itself or from no browser, and carry a session or a token whose role
//! the route asks for. Numbers of connections, sessions, requests under way and entries kept are bounded.

mod access;
mod asset;
mod audit;
mod failure;
mod login;
mod openapi;
mod origin;
mod session;
#[cfg(test)]
mod tests;
mod user;

pub(crate) use access::{Peer, router};
pub use audit::AuditEntry;
pub(crate) use audit::audit;
pub use login::Me;
pub(crate) use login::{login, logout, me};
pub(crate) use openapi::openapi;
pub use user::{Role, User, UserFile, UserFileError};

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::Semaphore;

use crate::api::Trouble;
use audit::Audit;
use failure::Failures;
use session::Sessions;
use user::Users;

/// Explains a packet in words by the policy and state of a running gateway: the account of `wirerate explain --live --json`.
pub type Explain = Arc<dyn Fn(&str) -> Result<Value, Trouble> + Send + Sync>;

/// Transport of the page's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// HTTP, on loopback.
    Clear,
    /// HTTPS.
    Tls,
}

/// Access control of the page: users, sessions, failed logins, audit log.
pub(crate) struct Page {
    users: Users,
    sessions: Sessions,
    failures: Failures,
    audit: Audit,
    /// Host names beside IP addresses and `localhost`.
    names: Vec<String>,
    /// Origins under which proxies show the page.
    origins: Vec<String>,
    transport: Transport,
    /// Permits for requests that read whole tables or compile a policy.
    heavy: Semaphore,
}

/// Heavy requests under way at once, at most; further ones wait.
const HEAVY: usize = 2;

impl Page {
    /// Reads the users.
    ///
    /// # Errors
    /// Unreadable or faulty file of users.
    pub(crate) fn open(
        users: PathBuf,
        names: Vec<String>,
        origins: Vec<String>,
        transport: Transport,
    ) -> Result<Page, UserFileError> {
        Ok(Page {
            users: Users::open(users)?,
            sessions: Sessions::default(),
            failures: Failures::default(),
            audit: Audit::default(),
            names,
            origins,
            transport,
            heavy: Semaphore::new(HEAVY),
        })
    }
}
