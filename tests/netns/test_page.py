"""The page and its HTTP API: who gets in, what a browser shows and does, and how it bears many clients and many flows."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import time
from pathlib import Path

import chromium
import pytest
import wait
from chromium import Person
from gateway import binary
from host import stop
from isolation import inside
from packet import ethernet, udp6
from topology import CLIENT, CLIENT6, GATEWAY, OUTSIDE, REMOTE, REMOTE6, SERVER, STRANGER

pytestmark = pytest.mark.only("wirerate-packet", why="the page is the same, whatever carries the frames")

PORT = 9479
HERE = f"127.0.0.1:{PORT}"
NAME = "gateway.example.net"
PROXY = "edge.example.net:8443"
ROLES = ["read", "operate", "change"]

HOSTILE = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"
"""A text that would run if it were read as markup."""


def users(net):
    """A file of users, one of each role and named by it; the tokens."""
    path = net.logs / "page.tokens"
    path.unlink(missing_ok=True)
    made = {role: token(net, "add", role, "--role", role).stdout.splitlines()[0] for role in ROLES}
    return path, made


def token(net, *words, check=True):
    return net.gateway.run(binary(), "token", *words, "--file", net.logs / "page.tokens", check=check)


def begin(net, *keys):
    """Starts the gateway with other keys of `[gateway]`."""
    net.office.stop()
    write = net.office.write

    def keyed(*variants):
        write(*variants)
        text = net.office.policy.read_text()
        lines = "".join(f"{key}\n" for key in keys)
        net.office.policy.write_text(text.replace("[gateway]\n", "[gateway]\n" + lines, 1))

    net.office.write = keyed
    net.office.start()
    net.client.reaches(REMOTE)
    return write


@pytest.fixture(scope="module")
def page(net):
    """Tokens by role, of a gateway with its page on loopback."""
    path, tokens = users(net)
    write = begin(net, f'page = "{HERE}"', f'page-tokens = "{path}"', f'page-names = ["{NAME}"]', f'page-origins = ["https://{PROXY}"]')
    yield tokens
    net.office.stop()
    net.office.write = write
    net.office.start()


def ask(net, route, token=None, *options, base=f"http://{HERE}/api/v1", host=None, check=True):
    """Status and text of an answer."""
    words = ["curl", "-s", "-m", "20", "-w", "\n%{http_code}", *options]
    if token:
        words += ["-H", f"Authorization: Bearer {token}"]
    done = (host or net.gateway).run(*words, base + route, check=False)
    text, _, code = done.stdout.rpartition("\n")
    if check:
        assert code == "200", f"{route}: {code} {text}"
    return int(code), text


def told(net, route, token, *options):
    return json.loads(ask(net, route, token, *options)[1])


JSON = "-X", "POST", "-H", "Content-Type: application/json"


# ---- Access


def test_each_role_may_what_it_is_for(net, page):
    assert ask(net, "/status", check=False)[0] == 401
    assert ask(net, "/status", "wirerate_" + "0" * 64, check=False)[0] == 401
    for role in ROLES:
        assert told(net, "/me", page[role]) == {"user": role, "role": role}
        assert told(net, "/status", page[role])["flow_capacity"] > 0
    kill = [ask(net, "/flows/kill?port=9", page[role], *JSON, check=False)[0] for role in ROLES]
    assert kill == [403, 200, 200]
    rollback = [ask(net, "/rollback", page[role], *JSON, check=False)[0] for role in ROLES]
    assert rollback == [403, 403, 409]
    # The interfaces of the gateway have no page.
    assert ask(net, "/status", page["read"], base=f"http://{GATEWAY}:{PORT}/api/v1", host=net.client, check=False)[0] == 0


def test_other_sites_and_other_names_get_nothing(net, page):
    def code(*headers, method="POST"):
        options = [word for header in headers for word in ("-H", header)]
        return ask(net, "/rollback", page["change"], "-X", method, *options, check=False)[0]

    json_type = "Content-Type: application/json"
    assert code(json_type) == 409
    assert code(json_type, f"Origin: http://{HERE}", "Sec-Fetch-Site: same-origin") == 409
    assert code(json_type, "Origin: http://evil.example") == 403
    assert code(json_type, "Sec-Fetch-Site: cross-site") == 403
    assert code("Content-Type: text/plain") == 415
    assert code(json_type, "Host: evil.example") == 403
    assert code(json_type, f"Host: {NAME}:{PORT}") == 409


def test_a_user_comes_and_goes_while_the_gateway_runs(net, page):
    one = token(net, "add", "carol", "--role", "operate").stdout.splitlines()[0]
    assert told(net, "/me", one) == {"user": "carol", "role": "operate"}
    assert "carol" in token(net, "list").stdout
    assert one not in (net.logs / "page.tokens").read_text()
    again = token(net, "add", "carol", check=False)
    assert again.returncode == 1 and "token remove carol" in again.stdout
    token(net, "remove", "carol")
    assert ask(net, "/me", one, check=False)[0] == 401
    gone = token(net, "remove", "carol", check=False)
    assert gone.returncode == 1 and 'no user "carol"' in gone.stdout


def test_guesses_are_bounded_and_named(net, page):
    # From an address of its own: others are not kept waiting.
    guess = [ask(net, "/me", "guess", "--interface", "127.0.0.9", check=False)[0] for _ in range(12)]
    assert guess[:10] == [401] * 10 and guess[10:] == [429, 429]
    assert ask(net, "/me", page["read"])[0] == 200
    entries = [entry for entry in told(net, "/audit", page["change"]) if entry["address"] == "127.0.0.9"]
    assert [entry["status"] for entry in entries] == [401] * 10
    assert "page: request refused" in net.office.log() and "127.0.0.9" in net.office.log()


def test_a_change_is_in_the_history_by_its_user(net, page):
    text = net.office.policy.read_text()
    path = net.logs / "applied.toml"
    path.write_text(text + '\n[[rule]]\nname = "by-page"\nfrom = "lan"\nto = "wan"\nprotocol = "tcp"\ndport = 4242\naction = "drop"\n')
    toml = "-X", "POST", "-H", "Content-Type: application/toml", "--data-binary", f"@{path}"
    plan = json.loads(ask(net, "/plan", page["read"], *toml)[1])
    assert plan["sound"] and [change["thing"] for change in plan["changes"]] == ["rule by-page"]
    assert ask(net, "/apply", page["operate"], *toml, check=False)[0] == 403
    done = json.loads(ask(net, "/apply?comment=by%20hand", page["change"], *toml)[1])
    assert done["confirm_seconds"] is None
    history = told(net, "/policy/history", page["read"])
    assert (history["entries"][-1]["user"], history["entries"][-1]["comment"]) == ("change by the page, from 127.0.0.1", "by hand")
    assert 'name = "by-page"' in ask(net, "/policy", page["read"])[1]
    log = [entry["request"] for entry in told(net, "/audit", page["change"])]
    assert "POST /api/v1/apply?comment=by%20hand" in log
    net.office.apply()


def fits(value, schema, document, at):
    """Whether a value is as a schema says; only the words that the description uses."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    for other in schema.get("allOf", []):
        fits(value, other, document, at)
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        faults = []
        for choice in choices:
            try:
                return fits(value, choice, document, at)
            except AssertionError as fault:
                faults.append(fault)
        raise AssertionError(f"{at}: {faults}")
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "integer": int, "number": (int, float)}
    if "type" in schema:
        wanted = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        assert any(isinstance(value, kinds[kind]) for kind in wanted), f"{at}: {value!r} is no {wanted}"
    assert value in schema.get("enum", [value]) and value == schema.get("const", value), f"{at}: {value!r}"
    if isinstance(value, dict):
        assert set(schema.get("required", [])) <= set(value), f"{at} lacks {set(schema['required']) - set(value)}"
        if "properties" in schema:
            assert set(value) <= set(schema["properties"]), f"{at} has {set(value) - set(schema['properties'])}"
        for name, member in value.items():
            fits(member, schema.get("properties", {}).get(name, {}), document, f"{at}.{name}")
    if isinstance(value, list):
        for number, item in enumerate(value):
            fits(item, schema.get("items", {}), document, f"{at}[{number}]")


