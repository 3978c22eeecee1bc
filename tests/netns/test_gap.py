"""Between a gateway that ends and the one that follows, nobody answers for either: guards are on the interfaces."""

import os
import signal
import time

import pytest
import wait
from gateway import HERE, binary
from host import stop
from topology import GATEWAY, OUTSIDE, REMOTE

pytestmark = pytest.mark.without("nftables", why="Linux has no process that could be started anew")

PAUSE = 2
"""Seconds between two gateways."""


@pytest.fixture
def service(net):
    """The gateway as a service; then as it was."""
    office = net.office
    office.stop()
    office.write()
    command = [binary(), "run", office.policy, "--socket", office.socket, "--state", office.state]
    keeper = net.gateway.start("/usr/bin/python3", HERE / "keeper.py", PAUSE, *command, log="service")
    wait.until(office.answers, "the service answers")
    net.client.reaches(GATEWAY)
    yield lambda number: signal_gateway(keeper, number)
    stop(keeper, signal.SIGTERM)
    office.start()
    net.client.reaches(GATEWAY)


def signal_gateway(keeper, number):
    children = f"/proc/{keeper.pid}/task/{keeper.pid}/children"
    with open(children, encoding="ascii") as file:
        for child in file.read().split():
            os.kill(int(child), number)


def test_a_peer_that_sends_in_the_gap_is_not_reset(net, service):
    """Linux knows nothing of a connection that the gateway translates, and would answer with a reset."""
    with net.remote.listen(80) as listener, net.client.connect(REMOTE, 80) as client:
        there, _ = listener.accept()
        with there:
            for number in range(2):
                word = f"sent in gap {number}".encode()
                service(signal.SIGTERM)
                wait.until(lambda: not net.office.answers(), "the gateway ends")
                there.sendall(word)
                wait.until(net.office.answers, "the next one answers")
                client.settimeout(10)
                assert client.recv(100) == word
            client.sendall(b"and back")
            there.settimeout(10)
            assert there.recv(100) == b"and back"


def test_linux_answers_what_rules_to_self_let_in_in_the_gap_of_a_crash(net, service):
    """And nothing else; what came meanwhile for others is lost."""
    with net.gateway.listen(8022):
        service(signal.SIGKILL)
        wait.until(lambda: not net.office.answers(), "the gateway dies")
        begin = time.monotonic()
        assert net.client.ping(GATEWAY, wait=0.5) and net.remote.ping(OUTSIDE, wait=0.5)
        with pytest.raises(TimeoutError):
            net.remote.connect(OUTSIDE, 8022, timeout=0.5)
        assert not net.client.ping(REMOTE, wait=0.3)
        assert time.monotonic() - begin < PAUSE or net.office.answers(), "too slow to tell"
    wait.until(net.office.answers, "the next one answers")
    net.client.reaches(GATEWAY)
    net.client.reaches(REMOTE)
