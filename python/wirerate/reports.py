"""Reports on policies: what is wrong with one, which packets two treat differently, what happens to a packet and why."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import _wirerate
from .captures import Path
from .errors import Diagnostic, Related

if TYPE_CHECKING:
    import pyarrow as pa

Pieces = Sequence["tuple[str, str]"]
"""Text in pieces, each behind the name of its tone."""

_STYLES = {"heading": "font-weight:bold", "good": "color:green", "care": "color:darkorange", "bad": "color:red;font-weight:bold",
    "detail": "opacity:0.6"}


def check(path: Path, *, overlaps: bool = False, thorough: bool = False) -> Check:
    """Say everything that is wrong with the policy of a file, without an exception where something is.

    Parameters
    ----------
    path : path-like
        A policy in TOML.
    overlaps, thorough : bool
        As for `Policy.check`.

    Returns
    -------
    Check

    Raises
    ------
    ReadError
        The file cannot be read.

    Examples
    --------
    >>> for found in wirerate.check("home-office.toml").diagnostics:  # doctest: +SKIP
    ...     print(found)
    """
    return Check(json.loads(_wirerate.check_file(os.fspath(path), overlaps, thorough)))


def check_text(text: str, file: str = "<text>", *, overlaps: bool = False, thorough: bool = False) -> Check:
    """Say everything that is wrong with the text of a policy.

    Parameters
    ----------
    text : str
        TOML.
    file : str
        Name of the text in diagnostics.
    overlaps, thorough : bool
        As for `Policy.check`.

    Returns
    -------
    Check

    Examples
    --------
    >>> found = wirerate.check_text('[interface.lan]\\nadresses = ["192.0.2.1/24"]\\n')
    >>> found.sound, found.errors, found.diagnostics[0].line
    (False, 2, 1)
    """
    return Check(json.loads(_wirerate.check_text(text, file, overlaps, thorough)))


class Check:
    """Everything that is wrong with a policy, without effect or unwise; what ``wirerate check`` says.

    A report is true where the policy has no error.

    Attributes
    ----------
    figures : dict
        What ``wirerate check --json`` prints.
    diagnostics : tuple of Diagnostic
        Errors, warnings and notes, in the order of the text.
    """

    __slots__ = ("diagnostics", "figures")

    def __init__(self, figures: dict[str, Any]) -> None:
        self.figures = figures
        self.diagnostics = tuple(_diagnostic(row) for row in figures["diagnostics"])

    @property
    def file(self) -> str:
        """Name of the policy's file."""
        return str(self.figures["file"])

    @property
    def sound(self) -> bool:
        """True where nothing is an error."""
        return self.errors == 0

    @property
    def errors(self) -> int:
        """Number of errors, which make a policy wrong."""
        return int(self.figures["errors"])

    @property
    def warnings(self) -> int:
        """Number of warnings: what is without effect, or unwise."""
        return int(self.figures["warnings"])

    @property
    def notes(self) -> int:
        """Number of notes: what may well be meant so."""
        return int(self.figures["notes"])

    @property
    def open(self) -> int:
        """Number of rules and classes that the analysis did not settle; ``thorough`` goes on for minutes."""
        return int(self.figures["open"])

    @property
    def classifier(self) -> str | None:
        """Algorithm that searches the rules; none of a policy that is wrong."""
        classifier: str | None = self.figures["classifier"]
        return classifier

    @property
    def gave_way(self) -> tuple[str, ...]:
        """Algorithms that would have taken too much memory, each with how much."""
        return tuple(self.figures["gave_way"])

    @property
    def table(self) -> pa.Table:
        """Diagnostics, a row for each: ``code``, ``severity``, ``message``, ``hint``, ``file``, ``line``, ``column``, ``related``."""
        import pyarrow as pa

        number, text = pa.uint32(), pa.string()
        related = pa.struct([("label", text), ("file", text), ("line", number), ("column", number)])
        columns = [*((name, text) for name in ("code", "severity", "message", "hint", "file")), ("line", number), ("column", number)]
        return pa.Table.from_pylist(self.figures["diagnostics"], schema=pa.schema([*columns, ("related", pa.list_(related))]))

    def __bool__(self) -> bool:
        return self.sound

    def __str__(self) -> str:
        return "\n".join([*map(str, self.diagnostics), self._outcome()])

    def __repr__(self) -> str:
        return f"<wirerate.Check of {self._outcome()}>"

    def _repr_html_(self) -> str:
        rows = [[of.severity, "" if of.line is None else f"{of.line}:{of.column}", of.message, of.hint or ""] for of in self.diagnostics]
        return f"<p>{html.escape(self._outcome())}</p>" + _html_table(["severity", "place", "message", "hint"], rows)

    def _outcome(self) -> str:
        if self.errors:
            return f"{self.file}: wrong, {_many(self.errors, 'error')}"
        return ", ".join([f"{self.file}: sound", *(_many(count, of) for count, of in
            ((self.warnings, "warning"), (self.notes, "note")) if count)])


