"""FTP through the gateway, with vsftpd, and curl and Python's client: active and passive, behind the masquerade, behind a forward, and of IPv6 behind the rules alone."""

import hashlib
import os
import re
import shutil
import socket
import sys
from pathlib import Path

import pytest
import wait
from ftp import WAYS
from topology import CLIENT, OUTSIDE, REMOTE, REMOTE6, SERVER6

HELPED = ["ftp", "helped"]

pytestmark = pytest.mark.skipif(not shutil.which("vsftpd"), reason="not installed: vsftpd (./setup test)")

MEGABYTE = 1 << 20

HERE = Path(__file__).parent

CONFIG = """
listen=NO
listen_ipv6=YES
anonymous_enable=YES
anon_root={root}
no_anon_password=YES
connect_from_port_20=YES
port_enable=YES
pasv_enable=YES
seccomp_sandbox=NO
isolate=NO
isolate_network=NO
secure_chroot_dir={empty}
background=NO
ftp_username=ftp
xferlog_enable=NO
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A small file and a large one, with the large one's digest."""
    root = tmp_path_factory.mktemp("ftp")
    root.chmod(0o755)
    for parent in root.parents[:3]:
        if parent.stat().st_uid == os.geteuid() and str(parent) != "/tmp":
            parent.chmod(0o755)
    (root / "small").write_text("Hello by FTP.\n")
    large = os.urandom(20 * MEGABYTE)
    (root / "large").write_bytes(large)
    for name in ["small", "large"]:
        (root / name).chmod(0o644)
    (root.parent / "ftp-empty").mkdir(exist_ok=True)
    (root.parent / "ftp-empty").chmod(0o555)
    root.chmod(0o555)
    return root, hashlib.sha256(large).hexdigest()


@pytest.fixture(scope="module")
def served(net, files):
    """vsftpd outside, and on the server inside."""
    root, _ = files
    config = root.parent / "vsftpd.conf"
    config.write_text(CONFIG.format(root=root, empty=root.parent / "ftp-empty"))
    net.office.apply(*HELPED)
    processes = [host.start("vsftpd", config) for host in [net.remote, net.server]]
    for host, own in [(net.remote, REMOTE), (net.server, "192.168.1.20")]:
        wait.until(lambda host=host, own=own: answers(host, own), "vsftpd listens")
    yield
    for process in processes:
        process.kill()
        process.wait()
    net.office.apply()


def answers(host, own):
    try:
        with host.connect(own, 21, timeout=1) as control:
            return control.recv(100).startswith(b"220")
    except OSError:
        return False


@pytest.fixture(autouse=True)
def ready(net, served):
    net.gateway.reaches(REMOTE)
    net.client.reaches(REMOTE)


def fetched(host, server, way, name="small", times=1, patience=20):
    """What a client prints of the file; nothing if it could not fetch it."""
    words = ["timeout", patience, sys.executable, HERE / "ftp.py", server, way, name, times]
    done = host.run(*words, check=False, timeout=patience + 10)
    return done.stdout if done.returncode == 0 else ""


SMALL = f"14 {hashlib.sha256(b'Hello by FTP.' + bytes([10])).hexdigest()}\n"


@pytest.mark.parametrize("way", WAYS)
def test_behind_the_masquerade(net, way):
    assert fetched(net.client, REMOTE, way) == SMALL


@pytest.mark.parametrize("way", WAYS)
def test_guests_whose_rules_name_port_21_alone(net, way):
    net.guest.reaches(REMOTE)
    assert fetched(net.guest, REMOTE, way) == SMALL


@pytest.mark.parametrize("way", WAYS)
def test_a_server_behind_a_forward(net, way):
    assert fetched(net.remote, OUTSIDE, way) == SMALL


@pytest.mark.parametrize("way", ["extended-passive", "extended-active"])
def test_a_server_of_ipv6_behind_the_rules(net, way):
    net.gateway.reaches(REMOTE6)
    assert fetched(net.remote, SERVER6, way) == SMALL


@pytest.mark.parametrize("way", ["extended-passive", "extended-active"])
def test_a_client_of_ipv6_behind_the_rules(net, way):
    net.client.reaches(REMOTE6)
    assert fetched(net.client, REMOTE6, way) == SMALL


@pytest.mark.parametrize("epsv", ["--disable-epsv", "--ftp-pasv"])
def test_curl(net, epsv):
    words = ["curl", "-sS", "--max-time", 10, epsv, f"ftp://{OUTSIDE}/small"]
    assert net.remote.run(*words, timeout=20).stdout == "Hello by FTP.\n"


@pytest.mark.longest(120)
@pytest.mark.parametrize("way", ["passive", "active"])
def test_twenty_megabytes(net, files, way):
    _, digest = files
    assert fetched(net.client, REMOTE, way, "large", patience=60) == f"{20 * MEGABYTE} {digest}\n"


@pytest.mark.parametrize("way", WAYS)
def test_several_files_by_one_control_connection(net, way):
    """Each of them is announced anew, and all that follows has other sequence numbers than the announcer knows."""
    assert fetched(net.client, REMOTE, way, times=8) == SMALL * 8
    assert fetched(net.remote, OUTSIDE, way, times=8) == SMALL * 8


