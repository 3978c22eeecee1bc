"""A PPPoE session between two live gateways: a client behind whom an office is, and an access concentrator.

    client 10.1.0.10 ── lan A wan ══ wan B lan ── server 10.2.0.10
    2001:db8:1::10       dsl 192.0.2.2  192.0.2.1 sub    2001:db8:2::10
"""

import contextlib
import json

import pytest
import wait
from sites import Sites, gateway_with
from transfer import transfer

POLICY = """
[gateway]
driver = "{driver}"
workers = {workers}

[interface.lan]
zone = "lan"
addresses = ["10.{own}.0.1/16", "2001:db8:{own}::1/64"]

[interface.wan]
zone = "line"

[interface.ppp]
zone = "wan"
parent = "{parent}"
addresses = ["192.0.2.{address}/32", "2001:db8:ff::{address}/128"]
mss = "mtu"

[interface.ppp.ppp]
{ppp}
user = "office@provider"
password-file = "keys/password"

[default]
"lan > wan" = "accept"
"lan > self" = "accept"
"wan > self" = "accept"
{more}
"""

VLAN = """
[interface.wan7]
zone = "line"
parent = "wan"
vlan = 7
"""

CLIENT = """
[[route]]
to = "0.0.0.0/0"
interface = "ppp"

[[route]]
to = "::/0"
interface = "ppp"

[[nat]]
name = "office"
kind = "masquerade"
from = "lan"
to = "wan"
"""

SERVER = """
"wan > lan" = "accept"

[[route]]
to = "192.0.2.2/32"
interface = "ppp"

[[route]]
to = "2001:db8:ff::2/128"
interface = "ppp"

[[route]]
to = "2001:db8:1::/64"
interface = "ppp"
"""

SERVER_ADDRESS, SERVER_ADDRESS6 = "10.2.0.10", "2001:db8:2::10"
OWN, OWN6, PEER = "192.0.2.2", "2001:db8:ff::2", "192.0.2.1"

# Driver, workers, protocol, and the VLAN.
GATEWAYS = [
    ("packet", 1, "chap", ""),
    ("packet", 2, "pap", ""),
    ("xdp", 1, "chap", ""),
    ("packet", 1, "chap", VLAN),
]


def policies(driver, workers, authentication, vlan, passwords=("secret", "secret"), address=2):
    """Both ends' policies."""
    parent = "wan7" if vlan else "wan"
    about = {"driver": driver, "workers": workers, "parent": parent}
    protocol = f'authentication = "{authentication}"'
    client = POLICY.format(own=1, address=address, ppp=protocol, more=CLIENT + vlan, **about)
    server = f'role = "server"\npeer = "{OWN}"\n{protocol}'
    return [client, POLICY.format(own=2, address=1, ppp=server, more=SERVER + vlan, **about)]


@contextlib.contextmanager
def running(*of, works, passwords=("secret", "secret"), **more):
    sites = Sites()
    for end, password in zip(sites.ends, passwords):
        file = end.logs / "keys" / "password"
        file.touch(mode=0o600)
        file.write_text(password + "\n")
    gateways = [gateway_with(end, policy) for end, policy in zip(sites.ends, policies(*of, **more))]
    with sites.run(gateways, works):
        yield sites


def open_both(sites):
    sites.ends[0].client.reaches(SERVER_ADDRESS)
    sites.ends[0].client.reaches(SERVER_ADDRESS6)


def name(param):
    return "-".join(map(str, param[:3])) + "-vlan" * bool(param[3])


@pytest.fixture(scope="module", params=GATEWAYS, ids=name)
def sites(request):
    with running(*request.param, works=open_both) as sites:
        yield sites
        for gateway in sites.running:
            assert "secret" not in gateway.log(), "the log has the password"


def drops(gateway):
    return {drop["reason"]: drop["dropped"] for drop in json.loads(gateway.ask("drops", "--json").stdout)}


def test_the_gateways_reach_one_another(sites):
    one, two = sites.ends
    assert one.gateway.ping(PEER)
    assert two.gateway.ping(OWN) and two.gateway.ping(OWN6)


def test_much_data_through_nat(sites):
    one, two = sites.ends
    for to in (SERVER_ADDRESS, SERVER_ADDRESS6):
        transfer(one.client, two.client, to, 5001, upload=2 << 20, download=2 << 20)


def test_packets_of_the_sessions_size_pass_and_larger_ones_do_not(sites):
    one, _ = sites.ends
    assert one.client.ping(SERVER_ADDRESS, "-M", "do", "-s", "1464")
    assert not one.client.ping(SERVER_ADDRESS, "-M", "do", "-s", "1465")
    one.client.forget_paths()


def test_log_and_status_tell_of_the_session(sites):
    told = []
    for gateway in sites.running:
        assert "PPP session open" in gateway.log()
        (session,) = json.loads(gateway.ask("status", "--json").stdout)["sessions"]
        assert (session["interface"], session["phase"]) == ("ppp", "network")
        assert session["ipv4"] and session["ipv6"] and session["session"] > 0
        told.append(session["session"])
    assert told[0] == told[1]


def test_a_client_that_begins_anew_has_its_session_at_once(sites):
    """The server's end is still open then."""
    for which in (0, 1):
        gateway = sites.running[which]
        if which == 1:
            # Without its server a client finds out by its echoes, a minute later: it begins anew, too.
            sites.running[0].stop()
        gateway.stop()
        gateway.start()
        if which == 1:
            sites.running[0].start()
        open_both(sites)


def test_a_wrong_password_opens_nothing():
    def works(sites):
        told = "authentication of the PPP session failed"
        wait.until(lambda: told in sites.running[0].log(), "the log tells of it")

    with running("packet", 1, "chap", "", works=works, passwords=("secret", "Secret")) as sites:
        assert not sites.ends[0].client.ping(SERVER_ADDRESS)
        assert drops(sites.running[0])["ppp-not-open"] > 0
        assert drops(sites.running[1])["ppp-authentication"] > 0


def test_another_address_than_the_providers_is_told():
    def works(sites):
        wait.until(lambda: f'write "{OWN}/32" into' in sites.running[0].log(), "the log tells of it")

    with running("packet", 1, "chap", "", works=works, address=3) as sites:
        assert not sites.ends[0].client.ping(SERVER_ADDRESS)
