"""Keys of tunnels: in files, and in Wireshark's table of security associations. Held to the command, and to what real captures hold."""

from __future__ import annotations

import json
import os
import pathlib
import socket
import sys

import dpkt
import pytest

import wirerate
from conftest import wirerate as command
from wirerate import jobs

KEY = "6c61622d6b65792d622d746f2d612d30325a5a5a"
"""Key of what site B sends, as the policy of the office has it."""

PEER = f"""
[interface.lan]
zone = "lan"
addresses = ["10.2.0.1/16"]
[interface.wan]
zone = "wan"
addresses = ["198.51.100.2/24"]
[interface.office]
zone = "vpn"
[interface.office.esp]
local = "198.51.100.2"
remote = "203.0.113.2"
[[interface.office.esp.sa]]
direction = "out"
spi = 0x1002
algorithm = "aes128-gcm"
key = "{KEY}"
[[interface.office.esp.sa]]
direction = "in"
spi = 0x1001
algorithm = "aes128-gcm"
key = "6c61622d6b65792d612d746f2d622d30315a5a5a"
[default]
"lan > vpn" = "accept"
[[route]]
to = "0.0.0.0/0"
via = "198.51.100.1"
[[route]]
to = "10.1.0.0/16"
interface = "office"
"""


def packet(sport: int, dport: int) -> bytes:
    datagram = dpkt.udp.UDP(sport=sport, dport=dport, data=b"hello, office")
    datagram.ulen = len(datagram)
    source, destination = (socket.inet_aton(address) for address in ("10.2.0.9", "10.1.0.20"))
    inner = dpkt.ip.IP(src=source, dst=destination, p=dpkt.ip.IP_PROTO_UDP, data=datagram)
    inner.len = len(inner)
    return bytes(dpkt.ethernet.Ethernet(src=b"\2\0\0\0\0\1", dst=b"\2\0\0\0\0\2", data=inner))


@pytest.fixture(scope="module")
def tunnel(tmp_path_factory, root):
    """The office, whose keys are in files, and a capture of four packets from site B, two of them for nobody, as site B encrypts them."""
    room = tmp_path_factory.mktemp("tunnel")
    with open(room / "plain.pcap", "wb") as file:
        writer = dpkt.pcap.Writer(file)
        for number, dport in enumerate([5060, 9, 16_384, 9]):
            writer.writepkt(packet(40_000 + number, dport), ts=1_700_000_000 + number)
    (room / "peer.toml").write_text(PEER)
    command("replay", room / "peer.toml", f"lan={room / 'plain.pcap'}", "--out", room / "sent")
    text = (root / "policies/ipsec-gateway.toml").read_text()
    for line in [line for line in text.splitlines() if line.startswith('key = "')]:
        key = line.split('"')[1]
        name = "key-in" if key == KEY else "key-out"
        (room / name).write_text(key)
        (room / name).chmod(0o600)
        text = text.replace(line, f'key-file = "{name}"')
    (room / "office.toml").write_text(text)
    sa = ["IPv4", "198.51.100.2", "203.0.113.2", "0x1002", "AES-GCM with 16 octet ICV [RFC4106]", f"0x{KEY}", "NULL", ""]
    (room / "esp_sa").write_text(",".join(f'"{field}"' for field in sa) + "\n")
    return room


def replayed(tunnel: pathlib.Path, **options) -> wirerate.Result:
    return wirerate.replay(wirerate.Policy.read(tunnel / "office.toml"), {"wan": tunnel / "sent/wan.pcapng"}, **options)


def timeless(summary: dict) -> dict:
    return {key: value for key, value in summary.items() if key not in ("seconds", "mpps")}


def told(tunnel: pathlib.Path, *options: object) -> dict:
    arguments = [tunnel / "office.toml", f"wan={tunnel / 'sent/wan.pcapng'}", "--json", *options]
    return timeless(json.loads(command("replay", *arguments)))


