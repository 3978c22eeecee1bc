"""Replays: held to the command, to the captures as dpkt reads them, and to their own tables."""

from __future__ import annotations

import collections
import datetime
import ipaddress
import os
import shutil
import signal
import struct
import subprocess
import sys
import textwrap

import dpkt
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import wirerate
from conftest import Scene


def replayed(scene: Scene, **options) -> wirerate.Result:
    return wirerate.replay(wirerate.Policy.read(scene.policy), scene.captures, **options)


@pytest.fixture(scope="module", params=["office", "diffserv"])
def both(request):
    """Each scene, with all its packets."""
    scene = request.getfixturevalue(request.param)
    result = replayed(scene)
    return scene, result, result.packets.read_pandas()


def counts(column) -> dict:
    return {name: int(count) for name, count in column.value_counts().items() if count}


def test_each_packet_has_a_row_with_its_fate(both):
    scene, _, packets = both
    frames = scene.told["frames"]
    assert len(packets) == frames["received"] > 1_000
    assert sorted(packets["number"]) == list(range(len(packets)))
    verdicts = counts(packets["verdict"])
    assert verdicts == {name: frames[name] for name in verdicts}
    assert sum(verdicts.values()) == frames["received"]
    assert counts(packets["reason"]) == scene.told["reasons"]
    dropped = packets[packets["verdict"] == "dropped"]
    assert counts(dropped["reason"]) == scene.told["dropped"]


def test_classes_and_translations_are_those_of_the_command(both):
    scene, _, packets = both
    in_classes = packets[packets["verdict"] == "forwarded"]
    sent = {name: row["sent"] for name, row in scene.told["classes"].items() if row.get("sent")}
    assert counts(in_classes["class"]) == sent
    by_rule = {name: row["frames"] for name, row in scene.told["rules"].items() if row["frames"]}
    if by_rule:
        assert set(counts(packets["rule"])) <= set(by_rule)
    by_nat = collections.Counter()
    for names, count in counts(packets["nat"]).items():
        for name in names.split(", "):
            by_nat[name] += count
    told = {name: row["frames"] for name, row in scene.told["nats"].items() if row["frames"]}
    assert set(by_nat) == set(told)


def test_summary_is_what_the_command_prints(both):
    scene, result, _ = both
    # How long it took is another matter each time.
    timeless = lambda summary: {key: value for key, value in summary.items() if key not in ("seconds", "mpps")}
    assert timeless(result.summary) == timeless(scene.told)


def times(path):
    """Times of the packets of a capture in nanoseconds, whose interfaces count in these; dpkt's are floating-point numbers."""
    blocks, at = path.read_bytes(), 0
    while at < len(blocks):
        kind, length = struct.unpack_from("<II", blocks, at)
        if kind == 6:
            high, low = struct.unpack_from("<II", blocks, at + 12)
            yield high << 32 | low
        at += length


def headers(scene: Scene):
    """Packets as dpkt reads them, merged by time: time, addresses, protocol, ports and length."""
    packets = []
    for place, path in enumerate(scene.captures.values()):
        with open(path, "rb") as file:
            read = zip(times(path), dpkt.pcapng.Reader(file), strict=True)
            packets += [(time, place, number, data) for number, (time, (_, data)) in enumerate(read)]
    packets.sort(key=lambda packet: packet[:3])
    for time, _, _, data in packets:
        ethernet = dpkt.ethernet.Ethernet(data)
        layer = ethernet.data
        is_ip = ethernet.type in (dpkt.ethernet.ETH_TYPE_IP, dpkt.ethernet.ETH_TYPE_IP6)
        # What is malformed is not compared: dpkt looks at other things than the gateway does.
        is_sound = isinstance(layer, (dpkt.ip.IP, dpkt.ip6.IP6)) and layer.v == (4 if isinstance(layer, dpkt.ip.IP) else 6)
        if not is_ip or not is_sound:
            yield time, is_ip, None, None, None, None, len(data)
            continue
        transport = layer.data
        ports = (None, None)
        if isinstance(transport, (dpkt.tcp.TCP, dpkt.udp.UDP)):
            ports = (transport.sport, transport.dport)
        protocol = layer.p if isinstance(layer, dpkt.ip.IP) else layer.nxt
        addresses = (str(ipaddress.ip_address(address)) for address in (layer.src, layer.dst))
        source, destination = addresses
        yield time, source, destination, protocol, *ports, len(data)


