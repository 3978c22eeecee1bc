"""Chips: figures are those of the command."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pyarrow as pa
import pytest

import wirerate
from conftest import wirerate as command

STREAM = "lan>wan,both,arrivals=poisson,frames=1500"
POLICY = "policies/firewall.toml"


@pytest.fixture(scope="module")
def policy(root):
    return wirerate.Policy.read(root / POLICY)


@pytest.fixture(scope="module")
def chip():
    return wirerate.Chip.read("ixp2400")


def told(root, what, *arguments):
    return json.loads(command("chip", what, "--chip", "ixp2400", root / POLICY, *arguments, "--json"))


def test_a_run_has_the_figures_of_the_command(root, policy):
    chip = wirerate.Chip.read("ixp2400", set={"memory.sram.latency": 3000})
    expected = told(root, "run", "lan>wan,flows=each,frames=3000", "--set", "memory.sram.latency=3000", "--seed", 3, "--warm", 100)
    report = chip.run(policy, "lan>wan,flows=each,frames=3000", seed=3, warm=100, explain=True)
    assert report.figures.pop("wall_seconds") > 0 and expected.pop("wall_seconds") > 0
    assert report.figures == expected
    assert expected["lost"] > 0 and report.bottleneck == expected["bottleneck"]["text"]
    for name in ("engines", "memories", "rings"):
        rows = getattr(report, name).to_pylist()
        assert [row["name"] for row in rows] == [row["name"] for row in expected[name]]
        assert all(row[key] == value for row, of in zip(rows, expected[name]) for key, value in of.items() if key != "regions")
    regions = report.regions.to_pylist()
    assert sum(row["references"] for row in regions) == sum(
        region["references"] for memory in expected["memories"] for region in memory["regions"])
    assert report.latency.num_rows == len(expected["latency_curve"])


def test_a_captured_run_has_the_figures_of_the_command(office):
    lan = office.captures["lan"]
    expected = json.loads(command("chip", "run", "--chip", "ixp2800", office.policy, f"lan={lan}", "--json"))
    report = wirerate.Chip.read("ixp2800").run(wirerate.Policy.read(office.policy), {"lan": lan})
    assert report["offered_mpps"] == expected["offered_mpps"] and report["fates"] == expected["fates"]


def test_a_search_has_the_figures_of_the_command(root, policy, chip):
    stream = "lan>wan,both,established,frames=2000"
    found = chip.search(policy, stream, precision=0.05)
    assert found.figures == told(root, "search", stream, "--precision", "5%")
    assert found.goals.column("loss_ratio").to_pylist() == [0.0, 0.005]
    assert found.trials.num_rows == len(found.figures["trials"])


def test_a_sweep_has_the_rows_of_the_command_with_numbers_as_numbers(root, policy, chip):
    vary = {"memory.sram.latency": [50, 90], "pool.process.threads": [1, 99], "region.rule-table": ["sram", "dram"]}
    axes = [f"{name}={','.join(map(str, values))}" for name, values in vary.items()]
    expected = told(root, "sweep", STREAM, *(word for axis in axes for word in ("--vary", axis)), "--warm", 100)
    rows = chip.sweep(policy, STREAM, vary, warm=100)
    assert [rows.schema.field(name).type for name in vary] == [pa.int64(), pa.int64(), pa.string()]
    assert rows.schema.field("gbps").type == pa.float64()
    assert len(expected) == rows.num_rows == 8
    # 99 threads are more than an engine has.
    assert sum("error" in row for row in expected) == 4
    for row, of in zip(rows.to_pylist(), expected):
        row = {name: value for name, value in row.items() if value is not None}
        # Power is null of a chip that does not say what it draws.
        assert {**row, **{name: str(row[name]) for name in vary}} == {name: value for name, value in of.items() if value is not None}


def test_repeated_runs_have_intervals(root, policy, chip):
    expected = told(root, "sweep", STREAM, "--vary", "rules=1..9:4", "--repeat", 3, "--seed", 7)
    rows = chip.sweep(policy, STREAM, {"rules": range(1, 10, 4)}, repeat=3, seed=7)
    assert rows.column("p99_ns_ci95").to_pylist() == [row["p99_ns_ci95"] for row in expected]
    assert rows.equals(chip.sweep(policy, STREAM, {"rules": "1..9:4"}, repeat=3, seed=7))


def test_too_many_combinations_are_refused_with_their_number(policy, chip):
    for vary in ({"rules": range(10**9)}, {"rules": f"1..{10**9}"}, {"rules": range(1000), "flows": range(10**6)}):
        with pytest.raises(wirerate.GridError, match="1,000,000,000 combinations") as refused:
            chip.sweep(policy, STREAM, vary)
        assert refused.value.combinations == 10**9
    endless = iter(int, 1)
    with pytest.raises(wirerate.GridError, match="more than 100,000"):
        chip.sweep(policy, STREAM, {"rules": endless})


def test_what_is_wrong_is_said(root, policy, chip, tmp_path):
    with pytest.raises(wirerate.ChipError, match="there are bluefield3-dpa"):
        wirerate.Chip.read("no-such")
    with pytest.raises(wirerate.ChipError, match="did you mean \"memory.sram.latency\""):
        wirerate.Chip.read("ixp2400", set={"memory.sram.latancy": 1})
    broken = tmp_path / "broken.toml"
    broken.write_text("name = 3\n")
    with pytest.raises(wirerate.ChipError) as wrong:
        wirerate.Chip.read(broken)
    assert wrong.value.diagnostics[0].line == 1
    with pytest.raises(wirerate.ReadError):
        wirerate.Chip.read(tmp_path / "none.toml")
    with pytest.raises(ValueError, match="bth"):
        chip.run(policy, "lan>wan,bth")
    with pytest.raises(wirerate.ReadError):
        chip.run(policy, {"lan": tmp_path / "none.pcap"})
    with pytest.raises(wirerate.PolicyError, match="no interface"):
        chip.run(policy, {"nowhere": root / "README.md"})
    with pytest.raises(wirerate.ChipError, match="no \"memory.nothing\""):
        chip.sweep(policy, STREAM, {"memory.nothing": [1]})
    with pytest.raises(wirerate.ChipError, match="no frame that would count"):
        chip.run(policy, STREAM, warm=10**6)
    with pytest.raises(TypeError, match="vary"):
        chip.sweep(policy, STREAM, {})
    with pytest.raises(ValueError, match="no values"):
        chip.sweep(policy, STREAM, {"rules": []})


def test_chips_are_listed_and_their_mappings_found(root):
    listed = json.loads(command("chip", "list", "--json"))["chips"]
    assert wirerate.chips() == {chip["name"]: tuple(of["name"] for of in chip["mappings"]) for chip in listed}
    assert wirerate.Chip.read("ixp2400", "firewall").mapping == "ixp2400-firewall"


def test_claims_are_held_against_the_model():
    expected = json.loads(command("reproduce", "R4", "--quick", "--json"))
    rows = wirerate.reproduce("R4").to_pylist()
    assert [row["verdict"] for row in rows] == [row["verdict"] for row in expected]
    with pytest.raises(ValueError, match="no claim or study"):
        wirerate.reproduce("Z9")


def test_progress_is_told(policy, chip):
    seen = []
    chip.sweep(policy, "lan>wan,frames=20000", {"rules": [1, 2, 3, 4]}, progress=lambda done, all: seen.append((done, all)))
    assert seen == sorted(seen) and all(of == (of[0], 4) for of in seen)


def test_ctrl_c_ends_a_run_and_a_sweep(root):
    # Hours of work, which nobody waits for.
    for work in ('chip.run(policy, "lan>wan,both,frames=1000000000")',
                 'chip.sweep(policy, "lan>wan,frames=3000000", {"rules": range(1, 5001)})'):
        code = f"""
import sys, wirerate
policy, chip = wirerate.Policy.read({str(root / POLICY)!r}), wirerate.Chip.read("ixp2400")
try:
    print("begun", flush=True)
    {work}
except KeyboardInterrupt:
    print("interrupted")
"""
        running = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert running.stdout.readline() == "begun\n"
        running.send_signal(signal.SIGINT)
        assert running.communicate(timeout=60)[0] == "interrupted\n"
