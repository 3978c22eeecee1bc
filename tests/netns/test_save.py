"""What a gateway remembers, saved and loaded while it works."""

import json

import pytest
import wait
from gateway import binary
from packet import UDP, ethernet, ipv4, udp
from topology import CARDS, CLIENT, GATEWAY, OUTSIDE, REMOTE

pytestmark = [
    pytest.mark.without("nftables", why="Linux has other means to this end"),
    pytest.mark.usefixtures("running"),
]


def start_anew(net):
    """Kills the gateway and starts one that remembers nothing."""
    net.office.kill()
    net.office.state.unlink(missing_ok=True)
    net.office.start()
    net.client.reaches(GATEWAY)


def flows(net):
    return json.loads(net.office.ask("flows", "--protocol", "tcp", "--json").stdout)["flows"]


def test_connections_go_on_in_a_gateway_that_was_given_what_another_saved(net, tmp_path):
    """Translated ones, forwarded ones, and mappings of UDP."""
    saved = tmp_path / "flows.state"
    with net.remote.listen(80) as listener, net.server.listen(443) as inside:
        with net.client.connect(REMOTE, 80) as client, net.remote.connect(OUTSIDE, 443) as outside:
            there, _ = listener.accept()
            server, _ = inside.accept()
            with there, server, net.remote.udp(port=5000) as remote, net.client.udp(CLIENT, 4748) as dgram:
                dgram.sendto(b"before", (REMOTE, 5000))
                peer = remote.recvfrom(100)[1]
                told = json.loads(net.office.ask("save", saved, "--json").stdout)
                assert told["flows"] >= 3
                assert not saved.with_name("flows.state.new").exists()
                start_anew(net)
                assert not flows(net)
                loaded = json.loads(net.office.ask("load", saved, "--json").stdout)
                assert loaded["flows"] + loaded["present"] == told["flows"], loaded
                assert not loaded["refused"]
                for one, other in [(client, there), (there, client), (outside, server), (server, outside)]:
                    one.sendall(b"still there?")
                    other.settimeout(10)
                    assert other.recv(100) == b"still there?"
                remote.sendto(b"an answer", peer)
                assert dgram.recv(100) == b"an answer"
                # What is there already stays as it is.
                again = json.loads(net.office.ask("load", saved, "--json").stdout)
                assert again["flows"] == 0 and again["present"] == told["flows"]
                client.sendall(b"and now?")
                assert there.recv(100) == b"and now?"


def test_thousands_of_flows_are_saved_while_packets_come(net, tmp_path):
    """Each is there afterwards, with the translation that it had; the file is many blocks long."""
    many, saved = 5_000, tmp_path / "flows.state"
    start_anew(net)
    net.client.reaches(REMOTE)
    gateway, own = CARDS["lan"], net.client.mac()
    with net.client.wire("eth0") as wire:

        def datagrams(first, last):
            for sport in range(first, last):
                wire.send(ethernet(gateway, own, ipv4(CLIENT, REMOTE, UDP, udp(CLIENT, REMOTE, sport, 9, b""))))

        def opened():
            return net.office.counters()["flows"]

        for first in range(10_000, 10_000 + many, 250):
            before = opened()
            datagrams(first, first + 250)
            wait.until(lambda before=before: opened() >= before + 250, "the flows are there")
        told = json.loads(net.office.ask("save", saved, "--json").stdout)
        assert told["flows"] >= many
        before = ports(net)
        start_anew(net)
        loaded = json.loads(net.office.ask("load", saved, "--json").stdout)
        assert loaded["flows"] + loaded["present"] == told["flows"] and not loaded["refused"], loaded
        assert ports(net) == before and len(before) == many


def ports(net):
    """The outside port of each of the flows, by its inside port."""
    listed = json.loads(
        net.office.ask("flows", "--protocol", "udp", "--port", 9, "--limit", 100_000, "--json").stdout
    )["flows"]
    return {flow["sport"]: flow["seen_port"] for flow in listed}


def test_what_the_policy_no_longer_has_is_told(net, tmp_path):
    saved = tmp_path / "flows.state"
    with net.server.listen(443) as inside, net.remote.connect(OUTSIDE, 443) as outside:
        server, _ = inside.accept()
        with server:
            net.office.ask("save", saved)
            start_anew(net)
            policy = net.office.policy.read_text()
            net.office.policy.write_text(policy.replace('name = "web"\n', 'name = "other"\n'))
            net.office.ask("apply", net.office.policy)
            loaded = json.loads(net.office.ask("load", saved, "--json").stdout)
            reasons = [refused["reason"] for refused in loaded["refused"]]
            assert reasons == ["its translation, rule, meter, set or key is gone"], loaded
            outside.settimeout(0.1)
    net.office.apply()


