"""Several WANs: which one a connection takes, and what becomes of it when one fails. See docs/wan.md."""

import collections
import contextlib
import json
import re
import shutil
import socket

import pytest
import wait
from farm import Answerer
from gateway import missing
from packet import drain
from wans import INTERFACES, KINDS, NETS, REMOTE, REMOTE6, Wans, office_of, wan

QUICK = "check = {{ every = \"100ms\", fall = {lost}, rise = {back} }}"

BY_URL = f'check = {{ url = "http://{REMOTE}:8080/up", every = "100ms", fall = 3, rise = 3 }}'

VOICE = """
[[policy-route]]
name = "voice"
from = "lan"
source = "192.168.1.64/26"
via = "cable"
when-down = "{when_down}"
"""


def pytest_generate_tests(metafunc):
    if "branch" in metafunc.fixturenames:
        named = metafunc.config.getoption("gateway") or list(KINDS)
        kinds = [name for name in KINDS if name in named]
        metafunc.parametrize("branch", kinds, indirect=True, scope="module")


@pytest.fixture(scope="module")
def branch(request):
    if lacking := missing(request.param):
        pytest.skip(f"SKIPPED: {lacking}")
    made = Wans()
    made.office = office_of(made, KINDS[request.param])
    made.office.more = wan("fibre") + wan("cable") + wan("lte")
    try:
        made.office.start()
        yield made
        print(made.office.evidence())
    finally:
        made.office.stop()
        made.close()
        shutil.rmtree(made.logs, ignore_errors=True)


def called(branch, servers, host=None, to=REMOTE, **options):
    """Connects, and says which provider was called, both ends, and the address seen there."""
    near = (host or branch.client).connect(to, 80, **options)
    name, far, address = servers.accept()
    return name, near, far, address


def talks(near, far):
    """A connection goes on, both ways."""
    near.sendall(b"ask")
    assert far.recv(3) == b"ask"
    far.sendall(b"answer")
    assert near.recv(6) == b"answer"


def long_talk(near, far):
    """Enough of it that the fast path takes it."""
    for _ in range(20):
        talks(near, far)


def test_new_flows_are_spread_by_weight_and_each_shows_the_address_of_its_wan(branch):
    branch.office.apply_wans(wan("fibre", "weight = 3"), wan("cable"), wan("lte", "tier = 2"))
    count = 200
    with branch.servers() as servers:
        seen = collections.Counter()
        for _ in range(count):
            name, near, far, address = called(branch, servers)
            assert address == f"{NETS[name]}.2"
            seen[name] += 1
            near.close()
            far.close()
    # Three standard deviations, and half of one.
    assert seen["lte"] == 0 and abs(seen["fibre"] - 0.75 * count) < 0.11 * count, seen
    shares = {view["name"]: view["share_ipv4"] for view in branch.office.wans()}
    assert abs(shares["fibre"] - 0.75) < 0.04 and shares["lte"] == 0


def test_ipv6_is_spread_likewise(branch):
    branch.office.apply_wans(wan("fibre"), wan("cable"), wan("lte", "tier = 2"))
    with branch.servers(v6=True) as servers:
        seen = set()
        for _ in range(40):
            name, near, far, _ = called(branch, servers, to=REMOTE6)
            talks(near, far)
            seen.add(name)
            near.close()
            far.close()
    assert seen == {"fibre", "cable"}


def test_a_policy_route_gives_chosen_traffic_its_wan(branch):
    branch.office.apply_wans(
        wan("fibre"), wan("cable", "tier = 2"), VOICE.format(when_down="fall-back")
    )
    with branch.servers() as servers:
        for host, expected in [(branch.phone, "cable"), (branch.client, "fibre")] * 3:
            name, near, far, _ = called(branch, servers, host)
            assert name == expected
            near.close()
            far.close()
        branch.office.apply_wans(
            wan("fibre"), wan("cable", 'state = "down"'), VOICE.format(when_down="fall-back")
        )
        assert called(branch, servers, branch.phone)[0] == "fibre"
        branch.office.apply_wans(wan("fibre"), wan("cable", 'state = "down"'), VOICE.format(when_down="drop"))
        with pytest.raises(OSError):
            branch.phone.connect(REMOTE, 80, timeout=1)
        assert called(branch, servers)[0] == "fibre"


