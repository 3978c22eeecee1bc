"""Established flows by VLANs in Linux's kernel: tags come, go and are exchanged, and nobody can tell who carried a packet."""

import json
import time

import pytest
import wait
from host import stop
from packet import drain
from test_fast_path import MANY, SEGMENT, fast, flows, is_even
from topology import GUEST_GATEWAY, REMOTE, REMOTE6
from transfer import transfer

pytestmark = pytest.mark.only("wirerate-fast", why="tags lie beside socket buffers; frames at XDP stay with workers")

TAG = 4
COUNTS = ["received", "received_bytes", "sent", "sent_bytes"]


def ports(net, *names):
    """Counters of interfaces, of one moment."""
    all_ports = {port["interface"]: port for port in json.loads(net.office.ask("ports", "--json").stdout)}
    return [{count: all_ports[name][count] for count in COUNTS} for name in names]


def datagrams(client, server, count):
    """As many questions and answers, each of which arrives once."""
    for number in range(count):
        client.sendto(b"question %06d" % number, (REMOTE, 53))
        data, back = server.recvfrom(100)
        assert data == b"question %06d" % number
        server.sendto(b"answer %06d" % number, back)
        assert client.recv(100) == b"answer %06d" % number
    for socket in (client, server):
        socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            socket.recv(100)
        socket.settimeout(5)


def exchange(net, sport, names):
    """Exchanges 200 datagrams of a flow that is on the fast path, or cannot be; what interfaces have counted, packets carried, and the
    bytes of all frames received."""
    with net.remote.udp(port=53) as server, net.guest.udp(port=sport) as client:
        datagrams(client, server, 20)
        before, all_before = ports(net, *names), net.office.counters()
        datagrams(client, server, 200)
        wait.until(
            lambda: ports(net, *names)[0]["sent"] - before[0]["sent"] >= 200, "what was carried is counted"
        )
        after, all_after = ports(net, *names), net.office.counters()
        own = next(flow for flow in flows(net) if flow.get("sport") == sport)
    assert is_even(net)
    more = [{count: now[count] - was[count] for count in COUNTS} for now, was in zip(after, before, strict=True)]
    carried = all_after["fast_path"]["packets"] - all_before["fast_path"]["packets"]
    assert all_after["fast_path"]["lost"] == 0
    return more, carried, own["fast_path"]


def assert_counted(counts, received, sent):
    """200 frames of these lengths each way, and hardly any other: neighbours ask for each other now and then."""
    for side, length in [("received", received), ("sent", sent)]:
        assert 200 <= counts[side] < 220, counts
        others = counts[side] - 200
        assert 200 * length + 28 * others <= counts[f"{side}_bytes"] <= 200 * length + 200 * others, counts


