"""Live packets, captured at points of their way through the gateway, with what became of each."""

import json
import shutil
import signal
import socket
import subprocess
import time

import pytest
import wait
from gateway import binary
from packet import ICMP, TCP, UDP, Packet
from pcapng import Capture
from topology import CLIENT, GATEWAY, OUTSIDE, REMOTE

pytestmark = pytest.mark.without("nftables", why="Linux has tcpdump")

SECOND = 10**9


class Capturing:
    """`wirerate capture` into a file, from when it has begun to when it is told to end."""

    def __init__(self, net, path, *options):
        self.net, self.path = net, path
        path.unlink(missing_ok=True)
        self.process = net.gateway.start(
            binary(), "capture", "-o", path, "--socket", net.office.socket, *options, log=f"capture-{path.name}"
        )
        wait.until(lambda: path.exists() and path.stat().st_size > 0, "the capture has begun")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        assert self.process.wait(10) == 0, self.process.log.read_text()

    def has(self, count):
        """Waits until there are so many packets."""

        def there():
            try:
                return len(Capture(self.path).packets) >= count
            except AssertionError:
                return False

        wait.until(there, f"{count} packets are captured")

    def read(self):
        return Capture(self.path)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "live.pcapng"


def test_each_packet_is_there_once_with_what_became_of_it(net, path):
    net.client.reaches(REMOTE)
    begun = time.time_ns()
    with Capturing(net, path, "--host", REMOTE) as capture:
        assert net.client.ping(REMOTE)
        with net.remote.udp(port=5002) as remote, net.client.udp(CLIENT, 4702) as here:
            here.sendto(b"once", (REMOTE, 5002))
            peer = remote.recvfrom(100)[1]
        # No mail from here.
        with pytest.raises(OSError):
            net.client.connect(REMOTE, 25)
        # Nobody listens there, and the policy has no rule for it.
        with net.remote.udp() as remote:
            remote.sendto(b"to nobody", (OUTSIDE, 1))
            capture.has(5)
    found = capture.read().packets
    assert all(begun <= seen.nanoseconds <= time.time_ns() for seen in found)
    read = [(seen, packet) for seen in found if (packet := Packet.read(seen.frame))]
    (datagram,) = [seen for seen, packet in read if (packet.protocol, packet.dport) == (UDP, 5002)]
    packet = Packet.read(datagram.frame)
    # As it left: translated.
    assert (packet.source, packet.sport, packet.to) == (OUTSIDE, peer[1], REMOTE)
    assert datagram.interface == "wan"
    assert datagram.comment.startswith("forwarded, in by lan, out by wan")
    assert 'translation "house"' in datagram.comment
    assert f"flow udp {CLIENT}:4702 > {REMOTE}:5002" in datagram.comment
    (refused,) = [seen for seen in found if "rule-reject" in seen.comment]
    assert 'answered: rule-reject by rule "no-direct-mail", in by lan' in refused.comment
    assert refused.interface == "lan", "the answer goes back"
    (dropped,) = [seen for seen in found if seen.comment.startswith("dropped: ")]
    assert "default-drop" in dropped.comment and dropped.interface == "wan"
    pings = [packet for _, packet in read if packet.protocol == ICMP and packet.payload[0] in (0, 8)]
    assert len(pings) == 2


def test_points_on_the_way(net, path):
    net.client.reaches(REMOTE)
    points = "received,before-track,filter,snat,before-rewrite,rewrite,sent"
    filters = ["--host", REMOTE, "--protocol", "udp", "--port", 5003]
    with Capturing(net, path, "--stage", points, *filters) as capture:
        with net.remote.udp(port=5003) as remote, net.client.udp(CLIENT, 4703) as here:
            for _ in range(2):
                here.sendto(b"twice", (REMOTE, 5003))
                peer = remote.recvfrom(100)[1]
        capture.has(7 + 5)
    found = capture.read().packets
    leads = [seen.comment.split(",")[0].split(":")[0].split(" by ")[0] for seen in found]
    way = ["received", "before track", "after filter", "after snat", "before rewrite", "after rewrite"]
    # The second follows its flow, and meets no rule.
    again = [point for point in way if point not in ("after filter", "after snat")]
    assert [lead for lead in leads if lead != "forwarded"] == [*way, *again], leads
    for seen in found:
        packet = Packet.read(seen.frame)
        is_translated = seen.comment.startswith(("after rewrite", "forwarded"))
        expected = (OUTSIDE, peer[1]) if is_translated else (CLIENT, 4703)
        assert (packet.source, packet.sport) == expected, seen.comment
        assert seen.interface == ("wan" if seen.comment.startswith("forwarded") else "lan")


