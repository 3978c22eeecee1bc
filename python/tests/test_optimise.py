"""Searches among configurations: what comes out is held against sweeps, and against arithmetic."""

from __future__ import annotations

import doctest
import json
import math
import os
import pathlib
import random
import re
import shlex
import signal
import subprocess
import sys
import xml.etree.ElementTree

import numpy as np
import pytest

import wirerate
import wirerate.pareto
from conftest import wirerate as command

STREAM = "lan>wan,flows=each,frames=600"
VARY = {"pool.process.at": ["1", "1-2", "1-4"], "pool.process.threads": [1, 4, 8, 99], "memory.sram.latency": [45, 90]}
LARGE = {"pool.process.at": ["1", "1-2", "1-3", "1-4", "1-5"], "pool.process.threads": range(1, 9), "memory.sram.latency": range(30, 150, 10),
    "memory.sram.channels": [1, 2], "rules": range(0, 40)}


@pytest.fixture(scope="module")
def policy(root):
    return wirerate.Policy.read(root / "policies/firewall.toml")


@pytest.fixture(scope="module")
def chip():
    return wirerate.Chip.read("ixp2400")


@pytest.fixture(scope="module")
def swept(policy, chip):
    """All of the small space, by a sweep."""
    return chip.sweep(policy, STREAM, VARY, loss=0).to_pylist()


def front(rows, *aims):
    """Rows that no other one dominates, by comparing each with each: less is better."""
    points = np.array([[aim(row) for aim in aims] for row in rows])
    dominates = (points[:, None] <= points[None]).all(-1) & (points[:, None] < points[None]).any(-1)
    return [row for row, dominated in zip(rows, dominates.any(0)) if not dominated]


def same(table, rows):
    """True if a table has these rows, in any order."""
    def key(row):
        return json.dumps({name: value for name, value in row.items() if name != "error"})

    return sorted(map(key, table.to_pylist())) == sorted(map(key, rows))


def test_the_front_of_a_small_space_is_that_of_a_sweep(policy, chip, swept):
    found = wirerate.optimise(chip, policy, STREAM, VARY, ["throughput", "latency", "engines"])
    run = [row for row in swept if row["error"] is None]
    # 99 threads are more than an engine has.
    assert (len(run), len(swept), found.trials.num_rows, found.combinations) == (18, 24, 24, 24)
    expected = front(run, lambda row: -row["throughput_gbps"], lambda row: row["p99_ns"], lambda row: row["engines"])
    assert found.exact and 1 < len(expected) < 18
    assert same(found.table, expected) and len(found) == len(expected)
    # The best first, and numbers are those of the sweep.
    throughput = found.table["throughput_gbps"].to_pylist()
    assert throughput == sorted(throughput, reverse=True)
    assert same(found.table, [swept[number] for number in found.numbers])
    # What cannot be run is there, with the reason.
    trials = found.trials.to_pylist()
    assert [row["error"] for row in trials] == [row["error"] for row in swept]
    assert all("threads" in row["error"] and not row["feasible"] and not row["front"] for row in trials if row["error"] is not None)
    assert "all 24 configurations run" in repr(found)
    # No more is run than is asked for: throughput is a search.
    assert "throughput_gbps" not in wirerate.optimise(chip, policy, STREAM, {"rules": [1]}, "latency").table.column_names


def test_requirements_are_met(policy, chip, swept):
    run = [row for row in swept if row["error"] is None]
    limit = sorted(row["throughput_mpps"] for row in run)[6]
    slow = sorted(row["p50_ns"] for row in run)[8]
    found = wirerate.optimise(chip, policy, STREAM, VARY, "threads", require=[f"throughput>={limit:.9f}Mpps", f"median<={slow / 1e3:.9f}us"])
    meets = [row for row in run if row["throughput_mpps"] >= float(f"{limit:.9f}") and row["p50_ns"] <= float(f"{slow / 1e3:.9f}") * 1e3]
    # Each of them keeps some away that the other lets pass.
    assert 0 < len(meets) < min(sum(row["throughput_mpps"] >= limit for row in run), sum(row["p50_ns"] <= slow for row in run))
    assert same(found.table, front(meets, lambda row: row["threads"]))
    assert sum(row["feasible"] for row in found.trials.to_pylist()) == len(meets)
    # A share of the load of the traffic.
    whole = wirerate.optimise(chip, policy, f"{STREAM},rate=20%", VARY, "engines", require="throughput>=100%").table
    assert whole.num_rows and set(whole["throughput_share"].to_pylist()) == {1.0}
    none = wirerate.optimise(chip, policy, STREAM, VARY, ["engines", "latency"], require="throughput>=900Gbit/s")
    assert len(none) == none.table.num_rows == 0 and none.trials.num_rows == 24


