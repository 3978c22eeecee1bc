//! `wirerate reasons`: the operator's manual of why frames are dropped, held or answered.

use std::io::Write;

use clap::Args;
use dataplane::Reason;
use dataplane::verdict::Entry;
use serde_json::json;

use crate::failure::{Exit, Failure, UsageError};
use crate::screen::{self, HEADING};
use crate::with_exit_codes;

/// Explain why packets are dropped, held or answered
///
/// The operator's manual: every reason with its cause and what to do about it. Summaries, JSON and the
/// comments in dropped.pcapng use the same names.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate reasons
  wirerate reasons source-spoofed tcp-window
  wirerate reasons --markdown > docs/reasons.md"))]
pub(crate) struct Arguments {
    /// Only these; all of them if none is named
    names: Vec<String>,

    /// Print a JSON array of `name`, `cause` and `remedy`
    #[arg(long, conflicts_with = "markdown")]
    json: bool,

    /// Print a page of Markdown
    #[arg(long)]
    markdown: bool,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let chosen: Vec<&Entry> = if self.names.is_empty() {
            Reason::ALL.iter().collect()
        } else {
            let find = |name: &String| {
                Reason::of_name(name)
                    .map(Reason::entry)
                    .ok_or_else(|| UsageError::Unknown { what: "reason", word: name.clone() })
            };
            self.names.iter().map(find).collect::<Result<_, _>>()?
        };
        let mut out = screen::out();
        if self.json {
            let list: Vec<_> = chosen
                .iter()
                .map(|entry| json!({ "name": entry.name, "cause": entry.cause, "remedy": entry.remedy }))
                .collect();
            writeln!(out, "{:#}", json!(list))?;
        } else if self.markdown {
            write!(out, "{}", markdown(&chosen))?;
        } else {
            for entry in chosen {
                writeln!(
                    out,
                    "{HEADING}{}{HEADING:#}\n    {}\n    {}",
                    entry.name, entry.cause, entry.remedy
                )?;
            }
        }
        Ok(Exit::Done)
    }
}

fn markdown(entries: &[&Entry]) -> String {
    let mut page = String::from(
        "# Reasons\n\n\
         Why frames are dropped, held or answered, with the cause and what to do about it. Counters, summaries\n\
         and the comments in `dropped.pcapng` use these names.\n\n\
         This page is what `wirerate reasons --markdown` prints; a test holds the two equal.\n\n\
         | reason | cause | remedy |\n|---|---|---|\n",
    );
    for entry in entries {
        // A bar would end the cell.
        let cell = |text: &str| text.replace('|', "\\|");
        page.push_str(&format!("| `{}` | {} | {} |\n", entry.name, cell(entry.cause), cell(entry.remedy)));
    }
    page
}
