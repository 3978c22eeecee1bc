"""The gateway's process dies at any moment, also while it begins or writes its state: the next one works, and takes in
a whole state or none.

Twenty seconds of it; ten minutes with WIRERATE_LONG=1.

Of clocks: workers go by CLOCK_MONOTONIC, counted from the start of the process. A state file has spans of time, how idle and how
old a flow is, and a stamp of when it was written, to which the time until it is read is added: by CLOCK_BOOTTIME within a boot,
by the time of day from boot to boot (`gateway/src/store/stamp.rs`).
"""

import json
import os
import random
import signal
import time

import pytest
import wait
from test_load import Generator, SOURCES, SPORTS
from topology import CLIENT, GATEWAY, REMOTE
from transfer import transfer

pytestmark = [
    pytest.mark.without("nftables", why="Linux has no process that could die"),
    pytest.mark.usefixtures("running"),
]

SECONDS = 600 if os.environ.get("WIRERATE_LONG") else 20

HALF_READ = ["starting with an empty flow table", "not saved", "could not", "cannot"]
"""What the log would say of a state that is not whole, or not written."""



@pytest.mark.longest(SECONDS + 90)
def test_it_comes_back_whenever_it_is_killed(net):
    net.unwatch()
    seed = random.randrange(1 << 32)
    print(f"random.seed({seed})")
    dice = random.Random(seed)
    flows = Generator(net, REMOTE)
    log = net.office.process.log
    begin = len(log.read_text(errors="replace"))
    end = time.monotonic() + SECONDS
    rounds = {"kill": 0, "kill early": 0, "kill while it ends": 0, "end": 0}
    try:
        while time.monotonic() < end:
            first = dice.randrange(len(SOURCES) * len(SPORTS) - 3000)
            for flow in range(first, first + 3000):
                flows.send(flow)
            how = dice.choice(list(rounds))
            rounds[how] += 1
            process = net.office.process
            if how.startswith("kill while"):
                process.send_signal(signal.SIGTERM)
                time.sleep(dice.uniform(0, 0.15))
            elif how == "end":
                process.send_signal(signal.SIGTERM)
                process.wait(10)
            if process.poll() is None:
                process.kill()
                process.wait(10)
            if how == "kill early":
                # The next one dies while it begins.
                net.office.launch()
                time.sleep(dice.uniform(0, 0.4))
                net.office.kill()
            net.office.start()
        assert not (net.logs / "state.new").exists()
        said = log.read_text(errors="replace")[begin:]
        print(rounds, said.count("flow state restored"), "times flows were taken over")
        for word in HALF_READ:
            assert word not in said, [line for line in said.splitlines() if word in line][:3]
        assert rounds["end"] == 0 or "flow state restored" in said
        net.client.reaches(GATEWAY)
        net.client.reaches(REMOTE)
        transfer(net.client, net.remote, REMOTE, 80, upload=200_000, download=200_000)
        net.office.kill()
        nothing_is_left(net)
    finally:
        flows.close()


def nothing_is_left(net):
    """No program on an interface, no device, no file but the state: what Linux sends and receives is its own."""
    links = json.loads(net.gateway.run("ip", "-j", "-d", "link").stdout)
    assert {link["ifname"] for link in links} == {"lo", "lan", "wan", net.guests}
    assert not [link["ifname"] for link in links if "xdp" in link]
    wait.until(lambda: net.client.ping(GATEWAY), "Linux answers")
    assert net.client.ping(GATEWAY, count=3)


def test_what_a_killed_gateway_left_is_cleared_away(net):
    """Half a state beside the whole one, and a socket that nobody listens at."""
    net.office.stop()
    before = net.office.state.read_bytes()
    net.office.start()
    left = net.logs / "state.new"
    left.write_bytes(before[: len(before) // 2])
    net.office.kill()
    assert net.office.socket.exists()
    net.office.start()
    assert not left.exists()
    assert not net.office.state.exists(), "a state is read once"


def test_a_crash_does_not_bring_back_flows_that_ended(net):
    """What a gateway read at its start is of no account when it crashes: flows were ended since, by hand too."""
    with net.remote.udp(port=5000) as remote, net.client.udp(CLIENT, 4749) as client:
        client.sendto(b"a flow", (REMOTE, 5000))
        peer = remote.recvfrom(100)[1]
        net.office.stop()
        net.office.start()
        net.client.reaches(GATEWAY)
        remote.sendto(b"taken over", peer)
        assert client.recv(100) == b"taken over"
        net.office.ask("flows", "kill", "--port", "4749")
        net.office.kill()
        net.office.start()
        net.client.reaches(GATEWAY)
        assert not flows_of(net, 4749)
        remote.sendto(b"long ended", peer)
        client.settimeout(0.5)
        with pytest.raises(TimeoutError):
            client.recv(100)


def test_a_state_that_was_saved_by_hand_is_left_aside(net):
    """It is of a moment, and the gateway went on: only `load` takes it in."""
    with net.remote.udp(port=5000) as remote, net.client.udp(CLIENT, 4750) as client:
        client.sendto(b"a flow", (REMOTE, 5000))
        remote.recv(100)
    saved = net.logs / "saved"
    net.office.ask("save", saved)
    net.office.stop()
    net.office.state.write_bytes(saved.read_bytes())
    before = len(net.office.log())
    net.office.start()
    assert "state file ignored" in net.office.log()[before:]
    assert not flows_of(net, 4750)
    net.office.ask("load", saved)
    assert flows_of(net, 4750)


def flows_of(net, port):
    return json.loads(net.office.ask("flows", "--json", "--port", str(port)).stdout)["flows"]


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "another"])
def test_a_damaged_state_is_left_aside(net, damage):
    """It says so, begins without flows, and writes a whole one when it ends."""
    with net.remote.udp(port=5000) as remote, net.client.udp() as client:
        client.sendto(b"a flow", (REMOTE, 5000))
        remote.recv(100)
        net.office.stop()
    state = bytearray(net.office.state.read_bytes())
    if damage == "cut":
        del state[-3:]
    elif damage == "flipped":
        state[len(state) // 2] ^= 0x10
    elif damage == "empty":
        state.clear()
    else:
        state[:] = b"#!/bin/sh\nexit 0\n" * 100
    net.office.state.write_bytes(state)
    before = len(net.office.log())
    net.office.start()
    net.client.reaches(REMOTE)
    said = net.office.log()[before:]
    assert "starting with an empty flow table" in said, said
    net.office.stop()
    before = len(net.office.log())
    net.office.start()
    assert "starting with an empty flow table" not in net.office.log()[before:]


def test_flows_are_as_idle_after_a_restart_as_before(net):
    """Their age does not begin anew, and the time without a gateway counts, so that what nobody uses ends when it should."""

    def flow():
        flows = flows_of(net, 4748)
        assert len(flows) == 1, flows
        return flows[0]

    with net.remote.udp(port=5000) as remote, net.client.udp(CLIENT, 4748) as client:
        client.sendto(b"a flow", (REMOTE, 5000))
        remote.recv(100)
        wait.until(lambda: flow()["idle_seconds"] >= 2, "it is idle")
        before = flow()
        net.office.stop()
        stopped = time.monotonic()
        wait.until(lambda: time.monotonic() - stopped >= 2, "time goes by without a gateway")
        net.office.start()
        after = flow()
        for key in ["idle_seconds", "age_seconds"]:
            # The file has eighths of a second.
            assert after[key] >= before[key] + 2 - 0.3, (before, after)