def test_the_description_is_of_what_there_is(net, page):
    net.office.apply("sets")
    told(net, "/sets/add", page["operate"], *JSON, "-d", '{"set": "banned", "elements": ["192.0.2.1 timeout 1h", "192.0.2.2"]}')
    document = told(net, "/openapi.json", page["read"])
    assert document["openapi"].startswith("3.1")
    for path, verbs in document["paths"].items():
        route = path.removeprefix("/api/v1")
        if "get" in verbs:
            needed = {"/explain": f"?packet=lan%20tcp%20{CLIENT}:1%20%3E%20{REMOTE}:2%20syn", "/policy/kept": "?number=1", "/sets/elements": "?set=banned"}
            # No list fills it.
            if route == "/sets/faults":
                assert ask(net, f"{route}?set=banned", page["read"], check=False)[0] == 422
                continue
            if route == "/drops/pcapng":
                assert ask(net, route, page["change"], "-o", "/dev/null")[0] == 200
                continue
            text = ask(net, route + needed.get(route, ""), page["change"])[1]
            content = verbs["get"]["responses"]["200"]["content"]
            if "application/json" in content:
                fits(json.loads(text), content["application/json"]["schema"], document, route)
        assert ask(net, route, None, *(JSON if "post" in verbs else ()), check=False)[0] in (401, 422, 400), route
    net.office.apply()


