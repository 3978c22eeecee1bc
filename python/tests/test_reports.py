"""Reports on policies: held to the command, and to what they say of packets that are replayed."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap

import pandas as pd
import pytest

import wirerate

HOME_OFFICE = "policies/home-office.toml"
SYN = "lan tcp 192.168.1.10:50000 > 198.51.100.7:25 syn"


def command(*arguments: object) -> str:
    """What the command prints, whatever its exit code."""
    name = os.environ.get("WIRERATE", "wirerate")
    return subprocess.run([name, *map(str, arguments)], capture_output=True, text=True, check=False).stdout


@pytest.fixture(scope="module")
def home(root):
    return wirerate.Policy.read(root / HOME_OFFICE)


@pytest.fixture(scope="module")
def changed(root, tmp_path_factory):
    """The file of a home office whose hosts may not send mail by a further port, and whose timeout of UDP is another."""
    text = (root / HOME_OFFICE).read_text()
    path = tmp_path_factory.mktemp("changed") / "new.toml"
    path.write_text(text.replace("dport = 25\n", "dport = [25, 465]\n").replace("udp = \"5m\"", "udp = \"6m\""))
    return path


BAD = '[interface.lan]\nzone = "lan"\nadresses = ["192.0.2.1/33"]\nmtu = "x"\n'

HIDDEN = """\
[interface.lan]
zone = "lan"
addresses = ["192.168.1.1/24"]
[interface.wan]
zone = "wan"
addresses = ["203.0.113.2/24"]
[[rule]]
name = "all"
protocol = "tcp"
action = "accept"
[[rule]]
name = "hidden"
protocol = "tcp"
dport = 22
action = "drop"
"""


@pytest.mark.parametrize("options", [{}, {"overlaps": True}, {"thorough": True}])
@pytest.mark.parametrize("name", ["home-office", "isp-edge", "diffserv-edge"])
def test_a_check_is_that_of_the_command(root, name, options):
    path = root / f"policies/{name}.toml"
    words = [f"--{option}" for option in options]
    told = json.loads(command("check", path, "--json", *words))
    for check in (wirerate.check(path, **options), wirerate.Policy.read(path).check(**options)):
        assert check.figures == told
        assert (check.sound, bool(check), check.errors, check.warnings) == (True, True, 0, told["warnings"])
        assert check.classifier == told["classifier"]


def test_a_check_of_a_wrong_policy_raises_nothing_and_has_the_diagnostics_of_the_exception(tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text(BAD)
    with pytest.raises(wirerate.PolicyError) as raised:
        wirerate.Policy.read(path)
    check = wirerate.check(path)
    errors = [found for found in check.diagnostics if found.severity == "error"]
    assert tuple(errors) == raised.value.diagnostics
    assert (check.sound, bool(check), check.errors) == (False, False, len(errors))
    assert check.classifier is None
    text = wirerate.check_text(BAD, "bad.toml")
    assert [(found.code, found.line, found.file) for found in text.diagnostics] == [
        (found.code, found.line, "bad.toml") for found in check.diagnostics]
    assert "bad.toml:3:1: error: " in str(text)
    assert "wrong, 2 errors" in repr(text)
    with pytest.raises(wirerate.ReadError):
        wirerate.check(tmp_path / "none.toml")


def test_findings_point_at_the_rules_that_they_are_about():
    check = wirerate.Policy.parse(HIDDEN, "p.toml").check()
    (found,) = check.diagnostics
    assert (found.code, found.severity, found.line) == ("shadowed-rule", "warning", 12)
    assert [(other.file, other.line, other.label) for other in found.related] == [("p.toml", 8, "matches all of it")]
    (row,) = check.table.to_pylist()
    assert (row["code"], row["line"], row["related"][0]["line"]) == ("shadowed-rule", 12, 8)
    assert check.table.schema.names == [*wirerate.Diagnostic._fields]
    assert "hidden" in check._repr_html_()
    assert str(check).endswith("p.toml: sound, 1 warning")


def test_a_table_of_no_findings_has_its_columns(home):
    table = home.check().table
    assert (table.num_rows, table.schema.names) == (0, [*wirerate.Diagnostic._fields])


def test_an_equal_policy_changes_nothing(home):
    diff = home.diff(wirerate.Policy.parse(home.to_toml()))
    assert (diff.equal, bool(diff), diff.outcome, diff.found, diff.complete) == (True, False, "same", 0, True)
    assert diff.regions.num_rows == diff.classes.num_rows == 0
    assert "no packet changes its fate" in str(diff)


def test_a_diff_is_that_of_the_command_and_its_examples_are_explained_so(root, home, changed):
    new = wirerate.Policy.read(changed)
    diff = home.diff(new)
    assert diff.figures == json.loads(command("diff", root / HOME_OFFICE, changed, "--json"))
    assert f"{diff}\n" == command("diff", root / HOME_OFFICE, changed)
    assert (diff.equal, bool(diff), diff.outcome) == (False, True, "different")
    assert any("udp" in thing or "timeout" in thing for thing in diff.not_compared)
    rows = diff.regions.to_pylist()
    assert len(rows) == diff.found > 0
    for row in rows:
        assert (row["old_action"], row["new_action"], row["new_rule"]) == ("accept", "reject", "no-direct-mail")
        assert "dport 465" in row["packets"]
        assert row["tried"]
        old, after = home.explain(row["example"]), new.explain(row["example"])
        assert (old.verdict, after.verdict) == ("forwarded", "answered")
        assert (old.rule, after.rule) == (row["old_rule"], row["new_rule"])
        assert after.figures["rule"]["line"] == row["new_line"]


def test_a_diff_shows_so_many_regions(home, changed):
    new = wirerate.Policy.read(changed)
    found = home.diff(new).found
    diff = home.diff(new, regions=0)
    assert (diff.regions.num_rows, diff.found) == (0, found)
    assert f"regions={found} shows all" in str(diff)
    with pytest.raises(ValueError, match="regions"):
        home.diff(new, regions=-1)
    with pytest.raises(TypeError, match="Policy"):
        home.diff(str(changed))


def test_a_diff_has_packets_that_change_their_class(root):
    path = root / "policies/diffserv-edge.toml"
    old = wirerate.Policy.read(path)
    text = old.to_toml()
    first = text.index("[[class]]")
    second = text.index("[[", first + 2)
    # The first class becomes the last.
    moved = text[:first] + text[second:] + "\n" + text[first:second]
    diff = old.diff(wirerate.Policy.parse(moved))
    rows = diff.classes.to_pylist()
    assert len(rows) == diff.figures["classes"]["found"] > 0
    assert {(row["old"], row["new"]) for row in rows} == {("voice", "best-effort")}
    assert all("dport 16384-32767" in row["packets"] and row["packets"] in str(diff) for row in rows)
    # Of the rules nothing changes.
    assert diff.equal


def test_an_explanation_in_words_is_that_of_the_command(root, home):
    explained = home.explain(SYN)
    assert explained.figures == json.loads(command("explain", root / HOME_OFFICE, SYN, "--json"))
    assert f"{explained}\n" == command("explain", root / HOME_OFFICE, SYN)
    assert (explained.verdict, explained.reason, explained.rule) == ("answered", "rule-reject", "no-direct-mail")
    assert explained.cause and explained.remedy
    stages = explained.stages.to_pylist()
    assert [row["stage"] for row in stages][:2] == ["parse", "reassemble"]
    assert sum(row["instructions"] or 0 for row in stages) == explained.instructions
    decided = next(row for row in stages if row["stage"] == "filter")
    assert decided["verdict"] == "answered" and "no-direct-mail" in decided["says"][0]
    assert {one["region"] for one in decided["references"]}
    (sent,) = explained.sent.to_pylist()
    assert sent["interface"] == "lan" and sent["packet"].startswith("tcp 198.51.100.7:25 > 192.168.1.10:50000 ack,rst")
    assert "answered" in repr(explained)
    assert "<pre" in explained._repr_html_() and "&gt;" in explained._repr_html_()


@pytest.mark.parametrize("number", [1, 40, 300])
def test_a_packet_of_a_capture_is_explained_after_those_before_it(office, number):
    policy = wirerate.Policy.read(office.policy)
    lan, wan = office.captures["lan"], office.captures["wan"]
    explained = policy.explain((lan, number), interface="lan", with_={"wan": wan})
    words = ["explain", office.policy, f"lan={lan}:{number}", "--with", f"wan={wan}"]
    assert explained.figures == json.loads(command(*words, "--json"))
    assert f"{explained}\n" == command(*words)


@pytest.mark.parametrize("name", ["office", "diffserv"])
def test_rows_of_a_replay_and_their_explanations_agree(request, name):
    scene = request.getfixturevalue(name)
    result = wirerate.replay(wirerate.Policy.read(scene.policy), scene.captures)
    packets = result.packets.read_pandas()
    chosen = [rows.head(2) for _, rows in packets.groupby(["verdict", "reason"], observed=True, dropna=False)]
    assert len(chosen) > 2
    for row in pd.concat(chosen).itertuples():
        explained = result.explain(row.number)
        assert explained.verdict == row.verdict
        # The table has no reason for what is held at the end.
        assert explained.reason == row.reason if isinstance(row.reason, str) else row.verdict in ("held", "forwarded", "delivered")
        if isinstance(row.source, str):
            assert (explained.packet["source"], explained.packet["destination"]) == (row.source, row.destination)
        if explained.delay_ns is not None:
            assert explained.delay_ns == row.delay.value
    with pytest.raises(wirerate.PacketError, match=f"the replay has no packet {len(packets)}") as raised:
        result.explain(len(packets))
    assert raised.value.hint == f"its packets are numbered from 0 to {len(packets) - 1}"
    with pytest.raises(wirerate.PacketError, match="no packet -1"):
        result.explain(-1)


def test_queues_have_what_waited_before_the_packet(diffserv):
    policy = wirerate.Policy.read(diffserv.policy)
    name, path = next(iter(diffserv.captures.items()))
    others = {other: at for other, at in diffserv.captures.items() if other != name}
    for number in range(200, 230):
        explained = policy.explain((path, number), interface=name, with_=others)
        if explained.queues.num_rows:
            break
    queue = explained.queues.to_pylist()[-1]
    assert queue["limit"] > 0 and queue["drop"]
    assert explained.delay_ns is None or explained.delay_ns >= 0


def test_what_cannot_be_explained_says_why(home, office, tmp_path):
    with pytest.raises(wirerate.PacketError, match="`txp` is not a protocol") as raised:
        home.explain("lan txp 192.168.1.10:1 > 198.51.100.7:2")
    assert "PACKET_SYNTAX" in raised.value.hint and "PACKET_SYNTAX" in str(raised.value)
    assert "IFACE PROTOCOL" in wirerate.PACKET_SYNTAX
    with pytest.raises(wirerate.PacketError, match="no interface `dmz`") as raised:
        home.explain("dmz tcp 192.168.1.10:1 > 198.51.100.7:2")
    assert raised.value.hint == "the policy has lan, guest, wan"
    assert isinstance(raised.value, (wirerate.Error, ValueError))
    lan = office.captures["lan"]
    with pytest.raises(wirerate.PolicyError, match="no interface \"dmz\"; it has lan"):
        home.explain((lan, 1), interface="dmz")
    with pytest.raises(wirerate.PacketError, match="has no packet 1000000") as raised:
        home.explain((lan, 1_000_000))
    assert raised.value.hint.startswith("its packets are numbered from 1 to ")
    for number in (0, -1):
        with pytest.raises(wirerate.PacketError, match="numbered from 1"):
            home.explain((lan, number))
    with pytest.raises(wirerate.ReadError) as raised:
        home.explain((tmp_path / "none.pcap", 1))
    assert raised.value.filename == str(tmp_path / "none.pcap")
    (tmp_path / "text.pcap").write_text("no capture, but some text")
    with pytest.raises(wirerate.CaptureError):
        home.explain((tmp_path / "text.pcap", 1))
    with pytest.raises(TypeError, match="interface"):
        home.explain(SYN, interface="lan")
    for wrong in (7, (lan,), (lan, "one"), None):
        with pytest.raises(TypeError, match="words, or a tuple"):
            home.explain(wrong)


def test_keys_in_files_are_not_read():
    text = """