def test_rows_have_the_headers_of_the_captures(both):
    scene, _, packets = both
    rows = packets.sort_values("number")
    seen = 0
    for row, (time, source, destination, protocol, sport, dport, length) in zip(
        rows.itertuples(), headers(scene), strict=True
    ):
        assert row.time.value == time
        assert row.length == length
        if source is False:
            assert pd.isna(row.source)
        if destination is None:
            continue
        assert (row.source, row.destination, row.protocol) == (source, destination, protocol)
        if sport is not None:
            assert (row.sport, row.dport) == (sport, dport)
            seen += 1
    assert seen > 1_000


def test_departures_are_those_of_what_the_command_wrote(both):
    scene, _, packets = both
    compared = 0
    for interface in set(packets["egress"].dropna()):
        rows = packets[(packets["egress"] == interface)]
        written = sorted(times(scene.out / f"{interface}.pcapng"))
        departures = sorted(departure.value for departure in rows["departure"])
        # What the gateway fragments, or sends by itself, is in the files alone.
        if len(written) == len(departures):
            assert written == departures
            compared += 1
    assert compared
    left = packets[packets["departure"].notna()]
    assert (left["delay"] == left["departure"] - left["time"]).all()
    assert (left["delay"] >= pd.Timedelta(0)).all()


def test_drops_are_the_packets_that_were_dropped(both):
    scene, result, packets = both
    drops = result.drops.read_pandas()
    with open(scene.out / "dropped.pcapng", "rb") as file:
        written = sum(1 for _ in dpkt.pcapng.Reader(file))
    assert len(drops) == scene.told["frames"]["dropped"] == written
    dropped = packets[packets["verdict"] == "dropped"].reset_index(drop=True)
    assert list(drops["number"]) == list(dropped["number"])


def test_flows_are_all_that_were_created(both):
    scene, result, packets = both
    flows = result.flows.read_pandas()
    told = scene.told["flows"]
    assert len(flows) == told["created"]
    assert (flows["end"] == "live").sum() == told["live"]
    # Each is that of the packet that opened it, in both tables.
    assert set(flows["flow"]) == set(packets["flow"].dropna()) and flows["flow"].is_unique
    both_tables = flows.merge(packets, left_on="flow", right_on="number", suffixes=("", "_of_packet"))
    assert len(both_tables) == told["created"]
    for column in ("source", "destination", "ingress"):
        assert (both_tables[column].astype(str) == both_tables[f"{column}_of_packet"].astype(str)).all()
    assert (both_tables["protocol"] == both_tables["protocol_of_packet"]).all()
    assert (flows["first"] <= flows["last"]).all()
    # All packets of flows are counted in one direction or the other; each is counted once.
    of_flows = packets["flow"].notna().sum()
    counted = flows["packets"].sum() + flows["reply_packets"].sum()
    assert 0.95 * of_flows <= counted <= of_flows * 1.05 + 10


def test_packets_of_one_flow_have_its_ends(office):
    packets = replayed(office).packets.read_pandas()
    tcp = packets[(packets["protocol"] == 6) & packets["flow"].notna()]
    several = 0
    for _, flow in tcp.groupby("flow"):
        inside = flow[flow["ingress"] == flow["ingress"].iloc[0]]
        assert inside[["source", "destination", "sport", "dport"]].astype(str).drop_duplicates().shape[0] == 1
        several += len(flow) > 1
    assert several > 10


def test_classes_and_queues_are_tables(diffserv):
    result = replayed(diffserv)
    classes, queues = result.classes.to_pylist(), result.queues.to_pylist()
    assert [row["name"] for row in classes] == list(diffserv.told["classes"])
    for row in classes:
        told = diffserv.told["classes"][row["name"]]
        assert (row["frames"], row["sent"]) == (told["frames"], told["sent"])
        assert row["delay_p99_ns"] == told["delay_ns"]["p99"]
        assert row["lost"] == sum(told["lost"].values())
    assert len(queues) == len(diffserv.told["queues"])
    assert sum(row["frames"] for row in queues) == sum(row["frames"] for row in diffserv.told["queues"])


