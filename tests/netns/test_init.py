"""`wirerate init` on a machine with two cables: the policy that it writes is carried out, and does what it says."""

import contextlib
import json
import re
import shutil
import socket

import gateway as gateways
import pytest
from edge import CLIENT, GATEWAY, PROVIDER, REMOTE, Edge
from gateway import binary, missing
from transfer import transfer

WAN = "203.0.113.2"
SSH, WEB = 22, 80


@pytest.fixture(scope="module")
def edge():
    if lacking := missing("wirerate-packet"):
        pytest.skip(f"SKIPPED: {lacking}")
    edge = Edge()
    # Linux has all addresses: by hand here, by DHCP in test_dhcp.py.
    edge.gateway.ip(
        f"addr add {GATEWAY}/24 dev lan",
        f"addr add {WAN}/24 dev wan",
        f"route add default via {PROVIDER}",
    )
    yield edge
    edge.close()
    shutil.rmtree(edge.logs, ignore_errors=True)


@pytest.fixture
def policy(edge):
    path = edge.logs / "init.toml"
    yield path
    path.unlink(missing_ok=True)


def init(edge, *words, check=True):
    return edge.gateway.run(binary(), "init", "--nft", "auto", *words, check=check)


@contextlib.contextmanager
def carried_out(edge, policy, under=()):
    """A gateway by the policy, as it was written."""

    class Written(gateways.Wirerate):
        name = "wirerate-init"
        driver = "auto"

        def write(self, *_):
            self.policy.write_text(policy.read_text())

    office = Written(edge)
    office.under = list(under)
    office.start()
    try:
        edge.client.reaches(GATEWAY)
        yield office
    finally:
        office.stop()
        edge.gateway.run(binary(), "release", check=False)


def is_shut(who, to, server, port):
    """Silence, and the program that listens never hears of it."""
    with server.listen(port) as listening:
        with pytest.raises(socket.timeout):
            who.connect(to, port, timeout=0.5)
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.accept()


def test_a_router_is_written_and_masquerades(edge, policy):
    said = init(edge, "--yes", "--out", policy).stdout
    assert re.search(r"internet +wan\n +inside +lan\n +SSH +port 22 from lan\n", said), said
    assert "wirerate check" in said and "systemctl enable --now wirerate" in said, said
    assert "is sound" in edge.gateway.run(binary(), "check", policy).stdout
    packet = re.search(r"sudo wirerate explain --live '(.*)'", said)[1]
    assert packet == f"wan tcp 198.51.100.7:50000 > {WAN}:22 syn"
    with carried_out(edge, policy) as office:
        assert "dropped (default-drop)" in office.ask("explain", "--live", packet).stdout
        # The provider has no route to 192.168.1.0/24: what reached it untranslated would get no answer.
        with edge.provider.listen(WEB) as server:
            with edge.client.connect(REMOTE, WEB):
                served, (address, _) = server.accept()
                served.close()
                assert address == WAN
        transfer(edge.client, edge.provider, REMOTE, WEB, upload=100_000, download=100_000)
        transfer(edge.client, edge.gateway, GATEWAY, SSH, upload=10_000, download=10_000)
        assert edge.provider.ping(WAN) and edge.client.ping(GATEWAY)
        for port in [SSH, WEB]:
            is_shut(edge.provider, WAN, edge.gateway, port)
        is_shut(edge.client, GATEWAY, edge.gateway, WEB)


def test_the_rights_of_a_container_are_enough(edge, policy):
    """Those that the page on installation gives it, and no others."""
    init(edge, "--yes", "--out", policy)
    page = (gateways.ROOT / "docs" / "install.md").read_text()
    rights = re.search(r"--cap-drop all .*--cap-add (\S+)", page, re.DOTALL)[1].lower().split(",")
    wanted = ",".join(f"+{right}" for right in rights)
    with carried_out(edge, policy, ["setpriv", f"--bounding-set=-all,{wanted}"]) as office:
        assert "stays root" in office.evidence()
        transfer(edge.client, edge.provider, REMOTE, WEB, upload=100_000, download=100_000)
        is_shut(edge.provider, WAN, edge.gateway, SSH)
        guards = json.loads(office.ask("status", "--json").stdout)["guards"]
        assert all(guard["pin"] for guard in guards), guards


