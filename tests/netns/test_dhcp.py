"""A WAN whose addresses are a provider's to give: DHCP, DHCPv6 and router advertisements, for clients on the gateway itself.

No rule of the policy speaks of them. What such a client has asked for is let in, and nothing that it has not.
"""

import re
import shutil
import signal
import socket

import pytest
import wait
from edge import PROVIDER, PROVIDER6, REMOTE6, Edge, gateway_of
from gateway import missing
from packet import ethernet, ipv4, udp
from host import stop

FIRST, LAST = "203.0.113.50", "203.0.113.59"

# Drivers and workers: an answer may come to another worker than the one that its question went out by.
GATEWAYS = [("packet", 1), ("xdp", 1), ("packet", 2)]

UDHCPC = """#!/bin/sh
# udhcpc: deconfig, bound, renew, nak, leasefail.
echo "script: $1 $ip" >&2
case $1 in
deconfig) ip addr flush dev $interface scope global ;;
bound | renew)
    ip addr replace $ip/$mask dev $interface valid_lft $lease preferred_lft $lease
    [ -z "$router" ] || ip route replace default via $router dev $interface
    ;;
esac
"""

DHCLIENT = """#!/bin/sh
echo "script: $reason $new_ip_address $new_ip6_address $new_ip6_prefix" >&2
case $reason in
PREINIT) ip link set $interface up; ip addr flush dev $interface scope global ;;
PREINIT6)
    # It cannot bind to an address that is being probed for.
    ip link set $interface up
    until ip -6 addr show dev $interface scope link | grep inet6 | grep -qv tentative; do sleep 0.1; done
    ;;
BOUND | RENEW | REBIND | REBOOT)
    ip addr replace $new_ip_address/24 dev $interface
    ip route replace default via $new_routers dev $interface
    ;;
BOUND6 | RENEW6 | REBIND6)
    [ -z "$new_ip6_address" ] || ip addr replace $new_ip6_address/128 dev $interface
    ;;
esac
"""


def needs(*programs):
    """A test that lacks a program says so."""
    lacking = [program for program in programs if not shutil.which(program)]
    if lacking:
        pytest.skip(f"SKIPPED: not installed: {' '.join(lacking)} (./setup test)")


@pytest.fixture(params=GATEWAYS, ids=lambda each: f"{each[0]}-{each[1]}")
def edge(request):
    """The gateway is up, with nothing on its WAN."""
    driver, workers = request.param
    if lacking := missing(f"wirerate-{driver}"):
        pytest.skip(f"SKIPPED: {lacking}")
    made = Edge()
    made.office = gateway_of(made, driver, workers)
    try:
        made.office.start()
        yield made
        print(made.office.evidence())
        for log in sorted(made.logs.glob("*.log")):
            print(f"-- {log}\n{log.read_text(errors='replace')[-3000:]}")
    finally:
        made.office.stop()
        made.close()
        shutil.rmtree(made.logs, ignore_errors=True)


def script(edge, text):
    path = edge.logs / f"script-{len(list(edge.logs.glob('script-*')))}"
    path.write_text(text)
    path.chmod(0o755)
    return path


def dnsmasq(edge, *options, log="dnsmasq"):
    """Gives addresses, for as short as it lets them be given."""
    return edge.provider.start(
        "dnsmasq",
        *["--no-daemon", "--port=0", "--conf-file=/dev/null", "--interface=wan", "--bind-interfaces"],
        *["--log-dhcp", "--leasefile-ro", "--no-ping", "--dhcp-authoritative"],
        f"--dhcp-range={FIRST},{LAST},255.255.255.0,120",
        f"--dhcp-option=option:router,{PROVIDER}",
        *options,
        log=log,
    )


def udhcpc(edge, *options):
    return edge.gateway.start("udhcpc", "-f", "-i", "wan", "-s", script(edge, UDHCPC), "-t", 5, "-T", 1, *options)