def test_answers_leave_by_the_wan_that_the_connection_came_in_by(branch):
    branch.office.apply_wans(wan("fibre"), wan("cable", "tier = 2"), wan("lte", 'state = "down"'))
    # To a host inside, by a port forward; and to the gateway itself.
    inside = branch.client.listen(80)
    itself = branch.gateway.listen(8022)
    try:
        for name, provider in branch.providers.items():
            for server, port in [(inside, 80), (itself, 8022)]:
                near = provider.connect(f"{NETS[name]}.2", port, source=REMOTE)
                far, (address, _) = server.accept()
                far.settimeout(5)
                assert address == REMOTE
                talks(near, far)
                near.close()
                far.close()
    finally:
        inside.close()
        itself.close()


def test_what_the_gateway_sends_leaves_by_the_wan_of_its_address(branch):
    branch.office.apply_wans(wan("fibre"), wan("cable", "tier = 2"), wan("lte", 'state = "down"'))
    for name, interface in INTERFACES.items():
        assert branch.gateway.ping(REMOTE, "-I", f"{NETS[name]}.2")
        wait.until(lambda device=interface: branch.gateway.ping(REMOTE, "-I", device), f"by {interface}")


def failed_over(branch, fails, standing, trouble=None):
    """fibre fails; its flow ends with a reset, that of cable goes on, and new ones go by cable. Then it is back."""
    with branch.servers() as servers:
        flows = {}
        while len(flows) < 2:
            name, near, far, _ = called(branch, servers)
            flows[name] = (near, far)
        for near, far in flows.values():
            long_talk(near, far)
        if branch.office.fast_path != "off":
            assert branch.office.counters()["fast_path"]["flows"] >= 2
        with fails:
            branch.becomes("fibre", standing)
            if trouble:
                assert f"({trouble})" in branch.office.ask("status").stdout
            near, far = flows["cable"]
            talks(near, far)
            near, _ = flows["fibre"]
            with pytest.raises((ConnectionResetError, BrokenPipeError)):
                near.sendall(b"lost")
                near.recv(1)
            for _ in range(10):
                name, near, far, _ = called(branch, servers)
                assert name == "cable"
                near.close()
                far.close()
        branch.becomes("fibre", "up")
        talks(*flows["cable"])
        seen = {called(branch, servers)[0] for _ in range(30)}
        assert seen == {"fibre", "cable"}


def test_a_wan_without_carrier_fails_over(branch):
    branch.office.apply_wans(wan("fibre"), wan("cable"))
    failed_over(branch, branch.unplugged("fibre"), "no-carrier")


def test_a_wan_whose_echoes_are_lost_fails_over_though_its_carrier_is_up(branch):
    branch.office.apply_wans(wan("fibre", QUICK.format(lost=3, back=3)), wan("cable", QUICK.format(lost=3, back=3)))
    failed_over(branch, branch.silent("fibre"), "unanswered")
    said = branch.office.log()
    assert "echo requests are not answered; new flows go by other WANs" in said
    metrics = branch.office.ask("status").stdout
    assert "fibre (fib0): up" in metrics


def test_lost_echoes_have_to_be_several_in_a_row_and_answers_too(branch):
    branch.office.apply_wans(wan("fibre", QUICK.format(lost=200, back=1)), wan("cable"))
    with branch.silent("fibre"):
        before = check(branch)["lost"]
        wait.until(lambda: check(branch)["lost"] >= before + 5, "rounds are lost")
        assert branch.standing("fibre") == "up"
    branch.office.apply_wans(wan("fibre", QUICK.format(lost=2, back=200)), wan("cable"))
    with branch.silent("fibre"):
        branch.becomes("fibre", "unanswered")
    before = check(branch)
    wait.until(lambda: answered(check(branch)) >= answered(before) + 5, "rounds are answered")
    told = metrics(branch)
    assert 0 < float(told["wirerate_wan_round_trip_seconds"]) < 1, told
    assert int(told["wirerate_wan_check_rounds_total"]) > int(told["wirerate_wan_check_lost_total"]) >= 2, told
    assert branch.standing("fibre") == "unanswered"
    # Another check begins where the last one ended.
    branch.office.apply_wans(wan("fibre", QUICK.format(lost=2, back=1)), wan("cable"))
    branch.becomes("fibre", "up")


