//! Reports on policies, as the command makes them: check, diff, explain.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;

use ::chip::plan::Stop;
use ::policy::Checked;
use ::report::check::Check;
use ::report::diff::{Diff, Side};
use ::report::explain::{Asked, ExplainError, Explained, Number, Place};
use ::report::packet_syntax::EXAMPLE;
use ::report::text::{Piece, Text};
use analysis::{Effort, Look};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::{Bound, PyErr, PyResult, Python, pyfunction};
use replay::{Captures, CompileRefusal, Named, Readdress, StaticKeys};

use crate::failure;
use crate::keys::{self, Given, Keys};
use crate::playback::{self, Moments, not_opened};
use crate::policy::Policy;
use crate::watch::watched;

/// Text in pieces, each behind the name of its tone.
type Pieces = Vec<(&'static str, String)>;

/// Returns the report on a policy, as `wirerate check --json` prints it.
#[pyfunction]
pub(crate) fn check(
    py: Python<'_>,
    policy: Bound<'_, Policy>,
    overlaps: bool,
    thorough: bool,
) -> PyResult<String> {
    let Policy { file, policy, lines, warnings } = policy.get();
    let checked =
        Checked { policy: Some(policy.clone()), lines: lines.clone(), diagnostics: warnings.clone() };
    checked_by(py, file.clone(), checked, look(overlaps), effort(thorough))
}

/// The same of a file, which may have errors.
#[pyfunction]
pub(crate) fn check_file(py: Python<'_>, path: PathBuf, overlaps: bool, thorough: bool) -> PyResult<String> {
    let checked = py.detach(|| ::policy::load(&path)).map_err(|error| failure::load_error(py, &error))?;
    checked_by(py, path.display().to_string(), checked, look(overlaps), effort(thorough))
}

/// The same of a text, which may have errors.
#[pyfunction]
pub(crate) fn check_text(
    py: Python<'_>,
    text: &str,
    file: String,
    overlaps: bool,
    thorough: bool,
) -> PyResult<String> {
    let checked = py.detach(|| ::policy::check(text, &file));
    checked_by(py, file, checked, look(overlaps), effort(thorough))
}

fn checked_by(
    py: Python<'_>,
    file: String,
    checked: Checked,
    look: Look,
    effort: Effort<'_>,
) -> PyResult<String> {
    let stop = Stop::default();
    watched(py, &stop, None, &AtomicU64::new(0), || {
        Check::of(file, checked, look, effort.until(stop.flag())).to_json().to_string()
    })
}

fn look(overlaps: bool) -> Look {
    if overlaps { Look::EffectAndOverlaps } else { Look::Effect }
}

fn effort(thorough: bool) -> Effort<'static> {
    if thorough { Effort::THOROUGH } else { Effort::QUICK }
}

/// Comparison: the object that `wirerate diff --json` prints, regions in words, those of classes, and the text.
type Compared = (String, Vec<String>, Vec<String>, Pieces);

/// Compares two policies, and shows so many regions.
#[pyfunction]
pub(crate) fn diff(
    py: Python<'_>,
    old: Bound<'_, Policy>,
    new: Bound<'_, Policy>,
    regions: usize,
    thorough: bool,
) -> PyResult<Compared> {
    let (old, new) = (old.get(), new.get());
    let stop = Stop::default();
    let compared = watched(py, &stop, None, &AtomicU64::new(0), || {
        let effort = effort(thorough).until(stop.flag());
        let diff = Diff::of(side(old)?, side(new)?, regions, effort)
            .map_err(|error| (new, CompileRefusal::Compile(error)))?;
        let words = diff.regions().map(str::to_owned).collect();
        Ok((diff.to_json().to_string(), words, diff.regions_of_classes(), pieces(diff.text("regions="))))
    })?;
    compared.map_err(|(policy, refusal): Uncompiled<'_>| failure::not_compiled(py, refusal, &policy.file))
}

/// A policy that cannot be compiled.
type Uncompiled<'a> = (&'a Policy, CompileRefusal);

fn side(policy: &Policy) -> Result<Side<'_>, Uncompiled<'_>> {
    let compiled = replay::compile(&policy.policy, StaticKeys::Left);
    let tables = compiled.map_err(|refusal| (policy, refusal))?.tables;
    Ok(Side { file: &policy.file, policy: &policy.policy, lines: &policy.lines, tables })
}

/// Packet of captures: their paths with interfaces, its number, whether that is the `packet` of the first capture or the `arrival`
/// among all, and the window of time that is played.
type Captured = (Vec<(Option<String>, PathBuf)>, u64, String, Moments);

/// Explains a packet in words, or else one of captures: the object that `wirerate explain --json` prints, and the text.
#[pyfunction]
pub(crate) fn explain(
    py: Python<'_>,
    policy: Bound<'_, Policy>,
    words: Option<&str>,
    captured: Captured,
    any_mac: bool,
    keys: Given,
) -> PyResult<(String, Pieces)> {
    let (of, keys) = (policy.get(), Keys::from(keys));
    let (captures, number, by, window) = captured;
    let window = playback::window(window)?;
    let number = if by == "arrival" { Number::Arrival(number) } else { Number::First(number) };
    let captures: Vec<Named> =
        captures.into_iter().map(|(interface, path)| Named { interface, path }).collect();
    let readdress = if any_mac { Readdress::Always } else { Readdress::Inferred };
    let asked = match words {
        Some(words) => Asked::Words(words),
        None => Asked::Captured(Place { captures: &captures, number, readdress, window }),
    };
    let stop = Stop::default();
    let told = watched(py, &stop, None, &AtomicU64::new(0), || {
        let compiled = keys.compile(of).map_err(Unexplained::Keys)?;
        let mut decryptor = keys.decryptor().map_err(Unexplained::Keys)?;
        let mut watch = |_: &Captures| match stop.is_asked() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        let explained = Explained::of(compiled.tables, asked, decryptor.as_mut(), &mut watch)
            .map_err(Unexplained::Explain)?;
        let explanation = explained.explanation(&of.policy, &of.lines);
        Ok((explanation.to_json().to_string(), pieces(explanation.text())))
    })?;
    told.map_err(|error| unexplained(py, error, &of.file))
}

/// Reason that a packet is not explained.
enum Unexplained {
    Keys(keys::Refusal),
    Explain(ExplainError<()>),
}

fn unexplained(py: Python<'_>, error: Unexplained, file: &str) -> PyErr {
    match error {
        Unexplained::Keys(refusal) => keys::refused(py, refusal, file),
        Unexplained::Explain(ExplainError::Words(error)) => {
            let hint = error
                .hint()
                .unwrap_or_else(|| format!("\"{EXAMPLE}\"; print(wirerate.PACKET_SYNTAX) has the words"));
            failure::packet_error(py, error.to_string(), hint)
        }
        Unexplained::Explain(ExplainError::Captures(error)) => not_opened(py, error, file),
        Unexplained::Explain(ExplainError::NoPacket(error)) => {
            failure::packet_error(py, error.to_string(), error.hint())
        }
        Unexplained::Explain(ExplainError::Window(error)) => failure::window_error(py, error),
        Unexplained::Explain(ExplainError::Setup(error)) => {
            failure::policy_error(py, format!("{file} asks for more than this machine has: {error}"), &[])
        }
        // What stopped it has been raised by then.
        Unexplained::Explain(ExplainError::Stopped(())) => PyKeyboardInterrupt::new_err(()),
    }
}

fn pieces(text: Text) -> Pieces {
    text.pieces().iter().map(|Piece { tone, text }| (tone.name(), text.clone())).collect()
}
