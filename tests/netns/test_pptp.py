"""PPTP through the gateway, with pptpd and pptp, each with a program in the place of pppd: two clients behind the masquerade, and a server behind a
forward. A client by hand says what pptp does not."""

import re
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import wait
from isolation import die_with_parent
from topology import CLIENT, GUEST, OUTSIDE, REMOTE, STRANGER

HELPED = ["pptp", "pptp-helped"]

HERE = Path(__file__).parent

ABSENT = [program for program in ["pptpd", "pptp"] if not shutil.which(program)]

pytestmark = pytest.mark.skipif(bool(ABSENT), reason=f"not installed: {', '.join(ABSENT)} (./setup test)")

CONFIG = """
ppp {ppp}
option {options}
localip 10.77.0.1
remoteip 10.77.0.2-60
connections 50
"""

FRAMES = 40


@pytest.fixture(scope="module")
def served(net, tmp_path_factory):
    """pptpd outside, and on the server inside."""
    folder = tmp_path_factory.mktemp("pptp")
    ppp, options, config = folder / "ppp", folder / "options", folder / "pptpd.conf"
    ppp.write_text(f"#!/bin/sh\nexec {sys.executable} {HERE / 'pptp.py'} echo\n")
    ppp.chmod(0o755)
    options.write_text("")
    config.write_text(CONFIG.format(ppp=ppp, options=options))
    net.office.apply(*HELPED)
    processes = [
        host.start("pptpd", "-f", "-c", config, "-p", folder / f"{host.name}.pid") for host in [net.remote, net.server]
    ]
    for host in [net.remote, net.server]:
        wait.until(lambda host=host: host.listens(1723), "pptpd listens")
    yield
    for process in processes:
        process.kill()
        process.wait()
    net.office.apply()


@pytest.fixture(autouse=True)
def ready(net, served):
    net.gateway.reaches(REMOTE)
    net.client.reaches(REMOTE)
    net.guest.reaches(REMOTE)


