"""Four gateways side by side, over which Linux routers spread flows: whoever dies takes only its own flows along. See docs/scale.md.

    client ── INNER ─┬─ ONE ───┬─ OUTER ── server
                     ├─ TWO ───┤
                     ├─ THREE ─┤
                     └─ FOUR ──┘

Each gateway has cables of its own to both routers, whose nexthop groups lose it with its carrier.
"""

import contextlib
import itertools
import json
import os
import tempfile
from pathlib import Path

import gateway as gateways
import pytest
import wait
from gateway import missing
from host import TIMEOUT, Host

pytestmark = pytest.mark.longest(240)

KINDS = {"wirerate-packet": "packet", "wirerate-xdp": "xdp"}
CLIENT, SERVER = "192.168.1.10", "203.0.113.7"
GATEWAYS = [1, 2, 3, 4]
FLOWS = 400
CONNECTIONS = 60
IDLE = 3
"""Seconds after which a bucket of a group is idle, and may go to another gateway."""

POLICY = """
mode = "{mode}"

[gateway]
driver = "{driver}"

[interface.lan]
zone = "lan"
addresses = ["10.0.{number}.2/24"]

[interface.wan]
zone = "wan"
addresses = ["{shown}/30"]

[[route]]
to = "0.0.0.0/0"
via = "{outer}"

[[route]]
to = "192.168.1.0/24"
via = "10.0.{number}.1"

[default]
"lan > wan" = "accept"
"lan > self" = "accept"
"wan > self" = "accept"
{more}
"""

NAT = """
[[nat]]
name = "out"
kind = "masquerade"
to = "wan"
"""

_runs = itertools.count(1)


def pytest_generate_tests(metafunc):
    if "driver" in metafunc.fixturenames:
        named = metafunc.config.getoption("gateway") or list(KINDS)
        metafunc.parametrize("driver", [name for name in KINDS if name in named], indirect=True)


@pytest.fixture
def driver(request):
    if lacking := missing(request.param):
        pytest.skip(f"SKIPPED: {lacking}")
    return KINDS[request.param]


def shown_by(number):
    """The outside address of a gateway."""
    return f"198.51.100.{4 * number + 2}"


class Box:
    """One of the gateways."""

    mtu = 1500
    guests = "lan"

    def __init__(self, farm, prefix, number, about):
        self.number = number
        self.logs = Path(tempfile.mkdtemp(prefix=f"scale{number}-"))
        self.logs.chmod(0o755)
        self.gateway = Host(f"{prefix}-gw{number}", self.logs)
        self.gateway.sysctl({"net/ipv6/conf/all/disable_ipv6": 1, "net/ipv4/ip_forward": 0})
        self.farm = farm
        own = {"number": number, "shown": shown_by(number), "outer": f"198.51.100.{4 * number + 1}"}

        class Daemon(gateways.Wirerate):
            name = f"wirerate-{about['driver']}"
            driver = about["driver"]

            def write(self, *_):
                self.policy.write_text(POLICY.format(**about, **own))

        self.daemon = Daemon(self)
        for host, interface in [(farm.inner, "lan"), (farm.outer, "wan")]:
            host.ip(
                f"link add gw{number} numrxqueues 2 numtxqueues 2 type veth "
                f"peer name {interface} numrxqueues 2 numtxqueues 2 netns {self.gateway.namespace}",
                f"link set gw{number} up",
            )
            self.gateway.ip(f"link set {interface} up")
        farm.inner.ip(f"addr add 10.0.{number}.1/24 dev gw{number}")
        farm.outer.ip(f"addr add {own['outer']}/30 dev gw{number}")

    def routers(self):
        """Each router, with this gateway's address there."""
        return [(self.farm.inner, f"10.0.{self.number}.2"), (self.farm.outer, shown_by(self.number))]

    def crash(self):
        for router, _ in self.routers():
            router.ip(f"link set gw{self.number} down")
        self.daemon.kill()

    def revive(self):
        for router, address in self.routers():
            router.ip(
                f"link set gw{self.number} up",
                # It went with the carrier.
                f"nexthop add id {self.number} via {address} dev gw{self.number}",
            )
        self.daemon.start()