def test_without_a_helper_it_is_refused(net):
    net.office.apply("ftp")
    try:
        ways = [(net.client, REMOTE, "active"), (net.guest, REMOTE, "passive"), (net.remote, OUTSIDE, "passive")]
        for host, server, way in ways:
            assert fetched(host, server, way, patience=4) == "", way
    finally:
        net.office.apply(*HELPED)


class Session:
    """A control connection by hand."""

    def __init__(self, host, server):
        self.socket = host.connect(server, 21, timeout=10)
        self.socket.settimeout(10)
        self.text = b""
        assert self.reply().startswith("220")
        assert self.says("USER anonymous").startswith("230")

    def reply(self):
        while b"\n" not in self.text:
            more = self.socket.recv(4096)
            assert more, "the server has closed the connection"
            self.text += more
        line, self.text = self.text.split(b"\n", 1)
        return line.decode()

    def says(self, line):
        self.socket.sendall(line.encode() + b"\r\n")
        return self.reply()

    def fetches(self, listener):
        """The small file, by an active data connection."""
        assert self.says("RETR small").startswith("150")
        data, peer = listener.accept()
        with data:
            data.settimeout(10)
            got = data.recv(100)
        assert self.reply().startswith("226")
        return got, peer[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


def port_of(address, port):
    return "PORT " + ",".join([*address.split("."), str(port // 256), str(port % 256)])


def test_a_line_in_pieces(net):
    """The server gets nothing of it, and so no address that means nothing to it; another session goes on."""
    with Session(net.client, REMOTE) as session:
        line = port_of(CLIENT, 40_000).encode() + b"\r\n"
        session.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(line), 6):
            session.socket.sendall(line[at : at + 6])
        session.socket.settimeout(2)
        with pytest.raises(TimeoutError):
            session.reply()
    with Session(net.client, REMOTE) as session, net.client.listen(40_000, CLIENT) as listener:
        assert session.says(port_of(CLIENT, 40_000)).startswith("200")
        assert session.fetches(listener) == (b"Hello by FTP.\n", REMOTE)


def test_nobody_is_let_in_to_another_host(net):
    """The client announces the address of another host of the office: nothing is expected there, and the server refuses it besides."""
    with Session(net.client, REMOTE) as session, net.server.listen(40_001) as listener:
        assert session.says(port_of("192.168.1.20", 40_001)).startswith("5")
        with pytest.raises(OSError):
            net.remote.connect(OUTSIDE, 40_001, sport=2000, timeout=1.5)
        listener.settimeout(0.2)
        with pytest.raises(OSError):
            listener.accept()


def test_only_the_server_is_let_in(net):
    with Session(net.client, REMOTE) as session, net.client.listen(40_002, CLIENT) as listener:
        assert session.says(port_of(CLIENT, 40_002)).startswith("200")
        with pytest.raises(OSError):
            net.stranger.connect(OUTSIDE, 40_002, timeout=1.5)
        assert session.fetches(listener) == (b"Hello by FTP.\n", REMOTE)
        with pytest.raises(OSError):
            net.remote.connect(OUTSIDE, 40_002, timeout=1.5)


@pytest.mark.without("nftables", why="Linux has no process that could be started anew")
def test_a_session_outlives_a_restart(net):
    with Session(net.client, REMOTE) as session, net.client.listen(40_003, CLIENT) as listener:
        assert session.says(port_of(CLIENT, 40_003)).startswith("200")
        assert session.fetches(listener)[0] == b"Hello by FTP.\n"
        net.office.stop()
        net.office.start(*HELPED)
        net.client.reaches(REMOTE)
        # The numbers of the text that was replaced before still hold, and the next text is replaced again.
        assert session.says("NOOP").startswith("200")
        assert session.says(port_of(CLIENT, 40_003)).startswith("200")
        assert session.fetches(listener)[0] == b"Hello by FTP.\n"


@pytest.mark.without("nftables", why="Linux has no workers to set")
def test_two_workers(net):
    """The server's call may come to another worker than the control connection has."""
    net.office.stop()
    net.office.start(*HELPED, "two-workers")
    try:
        net.client.reaches(REMOTE)
        net.gateway.reaches(REMOTE6)
        for _ in range(3):
            for way in WAYS:
                assert fetched(net.client, REMOTE, way, times=2) == SMALL * 2, way
                assert fetched(net.remote, OUTSIDE, way, times=2) == SMALL * 2, way
            for way in ["extended-passive", "extended-active"]:
                assert fetched(net.remote, SERVER6, way, times=2) == SMALL * 2, way
                assert fetched(net.client, REMOTE6, way, times=2) == SMALL * 2, way
    finally:
        net.office.stop()
        net.office.start(*HELPED)


@pytest.mark.without("nftables", why="Linux lists its connections otherwise")
def test_flows_say_so(net):
    with Session(net.client, REMOTE) as session, net.client.listen(40_004, CLIENT) as listener:
        assert session.says(port_of(CLIENT, 40_004)).startswith("200")
        assert session.says("RETR large").startswith("150")
        data, _ = listener.accept()
        with data:
            said = net.office.ask("flows", "--rule", "ftp-out").stdout
            assert re.search(r"helper", said) and re.search(r"related", said), said
