"""Interfaces that go down, away, and come back."""

import pytest
import wait
from topology import GATEWAY, GATEWAY6, GUEST_GATEWAY, REMOTE, REMOTE6
from transfer import transfer


def works(net):
    """Everything goes again, within seconds."""
    net.client.reaches(GATEWAY)
    net.client.reaches(REMOTE)
    net.client.reaches(REMOTE6)
    net.guest.reaches(GUEST_GATEWAY)
    net.guest.reaches(REMOTE)


@pytest.mark.parametrize("interface", ["lan", "wan"])
def test_an_interface_goes_down_and_up(net, interface):
    """Linux forgets the routes by it, and who was known there."""
    net.gateway.ip(f"link set {interface} down")
    wait.until(lambda: not net.client.ping(REMOTE, wait="0.2"), "nothing passes")
    net.gateway.ip(f"link set {interface} up")
    net.office.restored(interface)
    works(net)


@pytest.mark.parametrize("interface", ["lan", "wan"])
def test_a_cable_is_pulled_and_put_back(net, interface):
    net.switch.ip(f"link set gw-{interface} down")
    wait.until(lambda: not net.client.ping(REMOTE, wait="0.2"), "nothing passes")
    net.switch.ip(f"link set gw-{interface} up")
    works(net)


@pytest.mark.parametrize("interface", ["lan", "wan"])
def test_an_interface_is_deleted_and_made_anew(net, interface):
    """It has another number and another address of its own then; only its name is the same."""
    net.gateway.ip(f"link del {interface}")
    wait.until(lambda: not net.client.ping(REMOTE, wait="0.2"), "nothing passes")
    if interface == "wan":
        # What does not need it goes on.
        net.client.reaches(GATEWAY)
        net.client.reaches(GATEWAY6)
    net.plug_gateway(interface)
    net.office.returned(interface)
    works(net)
    transfer(net.client, net.remote, REMOTE, 80, upload=1_000_000, download=1_000_000)


def test_a_connection_outlives_the_interface(net):
    """Flows are not bound to what an interface is made of."""
    with net.remote.listen(80) as server, net.client.connect(REMOTE, 80) as client:
        there, peer = server.accept()
        with there:
            net.gateway.ip("link del lan")
            net.plug_gateway("lan")
            net.office.returned("lan")
            net.client.reaches(GATEWAY)
            client.sendall(b"still there?")
            there.settimeout(10)
            assert there.recv(100) == b"still there?"
            assert there.getpeername() == peer
    works(net)
