"""Two gateways that both forward, by BGP and ECMP with FRR: each flow has one owner, to which the other hands packets over. See docs/sync.md.

    client 192.168.1.10 ─┐           ┌─ lan ONE wan ─┐
                         ├─ INNER ───┤      │ sync    ├─── OUTER ── server 198.51.100.7
           192.168.2.10 ─┘           └─ lan TWO wan ─┘

Both show 203.0.113.10, which no interface has: OUTER learns the way to it from both. Whatever comes from 192.168.2.0/24 is not translated.
"""

import contextlib
import itertools
import json
import os
import shutil
import socket
import tempfile
from pathlib import Path

import frr
import gateway as gateways
import pytest
import wait
from boxes import Certificates
from gateway import missing
from host import TIMEOUT, Host

pytestmark = pytest.mark.longest(240)

KINDS = {
    "wirerate-packet": {"driver": "packet"},
    "wirerate-xdp": {"driver": "xdp"},
    "wirerate-fast": {"driver": "packet", "fast_path": "tc"},
}
CLIENT, PLAIN, SERVER, SHARED = "192.168.1.10", "192.168.2.10", "198.51.100.7", "203.0.113.10"
SYNC = {1: "10.0.0.1", 2: "10.0.0.2"}
VXLAN = 4789

POLICY = """
[gateway]
driver = "{driver}"
fast-path = "{fast_path}"
workers = {workers}
sync = "{side}:10.0.0.1:9480"
sync-certificate = "{files}/{name}.crt"
sync-key = "{files}/{name}.key"
sync-ca = "{files}/ca.crt"
{owner}

[interface.lan]
zone = "lan"
addresses = ["10.0.{number}.2/24"]

[interface.wan]
zone = "wan"
addresses = ["172.16.{number}.2/24"]
virtual-addresses = ["203.0.113.10"]

[[nat]]
name = "out"
kind = "source"
to = "wan"
source = "192.168.1.0/24"
pool = ["203.0.113.10"]
random = true

[timeout]
udp = "300s"
udp-unanswered = "300s"

[[nat]]
name = "web"
kind = "forward"
from = "wan"
outside = "203.0.113.10"
protocol = "tcp"
port = 8080
target = "192.168.1.10"

[[rule]]
name = "bgp"
to = "self"
protocol = "tcp"
dport = 179
action = "accept"

[[rule]]
name = "web"
from = "wan"
to = "lan"
protocol = "tcp"
dport = 8080
action = "accept"

[default]
"lan > wan" = "accept"
"lan > self" = "accept"
"""

OWN_BGP = """
router bgp 65001
 bgp router-id 10.0.0.{number}
 no bgp ebgp-requires-policy
 no bgp network import-check
 timers bgp 1 3
 neighbor 10.0.{number}.1 remote-as 65010
 neighbor 10.0.{number}.1 timers connect 1
 neighbor 172.16.{number}.1 remote-as 65020
 neighbor 172.16.{number}.1 timers connect 1
 network 203.0.113.10/32
"""

ROUTER_BGP = """
router bgp {own}
 bgp router-id {id}
 no bgp ebgp-requires-policy
 no bgp network import-check
 timers bgp 1 3
 neighbor {net}.1.2 remote-as 65001
 neighbor {net}.1.2 timers connect 1
 neighbor {net}.2.2 remote-as 65001
 neighbor {net}.2.2 timers connect 1
 maximum-paths 2
"""

_runs = itertools.count(1)


def pytest_generate_tests(metafunc):
    if "kind" in metafunc.fixturenames:
        named = metafunc.config.getoption("gateway") or list(KINDS)
        metafunc.parametrize("kind", [name for name in KINDS if name in named], indirect=True)


@pytest.fixture
def kind(request):
    if lacking := missing(request.param):
        pytest.skip(f"SKIPPED: {lacking}")
    if lacking := frr.missing():
        (pytest.fail if request.config.getoption("must_run") else pytest.skip)(f"SKIPPED: {lacking}")
    return KINDS[request.param]


