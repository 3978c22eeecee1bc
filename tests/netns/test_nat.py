"""Many hosts behind one address."""

import pytest
from packet import Packet, drain
from topology import CLIENT, CLIENT6, GUEST, OUTSIDE, REMOTE, REMOTE6, SERVER, STRANGER


def test_tcp_comes_from_the_gateways_address(net):
    with net.remote.listen(80) as server, net.client.connect(REMOTE, 80) as client:
        there, peer = server.accept()
        with there:
            assert peer[0] == OUTSIDE
            client.sendall(b"asked")
            assert there.recv(100) == b"asked"
            there.sendall(b"answered")
            assert client.recv(100) == b"answered"


def test_udp_comes_from_the_gateways_address(net):
    with net.remote.udp(port=5000) as server, net.client.udp() as client:
        client.sendto(b"asked", (REMOTE, 5000))
        data, peer = server.recvfrom(100)
        assert (data, peer[0]) == (b"asked", OUTSIDE)
        server.sendto(b"answered", peer)
        assert client.recvfrom(100) == (b"answered", (REMOTE, 5000))


def test_echo_requests_come_from_the_gateways_address(net):
    with net.remote.sniff("eth0") as sniffer:
        assert net.client.ping(REMOTE)
        seen = {
            packet.source for packet in map(Packet.read, drain(sniffer)) if packet and packet.to == REMOTE
        }
        assert seen == {OUTSIDE}


def test_guests_are_translated_too(net):
    with net.remote.listen(80) as server, net.guest.connect(REMOTE, 80):
        there, peer = server.accept()
        there.close()
        assert peer[0] == OUTSIDE


def test_ipv6_leaves_as_it_is(net):
    with net.remote.listen(80, v6=True) as server, net.client.connect(REMOTE6, 80):
        there, peer = server.accept()
        there.close()
        assert peer[0] == CLIENT6


def test_two_hosts_may_use_the_same_port(net):
    with net.remote.udp(port=5000) as server:
        with net.client.udp(CLIENT, 4444) as one, net.server.udp(SERVER, 4444) as other:
            peers = {}
            for inside, name in [(one, b"one"), (other, b"other")]:
                inside.sendto(name, (REMOTE, 5000))
                data, peer = server.recvfrom(100)
                assert peer[0] == OUTSIDE
                peers[data] = peer
            assert peers[b"one"] != peers[b"other"]
            for name, peer in peers.items():
                server.sendto(b"to " + name, peer)
            assert one.recv(100) == b"to one"
            assert other.recv(100) == b"to other"


def test_many_clients_have_connections_at_one_time(net):
    """Sixty clients, all by the same port to the same server; each hears its own answers."""
    addresses = [f"192.168.1.{last}" for last in range(100, 160)]
    net.client.ip(*[f"addr add {address}/24 dev eth0" for address in addresses])
    open_ = []
    try:
        with net.remote.listen(80) as server:
            seen = set()
            for address in addresses:
                client = net.client.connect(REMOTE, 80, source=address, sport=7777)
                there, peer = server.accept()
                open_ += [client, there]
                assert peer[0] == OUTSIDE
                seen.add(peer)
                client.sendall(address.encode())
                assert there.recv(100).decode() == address
            assert len(seen) == len(addresses), "two connections came by the same port"
            for number, address in enumerate(addresses):
                open_[2 * number + 1].sendall(address.encode())
            for number, address in enumerate(addresses):
                assert open_[2 * number].recv(100).decode() == address
    finally:
        for each in open_:
            each.close()
        net.client.ip(*[f"addr del {address}/24 dev eth0" for address in addresses])


def test_strangers_cannot_use_a_mapping(net):
    """What comes to a mapped port from somebody who was not asked is refused: the rules say so."""
    with (
        net.remote.udp(REMOTE, 5000) as server,
        net.stranger.udp(STRANGER, 5000) as stranger,
        net.client.udp() as client,
    ):
        client.sendto(b"asked", (REMOTE, 5000))
        peer = server.recvfrom(100)[1]
        stranger.sendto(b"intruded", peer)
        server.sendto(b"answered", peer)
        assert client.recvfrom(100) == (b"answered", (REMOTE, 5000))
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.recv(100)


@pytest.mark.without(
    "nftables",
    why="Linux maps a UDP port anew for each destination where it must; endpoint-independence is wirerate's",
)
def test_a_udp_port_is_mapped_alike_for_all_destinations(net):
    """RFC 4787, REQ-1. The port is taken by another host first, so that it cannot stay as it is by chance."""
    with net.server.udp(SERVER, 4445) as before, net.client.udp(CLIENT, 4445) as client:
        with net.remote.udp(port=5000) as server, net.stranger.udp(port=5000) as stranger:
            before.sendto(b"", (REMOTE, 5000))
            server.recv(100)
            client.sendto(b"", (REMOTE, 5000))
            client.sendto(b"", (STRANGER, 5000))
            assert server.recvfrom(100)[1] == stranger.recvfrom(100)[1]


def test_mail_is_refused_with_a_reset(net):
    with net.remote.listen(25), pytest.raises(ConnectionRefusedError):
        net.client.connect(REMOTE, 25)


def test_nothing_private_leaves(net):
    """Not one frame on the outer cable has an inside address, whatever is sent."""
    with net.switch.sniff("gw-wan") as sniffer:
        net.client.ping(REMOTE)
        net.guest.ping(REMOTE)
        with net.client.udp() as client:
            client.sendto(b"x" * 4000, (REMOTE, 5000))
        net.client.run("curl", "-s", "-m", "1", f"http://{REMOTE}:81/", check=False)
        inside = {CLIENT, GUEST, SERVER}
        packets = [packet for packet in map(Packet.read, drain(sniffer)) if packet]
        assert len(packets) >= 6
        assert not [packet for packet in packets if packet.source in inside or packet.to in inside]
