"""Links of 9000 bytes."""

import json

import pytest
import wait
from topology import FAR, GATEWAY, OUTSIDE, REMOTE, REMOTE6, SERVER6
from transfer import transfer

MTU = 9000


@pytest.mark.without("nftables", why="Linux has no drivers to choose from")
def test_frames_come_and_go_by_the_driver_that_was_asked_for(net):
    ports = {port["interface"]: port for port in json.loads(net.office.ask("ports", "--json").stdout)}
    for name in ("lan", "wan"):
        assert net.office.driver in ports[name]["driver"].lower(), ports[name]


@pytest.mark.parametrize("to", [GATEWAY, REMOTE, REMOTE6])
def test_jumbo_pings(net, to):
    size = 9000 - (48 if ":" in to else 28)
    assert net.client.ping(to, "-M", "do", "-s", size, count=3)


@pytest.mark.parametrize("size", [1472, 1500, 4000, 8972, 20000, 65000])
def test_pings_of_many_sizes(net, size):
    assert net.client.ping(REMOTE, "-s", size)


@pytest.mark.parametrize("to", [REMOTE, REMOTE6])
def test_tcp_in_large_segments(net, to):
    transfer(net.client, net.remote, to, 80, upload=20_000_000, download=20_000_000)


def test_tcp_is_forwarded_in_large_segments(net):
    transfer(net.remote, net.server, OUTSIDE, 443, upload=5_000_000, download=5_000_000)
    transfer(net.remote, net.server, SERVER6, 443, upload=5_000_000, download=5_000_000)


def test_from_9000_to_1280(net):
    """Segments of 9000 bytes meet a link of 1280 behind the router."""
    net.client.forget_paths()
    transfer(net.client, net.far, FAR, 80, upload=3_000_000, download=3_000_000)


def test_guests_too(net):
    assert net.guest.ping(REMOTE, "-M", "do", "-s", 8972)
    transfer(net.guest, net.remote, REMOTE, 80, upload=2_000_000, download=2_000_000)


def test_from_9000_to_the_gateways_own_1500(net):
    """The outer link becomes an ordinary one, at both ends: the gateway says what it carries, and cuts what it may."""
    for host in [net.gateway, net.router]:
        host.ip("link set wan mtu 1500")
    try:

        def told():
            net.client.forget_paths()
            return (
                "1500"
                in net.client.run(
                    "ping", "-n", "-c1", "-W1", "-M", "do", "-s", 8972, REMOTE, check=False
                ).stdout.split("---")[0]
            )

        wait.until(told, "the gateway says 1500")
        assert net.client.ping(REMOTE, "-M", "dont", "-s", 8972)
        net.client.forget_paths()
        transfer(net.client, net.remote, REMOTE, 80, upload=3_000_000, download=3_000_000)
    finally:
        for host in [net.gateway, net.router]:
            host.ip("link set wan mtu 9000")
