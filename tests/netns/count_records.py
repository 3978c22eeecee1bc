#!/usr/bin/python3
"""A collector of IPFIX that counts: what has come, and by sequence numbers what has not (RFC 7011, section 3.1).

usage: count_records.py udp|tcp ADDRESS PORT FILE [ROOM]

The counts are in FILE all the time (`Counts`), and outlive a `kill -9`: one that is started again with the same file goes on. ROOM is the
receive buffer in bytes.
"""

import json
import mmap
import os
import socket
import struct
import sys
from pathlib import Path

SO_RCVBUFFORCE = 33
VARIABLE = 65_535
PACKETS, NAT_EVENT = 2, 230
"""Elements: packetDeltaCount, natEvent."""
EXPORTED, NOT_SENT = 42, 166
"""Elements: exportedFlowRecordTotalCount, notSentFlowTotalCount."""


class Counts:
    """Numbers in a file."""

    NAMES = [
        "messages",  # messages
        "flows",  # flow records
        "events",  # NAT events
        "packets",  # packets of the flow records
        "own",  # records of options: the exporter's own
        "missing",  # data records that sequence numbers tell of, and that have not come
        "late",  # messages whose sequence numbers had been passed
        "unknown",  # sets without a template
        "sessions",  # transport sessions
        "exported",  # what the exporter last said that it has exported
        "not_sent",  # and that it has not
        "source",  # port of the session over UDP
        "expected",  # and the sequence number that is expected of it
    ]

    def __init__(self, path):
        size = 8 * len(self.NAMES)
        with open(os.open(path, os.O_RDWR | os.O_CREAT), "r+b") as file:
            file.truncate(size)
            self._memory = memoryview(mmap.mmap(file.fileno(), size)).cast("Q")

    def __getattr__(self, name):
        return self._memory[self.NAMES.index(name)]

    def add(self, name, value=1):
        self._memory[self.NAMES.index(name)] += value

    def put(self, name, value):
        self._memory[self.NAMES.index(name)] = value

    def all(self):
        return dict(zip(self.NAMES, self._memory))


class Template:
    """Places of elements in a data record."""

    def __init__(self, elements, is_options):
        self.elements, self.is_options = elements, is_options
        self.length = None if VARIABLE in dict(elements).values() else sum(length for _, length in elements)
        ids = [element for element, _ in elements]
        self.is_event = NAT_EVENT in ids
        if self.length and PACKETS in ids:
            before = sum(length for _, length in elements[: ids.index(PACKETS)])
            self.packets = struct.Struct(f"!{before}xQ{self.length - before - 8}x")

    def values(self, data, at):
        """Values of the record at a place, by element, and the place behind it."""
        found = {}
        for element, length in self.elements:
            if length == VARIABLE:
                length = data[at]
                at += 1
            found[element] = int.from_bytes(data[at : at + length], "big")
            at += length
        return found, at


class Session:
    """Reads messages, one after the other."""

    def __init__(self, counts, known, expected=0):
        self.counts, self.known, self.expected = counts, known, expected
        counts.add("sessions")

    def read(self, message):
        version, length, _, sequence, _ = struct.unpack_from("!HHIII", message)
        assert version == 10 and length == len(message), message[:16]
        ahead = (sequence - self.expected) % (1 << 32)
        if ahead < 1 << 31:
            self.counts.add("missing", ahead)
        else:
            self.counts.add("late")
        at, records = 16, 0
        while at < length:
            number, size = struct.unpack_from("!HH", message, at)
            data = message[at + 4 : at + size]
            at += size
            if number in (2, 3):
                self.define(data, number == 3)
            else:
                records += self.count(number, data)
        self.expected = (sequence + records) % (1 << 32)
        self.counts.add("messages")

    def define(self, data, is_options):
        at, before = 0, len(self.known.templates)
        while at < len(data):
            number, count = struct.unpack_from("!HH", data, at)
            at += 6 if is_options else 4
            elements = [struct.unpack_from("!HH", data, place) for place in range(at, at + 4 * count, 4)]
            at += 4 * count
            self.known.templates.setdefault(number, Template(elements, is_options))
        if len(self.known.templates) > before:
            self.known.keep()

    def count(self, number, data):
        """Number of data records of a set."""
        template = self.known.templates.get(number)
        if template is None:
            self.counts.add("unknown")
            return 0
        if template.is_options:
            at, records = 0, 0
            while at < len(data):
                found, at = template.values(data, at)
                records += 1
                for element, name in [(EXPORTED, "exported"), (NOT_SENT, "not_sent")]:
                    if element in found:
                        self.counts.put(name, found[element])
            self.counts.add("own", records)
            return records
        records, rest = divmod(len(data), template.length)
        assert rest == 0, (number, len(data))
        if template.is_event:
            self.counts.add("events", records)
        else:
            self.counts.add("flows", records)
            self.counts.add("packets", sum(packets for (packets,) in template.packets.iter_unpack(data)))
        return records


class Known:
    """Templates, in a file: one who starts again over UDP has to wait for them otherwise."""

    def __init__(self, path):
        self.path, self.templates = path, {}
        if path.exists():
            for number, (elements, is_options) in json.loads(path.read_text()).items():
                self.templates[int(number)] = Template([tuple(element) for element in elements], is_options)

    def keep(self):
        told = {number: (template.elements, template.is_options) for number, template in self.templates.items()}
        self.path.write_text(json.dumps(told))


def over_udp(at, room, counts, known):
    here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    here.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, room)
    here.bind(at)
    session = None
    while True:
        message, (_, port) = here.recvfrom(65_536)
        if session is None and port == counts.source:
            session = Session(counts, known, counts.expected)
        elif port != counts.source:
            session = Session(counts, known)
            counts.put("source", port)
        session.read(message)
        counts.put("expected", session.expected)


def over_tcp(at, room, counts, known):
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Its connections have the same.
    listener.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, room)
    listener.bind(at)
    listener.listen()
    while True:
        connection, _ = listener.accept()
        session, buffer = Session(counts, known), b""
        while True:
            try:
                data = connection.recv(1 << 18)
            except ConnectionResetError:
                break
            if not data:
                break
            buffer += data
            while len(buffer) >= 16 and len(buffer) >= (length := int.from_bytes(buffer[2:4], "big")):
                session.read(buffer[:length])
                buffer = buffer[length:]
        connection.close()


def main(transport, address, port, path, room=8 << 20):
    serve = {"udp": over_udp, "tcp": over_tcp}[transport]
    serve((address, int(port)), int(room), Counts(path), Known(Path(f"{path}.templates")))


if __name__ == "__main__":
    main(*sys.argv[1:])
