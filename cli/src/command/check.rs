//! `wirerate check`: is a policy sound?

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use dataplane::Tables;
use policy::Diagnostic;
use serde_json::json;

use crate::failure::{Exit, Failure};
use crate::policy_file::EPOCH;
use crate::screen::{self, GOOD};
use crate::with_exit_codes;

/// Report everything that is wrong with a policy
///
/// Shows all errors and warnings at once, each with file, line, column and a hint: unknown keys with the
/// nearest known one, rules that can never be reached, addresses outside their zone, NAT that can never match.
/// Warnings alone do not make a policy wrong.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate check policies/home-office.toml
  wirerate check policies/isp-edge.toml --json | jq '{errors, warnings}'

--json prints one object: `file`, `errors` and `warnings` (how many), and `diagnostics`, a list of objects \
with `code severity message hint file line column related`."))]
pub(crate) struct Arguments {
    /// The policy (TOML)
    policy: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let file = self.policy.display().to_string();
        let checked = policy::load(&self.policy).map_err(Failure::Policy)?;
        let (errors, warnings) = (checked.errors().count(), checked.warnings().count());
        let uncompiled = checked.policy.as_ref().and_then(|policy| Tables::compile(policy, EPOCH).err());
        let total = errors + usize::from(uncompiled.is_some());
        if self.json {
            let mut list: Vec<_> =
                checked.diagnostics.iter().map(|found: &Diagnostic| json!(found)).collect();
            if let Some(error) = &uncompiled {
                let message = error.to_string();
                list.push(json!({
                    "code": "compile", "severity": "error", "message": message, "hint": null,
                    "file": file, "line": null, "column": null, "related": [],
                }));
            }
            let object = json!({ "file": file, "errors": total, "warnings": warnings, "diagnostics": list });
            writeln!(screen::out(), "{object:#}")?;
            return Ok(if total == 0 { Exit::Done } else { Exit::Wrong });
        }
        screen::diagnostics(&checked.diagnostics);
        if let Some(error) = uncompiled {
            return Err(Failure::Compile { file, error });
        }
        if errors > 0 {
            return Err(Failure::Wrong { file, errors });
        }
        let Some(policy) = checked.policy else { return Err(Failure::Wrong { file, errors: 1 }) };
        let many = |count: usize, one, more| screen::count(count as u64, one, more);
        writeln!(
            screen::out(),
            "{GOOD}{file} is sound{GOOD:#}: {}, {}, {}, {}{}",
            many(policy.interfaces.len(), "interface", "interfaces"),
            many(policy.rules.len(), "rule", "rules"),
            many(policy.nats.len(), "translation", "translations"),
            many(policy.routes.len(), "route", "routes"),
            if warnings == 0 {
                String::new()
            } else {
                format!("; {}", many(warnings, "warning", "warnings"))
            }
        )?;
        Ok(Exit::Done)
    }
}
