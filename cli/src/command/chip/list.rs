//! `wirerate chip list`: which chips and mappings come with the program?

use std::io::Write;

use chip::builtin::{CHIPS, MAPPINGS};
use chip::{description, mapping};
use clap::Args;
use serde_json::{Value, json};

use crate::builtin;
use crate::failure::{Exit, Failure, UsageError};
use crate::screen::{self, DIM, HEADING};
use crate::with_exit_codes;

/// List the chips and mappings that come with the program, or print one
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate chip list
  wirerate chip list ixp2400 > my-chip.toml
  wirerate chip list ixp2400-pool > my-mapping.toml"))]
pub(crate) struct Arguments {
    /// Print the TOML of this chip or mapping
    name: Option<String>,

    /// Print one JSON object
    #[arg(long, conflicts_with = "name")]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let mut out = screen::out();
        if let Some(name) = self.name {
            let all = || CHIPS.iter().chain(MAPPINGS);
            let Some(found) = all().find(|shipped| shipped.name == name) else {
                let known = all().map(|shipped| shipped.name).collect();
                return Err(UsageError::NotKnown { what: "chip or mapping", name, known }.into());
            };
            write!(out, "{}", found.text)?;
            return Ok(Exit::Done);
        }
        let mut chips = Vec::new();
        for shipped in CHIPS {
            let checked = description::parse(shipped.text, shipped.name);
            chips.push(builtin::whole(checked.chip, &checked.diagnostics, shipped.name)?);
        }
        let mut mappings = Vec::new();
        for shipped in MAPPINGS {
            let of = mapping::chip_of(shipped.text);
            let Some(chip) = chips.iter().find(|chip| Some(&chip.name) == of.as_ref()) else { continue };
            let checked = mapping::parse(shipped.text, shipped.name, chip);
            mappings
                .push((shipped.name, builtin::whole(checked.mapping, &checked.diagnostics, shipped.name)?));
        }
        if self.json {
            let list: Vec<Value> = chips
                .iter()
                .map(|chip| {
                    let of = mappings.iter().filter(|(_, mapping)| mapping.chip == chip.name);
                    let of = of.map(|(name, mapping)| json!({ "name": name, "about": mapping.about }));
                    json!({ "name": chip.name, "about": chip.about, "mappings": of.collect::<Vec<_>>() })
                })
                .collect();
            writeln!(out, "{:#}", json!({ "chips": list }))?;
            return Ok(Exit::Done);
        }
        for chip in &chips {
            writeln!(out, "{HEADING}{}{HEADING:#} {DIM}{}{DIM:#}", chip.name, chip.about)?;
            for (name, mapping) in mappings.iter().filter(|(_, mapping)| mapping.chip == chip.name) {
                writeln!(out, "  {name:<24}{}", mapping.about)?;
            }
        }
        Ok(Exit::Done)
    }
}
