"""Requests of the command ``wirerate``, which runs parts of this package: JSON on standard input; progress and rows in JSON on standard output, a
line each; what is wrong in the last line of standard error that begins with ``error:``. Whatever else is printed goes there, too: Ray tells
of lost nodes on standard output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TextIO

from . import _wirerate
from .chip import Chip
from .errors import Error, VersionError
from .policy import Policy


class Request(NamedTuple):
    """A plan, as the command made it."""

    chip: Chip
    policy: Policy
    traffic: list[tuple[str | None, str]]
    vary: dict[str, list[str]]
    options: dict[str, Any]
    """Options that sweeps and searches have in common, by their names."""
    rest: dict[str, Any]
    """What is asked for beside that."""


_out: TextIO | None = None
"""Standard output, once it is the command's alone."""


def say(**line: Any) -> None:
    """Write a line."""
    print(json.dumps(line), file=_out, flush=True)


def answer(work: Callable[[Request], object]) -> int:
    """Read the request, do the work, and return the exit code."""
    global _out
    if _out is None:
        _out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
    try:
        work(_read())
    except (Error, ImportError, OSError, ValueError, KeyError, TypeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _read() -> Request:
    asked = json.load(sys.stdin)
    if asked["version"] != _wirerate.__version__:
        raise VersionError(f"the command is wirerate {asked['version']}, and the Python package {_wirerate.__version__}")
    chip = Chip(_wirerate.Chip.of(*(tuple(asked.pop(part)) for part in ("chip", "mapping"))))
    file, text = asked.pop("policy")
    traffic, vary = [(interface, item) for interface, item in asked.pop("traffic")], dict(asked.pop("vary"))
    options = {name: asked.pop(name) for name in ("seed", "warm", "repeat", "loss")} | {"ports": dict(asked.pop("ports"))}
    return Request(chip, Policy.parse(text, file), traffic, vary, options, asked)
