//! Chips and mappings by their names: those that come with the program, and those in files.

use std::path::Path;
use std::str::FromStr;

use config::{Kind, LoadError};

use super::PlanError;
use crate::builtin::{CHIPS, MAPPINGS, Shipped};
use crate::description::{self, Chip};
use crate::diagnostic::{Code, Diagnostic};
use crate::mapping::{self, Lines, Mapping};
use crate::setting::SetError;

/// `PATH=VALUE`: a parameter to be set in a chip or a mapping before it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Path of the parameter: "memory.sram.latency", "pool.firewall.threads".
    pub path: String,
    /// Value in TOML; anything else is a string.
    pub value: String,
}

/// Text that sets nothing.
#[derive(Debug, thiserror::Error)]
#[error("write PATH=VALUE, as in memory.sram.latency=45")]
pub struct BadSetting;

impl FromStr for Setting {
    type Err = BadSetting;

    fn from_str(text: &str) -> Result<Setting, BadSetting> {
        let (path, value) = text.split_once('=').ok_or(BadSetting)?;
        match (path.trim(), value.trim()) {
            ("", _) | (_, "") => Err(BadSetting),
            (path, value) => Ok(Setting { path: path.to_owned(), value: value.to_owned() }),
        }
    }
}

/// A chip and what runs on it.
#[derive(Clone, Debug)]
pub struct Described {
    /// The chip.
    pub chip: Chip,
    /// The mapping.
    pub mapping: Mapping,
    /// Places of its parts in the file.
    pub lines: Lines,
    /// The mapping's file, as diagnostics call it.
    pub file: String,
}

/// The texts of a chip and a mapping, before they are read.
#[derive(Clone, Debug)]
pub struct Texts {
    /// The chip.
    pub chip: Text,
    /// The mapping.
    pub mapping: Text,
}

/// Text of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// Name of the file, for diagnostics.
    pub file: String,
    /// Contents.
    pub text: String,
}

impl Text {
    /// Text that comes with the program.
    fn of(shipped: &Shipped) -> Text {
        Text { file: shipped.name.to_owned(), text: shipped.text.to_owned() }
    }
}

impl Texts {
    /// Finds both by their names or files. Without a mapping it is the chip's run-to-completion one, `CHIP-pool`; what
    /// the chip calls itself counts, not its file.
    pub fn find(chip: &str, mapping: Option<&str>) -> Result<Texts, PlanError> {
        let chip = find("chip", chip, CHIPS.iter())?;
        let is_file = mapping.is_some_and(is_path);
        // What is wrong with the chip matters more than which mappings there are for it.
        let called = if is_file { String::new() } else { called(&chip)? };
        let its = MAPPINGS.iter().filter(|of| mapping::chip_of(of.text).is_some_and(|of| of == called));
        let mapping = match mapping {
            None => {
                let pool = format!("{called}-pool");
                let shipped = its.clone().find(|of| of.name == pool);
                let shipped = shipped.ok_or_else(|| PlanError::NoMapping { chip: called.clone() })?;
                Text::of(shipped)
            }
            Some(short) => match its.clone().find(|of| of.name == format!("{called}-{short}")) {
                Some(shipped) if !is_file => Text::of(shipped),
                _ => find("mapping", short, its).or_else(|error| another(short, error))?,
            },
        };
        Ok(Texts { chip, mapping })
    }

    /// Kinds of mappings, `CHIP-KIND`, whose engines share out the stages by the length of their programs: those for longer
    /// ones behind.
    pub const SPLITS: [&str; 2] = ["split", "tunnel"];

    /// Returns the chip with its mapping of that kind; `None` where the chip has no such mapping.
    pub fn split(chip: &str, kind: &str) -> Option<Texts> {
        let chip = find("chip", chip, CHIPS.iter()).ok()?;
        let name = format!("{}-{kind}", called(&chip).ok()?);
        let shipped = MAPPINGS.iter().find(|shipped| shipped.name == name)?;
        Some(Texts { chip, mapping: Text::of(shipped) })
    }

    /// Tables that mappings have, and chips do not.
    const MAPPINGS_OWN: [&str; 3] = ["pool", "region", "timer"];

    /// Sets a value in one or the other.
    pub fn set(&mut self, path: &str, value: &str) -> Result<(), PlanError> {
        // Their paths differ, so that each setting is one or the other's.
        match description::set(&self.chip.text, path, value) {
            Ok(set) => self.chip.text = set,
            Err(of_chip) => match mapping::set(&self.mapping.text, path, value) {
                Ok(set) => self.mapping.text = set,
                Err(of_mapping) => {
                    let nearer = |error: &SetError| {
                        matches!(
                            error,
                            SetError::UnknownPath { nearest: Some(_), .. } | SetError::Table { .. }
                        )
                    };
                    let is_mappings =
                        Texts::MAPPINGS_OWN.iter().any(|table| path.split('.').next() == Some(*table));
                    let error = match nearer(&of_chip) {
                        false if nearer(&of_mapping) || is_mappings => of_mapping,
                        _ => of_chip,
                    };
                    return Err(PlanError::Set { path: path.to_owned(), error });
                }
            },
        }
        Ok(())
    }

    /// Reads both.
    ///
    /// # Errors
    /// One of them is wrong.
    pub fn read(&self) -> Result<Described, PlanError> {
        let checked = description::parse(&self.chip.text, &self.chip.file);
        let chip = checked.chip.ok_or_else(|| wrong(&self.chip.file, checked.diagnostics))?;
        let checked = mapping::parse(&self.mapping.text, &self.mapping.file, &chip);
        let mapping = checked.mapping.ok_or_else(|| wrong(&self.mapping.file, checked.diagnostics))?;
        Ok(Described { chip, mapping, lines: checked.lines, file: self.mapping.file.clone() })
    }

