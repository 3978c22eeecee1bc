"""Interfaces without Ethernet: a TUN device in the office's gateway, at whose other end is a host of its own.

      client, server ── lan GATEWAY tun0 ══ tun0 vpn, which owns 10.98.0.7 and 2001:db8:98::7 behind it
                         10.99.0.1/24      10.99.0.2
"""

import json
import subprocess
from pathlib import Path

import pytest
import wait
from gateway import binary
from host import Host, stop
from topology import CLIENT, CLIENT6, REMOTE, SERVER, SERVER6
from transfer import transfer

VARIANTS = ["tun"]

NEAR, NEAR6 = "10.99.0.1", "2001:db8:99::1"
FAR, FAR6 = "10.99.0.2", "2001:db8:99::2"
BEHIND, BEHIND6 = "10.98.0.7", "2001:db8:98::7"

pytestmark = pytest.mark.without("nftables", why="Linux forwards by TUN devices as by any other")


class Tunnel:
    """The host at the other end, and the link to it."""

    def __init__(self, net):
        self.net = net
        self.host = Host(f"{net.gateway.namespace}-vpn", net.logs)
        self.program = None
        self.host.ip(f"addr add {BEHIND}/32 dev lo", f"addr add {BEHIND6}/128 dev lo")

    def open(self, mtu=1400):
        log = self.net.logs / f"{self.host.name}.tunnel.log"
        log.unlink(missing_ok=True)
        self.program = self.host.start(
            "/usr/bin/python3",
            Path(__file__).with_name("tunnel.py"),
            "tun0",
            self.net.gateway.namespace,
            self.host.namespace,
            log="tunnel",
        )
        wait.until(lambda: "ready" in log.read_text(), "the tunnel is there")
        self.net.gateway.ip(f"link set tun0 mtu {mtu} up")
        self.host.ip(
            f"link set tun0 mtu {mtu} up",
            f"addr add {FAR}/24 dev tun0",
            f"addr add {FAR6}/64 dev tun0",
            f"route add 192.168.0.0/16 via {NEAR}",
            f"route add 2001:db8:1::/64 via {NEAR6}",
        )
        self.net.client.reaches(FAR)
        self.net.client.reaches(FAR6)

    def close(self):
        stop(self.program)

    def said(self):
        return self.program.log.read_text()


@pytest.fixture(scope="module")
def vpn(net):
    tunnel = Tunnel(net)
    try:
        tunnel.open()
        yield tunnel.host
        assert "no IP packet" not in tunnel.said(), tunnel.said()
    finally:
        tunnel.close()
        tunnel.host.close()


def port(net, name="tun0"):
    return next(
        port for port in json.loads(net.office.ask("ports", "--json").stdout) if port["interface"] == name
    )


def test_it_is_a_port_as_any_other(net, vpn):
    before = port(net)
    assert (before["state"], before["carrier"], before["driver"]) == ("up", "up", "AF_PACKET")
    assert net.client.ping(FAR, count=3)
    after = port(net)
    assert after["received"] >= before["received"] + 3
    assert after["sent"] >= before["sent"] + 3
    assert net.gateway.run("ip", "neigh", "show", "dev", "tun0").stdout.strip() == ""


def test_the_gateway_itself_is_there_for_those_behind_it(net, vpn):
    assert vpn.ping(NEAR, count=3)
    assert vpn.ping(NEAR6, count=3)


def test_the_gateway_itself_reaches_them(net, vpn):
    assert net.gateway.ping(FAR, count=3)
    assert net.gateway.ping(FAR6, count=3)
    assert net.gateway.ping(BEHIND)
    assert net.gateway.ping(BEHIND6)


def test_a_service_of_the_gateway_is_reached(net, vpn):
    transfer(vpn, net.gateway, NEAR, 2222, upload=300_000, download=300_000)
    transfer(vpn, net.gateway, NEAR6, 2222, upload=300_000, download=300_000)


def test_the_office_is_hidden_behind_the_gateway(net, vpn):
    """Masquerade out of the tunnel, to its other end and beyond it."""
    for address in [FAR, BEHIND]:
        with vpn.udp(address, 53) as server, net.client.udp() as client:
            client.sendto(b"who am I?", (address, 53))
            asked, peer = server.recvfrom(100)
            assert (asked, peer[0]) == (b"who am I?", NEAR)
            server.sendto(b"the gateway", peer)
            assert client.recvfrom(100)[0] == b"the gateway"


@pytest.mark.parametrize("to", [BEHIND, BEHIND6])
def test_tcp_through_the_tunnel(net, vpn, to):
    transfer(net.client, vpn, to, 80, upload=2_000_000, download=2_000_000)


def test_ipv6_is_routed_as_it_is(net, vpn):
    with vpn.udp(port=53, v6=True) as server, net.client.udp(v6=True) as client:
        client.sendto(b"who am I?", (BEHIND6, 53))
        assert server.recvfrom(100)[1][0] == CLIENT6


def test_a_forward_leads_from_the_tunnel_into_the_office(net, vpn):
    with net.server.listen(80) as inside, vpn.connect(NEAR, 8080) as outside:
        server, peer = inside.accept()
        with server:
            assert peer[0] == FAR
            outside.sendall(b"hello")
            assert server.recv(100) == b"hello"


def test_what_no_rule_lets_in_stays_out(net, vpn):
    with net.server.udp(SERVER, 5000) as server, vpn.udp(FAR) as stranger:
        stranger.sendto(b"let me in", (SERVER, 5000))
        assert vpn.ping(NEAR)
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.recv(100)


