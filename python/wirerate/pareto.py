"""Searches among configurations of a chip: the Pareto front of throughput, latency, power, memory and more.

>>> front = wirerate.optimise(  # doctest: +SKIP
...     chip, policy, "lan>wan,both", {"pool.process.at": ["0", "0-1", "0-3"], "rules": [64, 200]},
...     ["engines", "latency"], require=["throughput>=1Gbit/s"])
>>> front.table.to_pandas()  # doctest: +SKIP

Where there are no more configurations than trials, all of them are run once, and the front is exact. Otherwise NSGA-II chooses them, by `Optuna
<https://optuna.org>`_. A trial is a row of a sweep: the same tasks, on the cores of this machine or on a cluster.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import math
import os
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Union

from . import _wirerate, ray
from .chip import MOST, Chip, Traffic, Vary, _warn, items, lost, runs, space, table
from .jobs import Job, sweep_job
from .parts import Parts
from .policy import Policy
from .request import Request, answer, say
from .results import Progress, told_progress

if TYPE_CHECKING:
    import pyarrow as pa

Path = Union[str, "os.PathLike[str]"]
_Told = tuple[Union[Sequence[Union[float, str, None]], None], Union[str, None]]
"""Figures of a configuration, or the reason for there being none."""

_BATCH = 64
"""Configurations that are run together where all of them are."""

_POPULATION = (8, 50)
"""Configurations of a generation, at least and at most: an eighth of the trials. It depends on nothing else, least of all on the number of cores."""

_BARREN = 8
"""Generations in a row without a new configuration, after which some are drawn at random."""

_CANNOT_RUN = 1e9
"""Violation of a configuration that cannot be run: more than that of any that can."""


class Objective(NamedTuple):
    """A figure that is to be as high or as low as can be."""

    name: str
    """Name: ``throughput``."""
    column: str
    """Column of a sweep's rows that has its values."""
    more: bool
    """True if more is better."""
    unit: str
    """Unit of the values; empty for a number."""
    about: str
    """Meaning, in a line."""


class Bound(NamedTuple):
    """A requirement: ``throughput>=1Gbit/s``."""

    text: str
    """As written."""
    column: str
    """Column of a sweep's rows that is compared."""
    least: bool
    """True if values are to be as high or higher; otherwise as low or lower."""
    value: float
    """The bound, in the column's unit."""

    def violation(self, figure: float) -> float:
        """By how much a figure is out of bounds, as a share of the bound; 0 where it is within."""
        short = self.value - figure if self.least else figure - self.value
        return max(short, 0.0) / (self.value or 1.0)


class Front:
    """What a search found.

    Attributes
    ----------
    table : pyarrow.Table
        Configurations of the Pareto front: those that no other one equals or surpasses in all objectives and surpasses in one. The best in the first
        objective comes first. A column for each parameter, and figures as of `Chip.sweep`.
    trials : pyarrow.Table
        All configurations that were run, in that order, with the same columns; ``feasible``, false where a requirement is not met or the
        configuration cannot be run, for the reason in ``error``; and ``front``.
    objectives : tuple of Objective
        The objectives.
    require : tuple of Bound
        The requirements.
    combinations : int
        Configurations that there are.
    exact : bool
        True if all of them were run.
    """

    def __init__(
        self, axes: Sequence[tuple[str, list[str]]], columns: Sequence[str], rows: Mapping[int, _Told], aims: Sequence[Objective],
        bounds: Sequence[Bound]
    ) -> None:
        import pyarrow as pa

        self.objectives, self.require = tuple(aims), tuple(bounds)
        self.combinations = math.prod(len(values) for _, values in axes)
        self.exact = len(rows) == self.combinations
        self.run = numbers = list(rows)
        """Numbers of the configurations of `trials`."""
        judged = {number: _judge(columns, rows[number], aims, bounds) for number in numbers}
        feasible = {number: of.values for number, of in judged.items() if not any(of.violations)}
        self.numbers = sorted(_front(feasible), key=lambda number: (feasible[number], number))
        """Numbers of the front's configurations among all combinations, as those of a sweep: the last parameter changes fastest."""
        kept = set(self.numbers)
        whole = table(axes, columns, numbers, list(rows.values()))
        whole = whole.append_column("feasible", pa.array([number in feasible for number in numbers], pa.bool_()))
        self.trials = whole.append_column("front", pa.array([number in kept for number in numbers], pa.bool_()))
        places = {number: place for place, number in enumerate(numbers)}
        chosen = self.trials.take(pa.array([places[number] for number in self.numbers], pa.int64()))
        self.table = chosen.drop_columns(["error", "feasible", "front"])

    def __len__(self) -> int:
        return len(self.numbers)

    def __repr__(self) -> str:
        aims = ", ".join(aim.name for aim in self.objectives)
        run = f"all {self.combinations:,}" if self.exact else f"{self.trials.num_rows:,} of {self.combinations:,}"
        return f"<wirerate.Front of {len(self)} by {aims}, {run} configurations run>"


