"""Packets to other hosts that the gateway itself answers, in their name: transparent DNS, a transparent proxy."""

import pytest
from topology import CLIENT, CLIENT6, FAR, FAR6, GATEWAY, GATEWAY6, REMOTE, REMOTE6, STRANGER


@pytest.fixture(scope="module", autouse=True)
def redirecting(net):
    net.office.apply("redirect")
    yield
    net.office.apply()


@pytest.mark.parametrize(
    "asked, client, own", [(REMOTE, CLIENT, GATEWAY), (REMOTE6, CLIENT6, GATEWAY6)], ids=["ipv4", "ipv6"]
)
class TestOfEachVersion:
    def test_datagrams_are_answered_by_who_was_asked(self, net, asked, client, own):
        with net.gateway.udp(own, 5353) as resolver, net.client.udp(client) as host:
            host.sendto(b"asked", (asked, 53))
            data, peer = resolver.recvfrom(100)
            assert (data, peer[0]) == (b"asked", client)
            resolver.sendto(b"answered", peer)
            data, peer = host.recvfrom(100)
            assert (data, peer[:2]) == (b"answered", (asked, 53))

    def test_a_connection_is_the_gateway_s(self, net, asked, client, own):
        with net.gateway.listen(3128, own) as proxy, net.client.connect(asked, 80) as host:
            there, peer = proxy.accept()
            with there:
                assert peer[0] == client
                assert there.getsockname()[:2] == (own, 3128)
                host.sendall(b"asked")
                assert there.recv(100) == b"asked"
                there.sendall(b"answered" * 1000)
                got = b""
                while len(got) < 8000:
                    got += host.recv(8000)
                assert got == b"answered" * 1000

    def test_nobody_there_is_a_refusal_by_who_was_asked(self, net, asked, client, own):
        with pytest.raises(ConnectionRefusedError):
            net.client.connect(asked, 80)
        with net.client.udp(client) as host:
            host.connect((asked, 53))
            host.send(b"asked")
            with pytest.raises(ConnectionRefusedError):
                host.recv(100)

    def test_others_are_reached_as_ever(self, net, asked, client, own):
        far = FAR6 if ":" in asked else FAR
        for host, address, port in [(net.far, far, 80), (net.remote, asked, 81)]:
            with host.listen(port, address) as server, net.client.connect(address, port):
                there, _ = server.accept()
                there.close()


def test_one_port_asks_two_servers(net):
    """Both are the gateway, which must tell the answers apart."""
    with net.gateway.udp(GATEWAY, 5353) as resolver, net.client.udp(CLIENT, 4444) as host:
        peers = {}
        for asked in [REMOTE, STRANGER]:
            host.sendto(asked.encode(), (asked, 53))
            data, peer = resolver.recvfrom(100)
            assert peer[0] == CLIENT
            peers[data.decode()] = peer
        assert len(set(peers.values())) == 2
        for asked, peer in reversed(peers.items()):
            resolver.sendto(asked.encode(), peer)
            data, peer = host.recvfrom(100)
            assert (data.decode(), *peer) == (asked, asked, 53)


@pytest.mark.without("nftables", why="it has no such command")
def test_explain_says_where_to(net):
    told = net.office.ask("explain", "--live", f"lan udp {CLIENT}:4445 > {REMOTE}:53").stdout
    assert f"the destination becomes {GATEWAY}:5353" in told, told
