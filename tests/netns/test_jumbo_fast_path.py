"""Links of 9000 bytes on the fast path at XDP, where a frame of several buffers is the worker's and a short one of the same flow the kernel's."""

import pytest
import wait
from test_fast_path import fast, is_even
from topology import OUTSIDE, REMOTE, REMOTE6, SERVER6
from transfer import transfer

MTU = 9000
MANY = 20_000_000

pytestmark = pytest.mark.only("wirerate-fast-xdp", why="the fast path at XDP is on")


@pytest.mark.parametrize("to", [REMOTE, REMOTE6])
def test_streams_of_long_and_short_frames_arrive(net, to):
    before = net.office.counters()
    transfer(net.client, net.remote, to, 80, upload=MANY, download=MANY)
    wait.until(lambda: is_even(net), "received = forwarded + delivered + answered + dropped + held + queued")
    after = net.office.counters()
    assert after["received"] - before["received"] >= 2 * MANY // (MTU - 52), "data, and acknowledgements"
    assert fast(net)["packets"] > before["fast_path"]["packets"], "acknowledgements go by"
    assert fast(net)["lost"] == fast(net)["unsent"] == 0


def test_forwarded_streams_arrive(net):
    transfer(net.remote, net.server, OUTSIDE, 443, upload=MANY, download=MANY)
    transfer(net.remote, net.server, SERVER6, 443, upload=MANY, download=MANY)
    wait.until(lambda: is_even(net), "received = forwarded + delivered + answered + dropped + held + queued")
