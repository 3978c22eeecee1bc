"""Multicast from the provider to hosts inside: igmpproxy (IPv4) and smcroute (IPv6) on the gateway program Linux's multicast forwarding cache, and
whoever forwards, Linux or wirerate, sends copies to those who have joined, as the rules say."""

import json
import re
import shutil
import socket
import struct
import time

import pytest
import wait
from host import stop
from isolation import inside
from topology import CLIENT, GUEST, REMOTE6, ROUTER, ROUTER6

pytestmark = pytest.mark.longest(180)

PORT = 5004
CHANNEL, OTHER, LESSON, SOURCED, CHANNEL6 = "239.1.1.1", "239.1.4.4", "239.2.1.1", "239.1.3.3", "ff3e::1:2"
IP_ADD_SOURCE_MEMBERSHIP = 39

IGMPPROXY = f"""
quickleave
phyint wan upstream ratelimit 0 threshold 1
    altnet {ROUTER}/32
phyint lan downstream ratelimit 0 threshold 1
phyint guest downstream ratelimit 0 threshold 1
"""

SMCROUTE = f"""
phyint wan enable
phyint lan enable
phyint guest enable
mroute from wan source {ROUTER6} group {CHANNEL6} to lan guest
"""


@pytest.fixture
def television(net):
    """The rules of the channels, and a function that starts a daemon on the gateway; then all is as it was."""
    started = []

    def start(*words):
        if not shutil.which(words[0]):
            pytest.skip(f"SKIPPED: not installed: {words[0]} (./setup test)")
        started.append(net.gateway.start(*words))
        return started[-1]

    net.office.apply("iptv")
    yield start
    for process in reversed(started):
        stop(process)
        print(f"-- {process.log}\n{process.log.read_text(errors='replace')[-3000:]}")
    net.office.apply()


def igmpproxy(net, start):
    path = net.logs / "igmpproxy.conf"
    path.write_text(IGMPPROXY)
    path.chmod(0o600)
    start("igmpproxy", "-n", "-d", "-v", path)
    wait.until(lambda: vifs(net) >= {"wan", "lan", "guest"}, "the proxy has its interfaces")


def read(net, path):
    with inside(net.gateway.namespace), open(f"/proc/net/{path}", encoding="ascii") as file:
        return file.read()


def vifs(net):
    """The interfaces of Linux's multicast router."""
    return {line.split()[1] for line in read(net, "ip_mr_vif").splitlines()[1:]}


def joined(host, group, address, source=None):
    """A socket of a host that has joined a group."""
    with inside(host.namespace):
        found = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((group, PORT))
        if source:
            words = socket.inet_aton(group) + socket.inet_aton(address) + socket.inet_aton(source)
            found.setsockopt(socket.IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP, words)
        else:
            words = socket.inet_aton(group) + socket.inet_aton(address)
            found.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, words)
    found.setblocking(False)
    return found


def joined6(host, group):
    with inside(host.namespace):
        found = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        found.bind((group, PORT))
        words = socket.inet_pton(socket.AF_INET6, group) + struct.pack("@I", socket.if_nametoindex("eth0"))
        found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, words)
    found.setblocking(False)
    return found


class Source:
    """A sender on the provider's link."""

    def __init__(self, net, ttl=9):
        with inside(net.router.namespace):
            self.v4 = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.v4.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(ROUTER))
            self.v4.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
            self.v6 = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
            self.v6.bind((ROUTER6, 0))
            self.v6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, socket.if_nametoindex("wan"))
            self.v6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, ttl)
        self.number = 0

    def send(self, group):
        self.number += 1
        opened = self.v6 if ":" in group else self.v4
        opened.sendto(b"channel %d" % self.number, (group, PORT))
        return self.number


def heard(receiver):
    """The numbers that have come."""
    numbers = []
    while True:
        try:
            data = receiver.recv(2048)
        except BlockingIOError:
            return numbers
        assert data.startswith(b"channel "), f"what Linux has been given to look at came through: {data!r}"
        numbers.append(int(data.split()[1]))


def plays(source, group, *receivers):
    """All hear what is sent, in the end: a daemon asks, learns and programs at leisure. Then each hears each packet once."""

    def all_hear():
        source.send(group)
        time.sleep(0.05)
        return all([heard(receiver) for receiver in receivers])

    wait.until(all_hear, f"{group} is heard", 20)
    for receiver in receivers:
        heard(receiver)
    sent = [source.send(group) for _ in range(20)]
    found = {receiver: [] for receiver in receivers}

    def complete():
        for receiver in receivers:
            found[receiver] += heard(receiver)
        return all(len([one for one in numbers if one in sent]) >= 20 for numbers in found.values())

    wait.until(complete, f"all packets of {group} are heard")
    for numbers in found.values():
        assert [one for one in numbers if one in sent] == sent