def dhclient(edge, *options, renew=2, rebind=100):
    """Asks for a lease, and again after so many seconds, whatever the server says."""
    conf = edge.logs / "dhclient.conf"
    conf.write_text(
        f"""timeout 20; retry 1; initial-interval 1; backoff-cutoff 2;
        supersede dhcp-renewal-time {renew};
        supersede dhcp-rebinding-time {rebind};
        """
    )
    files = ["-lf", edge.logs / "dhclient.leases", "-pf", edge.logs / "dhclient.pid", "-cf", conf]
    return edge.gateway.start("dhclient", "-d", "-v", *files, "-sf", script(edge, DHCLIENT), *options, "wan")


def acknowledged(server, kind="DHCPACK"):
    return server.log.read_text(errors="replace").count(f" {kind}(")


CLIENTS = {"udhcpc": udhcpc, "dhclient": dhclient}


@pytest.mark.parametrize("broadcast", [False, True], ids=["unicast", "broadcast"])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_lease_is_got_and_renewed(edge, client, broadcast):
    """By answers to the address that it does not have yet, and to all."""
    needs("dnsmasq", client)
    server = dnsmasq(edge, *(["--dhcp-broadcast"] if broadcast else []))
    process = CLIENTS[client](edge)
    found = wait.until(lambda: edge.addresses(), "the WAN has an address", 15)
    assert found == [f"{found[0].split('/')[0]}/24"] and found[0].startswith("203.0.113.5")
    edge.gateway.reaches(PROVIDER)
    before = acknowledged(server)
    for time in range(2):
        if client == "udhcpc":
            process.send_signal(signal.SIGUSR1)
        wait.until(lambda: acknowledged(server) > before, "the lease is renewed", 15)
        before = acknowledged(server)
        # Asked again before it has heard, udhcpc would begin anew.
        wait.until(lambda: process.log.read_text().lower().count("script: renew") == time + 1, "it has heard")
    assert edge.addresses() == found
    # No renewal was turned down or had to be begun anew.
    said = server.log.read_text()
    assert said.count(" DHCPDISCOVER(") <= 2 and "DHCPNAK" not in said


def test_a_lease_is_taken_from_another_server(edge):
    """The one that gave it is silent: it is asked for by broadcast, and another one answers (rebinding)."""
    needs("dnsmasq", "dhclient")
    server = dnsmasq(edge)
    client = dhclient(edge, rebind=4)
    wait.until(lambda: edge.addresses(), "the WAN has an address", 15)
    edge.gateway.reaches(PROVIDER)
    stop(server)
    edge.provider.ip(f"addr del {PROVIDER}/24 dev wan", "addr add 203.0.113.9/24 dev wan")
    other = dnsmasq(edge, log="other")
    wait.until(lambda: acknowledged(other), "another server has renewed it", 20)
    wait.until(lambda: re.search("DHCPACK of .* from 203.0.113.9", client.log.read_text()), "it has heard", 10)


def test_nobody_else_reaches_the_port_of_the_client(edge):
    """What no client has asked for is dropped; and for asking, only a server's port may answer."""
    needs("dnsmasq", "udhcpc")
    edge.gateway.ip("addr add 203.0.113.77/24 dev wan")
    edge.gateway.reaches(PROVIDER)
    with edge.gateway.udp(port=68) as client, edge.provider.wire("wan") as cable:
        mac, own = edge.gateway.mac("wan"), edge.provider.mac("wan")

        def offered(sport, dport, to="203.0.113.77"):
            datagram = udp(PROVIDER, to, sport, dport, b"offer")
            cable.send(ethernet(mac, own, ipv4(PROVIDER, to, 17, datagram)))

        def dropped():
            return edge.office.counters()["dropped"]

        before = dropped()
        offered(67, 68)
        wait.until(lambda: dropped() > before, "an answer without a question is dropped")
        with edge.gateway.udp(port=68) as asking:
            asking.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            asking.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"wan")
            asking.sendto(b"request", ("255.255.255.255", 67))
            wait.until(lambda: b"request" in cable.recv(2000), "the question is on the cable")
            before = dropped()
            offered(66, 68)
            offered(67, 69)
            wait.until(lambda: dropped() >= before + 2, "nothing but an answer is let in")
            offered(67, 68)
            assert asking.recv(100) == b"offer"


# ---- IPv6

