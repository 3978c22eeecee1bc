"""IPv6: the same gateway, without translation."""

import pytest
import wait
from topology import CLIENT6, GATEWAY6, GUEST6, GUEST_GATEWAY6, OUTSIDE6, REMOTE6, ROUTER6, SERVER6, STRANGER6
from transfer import transfer


def test_neighbours_find_the_gateway(net):
    """The client asks by a multicast solicitation and learns the gateway's link-layer address."""
    net.client.run("ip", "neigh", "flush", "to", GATEWAY6, "dev", "eth0")
    assert net.client.ping(GATEWAY6)
    assert net.client.neighbour(GATEWAY6) == net.gateway.mac("lan")


def test_the_gateway_finds_its_neighbours(net):
    """Nobody has sent anything yet: the gateway asks for who is to get a packet, and the packet waits meanwhile."""
    net.client.run("ip", "neigh", "flush", "dev", "eth0")
    net.gateway.run("ip", "neigh", "flush", "dev", "lan")
    with net.server.udp(port=4000, v6=True) as server, net.remote.udp(v6=True) as remote:
        remote.sendto(b"first", (SERVER6, 4000))
        assert server.recvfrom(100)[0] == b"first"


def test_an_address_of_the_gateways_is_taken(net):
    """Duplicate address detection (RFC 4862, section 5.4): the gateway defends its address."""
    net.client.sysctl({"net/ipv6/conf/all/accept_dad": 1, "net/ipv6/conf/eth0/accept_dad": 1})
    net.client.ip(f"addr add {GATEWAY6}/64 dev eth0")
    try:
        wait.until(
            lambda: "dadfailed" in net.client.run("ip", "addr", "show", "dev", "eth0").stdout,
            "the duplicate is found out",
        )
    finally:
        net.client.ip(f"addr del {GATEWAY6}/64 dev eth0")
        net.client.sysctl({"net/ipv6/conf/all/accept_dad": 0, "net/ipv6/conf/eth0/accept_dad": 0})


@pytest.mark.parametrize("to", [GATEWAY6, OUTSIDE6, ROUTER6, REMOTE6])
def test_ping(net, to):
    assert net.client.ping(to, count=3)


def test_ping_by_the_link_local_address(net):
    """Linux's own address of the link is the gateway's, too."""
    local = wait.until(lambda: link_local(net.gateway, "lan"), "a link-local address of the gateway's")
    assert net.client.ping(f"{local}%eth0")


def link_local(host, interface):
    words = host.run("ip", "-6", "-o", "addr", "show", "dev", interface, "scope", "link").stdout.split()
    return words[words.index("inet6") + 1].split("/")[0] if "inet6" in words else None


def test_guests(net):
    assert net.guest.ping(GUEST_GATEWAY6)
    assert net.guest.ping(REMOTE6)
    with net.remote.listen(80, v6=True) as server, net.guest.connect(REMOTE6, 80):
        there, peer = server.accept()
        there.close()
        assert peer[0] == GUEST6


def test_guests_keep_out(net):
    with net.server.listen(22, v6=True), pytest.raises(ConnectionRefusedError):
        net.guest.connect(SERVER6, 22)


def test_tcp_both_ways(net):
    transfer(net.client, net.remote, REMOTE6, 80, upload=5_000_000, download=5_000_000)


def test_strangers_reach_what_is_open_and_no_more(net):
    with net.server.listen(443, v6=True) as server, net.stranger.connect(SERVER6, 443):
        there, peer = server.accept()
        there.close()
        assert peer[0] == STRANGER6
    with net.server.listen(22, v6=True), pytest.raises(TimeoutError):
        net.stranger.connect(SERVER6, 22, timeout=1)
    assert not net.stranger.ping(CLIENT6)
