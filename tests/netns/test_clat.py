"""IPv4 hosts reach an IPv4 server by a WAN of IPv6 alone (464XLAT): the gateway is the CLAT, the provider has the PLAT. See docs/clat.md."""

import select
import shutil
import socket

import pytest
import wait
from branch import CLIENT, CORE6, GATEWAY, OUTSIDE6, PREFIX, SERVER, Branch, office_of, plat_of
from gateway import missing
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6EchoReply,
    ICMPv6PacketTooBig,
    ICMPv6TimeExceeded,
    IPv6,
    IPv6ExtHdrFragment,
)
from translator import Translator, scapy, tayga, under_prefix

DRIVERS = {"wirerate-packet": "packet", "wirerate-xdp": "xdp"}
PLATS = ["tayga", "wirerate"]
ROUTER_OF_V6 = "192.0.0.8"


def pytest_generate_tests(metafunc):
    if "branch" in metafunc.fixturenames:
        named = metafunc.config.getoption("gateway") or list(DRIVERS)
        kinds = [(name, plat) for name in DRIVERS if name in named for plat in PLATS]
        metafunc.parametrize("branch", kinds, indirect=True, scope="module", ids="-".join)


@pytest.fixture(scope="module")
def branch(request):
    name, plat = request.param
    if lacking := missing(name) or (plat == "tayga" and not shutil.which("tayga") and "tayga is not installed"):
        if request.config.getoption("must_run"):
            pytest.fail(lacking)
        pytest.skip(f"SKIPPED: {lacking}")
    made = Branch()
    stopped = []
    try:
        made.office = office_of(made, DRIVERS[name])
        stopped.append(made.office)
        made.office.start()
        stopped.append(plat_of(made, plat))
        made.client.reaches(GATEWAY)
        made.client.reaches(SERVER)
        yield made
        print(made.office.evidence())
    finally:
        for one in reversed(stopped):
            one.stop()
        made.close()
        shutil.rmtree(made.logs, ignore_errors=True)


@pytest.fixture(autouse=True)
def balanced(branch):
    yield
    assert branch.office.alive(), branch.office.evidence()


def received(connection, length):
    got = b""
    while len(got) < length:
        data = connection.recv(length - len(got))
        assert data, f"closed after {len(got)} bytes"
        got += data
    return got


def test_a_page_is_fetched_and_sent(branch, tmp_path):
    """By curl, over a path that is narrower than both ends know."""
    page = bytes(number * 7 % 251 for number in range(600_000))
    (tmp_path / "page").write_bytes(page)
    branch.server.start("python3", "-m", "http.server", "8080", "--directory", tmp_path, log="http")
    wait.until(lambda: branch.server.listens(8080), "the server listens")
    branch.client.forget_paths()
    branch.client.run("curl", "-sf", "-o", tmp_path / "got", "-m", "20", f"http://{SERVER}:8080/page")
    assert (tmp_path / "got").read_bytes() == page


def test_a_connection_carries_data_both_ways(branch):
    data = bytes(range(256)) * 2000
    with branch.server.listen(8081, SERVER) as server, branch.client.connect(SERVER, 8081) as client:
        there, _ = server.accept()
        with there:
            assert client.getsockname()[0] == CLIENT
            for source, sink in [(client, there), (there, client)]:
                for begin in range(0, len(data), 32_000):
                    source.sendall(data[begin : begin + 32_000])
                    assert received(sink, len(data[begin : begin + 32_000])) == data[begin : begin + 32_000]


def test_datagrams_of_all_sizes_are_answered(branch):
    """Those that are too long for one packet of IPv6 go in fragments."""
    with branch.server.udp(SERVER, 5300) as server, branch.client.udp(CLIENT) as client:
        for end in [server, client]:
            # On their way they may be fragmented.
            end.setsockopt(socket.IPPROTO_IP, 10, 0)  # IP_MTU_DISCOVER, IP_PMTUDISC_DONT
        for size in [0, 1, 1200, 1232, 1233, 1352, 1353, 1372, 1472, 1473, 4000, 20_000]:
            sent = bytes(number % 251 for number in range(size))
            client.sendto(sent, (SERVER, 5300))
            data, peer = server.recvfrom(65_536)
            assert data == sent
            server.sendto(sent, peer)
            data, peer = client.recvfrom(65_536)
            assert (data, peer[0]) == (sent, SERVER)


def test_pings_are_answered(branch):
    assert branch.client.ping(SERVER)
    assert branch.client.ping(SERVER, "-s", 1200)


