"""wirerate: a network processor in software.

>>> import wirerate
>>> policy = wirerate.Policy.read("home-office.toml")  # doctest: +SKIP
>>> result = wirerate.replay(policy, ["lan.pcapng", "wan.pcapng"])  # doctest: +SKIP
>>> result.packets.read_pandas().verdict.value_counts()  # doctest: +SKIP

Importing is quick: NumPy and PyArrow are loaded when they are first needed.
"""

from ._wirerate import PACKET_SYNTAX, __version__
from .chip import Chip, Report, Search, chips, reproduce
from .errors import (
    CaptureError,
    CaptureWarning,
    ChipError,
    Diagnostic,
    Error,
    GridError,
    JobError,
    PacketError,
    PolicyError,
    ReadError,
    Related,
    TableError,
    VersionError,
    WindowError,
)
from .pareto import Front, optimise
from .policy import Policy
from .reports import Check, Diff, Explanation, check, check_text
from .results import Result, replay
from .rules import classify

__all__ = [
    "PACKET_SYNTAX",
    "CaptureError",
    "CaptureWarning",
    "Check",
    "Chip",
    "ChipError",
    "Diagnostic",
    "Diff",
    "Error",
    "Explanation",
    "Front",
    "GridError",
    "JobError",
    "PacketError",
    "Policy",
    "PolicyError",
    "ReadError",
    "Related",
    "Report",
    "Result",
    "Search",
    "TableError",
    "VersionError",
    "WindowError",
    "__version__",
    "check",
    "check_text",
    "chips",
    "classify",
    "optimise",
    "replay",
    "reproduce",
]
