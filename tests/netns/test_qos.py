"""Trees of queues live: rates by the machine's clock, priority of a class over a backlog, and the counts that are told."""

import json
import socket
import struct

import pytest
import wait
from topology import REMOTE

pytestmark = pytest.mark.without("nftables", why="the gateway's queues bypass those of Linux")

VOICE, BULK = 5070, 5071
EF = 46
# 1,000 bytes take a millisecond.
BYTES = 1_000
HEADERS = 28
SO_TIMESTAMPNS = 35


@pytest.fixture(autouse=True)
def queues(net):
    net.client.reaches(REMOTE)
    net.office.apply("queues")
    yield
    net.office.apply()


def told(net):
    views = json.loads(net.office.ask("queues", "--json").stdout)
    return {leaf["name"]: leaf for view in views for leaf in view["queues"]}


def receive(opened, count):
    """Moments at which so many packets came, by the kernel."""
    moments = []
    for _ in range(count):
        _, control, *_ = opened.recvmsg(2048, 64)
        stamp = next(value for _, kind, value in control if kind == SO_TIMESTAMPNS)
        seconds, nanoseconds = struct.unpack("qq", stamp)
        moments.append(seconds + nanoseconds / 1e9)
    return moments


def burst(sender, address, count):
    for _ in range(count):
        sender.sendto(bytes(BYTES - HEADERS), address)


def opened(host, address, port):
    made = host.udp(address, port)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    made.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    made.settimeout(5)
    return made


def test_packets_leave_at_the_rate_of_the_root(net):
    with opened(net.remote, REMOTE, BULK) as remote, opened(net.client, None, 0) as client:
        burst(client, (REMOTE, BULK), 500)
        moments = receive(remote, 500)
    # Whoever is busy may be late, with the first as with the last.
    assert moments[-1] - moments[0] > 0.4
    rest = told(net)["rest"]
    assert rest["sent"]["packets"] >= 500 and rest["waiting"] == 0
    assert rest["delay"]["p99"] > 100_000_000


def test_a_class_passes_a_backlog(net):
    with (
        opened(net.remote, REMOTE, BULK) as bulk,
        opened(net.remote, REMOTE, VOICE) as voice,
        opened(net.client, None, 0) as client,
        opened(net.client, None, 0) as caller,
    ):
        caller.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, EF << 2)
        caller.sendto(b"open", (REMOTE, VOICE))
        receive(voice, 1)
        burst(client, (REMOTE, BULK), 600)
        caller.sendto(b"call", (REMOTE, VOICE))
        (came,) = receive(voice, 1)
        # 0.6 s of others' packets wait; most of them come later.
        moments = receive(bulk, 600)
        assert sum(moment > came for moment in moments) > 300
    assert told(net)["voice"]["sent"]["packets"] >= 2


def test_what_comes_by_an_interface_is_shaped(net):
    with opened(net.remote, REMOTE, BULK) as remote, opened(net.client, None, 0) as client:
        client.sendto(b"open", (REMOTE, BULK))
        _, source = remote.recvfrom(64)
        burst(remote, source, 500)
        moments = receive(client, 500)
    assert moments[-1] - moments[0] > 0.4
    assert told(net)["downlink"]["sent"]["packets"] >= 500


def test_what_waits_survives_another_policy(net):
    with opened(net.remote, REMOTE, BULK) as remote, opened(net.client, None, 0) as client:
        client.sendto(b"open", (REMOTE, BULK))
        receive(remote, 1)
        burst(client, (REMOTE, BULK), 300)
        wait.until(lambda: told(net)["rest"]["waiting"] > 0, "packets wait")
        # Other queues, then none: all that waited goes on.
        net.office.apply()
        receive(remote, 300)
