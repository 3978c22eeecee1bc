//! Chips and mappings by their names on the command line: those that come with the program, and those in files.

use std::path::Path;
use std::str::FromStr;

pub(crate) use chip::builtin::{CHIPS, MAPPINGS, Shipped};
use chip::description::{self, Chip};
use chip::mapping::{self, Lines, Mapping};
use chip::setting::SetError;
use config::{Code, Diagnostic, Kind, LoadError};

use crate::failure::{ChipError, Failure, InputError, PolicyError};
use crate::screen;

/// `PATH=VALUE`: a parameter to be set in a chip or a mapping before it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// Path of the parameter: "memory.sram.latency", "pool.firewall.threads".
    pub(crate) path: String,
    /// Value in TOML; anything else is a string.
    pub(crate) value: String,
}

/// Text that sets nothing.
#[derive(Debug, thiserror::Error)]
#[error("write PATH=VALUE, as in memory.sram.latency=45")]
pub(crate) struct BadSetting;

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
pub(crate) struct Described {
    /// The chip.
    pub(crate) chip: Chip,
    /// The mapping.
    pub(crate) mapping: Mapping,
    /// Places of its parts in the file.
    pub(crate) lines: Lines,
    /// The mapping's file, as diagnostics call it.
    pub(crate) file: String,
}

/// The texts of a chip and a mapping, before they are read.
#[derive(Clone, Debug)]
pub(crate) struct Texts {
    chip_file: String,
    chip: String,
    file: String,
    mapping: String,
}

impl Texts {
    /// Finds both by their names or files. Without a mapping it is the chip's run-to-completion one, `CHIP-pool`; what
    /// the chip calls itself counts, not its file.
    pub(crate) fn find(chip: &str, mapping: Option<&str>) -> Result<Texts, Failure> {
        let (chip_file, chip_text) = find("chip", chip, CHIPS.iter())?;
        let is_file = mapping.is_some_and(is_path);
        // What is wrong with the chip matters more than which mappings there are for it.
        let called = if is_file { String::new() } else { called(&chip_text, &chip_file)? };
        let its = MAPPINGS.iter().filter(|of| mapping::chip_of(of.text).is_some_and(|of| of == called));
        let (file, mapping) = match mapping {
            None => {
                let pool = format!("{called}-pool");
                let shipped = its.clone().find(|of| of.name == pool);
                let shipped = shipped.ok_or_else(|| ChipError::NoMapping { chip: called.clone() })?;
                (shipped.name.to_owned(), shipped.text.to_owned())
            }
            Some(short) => match its.clone().find(|of| of.name == format!("{called}-{short}")) {
                Some(shipped) if !is_file => (shipped.name.to_owned(), shipped.text.to_owned()),
                _ => find("mapping", short, its).or_else(|failure| another(short, failure))?,
            },
        };
        Ok(Texts { chip_file, chip: chip_text, file, mapping })
    }

    /// Kinds of mappings, `CHIP-KIND`, whose engines share out the stages by the length of their programs: those for longer
    /// ones behind.
    pub(crate) const SPLITS: [&str; 2] = ["split", "tunnel"];

    /// Returns the chip with its mapping of that kind; `None` where the chip has no such mapping.
    pub(crate) fn split(chip: &str, kind: &str) -> Option<Texts> {
        let (file, text) = find("chip", chip, CHIPS.iter()).ok()?;
        let name = format!("{}-{kind}", called(&text, &file).ok()?);
        let shipped = MAPPINGS.iter().find(|shipped| shipped.name == name)?;
        Some(Texts { chip_file: file, chip: text, file: name, mapping: shipped.text.to_owned() })
    }

    /// Tables that mappings have, and chips do not.
    const MAPPINGS_OWN: [&str; 3] = ["pool", "region", "timer"];

