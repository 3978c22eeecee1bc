"""Lines of ATM cells over UDP: a routed channel with LLC, and a bridged one with VC multiplexing. This test is the far end of both.

      client ── lan GATEWAY dsl ══ 10.99.0.2, in cells of channel 8/35
                           voice ══ 10.98.0.2, in cells of channel 8/36, on the same line
                           bridge ══ 10.97.0.2, in cells of channel 0/100
"""

import json
import socket
import struct

import pytest
import wait
from atm import CELL, PAD, ROUTED, Line, cell, cells, loopback
from packet import checksum, ethernet, ipv4, mac
from topology import CLIENT

VARIANTS = ["dsl", "two-workers"]

NEAR, FAR = "10.99.0.1", "10.99.0.2"
VOICE_NEAR, VOICE_FAR = "10.98.0.1", "10.98.0.2"
VOICE = (8, 36)
BRIDGE_NEAR, BRIDGE_FAR = "10.97.0.1", "10.97.0.2"
NEAR_MAC, FAR_MAC = "02:00:5e:10:00:35", "02:00:00:00:00:97"

pytestmark = pytest.mark.without("nftables", why="Linux has no ATM without a card or a daemon")


def icmp(kind, ident, payload):
    head = struct.pack("!BBHHH", kind, 0, 0, ident, 1)
    return head[:2] + struct.pack("!H", checksum(head + payload)) + head[4:] + payload


class Bridged(Line):
    """The far end of a bridged channel: packets in Ethernet frames, and ARP."""

    def send(self, packet, at_once=1):
        super().send(ethernet(NEAR_MAC, FAR_MAC, packet), at_once)

    def receive(self):
        while True:
            frame = super().receive()
            kind = frame[12:14]
            if kind == b"\x08\x06":
                asked = frame[38:42] == socket.inet_aton(BRIDGE_FAR) and frame[20:22] == b"\0\1"
                if asked:
                    reply = frame[14:20] + b"\0\2" + mac(FAR_MAC) + frame[38:42] + frame[22:32]
                    Line.send(self, ethernet(NEAR_MAC, FAR_MAC, reply, kind=0x0806))
            elif kind == b"\x08\x00":
                return frame[14:]


@pytest.fixture(scope="module")
def lines(net):
    with net.gateway.udp("127.0.0.1", 5001) as routed, net.gateway.udp("127.0.0.1", 5003) as bridged:
        yield (
            Line(routed, ("127.0.0.1", 5000), (8, 35), ROUTED, others=[VOICE]),
            Bridged(bridged, ("127.0.0.1", 5002), (0, 100), PAD),
        )


def answer(line, kind, ident):
    """The next ICMP message of that kind and identifier: its payload, and the sender."""
    while True:
        packet = line.receive()
        if packet[9] == 1 and packet[20] == kind and struct.unpack("!H", packet[24:26])[0] == ident:
            length = struct.unpack("!H", packet[2:4])[0]
            return packet[28:length], socket.inet_ntoa(packet[12:16])


def drops(net):
    return {entry["reason"]: entry["dropped"] for entry in json.loads(net.office.ask("drops", "--json").stdout)}


@pytest.mark.parametrize("place, far", [(0, FAR), (1, BRIDGE_FAR)])
@pytest.mark.parametrize("length, at_once", [(0, 1), (12, 1), (13, 1), (500, 1), (1400, 1), (1400, 31)])
def test_a_ping_comes_through_to_a_host_and_its_answer_back(net, lines, place, far, length, at_once):
    payload = bytes(number & 0xFF for number in range(length))
    ident = 1000 + length + at_once
    lines[place].send(ipv4(far, CLIENT, 1, icmp(8, ident, payload)), at_once)
    assert answer(lines[place], 0, ident) == (payload, CLIENT)


@pytest.mark.parametrize("place, far, near", [(0, FAR, NEAR), (1, BRIDGE_FAR, BRIDGE_NEAR)])
def test_the_gateway_itself_answers(net, lines, place, far, near):
    lines[place].send(ipv4(far, near, 1, icmp(8, 77, b"are you there?")))
    assert answer(lines[place], 0, 77) == (b"are you there?", near)


@pytest.mark.parametrize("place, far, near", [(0, FAR, NEAR), (1, BRIDGE_FAR, BRIDGE_NEAR)])
def test_a_host_of_the_office_and_the_gateway_reach_the_far_end(net, lines, place, far, near):
    for host, source in [(net.client, CLIENT), (net.gateway, near)]:
        with host.udp() as client:
            client.sendto(b"ping", (far, 7))
            while True:
                packet = lines[place].receive()
                if packet[9] == 17 and packet[28:32] == b"ping":
                    break
            assert socket.inet_ntoa(packet[12:16]) == source


