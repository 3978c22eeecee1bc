"""wirerate: a network processor in software.

>>> import wirerate
>>> policy = wirerate.Policy.read("home-office.toml")  # doctest: +SKIP
>>> result = wirerate.replay(policy, ["lan.pcapng", "wan.pcapng"])  # doctest: +SKIP
>>> result.packets.read_pandas().verdict.value_counts()  # doctest: +SKIP

Importing is quick: NumPy and PyArrow are loaded when they are first needed.
"""

from ._wirerate import __version__
from .chip import Chip, Report, Search, chips, reproduce
from .errors import (
    CaptureError,
    CaptureWarning,
    ChipError,
    Diagnostic,
    Error,
    GridError,
    JobError,
    PolicyError,
    ReadError,
    TableError,
    VersionError,
)
from .policy import Policy
from .results import Result, replay
from .rules import classify

__all__ = [
    "CaptureError",
    "CaptureWarning",
    "Chip",
    "ChipError",
    "Diagnostic",
    "Error",
    "GridError",
    "JobError",
    "Policy",
    "PolicyError",
    "ReadError",
    "Report",
    "Result",
    "Search",
    "TableError",
    "VersionError",
    "__version__",
    "chips",
    "classify",
    "replay",
    "reproduce",
]
