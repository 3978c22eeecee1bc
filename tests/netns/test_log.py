"""The log: packets that meet rules with `log = true`, connections, NAT mappings; and where records go."""

import json
import re
import signal
import socket
import subprocess
import time

import pytest
import wait
from topology import CLIENT, CLIENT6, OUTSIDE, REMOTE, REMOTE6

pytestmark = pytest.mark.without("nftables", why="Linux logs in a way of its own")

RULES = """
[[rule]]
name = "no-telnet"
from = "lan"
to = "wan"
protocol = ["tcp", "udp"]
dport = 2323
log = true
action = "drop"

[[rule]]
name = "chat"
from = "lan"
to = "wan"
protocol = "tcp"
dport = 6667
log = true
action = "accept"

[[rule]]
name = "no-timestamps"
from = "lan"
to = "wan"
protocol = ["icmp", "icmpv6"]
log = true
action = "reject"
"""


@pytest.fixture(autouse=True)
def as_before(net):
    yield
    net.office.apply()


@pytest.fixture
def records(net):
    """Records of a file of JSON lines that is new; a function that gives those of an event."""
    path = net.logs / f"records-{time.monotonic_ns()}.json"

    def of(event, **fields):
        lines = path.read_text().splitlines() if path.exists() else []
        found = [json.loads(line) for line in lines]
        same = [record for record in found if record["event"] == event]
        return [record for record in same if all(record.get(key) == fields[key] for key in fields)]

    of.path = path
    return of


def policy(net, *keys):
    """The policy with keys of `[gateway]`, and rules that log."""
    net.office.write()
    text = net.office.policy.read_text()
    assert "[gateway]\n" in text
    return text.replace("[gateway]\n", "[gateway]\n" + "".join(f"{key}\n" for key in keys), 1) + RULES


def apply(net, *keys):
    net.office.policy.write_text(policy(net, *keys))
    net.office.ask("apply", net.office.policy)


def to_telnet(net, count=1, to=REMOTE):
    with net.client.udp(v6=":" in to) as client:
        for _ in range(count):
            client.sendto(b"telnet?", (to, 2323))
        return client.getsockname()[1]


@pytest.mark.parametrize("to, source", [(REMOTE, CLIENT), (REMOTE6, CLIENT6)], ids=["ipv4", "ipv6"])
def test_a_packet_that_is_dropped_is_logged(net, records, to, source):
    apply(net, f'log = "file:{records.path}"')
    sport = to_telnet(net, to=to)
    wait.until(lambda: records("rule"), "a record of the rule")
    (record,) = records("rule")
    header = 28 if source == CLIENT else 48
    expected = {
        "level": "INFO",
        "rule": "no-telnet",
        "verdict": "dropped",
        "reason": "rule-drop",
        "in": "lan",
        "out": "wan",
        "from": "lan",
        "to": "wan",
        "protocol": "udp",
        "source": source,
        "sport": sport,
        "destination": to,
        "dport": 2323,
        "bytes": header + len(b"telnet?"),
        "worker": 0,
    }
    assert {key: record.get(key) for key in expected} == expected
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", record["timestamp"])


def test_of_a_connection_the_first_packet_is_logged(net, records):
    apply(net, f'log = ["file:{records.path}"]')
    with net.remote.listen(6667) as server, net.client.connect(REMOTE, 6667) as client:
        there, _ = server.accept()
        with there:
            for _ in range(20):
                client.sendall(b"hello")
                there.recv(100)
        sport = client.getsockname()[1]
    wait.until(lambda: records("rule"), "a record of the rule")
    to_telnet(net)
    wait.until(lambda: records("rule", rule="no-telnet"), "a record of another rule")
    (record,) = records("rule", rule="chat")
    assert (record["verdict"], record["tcp_flags"], record["sport"]) == ("accepted", "syn", sport)
    assert "reason" not in record


