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


@pytest.fixture(params=[OUTSIDE, SERVER6], ids=["ipv4", "ipv6"])
def line(net, request):
    """A remote client's socket towards the server, and the server's; errors of all kinds reach the client."""
    to, v6 = request.param, ":" in request.param
    with net.server.udp(port=PORT, v6=v6) as server, net.remote.udp(v6=v6) as remote:
        remote.setsockopt(socket.IPPROTO_IPV6 if v6 else socket.IPPROTO_IP, 25 if v6 else 11, 1)
        remote.connect((to, PORT))
        yield remote, server


def arrives(remote, server):
    """Whether a datagram arrives within a moment."""
    token = str(arrives.count).encode()
    arrives.count += 1
    server.settimeout(0.3)
    try:
        remote.send(token)
        while True:
            if server.recv(100) == token:
                return True
    except OSError:
        return False


arrives.count = 0


def unreachable(remote):
    """Whether a datagram is answered by: host unreachable."""
    remote.settimeout(0.3)
    try:
        remote.send(b"anybody?")
        remote.recv(100)
    except socket.timeout:
        return False
    except OSError as error:
        return error.errno == errno.EHOSTUNREACH
    return False


def plugged(net):
    """Plugs the server in again, if it is not, as it was at first."""
    net.switch.ip("link set server up")


def test_a_host_is_unplugged_and_plugged_in_again(net, line):
    remote, server = line
    assert arrives(remote, server)
    net.switch.ip("link set server down")
    try:
        wait.until(lambda: unreachable(remote), "the remote host is told that the server is unreachable", PATIENCE)
    finally:
        plugged(net)
    wait.until(lambda: arrives(remote, server), "the server is reached again", 15)


def test_a_host_that_the_gateway_has_forgotten_gets_its_first_packets(net, line):
    """They wait until the host has told its address: none is lost, none overtakes another."""
    remote, server = line
    net.gateway.run("ip", "neigh", "flush", "dev", "lan")
    for number in range(3):
        remote.send(b"%d" % number)
    assert [server.recv(100) for _ in range(3)] == [b"0", b"1", b"2"]


@pytest.fixture
def new_card(net):
    """Gives the server another link-layer address, once, and at the end that of before."""
    old = net.server.mac()

    def change(to):
        # The routes by it go when it goes down.
        net.server.ip(f"link set eth0 address {to}")

    yield change
    change(old)
    net.server.wire("eth0").send(announcement(old, SERVER))
    wait.until(lambda: net.client.ping(SERVER), "the server is as before", PATIENCE)
    wait.until(lambda: net.gateway.ping(SERVER), "the gateway finds the server as before", PATIENCE)
    wait.until(lambda: net.gateway.ping(SERVER6), "the gateway finds the server as before", PATIENCE)


def test_a_host_returns_with_another_card(net, line, new_card):
    """It says nothing of itself; Linux finds out that the old address is dead and asks anew."""
    remote, server = line
    assert arrives(remote, server)
    net.server.sysctl({"net/ipv4/conf/eth0/arp_notify": 0, "net/ipv6/conf/eth0/ndisc_notify": 0})
    new_card("02:00:00:00:77:01")
    wait.until(lambda: arrives(remote, server), "the server is found by its new address", PATIENCE)


def test_a_gratuitous_arp_is_believed_at_once(net, new_card):
    """Of a neighbour that is known, whatever Linux's timers say."""
    with net.server.udp(port=PORT) as server, net.remote.udp() as remote:
        remote.connect((OUTSIDE, PORT))
        assert arrives(remote, server)
        mac = "02:00:00:00:77:02"
        new_card(mac)
        with net.server.wire("eth0") as wire:
            wire.send(announcement(mac, SERVER))
        wait.until(lambda: net.gateway.neighbour(SERVER) == mac, "Linux believes it", 2)
        wait.until(lambda: arrives(remote, server), "the server is reached at its new address", 2)


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