def test_batches_are_as_small_as_was_asked(office):
    result = replayed(office, batch_rows=1_000)
    reader = result.packets
    assert isinstance(reader, pa.RecordBatchReader)
    sizes = [batch.num_rows for batch in reader]
    assert len(sizes) > 3
    assert all(1_000 <= size < 1_200 for size in sizes[:-1])
    assert sum(sizes) == office.told["frames"]["received"]
    # Each access begins anew, and says the same whatever the batches are.
    assert replayed(office).packets.read_all().to_pylist() == result.packets.read_all().to_pylist()


def test_polars_and_pandas_read_the_same(office):
    result = replayed(office, batch_rows=2_000)
    frame = pl.from_arrow(result.packets.read_all())
    packets = result.packets.read_pandas()
    assert frame["verdict"].cast(pl.String).to_list() == packets["verdict"].to_list()
    assert frame["source"].cast(pl.String).to_list() == packets["source"].astype(object).where(packets["source"].notna(), None).to_list()


def test_interfaces_are_inferred_as_by_the_command(office):
    policy = wirerate.Policy.read(office.policy)
    inferred = wirerate.replay(policy, list(office.captures.values()))
    assert {entered["by"] for capture in inferred.summary["inputs"] for entered in capture["entered"]} <= {
        "capture-interface", "file-name"}
    assert inferred.packets.read_all().equals(replayed(office).packets.read_all())


def test_progress_is_told(office):
    told = []
    replayed(office, progress=lambda read, size: told.append((read, size))).packets.read_all()
    size = sum(path.stat().st_size for path in office.captures.values())
    assert told and all(of == size for _, of in told)
    assert [read for read, _ in told] == sorted(read for read, _ in told)
    assert told[-1][0] > size // 2


def test_a_progress_bar_is_drawn(office, capfd):
    replayed(office, progress=True).packets.read_all()
    assert "replay" in capfd.readouterr().err


# ---- Bad input ----------------------------------------------------------------------------------


def test_a_file_that_vanishes_between_plan_and_run(office, tmp_path):
    lan = shutil.copy(office.captures["lan"], tmp_path / "lan.pcapng")
    result = wirerate.replay(wirerate.Policy.read(office.policy), lan)
    assert result.packets.read_all().num_rows > 0
    os.remove(lan)
    with pytest.raises(wirerate.ReadError, match="lan.pcapng") as raised:
        result.packets.read_all()
    assert raised.value.filename == lan or raised.value.filename == str(lan)


def test_a_file_that_is_no_capture(office, tmp_path):
    (tmp_path / "text.pcap").write_text("This is no capture, and long enough to be read as one.")
    with pytest.raises(wirerate.CaptureError, match="text.pcap") as raised:
        wirerate.replay(wirerate.Policy.read(office.policy), tmp_path / "text.pcap").packets.read_all()
    assert raised.value.path.endswith("text.pcap")


