"""The machine's clock is set back while the gateway runs."""

import glob
import json
import time

import pytest
import wait
from test_capture import SECOND, Capturing
from topology import REMOTE
from transfer import transfer

pytestmark = [
    pytest.mark.without("nftables", why="the clock of one process is set, not Linux's"),
    pytest.mark.usefixtures("running"),
]

# Debian's package libfaketime. The clock that only runs forward stays as it is, as where a real one is set.
LIBRARY = next(iter(glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")), None)
DAY = 86_400 * SECOND


@pytest.fixture
def clock(net):
    """Sets what the gateway takes for the time of day."""
    if LIBRARY is None:
        pytest.skip("SKIPPED: there is no libfaketime, by which one process has a clock of its own")
    offset = net.logs / "clock"
    offset.write_text("+0")
    net.office.stop()
    net.office.under = [
        "env",
        f"LD_PRELOAD={LIBRARY}",
        f"FAKETIME_TIMESTAMP_FILE={offset}",
        "FAKETIME_NO_CACHE=1",
        "FAKETIME_DONT_FAKE_MONOTONIC=1",
    ]
    net.office.start()
    yield offset.write_text
    net.office.under = []
    net.office.stop()
    net.office.start()


def test_what_is_remembered_does_not_go_by_the_clock(net, clock):
    """Flows go on, new ones begin, nothing expires, and state outlives a restart, with a clock that is two days slow."""
    with net.remote.listen(80) as listener, net.client.connect(REMOTE, 80) as client:
        there, _ = listener.accept()
        with there:
            clock("-2d")
            # The log goes by the time of day: it has been set.
            net.office.apply()
            clock("-4d")
            client.sendall(b"a day ago")
            assert there.recv(100) == b"a day ago"
            transfer(net.client, net.remote, REMOTE, 81, upload=200_000, download=200_000)
            status = json.loads(net.office.ask("status", "--json").stdout)
            assert 0 <= status["uptime_seconds"] < 600
            net.office.stop()
            clock("-9d")
            net.office.start()
            there.sendall(b"still there?")
            assert client.recv(100) == b"still there?"


def test_captures_say_what_the_clock_says(net, clock, tmp_path):
    """Stamps go back as the clock does."""
    with Capturing(net, tmp_path / "clock.pcapng", "--protocol", "icmp", "--count", 4) as capture:
        wait.until(lambda: net.client.ping(REMOTE), "it answers")
        capture.has(2)
        clock("-2d")
        wait.until(lambda: net.client.ping(REMOTE) and capture.process.poll() is not None, "it ends by itself")
    first, *_, last = [packet.nanoseconds for packet in capture.read().packets]
    assert abs(first - time.time_ns()) < 600 * SECOND
    assert abs(last - (time.time_ns() - 2 * DAY)) < 600 * SECOND
