"""What a port scanner finds: what the policy opens, and no more."""

from contextlib import ExitStack
from xml.etree import ElementTree

import pytest
from topology import GATEWAY, OUTSIDE, OUTSIDE6, REMOTE, SERVER, SERVER6

PORTS = [22, 25, 53, 80, 139, 443, 444, 8080]


@pytest.fixture(scope="module", autouse=True)
def listeners(net):
    """Everything listens everywhere, so that only the gateway's policy closes anything."""
    with ExitStack() as stack:
        for host in [net.gateway, net.server, net.remote]:
            for port in PORTS:
                # One socket for both IP versions.
                stack.enter_context(host.listen(port, v6=True))
        yield


def scan(host, to, kind="-sS"):
    """What nmap says of each port, by state."""
    version = ["-6"] if ":" in to else []
    done = host.run(
        "nmap", "-n", "-Pn", kind, "-T4",
        "--initial-rtt-timeout", "100ms", "--max-rtt-timeout", "200ms", "--max-retries", "2",
        "-oX", "-", *version, "-p", ",".join(map(str, PORTS)), to, timeout=60, stderr=-3,
    )  # fmt: skip
    ports = ElementTree.fromstring(done.stdout).iter("port")
    found = {int(port.get("portid")): port.find("state").get("state") for port in ports}
    assert sorted(found) == PORTS, done.stdout
    return {state: {port for port in PORTS if found[port] == state} for state in set(found.values())}


def but(*ports):
    return set(PORTS) - set(ports)


def test_a_stranger_scans_the_gateway(net):
    assert scan(net.stranger, OUTSIDE) == {"open": {443, 8080}, "filtered": but(443, 8080)}


def test_an_administrator_scans_the_gateway(net):
    assert scan(net.remote, OUTSIDE) == {"open": {22, 443, 8080}, "filtered": but(22, 443, 8080)}


def test_a_stranger_scans_the_gateway_by_ipv6(net):
    assert scan(net.stranger, OUTSIDE6) == {"filtered": but()}


def test_a_stranger_scans_the_server_by_ipv6(net):
    assert scan(net.stranger, SERVER6) == {"open": {80, 443}, "filtered": but(80, 443)}


def test_a_client_scans_the_gateway(net):
    assert scan(net.client, GATEWAY) == {"open": but()}


def test_a_client_scans_the_world(net):
    """All but mail, which is refused with a reset."""
    assert scan(net.client, REMOTE) == {"open": but(25), "closed": {25}}


def test_a_guest_scans_the_office(net):
    """Refused with resets, so that guests need not wait."""
    assert scan(net.guest, SERVER) == {"closed": but()}


def test_a_guest_scans_the_world(net):
    assert scan(net.guest, REMOTE) == {"open": {53, 80, 443}, "filtered": but(53, 80, 443)}


@pytest.mark.parametrize("kind", ["-sX", "-sA"])
def test_odd_flags_find_nothing(net, kind):
    """Xmas and ACK scans: no host answers, so nothing got in (without an answer, nmap cannot tell more)."""
    found = scan(net.stranger, SERVER6, kind)
    assert set(found) <= {"filtered", "open|filtered"}, found
