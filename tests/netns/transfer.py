"""Much data over one connection, compared byte for byte."""

import hashlib
import random
import select

from host import TIMEOUT

PATTERN = random.Random(1).randbytes(1 << 20)
"""What is sent, again and again: no two packets alike."""


class End:
    """One end of a connection: sends so many bytes, receives so many, both at once."""

    def __init__(self, socket, send, receive):
        self.socket = socket
        self.unsent = send
        self.missing = receive
        self._at = 0
        self.sent = hashlib.sha256()
        self.received = hashlib.sha256()
        socket.setblocking(False)

    def work(self, readable, writable):
        if writable and self.unsent:
            part = PATTERN[self._at : self._at + min(1 << 17, self.unsent)]
            count = self.socket.send(part)
            self.sent.update(part[:count])
            self._at = (self._at + count) % len(PATTERN)
            self.unsent -= count
        if readable and self.missing:
            data = self.socket.recv(1 << 18)
            assert data, f"the connection ended {self.missing} bytes too early"
            self.received.update(data)
            self.missing -= len(data)


def transfer(client, server, to, port, upload=0, download=0):
    """A connection from `client` to where `server` listens, so many bytes each way. Fails where none moves any more."""
    with server.listen(port, v6=":" in to) as listener, client.connect(to, port) as here:
        there, _ = listener.accept()
        with there:
            exchange(here, there, upload, download)


def exchange(here, there, upload, download):
    """Moves bytes both ways over a connection that is there, and compares what came with what was sent."""
    ends = {each.socket: each for each in [End(here, upload, download), End(there, download, upload)]}
    while any(end.unsent or end.missing for end in ends.values()):
        reading = [end.socket for end in ends.values() if end.missing]
        writing = [end.socket for end in ends.values() if end.unsent]
        readable, writable, _ = select.select(reading, writing, [], 2 * TIMEOUT)
        left = [(end.unsent, end.missing) for end in ends.values()]
        assert readable or writable, f"nothing moves any more; bytes unsent and missing: {left}"
        for socket in {*readable, *writable}:
            ends[socket].work(socket in readable, socket in writable)
    one, other = ends.values()
    assert one.sent.digest() == other.received.digest(), "what came is not what was sent"
    assert other.sent.digest() == one.received.digest(), "what came is not what was sent"
    for end in ends.values():
        end.socket.settimeout(TIMEOUT)
