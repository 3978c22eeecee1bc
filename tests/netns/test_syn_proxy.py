"""Servers whose SYNs the gateway answers, with Linux's TCP at both ends. Linux as the gateway lets its servers answer."""

import json
import random

import pytest
from packet import SYN, TCP, ethernet, ipv4, tcp
from topology import OUTSIDE, REMOTE, SERVER6
from transfer import exchange, transfer

VARIANTS = ["syn-proxy"]

MEGABYTE = 1 << 20


@pytest.fixture(autouse=True)
def known(net):
    """An answer with a cookie does not wait for the router's link-layer address."""
    net.gateway.reaches(REMOTE)


def test_a_megabyte_each_way(net):
    transfer(net.remote, net.server, OUTSIDE, 443, upload=MEGABYTE, download=MEGABYTE)


def test_a_megabyte_each_way_of_ipv6(net):
    transfer(net.remote, net.server, SERVER6, 443, upload=MEGABYTE, download=MEGABYTE)


def test_a_client_without_options(net):
    """Neither window scale nor selective acknowledgements: what is agreed on with the server follows."""
    for option in ["tcp_window_scaling", "tcp_sack", "tcp_timestamps"]:
        net.remote.run("sysctl", "-qw", f"net.ipv4.{option}=0")
    try:
        transfer(net.remote, net.server, OUTSIDE, 443, upload=MEGABYTE, download=MEGABYTE)
    finally:
        for option in ["tcp_window_scaling", "tcp_sack", "tcp_timestamps"]:
            net.remote.run("sysctl", "-qw", f"net.ipv4.{option}=1")


def test_a_server_without_options(net):
    """The client was told of a window scale that the server does not have."""
    for option in ["tcp_window_scaling", "tcp_sack"]:
        net.server.run("sysctl", "-qw", f"net.ipv4.{option}=0")
    try:
        transfer(net.remote, net.server, OUTSIDE, 443, upload=MEGABYTE, download=MEGABYTE)
    finally:
        for option in ["tcp_window_scaling", "tcp_sack"]:
            net.server.run("sysctl", "-qw", f"net.ipv4.{option}=1")


LOSSY = """
table inet lossy {
    chain forward {
        type filter hook forward priority 0
        tcp sport 443 tcp flags & syn == 0 numgen inc mod 40 == 7 drop
        tcp dport 443 tcp flags & syn == 0 numgen inc mod 40 == 7 drop
    }
}
"""
"""Of either direction every fortieth segment is lost."""


def test_lost_segments_are_repaired(net):
    """Selective acknowledgements name bytes in the numbers that the server has sent."""
    net.router.run("nft", "-f", "-", input=LOSSY)
    try:
        transfer(net.remote, net.server, OUTSIDE, 443, upload=MEGABYTE, download=MEGABYTE)
    finally:
        net.router.run("nft", "delete", "table", "inet", "lossy")


def test_a_server_that_speaks_first(net):
    with net.server.listen(443) as server, net.remote.connect(OUTSIDE, 443) as client:
        there, peer = server.accept()
        with there:
            assert peer[0] == REMOTE, "the server sees who it is"
            there.sendall(b"hello")
            assert client.recv(100) == b"hello"
            client.sendall(b"bye")
            assert there.recv(100) == b"bye"
            there.close()
            assert client.recv(100) == b""


def test_a_closed_port_resets(net):
    with pytest.raises((ConnectionRefusedError, ConnectionResetError)):
        with net.remote.connect(OUTSIDE, 443) as client:
            client.sendall(b"anybody?")
            client.recv(100)


@pytest.mark.without("nftables", why="its servers answer SYNs themselves")
def test_twenty_thousand_forged_syns_make_no_flow(net):
    net.unwatch()
    chance = random.Random(7)
    macs = net.gateway.mac("wan"), net.router.mac("wan")
    before, connections = net.office.counters(), 0
    with net.server.listen(443) as server, net.router.wire("wan") as wire:
        for sent in range(20_000):
            source = f"198.{chance.choice((18, 19))}.{chance.randrange(256)}.{chance.randrange(1, 255)}"
            segment = tcp(source, OUTSIDE, chance.randrange(1024, 65536), 443, SYN, seq=chance.getrandbits(32))
            try:
                wire.send(ethernet(*macs, ipv4(source, OUTSIDE, TCP, segment)))
            except OSError:
                pass  # No room for now: the frame is lost, as others are.
            if sent % 4_000 == 3_999:
                with net.remote.connect(OUTSIDE, 443) as client, server.accept()[0] as there:
                    exchange(client, there, 1000, 1000)
                connections += 1
    assert connections == 5
    after = net.office.counters()
    assert after["answered"] - before["answered"] >= 1000, "hardly any SYN was answered"
    flows = json.loads(net.office.ask("flows", "--protocol", "tcp", "--port", "443", "--json").stdout)["flows"]
    forged = [flow["source"] for flow in flows if flow["source"].startswith(("198.18.", "198.19."))]
    assert not forged, f"forged sources have flows: {forged[:5]}"
    assert after["flows_begun"] - before["flows_begun"] < 100
