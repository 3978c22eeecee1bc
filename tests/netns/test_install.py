"""The Debian package on a machine that boots with systemd: from `apt install` to a router, over a reboot and an upgrade, and off again."""

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import chromium
import machine
import pytest
import wait
from chromium import Person
from edge import CLIENT, GATEWAY, PROVIDER, REMOTE, Edge
from gateway import binary, missing
from transfer import transfer

WAN = "203.0.113.2"
POLICY = "/etc/wirerate/policy.toml"
WEB = 80
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """The package of this command, and the one that comes after it."""
    if tool := next((tool for tool in ("dh", "rustc", "cargo") if not shutil.which(tool)), None):
        pytest.skip(f"SKIPPED: not installed: {tool} (./setup test)")
    out = tmp_path_factory.mktemp("package")
    made = []
    for revision in ["1", "2"]:
        words = ["--binary", binary(), "--compression", "none", "--revision", revision, "--out", out]
        environment = {**os.environ, "CARGO_TARGET_DIR": str(out / "target")}
        done = subprocess.run([ROOT / "packaging/package", *words], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        made.append(Path(done.stdout.strip()))
    yield made
    shutil.rmtree(out)


@pytest.fixture(scope="module", params=["this", "other"])
def files(request):
    """Directory of a Debian's files: this machine's, and the one that WIRERATE_DEBIAN names."""
    if request.param == "this":
        return "/"
    if "WIRERATE_DEBIAN" not in os.environ:
        pytest.skip("SKIPPED: WIRERATE_DEBIAN names no other Debian: tests/netns/README.md")
    return os.environ["WIRERATE_DEBIAN"]


@pytest.fixture(scope="module")
def edge(request, files):
    lacking = missing("wirerate-packet") or machine.missing() or chromium.missing()
    if lacking:
        why = f"SKIPPED: {lacking} (./setup test)"
        (pytest.fail if request.config.getoption("must_run") else pytest.skip)(why)
    edge = Edge()
    edge.gateway.ip(f"addr add {GATEWAY}/24 dev lan", f"addr add {WAN}/24 dev wan", f"route add default via {PROVIDER}")
    edge.box = machine.Machine(edge.gateway, edge.logs, files)
    yield edge
    edge.box.close()
    edge.close()
    shutil.rmtree(edge.logs, ignore_errors=True)


def masquerades(edge):
    """The provider has no route to the inside: what reached it untranslated would get no answer."""
    edge.client.reaches(REMOTE)
    with edge.provider.listen(WEB) as server, edge.client.connect(REMOTE, WEB):
        served, (address, _) = server.accept()
        served.close()
        assert address == WAN


def install(edge, package, check=True):
    edge.box.put(package, "/root/wirerate.deb")
    return edge.box.run("apt-get", "install", "--yes", "/root/wirerate.deb", check=check)


@pytest.fixture(scope="module")
def router(edge, packages, tmp_path_factory):
    """Made as a new user makes one: by the package, three answers, and the page."""
    box = edge.box
    said = install(edge, packages[0]).stdout
    assert "not started" in said and "wirerate init" in said, said
    assert box.run("systemctl", "is-enabled", "wirerate", check=False).stdout.strip() == "disabled"
    assert edge.client.ping(GATEWAY), "nothing is shut before one asks for it"
    # Enter takes each suggestion.
    said = box.run(
        "script", "-qec", "wirerate init --rate '16 Mbit/s / 8 Mbit/s' --page", "/dev/null", input="\n\n\n"
    ).stdout
    assert "wirerate token add YOU --role change" in said and "http://127.0.0.1:9479/" in said, said
    token = box.run("wirerate", "token", "add", "you", "--role", "change").stdout.splitlines()[0]
    box.run("systemctl", "enable", "--now", "wirerate")
    with chromium.at("http://127.0.0.1:9479/", edge.gateway.namespace, tmp_path_factory.mktemp("chromium") / "profile") as driver:
        person = Person(driver)
        person.login(token)
        person.sees("Interfaces", "lan", "wan", "you (change)")
        person.goes("policy")
        area = person.find("#policy")
        wait.until(lambda: "[shape.wan]" in area.get_attribute("value"), "the policy")
        driver.execute_script(
            "arguments[0].value = arguments[0].value.replace('[gateway]\\n', '[gateway]\\nlog-events = [\"connection\"]\\n');"
            "arguments[0].dispatchEvent(new Event('input'))",
            area,
        )
        person.clicks("#check")
        person.sees("1 change")
        person.clicks("#apply")
        person.sees("A policy is on trial")
        person.clicks("#confirm")
        person.sees("Confirmed: it is in force for good.", "2, in force")
    yield edge


@pytest.mark.longest(300)
def test_from_a_package_to_a_router_that_shapes_and_logs(router):
    """In five minutes at most, with neither an editor nor another command than these."""
    masquerades(router)
    start = time.monotonic()
    transfer(router.client, router.provider, REMOTE, WEB, upload=2 << 20)
    assert time.monotonic() - start > 1.5, "2 MiB take two seconds at 8 Mbit/s"
    begun = re.compile(f"connection begun: tcp {CLIENT} port [0-9]+ > {REMOTE} port {WEB} ")
    wait.until(lambda: begun.search(router.box.journal()), "the connection is in the journal")
    shown = router.box.run("systemctl", "show", "wirerate", "--property", "User,DynamicUser,Slice,ActiveState,NRestarts").stdout
    assert {"DynamicUser=yes", "ActiveState=active", "NRestarts=0", "Slice=wirerate.slice"} <= set(shown.split()), shown
    assert "confined   user " in router.box.run("wirerate", "status").stdout
    assert router.box.run("man", "--where", "wirerate-init").stdout.strip()


@pytest.mark.longest(120)
def test_it_comes_back_with_the_machine(router):
    router.box.reboot()
    masquerades(router)
    # What the page put in force is what is in force.
    assert 'log-events = ["connection"]' in router.box.run("wirerate", "policy", "show").stdout


@pytest.mark.longest(120)
def test_connections_outlive_an_upgrade(router, packages):
    masquerades(router)
    with router.provider.listen(WEB) as server, router.client.connect(REMOTE, WEB) as connection:
        served, _ = server.accept()
        before = router.box.run("systemctl", "show", "wirerate", "--property", "MainPID").stdout
        install(router, packages[1])
        assert router.box.run("systemctl", "show", "wirerate", "--property", "MainPID").stdout != before
        connection.sendall(b"still here")
        assert served.recv(100) == b"still here"
        served.close()
    refused = router.box.run("dpkg", "--install", "/root/wirerate.deb", check=False)
    assert refused.returncode == 0
    router.box.put(packages[0], "/root/wirerate.deb")
    refused = router.box.run("apt-get", "install", "--yes", "--allow-downgrades", "/root/wirerate.deb", check=False)
    assert refused.returncode != 0 and "Nothing has been changed" in refused.stdout, refused.stdout
    masquerades(router)


@pytest.mark.longest(120)
def test_it_is_removed(router):
    """Shut until one says otherwise; then Linux has everything back, and no file is left."""
    router.box.run("systemctl", "stop", "wirerate")
    with pytest.raises(OSError), router.provider.listen(WEB):
        router.client.connect(REMOTE, WEB, timeout=1)
    router.box.run("wirerate", "release")
    router.box.run("apt-get", "purge", "--yes", "wirerate")
    assert router.client.ping(GATEWAY)
    left = router.box.run("sh", "-c", "ls -d /etc/wirerate /var/lib/wirerate /var/lib/private/wirerate /var/log/wirerate /usr/bin/wirerate", check=False).stdout
    assert [line for line in left.splitlines() if "cannot access" not in line] == [], left
