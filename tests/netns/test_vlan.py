"""Guests on VLAN 20 of the office's cable."""

import json
import struct

import pytest
import wait
from packet import UDP, drain, ethernet, ipv4, mac, udp
from topology import CLIENT, GATEWAY, GUEST, GUEST_GATEWAY, OUTSIDE, REMOTE, REMOTE6
from transfer import transfer

TAGGED = b"\x81\x00"


def test_guests_reach_the_gateway_and_the_world(net):
    assert net.guest.ping(GUEST_GATEWAY, count=3)
    assert net.guest.ping(REMOTE, count=3)
    assert net.guest.ping(REMOTE6, count=3)


def test_their_frames_are_tagged_on_the_cable_both_ways(net):
    """On the trunk itself, where no switch has touched them."""
    with net.guest.sniff("trunk") as sniffer:
        assert net.guest.ping(REMOTE, "-p", b"PING".hex(), count=3)
        frames = drain(sniffer)
    pings = [frame for frame in frames if b"PINGPING" in frame]
    assert len(pings) == 6
    assert all(frame[12:16] == TAGGED + b"\x00\x14" for frame in pings)


def test_full_packets_fit_with_their_tag(net):
    """1500 bytes and four more."""
    assert net.guest.ping(REMOTE, "-M", "do", "-s", 1472)
    assert net.guest.ping(GUEST_GATEWAY, "-M", "do", "-s", 1472)


def test_large_pings_are_cut_within_the_vlan(net):
    assert net.guest.ping(REMOTE, "-s", 20000)
    assert net.guest.ping(GUEST_GATEWAY, "-s", 20000)


@pytest.mark.parametrize("to", [REMOTE, REMOTE6])
def test_tcp_over_the_vlan(net, to):
    transfer(net.guest, net.remote, to, 80, upload=2_000_000, download=2_000_000)


def test_guests_cannot_reach_the_office(net):
    with net.client.listen(80), pytest.raises(ConnectionRefusedError):
        net.guest.connect(CLIENT, 80)


def frame_from(net, address, vlan, sport):
    """A datagram to the remote host in a frame of the VLAN given, or of none."""
    packet = ipv4(address, REMOTE, UDP, udp(address, REMOTE, sport, 53, b"%d" % sport))
    return ethernet(net.gateway.mac(net.guests), net.guest.mac("trunk"), packet, vlan=vlan)


@pytest.mark.parametrize(
    "address, vlan",
    [(GUEST, None), (GUEST, 30), (CLIENT, 20), (CLIENT, 30)],
    ids=["untagged", "other", "spoofed", "both"],
)
def test_what_is_not_of_the_vlan_does_not_pass(net, address, vlan):
    """A guest's address without its tag or with another, and an office address in the guests' VLAN."""
    # For Linux in the middle; wirerate's `source-check` is strict unless told otherwise.
    net.gateway.sysctl({"net/ipv4/conf/all/rp_filter": 1})
    try:
        with (
            net.remote.udp(port=53) as server,
            net.guest.wire("trunk") as trunk,
            net.guest.udp(GUEST) as honest,
        ):
            assert net.guest.ping(GUEST_GATEWAY)
            trunk.send(frame_from(net, address, vlan, 7001))
            honest.sendto(b"honest", (REMOTE, 53))
            assert server.recvfrom(100)[0] == b"honest", "what is not of the VLAN passed"
    finally:
        net.gateway.sysctl({"net/ipv4/conf/all/rp_filter": 0})


def test_frames_with_priority_alone_are_untagged(net):
    """IEEE 802.1Q, 6.9.1: VLAN 0 is no VLAN."""
    with net.remote.udp(port=53) as server, net.client.wire("eth0") as cable:
        assert net.client.ping(GATEWAY)
        packet = ipv4(CLIENT, REMOTE, UDP, udp(CLIENT, REMOTE, 7002, 53, b"priority"))
        tagged = (
            mac(net.gateway.mac("lan"))
            + mac(net.client.mac())
            + TAGGED
            + struct.pack("!HH", 5 << 13, 0x0800)
            + packet
        )
        cable.send(tagged)
        data, peer = server.recvfrom(100)
        assert (data, peer[0]) == (b"priority", OUTSIDE)


def test_the_vlan_and_the_office_at_once(net):
    """Both networks of the cable work side by side."""
    with net.remote.listen(80) as server:
        for number in range(50):
            for host in [net.client, net.guest]:
                with host.connect(REMOTE, 80) as here:
                    there, _ = server.accept()
                    with there:
                        here.sendall(b"%d" % number)
                        assert there.recv(100) == b"%d" % number
    wait.until(lambda: net.client.ping(GATEWAY) and net.guest.ping(GUEST_GATEWAY), "both reach the gateway")


@pytest.mark.without("nftables", why="a question to wirerate")
def test_frames_of_the_vlan_are_counted_for_it(net):
    def guest():
        ports = json.loads(net.office.ask("ports", "--json").stdout)
        return next(port for port in ports if port["interface"] == "guest")

    before = guest()
    assert net.guest.ping(GUEST_GATEWAY, "-s", 1000, count=4)
    after = guest()
    frame = 14 + 4 + 20 + 8 + 1000
    for side in ["received", "sent"]:
        assert after[side] >= before[side] + 4, (before, after)
        assert after[f"{side}_bytes"] >= before[f"{side}_bytes"] + 4 * frame, (before, after)
        assert after[side] < before[side] + 100, "those of the whole port"
