"""Traffic classes live: code points as hosts see them, meters by the machine's clock, and the counts that are told."""

import json
import socket
import struct
import time

import pytest
import wait
from packet import UDP, drain, ethernet, ipv4, udp
from topology import GUEST, GUEST_GATEWAY, REMOTE

pytestmark = pytest.mark.without("nftables", why="classes and meters are the policy's; Linux has tc for them")

VOICE, BULK, THIN = 5060, 5061, 5062
EF, AF11, CS1 = 46, 10, 8


@pytest.fixture(autouse=True)
def classes(net):
    net.client.reaches(REMOTE)
    net.office.apply("classes")
    yield
    net.office.apply()


def listen(host, address, port):
    opened = host.udp(address, port)
    opened.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
    opened.settimeout(5)
    return opened


def receive(opened):
    """What came, from whom, and its DiffServ code point."""
    data, control, _, source = opened.recvmsg(2048, 64)
    tos = next(value[0] for _, kind, value in control if kind == socket.IP_TOS)
    return data, source, tos >> 2


def counted(net):
    return {view["name"]: view for view in json.loads(net.office.ask("classes", "--json").stdout)}


def test_a_flow_is_marked_both_ways(net):
    with listen(net.remote, REMOTE, VOICE) as remote, listen(net.client, None, 0) as client:
        client.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, CS1 << 2)
        client.sendto(b"call", (REMOTE, VOICE))
        data, source, dscp = receive(remote)
        assert (data, dscp) == (b"call", EF)
        remote.sendto(b"answer", source)
        data, _, dscp = receive(client)
        assert (data, dscp) == (b"answer", EF)
    voice = counted(net)["voice"]
    assert (voice["packets"], voice["bytes"], voice["colours"]) == (2, 28 + 4 + 28 + 6, [0, 0, 0])


@pytest.mark.only("wirerate-packet", why="XDP does not see the tags of interfaces without hardware")
def test_priorities_of_vlan_tags_come_and_go(net):
    """IEEE 802.1Q, on the trunk itself: a priority gives a class, and a code point the priority of the answer."""
    net.office.apply("priorities")
    with listen(net.remote, REMOTE, 53) as remote, net.guest.wire("trunk") as trunk:
        assert net.guest.ping(GUEST_GATEWAY)
        packet = ipv4(GUEST, REMOTE, UDP, udp(GUEST, REMOTE, 7003, 53, b"tagged"))
        there, here = net.gateway.mac(net.guests), net.guest.mac("trunk")
        trunk.send(ethernet(there, here, packet, vlan=5 << 13 | 20))
        data, source, dscp = receive(remote)
        assert (data, dscp) == (b"tagged", EF)
        trunk.send(ethernet(there, here, packet, vlan=1 << 13 | 20))
        data, _, dscp = receive(remote)
        assert (data, dscp) == (b"tagged", 0)
        remote.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, EF << 2)
        remote.sendto(b"answered", source)
        caught = []

        def answered():
            caught.extend(frame for frame in drain(trunk) if b"answered" in frame[:60])
            return caught

        wait.until(answered, "the answer is on the trunk")
        assert caught[0][12:16] == struct.pack("!HH", 0x8100, 5 << 13 | 20)


@pytest.mark.only("wirerate-xdp", why="AF_PACKET has the tags")
def test_a_driver_that_loses_tags_is_not_kept_for_a_policy_that_goes_by_them(net):
    """A reload, as a start would: all packets would have the priority 0, and be of another class."""

    def ports():
        told = json.loads(net.office.ask("ports", "--json").stdout)
        return {port["interface"]: port for port in told if port["interface"] in ("lan", "wan", "trunk")}

    def states():
        return {name: port["state"] for name, port in ports().items()}

    assert states() == {"lan": "up", "wan": "up", "trunk": "up"}
    try:
        net.office.apply("priorities")
        wait.until(lambda: states() == {"lan": "failed", "wan": "failed", "trunk": "up"}, "AF_XDP is given up")
        assert "VLAN tags" in ports()["lan"]["refused"][0]
    finally:
        net.office.apply()
    wait.until(lambda: set(states().values()) == {"up"}, "all ports are up again")
    net.client.reaches(REMOTE)


def test_a_meter_passes_its_rate_and_is_counted(net):
    sent = 300
    with listen(net.remote, REMOTE, BULK) as remote, listen(net.client, None, 0) as client:
        before = dropped(net)
        began = time.monotonic()
        for _ in range(sent):
            client.sendto(b"bulk", (REMOTE, BULK))
        wait.until(lambda: counted(net)["bulk"]["packets"] == sent, "all are classified")
        most = 20 + 10 * (time.monotonic() - began) + 1
        green, yellow, red = counted(net)["bulk"]["colours"]
        assert 20 <= green <= most and yellow == 0 and green + red == sent
        assert dropped(net) - before == red
        for _ in range(green):
            assert receive(remote)[2] == AF11
        remote.settimeout(0.2)
        with pytest.raises(TimeoutError):
            receive(remote)


def test_a_drained_meter_is_drained_after_a_restart(net):
    """What the rate has let come meanwhile passes, and no burst."""
    net.office.apply("drained")
    # Somebody listens: errors would be of the flow's class, too.
    with listen(net.remote, REMOTE, THIN), listen(net.client, None, 0) as client:
        began = time.monotonic()
        assert empty_bucket(client, net) >= 40
        net.office.stop()
        net.office.start("drained")
        net.client.reaches(REMOTE)
        passed = empty_bucket(client, net)
        assert passed <= time.monotonic() - began + 1


def empty_bucket(client, net):
    """Number of packets that pass of a hundred."""
    for _ in range(100):
        client.sendto(b"thin", (REMOTE, THIN))
    wait.until(lambda: counted(net)["thin"]["packets"] == 100, "all are classified")
    return counted(net)["thin"]["colours"][0]


def dropped(net):
    reasons = json.loads(net.office.ask("drops", "--json").stdout)
    return next((reason["dropped"] for reason in reasons if reason["reason"] == "policed"), 0)


def test_counts_stay_with_the_name(net):
    with listen(net.remote, REMOTE, VOICE) as remote, listen(net.client, None, 0) as client:
        client.sendto(b"one", (REMOTE, VOICE))
        receive(remote)
        before = counted(net)["voice"]["packets"]
        assert before > 0
        # The flow goes on, and is of no class for a while.
        net.office.apply()
        client.sendto(b"two", (REMOTE, VOICE))
        assert receive(remote)[2] == 0
        assert counted(net) == {}
        net.office.apply("classes")
        client.sendto(b"three", (REMOTE, VOICE))
        assert receive(remote)[2] == EF
        assert counted(net)["voice"]["packets"] == 1
        net.office.apply("classes", "slow")
        client.sendto(b"four", (REMOTE, VOICE))
        assert receive(remote)[2] == EF
        assert counted(net)["voice"]["packets"] == 2
