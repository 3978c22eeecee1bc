//! Common part of the commands about a chip: the chip, its mapping and its traffic, from the words of the command line to a
//! pipeline and its input.

use std::path::PathBuf;

use chip::description::Chip;
use chip::plan::texts::Setting;
use chip::plan::{Fitted, Item, Order, Prepared, Problem, Problems, Taken, Wish, ports_wanted};
use chip::traffic::KEYS;
use clap::Args;
use dataplane::Tables;

use crate::builtin;
use crate::failure::{ChipError, Exit, Failure};
use crate::policy_file::{self, Loaded, StaticKeys};
use crate::screen;

/// A chip, a policy and traffic, in words.
#[derive(Debug, Args)]
pub(super) struct Subject {
    /// The chip: one of `wirerate chip list`, or a file (TOML)
    #[arg(long, value_name = "NAME|FILE")]
    chip: String,

    /// What runs where: one of `wirerate chip list`, or a file (TOML); otherwise run to completion, CHIP-pool,
    /// or CHIP-split, or CHIP-tunnel, where programs are too long for that
    #[arg(long, value_name = "NAME|FILE")]
    mapping: Option<String>,

    /// The policy (TOML)
    pub(super) policy: PathBuf,

    /// Captures, and streams to be generated
    #[arg(required = true, value_name = "[IFACE=]CAPTURE | FROM>TO[,KEY=VALUE...]")]
    pub(super) traffic: Vec<Item>,

    /// What everything random follows from
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(super) seed: u64,

    /// Give an interface a certain port, by number or kind, as wan=8 or wan=gigabit; otherwise they take ports in their
    /// order. May be repeated
    #[arg(long, value_name = "IFACE=PORT")]
    pub(super) port: Vec<Wish>,

    /// Set a parameter of the chip or the mapping, as memory.sram.latency=45; may be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<Setting>,

    #[command(flatten)]
    pub(super) keys: StaticKeys,
}

/// Returns the keys of a stream, for help.
pub(super) fn keys() -> String {
    let mut text = String::from(
        "A generated stream is FROM>TO and keys, with commas between; FROM and TO are interfaces of the policy:\n",
    );
    for (key, meaning) in KEYS {
        text.push_str(&format!("  {key}\n      {meaning}\n"));
    }
    text
}

impl Subject {
    /// Reads everything, and shows what is wrong with it.
    pub(super) fn prepare(&self) -> Result<Prepared, Failure> {
        let fitted = self.read()?;
        screen::diagnostics(&fitted.found);
        match fitted.errors() {
            0 => Ok(fitted.prepared),
            errors => Err(ChipError::DoesNotFit { file: fitted.prepared.described.file, errors }.into()),
        }
    }

    /// Prepares without a check that tables and programs fit: something may yet be changed.
    pub(super) fn prepare_unfitted(&self) -> Result<Prepared, Failure> {
        self.read().map(|fitted| fitted.prepared)
    }

    /// Reads everything, and finds what does not fit.
    fn read(&self) -> Result<Fitted, Failure> {
        let order = self.order();
        let texts = order.texts().map_err(builtin::failed)?;
        let described = builtin::read(&texts)?;
        let Loaded { file, policy, tables, .. } = policy_file::load_keyed(&self.policy, self.keys)?;
        let prepared = order.prepare(texts, described, policy, &tables).map_err(builtin::failed)?;
        tell_shared_ports(&tables, &prepared.described.chip);
        drop(tables);
        let fitted = order.fit(prepared, &file).map_err(builtin::failed)?;
        if fitted.taken == Taken::Spread {
            screen::note(&format_args!(
                "the programs of {file} are too long for an engine's store; it runs as {} spreads them",
                fitted.prepared.described.file
            ));
        }
        Ok(fitted)
    }

    fn order(&self) -> Order {
        Order {
            chip: self.chip.clone(),
            mapping: self.mapping.clone(),
            settings: self.set.clone(),
            wishes: self.port.clone(),
            traffic: self.traffic.clone(),
            seed: self.seed,
        }
    }

    /// Returns a title of one line: policy and traffic.
    pub(super) fn title(&self) -> String {
        let items = self.traffic.iter().map(|item| match item {
            Item::Capture(named) => named.path.display().to_string(),
            Item::Stream(text, _) => text.clone(),
        });
        format!("{}, {}", self.policy.display(), items.collect::<Vec<_>>().join(", "))
    }
}

/// Says which interfaces share a port, where the policy has more than the chip.
fn tell_shared_ports(tables: &Tables, chip: &Chip) {
    let roots = ports_wanted(tables);
    let ports = chip.ports.count();
    if roots > ports {
        screen::warning(&format_args!(
            "the policy has {roots} interfaces and the chip {ports} ports: the interface after the last port has the first \
             one, and so on, and those that share a port share its rate"
        ));
    }
}

/// Says on standard error what could not be read.
pub(super) fn tell_problems(problems: &Problems) -> Exit {
    let mut exit = Exit::Done;
    for problem in problems.get().into_iter().flatten() {
        match problem {
            Problem::Unreadable(what) => {
                screen::error(what, Some("everything before that was played; the rest was not"));
                exit = Exit::Unreadable;
            }
            Problem::Short(what) | Problem::Long(what) => screen::warning(what),
        }
    }
    exit
}
