"""Flow records and NAT events by IPFIX, read by nfdump; tshark and libfixbuf are the other witnesses."""

import contextlib
import json
import re
import shutil
import struct
import time

import collector
import packet
import pytest
import wait
from collector import PORT, Messages, Nfcapd
from topology import CLIENT, CLIENT6, GATEWAY, OUTSIDE, REMOTE, REMOTE6

pytestmark = pytest.mark.without("nftables", why="Linux exports nothing by itself")

UDP = 17
TCP = 6
HEADERS = {4: 28, 6: 48}


@pytest.fixture(autouse=True)
def tools():
    absent = collector.missing()
    if absent:
        pytest.skip(f"SKIPPED: not installed: {' '.join(absent)} (./setup test)")


@pytest.fixture(autouse=True)
def as_before(net):
    yield
    net.office.apply()


@pytest.fixture
def nfcapd(net, tools):
    started = Nfcapd(net.client, net.logs)
    yield started
    started.stop()


def apply(net, *keys, to=f"udp:{CLIENT}:{PORT}"):
    net.office.write()
    text = net.office.policy.read_text()
    assert "[gateway]\n" in text
    lines = [f'ipfix = "{to}"', *keys]
    net.office.policy.write_text(text.replace("[gateway]\n", "[gateway]\n" + "\n".join(lines) + "\n", 1))
    net.office.ask("apply", net.office.policy)


def status(net):
    return json.loads(net.office.ask("status", "--json").stdout)["ipfix"]


def kill_flows(net):
    """Ends the client's flows, and waits until their records are sent."""
    before = status(net)["records"]
    said = [net.office.ask("flows", "kill", "--host", host, check=False).stdout for host in (CLIENT, CLIENT6)]
    # On a busy machine the first of them takes its time, and nothing has been exported until then.
    if any(words.startswith("ended") and not words.startswith("ended 0 ") for words in said):
        wait.until(lambda: status(net)["records"] > before, "records of the flows that have ended are sent")
    quiet(net)


def quiet(net):
    """Waits until nothing more is exported."""

    def is_same():
        before = status(net)
        time.sleep(0.4)
        return before["records"] == status(net)["records"]

    wait.until(is_same, "all records are sent")


