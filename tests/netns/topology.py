"""The office, the street and the world: the hosts around a gateway.

      client .10 ──┐ lan                       wan ┌── router  .1 ──┐ 198.51.100.0/24
      server .20 ──┤ 192.168.1.0/24 203.0.113.0/24 │                ├── remote   .7 (an administrator's)
                   ├── .1 GATEWAY .2 ──────────────┤                ├── stranger .66
       guest .10 ──┘                               └── router2 .3 ──┘
    VLAN 20 of the same cable,                           router ──── far 192.0.2.7, by a link of 1280 bytes
    192.168.20.0/24                                     router2 owns 100.64.7.1, which nobody knows

    IPv6: 2001:db8:1::/64 lan, 2001:db8:20::/64 guest, 2001:db8:ffff::/64 wan, 2001:db8:aaaa::/64 remote and stranger,
    2001:db8:fa::/64 far; hosts have the same last number, in hexadecimal digits that look like it (::10, ::7).

Each host is a namespace. The cables are Ethernet: three bridges in one more namespace, `switch`, whose ports have the
names of the hosts at their other ends. The routers have no route to the office's private addresses, so what leaves the
gateway untranslated is lost, and the test fails.
"""

import itertools
import os
import tempfile
import time
from pathlib import Path

import wait
from host import Host
from packet import write_capture

GATEWAY, GATEWAY6 = "192.168.1.1", "2001:db8:1::1"
CLIENT, CLIENT6 = "192.168.1.10", "2001:db8:1::10"
SERVER, SERVER6 = "192.168.1.20", "2001:db8:1::20"
GUEST_GATEWAY, GUEST_GATEWAY6 = "192.168.20.1", "2001:db8:20::1"
GUEST, GUEST6 = "192.168.20.10", "2001:db8:20::10"
OUTSIDE, OUTSIDE6 = "203.0.113.2", "2001:db8:ffff::2"
ROUTER, ROUTER6 = "203.0.113.1", "2001:db8:ffff::1"
ROUTER2, ROUTER2_6 = "203.0.113.3", "2001:db8:ffff::3"
REMOTE, REMOTE6 = "198.51.100.7", "2001:db8:aaaa::7"
STRANGER, STRANGER6 = "198.51.100.66", "2001:db8:aaaa::66"
FAR, FAR6 = "192.0.2.7", "2001:db8:fa::7"
HIDDEN = "100.64.7.1"

CARDS = {"lan": "02:00:5e:10:00:01", "wan": "02:00:5e:10:00:02", "trunk": "02:00:5e:10:00:14"}
"""The link-layer addresses of the gateway's own interfaces."""

_runs = itertools.count(1)


