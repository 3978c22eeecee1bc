"""Reads pcapng (draft-ietf-opsawg-pcapng), as much of it as the gateway writes: one section, little-endian."""

import struct
from typing import NamedTuple

INTERFACE, STATISTICS, PACKET = 1, 5, 6
COMMENT, IF_NAME, IF_DROP = 1, 2, 5


class Seen(NamedTuple):
    """A packet of a capture."""

    interface: str
    nanoseconds: int
    frame: bytes
    length: int
    comment: str


class Capture:
    """All packets of a file, and how many it says were lost. Fails where a block is not whole."""

    def __init__(self, path):
        data = path.read_bytes()
        self.interfaces, self.packets, self.lost = [], [], 0
        assert data[:4] == b"\x0a\x0d\x0d\x0a", "a section header comes first"
        at = 0
        while at < len(data):
            kind, length = struct.unpack_from("<II", data, at)
            assert length % 4 == 0 and at + length <= len(data), f"the block at {at} is cut"
            assert struct.unpack_from("<I", data, at + length - 4)[0] == length
            self._block(kind, data[at + 8 : at + length - 4])
            at += length

    def _block(self, kind, body):
        if kind == INTERFACE:
            self.interfaces.append(options(body[8:])[IF_NAME].decode())
        elif kind == PACKET:
            number, high, low, captured, length = struct.unpack_from("<IIIII", body)
            rest = options(body[20 + captured + -captured % 4 :])
            self.packets.append(
                Seen(
                    self.interfaces[number],
                    high << 32 | low,
                    body[20 : 20 + captured],
                    length,
                    rest.get(COMMENT, b"").decode(),
                )
            )
        elif kind == STATISTICS:
            self.lost = struct.unpack("<Q", options(body[12:])[IF_DROP])[0]


def options(data):
    found, at = {}, 0
    while at + 4 <= len(data):
        code, length = struct.unpack_from("<HH", data, at)
        if code == 0:
            break
        found[code] = data[at + 4 : at + 4 + length]
        at += 4 + length + -length % 4
    return found