def test_a_front_is_the_same_on_any_number_of_cores(policy, chip, tmp_path):
    def search(**more):
        return wirerate.optimise(chip, policy, "lan>wan,flows=each,frames=150", LARGE, ["delivered", "engines", "memory"], trials=40, **more)

    one, two = search(workers=1), search(workers=2)
    assert one.combinations == 5 * 8 * 12 * 2 * 40 and not one.exact and one.trials.num_rows == 40
    assert one.trials.equals(two.trials) and one.numbers == two.numbers
    assert len(set(one.run)) == 40
    assert "40 of 38,400 configurations run" in repr(one)
    assert search(seed=2).run != one.run
    # As rows in a directory, half of which are there already: only the others are run.
    assert search(out=tmp_path).trials.equals(one.trials)
    files = sorted(tmp_path.glob("*.parquet"))
    assert len(files) >= 2
    files[0].unlink()
    assert search(out=tmp_path).trials.equals(one.trials)
    assert files[0].exists()


def volume(points):
    """Area that points of two objectives, of 1 at most, dominate."""
    area, level = 0.0, 1.0
    for x, y in sorted(points):
        if y < level:
            area += (1.0 - x) * (level - y)
            level = y
    return area


def test_the_search_finds_more_than_chance():
    sizes, trials = [10] * 9, 400

    def values(number):
        places = wirerate.pareto._places(sizes, number)
        assert wirerate.pareto._combination(sizes, places) == number
        # ZDT1 (Zitzler, Deb and Thiele, 2000): the front has zeros in all but the first.
        first, rest = places[0] / 9, sum(places[1:]) / 72
        other = 1 + 9 * rest
        return first, other * (1 - math.sqrt(first / other)) / 10

    chosen = []

    def judge(numbers):
        chosen.extend(numbers)
        return [wirerate.pareto._Judged(values(number), (0.0,)) for number in numbers]

    wirerate.pareto._search(sizes, trials, 3, 2, judge)
    assert len(chosen) == len(set(chosen)) == trials
    dice = random.Random(1)
    by_chance = [volume([values(dice.randrange(10**9)) for _ in range(trials)]) for _ in range(10)]
    assert volume(map(values, chosen)) > max(by_chance)


