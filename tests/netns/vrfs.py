"""A gateway between two customers with one and the same network, and a provider whom both reach.

    red  192.168.1.10 ── red0  192.168.1.1 GATEWAY wan 203.0.113.2 ── provider 203.0.113.1, and 198.51.100.7 behind it
    blue 192.168.1.10 ── blue0 192.168.1.1 GATEWAY
         192.168.1.20

Red has a router at 192.168.1.254 with 10.1.0.9 behind it. With `devices`, Linux has the VRF devices red and blue, too.
"""

import itertools
import os
import tempfile
from pathlib import Path

import gateway as gateways
from host import Host, stop

CUSTOMER, OTHER, GATEWAY = "192.168.1.10", "192.168.1.20", "192.168.1.1"
CUSTOMER6, OTHER6, GATEWAY6 = "2001:db8:1::10", "2001:db8:1::20", "2001:db8:1::1"
OUTSIDE, PROVIDER, REMOTE = "203.0.113.2", "203.0.113.1", "198.51.100.7"
BEHIND = "10.1.0.9"

CUSTOMERS = {"red": 10, "blue": 20}
"""The customers, each with the routing table that Linux has for it."""

POLICY = """
[gateway]
driver = "{driver}"
fast-path = "{fast_path}"
workers = 2

[interface.red0]
zone = "red"
vrf = "red"
addresses = ["192.168.1.1/24", "2001:db8:1::1/64"]

[interface.blue0]
zone = "blue"
vrf = "blue"
addresses = ["192.168.1.1/24", "2001:db8:1::1/64"]

[interface.wan]
zone = "wan"
addresses = ["203.0.113.2/24"]

[default]
"any > any" = "accept"

[[route]]
to = "0.0.0.0/0"
via = "203.0.113.1"

[[route]]
to = "0.0.0.0/0"
vrf = "red"
next-vrf = "default"
via = "203.0.113.1"

[[route]]
to = "0.0.0.0/0"
vrf = "blue"
next-vrf = "default"
via = "203.0.113.1"

[[route]]
to = "10.1.0.0/16"
vrf = "red"
via = "192.168.1.254"

[[nat]]
name = "customers"
kind = "masquerade"
from = ["red", "blue"]
to = "wan"

[[nat]]
name = "web"
kind = "forward"
from = "wan"
protocol = "tcp"
port = 8080
target = "192.168.1.10:80"
vrf = "blue"

[limit]
errors-per-second = 1000000
errors-in-all = 1000000
{more}
"""

NFTABLES = """
table ip vrf {
    chain zones {
        type filter hook prerouting priority raw;
        iifname "red0" ct original zone set 1
        iifname "blue0" ct original zone set 2
    }
    chain marks {
        type filter hook prerouting priority mangle;
        iifname "red0" ct mark set 10
        iifname "blue0" ct mark set 20
        iifname "wan" meta mark set ct mark
        iifname "wan" tcp dport 8080 ct state new meta mark set 20
    }
    chain forwards {
        type nat hook prerouting priority dstnat;
        iifname "wan" tcp dport 8080 ct mark set 20 dnat to 192.168.1.10:80
    }
    chain sources {
        type nat hook postrouting priority srcnat;
        iifname { "red0", "blue0" } oifname "wan" masquerade
    }
}
"""

_runs = itertools.count(1)


class Vrfs:
    """The hosts and their cables; `close` takes them down."""

    mtu = 1500
    guests = "lan"

    def __init__(self, devices=False):
        self.logs = Path(tempfile.mkdtemp(prefix="vrfs-"))
        prefix = f"wv{os.getpid()}-{next(_runs)}"
        self.hosts = []
        for name in ["gateway", "red", "blue", "provider"]:
            host = Host(f"{prefix}-{name}", self.logs)
            self.hosts.append(host)
            setattr(self, name, host)
        self.customers = {name: getattr(self, name) for name in CUSTOMERS}
        queues = "numrxqueues 2 numtxqueues 2"
        for name, table in CUSTOMERS.items():
            customer = self.customers[name]
            if devices:
                self.gateway.ip(f"link add {name} type vrf table {table}", f"link set {name} up")
            self.gateway.ip(
                f"link add {name}0 {queues} type veth peer name eth0 {queues} netns {customer.namespace}",
                *([f"link set {name}0 master {name}"] if devices else []),
                f"link set {name}0 up",
            )
            customer.ip(
                "link set eth0 up",
                f"addr add {CUSTOMER}/24 dev eth0",
                f"addr add {CUSTOMER6}/64 dev eth0",
                f"route add default via {GATEWAY}",
            )
        self.blue.ip(f"addr add {OTHER}/24 dev eth0", f"addr add {OTHER6}/64 dev eth0")
        self.red.ip("addr add 192.168.1.254/24 dev eth0", f"addr add {BEHIND}/32 dev lo")
        self.gateway.ip(
            f"link add wan {queues} type veth peer name wan {queues} netns {self.provider.namespace}", "link set wan up"
        )
        self.provider.ip("link set wan up", f"addr add {PROVIDER}/24 dev wan", f"addr add {REMOTE}/32 dev lo")

    def close(self):
        for host in reversed(self.hosts):
            host.close()


class Linux:
    """Linux forwards by a table for each customer, and keeps their connections apart by conntrack zones: the reference."""

    name = "nftables"

    def __init__(self, net):
        self.host = net.gateway

    def start(self):
        self.host.sysctl({"net/ipv4/ip_forward": 1})
        self.host.ip("addr add 203.0.113.2/24 dev wan", f"route add default via {PROVIDER}")
        for name, table in CUSTOMERS.items():
            self.host.ip(
                f"addr add {GATEWAY}/24 dev {name}0 noprefixroute",
                f"route add 192.168.1.0/24 dev {name}0 table {table}",
                f"route add default via {PROVIDER} dev wan table {table}",
                f"rule add iif {name}0 lookup {table} priority {table}",
                f"rule add iif wan fwmark {table} lookup {table} priority {100 + table}",
            )
        self.host.ip("route add 10.1.0.0/16 via 192.168.1.254 dev red0 table 10")
        self.host.run("nft", "-f", "-", input=NFTABLES)

    def alive(self):
        return True

    def evidence(self):
        return gateways.said(self.host, "nft list ruleset") + gateways.said(self.host, "ip rule")

    def stop(self):
        pass


def office_of(net, kind):
    """`wirerate run` as that gateway, not started. `apply_more` puts further text into the policy."""

    class Office(kind):
        more = ""

        def launch(self, *variants):
            if self.fast_path == "xdp":
                # A veth takes frames from XDP while its peer has GRO.
                for host, interface in [(net.red, "eth0"), (net.blue, "eth0"), (net.provider, "wan")]:
                    host.run("ethtool", "-K", interface, "gro", "on")
            gateways.Wirerate.launch(self, *variants)

        def write(self, *_):
            text = POLICY.format(driver=self.driver, fast_path=self.fast_path, more=self.more)
            self.policy.write_text(text)

        def apply_more(self, more):
            self.more = more
            self.write()
            self.ask("apply", self.policy)

    return Office(net)


KINDS = {"nftables": Linux} | {name: kind for name, kind in gateways.MAKERS.items() if name != "nftables"}

__all__ = ["KINDS", "Linux", "Vrfs", "office_of", "stop"]
