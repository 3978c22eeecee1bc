"""Frames through nftables: a network namespace with three interfaces, and what became of each frame."""

import os
import select
import socket
import struct
import subprocess
import time

from differential.outcome import Outcomes
from differential.world import GATEWAY_OF_LAST_RESORT, HOST_MAC, HOSTS, INTERFACES, MTU, OWN, mac_bytes
from isolation import inside

NETLINK_NETFILTER = 12
LOG, CONNTRACK = 4, 1
GROUP = 5
PACKET_IGNORE_OUTGOING, SOL_PACKET, SO_RCVBUFFORCE = 23, 263, 33
SETTLE = 0.03
"""Seconds that a round waits for what is still under way."""

ORACLE = f"""
table inet oracle {{
  chain delivered {{
    type filter hook input priority 2147483646;
    log group {GROUP} meta mark set 0x77
  }}
  chain own {{
    type filter hook output priority -300;
    meta mark 0x77 drop
    icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit, mld2-listener-report }} drop
  }}
}}
"""
"""Tells of each packet that the rules let in to the gateway, and keeps its stack from answering: nobody is there in a
replay either. An answer carries the mark of what it answers (fwmark_reflect)."""


class Kernel:
    def __init__(self):
        self.name = f"oracle-{os.getpid()}"
        self.outside = f"{self.name}-out"
        for namespace in (self.name, self.outside):
            subprocess.run(["ip", "netns", "add", namespace], check=True)
        lines = []
        for interface in INTERFACES:
            lines.append(f"link add {interface} mtu {MTU[interface]} type veth peer name {interface} netns {self.outside}")
            lines.append(f"link set {interface} up")
        self.ip(self.name, [f"link set lo up", *lines])
        with inside(self.outside):
            settings({"net/ipv6/conf/all/disable_ipv6": 1, "net/ipv6/conf/default/disable_ipv6": 1})
        self.ip(self.outside, [f"link set {interface} mtu 1500 up" for interface in INTERFACES])
        with inside(self.name):
            settings(
                {
                    "net/ipv4/ip_forward": 1,
                    "net/ipv6/conf/all/forwarding": 1,
                    "net/ipv6/conf/all/accept_dad": 0,
                    "net/ipv6/conf/default/accept_dad": 0,
                    "net/ipv4/conf/all/rp_filter": 0,
                    "net/ipv4/conf/default/rp_filter": 0,
                    "net/ipv4/conf/all/send_redirects": 0,
                    "net/ipv4/conf/default/send_redirects": 0,
                    "net/ipv4/icmp_ratelimit": 0,
                    "net/ipv6/icmp/ratelimit": 0,
                    "net/ipv4/icmp_msgs_per_sec": 1_000_000,
                    "net/ipv4/icmp_msgs_burst": 1_000_000,
                    "net/ipv4/fwmark_reflect": 1,
                    "net/ipv6/fwmark_reflect": 1,
                    **{f"net/ipv4/conf/{name}/rp_filter": 0 for name in INTERFACES},
                    **{f"net/ipv4/conf/{name}/send_redirects": 0 for name in INTERFACES},
                    **{f"net/ipv6/conf/{name}/accept_dad": 0 for name in INTERFACES},
                }
            )
        lines = []
        for interface in INTERFACES:
            for version in (4, 6):
                nodad = " nodad" if version == 6 else ""
                lines.append(f"addr add {OWN[interface][version]} dev {interface}{nodad}")
                hosts = [*HOSTS[interface][version]]
                if interface == "wan":
                    hosts.append(GATEWAY_OF_LAST_RESORT[version])
                for host in hosts:
                    lines.append(f"neigh replace {host} lladdr {HOST_MAC} dev {interface} nud permanent")
        for version in (4, 6):
            lines.append(f"-{version} route replace default via {GATEWAY_OF_LAST_RESORT[version]}")
        self.ip(self.name, [line for line in lines if not line.startswith("-")])
        for version in (4, 6):
            self.run("ip", f"-{version}", "route", "replace", "default", "via", GATEWAY_OF_LAST_RESORT[version])
        for interface in INTERFACES:
            # Checksums of what the kernel itself sends are whole on the cable.
            self.run("ethtool", "-K", interface, "tx", "off")
        self.macs = {interface: self.mac(interface) for interface in INTERFACES}
        self.cables = {interface: self.cable(interface) for interface in INTERFACES}
        self.log = self.open_log()

    def ip(self, namespace, lines):
        subprocess.run(["ip", "-n", namespace, "-batch", "-"], input="\n".join(lines) + "\n", text=True, check=True)

    def run(self, *command, **options):
        return subprocess.run(
            ["ip", "netns", "exec", self.name, *command], capture_output=True, text=True, check=False, **options
        )

    def mac(self, interface):
        with inside(self.name):
            probe = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            probe.bind((interface, 0))
            return probe.getsockname()[4]

    def cable(self, interface):
        with inside(self.outside):
            opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 23)
        opened.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        opened.bind((interface, 3))
        opened.setblocking(False)
        return opened

    def open_log(self):
        """A socket that hears of the packets that were delivered (nfnetlink_log)."""
        with inside(self.name):
            opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
        opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 23)
        bind = attribute(1, b"\1") + attribute(2, struct.pack("!IBB", 0xFFFF, 2, 0)) + attribute(5, struct.pack("!I", 1))
        opened.sendto(message(LOG << 8 | 1, 5, GROUP, bind), (0, 0))
        answer = opened.recv(65_536)
        assert struct.unpack_from("=HH", answer, 4)[0] == 2 and struct.unpack_from("=i", answer, 16)[0] == 0, answer
        opened.setblocking(False)
        return opened

    def load(self, text):
        """Loads a ruleset and forgets all connections; what nft has to say against it, if it does not take it."""
        # The tables come first, for the connections that a flush leaves behind meet none.
        done = self.run("nft", "-f", "-", input="flush ruleset\n" + text + ORACLE)
        if done.returncode != 0:
            return done.stderr
        self.forget()
        return None

    def restore(self, tool, text):
        """The same for what iptables-save or ip6tables-save prints."""
        self.run("nft", "flush ruleset")
        done = self.run(f"{tool}-nft-restore", input=text)
        if done.returncode != 0:
            return done.stderr
        done = self.run("nft", "-f", "-", input=ORACLE)
        assert done.returncode == 0, done.stderr
        self.forget()
        return None

    def forget(self):
        """Forgets all connections."""
        with inside(self.name):
            flush = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
            # In namespaces without rules for connections they are not tracked; this wakes the tracking.
            settings({"net/netfilter/nf_conntrack_tcp_loose": 0})
            flush.sendto(message(CONNTRACK << 8 | 2, 5, 0, b""), (0, 0))
            flush.recv(65_536)
            flush.close()

    def listing(self):
        """The ruleset as `nft -j list ruleset` prints it, without the oracle's own table."""
        self.run("nft", "delete table inet oracle")
        return self.run("nft", "-j", "list", "ruleset").stdout

    def save(self, tool):
        """The rules as the tool's `-save` prints them."""
        self.run("nft", "delete table inet oracle")
        return self.run(f"{tool}-nft-save").stdout

    def play(self, plan):
        """Sends all frames; what became of each."""
        outcomes = Outcomes(plan, exact=False)
        self.drain(lambda *_: None)
        for turn in range(plan.rounds()):
            for step in plan.steps:
                if step.round != turn:
                    continue
                made = outcomes.input(step)
                if made is None:
                    continue
                interface, packet = made
                kind = b"\x08\x00" if packet[0] >> 4 == 4 else b"\x86\xdd"
                self.cables[interface].send(self.macs[interface] + mac_bytes(step.mac) + kind + packet)
                self.drain(lambda where, data, step=step: outcomes.output(where, data, step))
            until = time.monotonic() + SETTLE
            while (left := until - time.monotonic()) > 0:
                select.select([*self.cables.values(), self.log], [], [], left)
                self.drain(lambda where, data, step=step: outcomes.output(where, data, step))
        return outcomes

    def drain(self, tell):
        for interface, cable in self.cables.items():
            for frame in received(cable):
                if frame[12:14] in (b"\x08\x00", b"\x86\xdd"):
                    tell(interface, frame[14:])
        for data in received(self.log):
            at = 0
            while at + 20 <= len(data):
                length, kind = struct.unpack_from("=IH", data, at)
                if kind == LOG << 8:
                    for number, value in attributes(data[at + 20 : at + length]):
                        if number == 9:
                            tell(None, value)
                at += length + 3 & ~3

    def close(self):
        for opened in [*self.cables.values(), self.log]:
            opened.close()
        for namespace in (self.name, self.outside):
            subprocess.run(["ip", "netns", "del", namespace], check=False)


def received(opened):
    while True:
        try:
            yield opened.recv(1 << 17)
        except BlockingIOError:
            return


def settings(values):
    for path, value in values.items():
        try:
            with open(f"/proc/sys/{path}", "w", encoding="ascii") as file:
                file.write(str(value))
        except (FileNotFoundError, PermissionError):
            # Some are one for all namespaces, and then not ours to change.
            pass


def attribute(kind, value):
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def attributes(data):
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        yield kind & 0x3FFF, data[at + 4 : at + length]
        at += max(length, 4) + 3 & ~3


def message(kind, flags, group, body):
    """A netlink message of netfilter's, that asks for an acknowledgement."""
    return struct.pack("=IHHII", 20 + len(body), kind, flags, 1, 0) + struct.pack("!BBH", 0, 0, group) + body
