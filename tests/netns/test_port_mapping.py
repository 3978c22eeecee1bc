"""Port mappings that hosts ask for: by natpmpc, by PCP, by an operator."""

import json
import re
import shutil

import pcp
import pytest
import wait
from topology import CLIENT, GATEWAY, GUEST_GATEWAY, OUTSIDE, REMOTE, SERVER

pytestmark = pytest.mark.without("nftables", why="who asks Linux needs a daemon of its own")

MAPPING = """
[nat.port-mapping]
port = "1024-65535"
lifetime = "1h"
per-host = 4
"""

WAN_RULE = """
[[rule]]
name = "wan-pcp"
from = "wan"
to = "self"
protocol = "udp"
dport = 5351
action = "accept"
"""


def policy(net, mapping=MAPPING, rules="", variants=()):
    """Writes the office's policy with a port mapping at its masquerade."""
    net.office.write(*variants)
    text = net.office.policy.read_text()
    house = 'name = "house"\nkind = "masquerade"\nfrom = ["lan", "guest"]\nto = "wan"\nsource = "@house"\n'
    assert house in text
    text = text.replace(house, house.replace('["lan", "guest"]', '["lan"]') + mapping)
    first = text.index("\n[[rule]]")
    net.office.policy.write_text(text[:first] + rules + text[first:])


def apply(net, *words, **options):
    policy(net, *words, **options)
    net.office.ask("apply", net.office.policy)


@pytest.fixture(autouse=True)
def fresh(net):
    apply(net)
    wait.until(lambda: pcp.exchange(net.client, GATEWAY, b"\0\0", 0.2), "the server answers")
    yield
    for one in mappings(net):
        unmap(net, one)
    net.office.apply()


def mappings(net):
    return json.loads(net.office.ask("map", "--json").stdout)["mappings"]


def counts(net):
    return json.loads(net.office.ask("map", "--json").stdout)["counts"]


def unmap(net, one):
    net.office.ask("map", "remove", one["protocol"], f"{one['inside']}:{one['inside_port']}")


def natpmpc(host, *words, check=True):
    if not shutil.which("natpmpc"):
        pytest.skip("natpmpc is not installed (./setup test)")
    return host.run("natpmpc", "-g", GATEWAY, *words, check=check).stdout


def reach(net, port, inside, host=None):
    """Whether a TCP connection from outside to a port reaches a socket of a host inside."""
    with (host or net.server).listen(inside) as listener:
        listener.settimeout(1)
        try:
            with net.remote.connect(OUTSIDE, port, timeout=0.7) as client:
                there, _ = listener.accept()
                with there:
                    client.sendall(b"hello")
                    return there.recv(10) == b"hello"
        except OSError:
            return False


def test_natpmpc_maps_a_port_that_curl_reaches_from_outside(net):
    net.server.start("/usr/bin/python3", "-m", "http.server", "9000", log="http")
    wait.until(lambda: net.client.run("curl", "-s", f"http://{SERVER}:9000/", check=False).returncode == 0, "it serves")
    curl = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "2", f"http://{OUTSIDE}:18080/"]
    assert net.remote.run(*curl, check=False).stdout.strip() == "000"
    said = natpmpc(net.server, "-a", "18080", "9000", "tcp", "600")
    assert f"Public IP address : {OUTSIDE}" in said, said
    assert re.search(r"Mapped public port 18080 protocol TCP to local port 9000 liftime 600", said), said
    assert net.remote.run(*curl).stdout.strip() == "200"
    (one,) = mappings(net)
    assert (one["by"], one["inside"], one["inside_port"], one["outside_port"]) == ("nat-pmp", SERVER, 9000, 18080)
    assert 590 < one["expires_seconds"] <= 600
    # Deleted, it is closed again, and the log has both.
    natpmpc(net.server, "-a", "0", "9000", "tcp", "0")
    assert mappings(net) == []
    assert net.remote.run(*curl, check=False).stdout.strip() == "000"
    wait.until(
        lambda: f"port mapping of tcp {OUTSIDE}:18080 to {SERVER}:9000 removed" in net.office.log(), "the log says"
    )
    assert f"port mapping of tcp {OUTSIDE}:18080 to {SERVER}:9000 made" in net.office.log()


def test_a_mapping_ends_with_its_time(net):
    natpmpc(net.server, "-a", "18081", "9001", "tcp", "2")
    assert reach(net, 18081, 9001)
    wait.until(lambda: not reach(net, 18081, 9001), "it is closed")
    assert mappings(net) == []
    wait.until(lambda: counts(net)["expired"] >= 1, "it is counted")
    # A port that no connection has any more is free for another host.
    natpmpc(net.server, "-a", "18083", "9005", "tcp", "1")
    request = pcp.map_request(CLIENT, pcp.TCP, 7000, 18083, options=pcp.option(pcp.PREFER_FAILURE))
    assert pcp.ask(net.client, GATEWAY, request).result == pcp.CANNOT_PROVIDE_EXTERNAL
    wait.until(lambda: pcp.ask(net.client, GATEWAY, request).result == pcp.SUCCESS, "the port is free")