def optimise(
    chip: Chip,
    policy: Policy,
    traffic: Traffic,
    vary: Vary,
    objectives: str | Iterable[str] = ("throughput", "latency"),
    *,
    require: str | Iterable[str] = (),
    trials: int = 200,
    seed: int = 1,
    warm: int = 0,
    repeat: int = 1,
    loss: float | None = None,
    ports: Mapping[str, Any] | None = None,
    static_keys: bool = False,
    workers: int = 0,
    address: str | None = None,
    out: Path | None = None,
    progress: Progress = False,
) -> Front:
    """Search configurations of a chip for those that are best: the Pareto front of some objectives.

    Parameters
    ----------
    chip, policy, traffic, warm, repeat, ports, progress
        As for `Chip.sweep`.
    vary : mapping
        Values by parameter, as for `Chip.sweep`. There may be any number of combinations; a parameter has 100,000 values at most.
    objectives : str or iterable of str
        ``throughput`` (highest load of which no more is lost than ``loss``, up to that of the traffic), ``delivered``, ``latency`` (99th percentile),
        ``median`` (of latency), ``lost``, ``power``, ``memory``, ``engines`` or ``threads``; all but throughput are of one run, at the load of the
        traffic. `objectives` has their columns and units.
    require : str or iterable of str
        Requirements: ``throughput>=1Gbit/s`` (bits of frames; also ``Mpps``, and ``%`` of the load of the traffic), ``latency<=5us``, ``power<=10W``,
        ``memory<=2MB``, ``engines<=4``.
    trials : int
        Configurations that are run, at most, each once. If there are no more than that, all are.
    seed : int
        What everything random follows from: the traffic, and the search.
    loss : float, optional
        Share of frames that may be lost at the throughput; none without it.
    workers : int
        Cores that are used; 0 for all. With an ``address`` those are the cluster's.
    static_keys : bool
        As for `Chip.sweep`, where neither ``address`` nor ``out`` is given: keys are sent nowhere.
    address : str, optional
        Address of a Ray cluster, as for ``ray.init``: trials are then run there, by the tasks of `wirerate.ray`.
    out : path-like, optional
        Directory of rows, as for `wirerate.ray.sweep`. What it has is not run again.

    Returns
    -------
    Front
        The same for the same seed, whatever the number of cores or nodes.

    Raises
    ------
    ValueError
        There is no such objective, or a requirement is none.
    GridError
        A parameter has too many values.
    ChipError
        A parameter is not there, or power is wanted of a chip that does not say what it draws. A configuration that cannot be is infeasible instead.
    """
    aims, bounds = _aims(objectives), _bounds(require)
    if not 1 <= trials <= MOST:
        raise ValueError(f"trials is {trials}: 1 to {MOST:,}")
    if workers < 0:
        raise ValueError(f"workers is {workers}: 0 or more")
    columns = {aim.column for aim in aims} | {bound.column for bound in bounds}
    if loss is None and any(column.startswith("throughput_") for column in columns):
        loss = 0.0
    axes, found = space(vary), list(items(traffic))
    sweep = chip._job(policy, found, seed, ports, static_keys).sweep(axes, runs(repeat), warm, lost(loss))
    for column in sorted(columns):
        sweep.check_column(column)
    rows: dict[int, _Told] = {}
    most = min(trials, len(sweep))
    with told_progress(progress, "optimise", "configuration") as tell, contextlib.ExitStack() as stack:

        def report(done: int) -> None:
            tell(min(len(rows) + done, most), most)

        run: Callable[[Sequence[int]], Iterable[_Told]]
        if address is None and out is None:
            run = _Here(sweep, workers, report)
        else:
            text = sweep_job(chip, policy, found, axes, seed=seed, warm=warm, repeat=repeat, loss=loss, ports=ports)
            cluster = None if address is None else stack.enter_context(ray.cluster(address))
            run = _Kept(text, cluster, workers, out, report)

        def judge(numbers: Sequence[int]) -> list[_Judged]:
            rows.update(zip(numbers, run(numbers)))
            tell(len(rows), most)
            return [_judge(sweep.columns, rows[number], aims, bounds) for number in numbers]

        if most == len(sweep):
            for first in range(0, most, _BATCH):
                judge(range(first, min(first + _BATCH, most)))
        else:
            _search([len(values) for _, values in axes], most, seed, len(aims), judge)
    return Front(axes, sweep.columns, rows, aims, bounds)


