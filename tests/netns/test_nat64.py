"""Hosts of IPv6 alone reach IPv4 hosts (NAT64): the client uses its IPv6 addresses, the remote its IPv4 address."""

import os
import select
import shutil
import socket

import pytest
import wait
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6EchoRequest,
    ICMPv6PacketTooBig,
    ICMPv6TimeExceeded,
    IPv6,
    IPv6ExtHdrFragment,
)
from topology import CARDS, CLIENT6, FAR, OUTSIDE, REMOTE, ROUTER, SERVER6, STRANGER
from translator import Translator, scapy, tayga, under_prefix

pytestmark = pytest.mark.without("nftables", why="it has no NAT64")


OWN = "2001:db8:64::"
"""Another prefix: Tayga takes addresses for documentation for private ones, and refuses them under the well-known prefix."""
REMOTE64, FAR64, STRANGER64 = under_prefix(REMOTE), under_prefix(FAR), under_prefix(STRANGER)


@pytest.fixture(scope="module", autouse=True)
def translating(net):
    net.office.apply("nat64")
    yield
    net.office.apply()


def received(connection, length):
    got = b""
    while len(got) < length:
        data = connection.recv(length - len(got))
        assert data, f"closed after {len(got)} bytes"
        got += data
    return got


def test_a_connection_carries_data_both_ways(net):
    data = bytes(range(256)) * 8000
    with net.remote.listen(8080, REMOTE) as server, net.client.connect(REMOTE64, 8080) as client:
        there, peer = server.accept()
        with there:
            assert peer[0] == OUTSIDE
            assert client.getsockname()[0] == CLIENT6
            for source, sink in [(client, there), (there, client)]:
                for begin in range(0, len(data), 32_000):
                    source.sendall(data[begin : begin + 32_000])
                    assert received(sink, len(data[begin : begin + 32_000])) == data[begin : begin + 32_000]


def test_datagrams_of_all_sizes_are_answered(net):
    """Those that are too long for one IPv6 packet, or one IPv4 packet, go in fragments."""
    with net.remote.udp(REMOTE, 5300) as server, net.client.udp(CLIENT6) as client:
        # The answers may be fragmented on their way.
        server.setsockopt(socket.IPPROTO_IP, 10, 0)  # IP_MTU_DISCOVER, IP_PMTUDISC_DONT
        for size in [0, 1, 1200, 1232, 1233, 1452, 1453, 1472, 1473, 4000, 20_000]:
            sent = bytes(number % 251 for number in range(size))
            client.sendto(sent, (REMOTE64, 5300))
            data, peer = server.recvfrom(65_536)
            assert (data, peer[0]) == (sent, OUTSIDE)
            server.sendto(sent, peer)
            data, peer = client.recvfrom(65_536)
            assert (data, peer[0]) == (sent, REMOTE64)


def test_pings_are_answered(net):
    assert net.client.ping(REMOTE64)
    assert net.client.ping(REMOTE64, "-s", 1400)


def test_a_closed_port_is_heard_of(net):
    with pytest.raises(ConnectionRefusedError):
        net.client.connect(REMOTE64, 8081)
    with net.client.udp(CLIENT6) as client:
        client.connect((REMOTE64, 5301))
        client.send(b"asked")
        with pytest.raises(ConnectionRefusedError):
            client.recv(100)


def test_a_narrow_link_on_the_ipv4_side_is_heard_of(net):
    """The far host is behind a link of 1280 bytes, of which its router tells."""
    data = bytes(range(256)) * 2000
    with net.far.listen(8080, FAR) as server, net.client.connect(FAR64, 8080) as client:
        there, _ = server.accept()
        with there:
            client.sendall(data[:100_000])
            assert received(there, 100_000) == data[:100_000]
            there.sendall(data[:100_000])
            assert received(client, 100_000) == data[:100_000]


def test_a_traceroute_shows_routers_under_the_prefix(net):
    # Hop limit 2: the gateway lets it pass, and the router does not.
    with net.client.udp(CLIENT6) as client:
        client.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, 2)
        client.setsockopt(socket.IPPROTO_IPV6, 25, 1)  # IPV6_RECVERR
        client.sendto(b"asked", (REMOTE64, 33434))
        poll = select.poll()
        poll.register(client, select.POLLERR)
        assert poll.poll(5000)
        _, ancillary, _, _ = client.recvmsg(100, 512, socket.MSG_ERRQUEUE)
        errors = [data for level, kind, data in ancillary if (level, kind) == (socket.IPPROTO_IPV6, 25)]
        # struct sock_extended_err, then the sockaddr_in6 of who has sent the error.
        assert errors[0][5] == 3  # time exceeded
        assert socket.inet_ntop(socket.AF_INET6, errors[0][24:40]) == under_prefix(ROUTER)


