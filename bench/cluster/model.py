"""Model of `wirerate.ray` on more nodes than there are: its driver's loop on so many slots, with the overheads that were measured.

The driver hands out one task after another, each at a cost; a worker's first task waits for its start; units take times that vary (log-normal, by
30 %); tasks are sized by what was seen, as `wirerate/ray.py` does. Prints the share of linear speed-up.

    python3 bench/cluster/model.py
"""

import heapq
import random

TASK = 4.0
"""Seconds that a task is to take."""

QUEUED = 2
"""Tasks for each slot that are submitted at a time."""

PER_TASK = 0.0027
"""Seconds of the driver for each task: measured, see docs/python.md."""

START = 2.0
"""Seconds that a worker takes to start and to import the package: assumed."""


def efficiency(units, slots, seconds):
    """Share of linear speed-up of so many units, each of so many seconds, on so many slots."""
    rng = random.Random(1)
    times = [seconds * rng.lognormvariate(-0.045, 0.3) for _ in range(units)]
    left, under_way = list(range(units)), []
    free = [(0.0, slot) for slot in range(slots)]
    begun, driver, weight, seen, end = set(), 0.0, 0.0, 0.0, 0.0
    while left or under_way:
        while left and len(under_way) < slots * QUEUED:
            most = 0.0 if seen <= 0 else min(TASK * weight / seen, len(left) / (slots * 2))
            group, left = left[: max(1, int(most))], left[max(1, int(most)) :]
            driver += PER_TASK
            at, slot = heapq.heappop(free)
            cost = sum(times[unit] for unit in group)
            done = max(at, driver) + (0 if slot in begun else START) + cost
            begun.add(slot)
            heapq.heappush(free, (done, slot))
            heapq.heappush(under_way, (done, cost, len(group)))
        done, cost, many = heapq.heappop(under_way)
        driver, end = max(driver, done), max(end, done)
        weight, seen = weight / 2 + many, seen / 2 + cost
    return sum(times) / slots / end


if __name__ == "__main__":
    for nodes, cores in ((1, 2), (64, 2), (64, 16)):
        for units, seconds in ((2_000, 4.0), (2_000, 30.0), (20_000, 4.0), (100_000, 1.0)):
            share = efficiency(units, nodes * cores, seconds)
            print(f"{nodes:3} nodes of {cores:2} cores, {units:7,} units of {seconds:4.1f} s: {share:6.1%}")
