"""Jobs for other processes: plain data, which whoever receives it checks before anything is done.

A job is a text of JSON. It has the texts of chip, mapping and policy, as they were when it was planned; captures are files, with their sizes and
times of change, and with their SHA-256 where rows are to be known by what they follow from. A unit of it (a combination of a sweep, a capture of a
replay) has a hash of all that its row follows from, the build of wirerate included: two units of one hash have one row.

A large capture is divided into parts by flow, where the policy's flows share no state: each part is a task that reads the capture and plays the
packets of its flows. `Job.merged` makes the row of the capture of the outcomes of all parts, or says why the capture has to be played whole.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import pathlib
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from . import _wirerate
from .chip import Chip, Traffic, items, lost, runs, schema
from .errors import CaptureWarning, Error, JobError, VersionError
from .policy import Policy
from .results import Window, replay

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]
Part = dict[str, Any]

SWEEP, REPLAY = "sweep", "replay"

_TEXT = {"file": str, "text": str}
_CAPTURE = {"path": str, "size": int, "changed": int, "sha256": (str, type(None))}
_SHAPES: dict[str, dict[str, Any]] = {
    SWEEP: {"kind": str, "wirerate": {"version": str, "build": str}, "chip": _TEXT, "mapping": _TEXT, "policy": _TEXT,
        "traffic": [[(str, type(None)), str]], "captures": [_CAPTURE], "ports": [[str, str]], "seed": int, "warm": int, "repeat": int,
        "loss": (float, type(None)), "axes": [[str, [str]]]},
    REPLAY: {"kind": str, "wirerate": {"version": str, "build": str}, "policy": _TEXT, "any_mac": bool,
        "window": [(str, type(None)), (str, type(None))], "split_bytes": (int, type(None)), "captures": [_CAPTURE]},
}

MOST_PARTS = 64
"""Parts of a capture, at most: each of them reads all of it."""


@functools.lru_cache(maxsize=1)
def build() -> str:
    """SHA-256 of the native half, which tells builds of one version apart."""
    path = _wirerate.__file__
    assert path is not None
    return _sha256(path)


def _sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else _digest(file)


def _digest(file: Any) -> str:
    # Python 3.10 has no file_digest.
    digest = hashlib.sha256()
    while block := file.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()


@functools.lru_cache(maxsize=4096)
def _content(path: str, size: int, changed: int) -> str:
    return _sha256(path)


def capture(path: str, hashed_from: int = 0) -> dict[str, Any]:
    """A capture by its path, size and time of change, and of so many bytes or more by its contents."""
    about = os.stat(path)
    content = _content(path, about.st_size, about.st_mtime_ns) if about.st_size >= hashed_from else None
    return {"path": path, "size": about.st_size, "changed": about.st_mtime_ns, "sha256": content}


def canonical(value: Any) -> str:
    """JSON of which there is one for each value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(value: Any) -> str:
    """SHA-256 of the canonical JSON."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def _versions() -> dict[str, str]:
    return {"version": _wirerate.__version__, "build": build()}


def _policy(policy: Policy) -> dict[str, str]:
    if policy._native.has_key_files:
        raise JobError(f"{policy.file} has keys of tunnels in files, which stay where they are: it cannot be sent to other machines")
    text = {"file": policy.file, "text": policy.to_toml()}
    if Policy.parse(**text) != policy:
        raise JobError(f"{policy.file} has secrets, which its text leaves out: it cannot be sent to other machines")
    return text


def sweep_job(
    chip: Chip, policy: Policy, traffic: Traffic, axes: Sequence[tuple[str, Sequence[str]]], *, seed: int, warm: int, repeat: int,
    loss: float | None, ports: Mapping[str, Any] | None
) -> str:
    """Plan a sweep, of which everything is checked here that can be before it is run. Axes are those of `chip.grid`, or of `chip.space` where not all
    combinations are going to be run."""
    found, sent = list(items(traffic)), _policy(policy)
    native = chip._job(policy, found, seed, ports)
    native.sweep(axes, runs(repeat), warm, lost(loss))
    (chip_file, chip_text), (mapping_file, mapping_text) = native.texts()
    return canonical({
        "kind": SWEEP, "wirerate": _versions(), "policy": sent, "traffic": [list(item) for item in found],
        "chip": {"file": chip_file, "text": chip_text}, "mapping": {"file": mapping_file, "text": mapping_text},
        "captures": [capture(path) for path in native.captures()],
        "ports": [[interface, str(port)] for interface, port in (ports or {}).items()],
        "seed": seed, "warm": warm, "repeat": repeat, "loss": lost(loss), "axes": [[name, list(values)] for name, values in axes],
    })


def replay_job(
    policy: Policy, files: Sequence[str], *, any_mac: bool, split_bytes: int | None, window: Window = (None, None), kept: bool = True
) -> str:
    """Plan replays of a window of time of captures, each by itself. A capture that is not there has its error as its row. Where rows are not kept,
    their hashes mean nothing, and captures that are played whole are played as they are by then."""
    if split_bytes is not None and split_bytes < 1:
        raise ValueError(f"split_bytes is {split_bytes}: 1 or more, or None")
    hashed_from = 0 if kept else sys.maxsize if split_bytes is None else split_bytes + 1
    # Several at a time: whoever plans has nothing else to do, and nobody else has anything before that is done.
    readers = ThreadPoolExecutor()
    try:
        captures = list(readers.map(lambda path: _listed(path, hashed_from), files))
    finally:
        readers.shutdown(cancel_futures=True)
    return canonical({"kind": REPLAY, "wirerate": _versions(), "policy": _policy(policy), "any_mac": any_mac, "window": list(window),
        "split_bytes": split_bytes, "captures": captures})


def _listed(path: str, hashed_from: int) -> dict[str, Any]:
    try:
        return capture(path, hashed_from)
    except OSError:
        return {"path": path, "size": 0, "changed": 0, "sha256": ""}


class Job:
    """A job that has been checked."""

    def __init__(self, text: str | bytes) -> None:
        self.data = _checked(text)

    def hash(self, number: int) -> str:
        """Hash of a unit."""
        if self.data["kind"] == REPLAY:
            capture = self.data["captures"][number]
            return digest([self._base, capture["path"], capture["sha256"], self.parts(number)])
        return digest([self._base, self.choices(number)])

    @functools.cached_property
    def _base(self) -> str:
        """Hash of what all units have in common."""
        rest = {key: value for key, value in self.data.items() if key not in ("axes", "captures", "split_bytes")}
        captures = [[capture["path"], capture["sha256"]] for capture in self.data["captures"]]
        return digest(rest if self.data["kind"] == REPLAY else [rest, captures])

    @property
    def units(self) -> int:
        """Number of units."""
        if self.data["kind"] == REPLAY:
            return len(self.data["captures"])
        product = 1
        for _, values in self.data["axes"]:
            product *= len(values)
        return product

    def choices(self, number: int) -> list[list[str]]:
        """Each parameter of a sweep with its value in a combination."""
        chosen = []
        for name, values in reversed(self.data["axes"]):
            number, place = divmod(number, len(values))
            chosen.append([name, values[place]])
        return chosen[::-1]

    @functools.cached_property
    def schema(self) -> pa.Schema:
        """Columns of the rows as they are written: parameters are text, so that files of several sweeps of one kind go together."""
        import pyarrow as pa

        if self.data["kind"] == REPLAY:
            counts = [(name, pa.uint64()) for name in _COUNTS]
            text = [(name, pa.string()) for name in ("path", "split", "why", "summary", "error")]
            columns = [text[0], ("size", pa.uint64()), *counts, *text[1:4], ("warnings", pa.list_(pa.field("element", pa.string()))), text[4]]
            return pa.schema([("hash", pa.string()), *columns])
        of = schema([(name, ["-"]) for name, _ in self.data["axes"]], self._sweep.columns)
        return pa.schema([("hash", pa.string()), *of])

    def rows(self, numbers: Sequence[int], tell: Callable[[int], object] | None = None, threads: int = 1) -> list[Row]:
        """Do units: combinations of a sweep on so many threads, or with 0 on all cores. What is not there any more is the error of its rows."""
        return self._replayed(numbers) if self.data["kind"] == REPLAY else self._swept(numbers, tell, threads)

    def told(self, row: dict[str, Any]) -> tuple[list[float | str | None] | None, str | None]:
        """Figures of a sweep's row, or the reason for there being none."""
        return None if row["error"] is not None else [row[name] for name in self._sweep.columns], row["error"]

    def _swept(self, numbers: Sequence[int], tell: Callable[[int], object] | None, threads: int) -> list[Row]:
        gone = next(filter(None, map(_gone, self.data["captures"])), None)
        if gone is not None:
            return [self._row(number, None, gone) | {"lost": True} for number in numbers]
        rows, _ = self._sweep.rows(numbers, threads, tell)
        return [self._row(number, figures, error) for number, (figures, error) in zip(numbers, rows)]

    def _row(self, number: int, figures: Sequence[float | str | None] | None, error: str | None) -> Row:
        columns = self._sweep.columns
        told = dict(zip(columns, figures)) if figures is not None else dict.fromkeys(columns)
        return {"number": number, "lost": False,
            "row": {"hash": self.hash(number), **{name: value for name, value in self.choices(number)}, **told, "error": error}}

    @functools.cached_property
    def _sweep(self) -> _wirerate.Sweep:
        data = self.data
        chip = Chip(_wirerate.Chip.of(*((data[part]["file"], data[part]["text"]) for part in ("chip", "mapping"))))
        native = _wirerate.Job(chip._native, self._policy._native, [tuple(item) for item in data["traffic"]],
            [tuple(port) for port in data["ports"]], data["seed"])
        return native.sweep([tuple(axis) for axis in data["axes"]], data["repeat"], data["warm"], data["loss"])

    @functools.cached_property
    def _policy(self) -> Policy:
        return Policy.parse(**self.data["policy"])

    def _replayed(self, numbers: Sequence[int]) -> list[Row]:
        return [self._replay(number) for number in numbers]

    def _replay(self, number: int) -> Row:
        of = self.data["captures"][number]
        error, told, found = _gone(of), None, []
        lost = error is not None
        if not lost:
            try:
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always", CaptureWarning)
                    start, stop = self.data["window"]
                    told = replay(self._policy, of["path"], start=start, stop=stop, any_mac=self.data["any_mac"]).summary
                found = [str(warning.message) for warning in caught]
            except (Error, OSError) as raised:
                error = str(raised)
        split, why = self._split(number)
        return self._capture(number, split, why, told, found, error) | {"lost": lost}

    def part(self, number: int, part: int, of: int) -> Part:
        """Play a part of a capture, on one thread."""
        capture = self.data["captures"][number]
        error = _gone(capture)
        made: Part = {"part": part, "lost": error is not None, "error": error, "result": None, "warnings": []}
        if error is not None:
            return made
        try:
            start, stop = self.data["window"]
            playback = _wirerate.Playback(self._policy._native, [(None, capture["path"])], "nothing", self.data["any_mac"], (start, stop),
                (False, None), (part, of))
            done = False
            while not done:
                _, done = playback.next(1)
            playback.check()
        except (Error, OSError) as raised:
            return made | {"error": str(raised)}
        return made | {"result": playback.part_result(), "warnings": playback.cut_short()}

    def merged(self, number: int, parts: Sequence[Part]) -> Row | str:
        """Row of a capture of which all parts have been played, or the reason for which it has to be played whole."""
        split, why = self._split(number)
        failed = next((part for part in parts if part["error"] is not None), None)
        if failed is not None:
            return self._capture(number, split, why, None, [], failed["error"]) | {"lost": any(part["lost"] for part in parts)}
        summary, inexact = _wirerate.merge(self._policy._native, [part["result"] for part in parts])
        if summary is None:
            return f"it was played in {len(parts)} parts by flow first, and whole then: {inexact}"
        return self._capture(number, split, why, json.loads(summary), parts[0]["warnings"], None) | {"lost": False}

    def _capture(
        self, number: int, split: str, why: str, summary: dict[str, Any] | None, found: list[str], error: str | None
    ) -> Row:
        of = self.data["captures"][number]
        row: Row = {"hash": self.hash(number), "path": of["path"], "size": of["size"], **dict.fromkeys(_COUNTS), "split": split,
            "why": why, "summary": None, "warnings": found, "error": error}
        if summary is not None:
            row |= {name: summary["frames"][name] for name in _COUNTS[:-2]}
            row |= {"bytes": summary["bytes"], "flows": summary["flows"]["created"]}
            # Times of this machine are no results.
            row["summary"] = canonical({key: value for key, value in summary.items() if key not in ("seconds", "mpps")})
        return {"number": number, "row": row}

    def parts(self, number: int) -> int:
        """Number of parts that a capture is divided into; 1 if it is played whole."""
        split_bytes, size = self.data["split_bytes"], self.data["captures"][number]["size"]
        if split_bytes is None or size <= split_bytes or self._obstacles:
            return 1
        return int(min(-(-size // split_bytes), MOST_PARTS))

    @functools.cached_property
    def _obstacles(self) -> list[str]:
        return _wirerate.obstacles(self._policy._native)

    def _split(self, number: int) -> tuple[str, str]:
        """How a capture is split among tasks, and why."""
        if self.parts(number) > 1:
            return "flow", f"{self.parts(number)} parts: flows between different addresses share no state by this policy"
        split_bytes = self.data["split_bytes"]
        if split_bytes is None:
            return "file", "no capture was to be split (split_bytes=None)"
        if self.data["captures"][number]["size"] <= split_bytes:
            return "file", "the capture is small enough for one task"
        found = self._obstacles
        more = f", and {len(found) - 3} more" if len(found) > 3 else ""
        return "file", f"flows share state: {'; '.join(found[:3])}{more}"


_COUNTS = ("received", "forwarded", "delivered", "answered", "dropped", "held", "bytes", "flows")


def _gone(of: dict[str, Any]) -> str | None:
    """The reason for which a capture is no longer the one that was planned with."""
    try:
        # What could not be read when the job was planned says why once more.
        now = capture(of["path"], sys.maxsize if of["sha256"] != "" else 0)
        # A copy may have another time; contents are read where that is so.
        if now["size"] == of["size"] and now["changed"] != of["changed"] and of["sha256"] is not None:
            now = capture(of["path"])
    except OSError as error:
        return f"{of['path']}: {error.strerror}"
    same = now["size"] == of["size"] and now["sha256"] in (None, of["sha256"])
    return None if same else f"{of['path']} has changed since the job was planned"


def _checked(text: str | bytes) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, TypeError) as error:
        raise JobError(f"what came as a job is no JSON: {error}") from None
    if not isinstance(data, dict) or data.get("kind") not in _SHAPES:
        raise JobError("what came as a job is neither a sweep nor a replay")
    made: Any = data.get("wirerate")
    # Before its shape: another version may have another.
    _check(made, _SHAPES[SWEEP]["wirerate"], "wirerate")
    if made != _versions():
        raise VersionError(
            f"the job was planned by wirerate {made['version']} (build {made['build'][:12]}), and a worker has "
            f"{_wirerate.__version__} (build {build()[:12]}) in {pathlib.Path(__file__).parent}: install one build on all nodes")
    _check(data, _SHAPES[data["kind"]], "the job")
    for moment in data.get("window", []):
        try:
            if moment is not None:
                _wirerate.check_moment(moment)
        except ValueError as error:
            raise JobError(f"the job: window: {error}") from None
    return data


def _check(value: Any, shape: Any, where: str) -> None:
    """Raise an error at the first part that has not its shape."""
    if isinstance(shape, dict):
        if not isinstance(value, dict) or value.keys() != shape.keys():
            raise JobError(f"{where} has not the keys {', '.join(shape)}")
        for key, inner in shape.items():
            _check(value[key], inner, f"{where}: {key}")
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise JobError(f"{where} is no list")
        if len(shape) == 1:
            for inner in value:
                _check(inner, shape[0], where)
        elif len(value) != len(shape):
            raise JobError(f"{where} has not {len(shape)} parts")
        else:
            for inner, of in zip(value, shape):
                _check(inner, of, where)
    elif not isinstance(value, shape) or (isinstance(value, bool) and shape is int):
        raise JobError(f"{where} is a {type(value).__name__}")
