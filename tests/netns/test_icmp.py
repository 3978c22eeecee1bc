"""Ping, and errors that come back to whom they concern."""

import errno
import json
import re
import socket
import struct

import pytest
import wait
from packet import ICMP, Packet, checksum, drain
from topology import (
    CLIENT,
    CLIENT6,
    FAR,
    FAR6,
    GATEWAY,
    GATEWAY6,
    GUEST_GATEWAY,
    OUTSIDE,
    REMOTE,
    REMOTE6,
    ROUTER,
    ROUTER6,
    SERVER,
    SERVER6,
)

NOBODY, NOBODY6 = "203.0.113.99", "2001:db8:ffff::99"
"""On the outer link, where nobody has them."""


def refusal(socket_, to, timeout=10):
    """Which error comes back for a datagram to nobody: a number of `errno`."""
    v6 = ":" in to
    # IP_RECVERR, IPV6_RECVERR: else Linux keeps unreachable hosts and networks from the socket.
    socket_.setsockopt(socket.IPPROTO_IPV6 if v6 else socket.IPPROTO_IP, 25 if v6 else 11, 1)
    socket_.settimeout(timeout)
    socket_.connect((to, 5000))
    socket_.send(b"anybody?")
    with pytest.raises(OSError) as refused:
        socket_.recv(100)
    return errno.errorcode.get(refused.value.errno, refused.value)


def errors(sniffer):
    """The ICMP errors among the frames that were caught."""
    packets = [packet for packet in map(Packet.read, drain(sniffer)) if packet]
    return [packet for packet in packets if packet.protocol == ICMP and packet.payload[0] in (3, 11, 12)]


@pytest.mark.parametrize("to", [REMOTE, REMOTE6, FAR, FAR6, ROUTER, ROUTER6])
def test_ping_through_the_gateway(net, to):
    assert net.client.ping(to, count=5)


@pytest.mark.parametrize("size", [0, 1, 18, 1000, 1472])
def test_ping_of_many_sizes(net, size):
    assert net.client.ping(REMOTE, "-M", "do", "-s", size)


def test_ping_of_a_thousand(net):
    """Each sent when the last was answered: none is lost."""
    with net.client.open(socket.AF_INET, socket.SOCK_RAW, ICMP) as client:
        for number in range(1000):
            client.sendto(request(77, number, b"again"), (REMOTE, 0))
            assert Packet(client.recv(2000)).payload[4:] == struct.pack("!HH", 77, number) + b"again"


def request(identifier, sequence, data):
    """An echo request (RFC 792)."""
    head = struct.pack("!BBHHH", 8, 0, 0, identifier, sequence)
    return head[:2] + struct.pack("!H", checksum(head + data)) + head[4:] + data


def test_two_pings_with_the_same_identifier(net):
    """Two hosts, by chance with one identifier: each hears its own replies."""
    with (
        net.client.open(socket.AF_INET, socket.SOCK_RAW, ICMP) as one,
        net.server.open(socket.AF_INET, socket.SOCK_RAW, ICMP) as other,
    ):
        for inside, data in [(one, b"of the client"), (other, b"of the server")]:
            inside.sendto(request(78, 1, data), (REMOTE, 0))
        for inside, data in [(one, b"of the client"), (other, b"of the server")]:
            reply = Packet(inside.recv(2000))
            assert (reply.source, reply.payload[0]) == (REMOTE, 0)
            assert reply.payload[4:] == struct.pack("!HH", 78, 1) + data


@pytest.mark.parametrize("to", [REMOTE, REMOTE6])
def test_port_unreachable_reaches_the_socket(net, to):
    """Linux hands the error to the socket that it concerns only where the quoted packet is the one that it sent."""
    with net.client.udp(v6=":" in to) as client:
        client.connect((to, 9))
        client.send(b"anybody?")
        with pytest.raises(ConnectionRefusedError):
            client.recv(100)


def test_port_unreachable_reaches_who_was_forwarded(net):
    with net.remote.udp() as client:
        client.connect((OUTSIDE, 4000))
        client.send(b"anybody?")
        with pytest.raises(ConnectionRefusedError):
            client.recv(100)


def test_the_quoted_packet_is_the_one_that_was_sent(net):
    """Source, ports and checksum of the header within an error are translated, too (RFC 5508, REQ-4)."""
    with net.client.sniff("eth0") as sniffer, net.client.udp(CLIENT, 4321) as client:
        client.sendto(b"anybody?", (REMOTE, 9))
        found = wait.until(lambda: errors(sniffer), "an error")[0]
        assert (found.source, found.to, found.payload[:2]) == (REMOTE, CLIENT, b"\x03\x03")
        assert checksum(found.header) == 0
        assert checksum(found.payload) == 0
        quoted = found.quoted
        assert (quoted.source, quoted.to, quoted.sport, quoted.dport) == (CLIENT, REMOTE, 4321, 9)
        assert checksum(quoted.header) == 0