def test_a_capture_that_breaks_off_is_played_up_to_there_with_a_warning(office, tmp_path):
    whole = office.captures["lan"].read_bytes()
    (tmp_path / "lan.pcapng").write_bytes(whole[: len(whole) // 2 - 3])
    result = wirerate.replay(wirerate.Policy.read(office.policy), tmp_path / "lan.pcapng")
    with pytest.warns(wirerate.CaptureWarning, match="lan.pcapng"):
        rows = result.packets.read_all().num_rows
    assert 0 < rows < office.told["frames"]["received"]


def test_a_capture_that_is_damaged_raises_behind_the_rows_before(office, tmp_path):
    whole = bytearray(office.captures["lan"].read_bytes())
    at = 0
    for _ in range(200):
        at += struct.unpack_from("<I", whole, at + 4)[0]
    # The length of the 200th block.
    struct.pack_into("<I", whole, at + 4, 0x7FFF_FFFF)
    (tmp_path / "lan.pcapng").write_bytes(whole)
    rows = 0
    with pytest.raises(wirerate.CaptureError, match="lan.pcapng"):
        for batch in wirerate.replay(wirerate.Policy.read(office.policy), tmp_path / "lan.pcapng", batch_rows=10).packets:
            rows += batch.num_rows
    assert 190 <= rows <= 200


def test_an_interface_that_the_policy_has_not(office):
    with pytest.raises(wirerate.PolicyError, match="lam.*lan"):
        wirerate.replay(wirerate.Policy.read(office.policy), {"lam": office.captures["lan"]}).packets


def test_what_is_no_policy_and_what_is_no_path(office):
    with pytest.raises(TypeError, match="Policy.read"):
        wirerate.replay(office.policy, office.captures)  # type: ignore[arg-type]
    policy = wirerate.Policy.read(office.policy)
    with pytest.raises(TypeError):
        wirerate.replay(policy, 7)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        wirerate.replay(policy, [b"lan.pcapng"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="batch_rows"):
        wirerate.replay(policy, office.captures, batch_rows=0)


# ---- Many packets -------------------------------------------------------------------------------


def pcap(path, packets: int) -> None:
    """A capture of as many packets of UDP from the home office's hosts, a microsecond apart."""
    record = bytearray()
    payload = struct.pack("!HHHH", 5_000, 53, 26, 0) + bytes(18)
    header = bytearray(struct.pack("!BBHHHBBH4s4s", 0x45, 0, 46, 0, 0, 64, 17, 0, bytes([192, 168, 1, 10]), bytes([198, 51, 100, 7])))
    total = sum(struct.unpack("!10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    struct.pack_into("!H", header, 10, 0xFFFF - total)
    frame = bytes.fromhex("020000000001" "02000000000a" "0800") + bytes(header) + payload
    record = struct.pack("<II", len(frame), len(frame)) + frame
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262_144, 1))
        for first in range(0, packets, 10_000):
            file.write(b"".join(struct.pack("<II", 1_700_000_000 + number // 1_000_000, number % 1_000_000) + record
                                for number in range(first, min(first + 10_000, packets))))


def run(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_memory_does_not_grow_with_the_capture(root, tmp_path):
    code = """
        import sys, wirerate
        rows = 0
        for batch in wirerate.replay(wirerate.Policy.read(sys.argv[1]), {"lan": sys.argv[2]}, any_mac=True).packets:
            rows += batch.num_rows
        peak = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
        print(rows, peak[0])
    """
    peaks = []
    # Of captures of both sizes, the tables' memory is taken at once.
    for packets in (250_000, 1_000_000):
        pcap(tmp_path / "many.pcap", packets)
        out, err = run(code, root / "policies/home-office.toml", tmp_path / "many.pcap").communicate(timeout=300)
        rows, peak = map(int, out.split() or [0, 0])
        assert rows == packets, err
        peaks.append(peak)
    # As a table, the rows that the second has more would take some 75 MB.
    assert peaks[1] - peaks[0] < 30_000, peaks


def test_a_window_of_time_is_played_alone(office):
    packets = replayed(office).packets.read_pandas().sort_values("number", ignore_index=True)
    begun = packets["time"].iloc[0]
    stop = begun + pd.Timedelta(seconds=3)
    for forms in [(1, 3.0), ("1s", "3000ms"), (1, stop.to_pydatetime(warn=False)), ("1", stop.isoformat().replace("+00:00", "Z"))]:
        found = replayed(office, start=forms[0], stop=forms[1]).packets.read_pandas()
        # A datetime has microseconds.
        expected = packets[(packets["time"] >= begun + pd.Timedelta(seconds=1)) & (packets["time"] < stop)]
        assert abs(len(found) - len(expected)) <= 1 < len(found) < len(packets)
        assert found["time"].min() >= begun + pd.Timedelta(seconds=1) and found["time"].max() < stop
        assert replayed(office, start=forms[0], stop=forms[1]).summary["frames"]["received"] == len(found)
    for start in ("soon", -1, float("nan")):
        with pytest.raises(ValueError, match="is no moment"):
            replayed(office, start=start)
    with pytest.raises(wirerate.WindowError, match="no packet of the captures is in that window"):
        replayed(office, start=3600).summary
    with pytest.raises(ValueError, match="start has no time zone"):
        replayed(office, start=datetime.datetime(2026, 1, 1))
    with pytest.raises(TypeError, match="stop is a bool"):
        replayed(office, stop=True)


def test_packets_of_a_window_have_the_numbers_that_they_have_among_all(office):
    packets = replayed(office).packets.read_pandas().set_index("number").sort_index()
    # From the second packet of a connection on.
    is_later = (packets["protocol"] == 6) & (packets["verdict"] == "forwarded") & (packets["flow"] < packets.index) & (packets.index > 1000)
    start = packets[is_later]["time"].iloc[0]
    result = replayed(office, start=start.isoformat().replace("+00:00", "Z"), stop=3)
    found = result.packets.read_pandas().set_index("number").sort_index()
    first, last = found.index[0], found.index[-1]
    assert first > 900 and list(found.index) == list(range(first, last + 1))
    same = packets.loc[first:last]
    columns = ["time", "ingress", "source", "destination", "protocol", "sport", "dport", "length"]
    pd.testing.assert_frame_equal(found[columns].astype(object), same[columns].astype(object))
    assert (found["time"] >= start).all() and (packets["time"].loc[: first - 1] < start).all()
    # A flow is called by a packet of the window, in the table of flows as well.
    assert found["flow"].min() >= first and set(result.flows.read_pandas()["flow"]) == set(found["flow"].dropna())
    # Explained is what became of it in the window, where connections that began before are unknown.
    unknown = found[(found["reason"] == "flow-not-open") & (same["verdict"] == "forwarded")].index[0]
    assert replayed(office).explain(unknown).verdict == "forwarded"
    explained = result.explain(unknown)
    assert (explained.verdict, explained.reason) == ("dropped", "flow-not-open")
    assert result.explain(last).verdict == found["verdict"].loc[last]
    for number in (first - 1, last + 1):
        with pytest.raises(wirerate.PacketError, match=f"the replay has no packet {number}") as raised:
            result.explain(number)
        assert raised.value.hint == f"its packets are numbered from {first} to {last}"
    with pytest.raises(wirerate.WindowError):
        replayed(office, start=3600).explain(0)


def test_ctrl_c_ends_a_replay(root, tmp_path):
    pcap(tmp_path / "many.pcap", 1_000_000)
    code = """
        import sys, wirerate
        result = wirerate.replay(wirerate.Policy.read(sys.argv[1]), {"lan": sys.argv[2]}, any_mac=True)
        looks = {"summary": lambda: result.summary, "explain": lambda: result.explain(999_999)}
        look = looks.get(sys.argv[3], lambda: getattr(result, sys.argv[3]).read_all())
        print("begun", flush=True)
        while True:
            look()
            result._summary = None
    """
    for table in ("packets", "drops", "flows", "summary", "explain"):
        child = run(code, root / "policies/home-office.toml", tmp_path / "many.pcap", table)
        assert child.stdout.readline() == "begun\n"
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=60)
        assert child.returncode not in (0, None)
        assert err.rstrip().endswith("KeyboardInterrupt"), err


def test_other_threads_go_on_while_packets_are_played(root, tmp_path):
    pcap(tmp_path / "many.pcap", 300_000)
    code = """
        import sys, threading, wirerate
        sys.setswitchinterval(1000)
        result = wirerate.replay(wirerate.Policy.read(sys.argv[1]), {"lan": sys.argv[2]}, any_mac=True)
        ended = threading.Event()
        thread = threading.Thread(target=lambda: (result.summary, ended.set()))
        thread.start()
        turns = 0
        # Nobody else gets the lock but by being given it.
        while not ended.wait(0.001):
            turns += 1
        print(turns)
    """
    out, err = run(code, root / "policies/home-office.toml", tmp_path / "many.pcap").communicate(timeout=300)
    assert int(out) > 5, err
