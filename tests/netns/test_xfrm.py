"""Security associations of unmodified programs: `ip xfrm` and strongSwan's charon give wirerate what they would give Linux."""

import re
import shutil

import ike
import pytest
import wait
from edge import PROVIDER, Edge, gateway_of
from gateway import missing

NEAR = "203.0.113.2"

KEY = "0x000102030405060708090a0b0c0d0e0f10111213"
STATE = f"src {NEAR} dst {PROVIDER} proto esp spi"
AEAD = f"reqid 7 mode tunnel aead rfc4106(gcm(aes)) {KEY} 128"
POLICY = "src 10.1.0.0/16 dst 10.2.0.0/16 dir out"


@pytest.fixture(scope="module")
def edge(tmp_path_factory):
    if lacking := missing("wirerate-packet"):
        pytest.skip(f"SKIPPED: {lacking}")
    preload = ike.library(tmp_path_factory.mktemp("xfrm"))
    made = Edge()
    made.gateway.ip(f"addr add {NEAR}/24 dev wan")
    # kernel-libipsec wants an address of its own network.
    made.provider.ip("addr add 10.2.0.1/32 dev lo")
    made.xfrm = made.logs / "xfrm"
    made.preload = preload
    made.office = gateway_of(made, "packet", more='"wan > self" = "accept"', daemon=f'xfrm = "{made.xfrm}"')
    made.near = ike.Daemon(made.gateway, made.logs, ike.Preload(preload, made.xfrm))
    made.far = ike.Daemon(made.provider, made.logs)
    try:
        made.office.start()
        yield made
        print(made.office.evidence())
        for daemon in [made.near, made.far]:
            print(f"-- charon of {daemon.host}\n{daemon.evidence()}")
    finally:
        made.near.stop()
        made.far.stop()
        made.office.stop()
        made.close()
        shutil.rmtree(made.logs, ignore_errors=True)


@pytest.fixture
def empty(edge):
    """Nothing is left of the test before."""
    xfrm(edge, "state flush")
    xfrm(edge, "policy flush")
    return edge


def preloaded(edge, *words):
    return ["env", f"LD_PRELOAD={edge.preload}", f"WIRERATE_XFRM={edge.xfrm}", *words]


def xfrm(edge, line, check=True):
    """`ip xfrm ...` on the gateway, by the preload library."""
    return edge.gateway.run(*preloaded(edge, "ip", "xfrm", *line.split()), check=check, timeout=10)


def listener(edge):
    """`ip xfrm monitor`, and what it has said so far."""
    monitor = edge.gateway.start(*preloaded(edge, "ip", "xfrm", "monitor"), log="monitor")
    start = monitor.log.stat().st_size

    def told():
        return monitor.log.read_bytes()[start:].decode(errors="replace")

    # It hears what comes after it has asked.
    wait.until(lambda: not xfrm(edge, "policy flush").returncode and "Flush" in told(), "the monitor hears")
    return monitor, told


def spis(edge):
    """SPIs that wirerate has keys of."""
    blocks = re.split(r"(?m)^src ", xfrm(edge, "state list").stdout)
    keyed = [block for block in blocks if "aead" in block or "enc " in block]
    return {int(re.search(r"spi 0x([0-9a-f]+)", block)[1], 16) for block in keyed}


def policies(edge):
    return sorted(re.findall(r"(?m)^\tdir (\w+)", xfrm(edge, "policy list").stdout))


def test_ip_xfrm_state(empty):
    edge = empty
    monitor, told = listener(edge)
    xfrm(edge, f"state add {STATE} 0x1000 {AEAD} replay-window 64")
    listed = xfrm(edge, "state list").stdout
    assert f"src {NEAR} dst {PROVIDER}" in listed and "proto esp spi 0x00001000 reqid 7 mode tunnel" in listed, listed
    assert "aead rfc4106(gcm(aes)) 0x" + 40 * "0" + " 128" in listed, listed
    one = xfrm(edge, f"state get {STATE} 0x1000").stdout
    assert KEY in one, one
    again = xfrm(edge, f"state add {STATE} 0x1000 {AEAD}", check=False)
    assert again.returncode == 2 and "an SA has this destination and SPI" in again.stdout, again.stdout
    odd = xfrm(edge, f"state add {STATE} 0x1001 mode tunnel enc cbc(aes) {KEY[:34]} auth hmac(sha256) {KEY}", check=False)
    assert odd.returncode == 2 and "no suite has hmac(sha256) with a key of 160 bits" in odd.stdout, odd.stdout
    assert "SAD count 1" in xfrm(edge, "state count").stdout
    xfrm(edge, f"state delete {STATE} 0x1000")
    assert spis(edge) == set()
    gone = xfrm(edge, f"state delete {STATE} 0x1000", check=False)
    assert gone.returncode == 2 and "no SA has this destination and SPI" in gone.stdout, gone.stdout
    allocated = xfrm(edge, f"state allocspi {STATE[:-4]} mode tunnel min 0x100 max 0x1ff").stdout
    assert re.search(r"spi 0x000001[0-9a-f]{2}\b", allocated), allocated
    wait.until(lambda: "Deleted src" in told() and "spi 0x00001000" in told(), "the monitor hears of both")
    assert KEY not in told() and KEY[2:] not in edge.office.log(), "a key is in a log"
    monitor.kill()
    monitor.wait()