def test_two_ipv6_hosts_meet_by_their_ipv4_endpoints(net):
    with (
        net.remote.udp(REMOTE, 5302) as remote,
        net.client.udp(CLIENT6, 6001) as client,
        net.server.udp(SERVER6, 6002) as server,
    ):
        ends = []
        for host in [client, server]:
            host.sendto(b"who am I", (REMOTE64, 5302))
            ends.append(remote.recvfrom(100)[1])
        client.sendto(b"here", (under_prefix(ends[1][0]), ends[1][1]))
        data, peer = server.recvfrom(100)
        assert (data, peer[:2]) == (b"here", (under_prefix(ends[0][0]), ends[0][1]))
        server.sendto(b"there", peer)
        data, peer = client.recvfrom(100)
        assert (data, peer[:2]) == (b"there", (under_prefix(ends[1][0]), ends[1][1]))


def test_strangers_are_not_let_in(net):
    with (
        net.remote.udp(REMOTE, 5303) as remote,
        net.stranger.udp(STRANGER) as stranger,
        net.client.udp(CLIENT6) as client,
    ):
        client.sendto(b"asked", (REMOTE64, 5303))
        _, end = remote.recvfrom(100)
        stranger.sendto(b"let me in", end)
        remote.sendto(b"answered", end)
        assert client.recvfrom(100)[0] == b"answered"


def test_private_addresses_are_unreachable(net):
    with pytest.raises(OSError, match="unreachable|No route"):
        net.client.connect(under_prefix("192.168.1.1"), 80)


def test_flows_shows_both_ends(net):
    with net.remote.udp(REMOTE, 5304) as remote, net.client.udp(CLIENT6, 6003) as client:
        client.sendto(b"asked", (REMOTE64, 5304))
        remote.recvfrom(100)
        told = net.office.ask("flows").stdout
        line = next(line for line in told.splitlines() if "5304" in line)
        assert CLIENT6 in line and OUTSIDE in line, line


def test_explain_says_where_to(net):
    told = net.office.ask("explain", "--live", f"lan udp [{CLIENT6}]:6004 > [{REMOTE64}]:53").stdout
    assert f"the destination becomes {REMOTE}:53" in told, told
    assert f"the source becomes {OUTSIDE}" in told, told


@pytest.mark.skipif(not shutil.which("unbound"), reason="unbound is not installed")
def test_names_without_ipv6_addresses_are_reached_by_dns64(net, tmp_path):
    """unbound, for the hosts of IPv6 alone; curl knows nothing of all this."""
    config = tmp_path / "unbound.conf"
    config.write_text(
        f"""
        server:
            interface: {SERVER6}
            access-control: ::/0 allow
            module-config: "dns64 iterator"
            dns64-prefix: 64:ff9b::/96
            username: ""
            chroot: ""
            pidfile: ""
            directory: "{tmp_path}"
            do-daemonize: no
            use-syslog: no
        forward-zone:
            name: "."
            forward-addr: {REMOTE}@5399
        """
    )
    os.chmod(tmp_path, 0o755)
    (tmp_path / "page").write_text("a page of IPv4")
    words = ["--port=5399", f"--listen-address={REMOTE}", "--no-resolv", f"--address=/four.example/{REMOTE}"]
    net.remote.start("dnsmasq", "--keep-in-foreground", "--bind-interfaces", "--conf-file=/dev/null", *words)
    net.server.start("unbound", "-c", config)
    net.remote.start("python3", "-m", "http.server", "8088", "--bind", REMOTE, "--directory", tmp_path, log="http")

    def resolved():
        return net.client.run("dig", "+short", "AAAA", "four.example", f"@{SERVER6}", check=False).stdout.strip()

    wait.until(lambda: resolved() == REMOTE64, "an address is made up")
    wait.until(
        lambda: net.client.run("curl", "-s", f"http://[{REMOTE64}]:8088/page", check=False).stdout == "a page of IPv4",
        "the page",
    )
    resolve = f"four.example:8088:[{resolved()}]"
    got = net.client.run("curl", "-s", "--resolve", resolve, "http://four.example:8088/page").stdout
    assert got == "a page of IPv4"


