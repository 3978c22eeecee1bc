"""What all tests use: the project's own files, its command, and captures that it made."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
from typing import Any, NamedTuple

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def root() -> pathlib.Path:
    """The root of the project."""
    return ROOT


def wirerate(*arguments: object) -> str:
    """Runs the command, which says the same of the same captures, and returns what it printed."""
    command = os.environ.get("WIRERATE", "wirerate")
    done = subprocess.run([command, *map(str, arguments)], capture_output=True, text=True, check=True)
    return done.stdout


class Scene(NamedTuple):
    """A policy and captures, and what the command made of them."""

    policy: pathlib.Path
    captures: dict[str, pathlib.Path]
    told: dict[str, Any]
    out: pathlib.Path


def scene(directory: pathlib.Path, policy: pathlib.Path, *generated: object) -> Scene:
    """Captures that are generated for a policy, and replayed by the command."""
    wirerate("generate", "traffic", *generated, "--policy", policy, "--out", directory)
    captures = {path.stem: path for path in sorted(directory.glob("*.pcapng"))}
    named = [f"{name}={path}" for name, path in captures.items()]
    out = directory / "out"
    told = json.loads(wirerate("replay", policy, *named, "--json", "--out", out))
    return Scene(policy, captures, told, out)


@pytest.fixture(scope="session")
def office(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """A home office."""
    policy = ROOT / "policies/home-office.toml"
    return scene(tmp_path_factory.mktemp("office"), policy, "--like", "office", "--seconds", 4, "--seed", 1)


@pytest.fixture(scope="session")
def diffserv(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """A router with classes and trees of queues."""
    policy = ROOT / "policies/diffserv-edge.toml"
    return scene(tmp_path_factory.mktemp("diffserv"), policy, "--like", "office", "--seconds", 2, "--seed", 2)