[interface.wan]
zone = "wan"
addresses = ["192.0.2.1/24"]
[interface.site]
zone = "vpn"
esp = { local = "192.0.2.1", remote = "192.0.2.2", sa = [
    { direction = "out", spi = 0x1000, algorithm = "aes128-gcm", key-file = "keys/out" },
    { direction = "in", spi = 0x1001, algorithm = "aes128-gcm", key-file = "keys/in" }] }
"""
    with pytest.raises(wirerate.PolicyError, match="keys of tunnels in files"):
        wirerate.Policy.parse(text).explain("wan udp 192.0.2.7:1 > 192.0.2.1:2")


def test_ctrl_c_ends_a_thorough_comparison():
    code = textwrap.dedent("""
        import random, sys, wirerate
        random.seed(7)
        head = "".join(f'[interface.{name}]\\nzone = "{name}"\\naddresses = ["192.168.{at}.1/24"]\\n'
            for at, name in enumerate(["lan", "wan"]))
        def rule(number):
            net = lambda: f"{random.randrange(1, 224)}.{random.randrange(256)}.0.0/{random.randrange(9, 17)}"
            first = random.randrange(1, 60000)
            strict = lambda net: __import__("ipaddress").ip_network(net, strict=False)
            return (f'[[rule]]\\nname = "r{number}"\\nsource = "{strict(net())}"\\ndestination = "{strict(net())}"\\n'
                f'protocol = "tcp"\\nsport = "{random.randrange(1, 30000)}-{random.randrange(30000, 65535)}"\\n'
                f'dport = "{first}-{first + random.randrange(5000)}"\\naction = "{random.choice(["accept", "drop"])}"\\n')
        policy = lambda: wirerate.Policy.parse(head + "".join(map(rule, range(12_000))))
        old, new = policy(), policy()
        print("begun", flush=True)
        try:
            old.diff(new, thorough=True)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            sys.exit(7)
    """)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=1)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert (out, process.returncode) == ("interrupted\n", 7)


def test_errors_of_packets_are_pickled():
    error = pickle.loads(pickle.dumps(wirerate.PacketError("no such packet", "its packets are numbered from 1 to 3")))
    assert str(error) == "no such packet\n  help: its packets are numbered from 1 to 3"