class Diff:
    """Packets that change their fate between two policies; what ``wirerate diff`` says.

    A report is true where something changes, or where that is not settled, as the exit code of the command.

    Attributes
    ----------
    figures : dict
        What ``wirerate diff --json`` prints.
    """

    __slots__ = ("_pieces", "_words", "_words_of_classes", "figures")

    def __init__(self, figures: dict[str, Any], words: list[str], words_of_classes: list[str], pieces: Pieces) -> None:
        self.figures = figures
        self._words = words
        self._words_of_classes = words_of_classes
        self._pieces = pieces

    @property
    def outcome(self) -> str:
        """``same`` (proved), ``different``, ``unsettled``, or ``incomparable`` where the policies have no interface in common."""
        return str(self.figures["outcome"])

    @property
    def equal(self) -> bool:
        """True where it is proved that no packet changes its fate."""
        return self.outcome == "same"

    @property
    def complete(self) -> bool:
        """True where there are no more differences than those found."""
        return bool(self.figures["complete"])

    @property
    def found(self) -> int:
        """Number of regions of packets found, of which `regions` has the first."""
        return int(self.figures["found"])

    @property
    def not_compared(self) -> tuple[str, ...]:
        """What else is different, and was not compared."""
        return tuple(self.figures["not_compared"])

    @property
    def regions(self) -> pa.Table:
        """Regions of packets that change their fate, a row for each; no packet is in two.

        Columns: ``packets`` (in words), ``old_action``, ``old_rule``, ``old_line`` (null for the default), ``old_log``, ``old_rate``,
        ``old_connections``, ``old_timeout``, ``old_syn``, ``old_helper``, the same with ``new_``, ``example`` (a packet in the words that
        `Policy.explain` takes) and ``tried`` (whether both policies did so with it, through all stages).
        """
        import pyarrow as pa

        rows = [
            {
                "packets": words,
                **{f"{side}_{key}": value for side in ("old", "new") for key, value in region[side].items()},
                "example": region["example"],
                "tried": region["tried"],
            }
            for words, region in zip(self._words, self.figures["regions"], strict=True)
        ]
        judgement = [("action", pa.string()), ("rule", pa.string()), ("line", pa.uint32()), ("log", pa.bool_()), ("rate", pa.bool_()),
            ("connections", pa.bool_()), ("timeout", pa.bool_()), ("syn", pa.string()), ("helper", pa.bool_())]
        sides = [(f"{side}_{name}", of) for side in ("old", "new") for name, of in judgement]
        return pa.Table.from_pylist(
            rows, schema=pa.schema([("packets", pa.string()), *sides, ("example", pa.string()), ("tried", pa.bool_())]))

    @property
    def classes(self) -> pa.Table:
        """Regions of packets that change their traffic class: ``packets`` (in words), ``pcp`` (empty for all priorities), ``old``, ``new``."""
        import pyarrow as pa

        regions = (self.figures["classes"] or {"regions": []})["regions"]
        rows = [{**region, "packets": words} for words, region in zip(self._words_of_classes, regions, strict=True)]
        text = pa.string()
        return pa.Table.from_pylist(
            rows, schema=pa.schema([("packets", text), ("pcp", pa.list_(text)), ("old", text), ("new", text)]))

    def __bool__(self) -> bool:
        return not self.equal

    def __str__(self) -> str:
        return _plain(self._pieces)

    def __repr__(self) -> str:
        regions = f", {_many(self.found, 'region')}" if self.found else ""
        return f"<wirerate.Diff: {self.outcome}{regions}>"

    def _repr_html_(self) -> str:
        return _html(self._pieces)