def test_bad_cells_are_counted_and_the_next_packet_comes_through(net, lines):
    line = lines[0]
    before = drops(net)
    good = cells(line.vc, ROUTED + ipv4(FAR, CLIENT, 1, icmp(8, 5, bytes(200))))
    bad = bytearray(good[1])
    bad[2] ^= 4
    line.send_cells([good[0], bytes(bad), *good[2:]])
    line.send_cells(good[1:])
    wrong = bytearray(good[1])
    wrong[30] ^= 1
    line.send_cells([good[0], bytes(wrong), *good[2:]])
    line.send_cells([cell((8, 37), bytes(48), last=True)] * 3)
    line.send_cells([cell(line.vc, bytes(48), kind=2)] * 2)
    for _ in range(5):
        line.send_cells([cell(line.vc, bytes(48))] * 100)
    line.send_cells(good)
    line.send(ipv4(FAR, CLIENT, 1, icmp(8, 6, b"still there")))
    assert answer(line, 0, 6) == (b"still there", CLIENT)
    expected = {
        "atm-hec": 1,
        "aal5-length": 2,
        "aal5-crc": 1,
        "atm-vc-unknown": 3,
        "atm-management": 2,
        # 1,518 bytes with their trailer need 32 cells; 500 came, and those of the PDU that ended it.
        "aal5-too-long": 500 - 32 + len(good),
    }
    wait.until(
        lambda: all(drops(net).get(name, 0) - before.get(name, 0) == count for name, count in expected.items()),
        f"drops are {expected}",
    )


def test_two_channels_share_a_line(net, lines):
    """Cells of two channels take turns; each packet is answered by the channel that it came by."""
    dsl = lines[0]
    voice = Line(dsl.socket, dsl.to, VOICE, b"")
    one = cells(dsl.vc, ROUTED + ipv4(FAR, CLIENT, 1, icmp(8, 20, bytes(600))))
    two = cells(voice.vc, ipv4(VOICE_FAR, CLIENT, 1, icmp(8, 21, bytes(range(200)) * 3)))
    dsl.send_cells([cell for pair in zip(one, two, strict=False) for cell in pair])
    dsl.send_cells(one[len(two) :] + two[len(one) :])
    echoes = {}
    for line, packet in both(dsl, voice):
        if packet[9] == 1 and packet[20] == 0:
            ident = struct.unpack("!H", packet[24:26])[0]
            length = struct.unpack("!H", packet[2:4])[0]
            echoes[ident] = (line, packet[28:length])
        if len(echoes) == 2:
            break
    assert echoes == {20: (dsl, bytes(600)), 21: (voice, bytes(range(200)) * 3)}
    # Linux and the office speak by the second channel, too.
    for host, source in [(net.client, CLIENT), (net.gateway, VOICE_NEAR)]:
        with host.udp() as client:
            client.sendto(b"ring", (VOICE_FAR, 7))
            for line, packet in both(dsl, voice):
                if packet[9] == 17 and packet[28:32] == b"ring":
                    break
            assert (line, socket.inet_ntoa(packet[12:16])) == (voice, source)


def both(*lines):
    """The packets of several channels of one socket, each with its line."""
    while True:
        datagram = lines[0].socket.recv(65535)
        (header,) = struct.unpack("!I", datagram[:4])
        line = next(line for line in lines if line.vc == (header >> 20, header >> 4 & 0xFFFF))
        # A packet's cells leave together, in as many datagrams as they need.
        line.cells += [datagram[at : at + CELL] for at in range(0, len(datagram), CELL)]
        while line.is_whole():
            yield line, line.receive()


def arrives(line, expected):
    """Waits for a cell at the far end of a line. Between, there may be cells of Linux's packets, on its channels."""
    while True:
        datagram = line.socket.recv(65535)
        some = [datagram[at : at + CELL] for at in range(0, len(datagram), CELL)]
        if some == [expected]:
            return
        for one in some:
            (header,) = struct.unpack("!I", one[:4])
            assert (header >> 20, header >> 4 & 0xFFFF) in [line.vc, *line.others], one.hex()


def test_cells_are_switched_from_line_to_line(net, lines):
    dsl, bridge = lines
    for place in range(20):
        payload, last, clp = bytes([place] * 48), place % 2 == 1, place % 3 == 0
        dsl.send_cells([cell((8, 48), payload, last, place % 4 // 2 * 2, clp)])
        arrives(bridge, cell((1, 1000), payload, last, place % 4 // 2 * 2, clp))
        bridge.send_cells([cell((1, 1000), payload, last, clp=clp)])
        arrives(dsl, cell((8, 48), payload, last, clp=clp))
    # A header that is not intact goes nowhere.
    bad = bytearray(cell((8, 48), bytes(48)))
    bad[4] ^= 1
    dsl.send_cells([bytes(bad), cell((8, 48), bytes([99] * 48))])
    arrives(bridge, cell((1, 1000), bytes([99] * 48)))


def test_loopbacks_are_answered(net, lines):
    dsl = lines[0]
    for vc, kind, last in [(dsl.vc, 2, False), (dsl.vc, 2, True), (VOICE, 2, True), ((8, 4), 0, False)]:
        dsl.send_cells([cell(vc, loopback(1, 77), last, kind)])
        arrives(dsl, cell(vc, loopback(0, 77), last, kind))


def test_the_line_is_a_port(net, lines):
    ports = {port["interface"]: port for port in json.loads(net.office.ask("ports", "--json").stdout)}
    for name in ["dsl", "voice", "bridge"]:
        assert (ports[name]["state"], ports[name]["driver"]) == ("up", "ATM over UDP")
