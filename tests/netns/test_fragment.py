"""Datagrams in pieces: 64 KB in 45 of them, both ways, translated and not."""

import random

import pytest
from packet import UDP, ethernet, ipv4, udp
from topology import CLIENT, GATEWAY, OUTSIDE, REMOTE, REMOTE6, SERVER6

LARGEST = 65507
"""65,535 less the headers of IPv4 and UDP."""


def echo(here, there, to, port, size):
    """A datagram there, and the same back."""
    data = random.Random(size).randbytes(size)
    here.sendto(data, (to, port))
    got, peer = there.recvfrom(65536)
    assert got == data
    there.sendto(data, peer)
    got, peer = here.recvfrom(65536)
    assert got == data
    assert peer[:2] == (to, port)


@pytest.mark.parametrize("size", [1473, 3000, 9000, LARGEST])
@pytest.mark.parametrize("to", [REMOTE, REMOTE6])
def test_large_datagrams_from_inside(net, to, size):
    v6 = ":" in to
    with net.client.udp(v6=v6) as client, net.remote.udp(port=5000, v6=v6) as server:
        echo(client, server, to, 5000, size)


@pytest.mark.parametrize("to", [OUTSIDE, SERVER6])
def test_large_datagrams_from_outside(net, to):
    v6 = ":" in to
    with net.remote.udp(v6=v6) as client, net.server.udp(port=4000, v6=v6) as server:
        echo(client, server, to, 4000, LARGEST)


def test_large_pings(net):
    assert net.client.ping(REMOTE, "-s", 65000)
    assert net.client.ping(REMOTE6, "-s", 65000)
    assert net.client.ping(GATEWAY, "-s", 65000)


def test_large_datagrams_between_the_gateway_itself_and_others(net):
    with net.gateway.udp() as gateway, net.remote.udp(port=5000) as server:
        echo(gateway, server, REMOTE, 5000, LARGEST)


@pytest.mark.parametrize(
    "order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 1, 0, 2)], ids=["forward", "backward", "mixed", "doubled"]
)
def test_fragments_in_any_order(net, order):
    """Only the first has the ports: those that come before it wait."""
    data = random.Random(3).randbytes(3000)
    ident = 1000 + sum(place * 7**turn for turn, place in enumerate(order))
    datagram = udp(CLIENT, REMOTE, 6000, 5000, data)
    pieces = [datagram[:1024], datagram[1024:2048], datagram[2048:]]
    assert net.client.ping(GATEWAY)
    with net.remote.udp(port=5000) as server, net.client.wire("eth0") as wire, net.client.udp(CLIENT, 6000):
        for place in order:
            packet = ipv4(
                CLIENT, REMOTE, UDP, pieces[place], ident=ident, offset=1024 * place, more=place < 2
            )
            wire.send(ethernet(net.gateway.mac("lan"), net.client.mac(), packet))
        got, peer = server.recvfrom(65536)
        assert got == data
        assert peer[0] == OUTSIDE


def test_fragments_that_overlap_are_refused(net):
    """Teardrop. Another datagram, sent after it, must be the only one that arrives."""
    whole = udp(CLIENT, REMOTE, 6001, 5000, b"A" * 2000)
    with (
        net.remote.udp(port=5000) as server,
        net.client.wire("eth0") as wire,
        net.client.udp(CLIENT, 6001) as client,
    ):
        for offset, end in [(0, 1024), (512, 1536), (1536, len(whole))]:
            packet = ipv4(
                CLIENT, REMOTE, UDP, whole[offset:end], ident=99, offset=offset, more=end < len(whole)
            )
            wire.send(ethernet(net.gateway.mac("lan"), net.client.mac(), packet))
        client.sendto(b"after it", (REMOTE, 5000))
        assert server.recv(65536) == b"after it"
