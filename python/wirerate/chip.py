"""Network processors, modelled: a policy and traffic on a chip, in modelled time."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

from . import _wirerate
from .errors import CaptureWarning, GridError
from .policy import Policy
from .results import Progress, told_progress

if TYPE_CHECKING:
    import pyarrow as pa

Path = Union[str, "os.PathLike[str]"]
Item = Union[Path, "tuple[str | None, Path]"]
Traffic = Union[Path, Iterable[Item], Mapping[str, Union[Path, Iterable[Path]]]]
Values = Union[str, Iterable[Any]]
Vary = Mapping[str, Values]

MOST = 100_000
"""Combinations of a sweep, at most."""


class Chip:
    """A modelled network processor, with the mapping of stages and regions to its parts.

    >>> chip = wirerate.Chip.read("ixp2400", set={"memory.sram.latency": 45})
    >>> chip
    <wirerate.Chip ixp2400 by ixp2400-pool>
    """

    __slots__ = ("_native",)

    _native: _wirerate.Chip

    def __init__(self, native: _wirerate.Chip) -> None:
        self._native = native

    @classmethod
    def read(
        cls,
        chip: Path,
        mapping: Path | None = None,
        set: Mapping[str, Any] | None = None,  # noqa: A002
    ) -> Chip:
        """Find a chip and a mapping.

        Parameters
        ----------
        chip : str or path-like
            One of `chips`, or a file (TOML).
        mapping : str or path-like, optional
            One of its mappings, or a file; otherwise run to completion, ``CHIP-pool``, or ``CHIP-split`` or ``CHIP-tunnel`` where
            programs are too long for that.
        set : mapping, optional
            Parameters of the chip or the mapping by their paths: ``{"memory.sram.latency": 45}``.

        Raises
        ------
        ChipError
            There is no such chip, mapping or parameter, or one is wrong: `ChipError.diagnostics` says all that is.
        ReadError
            A file cannot be read.
        """
        settings = [(path, toml(value)) for path, value in (set or {}).items()]
        return cls(_wirerate.Chip.read(os.fspath(chip), None if mapping is None else os.fspath(mapping), settings))

    @property
    def name(self) -> str:
        """Name of the chip."""
        return self._native.name

    @property
    def mapping(self) -> str:
        """Name or file of the mapping."""
        return self._native.mapping

    def run(
        self,
        policy: Policy,
        traffic: Traffic,
        *,
        seed: int = 1,
        warm: int = 0,
        explain: bool = False,
        ports: Mapping[str, Any] | None = None,
        static_keys: bool = False,
        progress: Progress = False,
    ) -> Report:
        """Run a policy and traffic: how fast, how busy, and with ``explain`` what limits it.

        Parameters
        ----------
        policy : Policy
            The policy.
        traffic : str, path-like, iterable or mapping
            Streams to be generated, as ``"lan>wan,both,frames=20000"`` (``wirerate chip run --help`` has the keys), and captures. A
            mapping says the interface that captures come in by, as for `replay`.
        seed : int
            What everything random follows from.
        warm : int
            Frames at the beginning that are left out of the report.
        explain : bool
            Look for the bottleneck if frames are lost: one more run for each resource, with that resource infinitely fast.
        ports : mapping, optional
            Ports that interfaces are to have, by number or kind: ``{"wan": 8}``.
        static_keys : bool
            Read the keys of tunnels that the policy has in files, as `replay` does.
        progress : bool or callable
            As for `replay`.

        Raises
        ------
        ChipError
            Something does not fit on the chip, or the traffic cannot be made.
        PolicyError
            The policy has keys in files, and ``static_keys`` is not given.
        """
        job = self._job(policy, items(traffic), seed, ports, static_keys)
        with told_progress(progress, "run", "B") as tell:
            text, found = job.run(warm, explain, lambda done: tell(done, max(job.size, done)))
        _warn(found)
        return Report(json.loads(text))

    def search(
        self,
        policy: Policy,
        traffic: Traffic,
        *,
        loss: Iterable[float] = (0.0, 0.005),
        precision: float = 0.005,
        trials: int = 1,
        exceed: float = 0.0,
        method: str = "mlrsearch",
        seed: int = 1,
        warm: int = 0,
        ports: Mapping[str, Any] | None = None,
        static_keys: bool = False,
        progress: Progress = False,
    ) -> Search:
        """Find the highest loads at which no more frames are lost than goals say.

        Parameters
        ----------
        policy, traffic, seed, ports, static_keys, progress
            As for `run`.
        loss : iterable of float
            Ratios of frames that may be lost, a goal each.
        precision : float
            How close bounds come, as a share of the upper one.
        trials : int
            Whole trials at each load, each with a seed of its own.
        exceed : float
            Share of them that may lose more.
        method : str
            ``mlrsearch`` (RFC 9971), or ``rfc2544``: binary search, for no loss.
        warm : int
            Frames at the beginning of each trial that are not counted.
        """
        losses = [float(ratio) for ratio in loss]
        for ratio in [*losses, precision, exceed]:
            if not 0 <= ratio < 1:
                raise ValueError(f"{ratio} is no share from 0 to below 1")
        if trials < 1:
            raise ValueError(f"trials is {trials}: a load has one or more")
        job = self._job(policy, items(traffic), seed, ports, static_keys)
        with told_progress(progress, "search", "trial") as tell:
            text, found = job.search(method, losses, precision, trials, exceed, warm, lambda done: tell(done, 0))
        _warn(found)
        return Search(json.loads(text))

    def sweep(
        self,
        policy: Policy,
        traffic: Traffic,
        vary: Vary,
        *,
        seed: int = 1,
        warm: int = 0,
        repeat: int = 1,
        loss: float | None = None,
        ports: Mapping[str, Any] | None = None,
        static_keys: bool = False,
        progress: Progress = False,
    ) -> pa.Table:
        """Run all combinations of some parameters, on all cores: a row each.

        Parameters
        ----------
        policy, traffic, seed, ports, static_keys, progress
            As for `run`.
        vary : mapping
            Values by parameter: ``{"memory.sram.latency": [50, 90, 150], "rules": range(1, 65)}``. A parameter is one of the chip or
            the mapping by its path, a key of generated traffic, or ``rules`` or ``classes``: how many of them that match nothing are
            put before those of the policy. A string is a list as on the command line: ``"1..64:8"``.
        warm : int
            Frames at the beginning of each run that are left out.
        repeat : int
            Runs of each combination, with the seeds ``seed``, ``seed + 1`` and so on; figures are then means, and columns ``NAME_ci95``
            have the half-widths of their 95 % confidence intervals.
        loss : float, optional
            Share of frames that may be lost at the throughput: each run then has a search for it, and rows have ``throughput_mpps``,
            ``throughput_gbps`` and ``throughput_share`` (of the load of the traffic).

        Returns
        -------
        pyarrow.Table
            A column for each parameter, typed by its values; figures, as of ``wirerate chip sweep --json``; and ``error``, null where
            the combination was run. Rows are in the order of combinations, the last parameter changing fastest.

        Raises
        ------
        GridError
            More combinations than `MOST`; `GridError.combinations` has their number.
        ChipError
            A parameter is not there. A value that cannot be is an ``error`` of its rows instead.
        """
        axes = grid(vary)
        sweep = self._job(policy, items(traffic), seed, ports, static_keys).sweep(axes, runs(repeat), warm, lost(loss))
        with told_progress(progress, "sweep", "combination") as tell:
            rows, found = sweep.rows(range(len(sweep)), 0, lambda done: tell(done, len(sweep)))
        _warn(found)
        return table(axes, sweep.columns, list(range(len(sweep))), rows)

    def _job(
        self, policy: Policy, traffic: Iterable[tuple[str | None, str]], seed: int, ports: Mapping[str, Any] | None, static_keys: bool = False
    ) -> _wirerate.Job:
        if not isinstance(policy, Policy):
            raise TypeError(f"policy is a {type(policy).__name__}, not a wirerate.Policy: Policy.read reads one")
        if not 0 <= seed < 1 << 64:
            raise ValueError(f"seed is {seed}: 0 to 2^64 - 1")
        named = [(interface, str(port)) for interface, port in (ports or {}).items()]
        return _wirerate.Job(self._native, policy._native, list(traffic), named, seed, static_keys)

    def __repr__(self) -> str:
        return f"<wirerate.Chip {self.name} by {self.mapping}>"


class Report:
    """What a run showed.

    Attributes
    ----------
    figures : dict
        All of it, as ``wirerate chip run --json`` prints it; its manual says what each key is.
    """

    __slots__ = ("figures",)

    def __init__(self, figures: dict[str, Any]) -> None:
        self.figures = figures

    def __getitem__(self, key: str) -> Any:
        """A figure by its key: ``report["delivered_mpps"]``."""
        return self.figures[key]

    @property
    def bottleneck(self) -> str | None:
        """What limits it, in a sentence; none where it was not looked for."""
        found = self.figures["bottleneck"]
        return None if found is None else str(found["text"])

    @property
    def engines(self) -> pa.Table:
        """Engines: shares of time spent executing, aborted, stalled, polling and idle."""
        return _table(self.figures["engines"], [("name", "string"), ("pools", "[string]"),
            *((name, "double") for name in ("executing", "aborted", "stalled", "polling", "idle")), ("instructions", "uint64")])

    @property
    def memories(self) -> pa.Table:
        """Memories: how busy, and the mean number of commands that waited."""
        return _table(self.figures["memories"], [("name", "string"), ("utilisation", "double"), ("channels", "[double]"),
            ("queue", "double")])

    @property
    def regions(self) -> pa.Table:
        """References to regions, a row for each region in a memory."""
        rows = [{"memory": memory["name"], **region} for memory in self.figures["memories"] for region in memory["regions"]]
        return _table(rows, [("memory", "string"), ("name", "string"), ("references", "uint64"), ("bytes", "uint64"),
            ("mean_ns", "double"), ("worst_ns", "double")])

    @property
    def rings(self) -> pa.Table:
        """Rings: how full."""
        return _table(self.figures["rings"], [("name", "string"), ("entries", "uint32"), ("mean", "double"), ("most", "uint64"),
            ("blocked", "uint64")])

    @property
    def latency(self) -> pa.Table:
        """Quantiles of latency: ``share`` of frames of at most ``ns``."""
        return _table(self.figures["latency_curve"], [("share", "double"), ("ns", "double")])

    def __repr__(self) -> str:
        figures = self.figures
        return f"<wirerate.Report of {figures['chip']}: {figures['delivered_mpps']:.4f} of {figures['offered_mpps']:.4f} Mpps delivered>"


class Search:
    """What a search found.

    Attributes
    ----------
    figures : dict
        All of it, as ``wirerate chip search --json`` prints it.
    """

    __slots__ = ("figures",)

    def __init__(self, figures: dict[str, Any]) -> None:
        self.figures = figures

    @property
    def goals(self) -> pa.Table:
        """Goals: the ratio that may be lost, the loads that are known to be within and above it, and what is forwarded."""
        rows = [{**goal, "lower": (goal["lower"] or {}).get("load"), "upper": (goal["upper"] or {}).get("load")}
            for goal in self.figures["goals"]]
        columns = ("loss_ratio", "lower", "upper", "throughput_mpps", "throughput_gbps")
        return _table(rows, [(name, "double") for name in columns])

    @property
    def trials(self) -> pa.Table:
        """Trials, in the order in which they were made."""
        return _table(self.figures["trials"], [("load", "double"), ("frames", "uint64"), ("lost", "uint64"), ("loss_ratio", "double"),
            ("mpps", "double"), ("gbps", "double")])

    @property
    def bottleneck(self) -> str | None:
        """What limits it a quarter above the first goal's load, in a sentence; none where all is carried."""
        found = self.figures["bottleneck"]
        return None if found is None else str(found["text"])