def test_icmp_has_type_and_code(net, records):
    apply(net, f'log = "file:{records.path}"')
    assert not net.client.ping(REMOTE)
    wait.until(lambda: records("rule"), "a record of the rule")
    record = records("rule")[0]
    assert (record["verdict"], record["reason"]) == ("rejected", "rule-reject")
    assert (record["icmp_type"], record["icmp_code"]) == (8, 0)
    assert "sport" not in record


def test_without_a_word_records_go_to_standard_error(net):
    apply(net)
    to_telnet(net)
    wait.until(lambda: "rule no-telnet: dropped" in net.office.log(), "a record on standard error")


def test_a_flood_is_cut_short_and_counted(net, records):
    apply(net, f'log = "file:{records.path}"', 'log-rate = "5/second burst 20"')
    sent = 10_000

    def rule():
        rules = json.loads(net.office.ask("rules", "--json").stdout)
        return next(rule["packets"] for rule in rules if rule["name"] == "no-telnet")

    before = rule()
    to_telnet(net, sent)
    wait.until(lambda: rule() - before >= sent * 0.99, "the rule has met the flood")

    def written():
        return len(records("rule"))

    def left_out():
        return sum(record["count"] for record in records("left-out", of="rule", rule="no-telnet"))

    wait.until(lambda: written() + left_out() == rule() - before, "the account adds up")
    # The burst, and what comes in the seconds that it takes.
    assert 20 <= written() < 200
    status = json.loads(net.office.ask("status", "--json").stdout)["log"]
    assert status["left_out"] >= left_out()


def test_connections_and_mappings_pair_up(net, records):
    apply(net, f'log = "file:{records.path}"', 'log-events = ["connection", "nat"]')
    with net.remote.listen(7000) as server, net.client.connect(REMOTE, 7000) as client:
        there, peer = server.accept()
        there.close()
        sport = client.getsockname()[1]
    ends = {"protocol": "tcp", "source": CLIENT, "sport": sport, "destination": REMOTE, "dport": 7000}
    wait.until(lambda: records("connection-new", **ends), "the connection has begun")
    net.office.ask("flows", "kill", "--host", CLIENT)
    wait.until(lambda: records("connection-ended", **ends), "the connection has ended")
    (begun,), (ended,) = records("connection-new", **ends), records("connection-ended", **ends)
    for record in (begun, ended):
        assert (record["seen_as"], record["seen_port"]) == peer == (OUTSIDE, peer[1])
        assert (record["in"], record["nat"]) == ("lan", ["house"])
    assert (begun["out"], ended["cause"]) == ("wan", "killed")
    assert 0 <= ended["duration_seconds"] < 60
    mapping = {
        "nat": "house",
        "protocol": "tcp",
        "inside": CLIENT,
        "inside_port": sport,
        "outside": OUTSIDE,
        "outside_port": peer[1],
    }
    wait.until(lambda: records("nat-deleted", **mapping), "the mapping has been deleted")
    assert len(records("nat-created", **mapping)) == len(records("nat-deleted", **mapping)) == 1
    assert not records("rule")


MESSAGE = re.compile(
    r"<(\d{1,3})>1 (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,6}Z) ([\x21-\x7e]{1,255}) ([\x21-\x7e]{1,48})"
    r" ([\x21-\x7e]{1,128}) ([\x21-\x7e]{1,32}) \[([^ =\]\"]{1,32})((?: [^ =\]\"]{1,32}=\"(?:[^\"\\\]]|\\[\"\\\]])*\")*)\] (.*)"
)
"""RFC 5424, section 6, of what the gateway sends."""


def check_message(text):
    parsed = MESSAGE.fullmatch(text)
    assert parsed, text
    assert (parsed[1], parsed[4], parsed[6], parsed[7]) == ("30", "wirerate", "rule", "wirerate@32473")
    fields = dict(re.findall(r" ([^ =]+)=\"((?:[^\"\\]|\\.)*)\"", parsed[8]))
    assert (fields["rule"], fields["verdict"], fields["source"]) == ("no-telnet", "dropped", CLIENT)
    assert fields["dport"] == "2323"


