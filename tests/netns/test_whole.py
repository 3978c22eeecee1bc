"""Packets of many segments (GRO, GSO) go through whole, and arrive as if each segment had gone by itself."""

import contextlib
import json
import shlex
import socket
import time

import gateway
import host
import packet
import pcapng
import pytest
import wait
from topology import GATEWAY, OUTSIDE, REMOTE, REMOTE6, SERVER6
from transfer import transfer

pytestmark = pytest.mark.only("wirerate-packet", why="AF_PACKET and TAP take them, and the worker")

MANY = 20_000_000
FRAME = 1_514
SEGMENT = 1_448
HEADERS6 = 40 + 32
"""Bytes of IPv6 and of TCP with time stamps."""
SOL_UDP, UDP_SEGMENT = 17, 103


def port(net, interface):
    ports = json.loads(net.office.ask("ports", "--json").stdout)
    return next(port for port in ports if port["interface"] == interface)


@contextlib.contextmanager
def offloads(net, interface, *states):
    """Offloads of an interface of the gateway are in that state, and on again afterwards."""
    net.gateway.run("ethtool", "-K", interface, *states)
    try:
        yield
    finally:
        names = states[::2]
        net.gateway.run("ethtool", "-K", interface, *[word for name in names for word in (name, "on")])


def sent(net, sniffer):
    """Lengths of the frames that the gateway has sent by its interface to the internet."""
    own = packet.mac(net.gateway.mac("wan"))
    return [len(frame) for frame in packet.drain(sniffer) if frame[6:12] == own]


def settled(path):
    """Says, each time that it is asked, if a file is as long as it was the last time."""
    before = None

    def is_settled():
        nonlocal before
        was, before = before, path.stat().st_size
        return was == before

    return is_settled


@contextlib.contextmanager
def meanwhile(net, *commands):
    """Runs commands on the gateway, over and over; a process does so, as threads beside those of a test would both fork."""
    process = net.gateway.start("sh", "-c", f"while :; do {'; '.join(commands)}; done", log="meanwhile")
    try:
        yield
    finally:
        host.stop(process)


