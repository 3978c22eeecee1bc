"""Tunnels with keys in files, between two live gateways: what is behind them reaches one another, and no number is ever used twice."""

import errno
import ipaddress
import itertools
import json
import re
import signal
import socket
import struct

import pytest
import wait
from host import stop
from sites import KEYS, Sites
from transfer import exchange, transfer

_runs = itertools.count(1)

CLIENTS, CLIENTS6 = ["10.1.0.10", "10.2.0.10"], ["2001:db8:1::10", "2001:db8:2::10"]

# Not in Python's socket.
IP_MTU_DISCOVER, IP_PMTUDISC_DO = 10, 2

# Driver, workers, and IP version outside.
GATEWAYS = [("packet", 1, "v4"), ("xdp", 1, "v4"), ("packet", 2, "v6"), ("xdp", 2, "v6")]


@pytest.fixture(scope="module", params=GATEWAYS, ids=lambda param: "-".join(map(str, param)))
def sites(request):
    driver, workers, outer = request.param
    sites = Sites()
    with sites.run(sites.gateways(driver, workers, outer), works):
        yield sites
        for gateway in sites.running:
            gateway.stop()
            assert_no_key(gateway)


def works(sites):
    one, two = sites.ends
    one.client.reaches(CLIENTS[1])
    one.client.reaches(CLIENTS6[1])
    two.client.reaches(CLIENTS[0])


def drops(gateway):
    return {drop["reason"]: drop["dropped"] for drop in json.loads(gateway.ask("drops", "--json").stdout)}


def said(run):
    return (run.stdout or "") + (run.stderr or "")


def assert_no_key(gateway):
    """No file that the gateway has written, and nothing that it has said, has a key."""
    for file in gateway.net.logs.rglob("*"):
        if file.is_file() and file.parent.name != "keys":
            found = file.read_bytes().lower()
            for key in KEYS.values():
                assert key.encode() not in found and bytes.fromhex(key) not in found, f"{file} has a key"


def is_esp(frame):
    if frame[12:14] == b"\x08\x00":
        return frame[14 + 9] == 50
    return frame[12:14] == b"\x86\xdd" and frame[14 + 6] == 50


def number_of(frame):
    at = 14 + (20 if frame[12:14] == b"\x08\x00" else 40)
    return int.from_bytes(frame[at : at + 4], "big"), int.from_bytes(frame[at + 4 : at + 8], "big")


def test_a_packet_is_explained_without_keys(sites):
    one, two = sites.ends
    works(sites)
    number = associations(sites.running[0], "out")[0x1001]["number"]
    packet = f"lan udp {CLIENTS[0]}:4000 > {CLIENTS[1]}:5000"
    told = json.loads(sites.running[0].ask("explain", "--live", "--json", packet).stdout)
    found = next(stage["sa"] for stage in told["stages"] if stage["stage"] == "encap")
    assert (found["tunnel"], found["spi"], found["algorithm"]) == ("site", 0x1001, "aes128-gcm")
    assert found["number"] > number, "the numbers are the gateway's"
    assert found["outer"]["protocol"] == "esp" and told["verdict"] == "forwarded"
    # Nothing was sent.
    assert associations(sites.running[0], "out")[0x1001]["number"] < number + 4


def test_nothing_crosses_in_clear(sites):
    one, two = sites.ends
    if sites.running[0].driver == "xdp":
        # No socket sees what AF_XDP sends. All of it has a number.
        before = associations(sites.running[0], "out")[0x1001]["number"]
        assert one.client.ping(CLIENTS[1], "-i", "0.2", count=3)
        assert associations(sites.running[0], "out")[0x1001]["number"] == before + 3
        return
    # Where it arrives: what leaves goes by everything else in Linux.
    with two.gateway.sniff("wan") as wire:
        assert one.client.ping(CLIENTS[1], "-i", "0.2", count=3)
        assert one.client.ping(CLIENTS6[1], count=1)
        wire.settimeout(0.3)
        frames = []
        try:
            while True:
                frames.append(wire.recv(4096))
        except OSError:
            pass
    ip = [frame for frame in frames if frame[12:14] in (b"\x08\x00", b"\x86\xdd") and not is_neighbour(frame)]
    assert len(ip) >= 4 and all(map(is_esp, ip)), [frame.hex() for frame in ip if not is_esp(frame)][:3]
    numbers = [number_of(frame) for frame in ip]
    assert len(set(numbers)) == len(numbers), "a number was used twice"


def is_neighbour(frame):
    return frame[12:14] == b"\x86\xdd" and frame[14 + 6] in (0, 58)