class Farm:
    """Everything; `close` takes it down."""

    def __init__(self, driver, kind="resilient", nat=True, mode="stateful", more=""):
        prefix = f"wf{os.getpid()}-{next(_runs)}"
        self.logs = Path(tempfile.mkdtemp(prefix="farm-"))
        self.kind = f"type resilient buckets 512 idle_timer {IDLE} unbalanced_timer 0" if kind == "resilient" else "type mpath"
        self.client, self.inner, self.outer, self.server = (
            Host(f"{prefix}-{name}", self.logs) for name in ["client", "inner", "outer", "server"]
        )
        for router in [self.inner, self.outer]:
            router.sysctl(
                {
                    "net/ipv4/ip_forward": 1,
                    # By addresses, protocol and ports, and with one seed, so that both find the same bucket for both directions of a
                    # flow. (By 1 a hash that a card or a socket of this machine has given a packet would count.)
                    "net/ipv4/fib_multipath_hash_policy": 3,
                    "net/ipv4/fib_multipath_hash_fields": 0x37,
                    "net/ipv4/fib_multipath_hash_seed": 1,
                }
            )
        for host, router, address, ends in [
            (self.client, self.inner, CLIENT, "192.168.1.1"),
            (self.server, self.outer, SERVER, "203.0.113.1"),
        ]:
            router.ip(f"link add host type veth peer name eth0 netns {host.namespace}", "link set host up", f"addr add {ends}/24 dev host")
            host.ip("link set eth0 up", f"addr add {address}/24 dev eth0", f"route add default via {ends}")
        about = {"driver": driver, "mode": mode, "more": (NAT if nat else "") + more}
        self.boxes = [Box(self, prefix, number, about) for number in GATEWAYS]
        for box in self.boxes:
            for router, address in box.routers():
                router.ip(f"nexthop add id {box.number} via {address} dev gw{box.number}")
        for router, to in [(self.inner, "default"), (self.outer, "192.168.1.0/24")]:
            router.ip(f"nexthop add id 100 group {'/'.join(map(str, GATEWAYS))} {self.kind}", f"route add {to} nhid 100")

    def regroup(self):
        """All four are in the groups again."""
        for router in [self.inner, self.outer]:
            router.ip(f"nexthop replace id 100 group {'/'.join(map(str, GATEWAYS))} {self.kind}")

    @contextlib.contextmanager
    def running(self):
        try:
            for box in self.boxes:
                box.daemon.launch()
            for box in self.boxes:
                wait.until(box.daemon.answers, f"gateway {box.number} answers")
                # Neighbours are known before it counts.
                self.inner.ping(f"10.0.{box.number}.2")
                self.outer.ping(shown_by(box.number))
            yield self
        except BaseException:
            print("\n".join(box.daemon.evidence() for box in self.boxes))
            for router in [self.inner, self.outer]:
                print(router.run("ip", "nexthop").stdout)
            raise
        finally:
            for box in self.boxes:
                box.daemon.stop()
                box.gateway.close()
            for host in [self.client, self.inner, self.outer, self.server]:
                host.close()


