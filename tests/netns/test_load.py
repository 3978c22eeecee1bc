"""More than an office has: a hundred thousand flows, and a flood."""

import socket
import struct
import time

import flood
import pytest
import wait
from packet import UDP, checksum, mac
from topology import OUTSIDE, REMOTE, STRANGER

SOURCES = [f"192.168.1.{last}" for last in range(100, 200)]
SPORTS = range(10000, 10500)
"""Of each source: so 50,000 ports inside must become 50,000 different ones outside."""

SINK = 5353


class Generator:
    """Datagrams of many sources, by one card. Each carries the number of its flow."""

    def __init__(self, net, to):
        addresses = mac(net.gateway.mac("lan")) + mac(net.client.mac()) + b"\x08\x00"
        self._wire = net.client.wire("eth0")
        self._heads = []
        for source in SOURCES:
            head = (
                struct.pack("!BBHHHBBH", 0x45, 0, 20 + 8 + 4, 0, 0x4000, 64, UDP, 0)
                + socket.inet_aton(source)
                + socket.inet_aton(to)
            )
            self._heads.append(addresses + head[:10] + struct.pack("!H", checksum(head)) + head[12:])

    def send(self, flow):
        source, sport = divmod(flow, len(SPORTS))
        # A UDP checksum of 0 is none (RFC 768); a translation leaves it so.
        self._wire.send(self._heads[source] + struct.pack("!HHHHI", SPORTS[sport], SINK, 12, 0, flow))

    def close(self):
        self._wire.close()


class Sink:
    """Counts what arrives at a host: the outside address and port of each flow."""

    def __init__(self, host, address):
        # Somebody listens, so that Linux does not answer; it hears nothing, as the sniffer does that.
        self._quiet = host.udp(address, SINK)
        self._quiet.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        self._sniffer = host.sniff("eth0", kind=0x0800, room=1 << 26)
        self._sniffer.setblocking(False)
        self.seen = {}

    def drain(self):
        while True:
            try:
                frame = self._sniffer.recv(2048)
            except BlockingIOError:
                return
            if len(frame) < 46 or frame[23] != UDP or frame[36:38] != SINK.to_bytes(2, "big"):
                continue
            flow = int.from_bytes(frame[42:46], "big")
            outside = (socket.inet_ntoa(frame[26:30]), int.from_bytes(frame[34:36], "big"))
            assert self.seen.setdefault(flow, outside) == outside, (
                f"flow {flow} came from {self.seen[flow]}, then from {outside}"
            )

    def close(self):
        self._quiet.close()
        self._sniffer.close()


def test_a_hundred_thousand_flows(net):
    """50,000 inside ports, each to two destinations: all come out, each port of its own, also when sent again."""
    # What arrives is evidence enough, and keeping it twice would take time from the gateway.
    net.unwatch()
    count = len(SOURCES) * len(SPORTS)
    sinks = [Sink(net.remote, REMOTE), Sink(net.stranger, STRANGER)]
    generators = [Generator(net, to) for to in (REMOTE, STRANGER)]
    try:
        missing = [range(count), range(count)]
        end = time.monotonic() + 60
        while any(missing):
            assert time.monotonic() < end, (
                f"of {count} flows these many never came out: {[len(each) for each in missing]}"
            )
            for generator, flows, sink in zip(generators, missing, sinks):
                for number, flow in enumerate(flows):
                    generator.send(flow)
                    if number % 256 == 255:
                        sink.drain()
            quiet(sinks)
            missing = [[flow for flow in range(count) if flow not in sink.seen] for sink in sinks]
        for sink in sinks:
            assert {address for address, _ in sink.seen.values()} == {OUTSIDE}
            assert len(set(sink.seen.values())) == count, "two flows share an outside port"
        if net.office.owns_frames:
            assert sinks[0].seen == sinks[1].seen, (
                "an inside port is mapped alike for all destinations (RFC 4787, REQ-1)"
            )
        answers(net, sinks[0].seen)
    finally:
        for each in [*sinks, *generators]:
            each.close()


def quiet(sinks):
    """Reads until nothing more arrives."""
    before = None
    while before != (before := [len(sink.seen) for sink in sinks]):
        time.sleep(0.1)
        for sink in sinks:
            sink.drain()