def test_much_data(sites):
    one, two = sites.ends
    for to in (CLIENTS[1], CLIENTS6[1]):
        transfer(one.client, two.client, to, 5001, upload=4 << 20, download=4 << 20)


def test_iperf3(sites):
    one, two = sites.ends
    server = two.client.start("iperf3", "--server", "--one-off", log="iperf3")
    try:
        wait.until(lambda: one.client.run("iperf3", "--client", CLIENTS[1], "--time", "2", check=False).returncode == 0, "iperf3")
    finally:
        stop(server)


def test_pings_of_all_sizes(sites):
    """Up to what needs fragments in the tunnel, both ways."""
    one, _ = sites.ends
    for size in (0, 1, 56, 1300, 1417, 1418, 1419, 1472, 1473, 3000):
        # The first that is too large is answered with what the tunnel takes; then the host fragments.
        for to in (CLIENTS[1], CLIENTS6[1]):
            wait.until(lambda: one.client.ping(to, "-s", size), f"a ping of {size} bytes to {to}")


def test_path_mtu_is_told(sites):
    """A packet that may not be fragmented is answered with what the tunnel takes."""
    one, _ = sites.ends
    one.client.forget_paths()
    assert not one.client.ping(CLIENTS[1], "-M", "do", "-s", 1472)
    said = one.client.run("ip", "route", "get", CLIENTS[1]).stdout
    mtu = int(re.search(r"mtu (\d+)", said)[1])
    assert 1400 <= mtu <= 1446, said
    assert one.client.ping(CLIENTS[1], "-M", "do", "-s", mtu - 28)
    assert not one.client.ping(CLIENTS[1], "-M", "do", "-s", mtu - 27)
    one.client.forget_paths()


def test_linux_itself_is_in_the_tunnel(sites):
    """The gateways' own packets, and those to them, by an interface of the tunnel's name."""
    one, two = sites.ends
    said = one.gateway.run("ip", "-d", "addr", "show", "dev", "site").stdout
    assert "tun" in said and "10.9.0.1/24" in said, said
    assert re.search(r"10\.2\.0\.0/16 dev site", one.gateway.run("ip", "route").stdout)
    assert one.gateway.ping("10.9.0.2"), "gateway to gateway"
    assert two.client.ping("10.9.0.1"), "a host to the far gateway"
    assert two.client.ping("10.1.0.1"), "a host to the far gateway's address on its own network"
    with two.gateway.listen(8000, "10.9.0.2") as listener, one.gateway.connect("10.9.0.2", 8000) as here:
        there, _ = listener.accept()
        with there:
            exchange(here, there, upload=1 << 20, download=1 << 20)


class Pings:
    """Pings of one host to another, one after the other, and how many were lost."""

    def __init__(self, host, to, interval=0.005):
        self.process = host.start("ping", "-i", interval, to, log=f"pings-{next(_runs)}")

    def answered(self):
        return {int(number) for number in re.findall(r"bytes from .* icmp_seq=(\d+) ", self.process.log.read_text())}

    def lost(self):
        """Those without an answer, of all that were sent before twenty later ones were answered: the very last may be on their way."""
        last = max(self.answered(), default=0) + 20
        wait.until(lambda: max(self.answered(), default=0) >= last + 20, "answers to pings")
        stop(self.process, signal.SIGINT)
        return len(set(range(1, last + 1)) - self.answered())


def test_a_reload_loses_nothing(sites):
    one, _ = sites.ends
    pings = Pings(one.client, CLIENTS[1])
    for round in range(8):
        for gateway in sites.running:
            gateway.apply_more(f'[[rule]]\nname = "r{round}"\nfrom = "lan"\nprotocol = "tcp"\ndport = 9\naction = "drop"\n')
    assert pings.lost() == 0
    assert drops(sites.running[1]).get("replayed", 0) == 0


def test_a_load_loses_nothing(sites, tmp_path):
    """The numbers of a saved state go on far behind those in use, and no packet waits until as many are reserved."""
    one, _ = sites.ends
    gateway, far = sites.running
    saved = tmp_path / "saved.state"
    pings = Pings(one.client, CLIENTS[1])
    for round in range(1, 5):
        before = associations(far, "in")[0x1001]["number"]
        gateway.ask("save", saved)
        gateway.ask("load", saved)
        wait.until(lambda before=before: associations(far, "in")[0x1001]["number"] > before + (1 << 19), f"load {round}")
    assert pings.lost() == 0