def test_the_quoted_packet_of_a_forward_is_the_one_that_was_sent(net):
    with net.remote.sniff("eth0") as sniffer, net.remote.udp(REMOTE, 4322) as client:
        client.sendto(b"anybody?", (OUTSIDE, 4000))
        found = wait.until(lambda: errors(sniffer), "an error")[0]
        assert (found.source, found.to, found.payload[:2]) == (OUTSIDE, REMOTE, b"\x03\x03")
        quoted = found.quoted
        assert (quoted.source, quoted.to, quoted.sport, quoted.dport) == (REMOTE, OUTSIDE, 4322, 4000)
        assert checksum(quoted.header) == 0


@pytest.mark.parametrize("to", [NOBODY, NOBODY6])
def test_host_unreachable_when_nobody_has_the_address(net, to):
    """Nobody answers to ARP, or neighbour discovery: the gateway says so after three seconds or so."""
    with net.client.udp(v6=":" in to) as client:
        assert refusal(client, to) == "EHOSTUNREACH"


def test_network_unreachable_comes_from_the_router_behind(net):
    """The router has no route: its error finds the way back through the translation."""
    with net.client.udp() as client:
        assert refusal(client, "100.64.9.9") == "ENETUNREACH"


def test_guests_are_told_that_they_must_not(net):
    done = net.guest.run("ping", "-n", "-c1", "-W1", SERVER, check=False)
    assert re.search(f"From {GUEST_GATEWAY} .*(prohibited|filtered)", done.stdout, re.IGNORECASE), done.stdout
    with pytest.raises(ConnectionRefusedError):
        net.guest.connect(SERVER, 22)
    with net.guest.udp() as guest, pytest.raises(ConnectionRefusedError):
        guest.connect((SERVER, 9))
        guest.send(b"anybody?")
        guest.recv(100)


ROADS = [
    ("udp", [], REMOTE, [GATEWAY, ROUTER, REMOTE]),
    ("icmp", ["-I"], REMOTE, [GATEWAY, ROUTER, REMOTE]),
    ("tcp", ["-T", "-p", "81"], REMOTE, [GATEWAY, ROUTER, REMOTE]),
    ("udp6", [], REMOTE6, [GATEWAY6, ROUTER6, REMOTE6]),
    ("icmp6", ["-I"], REMOTE6, [GATEWAY6, ROUTER6, REMOTE6]),
    ("tcp6", ["-T", "-p", "81"], REMOTE6, [GATEWAY6, ROUTER6, REMOTE6]),
]


def hops(host, options, to):
    """The hops that traceroute finds."""
    done = host.run("traceroute", "-n", "-q", "1", "-w", "5", "-m", "6", *options, to)
    return re.findall(r"^ *\d+ +(\S+)", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("options, to, road", [row[1:] for row in ROADS], ids=[row[0] for row in ROADS])
def test_traceroute_from_inside(net, options, to, road):
    assert hops(net.client, options, to) == road


def test_traceroute_from_outside_to_a_forwarded_port(net):
    """The gateway is a hop, and then the server stands there with the gateway's address."""
    # An answer waits for no neighbour that is not known yet.
    net.client.reaches(REMOTE)
    assert hops(net.remote, ["-T", "-p", "443"], OUTSIDE) == ["198.51.100.1", OUTSIDE, OUTSIDE]


def test_traceroute_from_outside_by_ipv6(net):
    net.client.reaches(REMOTE6)
    found = hops(net.remote, ["-T", "-p", "443"], SERVER6)
    assert found == ["2001:db8:aaaa::1", "2001:db8:ffff::2", SERVER6]


@pytest.mark.without("nftables", why="a question to wirerate")
@pytest.mark.parametrize("to, protocol", [(REMOTE, "icmp"), (REMOTE6, "icmpv6")])
def test_flows_of_pings_have_a_type_and_an_identifier(net, to, protocol):
    assert net.client.ping(to, "-e", 4711)

    def flows(*options):
        listed = net.office.ask("flows", "--protocol", protocol, "--host", to, *options, "--json").stdout
        return json.loads(listed)["flows"]

    (flow,) = flows("--icmp-id", 4711)
    asked = flow["icmp"]
    assert (asked["type"], asked["name"], asked["id"]) == (8 if protocol == "icmp" else 128, "echo-request", 4711)
    assert not {"sport", "dport", "seen_port", "reached_port"} & set(flow), flow
    # What the far end sees, which it can be found by, too; IPv6 is not translated.
    assert asked in [found["icmp"] for found in flows("--icmp-id", asked["seen_id"])]
    assert protocol == "icmp" or asked["seen_id"] == 4711
    # An identifier is no port.
    assert not flows("--port", 4711)
    text = net.office.ask("flows", "--protocol", protocol, "--host", to, "--icmp-id", 4711).stdout
    source = CLIENT if protocol == "icmp" else CLIENT6
    row = re.split(r"\s{2,}", text.splitlines()[1].strip())
    assert row[:3] == [protocol, f"{source} id 4711", f"{to} echo-request"], text
    if protocol == "icmp":
        assert f"from {OUTSIDE} id {asked['seen_id']} (house)" in text