@pytest.mark.parametrize("version", [2, 3])
def test_hosts_that_have_joined_hear_a_channel(net, television, version):
    for host in [net.client, net.guest]:
        host.sysctl({"net/ipv4/conf/all/force_igmp_version": version})
    try:
        igmpproxy(net, television)
        source = Source(net)
        one = joined(net.client, CHANNEL, CLIENT)
        plays(source, CHANNEL, one)
        two = joined(net.guest, CHANNEL, GUEST)
        plays(source, CHANNEL, one, two)
        one.close()
        two.close()
        # Where others stay, the proxy takes minutes to notice that one has left; of the only one it knows at once.
        only = joined(net.client, OTHER, CLIENT)
        plays(source, OTHER, only)
        only.close()
        with inside(net.client.namespace):
            left = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
            left.bind(("eth0", 0x0800))
        left.setblocking(False)

        def has_left():
            while frames(left, OTHER):
                pass
            for _ in range(3):
                source.send(OTHER)
            time.sleep(0.1)
            return not frames(left, OTHER)

        wait.until(has_left, "the channel has left the link of the host that left it", 30)
        left.close()
    finally:
        for host in [net.client, net.guest]:
            host.sysctl({"net/ipv4/conf/all/force_igmp_version": 0})


def frames(opened, group):
    """Packets to a group among those that have come."""
    found = 0
    while True:
        try:
            packet = opened.recv(2048)
        except BlockingIOError:
            return found
        found += packet[16:20] == socket.inet_aton(group)


def test_a_rule_refuses_a_zone(net, television):
    igmpproxy(net, television)
    source = Source(net)
    one, two = joined(net.client, LESSON, CLIENT), joined(net.guest, LESSON, GUEST)
    plays(source, LESSON, one)
    wait.until(lambda: len(exits(net, LESSON)) == 2, "the proxy has both")
    plays(source, LESSON, one)
    assert not heard(two)
    # The other group still reaches both.
    both = [joined(net.client, CHANNEL, CLIENT), joined(net.guest, CHANNEL, GUEST)]
    plays(source, CHANNEL, *both)
    for opened in [one, two, *both]:
        opened.close()


def exits(net, group):
    """The interfaces that Linux's entry for a group leads to."""
    word = "%08X" % struct.unpack("=I", socket.inet_aton(group))
    lines = [line.split() for line in read(net, "ip_mr_cache").splitlines()[1:]]
    return [one for line in lines if line[0] == word for one in line[6:]]


def test_a_source_is_joined(net, television):
    igmpproxy(net, television)
    source = Source(net)
    receiver = joined(net.client, SOURCED, CLIENT, source=ROUTER)
    plays(source, SOURCED, receiver)
    receiver.close()


def test_a_time_to_live_of_one_stays_on_its_link(net, television):
    igmpproxy(net, television)
    receiver = joined(net.client, CHANNEL, CLIENT)
    plays(Source(net), CHANNEL, receiver)
    heard(receiver)
    short = Source(net, ttl=1)
    for _ in range(5):
        short.send(CHANNEL)
    plays(Source(net), CHANNEL, receiver)
    receiver.close()


def smcroute(net, start):
    """Starts smcroute. Returns the words of its command."""
    path, socket_path = net.logs / "smcroute.conf", net.logs / "smcroute.sock"
    path.write_text(SMCROUTE)
    start("smcrouted", "-n", "-N", "-f", path, "-P", net.logs / "smcroute.pid", "-u", socket_path)
    wait.until(lambda: vifs(net) >= {"wan", "lan", "guest"}, "smcroute has its interfaces")
    return ["smcroutectl", "-u", socket_path]


def test_ipv6_by_smcroute(net, television):
    smcroute(net, television)
    source = Source(net)
    receivers = [joined6(net.client, CHANNEL6), joined6(net.guest, CHANNEL6)]
    plays(source, CHANNEL6, *receivers)
    for receiver in receivers:
        receiver.close()


