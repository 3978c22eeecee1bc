"""SAs of workers' own (RFC 9611), given to two gateways by an IKE daemon's messages: each worker sends by the one of its number, else by the one
that all have; and all of the peer's come in side by side."""

import itertools
import json
import socket
import struct

import pytest
import wait
from gateway import missing
from packet import drain
from sites import Sites, gateway_with
from xfrm import CPU_ACQUIRE, Linux, Listener, Xfrm

POLICY = """
[gateway]
driver = "packet"
workers = 2
xfrm = "{xfrm}"

[interface.lan]
zone = "lan"
addresses = ["10.{own}.0.1/16"]

[interface.wan]
zone = "wan"
addresses = ["192.0.2.{own}/24"]

[interface.site]
zone = "vpn"
addresses = ["10.9.0.{own}/30"]

[interface.site.esp]
local = "192.0.2.{own}"
remote = "192.0.2.{other}"
keys = "ike"

[[route]]
to = "10.{other}.0.0/16"
interface = "site"

[default]
"lan > vpn" = "accept"
"vpn > lan" = "accept"
"""

# Flows belong to a worker by their source: sixteen of these are not all of one.
SOURCES = [f"10.1.0.{number}" for number in range(100, 116)]
THERE = "10.2.0.10"
PORT = 5000
REQID = 7
ALL = 0x1000


class Pair:
    """Two gateways without daemons, whose socket the test speaks to."""

    def __init__(self):
        self.sites = Sites()
        self.gateways, self.sockets, self.keys = [], [], itertools.count(1)
        one, two = self.sites.ends
        one.client.ip(*[f"addr add {source}/16 dev eth0" for source in SOURCES])
        for end in self.sites.ends:
            own, other, xfrm = end.number, 3 - end.number, end.logs / "xfrm"
            end.gateway.ip(f"addr add 192.0.2.{own}/24 dev wan")
            self.gateways.append(gateway_with(end, POLICY.format(own=own, other=other, xfrm=xfrm)))
            self.gateways[-1].start()
            self.sockets.append(Xfrm(xfrm))
        self.listener = Listener(one.logs / "xfrm")
        self.receiver = two.client.udp(address=THERE, port=PORT)
        self.senders = {source: one.client.udp(address=source) for source in SOURCES}
        # What a gateway sends is seen at the other end alone.
        self.sniffer = two.gateway.sniff("wan")

    def policy(self, flags):
        self.sockets[0].policy(("10.1.0.0/16", "10.2.0.0/16"), ("192.0.2.1", "192.0.2.2"), REQID, flags)

    def add(self, spi, cpu=None):
        """An SA from the first site to the second, at the receiver first."""
        key = bytes(19) + bytes([next(self.keys)])
        for at in reversed(self.sockets):
            at.add("192.0.2.1", "192.0.2.2", spi, key, REQID, cpu)

    def delete(self, spi):
        for at in self.sockets:
            at.delete("192.0.2.2", spi)

    def spis(self):
        """SPI that the packets of each source had on the cable between the sites, every one of which must arrive."""
        drain(self.sniffer)
        found = {}
        for source, sender in self.senders.items():
            for _ in range(3):
                sender.sendto(source.encode(), (THERE, PORT))
                assert self.receiver.recvfrom(100)[0] == source.encode()
            sent = {
                struct.unpack_from("!I", frame, 34)[0]
                for frame in drain(self.sniffer)
                if frame[12:14] == b"\x08\x00" and frame[23] == socket.IPPROTO_ESP and frame[26:30] == bytes([192, 0, 2, 1])
            }
            assert len(sent) == 1, (source, sent)
            found[source] = sent.pop()
        return found

    def of(self, direction, which=0):
        views = json.loads(self.gateways[which].ask("sa", "--json").stdout)
        return {view["spi"]: view for view in views if view["direction"] == direction}

    def close(self):
        for gateway in self.gateways:
            print(gateway.evidence())
        for opened in [*self.sockets, self.listener]:
            opened.socket.close()
        for gateway in self.gateways:
            gateway.stop()
        self.sites.close()


@pytest.fixture
def pair():
    if lacking := missing("wirerate-packet"):
        pytest.skip(f"SKIPPED: {lacking}")
    made = Pair()
    try:
        yield made
    finally:
        made.close()


