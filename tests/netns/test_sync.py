"""Two gateways that keep the same flows: when the active one is killed, the other goes on with established connections. See docs/sync.md."""

import contextlib
import json
import os
import random
import resource
import shutil
import signal
import socket
import ssl
import struct
import sys
import time

import gateway as gateways
import pytest
import wait
from boxes import MOVED, MOVED_LAN, PORT, SERVER, Boxes
from gateway import missing
from host import SO_RCVBUFFORCE, TIMEOUT

pytestmark = pytest.mark.longest(240)

KINDS = {
    "wirerate-packet": {"driver": "packet"},
    "wirerate-xdp": {"driver": "xdp"},
    "wirerate-fast": {"driver": "packet", "fast_path": "tc"},
}


def pytest_generate_tests(metafunc):
    if "kind" in metafunc.fixturenames:
        named = metafunc.config.getoption("gateway") or list(KINDS)
        metafunc.parametrize("kind", [name for name in KINDS if name in named], indirect=True)


@pytest.fixture
def kind(request):
    """How both gateways get their frames."""
    if lacking := missing(request.param):
        pytest.skip(f"SKIPPED: {lacking}")
    if not shutil.which("keepalived"):
        reason = "SKIPPED: not installed: keepalived (./setup test)"
        pytest.fail(reason) if request.config.getoption("must_run") else pytest.skip(reason)
    return KINDS[request.param]


LONG = os.environ.get("WIRERATE_LONG") == "1"
CRASHES = int(os.environ.get("WIRERATE_CRASHES", "20" if LONG else "3"))
KILLS = int(os.environ.get("WIRERATE_KILLS", "1000" if LONG else "4"))
FLOWS = 5_000 if LONG else 1_000
WIDE = 90_000 if LONG else 10_000
AT_ONCE = 200
IP_PKTINFO = 8


class Talk:
    """Connections through whoever is active, and what goes over them."""

    def __init__(self, boxes, count=20):
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        with boxes.server.listen(7000, SERVER) as listener:
            self.connections = [self._connect(boxes, listener) for _ in range(count)]
        self.echo = boxes.server.udp(SERVER, 7001)
        # Ports that Linux chooses may be shared, as these sockets have SO_REUSEADDR.
        self.datagrams = [boxes.client.udp(port=10_000 + number) for number in range(count)]
        for here in self.datagrams:
            here.connect((SERVER, 7001))
        self.shown = {}
        self.goes_on(b"first")

    def _connect(self, boxes, listener):
        here = boxes.client.connect(SERVER, 7000)
        there, shown = listener.accept()
        there.settimeout(TIMEOUT)
        assert shown[0] == MOVED, "the virtual address is shown"
        return here, there

    def goes_on(self, word):
        """New data both ways over each, by the same outside ports."""
        for first in range(0, len(self.connections), AT_ONCE):
            some = self.connections[first : first + AT_ONCE]
            for number, (here, there) in enumerate(some):
                here.sendall(b"%s %d there" % (word, number))
                there.sendall(b"%s %d here" % (word, number))
            for number, (here, there) in enumerate(some):
                assert there.recv(100) == b"%s %d there" % (word, number)
                assert here.recv(100) == b"%s %d here" % (word, number)
        for first in range(0, len(self.datagrams), AT_ONCE):
            some = range(first, min(first + AT_ONCE, len(self.datagrams)))
            # The second one after the answer makes a stream of it.
            for _ in range(2):
                for number in some:
                    self.datagrams[number].send(b"%s %d" % (word, number))
                for _ in some:
                    heard, shown = self.echo.recvfrom(100)
                    number = int(heard.rsplit(b" ", 1)[1])
                    assert self.shown.setdefault(number, shown) == shown, "another outside port"
                    self.echo.sendto(heard, shown)
                for number in some:
                    assert self.datagrams[number].recv(100) == b"%s %d" % (word, number)

    def close(self):
        for sockets in [*self.connections, self.datagrams, [self.echo]]:
            for opened in sockets:
                opened.close()


