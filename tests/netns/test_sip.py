"""Calls through the gateway: baresip behind the masquerade and behind a forward, a registrar (kamailio) and another baresip outside, and sipp."""

import shutil

import pytest
import wait
from phone import Phone, registrar, talk
from topology import CLIENT, GUEST, OUTSIDE, REMOTE, STRANGER

HELPED = ["sip", "sip-helped"]

MISSING = [tool for tool in ("baresip", "kamailio", "sipp") if not shutil.which(tool)]

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {' '.join(MISSING)} (./setup test)")


@pytest.fixture(scope="module")
def served(net, tmp_path_factory):
    """The registrar."""
    net.office.apply(*HELPED)
    for host in (net.remote, net.client, net.guest, net.server, net.stranger):
        host.ip("link set lo up")
    folder = tmp_path_factory.mktemp("sip")
    process = registrar(net.remote, REMOTE, folder)
    yield folder
    process.terminate()
    process.wait()
    net.office.apply()


@pytest.fixture
def phones(net, served):
    """Makes phones, and takes them away."""
    net.client.reaches(REMOTE)
    net.gateway.reaches(REMOTE)
    made = []

    def make(*arguments, **options):
        made.append(Phone(*arguments, served, **options))
        return made[-1]

    yield make
    for phone in made:
        phone.close()


@pytest.fixture
def pair(net, phones):
    """A phone inside and one outside, both registered."""
    inside = phones(net.client, "inside", CLIENT, registrar=REMOTE)
    outside = phones(net.remote, "outside", REMOTE, registrar=REMOTE, port=5070, rtp=6000)
    for phone in (inside, outside):
        wait.until(phone.is_registered, f"{phone.name} is registered", deadline=5)
    return inside, outside


def is_heard(counts, least=60):
    """Both have sent and received audio for most of the time (50 packets a second)."""
    return counts is not None and all(count >= least for both in counts for count in both)


def test_a_call_out(pair):
    inside, outside = pair
    assert is_heard(talk(inside, outside, f"sip:outside@{REMOTE}"))


def test_a_call_in(pair):
    """The registrar finds the phone by the outside address and port that its contact has become."""
    inside, outside = pair
    assert is_heard(talk(outside, inside, f"sip:inside@{REMOTE}"))


def test_calls_one_after_another(pair):
    inside, outside = pair
    for _ in range(3):
        assert is_heard(talk(inside, outside, f"sip:outside@{REMOTE}", seconds=1), least=25)
        assert is_heard(talk(outside, inside, f"sip:inside@{REMOTE}", seconds=1), least=25)


def test_a_guest_whose_rules_name_port_5060_alone(net, phones):
    net.guest.reaches(REMOTE)
    guest = phones(net.guest, "guest", GUEST, registrar=REMOTE)
    outside = phones(net.remote, "outside", REMOTE, registrar=REMOTE, port=5070, rtp=6000)
    for phone in (guest, outside):
        wait.until(phone.is_registered, f"{phone.name} is registered", deadline=5)
    assert is_heard(talk(guest, outside, f"sip:outside@{REMOTE}"))
    assert is_heard(talk(outside, guest, f"sip:guest@{REMOTE}"))


def test_an_exchange_behind_a_forward(net, phones):
    exchange = phones(net.server, "exchange", "192.168.1.20")
    stranger = phones(net.stranger, "stranger", STRANGER, rtp=6000)
    assert is_heard(talk(stranger, exchange, f"sip:exchange@{OUTSIDE}"))


def test_without_a_helper_nobody_is_heard(net, phones):
    net.office.apply("sip")
    try:
        # Nobody has registered by that name, nor from that port.
        bare = phones(net.client, "bare", CLIENT, registrar=REMOTE, port=5066)
        outside = phones(net.remote, "outside", REMOTE, registrar=REMOTE, port=5070, rtp=6000)
        wait.until(bare.is_registered, "it is registered", deadline=5)
        assert not is_heard(talk(outside, bare, f"sip:bare@{REMOTE}"))
    finally:
        net.office.apply(*HELPED)


def test_sipp(net, served):
    """Many calls at once by one control connection, each with its own messages; those of other lengths than they had."""
    net.client.reaches(REMOTE)
    uas = net.remote.start("sipp", "-sn", "uas", "-i", REMOTE, "-p", 5080, "-nostdin", log="uas")
    try:
        words = ["sipp", "-sn", "uac", f"{REMOTE}:5080", "-i", CLIENT, "-p", 5068, "-m", 100, "-r", 50, "-d", 300, "-nostdin"]
        done = net.client.run(*words, check=False, timeout=40, cwd=served)
        assert done.returncode == 0, done.stdout[-2000:]
    finally:
        uas.kill()
        uas.wait()


@pytest.mark.without("nftables", why="through Linux's helper neither hears the other")
def test_two_phones_of_the_office(net, phones):
    """The registrar puts one through to the other; their voice does not leave the office."""
    client = phones(net.client, "client", CLIENT, registrar=REMOTE, port=5062)
    server = phones(net.server, "server", "192.168.1.20", registrar=REMOTE, port=5064, rtp=7000)
    for phone in (client, server):
        wait.until(phone.is_registered, f"{phone.name} is registered", deadline=5)
    assert is_heard(talk(client, server, f"sip:server@{REMOTE}"))
    assert is_heard(talk(server, client, f"sip:client@{REMOTE}"))


@pytest.mark.without("nftables", why="Linux lists its connections otherwise")
def test_flows_say_so(net, pair):
    inside, outside = pair
    outside.calls(f"sip:inside@{REMOTE}")
    wait.until(lambda: "Call established" in inside.said(), "the call is answered")

    def said():
        return net.office.ask("flows", "--rule", "sip-out").stdout

    wait.until(lambda: "helper" in said() and "related" in said(), "flows say helper and related")
    outside.hangs_up()


@pytest.mark.without("nftables", why="Linux has no workers to set")
@pytest.mark.longest(120)
def test_two_workers(net, phones):
    """The registrar's call may come to another worker than the phone's registration has."""
    net.office.stop()
    net.office.start(*HELPED, "two-workers")
    try:
        net.client.reaches(REMOTE)
        outside = phones(net.remote, "outside", REMOTE, registrar=REMOTE, port=5070, rtp=6000)
        wait.until(outside.is_registered, "it is registered", deadline=5)
        for number in range(3):
            name, port = f"worker{number}", 5090 + 2 * number
            phone = phones(net.client, name, CLIENT, registrar=REMOTE, port=port, rtp=4100 + 20 * number)
            wait.until(phone.is_registered, f"{name} is registered", deadline=5)
            assert is_heard(talk(phone, outside, f"sip:outside@{REMOTE}", seconds=1), least=25)
            assert is_heard(talk(outside, phone, f"sip:{name}@{REMOTE}", seconds=1), least=25)
            phone.close()
    finally:
        net.office.stop()
        net.office.start(*HELPED)


@pytest.mark.without("nftables", why="Linux has no process that could be started anew")
def test_a_call_in_after_a_restart(net, pair):
    inside, outside = pair
    net.office.stop()
    net.office.start(*HELPED)
    net.client.reaches(REMOTE)
    assert is_heard(talk(outside, inside, f"sip:inside@{REMOTE}"))
