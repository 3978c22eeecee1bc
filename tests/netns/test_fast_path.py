"""Established flows in Linux's kernel: what goes by the workers, what does not, and that nobody can tell."""

import json
import shlex
import socket
import time

import gateway
import pytest
import wait
from test_whole import meanwhile
from topology import CLIENT, GATEWAY, OUTSIDE, REMOTE, REMOTE6, SERVER6
from transfer import transfer

pytestmark = pytest.mark.only("wirerate-fast", "wirerate-fast-xdp", why="the fast path is on")

MANY = 20_000_000
SEGMENT = 1_448


def fast(net):
    return net.office.counters()["fast_path"]


def is_even(net):
    """All that was received has one fate."""
    now = net.office.counters()
    ended = sum(now[fate] for fate in ("forwarded", "delivered", "answered", "dropped", "held", "queued"))
    return now["received"] == ended


def flows(net):
    return json.loads(net.office.ask("flows", "--json").stdout)["flows"]


def port(net, interface):
    ports = json.loads(net.office.ask("ports", "--json").stdout)
    return next(port for port in ports if port["interface"] == interface)


def most_of(packets, request):
    """Packets that go by at least, of so many in streams. At XDP, where each segment is a frame, a flow leaves its worker as soon as none
    of its frames is on its way there, and when that is depends on the machine's load."""
    is_xdp = request.node.callspec.params["net"] == "wirerate-fast-xdp"
    return packets * (0.25 if is_xdp else 0.9)


