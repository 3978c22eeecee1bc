"""Exceptions: one base, and what is wrong with its place."""

from __future__ import annotations

from typing import Any, NamedTuple


class Related(NamedTuple):
    """Another place that a diagnostic concerns.

    Attributes
    ----------
    label : str
        What it is to the diagnostic, in a few words.
    file : str
        Name of the file.
    line, column : int
        Place of the first character, from 1.
    """

    label: str
    file: str
    line: int
    column: int


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
    related : tuple of Related
        Other places that it concerns.
    """

    code: str
    severity: str
    message: str
    hint: str | None
    file: str | None
    line: int | None
    column: int | None
    related: tuple[Related, ...] = ()

    @classmethod
    def of(cls, row: tuple[Any, ...]) -> Diagnostic:
        """A diagnostic of a tuple of these attributes, whose related places may be tuples, too."""
        code, severity, message, hint, file, line, column, related = row
        return cls(code, severity, message, hint, file, line, column, tuple(Related(*one) for one in related))

    def __str__(self) -> str:
        numbers = "" if self.line is None else f":{self.line}:{self.column}"
        place = "" if self.file is None else f"{self.file}{numbers}: "
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
        self.diagnostics = tuple(Diagnostic.of(diagnostic) for diagnostic in diagnostics)

    def __str__(self) -> str:
        return "\n".join([str(self.args[0]), *map(str, self.diagnostics)])


class ChipError(PolicyError):
    """A chip, a mapping or their traffic is wrong, does not fit, or does not run; `diagnostics` has what has a place."""


class PacketError(Error, ValueError):
    """A packet that is to be explained is not there, or its words are not understood.

    Attributes
    ----------
    hint : str
        What to do.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.args[0]}\n  help: {self.hint}" if self.hint else str(self.args[0])


class WindowError(Error, ValueError):
    """No packet of the captures is in a window of time."""


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
    """A file among results is none of this sweep or replay, or has other columns; or a table of security associations has lines that are none."""


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