def test_keys_in_files_are_not_read_unasked(tunnel):
    with pytest.raises(wirerate.PolicyError, match="office.toml has keys of tunnels in files.*static_keys=True"):
        _ = replayed(tunnel).packets
    policy = wirerate.Policy.read(tunnel / "office.toml")
    with pytest.raises(wirerate.PolicyError, match="keys of tunnels in files"):
        policy.explain("lan udp 10.1.0.20:5060 > 10.2.0.9:40000")
    with pytest.raises(wirerate.JobError, match="keys of tunnels in files"):
        jobs.replay_job(policy, [], any_mac=False, split_bytes=None)


@pytest.mark.parametrize("by", ["files", "table", "both"])
def test_what_comes_by_a_tunnel_goes_on_through_the_policy(tunnel, by):
    options = {} if by == "table" else {"static_keys": True}
    flags = [] if by == "table" else ["--static-keys"]
    if by != "files":
        options["esp_sa"] = tunnel / "esp_sa"
        flags += ["--esp-sa", tunnel / "esp_sa"]
    result = replayed(tunnel, **options)
    rows = result.packets.read_pandas().sort_values("number")
    assert list(rows["verdict"]) == ["forwarded", "answered", "forwarded", "answered"]
    assert list(rows["rule"]) == ["telephones", "site-b-else"] * 2
    summary = timeless(result.summary)
    assert summary == told(tunnel, *flags)
    if by == "files":
        assert "esp_sa" not in summary
    else:
        tunnels = "site-b" if by == "table" else None
        assert summary["esp_sa"] == [{"line": 1, "spi": 0x1002, "tunnel": tunnels, "decrypted": 4, "icv_wrong": 0, "malformed": 0}]
    explanation = result.explain(2)
    assert (explanation.verdict, explanation.rule) == ("forwarded", "telephones")


def test_a_packet_in_words_is_explained_with_keys_in_files(tunnel):
    words = "lan udp 10.1.0.20:5060 > 10.2.0.9:40000"
    explanation = wirerate.Policy.read(tunnel / "office.toml").explain(words, static_keys=True)
    assert explanation.verdict == "forwarded"
    assert explanation.figures == json.loads(command("explain", tunnel / "office.toml", words, "--static-keys", "--json"))


def test_keys_that_cannot_be_read_are_errors(tunnel, tmp_path):
    for name in ("office.toml", "key-in", "key-out"):
        (tmp_path / name).write_bytes((tunnel / name).read_bytes())
        (tmp_path / name).chmod(0o600)
    policy = wirerate.Policy.read(tmp_path / "office.toml")
    result = wirerate.replay(policy, {"wan": tunnel / "sent/wan.pcapng"}, static_keys=True)
    (tmp_path / "key-in").chmod(0o640)
    with pytest.raises(wirerate.ReadError, match="mode 640"):
        _ = result.packets
    (tmp_path / "key-in").unlink()
    with pytest.raises(wirerate.ReadError) as caught:
        _ = result.packets
    assert caught.value.filename == str(tmp_path / "key-in")


def test_a_table_with_bad_lines_is_refused_with_all_of_them(tunnel, tmp_path):
    good = (tunnel / "esp_sa").read_text()
    table = tmp_path / "esp_sa"
    table.write_text(good + good.replace("AES-GCM with 16 octet ICV [RFC4106]", "AES-CTR [RFC3686]") + good.replace(KEY, KEY[:8]))
    with pytest.raises(wirerate.TableError) as caught:
        _ = replayed(tunnel, esp_sa=table).packets
    text = str(caught.value)
    assert "has 2 lines that cannot be read" in text and "esp_sa:2: " in text and "esp_sa:3: " in text
    assert KEY[8:] not in text
    table.write_text("# nothing\n")
    with pytest.raises(wirerate.TableError, match="has no security association"):
        _ = replayed(tunnel, esp_sa=table).packets
    with pytest.raises(wirerate.ReadError) as missing:
        _ = replayed(tunnel, esp_sa=tmp_path / "nowhere").packets
    assert missing.value.filename == str(tmp_path / "nowhere")


