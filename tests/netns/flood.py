#!/usr/bin/python3
"""A flood of SYNs from made-up sources, sent as frames.

usage: flood.py INTERFACE TO-MAC TO-ADDRESS DPORT RATE SECONDS

Sources are in 198.18.0.0/15 (RFC 2544), where answers lead nowhere. Prints how many were sent.

The frames lie in a ring that the kernel sends from (PACKET_TX_RING), so that fifty thousand a second leave the core to others;
they come round after MANY.
"""

import mmap
import random
import socket
import struct
import sys
import time
from pathlib import Path

from packet import SOL_PACKET, SYN, TCP, ethernet, ipv4, tcp

PACKET_VERSION, PACKET_TX_RING, PACKET_LOSS = 10, 13, 14
TPACKET_V2 = 1
AVAILABLE, SEND_REQUEST = 0, 1
FRAME, BLOCK, MANY = 128, 4096, 32_768
HEAD = 32
"""Bytes of `struct tpacket2_hdr`: status and length are its first two words. The frame is behind it."""


def ring_of(wire):
    """The ring of a socket, as memory."""
    wire.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V2)
    wire.setsockopt(SOL_PACKET, PACKET_LOSS, 1)
    wire.setsockopt(SOL_PACKET, PACKET_TX_RING, struct.pack("IIII", BLOCK, MANY * FRAME // BLOCK, FRAME, MANY))
    return mmap.mmap(wire.fileno(), MANY * FRAME, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)


def start(net, to, dport, rate, seconds):
    """Starts one from the router towards the gateway, as a process."""
    script = Path(__file__)
    return net.router.start("/usr/bin/python3", script, "wan", net.gateway.mac("wan"), to, dport, rate, seconds)


def main(interface, mac, to, dport, rate, seconds):
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    ring = ring_of(wire)
    wire.bind((interface, 0))
    chance = random.Random(7)
    for place in range(MANY):
        source = f"198.{chance.choice((18, 19))}.{chance.randrange(256)}.{chance.randrange(1, 255)}"
        segment = tcp(source, to, chance.randrange(1024, 65536), dport, SYN, seq=chance.getrandbits(32))
        frame = ethernet(mac, "02:00:00:00:f1:00", ipv4(source, to, TCP, segment))
        struct.pack_into("=II", ring, place * FRAME, AVAILABLE, len(frame))
        ring[place * FRAME + HEAD : place * FRAME + HEAD + len(frame)] = frame
    words = memoryview(ring).cast("I")
    begin = time.monotonic()
    sent = 0
    while (now := time.monotonic() - begin) < seconds:
        # As many as are due by now, so that a slow moment is made up for.
        for place in range(sent, max(sent + 1, int(rate * now))):
            status = place % MANY * (FRAME // 4)
            if words[status] != AVAILABLE:
                break
            words[status] = SEND_REQUEST
            sent = place + 1
        try:
            wire.send(b"")
        except OSError:
            pass  # No room for now: the next turn sends them.
        time.sleep(0.002)
    print(sent)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(*arguments[:3], int(arguments[3]), float(arguments[4]), float(arguments[5]))