def test_syslog_by_a_socket_in_the_file_system(net):
    path = net.logs / "syslog.sock"
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(path))
        server.settimeout(5)
        apply(net, f'log = "syslog:{path}"')
        to_telnet(net)
        check_message(server.recv(4096).decode())


def test_syslog_by_udp(net):
    with net.gateway.udp("127.0.0.1", 5514) as server:
        apply(net, 'log = "syslog:udp:127.0.0.1:5514"')
        to_telnet(net)
        check_message(server.recv(4096).decode())


def test_syslog_by_tcp(net):
    """Each message has its length in front (RFC 6587, section 3.4.1)."""
    with net.gateway.listen(5601) as server:
        apply(net, 'log = "syslog:tcp:127.0.0.1:5601"')
        to_telnet(net, 2)
        there, _ = server.accept()
        with there:
            there.settimeout(5)
            data = there.recv(4096)
            while data.count(b"<30>1 ") < 2:
                data += there.recv(4096)
    for _ in range(2):
        length, rest = data.split(b" ", 1)
        check_message(rest[: int(length)].decode())
        data = rest[int(length) :]
    assert data == b""


def test_the_journal(net):
    path = net.logs / "journal.sock"
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(path))
        server.settimeout(5)
        apply(net, f'log = "journald:{path}"')
        to_telnet(net)
        fields = dict(line.split("=", 1) for line in server.recv(4096).decode().splitlines())
    assert (fields["PRIORITY"], fields["SYSLOG_IDENTIFIER"]) == ("6", "wirerate")
    assert (fields["WIRERATE_RULE"], fields["WIRERATE_SOURCE"]) == ("no-telnet", CLIENT)
    assert fields["MESSAGE"].startswith("rule no-telnet: dropped")
    # It is gone now: standard error stands in for it.
    before = net.office.log().count("rule no-telnet: dropped")
    path.unlink()
    to_telnet(net)
    wait.until(lambda: net.office.log().count("rule no-telnet: dropped") > before, "a record on standard error")


def test_what_cannot_be_written_is_counted(net):
    apply(net, f'log = "file:{net.logs}/not-there/records.json"')

    def not_written():
        return json.loads(net.office.ask("status", "--json").stdout)["log"]["not_written"]

    before = not_written()
    to_telnet(net, 3)
    wait.until(lambda: not_written() - before == 3, "three records are counted")
    assert net.client.ping("192.168.1.1")
    assert "log output failed" in net.office.log()


def test_on_a_full_disk_records_are_counted_and_later_ones_whole(net, records, full_disk):
    # The directory of the log cannot change while the gateway runs, nor does the gateway see a mount that comes later: the file alone is on the disk.
    net.office.stop()
    for path in (full_disk / "records.json", records.path):
        path.touch()
        path.chmod(0o666)
    subprocess.run(["mount", "--bind", full_disk / "records.json", records.path], check=True)
    try:
        net.office.start()
        apply(net, f'log = "file:{records.path}"')
        counts = lambda: json.loads(net.office.ask("status", "--json").stdout)["log"]
        before = counts()
        to_telnet(net, 3)
        wait.until(lambda: counts()["not_written"] - before["not_written"] == 3, "three records are counted")
        assert net.client.ping("192.168.1.1")
        (full_disk / "filler").unlink()
        before = counts()
        to_telnet(net, 2)
        wait.until(lambda: counts()["written"] - before["written"] == 2, "two records are written")
        assert len(records("rule")) == 2
        apply(net)
    finally:
        subprocess.run(["umount", "--lazy", records.path], check=True)


def test_a_file_that_was_moved_away_is_opened_again(net, records):
    apply(net, f'log = "file:{records.path}"')
    to_telnet(net)
    wait.until(lambda: records("rule"), "a record")
    records.path.rename(records.path.with_suffix(".old"))
    net.office.process.send_signal(signal.SIGHUP)
    wait.until(lambda: to_telnet(net) and records("rule"), "a record in the new file")
