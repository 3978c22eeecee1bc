"""FRR on the gateway: a full table by BGP, from a neighbour that is BIRD; it comes, changes and goes while connections go on."""

import ipaddress
import json
import os
import re
import time
from pathlib import Path

import pytest
import wait
from frr import Frr, missing
from host import stop
from topology import CLIENT, HIDDEN, OUTSIDE, REMOTE, ROUTER, ROUTER2, STRANGER

pytestmark = [
    pytest.mark.only("wirerate-packet", "wirerate-fast", why="drivers do not matter to routes"),
    pytest.mark.longest(600),
]

ROUTES = 1_000_000 if os.environ.get("WIRERATE_LONG") else 100_000
"""A million takes some minutes, most of them FRR's and the kernel's."""


def prefixes(count):
    """Prefixes as a full table has them: /24s for the most part, some of 16 to 23 bits, none within another."""
    at, number = int(ipaddress.ip_address("11.0.0.0")), 0
    while number < count:
        length = 24 if number % 5 else 20 + number // 5 % 4
        at = -(-at // (1 << (32 - length))) << (32 - length)
        if at >> 24 not in (127, 192, 198, 203):
            yield f"{ipaddress.ip_address(at)}/{length}"
            number += 1
        at += 1 << (32 - length)


@pytest.fixture(autouse=True)
def tools(request):
    if lacking := missing():
        (pytest.fail if request.config.getoption("must_run") else pytest.skip)(f"SKIPPED: {lacking}")


def neighbour(net, announced):
    """BIRD at router2, with that many routes for the gateway and one by which the hidden host is reached."""
    table, config, control = net.logs / "table.conf", net.logs / "full.conf", net.logs / "full.ctl"
    with open(table, "w", encoding="ascii") as out:
        for prefix in prefixes(announced):
            out.write(f"route {prefix} blackhole;\n")
    config.write_text(
        f"""
        router id {ROUTER2};
        protocol device {{ }}
        protocol static full {{ ipv4;
        include "{table}";
        }}
        protocol static alone {{ ipv4; route {HIDDEN}/32 blackhole; }}
        protocol bgp edge {{
            local {ROUTER2} as 65002; neighbor {OUTSIDE} as 65001; passive;
            ipv4 {{ import none; export all; next hop self; }};
        }}
        """
    )
    control.unlink(missing_ok=True)
    process = net.router2.start("bird", "-f", "-c", config, "-s", control, "-P", net.logs / "full.pid")
    return process, lambda *words: net.router2.run("birdc", "-s", control, *words, check=False, timeout=120).stdout


BGP = f"""
router bgp 65001
 bgp router-id {OUTSIDE}
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor {ROUTER2} remote-as 65002
 neighbor {ROUTER2} timers connect 1
"""


def in_kernel(net):
    """Routes of BGP that Linux has."""
    return int(net.gateway.run("sh", "-c", "ip -4 route show proto bgp | wc -l", timeout=120).stdout)


def router(net, destination):
    """The router that the gateway sends a packet to."""
    done = net.client.run("traceroute", "-n", "-q", "1", "-w", "2", "-f", "2", "-m", "2", str(destination))
    return done.stdout.split()[-3 if "!" not in done.stdout else -4]


def memory(process):
    """Resident memory of a process, in MiB."""
    text = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) // 1024


def test_a_full_table_comes_and_goes(net):
    before = memory(net.office.process)
    announcer, tell = neighbour(net, ROUTES)
    frr = Frr(net.gateway, BGP, listen=OUTSIDE)
    try:
        began = time.monotonic()
        wait.until(lambda: in_kernel(net) > ROUTES, "FRR has given Linux all routes", 500, pause=1)
        net.client.reaches(HIDDEN, 120)
        took = time.monotonic() - began
        print(f"{ROUTES} routes in {took:.0f} s; the gateway has {memory(net.office.process)} MiB, before {before}")
        for number, prefix in enumerate(prefixes(ROUTES)):
            if number % (ROUTES // 20) == 7:
                inside = ipaddress.ip_network(prefix)[9]
                wait.until(lambda inside=inside: router(net, inside) == ROUTER2, f"{prefix} is reached by its router", 60)
        # A packet is explained by the routes that concern it: no million of them is sent for that.
        inside = next(ipaddress.ip_network(prefix)[9] for prefix in prefixes(ROUTES))
        began = time.monotonic()
        told = json.loads(net.office.ask("explain", "--live", "--json", f"lan udp {CLIENT}:1000 > {inside}:1000", timeout=120).stdout)
        print(f"explained in {time.monotonic() - began:.1f} s")
        says = next(" ".join(stage["says"]) for stage in told["stages"] if stage["stage"] == "route")
        assert ROUTER2 in says and told["verdict"] == "forwarded", told
        # Between them the default route leads.
        assert router(net, STRANGER) == ROUTER

        # While a route goes and comes, and tables are made anew, a connection by another route loses nothing.
        with net.remote.udp(port=7300) as there, net.client.udp() as client:
            client.sendto(b"first", (REMOTE, 7300))
            there.recv(100)
            tell("disable", "alone")
            sent = 0
            end = time.monotonic() + 10
            while time.monotonic() < end:
                client.sendto(b"%d" % sent, (REMOTE, 7300))
                assert there.recv(100) == b"%d" % sent
                sent += 1
            tell("enable", "alone")
        net.client.reaches(HIDDEN, 120)

        # The neighbour goes, and all of its routes.
        stop(announcer)
        wait.until(lambda: in_kernel(net) == 0, "Linux has none of the routes any more", 500, pause=1)
        wait.until(lambda: not net.client.ping(HIDDEN, wait="0.2"), "the gateway has followed", 120)
        wait.until(lambda: router(net, "11.0.0.9") == ROUTER, "the default route leads there again", 60)
    finally:
        frr.stop()
        stop(announcer)
    wait.until(lambda: in_kernel(net) == 0, "FRR takes its routes with it", 500, pause=1)
