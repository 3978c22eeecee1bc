"""What became of each frame, told by what came out."""

from dataclasses import dataclass, field

from differential.wire import ICMP, ICMP6, RST, TCP, UDP, Packet


@dataclass
class Fate:
    forwarded: list = field(default_factory=list)
    answered: list = field(default_factory=list)
    delivered: int = 0
    reason: str = ""

    @property
    def kind(self):
        if self.forwarded:
            return "forwarded"
        if self.delivered:
            return "delivered"
        return "answered" if self.answered else "dropped"


class Outcomes:
    """The frames of a plan that went in so far, and what came out."""

    def __init__(self, plan, exact):
        self.plan = plan
        # Whether each packet is known to have come out for the step that it is told with.
        self.exact = exact
        self.fates = {}
        self.packets = {}
        self.by_tag = {}

    def input(self, step):
        """The interface and the packet of a step, made from what earlier ones became."""
        asked = getattr(step, "by", None)
        if asked is not None and asked.to_gateway and not self.fates[asked.name].forwarded:
            # Nobody is there to answer.
            return None
        packet = step.make(step, self.seen)
        interface = step.interface
        if asked is not None and self.fates[asked.name].forwarded:
            interface = self.fates[asked.name].forwarded[0][0]
        self.packets[step.name] = Packet.read(packet)
        self.fates[step.name] = Fate()
        self.by_tag.setdefault((self.packets[step.name].version, self.packets[step.name].tag), []).append(step)
        return interface, packet

    def seen(self, step):
        """A step's packet as it came out, and by which interface."""
        for interface, packet in self.fates[step.name].forwarded:
            return packet, interface
        return self.packets[step.name], step.interface

    def output(self, interface, data, step):
        """A packet that came out while `step` was under way; `interface` is none for the gateway itself."""
        packet = Packet.read(data)
        if packet is None:
            return
        owner = self.owner(packet)
        answer = owner is None and interface is not None
        if owner is None:
            owner = self.answered(packet) or step
        fate = self.fates[owner.name]
        if interface is None:
            fate.delivered += 1
        elif answer:
            fate.answered.append((interface, packet))
        else:
            fate.forwarded.append((interface, packet))

    def owner(self, packet):
        """The step whose packet this is, passed on."""
        steps = self.by_tag.get((packet.version, packet.tag), [])
        # What the gateway itself makes may have any identification.
        steps = [step for step in steps if alike(self.packets[step.name], packet)]
        if len(steps) > 1:
            # Fragments of one datagram. What a translation has changed is like none of them: it is the first one's, whichever came first.
            mine = [step for step in steps if self.packets[step.name].payload[:16] == packet.payload[:16]]
            firsts = [step for step in steps if self.packets[step.name].first]
            return (mine or firsts or steps)[0]
        return steps[0] if steps else None

    def answered(self, packet):
        """The step whose packet this answers."""
        if packet.is_error and packet.quoted is not None:
            return self.owner(packet.quoted)
        if not self.exact and packet.protocol == TCP and packet.payload[13] & RST:
            for step in reversed(self.plan.steps):
                sent = self.packets.get(step.name)
                if sent and (sent.source, sent.sport, sent.dport) == (packet.to, packet.dport, packet.sport):
                    if sent.protocol == TCP and sent.first:
                        return step
        return None


def alike(sent, packet):
    if (sent.protocol, sent.is_error) != (packet.protocol, packet.is_error):
        return False
    return not sent.is_error or sent.payload[:2] == packet.payload[:2]


def canonical(interface, packet, original):
    """What two gateways must agree on: all but what each may choose, and checksums, which must be right."""
    data = bytearray(packet.data)
    at = packet.at
    note = "" if packet.is_sound() else " CHECKSUM"
    if packet.version == 4:
        data[10:12] = bytes(2)
    elif packet.fragment:
        # Linux puts datagrams together and takes them apart again, under another identification.
        data[packet.at - 4 : packet.at] = bytes(4)
    translated = original is not None and ends(packet) != ends(original)
    if packet.protocol in (TCP, UDP) and packet.first:
        if translated:
            # The port is the translation's to choose.
            data[at : at + 2] = bytes(2)
        data[at + (16 if packet.protocol == TCP else 6) :][:2] = bytes(2)
        place = at + (16 if packet.protocol == TCP else 6)
        data[place : place + 2] = bytes(2)
    elif packet.protocol in (ICMP, ICMP6) and packet.first:
        data[at + 2 : at + 4] = bytes(2)
        if translated and not packet.is_error:
            data[at + 4 : at + 6] = bytes(2)
        elif translated and packet.quoted:
            # So is the port in the quoted header, with its checksum.
            data[at + 8 + packet.quoted.at :] = b""
            data[at + 8 + 10 : at + 8 + 12] = bytes(2)
    return interface, bytes(data), note


def ends(packet):
    """Where a packet says that it comes from; of an error, also where the packet that it quotes went."""
    quoted = packet.quoted if packet.is_error else None
    return packet.source, packet.sport, quoted and quoted.dport


def answer(interface, packet):
    """An answer: its own identification is free, and so is how much it quotes beyond the transport header."""
    data = bytearray(packet.data)
    note = "" if packet.is_sound() else " CHECKSUM"
    if packet.version == 4:
        data[2:8] = bytes(6)
        data[10:12] = bytes(2)
        data[1] = 0
    else:
        data[1:6] = bytes(5)
        data[0] = 0x60
    data[8 if packet.version == 4 else 7] = 0
    at = packet.at
    place = {TCP: 16, UDP: 6}.get(packet.protocol, 2)
    data[at + place : at + place + 2] = bytes(2)
    if packet.protocol == TCP:
        # The window of a reset means nothing.
        data[at + 14 : at + 16] = bytes(2)
    if packet.is_error:
        quoted = packet.quoted
        data = data[: at + 8 + (quoted.at + 8 if quoted else 0)]
        if quoted and quoted.version == 4:
            data[at + 8 + 10 : at + 8 + 12] = bytes(2)
            data[at + 8 + 8] = 0
        elif quoted:
            data[at + 8 + 7] = 0
    return interface, bytes(data), note


def quoting_no_code_point(interface, packet):
    """An answer, but for the code point that the packet had which it quotes."""
    interface, data, note = answer(interface, packet)
    if not packet.is_error or not packet.quoted:
        return interface, data, note
    data, at = bytearray(data), packet.at + 8
    if packet.quoted.version == 4:
        data[at + 1] &= 3
    else:
        data[at : at + 2] = bytes([0x60, data[at + 1] & 0x3F])
    return interface, bytes(data), note
