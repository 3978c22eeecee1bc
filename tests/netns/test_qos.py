"""Trees of queues live: rates by the machine's clock, priority of a class over a backlog, and the counts that are told."""

import json
import socket
import time

import pytest
import wait
from stamp import none_is_early, opened, receive
from topology import REMOTE

pytestmark = pytest.mark.without("nftables", why="the gateway's queues bypass those of Linux")

VOICE, BULK = 5070, 5071
EF = 46
BYTES = 1_000
GAP = 0.001
"""Seconds that a packet takes of 8 Mbit/s."""
HEADERS = 28


@pytest.fixture(autouse=True)
def queues(net):
    net.client.reaches(REMOTE)
    net.office.apply("queues")
    yield
    net.office.apply()


def told(net):
    views = json.loads(net.office.ask("queues", "--json").stdout)
    return {leaf["name"]: leaf for view in views for leaf in view["queues"]}


def burst(sender, address, count):
    for _ in range(count):
        sender.sendto(bytes(BYTES - HEADERS), address)


def test_packets_leave_at_the_rate_of_the_root(net):
    with opened(net.remote, REMOTE, BULK) as remote, opened(net.client, None, 0) as client:
        began = time.time()
        burst(client, (REMOTE, BULK), 500)
        none_is_early(receive(remote, 500), began, GAP)
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
        began = time.time()
        burst(remote, source, 500)
        none_is_early(receive(client, 500), began, GAP)
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
