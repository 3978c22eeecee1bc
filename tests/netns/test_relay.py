"""DHCP relays and servers, Linux' own, on the gateway: hosts of one network get their addresses from a server in another, or from the gateway."""

import json
import re
import shutil

import pytest
import wait
from host import stop
from topology import GUEST, GUEST6, GUEST_GATEWAY, GUEST_GATEWAY6, SERVER, SERVER6

pytestmark = [
    pytest.mark.only("wirerate-packet", "wirerate-xdp", "wirerate-fast", why="Linux needs no rules for it"),
    pytest.mark.longest(120),
]

RULES = """
[[rule]]
name = "dhcp"
from = "guest"
to = "self"
protocol = "udp"
sport = [68, 546]
dport = [67, 547]
action = "accept"
"""
"""What clients on the guests' network ask, and go on asking when they know the server. `lan > self` is open to the server's answers."""

UDHCPC = """#!/bin/sh
case $1 in bound | renew) ip addr replace $ip/$mask dev $interface && ip route replace default via $router ;; esac
"""

DHCLIENT = """#!/bin/sh
case $reason in BOUND6 | RENEW6 | REBIND6) ip addr replace $new_ip6_address/128 dev $interface ;; esac
"""


@pytest.fixture
def relayed(net):
    """The policy with the rule, a server in the office, and a guest without addresses; then as it was."""
    programs = ["dhcrelay", "dnsmasq", "udhcpc", "dhclient", "kea-dhcp4"]
    lacking = [program for program in programs if not shutil.which(program)]
    if lacking:
        pytest.skip(f"SKIPPED: not installed: {' '.join(lacking)} (./setup test)")
    net.office.write()
    net.office.policy.write_text(net.office.policy.read_text() + RULES)
    net.office.ask("apply", net.office.policy)
    net.guest.run("ip", "addr", "flush", "dev", "eth0", "scope", "global")
    started = []

    def start(host, *words):
        started.append(host.start(*words))
        return started[-1]

    yield start
    for process in reversed(started):
        stop(process)
        print(f"-- {process.log}\n{process.log.read_text(errors='replace')[-2000:]}")
    net.guest.run("ip", "addr", "flush", "dev", "eth0", "scope", "global")
    net.guest.ip(
        f"addr add {GUEST}/24 dev eth0",
        f"addr add {GUEST6}/64 dev eth0 nodad",
        f"route replace default via {GUEST_GATEWAY}",
        f"route replace default via {GUEST_GATEWAY6}",
    )
    net.office.apply()
    net.guest.reaches(GUEST_GATEWAY)
    net.guest.reaches(GUEST_GATEWAY6)


def server(net, start, *ranges):
    return start(
        net.server,
        *["dnsmasq", "--no-daemon", "--port=0", "--conf-file=/dev/null", "--interface=eth0", "--bind-interfaces"],
        *["--log-dhcp", "--leasefile-ro", "--no-ping", *(f"--dhcp-range={each}" for each in ranges)],
        f"--dhcp-option=option:router,{GUEST_GATEWAY}",
    )


def script(net, text):
    path = net.logs / "dhcp-script"
    path.write_text(text)
    path.chmod(0o755)
    return path


def addresses(host):
    return host.run("ip", "addr", "show", "dev", "eth0").stdout


def test_guests_get_addresses_of_a_server_in_the_office(net, relayed):
    said = server(net, relayed, "192.168.20.100,192.168.20.120,255.255.255.0,120")
    relay = relayed(net.gateway, "dhcrelay", "-4", "-d", "--no-pid", "-id", "guest", "-iu", "lan", SERVER)
    wait.until(lambda: "Sending on" in relay.log.read_text(), "the relay runs")
    relayed(net.guest, "udhcpc", "-f", "-i", "eth0", "-s", script(net, UDHCPC), "-t", 10, "-T", 1)
    found = wait.until(lambda: re.search(r"inet (192\.168\.20\.1[012]\d)/24", addresses(net.guest)), "a lease", 20)
    assert found[1] in said.log.read_text()
    net.guest.reaches(GUEST_GATEWAY)


def test_guests_get_addresses_of_ipv6(net, relayed):
    server(net, relayed, "2001:db8:20::100,2001:db8:20::1ff,64,120")
    relay = relayed(net.gateway, "dhcrelay", "-6", "-d", "--no-pid", "-l", "guest", "-u", f"{SERVER6}%lan")
    wait.until(lambda: "Sending on" in relay.log.read_text(), "the relay runs")
    files = ["-lf", net.logs / "dhclient6.leases", "-pf", net.logs / "dhclient6.pid", "-cf", "/dev/null"]
    relayed(net.guest, "dhclient", "-6", "-d", "-v", *files, "-sf", script(net, DHCLIENT), "eth0")
    wait.until(lambda: re.search(r"inet6 2001:db8:20::1[0-9a-f]{2}/128", addresses(net.guest)), "a lease", 30)


def test_guests_get_addresses_of_a_server_on_the_gateway(net, relayed):
    """Kea writes the frames of its answers itself, to hosts that could not answer an ARP request yet."""
    for directory in ["run", "locks"]:
        (net.logs / f"kea-{directory}").mkdir(exist_ok=True)
    server = {
        "interfaces-config": {"interfaces": ["guest"], "dhcp-socket-type": "raw"},
        "lease-database": {"type": "memfile", "persist": False},
        "subnet4": [{"id": 1, "subnet": "192.168.20.0/24", "pools": [{"pool": "192.168.20.130 - 192.168.20.139"}],
                     "option-data": [{"name": "routers", "data": GUEST_GATEWAY}]}],
        "loggers": [{"name": "kea-dhcp4", "severity": "INFO", "output_options": [{"output": "stdout", "flush": True}]}],
    }
    configuration = net.logs / "kea-dhcp4.json"
    configuration.write_text(json.dumps({"Dhcp4": server}))
    places = [f"KEA_PIDFILE_DIR={net.logs}/kea-run", f"KEA_LOCKFILE_DIR={net.logs}/kea-locks"]
    kea = relayed(net.gateway, "env", *places, "kea-dhcp4", "-c", configuration)
    wait.until(lambda: "DHCP4_STARTED" in kea.log.read_text(), "the server runs")
    relayed(net.guest, "udhcpc", "-f", "-i", "eth0", "-s", script(net, UDHCPC), "-t", 10, "-T", 1)
    wait.until(lambda: re.search(r"inet 192\.168\.20\.13\d/24", addresses(net.guest)), "a lease", 20)
    net.guest.reaches(GUEST_GATEWAY)