def metrics(branch):
    """Metrics of the WAN that is checked, by their names."""
    words = ["curl", "-s", "-m", "5", "--unix-socket", branch.office.socket, "http://gateway/metrics"]
    return dict(re.findall(r'^(wirerate_wan_\w+)\{wan="fibre"\} (\S+)$', branch.office.host.run(*words).stdout, re.MULTILINE))


def check(branch):
    return next(view["check"] for view in branch.office.wans() if view["name"] == "fibre")


def answered(view):
    return view["rounds"] - view["lost"]


def test_echoes_leave_by_their_wan_alone_and_ask_the_hosts_named(branch):
    keys = f'check = {{ ping = ["{REMOTE}"], every = "100ms", fall = 2, rise = 2 }}'
    branch.office.apply_wans(wan("fibre", keys), wan("cable", keys), wan("lte", "tier = 2"))
    sniffs = {name: host.sniff("eth0") for name, host in branch.providers.items()}
    with branch.silent("cable"):
        branch.becomes("cable", "unanswered")
        assert branch.standing("fibre") == "up"
    branch.becomes("cable", "up")
    for name, sniff in sniffs.items():
        asked = set()
        for frame in drain(sniff):
            # IPv4, ICMP, an echo request.
            if frame[12:14] == b"\x08\x00" and frame[23] == 1 and frame[34] == 8:
                asked.add((socket.inet_ntoa(frame[26:30]), socket.inet_ntoa(frame[30:34])))
        sniff.close()
        assert asked == (set() if name == "lte" else {(f"{NETS[name]}.2", REMOTE)}), name


@contextlib.contextmanager
def answering(branch, names=("fibre", "cable")):
    """Servers at REMOTE behind each provider, which pass a check until told otherwise."""
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(Answerer(branch.providers[name], REMOTE, 8080)) for name in names}


@contextlib.contextmanager
def saying(answerer, mode):
    answerer.says(mode)
    try:
        yield
    finally:
        answerer.says("ok")


@pytest.mark.parametrize("mode", ["error", "redirect", "hang"])
def test_a_wan_whose_url_is_not_answered_as_it_should_be_fails_over(branch, mode):
    """A redirect is what a provider who wants to be paid answers."""
    with answering(branch) as answerers:
        branch.office.apply_wans(wan("fibre", BY_URL), wan("cable", BY_URL))
        trouble = {"error": "the status is 500", "redirect": "the status is 302", "hang": "no answer in time"}
        failed_over(branch, saying(answerers["fibre"], mode), "url-failed", trouble[mode])
    said = branch.office.log()
    assert "no URL of its check is answered as it should be; new flows go by other WANs" in said
    assert f"check failed: {trouble[mode]}" in said


def test_urls_are_asked_for_by_their_wan_alone(branch):
    with answering(branch) as answerers:
        branch.office.apply_wans(wan("fibre", BY_URL), wan("cable", BY_URL), wan("lte", "tier = 2"))
        sniffs = {name: host.sniff("eth0") for name, host in branch.providers.items()}
        with saying(answerers["cable"], "error"):
            branch.becomes("cable", "url-failed")
            assert branch.standing("fibre") == "up"
            # It goes on being asked while it is down, and no other by it.
        branch.becomes("cable", "up")
    for name, sniff in sniffs.items():
        asked = set()
        for frame in drain(sniff):
            # IPv4, TCP, a SYN alone.
            if frame[12:14] == b"\x08\x00" and frame[23] == 6 and frame[47] == 2:
                port = int.from_bytes(frame[36:38], "big")
                asked.add((socket.inet_ntoa(frame[26:30]), socket.inet_ntoa(frame[30:34]), port))
        sniff.close()
        assert asked == (set() if name == "lte" else {(f"{NETS[name]}.2", REMOTE, 8080)}), name


def test_one_url_of_several_is_enough(branch):
    urls = f'["http://192.0.2.99/", "http://{REMOTE}:8080/up", "http://{REMOTE}:8081/"]'
    keys = f'check = {{ url = {urls}, status = [200, "300-399"], every = "100ms", fall = 2, rise = 2 }}'
    with answering(branch) as answerers:
        branch.office.apply_wans(wan("fibre", keys), wan("cable"))
        wait.until(lambda: answered(check(branch)) >= 5, "rounds are answered")
        answerers["fibre"].says("redirect")
        before = answered(check(branch))
        wait.until(lambda: answered(check(branch)) >= before + 5, "rounds are answered")
        assert branch.standing("fibre") == "up"
        answerers["fibre"].says("error")
        branch.becomes("fibre", "url-failed")
        answerers["fibre"].says("ok")
        branch.becomes("fibre", "up")