ADVERTISED = {
    "dnsmasq": ["--dhcp-range=2001:db8:ffff::,ra-only,64,600", "--enable-ra", "--ra-param=wan,4,600"],
    "radvd": """interface wan {
        AdvSendAdvert on; MinRtrAdvInterval 3; MaxRtrAdvInterval 4; AdvDefaultLifetime 600;
        prefix 2001:db8:ffff::/64 { AdvAutonomous on; AdvValidLifetime 600; AdvPreferredLifetime 600; };
    };
    """,
}


def advertise(edge, router):
    if router == "dnsmasq":
        return dnsmasq(edge, *ADVERTISED[router])
    conf = edge.logs / "radvd.conf"
    conf.write_text(ADVERTISED[router])
    conf.chmod(0o644)
    return edge.provider.start("radvd", "-n", "-C", conf, "-p", edge.logs / "radvd.pid", "-m", "stderr", "-u", "root")


def solicits(edge):
    """The gateway's own Linux takes part in router discovery on the WAN, although it is a router."""
    edge.gateway.sysctl({"net/ipv6/conf/wan/accept_ra": 2, "net/ipv6/conf/wan/router_solicitation_interval": 1})
    edge.gateway.ip("link set wan down", "link set wan up")


def default6(edge):
    return "default" in edge.gateway.run("ip", "-6", "route", "show", "default").stdout


@pytest.mark.parametrize("router", ADVERTISED)
def test_advertised_prefixes_and_routers_are_taken(edge, router):
    """By the gateway's own Linux, with `accept_ra=2`; what it sends goes by them."""
    needs(router)
    advertise(edge, router)
    solicits(edge)
    wait.until(lambda: edge.addresses(family=6), "the WAN has an address", 20)
    wait.until(lambda: default6(edge), "there is a default route", 10)
    edge.gateway.reaches(PROVIDER6)
    edge.gateway.reaches(REMOTE6)


def test_a_lease_of_dhcp6_is_got(edge):
    needs("dnsmasq", "dhclient")
    dnsmasq(edge, "--dhcp-range=2001:db8:ffff::100,2001:db8:ffff::1ff,64,120", "--enable-ra")
    solicits(edge)
    dhclient(edge, "-6", "-N")
    found = wait.until(lambda: edge.addresses(family=6), "the WAN has an address", 20)
    assert found[0].startswith("2001:db8:ffff::1")
    wait.until(lambda: default6(edge), "there is a default route", 10)
    edge.gateway.reaches(REMOTE6)


KEA = """{ "Dhcp6": {
    "interfaces-config": { "interfaces": [ "wan" ] },
    "lease-database": { "type": "memfile", "persist": false },
    "server-id": { "type": "LL", "identifier": "020000000001", "htype": 1, "persist": false },
    "renew-timer": 2, "rebind-timer": 40, "preferred-lifetime": 50, "valid-lifetime": 60,
    "subnet6": [ { "id": 1, "subnet": "2001:db8:ffff::/64", "interface": "wan",
        "pools": [ { "pool": "2001:db8:ffff::100-2001:db8:ffff::1ff" } ],
        "pd-pools": [ { "prefix": "2001:db8:c000::", "prefix-len": 40, "delegated-len": 56 } ] } ],
    "loggers": [ { "name": "kea-dhcp6", "severity": "INFO", "output_options": [ { "output": "stdout" } ] } ]
} }
"""


def test_a_prefix_is_delegated_and_renewed(edge):
    """An address and a prefix at a time, by DHCPv6."""
    needs("kea-dhcp6", "dhclient")
    conf = edge.logs / "kea.json"
    conf.write_text(KEA)
    places = ["KEA_PIDFILE_DIR", "KEA_LOCKFILE_DIR", "KEA_DHCP_DATA_DIR"]
    edge.provider.start("env", *[f"{place}={edge.logs}" for place in places], "kea-dhcp6", "-c", conf, log="kea")
    client = dhclient(edge, "-6", "-N", "-P", "-D", "LL")
    found = wait.until(
        lambda: re.search(r"script: BOUND6 .*(2001:db8:c0\S+/56)", client.log.read_text()),
        "a prefix is delegated",
        25,
    )
    wait.until(lambda: edge.addresses(family=6), "the WAN has an address", 10)
    wait.until(
        lambda: re.search(rf"script: RENEW6 .*{re.escape(found[1])}", client.log.read_text()),
        "the prefix is renewed",
        20,
    )