class Box:
    """One of the gateways: its namespace, its daemon, its FRR."""

    mtu = 1500
    guests = "lan"

    def __init__(self, edge, prefix, number, about):
        self.number, self.edge = number, edge
        self.name = ["one", "two"][number - 1]
        self.logs = Path(tempfile.mkdtemp(prefix=f"owner{number}-"))
        self.logs.chmod(0o755)
        self.gateway = Host(f"{prefix}-{self.name}", self.logs)
        self.gateway.sysctl({"net/ipv6/conf/all/disable_ipv6": 1, "net/ipv4/ip_forward": 0})
        own = {
            "number": number,
            "name": self.name,
            "side": "listen" if number == 1 else "connect",
            "files": edge.certificates.files,
            "owner": 'sync-owner = "hash"',
            "fast_path": "off",
            "workers": 1,
            **about,
        }

        class Daemon(gateways.Wirerate):
            name = f"wirerate-{own['driver']}"
            driver = own["driver"]

            def write(self, *_):
                self.policy.write_text(POLICY.format(**own))

        self.daemon = Daemon(self)
        for router, interface, net in [(edge.inner, "lan", "10.0"), (edge.outer, "wan", "172.16")]:
            router.ip(
                f"link add gw{number} numrxqueues 4 numtxqueues 4 type veth "
                f"peer name {interface} numrxqueues 4 numtxqueues 4 netns {self.gateway.namespace}",
                f"link set gw{number} up",
                f"addr add {net}.{number}.1/24 dev gw{number}",
            )
            self.gateway.ip(f"link set {interface} up")
        self.frr = None

    def route(self):
        self.frr = frr.Frr(self.gateway, OWN_BGP.format(number=self.number))

    def status(self):
        return self.daemon.counters()["sync"]

    def owner(self):
        return self.status()["owner"]

    def has_routes(self):
        """True once the gateway has followed what FRR has given Linux."""
        told = [
            json.loads(self.daemon.ask("explain", "--live", "--json", f"lan udp {source}:1 > {SERVER}:1").stdout)
            for source in [CLIENT, PLAIN]
        ]
        return all(one["verdict"] == "forwarded" for one in told)

    def crash(self):
        """The machine is gone, daemons and memory: nobody hears of it, but BGP's timers run out. (FRR 8.4 does not take a next hop back whose
        carrier was away.)"""
        self.gateway.ip("link set sync down")
        self.daemon.kill()
        self.frr.stop()
        shutil.rmtree(self.daemon.state, ignore_errors=True)
        self.daemon.state.unlink(missing_ok=True)

    def revive(self):
        self.gateway.ip("link set sync up")
        self.daemon.launch()
        wait.until(self.daemon.answers, f"{self.name} answers")
        self.route()


