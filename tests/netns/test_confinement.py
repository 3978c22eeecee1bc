"""What the gateway's process may do: its user, capabilities, files and system calls. It gives up the rest by itself, without systemd."""

import json
import os
import pwd
import signal
import subprocess

import pytest
import user
import wait
from gateway import HERE, binary
from test_interface import works
from test_log import RULES, to_telnet
from thread import threads
from topology import GATEWAY, REMOTE
from transfer import transfer

VARIANTS = ["two-workers"]

pytestmark = [
    pytest.mark.without("nftables", why="Linux has no process"),
    pytest.mark.usefixtures("running"),
]

USER = pwd.getpwnam("daemon")
"""A user of every machine, in the place of `wirerate`."""

NO_GATEWAY = 4

NEEDED = {12: "CAP_NET_ADMIN", 13: "CAP_NET_RAW", 14: "CAP_IPC_LOCK", 39: "CAP_BPF"}


def confinement(office):
    return json.loads(office.ask("status", "--json").stdout)["confinement"]


def capabilities(thread):
    held = int(thread["CapEff"], 16)
    return {number for number in range(64) if held >> number & 1}


def guards(office):
    return {guard["interface"]: guard for guard in json.loads(office.ask("status", "--json").stdout)["guards"]}


@pytest.fixture
def as_user(net):
    """The gateway begun as root, with a user to become, and directories called `wirerate`; then as it was."""
    yield from begun(net, f"WIRERATE_USER={USER.pw_name}")


@pytest.fixture
def as_system_user(net):
    """The same, on a machine that has a user `wirerate`, and nobody said which user to become."""
    yield from begun(net, "--system-user", "wirerate")


def begun(net, *how):
    office = net.office
    office.stop()
    before = office.socket, office.state
    net.logs.chmod(0o711)
    own = net.logs / "wirerate"
    office.socket, office.state = own / "gateway.sock", own / "state"
    office.under = ["/usr/bin/python3", HERE / "user.py", *how]
    office.start()
    net.client.reaches(GATEWAY)
    yield office
    office.stop()
    office.under = []
    office.socket, office.state = before
    office.start()
    net.client.reaches(GATEWAY)
    subprocess.run(["rm", "-r", own], check=True)


def test_it_leaves_itself_what_it_needs(net):
    """As root, by default, where there is no user of its own."""
    for thread in threads(net.office.process):
        assert (thread["NoNewPrivs"], thread["Seccomp"]) == ("1", "2")
        assert capabilities(thread) <= set(NEEDED), thread["CapEff"]
        assert {12, 13, 39} <= capabilities(thread), thread["CapEff"]
        assert capabilities({"CapEff": thread["CapBnd"]}) == capabilities(thread)
    told = confinement(net.office)
    assert told["user"] == "root" and told["seccomp"] and told["landlock"] >= 3, told
    assert any("no user \"wirerate\"" in note for note in told["notes"]), told
    assert "Landlock ABI" in net.office.ask("status").stdout


def test_it_becomes_a_user_of_its_own(net, as_user):
    for thread in threads(as_user.process):
        assert thread["Uid"].split() == [str(USER.pw_uid)] * 4
        assert thread["Gid"].split() == [str(USER.pw_gid)] * 4
        assert thread["Groups"] == ""
        assert (thread["NoNewPrivs"], thread["Seccomp"]) == ("1", "2")
        assert capabilities(thread) <= set(NEEDED), thread["CapEff"]
    assert confinement(as_user)["user"] == USER.pw_name
    # Root asks, too; others do not.
    other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    refused = net.gateway.run(*other, binary(), "status", "--socket", as_user.socket, check=False)
    assert refused.returncode != 0, refused.stdout
    for kept in guards(as_user).values():
        assert kept["pin"] and os.stat(f"{kept['pin']}-ingress").st_uid == USER.pw_uid, kept


def test_it_becomes_the_user_that_is_made_for_it(net, as_system_user):
    """Where that is in nobody's way: a directory that is not the gateway's own would be."""
    office = as_system_user
    assert {thread["Uid"] for thread in threads(office.process)} == {"\t".join([str(user.UID)] * 4)}
    assert confinement(office)["user"] == "wirerate" and confinement(office)["notes"] == []
    office.stop()
    own, office.state = office.state, net.logs / "state"
    office.start()
    net.client.reaches(GATEWAY)
    told = confinement(office)
    assert told["user"] == "root", told
    assert any(f"cannot make files in {net.logs}" in note for note in told["notes"]), told
    office.stop()
    office.state = own
    office.start()
    net.client.reaches(GATEWAY)
    assert confinement(office)["user"] == "wirerate"