def test_a_spoofed_source_does_not_pass(net, vpn):
    vpn.ip(f"addr add {CLIENT}/32 dev lo")
    try:
        assert not vpn.ping(NEAR, "-I", CLIENT, wait="0.3")
    finally:
        vpn.ip(f"addr del {CLIENT}/32 dev lo")


def test_packets_larger_than_the_tunnel_are_cut_or_answered(net, vpn):
    assert net.client.ping(FAR, "-M", "dont", "-s", 3000)
    assert vpn.ping(NEAR, "-s", 20_000)
    for to, size in [(BEHIND, 1372), (BEHIND6, 1352)]:
        net.client.forget_paths()
        done = net.client.run("ping", "-n", "-c1", "-W1", "-M", "do", "-s", size + 1, to, check=False)
        assert done.returncode != 0 and "mtu" in done.stdout.lower() and "1400" in done.stdout, done.stdout
        assert net.client.ping(to, "-M", "do", "-s", size)
    net.client.forget_paths()


def test_errors_that_come_by_the_tunnel_find_their_flow(net, vpn):
    """Also through the translation: nobody listens there."""
    for to in [BEHIND, BEHIND6]:
        with net.client.udp(v6=":" in to) as client:
            client.connect((to, 9))
            client.send(b"anybody?")
            with pytest.raises(ConnectionRefusedError):
                client.recv(100)


def test_the_gateway_answers_into_the_tunnel(net, vpn):
    """An ICMP error of its own: the time to live ends here."""
    for to in [SERVER, SERVER6]:
        done = vpn.run("ping", "-n", "-c1", "-W2", "-t", 1, to, check=False)
        assert "exceeded" in done.stdout.lower(), done.stdout


def test_captures_can_be_read(net, vpn, tmp_path):
    """With what stands in for a link-layer header: of several interfaces, tcpdump reads no file with two kinds."""
    taken = tmp_path / "taken.pcapng"
    words = [binary(), "capture", "--socket", net.office.socket, "--interface", "tun0", "--stage", "sent"]
    capture = net.gateway.start(*words, "--host", BEHIND, "--out", taken, log="capture")
    wait.until(lambda: net.client.ping(BEHIND) and taken.exists() and taken.stat().st_size > 600, "packets")
    stop(capture, 2)
    shown = net.gateway.run("tcpdump", "-nr", taken, stderr=subprocess.DEVNULL).stdout
    assert f"{NEAR} > {BEHIND}: ICMP echo request" in shown, shown
    # The capture may have begun between a request and its answer.
    request = ["-c", 1, "icmp[icmptype] = icmp-echo"]
    shown = net.gateway.run("tcpdump", "-enr", taken, *request, stderr=subprocess.DEVNULL).stdout
    assert "02:00:00:00:00:02 > 02:00:00:00:00:01, ethertype IPv4" in shown, shown


def test_nothing_reaches_the_gateways_own_stack_past_the_policy(net, vpn):
    """What a rule drops Linux does not see either: it would answer."""
    with net.gateway.udp(NEAR, 6000) as own, vpn.udp(FAR) as stranger:
        stranger.sendto(b"spoofed?", (NEAR, 6000))
        assert own.recv(100) == b"spoofed?"
    net.office.apply("tun-closed")
    try:
        wait.until(lambda: not vpn.ping(NEAR, wait="0.3"), "the tunnel is closed to the gateway itself")
    finally:
        net.office.apply()
        wait.until(lambda: vpn.ping(NEAR, wait="0.3"), "it is open again")


def test_the_device_is_deleted_and_made_anew(net, vpn):
    tunnel = Tunnel.__new__(Tunnel)
    tunnel.net, tunnel.host = net, vpn
    for process in list(vpn._started):
        stop(process)
    wait.until(lambda: port(net)["state"] == "absent", "the port is gone")
    assert net.client.ping(REMOTE)
    tunnel.open(mtu=1380)
    assert port(net)["state"] == "up"
    transfer(net.client, vpn, BEHIND, 80, upload=500_000, download=500_000)
    # The module's other tests are of the MTU that they know.
    net.gateway.ip("link set tun0 mtu 1400")
    vpn.ip("link set tun0 mtu 1400")
    net.client.reaches(FAR)


def test_the_device_goes_down_and_up(net, vpn):
    net.gateway.ip("link set tun0 down")
    wait.until(lambda: port(net)["state"] == "down", "the port is closed")
    net.gateway.ip("link set tun0 up")
    net.client.reaches(FAR)
    net.client.reaches(FAR6)
    net.client.reaches(BEHIND)


KINDS = {
    "wireguard": "type wireguard",
    "ipip": f"type ipip local 203.0.113.2 remote {REMOTE}",
    "gre": f"type gre local 203.0.113.2 remote {REMOTE}",
    "sit": f"type sit local 203.0.113.2 remote {REMOTE}",
}


@pytest.mark.parametrize("kind", KINDS)
def test_devices_of_other_kinds_are_opened(net, vpn, kind):
    """Where the kernel has them."""
    done = net.gateway.run("ip", "link", "add", "other0", *KINDS[kind].split(), check=False)
    if done.returncode != 0:
        pytest.skip(f"SKIPPED: this kernel has no {kind}: {done.stdout.strip()}")
    try:
        net.gateway.ip("link set other0 up")
        net.office.apply("other")
        wait.until(lambda: port(net, "other0")["state"] == "up", f"the port on {kind} is open")
    finally:
        net.office.apply()
        net.gateway.ip("link del other0")