def test_explain_is_that_of_the_command(net, page):
    words = f"lan tcp {CLIENT}:40000 > {REMOTE}:443 syn"
    by_page = told(net, "/explain", page["read"], "-G", "--data-urlencode", f"packet={words}")
    by_command = json.loads(net.office.ask("explain", "--live", words, "--json").stdout)
    for account in (by_page, by_command):
        for sent in account["sent"]:
            sent["packet"].pop("sport", None)
    assert by_page["verdict"] == "forwarded" and by_page["stages"] == by_command["stages"]
    code, wrong = ask(net, "/explain", page["read"], "-G", "--data-urlencode", "packet=lan what", check=False)
    assert code == 422 and json.loads(wrong)["hint"]


# ---- TLS


def certificate(net, stem, days=2):
    paths = net.logs / f"{stem}.crt", net.logs / f"{stem}.key"
    net.gateway.run(
        *["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"],
        *["-keyout", paths[1], "-out", paths[0], "-days", str(days), "-subj", f"/CN={stem}"],
        *["-addext", f"subjectAltName=IP:{GATEWAY},DNS:{NAME}"],
    )
    # The gateway may run as another user.
    paths[1].chmod(0o644)
    return paths


@pytest.fixture
def tls(net, page):
    """The page at an address of the gateway, by TLS; and afterwards on loopback again."""
    write = net.office.write
    crt, key = certificate(net, "first")
    for path in (net.logs / "page.crt", net.logs / "page.key"):
        path.unlink(missing_ok=True)
    shutil.copy(crt, net.logs / "page.crt")
    shutil.copy(key, net.logs / "page.key")
    users_of = net.logs / "page.tokens"
    keys = [f'page = "{GATEWAY}:{PORT}"', f'page-tokens = "{users_of}"', f'page-names = ["{NAME}"]']
    keys += [f'page-certificate = "{net.logs / "page.crt"}"', f'page-key = "{net.logs / "page.key"}"']

    def keyed(*variants):
        write(*variants)
        text = net.office.policy.read_text()
        text = re.sub(r"^page.*\n", "", text, flags=re.M)
        text = text.replace("[gateway]\n", "[gateway]\n" + "".join(f"{line}\n" for line in keys), 1)
        text += f'\n[[rule]]\nname = "page"\nfrom = "lan"\nto = "self"\nprotocol = "tcp"\ndport = {PORT}\naction = "accept"\n'
        net.office.policy.write_text(text)

    net.office.stop()
    net.office.write = keyed
    net.office.start()
    yield f"https://{GATEWAY}:{PORT}/api/v1"
    net.office.stop()
    net.office.write = write
    net.office.start()


