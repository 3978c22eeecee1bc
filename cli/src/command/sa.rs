//! `wirerate sa`: security associations of a running gateway, shown, added and deleted.

use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use gateway::sa::{AssociationName, AssociationQuery, AssociationRequest, AssociationView, Bounds, Deleted};
use policy::keys::{self, KeyFileError};
use wire::esp::Secret;

use super::live::{Ask, Table};
use crate::failure::{Exit, Failure, GatewayError};
use crate::screen::{self, GOOD};
use crate::with_exit_codes;

/// Show the security associations of a running gateway's tunnels, or change them: a rekey is no reload
///
/// Associations of the policy are there from the start, and again after each reload. Others are added at run time, and stay until they are deleted,
/// their tunnel is gone or the gateway ends; keys are nowhere but in its memory. The one out of a tunnel that was added last is in use.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate sa
  wirerate sa --tunnel site-b --json

To rekey without a loss, add the new one in at both ends, then the new one out at both ends, and then delete the old ones.

--json prints an array of security associations: tunnel, direction, spi, local, remote (`any` \
of a peer without a fixed address, in, and out before it is known), \
algorithm, auth, origin (`policy`, `added` at run time, or `ike`), state (`active`; \
`expired` behind its hard lifetime; `superseded` by a newer one out of the tunnel; `unused`, for a CPU without a worker), number (the highest sent or accepted), \
packets and bytes (sealed, or opened), reached (`soft` or `hard`, a bound of its lifetime), \
replayed, icv_wrong, length, trailer, selector, expired and sequence (packets refused), lost (numbers that \
never came), worker (that takes the packets in, or alone sends by it), and cpu (that an IKE \
daemon has it for, RFC 9611)."))]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,

    /// Only those of this tunnel
    #[arg(long, value_name = "NAME")]
    tunnel: Option<String>,

    #[command(flatten)]
    ask: Ask,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Add a security association to a tunnel
    #[command(after_long_help = with_exit_codes("\
Examples:
  wirerate sa add site-b --direction in --spi 0x2001 \\
    --algorithm aes128-gcm --key-file in.key
  wirerate sa add site-b --direction out --spi 0x1001 --esn \\
    --algorithm aes256-cbc --key-file out.key \\
    --auth hmac-sha256-128 --auth-key-file out-auth.key
  wirerate sa add site-b --direction out --spi 0x1002 \\
    --algorithm aes128-gcm --key-file new.key \\
    --soft-bytes '9 GiB' --hard-bytes '10 GiB' --hard-time 8h"))]
    Add(Add),
    /// Delete a security association
    #[command(after_long_help = with_exit_codes("\
Examples:
  wirerate sa delete site-b --direction out --spi 0x1000"))]
    Delete(Delete),
    /// Delete all security associations, or those of a tunnel
    #[command(after_long_help = with_exit_codes("\
Examples:
  wirerate sa flush
  wirerate sa flush --tunnel site-b"))]
    Flush {
        /// Only those of this tunnel
        #[arg(long, value_name = "NAME")]
        tunnel: Option<String>,

        #[command(flatten)]
        ask: Ask,
    },
}

#[derive(Debug, Args)]
struct Add {
    /// The tunnel
    tunnel: String,

    /// Packets that it is for
    #[arg(long, value_enum)]
    direction: Direction,

    /// Security parameters index, from 256
    #[arg(long, value_name = "NUMBER", value_parser = spi)]
    spi: u32,

    /// Encryption algorithm, by its name in policies
    #[arg(long, value_name = "NAME")]
    algorithm: String,

    /// Integrity algorithm, where the encryption does not authenticate
    #[arg(long, value_name = "NAME")]
    auth: Option<String>,

    /// File of the key: a line of hexadecimal digits, readable by its owner alone; `-` for standard input
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,

    /// File of the integrity algorithm's key
    #[arg(long, value_name = "FILE")]
    auth_key_file: Option<PathBuf>,

    /// Extended sequence numbers (RFC 4304), where the peer has them
    #[arg(long)]
    esn: bool,

    #[command(flatten)]
    lifetime: Lifetime,

    #[command(flatten)]
    ask: Ask,
}

/// Bounds as `soft` and `hard` of a policy's security association.
#[derive(Clone, Copy, Debug, Args)]
struct Lifetime {
    /// Bytes after which a new one is due: a number, or `10 GiB`
    #[arg(long, value_name = "SIZE", value_parser = size)]
    soft_bytes: Option<u64>,

    /// Packets after which a new one is due
    #[arg(long, value_name = "NUMBER")]
    soft_packets: Option<u64>,

    /// Time after which a new one is due, such as 50m
    #[arg(long, value_name = "TIME", value_parser = time)]
    soft_time: Option<u64>,

    /// Bytes after which it ends: no packet passes any more
    #[arg(long, value_name = "SIZE", value_parser = size)]
    hard_bytes: Option<u64>,

    /// Packets after which it ends
    #[arg(long, value_name = "NUMBER")]
    hard_packets: Option<u64>,

    /// Time after which it ends
    #[arg(long, value_name = "TIME", value_parser = time)]
    hard_time: Option<u64>,
}

impl Lifetime {
    fn soft(self) -> Bounds {
        Bounds { bytes: self.soft_bytes, packets: self.soft_packets, nanoseconds: self.soft_time }
    }

    fn hard(self) -> Bounds {
        Bounds { bytes: self.hard_bytes, packets: self.hard_packets, nanoseconds: self.hard_time }
    }
}

fn size(text: &str) -> Result<u64, String> {
    policy::tunnel::bytes(text).ok_or_else(|| "a number of bytes, such as 10 GiB".to_owned())
}

