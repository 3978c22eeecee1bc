"""Captures played through a policy, and what became of their packets."""

from __future__ import annotations

import contextlib
import datetime
import json
import operator
import os
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Union

from . import _wirerate
from .captures import Captures, Path, named
from .errors import CaptureWarning, PacketError
from .policy import Policy
from .reports import Explanation

if TYPE_CHECKING:
    import pyarrow as pa

Moment = Union[float, str, datetime.datetime]
Window = tuple[Union[str, None], Union[str, None]]
Keys = tuple[bool, Union[str, None]]
Progress = Union[bool, Callable[[int, int], object]]

ROWS = 65_536
"""Rows of a batch, unless something else is asked for."""


def replay(
    policy: Policy,
    captures: Captures,
    *,
    start: Moment | None = None,
    stop: Moment | None = None,
    any_mac: bool = False,
    static_keys: bool = False,
    esp_sa: Path | None = None,
    progress: Progress = False,
    batch_rows: int = ROWS,
) -> Result:
    """Play captures through a policy.

    Nothing is played here: each table of the result is made as it is read, and playing the same captures through the same policy
    gives the same rows each time. Memory is bounded by the batches, the policy's queues and its flow table, however long the
    captures are.

    Parameters
    ----------
    policy : Policy
        The policy.
    captures : path-like, iterable of path-like, or mapping
        Captures in pcap or pcapng. A mapping says the interface that their packets come in by: ``{"lan": "a.pcap"}``, or a list of
        them for each. Without, the interface is inferred as by ``wirerate replay``: from the name in the capture, that of the file,
        or the addresses.
    start, stop : float, str or datetime, optional
        Play packets from ``start`` on, and before ``stop``: seconds from the first packet on, a time of UTC (``2026-11-29T18:30:00Z``) or duration
        (``1m 30s``) as text, or a datetime with a time zone. What was before is unknown: connections that began there have no flow, unless the
        policy says ``pickup = "accept"``.
    any_mac : bool
        Take frames for other machines' link-layer addresses, too.
    static_keys : bool
        Read the keys of tunnels that the policy has in files, by their paths from its directory. Packets encrypted here have the numbers that a live
        gateway with the same keys uses for other packets: whoever has both can read both. For laboratories, and for what is shown to nobody.
    esp_sa : path-like, optional
        Table of security associations with their keys, as Wireshark has it (``esp_sa``), by which ESP in the captures is decrypted. Tunnels of
        the policy whose ends an association has get it, and what comes in by it goes on through the policy; ``esp_sa`` in `Result.summary` counts
        what each decrypted. Keys in files are not needed then: associations without a key drop what comes in by them.
    progress : bool or callable
        True for a progress bar by tqdm, where that is installed; or a function, which is called with the bytes read and the bytes
        of all captures.
    batch_rows : int
        Rows of a batch of `Result.packets`, at least about as many.

    Returns
    -------
    Result

    Raises
    ------
    TypeError
        The captures are no paths.
    ValueError
        ``start`` or ``stop`` is no moment, or a datetime without a time zone.

    When a table is read, further: `WindowError` if no packet is between ``start`` and ``stop``, `PolicyError` of a policy that has keys in files where neither ``static_keys`` nor ``esp_sa`` is given, `ReadError` of a
    file that cannot be read, `TableError` of a table with lines that are no association.

    Examples
    --------
    >>> result = wirerate.replay(policy, {"lan": "lan.pcapng", "wan": "wan.pcapng"})  # doctest: +SKIP
    >>> result.drops.read_pandas().groupby("reason").size()  # doctest: +SKIP
    """
    if not isinstance(policy, Policy):
        raise TypeError(f"policy is a {type(policy).__name__}, not a wirerate.Policy: Policy.read reads one")
    if batch_rows < 1:
        raise ValueError(f"batch_rows is {batch_rows}: a batch has a row or more")
    keys = static_keys, None if esp_sa is None else os.fspath(esp_sa)
    return Result(policy, list(named(captures)), window(start, stop), keys, any_mac, progress, batch_rows)


def window(start: Moment | None, stop: Moment | None) -> Window:
    """Bounds in time, as ``wirerate replay`` takes them."""
    return _moment("start", start), _moment("stop", stop)


