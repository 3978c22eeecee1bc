"""Several servers behind one address of the gateway."""

import pytest
from farm import PORT, Farm, alive, there
from topology import CLIENT, CLIENT6, OUTSIDE, OUTSIDE6, REMOTE, SERVER, SERVER6, STRANGER

pytestmark = pytest.mark.without("nftables", why="it spreads connections otherwise")


@pytest.fixture(autouse=True)
def balancing(net):
    net.office.apply("servers", "two-servers")
    yield
    net.office.apply()


@pytest.mark.parametrize(
    "to, addresses", [(OUTSIDE, (SERVER, CLIENT)), (OUTSIDE6, (SERVER6, CLIENT6))], ids=["ipv4", "ipv6"]
)
def test_connections_are_spread_by_weight(net, to, addresses):
    with Farm(net, addresses) as farm:
        count = farm.served(net.remote, 200, to)
        # 150 are expected; the chance of fewer than 115, or more than 185, is below one in a million.
        assert 115 <= count["server"] <= 185, count


def test_a_client_keeps_its_server(net):
    net.office.apply("servers", "two-servers", "sticky")
    with Farm(net) as farm:
        for host in [net.remote, net.stranger]:
            count = farm.served(host, 20)
            assert sorted(count.values()) == [0, 20], count


def test_a_connection_outlives_reloads(net):
    with Farm(net) as farm:
        held = [farm.connected(net.remote) for _ in range(60)]
        assert {name for _, _, name in held} == {"server", "client"}
        net.office.apply("servers", "two-servers", "keep", "no-chat")
        for near, far, _ in held:
            alive(near, far)
        for near, far, _ in held:
            near.close()
            far.close()


def test_a_server_that_is_down_gets_none(net):
    """Its connections end, those of the other stay."""
    with Farm(net) as farm:
        held = [farm.connected(net.remote) for _ in range(60)]
        assert {name for _, _, name in held} == {"server", "client"}
        net.office.apply("servers", "one-server")
        assert farm.served(net.remote, 20) == {"server": 0, "client": 20}
        for near, far, name in held:
            if name == "client":
                alive(near, far)
            else:
                with pytest.raises(ConnectionResetError):
                    near.sendall(b"asked")
                    near.recv(100)
        net.office.apply("servers", "two-servers")
        count = farm.served(net.remote, 40)
        assert count["server"] > 0, count
        for near, far, name in held:
            if name == "client":
                alive(near, far)
            near.close()
            far.close()


def test_kept_connections_stay_with_a_server_that_is_down(net):
    net.office.apply("servers", "two-servers", "keep")
    with Farm(net) as farm:
        held = [farm.connected(net.remote) for _ in range(60)]
        net.office.apply("servers", "one-server", "keep")
        for near, far, _ in held:
            alive(near, far)
            near.close()
            far.close()
        assert farm.served(net.remote, 10) == {"server": 0, "client": 10}


def test_without_a_server_clients_are_refused_at_once(net):
    net.office.apply("servers", "no-server")
    with Farm(net):
        with pytest.raises(ConnectionRefusedError):
            net.remote.connect(OUTSIDE, PORT)
        with net.remote.udp(REMOTE) as host:
            host.connect((OUTSIDE, PORT))
            host.send(b"asked")
            with pytest.raises(ConnectionRefusedError):
                host.recv(100)


def test_datagrams_go_to_one_server(net):
    with net.server.udp(SERVER, 7001) as one, net.client.udp(CLIENT, 7001) as other:
        seen = set()
        for _ in range(60):
            with net.stranger.udp(STRANGER) as host:
                for word in [b"first", b"second"]:
                    host.sendto(word, (OUTSIDE, PORT))
                    if word == b"first":
                        server = there(one, other)
                    data, peer = server.recvfrom(100)
                    assert (data, peer[0]) == (word, STRANGER)
                    server.sendto(b"answered", peer)
                    assert host.recvfrom(100) == (b"answered", (OUTSIDE, PORT))
                seen.add(server)
        assert seen == {one, other}


def test_inside_hosts_reach_them_by_the_outside_address(net):
    """Also a server itself, whichever it gets."""
    with Farm(net) as farm:
        for _ in range(8):
            near, far, _ = farm.connected(net.server)
            assert far.getpeername()[0] not in (SERVER, CLIENT)
            alive(near, far)
            near.close()
            far.close()


def test_explain_says_which(net):
    told = net.office.ask("explain", "--live", f"wan tcp {REMOTE}:44444 > {OUTSIDE}:{PORT}").stdout
    assert "of 2 servers that are up, of 2 in all" in told, told
