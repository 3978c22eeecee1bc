//! `wirerate map`: outside ports of a running gateway that hosts, or an operator for them, have asked for.

use std::io::Write;
use std::net::SocketAddrV4;

use clap::{Args, Subcommand};
use gateway::port_mapping::{PortMappingRequest, PortMappingView, PortMappings, PortMappingsRemoved};

use super::live::{Ask, Table};
use crate::failure::{Exit, Failure};
use crate::screen::{self, GOOD};
use crate::with_exit_codes;

/// Show the port mappings of a running gateway, or add and remove some: no reload, no packet lost
///
/// Hosts ask for outside ports by PCP, NAT-PMP and UPnP, where a translation of the policy has a [nat.port-mapping]. These
/// commands map ports for hosts that do not ask.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate map
  wirerate map add tcp 192.168.1.20:8080 --port 80
  wirerate map remove tcp 192.168.1.20:8080

--json prints mappings: protocol, outside, outside_port, inside, inside_port, by (pcp, nat-pmp, upnp, operator), \
expires_seconds and description; and counts: live, by (of each origin), made, refused, expired."))]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    ask: Ask,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Map an outside port to a port of a host, or change the end of such a mapping
    #[command(after_long_help = with_exit_codes("\
Examples:
  wirerate map add tcp 192.168.1.20:8080 --port 80
  wirerate map add udp 192.168.1.20:27015 --timeout 4h \\
    --description 'game of friday'"))]
    Add {
        #[command(flatten)]
        end: End,

        /// Outside port; else that of the host where it is free, or another
        #[arg(long, value_name = "PORT")]
        port: Option<u16>,

        /// Time after which the mapping is over; else it stays until it is removed
        #[arg(long, value_name = "TIME")]
        timeout: Option<String>,

        /// Description, of up to 32 bytes
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
    },
    /// Remove the mapping of a port of a host, whoever has asked for it
    #[command(after_long_help = with_exit_codes("\
Examples:
  wirerate map remove tcp 192.168.1.20:8080"))]
    Remove(End),
}

/// End of a mapping at a host.
#[derive(Debug, Args)]
struct End {
    /// Transport protocol
    #[arg(value_parser = ["tcp", "udp"])]
    protocol: String,

    /// Address and port of the host
    #[arg(value_name = "ADDRESS:PORT")]
    inside: SocketAddrV4,

    #[command(flatten)]
    ask: Ask,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        match self.command {
            None => list(&self.ask),
            Some(Command::Add { end, port, timeout, description }) => {
                let request =
                    PortMappingRequest { outside_port: port, timeout, description, ..end.request() };
                let mapped: PortMappingView = end.send("/port-mappings/add", &request)?;
                if !end.ask.as_json(&mapped)? {
                    let PortMappingView { protocol, outside, outside_port, .. } = &mapped;
                    let inside = end.inside;
                    writeln!(
                        screen::out(),
                        "{GOOD}mapped{GOOD:#}: {protocol} {outside}:{outside_port} to {inside}"
                    )?;
                }
                Ok(Exit::Done)
            }
            Some(Command::Remove(end)) => {
                let removed: PortMappingsRemoved = end.send("/port-mappings/remove", &end.request())?;
                if !end.ask.as_json(&removed)? {
                    let count = screen::count(removed.removed.into(), "mapping", "mappings");
                    writeln!(screen::out(), "{count} removed")?;
                }
                Ok(Exit::Done)
            }
        }
    }
}

impl End {
    fn request(&self) -> PortMappingRequest {
        PortMappingRequest {
            protocol: self.protocol.clone(),
            inside: self.inside.ip().to_string(),
            inside_port: self.inside.port(),
            ..PortMappingRequest::default()
        }
    }

    fn send<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        request: &PortMappingRequest,
    ) -> Result<T, Failure> {
        Ok(self.ask.client().post(path, serde_json::to_string(request).unwrap_or_default())?)
    }
}

fn list(ask: &Ask) -> Result<Exit, Failure> {
    let found: PortMappings = ask.client().get("/port-mappings")?;
    if ask.as_json(&found)? {
        return Ok(Exit::Done);
    }
    let mut table = Table::new(["protocol", "outside", "inside", "by", "expires", "description"]);
    for mapping in found.mappings {
        let expires = mapping.expires_seconds.map_or_else(|| "-".to_owned(), |left| format!("{left:.0} s"));
        table.row([
            mapping.protocol,
            format!("{}:{}", mapping.outside, mapping.outside_port),
            format!("{}:{}", mapping.inside, mapping.inside_port),
            mapping.by,
            expires,
            mapping.description,
        ]);
    }
    table.print()?;
    Ok(Exit::Done)
}
