"""Dynamic sets: filled by rules, on request, from files and URLs, by fail2ban and by CrowdSec."""

import http.client
import json
import os
import socket
import threading
import time

import blocklist
import gateway as gateways
import pytest
import wait
from blocklist import CrowdSec, Fail2ban, Lists
from topology import CLIENT, GATEWAY, OUTSIDE, REMOTE, REMOTE6, SERVER, STRANGER, STRANGER6

pytestmark = pytest.mark.without("nftables", why="the sets of Linux are filled in other ways")

TRAP = 2323
"""A port on which nothing serves: who asks for it is a scanner."""

BANNED = """
[[rule]]
name = "banned"
source = "@banned"
action = "drop"
"""

SCANNERS = f"""
[[rule]]
name = "scanner"
from = "wan"
source = "@banned"
action = "drop"

[[rule]]
name = "trap"
from = "wan"
to = "self"
protocol = "tcp"
dport = {TRAP}
add-source = "@banned"
for = "1h"
action = "drop"
"""


@pytest.fixture(autouse=True)
def as_before(net):
    yield
    net.office.apply()


def apply(net, rules=BANNED, keys="", name="banned", nats="", **options):
    """Puts a policy with a dynamic set, and rules and translations before all others, in force."""
    net.office.write()
    text = net.office.policy.read_text()
    first = text.index("\n[[nat]]")
    text = text[:first] + nats + text[first:]
    first = text.index("\n[[rule]]")
    text = text[:first] + f"\n[dynamic-set.{name}]\n{keys}\n{rules}" + text[first:]
    net.office.policy.write_text(text)
    net.office.ask("apply", net.office.policy, **options)


def sets(net):
    return {one["name"]: one for one in json.loads(net.office.ask("set", "--json").stdout)}


def elements(net, name="banned"):
    shown = json.loads(net.office.ask("set", "show", name, "--json").stdout)
    return {one["element"]: one["expires_seconds"] for one in shown}


def change(net, verb, *words, **options):
    return net.office.ask("set", verb, "banned", *words, **options)


def knocks(host, port=TRAP):
    """One SYN to the gateway's outside address."""
    with pytest.raises(OSError):
        host.connect(OUTSIDE, port, timeout=0.3)


def test_a_rule_bans_who_knocks_at_a_trap(net):
    apply(net, SCANNERS)
    assert net.stranger.ping(OUTSIDE) and net.remote.ping(OUTSIDE)
    knocks(net.stranger)
    wait.until(lambda: STRANGER in elements(net), "the stranger is in the set")
    assert not net.stranger.ping(OUTSIDE)
    # Nobody else is.
    assert net.remote.ping(OUTSIDE)
    left = elements(net)[STRANGER]
    assert 3500 < left <= 3600
    # Each further knock counts anew, though the first rule drops it: the trap's is not reached.
    change(net, "remove", STRANGER)
    assert net.stranger.ping(OUTSIDE)


def test_a_ban_cuts_a_connection_that_is_open(net):
    apply(net)
    with net.server.listen(443) as server, net.remote.connect(OUTSIDE, 443) as client:
        there, _ = server.accept()
        with there:
            client.sendall(b"before")
            assert there.recv(100) == b"before"
            # Long enough for the flow to be carried by the kernel, where it can be.
            for _ in range(20):
                client.sendall(b"x")
                there.recv(100)
                there.sendall(b"y")
                client.recv(100)
            change(net, "add", REMOTE)
            # Published flows are taken back within a second.
            time.sleep(1.5)
            client.sendall(b"after")
            there.settimeout(1)
            with pytest.raises(TimeoutError):
                there.recv(100)
    change(net, "flush")
    assert elements(net) == {}
    assert net.remote.ping(OUTSIDE)


PAGE = f"""
[[nat]]
name = "page"
kind = "forward"
from = "wan"
source = "@banned"
protocol = "tcp"
port = 443
target = "{SERVER}:8443"

[[nat]]
name = "sink"
kind = "redirect"
from = "lan"
destination = "@banned"
protocol = "tcp"
port = 80
to-port = 8080
"""

