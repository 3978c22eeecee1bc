"""Packets of both IP versions as bytes, and back."""

import ipaddress
import struct

ICMP, TCP, UDP, GRE, ICMP6, SCTP = 1, 6, 17, 47, 58, 132
FIN, SYN, RST, PSH, ACK, URG = 1, 2, 4, 8, 16, 32
EXTENSIONS = (0, 43, 44, 60)


def checksum(data):
    """The Internet checksum (RFC 1071): 0 over what has a right one."""
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def packed(address):
    return ipaddress.ip_address(address).packed


def ip(source, to, protocol, payload, tag, ttl=64, dont=False, tos=0, offset=0, more=False, chain=b"", first=None):
    """A packet. The tag is its identification (IPv4) or flow label (IPv6), which forwarding keeps.

    `chain` is extension headers between the header and the payload, of which the first is of the kind `first`.
    """
    source, to = packed(source), packed(to)
    if len(source) == 4:
        flags = (0x4000 if dont else 0) | (0x2000 if more else 0) | offset // 8
        head = struct.pack("!BBHHHBBH", 0x45, tos, 20 + len(payload), tag, flags, ttl, protocol, 0) + source + to
        return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload
    kind = protocol if first is None else first
    length = len(chain) + len(payload)
    return struct.pack("!IHBB", 6 << 28 | tos << 20 | tag, length, kind, ttl) + source + to + chain + payload


def summed(source, to, protocol, segment, at):
    """The segment with its checksum, which lies at `at`, over the pseudo-header."""
    pseudo = packed(source) + packed(to) + struct.pack("!IHBB", len(segment), 0, 0, protocol)
    found = checksum(pseudo + segment) or 0xFFFF
    return segment[:at] + struct.pack("!H", found) + segment[at + 2 :]


def tcp(source, to, sport, dport, flags, seq=0, ack=0, data=b""):
    options = b"\x02\x04\x05\xb4" if flags & SYN else b""
    head = struct.pack("!HHIIBBHHH", sport, dport, seq, ack, (5 + len(options) // 4) << 4, flags, 65000, 0, 0)
    return summed(source, to, TCP, head + options + data, 16)


def udp(source, to, sport, dport, data=b"wirerate"):
    return summed(source, to, UDP, struct.pack("!HHHH", sport, dport, 8 + len(data), 0) + data, 6)


def icmp(source, to, kind, code, rest, data=b""):
    """ICMP, or ICMPv6 where the addresses are."""
    body = struct.pack("!BBH", kind, code, 0) + rest + data
    if len(packed(source)) == 16:
        return summed(source, to, ICMP6, body, 2)
    return body[:2] + struct.pack("!H", checksum(body)) + body[4:]


class Packet:
    """The fields of a packet; `None` from `read` for what is neither IPv4 nor IPv6."""

    def __init__(self, data):
        self.version = data[0] >> 4
        self.fragment = False
        self.first = True
        if self.version == 4:
            head = (data[0] & 15) * 4
            self.data = data[: max(head, int.from_bytes(data[2:4], "big"))]
            self.tag = int.from_bytes(data[4:6], "big")
            self.ttl, self.protocol = data[8], data[9]
            self.source, self.to = data[12:16], data[16:20]
            where = int.from_bytes(data[6:8], "big")
            self.fragment, self.first = where & 0x3FFF != 0, where & 0x1FFF == 0
            self.at = head
        else:
            self.data = data[: 40 + int.from_bytes(data[4:6], "big")]
            self.tag = int.from_bytes(data[0:4], "big") & 0xFFFFF
            self.protocol, self.ttl = data[6], data[7]
            self.source, self.to = data[8:24], data[24:40]
            self.at = 40
            while self.protocol in EXTENSIONS and len(data) >= self.at + 8:
                if self.protocol == 44:
                    where = int.from_bytes(data[self.at + 2 : self.at + 4], "big")
                    self.fragment, self.first = True, where & 0xFFF8 == 0
                    length = 8
                else:
                    length = 8 + data[self.at + 1] * 8
                self.protocol, self.at = data[self.at], self.at + length
                if not self.first:
                    break
        self.payload = self.data[self.at :]
        self.sport = self.dport = None
        if self.protocol in (TCP, UDP, SCTP) and self.first and len(self.payload) >= 4:
            self.sport, self.dport = struct.unpack_from("!HH", self.payload)

    @staticmethod
    def read(data):
        short = len(data) < 20 or data[0] >> 4 not in (4, 6) or data[0] >> 4 == 6 and len(data) < 40
        return None if short else Packet(data)

    @property
    def is_error(self):
        kind = self.payload[0] if self.payload else 255
        if self.protocol == ICMP and self.version == 4:
            return kind in (3, 4, 5, 11, 12) and self.first
        return self.protocol == ICMP6 and self.version == 6 and kind < 128 and self.first

    @property
    def quoted(self):
        """The packet that an ICMP error quotes."""
        return Packet.read(self.payload[8:])

    @property
    def addresses(self):
        return str(ipaddress.ip_address(self.source)), str(ipaddress.ip_address(self.to))

    def is_sound(self):
        """Whether the checksums are right, as far as they can be told."""
        if self.version == 4 and checksum(self.data[: (self.data[0] & 15) * 4]) != 0:
            return False
        if self.fragment:
            return True
        pseudo = self.source + self.to + struct.pack("!IHBB", len(self.payload), 0, 0, self.protocol)
        if self.protocol == UDP and self.payload[6:8] == b"\0\0":
            return self.version == 4
        if self.protocol in (TCP, UDP, ICMP6):
            return checksum(pseudo + self.payload) == 0
        return self.protocol != ICMP or checksum(self.payload) == 0

    def said(self):
        source, to = self.addresses
        ports = "" if self.sport is None else f" {self.sport}>{self.dport}"
        more = f" {self.payload[:2].hex()}" if self.protocol in (ICMP, ICMP6) else ""
        if self.protocol == TCP and self.first and len(self.payload) > 13:
            more = f" flags {self.payload[13]:#04x}"
        part = " fragment" if self.fragment else ""
        return f"{source} > {to} proto {self.protocol}{ports}{more}{part} ttl {self.ttl} {len(self.data)} bytes"