@pytest.mark.parametrize("end", ["in good order", "killed"])
def test_a_restart_goes_on_with_the_numbers(sites, end):
    """The other side, which has not been restarted, takes the packets of the one that has: their numbers are new."""
    one, two = sites.ends
    gateway, far = sites.running
    before = drops(far)
    assert one.client.ping(CLIENTS[1], "-i", "0.01", count=20)
    last = associations(far, "in")[0x1001]["number"]
    received = associations(gateway, "in")[0x1002]["number"]
    counted = {way: associations(gateway, way)[spi] for way, spi in [("out", 0x1001), ("in", 0x1002)]}
    with two.gateway.sniff("wan", room=1 << 24) as wire:
        wire.settimeout(0.3)
        if end == "killed":
            gateway.kill()
        else:
            gateway.stop()
        gateway.start()
        one.client.reaches(CLIENTS[1])
        assert one.client.ping(CLIENTS[1], "-i", "0.01", count=20)
        two.client.reaches(CLIENTS[0])
        sent = []
        try:
            while True:
                frame = wire.recv(4096)
                if is_esp(frame) and number_of(frame)[0] == 0x1001:
                    sent.append(number_of(frame)[1])
        except OSError:
            pass
    now = associations(far, "in")[0x1001]["number"]
    assert len(sent) >= 20 or gateway.driver == "xdp", "a socket does not see what AF_XDP takes"
    assert len(set(sent)) == len(sent) and all(number > last for number in sent), "a number was used twice"
    assert now >= last + 20
    # A gateway that ended in good order says where it was; one that was killed goes on behind all that it may have sent.
    assert (now > last + (1 << 19)) == (end == "killed"), (last, now)
    assert associations(gateway, "in")[0x1002]["number"] > received
    # Counters are written at the end, and once a minute.
    for way, counts in counted.items():
        now = associations(gateway, way)[counts["spi"]]
        least = counts if end == "in good order" else {"packets": 0, "bytes": 0}
        assert all(now[name] >= least[name] + 20 for name in ["packets", "bytes"]), (counts, now)
    assert drops(far).get("replayed", 0) == before.get("replayed", 0)


def associations(gateway, direction):
    listed = json.loads(gateway.ask("sa", "--json").stdout)
    return {sa["spi"]: sa for sa in listed if sa["direction"] == direction}


def add(gateway, direction, spi, key, *more, check=True):
    file = gateway.net.logs / f"keys/{key}"
    words = ["add", "site", "--direction", direction, "--spi", spi, "--algorithm", "aes128-gcm", "--key-file", file]
    return gateway.ask("sa", *words, *more, check=check)


def test_one_that_is_added_has_a_lifetime(sites):
    """It ends at its hard bound, and each bound is in the log once, whatever the number of workers."""
    one, two = sites.running
    client = sites.ends[0].client
    refused = add(one, "out", 0x3003, 3, "--soft-packets", 5, "--hard-packets", 4, check=False)
    assert refused.returncode == 1 and "past the hard one" in said(refused), refused
    add(two, "in", 0x3003, 3)
    add(one, "out", 0x3003, 3, "--soft-packets", 2, "--hard-packets", 4, "--hard-bytes", "1 GiB", "--hard-time", "1h")
    try:
        state = lambda: associations(one, "out")[0x3003]
        wait.until(lambda: not client.ping(CLIENTS[1]) and state()["reached"] == "hard", "the end of the association")
        # Each worker may pass the bound by a packet.
        assert 4 <= state()["packets"] <= 5
        lines = lambda bound: [
            line
            for line in one.process.log.read_text().splitlines()
            if f"{bound} lifetime of a security association" in line and "0x00003003" in line
        ]
        wait.until(lambda: lines("hard"), "the hard bound in the log")
        for host in range(30, 34):
            client.ip(f"addr add 10.1.0.{host}/16 dev eth0")
            assert not client.ping(CLIENTS[1], "-I", f"10.1.0.{host}")
        assert (len(lines("soft")), len(lines("hard"))) == (1, 1), lines("soft") + lines("hard")
    finally:
        one.ask("sa", "delete", "site", "--direction", "out", "--spi", 0x3003)
        two.ask("sa", "delete", "site", "--direction", "in", "--spi", 0x3003)
    works(sites)