class Edge:
    """Everything; `running` takes it down."""

    def __init__(self, workers=(1, 1), owners=(None, None), **about):
        prefix = f"wo{os.getpid()}-{next(_runs)}"
        self.logs = Path(tempfile.mkdtemp(prefix="owner-"))
        self.certificates = Certificates()
        self.client, self.inner, self.outer, self.server = (
            Host(f"{prefix}-{name}", self.logs) for name in ["client", "inner", "outer", "server"]
        )
        for seed, router in enumerate([self.inner, self.outer], 1):
            router.sysctl(
                {
                    "net/ipv4/ip_forward": 1,
                    # By addresses, protocol and ports; each by a hash of its own, so that ways back are others for half of all flows.
                    "net/ipv4/fib_multipath_hash_policy": 3,
                    "net/ipv4/fib_multipath_hash_fields": 0x37,
                    "net/ipv4/fib_multipath_hash_seed": seed,
                }
            )
        for host, router, addresses, ends in [
            (self.client, self.inner, [CLIENT, PLAIN], ["192.168.1.1", "192.168.2.1"]),
            (self.server, self.outer, [SERVER], ["198.51.100.1"]),
        ]:
            router.ip("link add host type veth peer name eth0 netns " + host.namespace, "link set host up")
            router.ip(*[f"addr add {end}/24 dev host" for end in ends])
            host.ip("link set eth0 up", *[f"addr add {address}/24 dev eth0" for address in addresses])
            host.ip(f"route add default via {ends[0]}")
        given = [{} if owner is None else {"owner": owner} for owner in owners]
        self.boxes = [
            Box(self, prefix, number, {**about, "workers": workers[number - 1], **given[number - 1]}) for number in (1, 2)
        ]
        self.one, self.two = self.boxes
        self.one.gateway.ip(f"link add sync type veth peer name sync netns {self.two.gateway.namespace}")
        for box in self.boxes:
            box.gateway.ip("link set sync up", f"addr add {SYNC[box.number]}/24 dev sync")
        self.routers = []

    @contextlib.contextmanager
    def running(self):
        try:
            for box in self.boxes:
                box.daemon.launch()
            for box in self.boxes:
                wait.until(box.daemon.answers, f"{box.name} answers")
            inner = ROUTER_BGP.format(own=65010, id="10.0.1.1", net="10.0")
            inner += " network 192.168.1.0/24\n network 192.168.2.0/24\n"
            outer = ROUTER_BGP.format(own=65020, id="172.16.1.1", net="172.16")
            outer += " network 198.51.100.0/24\n"
            self.routers = [frr.Frr(self.inner, inner), frr.Frr(self.outer, outer)]
            for box in self.boxes:
                box.route()
            self.both()
            yield self
        except BaseException:
            print("\n".join(box.daemon.evidence() for box in self.boxes))
            for host in [self.inner, self.outer, *[box.gateway for box in self.boxes]]:
                print(host, host.run("ip", "route").stdout)
            for router in self.routers:
                print(router.ask("show bgp summary", "show bgp ipv4 unicast"))
            raise
        finally:
            for router in [*self.routers, *[box.frr for box in self.boxes if box.frr]]:
                router.stop()
            for box in self.boxes:
                box.daemon.stop()
                box.gateway.close()
            for host in [self.client, self.inner, self.outer, self.server]:
                host.close()

    def ways(self, host, to):
        """Next hops of a route, by number of the gateway."""
        found = host.run("ip", "route", "show", to).stdout
        return {number for number in (1, 2) if f".{number}.2 dev gw{number}" in found}

    def are_ways(self, numbers):
        wanted = [(self.inner, "198.51.100.0/24"), (self.outer, SHARED), (self.outer, "192.168.2.0/24")]
        return all(self.ways(host, to) == numbers for host, to in wanted)

    def both(self):
        """Both forward, and hand over."""
        wait.until(lambda: self.are_ways({1, 2}), "ECMP over both", 30)
        self.have_routes()
        wait.until(lambda: all(box.owner()["handed_over"] == "owned" for box in self.boxes), "frames are handed over", 15)

    def have_routes(self):
        for box in self.boxes:
            wait.until(box.has_routes, f"{box.name} has the routes of BGP", 20)

    def lead(self, there, back):
        """All packets go there by one gateway, and come back by another."""
        for router, net, asn, chosen in [(self.routers[0], "10.0", 65010, there), (self.routers[1], "172.16", 65020, back)]:
            weights = [f"neighbor {net}.{number}.2 weight {100 if number == chosen else 1}" for number in (1, 2)]
            router.ask("configure terminal", f"router bgp {asn}", *weights)
            router.ask("clear bgp * soft in")
        wait.until(lambda: self.ways(self.inner, "198.51.100.0/24") == {there}, "packets go there by one", 30)
        wait.until(lambda: self.ways(self.outer, SHARED) == {back}, "packets come back by the other", 30)
        wait.until(lambda: self.ways(self.outer, "192.168.2.0/24") == {back}, "packets come back by the other", 30)


class Talk:
    """Connections and datagrams from the client, translated and not, and what goes over them."""

    def __init__(self, edge, count, first):
        self.edge, self.first = edge, first
        self.pairs, self.shown = [], {}
        with edge.server.listen(first, SERVER) as listener:
            for number in range(count):
                source = CLIENT if number % 2 else PLAIN
                here = edge.client.connect(SERVER, first, source, first + number)
                there, seen = listener.accept()
                there.settimeout(TIMEOUT)
                assert seen[0] == (SHARED if number % 2 else PLAIN)
                if number % 2:
                    self.note(("tcp", number), seen)
                self.pairs.append((here, there))
        self.echo = edge.server.udp(SERVER, first + 1)
        self.near = []
        for number in range(count):
            here = edge.client.udp(CLIENT if number % 2 else PLAIN, first + number)
            here.connect((SERVER, first + 1))
            self.near.append(here)
        self.goes_on(b"first")

    def note(self, flow, seen):
        assert self.shown.setdefault(flow, seen) == seen, "another outside port"

    def goes_on(self, word):
        """Every flow goes on, by its outside port."""
        for number, (here, there) in enumerate(self.pairs):
            here.sendall(b"%s %d there" % (word, number))
            assert there.recv(100) == b"%s %d there" % (word, number)
            there.sendall(b"%s %d here" % (word, number))
            assert here.recv(100) == b"%s %d here" % (word, number)
        for number, here in enumerate(self.near):
            here.send(b"%s %d" % (word, number))
            heard, seen = self.echo.recvfrom(100)
            assert heard == b"%s %d" % (word, number)
            if number % 2:
                self.note(("udp", number), seen)
            self.echo.sendto(heard, seen)
            assert here.recv(100) == heard

    def bulk(self, size):
        """Much data, both ways at once over one translated and one plain connection: far more than a window."""
        for here, there in self.pairs[:2]:
            ends = [here, there]
            got = [0, 0]
            left = [size, size]
            for end in ends:
                end.setblocking(False)
            data = bytes(65536)

            def move(ends=ends, got=got, left=left):
                for place, end in enumerate(ends):
                    with contextlib.suppress(BlockingIOError):
                        left[place] -= end.send(data[: min(len(data), left[place])]) if left[place] else 0
                    with contextlib.suppress(BlockingIOError):
                        got[place] += len(end.recv(1 << 20))
                return got == [size, size]

            wait.until(move, "all data has come", 60, pause=0)
            for end in ends:
                end.settimeout(TIMEOUT)

    def close(self):
        for here, there in self.pairs:
            here.close()
            there.close()
        for opened in [self.echo, *self.near]:
            opened.close()


