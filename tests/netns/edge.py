"""A gateway between one inside host and a provider from whom it gets its addresses.

    client 192.168.1.10 ── lan GATEWAY wan ── provider 203.0.113.1/24, 2001:db8:ffff::1/64, and 198.51.100.7 behind it

The policy has no address for the WAN. What gives addresses is started by the test, in the provider's namespace.
"""

import itertools
import os
import re
import tempfile
from pathlib import Path

import gateway as gateways
from host import Host

CLIENT, GATEWAY = "192.168.1.10", "192.168.1.1"
CLIENT6, GATEWAY6 = "fd00:1::10", "fd00:1::1"
PROVIDER, PROVIDER6 = "203.0.113.1", "2001:db8:ffff::1"
REMOTE, REMOTE6 = "198.51.100.7", "2001:db8:aaaa::7"

POLICY = """
[gateway]
driver = "{driver}"
workers = {workers}
{daemon}

[interface.lan]
zone = "lan"
addresses = ["192.168.1.1/24", "fd00:1::1/64"]

[interface.wan]
zone = "wan"

[default]
"lan > wan" = "accept"
"lan > self" = "accept"
{more}
"""

_runs = itertools.count(1)


class Edge:
    """The hosts and their cables; `close` takes them down."""

    mtu = 1500
    guests = "lan"

    def __init__(self):
        self.logs = Path(tempfile.mkdtemp(prefix="edge-"))
        prefix = f"we{os.getpid()}-{next(_runs)}"
        self.hosts = []
        for name in ["gateway", "provider", "client"]:
            host = Host(f"{prefix}-{name}", self.logs)
            self.hosts.append(host)
            setattr(self, name, host)
        # What is behind the gateway's WAN is learnt from the provider.
        self.gateway.sysctl(
            {
                "net/ipv6/conf/all/forwarding": 0,
                "net/ipv4/ip_forward": 0,
                "net/ipv6/conf/default/accept_dad": 1,
                "net/ipv6/conf/default/router_solicitations": 3,
            }
        )
        self.provider.sysctl({"net/ipv4/ip_forward": 1, "net/ipv6/conf/all/forwarding": 1})
        for here, interface, there, far in [
            (self.gateway, "wan", self.provider, "wan"),
            (self.gateway, "lan", self.client, "eth0"),
        ]:
            queues = "numrxqueues 2 numtxqueues 2"
            here.ip(
                f"link add {interface} {queues} type veth peer name {far} {queues} netns {there.namespace}",
                f"link set {interface} up",
            )
            there.ip(f"link set {far} up")
        self.provider.ip(
            f"addr add {PROVIDER}/24 dev wan",
            f"addr add {PROVIDER6}/64 dev wan",
            "link add behind type veth peer name unused",
            "link set behind up",
            f"addr add {REMOTE}/32 dev behind",
            f"addr add {REMOTE6}/128 dev behind",
        )
        self.client.ip(
            f"addr add {CLIENT}/24 dev eth0",
            f"addr add {CLIENT6}/64 dev eth0",
            f"route add default via {GATEWAY}",
            f"route add default via {GATEWAY6}",
        )

    def addresses(self, interface="wan", family=4):
        """The gateway's addresses of global scope on an interface."""
        words = ["ip", "-o", f"-{family}", "addr", "show", "dev", interface, "scope", "global"]
        return re.findall(r"inet6? (\S+)", self.gateway.run(*words).stdout)

    def close(self):
        for host in reversed(self.hosts):
            host.close()


def gateway_of(edge, driver, workers=1, more="", daemon=""):
    """`wirerate run` with the policy above, not started; `more` follows its defaults, `daemon` its settings of the daemon."""

    class Office(gateways.Wirerate):
        name = f"wirerate-{driver}"

        def write(self, *_, more=more):
            self.policy.write_text(POLICY.format(driver=driver, workers=workers, more=more, daemon=daemon))

        def apply_more(self, more):
            self.write(more=more)
            self.ask("apply", self.policy)

    Office.driver = driver
    return Office(edge)
