"""Frames come and go by the driver that was asked for, and Linux sees none that is not its own."""

import json

import pytest

from topology import CLIENT, REMOTE

pytestmark = pytest.mark.without("nftables", why="Linux has its own drivers")


def test_the_driver_is_the_one_asked_for(net):
    ports = {port["interface"]: port for port in json.loads(net.office.ask("ports", "--json").stdout)}
    assert set(ports) == {"lan", "wan", "guest", net.guests}
    for interface in ["lan", "wan"]:
        assert ports[interface]["state"] == "up", ports[interface]
        assert net.office.driver in ports[interface]["driver"].lower(), ports[interface]


def test_linux_does_not_forward_beside_the_gateway(net):
    """With forwarding on in Linux, too, each packet passes once, and translated."""
    net.gateway.sysctl({"net/ipv4/ip_forward": 1})
    try:
        with net.remote.udp(port=5000) as server, net.client.udp(CLIENT, 4848) as client:
            client.sendto(b"once", (REMOTE, 5000))
            assert server.recv(100) == b"once"
            client.sendto(b"then this", (REMOTE, 5000))
            assert server.recv(100) == b"then this"
    finally:
        net.gateway.sysctl({"net/ipv4/ip_forward": 0})
