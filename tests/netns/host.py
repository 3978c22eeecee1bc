"""A host: one network namespace, the programs that run in it, and sockets opened in it.

Sockets are the test's own: a socket opened inside a namespace stays there, so a test holds both ends of a connection
and needs no threads. All have a timeout, so that what does not arrive fails the test and does not hang it.
"""

import os
import re
import socket
import subprocess

import wait
from isolation import die_with_parent, inside
from packet import PACKET_AUXDATA, SO_TIMESTAMPNS, SOL_PACKET

TIMEOUT = 5.0
"""Seconds that a socket waits for what should come."""

SO_RCVBUFFORCE = 33
ETH_P_ALL = 3
PACKET_IGNORE_OUTGOING = 23


class Failed(AssertionError):
    """A program that should have succeeded did not."""


class Pinged:
    """Whether a ping was answered. A test that fails shows what it said."""

    def __init__(self, answered, said):
        self._answered = answered
        self._said = said

    def __bool__(self):
        return self._answered

    def __repr__(self):
        return self._said


class Host:
    """A network namespace, deleted with `close`."""

    def __init__(self, namespace, logs):
        self.namespace = namespace
        self.name = namespace.rsplit("-", 1)[-1]
        self._logs = logs
        self._started = []
        self._gathered = None
        subprocess.run(["ip", "netns", "add", namespace], check=True)
        self.sysctl(
            {
                # Nothing waits for duplicates, asks for routers, or holds errors back: tests would depend on
                # when they run.
                "net/ipv6/conf/all/accept_dad": 0,
                "net/ipv6/conf/default/accept_dad": 0,
                "net/ipv6/conf/default/router_solicitations": 0,
                "net/ipv4/conf/all/rp_filter": 0,
                "net/ipv4/conf/default/rp_filter": 0,
                "net/ipv4/icmp_ratelimit": 0,
                "net/ipv6/icmp/ratelimit": 0,
                # One for all namespaces on older kernels, and then not ours to change.
                "net/ipv4/icmp_msgs_per_sec": 1_000_000,
                "net/ipv4/icmp_msgs_burst": 1_000_000,
            }
        )
        self.ip("link set lo up")

    def __repr__(self):
        return self.name

    # ---- Programs

    def run(self, *command, check=True, timeout=30.0, **options):
        """Runs a program to its end. What it printed is in `stdout`, both streams together."""
        words = [str(word) for word in command]
        done = subprocess.run(
            ["ip", "netns", "exec", self.namespace, *words],
            stdin=options.pop("stdin", subprocess.DEVNULL) if "input" not in options else None,
            stdout=subprocess.PIPE,
            stderr=options.pop("stderr", subprocess.STDOUT),
            text=True,
            timeout=timeout,
            preexec_fn=die_with_parent,
            **options,
        )
        if check and done.returncode != 0:
            raise Failed(f"{self}: {' '.join(words)} ended with {done.returncode}:\n{done.stdout}")
        return done

    def start(self, *command, log=None):
        """Starts a program in the background. It is killed with the host; its output is in `logs/HOST.LOG.log`."""
        words = [str(word) for word in command]
        path = self._logs / f"{self.name}.{log or os.path.basename(words[0])}.log"
        with open(path, "ab") as output:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self.namespace, *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for the tests, which then end it in good order.
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        process.log = path
        self._started.append(process)
        return process

    def ip(self, *lines):
        """`ip` commands, one a line."""
        words = [line.strip() for block in lines for line in block.splitlines() if line.strip()]
        if self._gathered is not None:
            self._gathered += words
            return
        done = subprocess.run(
            ["ip", "-n", self.namespace, "-batch", "-"],
            input="\n".join(words) + "\n",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise Failed(f"{self}: ip failed:\n{done.stdout}\n" + "\n".join(words))

    def gather(self):
        """Keeps `ip` commands until `settle`, which runs them all at once: each program takes its time to start."""
        self._gathered = []

    def settle(self):
        gathered, self._gathered = self._gathered, None
        self.ip(*gathered)

    def sysctl(self, settings):
        """Settings below /proc/sys. One that this kernel lacks, or that belongs to the machine, is left alone."""
        with inside(self.namespace):
            for path, value in settings.items():
                try:
                    with open(f"/proc/sys/{path}", "w", encoding="ascii") as file:
                        file.write(str(value))
                except (FileNotFoundError, PermissionError):
                    pass

    def close(self):
        for process in self._started:
            stop(process)
        self._started.clear()
        subprocess.run(["ip", "netns", "del", self.namespace], check=False)

    # ---- Sockets

    def open(self, family, kind, protocol=0):
        with inside(self.namespace):
            opened = socket.socket(family, kind, protocol)
        opened.settimeout(TIMEOUT)
        return opened

    def tcp(self, address=None, port=0):
        """A TCP socket, bound where an address or port is given."""
        return self._bound(socket.SOCK_STREAM, address, port, ":" in (address or ""))

    def udp(self, address=None, port=0, v6=False):
        """A UDP socket, bound."""
        return self._bound(socket.SOCK_DGRAM, address, port, v6 or ":" in (address or ""))

    def listen(self, port, address=None, v6=False):
        """A TCP socket that listens."""
        opened = self._bound(socket.SOCK_STREAM, address, port, v6 or ":" in (address or ""))
        opened.listen(128)
        return opened

    def listens(self, port):
        """True if some program waits for TCP connections at this port."""
        return f":{port} " in self.run("ss", "-Hltn").stdout

    def connect(self, to, port, source=None, sport=0, timeout=TIMEOUT):
        """A TCP connection."""
        v6 = ":" in to
        opened = self._bound(socket.SOCK_STREAM, source, sport, v6)
        opened.settimeout(timeout)
        try:
            opened.connect((to, port))
        except BaseException:
            opened.close()
            raise
        opened.settimeout(TIMEOUT)
        return opened

    def sniff(self, interface, kind=ETH_P_ALL, room=1 << 22):
        """What passes an interface, either way, from now on, as much as fits `room` bytes: see `packet.drain`."""
        opened = self.open(socket.AF_PACKET, socket.SOCK_RAW, 0)
        opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, room)
        opened.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        opened.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        opened.bind((interface, kind))
        return opened

    def wire(self, interface):
        """A socket that sends frames by an interface as they are, and receives what comes in by it."""
        opened = self.sniff(interface)
        opened.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        return opened

    def _bound(self, kind, address, port, v6):
        opened = self.open(socket.AF_INET6 if v6 else socket.AF_INET, kind)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if address or port:
            opened.bind((address or ("::" if v6 else "0.0.0.0"), port))
        return opened

    # ---- What tests ask of hosts

    def ping(self, to, *options, count=1, wait=1):
        """Whether each of `count` echo requests was answered within `wait` seconds."""
        for _ in range(count):
            # One at a time: of several, ping waits for the last no longer than the others took.
            done = self.run("ping", "-n", "-q", "-c", 1, "-W", wait, *options, to, check=False)
            if done.returncode != 0:
                return Pinged(False, done.stdout)
        return Pinged(True, done.stdout)

    def reaches(self, to, deadline=10.0):
        """Waits until a host answers to echo requests."""
        wait.until(lambda: self.ping(to), f"{self} reaches {to}", deadline)

    def mac(self, interface="eth0"):
        return re.search(r"link/ether ([0-9a-f:]+)", self.run("ip", "link", "show", interface).stdout)[1]

    def neighbour(self, address):
        """The link-layer address that this host has of a neighbour, or None."""
        found = re.search(r"lladdr ([0-9a-f:]+)", self.run("ip", "neigh", "show", address).stdout)
        return found and found[1]

    def forget_paths(self):
        """Forgets what path MTU and redirects taught."""
        self.run("ip", "route", "flush", "cache")
        self.run("ip", "-6", "route", "flush", "cache")


def stop(process, by=None, patience=5.0):
    """Ends a process that was started, and waits for it."""
    if process.poll() is not None:
        return
    process.send_signal(by) if by else process.terminate()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