class Wide:
    """Many flows by few sockets: from each of them to 250 servers, all of which are one."""

    PORT = 7002

    def __init__(self, boxes, flows):
        boxes.server.ip("route add local 198.51.100.0/24 dev lo")
        self.servers = [f"198.51.100.{number}" for number in range(1, 251)]
        self.echo = boxes.server.udp(port=self.PORT)
        self.echo.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
        self.near = [boxes.client.udp(port=40_000 + number) for number in range(flows // len(self.servers))]
        self.shown = {}
        self.goes_on(b"first")

    def goes_on(self, word):
        for number, near in enumerate(self.near):
            for first in range(0, len(self.servers), 50):
                some = self.servers[first : first + 50]
                for _ in range(2):
                    for server in some:
                        near.sendto(b"%s %d" % (word, number), (server, self.PORT))
                    for _ in some:
                        heard, about, _, shown = self.echo.recvmsg(100, 100)
                        assert self.shown.setdefault(number, shown) == shown, "another outside port"
                        # The answer comes from the server that was asked.
                        to = about[0][2][8:12]
                        pktinfo = struct.pack("=I4s4s", 0, to, to)
                        self.echo.sendmsg([heard], [(socket.IPPROTO_IP, IP_PKTINFO, pktinfo)], 0, shown)
                    heard = {near.recvfrom(100)[1][0] for _ in some}
                    assert heard == set(some)

    def close(self):
        for opened in [self.echo, *self.near]:
            opened.close()


def has_all(box, count):
    """The standby has been told of so many flows."""
    wait.until(lambda: box.daemon.counters()["flows"] >= count, f"{box.name} has {count} flows", deadline=30)


def test_established_connections_go_on_when_the_active_gateway_crashes(kind):
    boxes = Boxes(**kind, workers=(1, 2))
    with boxes.running():
        one, two = boxes.boxes
        talk = Talk(boxes)
        has_all(two, 40)
        boxes.crash(one)
        wait.until(two.is_active, "the standby becomes active")
        talk.goes_on(b"by the other")
        wait.until(lambda: two.status()["state"] == "waiting", "it notices that its peer has gone")
        # And back: the first one comes up empty, learns, and takes over.
        boxes.revive(one)
        wait.until(one.is_active, "the first one is active again")
        wait.until(lambda: not two.is_active(), "the other is not any more")
        talk.goes_on(b"by the first again")
        boxes.crash(one)
        wait.until(two.is_active, "the standby becomes active")
        talk.goes_on(b"by the other again")
        talk.close()


@pytest.mark.longest(7_200 if LONG else 400)
def test_nothing_established_is_lost_in_repeated_crashes_with_many_flows(kind):
    """Of the first gateway, which takes over again each time, with a transfer under way: `WIRERATE_CRASHES` says how many."""
    boxes = Boxes(**kind, workers=(2, 1), more="[limit]\nflows = 200_000\n")
    with boxes.running():
        talk, wide = Talk(boxes, FLOWS), Wide(boxes, WIDE)
        boxes.server.start("iperf3", "-s", "-B", SERVER, log="iperf3")
        for kill in range(CRASHES):
            active, standby = boxes.boxes if boxes.one.is_active() else reversed(boxes.boxes)
            has_all(standby, 2 * FLOWS + WIDE)
            transfer = boxes.client.start("iperf3", "-c", SERVER, "-t", "6", "-b", "20M", log=f"iperf3-{kill}")
            said = lambda: transfer.log.read_text(errors="replace")
            wait.until(lambda: said().count(" sec ") >= 1, "the transfer is under way")
            boxes.crash(active)
            wait.until(standby.is_active, "the standby becomes active")
            talk.goes_on(b"round %d" % kill)
            wide.goes_on(b"round %d" % kill)
            assert transfer.wait(timeout=30) == 0, said()
            assert standby.status()["refused"] == {}, standby.status()
            boxes.revive(active)
            wait.until(boxes.one.is_active, "the first one is active")
            wait.until(lambda: not boxes.two.is_active(), "and the other is not")
            talk.goes_on(b"round %d, back" % kill)
        talk.close()
        wide.close()


STREAM = """
import socket, struct, sys, time
here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
here.bind(("", 30_000))
here.connect((sys.argv[1], 7003))
begun, sent = time.monotonic(), 0
while True:
    # A datagram a millisecond, by the clock: one that comes late makes up for it.
    while sent < (time.monotonic() - begun) * 1000:
        try:
            here.send(struct.pack("!Q", sent))
        except OSError:
            pass
        sent += 1
    time.sleep(0.0005)
"""


class Stream:
    """A datagram a millisecond through whoever is active."""

    def __init__(self, boxes):
        self.there = boxes.server.udp(SERVER, 7003)
        self.there.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
        self.there.settimeout(TIMEOUT)
        self.sender = boxes.client.start(sys.executable, "-c", STREAM, SERVER, log="stream")
        self.last = self._next()

    def _next(self):
        return struct.unpack("!Q", self.there.recv(100))[0]

    def lost(self):
        """How many have been lost one after the other at most, of those that have come since the last time."""
        gaps = [0]
        self.there.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                number = self._next()
                gaps.append(number - self.last - 1)
                self.last = max(self.last, number)
        self.there.settimeout(TIMEOUT)
        return max(gaps)

    def resumed(self):
        """It has come through since just now."""
        self.lost()
        self.last = self._next()

    def close(self):
        self.sender.kill()
        self.sender.wait()
        self.there.close()


def report(text):
    """Figures go to the file that `WIRERATE_REPORT` names."""
    if name := os.environ.get("WIRERATE_REPORT"):
        with open(name, "a") as file:
            file.write(text + "\n")


@pytest.mark.longest(14_400 if LONG else 400)
def test_the_active_gateway_is_killed_under_load_and_under_reload(kind):
    """By turns, as who comes back stays standby: `WIRERATE_KILLS` says how often. Every other time while a policy is applied on both. `WIRERATE_REPORT` names
    a file for the figures."""
    boxes = Boxes(**kind, workers=(2, 1), preempts=False, more="[limit]\nflows = 200_000\n")
    chance = random.Random(1)
    with boxes.running():
        # As many as VRRP's gap allows for are told apart from those of the stream that a busy machine delays.
        talk, wide, stream = Talk(boxes, 50), Wide(boxes, WIDE if LONG else 2_000), Stream(boxes)
        flows = 100 + (WIDE if LONG else 2_000) + 1
        lost, gaps = [], []
        for kill in range(KILLS):
            active, standby = boxes.boxes if boxes.one.is_active() else reversed(boxes.boxes)
            has_all(standby, flows)
            stream.resumed()
            applying = []
            if kill % 2:
                for box in boxes.boxes:
                    more = f'[limit]\nflows = 200_000\n[[nat]]\nname = "none-{kill}"\nkind = "exempt"\nto = "lan"\n'
                    box.daemon.write(more=more)
                    words = [gateways.binary(), "apply", box.daemon.policy, "--socket", box.daemon.socket]
                    applying.append(box.gateway.start(*words, log=f"apply-{kill % 4}"))
                time.sleep(chance.random() / 20)
            begun = time.monotonic()
            boxes.crash(active)
            wait.until(standby.is_active, "the standby becomes active", pause=0.002)
            gaps.append(time.monotonic() - begun)
            talk.goes_on(b"round %d" % kill)
            # Before its buffer overflows.
            stream.there.recv(100, socket.MSG_PEEK)
            lost.append(stream.lost())
            wide.goes_on(b"round %d" % kill)
            report(f"kill {kill}: {lost[-1]} datagrams lost, addresses moved after {gaps[-1]:.3f} s")
            for apply in applying:
                apply.wait(timeout=30)
            assert standby.status()["refused"] == {}, standby.status()
            boxes.revive(active)
        told = f"{KILLS} kills, {flows} flows: at most {max(lost)} of 1,000 datagrams a second lost, "
        told += f"{sorted(lost)[KILLS // 2]} in the middle; addresses moved after {max(gaps):.2f} s at most, {sorted(gaps)[KILLS // 2]:.2f} s in the middle"
        report(told)
        # The datagrams of VRRP's gap, and of the moments in which a gateway that all of a sudden has all packets learns its neighbours.
        for count, gap in zip(lost, gaps, strict=True):
            assert count <= 1000 * (gap + 0.5), told
        stream.close()
        talk.close()
        wide.close()


def test_a_daemon_that_dies_alone_gives_the_addresses_up(kind):
    """The machine lives on: keepalived asks the daemon, and the other takes over."""
    boxes = Boxes(**kind)
    with boxes.running():
        one, two = boxes.boxes
        talk = Talk(boxes)
        has_all(two, 40)
        one.daemon.kill()
        wait.until(two.is_active, "the standby becomes active")
        wait.until(lambda: not one.is_active(), "the other gives the addresses up")
        talk.goes_on(b"by the other")
        talk.close()


def test_the_standby_does_not_answer_for_the_virtual_addresses(kind):
    boxes = Boxes(**kind)
    with boxes.running():
        one, two = boxes.boxes
        macs = {box.mac("lan"): box.name for box in boxes.boxes}

        def answers():
            """Whoever answers for the hosts' router."""
            boxes.client.run("ip", "neigh", "flush", "dev", "eth0")
            with boxes.client.wire("eth0") as heard:
                boxes.client.ping(MOVED_LAN, count=2)
                said, end = set(), time.monotonic() + 0.5
                while time.monotonic() < end:
                    frame = heard.recv(2048)
                    # ARP replies from that address.
                    if frame[12:14] == b"\x08\x06" and frame[21] == 2 and frame[28:32] == bytes([192, 168, 1, 1]):
                        said.add(macs[frame[22:28].hex(":")])
            return said

        assert answers() == {"one"}
        boxes.crash(one)
        wait.until(two.is_active, "the standby becomes active")
        assert answers() == {"two"}


def test_port_forwards_go_on_too_and_what_a_peer_kills_is_gone(kind):
    boxes = Boxes(**kind)
    with boxes.running():
        one, two = boxes.boxes
        with boxes.client.listen(8080) as listener:
            far = boxes.server.connect(MOVED, 8080, source="203.0.113.1")
            near, _ = listener.accept()
        has_all(two, 1)
        boxes.crash(one)
        wait.until(two.is_active, "the standby becomes active")
        far.sendall(b"in")
        assert near.recv(2) == b"in"
        near.sendall(b"out")
        assert far.recv(3) == b"out"
        boxes.revive(one)
        wait.until(one.is_active, "the first one is active again")
        has_all(one, 1)
        two.daemon.ask("flows", "kill", "--port", "8080")
        wait.until(lambda: one.daemon.counters()["flows"] == 0, "the other has ended it, too")


SETS = """
[dynamic-set.scanners]
timeout = "1h"

[dynamic-set.guests]
"""

TRAP = """
[[rule]]
name = "banned"
source = "@scanners"
action = "drop"

[[rule]]
name = "trap"
from = "wan"
to = "self"
protocol = "tcp"
dport = 2323
add-source = "@scanners"
action = "drop"
"""

SCANNER = "203.0.113.66"


def elements(box, name):
    shown = json.loads(box.daemon.ask("set", "show", name, "--json").stdout)
    return {one["element"]: one["expires_seconds"] for one in shown}


def has_elements(boxes, name, wanted):
    for box in boxes.boxes:
        wait.until(lambda box=box: set(elements(box, name)) == set(wanted), f"{box.name} has {wanted} in {name}")


def test_who_is_banned_at_one_gateway_is_banned_at_the_other(kind):
    boxes = Boxes(**kind, workers=(2, 1), more=SETS, rules=TRAP)
    with boxes.running():
        one, two = boxes.boxes
        boxes.server.ip(f"addr add {SCANNER}/24 dev wan")

        def reached(source):
            with boxes.client.listen(8080) as listener:
                try:
                    boxes.server.connect(MOVED, 8080, source=source, timeout=0.5).close()
                except TimeoutError:
                    return False
                listener.accept()[0].close()
                return True

        assert reached(SCANNER)

        def is_banned():
            with pytest.raises(TimeoutError):
                boxes.server.connect(MOVED, 2323, source=SCANNER, timeout=0.3)
            return SCANNER in elements(one, "scanners")

        # As soon as the address that keepalived has moved there is the gateway's own.
        wait.until(is_banned, "who knocks at the trap is banned")
        has_elements(boxes, "scanners", [SCANNER])
        assert 3_500 < elements(two, "scanners")[SCANNER] <= 3_600
        assert not reached(SCANNER)
        # By request, at either; with a time of its own, and removed at the other one.
        one.daemon.ask("set", "add", "guests", "198.51.100.1", "198.51.100.2", "2001:db8::/32")
        one.daemon.ask("set", "add", "guests", "198.51.100.3", "--timeout", "3s")
        has_elements(boxes, "guests", ["198.51.100.1", "198.51.100.2", "198.51.100.3", "2001:db8::/32"])
        two.daemon.ask("set", "remove", "guests", "198.51.100.1")
        has_elements(boxes, "guests", ["198.51.100.2", "2001:db8::/32"])
        boxes.crash(one)
        wait.until(two.is_active, "the standby becomes active")
        assert not reached(SCANNER)
        assert reached("203.0.113.1")
        two.daemon.ask("set", "add", "guests", "198.51.100.4")
        # It comes up with nothing, and learns all.
        boxes.revive(one)
        wait.until(one.is_active, "the first one is active again")
        has_elements(boxes, "scanners", [SCANNER])
        has_elements(boxes, "guests", ["198.51.100.2", "198.51.100.4", "2001:db8::/32"])
        assert elements(one, "scanners")[SCANNER] < 3_600
        assert not reached(SCANNER)
        one.daemon.ask("set", "remove", "scanners", SCANNER)
        one.daemon.ask("set", "flush", "guests")
        has_elements(boxes, "scanners", [])
        has_elements(boxes, "guests", [])
        assert reached(SCANNER)
        assert "elements of sets sent" in one.daemon.ask("status").stdout


def test_a_removal_while_there_is_no_connection_holds_and_other_sets_are_named(pair):
    one, two = pair.boxes
    for box in pair.boxes:
        box.daemon.write(more=SETS)
        box.daemon.ask("apply", box.daemon.policy)
    one.daemon.ask("set", "add", "guests", "198.51.100.1", "198.51.100.2")
    has_elements(pair, "guests", ["198.51.100.1", "198.51.100.2"])
    two.daemon.process.send_signal(signal.SIGSTOP)
    troubled(one, "silent")
    one.daemon.ask("set", "remove", "guests", "198.51.100.1")
    two.daemon.process.send_signal(signal.SIGCONT)
    has_elements(pair, "guests", ["198.51.100.2"])
    # A set that only one policy has.
    one.daemon.write(more=SETS + "[dynamic-set.here]\n")
    one.daemon.ask("apply", one.daemon.policy)
    has_elements(pair, "guests", ["198.51.100.2"])
    one.daemon.ask("set", "add", "here", "192.0.2.1")
    wait.until(lambda: two.status()["refused"], "the other has no such set")
    assert 'an element of the set "here": this policy has none of that name' in two.daemon.ask("status").stdout


def lines(box, wanted):
    """What the daemon's log has said that contains a text."""
    return [line for line in box.daemon.log().splitlines() if wanted in line]


def troubled(box, wanted):
    wait.until(lambda: wanted in (box.status()["trouble"] or ""), f"{box.name} says {wanted!r}", deadline=20)


@pytest.fixture
def pair(kind):
    """Both gateways, without keepalived: for what concerns the connection alone."""
    boxes = Boxes(**kind)
    try:
        for box in boxes.boxes:
            box.start()
        boxes.synchronised()
        yield boxes
    except BaseException:
        print(boxes.evidence())
        raise
    finally:
        boxes.close()


@pytest.mark.parametrize("name, said", [("forged", "UnknownIssuer"), ("expired", "xpired")])
def test_a_certificate_that_is_no_good_is_refused_by_both_in_words(pair, name, said):
    one, two = pair.boxes
    files = pair.certificates.files
    two.daemon.stop()
    for ending in ["crt", "key"]:
        shutil.copy(files / f"{name}.{ending}", files / f"two.{ending}")
    two.start()
    troubled(one, said)
    wait.until(lambda: two.status()["trouble"], "the other says so, too")
    assert one.status()["state"] == two.status()["state"] == "waiting"
    # A good one in its place is read without a restart.
    pair.certificates.sign("two")
    pair.synchronised()


def test_a_certificate_that_expires_meanwhile_ends_no_connection_and_lets_none_begin(pair):
    one, two = pair.boxes
    crt = pair.certificates.files / "two.crt"
    two.daemon.stop()
    pair.certificates.sign("two", lasts=20)
    two.start()
    pair.synchronised()
    is_over = lambda: two.gateway.run("openssl", "x509", "-checkend", 0, "-noout", "-in", crt, check=False).returncode == 1
    wait.until(is_over, "it expires", deadline=40)
    # It is good to the end of its last second.
    time.sleep(1.1)
    for box in pair.boxes:
        box.daemon.write(more=SETS)
        box.daemon.ask("apply", box.daemon.policy)
    one.daemon.ask("set", "add", "guests", "198.51.100.1")
    has_elements(pair, "guests", ["198.51.100.1"])
    assert lines(two, f"{crt}, expires at "), "it was named before"
    two.daemon.stop()
    two.start()
    troubled(one, "xpired")
    wait.until(lambda: lines(two, "expired at "), "who has it says so")
    pair.certificates.sign("two")
    pair.synchronised()


def test_who_has_no_certificate_and_what_is_no_gateway_are_refused(pair):
    one, two = pair.boxes
    two.daemon.stop()
    files = pair.certificates.files
    words = ["openssl", "s_client", "-connect", "10.0.0.1:9480", "-CAfile", files / "ca.crt"]
    two.gateway.run(*words, check=False, timeout=10)
    troubled(one, "peer sent no certificates")
    with two.gateway.connect("10.0.0.1", PORT) as garbage:
        garbage.sendall(os.urandom(10_000))
        with contextlib.suppress(ConnectionError):
            garbage.recv(100)
    troubled(one, "TLS with")
    # A connection that says nothing is in nobody's way.
    silent = [two.gateway.connect("10.0.0.1", PORT) for _ in range(3)]
    two.start()
    pair.synchronised()
    for opened in silent:
        opened.close()


def spoken(pair, words, timeout=8):
    """What the listening gateway answers to somebody with a good certificate who says this."""
    _, two = pair.boxes
    context = ssl.create_default_context(cafile=pair.certificates.files / "ca.crt")
    context.load_cert_chain(pair.certificates.files / "two.crt", pair.certificates.files / "two.key")
    opened = two.gateway.connect("10.0.0.1", PORT)
    opened.settimeout(timeout)
    with context.wrap_socket(opened, server_hostname="10.0.0.1") as tls:
        tls.sendall(words)
        heard = b""
        with contextlib.suppress(OSError):
            while more := tls.recv(65_536):
                heard += more
        return heard


def test_a_peer_of_another_version_is_refused_in_words(pair):
    one, two = pair.boxes
    two.daemon.stop()
    heard = spoken(pair, b"wirerate sync 1, wirerate state 99\n")
    assert heard.startswith(b"wirerate sync 4, wirerate state"), "it says what it speaks itself"
    troubled(one, 'the peer speaks "wirerate sync 1, wirerate state 99"')
    spoken(pair, b"\0" * 5_000)
    troubled(one, "does not greet as a gateway does")
    spoken(pair, heard.split(b"\n")[0] + b"\n" + b"\xff" * 5_000)
    troubled(one, "no message")
    assert one.daemon.alive()
    two.start()
    pair.synchronised()


def test_a_peer_that_vanishes_is_noticed_and_found_again(pair):
    one, two = pair.boxes
    # Packets are lost, and nobody says so.
    for box in pair.boxes:
        cut = "table ip cut { chain in { type filter hook input priority 0; iifname sync drop; }; }"
        box.gateway.run("nft", "-f", "-", input=cut)
    for box in pair.boxes:
        troubled(box, "silent")
    for box in pair.boxes:
        box.gateway.run("nft", "delete", "table", "ip", "cut")
    pair.synchronised()
    # One that hangs is no better than one that is gone.
    two.daemon.process.send_signal(signal.SIGSTOP)
    troubled(one, "silent")
    two.daemon.process.send_signal(signal.SIGCONT)
    pair.synchronised()


def test_two_active_gateways_are_seen_and_flows_go_on(kind):
    boxes = Boxes(**kind)
    with boxes.running():
        one, two = boxes.boxes
        # Neither hears the other any more.
        for box in boxes.boxes:
            box.daemon.write(more="[[nat]]\nname = \"none\"\nkind = \"exempt\"\nto = \"lan\"\n", vrrp="drop")
            box.daemon.ask("apply", box.daemon.policy)
        wait.until(lambda: one.is_active() and two.is_active(), "both are active")
        # The hosts have one of the two each.
        boxes.client.ip(f"neigh replace {MOVED_LAN} lladdr {one.mac('lan')} dev eth0 nud permanent")
        boxes.server.ip(f"neigh replace {MOVED} lladdr {two.mac('wan')} dev wan nud permanent")
        echo = boxes.server.udp(SERVER, 7001)
        # Answers come by the other gateway, which knows the flow by then.
        for _ in range(5):
            here = boxes.client.udp()
            here.connect((SERVER, 7001))
            here.send(b"there")
            _, shown = echo.recvfrom(100)
            has_it = lambda shown=shown: two.daemon.ask("flows", "--port", shown[1], "--json").stdout
            wait.until(lambda: str(shown[1]) in has_it(), "the other knows the flow")
            echo.sendto(b"back", shown)
            assert here.recv(100) == b"back"
            here.close()
        echo.close()
        wait.until(lambda: any(box.status()["both_active"] for box in boxes.boxes), "one says so")
        # The alerts of packaging/monitoring ask for these.
        assert any("\nwirerate_sync_both_active 1" in box.metrics() for box in boxes.boxes)
        assert all("\nwirerate_sync_up 1" in box.metrics() for box in boxes.boxes)
        assert "both gateways forward packets" in one.daemon.ask("status").stdout + two.daemon.ask("status").stdout
