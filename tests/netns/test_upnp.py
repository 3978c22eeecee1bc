"""Port mappings that hosts ask for by UPnP: by upnpc, and by hand."""

import json
import re
import shutil
import time

import igd
import pcp
import pytest
import wait
from test_port_mapping import counts, mappings, policy, reach, unmap
from topology import CLIENT, GATEWAY, GUEST_GATEWAY, OUTSIDE, REMOTE, SERVER

pytestmark = pytest.mark.without("nftables", why="who asks Linux needs a daemon of its own")

MAPPING = """
[nat.port-mapping]
lifetime = "1h"
per-host = 4
upnp = true
"""

WAN_RULE = """
[[rule]]
name = "wan-upnp"
from = ["wan", "guest"]
to = "self"
protocol = ["udp", "tcp"]
dport = 1900
action = "accept"
"""


def apply(net, mapping=MAPPING, **options):
    policy(net, mapping, **options)
    net.office.ask("apply", net.office.policy)


@pytest.fixture(autouse=True)
def fresh(net):
    apply(net)
    wait.until(lambda: igd.get(net.client, GATEWAY, "/1/device.xml"), "it serves")
    yield
    for one in mappings(net):
        unmap(net, one)
    net.office.apply()


def upnpc(host, *words, check=True):
    if not shutil.which("upnpc"):
        pytest.skip("upnpc is not installed (./setup test)")
    # -i: the outside address is one of documentation (RFC 5737), with which no gateway is connected.
    return host.run("upnpc", "-i", "-m", "eth0", *words, check=check).stdout


def url(version):
    return f"http://{GATEWAY}:1900/{version}/device.xml"


def test_upnpc_finds_the_gateway_and_maps_a_port_that_curl_reaches_from_outside(net):
    said = upnpc(net.client, "-s")
    assert url(1) in said and "st: urn:schemas-upnp-org:device:InternetGatewayDevice:1" in said, said
    assert f"ExternalIPAddress = {OUTSIDE}" in said and "Status : Connected" in said, said
    assert "Connection Type : IP_Routed" in said, said
    net.client.start("/usr/bin/python3", "-m", "http.server", "9200", log="http")
    wait.until(lambda: net.client.listens(9200), "it serves")
    curl = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "2", f"http://{OUTSIDE}:18200/"]
    assert net.remote.run(*curl, check=False).stdout.strip() == "000"
    said = upnpc(net.client, "-e", "a game", "-a", CLIENT, "9200", "18200", "TCP", "600")
    assert f"external {OUTSIDE}:18200 TCP is redirected to internal {CLIENT}:9200 (duration=600)" in said, said
    assert net.remote.run(*curl).stdout.strip() == "200"
    (one,) = mappings(net)
    assert (one["by"], one["inside"], one["inside_port"], one["outside_port"]) == ("upnp", CLIENT, 9200, 18200)
    assert one["description"] == "a game" and 590 < one["expires_seconds"] <= 600
    assert "upnp" in net.office.ask("map").stdout
    said = upnpc(net.client, "-l")
    assert re.search(rf"0 TCP 18200->{CLIENT}:9200\s+'a game' '' (600|59\d)", said), said
    said = upnpc(net.client, "-d", "18200", "TCP")
    assert "UPNP_DeletePortMapping() returned : 0" in said, said
    assert mappings(net) == []
    assert net.remote.run(*curl, check=False).stdout.strip() == "000"
    wait.until(lambda: f"{OUTSIDE}:18200 to {CLIENT}:9200 removed" in net.office.log(), "the log says")


def test_upnpc_speaks_version_2(net):
    second = ["-u", url(2)]
    upnpc(net.client, *second, "-a", CLIENT, "9201", "18201", "UDP", "600")
    said = upnpc(net.server, *second, "-n", SERVER, "9201", "18201", "UDP", "600")
    granted = re.search(rf"external {re.escape(OUTSIDE)}:(\d+) UDP is redirected to internal {SERVER}:9201", said)
    assert granted and granted[1] != "18201", said
    said = upnpc(net.client, *second, "-L")
    assert re.search(rf"UDP 18201->{CLIENT}:9201", said) and SERVER not in said, said
    upnpc(net.client, *second, "-N", "18000", "19000", "UDP")
    (left,) = mappings(net)
    assert left["inside"] == SERVER and left["outside_port"] == int(granted[1])


