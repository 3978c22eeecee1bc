"""A branch behind a NAT that forgets soon, and a tunnel from there with keys in files.

    client 10.1.0.10 ── lan BRANCH wan ── 10.77.0.1 NAT 192.0.2.1 ── wan OFFICE lan ── client 10.2.0.10
                            10.77.0.2                                192.0.2.2

The NAT gives UDP other ports, and forgets it after two seconds of silence.
"""

import contextlib
import itertools
import json
import os
import time

import pytest
import wait
from gateway import Wirerate, missing
from host import Host
from packet import drain
from pcapng import Capture
from sites import Site, cable
from test_esp_seen import Capturing

BRANCH, OFFICE = "10.77.0.2", "192.0.2.2"
NAT = "192.0.2.1"
CLIENTS = ["10.1.0.10", "10.2.0.10"]

FORGETS = 2
"""Seconds after which the NAT forgets."""

POLICY = """
[gateway]
driver = "packet"
workers = {workers}

[interface.lan]
zone = "lan"
addresses = ["10.{own}.0.1/16"]

[interface.wan]
zone = "wan"
addresses = ["{local}/24"]

[interface.site]
zone = "vpn"

[interface.site.esp]
local = "{local}"
remote = "{remote}"
udp = "yes"
{more}

[[interface.site.esp.sa]]
direction = "out"
spi = {out}
algorithm = "aes128-gcm"
key-file = "keys/{own}"

[[interface.site.esp.sa]]
direction = "in"
spi = {in_}
algorithm = "aes128-gcm"
key-file = "keys/{other}"

[[route]]
to = "0.0.0.0/0"
via = "{via}"

[[route]]
to = "10.{other}.0.0/16"
interface = "site"

[default]
"lan > vpn" = "accept"
"vpn > lan" = "accept"
"lan > self" = "accept"
"""

_runs = itertools.count(1)


def gateway_of(end, **about):
    """`wirerate run` with this policy, not started."""
    own, other = end.number, 3 - end.number
    about |= {"own": own, "other": other, "out": 0x1000 + own, "in_": 0x1000 + other}

    class Gateway(Wirerate):
        name, driver = "wirerate", "packet"

        def write(self, *_, **changed):
            self.policy.write_text(POLICY.format(**about | changed))

    return Gateway(end)


class Road:
    """Both gateways, and the NAT between them."""

    def __init__(self):
        prefix = f"wr{os.getpid()}-{next(_runs)}"
        self.ends = [Site(number, prefix) for number in (1, 2)]
        self.nat = Host(f"{prefix}-nat", self.ends[0].logs)
        self.nat.sysctl({"net/ipv4/ip_forward": 1})
        for end, interface in zip(self.ends, ("in", "out")):
            own = end.number
            cable(end.gateway, "wan", self.nat, interface, 1500)
            cable(end.gateway, "lan", end.client, "eth0", 1500)
            end.client.ip(f"addr add 10.{own}.0.10/16 dev eth0", f"route add default via 10.{own}.0.1")
        self.nat.ip("addr add 10.77.0.1/24 dev in", f"addr add {NAT}/24 dev out")
        self.translate("20000-20100")
        # Of this namespace, where its rules have begun to look at connections.
        self.nat.sysctl({f"net/netfilter/nf_conntrack_udp_timeout{kind}": FORGETS for kind in ("", "_stream")})

    def translate(self, ports):
        """Translates what comes from the branch to ports of this range."""
        self.nat.run(
            "nft",
            f"""flush ruleset
            table ip nat {{
                chain post {{
                    type nat hook postrouting priority 100;
                    oifname "out" udp sport 1-65535 masquerade to :{ports}
                }}
            }}""",
        )

    @contextlib.contextmanager
    def run(self, branch, office, workers=1):
        """Runs both gateways, with these lines of their tunnels."""
        one, two = self.ends
        self.branch = gateway_of(one, workers=workers, local=BRANCH, via="10.77.0.1", remote=OFFICE, more=branch)
        self.office = gateway_of(two, workers=workers, local=OFFICE, via=NAT, **office)
        try:
            self.branch.start()
            self.office.start()
            yield self
        except Exception:
            print("\n".join(gateway.evidence() for gateway in (self.branch, self.office)))
            raise
        finally:
            self.branch.stop()
            self.office.stop()
            for end in self.ends:
                end.client.close()
                end.gateway.close()
            self.nat.close()

    def opens(self):
        """The branch sends, and the office's answers find their way."""
        self.ends[0].client.reaches(CLIENTS[1])

    def answers(self):
        """True if the branch is reached from the office."""
        return self.ends[1].client.ping(CLIENTS[0])


