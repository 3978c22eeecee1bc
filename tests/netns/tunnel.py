#!/usr/bin/python3
"""A link without Ethernet between two namespaces: the TUN device NAME in each, and what one sends the other receives.

usage: tunnel.py NAME NAMESPACE NAMESPACE

The program prints `ready` once both devices are there; they go when the program ends. Each packet is shown in its own
bytes, so that a device that was given anything but IP packets shows as an error.
"""

import fcntl
import os
import select
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from isolation import inside  # noqa: E402

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000


def device(name, namespace):
    with inside(namespace):
        tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return tun


def main(name, *namespaces):
    ends = [device(name, namespace) for namespace in namespaces]
    other = dict(zip(ends, reversed(ends)))
    print("ready", flush=True)
    poll = select.poll()
    for end in ends:
        poll.register(end, select.POLLIN)
    while True:
        for end, _ in poll.poll():
            try:
                for _ in range(64):
                    packet = os.read(end, 65536)
                    if packet[0] >> 4 not in (4, 6):
                        print("no IP packet:", packet[:20].hex(), flush=True)
                    os.write(other[end], packet)
            except OSError:
                # Nothing more to read, or a device that is down for now: packets are lost on it, as on any link.
                pass


if __name__ == "__main__":
    main(*sys.argv[1:])
