//! Why a gateway could not begin, in words.

use std::io;

use dataplane::flow::SteeringError;
use dataplane::shard::ShardError;
use dataplane::tables::CompileError;
use wire::PoolError;

use crate::linux;
use crate::privilege::PrivilegeError;
use crate::server::ServerError;

/// Why a gateway could not begin.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system refused something.
    #[error("could not {operation}: {error}")]
    System {
        /// What was being done.
        operation: String,
        /// What it said.
        error: io::Error,
    },
    /// Linux did not tell its state.
    #[error(transparent)]
    Linux(linux::Error),
    /// The policy does not compile.
    #[error(transparent)]
    Compile(CompileError),
    /// A shard could not be made.
    #[error(transparent)]
    Shard(ShardError),
    /// Workers could not be made to share their flows.
    #[error(transparent)]
    Steering(SteeringError),
    /// A frame pool could not be made.
    #[error(transparent)]
    Pool(PoolError),
    /// Privileges could not be given up.
    #[error(transparent)]
    Privileges(PrivilegeError),
    /// Questions cannot be taken.
    #[error(transparent)]
    Server(ServerError),
    /// The process may not do what every driver needs, CAP_NET_ADMIN.
    #[error("it has no CAP_NET_ADMIN, without which no interface can be opened")]
    Privilege,
    /// None of these interfaces could be opened, and there is no other.
    #[error("none of its interfaces could be opened ({}){}", .names.join(", "), if *.taken { ": another gateway has them" } else { "" })]
    NoPort {
        /// The interfaces.
        names: Vec<String>,
        /// True if another gateway has them, or one of them.
        taken: bool,
    },
}