def _moment(name: str, moment: Moment | None) -> str | None:
    if moment is None:
        return None
    if isinstance(moment, str):
        _wirerate.check_moment(moment)
        return moment
    if isinstance(moment, datetime.datetime):
        if moment.tzinfo is None:
            raise ValueError(f"{name} has no time zone: {moment}.replace(tzinfo=datetime.timezone.utc) is a time of UTC")
        return moment.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if isinstance(moment, bool) or not isinstance(moment, (int, float)):
        raise TypeError(f"{name} is a {type(moment).__name__}, not a number of seconds, a text or a datetime")
    text = repr(moment)
    _wirerate.check_moment(text)
    return text


class Result:
    """What became of the packets of a replay.

    `packets`, `drops` and `flows` are streams: readers of Arrow record batches, which pandas (``read_pandas``), Polars
    (``polars.from_arrow``), DuckDB and others take without copying. Each access begins anew. `classes` and `queues` are tables,
    and `summary` has what ``wirerate replay --json`` prints.

    A capture that is damaged further in raises `CaptureError` behind the last row before the damage; one that only breaks off warns
    (`CaptureWarning`).
    """

    def __init__(
        self,
        policy: Policy,
        captures: list[tuple[str | None, str]],
        window: Window,
        keys: Keys,
        any_mac: bool,
        progress: Progress,
        batch_rows: int,
    ) -> None:
        self._policy = policy
        self._captures = captures
        self._window = window
        self._keys = keys
        self._any_mac = any_mac
        self._progress = progress
        self._batch_rows = batch_rows
        self._summary: str | None = None

    @property
    def packets(self) -> pa.RecordBatchReader:
        """Packets, a row for each that was received.

        Rows come as fates are known: in the order of arrival, but for packets that waited in a queue. ``number`` counts arrivals, those outside
        a window of time, too: a packet has the same number in each.

        Columns: ``number``, ``time`` (of arrival), ``ingress``, ``egress`` (of the packet, or of the answer to it), ``verdict``
        (forwarded, delivered, answered, dropped, or held at the end), ``reason``, ``rule`` (that decided, or that let the flow in),
        ``nat``, ``class``, ``family`` (4 or 6), ``source``, ``destination``, ``protocol``, ``sport``, ``dport`` (all as the packet
        arrived), ``length`` (on the wire), ``flow`` (``number`` of the packet that opened it; null of a packet without one), ``departure`` and ``delay`` (from
        arrival to departure). Names and addresses are dictionary-encoded.
        """
        return self._reader("packets")

    @property
    def drops(self) -> pa.RecordBatchReader:
        """Packets that were dropped, with the columns of `packets`."""
        return self._reader("drops")

    @property
    def flows(self) -> pa.RecordBatchReader:
        """Flows, a row for each connection tracked, in the order in which they ended; then those that were live at the end.

        Columns: ``flow`` (as in `packets`), ``first`` and ``last`` (times of packets; the latter to a millisecond), ``ingress``, ``egress``, ``end`` (idle,
        closed, ended, evicted or live), ``dnat``, ``snat``, ``protocol``; ``source``, ``destination``, ``sport``, ``dport``,
        ``packets``, ``bytes`` (of IP packets) of the first direction as its packets arrive, and with ``reply_`` before it each of the
        other direction. A stateless policy has no flows.
        """
        return self._reader("flows")

    @property
    def classes(self) -> pa.Table:
        """Traffic classes, in the order of the policy: packets, colours, and of those sent rate, losses and delays."""
        rows = [{"name": name, **_flat(row)} for name, row in self.summary["classes"].items()]
        return _table(rows, [("name", "string"), *((name, "uint64") for name in _CLASS), *_FIGURES])

    @property
    def queues(self) -> pa.Table:
        """Queues of trees, and of ports whose rate is bounded: what they sent and lost, and their delays."""
        rows = [_flat(row) for row in self.summary["queues"]]
        names = [(name, "string") for name in ("interface", "side", "name")]
        return _table(rows, [*names, *((name, "uint64") for name in _QUEUE), *_FIGURES])

    @property
    def summary(self) -> dict[str, Any]:
        """What ``wirerate replay --json`` prints; its manual says what each key is."""
        if self._summary is None:
            for _ in self._play(self._begin("nothing")):
                pass
        assert self._summary is not None
        summary: dict[str, Any] = json.loads(self._summary)
        return summary

    def explain(self, number: int) -> Explanation:
        """Say what happens to a packet of the replay, stage by stage, and why.

        The packets before it are played again, of a window of time those from its beginning, and those after it until it has left.

        Parameters
        ----------
        number : int
            Its ``number`` in `packets` or `drops`.

        Raises
        ------
        PacketError
            There is no such packet, or it is not in the window of time.

        Examples
        --------
        >>> print(result.explain(result.drops.read_pandas()["number"][0]))  # doctest: +SKIP
        """
        number = operator.index(number)
        if not 0 <= number < 1 << 64:
            raise PacketError(f"the replay has no packet {number}", "its packets are numbered from 0")
        captured = self._captures, number, "arrival", self._window
        figures, pieces = _wirerate.explain(self._policy._native, None, captured, self._any_mac, self._keys)
        return Explanation(json.loads(figures), pieces)

    def __repr__(self) -> str:
        captures = ", ".join(path if name is None else f"{name}={path}" for name, path in self._captures)
        return f"<wirerate.Result of {captures} by {self._policy.file}>"

    def _reader(self, table: str) -> pa.RecordBatchReader:
        import pyarrow as pa

        schema = pa.record_batch(_wirerate.empty(table)).schema
        # Opened here, so that a file that is not there is an error of the access and not of the first row.
        played = self._play(self._begin(table))
        return pa.RecordBatchReader.from_batches(schema, (pa.record_batch(batch) for batch in played))

    def _begin(self, table: str) -> _wirerate.Playback:
        return _wirerate.Playback(self._policy._native, self._captures, table, self._any_mac, self._window, self._keys)

    def _play(self, playback: _wirerate.Playback) -> Iterator[_wirerate.Batch]:
        with told_progress(self._progress, "replay", "B") as tell:
            done = False
            while not done:
                batch, done = playback.next(self._batch_rows)
                tell(*playback.progress())
                if batch is not None:
                    yield batch
        self._summary = playback.summary()
        for sentence in playback.cut_short():
            warnings.warn(sentence, CaptureWarning, stacklevel=2)
        playback.check()