def test_flows_stay_with_a_wan_that_fails_where_the_policy_says_so(branch):
    keep = 'on-failure = "keep"\n'
    branch.office.apply_wans(wan("fibre", keep), wan("cable", "tier = 2"))
    with branch.servers() as servers:
        name, near, far, _ = called(branch, servers)
        assert name == "fibre"
        long_talk(near, far)
        with branch.unplugged("fibre"):
            branch.becomes("fibre", "no-carrier")
            near.sendall(b"later")
            assert called(branch, servers)[0] == "cable"
        branch.becomes("fibre", "up")
        near.settimeout(20)
        far.settimeout(20)
        assert far.recv(5) == b"later"
        talks(near, far)


def test_a_backup_serves_while_no_other_is_up_and_none_is_answered(branch):
    branch.office.apply_wans(wan("fibre"), wan("cable"), wan("lte", "tier = 2"))
    with branch.servers() as servers, branch.unplugged("fibre"), branch.unplugged("cable"):
        branch.becomes("cable", "no-carrier")
        branch.becomes("fibre", "no-carrier")
        assert called(branch, servers)[0] == "lte"
        with branch.unplugged("lte"):
            branch.becomes("lte", "no-carrier")
            with pytest.raises(OSError) as refused:
                branch.client.connect(REMOTE, 80, timeout=3)
            assert refused.value.errno in (101, 113), refused.value
        branch.becomes("lte", "up")
        assert called(branch, servers)[0] == "lte"
    for name in INTERFACES:
        branch.becomes(name, "up")


def test_a_router_is_learnt_from_a_default_route_of_linux(branch):
    alone = '\n[wan.fibre]\ninterface = "fib0"\n'
    branch.office.apply_wans(alone, wan("cable", "tier = 2"))
    branch.becomes("fibre", "no-gateway")
    with branch.servers() as servers:
        assert called(branch, servers)[0] == "cable"
        branch.gateway.ip(f"route add default via {NETS['fibre']}.1 dev fib0 metric 500")
        try:
            branch.becomes("fibre", "up")
            assert called(branch, servers)[0] == "fibre"
        finally:
            branch.gateway.ip("route del default dev fib0 metric 500")
        branch.becomes("fibre", "no-gateway")


def test_linux_prefers_the_wan_that_is_up(branch):
    branch.office.apply_wans(wan("fibre"), wan("cable", "tier = 2"))

    def first():
        found = json.loads(branch.gateway.run("ip", "-j", "route", "get", REMOTE).stdout)
        return found[0]["dev"]

    wait.until(lambda: first() == "fib0", "Linux sends by fibre")
    with branch.unplugged("fibre"):
        wait.until(lambda: first() == "cab0", "Linux sends by cable")
    branch.becomes("fibre", "up")
    wait.until(lambda: first() == "fib0", "Linux sends by fibre again")


@pytest.mark.parametrize(
    ("tables", "code"),
    [
        ('\n[wan.fibre]\ninterface = "fib9"\n', "unknown-interface"),
        (wan("fibre") + wan("cable").replace("cab0", "fib0"), "bad-wan"),
        (wan("fibre").replace("203.0.113.1", "198.51.100.1"), "next-hop-off-link"),
        (wan("fibre") + VOICE.format(when_down="drop"), "unknown-wan"),
    ],
    ids=["no interface", "an interface for two", "a router off link", "no such WAN"],
)
def test_bad_wans_are_refused_by_name(branch, tables, code):
    faulty = branch.logs / "faulty.toml"
    branch.office.apply_wans(wan("fibre"))
    faulty.write_text(branch.office.policy.read_text().replace(wan("fibre"), tables))
    said = branch.office.ask("apply", faulty, check=False)
    assert said.returncode == 1 and code in said.stdout, said.stdout


def test_the_account_of_frames_balances(branch):
    branch.office.apply_wans(wan("fibre"), wan("cable"), wan("lte"))
    assert branch.client.ping(f"{NETS['lte']}.1")
    account = branch.office.counters()
    into = account["received"]
    out = sum(account[way] for way in ["forwarded", "delivered", "answered", "dropped", "held", "queued"])
    assert into == out, account
