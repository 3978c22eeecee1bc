"""Servers inside that are reached by the gateway's address."""

import socket

import pytest
from topology import CLIENT, OUTSIDE, REMOTE, SERVER, SERVER6, STRANGER6


def exchange(client, there):
    """Both ends hear each other."""
    client.sendall(b"asked")
    assert there.recv(100) == b"asked"
    there.sendall(b"answered")
    assert client.recv(100) == b"answered"


def test_a_port_leads_to_the_server(net):
    with net.server.listen(443) as server, net.remote.connect(OUTSIDE, 443) as client:
        there, peer = server.accept()
        with there:
            assert peer[0] == REMOTE, "the server sees who it is"
            exchange(client, there)


def test_a_port_leads_to_another_port(net):
    with net.server.listen(80) as server, net.remote.connect(OUTSIDE, 8080) as client:
        there, peer = server.accept()
        with there:
            assert peer[0] == REMOTE
            exchange(client, there)


def test_datagrams_are_forwarded(net):
    with net.server.udp(port=4000) as server, net.remote.udp() as client:
        client.sendto(b"asked", (OUTSIDE, 4000))
        data, peer = server.recvfrom(100)
        assert (data, peer[0]) == (b"asked", REMOTE)
        server.sendto(b"answered", peer)
        assert client.recvfrom(100) == (b"answered", (OUTSIDE, 4000))


def test_inside_hosts_use_the_outside_address(net):
    """Hairpin (RFC 5382, REQ-8): the server must not see the client itself, or it would answer past the gateway."""
    with net.server.listen(443) as server, net.client.connect(OUTSIDE, 443) as client:
        there, peer = server.accept()
        with there:
            assert peer[0] != CLIENT
            exchange(client, there)


def test_the_server_reaches_itself_by_the_outside_address(net):
    with net.server.listen(443) as server, net.server.connect(OUTSIDE, 443) as client:
        there, peer = server.accept()
        with there:
            assert peer[0] != SERVER
            exchange(client, there)


def test_hairpin_of_datagrams(net):
    with net.server.udp(port=4000) as server, net.client.udp() as client:
        client.sendto(b"asked", (OUTSIDE, 4000))
        data, peer = server.recvfrom(100)
        assert data == b"asked" and peer[0] != CLIENT
        server.sendto(b"answered", peer)
        assert client.recvfrom(100) == (b"answered", (OUTSIDE, 4000))


def test_other_ports_lead_nowhere(net):
    with net.server.listen(444) as server, net.gateway.listen(444) as gateway:
        with pytest.raises(socket.timeout):
            net.remote.connect(OUTSIDE, 444, timeout=1)
        for listener in [server, gateway]:
            listener.setblocking(False)
            with pytest.raises(BlockingIOError):
                listener.accept()


def test_a_closed_port_of_the_server_is_refused(net):
    """The server's reset comes back translated."""
    with pytest.raises(ConnectionRefusedError):
        net.remote.connect(OUTSIDE, 443)


def test_ipv6_needs_no_forward(net):
    with net.server.listen(443, v6=True) as server, net.stranger.connect(SERVER6, 443) as client:
        there, peer = server.accept()
        with there:
            assert peer[0] == STRANGER6
            exchange(client, there)


def test_a_thousand_connections_one_after_another(net):
    """Connections that end make room: ports and flows are not used up."""
    with net.server.listen(443) as server:
        for number in range(1000):
            with net.remote.connect(OUTSIDE, 443) as client:
                there, _ = server.accept()
                with there:
                    client.sendall(b"%d" % number)
                    assert there.recv(100) == b"%d" % number
