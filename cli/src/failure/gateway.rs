//! Live gateways that cannot begin, or cannot be asked; guards, and what a gateway remembers.

use std::io;
use std::path::PathBuf;

use gateway::ClientError;
use gateway::guard::ReleaseError;
use gateway::linux;
use gateway::server::ServerError;
use gateway::store::StoreError;
use gateway::supervisor::StartError;
use policy::keys::KeyFileError;

use super::Exit;

/// Errors of a live gateway.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GatewayError {
    /// The gateway cannot start.
    #[error("the gateway cannot begin: {0}")]
    Start(StartError),
    /// A running gateway did not answer, or refused.
    #[error(transparent)]
    Client(ClientError),
    /// Guards were not taken off.
    #[error(transparent)]
    Release(ReleaseError),
    /// Linux does not say what there is.
    #[error(transparent)]
    Linux(linux::Error),
    /// A key cannot be read from its file.
    #[error(transparent)]
    Key(KeyFileError),
    /// The state of a gateway cannot be written to a file, or read from it.
    #[error("{path}: {error}")]
    Store {
        /// The file.
        path: PathBuf,
        /// Error of the store.
        error: StoreError,
    },
}

impl GatewayError {
    /// The exit code.
    pub(super) fn exit(&self) -> Exit {
        match self {
            GatewayError::Start(_)
            | GatewayError::Client(
                ClientError::Unreachable { .. } | ClientError::Silent { .. } | ClientError::Garbled(_),
            )
            | GatewayError::Release(ReleaseError::Unpinned(_) | ReleaseError::Kernel(_)) => Exit::NoGateway,
            GatewayError::Client(ClientError::Refused(_)) | GatewayError::Release(_) => Exit::Wrong,
            GatewayError::Store { .. } | GatewayError::Key(_) | GatewayError::Linux(_) => Exit::Unreadable,
        }
    }

    /// Returns advice on the error.
    pub(super) fn hint(&self) -> String {
        let hint = match self {
            GatewayError::Start(StartError::Compile(_)) => "change the policy or the file that is named",
            GatewayError::Start(StartError::KeyLog(_)) => {
                "name a file that is not there yet, in a directory that root alone may write in"
            }
            GatewayError::Start(StartError::Server(ServerError::Taken { .. })) => {
                "stop that one first, or give it this policy with `wirerate apply`; a second one has a socket, a state file and interfaces of its own"
            }
            GatewayError::Start(StartError::NoPort { taken: true, .. }) => {
                "stop the other one first, or give it this policy with `wirerate apply`"
            }
            GatewayError::Start(StartError::Server(_)) => {
                "change what is named, in the policy or on the command line"
            }
            GatewayError::Start(_) => {
                "run it as root, or with CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF, on Linux 6.6 or newer"
            }
            GatewayError::Client(error) => match error {
                ClientError::Refused(trouble) => &trouble.hint,
                ClientError::Unreachable { error, .. } if error.kind() == io::ErrorKind::PermissionDenied => {
                    "ask as root, or as the user that runs it"
                }
                ClientError::Unreachable { .. } => {
                    "start one with `wirerate run POLICY`, name its --socket, and ask as the user that runs it"
                }
                ClientError::Silent { .. } => {
                    "look whether it is stopped or stuck, and at its log; what was asked for may still be done"
                }
                ClientError::Garbled(_) => "use the same version of wirerate for both",
            },
            GatewayError::Release(ReleaseError::Unpinned(_) | ReleaseError::Kernel(_)) => {
                "run it as root, and name the directory of the gateway's --guards"
            }
            GatewayError::Release(_) => "`wirerate release` without a name takes off all there are",
            GatewayError::Linux(_) => "it needs netlink: ask outside of sandboxes that forbid it",
            GatewayError::Key(_) => "check the path, its owner and its mode; nothing has changed",
            GatewayError::Store { error, .. } => match error {
                StoreError::System { operation: "write" | "rename", .. } => {
                    "check that there is room and that you may write there; nothing was saved"
                }
                StoreError::System { .. } => "check the path and that you may read it",
                StoreError::NoFile => "name a file; nothing was saved",
                StoreError::Ageless => "set the clock, and save a state anew; nothing has changed",
                StoreError::Foreign | StoreError::Damaged | StoreError::Saved => {
                    "give what `wirerate save` wrote, or a gateway with --state; nothing has changed"
                }
            },
        };
        hint.to_owned()
    }
}
