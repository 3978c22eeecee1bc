"""Frames come and go by the driver that was asked for, and Linux sees none that is not its own."""

import json

import pytest
import wait

from topology import CLIENT, GATEWAY, REMOTE
from transfer import transfer

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


def test_large_frames_can_be_refused(net):
    """Asked for while it runs: ports are opened anew, Linux puts nothing together on them, and what comes large nevertheless
    is dropped and counted; then as before."""

    def missed():
        ports = json.loads(net.office.ask("ports", "--json").stdout)
        return next(port["missed"] for port in ports if port["interface"] == "lan")

    def puts_together():
        said = net.gateway.run("ethtool", "-k", "lan").stdout
        return "generic-receive-offload: on" in said

    net.gateway.run("ethtool", "-K", "lan", "gro", "on")
    try:
        net.office.apply("none-large")
        wait.until(lambda: not puts_together(), "GRO is off")
        net.client.reaches(GATEWAY)
        if net.office.driver == "packet":
            with net.remote.listen(80) as listener, net.client.connect(REMOTE, 80) as client:
                there, _ = listener.accept()
                with there:
                    client.sendall(bytes(20_000))
                    wait.until(lambda: missed() > 0, "large frames are dropped")
        net.office.apply()
        wait.until(puts_together, "GRO is on again")
        net.client.reaches(GATEWAY)
        before = missed()
        transfer(net.client, net.remote, REMOTE, 80, upload=500_000)
        assert missed() == before
    finally:
        net.office.apply()
        net.gateway.run("ethtool", "-K", "lan", "gro", "off")
