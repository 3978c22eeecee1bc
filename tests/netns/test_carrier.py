"""Interfaces at the other end of whose link nobody is."""

import json

import pytest
import wait
from topology import REMOTE, REMOTE6


def carrier(net, name):
    ports = json.loads(net.office.ask("ports", "--json").stdout)
    return next(port["carrier"] for port in ports if port["interface"] == name)


@pytest.mark.without("nftables", why="a question to wirerate")
def test_carrier_loss_is_seen(net):
    assert carrier(net, "lan") == "up"
    net.switch.ip("link set gw-lan down")
    try:
        wait.until(lambda: carrier(net, "lan") == "down", "carrier loss is seen")
        assert carrier(net, "wan") == "up"
        status = net.office.ask("status")
        assert "lan has no carrier" in status.stdout
        assert net.office.ask("ports").stdout.splitlines()[1].split()[:3] == ["lan", "up", "down"]
    finally:
        net.switch.ip("link set gw-lan up")
    wait.until(lambda: carrier(net, "lan") == "up", "the carrier is back")
    net.client.reaches(REMOTE)


def ignore(net, value):
    """Whether Linux is to ignore routes by the street's interface while that has no carrier."""
    for family in ["ipv4", "ipv6"]:
        net.gateway.sysctl({f"net/{family}/conf/wan/ignore_routes_with_linkdown": value})


def has_no_route(net, to):
    """Whether the gateway says so to the client."""
    said = net.client.run("ping", "-n", "-c1", "-W0.3", to, check=False).stdout
    return "Destination Net Unreachable" in said or "Destination unreachable: No route" in said


@pytest.mark.parametrize("to", [REMOTE, REMOTE6])
def test_routes_by_links_without_carrier_are_used_as_linux_uses_them(net, to):
    """They are, unless it was told not to; it may be told at any time."""
    net.client.reaches(to)
    net.switch.ip("link set gw-wan down")
    try:
        wait.until(lambda: "NO-CARRIER" in net.gateway.run("ip", "link", "show", "wan").stdout, "no carrier")
        assert not any(has_no_route(net, to) for _ in range(3))
        ignore(net, 1)
        wait.until(lambda: has_no_route(net, to), "there is no route by the dead link")
        ignore(net, 0)
        wait.until(lambda: not has_no_route(net, to), "there is one again")
        ignore(net, 1)
        wait.until(lambda: has_no_route(net, to), "there is none again")
    finally:
        net.switch.ip("link set gw-wan up")
    try:
        net.client.reaches(to)
    finally:
        ignore(net, 0)
