"""Trees of queues live: rates by the machine's clock, priority of a class over a backlog, and the counts that are told."""

import json
import socket
import time

import pytest
import wait
from stamp import none_is_early, opened, receive
from topology import CLIENT, REMOTE

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
    views = json.loads(net.office.ask("queues", "--json", "--seconds", "0").stdout)
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


def watched(net, *words):
    return json.loads(net.office.ask("queues", "--json", *words).stdout)


def is_about_the_root(rate):
    """True for 8 Mbit/s, of which a late look takes a part, and to which a late worker adds."""
    return 4e6 < rate < 16e6


def test_rate_backlog_and_delay_are_told_while_packets_wait(net):
    with opened(net.remote, REMOTE, BULK) as remote, opened(net.client, None, 0) as client:
        client.sendto(b"open", (REMOTE, BULK))
        receive(remote, 1)
        burst(client, (REMOTE, BULK), 1_900)
        views = watched(net, "--seconds", "0.5")
        (rest,) = [leaf for view in views for leaf in view["queues"] if leaf["name"] == "rest"]
        now = rest["now"]
        assert is_about_the_root(now["rate_bps"]), now
        assert 100_000_000 < now["delay"]["p50"] <= now["delay"]["p99"] <= now["delay"]["max"]
        assert rest["waiting"] > 100 and rest["waiting_bytes"] == BYTES * rest["waiting"]
        told = json.loads(net.office.ask("explain", "--live", "--json", f"lan udp {CLIENT}:40123 > {REMOTE}:{BULK}").stdout)
        (queue,) = told["queues"]
        assert (queue["name"], queue["is_full"], queue["limit"]) == ("rest", False, 2000)
        assert 0 < queue["waiting"] <= rest["waiting"] and queue["now"]["delay"]["p50"] > now["delay"]["p50"]
        receive(remote, 1_900)
    table = net.office.ask("queues", "--seconds", "0.2").stdout
    assert "rest" in table and "p99 ms" in table, table


def test_subscribers_are_listed_by_rate_and_by_backlog(net):
    net.office.apply("subscribers")
    with opened(net.remote, REMOTE, BULK) as remote, opened(net.client, None, 0) as client:
        client.sendto(b"open", (REMOTE, BULK))
        receive(remote, 1)
        burst(client, (REMOTE, BULK), 2_000)
        for words in [("--by", "rate"), ("--by", "backlog"), ("--of", "subscriber")]:
            first, *_ = watched(net, "--subscribers", "5", "--seconds", "0.3", *words)
            assert (first["subscriber"], first["queue"], first["side"]) == (CLIENT, "subscriber", "on")
            assert is_about_the_root(first["rate_bps"]), first
            assert first["waiting"] > 0 and first["waiting_bytes"] == BYTES * first["waiting"]
            assert first["sent"]["packets"] > 0 and first["delay_ns"] > 10_000_000
            assert 10_000_000 < first["delay"]["p50"] <= first["delay"]["p99"] <= 2**32
        receive(remote, 2_000)
    refused = net.office.ask("queues", "--subscribers", "5", "--of", "uplink", check=False)
    assert refused.returncode != 0 and "no queue" in refused.stdout, refused.stdout


def test_metrics_have_queues(net):
    with opened(net.remote, REMOTE, BULK) as remote, opened(net.client, None, 0) as client:
        burst(client, (REMOTE, BULK), 10)
        receive(remote, 10)
    words = ["curl", "-s", "-m", "5", "--unix-socket", net.office.socket, "http://gateway/metrics"]
    text = net.office.host.run(*words).stdout
    for name in ["queue_packets_total", "queue_waiting_bytes", "queue_delay_p50_nanoseconds", "queue_subscribers"]:
        assert f'wirerate_{name}{{queue="wan on rest"}}' in text, text
