"""Translators between IP versions side by side: what comes of a packet, by the gateway and by Tayga.

Each has two cables, `six` and `four`, and is sent a packet by the one, whose translation leaves by the other.
"""

import ipaddress

import wait
from host import Host
from packet import drain, ethernet
from scapy.layers.inet import ICMP, IP, IPerror
from scapy.layers.inet6 import IPv6


def under_prefix(address, prefix="64:ff9b::"):
    """The IPv6 address that stands for an IPv4 address."""
    return str(ipaddress.IPv6Address(prefix) + int(ipaddress.IPv4Address(address)))


def scapy(packet, sender):
    return (IPv6 if sender == "six" else IP)(packet)


class Translator:
    """A translator between two cables, and what comes out of it."""

    OTHER = {"six": "four", "four": "six"}

    def __init__(self, wires, cards):
        self.wires, self.cards = wires, cards

    def __call__(self, sender, packet):
        kinds = {"six": 0x86DD, "four": 0x0800}
        out = self.wires[self.OTHER[sender]]
        drain(out)
        self.wires[sender].send(ethernet(*self.cards[sender], packet, kinds[sender]))
        kind = kinds[self.OTHER[sender]].to_bytes(2, "big")
        found = []

        def came():
            for frame in drain(out):
                if frame[12:14] == kind and not self.is_other(frame[14:]):
                    found.append(frame[14:])
            return found

        wait.until(came, f"the translation of {scapy(packet, sender).summary()}")
        return comparable(found[0])

    def is_other(self, packet):
        """Whether a packet is Linux's own: neighbour discovery, router advertisements."""
        return packet[0] >> 4 == 6 and packet[6] in (0, 58) and packet[40] >= 133


def comparable(packet):
    """A packet without what translators may choose: hop limit, and the identification of a packet that is no fragment. Tayga follows RFC 6145,
    by which "don't fragment" is set on short packets, too (RFC 7915, section 5.1)."""
    if packet[0] >> 4 == 6:
        found = IPv6(packet)
        found.hlim = 0
        return bytes(found).hex()
    found = IP(packet)
    headers = [found]
    if IPerror in found:
        headers.append(found[IPerror])
        # Right sums are for test_a_closed_port_is_heard_of.
        found[ICMP].chksum = 0
    for header in headers:
        header.ttl = header.chksum = 0
        if not header.frag and not header.flags.MF:
            header.id = 0
            if header.len <= 1260:
                header.flags = 0
    return bytes(found).hex()


def tayga(net, prefix, pairs, ends, through):
    """Tayga in a namespace of its own, between two cables to a namespace without addresses. `pairs` says which IPv4 address stands for which IPv6
    address, `ends` the address at the other end of each cable, and `through` what Tayga is sent."""
    host, others = Host(f"{net.client.namespace}-tayga", net.logs), Host(f"{net.client.namespace}-ends", net.logs)
    net.hosts += [host, others]
    config = net.logs / "tayga.conf"
    config.write_text(
        f"""
        tun-device nat64
        ipv4-addr 192.0.2.254
        ipv6-addr 2001:db8:bbbb::64
        prefix {prefix}/96
        """
        + "".join(f"map {four} {six}\n" for four, six in pairs.items())
    )
    host.sysctl({"net/ipv4/ip_forward": 1, "net/ipv6/conf/all/forwarding": 1})
    for cable, end in ends.items():
        host.ip(f"link add {cable} type veth peer name {cable} netns {others.namespace}", f"link set {cable} up")
        others.sysctl({f"net/ipv6/conf/{cable}/disable_ipv6": 1})
        others.ip(f"link set {cable} up")
        host.ip(f"route add {end} dev {cable}", f"neigh add {end} lladdr {others.mac(cable)} dev {cable}")
    host.run("tayga", "--config", config, "--mktun")
    host.ip("link set nat64 up", *[f"route add {net} dev nat64" for net in through])
    host.start("tayga", "--config", config, "--nodetach")
    cards = {cable: (host.mac(cable), others.mac(cable)) for cable in ends}
    return Translator({cable: others.wire(cable) for cable in ends}, cards)