@pytest.mark.parametrize("option, count", [
    (["--host", CLIENT], 4),
    (["--host", "192.168.1.20"], 0),
    (["--host", "198.51.100.0/24", "--port", "5004"], 2),
    (["--port", "4704"], 2),
    (["--protocol", "icmp"], 2),
    (["--interface", "guest"], 0),
    (["--interface", "wan"], 4),
    (["--nat", "house"], 4),
    (["--nat", "web"], 0),
    (["--rule", "web-in"], 0),
    (["--verdict", "forwarded"], 4),
    (["--verdict", "dropped"], 0),
    (["--reason", "default-drop"], 0),
], ids=lambda value: " ".join(value) if isinstance(value, list) else str(value))  # fmt: skip
def test_filters(net, path, option, count):
    """Of a datagram and its answer, an echo request and its answer."""
    net.client.reaches(REMOTE)
    options = [] if "--protocol" in option or "--host" in option else ["--host", REMOTE]
    every = Capturing(net, path.with_name("all.pcapng"), "--host", REMOTE)
    with every, Capturing(net, path, *option, *options) as capture:
        with net.remote.udp(port=5004) as remote, net.client.udp(CLIENT, 4704) as here:
            here.sendto(b"there", (REMOTE, 5004))
            remote.sendto(b"back", remote.recvfrom(100)[1])
            assert here.recv(100) == b"back"
        assert net.client.ping(REMOTE)
        every.has(4)
        capture.has(count)
    assert len(capture.read().packets) == count, [seen.comment for seen in capture.read().packets]


def test_words_that_mean_nothing(net, path):
    options = ["--rule", "--nat", "--interface", "--verdict", "--reason", "--stage", "--protocol", "--host"]
    for option in options:
        done = net.office.ask("capture", "-o", path, option, "nonsense", check=False)
        assert done.returncode == 1 and "nonsense" in done.stdout, done.stdout
    assert not path.exists(), "what was there before is left alone"
    done = net.office.ask("capture", "-o", "-", "--json", check=False)
    assert done.returncode == 2


def test_count_seconds_and_snap(net, path):
    net.client.reaches(REMOTE)
    with Capturing(net, path, "--protocol", "icmp", "--count", 3, "--snap", 20, "--json") as capture:
        wait.until(lambda: net.client.ping(REMOTE) and capture.process.poll() is not None, "it ends by itself")
    found = capture.read().packets
    assert len(found) == 3
    assert all(len(seen.frame) == 20 and seen.length == 98 for seen in found)
    said = capture.process.log.read_text()
    assert json.loads(said[said.rindex("{") :]) == {"packets": 3, "lost": 0}
    begun = time.monotonic()
    net.office.ask("capture", "-o", path, "--seconds", "0.5")
    assert 0.4 < time.monotonic() - begun < 5


def test_at_ten_thousand_packets_a_second_none_is_missing(net, path):
    """As many as arrive at the far end, each as it came and as it went. A busy machine may need more than one try to keep up."""
    net.client.reaches(REMOTE)
    for _ in range(3):
        if has_kept_up(net, path):
            return
    pytest.fail("the sender or the gateway was too slow for the rate, three times")


def has_kept_up(net, path):
    """Sends, and compares. Returns whether the rate was that of the test, and nearly all arrived."""
    many, rate = 20_000, 10_000
    with net.remote.udp(port=5005) as remote, net.client.udp(CLIENT, 4705) as here:
        remote.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE
        with Capturing(net, path, "--port", 4705, "--stage", "received,sent") as capture:
            begun, late = time.monotonic(), 0
            for number in range(many):
                here.sendto(number.to_bytes(4, "big"), (REMOTE, 5005))
                ahead = number / rate - (time.monotonic() - begun)
                if ahead > 0.002:
                    time.sleep(ahead)
                elif ahead < -0.05:
                    # What the sender did not have the time for is not sent in one go.
                    begun -= ahead
                    late -= ahead
            remote.settimeout(1)
            arrived = []
            with pytest.raises(TimeoutError):
                while True:
                    arrived.append(int.from_bytes(remote.recv(100), "big"))
            capture.has(2 * len(arrived))
    found = capture.read()
    assert found.lost == 0
    numbers = {"received": [], "forwarded": []}
    for seen in found.packets:
        number = int.from_bytes(Packet.read(seen.frame).payload[8:12], "big")
        numbers[seen.comment.split(",")[0]].append(number)
    assert numbers["received"] == numbers["forwarded"] == arrived
    return late < many / rate and len(arrived) > many * 0.9