def talk(net, to, port, there=200, back=150, length=100):
    """Datagrams to the remote host and back. Returns the client's port, and the ends that the remote host saw."""
    v6 = ":" in to
    with net.remote.udp(port=port, v6=v6) as server, net.client.udp(v6=v6) as client:
        for number in range(there):
            client.sendto(bytes(length), (to, port))
            _, peer = server.recvfrom(2000)
            if number < back:
                server.sendto(bytes(length // 2), peer)
                client.recv(2000)
        return client.getsockname()[1], peer


def of(records, **fields):
    return [record for record in records if all(record.get(key) == value for key, value in fields.items())]


def translated(record, end):
    """Address and port of the source or destination as packets leave."""
    return record[f"{end}4_xlt_ip"], int(record[f"{end}_xlt_port"])


def sums(records):
    return sum(record["in_packets"] for record in records), sum(record["in_bytes"] for record in records)


@pytest.mark.parametrize("to, source", [(REMOTE, CLIENT), (REMOTE6, CLIENT6)], ids=["ipv4", "ipv6"])
def test_records_say_what_hosts_sent(net, nfcapd, to, source):
    apply(net)
    sport, peer = talk(net, to, 7000)
    kill_flows(net)
    version = 6 if ":" in to else 4
    records = nfcapd.records()
    there = of(records, **{f"src{version}_addr": source, "src_port": sport, "dst_port": 7000})
    assert sums(there) == (200, 200 * (100 + HEADERS[version])), records
    outside, outport = (OUTSIDE, peer[1]) if version == 4 else (source, sport)
    back = of(records, **{f"dst{version}_addr": outside, "src_port": 7000, "dst_port": outport})
    assert sums(back) == (150, 150 * (50 + HEADERS[version])), records
    assert {record["proto"] for record in there + back} == {UDP}
    if version == 4:
        assert {translated(record, "src") for record in there} == {peer}
        assert {translated(record, "dst") for record in back} == {(CLIENT, sport)}


def test_a_connection_is_counted_as_the_server_counts_it(net, nfcapd):
    apply(net)
    net.remote.run("nft", "add table inet count; add chain inet count in { type filter hook prerouting priority -400; }; "
                   "add chain inet count out { type filter hook postrouting priority 400; }; "
                   "add rule inet count in tcp dport 7001 counter; add rule inet count out tcp sport 7001 counter")
    try:
        with net.remote.listen(7001) as server, net.client.connect(REMOTE, 7001) as client:
            there, _ = server.accept()
            sport = client.getsockname()[1]
            with there:
                for number in range(100):
                    client.sendall(bytes(500 + number))
                    got = 0
                    while got < 500 + number:
                        got += len(there.recv(4000))
                    there.sendall(bytes(300))
                    got = 0
                    while got < 300:
                        got += len(client.recv(4000))
        # Both have closed: the record comes by itself, before the flow has ended.
        wait.until(lambda: net.remote.run("ss", "-Htan", "sport = :7001 or dport = :7001").stdout.count("ESTAB") == 0, "it ends")
        time.sleep(4)
        quiet(net)
        listed = json.loads(net.remote.run("nft", "-j", "list", "table", "inet", "count").stdout)["nftables"]
        counted = [
            (part["counter"]["packets"], part["counter"]["bytes"])
            for item in listed
            if "rule" in item
            for part in item["rule"]["expr"]
            if "counter" in part
        ]
    finally:
        net.remote.run("nft", "delete", "table", "inet", "count")
    records = nfcapd.records()
    there = of(records, src4_addr=CLIENT, src_port=sport, dst_port=7001)
    back = of(records, src4_addr=REMOTE, src_port=7001)
    assert [sums(there), sums(back)] == counted, records
    flags = {letter for record in there for letter in record["tcp_flags"]}
    assert {"S", "A", "F"} <= flags


def test_a_long_flow_is_reported_while_it_goes_on(net, nfcapd):
    apply(net, 'ipfix-active-timeout = "2s"')
    sent = 0
    with net.remote.udp(port=7002) as server, net.client.udp() as client:
        end = time.monotonic() + 7
        while time.monotonic() < end:
            client.sendto(bytes(100), (REMOTE, 7002))
            _, peer = server.recvfrom(2000)
            server.sendto(bytes(50), peer)
            client.recv(2000)
            sent += 1
            time.sleep(0.005)
        sport = client.getsockname()[1]
    before = status(net)["records"]
    assert before > 4
    kill_flows(net)
    records = of(nfcapd.records(), src4_addr=CLIENT, src_port=sport, dst_port=7002)
    assert len(records) >= 3
    assert sums(records) == (sent, sent * 128)


def test_translations_are_events(net, nfcapd):
    apply(net, 'ipfix-records = ["nat"]')
    sport, peer = talk(net, REMOTE, 7003, there=3, back=3)
    kill_flows(net)
    events = of(nfcapd.records(), src_port=sport, dst_port=7003)
    assert [event["nat_event"] for event in events] == ["NAT44 session create", "NAT44 session delete"], events
    for event in events:
        assert (event["src4_addr"], event["dst4_addr"]) == (CLIENT, REMOTE)
        assert translated(event, "src") == peer


def blocks_applied(net, *keys, to=f"udp:{CLIENT}:{PORT}"):
    """Gives the office blocks of 64 ports on demand, two for each host."""
    apply(net, *keys, to=to)
    text = net.office.policy.read_text()
    blocks = text.replace('name = "house"\n', 'name = "house"\nblock = 64\nblocks-per-host = 2\n', 1)
    assert blocks != text
    net.office.policy.write_text(blocks)
    net.office.ask("apply", net.office.policy)


@pytest.fixture
def hundred(net):
    """A hundred further addresses of the client, each a customer's."""
    hosts = [f"192.168.1.{last}" for last in range(100, 200)]
    for host in hosts:
        net.client.ip(f"addr add {host}/24 dev eth0")
    yield hosts
    for host in hosts:
        net.client.ip(f"addr del {host}/24 dev eth0")


def blocks_in_use(net):
    (house,) = [nat for nat in json.loads(net.office.ask("nat", "--json").stdout) if nat["name"] == "house"]
    return house["blocks"]


@pytest.mark.skipif(not shutil.which("ipfixDump"), reason="SKIPPED: there is no ipfixDump, of libfixbuf-tools")
def test_a_block_of_ports_is_two_events(net, nfcapd, hundred):
    """nfdump reads the events; libfixbuf their port ranges, too, which nfdump 1.7 leaves out."""
    relay = over_tcp(net)
    try:
        blocks_applied(net, 'ipfix-records = ["nat-block"]', to=f"tcp:{CLIENT}:{PORT + 1}")
        wait.until(lambda: status(net)["collector"] == "up", "the collector is reached")
        seen = talk_of_many(net, hundred)
        assert blocks_in_use(net) == 101
        for host in hundred:
            net.office.ask("flows", "kill", "--host", host)
        wait.until(lambda: blocks_in_use(net) == 0, "all blocks are free")
        quiet(net)
        dumped = by_libfixbuf(net, relay.keep(net.logs / "blocks.ipfix"))
    finally:
        relay.close()
    events = [record for record in dumped if "natEvent" in record]
    taken = [block_of(event) for event in events if event["natEvent"] == "16"]
    freed = [block_of(event) for event in events if event["natEvent"] == "17"]
    # One for each block, whatever the number of flows; and nothing else.
    assert len(taken) == len(set(taken)) == 101 and sorted(taken) == sorted(freed) and len(events) == 202, events
    assert {host for host, *_ in taken} == set(hundred)
    assert all(outside == OUTSIDE and last == first + 63 for _, outside, first, last in taken)
    assert {(event["portRangeStepSize"], event["portRangeNumPorts"]) for event in events} == {("1", "64")}
    # What a server saw leads to the customer, by the records alone.
    for host, peers in seen.items():
        for address, port in peers:
            assert [who for who, outside, first, last in taken if outside == address and first <= port <= last] == [host]
    names = {record["natPoolId"]: record["natPoolName"] for record in dumped if "natPoolName" in record}
    assert {names[event["natPoolId"]] for event in events} == {"house"}
    read = [(event["nat_event"], event["src4_addr"], event["src4_xlt_ip"]) for event in nfcapd.records() if "nat_event" in event]
    words = {"Port block allocation": taken, "Port block de-allocation": freed}
    assert sorted(read) == sorted((word, *block[:2]) for word, blocks in words.items() for block in blocks)


def talk_of_many(net, hosts):
    """Each host has ten flows, and the first one more than fit two blocks. Returns the ends that the remote host saw, by host."""
    seen = {host: [] for host in hosts}
    with net.remote.udp(port=7013) as server:
        for host in hosts:
            for _ in range(10):
                with net.client.udp(address=host) as client:
                    client.sendto(host.encode(), (REMOTE, 7013))
                    data, peer = server.recvfrom(2000)
                    seen[data.decode()].append(peer)
                    server.sendto(b"!", peer)
                    client.recv(2000)
        with contextlib.ExitStack() as sockets:
            for _ in range(140):
                greedy = sockets.enter_context(net.client.udp(address=hosts[0]))
                greedy.sendto(b"?", (REMOTE, 7013))
            seen[hosts[0]] += [server.recvfrom(2000)[1] for _ in range(128 - 10)]
    return seen


def block_of(event):
    """Inside address, outside address, first and last port."""
    ports = int(event["portRangeStart"]), int(event["portRangeEnd"])
    return event["sourceIPv4Address"], event["postNATSourceIPv4Address"], *ports


def test_blocks_outlive_reload_and_restart(net, hundred):
    blocks_applied(net)
    host = hundred[0]
    with net.remote.udp(port=7014) as server, net.client.udp(address=host) as client:
        client.sendto(b"1", (REMOTE, 7014))
        _, before = server.recvfrom(2000)
        server.sendto(b"!", before)
        client.recv(2000)
        net.office.ask("apply", net.office.policy)
        net.office.stop()
        net.office.start()
        wait.until(lambda: blocks_in_use(net) == 1, "the block is there again")
        client.sendto(b"2", (REMOTE, 7014))
        assert server.recvfrom(2000)[1] == before
        server.sendto(b"!", before)
        assert client.recv(2000) == b"!"
        # Its next flow has a port of the same block.
        with net.client.udp(address=host) as second:
            second.sendto(b"3", (REMOTE, 7014))
            assert server.recvfrom(2000)[1][1] // 64 == before[1] // 64
        assert blocks_in_use(net) == 1
    net.office.ask("flows", "kill", "--host", host)


def over_tcp(net, onward=PORT):
    return Messages(net.client, port=PORT + 1, onward=onward)


def test_records_come_over_tcp(net, nfcapd):
    relay = over_tcp(net)
    try:
        apply(net, to=f"tcp:{CLIENT}:{PORT + 1}")
        sport, peer = talk(net, REMOTE, 7004)
        sport6, _ = talk(net, REMOTE6, 7004)
        kill_flows(net)
        assert status(net)["collector"] == "up"
        path = relay.keep(net.logs / "messages.ipfix")
    finally:
        relay.close()
    records = nfcapd.records()
    there = of(records, src4_addr=CLIENT, src_port=sport, dst_port=7004)
    assert sums(there) == (200, 200 * 128)
    assert {translated(record, "src") for record in there} == {peer}
    assert sums(of(records, src6_addr=CLIENT6, src_port=sport6, dst_port=7004)) == (200, 200 * 148)
    wanted = {
        "sourceIPv4Address": CLIENT,
        "sourceTransportPort": str(sport),
        "octetDeltaCount": str(200 * 128),
        "packetDeltaCount": "200",
        "postNATSourceIPv4Address": peer[0],
        "postNAPTSourceTransportPort": str(peer[1]),
        "flowEndReason": "4",
    }
    if not shutil.which("ipfixDump"):
        pytest.skip("SKIPPED: there is no ipfixDump, of libfixbuf-tools, for a second witness (./setup test)")
    dumped = by_libfixbuf(net, path)
    (found,) = [record for record in dumped if wanted.items() <= record.items()]
    names = {record["ingressInterface"]: record["interfaceName"] for record in dumped if "interfaceName" in record}
    assert [names[found[way]] for way in ("ingressInterface", "egressInterface")] == ["lan", "wan"]


def by_libfixbuf(net, path):
    """Data records of a file of messages, values by names of elements."""
    text = net.client.run("ipfixDump", "--data", "--in", path).stdout
    field = re.compile(r"\(\d+\)\s+(?:\(S\)\s+)?(\w+) : (?:\(len: \d+\) )?(.*)")
    return [dict(field.findall(part)) for part in text.split("--- data record ")[1:]]


@pytest.mark.skipif(not shutil.which("ipfixDump"), reason="SKIPPED: there is no ipfixDump, of libfixbuf-tools")
def test_a_translation_without_ports_is_an_event(net):
    relay = over_tcp(net, onward=None)
    try:
        apply(net, 'ipfix-records = ["nat"]', to=f"tcp:{CLIENT}:{PORT + 1}")
        text = net.office.policy.read_text()
        few = text.replace('name = "house"\n', 'name = "house"\nports = "40000-40003"\n', 1)
        assert few != text
        net.office.policy.write_text(few)
        net.office.ask("apply", net.office.policy)
        wait.until(lambda: status(net)["collector"] == "up", "the collector is reached")
        for _ in range(12):
            with net.client.udp() as client:
                client.sendto(b"?", (REMOTE, 7012))
        path = net.logs / "exhausted.ipfix"

        def exhausted():
            relay.keep(path)
            return [record for record in by_libfixbuf(net, path) if record.get("natEvent") == "12"]

        (event, *_) = wait.until(exhausted, "the event")
        names = {
            record["natPoolId"]: record["natPoolName"] for record in by_libfixbuf(net, path) if "natPoolName" in record
        }
        assert names[event["natPoolId"]] == "house"
    finally:
        relay.close()


@pytest.mark.skipif(not shutil.which("tshark"), reason="SKIPPED: there is no tshark")
def test_tshark_reads_messages(net, nfcapd):
    relay = over_tcp(net)
    try:
        apply(net, 'ipfix-records = ["flow", "nat"]', to=f"tcp:{CLIENT}:{PORT + 1}")
        sport, _ = talk(net, REMOTE, 7011, there=5, back=5)
        kill_flows(net)
        messages = list(relay.messages)
    finally:
        relay.close()
    path = net.logs / "messages.pcap"
    with open(path, "wb") as file:
        file.write(struct.pack("=IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 1 << 18, 1))
        for message in messages:
            datagram = packet.udp(GATEWAY, CLIENT, 5000, PORT, message)
            frame = packet.ethernet(
                "02:00:00:00:00:02", "02:00:00:00:00:01", packet.ipv4(GATEWAY, CLIENT, UDP, datagram)
            )
            file.write(struct.pack("=IIII", 0, 0, len(frame), len(frame)) + frame)
    fields = ["cflow.srcport", "cflow.octets", "cflow.nat_event", "_ws.malformed"]
    options = [word for field in fields for word in ("-e", field)]
    text = net.client.run("tshark", "-r", path, "-d", f"udp.port=={PORT},cflow", "-T", "fields", *options).stdout
    rows = [line.split("\t") for line in text.splitlines() if line.count("\t") == len(fields) - 1]
    ports, octets, events, malformed = zip(*rows, strict=True)
    assert str(sport) in ",".join(ports).split(","), text
    assert str(5 * 128) in ",".join(octets).split(","), text
    assert {"4", "5"} <= set(",".join(events).split(",")), text
    assert not any(malformed), text


def test_records_wait_for_a_collector_over_tcp(net, nfcapd):
    relay = over_tcp(net)
    apply(net, to=f"tcp:{CLIENT}:{PORT + 1}")
    wait.until(lambda: status(net)["collector"] == "up", "the collector is reached")
    relay.close()
    wait.until(lambda: status(net)["collector"] == "down", "its end is noticed")
    assert "the collector is not reached" in net.office.ask("status").stdout
    before = status(net)
    sport, _ = talk(net, REMOTE, 7005)
    net.office.ask("flows", "kill", "--host", CLIENT, check=False)
    time.sleep(0.5)
    assert status(net)["records"] == before["records"]
    relay = over_tcp(net)
    try:
        wait.until(lambda: status(net)["collector"] == "up", "it is reached again", deadline=40)
        quiet(net)
        assert status(net)["lost"] == before["lost"]
    finally:
        relay.close()
    assert sums(of(nfcapd.records(), src4_addr=CLIENT, src_port=sport, dst_port=7005)) == (200, 200 * 128)


def test_a_collector_over_udp_that_comes_back_gets_templates(net):
    apply(net, 'ipfix-template-refresh = "1h"')
    talk(net, REMOTE, 7006, there=3, back=3)
    net.office.ask("flows", "kill", "--host", CLIENT, check=False)
    # Nobody listens: its host says so of the first message when the second is sent.
    wait.until(lambda: status(net)["collector"] == "down", "the refusal is noticed")
    talk(net, REMOTE, 7006, there=3, back=3)
    net.office.ask("flows", "kill", "--host", CLIENT, check=False)
    wait.until(lambda: status(net)["lost"] > 0, "records are lost, and counted")
    assert " lost" in net.office.ask("status").stdout
    assert "refuses datagrams" in net.office.log()
    nfcapd = Nfcapd(net.client, net.logs)
    try:
        wait.until(lambda: status(net)["collector"] == "up", "it receives", deadline=20)
        sport, _ = talk(net, REMOTE, 7007)
        kill_flows(net)
    finally:
        nfcapd.stop()
    assert sums(of(nfcapd.records(), src4_addr=CLIENT, src_port=sport, dst_port=7007)) == (200, 200 * 128)


def test_a_collector_may_have_an_address_of_ipv6(net):
    nfcapd = Nfcapd(net.client, net.logs, v6=True)
    try:
        apply(net, to=f"udp:[{CLIENT6}]:{PORT}")
        sport, _ = talk(net, REMOTE, 7008, there=5, back=5)
        kill_flows(net)
    finally:
        nfcapd.stop()
    assert sums(of(nfcapd.records(), src4_addr=CLIENT, src_port=sport, dst_port=7008)) == (5, 5 * 128)


@pytest.mark.only("wirerate-fast", why="the fast path is on")
def test_what_the_kernel_carries_is_counted(net, nfcapd):
    fast = net.office.counters()["fast_path"]
    apply(net)
    with net.remote.udp(port=7009) as server, net.client.udp() as client:
        for _ in range(2000):
            client.sendto(bytes(200), (REMOTE, 7009))
            _, peer = server.recvfrom(2000)
            server.sendto(bytes(100), peer)
            client.recv(2000)
        sport = client.getsockname()[1]
    after = net.office.counters()["fast_path"]
    assert after["packets"] - fast["packets"] > 3000, (fast, after)
    kill_flows(net)
    records = nfcapd.records()
    assert sums(of(records, src4_addr=CLIENT, src_port=sport, dst_port=7009)) == (2000, 2000 * 228)
    assert sums(of(records, src4_addr=REMOTE, src_port=7009)) == (2000, 2000 * 128)