TOLD = f"""
[[rule]]
name = "page"
from = "wan"
to = "lan"
destination = "{SERVER}"
protocol = "tcp"
dport = 8443
action = "accept"
"""


def greeted(host, to, port):
    """What a server says first."""
    with host.connect(to, port) as client:
        return client.recv(100)


class Greeter:
    """A server that greets all who come with one word, and keeps their connections."""

    def __init__(self, listener, word):
        self.listener, self.word, self.kept = listener, word, []
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            try:
                there, _ = self.listener.accept()
            except OSError:
                return
            there.sendall(self.word)
            self.kept.append(there)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()
        for there in self.kept:
            there.close()


def test_who_is_banned_gets_a_page(net):
    """And whose connections were there before goes on with them."""
    apply(net, rules=TOLD, nats=PAGE)
    with (
        Greeter(net.server.listen(443), b"welcome"),
        Greeter(net.server.listen(8443), b"banned"),
        Greeter(net.gateway.listen(8080, GATEWAY), b"sunk"),
        Greeter(net.stranger.listen(80), b"stranger"),
        net.stranger.connect(OUTSIDE, 443) as before,
    ):
        assert before.recv(100) == b"welcome"
        assert greeted(net.remote, OUTSIDE, 443) == b"welcome"
        assert greeted(net.client, STRANGER, 80) == b"stranger"
        change(net, "add", STRANGER)
        assert greeted(net.stranger, OUTSIDE, 443) == b"banned"
        assert greeted(net.remote, OUTSIDE, 443) == b"welcome"
        assert greeted(net.client, STRANGER, 80) == b"sunk"
        before.sendall(b"still here")
        flows = net.office.ask("flows").stdout
        assert "web" in flows and "page" in flows and "sink" in flows, flows
        told = net.office.ask("explain", "--live", f"wan tcp {STRANGER}:999 > {OUTSIDE}:443").stdout
        assert "the source is in the set `banned`" in told and "`page`" in told, told
        change(net, "remove", STRANGER)
        assert greeted(net.stranger, OUTSIDE, 443) == b"welcome"
        assert greeted(net.client, STRANGER, 80) == b"stranger"


def test_elements_expire(net):
    apply(net, keys='timeout = "1h"')
    change(net, "add", STRANGER, "--timeout", "2s")
    change(net, "add", REMOTE)
    assert not net.stranger.ping(OUTSIDE)
    assert 3500 < elements(net)[REMOTE] <= 3600
    wait.until(lambda: net.stranger.ping(OUTSIDE), "the ban is over", 5)
    assert list(elements(net)) == [REMOTE]
    # Added again, it has the later of the two times.
    for time_of_its_own, least, most in [("5m", 3500, 3600), ("2h", 7000, 7200)]:
        changed = json.loads(change(net, "add", f"{REMOTE} timeout {time_of_its_own}", "--json").stdout)
        assert changed == {"added": 0, "refreshed": 1, "removed": 0, "absent": 0, "refused": 0}
        assert least < elements(net)[REMOTE] <= most


def test_both_ip_versions_and_networks(net):
    apply(net)
    change(net, "add", "2001:db8:aaaa::/64", "198.51.100.64/26")
    assert not net.stranger.ping(OUTSIDE)
    assert not net.stranger.ping("2001:db8:ffff::2")
    assert net.remote.ping(OUTSIDE)
    change(net, "remove", "2001:db8:aaaa::/64")
    assert net.stranger.ping("2001:db8:ffff::2")
    assert REMOTE6 and STRANGER6