@pytest.mark.parametrize("to", [REMOTE, REMOTE6])
def test_streams_go_whole_and_count_as_segments(net, to):
    before = [port(net, interface) for interface in ("lan", "wan")]
    transfer(net.client, net.remote, to, 80, upload=MANY, download=MANY)
    after = [port(net, interface) for interface in ("lan", "wan")]
    for was, now in zip(before, after, strict=True):
        assert now["whole"] - was["whole"] > MANY // 65_536 // 2, (was, now)
        for packets, count in [("received", "received_bytes"), ("sent", "sent_bytes")]:
            segments, sizes = now[packets] - was[packets], now[count] - was[count]
            assert segments >= MANY // SEGMENT, "each segment counts"
            assert MANY + 66 * (MANY // SEGMENT) <= sizes, "with its headers"
        assert now["missed"] == was["missed"]


def test_forwarded_ports_and_the_gateway_itself(net):
    transfer(net.remote, net.server, OUTSIDE, 443, upload=MANY, download=MANY)
    transfer(net.remote, net.server, SERVER6, 443, upload=MANY, download=MANY)
    before = port(net, "lan")["delivered"]
    transfer(net.client, net.gateway, GATEWAY, 22, upload=MANY, download=MANY)
    assert port(net, "lan")["delivered"] - before >= MANY // SEGMENT


@pytest.mark.longest(240)
def test_a_device_that_cuts_nothing_gets_segments(net):
    """Before, meanwhile, and after: frames on the wire are no longer than its MTU while it is so, and go whole again once it cuts."""
    transfer(net.client, net.remote, REMOTE, 80, upload=MANY)
    with offloads(net, "wan", "tso", "off", "tx-udp-segmentation", "off"):
        # Linux refuses the first packet of each kind, which is cut and sent.
        with net.router.sniff("wan", room=1 << 26) as sniffer:
            transfer(net.client, net.remote, REMOTE, 80, upload=MANY // 10)
            transfer(net.client, net.remote, REMOTE6, 80, upload=MANY // 10)
            lengths = sent(net, sniffer)
            assert len(lengths) > MANY // 10 // SEGMENT and max(lengths) <= FRAME
    with meanwhile(net, "ethtool -K wan tso off", "ethtool -K wan tso on"):
        for _ in range(5):
            transfer(net.client, net.remote, REMOTE, 80, upload=MANY, download=MANY)
    net.gateway.run("ethtool", "-K", "wan", "tso", "on")
    for to in REMOTE, REMOTE6:
        # It is asked after some hundreds of packets that it did not cut.
        transfer(net.client, net.remote, to, 80, upload=2 * MANY)
        with net.router.sniff("wan", room=1 << 26) as sniffer:
            transfer(net.client, net.remote, to, 80, upload=MANY // 10)
            assert max(sent(net, sniffer)) > 2 * FRAME


def test_datagrams_in_one_piece(net):
    """UDP's own segmentation: QUIC servers send so."""
    size, count = 1_200, 40
    with net.remote.udp(port=5001) as server, net.client.udp(port=5002) as client:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
        client.sendto(b"first", (REMOTE, 5001))
        data, back = server.recvfrom(100)
        server.sendto(b"answer", back)
        assert client.recv(100) == b"answer"
        client.setsockopt(SOL_UDP, UDP_SEGMENT, size)
        before = port(net, "lan")["whole"]
        for number in range(20):
            client.sendto(b"".join(bytes([number, part]) * (size // 2) for part in range(count)), (REMOTE, 5001))
            for part in range(count):
                assert server.recv(2_000) == bytes([number, part]) * (size // 2), (number, part)
        assert port(net, "lan")["whole"] > before


def test_reloads_and_captures_meanwhile(net, tmp_path):
    """New tables, and captures, have all flows' packets cut for a moment; none is lost, and what is captured is as on a wire."""
    captured, begun = tmp_path / "some.pcapng", port(net, "lan")["whole"]
    apply = [gateway.binary(), "apply", net.office.policy, "--socket", net.office.socket]
    with meanwhile(net, shlex.join(map(str, apply)), "sleep 0.2"):
        transfer(net.client, net.remote, REMOTE, 80, upload=MANY, download=MANY)
        capture = ["capture", "--seconds", 1, "--protocol", "tcp", "--out", captured]
        process = net.gateway.start(gateway.binary(), *capture, "--socket", net.office.socket, log="capture")
        while process.poll() is None:
            transfer(net.client, net.remote, REMOTE, 80, upload=MANY // 10, download=MANY // 10)
        transfer(net.client, net.remote, REMOTE, 80, upload=MANY, download=MANY)
    assert port(net, "lan")["whole"] > begun
    lengths = [seen.length for seen in pcapng.Capture(captured).packets]
    assert lengths and max(lengths) <= FRAME


@pytest.mark.parametrize("others", [[], ["--protocol", "icmp"]], ids=["alone", "beside"])
def test_captures_may_have_them_whole(net, tmp_path, others):
    """Each is captured in one piece at each point of its way, unless another capture is to see segments; no byte is missing."""
    path = tmp_path / "whole.pcapng"
    points = {
        "received": "received",
        "before-rewrite": "before rewrite",
        "queue": "after queue",
        "sent": "forwarded",
    }
    options = ["--whole", "--protocol", "tcp", "--snap", 128, "--stage", ",".join(points), "--out", path]
    command = [gateway.binary(), "capture", "--socket", net.office.socket]
    with contextlib.ExitStack() as stack:
        if others:
            beside = tmp_path / "segments.pcapng"
            stack.callback(host.stop, net.gateway.start(*command, *others, "--out", beside, log="beside"))
            wait.until(lambda: beside.exists() and beside.stat().st_size > 0, "the other capture has begun")
        process = net.gateway.start(*command, *options, log="whole")
        stack.callback(host.stop, process)
        wait.until(lambda: path.exists() and path.stat().st_size > 0, "the capture has begun")
        transfer(net.client, net.remote, REMOTE, 80, upload=MANY)
        # What the last packets were is written within a moment.
        wait.until(settled(path), "the capture is written", pause=0.3)
    seen = pcapng.Capture(path)
    if others:
        assert seen.packets and max(packet.length for packet in seen.packets) <= FRAME
        return
    headers = FRAME - SEGMENT
    lost = seen.lost * 65_536
    for point, words in points.items():
        lengths = [packet.length for packet in seen.packets if packet.comment.startswith(words)]
        assert max(lengths) > 10 * FRAME, point
        assert sum(length - headers for length in lengths) >= MANY - lost, point


METERED = """
[[class]]
name = "bulk"
protocol = "tcp"
meter = "line"
mark = "af11"

[[meter]]
name = "line"
rate = "{rate}"
burst = {burst}
"""


def stateless(text):
    """The policy without flows and what needs them: what is forwarded passes both ways."""
    head, _ = text.split("[[nat]]", 1)
    return 'mode = "stateless"\n' + head.replace(
        "[default]\n", '[default]\n"wan > lan" = "accept"\n"wan > self" = "accept"\n', 1
    )


@contextlib.contextmanager
def policy(net, text):
    """The gateway works by this policy, and by its own again afterwards."""
    net.office.policy.write_text(text)
    net.office.ask("apply", net.office.policy)
    try:
        yield
    finally:
        net.office.apply()


def bulk(net):
    views = json.loads(net.office.ask("classes", "--json").stdout)
    return next(view for view in views if view["name"] == "bulk")


@pytest.mark.parametrize("tracked", [True, False], ids=["stateful", "stateless"])
@pytest.mark.parametrize("metered", [False, True], ids=["plain", "metered"])
def test_what_all_segments_meet_alike_goes_whole(net, tracked, metered):
    """By a policy that tracks nothing, and through a meter that has tokens for all: nearly all goes whole, and each segment is counted."""
    some, text = MANY // 4, net.office.policy.read_text()
    text = text if tracked else stateless(text)
    with policy(net, text + METERED.format(rate="40 Gbit/s", burst=4_000_000) * metered):
        before = [port(net, interface) for interface in ("lan", "wan")]
        with net.router.sniff("wan", room=1 << 26) as sniffer:
            transfer(net.client, net.remote, REMOTE6, 80, upload=some, download=some)
            lengths = sent(net, sniffer)
        # What is cut leaves so: nobody behind the gateway's port merges segments again.
        went_whole = sum(length for length in lengths if length > 2 * FRAME)
        assert went_whole > some * 3 // 4
        after = [port(net, interface) for interface in ("lan", "wan")]
        for was, now in zip(before, after, strict=True):
            assert now["whole"] - was["whole"] > some // 65_536 // 2, (was, now)
            assert now["received"] - was["received"] >= some // SEGMENT, "each segment counts"
            assert now["missed"] == was["missed"]
        if metered:
            view = bulk(net)
            assert view["packets"] == sum(view["colours"]) and view["packets"] >= 2 * (some // SEGMENT)
            payload = view["bytes"] - HEADERS6 * view["packets"]
            assert 2 * some <= payload <= 2 * some * 1.02, "no byte twice, but for what is sent again"


@pytest.mark.parametrize("tracked", [True, False], ids=["stateful", "stateless"])
def test_a_meter_without_tokens_for_all_holds_to_its_rate(net, tracked):
    """Whole or cut, what passes has had tokens: no more than its burst and its rate bring in the time that it takes."""
    some, rate, burst = MANY // 10, 200_000_000, 60_000
    text = net.office.policy.read_text()
    text = text if tracked else stateless(text)
    with policy(net, text + METERED.format(rate=f"{rate // 1_000_000} Mbit/s", burst=burst)):
        begun = time.monotonic()
        transfer(net.client, net.remote, REMOTE6, 80, upload=some)
        took = time.monotonic() - begun
        view = bulk(net)
        green, yellow, red = view["colours"]
        assert red > 0 and yellow == 0 and green + red == view["packets"]
        assert some <= burst + rate / 8 * took


def test_they_can_be_cut_on_receipt(net):
    net.office.apply("segmented")
    try:
        wait.until(lambda: net.client.ping(GATEWAY), "the ports are open again")
        before = port(net, "lan")["whole"]
        transfer(net.client, net.remote, REMOTE, 80, upload=MANY)
        assert port(net, "lan")["whole"] == before
    finally:
        net.office.apply()
