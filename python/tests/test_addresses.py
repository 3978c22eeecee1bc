"""Addresses at which there is no cluster are errors within seconds."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest

import wirerate
from wirerate import addresses


@contextlib.contextmanager
def server(answer):
    """A server that reads, and answers with these bytes; None if it does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def serve():
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(100)
                    if answer is None:
                        connection.recv(100)
                    else:
                        connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.close()
        thread.join()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "ray://127.0.0.1:{}", "[::ffff:127.0.0.1]:{}"])
def test_nobody_listens(form):
    address = form.format(free_port())
    begun = time.monotonic()
    with pytest.raises(wirerate.Error) as refused:
        addresses.check(address)
    assert str(refused.value).startswith(f"no Ray cluster answers at {address}: Connection refused: is it up")
    assert time.monotonic() - begun < 2 * addresses.SECONDS


def test_there_is_no_such_host():
    with pytest.raises(wirerate.Error, match="no Ray cluster answers at nowhere.invalid:6379: "):
        addresses.check("nowhere.invalid:6379")


def test_something_else_listens(monkeypatch):
    with server(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port, pytest.raises(wirerate.Error, match="does not speak gRPC"):
        addresses.check(f"127.0.0.1:{port}")
    with server(b"") as port, pytest.raises(wirerate.Error, match="does not speak gRPC"):
        addresses.check(f"127.0.0.1:{port}")
    monkeypatch.setattr(addresses, "SECONDS", 0.2)
    with server(None) as port, pytest.raises(wirerate.Error, match="within 0 s"):
        addresses.check(f"127.0.0.1:{port}")


def test_a_server_of_grpc_answers_with_settings():
    with server(bytes([0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100])) as port:
        addresses.check(f"127.0.0.1:{port}")


def test_the_address_may_come_from_elsewhere(monkeypatch, tmp_path):
    port = free_port()
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
    with pytest.raises(wirerate.Error, match=f"at 127.0.0.1:{port}"):
        addresses.check(None)
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text(f"127.0.0.1:{port}\n")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(wirerate.Error, match=f"at 127.0.0.1:{port}"):
        addresses.check("auto")
    monkeypatch.delenv("RAY_ADDRESS")
    for address in (None, "local", "anyscale://cluster:1"):
        addresses.check(address)


def test_a_sweep_asks_first():
    pytest.importorskip("ray")
    import wirerate.ray

    begun = time.monotonic()
    with pytest.raises(wirerate.Error, match="no Ray cluster answers at 127.0.0.1:1: "):
        with wirerate.ray.cluster("127.0.0.1:1"):
            pass
    assert time.monotonic() - begun < 30