@pytest.mark.parametrize("to", [REMOTE, REMOTE6])
def test_streams_go_by_and_count(net, request, to):
    before, ports = fast(net), [port(net, interface) for interface in ("lan", "wan")]
    transfer(net.client, net.remote, to, 80, upload=MANY, download=MANY)
    after = fast(net)
    carried = after["packets"] - before["packets"]
    assert carried > most_of(2 * MANY // SEGMENT, request), (before, after)
    assert after["lost"] == 0
    for was, interface in zip(ports, ("lan", "wan"), strict=True):
        now = port(net, interface)
        for packets, count in [("received", "received_bytes"), ("sent", "sent_bytes")]:
            assert now[packets] - was[packets] >= MANY // SEGMENT, "each segment counts"
            assert MANY + 66 * (MANY // SEGMENT) <= now[count] - was[count], "with its headers"
    wait.until(lambda: is_even(net), "received = forwarded + delivered + answered + dropped + held + queued")


def test_forwarded_ports_go_by_and_the_gateway_itself_does_not(net, request):
    before = fast(net)["packets"]
    transfer(net.remote, net.server, OUTSIDE, 443, upload=MANY, download=MANY)
    transfer(net.remote, net.server, SERVER6, 443, upload=MANY, download=MANY)
    after = fast(net)["packets"]
    assert after - before > most_of(4 * MANY // SEGMENT, request)
    transfer(net.client, net.gateway, GATEWAY, 22, upload=MANY, download=MANY)
    assert fast(net)["packets"] - after < 100


def datagrams(client, server, count):
    """As many questions and answers."""
    for number in range(count):
        client.sendto(b"question %d" % number, (REMOTE, 5001))
        data, back = server.recvfrom(100)
        assert data == b"question %d" % number
        server.sendto(b"answer %d" % number, back)
        assert client.recv(100) == b"answer %d" % number


def go_by(net, client, server, sport):
    """Exchanges datagrams until their flow is on the fast path."""

    def is_there():
        datagrams(client, server, 20)
        return next(flow for flow in flows(net) if flow.get("sport") == sport)["fast_path"]

    wait.until(is_there, "the flow is on the fast path")


def test_datagrams_go_by_and_keep_their_flow_alive(net):
    with net.remote.udp(port=5001) as server, net.client.udp(port=5004) as client:
        datagrams(client, server, 20)
        own = next(flow for flow in flows(net) if flow.get("sport") == 5004)
        assert own["fast_path"] and own["state"] == "confirmed", own
        assert "fast path" in net.office.ask("flows", "--port", "5004").stdout
        told = net.office.ask("explain", "--live", f"lan udp {CLIENT}:5004 > {REMOTE}:5001").stdout
        assert "fast path" in told, told
        before = fast(net)["packets"]
        time.sleep(2)
        datagrams(client, server, 10)
        own = next(flow for flow in flows(net) if flow.get("sport") == 5004)
        assert fast(net)["packets"] - before == 20
        assert own["idle_seconds"] < 1.5, own
        # What is not plain goes by the worker: here a packet with a TTL of 1, which is answered.
        client.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 1)
        client.sendto(b"too far", (REMOTE, 5001))
        client.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 64)
        datagrams(client, server, 1)


def test_a_flow_that_is_ended_is_not_carried_on(net):
    """What comes after it opens another one."""
    with net.remote.udp(port=5001) as server, net.client.udp(port=5007) as client:
        datagrams(client, server, 20)
        assert next(flow for flow in flows(net) if flow.get("sport") == 5007)["fast_path"]
        net.office.ask("flows", "kill", "--port", "5007")
        dropped = net.office.counters()["dropped"]
        server.sendto(b"too late", (OUTSIDE, 5007))
        wait.until(lambda: net.office.counters()["dropped"] > dropped, "what comes too late is dropped")
        datagrams(client, server, 1)
        assert not next(flow for flow in flows(net) if flow.get("sport") == 5007)["fast_path"]


def test_reloads_and_captures_take_flows_back(net, tmp_path):
    """Nothing is lost meanwhile, and a capture sees all."""
    apply = [gateway.binary(), "apply", net.office.policy, "--socket", net.office.socket]
    with meanwhile(net, shlex.join(map(str, apply)), "sleep 0.1"):
        for _ in range(5):
            transfer(net.client, net.remote, REMOTE, 80, upload=MANY, download=MANY)
    captured = tmp_path / "some.pcapng"
    with net.remote.udp(port=5001) as server, net.client.udp(port=5005) as client:
        # Again where the last reload takes it back.
        go_by(net, client, server, 5005)
        capture = ["capture", "--seconds", 2, "--protocol", "udp", "--out", captured]
        process = net.gateway.start(gateway.binary(), *capture, "--socket", net.office.socket, log="capture")
        wait.until(captured.exists, "the capture has begun")
        time.sleep(0.3)
        before = fast(net)["packets"]
        datagrams(client, server, 20)
        assert fast(net)["packets"] == before
        wait.until(lambda: process.poll() is not None, "the capture has ended")
        datagrams(client, server, 80)
        assert fast(net)["packets"] > before
    assert fast(net)["lost"] == 0
    wait.until(lambda: is_even(net), "received = forwarded + delivered + answered + dropped + held + queued")


def test_a_neighbour_that_moves_is_followed(net):
    """The kernel does not go on to send to the old address."""
    with net.remote.udp(port=5001) as server, net.client.udp(port=5006) as client:
        datagrams(client, server, 20)
        own = net.client.mac("eth0")
        moved = "02:00:00:00:77:01"
        try:
            net.client.run("ip", "link", "set", "eth0", "address", moved)
            net.client.reaches(GATEWAY)
            net.gateway.run("ip", "neigh", "flush", "dev", "lan")
            net.client.reaches(GATEWAY)
            datagrams(client, server, 20)
        finally:
            net.client.run("ip", "link", "set", "eth0", "address", own)
            net.gateway.run("ip", "neigh", "flush", "dev", "lan")
            net.client.reaches(GATEWAY)


def ds_field(server):
    """The DS field of the next packet."""
    (_, [(_, _, value)], *_) = server.recvmsg(100, 100)
    return value[0]


def test_code_points_are_written(net):
    """Of packets whose code points are of the flow's class, with congestion notification left as it is; others are the worker's."""
    text = net.office.policy.read_text()
    classes = '[[class]]\nname = "voice"\ndscp = "ef"\nmark = "cs5"\n\n[[class]]\nname = "rest"\nprotocol = "udp"\nmark = "af11"\n'
    net.office.policy.write_text(f"{text}\n{classes}")
    net.office.ask("apply", net.office.policy)
    try:
        with net.remote.udp(port=5001) as server, net.client.udp(port=5010) as client:
            server.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
            datagrams(client, server, 20)
            seen = []
            for tos in (0, 2, 46 << 2, 8 << 2, 46 << 2 | 2):
                client.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
                before = fast(net)["packets"]
                for _ in range(5):
                    client.sendto(b"marked", (REMOTE, 5001))
                    seen.append(ds_field(server))
                time.sleep(1.2)
                seen.append(fast(net)["packets"] - before)
            af11, cs5 = 10 << 2, 40 << 2
            assert seen == [
                *[af11] * 5, 5, *[af11 | 2] * 5, 5, *[cs5] * 5, 0, *[af11] * 5, 5, *[cs5 | 2] * 5, 0
            ]
    finally:
        net.office.policy.write_text(text)
        net.office.apply()


def dropped(net, by):
    """Packets lost at the egress of wan, and of all interfaces, by who dropped them."""
    return port(net, "wan")[f"{by}_dropped"], fast(net)["lost_at_egress"][f"{by}-dropped"]


def lost_at_egress(net, by, count, length=1_000):
    """Sends so many datagrams by the fast path, and says how many were dropped behind the gateway."""
    with net.remote.udp(port=5001) as server, net.client.udp(port=5008) as client:
        datagrams(client, server, 20)
        assert next(flow for flow in flows(net) if flow.get("sport") == 5008)["fast_path"]
        before, carried = dropped(net, by), fast(net)["packets"]
        for _ in range(count):
            client.sendto(bytes(length), (REMOTE, 5001))
        wait.until(lambda: fast(net)["packets"] - carried >= count, "all of them go by")
        assert fast(net)["packets"] - carried == count
        after = dropped(net, by)
    wait.until(lambda: is_even(net), "received = forwarded + delivered + answered + dropped + held + queued")
    assert [now - was for now, was in zip(after, before, strict=True)] == [after[0] - before[0]] * 2
    return after[0] - before[0]


def test_what_the_device_drops_is_counted(net):
    """Longer than the other end of the link takes: no program of the gateway sees that."""
    net.switch.ip("link set gw-wan mtu 700")
    try:
        assert lost_at_egress(net, "tx", 30) == 30
        text = net.office.ask("status").stdout
        assert "lost at egress" in text and "tx-dropped" in text, text
        assert "wan: lost at egress: tx-dropped" in net.office.ask("ports").stdout
    finally:
        net.switch.ip("link set gw-wan mtu 1500")
    assert lost_at_egress(net, "tx", 30) == 0


@pytest.mark.without("wirerate-fast-xdp", why="frames at XDP pass by the queueing discipline")
def test_what_the_queueing_discipline_drops_is_counted(net):
    """More than its queue has room for, and again when another one has taken its place."""
    for packets in (3, 7):
        net.gateway.run("tc", "qdisc", "replace", "dev", "wan", "root", "pfifo", "limit", packets)
        limit = ["rate", "80kbit", "burst", "1600", "limit", 1_100 * packets]
        net.gateway.run("tc", "qdisc", "replace", "dev", "wan", "root", "tbf", *limit)
        try:
            lost = lost_at_egress(net, "qdisc", 100)
            assert 100 - 2 * packets - 4 <= lost <= 100 - packets, lost
        finally:
            net.gateway.run("tc", "qdisc", "del", "dev", "wan", "root")
    assert lost_at_egress(net, "qdisc", 30) == 0


def test_what_is_sent_without_a_carrier_is_counted(net):
    with net.remote.udp(port=5001) as server, net.client.udp(port=5009) as client:
        datagrams(client, server, 20)
        before = dropped(net, "tx")[0]
        net.switch.ip("link set gw-wan down")
        try:
            for _ in range(10):
                client.sendto(b"into the void", (REMOTE, 5001))
            wait.until(lambda: dropped(net, "tx")[0] > before, "the device drops them")
        finally:
            net.switch.ip("link set gw-wan up")
        wait.until(lambda: port(net, "wan")["carrier"] == "up", "the carrier is back")
        net.client.reaches(REMOTE)


def test_it_can_be_switched_off_and_on(net):
    text = net.office.policy.read_text()
    net.office.policy.write_text(text.replace(f'fast-path = "{net.office.fast_path}"', 'fast-path = "off"'))
    net.office.ask("apply", net.office.policy)
    try:
        before = fast(net)["packets"]
        transfer(net.client, net.remote, REMOTE, 80, upload=MANY)
        assert fast(net)["packets"] == before
    finally:
        net.office.apply()
    transfer(net.client, net.remote, REMOTE, 80, upload=MANY)
    assert fast(net)["packets"] > before


def test_it_has_room_for_all_flows_of_the_policy(net, monkeypatch):
    few, many = 262_144, 400_000
    assert net.office.counters()["flow_capacity"] == few
    assert fast(net)["slots"] >= 2 * few, "two for each flow are in use"
    write = net.office.write

    def write_more(*variants):
        write(*variants)
        text = net.office.policy.read_text()
        net.office.policy.write_text(text.replace(f"\nflows = {few}\n", f"\nflows = {many}\n"))

    net.office.stop()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(net.office, "write", write_more)
            net.office.start()
        assert net.office.counters()["flow_capacity"] == many
        assert fast(net)["slots"] >= 2 * many
    finally:
        net.office.stop()
        net.office.start()
