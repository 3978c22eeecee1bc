"""Policies."""

from __future__ import annotations

import json
import operator
import os

from . import _wirerate
from .captures import Captures, Path, file, named
from .errors import Diagnostic, PacketError
from .reports import Check, Diff, Explanation


class Policy:
    """A policy: firewall, NAT, routes, traffic classes, tunnels.

    Policies are values: they do not change, and are equal where they say the same.
    """

    __slots__ = ("_native",)

    _native: _wirerate.Policy

    def __init__(self, native: _wirerate.Policy) -> None:
        self._native = native

    @classmethod
    def read(cls, path: Path) -> Policy:
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
        return tuple(Diagnostic.of(warning) for warning in self._native.warnings)

    def check(self, *, overlaps: bool = False, thorough: bool = False) -> Check:
        """Say what is without effect or unwise: rules that never match, rules and classes that others hide, and more.

        The rules are analysed exactly, for every packet there can be. `wirerate.check` does it for files that have errors.

        Parameters
        ----------
        overlaps : bool
            Note rules that do different things to some packets, too, neither of which matches all that the other does.
        thorough : bool
            Analyse for minutes, if it takes that, and not a second or two.

        Returns
        -------
        Check
        """
        return Check(json.loads(_wirerate.check(self._native, overlaps, thorough)))

    def diff(self, other: Policy, *, regions: int = 100, thorough: bool = False) -> Diff:
        """Say which packets another policy treats differently, or prove that it treats none so.

        Rules, defaults of zones and traffic classes are compared, exactly; what else differs is named.

        Parameters
        ----------
        other : Policy
            The policy as it is to be; this one is the policy as it was.
        regions : int
            The most regions of packets that the report has, of rules and of classes.
        thorough : bool
            Compare for minutes, if it takes that, and not a second or two.

        Returns
        -------
        Diff

        Raises
        ------
        TypeError
            The other is no policy.

        Examples
        --------
        >>> if changes := old.diff(new):  # doctest: +SKIP
        ...     print(changes)
        """
        if not isinstance(other, Policy):
            raise TypeError(f"other is a {type(other).__name__}, not a wirerate.Policy: Policy.read reads one")
        if regions < 0:
            raise ValueError(f"regions is {regions}: 0 or more")
        figures, words, words_of_classes, pieces = _wirerate.diff(self._native, other._native, regions, thorough)
        return Diff(json.loads(figures), words, words_of_classes, pieces)

    def explain(
        self,
        packet: str | tuple[Path, int],
        *,
        interface: str | None = None,
        with_: Captures = (),
        any_mac: bool = False,
        static_keys: bool = False,
    ) -> Explanation:
        """Say what happens to one packet, stage by stage, and why.

        Parameters
        ----------
        packet : str, or tuple of path-like and int
            A packet in words, ``"lan tcp 192.168.1.10:50000 > 198.51.100.7:443 syn"``, and then it is the first that the gateway sees;
            ``print(wirerate.PACKET_SYNTAX)`` has the words. Or a capture and the number of one of its packets, from 1 as in Wireshark,
            and then the packets before it go first, so that it meets the connections that they left.
        interface : str, optional
            The interface that the capture's packets come in by; otherwise inferred as by `replay`.
        with_ : path-like, iterable of path-like, or mapping
            Other captures of the same time, as for `replay`, whose packets come in between.
        any_mac : bool
            Take frames for other machines' link-layer addresses, too.
        static_keys : bool
            Read the keys of tunnels that the policy has in files, as `replay` does.

        Returns
        -------
        Explanation

        Raises
        ------
        PacketError
            The words are not understood, or the capture has no such packet.
        PolicyError
            The policy lacks an interface, has keys of tunnels in files that are not to be read, or asks for more than this machine has.
        ReadError, CaptureError
            A capture cannot be read, or is none.

        Examples
        --------
        >>> print(policy.explain("wan tcp 198.51.100.7:50000 > 203.0.113.2:22 syn"))  # doctest: +SKIP
        >>> policy.explain(("wan.pcapng", 42), with_={"lan": "lan.pcapng"}).verdict  # doctest: +SKIP
        'dropped'
        """
        others = list(named(with_))
        if isinstance(packet, str):
            if interface is not None or others:
                raise TypeError("interface and with_ go with a packet of a capture: words name the interface themselves")
            figures, pieces = _wirerate.explain(self._native, packet, ([], 0, "packet", (None, None)), any_mac, (static_keys, None))
        else:
            try:
                path, number = packet
                number = operator.index(number)
            except (TypeError, ValueError):
                raise TypeError(f"packet is {packet!r}: words, or a tuple of a capture and a number") from None
            if not 1 <= number < 1 << 64:
                raise PacketError(f"{file(path)} has no packet {number}", "packets are numbered from 1")
            captured = [(interface, file(path)), *others], number, "packet", (None, None)
            figures, pieces = _wirerate.explain(self._native, None, captured, any_mac, (static_keys, None))
        return Explanation(json.loads(figures), pieces)

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