def damaged(data):
    """Files in which something is wrong, by name."""
    half = len(data) // 2
    yield "a bit", data[:half] + bytes([data[half] ^ 1]) + data[half + 1 :]
    yield "no end", data[:-9]
    yield "nothing", b""
    begin, version, rest = data[:15], data[15:16], data[16:]
    assert begin == b"wirerate state " and rest.startswith(b"\n")
    yield "another version", begin + bytes([version[0] ^ 8]) + rest
    yield "something else", b"[interface.lan]\n" * 100
    yield "a length past all bounds", data[:17] + b"\xff" * 8 + data[25:]


def test_a_file_that_is_damaged_changes_nothing(net, tmp_path):
    """Neither the command takes it nor the gateway, which does not rely on the command."""
    saved, wrong = tmp_path / "flows.state", tmp_path / "wrong.state"
    with net.remote.listen(80) as listener, net.client.connect(REMOTE, 80):
        listener.accept()[0].close()
        net.office.ask("save", saved)
    data = saved.read_bytes()
    start_anew(net)
    before = flows(net)
    for name, bad in damaged(data):
        wrong.write_bytes(bad)
        done = net.office.ask("load", wrong, check=False)
        assert done.returncode == 3 and "error: " in done.stdout, (name, done.stdout)
        there = ["--unix-socket", net.office.socket, "http://gateway/state"]
        done = net.gateway.run("curl", "-sS", "--data-binary", f"@{wrong}", *there)
        assert "nothing was loaded" in done.stdout, (name, done.stdout)
    assert flows(net) == before


def test_a_full_disk_leaves_what_was_there(net, full_disk):
    done = net.office.ask("save", full_disk / "flows.state", check=False)
    assert done.returncode == 3 and "No space left" in done.stdout, done.stdout
    assert [path.name for path in full_disk.iterdir()] == ["filler"]
    net.client.reaches(REMOTE)


@pytest.mark.parametrize("path", ["/dev/full", "/dev/null", "/proc/1", "/nowhere/file"])
def test_a_place_that_is_no_file_is_refused(net, path):
    done = net.office.ask("save", path, check=False)
    assert done.returncode == 3 and "nothing was saved" in done.stdout, done.stdout


def test_it_ends_in_good_order_when_the_disk_is_full(net, full_disk):
    """And says that what it remembered is lost."""
    net.office.stop()
    usual, net.office.state = net.office.state, full_disk / "state"
    try:
        net.office.start()
        net.client.reaches(REMOTE)
        net.office.stop()
        assert net.office.process.returncode == 0
        wait.until(lambda: "flow state not saved" in net.office.process.log.read_text(), "it says so")
        left = {path.name for path in full_disk.rglob("*") if not path.is_dir()}
        assert left == {"filler"}, left
    finally:
        net.office.state = usual


def test_a_policy_that_cannot_be_kept_is_in_force_and_named(net, full_disk):
    """The history has no room: the policy is applied, `status` says that it would not outlive a restart, and no other entry passes for it."""
    net.office.stop()
    usual, net.office.state = net.office.state, full_disk / "state"
    in_force = lambda: json.loads(net.office.ask("policy", "history", "--json").stdout)["in_force"]
    said = lambda: " ".join(net.office.ask("status").stdout.split())
    try:
        net.office.start()
        net.office.apply("no-chat")
        assert "No space left" in said() and "will not survive a restart" in said(), said()
        assert in_force() is None
        rules = [rule["name"] for rule in json.loads(net.office.ask("rules", "--json").stdout)]
        assert "no-chat" in rules
        (full_disk / "filler").unlink()
        net.office.apply()
        assert "will not survive a restart" not in said()
        assert in_force() is not None
        net.office.stop()
    finally:
        net.office.state = usual


def test_no_gateway(net, tmp_path):
    for command in ["save", "load"]:
        file = tmp_path / "file"
        file.write_bytes(b"")
        done = net.gateway.run(
            binary(), command, file, "--socket", tmp_path / "nobody", check=False
        )
        assert done.returncode == (4 if command == "save" else 3), done.stdout