def test_searches_are_answered_by_their_version_and_names_stay(net):
    for version in (1, 2):
        for target in [igd.ROOT + str(version), igd.SERVICE + str(version)]:
            (answer,) = igd.search(net.client, target)
            assert answer["first"] == "HTTP/1.1 200 OK" and answer["from"] == GATEWAY
            assert answer["LOCATION"] == url(version) and answer["ST"] == target and answer["USN"].endswith(target)
            assert answer["CACHE-CONTROL"] == "max-age=1800"
    roots = igd.search(net.client, "upnp:rootdevice")
    assert sorted(root["LOCATION"] for root in roots) == [url(1), url(2)]
    everything = igd.search(net.client, "ssdp:all")
    assert len(everything) == 20 and len({one["USN"] for one in everything}) == 20
    # By its own name, and of one who knows where it is.
    name = roots[0]["USN"].split("::")[0]
    assert [one["USN"] for one in igd.search(net.client, name)] == [name]
    assert igd.search(net.client, igd.ROOT + "1", to=GATEWAY)
    for unknown in [igd.ROOT + "3", "urn:schemas-upnp-org:device:MediaServer:1", "uuid:1", ""]:
        assert igd.search(net.client, unknown, wait=0.7) == []
    net.office.ask("apply", net.office.policy)
    assert [one["USN"] for one in igd.search(net.client, name)] == [name]


def test_what_is_no_search_is_not_answered_and_the_next_one_is(net):
    known = igd.ROOT + "1"
    wrong = [
        igd.search_text(known).replace(b"M-SEARCH", b"NOTIFY"),
        igd.search_text(known).replace(b"* HTTP/1.1", b"/ HTTP/1.1"),
        igd.search_text(known, man='"ssdp:other"'),
        igd.search_text(known).replace(b"ST:", b"SX:"),
        b"M-SEARCH * HTTP/1.1\r\n",
        b"\xff" * 1400,
        b"",
    ]
    for data in wrong:
        assert igd.search(net.client, known, data=data, wait=0.3) == [], data
    # With an endless time, and without one.
    assert igd.search(net.client, known, data=igd.search_text(known, mx="99999"))
    assert igd.search(net.client, known, data=igd.search_text(known).replace(b"MX: 1\r\n", b""))
    with igd.inside_socket(net.client, "eth0") as flood:
        for _ in range(3000):
            flood.sendto(igd.search_text("ssdp:all"), (igd.GROUP, igd.PORT))
        # Fifty of a second are answered.
        assert len(igd.heard(flood, 1.0)) <= 150 * 20
    wait.until(lambda: igd.search(net.server, known), "another host finds it")
    assert net.office.alive()


def test_it_announces_itself_inside_and_takes_leave(net):
    with igd.member(net.client, CLIENT) as inside, net.router.sniff("wan") as outside:
        net.office.apply()
        assert {one["NTS"] for one in igd.heard(inside, 1.0)} == {"ssdp:byebye"}
        apply(net)
        said = igd.heard(inside, 2.0)
        assert {one["NTS"] for one in said} == {"ssdp:alive"} and {one["from"] for one in said} == {GATEWAY}
        assert len({one["USN"] for one in said}) == 20 and len(said) == 40
        assert {one["LOCATION"] for one in said} == {url(1), url(2)}
        outside.setblocking(False)
        try:
            while True:
                assert b"NOTIFY" not in outside.recv(4000)
        except BlockingIOError:
            pass


def test_descriptions_lead_to_all_that_there_is(net):
    for version in (1, 2):
        described = igd.get(net.client, GATEWAY, f"/{version}/device.xml")
        assert described.status == 200 and "text/xml" in described.head
        for name in ["InternetGatewayDevice", "WANDevice", "WANConnectionDevice"]:
            assert f"<deviceType>urn:schemas-upnp-org:device:{name}:{version}</deviceType>" in described.body
        for path in re.findall("<SCPDURL>(.*?)</SCPDURL>", described.body):
            service = igd.get(net.client, GATEWAY, path)
            assert service.status == 200 and "<actionList>" in service.body
        assert ("AddAnyPortMapping" in igd.get(net.client, GATEWAY, f"/{version}/ip.xml").body) == (version == 2)
    for path in ["/", "/device.xml", "/3/device.xml", "/1/", "/1/../1/device.xml", "/1/device.xml/"]:
        assert igd.get(net.client, GATEWAY, path).status == 404, path