class Explanation:
    """What happens to a packet, stage by stage, and why; what ``wirerate explain`` says.

    Its text, by ``str`` or ``print``, is that of the command.

    Attributes
    ----------
    figures : dict
        What ``wirerate explain --json`` prints.
    """

    __slots__ = ("_pieces", "figures")

    def __init__(self, figures: dict[str, Any], pieces: Pieces) -> None:
        self.figures = figures
        self._pieces = pieces

    @property
    def interface(self) -> str:
        """Interface that the packet comes in by."""
        return str(self.figures["interface"])

    @property
    def packet(self) -> dict[str, str]:
        """The packet: ``words``, and its fields."""
        return dict(self.figures["packet"])

    @property
    def verdict(self) -> str:
        """``forwarded``, ``delivered``, ``answered``, ``dropped`` or ``held``."""
        return str(self.figures["verdict"])

    @property
    def reason(self) -> str | None:
        """Why it was dropped, answered or held: a name of `docs/reasons.md`."""
        return self._of_reason("name")

    @property
    def cause(self) -> str | None:
        """What leads to such a verdict, in a sentence."""
        return self._of_reason("cause")

    @property
    def remedy(self) -> str | None:
        """What to do, in a sentence."""
        return self._of_reason("remedy")

    @property
    def rule(self) -> str | None:
        """Name of the rule that decided, or that let its flow in; none for the default of the zones."""
        rule = self.figures["rule"]
        return None if rule is None else str(rule["name"])

    @property
    def stages(self) -> pa.Table:
        """Stages of the pipeline, in their order, a row for each.

        Columns: ``stage``, ``took`` (false where it had nothing to do), ``says`` (a list of sentences), ``verdict`` (of the stage that
        decided), ``instructions``, ``hashes``, and ``references`` (to memory: a list of ``region``, ``reads``, ``writes``, ``atomics``,
        ``bytes``).
        """
        import pyarrow as pa

        number, text = pa.uint64(), pa.string()
        reference = pa.struct([("region", text), *((name, number) for name in ("reads", "writes", "atomics", "bytes"))])
        columns = [("stage", text), ("took", pa.bool_()), ("says", pa.list_(text)), ("verdict", text), ("instructions", number),
            ("hashes", number), ("references", pa.list_(reference))]
        return pa.Table.from_pylist([_stage(row) for row in self.figures["stages"]], schema=pa.schema(columns))

    @property
    def sent(self) -> pa.Table:
        """Packets that leave because of it, in order: ``interface`` and ``packet``, in words."""
        import pyarrow as pa

        rows = [{"interface": row["interface"], "packet": row["packet"]["words"]} for row in self.figures["sent"]]
        return pa.Table.from_pylist(rows, schema=pa.schema([("interface", pa.string()), ("packet", pa.string())]))

    @property
    def queues(self) -> pa.Table:
        """Queues that it waited in: ``interface``, ``side``, ``name``, ``waiting`` and ``waiting_bytes`` before it, ``limit``, ``drop``."""
        import pyarrow as pa

        number, text = pa.uint64(), pa.string()
        columns = [("interface", text), ("side", text), ("name", text), ("waiting", number), ("waiting_bytes", number), ("limit", number),
            ("drop", text)]
        return pa.Table.from_pylist(self.figures["queues"], schema=pa.schema(columns))

    @property
    def delay_ns(self) -> int | None:
        """Time from its arrival until its transmission begins, in nanoseconds; none where it did not wait, or was dropped."""
        delay: int | None = self.figures["delay_ns"]
        return delay

    @property
    def instructions(self) -> int:
        """Instructions of all stages together, of a single-issue 32-bit processor."""
        return int(self.figures["instructions"])

    def __str__(self) -> str:
        return _plain(self._pieces)

    def __repr__(self) -> str:
        reason = "" if self.reason is None else f" {self.reason}"
        return f"<wirerate.Explanation: {self.interface} {self.packet['words']}: {self.verdict}{reason}>"

    def _repr_html_(self) -> str:
        return _html(self._pieces)

    def _of_reason(self, key: str) -> str | None:
        reason = self.figures["reason"]
        return None if reason is None else str(reason[key])


def _diagnostic(row: dict[str, Any]) -> Diagnostic:
    return Diagnostic(**{**row, "related": tuple(Related(**one) for one in row["related"])})


def _stage(row: dict[str, Any]) -> dict[str, Any]:
    cost = row["cost"] or {"instructions": None, "hashes": None, "references": {}}
    references = [{"region": region, **counts} for region, counts in cost["references"].items()]
    return {**row, "instructions": cost["instructions"], "hashes": cost["hashes"], "references": references}


def _plain(pieces: Pieces) -> str:
    return "".join(text for _, text in pieces).rstrip("\n")


def _html(pieces: Pieces) -> str:
    spans = [
        f'<span style="{_STYLES[tone]}">{html.escape(text)}</span>' if tone in _STYLES else html.escape(text) for tone, text in pieces]
    # In one line: what takes a notebook for Markdown ends HTML at an empty one.
    lines = "".join(spans).rstrip().replace("\n", "<br>")
    return f'<pre style="white-space:pre-wrap">{lines}</pre>'


def _html_table(columns: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