class Call:
    """A call by pptp."""

    def __init__(self, host, server):
        words = [sys.executable, HERE / "pptp.py", "call", server]
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", host.namespace, *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,
        )

    def is_up(self):
        return self.process.stdout.readline() == "up\n"

    def echoes(self, many=FRAMES):
        """How many frames come back."""
        self.process.stdin.write(f"{many}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(20)


@pytest.mark.longest(60)
def test_two_clients_behind_the_masquerade(net):
    """The guest's rules name port 1723 alone."""
    with Call(net.client, REMOTE) as one, Call(net.guest, REMOTE) as two:
        assert one.is_up() and two.is_up()
        assert one.echoes() == FRAMES
        assert two.echoes() == FRAMES
        assert one.echoes() == FRAMES
    # And anew.
    with Call(net.guest, REMOTE) as two:
        assert two.is_up() and two.echoes() == FRAMES


@pytest.mark.longest(60)
def test_a_server_behind_a_forward(net):
    with Call(net.remote, OUTSIDE) as one, Call(net.stranger, OUTSIDE) as two:
        assert one.is_up() and two.is_up()
        assert one.echoes() == FRAMES
        assert two.echoes() == FRAMES


@pytest.mark.longest(60)
def test_without_a_helper_a_guest_has_no_call(net):
    net.office.apply("pptp")
    try:
        with Call(net.guest, REMOTE) as call:
            assert not call.is_up()
    finally:
        net.office.apply(*HELPED)


def message(kind, *rest):
    """A control message: numbers of 16 bits behind its header."""
    body = struct.pack(f"!{len(rest)}H", *rest)
    return struct.pack("!HHIHH", 12 + len(body), 1, 0x1A2B3C4D, kind, 0) + body


def start(kind):
    """Start-Control-Connection-Request, or its reply of success."""
    return message(kind, 0x0100, 0 if kind == 1 else 0x0100, 0, 3, 0, 3, 0, 1, *[0] * 64)


def request(call):
    return message(7, call, 1, 0, 2400, 152, 38528, 0, 3, 0, 3, 3, 0, 0, 0, *[0] * 64)


class Control:
    """A control connection by hand, and the GRE of its calls; to pptpd, or to a `listener` by hand, too."""

    def __init__(self, host, server, listener=None):
        self.socket = host.connect(server, 1723, timeout=10)
        self.gre = host.open(socket.AF_INET, socket.SOCK_RAW, 47)
        self.gre.settimeout(10)
        self.text = {}
        self.peer = None
        if listener:
            self.peer, _ = listener.accept()
            self.peer.settimeout(10)
            assert self.peer_is_told(start(1))[0] == 1
            self.peer.sendall(start(2))
        else:
            self.socket.sendall(start(1))
        assert self.hears()[0] == 2

    def hears(self, end=None):
        """Type and numbers of the next message."""
        end = end or self.socket
        text = self.text.get(end, b"")
        while len(text) < 2 or len(text) < struct.unpack("!H", text[:2])[0]:
            more = end.recv(4096)
            assert more, "the other end has closed the connection"
            text += more
        (length,) = struct.unpack("!H", text[:2])
        found, self.text[end] = text[:length], text[length:]
        return struct.unpack("!H", found[8:10])[0], struct.unpack(f"!{(length - 12) // 2}H", found[12:])

    def peer_is_told(self, said):
        """What the end by hand hears of what is said."""
        self.socket.sendall(said)
        return self.hears(self.peer)

    def calls(self, own):
        """Calls by this call ID, and returns the server's."""
        self.socket.sendall(request(own))
        kind, (peer, mine, result, *_) = self.hears()
        assert (kind, mine, result >> 8) == (8, own, 1)
        return peer

    def hears_gre(self, patience=10.0):
        """Source and call ID of the next packet of GRE; nothing if none comes."""
        self.gre.settimeout(patience)
        try:
            packet, (source, _) = self.gre.recvfrom(4096)
        except TimeoutError:
            return None
        return source, struct.unpack("!H", packet[26:28])[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for end in [self.socket, self.gre, self.peer]:
            if end:
                end.close()


def packet_of(call, number):
    payload = b"\xff\x03\x40\x01hello"
    return struct.pack("!HHHHI", 0x3001, 0x880B, len(payload), call, number) + payload


@pytest.mark.longest(60)
def test_clients_with_the_same_call_id(net):
    """Each hears its own server's program, which speaks first, by the call ID that it has chosen itself."""
    with Control(net.client, REMOTE) as one, Control(net.guest, REMOTE) as two:
        for control in [one, two]:
            control.calls(77)
        for control in [one, two]:
            assert control.hears_gre() == (REMOTE, 77)


def test_a_call_that_is_over_is_closed(net):
    """The server, by hand, confirms the end of a call, whose GRE then no longer comes in."""
    with net.stranger.listen(1723) as listener, net.stranger.open(socket.AF_INET, socket.SOCK_RAW, 47) as gre:
        with Control(net.guest, STRANGER, listener) as control:
            kind, (known, *_) = control.peer_is_told(request(78))
            assert kind == 7
            control.peer.sendall(message(8, 900, known, 0x0100, 0, 0, 0, 0, 0, 0, 0))
            assert control.hears() == (8, (900, 78, 0x0100, 0, 0, 0, 0, 0, 0, 0))
            gre.sendto(packet_of(known, 1), (OUTSIDE, 0))
            assert control.hears_gre() == (STRANGER, 78)
            assert control.peer_is_told(message(12, 78, 0)) == (12, (known, 0))
            gre.sendto(packet_of(known, 2), (OUTSIDE, 0))
            assert control.hears_gre() == (STRANGER, 78), "it has not ended before that is said"
            control.peer.sendall(message(13, 900, 0x0100, *[0] * 66))
            kind, _ = control.hears()
            assert kind == 13
            gre.sendto(packet_of(known, 3), (OUTSIDE, 0))
            assert control.hears_gre(1.5) is None


def test_only_what_is_announced_comes_in(net):
    with Control(net.guest, REMOTE) as control:
        control.calls(79)
        assert control.hears_gre() == (REMOTE, 79)
        for host, calls in [(net.stranger, [79, 0]), (net.remote, [1, 60_000])]:
            with host.open(socket.AF_INET, socket.SOCK_RAW, 47) as other:
                for call in calls:
                    other.sendto(packet_of(call, 9), (OUTSIDE, 0))
        heard = control.hears_gre(1.5)
        assert heard is None, heard


@pytest.mark.longest(60)
@pytest.mark.without("nftables", why="Linux has no process that could be started anew")
def test_a_call_outlives_a_restart(net):
    with Call(net.client, REMOTE) as one, Call(net.remote, OUTSIDE) as two:
        assert one.is_up() and two.is_up()
        assert one.echoes() == FRAMES and two.echoes() == FRAMES
        net.office.stop()
        net.office.start(*HELPED)
        net.client.reaches(REMOTE)
        assert one.echoes() == FRAMES and two.echoes() == FRAMES


@pytest.mark.longest(90)
@pytest.mark.without("nftables", why="Linux has no workers to set")
def test_two_workers(net):
    """The GRE of a call may come to another worker than the control connection has."""
    net.office.stop()
    net.office.start(*HELPED, "two-workers")
    try:
        net.client.reaches(REMOTE)
        net.guest.reaches(REMOTE)
        for _ in range(3):
            with Call(net.client, REMOTE) as one, Call(net.guest, REMOTE) as two, Call(net.stranger, OUTSIDE) as three:
                for call in [one, two, three]:
                    assert call.is_up()
                for call in [one, two, three]:
                    assert call.echoes() == FRAMES
    finally:
        net.office.stop()
        net.office.start(*HELPED)


@pytest.mark.without("nftables", why="Linux lists its connections otherwise")
def test_flows_say_so(net):
    with Control(net.guest, REMOTE) as control:
        peer = control.calls(80)
        assert control.hears_gre() == (REMOTE, 80)
        said = net.office.ask("flows", "--rule", "pptp-out", "--host", GUEST).stdout
        assert re.search(r"tcp .*helper", said), said
        assert re.search(rf"gre .*call {peer}\b.*related", said) or re.search(r"gre .*related", said), said
        assert CLIENT not in said and STRANGER not in said
