"""A link with a rate: frames leave no faster, none is lost that has room to wait, and what has none is counted.

Only lower bounds of time are held: a machine that is busy may be slower, never faster.
"""

import json
import time

import pytest
import wait
from stamp import none_is_early, opened, receive
from test_load import SOURCES, SPORTS, Generator, Sink
from topology import REMOTE
from transfer import transfer

pytestmark = pytest.mark.without("nftables", why="the rate is one of the policy's; Linux has tc for it")

FRAME = 0.001
"""Seconds that a short frame takes of the `slow` link: 60 bytes and 24 of overhead, at 672 kbit/s."""

QUEUE = 1024
PORT = 5072


@pytest.fixture(autouse=True)
def as_before(net):
    net.unwatch()
    # Who waits for a neighbour waits in another queue.
    net.client.reaches(REMOTE)
    yield
    net.office.apply()


@pytest.fixture
def generator(net):
    generator = Generator(net, REMOTE)
    yield generator
    generator.close()


@pytest.fixture
def sink(net):
    sink = Sink(net.remote, REMOTE)
    yield sink
    sink.close()


def flows(count):
    """Flows of as many sources as there are, so that each worker has some."""
    return [number % len(SOURCES) * len(SPORTS) + number // len(SOURCES) for number in range(count)]


def send(generator, count):
    for flow in flows(count):
        generator.send(flow)


def arrived(sink, count):
    sink.drain()
    return len(sink.seen) >= count


def test_frames_leave_no_faster(net, generator, sink):
    net.office.apply("slow")
    began = time.monotonic()
    send(generator, 300)
    wait.until(lambda: arrived(sink, 300), "all frames arrive")
    assert time.monotonic() - began >= 299 * FRAME
    assert len(sink.seen) == 300


def test_each_frame_has_its_moment(net):
    """Sources are one: frames keep their order."""
    net.office.apply("slow")
    with opened(net.remote, REMOTE, PORT) as remote, opened(net.client, None, 0) as client:
        began = time.time()
        for _ in range(300):
            client.sendto(b"short", (REMOTE, PORT))
        none_is_early(receive(remote, 300), began, FRAME)


def test_what_finds_the_queue_full_is_counted(net, generator, sink):
    net.office.apply("slow")
    before = dropped(net)
    count = 3 * QUEUE
    send(generator, count)
    wait.until(lambda: net.office.counters()["queued"] == 0, "the queue is empty")
    wait.until(lambda: arrived(sink, count - (dropped(net) - before)), "what was not dropped arrives")
    assert QUEUE <= len(sink.seen) < count, "so many found room, and not all"
    assert len(sink.seen) + dropped(net) - before == count


def dropped(net):
    reasons = json.loads(net.office.ask("drops", "--json").stdout)
    return next((reason["dropped"] for reason in reasons if reason["reason"] == "queue-full"), 0)


def test_what_waits_stays_over_a_reload(net, generator, sink):
    net.office.apply("slow")
    send(generator, 900)
    net.office.apply()
    wait.until(lambda: arrived(sink, 900), "all frames arrive")


def test_workers_share_the_link(net, generator, sink):
    """Each of two workers has frames, and together they are no faster."""
    net.office.stop()
    net.office.start("slow", "two-workers")
    try:
        net.client.reaches(REMOTE)
        sink.drain()
        began = time.monotonic()
        send(generator, 600)
        wait.until(lambda: arrived(sink, 600), "all frames arrive")
        assert time.monotonic() - began >= 599 * FRAME
        workers = json.loads(net.office.ask("status", "--json").stdout)["workers"]
        assert all(worker["flows"] > 100 for worker in workers), workers
    finally:
        net.office.stop()
        net.office.start()
        net.client.reaches(REMOTE)


def test_tcp_finds_the_rate(net):
    net.office.apply("slow")
    began = time.monotonic()
    transfer(net.client, net.remote, REMOTE, 80, upload=60_000)
    assert time.monotonic() - began >= 60_000 * 8 / 672_000 * 0.9