def test_a_reload_and_a_restart_keep_elements(net):
    apply(net)
    change(net, "add", f"{STRANGER} timeout 1h", "192.0.2.0/24")
    apply(net, keys='size = 1000\ntimeout = "1h"')
    assert set(elements(net)) == {STRANGER, "192.0.2.0/24"}
    office = net.office
    office.stop()
    wait.until(lambda: not office.alive(), "the gateway ends")
    # As it was started, with the policy that is on disk now.
    office.process = office.host.start(gateways.binary(), "run", office.policy, "--socket", office.socket, "--state", office.state, log="wirerate")
    wait.until(office.answers, "the gateway answers", 20)
    wait.until(lambda: net.remote.ping(OUTSIDE), "the gateway works", 20)
    kept = elements(net)
    assert set(kept) == {STRANGER, "192.0.2.0/24"} and kept["192.0.2.0/24"] is None
    assert 3400 < kept[STRANGER] < 3600
    assert not net.stranger.ping(OUTSIDE)


def test_wrong_words_change_nothing(net):
    apply(net)
    for words, said in [
        (["add", "banned", "192.0.2.1", "192.0.2.300"], '"192.0.2.300"'),
        (["add", "banned", "0.0.0.0/0"], "all addresses"),
        (["add", "banned", "192.0.2.1", "--timeout", "soon"], "timeout"),
        (["add", "banned", "192.0.2.1", "--timeout", "0s"], "timeout"),
        (["add", "nobody", "192.0.2.1"], 'no dynamic set "nobody"'),
        (["show", "nobody"], 'no dynamic set "nobody"'),
        (["faults", "banned"], "no file and no URL"),
    ]:
        done = net.office.ask("set", *words, check=False)
        assert done.returncode != 0 and said in done.stdout, done.stdout
    assert elements(net) == {}


def test_a_full_set_says_so(net):
    apply(net, keys="size = 100")
    words = "\n".join(f"10.9.{number // 250}.{number % 250}" for number in range(150))
    done = change(net, "add", "-", input=words, check=False)
    assert done.returncode == 1 and "50 refused" in done.stdout, done.stdout
    assert len(elements(net)) == 100 and sets(net)["banned"]["refused"] == 50


@pytest.mark.longest(180)
def test_many_changes_lose_no_packet(net):
    """100,000 elements come and go while datagrams pass."""
    apply(net, keys="size = 200_000")
    words = "\n".join(f"10.{64 + number // 65536}.{number // 256 % 256}.{number % 256}" for number in range(100_000))
    over, sent, got = threading.Event(), 0, 0
    with net.remote.udp(port=7100) as there, net.client.udp() as client:
        client.sendto(b"first", (REMOTE, 7100))
        there.recvfrom(100)

        def fill():
            change(net, "add", "-", input=words, timeout=60)
            change(net, "remove", "-", input=words, timeout=60)
            over.set()

        filling = threading.Thread(target=fill)
        filling.start()
        there.settimeout(2)
        while not over.is_set():
            client.sendto(b"%d" % sent, (REMOTE, 7100))
            sent += 1
            assert there.recv(100) == b"%d" % got
            got += 1
            time.sleep(0.001)
        filling.join()
    assert sent == got > 0
    assert elements(net) == {} and sets(net)["banned"]["refused"] == 0


@pytest.mark.parametrize("many", [1, 100])
def test_changes_are_there_when_they_are_answered(net, many):
    """It prints how many come in a second, by a request for each, or for each hundred; and decides nothing by that."""
    apply(net, keys="size = 1_000_000")
    began, count = time.monotonic(), 0
    while time.monotonic() < began + 2:
        new = [f"10.{count // 65536}.{count // 256 % 256}.{count % 256}" for count in range(count, count + many)]
        assert ask(net, "/sets/add", {"set": "banned", "elements": new})["added"] == many
        count += many
    print(f"{count / 2:.0f} changes a second, {many} in a request")
    assert sets(net)["banned"]["elements"] == count


def ask(net, path, body):
    """A request to the control socket."""
    connection = http.client.HTTPConnection("gateway")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(net.office.socket))
    connection.request("POST", path, json.dumps(body))
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer


