"""Paths narrower than the first link: the gateway's own, and others behind it."""

import errno
import re
import socket

import pytest
import wait
from topology import FAR, FAR6, GATEWAY, GATEWAY6, OUTSIDE, REMOTE, SERVER6
from transfer import transfer

IP_MTU_DISCOVER, IP_PMTUDISC_DO, IP_MTU = 10, 2, 14
IPV6_MTU_DISCOVER, IPV6_MTU = 23, 24


@pytest.fixture(autouse=True)
def without_memory(net):
    for host in [net.client, net.server, net.remote, net.far, net.gateway]:
        host.forget_paths()


@pytest.fixture
def narrow(net):
    """The gateway's outer link carries 1400 bytes, at both ends."""
    for host in [net.gateway, net.router]:
        host.ip("link set wan mtu 1400")
    yield
    for host in [net.gateway, net.router]:
        host.ip("link set wan mtu 1500")


def tracepath(host, to):
    done = host.run("tracepath", "-n", "-m", "8", to)
    resumed = re.search(r"Resume: pmtu (\d+) hops (\d+)", done.stdout)
    assert resumed, done.stdout
    return int(resumed[1]), int(resumed[2])


def learnt(host, to, size):
    """The path MTU that a host has after it sent a datagram of `size` bytes that must not be cut."""
    v6 = ":" in to
    level, discover, mtu = (
        (socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_MTU)
        if v6
        else (socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_MTU)
    )
    with host.udp(v6=v6) as probe:
        probe.setsockopt(level, discover, IP_PMTUDISC_DO)
        probe.connect((to, 4000))
        try:
            probe.send(bytes(size))
        except OSError as error:
            if error.errno not in (errno.EMSGSIZE, errno.ECONNREFUSED):
                raise
        return probe.getsockopt(level, mtu)


@pytest.mark.parametrize("to, mtu", [(REMOTE, 1500), (FAR, 1280), (FAR6, 1280)])
def test_tracepath_finds_the_narrowest_link(net, to, mtu):
    assert tracepath(net.client, to) == (mtu, 3)


@pytest.mark.parametrize("to", [FAR, FAR6])
def test_a_datagram_too_big_teaches_its_sender(net, to):
    wait.until(lambda: learnt(net.client, to, 1400) == 1280, "the client learns of 1280 bytes")


@pytest.mark.parametrize("to", [FAR, FAR6])
def test_tcp_to_behind_a_narrow_link(net, to):
    """Full segments are too big for the router behind; its errors must come back through the translation."""
    transfer(net.client, net.far, to, 80, upload=3_000_000)


@pytest.mark.parametrize("to", [FAR, FAR6])
def test_tcp_from_behind_a_narrow_link(net, to):
    transfer(net.client, net.far, to, 80, download=3_000_000)


def test_tcp_into_the_office_from_behind_a_narrow_link(net):
    transfer(net.far, net.server, OUTSIDE, 443, upload=3_000_000, download=3_000_000)
    transfer(net.far, net.server, SERVER6, 443, upload=3_000_000, download=3_000_000)


@pytest.mark.parametrize(
    "to, says",
    [(REMOTE, f"From {GATEWAY} .*mtu ?= ?1400"), ("2001:db8:aaaa::7", f"From {GATEWAY6} .*mtu ?= ?1400")],
)
def test_the_gateway_says_what_its_own_link_carries(net, narrow, to, says):
    size = 1472 if "." in to else 1452

    def told():
        net.client.forget_paths()
        done = net.client.run("ping", "-n", "-c1", "-W1", "-M", "do", "-s", size, to, check=False)
        return re.search(says, done.stdout)

    wait.until(told, "the gateway says 1400")


def test_what_may_be_cut_is_cut(net, narrow):
    """IPv4 without DF: the gateway makes fragments."""
    wait.until(lambda: net.client.ping(REMOTE, "-M", "dont", "-s", 1472), "a ping that must be cut")


def test_tcp_is_told_a_segment_size_that_fits(net, narrow):
    """`mss = "mtu"`: the SYN that leaves by 1400 bytes announces 1360, so that nothing is ever too big."""

    def announced():
        with net.remote.listen(80) as server, net.client.connect(REMOTE, 80) as client:
            there, _ = server.accept()
            with there:
                # What the other end may send at most: 12 bytes of each segment are time stamps.
                return there.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG), client.getsockopt(
                    socket.IPPROTO_TCP, socket.TCP_MAXSEG
                )

    wait.until(lambda: announced() == (1348, 1348), "both ends were told 1360")


def test_tcp_by_a_narrow_link_of_the_gateway(net, narrow):
    transfer(net.client, net.remote, REMOTE, 80, upload=3_000_000, download=3_000_000)


@pytest.mark.parametrize("to", [OUTSIDE, SERVER6])
def test_the_gateway_tells_those_outside_of_a_narrow_link_inside(net, to):
    """What comes from outside is too big for the inner link, and the remote host learns so."""
    net.gateway.ip("link set lan mtu 1300")
    try:
        wait.until(lambda: learnt(net.remote, to, 1400) == 1300, "the remote host learns of 1300 bytes")
    finally:
        net.gateway.ip("link set lan mtu 1500")
