"""Health checks of several servers: who is down gets no new connection, until it has come back for good. See docs/policy.md."""

import contextlib
import re
import signal

import pytest
import wait
from farm import PORT, Answerer, Farm, alive, becomes, servers
from packet import Caught
from topology import CLIENT, CLIENT6, OUTSIDE, OUTSIDE6, REMOTE, SERVER, SERVER6

pytestmark = pytest.mark.without("nftables", why="Linux checks no servers")

SECOND = "192.168.1.21"
"""Another address of the server's."""

CHECK = 7002


@pytest.fixture(autouse=True)
def office(net):
    yield
    net.office.apply()


@pytest.fixture
def checked(net):
    """Two servers whose health is asked for by HTTP at a port of its own; the service is the test's."""
    with Answerer(net.server, SERVER, CHECK) as server, Answerer(net.client, CLIENT, CHECK) as client:
        net.office.apply("servers", "two-servers", "check", "http")
        wait.until(lambda: all(passed(view) >= 2 for view in servers(net).values()), "both are checked")
        yield {SERVER: server, CLIENT: client}


def passed(view):
    return view["check"]["rounds"] - view["check"]["lost"] if view["check"] else 0


def said(host, source, to=OUTSIDE):
    """The server that a client of this address gets, by its answer."""
    with host.connect(to, PORT, source=source) as near:
        near.sendall(b"GET / HTTP/1.1\r\nhost: farm\r\n\r\n")
        answer = b""
        while data := near.recv(4096):
            answer += data
    return answer.rpartition(b"\r\n")[2].decode()


def metrics(net):
    """Metrics of servers: name and server, with their values."""
    words = ["curl", "-s", "-m", "5", "--unix-socket", net.office.socket, "http://gateway/metrics"]
    found = re.findall(
        r'^(wirerate_server_\w+)\{nat="farm",server="([\d.]+):7001"\} (\S+)$',
        net.office.host.run(*words).stdout,
        re.MULTILINE,
    )
    return {(name, server): float(value) for name, server, value in found}


def test_only_clients_of_a_killed_server_get_another_and_get_it_back(net):
    """By TCP connections to the service itself."""
    sources = [f"198.51.100.{number}" for number in range(100, 140)]
    net.remote.ip(*[f"addr add {source}/24 dev eth0" for source in sources])
    net.server.ip(f"addr add {SECOND}/24 dev eth0")
    farm = {}
    try:
        for host, address in [(net.server, SERVER), (net.server, SECOND), (net.client, CLIENT)]:
            farm[address] = Answerer(host, address, 7001)
        net.office.apply("servers", "three-servers", "sticky", "check", "tcp")
        wait.until(lambda: all(passed(view) for view in servers(net).values()), "all are checked")

        def all_served():
            return {source: said(net.remote, source) for source in sources}

        before = all_served()
        assert set(before.values()) == set(farm)
        farm[SECOND].end()
        view = becomes(net, SECOND, "failed")
        assert (view["trouble"], view["share"]) == ("connection refused", 0)
        while_down = all_served()
        for source in sources:
            if before[source] == SECOND:
                assert while_down[source] in (SERVER, CLIENT)
            else:
                assert while_down[source] == before[source]
        farm[SECOND].begin()
        becomes(net, SECOND, "up")
        assert all_served() == before
        log = net.office.log()
        assert "server down: connection refused; new connections go to 2 others, its own end" in log
        assert "server up; new connections go to it by its weight" in log
    finally:
        for one in farm.values():
            one.end()
        net.server.ip(f"addr del {SECOND}/24 dev eth0")
        net.remote.ip(*[f"addr del {source}/24 dev eth0" for source in sources])


@pytest.mark.parametrize(
    ("mode", "trouble"),
    [
        ("error", "the status is 500"),
        ("redirect", "the status is 302"),
        ("hang", "no answer in time"),
        ("half", "no answer in time"),
        ("garbage", "the answer is no HTTP"),
        ("reset", "connection reset"),
    ],
)
def test_what_is_no_good_answer_takes_a_server_down(net, checked, mode, trouble):
    checked[SERVER].says(mode)
    view = becomes(net, SERVER, "failed")
    assert view["trouble"] == trouble
    # The other one is asked as ever.
    before = servers(net)[CLIENT]["check"]
    wait.until(lambda: passed(servers(net)[CLIENT]) >= before["rounds"] - before["lost"] + 5, "it is checked")
    assert servers(net)[CLIENT]["check"]["lost"] == before["lost"]
    with Farm(net) as farm:
        assert farm.served(net.remote, 10) == {"server": 0, "client": 10}
    checked[SERVER].says("ok")
    becomes(net, SERVER, "up")


