"""The gateway's process ends, in good order or not, and is started again."""

import json

import pytest
from topology import CLIENT, GATEWAY, GATEWAY6, GUEST_GATEWAY, OUTSIDE, REMOTE, REMOTE6
from transfer import transfer

pytestmark = [
    pytest.mark.without("nftables", why="Linux has no process that could be started anew"),
    pytest.mark.usefixtures("running"),
]


def works(net):
    for to in [GATEWAY, GATEWAY6, REMOTE, REMOTE6]:
        net.client.reaches(to)
    net.guest.reaches(GUEST_GATEWAY)
    transfer(net.client, net.remote, REMOTE, 80, upload=200_000, download=200_000)


def test_it_ends_in_good_order(net):
    net.office.stop()
    assert net.office.process.returncode == 0


def test_connections_outlive_a_restart(net):
    """Its state goes to disk and comes back: long-lived connections, forwards, and mappings of UDP."""
    with net.remote.listen(80) as listener, net.server.listen(443) as inside:
        with net.client.connect(REMOTE, 80) as client, net.remote.connect(OUTSIDE, 443) as outside:
            there, _ = listener.accept()
            server, _ = inside.accept()
            with there, server, net.remote.udp(port=5000) as remote, net.client.udp(CLIENT, 4747) as dgram:
                dgram.sendto(b"before", (REMOTE, 5000))
                peer = remote.recvfrom(100)[1]
                net.office.stop()
                net.office.start()
                net.client.reaches(GATEWAY)
                for one, other in [(client, there), (there, client), (outside, server), (server, outside)]:
                    one.sendall(b"still there?")
                    other.settimeout(10)
                    assert other.recv(100) == b"still there?"
                remote.sendto(b"an answer", peer)
                assert dgram.recv(100) == b"an answer"
                dgram.sendto(b"after", (REMOTE, 5000))
                assert remote.recvfrom(100) == (b"after", peer)


def test_it_starts_again_after_kill_9(net):
    """Nothing that it left is in the way."""
    net.office.kill()
    net.office.start()
    works(net)


def test_nothing_but_guards_is_left_after_kill_9(net):
    """No device of the gateway's, no program in the drivers; each of its interfaces is guarded on."""
    guards = len(net.office.pins())
    net.office.kill()
    links = json.loads(net.gateway.run("ip", "-j", "link").stdout)
    assert {link["ifname"] for link in links} == {"lo", "lan", "wan", net.guests}
    assert not any("xdp" in link for link in links)
    assert len(net.office.pins()) == guards == 2 * (len(links) - 1)


def test_ten_kills_in_a_row(net):
    for _ in range(10):
        net.office.kill()
        net.office.start()
    works(net)