def ports_are_distinct(*talks):
    """No two flows of a protocol show one outside port at once."""
    seen = [(flow[0], shown) for talk in talks for flow, shown in talk.shown.items()]
    assert len(seen) == len(set(seen)), seen


def halves(talk):
    """The gateways that have chosen its outside ports: pairs of ports go by turns."""
    return {shown[1] // 2 % 2 for shown in talk.shown.values()}


def balanced(box):
    counted = box.daemon.counters()
    fates = ["forwarded", "delivered", "answered", "dropped", "held", "queued", "handed_over"]
    assert counted["received"] + counted["copied"] == sum(counted[fate] for fate in fates), counted


@pytest.mark.parametrize("workers", [(1, 1), (2, 3)], ids=["alone", "workers"])
def test_handshakes_go_by_different_gateways(kind, workers):
    edge = Edge(workers=workers, **kind)
    with edge.running():
        # There by one, back by the other: no handshake and no first answer has a gateway of its own.
        for first, there, back in [(20_000, 1, 2), (21_000, 2, 1)]:
            edge.lead(there, back)
            talk = Talk(edge, 40, first)
            talk.bulk(3 << 20)
            talk.goes_on(b"then")
            assert edge.client.ping(SERVER) and edge.client.ping(SERVER, "-I", PLAIN)
            # Errors about packets of a moment ago: OUTER, a hop behind the gateway, answers where that is.
            hops = edge.client.run("traceroute", "-n", "-q", "1", "-w", "2", "-m", "4", SERVER).stdout
            assert f".{back}.1 " in hops and SERVER in hops.splitlines()[-1], hops
            # From outside by the forward, and refused without one.
            with edge.client.listen(8080) as listener:
                here = edge.server.connect(SHARED, 8080)
                there_, _ = listener.accept()
                here.sendall(b"in")
                assert there_.recv(10) == b"in"
                there_.sendall(b"out")
                assert here.recv(10) == b"out"
                here.close()
                there_.close()
            with edge.client.listen(8081), pytest.raises(OSError):
                edge.server.connect(PLAIN, 8081, timeout=1)
            ports_are_distinct(talk)
            talk.close()
        for box in edge.boxes:
            owner = box.owner()
            assert owner["frames_sent"] > 20 and owner["frames_taken"] > 20, owner
            assert owner["frames_lost"] == 0 and not owner["refused"], owner
            assert not box.status()["both_active"]
            balanced(box)
        sent, taken = ([box.owner()[key] for box in edge.boxes] for key in ["frames_sent", "frames_taken"])
        assert sent == taken[::-1]
        text = edge.one.daemon.ask("status").stdout
        assert "handed over to the peer where it owns them" in text, text


def test_one_dies_and_comes_back(kind):
    edge = Edge(**kind)
    with edge.running():
        before = Talk(edge, 60, 20_000)
        # Established flows are known to the other within some ten milliseconds.
        wait.until(lambda: all(box.daemon.counters()["flows"] >= 120 for box in edge.boxes), "both have all flows")
        edge.one.crash()
        wait.until(lambda: edge.are_ways({2}), "all goes by the other", 30)
        before.goes_on(b"alone")
        alone = Talk(edge, 40, 22_000)
        assert edge.two.owner()["handed_over"] == "none"
        edge.one.revive()
        edge.both()
        before.goes_on(b"again")
        alone.goes_on(b"again")
        after = Talk(edge, 60, 24_000)
        ports_are_distinct(before, alone, after)
        # A port's pair says which of the two has chosen it.
        assert halves(alone) == {1}, "what was chosen alone is of the survivor's half"
        for talk in [before, alone, after]:
            talk.close()
        for box in edge.boxes:
            balanced(box)


def test_without_the_link_nothing_is_handed_over_and_no_port_is_chosen_twice(kind):
    edge = Edge(**kind)
    with edge.running():
        talks = [Talk(edge, 20, 20_000)]
        edge.two.gateway.ip("link set sync down")
        for box in edge.boxes:
            wait.until(lambda box=box: box.owner()["handed_over"] == "none", "nothing is handed over", 5)
            wait.until(lambda box=box: box.status()["state"] == "waiting", "it says so", 15)
        text = edge.one.daemon.ask("status").stdout
        assert "no packets are handed over to the peer now" in text, text
        # Each by itself: flows both of whose ways lead by one gateway.
        for first, number in [(21_000, 1), (22_000, 2)]:
            edge.lead(number, number)
            talks.append(Talk(edge, 40, first))
        for talk, half in zip(talks[1:], [0, 1], strict=True):
            assert halves(talk) == {half}
        ports_are_distinct(*talks)
        edge.two.gateway.ip("link set sync up")
        for box in edge.boxes:
            wait.until(lambda box=box: box.owner()["handed_over"] == "owned", "frames are handed over", 20)
        edge.lead(1, 2)
        for talk in talks:
            wait.until(lambda: all(box.status()["state"] == "incremental" for box in edge.boxes), "synchronised")
            talk.goes_on(b"again")
        for talk in talks:
            talk.close()


def test_who_is_not_the_peer_hands_nothing_over(kind):
    edge = Edge(**kind)
    with edge.running():
        one, two = edge.boxes
        # A stranger on the link, and garbage from the peer's own address.
        two.gateway.ip("addr add 10.0.0.99/24 dev sync")
        frame = one.gateway.mac("lan").replace(":", "") + "020000000009" + "0800" + "00" * 46
        for source, payload in [
            ("10.0.0.99", bytes.fromhex("0800000000000100" + frame)),
            ("10.0.0.2", b""),
            ("10.0.0.2", b"\x08" * 7),
            ("10.0.0.2", bytes(64)),
            ("10.0.0.2", bytes.fromhex("0800000000000100" + frame)),
        ]:
            with two.gateway.udp(source) as sender:
                sender.sendto(payload, (SYNC[1], VXLAN))
        wait.until(lambda: sum(one.owner()["refused"].values()) == 5, "all five are refused")
        refused = one.owner()["refused"]
        assert refused["another sender than the second gateway"] == 1, refused
        assert refused["no VXLAN header with a frame"] == 3, refused
        assert refused["no interface of that name here"] == 1, refused
        assert "5 refused" in one.daemon.ask("status").stdout
        assert 'wirerate_sync_handed_over_frames_total{outcome="refused"} 5' in edge.one.gateway.run(
            "curl", "-s", "--unix-socket", one.daemon.socket, "http://gateway/metrics"
        ).stdout
        talk = Talk(edge, 10, 20_000)
        talk.close()
        balanced(one)


def test_a_peer_without_the_key_gets_nothing(kind):
    edge = Edge(owners=(None, ""), **kind)
    with contextlib.ExitStack() as stack:
        edge.both = edge.have_routes
        stack.enter_context(edge.running())
        one, two = edge.boxes
        wait.until(lambda: one.status()["state"] == two.status()["state"] == "incremental", "they synchronise")
        assert one.owner()["handed_over"] == "none"
        assert 'the peer has no `sync-owner`' in one.daemon.ask("status").stdout
        assert "the peer divides flows by `sync-owner`, this gateway does not" in two.daemon.ask("status").stdout
        # Both directions by one: that works as ever.
        edge.lead(1, 1)
        talk = Talk(edge, 20, 20_000)
        talk.close()
        assert one.owner()["frames_sent"] == 0


def test_a_full_datagram_crosses_a_link_of_the_usual_mtu(kind):
    edge = Edge(**kind)
    with edge.running():
        edge.lead(1, 2)
        # 1,500 bytes, and 50 more for the way to the other gateway, which the kernel fragments. Each is the first of its flow.
        with edge.server.udp(SERVER, 7000) as echo:
            for number in range(40):
                with edge.client.udp(CLIENT, 30_000 + number) as here:
                    here.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO
                    here.sendto(bytes(1472), (SERVER, 7000))
                    heard, seen = echo.recvfrom(2000)
                    assert len(heard) == 1472
                    echo.sendto(heard, seen)
                    assert len(here.recv(2000)) == 1472
        for box in edge.boxes:
            assert box.owner()["frames_lost"] == 0
        assert sum(box.owner()["frames_sent"] for box in edge.boxes) >= 20