def test_a_closed_port_is_heard_of(branch):
    with pytest.raises(ConnectionRefusedError):
        branch.client.connect(SERVER, 8082)
    with branch.client.udp(CLIENT) as client:
        client.connect((SERVER, 5301))
        client.send(b"asked")
        with pytest.raises(ConnectionRefusedError):
            client.recv(100)


def test_a_narrow_link_of_ipv6_is_heard_of(branch):
    """The core says 1400 for IPv6, the host hears 1380 for IPv4, by a router that has no address of IPv4."""
    branch.client.forget_paths()
    with branch.server.udp(SERVER, 5302), branch.client.udp(CLIENT) as client:
        client.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO
        client.connect((SERVER, 5302))
        client.setsockopt(socket.IPPROTO_IP, 11, 1)  # IP_RECVERR
        client.send(bytes(1400))
        kind, code, info, offender = error_of(client)
        assert (kind, code, info, offender) == (3, 4, 1380, ROUTER_OF_V6)
        client.send(bytes(1380 - 28))
        with pytest.raises(OSError, match="too long"):
            client.send(bytes(1380 - 27))


def error_of(client):
    """Type, code, MTU and sender of the ICMP error that a socket has got."""
    poll = select.poll()
    poll.register(client, select.POLLERR)
    assert poll.poll(5000)
    _, ancillary, _, _ = client.recvmsg(100, 512, socket.MSG_ERRQUEUE)
    # struct sock_extended_err, then the sockaddr_in of who has sent the error.
    error = next(data for level, kind, data in ancillary if (level, kind) == (socket.IPPROTO_IP, 11))
    return error[5], error[6], int.from_bytes(error[8:12], "little"), socket.inet_ntoa(error[20:24])


def test_a_traceroute_shows_the_way(branch):
    told = branch.client.run("traceroute", "-n", "-q", "1", "-w", "2", "-N", "1", SERVER).stdout
    hops = [line.split()[1] for line in told.splitlines()[1:]]
    assert hops[0] == GATEWAY and hops[1] == ROUTER_OF_V6 and hops[-1] == SERVER, told


def test_strangers_are_not_let_in(branch):
    with branch.server.udp(SERVER, 5303) as server, branch.client.udp(CLIENT, 6001) as client:
        client.sendto(b"asked", (SERVER, 5303))
        _, end = server.recvfrom(100)
        with branch.server.udp(SERVER, 5304) as stranger:
            stranger.sendto(b"let me in", end)
        with branch.core.udp(CORE6) as other:
            other.sendto(b"let me in", (OUTSIDE6, 6001))
        server.sendto(b"answered", end)
        assert client.recvfrom(100)[0] == b"answered"


def test_private_addresses_are_not_sent_under_the_well_known_prefix(branch):
    branch.office.apply_prefix("64:ff9b::")
    try:
        with pytest.raises(OSError, match="No route to host"):
            branch.client.connect("10.1.2.3", 80)
    finally:
        branch.office.apply_prefix()


def test_a_connection_outlives_a_restart(branch):
    with branch.server.listen(8083, SERVER) as server, branch.client.connect(SERVER, 8083) as client:
        there, _ = server.accept()
        with there:
            branch.office.stop()
            branch.office.start()
            client.sendall(b"ask")
            assert received(there, 3) == b"ask"
            there.sendall(b"answer")
            assert received(client, 6) == b"answer"


def test_flows_shows_both_ends(branch):
    with branch.server.udp(SERVER, 5305) as server, branch.client.udp(CLIENT, 6003) as client:
        client.sendto(b"asked", (SERVER, 5305))
        server.recvfrom(100)
        told = branch.office.ask("flows").stdout
        line = next(line for line in told.splitlines() if "5305" in line)
        assert CLIENT in line and OUTSIDE6 in line, line


def test_explain_says_where_to(branch):
    told = branch.office.ask("explain", "--live", f"lan udp {CLIENT}:6004 > {SERVER}:53").stdout
    assert f"the destination becomes [{under_prefix(SERVER, PREFIX)}]:53" in told, told
    assert f"the source becomes {OUTSIDE6} and a free port" in told, told


@pytest.mark.skipif(not shutil.which("tayga"), reason="tayga is not installed")
def test_packets_are_those_of_another_translator(branch, translators):
    """Tayga translates the same packets, one by one; hop limits apart, every byte is the same."""
    for number, (sender, packet) in enumerate(conversation()):
        ours, theirs = [translator(sender, packet) for translator in translators]
        assert ours == theirs, f"packet {number}, {scapy(packet, sender).summary()}:\n{ours}\n{theirs}"


