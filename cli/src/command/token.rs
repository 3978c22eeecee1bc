//! `wirerate token`: users of the gateway's page, with roles, in a file of hashes.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use gateway::page::{Role, UserFile, UserFileError};

use super::live::Table;
use crate::failure::{Exit, Failure, OutputError, PolicyError};
use crate::{file, screen, with_exit_codes};

/// File of users, where none is named.
pub(super) const FILE: &str = "/etc/wirerate/page.tokens";

/// Permissions of the file: hashes of random tokens are no secret, and the gateway's user reads them.
const MODE: u32 = 0o644;

/// Make, list and remove the tokens by which users log in to the gateway's page, or programs ask its HTTP API
///
/// The file has a line for each user: name, role and a hash of the token. `page-tokens` in `[gateway]` of the policy names it, and the gateway reads
/// it again when it changes: a new user may log in at once, and a removed one is out.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a token for a new user, and print it: it is shown this once
    #[command(after_long_help = with_exit_codes("\
Examples:
  wirerate token add alice --role change
  wirerate token add grafana --role read"))]
    Add {
        /// Name of the user, in the audit log and in the history of policies
        name: String,

        /// Rights of the user
        #[arg(long, value_enum, default_value_t, value_name = "ROLE")]
        role: RoleWord,

        #[command(flatten)]
        users: Users,
    },
    /// List users and roles
    #[command(after_long_help = with_exit_codes("\
Examples:
  wirerate token list"))]
    List {
        #[command(flatten)]
        users: Users,
    },
    /// Remove a user: the token, and sessions begun with it, are void at once
    #[command(after_long_help = with_exit_codes("\
Examples:
  wirerate token remove alice"))]
    Remove {
        /// Name of the user
        name: String,

        #[command(flatten)]
        users: Users,
    },
}

/// File of users.
#[derive(Debug, Args)]
struct Users {
    /// The file that `page-tokens` names
    #[arg(long, value_name = "FILE", default_value = FILE)]
    file: PathBuf,
}

/// Rights of a user; each includes those before it.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum RoleWord {
    /// See everything but the contents of packets
    #[default]
    Read,
    /// Also end flows, and see the packets that were dropped
    Operate,
    /// Also put policies in force, and see the audit log
    Change,
}

impl From<RoleWord> for Role {
    fn from(word: RoleWord) -> Role {
        match word {
            RoleWord::Read => Role::Read,
            RoleWord::Operate => Role::Operate,
            RoleWord::Change => Role::Change,
        }
    }
}

impl Arguments {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        match self.command {
            Command::Add { name, role, users } => {
                let mut known = or_none(UserFile::read(&users.file))?;
                let token = known.add(&name, role.into()).map_err(PolicyError::Users)?;
                write(&users.file, &known)?;
                writeln!(screen::out(), "{token}")?;
                screen::note(&format_args!("this token of {name} is shown this once, and is in no file"));
            }
            Command::List { users } => {
                let mut table = Table::new(["user", "role"]);
                for user in UserFile::read(&users.file).map_err(PolicyError::Users)?.users {
                    table.row([user.name, user.role.to_string()]);
                }
                table.print()?;
            }
            Command::Remove { name, users } => {
                let mut known = UserFile::read(&users.file).map_err(PolicyError::Users)?;
                if known.remove(&name).is_none() {
                    return Err(PolicyError::NoUser { name, path: users.file }.into());
                }
                write(&users.file, &known)?;
                writeln!(screen::out(), "removed {name}")?;
            }
        }
        Ok(Exit::Done)
    }
}

/// Users of a file, none of one that is not there.
fn or_none(read: Result<UserFile, UserFileError>) -> Result<UserFile, Failure> {
    match read {
        Err(UserFileError::Read { error, .. }) if error.kind() == ErrorKind::NotFound => {
            Ok(UserFile::default())
        }
        other => Ok(other.map_err(PolicyError::Users)?),
    }
}

fn write(path: &Path, users: &UserFile) -> Result<(), Failure> {
    let failed = |error| OutputError::Write { path: path.to_owned(), error };
    Ok(file::replace(path, &users.to_string(), MODE).map_err(failed)?)
}