def test_ssh_is_open_to_whom_one_asks_for(edge, policy):
    init(edge, "--wan", "wan", "--lan", "lan", "--ssh-from", f"{PROVIDER}/32", "--out", policy)
    with carried_out(edge, policy):
        transfer(edge.provider, edge.gateway, WAN, SSH, upload=10_000, download=10_000)
        is_shut(edge.client, GATEWAY, edge.gateway, SSH)


def test_a_host_without_an_inside_forwards_nothing(edge, policy):
    init(edge, "--wan", "wan", "--wan", "lan", "--lan", "none", "--ssh-from", "anywhere", "--out", policy)
    with carried_out(edge, policy):
        transfer(edge.provider, edge.gateway, WAN, SSH, upload=10_000, download=10_000)
        with edge.provider.listen(WEB), pytest.raises(socket.timeout):
            edge.client.connect(REMOTE, WEB, timeout=0.5)


def test_rules_of_nftables_go_on(edge, policy):
    """A port forward, and masquerading, by rules that let everything else through as well."""
    rules = f"""
    table ip nat {{
        chain pre {{ type nat hook prerouting priority -100; iifname "wan" tcp dport 8080 dnat to {CLIENT}:{WEB}; }}
        chain post {{ type nat hook postrouting priority 100; oifname "wan" masquerade; }}
    }}
    """
    edge.gateway.run("nft", "-f", "-", input=rules)
    try:
        said = init(edge, "--yes", "--out", policy).stdout
        assert "Rules of nftables go on" in said, said
    finally:
        edge.gateway.run("nft", "flush", "ruleset")
    with carried_out(edge, policy):
        with edge.client.listen(WEB) as server:
            with edge.provider.connect(WAN, 8080):
                server.accept()[0].close()
        transfer(edge.client, edge.provider, REMOTE, WEB, upload=10_000, download=10_000)
        is_shut(edge.provider, WAN, edge.gateway, SSH)
        is_shut(edge.provider, WAN, edge.gateway, WEB)


def test_no_file_is_written_over(edge, policy):
    policy.write_text("# mine\n")
    refused = init(edge, "--yes", "--out", policy, check=False)
    assert refused.returncode == 3 and "--force" in refused.stdout, refused.stdout
    assert policy.read_text() == "# mine\n"
    init(edge, "--yes", "--force", "--out", policy)
    assert "[interface.wan]" in policy.read_text()
    assert policy.stat().st_mode & 0o777 == 0o644
    # The file that the package brings has nothing of anybody's.
    packaged = gateways.ROOT / "packaging" / "policy.toml"
    policy.write_text(packaged.read_text())
    init(edge, "--yes", "--out", policy)
    assert "[interface.wan]" in policy.read_text()


def test_without_a_terminal_the_missing_flag_is_named(edge, policy):
    refused = init(edge, "--wan", "wan", "--out", policy, check=False)
    assert refused.returncode == 2, refused.stdout
    assert "--lan is missing" in refused.stdout
    assert "wirerate init --wan wan --lan lan --ssh-from lan" in refused.stdout, refused.stdout
    assert not policy.exists()


def test_a_session_is_not_cut_off(edge, policy):
    """The session is known through what takes it out of the environment, as sudo does."""
    run = f"{binary()} init --wan wan --lan lan --ssh-from lan --nft none --out {policy}"
    session = f"SSH_CONNECTION='198.51.100.7 50000 {WAN} 2222'"
    # A login shell has it, what the shell starts has not; neither becomes the program that it starts.
    inner = f"env -u SSH_CONNECTION sh -c '{run}; exit $?'; exit $?"
    within = edge.gateway.run("sh", "-c", f'{session} sh -c "{inner.replace("$", chr(92) + "$")}"', check=False)
    assert within.returncode == 2 and "198.51.100.7" in within.stdout, within.stdout
    within = edge.gateway.run("sh", "-c", f"{session} {run} --ssh-from 198.51.100.7")
    assert "port 2222 from lan, 198.51.100.7" in within.stdout, within.stdout
