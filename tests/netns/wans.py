"""A gateway between two inside hosts and three providers, each of whom has the whole Internet behind him.

    client 192.168.1.10, phone 192.168.1.70 ── lan GATEWAY ── fib0 ── fibre 203.0.113.1
                                                           ── cab0 ── cable 198.51.100.1
                                                           ── lte0 ── lte   192.0.2.1

REMOTE is each provider's own: who answers says by which WAN a connection went.
"""

import itertools
import json
import os
import select
import tempfile
from contextlib import contextmanager
from pathlib import Path

import gateway as gateways
import wait
from host import Host

CLIENT, PHONE, GATEWAY = "192.168.1.10", "192.168.1.70", "192.168.1.1"
REMOTE, REMOTE6 = "100.64.0.7", "2001:db8:aaaa::7"
INTERFACES = {"fibre": "fib0", "cable": "cab0", "lte": "lte0"}
NETS = {"fibre": "203.0.113", "cable": "198.51.100", "lte": "192.0.2"}
NETS6 = {"fibre": "2001:db8:f", "cable": "2001:db8:c", "lte": "2001:db8:e"}

POLICY = """
[gateway]
driver = "{driver}"
fast-path = "{fast_path}"

[interface.lan]
zone = "lan"
addresses = ["192.168.1.1/24", "2001:db8:1::1/64"]

[interface.fib0]
zone = "wan"
addresses = ["203.0.113.2/24", "2001:db8:f::2/64"]

[interface.cab0]
zone = "wan"
addresses = ["198.51.100.2/24", "2001:db8:c::2/64"]

[interface.lte0]
zone = "wan"
addresses = ["192.0.2.2/24", "2001:db8:e::2/64"]

[default]
"lan > wan" = "accept"
"lan > self" = "accept"

[[rule]]
name = "web"
from = "wan"
to = "lan"
destination = "192.168.1.10"
protocol = "tcp"
dport = 80
action = "accept"

[[rule]]
name = "self-test"
from = "wan"
to = "self"
protocol = "tcp"
dport = 8022
action = "accept"

[[nat]]
name = "office"
kind = "masquerade"
from = "lan"
to = "wan"
source = ["192.168.1.0/24", "2001:db8:1::/64"]

[[nat]]
name = "web"
kind = "forward"
from = "wan"
protocol = "tcp"
port = 80
target = "192.168.1.10"

[limit]
errors-per-second = 1000000
errors-in-all = 1000000
"""

WAN = """
[wan.{name}]
interface = "{interface}"
gateway = ["{net}.1", "{net6}::1"]
{keys}
"""

_runs = itertools.count(1)