def test_what_a_host_sends_from_a_mapped_port_leaves_by_the_outside_port(net):
    response = pcp.ask(net.server, GATEWAY, pcp.map_request(SERVER, pcp.UDP, 9002, 18082))
    assert (response.result, response.address, response.port) == (pcp.SUCCESS, OUTSIDE, 18082)
    assert response.nonce == pcp.NONCE and response.lifetime == 600
    with net.server.udp(port=9002) as inside, net.remote.udp(port=5000) as outside:
        inside.sendto(b"out", (REMOTE, 5000))
        assert outside.recvfrom(10) == (b"out", (OUTSIDE, 18082))
        outside.sendto(b"back", (OUTSIDE, 18082))
        assert inside.recv(10) == b"back"
        # Whoever else sends there reaches the host, too.
        with net.stranger.udp() as stranger:
            stranger.sendto(b"new", (OUTSIDE, 18082))
            assert inside.recv(10) == b"new"


def test_masquerade_never_hands_a_mapped_port_out(net):
    response = pcp.ask(net.server, GATEWAY, pcp.map_request(SERVER, pcp.TCP, 9003, 20123))
    assert response.port == 20123
    with net.remote.listen(5001) as there:
        with net.client.connect(REMOTE, 5001, sport=20123):
            taken, (address, port) = there.accept()
            taken.close()
    assert address == OUTSIDE and port != 20123
    # And what masquerade has handed out is not mapped to another host.
    with net.remote.listen(5002) as there, net.client.connect(REMOTE, 5002, sport=20777):
        taken, (_, port) = there.accept()
        with taken:
            assert port == 20777
            wanted = pcp.map_request(SERVER, pcp.TCP, 9004, 20777, options=pcp.option(pcp.PREFER_FAILURE))
            assert pcp.ask(net.server, GATEWAY, wanted).result == pcp.CANNOT_PROVIDE_EXTERNAL
            other = pcp.ask(net.server, GATEWAY, pcp.map_request(SERVER, pcp.TCP, 9004, 20777))
            assert other.result == pcp.SUCCESS and other.port != 20777
            # The host whose connection has the port gets that one, whatever it suggests.
            own = pcp.ask(net.client, GATEWAY, pcp.map_request(CLIENT, pcp.TCP, 20777, 30000))
            assert (own.result, own.port) == (pcp.SUCCESS, 20777)


def test_ports_of_forwards_and_those_not_to_be_asked_for_are_refused(net):
    only = pcp.option(pcp.PREFER_FAILURE)
    for port in [443, 8080, 1000]:
        refused = pcp.ask(net.client, GATEWAY, pcp.map_request(CLIENT, pcp.TCP, 7001, port, options=only))
        assert refused.result == pcp.CANNOT_PROVIDE_EXTERNAL, port
        suggested = pcp.ask(net.client, GATEWAY, pcp.map_request(CLIENT, pcp.TCP, 7001, port))
        assert suggested.result == pcp.SUCCESS and suggested.port not in (443, 8080, 1000)
    granted = pcp.ask(net.client, GATEWAY, pcp.map_request(CLIENT, pcp.TCP, 7002, 7002, options=only))
    assert (granted.result, granted.port) == (pcp.SUCCESS, 7002)
    assert granted.options == pcp.option(pcp.PREFER_FAILURE)


def test_a_host_has_as_many_as_it_may_and_others_theirs(net):
    for port in range(4):
        assert pcp.ask(net.client, GATEWAY, pcp.map_request(CLIENT, pcp.UDP, 7100 + port)).result == pcp.SUCCESS
    refused = pcp.ask(net.client, GATEWAY, pcp.map_request(CLIENT, pcp.UDP, 7104))
    assert refused.result == pcp.USER_EX_QUOTA and 0 < refused.lifetime <= 1800
    # One of them can be renewed, and another host has its own.
    assert pcp.ask(net.client, GATEWAY, pcp.map_request(CLIENT, pcp.UDP, 7100, lifetime=100)).lifetime == 100
    assert pcp.ask(net.server, GATEWAY, pcp.map_request(SERVER, pcp.UDP, 7104)).result == pcp.SUCCESS
    said = natpmpc(net.client, "-a", "7105", "7105", "udp", "60", check=False)
    assert "Mapped public port" not in said, said