def test_it_does_all_that_it_is_for(net, as_user):
    transfer(net.client, net.remote, REMOTE, 80, upload=200_000, download=200_000)
    # Another policy, and its history.
    as_user.apply()
    kept = sorted((as_user.state.parent / "policy").glob("*.toml"))
    assert kept and all(path.stat().st_uid == USER.pw_uid for path in kept), kept
    # A log file, moved away and opened again.
    log = as_user.state.parent / "records.json"
    as_user.write()
    text = as_user.policy.read_text().replace("[gateway]\n", f'[gateway]\nlog = "file:{log}"\n', 1)
    as_user.policy.write_text(text + RULES)
    as_user.process.send_signal(signal.SIGHUP)
    wait.until(lambda: "no-telnet" in as_user.ask("rules").stdout, "the policy file is read again")
    to_telnet(net)
    wait.until(lambda: log.exists() and log.read_text(), "a record is written")
    log.rename(log.with_suffix(".old"))
    as_user.process.send_signal(signal.SIGHUP)

    def is_written():
        to_telnet(net)
        return log.exists() and log.read_text()

    wait.until(is_written, "the file is opened again")
    assert log.stat().st_uid == USER.pw_uid
    as_user.apply()
    # Interfaces that go and come.
    net.gateway.ip("link set lan down", "link set lan up")
    net.client.reaches(GATEWAY)
    for interface in ["lan", "wan"]:
        net.gateway.ip(f"link del {interface}")
        net.plug_gateway(interface)
        as_user.returned(interface)
        works(net)
        assert guards(as_user)[interface]["state"] == "open" and guards(as_user)[interface]["pin"]
    # State at its end and from its start on.
    with net.remote.listen(81) as listener, net.client.connect(REMOTE, 81) as client:
        there, _ = listener.accept()
        with there:
            as_user.stop()
            assert as_user.process.returncode == 0
            assert as_user.state.stat().st_uid == USER.pw_uid
            assert as_user.pins()
            as_user.start()
            net.client.reaches(GATEWAY)
            client.sendall(b"after a restart")
            assert there.recv(100) == b"after a restart"


def test_root_goes_on_with_what_a_user_left(net, as_user):
    """State, history, guards and the socket of a gateway that was another user; also of one that was killed."""
    as_user.apply()
    with net.remote.listen(82) as listener, net.client.connect(REMOTE, 82) as client:
        there, _ = listener.accept()
        with there:
            as_user.stop()
            become, as_user.under = as_user.under, []
            as_user.start()
            net.client.reaches(GATEWAY)
            assert confinement(as_user)["user"] == "root"
            client.sendall(b"as root")
            assert there.recv(100) == b"as root"
            for kept in guards(as_user).values():
                assert kept["pin"] and os.stat(f"{kept['pin']}-ingress").st_uid == 0, kept
            as_user.apply()
            as_user.under = become
            as_user.stop()
            # And back.
            as_user.start()
            net.client.reaches(GATEWAY)
            client.sendall(b"as a user")
            assert there.recv(100) == b"as a user"
    as_user.kill()
    as_user.under = []
    as_user.start()
    net.client.reaches(GATEWAY)
    as_user.kill()
    as_user.under = become
    as_user.start()
    net.client.reaches(GATEWAY)


def test_root_releases_the_guards_of_a_user(net, as_user):
    as_user.stop()
    assert as_user.pins()
    net.gateway.run(binary(), "release")
    assert not as_user.pins()
    as_user.start()
    net.client.reaches(GATEWAY)
    assert as_user.pins()


def test_files_elsewhere_are_out_of_reach(net, tmp_path):
    """Landlock leaves root the directories that the gateway was begun with: another policy cannot name a log file elsewhere."""
    office = net.office
    office.write()
    elsewhere = tmp_path / "records.json"
    named = office.policy.read_text().replace("[gateway]\n", f'[gateway]\nlog = "file:{elsewhere}"\n', 1)
    office.policy.write_text(named)
    refused = office.ask("apply", office.policy, check=False)
    assert refused.returncode != 0 and str(elsewhere) in refused.stdout, refused.stdout
    # From its start on it may.
    office.stop()
    command = [binary(), "run", office.policy, "--socket", office.socket, "--state", office.state]
    office.process = net.gateway.start(*command, log="wirerate")
    wait.until(office.answers, "wirerate answers on its socket")
    net.client.reaches(GATEWAY)
    office.apply()
    office.policy.write_text(named)
    office.ask("apply", office.policy)
    office.apply()


def test_confinement_can_be_switched_off(net):
    office = net.office
    office.stop()
    office.under = ["env", "WIRERATE_CONFINEMENT=off"]
    try:
        office.start()
        net.client.reaches(GATEWAY)
        for thread in threads(office.process):
            assert (thread["NoNewPrivs"], thread["Seccomp"]) == ("1", "0")
            assert capabilities(thread) <= set(NEEDED)
        told = confinement(office)
        assert told["landlock"] is None and not told["seccomp"], told
    finally:
        office.under = []
        office.stop()
        office.start()
        net.client.reaches(GATEWAY)


def test_a_user_that_is_not_there_keeps_it_from_beginning(net):
    """It was asked for, and going on as root is more than was."""
    options = ["--socket", net.logs / "other.sock", "--no-state", "--user", "nobody-of-that-name"]
    ended = net.gateway.run(binary(), "run", net.office.policy, *options, check=False, timeout=20)
    assert ended.returncode == NO_GATEWAY, ended.stdout
    assert "there is no user \"nobody-of-that-name\"" in ended.stdout, ended.stdout