def test_of_an_answer_of_a_gigabyte_the_head_is_read(net, checked):
    before = passed(servers(net)[SERVER])
    checked[SERVER].says("huge")
    wait.until(lambda: passed(servers(net)[SERVER]) >= before + 10, "it passes")
    assert servers(net)[SERVER]["check"]["lost"] == 0
    # Of the bodies a socket's buffer came, at most, before the connection was closed.
    received = int(re.search(r"RX:.*\n\s*(\d+)", net.gateway.run("ip", "-s", "link", "show", "lan").stdout)[1])
    assert received < 500_000_000


def hole(net):
    """The server's host takes no packet of the gateway's any more, and refuses none."""
    rules = "table inet hole { chain in { type filter hook input priority 0; policy accept; ip saddr 192.168.1.1 drop; }; }"
    net.server.run("nft", "-f", "-", input=rules)


@pytest.mark.parametrize("probe", ["http", "ping"])
def test_a_host_that_swallows_packets_is_down(net, probe):
    with Answerer(net.server, SERVER, CHECK), Answerer(net.client, CLIENT, CHECK):
        net.office.apply("servers", "two-servers", "check", probe)
        wait.until(lambda: all(passed(view) >= 2 for view in servers(net).values()), "both are checked")
        hole(net)
        try:
            assert becomes(net, SERVER, "failed")["trouble"] == "no answer in time"
            assert servers(net)[CLIENT]["state"] == "up"
        finally:
            net.server.run("nft", "delete", "table", "inet", "hole")
        becomes(net, SERVER, "up")


@pytest.mark.parametrize("probe", ["http6", "ping6"])
def test_ipv6_servers_are_checked(net, probe):
    with Answerer(net.server, SERVER6, CHECK) as server, Answerer(net.client, CLIENT6, CHECK):
        net.office.apply("servers", "two-servers", "check6", probe)
        wait.until(lambda: all(passed(view) >= 2 for view in servers(net, "farm6").values()), "both are checked")
        with failing(net, server):
            becomes(net, SERVER6, "failed", nat="farm6")
            with Farm(net, (SERVER6, CLIENT6)) as farm:
                assert farm.served(net.remote, 10, OUTSIDE6) == {"server": 0, "client": 10}
        becomes(net, SERVER6, "up", nat="farm6")


@contextlib.contextmanager
def failing(net, answerer):
    """A server passes no check."""
    answerer.says("error")
    net.server.sysctl({"net/ipv6/icmp/echo_ignore_all": 1})
    try:
        yield
    finally:
        answerer.says("ok")
        net.server.sysctl({"net/ipv6/icmp/echo_ignore_all": 0})


def test_a_host_that_is_gone_is_down(net, checked):
    net.server.ip("link set eth0 down")
    try:
        becomes(net, SERVER, "failed", 20)
        with Farm(net) as farm:
            assert farm.served(net.remote, 10) == {"server": 0, "client": 10}
    finally:
        net.server.ip("link set eth0 up", "route replace default via 192.168.1.1")
        net.server.run("ip", "-6", "addr", "replace", "2001:db8:1::20/64", "dev", "eth0")
        net.server.run("ip", "-6", "route", "replace", "default", "via", "2001:db8:1::1")
    becomes(net, SERVER, "up", 20)


def test_one_that_flaps_stays_as_it_is(net, checked):
    """Two checks of three fail: never three in a row, nor are four in a row passed."""
    checked[SERVER].says("flap")
    before = servers(net)[SERVER]["check"]["lost"]
    wait.until(lambda: servers(net)[SERVER]["check"]["lost"] >= before + 12, "checks fail")
    assert servers(net)[SERVER]["state"] == "up"
    checked[SERVER].says("error")
    becomes(net, SERVER, "failed")
    checked[SERVER].says("flap")
    before = passed(servers(net)[SERVER])
    wait.until(lambda: passed(servers(net)[SERVER]) >= before + 6, "checks pass")
    assert servers(net)[SERVER]["state"] == "failed"


