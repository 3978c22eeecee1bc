"""Times at which packets came, by the kernel's stamps."""

import socket
import struct

SO_TIMESTAMPNS = 35

CLOCK = 0.0005
"""Seconds by which clocks may differ that are read one after the other, and what a link may send at once is less than."""


def opened(host, address, port):
    """A UDP socket whose packets are stamped."""
    made = host.udp(address, port)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    made.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    made.settimeout(5)
    return made


def receive(opened, count):
    """Moments at which so many packets came."""
    moments = []
    for _ in range(count):
        _, control, *_ = opened.recvmsg(2048, 64)
        stamp = next(value for _, kind, value in control if kind == SO_TIMESTAMPNS)
        seconds, nanoseconds = struct.unpack("qq", stamp)
        moments.append(seconds + nanoseconds / 1e9)
    return moments


def none_is_early(moments, began, gap):
    """Holds packets to the moments at which they are due, of a queue that was empty at `began`. A machine that is busy makes them
    late, and none early; what leaves in clumps, or too fast, is early."""
    for number, moment in enumerate(moments):
        due = began + number * gap
        assert moment >= due - CLOCK, f"packet {number} came {(due - moment) * 1e3:.2f} ms early"
