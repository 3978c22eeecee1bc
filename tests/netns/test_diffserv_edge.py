"""The DiffServ edge router of `policies/diffserv-edge.toml`, live: voice, assured and best-effort flows of real hosts through a port that is
overloaded.

    customer 192.0.2.17 .33 .129 .200 ── customers GATEWAY core ── router 203.0.113.1/30, and 198.51.100.7 behind it

The policy is the example's but for the driver and the rate of the port, which is such that a busy machine can overload it.
"""

import itertools
import json
import os
import shutil
import socket
import tempfile
import time
from pathlib import Path

import gateway as gateways
import pytest
import wait
from host import Host

TELEPHONE, GOLD, BRONZE, OTHER = "192.0.2.17", "192.0.2.33", "192.0.2.129", "192.0.2.200"
REMOTE = "198.51.100.7"
VOICE, BULK, MAIL, WEB = 20_000, 20_100, 20_101, 20_102
EF, AF11, AF12, AF31, AF32, AF33 = 46, 10, 12, 26, 28, 30
EXAMPLE = gateways.ROOT / "policies/diffserv-edge.toml"

_runs = itertools.count(1)


class Provider:
    """The hosts and their cables; `close` takes them down."""

    mtu = 1500
    guests = "lan"

    def __init__(self):
        self.logs = Path(tempfile.mkdtemp(prefix="diffserv-"))
        prefix = f"wd{os.getpid()}-{next(_runs)}"
        self.hosts = []
        for name in ["gateway", "customer", "router"]:
            host = Host(f"{prefix}-{name}", self.logs)
            self.hosts.append(host)
            setattr(self, name, host)
        self.gateway.sysctl({"net/ipv6/conf/all/forwarding": 0, "net/ipv4/ip_forward": 0})
        for interface, there in [("customers", self.customer), ("core", self.router)]:
            queues = "numrxqueues 2 numtxqueues 2"
            self.gateway.ip(
                f"link add {interface} {queues} type veth peer name eth0 {queues} netns {there.namespace}",
                f"link set {interface} up",
            )
            there.ip("link set eth0 up")
        self.customer.ip(
            *[f"addr add {address}/24 dev eth0" for address in [TELEPHONE, GOLD, BRONZE, OTHER]],
            "route add default via 192.0.2.1",
        )
        self.router.ip(
            "addr add 203.0.113.1/30 dev eth0",
            "link add behind type veth peer name unused",
            "link set behind up",
            f"addr add {REMOTE}/32 dev behind",
            "route add 192.0.2.0/24 via 203.0.113.2",
        )

    def close(self):
        for host in reversed(self.hosts):
            host.close()


class Edge(gateways.Wirerate):
    def __init__(self, net, driver):
        super().__init__(net)
        self.name = f"wirerate-{driver}"
        self.driver = driver

    def write(self, *_):
        text = EXAMPLE.read_text()
        for was, slower in [("100 Mbit/s", "6 Mbit/s"), ('rate = "20 Mbit/s"\nlimit', 'rate = "2 Mbit/s"\nlimit')]:
            assert was in text
            text = text.replace(was, slower)
        self.policy.write_text(f'{text}\n[gateway]\ndriver = "{self.driver}"\n')


@pytest.fixture(scope="module", params=["packet", "xdp"])
def provider(request):
    if lacking := gateways.missing(f"wirerate-{request.param}"):
        pytest.skip(f"SKIPPED: {lacking}")
    made = Provider()
    made.office = Edge(made, request.param)
    try:
        made.office.start()
        made.customer.reaches("192.0.2.1")
        yield made
        print(made.office.evidence())
    finally:
        made.office.stop()
        made.close()
        shutil.rmtree(made.logs, ignore_errors=True)


def told(net):
    views = json.loads(net.office.ask("queues", "--json").stdout)
    return {leaf["name"]: leaf for view in views for leaf in view["queues"]}


def listen(net, port):
    opened = net.router.udp(REMOTE, port)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    opened.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
    opened.settimeout(0.01)
    return opened