def answers(net, seen):
    """Of a thousand flows an answer finds the way back."""
    net.client.ip(*[f"addr add {source}/24 dev eth0" for source in SOURCES])
    try:
        with net.client.sniff("eth0", kind=0x0800, room=1 << 24) as sniffer:
            sniffer.setblocking(False)
            wanted = set(range(0, len(seen), len(seen) // 1000))
            server = net.remote.open(socket.AF_INET, socket.SOCK_RAW, UDP)
            server.bind((REMOTE, 0))
            got = {}

            def all_came():
                for flow in wanted - set(got):
                    address, port = seen[flow]
                    server.sendto(struct.pack("!HHHHI", SINK, port, 12, 0, flow), (address, 0))
                time.sleep(0.05)
                while True:
                    try:
                        frame = sniffer.recv(2048)
                    except BlockingIOError:
                        break
                    if frame[23] == UDP and frame[34:36] == SINK.to_bytes(2, "big"):
                        flow = int.from_bytes(frame[42:46], "big")
                        got[flow] = (socket.inet_ntoa(frame[30:34]), int.from_bytes(frame[36:38], "big"))
                return wanted <= set(got)

            wait.until(all_came, "answers come back", 20)
            server.close()
            for flow in wanted:
                source, sport = divmod(flow, len(SPORTS))
                assert got[flow] == (SOURCES[source], SPORTS[sport])
    finally:
        net.client.ip(*[f"addr del {source}/24 dev eth0" for source in SOURCES])


def received(host):
    return int(host.run("cat", "/sys/class/net/eth0/statistics/rx_packets").stdout)


@pytest.mark.parametrize("rate", [20_000])
def test_a_good_flow_beside_a_flood_of_syns(net, rate):
    """Sixty thousand half-open connections to the forwarded port within three seconds; who was there before goes on."""
    net.unwatch()
    with net.remote.listen(80) as server, net.server.listen(443), net.client.connect(REMOTE, 80) as client:
        there, _ = server.accept()
        with there:
            client.settimeout(10)
            there.settimeout(10)
            before = received(net.server)
            process = flood.start(net, OUTSIDE, 443, rate, 3)
            rounds = 0
            while process.poll() is None:
                client.sendall(b"%d" % rounds)
                assert there.recv(100) == b"%d" % rounds
                there.sendall(b"%d" % rounds)
                assert client.recv(100) == b"%d" % rounds
                rounds += 1
            assert process.returncode == 0, process.log.read_text()
            sent = int(process.log.read_text())
            assert sent >= rate, f"the flood was no flood: {sent} SYNs"
            assert received(net.server) - before >= 1000, "hardly any SYN came through"
            assert rounds >= 100, f"only {rounds} rounds in three seconds"
    assert net.client.ping(REMOTE), "others go on, too"
    with net.remote.listen(80) as server, net.client.connect(REMOTE, 80):
        server.accept()[0].close()


@pytest.mark.without("nftables", why="its table of connections is the machine's")
@pytest.mark.parametrize("rate", [50_000])
def test_new_connections_during_a_flood_of_syns(net, rate):
    """With the default table of flows, which the flood fills in a second: who comes anew gets in at once, either way."""
    net.unwatch()
    policy = net.office.policy
    text = policy.read_text()
    policy.write_text(text.replace("flows = 262144\n", ""))
    net.office.ask("apply", policy)
    took = []
    try:
        with net.remote.listen(80) as street, net.server.listen(443) as web, net.client.connect(REMOTE, 80) as client:
            there, _ = street.accept()
            with there:
                process = flood.start(net, OUTSIDE, 443, rate, 6)
                begun = received(net.server)
                wait.until(lambda: received(net.server) - begun > 1000, "the flood comes through")
                while process.poll() is None:
                    client.sendall(b"on")
                    assert there.recv(100) == b"on"
                    for caller, address, port, listener in [
                        (net.client, REMOTE, 80, street),
                        (net.stranger, OUTSIDE, 443, web),
                    ]:
                        begin = time.monotonic()
                        with caller.connect(address, port, timeout=20) as one:
                            one.sendall(b"new")
                            answered(listener, one)
                            took.append(time.monotonic() - begin)
                assert process.returncode == 0, process.log.read_text()
                sent = int(process.log.read_text().split()[-1])
                assert sent >= rate, f"the flood was no flood: {sent} SYNs"
                client.sendall(b"still")
                assert there.recv(100) == b"still"
    finally:
        policy.write_text(text)
        net.office.ask("apply", policy)
    took.sort()
    print(f"{sent} SYNs, {len(took)} connections: median {took[len(took) // 2]:.3f} s, longest {took[-1]:.3f} s")


def answered(listener, one):
    """Takes the connection that the other end has opened, among those of the flood that were never confirmed."""
    listener.settimeout(20)
    taken, _ = listener.accept()
    with taken:
        taken.settimeout(20)
        assert taken.recv(100) == b"new"
        taken.sendall(b"there")
        assert one.recv(100) == b"there"