class Wans:
    """The hosts and their cables; `close` takes them down."""

    mtu = 1500
    guests = "lan"

    def __init__(self):
        self.logs = Path(tempfile.mkdtemp(prefix="wans-"))
        prefix = f"ww{os.getpid()}-{next(_runs)}"
        self.hosts = []
        for name in ["gateway", "client", "phone", *INTERFACES]:
            host = Host(f"{prefix}-{name}", self.logs)
            self.hosts.append(host)
            setattr(self, name, host)
        self.providers = {name: getattr(self, name) for name in INTERFACES}
        # The inside is a bridge in the client's namespace, as it were: one cable for both hosts.
        self.gateway.ip(
            f"link add lan type veth peer name port netns {self.client.namespace}", "link set lan up"
        )
        self.client.ip(
            "link add inside type bridge",
            "link set inside up",
            "link set port up master inside",
            f"addr add {CLIENT}/24 dev inside",
            "addr add 2001:db8:1::10/64 dev inside",
            f"link add tophone type veth peer name eth0 netns {self.phone.namespace}",
            "link set tophone up master inside",
            f"route add default via {GATEWAY}",
            "route add default via 2001:db8:1::1",
        )
        self.phone.ip("link set eth0 up", f"addr add {PHONE}/24 dev eth0", f"route add default via {GATEWAY}")
        for name, provider in self.providers.items():
            self.gateway.ip(
                f"link add {INTERFACES[name]} type veth peer name eth0 netns {provider.namespace}",
                f"link set {INTERFACES[name]} up",
            )
            provider.ip(
                "link set eth0 up",
                f"addr add {NETS[name]}.1/24 dev eth0",
                f"addr add {NETS6[name]}::1/64 dev eth0",
                f"addr add {REMOTE}/32 dev lo",
                f"addr add {REMOTE6}/128 dev lo",
            )

    def close(self):
        for host in reversed(self.hosts):
            host.close()

    # ---- What tests do

    @contextmanager
    def servers(self, port=80, v6=False):
        """A TCP server on each provider's REMOTE: `accept` of it says who was called, and gives the connection."""
        made = {name: host.listen(port, v6=v6) for name, host in self.providers.items()}
        try:
            yield Servers(made)
        finally:
            for one in made.values():
                one.close()

    @contextmanager
    def silent(self, name):
        """A provider answers no echo request, and all else; the carrier stays."""
        provider = self.providers[name]
        provider.sysctl({"net/ipv4/icmp_echo_ignore_all": 1, "net/ipv6/icmp/echo_ignore_all": 1})
        try:
            yield
        finally:
            provider.sysctl({"net/ipv4/icmp_echo_ignore_all": 0, "net/ipv6/icmp/echo_ignore_all": 0})

    @contextmanager
    def unplugged(self, name):
        """The cable of a provider is out."""
        self.providers[name].ip("link set eth0 down")
        try:
            yield
        finally:
            self.providers[name].ip("link set eth0 up")
            self.providers[name].run("ip", "addr", "replace", f"{NETS6[name]}::1/64", "dev", "eth0")

    def standing(self, name):
        """What the gateway says of a WAN."""
        wans = self.office.counters()["wans"]
        return next(wan["standing"] for wan in wans if wan["name"] == name)

    def becomes(self, name, standing, deadline=10.0):
        wait.until(lambda: self.standing(name) == standing, f"{name} is {standing}", deadline)


class Servers:
    """Listening sockets, by the name of their provider."""

    def __init__(self, sockets):
        self._sockets = sockets

    def accept(self):
        """The provider who was called, the connection, and by which address the caller is known there."""
        ready, _, _ = select.select(list(self._sockets.values()), [], [], 5)
        assert len(ready) == 1, f"{len(ready)} providers were called"
        name = next(name for name, socket in self._sockets.items() if socket is ready[0])
        connection, (address, *_) = ready[0].accept()
        connection.settimeout(5)
        return name, connection, address


def wan(name, keys=""):
    """The table of a WAN."""
    return WAN.format(
        name=name, interface=INTERFACES[name], net=NETS[name], net6=NETS6[name], keys=keys
    )


def office_of(wans, kind):
    """`wirerate run` as that gateway, not started. `apply_wans` puts WANs and policy routes in force."""

    class Office(kind):
        more = ""

        def launch(self, *variants):
            if self.fast_path == "xdp":
                # A veth takes frames from XDP while its peer has GRO.
                wans.client.run("ethtool", "-K", "port", "gro", "on")
                for provider in wans.providers.values():
                    provider.run("ethtool", "-K", "eth0", "gro", "on")
            gateways.Wirerate.launch(self, *variants)

        def write(self, *_):
            text = POLICY.format(driver=self.driver, fast_path=self.fast_path)
            self.policy.write_text(text + self.more)

        def apply_wans(self, *tables):
            self.more = "".join(tables)
            self.write()
            self.ask("apply", self.policy)

        def wans(self):
            return json.loads(self.ask("status", "--json").stdout)["wans"]

    return Office(wans)


KINDS = {name: gateways.MAKERS[name] for name in gateways.MAKERS if name != "nftables"}