class TestFile:
    """Sets from files."""

    @pytest.fixture
    def file(self, net):
        path = net.logs / "banned.txt"
        path.write_text(f"# scanners\n{STRANGER} ; seen yesterday\n")
        apply(net, keys=f'file = "{path}"')
        yield path
        path.unlink(missing_ok=True)

    @staticmethod
    def replace(path, text):
        fresh = path.with_suffix(".new")
        fresh.write_text(text) if isinstance(text, str) else fresh.write_bytes(text)
        os.replace(fresh, path)

    def test_a_file_fills_the_set_and_fills_it_anew(self, net, file):
        assert list(elements(net)) == [STRANGER]
        assert not net.stranger.ping(OUTSIDE)
        for sender, verdict in [(STRANGER, "dropped"), (REMOTE, "delivered")]:
            told = json.loads(net.office.ask("explain", "--live", "--json", f"wan icmp {sender} > {OUTSIDE} echo-request").stdout)
            assert told["verdict"] == verdict, told
            shown = json.loads(net.office.ask("set", "show", "banned", sender, "--json").stdout)
            assert [one["element"] for one in shown] == [STRANGER] * (sender == STRANGER)
        done = net.office.ask("set", "show", "banned", "nowhere", check=False)
        assert done.returncode != 0 and "neither an address nor a network" in done.stdout
        self.replace(file, f"{REMOTE}\n2001:db8:aaaa::/64\n")
        wait.until(lambda: set(elements(net)) == {REMOTE, "2001:db8:aaaa::/64"}, "the new list is in force")
        assert net.stranger.ping(OUTSIDE) and not net.remote.ping(OUTSIDE)
        self.replace(file, "")
        wait.until(lambda: elements(net) == {}, "an empty list is in force")
        done = change(net, "add", "192.0.2.1", check=False)
        assert done.returncode != 0 and "a file or a URL fills" in done.stdout

    def test_lines_with_faults_are_named_and_an_error_page_is_no_list(self, net, file):
        self.replace(file, f"{STRANGER}\nnonsense\n{REMOTE}\n192.0.2.0/33\n192.0.2.1\n")
        wait.until(lambda: sets(net)["banned"]["faults"] == 2, "the faults are known")
        said = net.office.ask("set", "faults", "banned").stdout
        assert 'line 2: "nonsense"' in said and 'line 4: "192.0.2.0/33"' in said
        assert "line 2" in net.office.log() and "line 4" in net.office.log()
        assert len(elements(net)) == 3
        self.replace(file, "<html>\n<h1>502 Bad Gateway</h1>\n</html>\n")
        wait.until(lambda: sets(net)["banned"]["trouble"], "the page is refused")
        assert "<html>" in sets(net)["banned"]["trouble"] and len(elements(net)) == 3
        file.unlink()
        wait.until(lambda: "cannot be read" in sets(net)["banned"]["trouble"], "the file is missed")
        assert len(elements(net)) == 3
        self.replace(file, f"{STRANGER}\n")
        wait.until(lambda: list(elements(net)) == [STRANGER], "the list is read again")
        assert sets(net)["banned"]["trouble"] is None

    @pytest.mark.longest(120)
    def test_ten_megabytes_with_garbage(self, net, file):
        lines = []
        for number in range(300_000):
            lines.append(f"{10 + number // 65536}.{number // 256 % 256}.{number % 256}.9")
            if number % 6 == 0:
                lines.append(f"garbage {number} " + "x" * 150)
        text = "\n".join(lines)
        assert len(text) > 10 << 20
        apply(net, keys=f'file = "{file}"\nsize = 400_000')
        self.replace(file, text)
        wait.until(lambda: sets(net)["banned"]["elements"] == 300_000, "the list is in force", 60)
        assert sets(net)["banned"]["faults"] == 50_000
        said = net.office.ask("set", "faults", "banned", timeout=30).stdout.splitlines()
        assert len(said) == 50_000 and said[-1].startswith(f"line {len(lines) - 2}: ") or said[-1], said[-1]
        assert net.remote.ping(OUTSIDE)
        # More than fit: the last good list stays.
        self.replace(file, text + "\n" + "\n".join(f"100.{n // 65536}.{n // 256 % 256}.{n % 256}" for n in range(200_000)))
        wait.until(lambda: sets(net)["banned"]["trouble"], "the list is too long", 60)
        assert "500000 elements" in sets(net)["banned"]["trouble"] and sets(net)["banned"]["elements"] == 300_000