def test_a_host_maps_to_itself_alone(net):
    assert igd.add(net.client, GATEWAY, SERVER, 9300, 18300).error == 606
    assert igd.add(net.client, GATEWAY, GATEWAY, 9300, 18300).error == 606
    assert igd.add(net.client, GATEWAY, "", 9300, 18300).error == 606
    assert mappings(net) == []
    assert igd.add(net.server, GATEWAY, SERVER, 9300, 18300).status == 200
    # Nobody else sees it, takes it, or removes it.
    assert igd.add(net.client, GATEWAY, CLIENT, 9300, 18300).error == 718
    assert igd.delete(net.client, GATEWAY, 18300).error == 714
    assert igd.ask(net.client, GATEWAY, "GetGenericPortMappingEntry", NewPortMappingIndex=0).error == 713
    named = {"NewRemoteHost": "", "NewExternalPort": 18300, "NewProtocol": "TCP"}
    assert igd.ask(net.client, GATEWAY, "GetSpecificPortMappingEntry", **named).error == 714
    ranged = {"NewStartPort": 1, "NewEndPort": 65535, "NewProtocol": "TCP", "NewManage": 1}
    assert igd.ask(net.client, GATEWAY, "DeletePortMappingRange", 2, **ranged).error == 730
    assert igd.ask(net.client, GATEWAY, "GetListOfPortMappings", 2, NewNumberOfPorts=0, **ranged).error == 730
    assert reach(net, 18300, 9300)
    found = igd.ask(net.server, GATEWAY, "GetSpecificPortMappingEntry", **named)
    assert (found.value("NewInternalClient"), found.value("NewInternalPort")) == (SERVER, "9300")
    assert found.value("NewPortMappingDescription") == "by hand" and 590 < int(found.value("NewLeaseDuration")) <= 600


def test_a_later_request_of_the_host_replaces_an_earlier_one(net):
    # The same again, as programs renew it; then another inside port; then another outside port.
    for inside, outside, lease in [(9310, 18310, 60), (9310, 18310, 600), (9311, 18310, 600), (9311, 18311, 600)]:
        assert igd.add(net.client, GATEWAY, CLIENT, inside, outside, lease=lease).status == 200
        (one,) = mappings(net)
        assert (one["inside_port"], one["outside_port"]) == (inside, outside)
        assert lease - 10 < one["expires_seconds"] <= lease
    # Where it cannot be had, what was there stays.
    assert igd.add(net.server, GATEWAY, SERVER, 9312, 18312).status == 200
    assert igd.add(net.client, GATEWAY, CLIENT, 9311, 18312).error == 718
    assert reach(net, 18311, 9311, net.client)


def test_what_cannot_be_mapped_is_refused_by_its_code(net):
    add = lambda **more: igd.add(net.client, GATEWAY, CLIENT, 9320, 18320, **more)
    for more, error in [
        ({"NewExternalPort": 0}, 716),
        ({"NewExternalPort": 443}, 718),
        ({"NewExternalPort": 80}, 718),
        ({"NewExternalPort": 65536}, 601),
        ({"NewExternalPort": -1}, 402),
        ({"NewExternalPort": ""}, 402),
        ({"NewInternalPort": 0}, 402),
        ({"NewRemoteHost": REMOTE}, 726),
        ({"NewProtocol": "SCTP"}, 402),
        ({"NewEnabled": 0}, 501),
        ({"NewEnabled": "perhaps"}, 402),
        ({"NewLeaseDuration": "forever"}, 402),
    ]:
        assert add(**more).error == error, more
    assert add(version=2, NewInternalPort=0).error == 732
    for action in ["Nonsense", "AddAnyPortMapping", "X_GetICSStatistics"]:
        assert igd.ask(net.client, GATEWAY, action).error == 401, action
    assert igd.ask(net.client, GATEWAY, "AddPortMapping", NewExternalPort=1).error == 402
    assert igd.ask(net.client, GATEWAY, "ForceTermination").error == 606
    assert mappings(net) == [] and counts(net)["refused"] >= 2


def test_numbers_of_a_host_are_bounded(net):
    for port in range(4):
        assert igd.add(net.client, GATEWAY, CLIENT, 9330 + port, 18330 + port).status == 200
    assert igd.add(net.client, GATEWAY, CLIENT, 9334, 18334).error == 501
    assert igd.add(net.client, GATEWAY, CLIENT, 9334, 18334, version=2).error == 728
    assert igd.add(net.server, GATEWAY, SERVER, 9334, 18334).status == 200


