"""Routes are Linux's: what `ip route` and routing daemons say is what the gateway does."""

from contextlib import contextmanager

import pytest
import wait
from host import stop
from topology import HIDDEN, OUTSIDE, REMOTE, REMOTE6, ROUTER, ROUTER2, ROUTER2_6, ROUTER6, STRANGER
from transfer import transfer


def second_hop(host, to):
    """The router behind the gateway on the way."""
    done = host.run("traceroute", "-n", "-q", "1", "-w", "1", "-f", "2", "-m", "2", to)
    return done.stdout.split()[-3]


@contextmanager
def route(net, *words):
    """A route of the gateway's, for a while."""
    net.gateway.run("ip", "route", "add", *words)
    try:
        yield
    finally:
        net.gateway.run("ip", "route", "del", *words)


def until_by(net, to, router):
    wait.until(lambda: second_hop(net.client, to) == router, f"{to} is reached by {router}")


@pytest.mark.parametrize(
    "to, network, first, second",
    [(REMOTE, "198.51.100.0/24", ROUTER, ROUTER2), (REMOTE6, "2001:db8:aaaa::/64", ROUTER6, ROUTER2_6)],
    ids=["ipv4", "ipv6"],
)
def test_a_new_route_takes_another_path(net, to, network, first, second):
    """And the path of before when it is gone."""
    until_by(net, to, first)
    with route(net, network, "via", second):
        until_by(net, to, second)
        transfer(net.client, net.remote, to, 80, upload=500_000, download=500_000)
    until_by(net, to, first)


def test_a_connection_moves_to_the_new_path(net):
    """A connection under way goes on, translated as before."""
    with net.remote.listen(80) as server, net.client.connect(REMOTE, 80) as client:
        there, peer = server.accept()
        with there, route(net, "198.51.100.0/24", "via", ROUTER2):
            until_by(net, REMOTE, ROUTER2)
            before = received(net.router2)
            for number in range(20):
                client.sendall(b"%d" % number)
                assert there.recv(100) == b"%d" % number
            assert received(net.router2) - before >= 20, "it still goes the old way"
            assert there.getpeername() == peer


def received(router):
    """Packets that came in from the gateway's side."""
    return int(router.run("cat", "/sys/class/net/wan/statistics/rx_packets").stdout)


def test_a_blackhole_swallows(net):
    assert net.client.ping(STRANGER)
    with route(net, "blackhole", f"{STRANGER}/32"):
        wait.until(lambda: not net.client.ping(STRANGER, wait="0.2"), "nothing comes back")
        assert net.client.ping(REMOTE)
    net.client.reaches(STRANGER)


def test_an_unreachable_route_says_so(net):
    with route(net, "unreachable", f"{STRANGER}/32"):
        told = lambda: net.client.run("ping", "-n", "-c1", "-W1", STRANGER, check=False).stdout  # noqa: E731
        wait.until(lambda: "Unreachable" in told(), "the client is told")
    net.client.reaches(STRANGER)


def test_two_next_hops_share(net):
    """ECMP: of many connections some go each way, and each works."""
    hops = ["nexthop", "via", ROUTER, "nexthop", "via", ROUTER2]
    net.gateway.sysctl({"net/ipv4/fib_multipath_hash_policy": 1})
    with route(net, "198.51.100.0/24", *hops):

        def shared():
            before = received(net.router), received(net.router2)
            with net.remote.listen(80) as server:
                for _ in range(64):
                    with net.client.connect(REMOTE, 80) as client:
                        there, _ = server.accept()
                        with there:
                            client.sendall(b"x")
                            assert there.recv(1) == b"x"
            grown = received(net.router) - before[0], received(net.router2) - before[1]
            return min(grown) >= 64

        wait.until(shared, "both routers get some of 64 connections")
    until_by(net, REMOTE, ROUTER)


BIRD = {
    "bgp": (
        """
        protocol bgp street {{
            local {own} as {our_as};
            neighbor {other} as {their_as};
            {passive}
            connect delay time 1; connect retry time 1; error wait time 1, 2;
            ipv4 {{ import all; export {export}; }};
        }}
        """
    ),
    "ospf": (
        """
        protocol ospf v2 street {{
            ipv4 {{ import all; export {export}; }};
            area 0 {{ interface "wan" {{ type ptp; hello 1; dead count 4; retransmit 2; }}; }};
        }}
        """
    ),
}
"""How the gateway and router2 speak with each other. OSPF's packets go to a group of the link (224.0.0.5)."""


def bird(net, host, text, number):
    """Starts bird with the configuration given, and gives what asks it."""
    config, control = net.logs / f"{host.name}.bird.conf", net.logs / f"{host.name}.bird.ctl"
    config.write_text(
        f"""
        router id 203.0.113.{number};
        protocol device {{ scan time 1; }}
        protocol kernel {{ ipv4 {{ import none; export where source != RTS_DEVICE; }}; }}
        protocol static announced {{ ipv4; route {HIDDEN}/32 blackhole; disabled {"no" if number == 3 else "yes"}; }}
        {text}
        """
    )
    control.unlink(missing_ok=True)
    process = host.start("bird", "-f", "-c", config, "-s", control, "-P", net.logs / f"{host.name}.bird.pid")
    return process, lambda *words: host.run("birdc", "-s", control, *words, check=False).stdout


@pytest.mark.parametrize("protocol", list(BIRD))
def test_bird_announces_and_withdraws(net, protocol):
    """router2 has an address that the gateway's default route does not lead to; bird says so, and takes it back."""
    assert not net.client.ping(HIDDEN, wait="0.2")
    common = {"export": "none", "passive": ""}
    ours = BIRD[protocol].format(**common, own=OUTSIDE, other=ROUTER2, our_as=65001, their_as=65002)
    common = {"export": "where source = RTS_STATIC", "passive": "passive;"}
    theirs = BIRD[protocol].format(**common, own=ROUTER2, other=OUTSIDE, our_as=65002, their_as=65001)
    one, _ = bird(net, net.gateway, ours, 2)
    other, tell = bird(net, net.router2, theirs, 3)
    try:
        wait.until(lambda: HIDDEN in net.gateway.run("ip", "route").stdout, "bird has the route", 20)
        net.client.reaches(HIDDEN)
        assert second_hop(net.client, HIDDEN) == HIDDEN
        tell("disable", "announced")
        wait.until(lambda: not net.client.ping(HIDDEN, wait="0.2"), "the route was withdrawn", 20)
    finally:
        stop(one)
        stop(other)
    wait.until(lambda: HIDDEN not in net.gateway.run("ip", "route").stdout, "bird takes its routes with it")
