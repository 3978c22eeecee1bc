"""The gateway as a host: what it serves, and what it does on its own account."""

import socket

import pytest
from topology import (
    CLIENT,
    CLIENT6,
    FAR,
    FAR6,
    GATEWAY,
    GATEWAY6,
    GUEST,
    GUEST_GATEWAY,
    GUEST_GATEWAY6,
    OUTSIDE,
    OUTSIDE6,
    REMOTE,
    REMOTE6,
    ROUTER,
    ROUTER6,
)
from transfer import transfer

SSH = 22


@pytest.mark.parametrize(
    "who, to",
    [
        ("client", GATEWAY),
        ("client", GATEWAY6),
        ("client", OUTSIDE),
        ("client", OUTSIDE6),
        ("guest", GUEST_GATEWAY),
        ("guest", GUEST_GATEWAY6),
        ("remote", OUTSIDE),
        ("remote", OUTSIDE6),
        ("router", OUTSIDE),
        ("router", OUTSIDE6),
    ],
)
def test_it_answers_to_ping(net, who, to):
    assert getattr(net, who).ping(to, count=3)


def test_it_answers_to_large_pings(net):
    assert net.client.ping(GATEWAY, "-s", 8000)
    assert net.remote.ping(OUTSIDE6, "-s", 8000)


@pytest.mark.parametrize(
    "who, to", [("client", GATEWAY), ("client", GATEWAY6), ("remote", OUTSIDE), ("remote", OUTSIDE6)]
)
def test_its_ssh_is_there_for_whom_the_policy_says(net, who, to):
    """From inside, and for administrators outside."""
    transfer(getattr(net, who), net.gateway, to, SSH, upload=100_000, download=100_000)


@pytest.mark.parametrize(
    "who, to",
    [
        ("stranger", OUTSIDE),
        ("stranger", OUTSIDE6),
        ("guest", GUEST_GATEWAY),
        ("guest", GATEWAY),
        ("guest", OUTSIDE),
    ],
)
def test_its_ssh_is_not_there_for_others(net, who, to):
    """Silence, and the program that listens never hears of it."""
    with net.gateway.listen(SSH, v6=":" in to) as server:
        with pytest.raises(socket.timeout):
            getattr(net, who).connect(to, SSH, timeout=0.5)
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.parametrize("to", [GATEWAY, GATEWAY6])
def test_its_closed_ports_are_refused(net, to):
    with pytest.raises(ConnectionRefusedError):
        net.client.connect(to, 81)
    with net.client.udp(v6=":" in to) as client, pytest.raises(ConnectionRefusedError):
        client.connect((to, 81))
        client.send(b"anybody?")
        client.recv(100)


@pytest.mark.parametrize("to", [CLIENT, CLIENT6, GUEST, ROUTER, ROUTER6, REMOTE, REMOTE6, FAR, FAR6])
def test_it_pings_others(net, to):
    assert net.gateway.ping(to, count=3)


@pytest.mark.parametrize("to", [REMOTE, REMOTE6, FAR, FAR6])
def test_it_has_connections_of_its_own(net, to):
    """To far by a path that is narrower than it seems: the error about that is for the gateway's own Linux."""
    host = net.far if to in (FAR, FAR6) else net.remote
    net.gateway.forget_paths()
    transfer(net.gateway, host, to, 80, upload=3_000_000, download=3_000_000)


def test_it_has_datagrams_of_its_own(net):
    with net.gateway.udp() as gateway, net.remote.udp(port=5000) as server:
        gateway.sendto(b"asked", (REMOTE, 5000))
        data, peer = server.recvfrom(100)
        assert (data, peer[0]) == (b"asked", OUTSIDE)
        server.sendto(b"answered", peer)
        assert gateway.recvfrom(100) == (b"answered", (REMOTE, 5000))


def test_errors_reach_it(net):
    with net.gateway.udp() as gateway, pytest.raises(ConnectionRefusedError):
        gateway.connect((REMOTE, 9))
        gateway.send(b"anybody?")
        gateway.recv(100)


def test_its_own_port_and_a_translated_one_do_not_mix(net):
    """The gateway and a client speak with the same server by what would be the same outside port."""
    with (
        net.gateway.udp(OUTSIDE, 4567) as gateway,
        net.client.udp(CLIENT, 4567) as client,
        net.remote.udp(port=5000) as server,
    ):
        peers = {}
        for who, name in [(gateway, b"gateway"), (client, b"client")]:
            who.sendto(name, (REMOTE, 5000))
            data, peer = server.recvfrom(100)
            assert data == name
            peers[name] = peer
        assert peers[b"gateway"] != peers[b"client"]
        for name, peer in peers.items():
            server.sendto(b"to " + name, peer)
        assert gateway.recv(100) == b"to gateway"
        assert client.recv(100) == b"to client"


def test_it_talks_to_itself(net):
    with net.gateway.listen(SSH) as server, net.gateway.connect(OUTSIDE, SSH):
        there, _ = server.accept()
        there.close()
