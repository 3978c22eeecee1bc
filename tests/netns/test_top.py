"""`wirerate top`: on a screen, on a terminal that has no size, and where its output is no terminal."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

import pytest
from gateway import binary
from topology import REMOTE

pytestmark = pytest.mark.without("nftables", why="Linux has no top")


def on_terminal(net, rows, columns, keys=b"", seconds=None):
    """What `top` writes to a terminal of that size, and its exit code. `keys` are pressed after two seconds."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    inside = ["ip", "netns", "exec", net.office.host.namespace]
    words = [*inside, binary(), "top", "--socket", net.office.socket, "--interval", "0.2"]
    words += ["--seconds", seconds] if seconds else []
    environment = {**os.environ, "TERM": "xterm"}
    top = subprocess.Popen([str(word) for word in words], stdin=slave, stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    written, end, pressed = b"", time.monotonic() + 15, False
    try:
        while time.monotonic() < end:
            if keys and not pressed and time.monotonic() > end - 13:
                os.write(master, keys)
                pressed = True
            if select.select([master], [], [], 0.1)[0]:
                try:
                    some = os.read(master, 65_536)
                except OSError:
                    # Its other end is closed: it has ended.
                    break
                written += some
        code = top.wait(5)
    finally:
        top.kill()
        os.close(master)
    return written.decode(errors="replace"), code


@pytest.mark.parametrize("key", [b"q", b"\x03"], ids=["q", "ctrl-c"])
def test_a_screen_shows_ports_and_rules_until_a_key_is_pressed(net, key):
    net.client.reaches(REMOTE)
    written, code = on_terminal(net, 40, 120, keys=key)
    assert code == 0
    words = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", " ", written)
    for word in ["wirerate", "lan", "wan", "received", "q ends"]:
        assert word in words, words
    # The terminal is as it was: the other screen is left, and the cursor is back.
    assert written.rindex("\x1b[?1049l") > written.rindex("\x1b[?1049h")
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")


def test_a_terminal_without_a_size_gets_lines(net):
    written, code = on_terminal(net, 0, 0, seconds=2)
    assert code == 0
    assert "\x1b[?1049h" not in written
    assert sum("received" in line for line in written.splitlines()) > 2, written


def test_a_pipe_gets_lines(net):
    told = net.office.ask("top", "--interval", "0.2", "--seconds", "1").stdout
    assert sum("received" in line for line in told.splitlines()) > 2, told


def test_the_tabulator_shows_queues(net):
    net.office.apply("queues")
    try:
        written, code = on_terminal(net, 40, 160, keys=b"\t", seconds=5)
    finally:
        net.office.apply()
    assert code == 0
    words = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", " ", written)
    for word in ["tab shows", "rest", "voice", "downlink", "waiting", "p99"]:
        assert word in words, words
