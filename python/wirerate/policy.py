"""Policies."""

from __future__ import annotations

import os

from . import _wirerate
from .errors import Diagnostic


class Policy:
    """A policy: firewall, NAT, routes, traffic classes, tunnels.

    Policies are values: they do not change, and are equal where they say the same.
    """

    __slots__ = ("_native",)

    _native: _wirerate.Policy

    def __init__(self, native: _wirerate.Policy) -> None:
        self._native = native

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Policy:
        """Read a policy from its file.

        Parameters
        ----------
        path : path-like
            A policy in TOML.

        Raises
        ------
        PolicyError
            The policy is wrong; `PolicyError.diagnostics` says all that is.
        ReadError
            The file cannot be read.
        """
        return cls(_wirerate.Policy.read(os.fspath(path)))

    @classmethod
    def parse(cls, text: str, file: str = "<text>") -> Policy:
        """Read a policy from its text.

        Parameters
        ----------
        text : str
            TOML.
        file : str
            Name of the text in diagnostics.

        Raises
        ------
        PolicyError
            The policy is wrong.
        """
        return cls(_wirerate.Policy.parse(text, file))

    @property
    def file(self) -> str:
        """Name of the file that the policy was read from."""
        return self._native.file

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """What was noticed on reading, and does not make the policy wrong."""
        return tuple(Diagnostic(*warning) for warning in self._native.warnings)

    def to_toml(self) -> str:
        """Return the policy as canonical TOML, which reads as an equal policy."""
        return self._native.to_toml()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Policy):
            return NotImplemented
        return self._native.equals(other._native)

    # The text is long to make, and nothing keeps policies in sets.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<wirerate.Policy {self.file}: {self._native.outline}>"
