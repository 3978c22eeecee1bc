"""Sweeps and replays on a cluster, by Ray.

>>> import wirerate, wirerate.ray
>>> rows = wirerate.ray.sweep(chip, policy, "lan>wan,both", {"rules": range(1, 2001)}, out="results")  # doctest: +SKIP

The work is split into tasks of some seconds. A task that a worker or a node takes with it is done again elsewhere; with ``out``, each group of
rows is written as it is there, and a rerun does only what is missing. Rows follow from the job alone: they are the same on one node and on a hundred.

A capture that is large is divided by flow among tasks where the policy's flows share no state, and is one task otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import os
import sys
import time
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Union

from . import addresses
from .chip import Chip, Traffic, Vary, grid, table
from .errors import CaptureWarning, Error
from .jobs import REPLAY, Job, Part, Row, replay_job, sweep_job
from .parts import Parts
from .policy import Policy
from .request import Request, answer, say
from .results import Moment, Progress, told_progress, window

if TYPE_CHECKING:
    import pyarrow as pa

Path = Union[str, "os.PathLike[str]"]

TASK_SECONDS = 4.0
"""Length of a task: long beside the milliseconds that one costs, short beside what is lost with a worker."""

SPLIT_BYTES = 256 << 20
"""Size of a capture above which it is divided by flow, and about that of a part."""

_QUEUED = 2
"""Tasks for each core that are submitted at a time: the next one waits at its node while one runs."""

_RETRIES = 20
"""Times that a task is done again whose worker or node is lost."""


def sweep(
    chip: Chip,
    policy: Policy,
    traffic: Traffic,
    vary: Vary,
    *,
    out: Path | None = None,
    address: str | None = None,
    seed: int = 1,
    warm: int = 0,
    repeat: int = 1,
    loss: float | None = None,
    ports: Mapping[str, Any] | None = None,
    progress: Progress = False,
    task_seconds: float = TASK_SECONDS,
) -> pa.Table:
    """Run all combinations of some parameters on a cluster: the table of `Chip.sweep`.

    Parameters
    ----------
    chip : Chip
        The chip.
    policy, traffic, vary, seed, warm, repeat, loss, ports, progress
        As for `Chip.sweep`. Captures have to be at the same paths on all nodes.
    out : path-like, optional
        Directory of the results, a path or a URL of fsspec: ``s3://bucket/results``. What it has is not run again.
    address : str, optional
        Address of the cluster, as for ``ray.init``; otherwise the one that this process is connected to, or this machine.
    task_seconds : float
        Length of a task.

    Returns
    -------
    pyarrow.Table
        ``ray.data.from_arrow`` makes a Dataset of it.

    Raises
    ------
    GridError
        Too many combinations are asked for.
    VersionError
        A worker has another build of wirerate.
    Error
        No cluster answers at the address, within `addresses.SECONDS`.
    TableError
        The directory has files that are none of this sweep.
    """
    axes = grid(vary)
    text = sweep_job(chip, policy, traffic, axes, seed=seed, warm=warm, repeat=repeat, loss=loss, ports=ports)
    job = Job(text)
    rows = _done(text, job, out, address, progress, "combination", task_seconds, [1.0] * job.units)
    return table(axes, job._sweep.columns, range(job.units), [job.told(row) for row in rows])


def replay(
    policy: Policy,
    files: Iterable[Path],
    *,
    out: Path | None = None,
    address: str | None = None,
    start: Moment | None = None,
    stop: Moment | None = None,
    any_mac: bool = False,
    split_bytes: int | None = SPLIT_BYTES,
    progress: Progress = False,
    task_seconds: float = TASK_SECONDS,
) -> pa.Table:
    """Play captures through a policy on a cluster, each by itself: a row for each.

    A capture of more than ``split_bytes`` is divided by flow among several tasks, where the policy's flows share no state, and where none of the
    bounds that they do share (flows at a time, answers a second) would have been reached. The row is that of a replay of all packets, but for
    ``peak`` of the flows in its summary, which is null. ``split`` says ``flow`` or ``file`` of each row, and ``why`` the reason.

    Parameters
    ----------
    policy : Policy
        The policy.
    files : iterable of path-like
        Captures, at the same paths on all nodes.
    out, address, progress, task_seconds
        As for `sweep`.
    start, stop
        As for `wirerate.replay`; seconds and durations are from the first packet of each capture on. A capture without a packet between them
        has that as its error.
    any_mac
        As for `wirerate.replay`.
    split_bytes : int, optional
        Size of captures above which they are divided, and about that of a part; there are `jobs.MOST_PARTS` at most. None divides none.

    Returns
    -------
    pyarrow.Table
        ``path``, ``size``, packets by their fates, ``bytes``, ``flows``, ``split`` and ``why`` (how captures were split among tasks),
        ``summary`` (JSON, as of ``wirerate replay --json`` without times of the machine), ``warnings``, and ``error``.

    Warns
    -----
    CaptureWarning
        A capture breaks off; everything before that was played. Its row has the sentence, too.
    """
    import pyarrow as pa

    if isinstance(files, (str, bytes, os.PathLike)):
        raise TypeError("files is one path, not a list of them")
    paths = [os.path.abspath(os.fspath(path)) for path in files]
    text = replay_job(policy, paths, any_mac=any_mac, split_bytes=split_bytes, window=window(start, stop), kept=out is not None)
    job = Job(text)
    # Opening a file is worth about as much as playing 64 KiB of it.
    weights = [65_536.0 + capture["size"] for capture in job.data["captures"]]
    rows = _done(text, job, out, address, progress, "capture", task_seconds, weights)
    for sentence in (sentence for row in rows for sentence in row["warnings"]):
        warnings.warn(sentence, CaptureWarning, stacklevel=2)
    return pa.Table.from_pylist(rows, schema=job.schema).drop_columns(["hash"])


def work(text: str, numbers: list[int]) -> dict[str, Any]:
    """Do units of a job, on a worker: their rows, and the seconds that it took."""
    job = _job(text)
    begun = time.perf_counter()
    return {"rows": job.rows(numbers), "seconds": time.perf_counter() - begun}


def play_part(text: str, number: int, part: int, of: int) -> Part:
    """Play a part of a capture, on a worker."""
    return _job(text).part(number, part, of)


@functools.lru_cache(maxsize=2)
def _job(text: str) -> Job:
    return Job(text)


def _done(
    text: str,
    job: Job,
    out: Path | None,
    address: str | None,
    progress: Progress,
    unit: str,
    task_seconds: float,
    weights: list[float],
) -> list[dict[str, Any]]:
    """Rows of all units, in their order: those that are there already, and those that are made."""
    if not task_seconds > 0:
        raise ValueError(f"task_seconds is {task_seconds}: more than 0")
    parts = None if out is None else Parts(os.fspath(out), job.schema)
    rows: list[dict[str, Any] | None] = [None] * job.units
    if parts is not None:
        hashes = [job.hash(number) for number in range(job.units)]
        there = parts.read(hashes)
        rows = [there.get(of) for of in hashes]
    missing = [number for number, row in enumerate(rows) if row is None]
    with told_progress(progress, job.data["kind"], unit) as tell:
        tell(job.units - len(missing), job.units)
        if missing:
            with cluster(address) as connected:
                done = job.units - len(missing)
                for group in groups(connected, text, job, missing, dict(enumerate(weights)), task_seconds):
                    for made in group:
                        rows[made["number"]] = made["row"]
                    kept = [made["row"] for made in group if not made["lost"]]
                    if parts is not None and kept:
                        parts.write(kept)
                    done += len(group)
                    tell(done, job.units)
    return [row for row in rows if row is not None]


@contextlib.contextmanager
def cluster(address: str | None) -> Iterator[Any]:
    """Ray, connected to a cluster; what was begun here is ended here."""
    try:
        # By name, so that types are checked where it is not installed, and without reading all of it where it is.
        ray: Any = importlib.import_module("ray")
    except ImportError:
        raise ImportError("Ray is not installed: pip install 'wirerate[ray]'") from None
    if ray.is_initialized():
        yield ray
        return
    addresses.check(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="warning", include_dashboard=False if address is None else None)
    except ConnectionError as error:
        raise Error(f"no Ray cluster at {address}: {error}") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def groups(
    ray: Any, text: str, job: Job, missing: list[int], weights: Mapping[int, float], task_seconds: float = TASK_SECONDS
) -> Iterator[list[Row]]:
    """Groups of rows, as they are done. As many tasks are under way as keep all cores busy, however many nodes come and go."""
    options = {"num_cpus": 1, "max_retries": _RETRIES, "retry_exceptions": False}
    whole, partial = ray.remote(**options)(work), ray.remote(**options)(play_part)
    # Once for each node, not once for each task.
    sent = ray.put(text)
    divided = _Divided(job, missing)
    left, pace = list(reversed(divided.whole)), _Pace(task_seconds)
    under_way: dict[Any, list[int]] = {}
    try:
        while left or divided.pieces or under_way:
            cores = max(1, int(ray.cluster_resources().get("CPU", 0)))
            weight = sum(weights[number] for number in left)
            while divided.pieces and len(under_way) < cores * _QUEUED:
                number, part, of = divided.pieces.popleft()
                under_way[partial.remote(sent, number, part, of)] = [number]
            while left and len(under_way) < cores * _QUEUED:
                group = _group(left, weights, pace.weight(weight, cores))
                weight -= sum(weights[number] for number in group)
                under_way[whole.remote(sent, group)] = group
            # Not for ever: cores may have come.
            ready, _ = ray.wait(list(under_way), num_returns=1, timeout=1.0)
            for reference in ready:
                group = under_way.pop(reference)
                made = _taken(ray, reference)
                if "part" in made:
                    row = divided.take(group[0], made)
                    if row is not None:
                        yield [row]
                    elif divided.is_refused(group[0]):
                        left.append(group[0])
                    continue
                pace.saw(sum(weights[number] for number in group), made["seconds"])
                yield [divided.explained(row) for row in made["rows"]]
    finally:
        # After Ctrl-C or an error: nobody wants the rest.
        for reference in under_way:
            with contextlib.suppress(Exception):
                ray.cancel(reference)


class _Divided:
    """Captures that are divided, and the parts of them that are done."""

    def __init__(self, job: Job, missing: list[int]) -> None:
        self._job = job
        self._made: dict[int, list[Part]] = {}
        self._refused: dict[int, str] = {}
        parts = {number: 1 if job.data["kind"] != REPLAY else job.parts(number) for number in missing}
        self.whole = [number for number in missing if parts[number] == 1]
        """Units that are not divided."""
        self.pieces = deque((number, part, of) for number, of in parts.items() if of > 1 for part in range(of))
        """Parts that are still to be played: number of the capture, of the part, and of all parts."""

    def take(self, number: int, made: Part) -> Row | None:
        """Take the outcome of a part: the row of its capture once that has all, unless it has to be played whole."""
        parts = self._made.setdefault(number, [])
        parts.append(made)
        if len(parts) < self._job.parts(number):
            return None
        row = self._job.merged(number, sorted(self._made.pop(number), key=lambda part: int(part["part"])))
        if isinstance(row, str):
            self._refused[number] = row
            return None
        return row

    def is_refused(self, number: int) -> bool:
        """True of a capture whose parts are no whole."""
        return number in self._refused

    def explained(self, made: Row) -> Row:
        """Say of a capture that was played whole in the end why that is so."""
        why = self._refused.get(made["number"])
        if why is not None:
            made["row"] |= {"split": "file", "why": why}
        return made


def _taken(ray: Any, reference: Any) -> dict[str, Any]:
    try:
        made: dict[str, Any] = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise (error.cause if isinstance(error.cause, Exception) else error) from None
    except ray.exceptions.RayError as error:
        raise Error(f"a task was lost {_RETRIES + 1} times: {error}") from None
    return made


def _group(left: list[int], weights: Mapping[int, float], most: float) -> list[int]:
    """Takes units of at most that weight, or one."""
    group, weight = [left.pop()], 0.0
    weight += weights[group[0]]
    while left and weight + weights[left[-1]] <= most:
        group.append(left.pop())
        weight += weights[group[-1]]
    return group


class _Pace:
    """How much is done in a second: the first tasks have one unit each, and are timed."""

    def __init__(self, task_seconds: float) -> None:
        self._task_seconds = task_seconds
        self._weight = self._seconds = 0.0

    def saw(self, weight: float, seconds: float) -> None:
        # What is recent counts more: combinations that are near each other are alike.
        self._weight = self._weight / 2 + weight
        self._seconds = self._seconds / 2 + seconds

    def weight(self, left: float, cores: int) -> float:
        """Weight of the next task: some seconds, and at the end so little that no core waits long for the last."""
        if self._seconds <= 0:
            return 0.0
        return min(self._task_seconds * self._weight / self._seconds, left / (cores * 2))


def main(arguments: list[str] | None = None) -> int:
    """``python3 -m wirerate.ray sweep``: a sweep in JSON on standard input; progress and rows in JSON on standard output, a line each."""
    parser = argparse.ArgumentParser(prog="python3 -m wirerate.ray")
    parser.add_argument("what", choices=["sweep"])
    parser.add_argument("--address")
    options = parser.parse_args(arguments)

    def work(asked: Request) -> None:
        rows = sweep(asked.chip, asked.policy, asked.traffic, asked.vary, address=options.address, progress=lambda done, all: say(done=done),
            **asked.options)
        columns = [name for name in rows.column_names if name not in asked.vary and name != "error"]
        for row in rows.to_pylist():
            say(cells=None if row["error"] is not None else [row[name] for name in columns], error=row["error"])

    return answer(work)


if __name__ == "__main__":
    # As the module that workers import, not as __main__.
    from wirerate.ray import main as run

    sys.exit(run())