def test_it_comes_back_after_so_many_passes_in_a_row(net, checked):
    checked[SERVER].says("error")
    becomes(net, SERVER, "failed")
    before = passed(servers(net)[SERVER])
    checked[SERVER].says("ok")
    assert passed(becomes(net, SERVER, "up")) >= before + 4


@pytest.mark.parametrize("treatment", ["kill", "keep"])
def test_its_connections_end_or_stay_as_the_policy_says(net, checked, treatment):
    variants = ["servers", "two-servers", "check", "http"] + (["keep"] if treatment == "keep" else [])
    net.office.apply(*variants)
    with Farm(net) as farm:
        held = [farm.connected(net.remote) for _ in range(40)]
        assert {name for _, _, name in held} == {"server", "client"}
        checked[SERVER].says("error")
        becomes(net, SERVER, "failed")
        for near, far, name in held:
            if name == "client" or treatment == "keep":
                alive(near, far)
            else:
                with pytest.raises(ConnectionResetError):
                    near.sendall(b"asked")
                    near.recv(100)
            near.close()
            far.close()
        assert farm.served(net.remote, 10) == {"server": 0, "client": 10}


def test_when_all_are_down_clients_are_refused_at_once(net, checked):
    for server in checked.values():
        server.says("error")
    becomes(net, SERVER, "failed")
    becomes(net, CLIENT, "failed")
    with Farm(net) as farm:
        with pytest.raises(ConnectionRefusedError):
            net.remote.connect(OUTSIDE, PORT)
        assert "no other is up, new connections are refused" in net.office.log()
        assert set(metrics(net)[("wirerate_server_up", address)] for address in checked) == {0}
        for server in checked.values():
            server.says("ok")
        becomes(net, SERVER, "up")
        becomes(net, CLIENT, "up")
        assert sum(farm.served(net.remote, 4).values()) == 4


def test_a_reload_keeps_what_is_known_of_servers(net, checked):
    checked[SERVER].says("error")
    becomes(net, SERVER, "failed")
    before = servers(net)[SERVER]["check"]
    net.office.apply("servers", "two-servers", "check", "http", "no-chat")
    now = servers(net)[SERVER]
    assert now["state"] == "failed" and now["check"]["rounds"] >= before["rounds"]
    # By another check it is down until that passes; without one, it is up.
    net.office.apply("servers", "two-servers", "check", "ping")
    becomes(net, SERVER, "up")
    net.office.apply("servers", "two-servers", "check", "http")
    becomes(net, SERVER, "failed")
    net.office.apply("servers", "two-servers")
    assert becomes(net, SERVER, "up")["check"] is None
    net.office.apply("servers", "one-server", "check", "http")
    found = servers(net)
    assert found[SERVER]["state"] == "out-of-service" and found[SERVER]["check"] is None
    # What the policy has out of service is asked only once it is back, and up until it has failed.
    net.office.apply("servers", "two-servers", "check", "http")
    becomes(net, SERVER, "failed")


def test_a_restart_begins_with_all_up(net, checked):
    checked[SERVER].says("error")
    becomes(net, SERVER, "failed")
    office = net.office
    office.stop()
    office.launch("servers", "two-servers", "check", "http")
    wait.until(office.answers, "wirerate answers")
    first = servers(net)[SERVER]
    assert first["state"] == "up" or first["check"]["lost"] >= 3
    becomes(net, SERVER, "failed")
    checked[SERVER].says("ok")
    becomes(net, SERVER, "up")


def test_no_packet_is_lost_when_servers_come_and_go(net, checked):
    assert net.client.ping(REMOTE)
    process = net.client.start("ping", "-n", "-i", "0.01", "-W", "2", REMOTE, log="stream")
    try:
        for _ in range(3):
            checked[SERVER].says("error")
            becomes(net, SERVER, "failed")
            checked[SERVER].says("ok")
            becomes(net, SERVER, "up")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(10)
    text = process.log.read_text()
    sent = int(re.search(r"(\d+) packets transmitted", text)[1])
    came = {int(number) for number in re.findall(r"icmp_seq=(\d+) ttl", text)}
    # The last one may have been under way.
    assert sent > 100 and set(range(1, sent)) <= came