def conversation():
    """Packets of the client and of the server, alternately, and of routers on the way."""
    remote6 = under_prefix(SERVER, PREFIX)
    there = IP(src=CLIENT, dst=SERVER, tos=0xB8, flags="DF", id=77)
    back = IPv6(src=remote6, dst=OUTSIDE6, tc=0x28)
    packets = []
    for size in [0, 1, 63, 1000, 1400]:
        data = bytes(number % 253 for number in range(size))
        packets += [
            ("four", there / UDP(sport=7001, dport=5306) / data),
            ("six", back / UDP(sport=5306, dport=7001) / data),
            ("four", there / ICMP(type="echo-request", id=7002, seq=size) / data),
            ("six", back / ICMPv6EchoReply(id=7002, seq=size, data=data)),
        ]
    # What is in fragments.
    whole = bytes(there / UDP(sport=7001, dport=5306) / bytes(2000))[20:]
    for offset, more in [(0, 1), (1000, 0)]:
        piece = whole[offset : offset + 1000 if more else None]
        packets.append(("four", IP(src=CLIENT, dst=SERVER, proto=17, id=9, frag=offset // 8, flags=more) / piece))
    whole = bytes(back / UDP(sport=5306, dport=7001) / bytes(2000))[40:]
    for offset, more in [(0, 1), (1000, 0)]:
        piece = whole[offset : offset + 1000 if more else None]
        header = IPv6ExtHdrFragment(id=0x1234, offset=offset // 8, m=more, nh=17)
        packets.append(("six", back / header / piece))
    # A connection, with options.
    options = [("MSS", 1440), ("SAckOK", b""), ("Timestamp", (1, 0)), ("NOP", None), ("WScale", 7)]
    packets += [
        ("four", there / TCP(sport=7003, dport=80, flags="S", seq=1, options=options)),
        ("six", back / TCP(sport=80, dport=7003, flags="SA", seq=9, ack=2, options=options)),
        ("four", there / TCP(sport=7003, dport=80, flags="A", seq=2, ack=10) / (b"x" * 1400)),
        ("six", back / TCP(sport=80, dport=7003, flags="PA", seq=10, ack=1402) / (b"y" * 1380)),
    ]
    # Errors about it: of the server, of routers behind the PLAT, and of those of IPv6 alone.
    sent = IPv6(src=OUTSIDE6, dst=remote6) / UDP(sport=7001, dport=5306) / bytes(20)
    # Of "address unreachable", code 3, Tayga makes nothing.
    errors = [ICMPv6DestUnreach(code=code) for code in [0, 1, 4]]
    errors += [ICMPv6PacketTooBig(mtu=1400), ICMPv6TimeExceeded()]
    for sender in [remote6, under_prefix("192.0.2.9", PREFIX), CORE6]:
        packets += [("six", IPv6(src=sender, dst=OUTSIDE6) / error / sent) for error in errors]
    answer = IP(src=SERVER, dst=CLIENT, flags="DF") / UDP(sport=5306, dport=7001) / bytes(20)
    for kind, code, extra in [(3, 1, {}), (3, 3, {}), (3, 4, {"nexthopmtu": 1400}), (11, 0, {})]:
        packets.append(("four", IP(src=CLIENT, dst=SERVER, flags="DF", id=78) / ICMP(type=kind, code=code, **extra) / answer))
    return [(sender, bytes(packet)) for sender, packet in packets]


@pytest.fixture
def translators(branch):
    """The gateway and Tayga: functions that send a packet and return what comes of it."""
    with branch.client.wire("eth0") as inside, branch.core.wire("wan") as outside, branch.client.udp(CLIENT, 7001):
        # Linux must not answer what it has not sent, nor carry on what it gets.
        silent = [(branch.client, "iptables", ("-p", "tcp")), (branch.core, "ip6tables", ("-d", f"{PREFIX}/96"))]
        for host, table, match in silent:
            host.run(table, "-t", "raw", "-A", "PREROUTING", *match, "-j", "DROP")
        cards = {
            "four": (branch.gateway.mac("lan"), branch.client.mac()),
            "six": (branch.gateway.mac("wan"), branch.core.mac("wan")),
        }
        ours = Translator({"four": inside, "six": outside}, cards)
        ends = {"six": under_prefix(SERVER, PREFIX), "four": CLIENT}
        # Tayga makes nothing of errors of routers that it does not know.
        pairs = {CLIENT: OUTSIDE6, ROUTER_OF_V6: CORE6}
        theirs = tayga(branch, PREFIX, pairs, ends, [OUTSIDE6, SERVER])
        yield ours, theirs
        for host, table, _ in silent:
            host.run(table, "-t", "raw", "-F")
