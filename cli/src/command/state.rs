//! `wirerate save` and `wirerate load`: what a running gateway remembers, into a file and back.

use std::fs::File;
use std::io::{BufReader, Seek, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use gateway::api::LoadedState;
use gateway::store::{self, Contents, StoreError};

use super::live::Ask;
use crate::failure::{Exit, Failure, GatewayError, InputError};
use crate::screen::{self, count};
use crate::with_exit_codes;

/// Interval of checks whether an answer still comes.
const TICK: Duration = Duration::from_secs(1);

/// Save what a running gateway remembers: flows, translations, token debts under rates
///
/// The gateway goes on meanwhile; each flow is saved as it is when its turn comes. The file is whole or not there: it is
/// written as FILE.new, brought to the disk, and then renamed.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate save flows.state
  wirerate save /var/backups/wirerate.state --json"))]
pub(crate) struct Save {
    /// Where to
    file: PathBuf,

    #[command(flatten)]
    ask: Ask,
}

impl Save {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let failed = |error| GatewayError::Store { path: self.file.clone(), error };
        let saved = store::receive_file(&self.file, |out| {
            self.ask.client().listen("/state", &(), TICK, |piece| {
                out.write_all(piece.unwrap_or_default()).map_err(SaveError::from)?;
                Ok(ControlFlow::Continue(()))
            })
        });
        let Contents { flows, rates } = saved.map_err(|error: SaveError| match error {
            SaveError::Store(error) => failed(error),
            SaveError::Gateway(error) => GatewayError::Client(error),
        })?;
        if self.ask.as_json(&Contents { flows, rates })? {
            return Ok(Exit::Done);
        }
        let (flows, rates) = (count(flows, "flow", "flows"), count(rates, "rate", "rates"));
        writeln!(screen::out(), "saved {flows}, and token debts under {rates}")?;
        Ok(Exit::Done)
    }
}

/// Reason that nothing was saved.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
enum SaveError {
    Store(#[from] StoreError),
    Gateway(#[from] gateway::ClientError),
}

impl From<std::io::Error> for SaveError {
    fn from(error: std::io::Error) -> SaveError {
        SaveError::Store(StoreError::System { operation: "write", error })
    }
}

/// Give a running gateway what was saved, by `wirerate save` or when one ended
///
/// Flows go on with their translations where the policy still has these, and are revalidated by its rules at their next
/// packets. What the gateway has already stays as it is. What cannot be taken in is told, by reason. A file that is
/// damaged, or not all there, changes nothing.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate load flows.state
  wirerate load /var/backups/wirerate.state --json"))]
pub(crate) struct Load {
    /// Where from
    file: PathBuf,

    #[command(flatten)]
    ask: Ask,
}

impl Load {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let failed = |error| GatewayError::Store { path: self.file.clone(), error };
        let read = |error| InputError::Read { path: self.file.clone(), error };
        let mut file = File::open(&self.file).map_err(read)?;
        store::contents(BufReader::new(&file)).map_err(failed)?;
        file.rewind().map_err(read)?;
        let loaded: LoadedState = self.ask.client().send("/state", file)?;
        if self.ask.as_json(&loaded)? {
            return Ok(Exit::Done);
        }
        let mut out = screen::out();
        let (flows, rates) = (count(loaded.flows, "flow", "flows"), count(loaded.rates, "rate", "rates"));
        writeln!(out, "loaded {flows}, and token debts under {rates}")?;
        if loaded.present > 0 {
            writeln!(out, "  {} there already, left as they are", loaded.present)?;
        }
        for refused in &loaded.refused {
            writeln!(out, "  {} not: {}", refused.items, refused.reason)?;
        }
        Ok(Exit::Done)
    }
}