def test_each_worker_sends_by_its_own(pair):
    pair.policy(CPU_ACQUIRE)
    pair.add(ALL)
    assert set(pair.spis().values()) == {ALL}
    # Each worker asks for one of its own, once.
    wait.until(lambda: len(pair.listener.acquired()) >= 2, "both workers have asked")
    assert sorted(pair.listener.acquired()) == [0, 1]

    pair.add(0x1001, cpu=0)
    pair.add(0x1002, cpu=1)
    pair.add(0x1009, cpu=9)
    assert pair.sockets[0].cpus() == {ALL: None, 0x1001: 0, 0x1002: 1, 0x1009: 9}
    # Beside the one of all they wait a second, in which a daemon's peer takes them in.
    assert set(pair.spis().values()) == {ALL}
    before = pair.of("out")[ALL]["packets"]
    wait.until(lambda: {0x1001, 0x1002, 0x1009} <= set(pair.of("out")), "they are in force")
    first = pair.spis()
    assert pair.of("out")[ALL]["packets"] == before
    assert set(first.values()) == {0x1001, 0x1002}
    out = pair.of("out")
    shown = {spi: (view["worker"], view["cpu"], view["state"]) for spi, view in out.items()}
    assert shown == {
        ALL: (None, None, "superseded"),
        0x1001: (0, 0, "active"),
        0x1002: (1, 1, "active"),
        0x1009: (None, 9, "unused"),
    }
    # Each counts for itself.
    for spi in (0x1001, 0x1002):
        assert out[spi]["number"] == out[spi]["packets"] == 3 * list(first.values()).count(spi)
    table = pair.gateways[0].ask("sa").stdout
    assert any(line.split()[-3:] == ["0", "1", "1"] for line in table.splitlines() if "0x1002" in line), table

    # A rekeying of one replaces that one.
    pair.add(0x2002, cpu=1)
    assert pair.spis() == first
    wait.until(lambda: 0x2002 in pair.of("out"), "the new one is in force")
    rekeyed = {0x1001: 0x1001, 0x1002: 0x2002}
    assert pair.spis() == {source: rekeyed[spi] for source, spi in first.items()}
    assert pair.of("out")[0x1002]["state"] == "superseded"
    # So does one of all, and takes no packet of theirs.
    pair.add(0x2000)
    assert pair.spis() == {source: rekeyed[spi] for source, spi in first.items()}

    # Without its own, a worker sends by that of all, and asks with one of its next packets: the need of before was met.
    assert sorted(pair.listener.acquired()) == [0, 1]
    pair.delete(0x1002)
    pair.delete(0x2002)
    fallen = {0x1001: 0x1001, 0x1002: 0x2000}
    expected = {source: fallen[spi] for source, spi in first.items()}
    wait.until(lambda: pair.spis() == expected and len(pair.listener.acquired()) >= 3, "the worker has asked again")
    assert pair.listener.acquired()[2:] == [1]

    # All of those that the peer has come in, though none of the later ones is the only one.
    inward = pair.of("in", which=1)
    assert {spi: view["packets"] > 0 for spi, view in inward.items()} == {
        ALL: True,
        0x1001: True,
        0x1009: False,
        0x2000: True,
    }
    assert all(view["worker"] in (0, 1) and view["replayed"] == 0 for view in inward.values())


def test_nobody_asks_unless_the_policy_does(pair):
    pair.policy(0)
    # Another worker's is none: where there is no other, one for all is asked for, and packets are lost.
    pair.add(0x1001, cpu=0)
    for sender in pair.senders.values():
        sender.sendto(b"lost or not", (THERE, PORT))
    wait.until(lambda: pair.listener.acquired(), "the other worker has asked")
    assert pair.listener.acquired() == [None]
    drops = json.loads(pair.gateways[0].ask("drops", "--json").stdout)
    assert {drop["reason"] for drop in drops} == {"sa-missing"}
    pair.add(ALL)
    drain_of(pair.receiver)
    assert set(pair.spis().values()) == {ALL, 0x1001}
    assert pair.listener.acquired() == [None]


def test_linux_says_the_same(pair):
    """The kernel as an oracle for the attribute: Linux 6.13 and later."""
    linux = Linux(pair.sites.ends[0].gateway)
    ends = ("192.0.2.2", "192.0.2.1", REQID)
    if linux.allocate(*ends, cpu=0) is None:
        pytest.skip("SKIPPED: Linux before 6.13 knows of no CPUs of SAs")
    both = [linux, pair.sockets[0]]
    assert [at.allocate(*ends, cpu=0) for at in both] == [0, 0]
    assert all(at.allocate(*ends, cpu=100_000) < 0 for at in both)


def drain_of(receiver):
    """Takes what has arrived so far."""
    receiver.settimeout(0.2)
    try:
        while True:
            receiver.recv(100)
    except TimeoutError:
        receiver.settimeout(5)