@pytest.fixture(scope="module", autouse=True)
def has_driver():
    if lacking := missing("wirerate-packet"):
        pytest.skip(f"SKIPPED: {lacking}")


def dropped(gateway, reason):
    told = json.loads(gateway.ask("drops", "--json").stdout)
    return sum(drop["dropped"] for drop in told if drop["reason"] == reason)


def is_keepalive(frame):
    """UDP from port 4500 to port 4500, with a single byte."""
    udp = frame[34:]
    is_udp = frame[12:14] == b"\x08\x00" and frame[23] == 17
    return is_udp and udp[:6] == bytes.fromhex("119411940009") and udp[8:9] == b"\xff"


@pytest.mark.parametrize("workers", [1, 2], ids=["one-worker", "two-workers"])
def test_keepalives_hold_the_nat_open(workers):
    with Road().run('keepalive = "1s"', {"remote": NAT, "more": ""}, workers) as road:
        road.opens()
        with road.nat.sniff("in") as wire:
            begin = time.monotonic()
            # Silence is what is tried.
            time.sleep(4 * FORGETS)
            assert road.answers(), "from the office, after a long silence"
            kept = [frame for frame in drain(wire) if is_keepalive(frame)]
        seconds = time.monotonic() - begin
        assert FORGETS * 3 <= len(kept) <= seconds + 1, f"{len(kept)} in {seconds:.1f} s, by one worker alone"
        wait.until(lambda: dropped(road.office, "nat-keepalive") >= len(kept), "they end at the peer")


def test_a_capture_names_keepalives(tmp_path):
    with Road().run('keepalive = "1s"', {"remote": NAT, "more": ""}) as road:
        road.opens()
        with Capturing(road.branch, tmp_path / "kept.pcapng", "--stage", "sent", "--port", 4500) as live:
            live.has(1)
        (kept, *_) = [seen for seen in Capture(live.path).packets if is_keepalive(seen.frame)]
        words = "sent by the gateway itself: NAT keepalive of a tunnel, in by self, out by wan"
        assert kept.comment == words, kept.comment


def test_without_keepalives_the_nat_forgets():
    with Road().run("", {"remote": NAT, "more": ""}) as road:
        road.opens()
        assert road.answers()
        time.sleep(2 * FORGETS)
        assert not road.answers()
        road.opens()
        assert road.answers()


def peer(gateway):
    """Address of the peer that packets go to, as the gateway shows it."""
    sas = json.loads(gateway.ask("sa", "--json").stdout)
    return next(sa["remote"] for sa in sas if sa["direction"] == "out")


@pytest.mark.parametrize("workers", [1, 2], ids=["one-worker", "two-workers"])
def test_a_peer_without_an_address(workers):
    with Road().run('keepalive = "1s"', {"remote": "any", "more": ""}, workers) as road:
        assert not road.answers() and peer(road.office) == "any"
        assert dropped(road.office, "tunnel-peer-unknown") > 0
        told = json.loads(road.office.ask("explain", "--live", "--json", f"lan udp {CLIENTS[1]}:4 > {CLIENTS[0]}:5").stdout)
        assert (told["verdict"], told["reason"]["name"]) == ("dropped", "tunnel-peer-unknown")
        road.opens()
        assert road.answers() and peer(road.office) == NAT
        told = json.loads(road.office.ask("explain", "--live", "--json", f"lan udp {CLIENTS[1]}:4 > {CLIENTS[0]}:5").stdout)
        assert told["verdict"] == "forwarded"
        # The NAT has another address and port from now on.
        road.nat.ip(f"addr del {NAT}/24 dev out", "addr add 192.0.2.77/24 dev out")
        road.translate("30000-30100")
        # Linux forgets in its own time, and the first packets may still leave by the old one.
        wait.until(lambda: road.opens() or peer(road.office) == "192.0.2.77", "the peer is followed")
        assert road.answers()
        # Nobody knows after a restart.
        road.office.stop()
        road.office.start()
        assert not road.answers() and peer(road.office) == "any"
        road.opens()
        assert road.answers() and peer(road.office) == "192.0.2.77"