def objectives() -> tuple[Objective, ...]:
    """All objectives.

    >>> [objective.name for objective in wirerate.pareto.objectives()][:2]  # doctest: +SKIP
    ['throughput', 'delivered']
    """
    return tuple(Objective(*of) for of in _wirerate.objectives())


def _aims(names: str | Iterable[str]) -> list[Objective]:
    listed = [names] if isinstance(names, str) else list(names)
    if not listed:
        raise ValueError("there is no objective")
    aims = [objectives()[_wirerate.objective(name)] for name in listed]
    for place, aim in enumerate(aims):
        if aim in aims[:place]:
            raise ValueError(f"{aim.name} is an objective twice")
    return aims


def _bounds(texts: str | Iterable[str]) -> list[Bound]:
    listed = [texts] if isinstance(texts, str) else list(texts)
    return [Bound(text, *_wirerate.bound(text)[1:]) for text in listed]


class _Judged(NamedTuple):
    """How a configuration fares: less is better."""

    values: tuple[float, ...]
    violations: tuple[float, ...]


def _judge(columns: Sequence[str], told: _Told, aims: Sequence[Objective], bounds: Sequence[Bound]) -> _Judged:
    figures, _ = told
    if figures is None:
        return _Judged((0.0,) * len(aims), (_CANNOT_RUN, *[0.0] * len(bounds)))
    of = dict(zip(columns, figures))
    values = tuple(-_number(of[aim.column]) if aim.more else _number(of[aim.column]) for aim in aims)
    return _Judged(values, (0.0, *[bound.violation(_number(of[bound.column])) for bound in bounds]))


def _number(figure: float | str | None) -> float:
    assert isinstance(figure, float)
    return figure


def _front(points: Mapping[int, tuple[float, ...]]) -> list[int]:
    """Points that no other one dominates. Points that are the same are all there."""
    kept: list[int] = []
    # In this order, none is dominated by one that comes later.
    for number in sorted(points, key=lambda number: points[number]):
        point = points[number]
        if not any(points[other] != point and all(map(float.__le__, points[other], point)) for other in kept):
            kept.append(number)
    return kept