def test_a_rekey_loses_nothing(sites):
    """New ones in at both ends, then new ones out, then the old ones go, under traffic."""
    one, two = sites.running
    pings = Pings(sites.ends[0].client, CLIENTS[1])
    for own, other in ((one, 4), (two, 3)):
        add(own, "in", 0x3000 + other, other)
    for own, key in ((one, 3), (two, 4)):
        add(own, "out", 0x3000 + key, key)
    # Those of the policy are in use no more.
    assert associations(one, "out")[0x1001]["state"] == "superseded"
    before = associations(one, "out")[0x3003]["number"]
    wait.until(lambda: associations(one, "out")[0x3003]["number"] > before + 5, "packets leave by the new one")
    # What left by the old ones has come in: whoever deletes them earlier loses what is on its way.
    for near, far, spi in ((one, two, 0x1001), (two, one, 0x1002)):
        sent = associations(near, "out")[spi]["number"]
        wait.until(lambda: associations(far, "in")[spi]["number"] >= sent, "what left by the old one")
    for gateway, own, other in ((one, 0x1001, 0x1002), (two, 0x1002, 0x1001)):
        gateway.ask("sa", "delete", "site", "--direction", "out", "--spi", own)
        gateway.ask("sa", "delete", "site", "--direction", "in", "--spi", other)
    assert set(associations(one, "in")) == {0x3004} and set(associations(two, "in")) == {0x3003}
    number = associations(two, "in")[0x3003]["number"]
    wait.until(lambda: associations(two, "in")[0x3003]["number"] > number, "packets come in by the new one")
    # A reload brings those of the policy back, and the new ones stay in use.
    for gateway in sites.running:
        gateway.apply_more("")
    assert associations(one, "out")[0x3003]["state"] == "active"
    assert pings.lost() == 0
    # The same key cannot be added again, nor one of the policy.
    for key in (1, 2, 3):
        refused = add(one, "out", 0x5000, key, check=False)
        assert refused.returncode == 1 and "same key" in said(refused), refused
    for gateway, key in ((one, 3), (two, 4)):
        gateway.ask("sa", "delete", "site", "--direction", "out", "--spi", 0x3000 + key)
    works(sites)
    for gateway in sites.running:
        gateway.ask("sa", "flush", "--tunnel", "site")
        assert json.loads(gateway.ask("sa", "--json").stdout) == []
    assert not sites.ends[0].client.ping(CLIENTS[1])
    for gateway in sites.running:
        gateway.apply_more(f'[[rule]]\nname = "back"\nfrom = "lan"\nprotocol = "tcp"\ndport = 9\naction = "drop"\n')
    works(sites)


def test_a_policy_cannot_have_the_key_of_one_that_was_added(sites):
    """But as the same association it can: what was added moves into the policy, and no packet is lost."""
    one, two = sites.running
    text = one.policy.read_text()
    inward = text.index('direction = "in"')
    other = one.net.logs / "other.toml"
    add(one, "in", 0x3004, 4)
    # Under another index.
    other.write_text(text[:inward] + text[inward:].replace('key-file = "keys/2"', 'key-file = "keys/4"', 1))
    refused = one.ask("apply", other, check=False)
    assert refused.returncode == 1 and "same key" in said(refused) and "0x00003004" in said(refused), refused
    works(sites)
    assert set(associations(one, "in")) == {0x1002, 0x3004}
    moved = other.read_text()
    moved = moved[:inward] + re.sub(r"spi = \d+", f"spi = {0x3004}", moved[inward:], count=1)
    add(two, "out", 0x3004, 4)
    try:
        pings = Pings(sites.ends[0].client, CLIENTS[1])
        other.write_text(moved)
        one.ask("apply", other)
        assert {spi: sa["origin"] for spi, sa in associations(one, "in").items()} == {0x3004: "policy"}
        assert pings.lost() == 0
    finally:
        two.ask("sa", "delete", "site", "--direction", "out", "--spi", 0x3004)
        one.ask("apply", one.policy)
    works(sites)
    assert set(associations(one, "in")) == {0x1002}