def test_captures_are_bounded_and_go_when_their_readers_do(net, tmp_path):
    started = [Capturing(net, tmp_path / f"{number}.pcapng", "--port", 9) for number in range(4)]
    done = net.office.ask("capture", "-o", tmp_path / "more.pcapng", check=False)
    assert done.returncode == 1 and "under way already" in done.stdout, done.stdout
    # However they end.
    for capture in started[:2]:
        capture.process.kill()
        capture.process.wait()
    for capture in started[2:]:
        with capture:
            pass
    short = ["-o", tmp_path / "more.pcapng", "--seconds", "0.1"]
    wait.until(
        lambda: net.office.ask("capture", *short, check=False).returncode == 0,
        "there is room again",
    )


def test_a_full_disk(net, tmp_path):
    """Says what is wrong, and how many packets are there; they can be read. The gateway goes on."""
    net.client.reaches(REMOTE)
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], check=True)
    try:
        path = disk / "live.pcapng"
        process = net.gateway.start(
            binary(), "capture", "-o", path, "--socket", net.office.socket, "--port", 4706, log="capture-full"
        )
        with net.remote.udp(port=5006) as remote, net.client.udp(CLIENT, 4706) as here:

            def send():
                for _ in range(20):
                    here.sendto(bytes(1000), (REMOTE, 5006))
                return process.poll() is not None

            wait.until(send, "the disk is full")
            assert remote.recv(2000) == bytes(1000)
        assert process.returncode == 3
        said = process.log.read_text()
        packets = len(Capture(path).packets)
        assert "No space left" in said and f"{packets} packets are in it" in said, said
        assert 20 < packets < 64
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)
    done = net.office.ask("capture", "-o", "/dev/full", check=False)
    assert done.returncode == 3 and "0 packets are in it" in done.stdout, done.stdout
    net.client.reaches(REMOTE)


def test_it_can_be_piped(net, tmp_path):
    """The reader sees packets as they come, and its end is the capture's."""
    piped = tmp_path / "piped.pcapng"
    command = f"{binary()} capture -o - --socket {net.office.socket} --protocol icmp | head -c 600 > {piped}"
    process = net.gateway.start("bash", "-c", f"set -o pipefail; {command}", log="piped")
    wait.until(lambda: net.client.ping(GATEWAY) and process.poll() is not None, "the pipe has enough")
    assert process.returncode == 0, process.log.read_text()
    assert piped.stat().st_size == 600


@pytest.mark.skipif(not shutil.which("tshark"), reason="SKIPPED: there is no tshark")
def test_tshark_reads_it(net, path):
    with Capturing(net, path, "--protocol", "icmp") as capture:
        assert net.client.ping(REMOTE)
        capture.has(2)
    fields = ["-e", "frame.interface_name", "-e", "frame.comment"]
    done = net.gateway.run("tshark", "-r", path, "-T", "fields", *fields)
    assert "wan\tforwarded, in by lan, out by wan" in done.stdout, done.stdout


def test_it_ends_with_the_gateway(net, path):
    capture = Capturing(net, path, "--port", 9)
    net.office.stop()
    assert capture.process.wait(10) == 4, capture.process.log.read_text()
    assert capture.read().packets == []
    net.office.start()
    net.client.reaches(GATEWAY)


def test_a_capture_outlives_another_policy(net, path):
    """Names are those of the policy that decided."""
    net.client.reaches(REMOTE)
    with Capturing(net, path, "--port", 6667, "--protocol", "tcp") as capture:
        net.office.apply("no-chat")
        try:
            with pytest.raises(OSError):
                net.client.connect(REMOTE, 6667, timeout=0.3)
        finally:
            net.office.apply()
        capture.has(1)
    first = capture.read().packets[0]
    assert first.comment.startswith('dropped: rule-drop by rule "no-chat", in by lan'), first.comment
    assert Packet.read(first.frame).protocol == TCP
