//! The three answers: interfaces to the internet, interfaces to the inside, and sources that may log in by SSH.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use gateway::linux::interface::Condition;
use ipnet::IpNet;

use super::machine::{Interface, Machine};

/// Longest name that a zone or an interface of a policy may have.
const LONGEST_NAME: usize = 64;

/// Word for no interface, or no source.
pub(crate) const NONE: &str = "none";

/// Answers of the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answers {
    /// Interfaces to the internet, one at least.
    pub(crate) wan: Vec<String>,
    /// Interfaces to the inside; none on a machine that is no router.
    pub(crate) lan: Vec<String>,
    /// Sources that may log in by SSH; none where nobody may.
    pub(crate) ssh_from: Vec<SshFrom>,
    /// Port of the SSH server.
    pub(crate) ssh_port: u16,
}

/// Further wishes, by flags alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    /// Rates of the line to the internet, as a shape of the policy has them: down and up.
    pub(crate) rate: Option<String>,
    /// File of the users of the gateway's page, which is then on loopback.
    pub(crate) page_tokens: Option<PathBuf>,
}

impl Wishes {
    /// Checks the wishes against the answers.
    pub(crate) fn check(&self, answers: &Answers) -> Result<(), AnswerError> {
        let Some(rate) = &self.rate else { return Ok(()) };
        let is_written = rate.bytes().all(|byte| byte.is_ascii_alphanumeric() || b" ./".contains(&byte));
        let line = format!("[interface.wan]\nzone = \"wan\"\n[shape.wan]\nrate = \"{rate}\"\n");
        if !is_written || policy::check(&line, "").policy.is_none() {
            return Err(AnswerError::Rate(rate.clone()));
        }
        if answers.wan.len() > 1 { Err(AnswerError::Lines(answers.wan.len())) } else { Ok(()) }
    }
}

/// Source that may log in by SSH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SshFrom {
    /// Hosts of the inside.
    Lan,
    /// Everybody.
    Anywhere,
    /// Hosts of a network.
    Net(IpNet),
}

impl FromStr for SshFrom {
    type Err = AnswerError;

    fn from_str(word: &str) -> Result<SshFrom, AnswerError> {
        match word {
            "lan" => Ok(SshFrom::Lan),
            "anywhere" => Ok(SshFrom::Anywhere),
            _ => match (word.parse::<IpNet>(), word.parse::<IpAddr>()) {
                (Ok(net), _) => Ok(SshFrom::Net(net.trunc())),
                (_, Ok(address)) => Ok(SshFrom::Net(address.into())),
                _ => Err(AnswerError::Source(word.to_owned())),
            },
        }
    }
}

impl fmt::Display for SshFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SshFrom::Lan => f.write_str("lan"),
            SshFrom::Anywhere => f.write_str("anywhere"),
            SshFrom::Net(net) if net.prefix_len() == net.max_prefix_len() => net.addr().fmt(f),
            SshFrom::Net(net) => net.fmt(f),
        }
    }
}

/// Answer that the machine has no use for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AnswerError {
    /// No interface of that name.
    #[error("there is no interface `{name}` here")]
    NoInterface {
        /// Name given.
        name: String,
        /// Interfaces of the machine.
        known: Vec<String>,
    },
    /// An interface that is a port of another one.
    #[error("`{name}` is a port of `{master}`")]
    Port {
        /// Name given.
        name: String,
        /// Its bridge or bond.
        master: String,
    },
    /// An interface is on both sides.
    #[error("`{0}` cannot be on both sides")]
    Both(String),
    /// No interface to the internet.
    #[error("one interface at least leads to the internet")]
    NoWan,
    /// A name that a policy cannot have.
    #[error("a policy cannot have an interface of the name `{0}`")]
    Name(String),
    /// Neither a word that is known nor an address.
    #[error("`{0}` is no source: lan, anywhere, none, an address or a network")]
    Source(String),
    /// No rate of a shape.
    #[error("`{0}` is no rate of a line")]
    Rate(String),
    /// One rate for several lines.
    #[error("there are {0} lines to the internet, and one rate")]
    Lines(usize),
    /// SSH from the inside, and there is none.
    #[error("there is no lan for SSH to come from")]
    NoLan,
    /// The session that the command was typed in would not come back.
    #[error("this session comes from {0}, which could not log in again")]
    CutOff(IpAddr),
    /// No answer and no terminal.
    #[error("--{flag} is missing, and there is no terminal to ask at")]
    Missing {
        /// Missing flag.
        flag: &'static str,
        /// Command line with suggestions for what is missing.
        example: String,
    },
}

impl AnswerError {
    /// Returns advice on the error.
    pub(crate) fn hint(&self) -> String {
        match self {
            AnswerError::NoInterface { name, known } => {
                match config::nearest(name, known.iter().map(String::as_str)) {
                    Some(nearest) => format!("did you mean {nearest}? There are {}", known.join(", ")),
                    None => format!("there are {}", known.join(", ")),
                }
            }
            AnswerError::Port { master, .. } => format!("name {master}, which has its packets"),
            AnswerError::Both(_) => "name it with --wan or with --lan".to_owned(),
            AnswerError::NoWan => {
                "give --wan; on a machine with one interface, that one, and --lan none".to_owned()
            }
            AnswerError::Name(_) => "rename it: ip link set NAME name NEW".to_owned(),
            AnswerError::Source(_) => "as in --ssh-from lan --ssh-from 198.51.100.0/24".to_owned(),
            AnswerError::Rate(_) => "as in --rate '95 Mbit/s / 19 Mbit/s': down, and up".to_owned(),
            AnswerError::Lines(_) => {
                "leave --rate out, and give each its shape in the policy: [shape.NAME]".to_owned()
            }
            AnswerError::NoLan => {
                "say --ssh-from ADDRESS, --ssh-from anywhere or --ssh-from none, or name a --lan".to_owned()
            }
            AnswerError::CutOff(address) => {
                format!("add --ssh-from {address}, or say --ssh-from none if you have another way in")
            }
            AnswerError::Missing { example, .. } => example.clone(),
        }
    }
}