def _search(sizes: Sequence[int], trials: int, seed: int, aims: int, judge: Callable[[Sequence[int]], list[_Judged]]) -> None:
    """Choose configurations by NSGA-II, of a space with more of them than trials. A generation is asked for as a whole and told in its order."""
    try:
        # By name, so that types are checked where it is not installed.
        optuna: Any = importlib.import_module("optuna")
    except ImportError:
        raise ImportError("Optuna is not installed, and there are more configurations than trials: pip install 'wirerate[optimise]'") from None
    fewest, largest = _POPULATION
    population = min(max(trials // 8, fewest), largest)
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        sampler = optuna.samplers.NSGAIISampler(population_size=population, seed=seed % (1 << 32))
        study = optuna.create_study(directions=["minimize"] * aims, sampler=sampler)
        # By place: crossover and mutation draw values as they are, so that their order is of no consequence.
        places = {str(axis): optuna.distributions.IntDistribution(0, size - 1) for axis, size in enumerate(sizes)}
        judged: dict[int, _Judged] = {}
        dice, barren = random.Random(seed), 0
        while len(judged) < trials:
            if barren == _BARREN:
                barren = 0
                for number in _drawn(dice, sizes, judged, min(population, trials - len(judged))):
                    study.enqueue_trial({str(axis): place for axis, place in enumerate(_places(sizes, number))})
            asked = [study.ask(places) for _ in range(population)]
            numbers = [_combination(sizes, [trial.params[str(axis)] for axis in range(len(sizes))]) for trial in asked]
            # One that was run has the same figures again.
            new = list(dict.fromkeys(number for number in numbers if number not in judged))[: trials - len(judged)]
            barren = 0 if new else barren + 1
            judged.update(zip(new, judge(new)))
            for trial, number in zip(asked, numbers):
                if number not in judged:
                    # Beyond the last trial: nothing is chosen after it.
                    study.tell(trial, state=optuna.trial.TrialState.FAIL)
                    continue
                for place, violation in enumerate(judged[number].violations):
                    trial.set_constraint(str(place), violation)
                study.tell(trial, judged[number].values)
    finally:
        optuna.logging.set_verbosity(verbosity)


def _drawn(dice: random.Random, sizes: Sequence[int], judged: Mapping[int, object], many: int) -> Iterator[int]:
    """Draw so many configurations that have not been run: there are more of those."""
    drawn: set[int] = set()
    while len(drawn) < many:
        number = dice.randrange(math.prod(sizes))
        if number not in judged and number not in drawn:
            drawn.add(number)
            yield number


def _combination(sizes: Sequence[int], places: Sequence[int]) -> int:
    """Number of a combination, from the places of its values."""
    number = 0
    for size, place in zip(sizes, places):
        number = number * size + place
    return number


def _places(sizes: Sequence[int], number: int) -> list[int]:
    places = []
    for size in reversed(sizes):
        number, place = divmod(number, size)
        places.append(place)
    return places[::-1]


class _Here:
    """Runs configurations on the cores of this machine."""

    def __init__(self, sweep: _wirerate.Sweep, workers: int, report: Callable[[int], None]) -> None:
        self._sweep, self._workers, self._report = sweep, workers, report

    def __call__(self, numbers: Sequence[int]) -> list[_Told]:
        rows, found = self._sweep.rows(numbers, self._workers, self._report)
        _warn(found)
        return list(rows)


class _Kept:
    """Runs configurations as units of a job, here or on a cluster, and keeps their rows in a directory, if there is one."""

    def __init__(self, text: str, cluster: Any, workers: int, out: Path | None, report: Callable[[int], None]) -> None:
        self._text, self._job, self._cluster, self._workers, self._report = text, Job(text), cluster, workers, report
        self._parts = None if out is None else Parts(os.fspath(out), self._job.schema)
        self._there = {} if self._parts is None else self._parts.read()

    def __call__(self, numbers: Sequence[int]) -> list[_Told]:
        hashes = {number: self._job.hash(number) for number in numbers}
        rows = {number: self._there[of] for number, of in hashes.items() if of in self._there}
        for group in self._groups([number for number in numbers if number not in rows]):
            rows.update((made["number"], made["row"]) for made in group)
            kept = [made["row"] for made in group if not made["lost"]]
            if self._parts is not None and kept:
                self._parts.write(kept)
            self._report(len(rows))
        return [self._job.told(rows[number]) for number in numbers]

    def _groups(self, missing: list[int]) -> Iterator[list[dict[str, Any]]]:
        if not missing:
            return
        if self._cluster is None:
            yield self._job.rows(missing, None, self._workers)
        else:
            yield from ray.groups(self._cluster, self._text, self._job, missing, dict.fromkeys(missing, 1.0))


def main(arguments: list[str] | None = None) -> int:
    """``python3 -m wirerate.pareto``: a search as `wirerate.request` has it."""
    parser = argparse.ArgumentParser(prog="python3 -m wirerate.pareto")
    parser.add_argument("--address")
    address = parser.parse_args(arguments).address

    def work(asked: Request) -> None:
        front = optimise(asked.chip, asked.policy, asked.traffic, asked.vary, asked.rest["objectives"], require=asked.rest["require"],
            trials=asked.rest["trials"], static_keys=asked.rest["static_keys"], address=address, progress=lambda done, all: say(done=done), **asked.options)
        columns = [name for name in front.trials.column_names if name not in asked.vary and name not in ("error", "feasible", "front")]
        for number, row in zip(front.run, front.trials.to_pylist()):
            say(number=number, feasible=row["feasible"], cells=None if row["error"] is not None else [row[name] for name in columns],
                error=row["error"])
        say(front=front.numbers, exact=front.exact)

    return answer(work)


if __name__ == "__main__":
    # As the module that workers import, not as __main__.
    from wirerate.pareto import main as run

    sys.exit(run())
