//! `wirerate init`: a first policy for this machine.

use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;

use super::token::FILE as USERS;
use crate::draft::{
    AnswerError, Answers, Carried, Machine, PAGE, SshFrom, Suggestion, Wishes, carry, draft, question,
};
use crate::failure::{Exit, Failure, Fault, GatewayError, InputError, OutputError, PolicyError};
use crate::{file, screen, with_exit_codes};

/// Policy file of the Debian package, as it comes: nothing of anybody's is lost with it.
const OF_THE_PACKAGE: &str = include_str!("../../policy.toml");

/// Port of SSH (RFC 4251), unless the session that the command is typed in came by another.
const SSH_PORT: u16 = 22;

/// Write a first policy for this machine
///
/// Asks three questions: which interfaces lead to the internet, which to the inside, and from where one may log in by SSH. Flags answer
/// them, too; `--yes` takes what is suggested. The policy forwards from the inside to the internet, translates IPv4 on the way
/// (masquerade), and shuts everything else but SSH and ping; with `--lan none` it protects this machine alone.
///
/// Interfaces, addresses and routes are read from Linux, and so are the rules of nftables (`nft`, as root): translations and rules are
/// carried over, and what could not be is listed; the exit code is then 1. Nothing is started or changed but the file. A policy by which this SSH session could
/// not log in again is refused.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
As root, in a terminal:
  wirerate init
Without questions:
  wirerate init --wan eth0 --lan eth1 --ssh-from lan
A line of 100 and 20 Mbit/s, and a page in the browser:
  wirerate init --rate '95 Mbit/s / 19 Mbit/s' --page
  wirerate init --yes --out router.toml
To look at it only:
  wirerate init --yes --nft none --out -"))]
pub(crate) struct Arguments {
    /// Interface to the internet; may be given again
    #[arg(long, value_name = "INTERFACE")]
    wan: Vec<String>,

    /// Interface to the inside, whose hosts go through this machine; may be given again. `none`: no such hosts
    #[arg(long, value_name = "INTERFACE")]
    lan: Vec<String>,

    /// Sources that may log in by SSH: `lan`, `anywhere`, `none`, an address or a network; may be given again
    #[arg(long, value_name = "SOURCE")]
    ssh_from: Vec<String>,

    /// Port of the SSH server: that of this SSH session, else 22
    #[arg(long, value_name = "PORT")]
    ssh_port: Option<u16>,

    /// Rates of the line to the internet, down and up, a little below what it carries (`95 Mbit/s / 19 Mbit/s`): packets wait here then, and
    /// not in the modem, where hosts share evenly and voice goes first
    #[arg(long, value_name = "DOWN / UP")]
    rate: Option<String>,

    /// Have a page in the browser, at 127.0.0.1:9479, for the users that `wirerate token add` makes
    #[arg(long)]
    page: bool,

    /// Take the suggestion for whatever no flag answers, and ask nothing
    #[arg(long)]
    yes: bool,

    /// Rules of nftables to carry over: `auto` asks `nft`, `none` takes none, or a file with the output of `nft -j list ruleset`
    #[arg(long, value_name = "RULES", default_value = "auto")]
    nft: String,

    /// File for the policy; `-`: standard output
    #[arg(long, value_name = "FILE", default_value = "/etc/wirerate/policy.toml")]
    out: PathBuf,

