//! `wirerate run`: the live gateway.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use gateway::privilege::{Confine, Restriction};
use gateway::{Options, Supervisor};

use super::explain;
use super::live::{PINS, SOCKET};
use crate::failure::{Exit, Failure, GatewayError};
use crate::policy_file;
use crate::with_exit_codes;

/// Default file of a gateway's state.
const STATE: &str = "/var/lib/wirerate/state";

/// Carry out a policy on this machine's interfaces
///
/// Interfaces of the policy are those that Linux has by the same names. Linux keeps their addresses, routes and
/// neighbours, and what is addressed to the machine itself; all else goes through the policy. Runs until SIGTERM
/// or Ctrl-C; SIGHUP reads the policy file again. Needs root, or CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate run policies/home-office.toml
  wirerate run /etc/wirerate/policy.toml --log json"))]
pub(crate) struct Arguments {
    /// The policy
    policy: PathBuf,

    /// Where commands are taken, such as `wirerate status`
    #[arg(long, value_name = "PATH", default_value = SOCKET, env = "WIRERATE_SOCKET")]
    socket: PathBuf,

    /// Where flows and translations are kept over a restart
    #[arg(long, value_name = "FILE", default_value = STATE, env = "WIRERATE_STATE")]
    state: PathBuf,

    /// Where policies that were applied are kept over a restart; `policy` beside the state where it is not said
    #[arg(long, value_name = "DIR", env = "WIRERATE_POLICY_DIR")]
    policy_dir: Option<PathBuf>,

    /// Begin without flows, and keep none when it ends; keep no policies either, unless --policy-dir says where
    #[arg(long)]
    no_state: bool,

    /// Where guards of interfaces are pinned, in a BPF file system
    #[arg(long, value_name = "DIRECTORY", default_value = PINS, env = "WIRERATE_GUARDS")]
    guards: PathBuf,

    /// The user that a gateway of root runs as; `wirerate` where that is a user of the machine, else root
    #[arg(long, value_name = "NAME", env = "WIRERATE_USER")]
    user: Option<String>,

    /// Files and system calls that the process leaves itself, by Landlock and seccomp; `off` is for debugging
    #[arg(long, value_enum, default_value_t, value_name = "SWITCH", env = "WIRERATE_CONFINEMENT")]
    confinement: Confinement,

    /// Write the keys of tunnels to this file, as Wireshark reads them: its table `esp_sa`
    ///
    /// For root, in search of a fault: who has the file reads what the tunnels carry. It must not be there, or be root's alone (mode 0600);
    /// lines are added to what is in it.
    #[arg(long, value_name = "FILE")]
    key_log: Option<PathBuf>,

    /// How log lines look
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    log: Log,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Log {
    /// For people
    #[default]
    Text,
    /// A JSON object a line
    Json,
}

/// Files and system calls that the process leaves itself.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Confinement {
    /// Those that a gateway needs
    #[default]
    On,
    /// All that its user and capabilities leave it
    Off,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let loaded = policy_file::load(&self.policy)?;
        gateway::log::start(match self.log {
            Log::Text => gateway::log::Format::Text,
            Log::Json => gateway::log::Format::Json,
        });
        let beside = (!self.no_state).then(|| self.state.with_file_name("policy"));
        let history = self.policy_dir.or(beside);
        let state = (!self.no_state).then_some(self.state);
        let options = Options {
            policy: loaded.policy,
            file: self.policy,
            socket: self.socket,
            state,
            history,
            pins: self.guards,
            key_log: self.key_log,
            explain: explain::of_words,
            restriction: Restriction {
                user: self.user,
                confine: match self.confinement {
                    Confinement::On => Confine::On,
                    Confinement::Off => Confine::Off,
                },
            },
        };
        Supervisor::start(options).map_err(GatewayError::Start)?.run();
        Ok(Exit::Done)
    }
}
