"""A WAN whose addresses change, and addresses on its link that no interface has."""

import shutil

import pytest
import wait
from edge import CLIENT, PROVIDER, PROVIDER6, Edge, gateway_of
from gateway import missing
from packet import drain

FIRST, SECOND = "203.0.113.20", "203.0.113.21"

ON_LINK = """
[[nat]]
name = "pool"
kind = "source"
from = "lan"
to = "wan"
source = "192.168.1.0/24"
pool = ["203.0.113.40/30", "203.0.113.60"]

[[nat]]
name = "web"
kind = "forward"
outside = "203.0.113.80"
protocol = "tcp"
port = 80
target = "192.168.1.10"

[[nat]]
name = "six"
kind = "one-to-one"
outside = "2001:db8:ffff::10/128"
inside = "fd00:1::10/128"

[[rule]]
name = "web"
from = "wan"
to = "lan"
protocol = "tcp"
dport = 80
action = "accept"
"""


@pytest.fixture(scope="module", params=["packet", "xdp"])
def edge(request):
    """The gateway is up, with nothing on its WAN."""
    if lacking := missing(f"wirerate-{request.param}"):
        pytest.skip(f"SKIPPED: {lacking}")
    made = Edge()
    made.office = gateway_of(made, request.param)
    try:
        made.office.start()
        yield made
        print(made.office.evidence())
    finally:
        made.office.stop()
        made.close()
        shutil.rmtree(made.logs, ignore_errors=True)


@pytest.fixture(autouse=True)
def afresh(edge):
    """Each test begins without addresses on the WAN, and with the plain policy."""
    edge.gateway.run("ip", "addr", "flush", "dev", "wan", "scope", "global")
    edge.office.apply_more("")
    edge.provider.run("ip", "neigh", "flush", "all")
    yield


def lease(edge, address):
    """What a script of a DHCP client does."""
    edge.gateway.run("ip", "addr", "flush", "dev", "wan", "scope", "global")
    edge.gateway.ip(f"addr add {address}/24 dev wan", f"route replace default via {PROVIDER} dev wan")
    edge.gateway.reaches(PROVIDER)


def test_what_linux_lost_is_not_put_back(edge):
    """An address that was learnt from Linux goes for good, and with it its route; one of the policy's own comes back."""
    lease(edge, FIRST)
    edge.gateway.ip("addr add 2001:db8:ffff::20/64 dev wan nodad")
    edge.gateway.reaches(PROVIDER6)
    edge.gateway.ip(f"addr del {FIRST}/24 dev wan", "addr del 2001:db8:ffff::20/64 dev wan")
    # Whatever makes the gateway look again at what Linux ought to have.
    edge.gateway.ip("addr del 192.168.1.1/24 dev lan")
    wait.until(lambda: edge.addresses("lan") == ["192.168.1.1/24"], "the policy's own address is put back")
    edge.office.apply_more("# the same\n")
    edge.gateway.ip("link set wan down", "link set wan up")
    wait.until(lambda: "wan" in said_up(edge), "the WAN is up again")
    edge.gateway.ip(f"addr add {SECOND}/24 dev wan")
    edge.gateway.reaches(PROVIDER)
    assert edge.addresses() == [f"{SECOND}/24"] and not edge.addresses(family=6)
    routes = edge.gateway.run("ip", "route", "show", "dev", "wan").stdout
    assert FIRST not in routes and "default" not in routes, routes


def said_up(edge):
    return [line.split()[0] for line in edge.office.ask("ports").stdout.splitlines() if " up " in line]


def test_outside_addresses_on_the_link_are_answered_for(edge):
    """Of a pool, a forward and a one-to-one translation; the provider has no route to them but its link."""
    lease(edge, FIRST)
    edge.gateway.ip("addr add 2001:db8:ffff::20/64 dev wan nodad", f"route replace ::/0 via {PROVIDER6} dev wan")
    with edge.provider.wire("wan") as cable:
        edge.office.apply_more(ON_LINK)
        heard = []

        def announced():
            heard.extend(drain(cable))
            claims = [frame[28:32] for frame in heard if frame[12:14] == b"\x08\x06" and frame[28:32] == frame[38:42]]
            return {bytes([203, 0, 113, last]) for last in [40, 41, 42, 43, 60, 80]} <= set(claims)

        wait.until(announced, "the provider is told of all addresses")
    edge.provider.run("ip", "neigh", "flush", "all")
    mac = edge.gateway.mac("wan")
    with edge.provider.udp(PROVIDER, 5000) as server, edge.client.udp(CLIENT, 4000) as client:
        client.sendto(b"asked", (PROVIDER, 5000))
        data, peer = server.recvfrom(100)
        assert data == b"asked" and peer[0] in [f"203.0.113.{last}" for last in [40, 41, 42, 43, 60]]
        server.sendto(b"answered", peer)
        assert client.recv(100) == b"answered"
    assert edge.provider.neighbour(peer[0]) == mac
    with edge.client.listen(80) as listener, edge.provider.connect("203.0.113.80", 80) as caller:
        there, _ = listener.accept()
        with there:
            there.sendall(b"hello")
            assert caller.recv(100) == b"hello"
    assert edge.provider.neighbour("203.0.113.80") == mac
    with edge.provider.udp(PROVIDER6, 5000) as server, edge.client.udp("fd00:1::10", 4000) as client:
        client.sendto(b"asked", (PROVIDER6, 5000))
        data, peer = server.recvfrom(100)
        assert (data, peer[0]) == (b"asked", "2001:db8:ffff::10")
        server.sendto(b"answered", peer)
        assert client.recv(100) == b"answered"
    assert edge.provider.neighbour("2001:db8:ffff::10") == mac
    # Addresses that are not the gateway's are nobody's.
    assert not edge.provider.ping("203.0.113.44")
    assert edge.provider.neighbour("203.0.113.44") is None
    assert not edge.provider.ping("2001:db8:ffff::11")