@pytest.mark.parametrize("to", [REMOTE, REMOTE6])
def test_streams_of_the_vlan_go_by(net, to):
    before, were = fast(net), ports(net, "guest", "lan", "wan")
    transfer(net.guest, net.remote, to, 80, upload=MANY // 4, download=MANY // 4)
    after, now = fast(net), ports(net, "guest", "lan", "wan")
    segments = MANY // 4 // SEGMENT
    assert after["packets"] - before["packets"] > segments, (before, after)
    assert after["lost"] == 0
    guest, lan, wan = (
        {count: new[count] - old[count] for count in COUNTS} for new, old in zip(now, were, strict=True)
    )
    for counts, header in [(guest, 14 + TAG), (lan, 14 + TAG), (wan, 14)]:
        for side in ["received", "sent"]:
            assert counts[side] >= segments, "each segment counts"
            assert counts[f"{side}_bytes"] >= MANY // 4 + (header + 52) * segments, "with its headers"
    # The VLAN's frames are its parent's too, once.
    assert guest["received"] <= lan["received"] < guest["received"] + 100
    assert guest["sent_bytes"] <= lan["sent_bytes"] < guest["sent_bytes"] + 10_000
    wait.until(lambda: is_even(net), "received = forwarded + delivered + answered + dropped + held + queued")


def test_datagrams_of_the_vlan_count_as_those_of_workers_do(net):
    length = 28 + len(b"question 000000")
    back = length - len(b"question") + len(b"answer")
    for wish in ["tc", "off"]:
        text = net.office.policy.read_text()
        net.office.policy.write_text(text.replace('fast-path = "tc"', f'fast-path = "{wish}"'))
        net.office.ask("apply", net.office.policy)
        try:
            (guest, lan, wan), carried, is_fast = exchange(net, 5020, ["guest", "lan", "wan"])
            assert (carried, is_fast) == ((400, True) if wish == "tc" else (0, False))
            assert_counted(guest, 14 + TAG + length, 14 + TAG + back)
            assert_counted(lan, 14 + TAG + length, 14 + TAG + back)
            assert_counted(wan, 14 + back, 14 + length)
        finally:
            net.office.policy.write_text(text)
            net.office.apply()


def test_tags_on_the_cable_are_those_of_the_vlan(net):
    """Also of frames that the kernel has carried: tagged inside, untagged outside."""
    with net.remote.udp(port=53) as server, net.guest.udp(port=5021) as client:
        datagrams(client, server, 20)
        before = fast(net)["packets"]
        with net.guest.sniff("trunk") as inside, net.router.sniff("wan") as outside:
            datagrams(client, server, 10)
            wait.until(lambda: fast(net)["packets"] - before == 20, "all of them go by")
            frames, plain = drain(inside), drain(outside)
    tagged = [frame for frame in frames if b"answer 0000" in frame]
    assert len(tagged) == 10
    assert all(frame[12:18] == b"\x81\x00\x00\x14\x08\x00" for frame in tagged)
    untagged = [frame for frame in plain if b"question 0000" in frame]
    assert len(untagged) == 10
    assert all(frame[12:14] == b"\x08\x00" for frame in untagged)


@pytest.mark.parametrize("vlan", [20, 30], ids=["same", "other"])
def test_from_vlan_to_vlan(net, vlan):
    """A VLAN of the street's cable too, of the same number or of another."""
    text = net.office.policy.read_text()
    more = f"""
[interface.street]
zone = "wan"
parent = "wan"
vlan = {vlan}
addresses = ["203.0.114.2/24"]

[[route]]
to = "{REMOTE}"
via = "203.0.114.1"
"""
    program = net.vlan(net.router, "wan", "street", vlan)
    net.router.ip("addr add 203.0.114.1/24 dev street", "link set street up")
    try:
        net.office.policy.write_text(text + more)
        net.office.ask("apply", net.office.policy)
        net.guest.reaches(REMOTE)
        # Linux tells of a new device with an address that is not yet the cable's.
        time.sleep(1)
        net.guest.reaches(REMOTE)
        (guest, street), carried, is_fast = exchange(net, 5022, ["guest", "street"])
        assert (carried, is_fast) == (400, True)
        length = 14 + TAG + 28 + len(b"question 000000")
        back = length - len(b"question") + len(b"answer")
        assert_counted(guest, length, back)
        assert_counted(street, back, length)
        before = fast(net)["packets"]
        transfer(net.guest, net.remote, REMOTE, 80, upload=MANY // 10, download=MANY // 10)
        assert fast(net)["packets"] - before > MANY // 10 // SEGMENT
        assert fast(net)["lost"] == 0
        assert net.guest.ping(REMOTE, count=3)
        wait.until(lambda: is_even(net), "received = forwarded + delivered + answered + dropped + held + queued")
    finally:
        net.office.policy.write_text(text)
        net.office.apply()
        if program:
            stop(program)
        else:
            net.router.ip("link del street")


def test_what_asks_for_priorities_stays_with_workers(net):
    """Frames of the VLAN leave with the priority of their code point, which is not the kernel's to write."""
    text = net.office.policy.read_text()
    net.office.policy.write_text(text.replace("vlan = 20\n", 'vlan = 20\npcp = "dscp"\n'))
    net.office.ask("apply", net.office.policy)
    try:
        (guest, _), carried, is_fast = exchange(net, 5023, ["guest", "lan"])
        assert (carried, is_fast) == (0, False)
        assert guest["received"] >= 200
    finally:
        net.office.policy.write_text(text)
        net.office.apply()
    assert net.guest.ping(GUEST_GATEWAY)