def test_checks_are_spread_over_time(net, checked):
    """Two servers are not asked at the same time: half an interval lies between them."""

    def asked(sniffer):
        """When each SYN of a check came."""
        sniffer.setblocking(False)
        try:
            while True:
                caught = Caught(sniffer)
                is_syn = caught.frame[12:14] == b"\x08\x00" and caught.frame[23] == 6 and caught.frame[47] == 2
                if is_syn and int.from_bytes(caught.frame[36:38], "big") == CHECK:
                    yield caught.stamp[0] + caught.stamp[1] / 1e9
        except BlockingIOError:
            return

    with net.server.sniff("eth0") as server, net.client.sniff("eth0") as client:
        before = passed(servers(net)[CLIENT])
        wait.until(lambda: passed(servers(net)[CLIENT]) > before + 12, "checks are made")
        times = [list(asked(server)), list(asked(client))]
    assert min(len(seen) for seen in times) >= 10
    apart = sorted(min(abs(one - other) for other in times[1]) for one in times[0][1:-1])
    assert apart[len(apart) // 2] > 0.02, apart


@pytest.fixture(scope="module")
def certificates(net):
    """An authority, and certificates of its for names."""

    def openssl(*words):
        net.server.run("openssl", *words, stderr=None)

    files = {name: net.logs / f"farm-{name}" for name in ["ca.key", "ca.pem", "key", "request", "names", "right", "wrong"]}
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=farm"]
    openssl("req", "-x509", *curve, "-keyout", files["ca.key"], "-out", files["ca.pem"], "-days", "2")
    openssl("req", *curve, "-keyout", files["key"], "-out", files["request"])
    for name, host in [("right", "farm.example"), ("wrong", "shop.example")]:
        files["names"].write_text(f"subjectAltName=DNS:{host}\n")
        signer = ["-CA", files["ca.pem"], "-CAkey", files["ca.key"], "-CAcreateserial", "-days", "2"]
        openssl("x509", "-req", "-in", files["request"], *signer, "-extfile", files["names"], "-out", files[name])
    return files


def test_a_certificate_must_have_the_name_that_clients_ask_for(net, certificates):
    office, key = net.office, certificates["key"]
    office.stop()
    office.under = ["env", f"SSL_CERT_FILE={certificates['ca.pem']}"]
    try:
        office.start()
        with (
            Answerer(net.server, SERVER, CHECK, [certificates["wrong"], key]),
            Answerer(net.client, CLIENT, CHECK, [certificates["right"], key]),
        ):
            office.apply("servers", "two-servers", "check", "https")
            assert "certificate" in becomes(net, SERVER, "failed")["trouble"]
            wait.until(lambda: passed(servers(net)[CLIENT]) >= 5, "the other passes")
            assert servers(net)[CLIENT]["state"] == "up"
    finally:
        office.under = []
        office.stop()
        office.start()


def test_it_is_seen_by_status_metrics_and_explain(net, checked):
    checked[SERVER].says("error")
    becomes(net, SERVER, "failed")
    told = net.office.ask("status").stdout
    assert "192.168.1.20:7001 of farm: down, the status is 500;" in told, told
    assert re.search(r"192\.168\.1\.10:7001 of farm: up, 100 % of new connections; \d+ of \d+ checks failed", told), told
    found = metrics(net)
    assert found[("wirerate_server_up", SERVER)] == 0 and found[("wirerate_server_up", CLIENT)] == 1
    assert found[("wirerate_server_checks_total", SERVER)] >= found[("wirerate_server_checks_failed_total", SERVER)] >= 3
    assert 0 < found[("wirerate_server_check_duration_seconds", CLIENT)] < 1
    told = net.office.ask("explain", "--live", f"wan tcp {REMOTE}:44444 > {OUTSIDE}:{PORT}").stdout
    assert "of 1 servers that are up, of 2 in all" in told and "down: 192.168.1.20:7001" in told, told