def take(opened, into):
    """Adds what has come: its number, and its code point."""
    while True:
        try:
            data, control, *_ = opened.recvmsg(2048, 64)
        except TimeoutError:
            return
        tos = next(value[0] for _, kind, value in control if kind == socket.IP_TOS)
        into.append((int.from_bytes(data[:4], "big"), tos >> 2))


def test_an_overload_is_best_effort_s_alone(provider):
    # Source, port, bytes of the packet, packets each 10 ms: 160 kbit/s, 1.6, 1.6 and 12.8 Mbit/s through 6 Mbit/s.
    flows = [(TELEPHONE, VOICE, 200, 1), (GOLD, BULK, 1_000, 2), (BRONZE, MAIL, 1_000, 2), (OTHER, WEB, 1_000, 16)]
    sinks = [listen(provider, port) for _, port, *_ in flows]
    senders = [provider.customer.udp(source) for source, *_ in flows]
    seen, sent = [[] for _ in flows], [0] * len(flows)
    # Everybody says EF: it is no matter.
    for sender in senders:
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, EF << 2)
    before = told(provider)
    try:
        for _ in range(200):
            for place, (_, port, length, count) in enumerate(flows):
                for _ in range(count):
                    senders[place].sendto(sent[place].to_bytes(4, "big") + bytes(length - 32), (REMOTE, port))
                    sent[place] += 1
            # Who is late does not make up for it: bursts are for meters.
            time.sleep(0.01)

        def passed(name):
            return told(provider)[name]["waiting"] == 0

        wait.until(lambda: all(passed(name) for name in told(provider)), "all queues are empty")
        for sink, into in zip(sinks, seen):
            take(sink, into)
    finally:
        for opened in [*sinks, *senders]:
            opened.close()
    voice, gold, bronze, other = seen
    for flow, count in [(voice, sent[0]), (gold, sent[1]), (bronze, sent[2])]:
        numbers = [number for number, _ in flow]
        assert numbers == sorted(set(numbers)), "none is reordered"
        # The gateway loses none, see below. The backlog of a core, which all namespaces share, may overflow on a busy machine.
        assert count * 0.9 <= len(numbers) <= count
    assert {dscp for _, dscp in voice} == {EF}
    assert {dscp for _, dscp in gold} <= {AF11, AF12}
    # They said EF, which is no colour.
    assert {dscp for _, dscp in bronze} <= {AF31, AF32, AF33}
    # What is left for best effort: 2.6 Mbit/s and what a busy machine has sent too slowly.
    assert {dscp for _, dscp in other} == {0}
    assert 0 < len(other) < sent[3], "the port is overloaded"
    after = told(provider)
    lost = {name: after[name]["dropped_full"] + after[name]["dropped_early"] for name in after}
    lost = {name: count - before[name]["dropped_full"] - before[name]["dropped_early"] for name, count in lost.items()}
    assert 0 < lost["core-be"] <= sent[3] - len(other)
    assert sum(lost.values()) == lost["core-be"]
    # Voice waits for the packet on the link, and for none of the queues.
    assert after["core-ef"]["delay"]["p95"] < 20_000_000 < after["core-be"]["delay"]["p95"]


def test_customers_do_not_get_more_than_they_bought(provider):
    # Gold is 8 Mbit/s for certain, with 30,000 bytes at once: the rest is yellow.
    with listen(provider, BULK) as sink, provider.customer.udp(GOLD) as sender:
        for number in range(60):
            sender.sendto(number.to_bytes(4, "big") + bytes(968), (REMOTE, BULK))
        seen = []
        wait.until(lambda: take(sink, seen) or len(seen) == 60, "all of gold has come")
    points = [dscp for _, dscp in seen]
    assert points[:29] == [AF11] * 29 and AF12 in points
    classes = {view["name"]: view for view in json.loads(provider.office.ask("classes", "--json").stdout)}
    assert classes["gold"]["colours"][1] >= points.count(AF12)
