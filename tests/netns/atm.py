"""ATM by hand: cells, AAL5 and RFC 2684, bit by bit, for an end of a line that shares no code with the gateway."""

import struct

CELL = 53
ROUTED = bytes.fromhex("aaaa030000000800")
"""LLC and SNAP in front of a routed IPv4 packet."""
PAD = bytes(2)
"""What is in front of a bridged frame with VC multiplexing."""


def hec(header):
    """The header error control of four bytes (ITU-T I.432.1)."""
    rest = 0
    for byte in header:
        rest ^= byte
        for _ in range(8):
            rest = ((rest << 1) ^ 7) & 0xFF if rest & 0x80 else rest << 1
    return rest ^ 0x55


def crc(data):
    """The CRC-32 of AAL5 (ITU-T I.363.5)."""
    rest = 0xFFFFFFFF
    for byte in data:
        rest ^= byte << 24
        for _ in range(8):
            rest = ((rest << 1) ^ 0x04C11DB7) & 0xFFFFFFFF if rest & 0x80000000 else rest << 1
    return rest ^ 0xFFFFFFFF


def crc10(body):
    """The 48 bytes of an OAM cell of 46, with their CRC-10 (ITU-T I.610)."""
    rest = 0
    for byte in body + bytes(2):
        for place in range(7, -1, -1):
            rest = rest << 1 | byte >> place & 1
            rest = rest ^ 0x633 if rest & 0x400 else rest
    return body + struct.pack("!H", rest)


def loopback(indication, tag):
    """The payload of a loopback cell for the end of its connection."""
    return crc10(struct.pack("!BBI", 0x18, indication, tag) + b"\xff" * 16 + b"\x6a" * 24)


def cell(vc, payload, last=False, kind=0, clp=False):
    """A cell of the channel (VPI, VCI); `kind` is the rest of its payload type."""
    header = struct.pack("!I", vc[0] << 20 | vc[1] << 4 | kind << 2 | last << 1 | clp)
    return header + bytes([hec(header)]) + payload


def cells(vc, payload):
    """The cells of a PDU."""
    padded = payload + bytes(-(len(payload) + 8) % 48) + struct.pack("!HH", 0, len(payload))
    pdu = padded + struct.pack("!I", crc(padded))
    parts = [pdu[at : at + 48] for at in range(0, len(pdu), 48)]
    return [cell(vc, part, last=place == len(parts) - 1) for place, part in enumerate(parts)]


class Line:
    """The far end of a line of cells, on a UDP socket."""

    def __init__(self, socket, to, vc, head, others=()):
        """`others` are further channels of the line, whose cells are passed over."""
        self.socket, self.to, self.vc, self.head, self.others = socket, to, vc, head, others
        self.cells, self._payload = [], b""

    def send(self, packet, at_once=1):
        """Sends a packet, with so many cells in a datagram."""
        every = cells(self.vc, self.head + packet)
        for at in range(0, len(every), at_once):
            self.send_cells(every[at : at + at_once])

    def send_cells(self, some):
        self.socket.sendto(b"".join(some), self.to)

    def is_whole(self):
        """True if a packet is there."""
        return any(cell[3] & 2 for cell in self.cells)

    def receive(self):
        """The next packet. Its cells must be right in every bit."""
        while True:
            while not self.cells:
                datagram = self.socket.recv(65535)
                assert datagram and len(datagram) % CELL == 0, len(datagram)
                self.cells = [datagram[at : at + CELL] for at in range(0, len(datagram), CELL)]
            one = self.cells.pop(0)
            assert one[4] == hec(one[:4])
            (header,) = struct.unpack("!I", one[:4])
            if (header >> 20, header >> 4 & 0xFFFF) in self.others:
                continue
            assert (header >> 20, header >> 4 & 0xFFFF, header & 0b1101) == (*self.vc, 0)
            self._payload += one[5:]
            if header & 2:
                pdu, self._payload = self._payload, b""
                _, length, check = struct.unpack("!HHI", pdu[-8:])
                assert crc(pdu[:-4]) == check
                assert 0 <= len(pdu) - 8 - length < 48
                assert pdu.startswith(self.head)
                return pdu[len(self.head) : length]
