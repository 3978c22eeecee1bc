"""Trees of queues with two workers: one serves a tree for both, so that a host has its whole rate and a class its priority, whichever
worker decides on a packet; or each serves one of its own with half of the rates."""

import json
import socket

import pytest
import wait
from test_qos import (
    BULK,
    EF,
    VOICE,
    burst,
    opened,
    queues,
    receive,
    test_a_class_passes_a_backlog,
    test_packets_leave_at_the_rate_of_the_root,
    test_what_comes_by_an_interface_is_shaped,
    test_what_waits_survives_another_policy,
    told,
)
from topology import REMOTE

VARIANTS = ["two-workers"]

pytestmark = pytest.mark.without("nftables", why="Linux has no workers to set")

# Flows belong to a worker by their source: eight of these are not all of one.
SOURCES = [f"192.168.1.{number}" for number in range(100, 108)]


@pytest.fixture(scope="module")
def sources(net):
    net.client.ip(*[f"addr add {source}/24 dev eth0" for source in SOURCES])
    yield SOURCES
    net.client.ip(*[f"addr del {source}/24 dev eth0" for source in SOURCES])


def by_worker(net):
    """Packets that each worker has received or taken from the other, and those that it has handed off."""
    workers = json.loads(net.office.ask("status", "--json").stdout)["workers"]
    return [(worker["received"], worker["given"], worker["taken"]) for worker in workers]


def span(net, sources, count):
    """Seconds between the first and the last of so many packets of each source, sent at once."""
    with opened(net.remote, REMOTE, BULK) as remote:
        senders = [opened(net.client, source, 0) for source in sources]
        for _ in range(count):
            for sender in senders:
                burst(sender, (REMOTE, BULK), 1)
        moments = receive(remote, count * len(senders))
        for sender in senders:
            sender.close()
    return moments[-1] - moments[0]


def test_hosts_of_both_workers_share_one_rate(net, sources):
    before = by_worker(net)
    # 640 packets of a millisecond.
    assert span(net, sources, 80) > 0.55
    after = by_worker(net)
    # The tree is the first worker's, the second has decided on some of them.
    assert after[1][1] > before[1][1] and after[0][2] > before[0][2], (before, after)
    views = json.loads(net.office.ask("queues", "--json").stdout)
    assert {view["interface"]: view["worker"] for view in views}["wan"] == 0


def test_a_host_has_the_whole_rate(net, sources):
    # Half of it, as of a divided tree, would take a second.
    for source in sources[:4]:
        assert 0.4 < span(net, [source], 500) < 0.9, source


def test_a_host_has_half_of_a_divided_rate(net, sources):
    net.office.apply("queues", "divided")
    for source in sources[:4]:
        assert span(net, [source], 300) > 0.5, source
    views = json.loads(net.office.ask("queues", "--json").stdout)
    assert {view["interface"]: view["worker"] for view in views}["wan"] is None


def test_a_class_of_one_worker_passes_a_backlog_of_the_other(net, sources):
    with (
        opened(net.remote, REMOTE, BULK) as bulk,
        opened(net.remote, REMOTE, VOICE) as voice,
        opened(net.client, None, 0) as client,
    ):
        callers = [opened(net.client, source, 0) for source in sources]
        for caller in callers:
            caller.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, EF << 2)
            caller.sendto(b"open", (REMOTE, VOICE))
        receive(voice, len(callers))
        burst(client, (REMOTE, BULK), 600)
        for caller in callers:
            caller.sendto(b"call", (REMOTE, VOICE))
        came = receive(voice, len(callers))[-1]
        moments = receive(bulk, 600)
        assert sum(moment > came for moment in moments) > 300
        for caller in callers:
            caller.close()


def test_what_waits_goes_on_from_one_to_each_and_back(net, sources):
    with opened(net.remote, REMOTE, BULK) as remote:
        senders = [opened(net.client, source, 0) for source in sources]
        for variants in (["queues", "divided"], ["queues"], ["queues", "divided"], []):
            for sender in senders:
                burst(sender, (REMOTE, BULK), 40)
            wait.until(lambda: told(net)["rest"]["waiting"] > 0, "packets wait")
            net.office.apply(*variants)
            receive(remote, 40 * len(senders))
        for sender in senders:
            sender.close()


__all__ = [
    "queues",
    "test_a_class_passes_a_backlog",
    "test_packets_leave_at_the_rate_of_the_root",
    "test_what_comes_by_an_interface_is_shaped",
    "test_what_waits_survives_another_policy",
]