def test_off_loopback_it_takes_tls_and_a_login(net, page, tls):
    ca = "--cacert", str(net.logs / "page.crt")
    assert ask(net, "/status", None, *ca, base=tls, host=net.client, check=False)[0] == 401
    assert ask(net, "/status", page["read"], *ca, base=tls, host=net.client)[0] == 200
    assert ask(net, "/status", page["read"], base=tls.replace("https", "http"), host=net.client, check=False)[0] != 200
    cookie = ask(net, "/login", None, *ca, *JSON, "-d", json.dumps({"token": page["read"]}), "-D", "-", base=tls, host=net.client)[1]
    assert re.search(r"set-cookie: __Host-wirerate=[0-9a-f]{64};.*HttpOnly; SameSite=Strict; Secure", cookie, re.I)


def test_a_renewed_certificate_is_taken_up(net, page, tls):
    crt, key = certificate(net, "second")
    assert f"the certificate of the page, {net.logs / 'page.crt'}, expires at " in net.office.log()
    before = "--cacert", str(net.logs / "first.crt")
    after = "--cacert", str(crt)
    assert ask(net, "/me", page["read"], *before, base=tls, host=net.client)[0] == 200
    # A key of another certificate changes nothing, and is named.
    shutil.copy(key, net.logs / "page.key")
    wait.until(lambda: ask(net, "/me", page["read"], *before, base=tls, host=net.client)[0] and "the certificate before stays in use" in net.office.log(), "the fault is named", 20)
    assert str(net.logs / "page.key") in net.office.log()
    shutil.copy(crt, net.logs / "page.crt")
    wait.until(lambda: ask(net, "/me", page["read"], *after, base=tls, host=net.client, check=False)[0] == 200, "the new certificate", 20)


# ---- A proxy

NGINX = """
daemon off;
user root;
pid {logs}/nginx.pid;
error_log {logs}/nginx.error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {logs}/nginx-body;
    proxy_temp_path {logs}/nginx-proxy;
    fastcgi_temp_path {logs}/nginx-fastcgi;
    uwsgi_temp_path {logs}/nginx-uwsgi;
    scgi_temp_path {logs}/nginx-scgi;
    server {{
        listen 127.0.0.1:8443 ssl;
        server_name edge.example.net;
        ssl_certificate {crt};
        ssl_certificate_key {key};
        location / {{
            proxy_pass http://{here};
            {more}
        }}
    }}
}}
"""


@pytest.fixture
def nginx(request):
    """What a test of the page by a proxy needs."""
    if not shutil.which("nginx"):
        why = "SKIPPED: not installed: nginx (./setup test)"
        (pytest.fail if request.config.getoption("must_run") else pytest.skip)(why)


@contextlib.contextmanager
def proxy(net, more=""):
    """nginx on the gateway, which ends TLS; the address at which a browser finds it."""
    crt, key = certificate(net, "edge")
    config = net.logs / "nginx.conf"
    config.write_text(NGINX.format(logs=net.logs, crt=crt, key=key, here=HERE, more=more))
    running = net.gateway.start("nginx", "-p", net.logs, "-e", net.logs / "nginx.error.log", "-c", config, log="nginx")
    try:
        wait.until(lambda: net.gateway.listens(8443), "nginx listens")
        yield f"https://{PROXY}"
    finally:
        stop(running, signal.SIGTERM)