def test_a_mapping_without_an_end_lasts_as_long_as_the_policy_says(net):
    assert igd.add(net.client, GATEWAY, CLIENT, 9340, 18340, lease=0).status == 200
    assert igd.add(net.client, GATEWAY, CLIENT, 9341, 18341, lease=4294967295).status == 200
    assert all(604_790 < one["expires_seconds"] <= 604_800 for one in mappings(net))
    apply(net, MAPPING + 'upnp-lifetime = "2h"\n')
    assert igd.add(net.client, GATEWAY, CLIENT, 9340, 18340, lease=0).status == 200
    assert any(7_190 < one["expires_seconds"] <= 7_200 for one in mappings(net))
    assert igd.add(net.client, GATEWAY, CLIENT, 9342, 18342, lease=1).status == 200
    wait.until(lambda: not reach(net, 18342, 9342, net.client), "it is over")


def test_mappings_of_other_protocols_are_shown_and_left_alone(net):
    response = pcp.ask(net.client, GATEWAY, pcp.map_request(CLIENT, pcp.TCP, 9350, 18350))
    assert response.port == 18350
    net.office.ask("map", "add", "udp", f"{CLIENT}:9351", "--port", "18351")
    first, second = (
        igd.ask(net.client, GATEWAY, "GetGenericPortMappingEntry", NewPortMappingIndex=index) for index in range(2)
    )
    assert [one.value("NewExternalPort") for one in (first, second)] == ["18350", "18351"]
    assert second.value("NewLeaseDuration") == "0" and second.value("NewProtocol") == "UDP"
    assert igd.delete(net.client, GATEWAY, 18350).error == 606
    assert igd.add(net.client, GATEWAY, CLIENT, 9350, 18350).error == 718
    assert igd.add(net.client, GATEWAY, CLIENT, 9350, 18350, version=2).error == 729
    assert len(mappings(net)) == 2


def test_from_outside_and_of_other_zones_there_is_no_answer_even_where_a_rule_lets_it_in(net):
    apply(net, rules=WAN_RULE)
    net.router.run("ip", "route", "replace", f"{GATEWAY}/32", "via", OUTSIDE)
    try:
        for to in (igd.GROUP, OUTSIDE, GATEWAY):
            assert igd.search(net.router, "ssdp:all", "wan", to=to) == [], to
        for to in (OUTSIDE, GATEWAY):
            assert igd.get(net.router, to, "/1/device.xml") is None
        for to in (igd.GROUP, GUEST_GATEWAY, GATEWAY):
            assert igd.search(net.guest, "ssdp:all", to=to) == [], to
        for to in (GUEST_GATEWAY, GATEWAY):
            assert igd.get(net.guest, to, "/1/device.xml") is None
    finally:
        net.router.run("ip", "route", "del", f"{GATEWAY}/32")
    assert mappings(net) == []


def test_browsers_other_names_and_subscriptions_are_refused(net):
    body = igd.envelope("GetExternalIPAddress")
    ask = lambda **more: igd.post(net.client, GATEWAY, body, "GetExternalIPAddress", **more).status
    assert ask() == 200
    assert ask(headers="Origin: http://example.org\r\n") == 403
    assert ask(headers="Sec-Fetch-Site: cross-site\r\n") == 403
    assert ask(named="evil.example.org") == 403
    assert ask(named="192.168.1.2") == 403
    assert igd.get(net.client, GATEWAY, "/1/device.xml", "Origin: null\r\n").status == 403
    head = f"POST /1/ip HTTP/1.1\r\nHost: {GATEWAY}:1900\r\nContent-Length: {len(body)}\r\n"
    for more, status in [
        ("Content-Type: text/plain\r\nSOAPAction: x\r\n", 415),
        ("Content-Type: application/x-www-form-urlencoded\r\n", 415),
        ("Content-Type: text/xml\r\n", 400),
        ("Content-Type: text/xml\r\nSOAPAction: x\r\n", 400),
    ]:
        assert igd.exchange(net.client, GATEWAY, (head + more + "\r\n" + body).encode()).status == status, more
    # Events would go wherever somebody says (CVE-2020-12695).
    with net.server.listen(9360) as victim:
        victim.settimeout(0.5)
        request = (
            f"SUBSCRIBE /1/ip HTTP/1.1\r\nHost: {GATEWAY}:1900\r\nCALLBACK: <http://{SERVER}:9360/>\r\nNT: upnp:event\r\n\r\n"
        )
        assert igd.exchange(net.client, GATEWAY, request.encode()).status == 501
        with pytest.raises(TimeoutError):
            victim.accept()
    assert "<eventSubURL></eventSubURL>" in igd.get(net.client, GATEWAY, "/1/device.xml").body