fn time(text: &str) -> Result<u64, String> {
    config::quantity::duration(text).ok_or_else(|| "a time, such as 50m or 8h".to_owned())
}

#[derive(Debug, Args)]
struct Delete {
    /// The tunnel
    tunnel: String,

    /// Packets that it is for
    #[arg(long, value_enum)]
    direction: Direction,

    /// Security parameters index
    #[arg(long, value_name = "NUMBER", value_parser = spi)]
    spi: u32,

    #[command(flatten)]
    ask: Ask,
}

/// Direction, as the gateway has it.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Direction {
    /// From the peer
    In,
    /// To the peer
    Out,
}

impl Direction {
    fn name(self) -> String {
        let direction = match self {
            Direction::In => wire::esp::Direction::In,
            Direction::Out => wire::esp::Direction::Out,
        };
        direction.name().to_owned()
    }
}

/// A number, decimal or hexadecimal.
fn spi(text: &str) -> Result<u32, String> {
    let read = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    read.map_err(|_| "a number such as 4096 or 0x1000".to_owned())
}

impl Arguments {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        match self.command {
            None => show(self.tunnel, &self.ask),
            Some(Command::Add(add)) => add.run(),
            Some(Command::Delete(delete)) => delete.run(),
            Some(Command::Flush { tunnel, ask }) => {
                let done: Deleted = ask.client().post_with("/sas/flush", &AssociationQuery { tunnel })?;
                if !ask.as_json(&done)? {
                    let many =
                        screen::count(done.deleted as u64, "security association", "security associations");
                    writeln!(screen::out(), "{GOOD}deleted{GOOD:#} {many}")?;
                }
                Ok(Exit::Done)
            }
        }
    }
}

fn show(tunnel: Option<String>, ask: &Ask) -> Result<Exit, Failure> {
    let all: Vec<AssociationView> = ask.client().get_with("/sas", &AssociationQuery { tunnel })?;
    if ask.as_json(&all)? {
        return Ok(Exit::Done);
    }
    let mut table = Table::new([
        "tunnel",
        "direction",
        "spi",
        "algorithm",
        "local",
        "remote",
        "state",
        "reached",
        "origin",
        "number",
        "packets",
        "bytes",
        "refused",
        "lost",
        "worker",
        "cpu",
    ]);
    for sa in all {
        let algorithm = match sa.auth {
            Some(auth) => format!("{}, {auth}", sa.algorithm),
            None => sa.algorithm,
        };
        let refused =
            sa.replayed + sa.icv_wrong + sa.length + sa.trailer + sa.selector + sa.expired + sa.sequence;
        table.row([
            sa.tunnel,
            sa.direction,
            format!("{:#x}", sa.spi),
            algorithm,
            sa.local,
            sa.remote,
            sa.state,
            sa.reached.unwrap_or_default(),
            sa.origin,
            sa.number.to_string(),
            sa.packets.to_string(),
            sa.bytes.to_string(),
            refused.to_string(),
            sa.lost.to_string(),
            match (sa.worker, sa.cpu) {
                (Some(worker), _) => worker.to_string(),
                (None, Some(_)) => "none".to_owned(),
                (None, None) => "all".to_owned(),
            },
            sa.cpu.map(|cpu| cpu.to_string()).unwrap_or_default(),
        ]);
    }
    table.print()?;
    Ok(Exit::Done)
}

impl Add {
    fn run(self) -> Result<Exit, Failure> {
        let Add { tunnel, direction, spi, algorithm, auth, key_file, auth_key_file, esn, lifetime, ask } =
            self;
        let request = AssociationRequest {
            tunnel,
            direction: direction.name(),
            spi,
            algorithm,
            auth,
            key: digits(key_file.as_deref())?,
            auth_key: digits(auth_key_file.as_deref())?,
            esn,
            soft: lifetime.soft(),
            hard: lifetime.hard(),
        };
        let body = serde_json::to_string(&request).unwrap_or_default();
        let added: AssociationName = ask.client().post("/sas", body)?;
        if !ask.as_json(&added)? {
            writeln!(screen::out(), "{GOOD}added{GOOD:#} {}", named(&added))?;
        }
        Ok(Exit::Done)
    }
}

impl Delete {
    fn run(self) -> Result<Exit, Failure> {
        let Delete { tunnel, direction, spi, ask } = self;
        let name = AssociationName { tunnel, direction: direction.name(), spi };
        let done: Deleted = ask.client().post_with("/sas/delete", &name)?;
        if !ask.as_json(&done)? {
            writeln!(screen::out(), "{GOOD}deleted{GOOD:#} {}", named(&name))?;
        }
        Ok(Exit::Done)
    }
}

fn named(name: &AssociationName) -> String {
    format!("{} {:#x} of {}", name.direction, name.spi, name.tunnel)
}

/// Hexadecimal digits of the key in a file; none where there is no file.
fn digits(file: Option<&Path>) -> Result<String, Failure> {
    let Some(file) = file else { return Ok(String::new()) };
    let key = key(file).map_err(GatewayError::Key)?;
    let mut digits = String::with_capacity(2 * key.len());
    for byte in key.expose() {
        digits
            .extend([byte >> 4, byte & 15].map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)])));
    }
    Ok(digits)
}

fn key(file: &Path) -> Result<Secret, KeyFileError> {
    if file != Path::new("-") {
        return keys::key(file);
    }
    let path = PathBuf::from("standard input");
    let mut line = String::with_capacity(4_096);
    let read = io::stdin().lock().read_line(&mut line);
    read.map_err(|error| KeyFileError::System { path: path.clone(), operation: "read", error })?;
    Secret::of_hex(line.trim()).map_err(|error| KeyFileError::Text { path, error })
}
