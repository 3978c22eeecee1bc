"""Established flows carried as frames, in front of AF_XDP: what differs from socket buffers at tc."""

import pytest
import wait
from test_fast_path import MANY, SEGMENT, datagrams, fast, flows, is_even
from topology import REMOTE, REMOTE6
from transfer import transfer

pytestmark = pytest.mark.only("wirerate-fast-xdp", why="frames go by in front of AF_XDP")

# Each has a queue of each interface.
VARIANTS = ["two-workers"]

DRIVERS = 'drivers = { trunk = "packet" }'
FAST = 'fast-path = "xdp"'


@pytest.fixture
def changed(net):
    """Applies the policy with something replaced; it is as before afterwards."""

    def change(before, after):
        text = net.office.policy.read_text()
        assert before in text
        net.office.policy.write_text(text.replace(before, after))
        net.office.ask("apply", net.office.policy)

    yield change
    net.office.apply()


def test_other_values_leave_these_ports_to_the_workers(net, changed):
    for value in ["auto", "tc"]:
        changed(FAST, f'fast-path = "{value}"')
        before = fast(net)["packets"]
        transfer(net.client, net.remote, REMOTE, 80, upload=MANY // 10)
        assert fast(net)["packets"] == before, value
        net.office.apply()


@pytest.mark.parametrize("to", [REMOTE, REMOTE6])
def test_frames_go_by_to_and_from_a_port_of_af_packet(net, changed, to):
    changed(DRIVERS, 'drivers = { trunk = "packet", wan = "packet" }')
    assert "AF_PACKET" in net.office.ask("ports").stdout
    before = fast(net)["packets"]
    transfer(net.client, net.remote, to, 80, upload=MANY, download=MANY)
    after = fast(net)
    # How soon the flow leaves its worker is a matter of load.
    assert after["packets"] - before > MANY // SEGMENT // 4, after
    assert after["lost"] == after["unsent"] == 0
    wait.until(lambda: is_even(net), "received = forwarded + delivered + answered + dropped + held + queued")


def test_a_device_that_refuses_frames_gets_none(net):
    """The peer of a veth loses GRO, and with it what it takes frames by: the flow goes back to its worker."""
    with net.remote.udp(port=5001) as server, net.client.udp(port=5008) as client:
        datagrams(client, server, 20)
        assert next(flow for flow in flows(net) if flow.get("sport") == 5008)["fast_path"]
        net.switch.run("ethtool", "-K", "gw-wan", "gro", "off")
        try:
            client.sendto(b"refused", (REMOTE, 5001))
            wait.until(lambda: fast(net)["unsent"] > 0, "what the device refused is counted")
            wait.until(lambda: fast(net)["flows"] == 0, "the flow is with its worker")
            before = fast(net)["packets"]
            datagrams(client, server, 200)
            assert fast(net)["packets"] == before
        finally:
            net.switch.run("ethtool", "-K", "gw-wan", "gro", "on")
        assert "devices did not take" in net.office.ask("status").stdout
        net.office.apply()
        datagrams(client, server, 200)
        assert fast(net)["packets"] > before


def test_refused_frames_are_counted_after_a_reload_too(net, monkeypatch):
    """By then the gateway has no privilege any more to load what counts them."""
    net.office.stop()
    with monkeypatch.context() as patch:
        patch.setattr(net.office, "fast_path", "tc")
        net.office.start()
    before = len(net.office.log())
    net.office.apply()

    def opened():
        told = net.office.log()[before:]
        return all(f'port attached interface="{name}"' in told for name in ["lan", "guest", "wan"])

    wait.until(opened, "the ports have been opened anew")
    with net.remote.udp(port=5001) as server, net.client.udp(port=5009) as client:
        client.settimeout(0.2)
        server.settimeout(0.2)

        def counted(name):
            """One question and answer. They may be lost, and by way of a worker: tables change once more when Linux has the guests' network again."""
            try:
                client.sendto(b"question", (REMOTE, 5001))
                server.sendto(b"answer", server.recvfrom(100)[1])
                client.recv(100)
            except TimeoutError:
                pass
            return fast(net)[name] > 0

        wait.until(lambda: counted("packets"), "frames go by")
        net.switch.run("ethtool", "-K", "gw-wan", "gro", "off")
        try:
            wait.until(lambda: counted("unsent"), "what the device refused is counted")
        finally:
            net.switch.run("ethtool", "-K", "gw-wan", "gro", "on")
        net.office.apply()