class Topology:
    """Builds everything but what the gateway does; `close` takes it down.

    `mtu` is of every Ethernet there but far's. `guests` is the gateway's interface that the guests' VLAN is on: `lan`,
    or `trunk`, a cable of their own.
    """

    def __init__(self, mtu=1500, guests="lan", logs=None):
        self.mtu = mtu
        self.guests = guests
        self.logs = Path(logs or tempfile.mkdtemp(prefix="netns-"))
        self.logs.mkdir(parents=True, exist_ok=True)
        # Unique even among runs that are not kept apart from each other.
        self._prefix = f"wr{os.getpid()}-{next(_runs)}"
        self.hosts = []
        self._evidence = {}
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    def _host(self, name):
        host = Host(f"{self._prefix}-{name}", self.logs)
        self.hosts.append(host)
        return host

    def _build(self):
        names = ["gateway", "client", "server", "guest", "router", "router2", "remote", "stranger", "far"]
        for name in ["switch", *names]:
            setattr(self, name, self._host(name))
        for host in self.hosts:
            host.gather()
        self._office()
        self._street()
        # Cables first.
        for host in sorted(self.hosts, key=lambda host: host not in (self.switch, self.router)):
            host.settle()
        self._trunk()

    def _office(self):
        """The switch, and who is in the office."""
        self.switch.sysctl(
            {
                "net/ipv6/conf/all/disable_ipv6": 1,
                "net/ipv6/conf/default/disable_ipv6": 1,
                # A switch looks at no packets.
                "net/bridge/bridge-nf-call-iptables": 0,
                "net/bridge/bridge-nf-call-ip6tables": 0,
                "net/bridge/bridge-nf-call-arptables": 0,
            }
        )
        for bridge in ["lan", "wan", "net", "trunk"]:
            self.switch.ip(
                f"""
                link add {bridge} type bridge stp_state 0 forward_delay 0 mcast_snooping 0
                link set {bridge} mtu {self.mtu} up
                """
            )
        self._leaf(self.client, "lan", [f"{CLIENT}/24", f"{CLIENT6}/64"], GATEWAY, GATEWAY6)
        self._leaf(self.server, "lan", [f"{SERVER}/24", f"{SERVER6}/64"], GATEWAY, GATEWAY6)
        self._cable(self.guest, "trunk", self.guests, "guest")
        self.guest.ip("link set trunk up")
        self.gateway.sysctl({"net/ipv6/conf/all/forwarding": 0, "net/ipv4/ip_forward": 0})

    def _street(self):
        """Routers, and who is behind them."""
        self._leaf(self.remote, "net", [f"{REMOTE}/24", f"{REMOTE6}/64"], "198.51.100.1", "2001:db8:aaaa::1")
        self._leaf(
            self.stranger, "net", [f"{STRANGER}/24", f"{STRANGER6}/64"], "198.51.100.1", "2001:db8:aaaa::1"
        )
        self._router(self.router, 1)
        self._router(self.router2, 3)
        self.router2.ip(f"addr add {HIDDEN}/32 dev lo")

        self.router.ip(f"link add far type veth peer name eth0 netns {self.far.namespace}")
        self._addresses(self.router, "far", ["192.0.2.1/24", "2001:db8:fa::1/64"], mtu=1280)
        self._addresses(
            self.far, "eth0", [f"{FAR}/24", f"{FAR6}/64"], "192.0.2.1", "2001:db8:fa::1", mtu=1280
        )
        # It announces segments as if it knew nothing of its narrow link, so that others have to find out.
        self.far.ip(
            "route change default via 192.0.2.1 advmss 1460",
            "route change default via 2001:db8:fa::1 advmss 1440",
        )

    def _trunk(self):
        """What must be there before it can be worked on: the gateway's cables, the guests' VLAN."""
        for interface in sorted({"lan", "wan", self.guests}):
            self.plug_gateway(interface)
        self.vlan(self.guest, "trunk", "eth0", 20)
        self._addresses(self.guest, "eth0", [f"{GUEST}/24", f"{GUEST6}/64"], GUEST_GATEWAY, GUEST_GATEWAY6)

    def _cable(self, host, interface, bridge, port, queues=1):
        both = f"mtu {self.mtu} numrxqueues {queues} numtxqueues {queues}"
        self.switch.ip(
            f"link add {port} {both} type veth peer name {interface} {both} netns {host.namespace}",
            f"link set {port} master {bridge} up",
        )

    def _addresses(self, host, interface, addresses, router=None, router6=None, mtu=None):
        host.ip(
            f"link set {interface} mtu {mtu or self.mtu} up",
            *[f"addr add {address} dev {interface}" for address in addresses],
            *([f"route add default via {router}", f"route add default via {router6}"] if router else []),
        )

    def _leaf(self, host, bridge, addresses, router, router6):
        self._cable(host, "eth0", bridge, host.name)
        self._addresses(host, "eth0", addresses, router, router6)

    def _router(self, host, number):
        host.sysctl({"net/ipv4/ip_forward": 1, "net/ipv6/conf/all/forwarding": 1})
        self._cable(host, "wan", "wan", host.name)
        self._addresses(host, "wan", [f"203.0.113.{number}/24", f"2001:db8:ffff::{number}/64"])
        self._cable(host, "net", "net", f"{host.name}-net")
        self._addresses(host, "net", [f"198.51.100.{number}/24", f"2001:db8:aaaa::{number}/64"])
        for inside in ["2001:db8:1::/64", "2001:db8:20::/64"]:
            host.ip(f"route add {inside} via {OUTSIDE6}")
        # Where floods with made-up sources have their answers sent.
        host.ip("route add blackhole 198.18.0.0/15")

    def plug_gateway(self, interface):
        """A cable from an interface of the gateway's into the switch, up, without addresses; the same card each time."""
        port = f"gw-{interface}"
        # A queue for each worker that a test may want.
        self._cable(self.gateway, interface, interface, port, queues=2)
        # On a cable, tags are in the bytes.
        self.switch.run("ethtool", "-K", port, "txvlan", "off", check=False)
        self.gateway.ip(f"link set {interface} address {CARDS[interface]} up")
        if interface in self._evidence:
            self.watch()
        # Neighbours that died are found out within seconds, not a minute.
        for family in ["ipv4", "ipv6"]:
            neigh = f"net/{family}/neigh/{interface}"
            self.gateway.sysctl(
                {
                    f"{neigh}/base_reachable_time_ms": 2000,
                    f"{neigh}/delay_first_probe_time": 1,
                    f"{neigh}/retrans_time_ms": 300,
                }
            )

    def vlan(self, host, parent, name, number):
        """Makes an interface that is a VLAN of another: Linux's own, or where the kernel has none `vlan.py`, which is
        given."""
        own = host.run(
            "ip", "link", "add", "link", parent, "name", name, "type", "vlan", "id", number, check=False
        )
        if own.returncode == 0:
            return None
        # Not what an earlier one said.
        (self.logs / f"{host.name}.vlan-{name}.log").unlink(missing_ok=True)
        program = host.start(
            "/usr/bin/python3", Path(__file__).with_name("vlan.py"), parent, name, number, log=f"vlan-{name}"
        )
        wait.until(
            lambda: "ready" in program.log.read_text() or program.poll() is not None,
            f"VLAN {number} of {host}",
        )
        assert program.poll() is None, program.log.read_text()
        return program

    # ---- Evidence

    def watch(self):
        """Keeps what passes the gateway's cables from now on, as much as fits. It is read only when a test fails."""
        self.unwatch()
        for interface in sorted({"lan", "wan", self.guests}):
            try:
                sniffer = self.switch.sniff(f"gw-{interface}", room=1 << 22)
            except OSError:
                continue
            self._evidence[interface] = sniffer

    def unwatch(self):
        for sniffer in self._evidence.values():
            sniffer.close()
        self._evidence.clear()

    def evidence(self, lines=40):
        """What was kept, in words: the last frames on both cables of the gateway."""
        told = []
        for interface, sniffer in self._evidence.items():
            path = self.logs / f"{interface}-{time.time_ns()}.pcap"
            count = write_capture(path, sniffer)
            done = self.switch.run("tcpdump", "-nevr", path, "-tt", check=False, stderr=-3)
            text = done.stdout.replace("\n    ", " ").splitlines()
            told += [f"-- {interface}: {count} frames, all in {path}, the last are", *text[-lines:]]
        return "\n".join(told)

    def close(self):
        self.unwatch()
        for host in reversed(self.hosts):
            host.close()
        self.hosts.clear()
