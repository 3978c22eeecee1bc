"""A branch whose only WAN has IPv6 alone, its provider, and an IPv4 server behind the provider's NAT64.

    client 192.168.1.10 ── lan GATEWAY wan ── core ── PLAT ── server 198.51.100.7
    2001:db8:1::10                2001:db8:ff::2  ::1  2001:db8:fe::2  .1

The core routes IPv6 alone. Its link to the PLAT takes 1400 bytes, which nobody knows before. The PLAT is another program (Tayga, with netfilter for
the ports), or wirerate.
"""

import itertools
import os
import tempfile
from pathlib import Path
from types import SimpleNamespace

import gateway as gateways
import wait
from host import Host

CLIENT, GATEWAY, CLIENT6 = "192.168.1.10", "192.168.1.1", "2001:db8:1::10"
OUTSIDE6, CORE6 = "2001:db8:ff::2", "2001:db8:ff::1"
SERVER, PLAT = "198.51.100.7", "198.51.100.1"
PREFIX = "2001:db8:64::"

POLICY = """
[gateway]
driver = "{driver}"

[interface.lan]
zone = "lan"
addresses = ["192.168.1.1/24", "2001:db8:1::1/64"]

[interface.wan]
zone = "wan"
addresses = ["2001:db8:ff::2/64"]

[[route]]
to = "::/0"
via = "2001:db8:ff::1"

[[nat]]
name = "ipv4"
kind = "clat"
from = "lan"
prefix = "{prefix}/96"

[default]
"lan > wan" = "accept"
"lan > self" = "accept"

[limit]
errors-per-second = 1000000
errors-in-all = 1000000
"""

PLAT_POLICY = """
[gateway]
driver = "packet"

[interface.core]
zone = "inside"
addresses = ["2001:db8:fe::2/64"]
mtu = 1400

[interface.net]
zone = "net"
addresses = ["198.51.100.1/24"]

[[route]]
to = "2001:db8:ff::/64"
via = "2001:db8:fe::1"

[[nat]]
name = "plat"
kind = "nat64"
from = "inside"
prefix = "2001:db8:64::/96"

[default]
"inside > net" = "accept"

[limit]
errors-per-second = 1000000
errors-in-all = 1000000
"""

_runs = itertools.count(1)


class Branch:
    """The hosts and their cables; `close` takes them down."""

    mtu = 1500
    guests = "lan"

    def __init__(self):
        self.logs = Path(tempfile.mkdtemp(prefix="branch-"))
        prefix = f"wb{os.getpid()}-{next(_runs)}"
        self.hosts = []
        for name in ["gateway", "client", "core", "plat", "server"]:
            host = Host(f"{prefix}-{name}", self.logs)
            self.hosts.append(host)
            setattr(self, name, host)
        for host in [self.gateway, self.plat]:
            host.sysctl({"net/ipv6/conf/all/forwarding": 0, "net/ipv4/ip_forward": 0})
        # A router of IPv6 alone.
        self.core.sysctl({"net/ipv6/conf/all/forwarding": 1, "net/ipv4/ip_forward": 0})
        for here, interface, there, far, mtu in [
            (self.gateway, "lan", self.client, "eth0", 1500),
            (self.gateway, "wan", self.core, "wan", 1500),
            (self.core, "plat", self.plat, "core", 1400),
            (self.plat, "net", self.server, "eth0", 1500),
        ]:
            both = f"mtu {mtu} numrxqueues 2 numtxqueues 2"
            here.ip(
                f"link add {interface} {both} type veth peer name {far} {both} netns {there.namespace}",
                f"link set {interface} up",
            )
            there.ip(f"link set {far} up")
        self.client.ip(
            f"addr add {CLIENT}/24 dev eth0",
            f"addr add {CLIENT6}/64 dev eth0",
            f"route add default via {GATEWAY}",
            "route add default via 2001:db8:1::1",
        )
        self.core.ip(
            f"addr add {CORE6}/64 dev wan",
            "addr add 2001:db8:fe::1/64 dev plat",
            f"route add 2001:db8:1::/64 via {OUTSIDE6}",
            f"route add {PREFIX}/96 via 2001:db8:fe::2",
        )
        self.server.ip(f"addr add {SERVER}/24 dev eth0", f"route add default via {PLAT}")

    def close(self):
        for host in reversed(self.hosts):
            host.close()


def office_of(branch, driver):
    """`wirerate run` with the policy above, not started."""

    class Office(gateways.Wirerate):
        name = f"wirerate-{driver}"

        def write(self, *_, prefix=PREFIX):
            self.policy.write_text(POLICY.format(driver=driver, prefix=prefix))

        def apply_prefix(self, prefix=PREFIX):
            self.write(prefix=prefix)
            self.ask("apply", self.policy)

    Office.driver = driver
    return Office(branch)


def plat_of(branch, kind):
    """The PLAT, which works; returns what has to be stopped."""
    host = branch.plat
    if kind == "wirerate":
        logs = branch.logs / "plat"
        logs.mkdir()

        class Plat(gateways.Wirerate):
            def write(self, *_):
                self.policy.write_text(PLAT_POLICY)

        plat = Plat(SimpleNamespace(gateway=host, logs=logs, mtu=1500, guests="lan"))
        plat.start()
        return plat
    config = branch.logs / "plat.conf"
    config.write_text(
        f"""
        tun-device nat64
        ipv4-addr 192.168.255.1
        ipv6-addr 2001:db8:fe::64
        prefix {PREFIX}/96
        dynamic-pool 192.168.255.0/24
        data-dir {branch.logs}
        """
    )
    host.sysctl({"net/ipv6/conf/all/forwarding": 1, "net/ipv4/ip_forward": 1})
    host.run("tayga", "--config", config, "--mktun")
    host.ip(
        "addr add 2001:db8:fe::2/64 dev core",
        "addr add 198.51.100.1/24 dev net",
        "link set nat64 up",
        "route add 2001:db8:ff::/64 via 2001:db8:fe::1",
        f"route add {PREFIX}/96 dev nat64",
        "route add 192.168.255.0/24 dev nat64",
    )
    host.run("iptables", "-t", "nat", "-A", "POSTROUTING", "-s", "192.168.255.0/24", "-o", "net", "-j", "MASQUERADE")
    tayga = host.start("tayga", "--config", config, "--nodetach", log="plat-tayga")
    wait.until(lambda: host.ping("192.168.255.1"), "tayga answers")
    return SimpleNamespace(process=tayga, stop=lambda: None)
