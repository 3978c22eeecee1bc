"""Hosts that die, return, and return as others."""

import errno
import socket

import pytest
import wait
from packet import announcement
from topology import OUTSIDE, SERVER, SERVER6

PORT = 4000
"""Forwarded from outside to the server."""

PATIENCE = 45
"""Seconds until a neighbour that died must be found out."""


class Line:
    """A remote client's socket towards the server, and the server's; errors of all kinds reach the client."""

    def __init__(self, net, to):
        v6 = ":" in to
        self.server = net.server.udp(port=PORT, v6=v6)
        self.remote = net.remote.udp(v6=v6)
        # IP_RECVERR, IPV6_RECVERR
        self.remote.setsockopt(socket.IPPROTO_IPV6 if v6 else socket.IPPROTO_IP, 25 if v6 else 11, 1)
        self.remote.connect((to, PORT))
        self._sent = 0

    def arrives(self):
        """Whether a datagram arrives within a moment."""
        self._sent += 1
        token = b"%d" % self._sent
        self.server.settimeout(0.2)
        try:
            self.remote.send(token)
            while True:
                if self.server.recv(100) == token:
                    return True
        except OSError:
            return False

    def unreachable(self):
        """Whether a datagram is answered by: host unreachable."""
        self.remote.settimeout(0.2)
        try:
            self.remote.send(b"anybody?")
            self.remote.recv(100)
        except socket.timeout:
            return False
        except OSError as error:
            return error.errno == errno.EHOSTUNREACH
        return False

    def close(self):
        self.server.close()
        self.remote.close()


@pytest.fixture
def lines(net):
    """By IPv4 and by IPv6."""
    both = [Line(net, OUTSIDE), Line(net, SERVER6)]
    yield both
    for line in both:
        line.close()


def test_a_host_that_the_gateway_has_forgotten_gets_its_first_packets(net, lines):
    """They wait until the host has told its address: none is lost, none overtakes another."""
    net.gateway.run("ip", "neigh", "flush", "dev", "lan")
    for line in lines:
        for number in range(3):
            line.remote.send(b"%d" % number)
        assert [line.server.recv(100) for _ in range(3)] == [b"0", b"1", b"2"]


@pytest.fixture
def new_card(net):
    """Gives the server another link-layer address, once, and at the end that of before."""
    old = net.server.mac()

    def change(to):
        net.server.ip(f"link set eth0 address {to}")

    yield change
    change(old)
    for host, interface in [(net.gateway, "lan"), (net.client, "eth0")]:
        host.run("ip", "neigh", "flush", "dev", interface)
        for address in [SERVER, SERVER6]:
            host.reaches(address)


def test_a_host_dies_and_returns_with_another_card(net, lines, new_card):
    """Linux finds out that nobody answers any more, and asks anew while somebody wants the host."""
    assert all([line.arrives() for line in lines])
    net.switch.ip("link set server down")
    try:
        told = set()

        def all_told():
            told.update(line for line in lines if line not in told and line.unreachable())
            return len(told) == len(lines)

        wait.until(all_told, "the remote host is told that the server is unreachable", PATIENCE)
        new_card("02:00:00:00:77:01")
    finally:
        net.switch.ip("link set server up")
    wait.until(lambda: all([line.arrives() for line in lines]), "the server is reached again", 15)


def test_a_gratuitous_arp_is_believed_at_once(net, lines, new_card):
    """Of a neighbour that is known, whatever Linux's timers say."""
    line = lines[0]
    assert line.arrives()
    mac = "02:00:00:00:77:02"
    new_card(mac)
    with net.server.wire("eth0") as wire:
        wire.send(announcement(mac, SERVER))
    wait.until(lambda: net.gateway.neighbour(SERVER) == mac, "Linux believes it", 2)
    wait.until(line.arrives, "the server is reached at its new address", 2)


def test_a_router_returns_with_another_card(net):
    """The next hop of the default route: every connection depends on it."""
    old = net.router.mac("wan")
    with net.remote.listen(80) as listener, net.client.connect("198.51.100.7", 80) as client:
        there, _ = listener.accept()
        with there:
            try:
                net.router.ip("link set wan address 02:00:00:00:77:03")
                with net.router.wire("wan") as wire:
                    wire.send(announcement("02:00:00:00:77:03", "203.0.113.1"))
                client.sendall(b"still there?")
                there.settimeout(10)
                assert there.recv(100) == b"still there?"
            finally:
                net.router.ip(f"link set wan address {old}")
                with net.router.wire("wan") as wire:
                    wire.send(announcement(old, "203.0.113.1"))
    net.client.reaches("198.51.100.7")
