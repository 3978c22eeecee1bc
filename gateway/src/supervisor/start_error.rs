//! Reasons for a failed start of the gateway.

use std::io;

use dataplane::flow::SteeringError;
use dataplane::shard::ShardError;
use wire::PoolError;

use crate::linux;
use crate::privilege::PrivilegeError;
use crate::reload::BuildError;
use crate::sa::KeyLogError;
use crate::server::ServerError;

/// Reason for a failed start of the gateway.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Failed system call.
    #[error("could not {operation}: {error}")]
    System {
        /// Operation that failed, as a verb phrase.
        operation: String,
        /// Error of the system.
        error: io::Error,
    },
    /// State of Linux unavailable.
    #[error(transparent)]
    Linux(linux::Error),
    /// Linux's XFRM unavailable, where the policy has it as the source of security associations.
    #[error("Linux's XFRM (`xfrm = \"linux\"`): {0}")]
    Xfrm(linux::Error),
    /// Key log that is refused.
    #[error(transparent)]
    KeyLog(KeyLogError),
    /// Policy that does not compile.
    #[error(transparent)]
    Compile(BuildError),
    /// Failure to create a shard.
    #[error(transparent)]
    Shard(ShardError),
    /// Failure to create the flow steering table.
    #[error(transparent)]
    Steering(SteeringError),
    /// Failure to create a frame pool.
    #[error(transparent)]
    Pool(PoolError),
    /// Failure to drop privileges.
    #[error(transparent)]
    Privileges(PrivilegeError),
    /// Failure to start the control or metrics server.
    #[error(transparent)]
    Server(ServerError),
    /// Process without CAP_NET_ADMIN, which every driver needs.
    #[error("it has no CAP_NET_ADMIN, without which no interface can be opened")]
    Privilege,
    /// All interfaces failed to open.
    #[error("none of its interfaces could be opened ({}){}", .names.join(", "), if *.taken { ": another gateway has them" } else { "" })]
    NoPort {
        /// Names of the interfaces.
        names: Vec<String>,
        /// True if another gateway holds at least one of the interfaces.
        taken: bool,
    },
}

/// Returns the error of a system call for `operation`.
pub(super) fn system(operation: &str, error: io::Error) -> StartError {
    StartError::System { operation: operation.to_owned(), error }
}
