"""The record of drops: the last packets of each reason, with what decided about each."""

import json
import shutil
import time
from datetime import datetime

import flood
import pytest
import wait
from gateway import binary
from packet import UDP, Packet, ethernet, ipv4, udp
from pcapng import Capture
from topology import CLIENT, OUTSIDE, REMOTE

pytestmark = pytest.mark.without("nftables", why="Linux has tcpdump")

EACH = 16
"""Packets that each worker remembers of each reason."""


@pytest.fixture
def chatless(net):
    """The gateway with a rule that drops, and afterwards without."""
    net.office.apply("no-chat")
    net.client.reaches(REMOTE)
    yield
    net.office.apply()


def drops(net, *words):
    """The rows of `wirerate drops --json`, by reason."""
    return {row["reason"]: row for row in json.loads(net.office.ask("drops", *words, "--json").stdout)}


def packets(net, reason, **fields):
    """The packets of a reason, the latest first, of which these fields are so."""
    row = drops(net, reason).get(reason, {"packets": []})
    assert len(row["packets"]) <= row.get("dropped", 0) + row.get("answered", 0)
    return [each for each in row["packets"] if all(each[name] == value for name, value in fields.items())]


def chat(net):
    with pytest.raises(OSError):
        net.client.connect(REMOTE, 6667, timeout=0.5)


def send(net, packet):
    """Sends a packet from the client as it is."""
    with net.client.wire("eth0") as wire:
        wire.send(ethernet(net.gateway.mac("lan"), net.client.mac(), packet))


def test_a_packet_is_there_with_what_decided(net, chatless):
    begun = time.time()
    chat(net)
    seen = packets(net, "rule-drop", rule="no-chat")[0]
    at = datetime.fromisoformat(seen["time"].replace("Z", "+00:00")).timestamp()
    assert begun - 0.001 <= at <= time.time()
    assert (seen["interface"], seen["egress"], seen["verdict"]) == ("lan", "wan", "dropped")
    assert seen["packet"].startswith(f"tcp {CLIENT}:") and f" > {REMOTE}:6667 syn" in seen["packet"]
    packet = Packet.read(bytes.fromhex(seen["bytes"]))
    assert (packet.source, packet.to, packet.dport) == (CLIENT, REMOTE, 6667)
    # On the screen, too, and with the counters.
    shown = net.office.ask("drops", "rule-drop").stdout
    assert f'lan > wan  {seen["packet"]}, rule "no-chat"' in shown, shown
    assert "rule-drop" in net.office.ask("drops").stdout


def test_what_is_wrong_with_a_packet_shows(net):
    datagram = udp(CLIENT, REMOTE, 4711, 5003, b"hello")
    wrong = bytearray(ipv4(CLIENT, REMOTE, UDP, datagram))
    wrong[10] ^= 0xFF
    send(net, bytes(wrong))
    send(net, ipv4(CLIENT, REMOTE, UDP, udp(CLIENT, REMOTE, 4712, 5003, b"last"), ttl=1))
    wait.until(lambda: any(":4711" in seen["packet"] for seen in packets(net, "ipv4-checksum")), "the wrong sum")
    (seen,) = [seen for seen in packets(net, "ipv4-checksum") if ":4711" in seen["packet"]]
    assert (seen["interface"], seen["egress"], seen["rule"]) == ("lan", None, None)
    assert bytes.fromhex(seen["bytes"])[14:34] == bytes(wrong[:20])
    # The answer is an ICMP error; the record has the packet that it answers.
    expired = [seen for seen in packets(net, "ttl-expired", verdict="answered") if ":4712" in seen["packet"]]
    assert [seen["interface"] for seen in expired] == ["lan"]
    assert " ttl 1 " in expired[0]["packet"]


def test_a_record_outlives_another_policy(net, chatless):
    chat(net)
    before = packets(net, "rule-drop", rule="no-chat")
    assert before
    net.office.apply()
    after = packets(net, "rule-drop", rule="no-chat")
    bare = [{name: value for name, value in seen.items() if name != "time"} for seen in before]
    assert [{name: value for name, value in seen.items() if name != "time"} for seen in after] == bare


def test_it_is_off_where_the_policy_says_so(net, chatless):
    chat(net)
    assert packets(net, "rule-drop")
    text = net.office.policy.read_text()
    path = net.logs / "unrecorded.toml"
    path.write_text(text.replace("[gateway]\n", "[gateway]\ndrop-record = 0\n", 1))
    net.office.ask("apply", path)
    chat(net)
    assert all(not row["packets"] for row in drops(net).values())
    assert drops(net)["rule-drop"]["dropped"] > 0
    refused = net.office.ask("drops", "--pcapng", "-", check=False)
    assert refused.returncode != 0 and "drop-record" in refused.stdout, refused.stdout


def test_an_unknown_reason_is_refused(net):
    refused = net.office.ask("drops", "no-such-reason", check=False)
    assert refused.returncode != 0 and 'there is no reason "no-such-reason"' in refused.stdout


def test_pcapng_has_them_all(net, chatless, tmp_path):
    chat(net)
    rows = drops(net)
    path = tmp_path / "drops.pcapng"
    net.office.ask("drops", "--pcapng", path)
    found = Capture(path).packets
    stamps = [seen.nanoseconds for seen in found]
    assert stamps == sorted(stamps)
    assert len(found) >= sum(len(row["packets"]) for row in rows.values()) > 0
    chats = [seen for seen in found if 'dropped: rule-drop by rule "no-chat", in by lan, out by wan' in seen.comment]
    assert chats and all(seen.interface == "lan" for seen in chats)
    assert all(len(seen.frame) == min(seen.length, 192) for seen in found)
    if shutil.which("tshark"):
        fields = ["-e", "frame.interface_name", "-e", "frame.comment", "-e", "tcp.dstport"]
        told = net.gateway.run("tshark", "-r", path, "-T", "fields", *fields).stdout
        assert 'lan\tdropped: rule-drop by rule "no-chat", in by lan, out by wan\t6667' in told, told
    piped = net.gateway.run(
        "bash", "-c", f"{binary()} drops rule-drop --pcapng - --socket {net.office.socket} | head -c 4 | xxd -p"
    )
    assert piped.stdout.strip() == "0a0d0d0a"


def test_a_flood_leaves_the_others_and_takes_no_memory(net, chatless):
    chat(net)
    kept = packets(net, "rule-drop", rule="no-chat")
    assert kept

    def memory():
        return net.office.counters()["memory_by_part"]["drop record"]

    def dropped():
        return drops(net).get("default-drop", {}).get("dropped", 0)

    size, before = memory(), dropped()
    process = flood.start(net, OUTSIDE, 9, 50_000, 20)
    while process.poll() is None:
        net.office.ask("drops")
    assert process.returncode == 0, process.log.read_text()
    sent = int(process.log.read_text())
    assert dropped() - before > sent / 2, "the flood was dropped for another reason"
    workers = len(net.office.counters()["workers"])
    latest = packets(net, "default-drop")
    assert EACH <= len(latest) <= EACH * workers
    assert all(f"{OUTSIDE}:9 syn" in seen["packet"] for seen in latest[:EACH])
    assert memory() == size
    fields = ("packet", "rule", "bytes")
    now = packets(net, "rule-drop", rule="no-chat")
    assert [[seen[name] for name in fields] for seen in now] == [[seen[name] for name in fields] for seen in kept]
