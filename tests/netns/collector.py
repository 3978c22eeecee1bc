"""IPFIX collectors in a host: nfcapd, whose records nfdump reads; a relay from TCP to it, which keeps messages; and one that counts."""

import itertools
import json
import select
import shutil
import socket
import struct
import sys
import threading
from pathlib import Path

import host
import wait
from count_records import Counts

_numbers = itertools.count(1)

PORT = 4739


class Nfcapd:
    """nfcapd, which takes IPFIX over UDP. `records` ends it, and returns what it has received."""

    def __init__(self, where, logs, port=PORT, v6=False):
        self.where, self.port = where, port
        self.directory = logs / f"nfcapd-{next(_numbers)}"
        self.directory.mkdir()
        self.log = f"nfcapd-{next(_numbers)}"
        options = ("-6",) if v6 else ()
        self.process = where.start(
            "nfcapd", "-w", self.directory, "-p", port, "-B", 8 << 20, "-t", 3600, *options, log=self.log
        )
        wait.until(lambda: listens(where, port), "nfcapd listens")

    def stop(self):
        host.stop(self.process)

    def said(self):
        return self.process.log.read_text(errors="replace")

    def records(self):
        self.stop()
        found = []
        for path in sorted(self.directory.glob("nfcapd.2*")):
            text = self.where.run("nfdump", "-q", "-r", path, "-o", "json").stdout
            # Objects with commas between them, and brackets around all in some versions.
            objects = "[" + text.strip().strip("[],\n") + "]"
            found += json.loads(objects)
        return found


def listens(where, port):
    return f":{port} " in where.run("ss", "-Hlun").stdout


class Messages:
    """A collector over TCP that keeps messages, and passes them on to a port of UDP of the same host, such as nfcapd's."""

    def __init__(self, where, port=PORT, onward=None):
        self.listener = where.listen(port)
        self.listener.settimeout(None)
        self.onward = where.udp() if onward else None
        self.to = ("127.0.0.1", onward)
        self.messages = []
        self.connection = None
        self.connections = 0
        self._ends, self._end = socket.socketpair()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self):
        buffer = b""
        while True:
            ready, _, _ = select.select([self._ends, self.connection or self.listener], [], [])
            if self._ends in ready:
                return
            if self.connection is None:
                self.connection, _ = self.listener.accept()
                self.connections += 1
                buffer = b""
                continue
            data = self.connection.recv(1 << 16)
            if not data:
                self.connection.close()
                self.connection = None
                continue
            buffer += data
            while len(buffer) >= 4:
                version, length = struct.unpack_from("!HH", buffer)
                assert version == 10, buffer[:16]
                if len(buffer) < length:
                    break
                self.messages.append(buffer[:length])
                if self.onward:
                    self.onward.sendto(buffer[:length], self.to)
                buffer = buffer[length:]

    def close(self):
        self._end.send(b".")
        self._thread.join()
        for opened in (self.connection, self.listener, self.onward, self._ends, self._end):
            if opened:
                opened.close()

    def keep(self, path):
        """Writes the messages to a file, in the form of RFC 5655, which the stream has, too."""
        path.write_bytes(b"".join(self.messages))
        return path


class Counting:
    """A collector that counts (`count_records.py`); `counts` are its numbers, also when it is gone."""

    PROGRAM = Path(__file__).with_name("count_records.py")

    def __init__(self, where, logs, transport, address, port=PORT, room=8 << 20):
        self.where, self.transport, self.port = where, transport, port
        self.path = logs / f"counting-{next(_numbers)}"
        self.counts = Counts(self.path)
        self.words = [transport, address, port, self.path, room]
        self.begin()

    def begin(self):
        self.process = self.where.start(sys.executable, self.PROGRAM, *self.words, log=self.path.name)
        wait.until(self.is_there, "the collector listens")

    def is_there(self):
        assert self.process.poll() is None, self.process.log.read_text()
        return self.where.listens(self.port) if self.transport == "tcp" else listens(self.where, self.port)

    def kill(self):
        """At once, whatever it has not read."""
        self.process.kill()
        self.process.wait()


def missing():
    return [tool for tool in ("nfcapd", "nfdump") if not shutil.which(tool)]
