"""Sweeps and replays on a cluster of several nodes, of which one is killed."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time

import fsspec
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import wirerate
import wirerate.jobs
import wirerate.ray
from conftest import scene

ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")

STREAM = "lan>wan,both,arrivals=poisson,frames=1500"
VARY = {"memory.sram.latency": [50, 90, 150, 300], "rules": range(1, 33, 4)}


def job(chip, policy, traffic, vary):
    axes = wirerate.chip.grid(vary)
    return wirerate.jobs.sweep_job(chip, policy, traffic, axes, seed=1, warm=0, repeat=1, loss=None, ports=None)


@pytest.fixture(scope="module")
def policy(root):
    return wirerate.Policy.read(root / "policies/firewall.toml")


@pytest.fixture(scope="module")
def chip():
    return wirerate.Chip.read("ixp2400")


@pytest.fixture(scope="module")
def expected(policy, chip):
    return chip.sweep(policy, STREAM, VARY)


@pytest.fixture(scope="module")
def cluster():
    """A head without cores, and two nodes of one core each."""
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": 1 << 27})
    for _ in range(2):
        cluster.add_node(num_cpus=1, object_store_memory=1 << 27)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def test_a_node_is_killed_and_no_row_is_missed_or_other(cluster, policy, chip, expected, tmp_path):
    lost = cluster.add_node(num_cpus=1, object_store_memory=1 << 27)
    killed = []

    def kill(done, all):
        if done and not killed:
            killed.append(done)
            cluster.remove_node(lost, allow_graceful=False)

    rows = wirerate.ray.sweep(chip, policy, STREAM, VARY, out=tmp_path, task_seconds=0.3, progress=kill)
    assert killed and killed[0] < rows.num_rows
    assert rows.equals(expected)
    # What is there is not run again, nor is any task begun: there is no cluster at that address.
    written = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert written and not any(path.name.startswith(".") for path in written)
    text = job(chip, policy, STREAM, VARY)
    planned = wirerate.jobs.Job(text)
    hashes = [planned.hash(number) for number in range(planned.units)]
    assert wirerate.ray.Parts(str(tmp_path), planned.schema).read(hashes).keys() == set(hashes) and len(set(hashes)) == 32
    counted = []
    again = wirerate.ray.sweep(chip, policy, STREAM, VARY, out=tmp_path, progress=lambda done, all: counted.append((done, all)))
    assert again.equals(expected) and counted == [(32, 32)]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == written
    # Of a larger grid only what is new is run.
    larger = {**VARY, "rules": range(1, 37, 4)}
    counted.clear()
    assert wirerate.ray.sweep(chip, policy, STREAM, larger, out=tmp_path, progress=lambda *told: counted.append(told)).num_rows == 36
    assert counted[0] == (32, 36)


def status(pid: int) -> dict[str, str]:
    """What Linux says of a process; nothing of one that has ended."""
    try:
        lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
        command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)} | {"command": command.decode(errors="replace")}


def is_within_a_task(pid: int, raylets: set[str]) -> bool:
    """True of a worker of these nodes that works on a task: Ray calls it by the function."""
    told = status(pid)
    return told.get("PPid") in raylets and told["command"].startswith("ray::work")


def kill_a_worker(raylets: set[str], killed: list[int]) -> None:
    """Kills a worker in the middle of its task."""
    deadline = time.monotonic() + 60
    while not killed and time.monotonic() < deadline:
        for pid in [int(path.name) for path in pathlib.Path("/proc").iterdir() if path.name.isdigit()]:
            if not is_within_a_task(pid, raylets):
                continue
            with contextlib.suppress(ProcessLookupError):
                # Stopped, it cannot get to the end of the task meanwhile.
                os.kill(pid, signal.SIGSTOP)
                if is_within_a_task(pid, raylets):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
                    return
                os.kill(pid, signal.SIGCONT)
        time.sleep(0.005)


def test_a_worker_is_killed_in_its_task_and_no_row_is_missed_or_other(cluster, policy, chip, expected):
    nodes = cluster.list_all_nodes()
    raylets = {str(process.process.pid) for node in nodes for process in node.all_processes["raylet"]}
    killed: list[int] = []
    killer = threading.Thread(target=kill_a_worker, args=(raylets, killed))
    killer.start()
    rows = wirerate.ray.sweep(chip, policy, STREAM, VARY, task_seconds=0.3)
    killer.join()
    # A process that nobody has waited for yet has no command any more.
    assert killed and not status(killed[0]).get("command")
    assert rows.equals(expected)


def test_rows_are_written_by_fsspec_and_are_a_dataset(cluster, policy, chip):
    rows = wirerate.ray.sweep(chip, policy, STREAM, {"rules": [1, 2]}, out="memory://rows")
    names = fsspec.filesystem("memory").ls("/rows", detail=False)
    assert names and all(name.endswith(".parquet") for name in names)
    import ray.data

    assert ray.data.from_arrow(rows).count() == 2


def test_a_search_on_a_cluster_has_the_front_of_one_machine(cluster, policy, chip, tmp_path):
    pytest.importorskip("optuna")
    vary = {"memory.sram.latency": range(30, 130), "rules": range(100), "pool.process.threads": [1, 4, 99]}
    arguments = (chip, policy, "lan>wan,flows=each,frames=200", vary, ["delivered", "threads"])
    here = wirerate.optimise(*arguments, trials=24)
    there = wirerate.optimise(*arguments, trials=24, address=cluster.address, out=tmp_path)
    assert there.trials.equals(here.trials) and there.numbers == here.numbers
    assert sum(parquet.read_table(path).num_rows for path in tmp_path.glob("*.parquet")) == 24


def test_tables_of_others_are_refused(policy, chip, tmp_path):
    parquet.write_table(pa.table({"x": [1]}), tmp_path / "other.parquet")
    with pytest.raises(wirerate.TableError, match="other.parquet .* has no column hash"):
        wirerate.ray.sweep(chip, policy, STREAM, VARY, out=tmp_path)
    text = job(chip, policy, STREAM, VARY)
    schema = wirerate.jobs.Job(text).schema
    place = schema.get_field_index("gbps")
    wrong = schema.set(place, pa.field("gbps", pa.string()))
    parquet.write_table(wrong.empty_table(), tmp_path / "other.parquet")
    with pytest.raises(wirerate.TableError, match="has gbps as string, where these results have double"):
        wirerate.ray.sweep(chip, policy, STREAM, VARY, out=tmp_path)
    (tmp_path / "other.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(wirerate.TableError, match="no table in Parquet"):
        wirerate.ray.sweep(chip, policy, STREAM, VARY, out=tmp_path)


def test_a_job_that_is_none_is_refused(cluster, policy, chip):
    text = job(chip, policy, STREAM, {"rules": [1, 2]})
    whole = json.loads(text)
    bad = [pickle.dumps(whole), b"\x80\x04garbage", b"", b"[]", b"{}", text[:-9], json.dumps({**whole, "kind": "other"}),
        json.dumps({**whole, "seed": "1"}), json.dumps({**whole, "axes": [["rules", [1]]]}), json.dumps({**whole, "warm": True}),
        json.dumps({key: value for key, value in whole.items() if key != "policy"})]
    for data in bad:
        with pytest.raises(wirerate.JobError):
            wirerate.jobs.Job(data)
    # As a worker receives it.
    task = ray.remote(wirerate.ray.work)
    with pytest.raises(wirerate.JobError, match="no JSON"):
        wirerate.ray._taken(ray, task.remote(b"\x80\x04garbage", [0]))


def test_another_version_is_refused_and_both_are_named(cluster, policy, chip):
    text = job(chip, policy, STREAM, {"rules": [1, 2]})
    for made in ({"version": "9.9.9", "build": "0" * 64}, {"version": wirerate.__version__, "build": "f" * 64}):
        other = json.dumps({**json.loads(text), "wirerate": made})
        task = ray.remote(wirerate.ray.work)
        with pytest.raises(wirerate.VersionError) as refused:
            wirerate.ray._taken(ray, task.remote(other, [0]))
        for part in (made["version"], made["build"][:12], wirerate.__version__, wirerate.jobs.build()[:12]):
            assert part in str(refused.value)


def test_too_many_combinations_are_refused_before_there_is_a_cluster(policy, chip):
    with pytest.raises(wirerate.GridError, match="1,000,000,000"):
        wirerate.ray.sweep(chip, policy, STREAM, {"rules": range(10**9)}, address="nowhere:1")


def test_a_capture_that_vanishes_is_an_error_of_its_rows(cluster, office, tmp_path):
    policy, lan = wirerate.Policy.read(office.policy), office.captures["lan"]
    files = [tmp_path / f"{name}.pcapng" for name in ("lan-1", "lan-2", "gone")]
    for file in files:
        shutil.copy(lan, file)
    planned = wirerate.jobs.replay_job(policy, list(map(str, files)), any_mac=False, split_bytes=None)
    files[2].unlink()
    made = [made["row"] for made in wirerate.jobs.Job(planned).rows(range(3))]
    assert [row["error"] is None for row in made] == [True, True, False] and "No such file" in made[2]["error"]
    out = tmp_path / "out"
    rows = wirerate.ray.replay(policy, files, out=out).to_pylist()
    assert [row["error"] is None for row in rows] == [True, True, False]
    assert {row["split"] for row in rows} == {"file"} and all(row["why"] for row in rows)
    alone = wirerate.replay(policy, files[0]).summary["frames"]
    assert all(rows[0][name] == rows[1][name] == alone[name] for name in ("received", "forwarded", "dropped"))
    # A directory is no capture, and says so.
    for kept in (True, False):
        text = wirerate.jobs.replay_job(policy, [str(tmp_path)], any_mac=False, split_bytes=None, kept=kept)
        assert "directory" in wirerate.jobs.Job(text).rows([0])[0]["row"]["error"]
    # What failed for want of its file is tried again.
    shutil.copy(lan, files[2])
    assert [row["error"] for row in wirerate.ray.replay(policy, files, out=out).to_pylist()] == [None] * 3
    # Other contents are another capture.
    text = job(wirerate.Chip.read("ixp2800"), policy, {"lan": files[2]}, {"rules": [1]})
    files[2].write_bytes(files[2].read_bytes()[:-100])
    assert "has changed" in wirerate.jobs.Job(text).rows([0])[0]["row"]["error"]


@pytest.mark.parametrize("kept", [True, False])
def test_a_capture_is_known_by_its_contents_where_rows_are_kept(office, tmp_path, kept):
    policy, file = wirerate.Policy.read(office.policy), tmp_path / "lan.pcapng"
    shutil.copy(office.captures["lan"], file)
    planned = wirerate.jobs.Job(wirerate.jobs.replay_job(policy, [str(file)], any_mac=False, split_bytes=None, kept=kept))
    assert (planned.data["captures"][0]["sha256"] is not None) == kept

    def error() -> str | None:
        return planned.rows([0])[0]["row"]["error"]

    # A copy on another node has a time of its own.
    os.utime(file, (1, 1))
    assert error() is None
    there = bytearray(file.read_bytes())
    there[-40] ^= 1
    file.write_bytes(there)
    assert ("has changed" in error()) if kept else error() is None
    # One that has grown is another one in any case.
    file.write_bytes(there + there)
    assert "has changed" in error()
    # What is divided is read by several tasks, all of which mean the same.
    text = wirerate.jobs.replay_job(policy, [str(file)], any_mac=False, split_bytes=file.stat().st_size - 1, kept=False)
    assert wirerate.jobs.Job(text).data["captures"][0]["sha256"] is not None


@pytest.fixture(scope="module")
def quiet(policy, root, tmp_path_factory):
    """A capture of both sides of a firewall, with no bound on the way that all flows share and that is reached."""
    directory = tmp_path_factory.mktemp("quiet")
    made = scene(directory, root / "policies/firewall.toml", "--like", "office", "--seconds", 4, "--seed", 3)
    return made.captures["lan"]


def test_a_large_capture_is_split_by_flow(cluster, policy, quiet, tmp_path):
    third, half = (-(-quiet.stat().st_size // parts) for parts in (3, 2))
    alone, = wirerate.ray.replay(policy, [quiet], split_bytes=None).to_pylist()
    assert (alone["split"], alone["why"]) == ("file", "no capture was to be split (split_bytes=None)")
    seen = []
    rows = wirerate.ray.replay(policy, [quiet], split_bytes=third, out=tmp_path, progress=lambda *told: seen.append(told))
    row, = rows.to_pylist()
    assert row["error"] is None and row["split"] == "flow" and row["why"].startswith("3 parts: ")
    assert seen == [(0, 1), (1, 1)]
    # The same row, but for how it came about and the most flows at a time.
    expected, found = (json.loads(each.pop("summary")) for each in (alone, row))
    assert expected["flows"].pop("peak") > 0 and found["flows"].pop("peak") is None
    assert found == expected
    assert {**row, "split": None, "why": None} == {**alone, "split": None, "why": None}
    assert row["forwarded"] > 0 and row["dropped"] > 0
    # It is there once all of its parts are.
    assert wirerate.ray.replay(policy, [quiet], split_bytes=third, out=tmp_path, address="nowhere:1").equals(rows)
    # As many parts are another row, as it lacks the most flows at a time.
    job = [wirerate.jobs.Job(wirerate.jobs.replay_job(policy, [str(quiet)], any_mac=False, split_bytes=each)) for each in (third, half)]
    assert job[0].hash(0) != job[1].hash(0)


def test_a_window_of_time_has_the_rows_of_that_window(cluster, policy, quiet, tmp_path):
    third = -(-quiet.stat().st_size // 3)
    expected = wirerate.replay(policy, quiet, start=1, stop=3).summary
    assert 0 < expected["frames"]["received"] < wirerate.replay(policy, quiet).summary["frames"]["received"]
    for split_bytes in (None, third):
        row, = wirerate.ray.replay(policy, [quiet], start=1, stop=3, split_bytes=split_bytes, out=tmp_path).to_pylist()
        assert (row["error"], row["split"]) == (None, "file" if split_bytes is None else "flow")
        assert all(row[name] == count for name, count in expected["frames"].items())
        found = json.loads(row["summary"])
        assert (found["flows"]["peak"] is None) == (split_bytes is not None)
        found["flows"]["peak"] = expected["flows"]["peak"]
        assert found == {key: value for key, value in expected.items() if key not in ("seconds", "mpps")}
    # Rows of other windows are others, with what was planned of the job.
    plans = [wirerate.jobs.replay_job(policy, [str(quiet)], any_mac=False, split_bytes=None, window=window)
        for window in [(None, None), ("1", None), (None, "1"), ("1", "3")]]
    assert len({wirerate.jobs.Job(plan).hash(0) for plan in plans}) == 4
    damaged = {**json.loads(plans[0]), "window": ["soon", None]}
    with pytest.raises(wirerate.JobError, match="is no moment"):
        wirerate.jobs.Job(json.dumps(damaged))
    with pytest.raises(ValueError, match="is no moment"):
        wirerate.ray.replay(policy, [quiet], start="soon", address="nowhere:1")
    # A capture of another time has nothing to play, whole or split.
    rows = [wirerate.ray.replay(policy, [quiet], start=3600, split_bytes=each).to_pylist()[0] for each in (None, third)]
    assert rows[0]["error"] == rows[1]["error"] and "no packet of the captures is in that window" in rows[0]["error"]


def test_parts_that_might_be_another_whole_are_played_whole(cluster, root, quiet):
    text = (root / "policies/firewall.toml").read_text()
    peak = wirerate.replay(wirerate.Policy.parse(text), quiet).summary["flows"]["peak"]
    policy = wirerate.Policy.parse(text.replace("flows = 8192", f"flows = {peak}"), "small.toml")
    row, = wirerate.ray.replay(policy, [quiet], split_bytes=-(-quiet.stat().st_size // 2)).to_pylist()
    assert row["split"] == "file" and "played in 2 parts by flow first, and whole then: the flow table might have been full" in row["why"]
    whole = wirerate.replay(policy, quiet).summary
    assert row["flows"] == whole["flows"]["created"] and json.loads(row["summary"])["flows"]["peak"] == whole["flows"]["peak"] == peak


def test_policies_whose_flows_share_state_are_split_by_file(cluster, office):
    policy = wirerate.Policy.read(office.policy)
    row, = wirerate.ray.replay(policy, [office.captures["lan"]], split_bytes=1000).to_pylist()
    assert row["split"] == "file" and row["why"].startswith("flows share state: translation ")
    with pytest.raises(ValueError, match="split_bytes is 0"):
        wirerate.ray.replay(policy, [office.captures["lan"]], split_bytes=0)


def test_captures_that_break_off_warn_on_the_driver(cluster, policy, quiet, tmp_path):
    broken = tmp_path / "broken.pcapng"
    broken.write_bytes(quiet.read_bytes()[:-100])
    for split_bytes in (None, quiet.stat().st_size // 2):
        with pytest.warns(wirerate.CaptureWarning, match="broken.pcapng is cut short") as caught:
            row, = wirerate.ray.replay(policy, [broken], split_bytes=split_bytes).to_pylist()
        told = [str(each.message) for each in caught if each.category is wirerate.CaptureWarning]
        assert len(told) == 1 and row["warnings"] == told and row["error"] is None
        assert row["split"] == ("file" if split_bytes is None else "flow")


def test_parts_of_a_capture_that_vanishes_are_its_error(cluster, policy, quiet, tmp_path):
    gone = tmp_path / "gone.pcapng"
    shutil.copy(quiet, gone)
    job = wirerate.jobs.Job(wirerate.jobs.replay_job(policy, [str(gone)], any_mac=False, split_bytes=quiet.stat().st_size // 2))
    parts = [job.part(0, 0, 3)]
    gone.unlink()
    parts += [job.part(0, 1, 3), job.part(0, 2, 3)]
    made = job.merged(0, parts)
    assert isinstance(made, dict) and made["lost"] and "No such file" in made["row"]["error"] and made["row"]["split"] == "flow"


def test_ctrl_c_leaves_what_is_done(policy, root, tmp_path):
    code = f"""