def test_a_table_that_is_full_refuses_and_forgets_nothing(net):
    apply(net, MAPPING + "size = 2\n")
    for port in (7200, 7201):
        assert pcp.ask(net.client, GATEWAY, pcp.map_request(CLIENT, pcp.TCP, port, port)).result == pcp.SUCCESS
    assert pcp.ask(net.server, GATEWAY, pcp.map_request(SERVER, pcp.TCP, 7202, 7202)).result == 8
    assert reach(net, 7200, 7200, net.client) and not reach(net, 7202, 7202)
    assert counts(net)["refused"] >= 1


def test_a_lifetime_is_no_longer_than_the_policy_says(net):
    response = pcp.ask(net.client, GATEWAY, pcp.map_request(CLIENT, pcp.TCP, 7300, lifetime=2**32 - 1))
    assert (response.result, response.lifetime) == (pcp.SUCCESS, 3600)


def test_who_holds_a_mapping_alone_changes_it(net):
    first = pcp.ask(net.client, GATEWAY, pcp.map_request(CLIENT, pcp.TCP, 7400, 7400))
    assert first.result == pcp.SUCCESS
    other = b"another one!"
    for lifetime in (0, 60):
        stolen = pcp.map_request(CLIENT, pcp.TCP, 7400, 7400, lifetime=lifetime, nonce=other)
        assert pcp.ask(net.client, GATEWAY, stolen).result == pcp.NOT_AUTHORIZED
    assert reach(net, 7400, 7400, net.client)
    gone = pcp.ask(net.client, GATEWAY, pcp.map_request(CLIENT, pcp.TCP, 7400, lifetime=0))
    assert (gone.result, gone.lifetime) == (pcp.SUCCESS, 0)
    assert not reach(net, 7400, 7400, net.client)
    # One that is not there is gone already.
    assert pcp.ask(net.client, GATEWAY, pcp.map_request(CLIENT, pcp.TCP, 7400, lifetime=0)).result == pcp.SUCCESS


def test_nobody_asks_for_another_host(net):
    assert pcp.ask(net.client, GATEWAY, pcp.map_request(SERVER, pcp.TCP, 7500)).result == pcp.ADDRESS_MISMATCH
    third = pcp.option(pcp.THIRD_PARTY, pcp.mapped(SERVER))
    request = pcp.map_request(CLIENT, pcp.TCP, 7500, options=third)
    assert pcp.ask(net.client, GATEWAY, request).result == pcp.UNSUPP_OPTION
    # The zone of the guests is none of those that may ask: a rule that lets them ask is of no use to them.
    apply(net, rules=WAN_RULE.replace('"wan"', '"guest"'))
    assert pcp.exchange(net.guest, GUEST_GATEWAY, b"\0\0", 0.5) is None
    assert pcp.exchange(net.guest, GATEWAY, b"\0\0", 0.5) is None
    assert mappings(net) == []


def test_from_outside_there_is_no_answer_even_where_a_rule_lets_it_in(net):
    apply(net, rules=WAN_RULE)
    for to in (OUTSIDE, GATEWAY):
        net.router.run("ip", "route", "replace", f"{GATEWAY}/32", "via", OUTSIDE)
        assert pcp.exchange(net.router, to, b"\0\0", 0.5) is None
        request = pcp.map_request("203.0.113.1", pcp.TCP, 80, 8088)
        assert pcp.exchange(net.router, to, request, 0.5) is None
    net.router.run("ip", "route", "del", f"{GATEWAY}/32")
    assert mappings(net) == []


def test_what_nobody_knows_is_answered_so_and_garbage_harms_nobody(net):
    assert pcp.ask(net.client, GATEWAY, pcp.header(CLIENT, pcp.ANNOUNCE, 0)).result == pcp.SUCCESS
    assert pcp.ask(net.client, GATEWAY, pcp.header(CLIENT, pcp.PEER, 60)).result == pcp.UNSUPP_OPCODE
    assert pcp.ask(net.client, GATEWAY, pcp.header(CLIENT, pcp.MAP, 60)).result == pcp.MALFORMED_REQUEST
    assert pcp.ask(net.client, GATEWAY, pcp.header(CLIENT, 1, 60, version=3)).result == pcp.UNSUPP_VERSION
    for protocol, port in [(0, 0), (pcp.TCP, 0), (47, 80)]:
        assert pcp.ask(net.client, GATEWAY, pcp.map_request(CLIENT, protocol, port)).result == pcp.UNSUPP_PROTOCOL
    assert pcp.exchange(net.client, GATEWAY, b"\0\x09") [:4] == b"\0\x89\0\x05"
    with net.client.udp() as socket:
        for bytes_ in pcp.garbage(2000):
            socket.sendto(bytes_, (GATEWAY, pcp.PORT))
    # More than a host may send in a second went unanswered; then it is served as before.
    wait.until(lambda: pcp.exchange(net.client, GATEWAY, b"\0\0", 0.3), "it answers again")
    assert net.office.alive()