def chips() -> dict[str, tuple[str, ...]]:
    """Names of the chips that come with wirerate, and of each those of its mappings.

    >>> wirerate.chips()["rena"]
    ('rena-pool',)
    """
    return {name: tuple(mappings) for name, mappings in _wirerate.chips()}


def reproduce(*ids: str, ranges: bool = False, progress: Progress = False) -> pa.Table:
    """Hold published measurements of network processors against what the model predicts.

    Parameters
    ----------
    *ids : str
        Claims (``"F5"``) or studies (``"ixp2400-firewall"``); otherwise all.
    ranges : bool
        Add the lowest and the highest prediction over assumed parameters, which takes most of the time.
    progress : bool or callable
        As for `replay`.

    Returns
    -------
    pyarrow.Table
        ``id``, ``statement``, ``published`` and ``predicted`` (numbers, in ``unit``) or ``published_words`` and ``predicted_words``,
        ``error`` (relative), ``blind``, ``low`` and ``high``, ``verdict`` and ``note``.
    """
    with told_progress(progress, "reproduce", "run") as tell:
        rows = json.loads(_wirerate.reproduce(list(ids), ranges, lambda done: tell(done, 0)))
    for row in rows:
        for of in ("published", "predicted"):
            if isinstance(row[of], str):
                row[f"{of}_words"] = row.pop(of)
        row["low"], row["high"] = row["range"] or (None, None)
    numbers = ("published", "predicted", "error", "low", "high")
    columns = ("id", "statement", "published", "predicted", "unit", "published_words", "predicted_words", "error", "low", "high",
        "blind", "verdict", "note")
    return _table(rows, [(name, "double" if name in numbers else "bool" if name == "blind" else "string") for name in columns])