    /// Sets a value in one or the other.
    pub(crate) fn set(&mut self, path: &str, value: &str) -> Result<(), Failure> {
        // Their paths differ, so that each setting is one or the other's.
        match description::set(&self.chip, path, value) {
            Ok(set) => self.chip = set,
            Err(of_chip) => match mapping::set(&self.mapping, path, value) {
                Ok(set) => self.mapping = set,
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
                    return Err(ChipError::Set { path: path.to_owned(), error }.into());
                }
            },
        }
        Ok(())
    }

    /// Reads both. What is wrong is shown.
    pub(crate) fn read(&self) -> Result<Described, Failure> {
        let checked = description::parse(&self.chip, &self.chip_file);
        let chip = whole(checked.chip, &checked.diagnostics, &self.chip_file)?;
        let checked = mapping::parse(&self.mapping, &self.file, &chip);
        let mapping = whole(checked.mapping, &checked.diagnostics, &self.file)?;
        Ok(Described { chip, mapping, lines: checked.lines, file: self.file.clone() })
    }

    /// Reads both, or says what is wrong first.
    pub(crate) fn read_quietly(&self) -> Result<Described, String> {
        let checked = description::parse(&self.chip, &self.chip_file);
        let chip = checked.chip.ok_or_else(|| first_error(&checked.diagnostics))?;
        let checked = mapping::parse(&self.mapping, &self.file, &chip);
        let mapping = checked.mapping.ok_or_else(|| first_error(&checked.diagnostics))?;
        Ok(Described { chip, mapping, lines: checked.lines, file: self.file.clone() })
    }
}

/// The message of the first error, with what to do.
pub(crate) fn first_error<C: Kind>(diagnostics: &[Diagnostic<C>]) -> String {
    let Some(first) = diagnostics.iter().find(|found| found.is_error()) else { return String::new() };
    match &first.hint {
        Some(hint) => format!("{}: {hint}", first.message),
        None => first.message.clone(),
    }
}

/// Reads a chip by its name or file. What is wrong is shown.
pub(crate) fn take_chip(name: &str) -> Result<Chip, Failure> {
    let (file, text) = find("chip", name, CHIPS.iter())?;
    let checked = description::parse(&text, &file);
    whole(checked.chip, &checked.diagnostics, &file)
}

/// Returns the description read, if it has no errors; shows errors and warnings.
pub(crate) fn whole<T, C: Kind>(
    read: Option<T>,
    diagnostics: &[Diagnostic<C>],
    file: &str,
) -> Result<T, Failure> {
    screen::diagnostics(diagnostics);
    let errors = diagnostics.iter().filter(|found| found.is_error()).count();
    read.ok_or_else(|| PolicyError::Wrong { file: file.to_owned(), errors }.into())
}

/// Returns the name that a chip's description states.
fn called(text: &str, file: &str) -> Result<String, Failure> {
    let checked = description::parse(text, file);
    match checked.chip {
        Some(chip) => Ok(chip.name),
        None => whole(None, &checked.diagnostics, file),
    }
}

/// A mapping for another chip: that it is the wrong one is told when it is read.
fn another(name: &str, failure: Failure) -> Result<(String, String), Failure> {
    let shipped = MAPPINGS.iter().find(|of| of.name == name).ok_or(failure)?;
    Ok((shipped.name.to_owned(), shipped.text.to_owned()))
}

fn is_path(name: &str) -> bool {
    name.contains('/') || name.ends_with(".toml") || Path::new(name).is_file()
}

/// Returns the name for diagnostics, and the text, of a chip or mapping that comes with the program, or of a file.
fn find(
    what: &'static str,
    name: &str,
    builtin: impl Iterator<Item = &'static Shipped> + Clone,
) -> Result<(String, String), Failure> {
    if is_path(name) {
        return match config::file::text::<Code>(Path::new(name), what) {
            Ok(Ok(text)) => Ok((name.to_owned(), text)),
            Ok(Err(wrong)) => whole(None, &[wrong], name),
            Err(LoadError { error, .. }) => Err(InputError::Read { path: name.into(), error }.into()),
        };
    }
    let found = builtin.clone().find(|shipped| shipped.name == name);
    found.map(|shipped| (shipped.name.to_owned(), shipped.text.to_owned())).ok_or_else(|| {
        let known: Vec<&str> = builtin.map(|shipped| shipped.name).collect();
        // Mappings go by what follows the chip's name, too.
        let short = known.iter().filter_map(|known| known.split_once('-').map(|(_, short)| short));
        let nearest = config::nearest(name, known.iter().copied().chain(short));
        ChipError::NotShipped { what, name: name.to_owned(), nearest, known }.into()
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{CHIPS, Described, MAPPINGS, Setting, Shipped, Texts};
    use crate::failure::Failure;

    fn take(chip: &str, mapping: Option<&str>, settings: &[Setting]) -> Result<Described, Failure> {
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
            let chip = chip::mapping::chip_of(text).unwrap();
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