@pytest.mark.parametrize("more", ["", "proxy_set_header Host $http_host;"], ids=["its own name", "the name asked for"])
def test_by_a_proxy_that_ends_tls_the_page_is_as_it_is_and_other_sites_get_nothing(net, page, nginx, more):
    with proxy(net, more) as origin:
        base = f"{origin}/api/v1"
        here = "-k", "--resolve", f"{PROXY}:127.0.0.1"
        login = json.dumps({"token": page["change"]})

        def asked(route, *headers, data="", options=()):
            words = [word for header in headers for word in ("-H", header)]
            return ask(net, route, None, *here, *JSON, "-d", data, *options, *words, base=base, check=False)

        code, said = asked("/login", f"Origin: {origin}", "Sec-Fetch-Site: same-origin", data=login, options=("-D", "-"))
        cookie = re.search(r"set-cookie: (__Host-wirerate=[0-9a-f]{64});.*HttpOnly; SameSite=Strict; Secure", said, re.I)
        assert code == 200 and cookie, said
        session = f"Cookie: {cookie[1]}"
        # No policy is on trial.
        assert asked("/rollback", session, f"Origin: {origin}", "Sec-Fetch-Site: same-origin")[0] == 409
        for other in ["https://evil.example", "https://edge.example.net", f"http://{PROXY}", f"http://{HERE}.evil.example", "null"]:
            assert asked("/rollback", session, f"Origin: {other}")[0] == 403, other
            assert asked("/login", f"Origin: {other}", data=login)[0] == 403, other
        assert asked("/rollback", session, f"Origin: {origin}", "Sec-Fetch-Site: cross-site")[0] == 403
        if more:
            # A name that somebody else makes resolve to the proxy.
            assert asked("/rollback", session, "Host: evil.example")[0] == 403


def test_a_person_logs_in_and_acts_by_a_proxy(net, page, nginx, tmp_path, request):
    if lacking := chromium.missing():
        why = f"SKIPPED: not installed: {lacking} (./setup test)"
        (pytest.fail if request.config.getoption("must_run") else pytest.skip)(why)
    options = "--ignore-certificate-errors", "--host-resolver-rules=MAP edge.example.net 127.0.0.1"
    with proxy(net) as origin, chromium.at(f"{origin}/", net.gateway.namespace, tmp_path / "profile", *options) as driver:
        person = Person(driver)
        person.login(page["change"])
        (cookie,) = driver.get_cookies()
        assert cookie["name"] == "__Host-wirerate" and cookie["secure"] and cookie["httpOnly"]
        # A change, by the page's own requests: none of this name is there, and that is the gateway's word, not the admission's.
        post = """
            const [route, done] = arguments;
            fetch(route, {method: "POST", headers: {"content-type": "application/json"}, body: "{}"}).then(answer => done(answer.status));
        """
        assert driver.execute_async_script(post, "/api/v1/rollback") == 409
        driver.delete_all_cookies()
        assert driver.execute_async_script(post, "/api/v1/rollback") == 401


def test_a_page_that_cannot_be_is_refused_with_what_to_do(net, page):
    text = re.sub(r"^page.*\n", "", net.office.policy.read_text(), flags=re.M)
    path = net.logs / "faulty.toml"
    for keys, words in [
        ('page = "127.0.0.1:9479"', ["wirerate token add"]),
        (f'page = "{GATEWAY}:9479"\npage-tokens = "/x"', ["page-certificate", "ssh -L"]),
        ('page-tokens = "/x"', ["page = "]),
    ]:
        path.write_text(text.replace("[gateway]\n", f"[gateway]\n{keys}\n", 1))
        done = net.gateway.run(binary(), "check", path, check=False)
        said = " ".join(done.stdout.split())
        assert done.returncode == 1 and all(word in said for word in words), done.stdout
    for file, words in [(net.logs / "absent", ["absent", "token add"]), (path, ["line 1", "wirerate token"])]:
        policy = net.logs / "no-users.toml"
        policy.write_text(text.replace("[gateway]\n", f'[gateway]\npage = "127.0.0.1:9480"\npage-tokens = "{file}"\n', 1))
        path.write_text("nonsense\n")
        done = net.gateway.run(binary(), "run", policy, "--socket", net.logs / "other.sock", "--no-state", check=False)
        assert done.returncode == 4 and all(word in done.stdout for word in words), done.stdout


# ---- Many