def test_a_real_capture_is_decrypted_to_the_last_ping(tunnel, root):
    data = pathlib.Path(os.environ.get("WIRERATE_DATA", root.parent / "shared/data"))
    capture = data / "captures/08-sunrise-sunset-aes.pcap"
    if not capture.exists():
        pytest.skip(f"no {capture}; set WIRERATE_DATA")
    key = "aaaabbbbccccdddd4043434545464649494a4a4c4c4f4f515152525454575758"
    ends = ["IPv4", "192.1.2.23", "192.1.2.45", "0xd1234567", "AES-CBC [RFC3602]"]
    sa = [*ends, f"0x{key}", "ANY 96 bit authentication [no checking]", "0x"]
    table = tunnel / "sunrise"
    table.write_text(",".join(f'"{field}"' for field in sa) + "\n")
    policy = wirerate.Policy.read(root / "policies/ipsec-gateway.toml")
    result = wirerate.replay(policy, {"wan": capture}, esp_sa=table)
    # Eight pings, as tcpdump's own test of this capture has them.
    assert [row["decrypted"] for row in result.summary["esp_sa"]] == [8]


def test_a_chip_decrypts_with_keys_in_files(tunnel):
    policy, chip, traffic = wirerate.Policy.read(tunnel / "office.toml"), wirerate.Chip.read("ixp2800"), {"wan": tunnel / "sent/wan.pcapng"}
    with pytest.raises(wirerate.PolicyError, match="keys of tunnels in files.*static_keys=True"):
        chip.run(policy, traffic)
    figures = chip.run(policy, traffic, explain=True, static_keys=True).figures
    capture = f"wan={tunnel / 'sent/wan.pcapng'}"
    expected = json.loads(command("chip", "run", "--chip", "ixp2800", tunnel / "office.toml", capture, "--static-keys", "--json"))
    assert figures.pop("wall_seconds") > 0 and expected.pop("wall_seconds") > 0
    assert figures == expected
    # All four leave, sent on or answered: without the keys they would end here.
    assert figures["fates"] == {} and figures["delivered_mpps"] == figures["offered_mpps"] > 0
    rows = chip.sweep(policy, traffic, {"memory.sram.latency": [90]}, static_keys=True).to_pylist()
    assert rows[0]["error"] is None
    with pytest.raises(wirerate.PolicyError, match="keys of tunnels in files"):
        chip.search(policy, traffic)


@pytest.mark.parametrize("by", ["package", "command"])
def test_configurations_are_searched_with_keys_in_files(tunnel, tmp_path, monkeypatch, by):
    pytest.importorskip("optuna")
    if by == "command":
        # The command finds this environment's Python.
        monkeypatch.setenv("PATH", f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}")
        arguments = ["--chip", "ixp2800", tunnel / "office.toml", f"wan={tunnel / 'sent/wan.pcapng'}", "--vary", "memory.sram.latency=90,150"]
        told = json.loads(command("chip", "optimise", *arguments, "--objective", "delivered", "--static-keys", "--json"))
        assert told["exact"] and len(told["trials"]) == 2
        return
    policy, chip, traffic = wirerate.Policy.read(tunnel / "office.toml"), wirerate.Chip.read("ixp2800"), {"wan": tunnel / "sent/wan.pcapng"}
    vary = {"memory.sram.latency": [90, 150]}
    front = wirerate.optimise(chip, policy, traffic, vary, "delivered", static_keys=True)
    assert front.exact and front.trials.num_rows == 2
    # Keys are sent nowhere.
    with pytest.raises(wirerate.JobError, match="stay where they are"):
        wirerate.optimise(chip, policy, traffic, vary, "delivered", static_keys=True, out=tmp_path / "rows")
