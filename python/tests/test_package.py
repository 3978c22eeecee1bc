"""The package itself: its types, its examples, and what importing it takes."""

from __future__ import annotations

import doctest
import json
import pickle
import subprocess
import sys

import wirerate
import wirerate.rules


def test_importing_loads_neither_numpy_nor_pyarrow():
    code = """
import sys, time
begun = time.perf_counter()
import wirerate
print(round((time.perf_counter() - begun) * 1e3), [name for name in ("numpy", "pyarrow", "pandas", "tqdm") if name in sys.modules])
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    milliseconds, heavy = out.split(" ", 1)
    # Seen with -s: on an idle machine 18 ms of processor time.
    print(f"import wirerate: {milliseconds} ms")
    assert json.loads(heavy) == []


def test_stubs_are_those_of_the_native_module():
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "wirerate._wirerate"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_types_hold():
    options = ["--strict", "--ignore-missing-imports", "--package", "wirerate"]
    done = subprocess.run([sys.executable, "-m", "mypy", *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_examples_of_the_documentation_run():
    for module in (wirerate, wirerate.rules):
        failed, _ = doctest.testmod(module, extraglobs={"wirerate": wirerate})
        assert failed == 0
    assert doctest.testmod(wirerate.rules, extraglobs={"wirerate": wirerate}).attempted > 2


def test_errors_are_pickled_for_other_processes():
    error = wirerate.PolicyError("wrong", (wirerate.Diagnostic("code", "error", "message", None, "file", 1, 2),))
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.diagnostics) == (str(error), error.diagnostics)
    again = pickle.loads(pickle.dumps(wirerate.CaptureError("damaged", "lan.pcap")))
    assert (str(again), again.path) == ("damaged", "lan.pcap")


def test_what_libraries_print_does_not_come_between_the_lines_for_the_command():
    """Ray tells of lost nodes on standard output."""
    code = """
import os, sys
from wirerate import request
request._read = lambda: None
def work(_):
    request.say(done=1)
    print("(raylet) The node has been marked dead")
    os.write(1, b"as have others\\n")
    request.say(done=2)
sys.exit(request.answer(work))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [{"done": 1}, {"done": 2}]
    assert {"(raylet) The node has been marked dead", "as have others"} == set(done.stderr.splitlines())