def test_a_thousand_clients_hurt_nobody(net, page):
    """Idle ones, slow ones, and ones that ask and do not read: the page answers others, and so does the gateway."""
    begun = [
        b"",
        b"GET /api/v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ",
        f"GET /api/v1/flows HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {page['read']}\r\n\r\n".encode(),
        b"POST /api/v1/login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n{",
    ]
    with contextlib.ExitStack() as stack, inside(net.gateway.namespace):
        for number in range(1000):
            client = stack.enter_context(socket.socket())
            client.settimeout(5)
            client.connect(("127.0.0.1", PORT))
            with contextlib.suppress(OSError):
                client.sendall(begun[number % 3 if number < 960 else 3])
        start = time.monotonic()
        assert ask(net, "/status", page["read"])[0] == 200
        assert time.monotonic() - start < 10
        assert net.office.ask("status", timeout=5).returncode == 0
        net.client.reaches(REMOTE)
        files = len(list(Path(f"/proc/{net.office.process.pid}/fd").iterdir()))
        assert files < 300, files
    wait.until(lambda: ask(net, "/status", page["read"])[0] == 200, "the page answers afterwards")


FLOWS = 1_000_000 if os.environ.get("WIRERATE_LONG") else 150_000
"""Flows that the gateway has while the page is asked."""