class TestUrl:
    """Sets from URLs, of a server at the client's."""

    @pytest.fixture
    def lists(self, net):
        server = Lists(net.client, CLIENT)
        yield server
        server.stop()

    def url(self, net, refresh="1m"):
        apply(net, keys=f'url = "http://{CLIENT}:8000/list"\nrefresh = "{refresh}"')

    def test_a_url_fills_the_set_and_the_last_good_list_stays(self, net, lists):
        lists.give(f"{STRANGER}\nnonsense\n192.0.2.0/24\n")
        self.url(net)
        wait.until(lambda: set(elements(net)) == {STRANGER, "192.0.2.0/24"}, "the list is in force", 20)
        assert sets(net)["banned"]["faults"] == 1 and not net.stranger.ping(OUTSIDE)
        kept = net.office.state.parent / "sets" / "banned.list"
        assert kept.read_text().split() == ["192.0.2.0/24", f"{STRANGER}/32"]
        # A server that fails: after a restart the list is there from disk, before the first packet.
        lists.give("<html>\n", status=503)
        office = net.office
        office.stop()
        wait.until(lambda: not office.alive(), "the gateway ends")
        office.process = office.host.start(gateways.binary(), "run", office.policy, "--socket", office.socket, "--state", office.state, log="wirerate")
        wait.until(office.answers, "the gateway answers", 20)
        assert set(elements(net)) == {STRANGER, "192.0.2.0/24"}
        wait.until(lambda: sets(net)["banned"]["trouble"], "the server is found out", 20)
        assert "503" in sets(net)["banned"]["trouble"]
        wait.until(lambda: net.remote.ping(OUTSIDE), "the gateway works", 20)
        assert not net.stranger.ping(OUTSIDE)

    @pytest.mark.longest(150)
    def test_it_is_asked_again_and_says_when_nothing_has_changed(self, net, lists):
        lists.give(f"{STRANGER}\n")
        self.url(net)
        wait.until(lambda: list(elements(net)) == [STRANGER], "the list is in force", 20)
        wait.until(lambda: 304 in lists.answers, "it is asked whether the list has changed", 75)
        lists.give(f"{REMOTE}\n")
        wait.until(lambda: list(elements(net)) == [REMOTE], "the new list is in force", 75)

    def test_a_certificate_of_nobody_known_is_refused(self, net):
        """TLS: nobody answers for the server's name."""
        key, certificate = net.logs / "list.key", net.logs / "list.pem"
        net.client.run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", certificate, "-subj", "/CN=lists", "-days", "2")
        served = net.client.start("openssl", "s_server", "-accept", "8443", "-key", key, "-cert", certificate, "-www", "-quiet")
        try:
            wait.until(lambda: net.client.listens(8443), "the server listens")
            rules = BANNED.replace("@banned", "@secure")
            apply(net, rules, keys=f'url = "https://{CLIENT}:8443/list"', name="secure")
            wait.until(lambda: sets(net)["secure"]["trouble"], "the server is refused", 20)
            assert "certificate" in sets(net)["secure"]["trouble"].lower() and elements(net, "secure") == {}
        finally:
            served.terminate()
            served.wait()


