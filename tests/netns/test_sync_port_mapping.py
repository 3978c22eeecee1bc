"""Two gateways with the same port mappings: what hosts have asked of one by natpmpc, PCP and upnpc holds at the other when the first is killed."""

import contextlib
import json
import re
import shutil
import time

import pcp
import pytest
import test_sync
import wait
from boxes import CLIENT, MOVED, MOVED_LAN, Boxes

pytestmark = pytest.mark.longest(240)

kind, pair = test_sync.kind, test_sync.pair
pytest_generate_tests = test_sync.pytest_generate_tests

ASKS = """
from = "lan"
[nat.port-mapping]
upnp = true
"""


@pytest.fixture
def clients(request):
    """The programs by which hosts ask."""
    if lacking := [program for program in ("natpmpc", "upnpc") if not shutil.which(program)]:
        reason = f"SKIPPED: not installed: {' '.join(lacking)} (./setup test)"
        pytest.fail(reason) if request.config.getoption("must_run") else pytest.skip(reason)


def asked(host, *words):
    """What a client says that asks the router."""
    return host.run(*words, check=False).stdout


def natpmpc(boxes, *words):
    return asked(boxes.client, "natpmpc", "-g", MOVED_LAN, *words)


def upnpc(boxes, *words):
    # Of the two devices the first: -u spares the search, which the bridge of this network would have to flood.
    return asked(boxes.client, "upnpc", "-i", "-u", f"http://{MOVED_LAN}:1900/1/device.xml", *words)


def mappings(box):
    """What is mapped, by outside port; without the time that is left, which goes on."""
    shown = json.loads(box.daemon.ask("map", "--json").stdout)["mappings"]
    return {one["outside_port"]: {**one, "expires_seconds": None} for one in shown}


def left(box, port):
    shown = json.loads(box.daemon.ask("map", "--json").stdout)["mappings"]
    return next(one["expires_seconds"] for one in shown if one["outside_port"] == port)


def have(boxes, ports):
    for box in boxes.boxes:
        wait.until(lambda box=box: set(mappings(box)) == set(ports), f"{box.name} has {ports} mapped: {mappings(box)}")
    one, two = boxes.boxes
    assert mappings(one) == mappings(two)


class Epoch:
    """A host's view of the router's epoch (RFC 6887, section 8.5)."""

    def __init__(self, response):
        self.at, self.server = time.monotonic(), response.epoch

    def goes_on(self, response):
        """No loss of state shows by a later response."""
        client, server = time.monotonic() - self.at, response.epoch - self.server
        assert server >= -1, f"{self.server} s, then {response.epoch} s"
        assert client + 2 >= server - server / 16 and server + 2 >= client - client / 16, (client, server)


