"""The frames: a few hundred, in rounds, because an answer is to the packet as it came out.

A step's packet is made from what became of earlier ones: `seen(step)` is the packet that left the gateway for it and by
which interface, or the step's own packet where none did.
"""

import random
import struct
from dataclasses import dataclass
from typing import Callable

from differential.world import HOSTS, INTERFACES, MACS, MTU, own
from differential.wire import (
    ACK, FIN, GRE, ICMP, ICMP6, PSH, RST, SYN, TCP, UDP, URG, Packet, icmp, ip, tcp, udp,
)


@dataclass
class Step:
    name: str
    round: int
    interface: str
    make: Callable
    # The frame's source address.
    mac: str
    tag: int = 0
    to_gateway: bool = False


class Plan:
    """The steps of all rounds, in order."""

    def __init__(self, seed, versions=(4, 6)):
        self.random = random.Random(seed ^ 0x5EED)
        self.senders = random.Random(seed ^ 0xE78E)
        self.steps = []
        self.port = 20_000
        for version in versions:
            for source, to in [("lan", "wan"), ("lan", "dmz"), ("dmz", "wan"), ("wan", "dmz"), ("wan", "lan"), ("dmz", "lan")]:
                self.between(version, source, to)
            for source in INTERFACES:
                self.to_gateway(version, source)
        self.steps.sort(key=lambda step: step.round)
        for place, step in enumerate(self.steps):
            step.tag = 1_000 + place

    def rounds(self):
        return max(step.round for step in self.steps) + 1

    def add(self, name, turn, interface, make):
        step = Step(name, turn, interface, make, self.mac[interface], to_gateway=">self" in name)
        self.steps.append(step)
        return step

    def draw_senders(self):
        """Chooses where the frames of the next conversation come from, of each side."""
        self.mac = {interface: self.senders.choice(MACS) for interface in INTERFACES}

    def host(self, side, version):
        return self.random.choice(HOSTS[side][version])

    def sport(self):
        self.port += 1
        return self.port

    # ---- Conversations

    def between(self, version, side, beyond):
        name = f"v{version} {side}>{beyond}"
        source, to = self.host(side, version), self.host(beyond, version)
        for dport in self.random.sample([22, 53, 80, 443, 2222, 8080, 3000], 3):
            self.handshake(f"{name} tcp {dport}", side, beyond, source, to, dport)
        for dport in self.random.sample([53, 80, 8080, 3000], 2):
            self.datagrams(f"{name} udp {dport}", side, beyond, source, to, dport)
        self.echo(f"{name} echo", version, side, beyond, source, to)
        self.odd_segments(f"{name} tcp", side, source, to)
        self.others(name, version, side, source, to)

    def to_gateway(self, version, side):
        source = self.host(side, version)
        for at in (side, "wan"):
            to = own(at, version)
            name = f"v{version} {side}>self({at})"
            for dport in self.random.sample([22, 53, 80, 443, 2222, 8080], 3):
                self.handshake(f"{name} tcp {dport}", side, "dmz", source, to, dport)
            for dport in self.random.sample([53, 80, 8080], 1):
                self.datagrams(f"{name} udp {dport}", side, "dmz", source, to, dport)
            self.echo(f"{name} echo", version, side, "dmz", source, to)
            if at == side == "wan":
                break

    def handshake(self, name, side, beyond, source, to, dport):
        self.draw_senders()
        sport = self.sport()
        segment = lambda flags, seq, ack, data=b"": lambda step, _: ip(  # noqa: E731
            source, to, TCP, tcp(source, to, sport, dport, flags, seq, ack, data), step.tag
        )
        syn = self.add(f"{name} syn", 0, side, segment(SYN, 1000, 0))
        self.answer(f"{name} syn-ack", 1, beyond, syn, lambda a, b, s, d: tcp(a, b, s, d, SYN | ACK, 5000, 1001))
        self.add(f"{name} ack", 2, side, segment(ACK, 1001, 5001))
        self.add(f"{name} data", 2, side, segment(PSH | ACK, 1001, 5001, b"hello"))
        self.answer(f"{name} answer", 3, beyond, syn, lambda a, b, s, d: tcp(a, b, s, d, PSH | ACK, 5001, 1006, b"world"))
        if self.random.random() < 0.5:
            self.add(f"{name} fin", 4, side, segment(FIN | ACK, 1006, 5006))
            self.answer(f"{name} fin back", 5, beyond, syn, lambda a, b, s, d: tcp(a, b, s, d, FIN | ACK, 5006, 1007))
            self.add(f"{name} last ack", 6, side, segment(ACK, 1007, 5007))
        else:
            self.answer(f"{name} unreachable", 4, beyond, syn, None)

    def datagrams(self, name, side, beyond, source, to, dport):
        self.draw_senders()
        sport = self.sport()
        ask = self.add(
            f"{name} ask", 0, side, lambda step, _: ip(source, to, UDP, udp(source, to, sport, dport), step.tag)
        )
        self.answer(f"{name} answer", 1, beyond, ask, lambda a, b, s, d: udp(a, b, s, d, b"answer"))
        self.answer(f"{name} unreachable", 2, beyond, ask, None)

    def echo(self, name, version, side, beyond, source, to):
        self.draw_senders()
        ask_kind, answer_kind = (8, 0) if version == 4 else (128, 129)
        protocol = ICMP if version == 4 else ICMP6
        ident = struct.pack("!HH", self.sport(), 1)
        ask = self.add(
            f"{name} ask", 0, side,
            lambda step, _: ip(source, to, protocol, icmp(source, to, ask_kind, 0, ident, b"ping"), step.tag),
        )  # fmt: skip

        def answer(step, seen):
            packet, _ = seen(ask)
            a, b = packet.addresses[::-1]
            return ip(a, b, protocol, icmp(a, b, answer_kind, 0, packet.payload[4:8], b"ping"), step.tag)

        reply = self.add(f"{name} answer", 1, beyond, answer)
        reply.by = ask
        self.add(
            f"{name} unasked answer", 1, side,
            lambda step, _: ip(source, to, protocol, icmp(source, to, answer_kind, 0, b"\0\1\0\1", b"none"), step.tag),
        )  # fmt: skip

    def answer(self, name, turn, beyond, asked, make):
        """A packet against the direction of `asked`, or an error about it, from where that went."""

        def build(step, seen):
            packet, _ = seen(asked)
            a, b = packet.addresses[::-1]
            if make is None:
                v4 = packet.version == 4
                kind, code = (3, 3) if v4 else (1, 4)
                error = icmp(a, b, kind, code, bytes(4), packet.data[: 28 if v4 else 60] + bytes(8))
                return ip(a, b, ICMP if v4 else ICMP6, error, step.tag)
            return ip(a, b, packet.protocol, make(a, b, packet.dport, packet.sport), step.tag)

        step = self.add(name, turn, beyond, build)
        step.by = asked

    # ---- What no conversation holds

    def odd_segments(self, name, side, source, to):
        flags = [("ack", ACK), ("rst", RST), ("syn-ack", SYN | ACK), ("fin", FIN), ("null", 0), ("xmas", FIN | PSH | URG), ("syn-fin", SYN | FIN), ("ece syn", SYN | 0xC0)]
        for what, bits in self.random.sample(flags, 3):
            self.draw_senders()
            sport, dport = self.sport(), self.random.choice([22, 80, 443])
            self.add(
                f"{name} {what} {dport}", 0, side,
                lambda step, _, bits=bits, sport=sport, dport=dport: ip(
                    source, to, TCP, tcp(source, to, sport, dport, bits, 77, 88 if bits & ACK else 0), step.tag
                ),
            )  # fmt: skip

    def others(self, name, version, side, source, to):
        self.draw_senders()
        # Each a connection of its own, for of a connection only the first packet meets the rules here.
        datagram = lambda size, sport: udp(source, to, sport, 53, bytes(size))  # noqa: E731
        self.add(f"{name} gre", 0, side, lambda step, _: ip(source, to, GRE, b"\0\0\x08\0" + bytes(20), step.tag))
        self.add(f"{name} protocol 99", 0, side, lambda step, _: ip(source, to, 99, bytes(20), step.tag))
        self.add(f"{name} ttl 1", 0, side, lambda step, _, sport=self.sport(): ip(source, to, UDP, datagram(8, sport), step.tag, ttl=1))
        self.add(f"{name} dscp", 0, side, lambda step, _, sport=self.sport(): ip(source, to, UDP, datagram(9, sport), step.tag, tos=0x28))
        if MTU[side] == 1500:
            self.add(f"{name} too big", 0, side, lambda step, _, sport=self.sport(): ip(source, to, UDP, datagram(1430, sport), step.tag, dont=True))
        if version == 4 and MTU[side] == 1500:
            self.add(f"{name} big", 0, side, lambda step, _, sport=self.sport(): ip(source, to, UDP, datagram(1440, sport), step.tag))
        self.fragments(name, version, side, source, to)
        error = lambda step, _: ip(  # noqa: E731
            source, to, ICMP if version == 4 else ICMP6,
            icmp(source, to, *((3, 1) if version == 4 else (1, 3)), bytes(4), ip(to, source, UDP, udp(to, source, 9, 9), 7)),
            step.tag,
        )  # fmt: skip
        self.add(f"{name} error about nothing", 0, side, error)
        if version == 6:
            for what, first in [("hop-by-hop", 0), ("destination options", 60)]:
                for protocol, body in [(UDP, datagram(7, self.sport())), (TCP, tcp(source, to, self.sport(), 80, SYN, 5))]:
                    chain = bytes([protocol, 0, 1, 4, 0, 0, 0, 0])
                    self.add(
                        f"{name} {what} {protocol}", 0, side,
                        lambda step, _, first=first, protocol=protocol, body=body, chain=chain: ip(
                            source, to, protocol, body, step.tag, chain=chain, first=first
                        ),
                    )  # fmt: skip

    def fragments(self, name, version, side, source, to):
        self.draw_senders()
        sport, dport = self.sport(), self.random.choice([53, 8080])
        whole = udp(source, to, sport, dport, bytes(range(200)))
        tag = 40_000 + sport - 20_000
        pieces = [(0, whole[:104], True), (104, whole[104:], False)]
        if self.random.random() < 0.3:
            pieces.reverse()
        for place, (offset, part, more) in enumerate(pieces):

            def make(step, _, offset=offset, part=part, more=more):
                if version == 4:
                    return ip(source, to, UDP, part, tag, offset=offset, more=more)
                head = struct.pack("!BBHI", UDP, 0, offset | (1 if more else 0), tag)
                return ip(source, to, UDP, part, tag, chain=head, first=44)

            step = self.add(f"{name} fragment {place} of {dport}", 0, side, make)
            step.shares = tag


def packet_of(step, seen):
    return Packet.read(step.make(step, seen))