    /// Reads both, or says what is wrong first.
    pub fn read_quietly(&self) -> Result<Described, String> {
        let checked = description::parse(&self.chip.text, &self.chip.file);
        let chip = checked.chip.ok_or_else(|| first_error(&checked.diagnostics))?;
        let checked = mapping::parse(&self.mapping.text, &self.mapping.file, &chip);
        let mapping = checked.mapping.ok_or_else(|| first_error(&checked.diagnostics))?;
        Ok(Described { chip, mapping, lines: checked.lines, file: self.mapping.file.clone() })
    }
}

/// The message of the first error, with what to do.
pub fn first_error<C: Kind>(diagnostics: &[config::Diagnostic<C>]) -> String {
    let Some(first) = diagnostics.iter().find(|found| found.is_error()) else { return String::new() };
    match &first.hint {
        Some(hint) => format!("{}: {hint}", first.message),
        None => first.message.clone(),
    }
}

/// Finds the text of a chip by its name or file.
///
/// # Errors
/// No chip of that name comes with the program, or the file cannot be read.
pub fn chip(name: &str) -> Result<Text, PlanError> {
    find("chip", name, CHIPS.iter())
}

/// The name that a chip's description states.
fn called(chip: &Text) -> Result<String, PlanError> {
    let checked = description::parse(&chip.text, &chip.file);
    checked.chip.map(|chip| chip.name).ok_or_else(|| wrong(&chip.file, checked.diagnostics))
}

fn wrong(file: &str, diagnostics: Vec<Diagnostic>) -> PlanError {
    PlanError::Wrong { file: file.to_owned(), diagnostics }
}

/// A mapping for another chip: that it is the wrong one is told when it is read.
fn another(name: &str, error: PlanError) -> Result<Text, PlanError> {
    let shipped = MAPPINGS.iter().find(|of| of.name == name).ok_or(error)?;
    Ok(Text::of(shipped))
}

fn is_path(name: &str) -> bool {
    name.contains('/') || name.ends_with(".toml") || Path::new(name).is_file()
}

/// Returns the name for diagnostics, and the text, of a chip or mapping that comes with the program, or of a file.
fn find(
    what: &'static str,
    name: &str,
    builtin: impl Iterator<Item = &'static Shipped> + Clone,
) -> Result<Text, PlanError> {
    if is_path(name) {
        return match config::file::text::<Code>(Path::new(name), what) {
            Ok(Ok(text)) => Ok(Text { file: name.to_owned(), text }),
            Ok(Err(found)) => Err(wrong(name, vec![found])),
            Err(LoadError { error, .. }) => Err(PlanError::Read { path: name.into(), error }),
        };
    }
    let found = builtin.clone().find(|shipped| shipped.name == name);
    found.map(Text::of).ok_or_else(|| {
        let known: Vec<&str> = builtin.map(|shipped| shipped.name).collect();
        // Mappings go by what follows the chip's name, too.
        let short = known.iter().filter_map(|known| known.split_once('-').map(|(_, short)| short));
        let nearest = config::nearest(name, known.iter().copied().chain(short));
        PlanError::NotShipped { what, name: name.to_owned(), nearest, known }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{CHIPS, Described, MAPPINGS, PlanError, Setting, Shipped, Texts};

    fn take(chip: &str, mapping: Option<&str>, settings: &[Setting]) -> Result<Described, PlanError> {
        let mut texts = Texts::find(chip, mapping)?;
        settings.iter().try_for_each(|Setting { path, value }| texts.set(path, value))?;
        texts.read()
    }

    fn stems(directory: &str) -> BTreeSet<String> {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../chips").join(directory);
        let files = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
        let files = files.filter(|path| path.extension().is_some_and(|ending| ending == "toml"));
        files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn all_that_is_described_comes_with_the_program() {
        let names =
            |builtin: &[Shipped]| builtin.iter().map(|of| of.name.to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(names(CHIPS), stems(""));
        assert_eq!(names(MAPPINGS), stems("mappings"));
    }

    #[test]
    fn everything_on_the_shelf_is_sound() {
        for Shipped { name, text } in MAPPINGS {
            let chip = crate::mapping::chip_of(text).unwrap();
            assert!(take(&chip, Some(name), &[]).is_ok(), "{name}");
        }
        // By its short name, and by none.
        assert!(take("ixp2400", Some("firewall"), &[]).is_ok());
        for Shipped { name, .. } in CHIPS {
            assert!(take(name, None, &[]).is_ok(), "{name}");
        }
        assert!(take("ixp2400", Some("no-such"), &[]).is_err());
    }

    #[test]
    fn parameters_are_set_in_the_chip_or_the_mapping() {
        let settings =
            ["memory.sram.latency=1234", "ring.received.entries=7"].map(|text| text.parse().unwrap());
        let described = take("ixp2400", None, &settings).unwrap();
        let sram = described.chip.memories.iter().find(|memory| memory.name == "sram").unwrap();
        assert_eq!(sram.latency.0, 1234);
        assert_eq!(described.mapping.rings[0].entries, 7);
        assert!(take("ixp2400", None, &["memory.sram.latancy=1".parse().unwrap()]).is_err());
        assert!("memory".parse::<Setting>().is_err() && "a=".parse::<Setting>().is_err());
    }
}