def test_mappings_let_packets_in_and_stay_their_hosts_when_the_gateway_is_killed(kind, clients):
    boxes = Boxes(**kind, workers=(2, 2), asks=ASKS)
    with boxes.running():
        one, two = boxes.boxes
        boxes.client.start("/usr/bin/python3", "-m", "http.server", "9000", log="http")
        wait.until(lambda: boxes.client.listens(9000), "it serves")

        def reached(port):
            curl = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "1", f"http://{MOVED}:{port}/"]
            return boxes.server.run(*curl, check=False).stdout.strip() == "200"

        # As soon as the address that keepalived has moved there is the gateway's own.
        wait.until(lambda: pcp.exchange(boxes.client, MOVED_LAN, b"\0\0", 0.3), "the router answers")
        said = natpmpc(boxes, "-a", "18080", "9000", "tcp", "600")
        web = int(re.search(r"Mapped public port (\d+) protocol TCP to local port 9000 liftime 600", said)[1])
        assert f"Public IP address : {MOVED}" in said
        request = pcp.map_request(CLIENT, pcp.UDP, 7000, 7000, lifetime=300)
        granted = pcp.ask(boxes.client, MOVED_LAN, request)
        assert granted.result == pcp.SUCCESS
        said = upnpc(boxes, "-e", "a game", "-a", CLIENT, "9100", str(web + 1), "UDP", "900")
        assert "is redirected to internal" in said, said
        have(boxes, [web, granted.port, web + 1])
        assert reached(web)
        # The epoch of a process that has just begun is no other one's.
        time.sleep(4)
        epoch = Epoch(pcp.ask(boxes.client, MOVED_LAN, request))

        boxes.crash(one)
        wait.until(two.is_active, "the standby becomes active")
        # The neighbours learn where the address is by keepalived's announcement.
        wait.until(lambda: reached(web), "the mapping lets packets in at the other", deadline=3)
        assert 550 < left(two, web) < 600
        wait.until(lambda: pcp.exchange(boxes.client, MOVED_LAN, b"\0\0", 0.3), "the other answers hosts")
        foreign = pcp.map_request(CLIENT, pcp.UDP, 7000, 7000, nonce=b"another one!")
        assert pcp.ask(boxes.client, MOVED_LAN, foreign).result == pcp.NOT_AUTHORIZED
        renewed = pcp.ask(boxes.client, MOVED_LAN, pcp.map_request(CLIENT, pcp.UDP, 7000, 7000, lifetime=1200))
        assert (renewed.result, renewed.port, renewed.lifetime) == (pcp.SUCCESS, granted.port, 1200)
        epoch.goes_on(renewed)
        assert re.search(rf"UDP {web + 1}->{CLIENT}:9100\s+'a game' '' (900|8\d\d)", upnpc(boxes, "-l"))

        # The first one comes up with nothing, learns all, and takes over: an epoch of its own would be some seconds.
        boxes.revive(one)
        have(boxes, [web, granted.port, web + 1])
        assert 1_100 < left(one, granted.port) <= 1_200
        wait.until(one.is_active, "the first one is active again")
        wait.until(lambda: not two.is_active(), "the other is not any more")
        wait.until(lambda: pcp.exchange(boxes.client, MOVED_LAN, b"\0\0", 0.3), "the first one answers hosts")
        epoch.goes_on(pcp.ask(boxes.client, MOVED_LAN, request))
        assert reached(web)
        # Removed on one, gone on both; whoever is asked.
        upnpc(boxes, "-d", str(web + 1), "UDP")
        have(boxes, [web, granted.port])
        two.daemon.ask("map", "remove", "udp", f"{CLIENT}:7000")
        have(boxes, [web])
        natpmpc(boxes, "-a", "0", "9000", "tcp", "0")
        have(boxes, [])
        assert not reached(web)
        for box in boxes.boxes:
            assert box.status()["refused"] == {}, box.status()
        assert "port mappings sent" in one.daemon.ask("status").stdout


def test_mappings_that_the_other_policy_refuses_are_named_and_changes_outlive_a_broken_connection(pair):
    one, two = pair.boxes
    one.daemon.write(asks=ASKS)
    one.daemon.ask("apply", one.daemon.policy)
    one.daemon.ask("map", "add", "tcp", f"{CLIENT}:80", "--port", "8081")
    wait.until(lambda: two.status()["refused"], "the other refuses it")
    words = 'a port mapping of the translation "out": this policy has no translation of that name with a port-mapping'
    assert two.status()["refused"] == {words: 1}
    assert words in two.daemon.ask("status").stdout
    two.daemon.write(asks=ASKS)
    two.daemon.ask("apply", two.daemon.policy)
    two.daemon.ask("map", "add", "udp", f"{CLIENT}:90", "--description", "on two")
    wait.until(lambda: len(mappings(one)) == 2, "the first has the other's")
    assert len(mappings(two)) == 1, "it is told of at the next change, or with the next connection"
    # While there is no connection.
    with stopped(two):
        test_sync.troubled(one, "silent")
        one.daemon.ask("map", "remove", "udp", f"{CLIENT}:90")
        one.daemon.ask("map", "add", "tcp", f"{CLIENT}:81", "--port", "8082")
    pair.synchronised()
    have(pair, [8081, 8082])


@contextlib.contextmanager
def stopped(box):
    """A daemon that hangs."""
    box.daemon.process.send_signal(test_sync.signal.SIGSTOP)
    try:
        yield
    finally:
        box.daemon.process.send_signal(test_sync.signal.SIGCONT)