impl Answers {
    /// Checks the answers against the machine.
    pub(crate) fn check(&self, machine: &Machine) -> Result<(), AnswerError> {
        if self.wan.is_empty() {
            return Err(AnswerError::NoWan);
        }
        self.wan.iter().chain(&self.lan).try_for_each(|name| known(name, machine))?;
        if let Some(both) = self.wan.iter().find(|name| self.lan.contains(name)) {
            return Err(AnswerError::Both(both.clone()));
        }
        if self.lan.is_empty() && self.ssh_from.contains(&SshFrom::Lan) {
            return Err(AnswerError::NoLan);
        }
        match machine.session {
            Some(session) if !self.ssh_from.is_empty() && !self.admits(session.client, machine) => {
                Err(AnswerError::CutOff(session.client))
            }
            _ => Ok(()),
        }
    }

    /// True if a host may log in.
    pub(crate) fn admits(&self, client: IpAddr, machine: &Machine) -> bool {
        self.ssh_from.iter().any(|from| match from {
            SshFrom::Anywhere => true,
            SshFrom::Net(net) => net.contains(&client),
            SshFrom::Lan => is_inside(client, &self.lan, machine),
        })
    }
}

/// True if a host is on a network of the inside.
fn is_inside(client: IpAddr, lan: &[String], machine: &Machine) -> bool {
    lan.iter().filter_map(|name| machine.interface(name)).any(|interface| interface.has_on_link(client))
}

fn known(name: &str, machine: &Machine) -> Result<(), AnswerError> {
    let Some(interface) = machine.interface(name) else {
        let known = machine.interfaces.iter().map(|interface| interface.name.clone()).collect();
        return Err(AnswerError::NoInterface { name: name.to_owned(), known });
    };
    if let Some(master) = &interface.master {
        return Err(AnswerError::Port { name: name.to_owned(), master: master.clone() });
    }
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/+".contains(&byte);
    if name.len() > LONGEST_NAME || !name.bytes().all(is_word) {
        return Err(AnswerError::Name(name.to_owned()));
    }
    Ok(())
}

/// Suggested answers, from the machine alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Suggestion {
    /// Interfaces of default routes, the preferred one first; none where there is none.
    pub(crate) wan: Vec<String>,
    /// Interfaces with addresses that lead nowhere else, and that no other program keeps for itself.
    pub(crate) lan: Vec<String>,
    /// Sources of SSH: the session's, and the inside. `None` where neither is known.
    pub(crate) ssh_from: Option<Vec<SshFrom>>,
}

impl Suggestion {
    /// Suggests answers; `wan` and `lan` are those that were given already.
    pub(crate) fn of(machine: &Machine, wan: Option<&[String]>, lan: Option<&[String]>) -> Suggestion {
        let mut routed: Vec<&Interface> =
            machine.interfaces.iter().filter(|interface| interface.preference().is_some()).collect();
        routed.sort_by_key(|interface| std::cmp::Reverse(interface.preference()));
        let names = |list: Vec<&Interface>| list.iter().map(|interface| interface.name.clone()).collect();
        let wan = wan.map_or_else(|| names(routed), <[String]>::to_vec);
        let inside = |interface: &&Interface| {
            !wan.contains(&interface.name)
                && interface.preference().is_none()
                && interface.master.is_none()
                && interface.condition != Condition::Down
                && !interface.addresses.is_empty()
                && !interface.is_of_a_program()
        };
        let lan =
            lan.map_or_else(|| names(machine.interfaces.iter().filter(inside).collect()), <[String]>::to_vec);
        let mut ssh_from = Vec::new();
        if !lan.is_empty() {
            ssh_from.push(SshFrom::Lan);
        }
        if let Some(session) = machine.session.filter(|session| !is_inside(session.client, &lan, machine)) {
            ssh_from.push(SshFrom::Net(session.client.into()));
        }
        Suggestion { wan, lan, ssh_from: Some(ssh_from).filter(|sources| !sources.is_empty()) }
    }

    /// Flags that give the suggested answers.
    pub(crate) fn flags(&self) -> String {
        let list = |flag: &str, words: &[String]| match words {
            [] => format!(" --{flag} {NONE}"),
            words => words.iter().map(|word| format!(" --{flag} {word}")).collect(),
        };
        let wan = if self.wan.is_empty() { " --wan INTERFACE".to_owned() } else { list("wan", &self.wan) };
        let sources: Vec<String> = self.ssh_from.iter().flatten().map(SshFrom::to_string).collect();
        let ssh =
            if sources.is_empty() { " --ssh-from ADDRESS".to_owned() } else { list("ssh-from", &sources) };
        format!("wirerate init{wan}{}{ssh}", list("lan", &self.lan))
    }
}
