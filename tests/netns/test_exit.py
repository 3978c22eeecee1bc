"""The gateway has ended, and its guards are on: the machine is alone with what the policy's rules to `self` let in, and with answers
to what it sends itself."""

import json
import socket

import pytest
import wait
from gateway import variant
from topology import GATEWAY, GATEWAY6, OUTSIDE, OUTSIDE6, REMOTE, REMOTE6

pytestmark = [
    pytest.mark.without("nftables", why="Linux has no process that could end"),
    pytest.mark.usefixtures("running"),
]

ONLY_LAN = """
[interface.lan]
zone = "lan"
addresses = ["192.168.1.1/24", "2001:db8:1::1/64"]
[default]
"lan > self" = "accept"
"""

BOTH = pytest.mark.parametrize("here, there", [(OUTSIDE, REMOTE), (OUTSIDE6, REMOTE6)], ids=["ipv4", "ipv6"])


@pytest.fixture(params=["ended", "killed"])
def alone(net, request):
    if request.param == "ended":
        net.office.stop()
    else:
        net.office.kill()
    # The kernel takes the gateway's part of a guard back a moment after the process: until then nothing passes.
    net.remote.reaches(OUTSIDE)


def connects(host, to, port):
    try:
        with host.connect(to, port, timeout=0.4):
            return True
    except (TimeoutError, ConnectionRefusedError):
        return False


@BOTH
def test_a_service_that_a_rule_lets_in_is_reached_by_those_who_may(net, alone, here, there):
    v6 = ":" in here
    with net.gateway.listen(22, v6=v6), net.gateway.listen(8022, v6=v6):
        assert connects(net.remote, here, 22), "administrators are let in"
        assert not connects(net.stranger, here, 22), "others are not"
        assert not connects(net.remote, here, 8022), "no rule lets anybody in there"
        assert connects(net.client, GATEWAY6 if v6 else GATEWAY, 8022), "the default of lan to self accepts"


@BOTH
def test_pings_are_answered_where_a_rule_says_so(net, alone, here, there):
    net.remote.reaches(here)
    net.client.reaches(GATEWAY6 if ":" in here else GATEWAY)


@BOTH
def test_what_the_machine_itself_sends_is_answered(net, alone, here, there):
    v6 = ":" in here
    net.gateway.reaches(there)
    with net.remote.listen(80, v6=v6) as listener, net.gateway.connect(there, 80) as client:
        server, _ = listener.accept()
        with server:
            for one, other in [(client, server), (server, client)]:
                one.sendall(b"word")
                assert other.recv(100) == b"word"
    with net.gateway.udp(port=5353, v6=v6) as asking, net.remote.udp(port=5000, v6=v6) as asked:
        asking.settimeout(0.3)
        asked.sendto(b"nobody asked", (here, 5353))
        with pytest.raises(TimeoutError):
            asking.recv(100)
        asking.sendto(b"question", (there, 5000))
        assert asked.recvfrom(100)[0] == b"question"
        asked.sendto(b"answer", (here, 5353))
        assert asking.recv(100) == b"answer"


def test_an_administrator_s_connection_outlives_the_gateway(net):
    with net.gateway.listen(22) as listener, net.remote.connect(OUTSIDE, 22) as client:
        server, _ = listener.accept()
        with server:
            net.office.stop()
            for one, other in [(client, server), (server, client)]:
                one.sendall(b"still there?")
                assert other.recv(100) == b"still there?"


def test_a_translated_connection_is_not_reset(net, alone):
    """Nor is anything else that Linux knows nothing of, on a port that no rule lets in."""
    with net.remote.open(socket.AF_INET, socket.SOCK_STREAM) as knocking:
        knocking.settimeout(0.4)
        with pytest.raises(TimeoutError):
            knocking.connect((OUTSIDE, 40000))


def test_linux_has_its_interfaces_back_where_the_policy_says_so(net):
    policy = net.office.policy
    policy.write_text(variant(policy.read_text(), []).replace("[gateway]\n", '[gateway]\non-exit = "open"\n'))
    net.office.ask("apply", policy)
    net.office.stop()
    assert net.office.pins() == []
    with net.gateway.listen(8022):
        assert connects(net.remote, OUTSIDE, 8022)


def test_an_interface_that_is_no_longer_named_is_closed_until_it_is_released(net):
    text = net.office.policy.read_text()
    pins = len(net.office.pins())

    def guards():
        told = json.loads(net.office.ask("status", "--json").stdout)["guards"]
        return {guard["interface"]: guard["state"] for guard in told}

    assert guards()["wan"] == "open"
    net.office.policy.write_text(ONLY_LAN)
    assert "wan is closed then" in net.office.ask("apply", "--plan", net.office.policy).stdout
    assert "wan is closed: `wirerate release wan`" in net.office.ask("apply", net.office.policy).stdout
    assert (guards()["wan"], guards()["lan"]) == ("left", "open")
    done = net.office.ask("release", "lan", check=False)
    assert done.returncode == 1 and "names" in done.stdout
    assert net.office.ask("release", "wan").stdout == "wan is Linux's, unfiltered\n"
    assert "wan" not in guards() and len(net.office.pins()) == pins - 2
    net.office.policy.write_text(text)
    net.office.ask("apply", net.office.policy)
    assert guards()["wan"] in ("open", "closed")
    net.client.reaches(REMOTE)


def test_guards_are_released_by_hand_when_no_gateway_runs(net):
    wait.until(lambda: len(net.office.pins()) >= 4, "the guards are on")
    net.office.stop()
    assert "wan is Linux's" in net.office.ask("release").stdout
    assert net.office.pins() == []
    with net.gateway.listen(8022):
        assert connects(net.remote, OUTSIDE, 8022)
