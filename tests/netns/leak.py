"""A flood of packets that the policy drops and Linux would forward, and counters at the hosts that they are for.

Both floods go at once: from the street to the client, and from the client to the street. Each packet that arrives has leaked.
"""

import ctypes
import socket
import struct
import sys
import time
from pathlib import Path

import wait
from host import stop
from packet import SYN, TCP, UDP, ethernet, ipv4, tcp, udp
from topology import CARDS, CLIENT, REMOTE

INWARD, OUTWARD = 9999, 25
"""Destination ports: of datagrams to the client, of SYNs to the street. The policy lets neither through."""

SO_ATTACH_FILTER = 26
RATE = 1000


class Counter:
    """Counts IPv4 packets of a protocol to a port that an interface receives or sends, from now on."""

    def __init__(self, host, interface, protocol, dport):
        self._socket = host.open(socket.AF_PACKET, socket.SOCK_RAW, 0)
        # Ethernet type, protocol and destination port of a packet without IP options; all else is not seen.
        steps = [
            (0x28, 0, 0, 12), (0x15, 0, 5, 0x0800), (0x30, 0, 0, 23), (0x15, 0, 3, protocol),
            (0x28, 0, 0, 36), (0x15, 0, 1, dport), (0x06, 0, 0, 64), (0x06, 0, 0, 0),
        ]  # fmt: skip
        code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
        program = struct.pack("HL", len(steps), ctypes.addressof(code))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
        self._socket.bind((interface, 3))
        self._socket.setblocking(False)
        self._count = 0

    def count(self):
        while True:
            try:
                self._socket.recv(64)
            except BlockingIOError:
                return self._count
            self._count += 1

    def close(self):
        self._socket.close()


class Leak:
    """The floods, for as long as this is open, and what has leaked of them."""

    def __init__(self, net):
        self.net = net
        self._floods = [
            net.router.start("/usr/bin/python3", Path(__file__), "wan", "inward", log="flood"),
            net.client.start("/usr/bin/python3", Path(__file__), "eth0", "outward", log="flood"),
        ]
        self._sent = [
            Counter(net.router, "wan", UDP, INWARD),
            Counter(net.client, "eth0", TCP, OUTWARD),
        ]
        self._leaked = [
            Counter(net.client, "eth0", UDP, INWARD),
            Counter(net.router, "wan", TCP, OUTWARD),
        ]
        self.flows()

    def leaked(self):
        """How many packets have arrived, of each flood."""
        return [counter.count() for counter in self._leaked]

    def flows(self, packets=100):
        """Waits until so many more packets of each flood have been sent."""
        before = [counter.count() for counter in self._sent]
        wait.until(
            lambda: all(now.count() >= then + packets for now, then in zip(self._sent, before)),
            "the floods go on",
        )

    def close(self):
        for flood in self._floods:
            stop(flood)
        for counter in [*self._sent, *self._leaked]:
            counter.close()


def flood(interface, direction):
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    wire.bind((interface, 0))
    begin, sent = time.monotonic(), 0
    while True:
        for _ in range(max(1, int(RATE * (time.monotonic() - begin)) - sent)):
            sport = 1024 + sent % 50_000
            if direction == "inward":
                packet = ipv4(REMOTE, CLIENT, UDP, udp(REMOTE, CLIENT, sport, INWARD, b"leak"))
                card = CARDS["wan"]
            else:
                packet = ipv4(CLIENT, REMOTE, TCP, tcp(CLIENT, REMOTE, sport, OUTWARD, SYN))
                card = CARDS["lan"]
            try:
                wire.send(ethernet(card, "02:00:00:00:f1:00", packet))
            except OSError:
                pass  # No room for now.
            sent += 1
        time.sleep(0.001)


if __name__ == "__main__":
    flood(*sys.argv[1:])
