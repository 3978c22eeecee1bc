"""Several servers behind one address of the gateway, and how they answer its health checks."""

import json
import select
import sys
from pathlib import Path

import wait
from host import stop
from topology import CLIENT, OUTSIDE, SERVER

PORT = 7000


def there(*sockets):
    """The one socket that something has come for."""
    ready, _, _ = select.select(sockets, [], [], 5)
    assert len(ready) == 1
    return ready[0]


def alive(near, far):
    near.sendall(b"asked")
    assert far.recv(100) == b"asked"
    far.sendall(b"answered")
    assert near.recv(100) == b"answered"


class Farm:
    """The two servers."""

    def __init__(self, net, addresses=(SERVER, CLIENT)):
        hosts = [net.server, net.client]
        listeners = [host.listen(7001, address) for host, address in zip(hosts, addresses)]
        self.listeners = dict(zip(["server", "client"], listeners))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for listener in self.listeners.values():
            listener.close()

    def connected(self, host, to=OUTSIDE, **options):
        """A connection by way of the gateway: its near end, its far end, and the server's name."""
        near = host.connect(to, PORT, **options)
        listener = there(*self.listeners.values())
        far, _ = listener.accept()
        far.settimeout(5)
        return near, far, next(name for name, known in self.listeners.items() if known is listener)

    def served(self, host, times, to=OUTSIDE):
        """How many connections each server gets."""
        count = dict.fromkeys(self.listeners, 0)
        for _ in range(times):
            near, far, name = self.connected(host, to)
            near.close()
            far.close()
            count[name] += 1
        return count


class Answerer:
    """A server of HTTP that answers as it is told."""

    def __init__(self, host, address, port, certificate=()):
        self.host, self.address, self.port, self.certificate = host, address, port, certificate
        self.mode = host._logs / f"answerer-{host.name}-{address}-{port}"
        self.process = None
        self.begin()

    def begin(self):
        self.says("ok")
        program = Path(__file__).with_name("answerer.py")
        words = [sys.executable, program, self.address, self.port, self.mode, *self.certificate]
        self.process = self.host.start(*words, log="answerer")
        wait.until(self.listens, f"{self.address} listens")

    def listens(self):
        assert self.process.poll() is None, self.process.log.read_text()
        host = f"[{self.address}]" if ":" in self.address else self.address
        words = ["ss", "-Hltn", "src", f"{host}:{self.port}"]
        return self.host.run(*words).stdout.strip()

    def says(self, mode):
        # Whole at once: it is read at each request.
        new = self.mode.with_name(self.mode.name + ".new")
        new.write_text(mode)
        new.rename(self.mode)

    def end(self):
        stop(self.process)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def servers(net, nat="farm"):
    """What the gateway says of each server, by its address."""
    told = json.loads(net.office.ask("status", "--json").stdout)["servers"]
    return {view["server"].rsplit(":", 1)[0].strip("[]"): view for view in told if view["nat"] == nat}


def becomes(net, address, state, deadline=10.0, nat="farm"):
    """Waits until a server is of a state, and returns what the gateway says of it."""
    wait.until(lambda: servers(net, nat)[address]["state"] == state, f"{address} is {state}", deadline)
    return servers(net, nat)[address]