    /// Write over the file, if it is there
    #[arg(long)]
    force: bool,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let to_stdout = self.out == Path::new("-");
        if !to_stdout && !self.force && is_somebodys(&self.out) {
            return Err(OutputError::Exists { path: self.out }.into());
        }
        let machine = Machine::read().map_err(GatewayError::Linux)?;
        let answers = self.answers(&machine)?;
        let page_tokens = self.page.then(|| PathBuf::from(USERS));
        let wishes = Wishes { rate: self.rate.clone(), page_tokens };
        wishes.check(&answers)?;
        let carried = self.carried(&answers)?;
        let text = draft(&machine, &answers, &wishes, &carried);
        let checked = policy::check(&text, &self.out.display().to_string());
        if checked.policy.is_none() {
            screen::diagnostics(&checked.diagnostics);
            return Err(Fault::Draft.into());
        }
        if to_stdout {
            write!(screen::out(), "{text}")?;
        } else {
            // Everybody may read it, as the service runs as a user of its own; secrets have files of their own.
            fs::create_dir_all(file::directory_of(&self.out))
                .and_then(|()| file::replace(&self.out, &text, 0o644))
                .map_err(|error| OutputError::Write { path: self.out.clone(), error })?;
        }
        for note in &carried.notes {
            screen::note(&format_args!("nftables: {note}"));
        }
        for missing in &carried.left_out {
            screen::warning(&format_args!("nftables: left out: {missing}"));
        }
        if answers.ssh_from.is_empty() {
            screen::warning(&"nobody may log in by SSH");
        }
        if !to_stdout {
            next(&self.out, &machine, &answers, &wishes, &carried)?;
        }
        Ok(if carried.left_out.is_empty() { Exit::Done } else { Exit::Wrong })
    }

    /// Answers by flags, suggestions or questions, in this order.
    fn answers(&self, machine: &Machine) -> Result<Answers, AnswerError> {
        let given = |words: &[String]| {
            (!words.is_empty())
                .then(|| words.iter().flat_map(|words| question::words(words)).collect::<Vec<_>>())
        };
        let (wan, lan) = (given(&self.wan), given(&self.lan));
        let ssh_from = given(&self.ssh_from)
            .map(|words| words.iter().map(|word| word.parse()).collect::<Result<Vec<SshFrom>, _>>())
            .transpose()?;
        let ssh_port = self.ssh_port.or(machine.session.map(|session| session.port)).unwrap_or(SSH_PORT);
        let suggestion = Suggestion::of(machine, wan.as_deref(), lan.as_deref());
        let missing = |flag| AnswerError::Missing { flag, example: suggestion.flags() };
        let answers = match (wan, lan, ssh_from) {
            (Some(wan), Some(lan), Some(ssh_from)) => Answers { wan, lan, ssh_from, ssh_port },
            (wan, lan, ssh_from) if self.yes => {
                let wan = wan.unwrap_or_else(|| suggestion.wan.clone());
                if wan.is_empty() {
                    return Err(missing("wan"));
                }
                let lan = lan.unwrap_or_else(|| suggestion.lan.clone());
                let ssh_from = ssh_from.or_else(|| suggestion.ssh_from.clone());
                Answers { wan, lan, ssh_from: ssh_from.ok_or_else(|| missing("ssh-from"))?, ssh_port }
            }
            (wan, lan, ssh_from) => {
                let flag = match (&wan, &lan) {
                    (None, _) => "wan",
                    (_, None) => "lan",
                    _ => "ssh-from",
                };
                if !io::stdin().is_terminal() {
                    return Err(missing(flag));
                }
                let begun = question::Begun { wan, lan, ssh_from, ssh_port };
                let mut input = io::stdin().lock();
                question::ask_all(machine, begun, &mut input as &mut dyn BufRead)
                    .ok()
                    .flatten()
                    .ok_or_else(|| missing(flag))?
            }
        };
        answers.check(machine)?;
        Ok(answers)
    }

    fn carried(&self, answers: &Answers) -> Result<Carried, Failure> {
        let path = PathBuf::from(&self.nft);
        let ruleset = match self.nft.as_str() {
            "none" => return Ok(Carried::default()),
            "auto" => match ruleset() {
                Ok(ruleset) => ruleset,
                Err(why) => {
                    screen::note(&format_args!("rules of nftables are not carried over: {why}"));
                    return Ok(Carried::default());
                }
            },
            _ => file::read(&path).map_err(|error| InputError::Read { path: path.clone(), error })?,
        };
        carry(&ruleset, answers).map_err(|error| PolicyError::Import { path, error }.into())
    }
}

/// True if there is a file other than the one that the package brought.
fn is_somebodys(path: &Path) -> bool {
    match file::read_text(path) {
        Ok(text) => text != OF_THE_PACKAGE,
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Rules of nftables, as JSON; or the reason that there are none to be had.
fn ruleset() -> Result<Vec<u8>, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut everywhere = path.clone();
    everywhere.push(":/usr/sbin:/sbin");
    let output = Command::new("nft")
        .args(["-j", "list", "ruleset"])
        .env("PATH", everywhere)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("nft: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("nft: {}", said.lines().next().unwrap_or("it failed")));
    }
    Ok(output.stdout)
}

/// Says what was written, and what next.
fn next(
    path: &Path,
    machine: &Machine,
    answers: &Answers,
    wishes: &Wishes,
    carried: &Carried,
) -> io::Result<()> {
    let path = path.display();
    let mut out = screen::out();
    let sources: Vec<String> = answers.ssh_from.iter().map(ToString::to_string).collect();
    writeln!(out, "{path} is written.")?;
    writeln!(out, "  internet  {}", answers.wan.join(", "))?;
    if answers.lan.is_empty() {
        writeln!(out, "  inside    none: this machine forwards nothing")?;
    } else {
        writeln!(out, "  inside    {}", answers.lan.join(", "))?;
    }
    let sources = if sources.is_empty() { "nowhere".to_owned() } else { sources.join(", ") };
    writeln!(out, "  SSH       port {} from {sources}", answers.ssh_port)?;
    if let Some(rate) = &wishes.rate {
        writeln!(out, "  rates     {rate}")?;
    }
    if wishes.page_tokens.is_some() {
        writeln!(out, "  page      http://{PAGE}/")?;
    }
    writeln!(out, "\nWhat next:")?;
    if wishes.page_tokens.is_some() {
        writeln!(out, "  sudo wirerate token add YOU --role change")?;
        writeln!(out, "      first: the token that logs you in to the page")?;
    }
    writeln!(out, "  wirerate check {path}")?;
    writeln!(out, "      after each change: is it sound?")?;
    writeln!(out, "  sudo timeout 120 wirerate run {path}")?;
    writeln!(
        out,
        "      for two minutes; then `sudo wirerate release`, and the interfaces are as they were"
    )?;
    if let Some(packet) = attempt(machine, answers) {
        writeln!(out, "  sudo wirerate explain --live '{packet}'")?;
        writeln!(out, "      while it runs: what becomes of SSH from outside?")?;
    }
    writeln!(out, "  sudo systemctl enable --now wirerate")?;
    writeln!(out, "      keep it, also over a reboot")?;
    if !carried.text.is_empty() {
        writeln!(
            out,
            "\nRules of nftables go on filtering what reaches this machine itself, until: sudo systemctl disable --now nftables"
        )?;
    }
    Ok(())
}

/// Packet that would open SSH from outside, where the first interface there has an IPv4 address.
fn attempt(machine: &Machine, answers: &Answers) -> Option<String> {
    let wan = machine.interface(answers.wan.first()?)?;
    let own = wan.addresses.iter().map(|address| address.net.addr()).find(|address| address.is_ipv4())?;
    Some(format!("{} tcp 198.51.100.7:50000 > {own}:{} syn", wan.name, answers.ssh_port))
}