@pytest.mark.skipif(not shutil.which("tayga"), reason="tayga is not installed")
def test_packets_are_those_of_another_translator(net, translators):
    """Tayga translates the same packets, one by one; hop limits apart, every byte is the same."""
    for number, (sender, packet) in enumerate(conversation()):
        ours, theirs = [translator(sender, packet) for translator in translators]
        assert ours == theirs, f"packet {number}, {scapy(packet, sender).summary()}:\n{ours}\n{theirs}"


def conversation():
    """Packets of the client and of the remote, alternately, and of routers on the way."""
    there = IPv6(src=CLIENT6, dst=under_prefix(REMOTE, OWN), tc=0xB8)
    back = IP(src=REMOTE, dst=OUTSIDE, tos=0x28, flags="DF", id=77)
    of_router = IP(src=ROUTER, dst=OUTSIDE, flags="DF", id=78)
    packets = []
    for size in [0, 1, 63, 1000, 1400]:
        data = bytes(number % 253 for number in range(size))
        packets += [
            ("six", there / UDP(sport=7001, dport=5305) / data),
            ("four", back / UDP(sport=5305, dport=7001) / data),
            ("six", there / ICMPv6EchoRequest(id=7002, seq=size, data=data)),
            ("four", back / ICMP(type="echo-reply", id=7002, seq=size) / data),
        ]
    # What is in fragments.
    whole = bytes(there / UDP(sport=7001, dport=5305) / bytes(2000))[40:]
    for offset, more in [(0, 1), (1000, 0)]:
        piece = whole[offset : offset + 1000 if more else None]
        header = IPv6ExtHdrFragment(id=0x1234, offset=offset // 8, m=more, nh=17)
        packets.append(("six", there / header / piece))
    whole = bytes(back / UDP(sport=5305, dport=7001) / bytes(2000))[20:]
    for offset, more in [(0, 1), (1000, 0)]:
        piece = whole[offset : offset + 1000 if more else None]
        packets.append(("four", IP(src=REMOTE, dst=OUTSIDE, proto=17, id=9, frag=offset // 8, flags=more) / piece))
    # A connection, with options.
    options = [("MSS", 1440), ("SAckOK", b""), ("Timestamp", (1, 0)), ("NOP", None), ("WScale", 7)]
    packets += [
        ("six", there / TCP(sport=7003, dport=80, flags="S", seq=1, options=options)),
        ("four", back / TCP(sport=80, dport=7003, flags="SA", seq=9, ack=2, options=options)),
        ("six", there / TCP(sport=7003, dport=80, flags="A", seq=2, ack=10) / (b"x" * 1400)),
        ("four", back / TCP(sport=80, dport=7003, flags="PA", seq=10, ack=1402) / (b"y" * 1380)),
    ]
    # Errors about it.
    sent = IP(src=OUTSIDE, dst=REMOTE, flags="DF") / UDP(sport=7001, dport=5305) / bytes(20)
    for kind, code, extra in [(3, 0, {}), (3, 1, {}), (3, 3, {}), (3, 4, {"nexthopmtu": 1400}), (3, 13, {}), (11, 0, {})]:
        packets.append(("four", of_router / ICMP(type=kind, code=code, **extra) / sent))
    answer = IPv6(src=under_prefix(REMOTE, OWN), dst=CLIENT6) / UDP(sport=5305, dport=7001) / bytes(20)
    errors = [ICMPv6DestUnreach(code=code) for code in [0, 1, 4]]
    errors += [ICMPv6PacketTooBig(mtu=1400), ICMPv6TimeExceeded()]
    packets += [("six", there / error / answer) for error in errors]
    return [(sender, bytes(packet)) for sender, packet in packets]


@pytest.fixture
def translators(net):
    """The gateway and Tayga: functions that send a packet and return what comes of it."""
    with (
        net.client.wire("eth0") as inside,
        net.router.wire("wan") as outside,
        net.client.udp(CLIENT6, 7001),
    ):
        # Linux must not answer what it has not sent.
        silent = [(net.client, "ip6tables", ("-p", "tcp")), (net.router, "iptables", ("-s", OUTSIDE))]
        for host, table, match in silent:
            host.run(table, "-t", "raw", "-A", "PREROUTING", *match, "-j", "DROP")
        cards = {"six": (CARDS["lan"], net.client.mac()), "four": (CARDS["wan"], net.router.mac("wan"))}
        ours = Translator({"six": inside, "four": outside}, cards)
        theirs = tayga(net, OWN, {OUTSIDE: CLIENT6}, {"six": CLIENT6, "four": REMOTE}, [f"{OWN}/96", OUTSIDE])
        yield ours, theirs
        for host, table, _ in silent:
            host.run(table, "-t", "raw", "-F")
