"""Rules searched for many headers at once."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Union

from . import _wirerate
from .errors import ReadError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Rules = Union[str, "os.PathLike[str]", Iterable[str]]

_CHUNK = 1 << 20
"""Headers between two looks at signals."""

_COLUMNS = {"src": ("uint32", "an IPv4 address"), "dst": ("uint32", "an IPv4 address"), "sport": ("uint16", "a port"),
            "dport": ("uint16", "a port"), "protocol": ("uint8", "a protocol number"), "tcp_flags": ("uint8", "TCP flags")}
_OPTIONAL = "tcp_flags"


def classify(rules: Rules, headers: Any, *, algorithm: str | None = None) -> npt.NDArray[np.int32]:
    """Find the first rule that matches each header.

    Parameters
    ----------
    rules : path-like or iterable of str
        A ClassBench filter set: the path of its file, or its lines.
    headers : mapping, structured array, DataFrame or Arrow table
        Columns ``src``, ``dst`` (uint32; for IPv6 16 bytes in the order of the network: a column of shape (n, 16) and dtype uint8),
        ``sport``, ``dport`` (uint16), ``protocol`` (uint8) and, if the rules ask for them, ``tcp_flags`` (uint8). Of ICMP, ``dport``
        is type * 256 + code.
    algorithm : str, optional
        ``linear``, ``coded``, ``range_match``, ``tuple``, ``bdd`` or ``tree``; otherwise the one that a policy with these rules
        would be compiled to. All answer alike.

    Returns
    -------
    ndarray of int32
        Positions of rules, from 0; -1 where none matches.

    Raises
    ------
    ReadError
        The file of the rules cannot be read.
    PolicyError
        A rule cannot be understood, or the algorithm would take too much memory for the rules.
    TypeError
        A column is missing or of another type.

    Examples
    --------
    >>> import numpy as np
    >>> rules = ["@10.0.0.0/8 0.0.0.0/0 0 : 65535 22 : 22 0x06/0xff", "@10.0.0.0/8 0.0.0.0/0 0 : 65535 0 : 65535 0x00/0x00"]
    >>> headers = {"src": np.array([0x0A000001, 0x0A000001, 0], np.uint32), "dst": np.zeros(3, np.uint32),
    ...            "sport": np.zeros(3, np.uint16), "dport": np.array([22, 23, 22], np.uint16),
    ...            "protocol": np.full(3, 6, np.uint8)}
    >>> wirerate.classify(rules, headers)
    array([ 0,  1, -1], dtype=int32)
    """
    import numpy as np

    if isinstance(rules, (str, os.PathLike)):
        file = os.fspath(rules)
        text = _read(file)
    else:
        file, text = "rules", "\n".join(rules).encode()
    search = _wirerate.Classifier(text, file, algorithm)
    columns = {name: _column(headers, name) for name in _COLUMNS}
    lengths = {name: len(column) for name, column in columns.items() if column is not None}
    count = lengths["src"]
    for name, length in lengths.items():
        if length != count:
            raise TypeError(f'column "{name}" has {length} values, "src" has {count}')
    if columns["src"].ndim != columns["dst"].ndim:
        raise TypeError('columns "src" and "dst" are of different IP versions')
    found = np.empty(count, np.int32)
    for first in range(0, count, _CHUNK):
        part = slice(first, first + _CHUNK)
        chunk = {name: None if column is None else column[part].tobytes() for name, column in columns.items()}
        chunk["source"], chunk["destination"] = chunk.pop("src"), chunk.pop("dst")
        found[part] = np.frombuffer(search.positions(chunk), np.int32)
    return found


def _read(file: str) -> bytes:
    try:
        with open(file, "rb") as opened:
            return opened.read()
    except OSError as error:
        raise ReadError(error.errno, error.strerror, file) from None


def _column(headers: Any, name: str) -> Any:
    """The column of that name as an array of its type; none where it may be left out."""
    import numpy as np

    dtype, what = _COLUMNS[name]
    try:
        column = headers[name]
    except (KeyError, ValueError, IndexError, TypeError):
        if name == _OPTIONAL:
            return None
        raise TypeError(f'column "{name}" is missing: {what} for each header, {dtype}') from None
    column = np.asarray(column)
    is_v6 = name in ("src", "dst") and column.dtype == np.uint8 and column.ndim == 2 and column.shape[1] == 16
    if not is_v6 and (column.dtype.newbyteorder("=") != np.dtype(dtype) or column.ndim != 1):
        shape = "" if column.ndim == 1 else f" of {column.ndim} dimensions"
        raise TypeError(f'column "{name}" is {column.dtype}{shape}, not {dtype}: {what} for each header')
    # Whatever the order of bytes was, it is the machine's from here on.
    return column if is_v6 else column.astype(dtype, copy=False)