def items(traffic: Traffic) -> Iterator[tuple[str | None, str]]:
    """Streams and captures, each with its interface where that was given."""
    if isinstance(traffic, Mapping):
        for interface, paths in traffic.items():
            for path in [paths] if isinstance(paths, (str, bytes, os.PathLike)) else paths:
                yield _item((interface, path))
    else:
        for item in [traffic] if isinstance(traffic, (str, bytes, os.PathLike)) else traffic:
            yield _item(item if isinstance(item, tuple) else (None, item))


def _item(item: tuple[Any, Any]) -> tuple[str | None, str]:
    interface, path = item
    if not isinstance(interface, (str, type(None))):
        raise TypeError(f"an interface is a {type(interface).__name__}, not a str")
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError(f"traffic is a {type(text).__name__}, not a stream or the path of a capture")
    return interface, text


def toml(value: Any) -> str:
    """A value as TOML; text is as on the command line, where anything that is no TOML is a string."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_quoted(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_quoted, value)) + "]"
    if hasattr(value, "item"):
        # Of NumPy.
        return toml(value.item())
    if isinstance(value, (int, float)) and math.isfinite(value):
        return repr(value)
    raise TypeError(f"{value!r} is no value of a parameter: a number, a text, or a list or mapping of such")


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else toml(value)


_RANGE = re.compile(r"\s*(\d+)\s*\.\.\s*(\d+)\s*(?::\s*(\d+)\s*)?")


def grid(vary: Vary) -> list[tuple[str, list[str]]]:
    """Parameters with their values; refuses more combinations than `MOST` before there are as many values in memory."""
    lists = _lists(vary)
    combinations = math.prod(map(len, lists.values()))
    if combinations > MOST:
        raise GridError(f"{combinations:,} combinations are asked for; a sweep has {MOST:,} at most", combinations)
    return [(name, [toml(value) for value in values]) for name, values in lists.items()]


def space(vary: Vary) -> list[tuple[str, list[str]]]:
    """Parameters with their values, however many combinations they have; refuses lists of more than `MOST` values before they are in memory."""
    lists = _lists(vary)
    for name, values in lists.items():
        if len(values) > MOST:
            raise GridError(f"{name} has {len(values):,} values; a parameter has {MOST:,} at most", len(values))
    combinations = math.prod(map(len, lists.values()))
    if combinations >= 1 << 63:
        raise GridError(f"{combinations:,} combinations are asked for, more than can be numbered", combinations)
    return [(name, [toml(value) for value in values]) for name, values in lists.items()]


def _lists(vary: Vary) -> dict[str, Sequence[Any]]:
    if not isinstance(vary, Mapping) or not vary:
        raise TypeError("vary is a mapping from one parameter or more to values")
    lists: dict[str, Sequence[Any]] = {}
    for name, values in vary.items():
        if not isinstance(name, str):
            raise TypeError(f"a parameter is a {type(name).__name__}, not a str")
        lists[name] = _listed(name, values)
    return lists


def _listed(name: str, values: Values) -> Sequence[Any]:
    if isinstance(values, str):
        found = _RANGE.fullmatch(values)
        if found is None:
            # As written on the command line: a list, whose commas may be within braces.
            return _wirerate.values(name, values)
        first, last, step = (int(digits or 1) for digits in found.groups())
        if first > last or step == 0:
            raise ValueError(f'"{values}" is no range: FIRST..LAST or FIRST..LAST:STEP, the first not above the last')
        return range(first, last + 1, step)
    if isinstance(values, (bytes, Mapping)):
        raise TypeError(f"values of {name} are {type(values).__name__}, not a list")
    if isinstance(values, Sequence) or hasattr(values, "__array__"):
        listed = values
    else:
        listed = list(itertools.islice(values, MOST + 1))
        if len(listed) > MOST:
            raise GridError(f"more than {MOST:,} combinations are asked for", MOST + 1)
    if len(listed) == 0:  # type: ignore[arg-type]
        raise ValueError(f"{name} has no values")
    return listed  # type: ignore[return-value]


def runs(repeat: int) -> int:
    """Number of runs of a combination, if it may be that."""
    if not 1 <= repeat <= 1000:
        raise ValueError(f"repeat is {repeat}: 1 to 1000")
    return repeat


def lost(loss: float | None) -> float | None:
    """Share of frames that may be lost, if it may be that."""
    if loss is not None and not 0 <= loss < 1:
        raise ValueError(f"loss is {loss}: a share from 0 to below 1")
    return None if loss is None else float(loss)


def schema(axes: Sequence[tuple[str, Sequence[str]]], columns: Sequence[str]) -> pa.Schema:
    """Columns of a sweep's rows."""
    import pyarrow as pa

    parameters = [(name, _type(values)) for name, values in axes]
    figures = [(name, pa.string() if name in ("engine", "memory") else pa.float64()) for name in columns]
    return pa.schema([*parameters, *figures, ("error", pa.string())])


