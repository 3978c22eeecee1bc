"""An end of a PPTP call in the place of pppd, for a kernel without PPP: frames in asynchronous HDLC (RFC 1662) on a terminal.

`pptp.py echo` is what pptpd starts for each call: it sends each frame back, marked. `pptp.py call SERVER` calls by pptp, says `up` or `down`, and answers each line
of its standard input: `N` has that many frames sent, and the number of those that have come back is printed; an empty line or the end hangs up.
"""

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
import tty

FLAG, ESCAPE = 0x7E, 0x7D
# Address, control, and a protocol number that is nobody's.
HEADER = b"\xff\x03\x40\x01"
MARK = b"echo "
READY = b"ready"


def fcs(data):
    """Frame check sequence of 16 bits (RFC 1662, appendix C.2)."""
    value = 0xFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x8408 if value & 1 else 0)
    return (value ^ 0xFFFF).to_bytes(2, "little")


def framed(payload):
    text = HEADER + payload
    escaped = bytearray([FLAG])
    for byte in text + fcs(text):
        if byte < 0x20 or byte in (FLAG, ESCAPE):
            escaped += bytes([ESCAPE, byte ^ 0x20])
        else:
            escaped.append(byte)
    return bytes(escaped) + bytes([FLAG])


class Frames:
    """Payloads of the frames that a terminal brings."""

    def __init__(self, terminal):
        self.terminal, self.text = terminal, bytearray()

    def read(self):
        """Those that have come; nothing at the end."""
        try:
            more = os.read(self.terminal, 65_536)
        except OSError:
            return None
        if not more:
            return None
        self.text += more
        *whole, rest = bytes(self.text).split(bytes([FLAG]))
        self.text = bytearray(rest)
        return [payload for payload in map(unframed, whole) if payload is not None]


def unframed(text):
    """The payload of a frame; nothing of what is none."""
    plain, escaped = bytearray(), False
    for byte in text:
        if byte == ESCAPE:
            escaped = True
            continue
        plain.append(byte ^ 0x20 if escaped else byte)
        escaped = False
    body, check = bytes(plain[:-2]), bytes(plain[-2:])
    return body[len(HEADER) :] if body.startswith(HEADER) and fcs(body) == check else None


def echo():
    tty.setraw(0, termios.TCSANOW)
    frames = Frames(0)
    # pptpd reads no GRE before.
    os.write(1, framed(READY))
    while (come := frames.read()) is not None:
        for payload in come:
            os.write(1, framed(MARK + payload))


def call(server):
    master, slave = pty.openpty()
    for end in (master, slave):
        tty.setraw(end, termios.TCSANOW)
    # The call manager of another host would be found by its socket.
    quiet = "mkdir -p /run/pptp && mount -t tmpfs none /run/pptp && exec pptp "
    words = quiet + f"{server} --nolaunchpppd --loglevel 2 --nobuffer"
    client = subprocess.Popen(["unshare", "--mount", "sh", "-c", words], stdin=slave, stdout=slave, start_new_session=True)
    os.close(slave)
    frames = Frames(master)
    number = 0
    try:
        print("up" if is_ready(master, frames) else "down", flush=True)
        for line in sys.stdin:
            if not line.strip():
                break
            print(exchange(master, frames, int(line), number), flush=True)
            number += 1
    finally:
        os.killpg(client.pid, signal.SIGTERM)
        client.wait(10)


def is_ready(master, frames):
    """True once the other end has said so, within ten seconds."""
    until = time.monotonic() + 10
    while (left := until - time.monotonic()) > 0:
        if select.select([master], [], [], left)[0]:
            come = frames.read()
            if come is None:
                return False
            if READY in come:
                return True
    return False


def exchange(master, frames, many, number):
    """How many frames come back, of so many that are sent, in three seconds after the last."""
    wanted = {f"{number}-{place} ".encode() + bytes(range(place % 200)) for place in range(many)}
    for payload in sorted(wanted):
        os.write(master, framed(payload))
        time.sleep(0.002)
    got = set()
    until = time.monotonic() + 3
    while len(got) < many and (left := until - time.monotonic()) > 0:
        if select.select([master], [], [], left)[0]:
            come = frames.read()
            if come is None:
                break
            got |= {payload.removeprefix(MARK) for payload in come if payload.startswith(MARK)} & wanted
    return len(got)


if __name__ == "__main__":
    echo() if sys.argv[1] == "echo" else call(sys.argv[2])