import signal, wirerate, wirerate.ray, os
policy, chip = wirerate.Policy.read({str(root / "policies/firewall.toml")!r}), wirerate.Chip.read("ixp2400")
def interrupt(done, all):
    if done:
        signal.raise_signal(signal.SIGINT)
try:
    wirerate.ray.sweep(chip, policy, {STREAM!r}, {{"rules": range(1, 1001)}}, out={str(tmp_path)!r}, task_seconds=0.2, address="local",
        progress=interrupt)
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.stdout == "interrupted\n", done.stderr
    kept = [parquet.read_table(path).num_rows for path in tmp_path.glob("*.parquet")]
    assert kept and sum(kept) < 1000


def test_the_command_has_the_same_rows_on_the_cluster(cluster, root):
    command = os.environ.get("WIRERATE", "wirerate")
    words = [command, "chip", "sweep", "--chip", "ixp2400", "policies/firewall.toml", STREAM, "--vary", "rules=1,2", "--vary",
        "pool.process.threads=1,99", "--repeat", "2"]
    here = {**os.environ, "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
    for form in ([], ["--json"]):
        alone, spread = (subprocess.run([*words, *form, *more], capture_output=True, text=True, cwd=root, env=here)
            for more in ([], ["--ray", cluster.address]))
        assert (spread.returncode, spread.stdout) == (alone.returncode, alone.stdout) == (0, alone.stdout), spread.stderr
    # Neither Python nor the package.
    refused = subprocess.run([*words, "--ray", "auto"], capture_output=True, text=True, cwd=root, env={"PATH": "/nowhere"})
    assert refused.returncode == 1 and "python3 cannot be run" in refused.stderr and "pip install 'wirerate[ray]'" in refused.stderr