def test_lifetimes(empty):
    edge = empty
    monitor, told = listener(edge)
    xfrm(edge, f"state add {STATE} 0x1000 {AEAD} limit time-soft 1 limit time-hard 3")
    assert spis(edge) == {0x1000}
    wait.until(lambda: "\thard 0" in told(), "the soft lifetime is told of")
    assert spis(edge) == {0x1000}
    wait.until(lambda: "\thard 1" in told(), "the hard lifetime is told of")
    assert spis(edge) == set()
    monitor.kill()
    monitor.wait()


def test_ip_xfrm_policy(empty):
    edge = empty
    template = f"tmpl src {NEAR} dst {PROVIDER} proto esp reqid 7 mode tunnel"
    xfrm(edge, f"policy add {POLICY} priority 100 {template}")
    listed = xfrm(edge, "policy list").stdout
    assert "src 10.1.0.0/16 dst 10.2.0.0/16" in listed and "dir out priority 100" in listed, listed
    assert f"tmpl src {NEAR} dst {PROVIDER}" in listed and "proto esp reqid 7 mode tunnel" in listed, listed
    assert xfrm(edge, f"policy add {POLICY} {template}", check=False).returncode == 2
    xfrm(edge, f"policy update {POLICY} priority 50 {template}")
    assert "priority 50" in xfrm(edge, f"policy get {POLICY}").stdout
    assert "Out 1" in re.sub(r"[ \t:]+", " ", xfrm(edge, "policy count").stdout).replace("OUT", "Out")
    xfrm(edge, f"policy delete {POLICY}")
    assert policies(edge) == []


def test_charon(empty):
    """IKEv2 up, CHILD_SA rekeyed and deleted, and after a restart of wirerate, the daemon and the peer up again."""
    edge = empty
    ends = {"local_net": "10.1.0.0/16", "remote_net": "10.2.0.0/16", "esp": "aes128gcm16-x25519"}
    edge.near.start(local=NEAR, remote=PROVIDER, **ends)
    other = {"local_net": "10.2.0.0/16", "remote_net": "10.1.0.0/16", "esp": "aes128gcm16-x25519"}
    edge.far.start(local=PROVIDER, remote=NEAR, **other)

    def settled(but=()):
        """The pair that charon has is the one that wirerate has, and another than before."""
        pair = edge.near.pair()
        return pair if pair and set(pair) == spis(edge) and not set(pair) & set(but) else None

    edge.near.ask("--initiate", "--child", "net")
    first = wait.until(settled, "wirerate has the SAs of charon")
    assert set(edge.far.pair()) == set(first), "the peer has the same"
    listed = xfrm(edge, "state list").stdout
    assert listed.count("encap type espinudp sport 4500 dport 4500") == 2, listed
    assert policies(edge) == ["fwd", "in", "out"]

    edge.near.ask("--rekey", "--child", "net")
    second = wait.until(lambda: settled(first), "the SAs are those of the rekeying, the old ones are gone")
    assert policies(edge) == ["fwd", "in", "out"]

    # wirerate has forgotten all: policies come again, and charon hears that the SAs are to be rekeyed.
    edge.office.kill()
    edge.office.start()
    third = wait.until(lambda: settled(second), "after a restart of wirerate there are new SAs", deadline=20)
    assert policies(edge) == ["fwd", "in", "out"]

    edge.near.ask("--terminate", "--child", "net")
    wait.until(lambda: spis(edge) == set() and policies(edge) == [], "nothing is left of what was deleted")

    # A daemon that dies leaves its SAs, as with Linux; its successor installs others.
    edge.near.ask("--initiate", "--child", "net")
    fourth = wait.until(lambda: settled(third), "it is up again")
    edge.near.kill()
    edge.near.start(local=NEAR, remote=PROVIDER, **ends)
    assert spis(edge) == set(fourth)
    edge.near.ask("--initiate", "--child", "net")
    fifth = wait.until(lambda: (edge.near.pair() or (0,))[0] in spis(edge) and edge.near.pair(), "it is up again")
    assert not set(fifth) & set(fourth)

    # A peer that restarts: what it does not know any more is replaced as well.
    edge.far.kill()
    edge.far.start(local=PROVIDER, remote=NEAR, **other)
    edge.far.ask("--initiate", "--child", "net")
    wait.until(lambda: set(edge.far.pair() or (0,)) <= spis(edge), "the peer's new SAs are here")

    # wirerate away for long: charon goes on, and finds it again.
    edge.office.kill()
    assert edge.near.ask("--list-sas", check=False).returncode == 0
    edge.office.start()
    wait.until(lambda: set(edge.near.pair() or (0,)) <= spis(edge), "there are SAs again", deadline=20)