def test_a_search_ends_where_little_is_left():
    # All but one configuration of a space, most of which NSGA-II comes upon again and again.
    sizes, numbers = [3, 5, 2], []

    def judge(new):
        numbers.extend(new)
        return [wirerate.pareto._Judged((float(number % 7), float(number // 7)), (0.0, 1e9 if number % 3 else 0.0)) for number in new]

    wirerate.pareto._search(sizes, 29, 1, 2, judge)
    assert len(set(numbers)) == len(numbers) == 29


def test_the_filter_of_points_is_that_of_pairs():
    dice = np.random.default_rng(4)
    for aims in (1, 2, 3, 4):
        points = dice.integers(0, 5, size=(60, aims)).astype(float)
        expected = {number for number, point in enumerate(points)
            if not any((other <= point).all() and (other < point).any() for other in points)}
        assert set(wirerate.pareto._front({number: tuple(map(float, point)) for number, point in enumerate(points)})) == expected


def test_power_is_that_of_the_documented_model(root, policy):
    mapping = "ixp2800-pool"
    for settings, clock in (({}, 1.0), ({"clock": "700 MHz"}, 0.5)):
        at = {"pool.process.at": ["1-2", "1-8"]}
        chip = wirerate.Chip.read("ixp2800", mapping)
        rows = wirerate.optimise(chip, policy, STREAM, {**at, **{name: [value] for name, value in settings.items()}}, "power").trials.to_pylist()
        for row, where in zip(rows, at["pool.process.at"]):
            engines = wirerate.Chip.read("ixp2800", mapping, {"pool.process.at": where, **settings}).run(policy, STREAM).engines.to_pylist()
            assert len(engines) == row["engines"] == {"1-2": 4, "1-8": 10}[where]
            # chips/ixp2800.toml: 25 W at most, half of it of sixteen engines, and 0.36 of that where one idles.
            each = [25 * 0.5 / 16 * clock * (0.36 + 0.64 * (of["executing"] + of["aborted"] + of["polling"])) for of in engines]
            assert row["watts"] == pytest.approx(12.5 + sum(each))
            assert 12.5 < row["watts"] < 25
    # Without a word in the chip's description, in words.
    with pytest.raises(wirerate.ChipError, match="nothing is known of the power of ixp2400"):
        wirerate.optimise(wirerate.Chip.read("ixp2400"), policy, STREAM, VARY, "power")
    with pytest.raises(wirerate.ChipError, match="nothing is known of the power of rena"):
        wirerate.optimise(wirerate.Chip.read("rena"), policy, "lan>wan", {"memory.table.latency": [1, 2]}, "latency", require="power<=2W")


def test_memory_is_counted_where_it_is(policy):
    def bytes_of(chip, vary):
        return wirerate.Chip.read(chip, "firewall" if chip == "ixp2400" else None).sweep(policy, STREAM, vary)["memory_bytes"].to_pylist()

    # In local memory, rules are there once for each engine that has stages: five of the mapping's beside two that move frames.
    shared, local = bytes_of("ixp2400", {"region.rule-table": ["sram", "local"]})
    fewer = bytes_of("ixp2400", {"region.rule-table": ["sram", "local"], "pool.firewall.at": ["5"]})
    rules = (local - shared) / 4
    assert rules > 0 and fewer[0] == shared and fewer[1] - fewer[0] == 2 * rules
    # A ring of 256 entries more, of 8 bytes each.
    rings = bytes_of("ixp2400", {"ring.sent.entries": [128, 384]})
    assert rings[1] - rings[0] == 2048
    # A cache twice as large, for each engine in use.
    vary = {"engine.cpu.cache.size": ["8 KB", "16 KB"], "pool.process.at": ["0", "0-1"]}
    small_one, small_two, large_one, large_two = bytes_of("cn3120", vary)
    assert (large_one - small_one, large_two - small_two, small_two - small_one) == (8192, 16384, 8192)


def test_engines_and_threads_are_counted(policy, chip):
    rows = chip.sweep(policy, STREAM, {"pool.process.at": ["1", "1-3"], "pool.process.threads": [2, 8]}).to_pylist()
    # One engine of eight threads receives, and one transmits.
    assert [row["engines"] for row in rows] == [3, 3, 5, 5]
    assert [row["threads"] for row in rows] == [16 + 2, 16 + 8, 16 + 6, 16 + 24]


def test_throughput_is_that_of_a_search(policy):
    chip = wirerate.Chip.read("ixp2400", set={"memory.sram.latency": 3000})
    stream = "lan>wan,flows=each,frames=1000"
    goal = chip.search(policy, stream, loss=[0.001]).goals.to_pylist()[0]
    row = chip.sweep(policy, stream, {"rules": [0]}, loss=0.001).to_pylist()[0]
    assert 0 < goal["lower"] < 1
    found = (row["throughput_share"], row["throughput_mpps"], row["throughput_gbps"])
    assert found == (goal["lower"], goal["throughput_mpps"], goal["throughput_gbps"])
    with pytest.raises(ValueError, match="loss is 1"):
        chip.sweep(policy, stream, {"rules": [0]}, loss=1)


def test_what_is_wrong_is_said(policy, chip, monkeypatch):
    def refused(error, match, *, vary=VARY, objectives="latency", **more):
        with pytest.raises(error, match=match):
            wirerate.optimise(chip, policy, STREAM, vary, objectives, **more)

    refused(ValueError, 'did you mean "latency"', objectives=["latancy"])
    refused(ValueError, "twice", objectives=["latency", "engines", "latency"])
    refused(ValueError, "no objective", objectives=[])
    refused(ValueError, "`W` is no unit of throughput", require="throughput>=1W")
    refused(ValueError, "write NAME>=VALUE", require=["engines=4"])
    for trials in (0, -1, 100_001):
        refused(ValueError, f"trials is {trials}", trials=trials)
    refused(ValueError, "workers is -1", workers=-1)
    with pytest.raises(wirerate.GridError, match="rules has 1,000,000,000 values"):
        wirerate.optimise(chip, policy, STREAM, {"rules": range(10**9)})
    refused(wirerate.GridError, "more than can be numbered", vary={f"flows{place}": range(100_000) for place in range(5)})
    refused(wirerate.ChipError, 'no "memory.nothing"', vary={"memory.nothing": [1]})
    # A milliard of configurations is no reason.
    vast = {"memory.sram.latency": range(1, 1001), "memory.dram.latency": range(1, 1001), "rules": range(1000)}
    assert wirerate.optimise(chip, policy, "lan>wan,frames=50", vast, "latency", trials=9).combinations == 10**9
    # Without Optuna a small space is run all the same.
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r"pip install 'wirerate\[optimise\]'"):
        wirerate.optimise(chip, policy, "lan>wan,frames=50", vast, "latency", trials=9)
    assert wirerate.optimise(chip, policy, "lan>wan,frames=50", {"rules": [1, 2]}, "latency").exact


def test_progress_is_told(policy, chip):
    seen = []
    wirerate.optimise(chip, policy, "lan>wan,frames=50", {"rules": range(100)}, "latency", progress=lambda done, all: seen.append((done, all)))
    assert seen == sorted(seen) and seen[-1] == (100, 100)


def test_ctrl_c_ends_a_search(root, tmp_path):
    for out in (None, str(tmp_path)):
        code = f"""
import wirerate
policy, chip = wirerate.Policy.read({str(root / "policies/firewall.toml")!r}), wirerate.Chip.read("ixp2400")
try:
    print("begun", flush=True)
    wirerate.optimise(chip, policy, "lan>wan,flows=each,frames=1000000", {{"rules": range(10000)}}, trials=5000, out={out!r})
except KeyboardInterrupt:
    print("interrupted")
"""
        running = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert running.stdout.readline() == "begun\n"
        running.send_signal(signal.SIGINT)
        assert running.communicate(timeout=60)[0] == "interrupted\n"


@pytest.fixture
def words(monkeypatch):
    """The command finds this environment's Python."""
    here = pathlib.Path(os.environ.get("WIRERATE", "wirerate")).parent
    monkeypatch.setenv("PATH", f"{pathlib.Path(sys.executable).parent}:{here}:{os.environ['PATH']}")


def test_the_command_has_the_front_of_the_package(words, root, policy, chip, tmp_path):
    axes = [f"{name}={','.join(map(str, values))}" for name, values in VARY.items()]
    arguments = ["--chip", "ixp2400", root / "policies/firewall.toml", STREAM, *(word for axis in axes for word in ("--vary", axis)),
        "--objective", "throughput,latency,engines", "--require", "latency<=1s", "--loss", "1%"]
    told = json.loads(command("chip", "optimise", *arguments, "--json"))
    found = wirerate.optimise(chip, policy, STREAM, VARY, ["throughput", "latency", "engines"], require="latency<=1s", loss=0.01)

    def figures(row):
        return {name: value if name not in VARY else str(value) for name, value in row.items() if name not in ("front", "watts", "error")}

    assert (told["combinations"], told["exact"]) == (24, True)
    assert [figures(row) for row in told["front"]] == [figures(row) for row in found.table.to_pylist()]
    assert len(told["trials"]) == 24 and sum("error" in row for row in told["trials"]) == 6
    # A table, and a picture that is one.
    picture = tmp_path / "front.svg"
    shown = command("chip", "optimise", *arguments, "--plot", picture)
    assert "all 24 configurations were run" in shown and "3 more cannot be run" in shown and f"Drawn in {picture}." in shown
    assert shown.count("Gbit/s") == len(found)
    drawn = xml.etree.ElementTree.parse(picture).getroot()
    assert drawn.tag.endswith("svg") and len(list(drawn.iter("{http://www.w3.org/2000/svg}circle"))) > 2 * 18
    # A search that chooses: the same again, and the same as the package's.
    more = ["chip", "optimise", "--chip", "ixp2400", root / "policies/firewall.toml", "lan>wan,flows=each,frames=150", "--vary", "rules=0..999",
        "--vary", "pool.process.threads=1..8", "--objective", "delivered,threads", "--trials", "20", "--seed", "7", "--json"]
    told = command(*more)
    assert told == command(*more)
    found = wirerate.optimise(chip, policy, "lan>wan,flows=each,frames=150", {"rules": "0..999", "pool.process.threads": "1..8"},
        ["delivered", "threads"], trials=20, seed=7)
    assert [row["rules"] for row in json.loads(told)["trials"]] == [str(rules) for rules in found.trials["rules"].to_pylist()]


def test_the_command_says_what_the_package_says(words, root):
    def refused(*arguments):
        done = subprocess.run(["wirerate", "chip", "optimise", "--chip", "ixp2400", root / "policies/firewall.toml", STREAM, *arguments],
            capture_output=True, text=True)
        return done.returncode, done.stderr

    code, told = refused("--vary", "pool.process.threads=98,99", "--objective", "latency")
    assert code == 1 and "none of 2 combinations" in told


def examples(root):
    helped = command("chip", "optimise", "--help").split("\nExamples:\n")[1].split("\n\n")[0]
    return [shlex.split(example) for example in re.split(r"\n(?=  wirerate )", helped.replace("\\\n", " "))]


def test_the_examples_of_help_can_be_pasted(words, root, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policies").symlink_to(root / "policies")
    found = examples(root)
    assert len(found) == 3
    for example in found:
        done = subprocess.run(example, capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout and not done.stderr, done.stderr
        assert "none: no configuration" not in done.stdout
    assert (tmp_path / "front.svg").exists()


def test_the_page_on_searches_says_what_comes_out(root, monkeypatch):
    monkeypatch.chdir(root)
    page = (root / "docs/optimise.md").read_text()
    # Only its Python: fences end a block, and so do they in doctest.
    blocks = re.findall(r"```python\n(>>> .*?)```", page, re.DOTALL)
    assert len(blocks) == 5
    examples = doctest.DocTestParser().get_doctest("\n\n".join(blocks), {"wirerate": wirerate}, "docs/optimise.md", "docs/optimise.md", 0)
    outcome = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(examples)
    assert outcome.failed == 0 and outcome.attempted > 10