def test_one_that_is_added_is_as_the_tunnel_permits(sites):
    one, _ = sites.running
    keys = one.net.logs / "keys"
    for name, digits in (("des", 16), ("md5", 32), ("aes", 32)):
        (keys / name).touch(mode=0o600)
        (keys / name).write_text("a5" * (digits // 2) + "\n")
    weak = [
        ["--algorithm", "des-cbc", "--auth", "hmac-md5-96", "--key-file", keys / "des", "--auth-key-file", keys / "md5"],
        ["--algorithm", "aes128-cbc", "--auth", "hmac-md5-96", "--key-file", keys / "aes", "--auth-key-file", keys / "md5"],
        ["--algorithm", "aes128-cbc", "--auth", "none", "--key-file", keys / "aes"],
    ]
    for words in weak:
        for direction in ("in", "out"):
            refused = one.ask("sa", "add", "site", "--direction", direction, "--spi", 0x3009, *words, check=False)
            assert refused.returncode == 1 and "legacy = true" in said(refused), refused
    assert set(associations(one, "in")) == {0x1002}
    one_of = ["nowhere", "--direction", "in", "--spi", 0x3009]
    for words in (["flush", "--tunnel", "nowhere"], ["--tunnel", "nowhere"], ["delete", *one_of]):
        refused = one.ask("sa", *words, check=False)
        assert refused.returncode == 1 and 'no tunnel "nowhere"' in said(refused), refused
        assert "the tunnels are: site" in said(refused), refused
    assert len(json.loads(one.ask("sa", "--tunnel", "site", "--json").stdout)) == 2


def test_an_empty_key_file_is_refused(sites):
    one, _ = sites.running
    text, empty, other = one.policy.read_text(), one.net.logs / "keys/empty", one.net.logs / "other.toml"
    empty.touch(mode=0o600)
    other.write_text(text.replace('key-file = "keys/1"', 'key-file = "keys/empty"'))
    for content in ("", "\n"):
        empty.write_text(content)
        refused = one.ask("apply", other, check=False)
        assert refused.returncode == 1 and "takes a key of 20 bytes" in said(refused), refused
    works(sites)


def test_a_file_that_others_can_read_is_refused(sites):
    gateway = sites.running[0]
    file = gateway.net.logs / "keys/1"
    file.chmod(0o644)
    try:
        refused = gateway.ask("apply", gateway.policy, check=False)
        assert refused.returncode != 0 and "chmod 600" in said(refused), refused
    finally:
        file.chmod(0o600)
    gateway.ask("apply", gateway.policy)
    works(sites)


def test_policies_that_are_shown_have_no_key(sites):
    gateway = sites.running[0]
    shown = gateway.ask("policies", check=False).stdout + gateway.ask("status", "--json").stdout
    assert not any(key in shown for key in KEYS.values())


def too_big(prefix, mtu):
    """An ICMP error about a packet of the first gateway's tunnel: that it is larger than `mtu`."""
    local, remote = (ipaddress.ip_address(f"{prefix}{end}").packed for end in (1, 2))
    esp = struct.pack("!II", 0x1001, 1)
    if len(local) == 16:
        quote = struct.pack("!IHBB", 6 << 28, 1400, 50, 60) + local + remote + esp
        error = struct.pack("!BBHI", 2, 0, 0, mtu) + quote
        family, protocol = socket.AF_INET6, socket.IPPROTO_ICMPV6
    else:
        quote = struct.pack("!BBHHHBBH", 0x45, 0, 1400, 1, 0x4000, 60, 50, 0) + local + remote + esp
        error = struct.pack("!BBHHH", 3, 4, 0, 0, mtu) + quote
        error = error[:2] + struct.pack("!H", checksum(error)) + error[4:]
        family, protocol = socket.AF_INET, socket.IPPROTO_ICMP
    return family, protocol, error


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def test_what_one_worker_learns_all_do(sites):
    """A path MTU, which an ICMP error tells one worker, holds for the packets of all."""
    one, two = sites.ends
    prefix = sites.running[0].about["prefix"]
    family, protocol, error = too_big(prefix, 1350)
    one.client.forget_paths()
    assert one.client.ping(CLIENTS[1], "-M", "do", "-s", 1300)
    with two.gateway.open(family, socket.SOCK_RAW, protocol) as router:
        router.sendto(error, (f"{prefix}1", 0))
    log = sites.running[0].process.log
    wait.until(lambda: "path MTU" in log.read_text(), "the path MTU in the log")
    # Some of these hosts are one worker's, some the other's.
    for host in range(20, 28):
        one.client.ip(f"addr add 10.1.0.{host}/16 dev eth0")
        wait.until(lambda: one.client.ping(CLIENTS[1], "-I", f"10.1.0.{host}"), "a ping")
        one.client.forget_paths()
        with one.client.open(socket.AF_INET, socket.SOCK_DGRAM, 0) as sender:
            sender.settimeout(5)
            sender.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
            sender.bind((f"10.1.0.{host}", 0))
            sender.connect((CLIENTS[1], 40_000))
            sender.send(bytes(1300))
            with pytest.raises(OSError) as told:
                sender.recv(1)
            assert told.value.errno == errno.EMSGSIZE, told.value
    one.client.forget_paths()
    works(sites)