@pytest.mark.longest(300)
def test_it_answers_at_once_with_very_many_flows(net, page):
    """Each answer of a search comes in bounded time, however many flows there are; the search goes on from its end."""
    text = net.office.policy.read_text().replace("flows = 262144", "flows = 1048576")
    path = net.logs / "many.toml"
    path.write_text(text + '\n[timeout]\nudp-unanswered = "10m"\n')
    net.office.ask("apply", path, timeout=60)
    with net.client.wire("eth0") as wire:
        to, own = net.gateway.mac("lan"), net.client.mac()
        for number in range(FLOWS):
            packet = udp6(CLIENT6, REMOTE6, 1024 + number % 60_000, 7 + number // 60_000, b"x")
            wire.send(ethernet(to, own, packet, 0x86DD))
            if number % 5_000 == 4_999:
                # No faster than the gateway takes them.
                wait.until(lambda: told(net, "/status", page["read"])["flows"] > number * 0.9, f"{number} flows", 5)
    flows = told(net, "/status", page["read"])["flows"]

    def times(route, count=15):
        taken = []
        with inside(net.gateway.namespace):
            for _ in range(count):
                start = time.monotonic()
                with socket.create_connection(("127.0.0.1", PORT)) as client:
                    client.sendall(f"GET /api/v1{route} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {page['read']}\r\n\r\n".encode())
                    while client.recv(1 << 16):
                        pass
                taken.append(time.monotonic() - start)
        return sorted(taken)

    for route in ["/status", "/ports", "/rules", "/drops", "/flows?limit=100", "/flows?limit=100&port=9", "/flows?limit=100&host=203.0.113.77"]:
        taken = times(route)
        print(f"{route}: median {taken[len(taken) // 2] * 1000:.1f} ms, most {taken[-1] * 1000:.1f} ms, of {flows} flows")
    # By pages, every flow is there once.
    seen, after = [], None
    while True:
        listed = told(net, "/flows?protocol=udp&limit=10000" + (f"&after={after}" if after else ""), page["read"])
        seen += [(flow["source"], flow["sport"], flow["destination"], flow["dport"]) for flow in listed["flows"]]
        after = listed.get("next")
        if not after:
            break
    assert len(seen) == len(set(seen)) and len(seen) > FLOWS * 0.9, (len(seen), len(set(seen)))
    ended = told(net, "/flows/kill?protocol=udp", page["operate"], *JSON)["ended"]
    assert ended >= FLOWS * 0.9
    net.office.apply()


# ---- A browser


@pytest.fixture
def browser(net, page, tmp_path, request):
    """Headless Chromium in the gateway's namespace, at the page."""
    if lacking := chromium.missing():
        why = f"SKIPPED: not installed: {lacking} (./setup test)"
        (pytest.fail if request.config.getoption("must_run") else pytest.skip)(why)
    with chromium.at(f"http://{HERE}/", net.gateway.namespace, tmp_path / "profile") as driver:
        yield driver


def test_a_person_sees_how_it_is(net, page, browser):
    person = Person(browser)
    person.login(page["operate"])
    net.client.reaches(REMOTE)
    person.sees("Interfaces", "lan", "wan", "bit/s", "operate (operate)")
    assert "Audit" not in person.find("#views").text
    person.goes("flows")
    net.client.reaches(REMOTE)
    person.find("#search input[name=host]").send_keys(CLIENT)
    person.clicks("#search button")
    person.sees(CLIENT, REMOTE)
    person.goes("rules")
    person.sees("Never matched")
    person.goes("queues")
    person.sees("Queues of trees")
    person.goes("zones")
    person.sees("what rules accept", "lan", "self")
    assert len(browser.find_elements("css selector", "svg.map circle")) >= 4
    # Each field has a label, each table a caption, and the page a language.
    for view in ["status", "flows", "drops", "rules", "sets", "mappings", "queues", "zones", "explain", "policy"]:
        person.goes(view)
        bare = browser.execute_script(
            "return [...document.querySelectorAll('input,select,textarea')].filter((e) => !e.labels.length && !e.ariaLabel).length"
            " + [...document.querySelectorAll('table')].filter((e) => !e.caption).length + (document.documentElement.lang ? 0 : 1)"
        )
        assert bare == 0, view


def test_a_person_finds_and_ends_a_flow(net, page, browser):
    person = Person(browser)
    person.login(page["operate"])
    listener = net.remote.listen(80)
    connection = net.client.connect(REMOTE, 80)
    port = connection.getsockname()[1]
    person.goes("flows")
    person.find("#search input[name=port]").send_keys(str(port))
    person.clicks("#search button")
    person.sees(f"{CLIENT}:{port}")
    person.clicks("#kill")
    wait.until(lambda: browser.switch_to.alert or True, "the question")
    assert str(port) in browser.switch_to.alert.text
    browser.switch_to.alert.accept()
    person.sees("ended 1 flow", "no flow matches")
    connection.close()
    listener.close()


def test_a_person_maps_a_port_and_takes_it_back(net, page, browser):
    net.office.apply("port-mapping")
    try:
        person = Person(browser)
        person.login(page["operate"])
        person.goes("mappings")
        person.sees("0 port mappings")
        for field, text in [("inside", SERVER), ("inside_port", "9140"), ("port", "18140"), ("description", "a game")]:
            person.find(f"#map input[name={field}]").send_keys(text)
        person.clicks("#map button")
        person.sees("1 port mapping", f"{OUTSIDE}:18140", f"{SERVER}:9140", "operator", "never", "a game")
        with net.server.listen(9140), net.remote.connect(OUTSIDE, 18140):
            pass
        person.clicks("tbody button")
        person.sees("0 port mappings", "1 made")
        with pytest.raises(OSError):
            net.remote.connect(OUTSIDE, 18140, timeout=0.5)
        person.find("#map input[name=port]").clear()
        person.find("#map input[name=port]").send_keys("443")
        person.clicks("#map button")
        person.sees("the port is in use, set aside, or may not be asked for")
    finally:
        net.office.apply()


def test_a_person_bans_an_address_and_lifts_the_ban(net, page, browser):
    net.office.apply("sets")
    try:
        person = Person(browser)
        person.login(page["operate"])
        person.goes("sets")
        person.sees("banned", "rules and requests", "0 of 65,536")
        person.clicks("main button", "Show")
        person.find("#add input[name=list]").send_keys(f"{STRANGER}, 2001:db8:7::/48")
        person.find("#add input[name=timeout]").send_keys("1h")
        person.clicks("#add button")
        person.sees("2 added", STRANGER, "2001:db8:7::/48", "in 60 min", "2 of 65,536")
        assert not net.stranger.ping(OUTSIDE)
        person.clicks("tbody tr", STRANGER, inside="button")
        person.sees("1 removed", "1 of 65,536")
        assert net.stranger.ping(OUTSIDE)
        person.find("#add input[name=list]").send_keys("nonsense")
        person.clicks("#add button")
        person.sees("neither an address nor a network")
    finally:
        net.office.apply()


def test_a_person_sees_the_last_packets_dropped(net, page, browser):
    net.office.apply("no-chat")
    try:
        with pytest.raises(OSError):
            net.client.connect(REMOTE, 6667, timeout=0.5)
        person = Person(browser)
        person.login(page["operate"])
        person.goes("drops")
        person.sees("rule-drop")
        person.clicks("main button", "rule-drop")
        person.sees("Last packets of rule-drop", f"{REMOTE}:6667", "no-chat")
    finally:
        net.office.apply()


def test_a_person_has_a_packet_explained(net, page, browser):
    person = Person(browser)
    person.login(page["read"])
    person.goes("explain")
    person.find("#fields input[name=source]").send_keys(CLIENT)
    person.find("#fields input[name=destination]").send_keys(REMOTE)
    packet = person.find("#explain input").get_attribute("value")
    assert packet.endswith(f"tcp {CLIENT}:40000 > {REMOTE}:443 syn"), packet
    person.clicks("#explain button")
    assert person.find("#verdict").text == "forwarded"
    person.sees("filter", "out by wan")


def test_a_person_applies_confirms_and_rolls_back(net, page, browser):
    person = Person(browser)
    person.login(page["change"])

    def propose(name):
        person.goes("status")
        person.goes("policy")
        area = person.find("#policy")
        wait.until(lambda: "[interface.lan]" in area.get_attribute("value"), "the policy")
        rule = f'\n[[rule]]\nname = "{name}"\nfrom = "lan"\nto = "wan"\nprotocol = "tcp"\ndport = 4243\naction = "drop"\n'
        browser.execute_script("arguments[0].value += arguments[1]; arguments[0].dispatchEvent(new Event('input'))", area, rule)
        assert not person.find("#apply").is_enabled()
        person.clicks("#check")
        person.sees("1 change", f"add rule {name}")
        person.clicks("#apply")
        person.sees("A policy is on trial")

    def has(name):
        return f'name = "{name}"' in net.office.ask("policy", "show").stdout

    propose("on-trial")
    assert has("on-trial")
    person.clicks("#rollback")
    wait.until(lambda: not has("on-trial"), "the policy before")
    person.sees("Rolled back: the policy before is in force again.")
    propose("for-good")
    person.clicks("#confirm")
    wait.until(lambda: json.loads(net.office.ask("status", "--json").stdout)["trial_seconds"] is None, "confirmed")
    assert has("for-good")
    person.sees("Confirmed: it is in force for good.", ", in force")
    person.goes("audit")
    person.sees("POST /api/v1/apply?confirm=60", "POST /api/v1/rollback", "POST /api/v1/confirm")
    net.office.apply()


def test_what_comes_from_the_network_is_text(net, page, browser):
    """Names that an enemy, or a careless operator, chose: shown as they are, and nothing of them runs."""
    net.office.ask("apply", net.office.policy, "--comment", HOSTILE)
    person = Person(browser)
    person.login(page["change"])
    person.goes("policy")
    person.sees(HOSTILE)
    browser.execute_script("location.hash = '<img src=x onerror=document.title=1>'")
    person.goes("explain")
    person.find("#explain input").send_keys(f"lan {HOSTILE}")
    person.clicks("#explain button")
    person.sees("<img src=x")
    assert "owned" not in browser.title
    assert not browser.find_elements("css selector", "img, main script")
    # Nor can it become markup by a mistake to come.
    assert browser.execute_script("try { document.body.innerHTML = '<b>'; return 'markup' } catch { return 'refused' }") == "refused"


def test_a_wrong_token_is_told_and_a_session_ends(net, page, browser):
    person = Person(browser)
    person.find("#login input").send_keys("wirerate_wrong\n")
    person.sees("no user has this token")
    assert len(browser.get_cookies()) == 0
    person.login(page["read"])
    (cookie,) = browser.get_cookies()
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict"
    assert browser.execute_script("return document.cookie") == ""
    person.clicks("#logout")
    person.find("#login")
    assert ask(net, "/me", None, "-H", f"Cookie: wirerate={cookie['value']}", check=False)[0] == 401


def test_it_fits_on_a_phone(net, page, browser):
    browser.set_window_size(500, 800)
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True})
    person = Person(browser)
    person.login(page["operate"])
    for view in ["status", "flows", "drops", "rules", "sets", "mappings", "queues", "zones", "explain", "policy"]:
        person.goes(view)
        wide, there = browser.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
        assert wide <= there, (view, wide, there)
