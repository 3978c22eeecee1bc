//! Why a gateway could not begin, in words.

use std::fmt;
use std::io;

use dataplane::flow::SteeringError;
use dataplane::shard::ShardError;
use dataplane::tables::CompileError;
use wire::PoolError;

use crate::linux;
use crate::privilege::PrivilegeError;
use crate::server::ServerError;

/// Why a gateway could not begin.
#[derive(Debug)]
pub enum StartError {
    /// The system refused something.
    System {
        /// What was being done.
        operation: String,
        /// What it said.
        error: io::Error,
    },
    /// Linux did not tell its state.
    Linux(linux::Error),
    /// The policy does not compile.
    Compile(CompileError),
    /// A shard could not be made.
    Shard(ShardError),
    /// Workers could not be made to share their flows.
    Steering(SteeringError),
    /// A frame pool could not be made.
    Pool(PoolError),
    /// Privileges could not be given up.
    Privileges(PrivilegeError),
    /// Questions cannot be taken.
    Server(ServerError),
    /// The process may not do what every driver needs, CAP_NET_ADMIN.
    Privilege,
    /// None of these interfaces could be opened, and there is no other.
    NoPort {
        /// The interfaces.
        names: Vec<String>,
        /// True if another gateway has them, or one of them.
        taken: bool,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::System { operation, error } => write!(f, "could not {operation}: {error}"),
            StartError::Linux(error) => error.fmt(f),
            StartError::Compile(error) => error.fmt(f),
            StartError::Shard(error) => error.fmt(f),
            StartError::Steering(error) => error.fmt(f),
            StartError::Pool(error) => error.fmt(f),
            StartError::Privileges(error) => error.fmt(f),
            StartError::Server(error) => error.fmt(f),
            StartError::Privilege => {
                f.write_str("it has no CAP_NET_ADMIN, without which no interface can be opened")
            }
            StartError::NoPort { names, taken } => {
                write!(f, "none of its interfaces could be opened ({})", names.join(", "))?;
                if *taken { f.write_str(": another gateway has them") } else { Ok(()) }
            }
        }
    }
}

impl std::error::Error for StartError {}