def test_what_is_wrong_large_or_slow_harms_nobody(net):
    body = igd.envelope("GetExternalIPAddress")
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    for text in [
        "",
        "<",
        "\0" * 100,
        bomb + body.split("?>")[1],
        body.replace(igd.ENVELOPE, "http://example.org/"),
        body.replace(igd.SERVICE, "urn:other:"),
        body.replace("s:Body", "s:Head"),
        "<a>" * 4000,
        body.replace("<u:", "<x/>" * 300 + "<u:", 1),
    ]:
        assert igd.post(net.client, GATEWAY, text, "GetExternalIPAddress").status == 400, text[:80]
    # Ten megabytes: by their length, and in pieces.
    large = igd.post(net.client, GATEWAY, " " * (10 << 20), "GetExternalIPAddress")
    assert large is None or large.status == 413
    head = (
        f"POST /1/ip HTTP/1.1\r\nHost: {GATEWAY}:1900\r\nContent-Type: text/xml\r\n"
        f'SOAPAction: "{igd.SERVICE}1#GetExternalIPAddress"\r\nTransfer-Encoding: chunked\r\n\r\n'
    )
    pieces = lambda data: b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in data) + b"0\r\n\r\n"
    text = body.encode()
    whole = head.encode() + pieces([text[at : at + 7] for at in range(0, len(text), 7)])
    assert igd.exchange(net.client, GATEWAY, whole).value("NewExternalIPAddress") == OUTSIDE
    large = igd.exchange(net.client, GATEWAY, head.encode() + pieces([b" " * 1000] * 10_000))
    assert large is None or large.status == 413
    # A host has eight connections; others are served meanwhile, and it itself when they end.
    slow = [net.client.connect(GATEWAY, igd.PORT) for _ in range(8)]
    try:
        for connection in slow:
            connection.sendall(b"POST /1/ip HTTP/1.1\r\n")
        assert igd.get(net.client, GATEWAY, "/1/device.xml") is None
        assert igd.get(net.server, GATEWAY, "/1/device.xml").status == 200
        begun = time.monotonic()
        wait.until(lambda: igd.get(net.client, GATEWAY, "/1/device.xml"), "slow ones are closed", deadline=15)
        assert time.monotonic() - begun < 12
    finally:
        for connection in slow:
            connection.close()
    assert net.office.alive()


def test_a_policy_without_it_ends_its_mappings_and_those_of_pcp_stay(net):
    assert igd.add(net.client, GATEWAY, CLIENT, 9370, 18370).status == 200
    assert pcp.ask(net.client, GATEWAY, pcp.map_request(CLIENT, pcp.TCP, 9371, 18371)).port == 18371
    apply(net, MAPPING.replace("upnp = true\n", ""))
    wait.until(lambda: igd.get(net.client, GATEWAY, "/1/device.xml") is None, "nobody serves")
    assert igd.search(net.client, "ssdp:all") == []
    assert [one["by"] for one in mappings(net)] == ["pcp"]
    assert not reach(net, 18370, 9370, net.client)


def test_mappings_outlive_a_restart_and_counts_say_by_whom(net):
    assert igd.add(net.client, GATEWAY, CLIENT, 9380, 18380).status == 200
    net.office.stop()
    policy(net, MAPPING)
    write, net.office.write = net.office.write, lambda *_: None
    try:
        net.office.start()
    finally:
        net.office.write = write
    net.client.reaches(GATEWAY)
    assert reach(net, 18380, 9380, net.client)
    wait.until(lambda: igd.add(net.client, GATEWAY, CLIENT, 9380, 18380, lease=60), "it serves")
    (one,) = mappings(net)
    assert one["by"] == "upnp" and one["expires_seconds"] <= 60
    assert json.loads(net.office.ask("map", "--json").stdout)["counts"]["by"]["upnp"] == 1


@pytest.mark.longest(180)
def test_with_two_workers_hosts_find_the_gateway_and_get_ports_of_their_own(net):
    net.office.stop()
    policy(net, MAPPING, variants=["two-workers"])
    write, net.office.write = net.office.write, lambda *_: None
    try:
        net.office.start()
    finally:
        net.office.write = write
    try:
        net.client.reaches(GATEWAY)
        for host, address in [(net.client, CLIENT), (net.server, SERVER)]:
            wait.until(lambda host=host: igd.search(host, igd.ROOT + "2", wait=0.7), "it is found")
            granted = igd.add(host, GATEWAY, address, 9390, 18390, action="AddAnyPortMapping", version=2)
            port = int(granted.value("NewReservedPort"))
            assert reach(net, port, 9390, host)
            assert igd.delete(host, GATEWAY, port).status == 200
            assert not reach(net, port, 9390, host)
    finally:
        net.office.stop()
        net.office.start()
        net.client.reaches(GATEWAY)
