"""Addresses of clusters, looked at before Ray is: it waits for minutes for one that does not answer."""

from __future__ import annotations

import os
import pathlib
import socket

from .errors import Error

SECONDS = 5.0
"""Time in which a cluster has to answer."""

# A client's preface of HTTP/2, which gRPC is spoken over, with empty settings (RFC 9113, section 3.4); the server answers with its own.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS = 4
_HINT = "is it up (ray status), and can this machine reach it?"


def check(address: str | None) -> None:
    """Raise an error where nothing answers at the address of a cluster.

    Parameters
    ----------
    address : str, optional
        As for ``ray.init``: ``host:port``, ``ray://host:port``, ``auto``; others are not looked at.

    Raises
    ------
    Error
        There is no cluster.
    """
    found = _found(address)
    if found is None:
        return
    host, port = found
    where = f"no Ray cluster answers at {address if address not in (None, 'auto') else f'{host}:{port}'}"
    try:
        with socket.create_connection((host, port), timeout=SECONDS) as connection:
            if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
                return
            connection.sendall(_PREFACE)
            header = b""
            while len(header) < 9 and (more := connection.recv(9 - len(header))):
                header += more
    except TimeoutError:
        raise Error(f"{where} within {SECONDS:.0f} s: {_HINT}") from None
    except OSError as error:
        raise Error(f"{where}: {error.strerror or error}: {_HINT}") from None
    if len(header) < 9 or header[3] != _SETTINGS:
        raise Error(f"{where}: what listens there does not speak gRPC")


def _found(address: str | None) -> tuple[str, int] | None:
    """Host and port of an address, if it has any."""
    address = address or os.environ.get("RAY_ADDRESS")
    if address == "auto":
        # Where Ray notes the cluster that was begun last on this machine.
        noted = pathlib.Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")
        try:
            address = noted.read_text().strip()
        except OSError:
            return None
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or "/" in host:
        return None
    return host.strip("[]"), int(port)
