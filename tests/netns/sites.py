"""Two gateways with a tunnel between them, and a host behind each.

    client 10.1.0.10 ── lan A wan ══ wan B lan ── client 10.2.0.10
    2001:db8:1::10      192.0.2.1    192.0.2.2    2001:db8:2::10
                        2001:db8:ff::1  ..::2

Each gateway has an address of its own in the tunnel, 10.9.0.1 and 10.9.0.2.
"""

import contextlib
import itertools
import os
import tempfile
from pathlib import Path

import gateway as gateways
from host import Host

KEYS = {
    1: "c0ffee000102030405060708090a0b0c0d0e0f10",
    2: "c0ffee202122232425262728292a2b2c2d2e2f30",
    3: "c0ffee404142434445464748494a4b4c4d4e4f50",
    4: "c0ffee606162636465666768696a6b6c6d6e6f70",
}
"""Keys of aes128-gcm by number: 1 and 2 are those of the policy, A to B and back."""

POLICY = """
[gateway]
driver = "{driver}"
workers = {workers}

[interface.lan]
zone = "lan"
addresses = ["10.{own}.0.1/16", "2001:db8:{own}::1/64"]

[interface.wan]
zone = "wan"
addresses = ["192.0.2.{own}/24", "2001:db8:ff::{own}/64"]

[interface.site]
zone = "vpn"
addresses = ["10.9.0.{own}/24"]
mss = "mtu"

[interface.site.esp]
local = "{prefix}{own}"
remote = "{prefix}{other}"

[[interface.site.esp.sa]]
direction = "out"
spi = {out}
algorithm = "aes128-gcm"
key-file = "keys/{out_key}"

[[interface.site.esp.sa]]
direction = "in"
spi = {in_}
algorithm = "aes128-gcm"
key-file = "keys/{in_key}"

[[route]]
to = "10.{other}.0.0/16"
interface = "site"

[[route]]
to = "2001:db8:{other}::/64"
interface = "site"

[default]
"lan > vpn" = "accept"
"vpn > lan" = "accept"
"vpn > self" = "accept"
"lan > self" = "accept"
{more}
"""

_runs = itertools.count(1)


class Site:
    """One end: the gateway, its files, and the host behind it."""

    mtu = 1500
    guests = "lan"

    def __init__(self, number, prefix):
        self.number = number
        self.logs = Path(tempfile.mkdtemp(prefix=f"site{number}-"))
        self.gateway = Host(f"{prefix}-gateway{number}", self.logs)
        self.client = Host(f"{prefix}-client{number}", self.logs)
        self.gateway.sysctl({"net/ipv6/conf/all/forwarding": 0, "net/ipv4/ip_forward": 0})
        keys = self.logs / "keys"
        keys.mkdir(mode=0o700)
        for name, key in KEYS.items():
            file = keys / str(name)
            file.touch(mode=0o600)
            file.write_text(key + "\n")


def cable(here, interface, there, far, mtu):
    queues = "numrxqueues 2 numtxqueues 2"
    here.ip(
        f"link add {interface} mtu {mtu} {queues} type veth peer name {far} mtu {mtu} {queues} netns {there.namespace}",
        f"link set {interface} up",
    )
    there.ip(f"link set {far} up")


class Sites:
    """Both ends and their cables; `close` takes them down."""

    def __init__(self, mtu=1500, wan_mtu=1500):
        prefix = f"ws{os.getpid()}-{next(_runs)}"
        self.ends = [Site(number, prefix) for number in (1, 2)]
        one, two = self.ends
        cable(one.gateway, "wan", two.gateway, "wan", wan_mtu)
        for end in self.ends:
            own = end.number
            cable(end.gateway, "lan", end.client, "eth0", mtu)
            end.client.ip(
                f"addr add 10.{own}.0.10/16 dev eth0",
                f"addr add 2001:db8:{own}::10/64 dev eth0 nodad",
                f"route add default via 10.{own}.0.1",
                f"route add default via 2001:db8:{own}::1",
            )

    def gateways(self, driver, workers=1, outer="v4", more=""):
        """`wirerate run` at both ends, not started."""
        return [gateway_of(end, driver, workers, outer, more) for end in self.ends]

    @contextlib.contextmanager
    def run(self, gateways, works):
        """Runs these gateways, once it `works(self)`; says what they said if something fails, and takes all down at the end."""
        self.running = gateways
        try:
            for gateway in gateways:
                gateway.start()
            works(self)
            yield self
        except Exception:
            print("\n".join(gateway.evidence() for gateway in gateways))
            raise
        finally:
            for gateway in gateways:
                gateway.stop()
            self.close()

    def close(self):
        for end in self.ends:
            end.client.close()
            end.gateway.close()


def gateway_of(end, driver, workers, outer, more):
    own, other = end.number, 3 - end.number
    about = {
        "driver": driver,
        "workers": workers,
        "own": own,
        "other": other,
        "prefix": {"v4": "192.0.2.", "v6": "2001:db8:ff::"}[outer],
        "out": 0x1000 + own,
        "in_": 0x1000 + other,
        "out_key": own,
        "in_key": other,
    }

    class Gateway(gateways.Wirerate):
        name = f"wirerate-{driver}"

        def write(self, *_, more=more):
            self.policy.write_text(POLICY.format(more=more, **about))

        def apply_more(self, more):
            self.write(more=more)
            self.ask("apply", self.policy)

    Gateway.driver = driver
    Gateway.about = about
    return Gateway(end)


def gateway_with(net, policy):
    """`wirerate run` with this policy, not started."""

    class Gateway(gateways.Wirerate):
        name, driver, text = "wirerate", "packet", policy

        def write(self, *_):
            self.policy.write_text(self.text)

        def put(self, text):
            self.text = text
            self.write()
            self.ask("apply", self.policy)

    return Gateway(net)
