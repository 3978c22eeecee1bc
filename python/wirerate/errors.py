"""Exceptions: one base, and what is wrong with its place."""

from __future__ import annotations

from typing import NamedTuple


class Diagnostic(NamedTuple):
    """An error, a warning or a note on a policy, with its place in the text.

    Attributes
    ----------
    code : str
        Code, the same in every version: ``unknown-key``.
    severity : str
        ``error``, ``warning`` or ``note``.
    message : str
        One sentence, without a full stop.
    hint : str or None
        What to do.
    file : str or None
        Name of the file; none of a policy that came from no text.
    line, column : int or None
        Place of the first character, from 1.
    """

    code: str
    severity: str
    message: str
    hint: str | None
    file: str | None
    line: int | None
    column: int | None

    def __str__(self) -> str:
        place = "" if self.file is None else f"{self.file}:{self.line}:{self.column}: "
        hint = "" if self.hint is None else f"\n  help: {self.hint}"
        return f"{place}{self.severity}: {self.message}{hint}"


class Error(Exception):
    """Base of all exceptions of wirerate."""


class PolicyError(Error):
    """A policy is wrong, or asks for more than this machine has.

    Attributes
    ----------
    diagnostics : tuple of Diagnostic
        Everything that is wrong, each with its place; empty where the fault has none.
    """

    def __init__(self, message: str, diagnostics: tuple[Diagnostic, ...] = ()) -> None:
        super().__init__(message, diagnostics)
        self.diagnostics = tuple(Diagnostic(*diagnostic) for diagnostic in diagnostics)

    def __str__(self) -> str:
        return "\n".join([str(self.args[0]), *map(str, self.diagnostics)])


class ChipError(PolicyError):
    """A chip, a mapping or their traffic is wrong, does not fit, or does not run; `diagnostics` has what has a place."""


class GridError(Error, ValueError):
    """A sweep has too many combinations.

    Attributes
    ----------
    combinations : int
        Number of combinations that were asked for, or one more than there may be where that is not known.
    """

    def __init__(self, message: str, combinations: int) -> None:
        super().__init__(message, combinations)
        self.combinations = combinations

    def __str__(self) -> str:
        return str(self.args[0])


class JobError(Error, ValueError):
    """A job that came from elsewhere is none, or is damaged."""


class VersionError(Error):
    """A worker has another build of wirerate than the one that made the plan."""


class TableError(Error, ValueError):
    """A file among results is none of this sweep or replay, or has other columns."""


class ReadError(Error, OSError):
    """A file cannot be read; ``errno`` and ``filename`` are those of ``OSError``."""


class CaptureError(Error):
    """A capture is damaged, or none.

    Attributes
    ----------
    path : str
        The file.
    """

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message, path)
        self.path = path

    def __str__(self) -> str:
        return str(self.args[0])


class CaptureWarning(UserWarning):
    """A capture breaks off; everything before that was played."""