def table(
    axes: Sequence[tuple[str, Sequence[str]]],
    columns: Sequence[str],
    numbers: Sequence[int],
    rows: Sequence[tuple[Sequence[float | str | None] | None, str | None]],
) -> pa.Table:
    """Rows of the combinations of these numbers."""
    import pyarrow as pa

    typed = schema(axes, columns)
    arrays, span = [], math.prod(len(values) for _, values in axes)
    for place, (_, values) in enumerate(axes):
        span //= len(values)
        of = typed.field(place).type
        read = int if pa.types.is_integer(of) else float if pa.types.is_floating(of) else str
        parsed = [read(value) for value in values]
        arrays.append(pa.array([parsed[number // span % len(values)] for number in numbers], of))
    for place in range(len(columns)):
        column = [None if figures is None else figures[place] for figures, _ in rows]
        arrays.append(pa.array(column, typed.field(len(axes) + place).type))
    arrays.append(pa.array([error for _, error in rows], pa.string()))
    return pa.Table.from_arrays(arrays, schema=typed)


def _type(values: Sequence[str]) -> pa.DataType:
    """Type of a parameter's column: that of numbers where all values are numbers."""
    import pyarrow as pa

    if all(re.fullmatch(r"-?\d{1,18}", value) for value in values):
        return pa.int64()
    if all(re.fullmatch(r"-?\d+(\.\d+)?(e[+-]?\d+)?", value) for value in values):
        return pa.float64()
    return pa.string()


def _table(rows: list[dict[str, Any]], columns: list[tuple[str, str]]) -> pa.Table:
    import pyarrow as pa

    def of(name: str) -> pa.DataType:
        return pa.list_(of(name[1:-1])) if name.startswith("[") else pa.type_for_alias(name)

    return pa.Table.from_pylist(rows, schema=pa.schema([(name, of(kind)) for name, kind in columns]))


def _warn(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        warnings.warn(sentence, CaptureWarning, stacklevel=3)