@contextlib.contextmanager
def told_progress(progress: Progress, what: str, unit: str) -> Iterator[Callable[[int, int], object]]:
    """A function that tells the progress: what is done, and what there is to do, in bytes (``B``) or other units; 0 where that is unknown."""
    if callable(progress):
        yield progress
        return
    try:
        if not progress:
            raise ImportError
        from tqdm.auto import tqdm
    except ImportError:
        yield lambda read, size: None
        return
    with tqdm(unit=unit, unit_scale=unit == "B", desc=what) as bar:

        def tell(read: int, size: int) -> None:
            bar.total = size or None
            bar.update((min(read, size) if size else read) - bar.n)

        yield tell


_CLASS = ("frames", "bytes", "green", "yellow", "red", "sent", "sent_bytes", "marked")
_QUEUE = ("frames", "bytes", "full", "early", "marked")
_PERCENTILES = [(f"{time}_{of}_ns", "uint64") for time in ("delay", "ipdv") for of in ("p50", "p90", "p95", "p99", "max")]
_FIGURES = [("rate_bps", "uint64"), ("lost", "uint64"), *_PERCENTILES]


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row without objects in it."""
    row = dict(row)
    for time in ("delay", "ipdv"):
        row.update({f"{time}_{of}_ns": value for of, value in row.pop(f"{time}_ns", {}).items()})
    if "lost" in row:
        row["lost"] = sum(row["lost"].values())
    return row


def _table(rows: list[dict[str, Any]], columns: list[tuple[str, str]]) -> pa.Table:
    import pyarrow as pa

    schema = pa.schema([(name, pa.type_for_alias(of)) for name, of in columns])
    return pa.Table.from_pylist(rows, schema=schema)
