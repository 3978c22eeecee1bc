"""What users of the machine may do to the gateway, by mistake or not: noise on its socket, too many connections, another
user, policies that are too large or wrong. Packets go on meanwhile, and it says what is wrong.
"""

import json
import os
import random
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import wait
from gateway import binary
from topology import CLIENT, GATEWAY, REMOTE

pytestmark = pytest.mark.without("nftables", why="Linux has no process that takes questions")

NOBODY = 65534

MEMORY = 64 << 20
"""Bytes that the process may take more than before, whatever is done to its socket."""


@pytest.fixture(autouse=True)
def as_before(net):
    yield
    if net.office.alive():
        net.office.apply()


def resident(net):
    """Bytes of memory that the gateway's process has."""
    with open(f"/proc/{net.office.process.pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def at_most(net):
    """The most memory that the gateway's process has had, in bytes."""
    with open(f"/proc/{net.office.process.pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))


class Stream:
    """Datagrams from the client to the world, one every 2 ms, and what of them arrived."""

    def __init__(self, net):
        self.sent = 0
        self.came = set()
        self.longest = 0.0
        self._over = False
        self._sender = net.client.udp(CLIENT, 4850)
        self._receiver = net.remote.udp(port=5001)
        self._receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self._receiver.settimeout(2)
        self._threads = [threading.Thread(target=each) for each in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()

    def _send(self):
        while not self._over:
            self._sender.sendto(struct.pack("!I", self.sent), (REMOTE, 5001))
            self.sent += 1
            time.sleep(0.002)

    def _receive(self):
        last = time.monotonic()
        while True:
            try:
                data = self._receiver.recv(100)
            except socket.timeout:
                return
            now = time.monotonic()
            self.longest, last = max(self.longest, now - last), now
            self.came.add(struct.unpack("!I", data)[0])

    def end(self):
        self._over = True
        for thread in self._threads:
            thread.join()
        self._sender.close()
        self._receiver.close()


@contextmanager
def no_loss(net):
    """Around what must not disturb a flow: none of its datagrams is lost."""
    # What arrives is evidence enough, and keeping it twice would take time from the gateway.
    net.unwatch()
    stream = Stream(net)
    wait.until(lambda: stream.came, "the stream flows")
    try:
        yield
    finally:
        stream.end()
    lost = stream.sent - len(stream.came)
    print(f"{stream.sent} datagrams, {lost} lost, the longest gap {1000 * stream.longest:.0f} ms")
    assert lost == 0, f"{lost} of {stream.sent} datagrams were lost"


def call(net):
    """A connection to the gateway's socket."""
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    opened.settimeout(5)
    opened.connect(str(net.office.socket))
    return opened


def test_noise_on_the_socket(net):
    """Thousands of connections that say something, or half of it, and go: no flow notices, no memory is kept."""
    dice = random.Random(7)
    words = [b"GET /status", b"POST /apply", b" HTTP/1.1\r\n", b"host: g\r\n", b"content-length: 99999999\r\n", b"\r\n"]
    words += [b"transfer-encoding: chunked\r\n", b"\0" * 100, b"5\r\n", b"[interface.lan]\n", b"/flows?limit=1"]
    net.office.answers()
    before = resident(net)
    with no_loss(net):
        for number in range(3000):
            said = b"".join(dice.choice(words) for _ in range(dice.randrange(8)))
            if number % 3 == 0:
                said = dice.randbytes(dice.randrange(200))
            with call(net) as connection:
                try:
                    connection.sendall(said)
                    if number % 5 == 0:
                        connection.shutdown(socket.SHUT_WR)
                        connection.recv(1000)
                except OSError:
                    # It may hang up on us at any time.
                    pass
            if number % 500 == 0:
                assert net.office.answers()
        assert net.office.answers()
    assert resident(net) - before < MEMORY


def test_a_thousand_connections(net):
    """Who asks in order is answered meanwhile, without waiting for any of them."""
    net.office.answers()
    before = resident(net)
    connections = []
    try:
        with no_loss(net):
            for number in range(1000):
                connections.append(call(net))
                if number % 2:
                    connections[-1].sendall(b"GET /status HTTP/1.1\r\nhost:")
            for _ in range(10):
                assert net.office.answers()
            assert resident(net) - before < MEMORY
            open_files = len(os.listdir(f"/proc/{net.office.process.pid}/fd"))
            assert open_files < 600, open_files
    finally:
        for connection in connections:
            connection.close()
    assert net.office.answers()


def test_another_user_may_not_ask(net):
    """Nor where the mode of the socket was changed. The command says who may."""
    net.logs.chmod(0o711)
    words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", binary()]

    def ask(*question):
        asked = [*words, *question, "--socket", net.office.socket]
        return net.gateway.run(*asked, check=False)

    try:
        runs = net.gateway.run(*words, "--version", check=False)
        if runs.returncode != 0:
            pytest.skip(f"another user cannot run {binary()}: {runs.stdout.strip()}")
        assert net.office.socket.stat().st_mode & 0o777 == 0o600
        for question in [["status"], ["flows", "kill", "--port", "1"], ["confirm"]]:
            done = ask(*question)
            assert done.returncode == 4, done.stdout
            assert "Permission denied" in done.stdout, done.stdout
            assert "as root" in done.stdout, done.stdout
        net.office.socket.chmod(0o666)
        for question in [["status"], ["flows", "kill", "--port", "1"], ["confirm"]]:
            done = ask(*question)
            assert done.returncode == 1, done.stdout
            assert f"takes no questions from user {NOBODY}" in done.stdout, done.stdout
            assert "as root" in done.stdout, done.stdout
    finally:
        net.office.socket.chmod(0o600)
        net.logs.chmod(0o700)
    assert net.office.answers()


def test_another_gateway_is_not_shut_out(net):
    """A second one at the same socket is refused, and the first one keeps it."""
    words = [binary(), "run", net.office.policy, "--socket", net.office.socket, "--no-state"]
    done = net.gateway.run(*words, check=False, timeout=20)
    assert done.returncode != 0
    assert f"another gateway takes commands at {net.office.socket}" in done.stdout, done.stdout
    assert "stop that one first" in done.stdout and "run it as root" not in done.stdout, done.stdout
    assert net.office.answers()
    assert net.client.ping(REMOTE)


def rules(count):
    """So many rules, as text."""
    rule = '[[rule]]\nname = "made-{0}"\nfrom = "lan"\nto = "wan"\ndestination = "11.{1}.{2}.{3}"\naction = "drop"\n'
    return "".join(rule.format(each, each >> 16, each >> 8 & 255, each & 255) for each in range(count))


def addresses(count):
    """A set of so many addresses that are no neighbours, and a rule that names it."""
    listed = "".join(f'"{11 + (each >> 22)}.{each >> 14 & 255}.{each >> 6 & 255}.{4 * (each & 63)}",\n' for each in range(count))
    rule = '[[rule]]\nname = "many"\nfrom = "lan"\nto = "wan"\ndestination = "@many"\naction = "drop"\n'
    return f"many = [\n{listed}]\n", rule


def write_large(net, name, kind, megabytes):
    """The policy in force with so many more bytes of rules, of addresses or of faults."""
    text = net.office.policy.read_text()
    path = net.logs / f"{name}.toml"
    if kind == "addresses":
        listed, rule = addresses(megabytes * 1_000_000 // 17)
        text = text.replace("[set]\n", f"[set]\n{listed}") + rule
    else:
        more = rules(megabytes * 1_000_000 // 98)
        text += more.replace('"drop"', '"dorp"') if kind == "faults" else more
    path.write_text(text)
    return path


@pytest.mark.longest(400)
@pytest.mark.parametrize("kind", ["addresses", "rules"])
def test_a_policy_of_fifty_megabytes(net, kind):
    """It is carried out, or refused in words; either takes bounded time and memory, and no datagram is lost. So does going
    back."""
    path = write_large(net, "large", kind, 50)
    assert 45 << 20 < path.stat().st_size < 60 << 20
    with no_loss(net), ThreadPoolExecutor(1) as pool:
        begin = time.monotonic()
        asked = pool.submit(net.office.ask, "apply", path, check=False, timeout=300)
        waited = 0.0
        while not asked.done():
            each = time.monotonic()
            assert net.office.answers()
            waited = max(waited, time.monotonic() - each)
            time.sleep(0.1)
        done = asked.result()
        print(f"others waited for an answer at most {waited:.1f} s")
        print(f"{kind}: exit code {done.returncode} after {time.monotonic() - begin:.1f} s", done.stdout[-300:])
        print(f"{at_most(net) >> 20} MiB at most, {resident(net) >> 20} MiB now")
        assert done.returncode in (0, 1), done.stdout[-1000:]
        assert ("in force" if done.returncode == 0 else "MiB") in done.stdout, done.stdout[-1000:]
        assert net.office.answers()
    assert at_most(net) < 6 << 30
    with no_loss(net):
        net.office.write()
        net.office.ask("apply", net.office.policy, timeout=300)
    path.unlink()


def test_a_policy_that_is_too_large(net):
    """The limit is in the words."""
    path = write_large(net, "too-large", "rules", 70)
    with no_loss(net):
        done = net.office.ask("apply", path, check=False, timeout=60)
    assert done.returncode == 1, done.stdout[-1000:]
    assert "longer than 64 MiB" in done.stdout, done.stdout[-1000:]
    path.unlink()


def test_a_policy_of_many_megabytes_of_faults(net):
    """So many are shown that one can begin with, and how many more there are."""
    path = write_large(net, "faulty", "faults", 10)
    with no_loss(net):
        done = net.office.ask("apply", path, check=False, timeout=80)
    assert done.returncode == 1, done.stdout[-1000:]
    assert "more, not shown" in done.stdout, done.stdout[-1000:]
    assert len(done.stdout) < 1 << 20
    path.unlink()


def test_a_policy_file_with_a_fault_changes_nothing_on_sighup(net):
    """The log says what is wrong; the policy in force stays, and the next reload is as good as ever."""
    before = net.office.ask("rules").stdout
    said = len(net.office.log())
    for text, word in [("this is no policy", "line 1: "), ('[interface.lan]\nzone = "lan"\nmtu = "big"\n', "line 3: ")]:
        net.office.policy.write_text(text)
        net.office.process.send_signal(1)
        wait.until(lambda: word in net.office.log()[said:], "the log says what is wrong")
        assert "the policy in force stays" in net.office.log()[said:]
        said = len(net.office.log())
    net.office.policy.unlink()
    net.office.process.send_signal(1)
    wait.until(lambda: "the policy in force stays" in net.office.log()[said:], "the log says what is wrong")
    assert net.office.ask("rules").stdout == before
    assert net.client.ping(REMOTE)
    epoch = status(net)["epoch"]
    net.office.write("no-chat")
    net.office.process.send_signal(1)
    wait.until(lambda: status(net)["epoch"] > epoch, "the next policy is in force")
    assert "no-chat" in net.office.ask("rules").stdout


def status(net):
    return json.loads(net.office.ask("status", "--json").stdout)


def test_one_trial_at_a_time(net):
    """Another policy while one is on trial is refused, with what to do; so is what takes a restart."""
    net.office.apply("no-chat", confirm="60s")
    net.office.write()
    done = net.office.ask("apply", net.office.policy, check=False)
    assert done.returncode == 1
    assert "another policy is on trial" in done.stdout, done.stdout
    assert "wirerate confirm" in done.stdout, done.stdout
    assert "no-chat" in net.office.ask("rules").stdout
    net.office.ask("rollback")
    wait.until(lambda: "no-chat" not in net.office.ask("rules").stdout, "the policy of before is back")
    for command in ["confirm", "rollback"]:
        done = net.office.ask(command, check=False)
        assert done.returncode == 1
        assert "no policy is on trial" in done.stdout, done.stdout
    net.office.write("two-workers")
    done = net.office.ask("apply", net.office.policy, check=False)
    assert done.returncode == 1
    assert "restart it" in done.stdout, done.stdout
    assert net.client.ping(GATEWAY)