def test_the_source_of_ipv6_is_told_what_is_too_big(net, television):
    """RFC 4443, section 2.4 (e.3): one link has the packet, and of the other, which cannot carry it, its source hears."""
    smcroute(net, television)
    # An answer does not wait for a neighbour to be resolved.
    net.client.reaches(REMOTE6)
    net.gateway.ip("link set guest mtu 1300")
    try:
        source = Source(net)
        receivers = [joined6(net.client, CHANNEL6), joined6(net.guest, CHANNEL6)]
        plays(source, CHANNEL6, *receivers)
        with inside(net.router.namespace):
            told = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
        told.settimeout(5)
        source.v6.sendto(b"channel 0 ".ljust(1352), (CHANNEL6, PORT))
        while (message := told.recv(2048))[0] != 2:
            pass
        assert struct.unpack("!I", message[4:8]) == (1300,)
        assert message[8 + 24 : 8 + 40] == socket.inet_pton(socket.AF_INET6, CHANNEL6)
        wait.until(lambda: heard(receivers[0]) == [0], "the other link has it")
        assert not heard(receivers[1])
        for opened in [told, *receivers]:
            opened.close()
    finally:
        net.gateway.ip("link set guest mtu 1500")


@pytest.mark.only("wirerate-packet", "wirerate-xdp", why="Linux has no tables")
def test_a_thousand_joins_compile_no_tables(net, television):
    """Routes come and go while a channel plays, and nothing else is looked at again."""
    words = smcroute(net, television)
    epoch = lambda: json.loads(net.office.ask("status", "--json").stdout)["epoch"]
    routes = lambda: len(json.loads(net.office.ask("status", "--json").stdout)["multicast_routes"])
    net.gateway.run(*words, "add", "wan", ROUTER, CHANNEL, "lan")
    source = Source(net)
    receiver = joined(net.client, CHANNEL, CLIENT)
    plays(source, CHANNEL, receiver)
    before = epoch()
    command = " ".join(map(str, words))
    loop = f"for n in $(seq 4 {{}}); do {command} {{}} wan {ROUTER} 239.1.$n.$1 {{}}; done"
    for number in range(1, 5):
        net.gateway.run("sh", "-c", loop.format(253, "add", "lan"), "sh", number, timeout=120)
        plays(source, CHANNEL, receiver)
    # The channel's, that of IPv6, and the thousand.
    wait.until(lambda: routes() == 1_002, "all routes are there")
    # The last one is in force.
    last = joined(net.client, "239.1.253.4", CLIENT)
    plays(source, "239.1.253.4", last)
    for number in range(1, 5):
        net.gateway.run("sh", "-c", loop.format(253, "remove", ""), "sh", number, timeout=120)
    wait.until(lambda: routes() == 2, "the thousand have gone")
    plays(source, CHANNEL, receiver)
    assert epoch() == before
    said = net.office.ask("status").stdout
    route = re.search(rf"{re.escape(CHANNEL)}\S* from {re.escape(ROUTER)} by wan to lan: (\d+) packets", said)
    assert route and int(route[1]) >= 6 * 20, said
    for opened in [receiver, last]:
        opened.close()


def unrouted(net):
    rows = json.loads(net.office.ask("drops", "--json").stdout)
    return sum(row["dropped"] for row in rows if row["reason"] == "multicast-unrouted")


@pytest.mark.only("wirerate-packet", "wirerate-xdp", "wirerate-fast", why="Linux has other counters")
def test_operators_see_routes_and_reasons(net, television):
    igmpproxy(net, television)
    source = Source(net)
    receiver = joined(net.client, CHANNEL, CLIENT)
    plays(source, CHANNEL, receiver)
    said = net.office.ask("status").stdout
    route = re.search(rf"{re.escape(CHANNEL)}\S* from {re.escape(ROUTER)} by wan to lan: (\d+) packets", said)
    assert route and int(route[1]) >= 20, said
    before, delivered = unrouted(net), net.office.counters()["delivered"]
    for _ in range(50):
        source.send("239.1.200.1")
    wait.until(lambda: unrouted(net) >= before + 45, "packets without a route are dropped")
    # One a second is given to Linux, which asks the daemon about it.
    assert delivered < net.office.counters()["delivered"]
    receiver.close()


@pytest.mark.only("wirerate-packet", "wirerate-xdp", why="a policy's own route")
def test_a_route_of_the_policy_needs_no_daemon(net):
    net.office.apply("iptv", "iptv-route")
    try:
        source = Source(net)
        receivers = [joined(net.client, CHANNEL, CLIENT), joined(net.guest, CHANNEL, GUEST)]
        plays(source, CHANNEL, *receivers)
        for receiver in receivers:
            receiver.close()
    finally:
        net.office.apply()