def test_mappings_outlive_a_reload_and_a_restart(net):
    natpmpc(net.server, "-a", "18090", "9090", "tcp", "600")
    net.office.ask("map", "add", "udp", f"{CLIENT}:9091", "--port", "18091", "--description", "kept")
    apply(net, rules=WAN_RULE)
    assert reach(net, 18090, 9090)
    net.office.stop()
    policy(net)
    write, net.office.write = net.office.write, lambda *_: None
    try:
        net.office.start()
    finally:
        net.office.write = write
    net.client.reaches(GATEWAY)
    kept = {one["inside_port"]: one for one in mappings(net)}
    assert kept[9090]["outside_port"] == 18090 and 500 < kept[9090]["expires_seconds"] < 600
    assert (kept[9091]["description"], kept[9091]["expires_seconds"]) == ("kept", None)
    assert reach(net, 18090, 9090)
    # The host that has it renews it, and nobody else gets its port.
    natpmpc(net.server, "-a", "18090", "9090", "tcp", "60")
    only = pcp.option(pcp.PREFER_FAILURE)
    refused = pcp.ask(net.client, GATEWAY, pcp.map_request(CLIENT, pcp.TCP, 18090, 18090, options=only))
    assert refused.result == pcp.CANNOT_PROVIDE_EXTERNAL


def test_a_policy_without_it_ends_mappings_and_answers_nobody(net):
    natpmpc(net.server, "-a", "18100", "9100", "tcp", "600")
    epoch = pcp.ask(net.client, GATEWAY, pcp.header(CLIENT, pcp.ANNOUNCE, 0)).epoch
    net.office.apply()
    assert pcp.exchange(net.client, GATEWAY, b"\0\0", 0.5) is None
    assert not reach(net, 18100, 9100)
    apply(net)
    wait.until(lambda: pcp.exchange(net.client, GATEWAY, b"\0\0", 0.2), "the server answers")
    assert mappings(net) == []
    # Hosts are told to ask again: the epoch has begun anew.
    assert pcp.ask(net.client, GATEWAY, pcp.header(CLIENT, pcp.ANNOUNCE, 0)).epoch <= epoch + 5


def test_an_operator_maps_a_port_and_explain_names_it(net):
    net.office.ask("map", "add", "tcp", f"{SERVER}:9110", "--port", "18110", "--timeout", "2h")
    assert reach(net, 18110, 9110)
    shown = net.office.ask("map").stdout
    assert f"{OUTSIDE}:18110" in shown and f"{SERVER}:9110" in shown and "operator" in shown
    words = f"wan tcp {REMOTE}:50000 > {OUTSIDE}:18110 syn"
    said = net.office.ask("explain", "--live", words).stdout
    assert "the host has asked for outside port 18110: accept" in said, said
    assert net.office.ask("map", "add", "tcp", "198.51.100.7:80", check=False).returncode != 0
    assert net.office.ask("map", "add", "tcp", f"{CLIENT}:9111", "--port", "18110", check=False).returncode != 0
    assert "1 mapping removed" in net.office.ask("map", "remove", "tcp", f"{SERVER}:9110").stdout
    assert not reach(net, 18110, 9110)


def test_a_rule_in_front_holds_for_mapped_ports_too(net):
    natpmpc(net.server, "-a", "18120", "9120", "tcp", "600")
    assert reach(net, 18120, 9120)
    apply(net, rules=f'\n[[rule]]\nname = "ban"\nfrom = "wan"\nsource = "{REMOTE}"\naction = "drop"\n')
    assert not reach(net, 18120, 9120)


@pytest.mark.longest(180)
def test_two_workers_have_the_mappings_of_their_hosts(net):
    net.office.stop()
    policy(net, variants=["two-workers"])
    write, net.office.write = net.office.write, lambda *_: None
    try:
        net.office.start()
    finally:
        net.office.write = write
    try:
        net.client.reaches(GATEWAY)
        for host, address in [(net.client, CLIENT), (net.server, SERVER)]:
            for port in (9130, 9132):
                response = pcp.ask(host, GATEWAY, pcp.map_request(address, pcp.TCP, port))
                assert response.result == pcp.SUCCESS
                assert reach(net, response.port, port, host)
                with net.remote.listen(5003) as there, host.connect(REMOTE, 5003, sport=port):
                    taken, (shown, sport) = there.accept()
                    taken.close()
                assert (shown, sport) == (OUTSIDE, response.port)
        assert len(mappings(net)) == 4
    finally:
        net.office.stop()
        net.office.start()
        net.client.reaches(GATEWAY)