@pytest.mark.longest(120)
def test_fail2ban(net, tmp_path):
    absent = blocklist.missing("fail2ban-server")
    if absent:
        pytest.skip(f"SKIPPED: not installed: {' '.join(absent)} (./setup test)")
    rules = BANNED.replace("@banned", "@fail2ban")
    apply(net, rules, name="fail2ban")
    command = f"env WIRERATE_SOCKET={net.office.socket} {gateways.binary()}"
    fail2ban = Fail2ban(net.gateway, tmp_path, command)
    try:
        assert net.stranger.ping(OUTSIDE)
        fail2ban.fail(STRANGER)
        fail2ban.fail(STRANGER6)
        fail2ban.fail(REMOTE, times=1)
        wait.until(lambda: set(elements(net, "fail2ban")) == {STRANGER, STRANGER6}, "both are banned", 20)
        assert all(500 < left <= 600 for left in elements(net, "fail2ban").values())
        assert not net.stranger.ping(OUTSIDE) and net.remote.ping(OUTSIDE)
        fail2ban.ask("set", "login", "unbanip", STRANGER)
        wait.until(lambda: list(elements(net, "fail2ban")) == [STRANGER6], "the ban is lifted", 20)
        assert net.stranger.ping(OUTSIDE)
        # For good.
        fail2ban.ask("set", "login", "bantime", "-1")
        fail2ban.ask("set", "login", "banip", STRANGER)
        wait.until(lambda: elements(net, "fail2ban").get(STRANGER, 0) is None, "it is banned for good", 20)
        assert "ERROR" not in fail2ban.said(), fail2ban.said()
    finally:
        fail2ban.stop()
    # Its end lifts all bans.
    wait.until(lambda: elements(net, "fail2ban") == {}, "no ban is left", 20)


@pytest.mark.longest(120)
def test_crowdsec(net, tmp_path):
    absent = blocklist.missing("crowdsec", "crowdsec-custom-bouncer")
    if absent:
        pytest.skip(f"SKIPPED: not installed: {' '.join(absent)} (./setup test)")
    apply(net, BANNED.replace("@banned", "@crowdsec"), name="crowdsec")
    crowdsec = CrowdSec(net.gateway, tmp_path, net.office.socket)
    try:
        crowdsec.decisions("add", "--ip", STRANGER, "--duration", "90m")
        crowdsec.decisions("add", "--range", "192.0.2.0/24", "--duration", "4h")
        wait.until(lambda: set(elements(net, "crowdsec")) == {STRANGER, "192.0.2.0/24"}, "decisions are carried out", 30)
        assert 5000 < elements(net, "crowdsec")[STRANGER] <= 5400
        assert not net.stranger.ping(OUTSIDE) and net.remote.ping(OUTSIDE)
        crowdsec.decisions("delete", "--ip", STRANGER)
        wait.until(lambda: list(elements(net, "crowdsec")) == ["192.0.2.0/24"], "the decision is taken back", 30)
        assert net.stranger.ping(OUTSIDE)
    finally:
        crowdsec.stop()


def test_workers_have_the_same_elements(net):
    """What a rule adds at one worker, the others have soon."""
    net.office.stop()
    wait.until(lambda: not net.office.alive(), "the gateway ends")
    net.office.start("two-workers")
    try:
        net.office.write("two-workers")
        text = net.office.policy.read_text()
        first = text.index("\n[[rule]]")
        net.office.policy.write_text(text[:first] + f"\n[dynamic-set.banned]\n{SCANNERS}" + text[first:])
        net.office.ask("apply", net.office.policy)
        knocks(net.stranger)
        # Other ports and protocols come to the other worker, too.
        for port in range(20):
            knocks(net.stranger, 9000 + port)
        for number in range(16):
            assert not net.stranger.ping(OUTSIDE, count=1), number
        assert list(elements(net)) == [STRANGER]
    finally:
        net.office.stop()
        wait.until(lambda: not net.office.alive(), "the gateway ends")
        net.office.start()
        wait.until(lambda: net.remote.ping(OUTSIDE), "the gateway works", 20)
