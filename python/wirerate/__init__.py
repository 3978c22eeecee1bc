"""wirerate: a network processor in software.

>>> import wirerate
>>> policy = wirerate.Policy.read("home-office.toml")  # doctest: +SKIP
>>> result = wirerate.replay(policy, ["lan.pcapng", "wan.pcapng"])  # doctest: +SKIP
>>> result.packets.read_pandas().verdict.value_counts()  # doctest: +SKIP

Importing is quick: NumPy and PyArrow are loaded when they are first needed.
"""

from ._wirerate import __version__
from .rules import classify
from .errors import CaptureError, CaptureWarning, Diagnostic, Error, PolicyError, ReadError
from .policy import Policy
from .results import Result, replay

__all__ = [
    "CaptureError",
    "CaptureWarning",
    "Diagnostic",
    "Error",
    "Policy",
    "PolicyError",
    "ReadError",
    "Result",
    "__version__",
    "classify",
    "replay",
]
