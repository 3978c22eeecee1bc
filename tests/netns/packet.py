"""Packets as bytes: for sending what no socket sends, and for reading what was on the cable."""

import socket
import struct

ICMP, TCP, UDP, ICMP6 = 1, 6, 17, 58
SYN = 0x02

SOL_PACKET, PACKET_AUXDATA, SO_TIMESTAMPNS = 263, 8, 35
TP_STATUS_VLAN_VALID = 0x10
AUXDATA = struct.Struct("=IIIHHHH")
"""`struct tpacket_auxdata` of Linux: status, two lengths, two offsets, the tag and its kind."""


def mac(text):
    return bytes.fromhex(text.replace(":", ""))


def checksum(data):
    """The Internet checksum (RFC 1071): 0 over what has a right one."""
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ethernet(to, source, payload, kind=0x0800, vlan=None):
    tag = b"" if vlan is None else struct.pack("!HH", 0x8100, vlan)
    return mac(to) + mac(source) + tag + struct.pack("!H", kind) + payload


def ipv4(source, to, protocol, payload, ttl=64, ident=0, offset=0, more=False, dont=False):
    """A packet, or the fragment of one that begins at `offset` bytes."""
    flags = (0x4000 if dont else 0) | (0x2000 if more else 0) | offset // 8
    addresses = socket.inet_aton(source) + socket.inet_aton(to)
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), ident, flags, ttl, protocol, 0) + addresses
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload


def _summed(source, to, protocol, segment, at):
    """The segment with its checksum, which lies at `at`, over the pseudo-header too."""
    pseudo = socket.inet_aton(source) + socket.inet_aton(to) + struct.pack("!BBH", 0, protocol, len(segment))
    found = checksum(pseudo + segment) or 0xFFFF
    return segment[:at] + struct.pack("!H", found) + segment[at + 2 :]


def udp(source, to, sport, dport, payload):
    datagram = struct.pack("!HHHH", sport, dport, 8 + len(payload), 0) + payload
    return _summed(source, to, UDP, datagram, 6)


def udp6(source, to, sport, dport, payload):
    """A whole packet of IPv6, with a datagram."""
    addresses = socket.inet_pton(socket.AF_INET6, source) + socket.inet_pton(socket.AF_INET6, to)
    length = 8 + len(payload)
    pseudo = addresses + struct.pack("!II", length, UDP)
    found = checksum(pseudo + struct.pack("!HHHH", sport, dport, length, 0) + payload) or 0xFFFF
    datagram = struct.pack("!HHHH", sport, dport, length, found) + payload
    return struct.pack("!IHBB", 6 << 28, length, UDP, 64) + addresses + datagram


def tcp(source, to, sport, dport, flags, seq=0, ack=0):
    segment = struct.pack("!HHIIBBHHH", sport, dport, seq, ack, 5 << 4, flags, 65535, 0, 0)
    return _summed(source, to, TCP, segment, 16)


def announcement(hardware, address):
    """A gratuitous ARP request, to everybody: `address` is at `hardware` (RFC 5227, section 3)."""
    at = socket.inet_aton(address)
    arp = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + mac(hardware) + at + bytes(6) + at
    return ethernet("ff:ff:ff:ff:ff:ff", hardware, arp, 0x0806)


class Packet:
    """The fields of an IPv4 packet that tests ask for. `None` from `read` for anything else."""

    def __init__(self, data):
        head = (data[0] & 15) * 4
        self.header = data[:head]
        self.ttl, self.protocol = data[8], data[9]
        self.source, self.to = socket.inet_ntoa(data[12:16]), socket.inet_ntoa(data[16:20])
        self.payload = data[head : max(head, int.from_bytes(data[2:4], "big"))]
        self.sport = self.dport = None
        if self.protocol in (TCP, UDP) and len(self.payload) >= 4:
            self.sport, self.dport = struct.unpack_from("!HH", self.payload)

    @staticmethod
    def read(frame):
        at = 14
        if frame[12:14] == b"\x81\x00":
            at = 18
        if frame[at - 2 : at] != b"\x08\x00" or len(frame) < at + 20:
            return None
        return Packet(frame[at:])

    @property
    def quoted(self):
        """The packet that an ICMP error quotes (RFC 792)."""
        return Packet(self.payload[8:])


class Caught:
    """A frame that a sniffer caught, as it was on the cable, and when: seconds and nanoseconds, where they are kept."""

    def __init__(self, sniffer):
        self.frame, beside, _, _ = sniffer.recvmsg(1 << 18, 256)
        self.stamp = (0, 0)
        for level, kind, data in beside:
            if (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
                # Linux takes tags out of frames before it shows them, and tells of them beside the frame.
                status, _, _, _, _, tci, kind_of_tag = AUXDATA.unpack_from(data)
                if status & TP_STATUS_VLAN_VALID:
                    tag = struct.pack("!HH", kind_of_tag or 0x8100, tci)
                    self.frame = self.frame[:12] + tag + self.frame[12:]
            elif (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
                self.stamp = struct.unpack("=qq", data[:16])


def drain(sniffer):
    """The frames that a sniffer has caught so far."""
    sniffer.setblocking(False)
    frames = []
    while True:
        try:
            frames.append(Caught(sniffer).frame)
        except BlockingIOError:
            return frames


def write_capture(path, sniffer):
    """Empties a sniffer into a capture file; how many frames there were."""
    sniffer.setblocking(False)
    count = 0
    with open(path, "wb") as file:
        # The nanosecond form of pcap, link type Ethernet.
        file.write(struct.pack("=IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 1 << 18, 1))
        while True:
            try:
                caught = Caught(sniffer)
            except OSError:
                # Empty, or its interface is gone.
                return count
            size = len(caught.frame)
            file.write(struct.pack("=IIII", *caught.stamp, size, size) + caught.frame)
            count += 1