class Datagrams:
    """Flows of datagrams from the client, that tell by which gateway each goes."""

    def __init__(self, farm, count=FLOWS, first=10_000):
        self.echo = farm.server.udp(SERVER, 7000 + first // 10_000)
        self.near = []
        for number in range(count):
            here = farm.client.udp(port=first + number)
            here.connect((SERVER, 7000 + first // 10_000))
            self.near.append(here)

    def paths(self):
        """The address that the server sees of each."""
        seen = {}
        for first in range(0, len(self.near), 50):
            some = range(first, min(first + 50, len(self.near)))
            for number in some:
                self.near[number].send(b"%d" % number)
            for _ in some:
                heard, shown = self.echo.recvfrom(100)
                seen[int(heard)] = shown[0]
                self.echo.sendto(heard, shown)
            for number in some:
                assert self.near[number].recv(100) == b"%d" % number
        return seen

    def close(self):
        for opened in [self.echo, *self.near]:
            opened.close()


class Connections:
    """Connections from the client, and who survives."""

    def __init__(self, farm):
        self.pairs = []
        with farm.server.listen(7000, SERVER) as listener:
            for _ in range(CONNECTIONS):
                here = farm.client.connect(SERVER, 7000)
                there, shown = listener.accept()
                there.settimeout(TIMEOUT)
                self.pairs.append((here, there, shown))

    def go_on(self, wanted=lambda shown: True):
        """New data goes both ways over those connections."""
        count = 0
        for here, there, shown in self.pairs:
            if wanted(shown):
                here.sendall(b"there")
                assert there.recv(100) == b"there"
                there.sendall(b"back")
                assert here.recv(100) == b"back"
                count += 1
        return count

    def close(self):
        for here, there, _ in self.pairs:
            here.close()
            there.close()


def counts(paths):
    return {number: list(paths.values()).count(shown_by(number)) for number in GATEWAYS}


def moved(before, after):
    """Flows of gateways that live on which go by another one now."""
    return [flow for flow, shown in before.items() if shown != shown_by(3) and after[flow] != shown]


def test_with_resilient_groups_only_the_flows_of_a_gateway_that_dies_move(driver):
    farm = Farm(driver)
    with farm.running():
        datagrams, connections = Datagrams(farm), Connections(farm)
        before = datagrams.paths()
        assert all(50 < count < 150 for count in counts(before).values()), counts(before)
        farm.boxes[2].crash()
        after = datagrams.paths()
        assert moved(before, after) == []
        assert counts(after)[3] == 0
        # Translated by an address of its own, so that answers come back by the gateway that has the flow.
        survived = connections.go_on(lambda shown: shown[0] != shown_by(3))
        assert survived > CONNECTIONS / 2
        # It is back: what is busy stays, what is idle may go there.
        farm.boxes[2].revive()
        farm.regroup()
        for _ in range(8):
            assert datagrams.paths() == after
            farm.inner.run("sleep", str(IDLE / 4))
        connections.go_on(lambda shown: shown[0] != shown_by(3))
        new = Datagrams(farm, first=20_000)
        fresh = counts(new.paths())
        assert fresh[3] > 0, fresh
        told = f"of {FLOWS} flows {counts(before)[3]} were on the gateway that died and moved, and no other; {survived} connections "
        print(f"{told}went on; after it came back, none moved, and of {FLOWS} new ones it has {fresh[3]}")
        report(f"{told}; fresh {fresh}")
        for flows in [datagrams, connections, new]:
            flows.close()


def report(text):
    """Figures go to the file that `WIRERATE_REPORT` names."""
    if name := os.environ.get("WIRERATE_REPORT"):
        with open(name, "a") as file:
            file.write(text + "\n")


def test_with_groups_by_threshold_flows_of_others_move_too(driver):
    """As a router's ECMP usually is, and FRR's: the reason for the other kind."""
    farm = Farm(driver, kind="threshold")
    with farm.running():
        datagrams = Datagrams(farm)
        before = datagrams.paths()
        farm.boxes[2].crash()
        after = datagrams.paths()
        assert moved(before, after)
        others = FLOWS - counts(before)[3]
        report(f"threshold: {len(moved(before, after))} of {others} flows of others moved")
        datagrams.close()


def test_stateless_gateways_lose_no_connection_with_any_group(driver):
    farm = Farm(driver, kind="threshold", nat=False, mode="stateless", more='"wan > lan" = "accept"\n')
    with farm.running():
        connections = Connections(farm)
        for dies in [2, 0]:
            farm.boxes[dies].crash()
            assert connections.go_on() == CONNECTIONS
        connections.close()


def flows_of(box):
    """Client's ports of a gateway's connections."""
    listed = json.loads(box.daemon.ask("flows", "--json").stdout)["flows"]
    return {flow["sport"] for flow in listed if flow["protocol"] == "tcp"}


def test_without_nat_two_routers_with_one_seed_lead_both_directions_by_one_gateway(driver):
    farm = Farm(driver, nat=False)
    with farm.running():
        connections = Connections(farm)
        assert connections.go_on() == CONNECTIONS
        of_dead = flows_of(farm.boxes[2])
        assert 0 < len(of_dead) < CONNECTIONS / 2
        farm.boxes[2].crash()
        assert connections.go_on(lambda shown: shown[1] not in of_dead) == CONNECTIONS - len(of_dead)
        connections.close()
