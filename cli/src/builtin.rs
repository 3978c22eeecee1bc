//! Chips and mappings from the command line, with what is wrong with them shown.

use chip::description::{self, Chip};
use chip::mapping;
use chip::plan::PlanError;
use chip::plan::texts::{self, Described, Text, Texts};
use config::{Diagnostic, Kind};

use crate::failure::{ChipError, Failure, InputError, PolicyError, UsageError};
use crate::screen;

/// Reads a chip and a mapping. Errors and warnings are shown.
pub(crate) fn read(texts: &Texts) -> Result<Described, Failure> {
    let Text { file, text } = &texts.chip;
    let checked = description::parse(text, file);
    let chip = whole(checked.chip, &checked.diagnostics, file)?;
    let Text { file, text } = &texts.mapping;
    let checked = mapping::parse(text, file, &chip);
    let mapping = whole(checked.mapping, &checked.diagnostics, file)?;
    Ok(Described { chip, mapping, lines: checked.lines, file: file.clone() })
}

/// Reads a chip by its name or file. What is wrong is shown.
pub(crate) fn take_chip(name: &str) -> Result<Chip, Failure> {
    let Text { file, text } = texts::chip(name).map_err(failed)?;
    let checked = description::parse(&text, &file);
    whole(checked.chip, &checked.diagnostics, &file)
}

/// Returns the failure of a command for an error of a plan, whose diagnostics are shown.
pub(crate) fn failed(error: PlanError) -> Failure {
    match error {
        PlanError::Wrong { file, diagnostics } => {
            screen::diagnostics(&diagnostics);
            let errors = diagnostics.iter().filter(|found| found.is_error()).count();
            PolicyError::Wrong { file, errors }.into()
        }
        PlanError::Read { path, error } => InputError::Read { path, error }.into(),
        PlanError::Capture(error) => InputError::Capture(error).into(),
        PlanError::NoInterface { name, known } => UsageError::NoInterface { name, known }.into(),
        PlanError::Compile { file, error } => PolicyError::Compile { file, error }.into(),
        PlanError::Setup { file, error } => PolicyError::Setup { file, error }.into(),
        error => ChipError::Plan(error).into(),
    }
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
