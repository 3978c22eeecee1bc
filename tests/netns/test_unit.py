"""The gateway as the packaged unit has systemd run it: its user, capabilities, system calls and address families."""

import importlib.util
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from gateway import HERE
from thread import threads
from topology import GATEWAY, GATEWAY6, REMOTE
from transfer import transfer
from unit import NOBODY, UNIT

VARIANTS = ["two-workers"]

pytestmark = [
    pytest.mark.without("nftables", why="Linux has no unit"),
    pytest.mark.usefixtures("running"),
]


@pytest.fixture
def packaged(net):
    """The gateway under the unit's restrictions; then as it was."""
    if importlib.util.find_spec("seccomp") is None or shutil.which("systemd-analyze") is None:
        pytest.skip("SKIPPED: there is no python3-seccomp or no systemd-analyze, which say what the unit's filter lets through")
    office = net.office
    office.stop()
    before = office.socket, office.state
    own = net.logs / "own"
    own.mkdir(exist_ok=True)
    os.chown(own, NOBODY, NOBODY)
    net.logs.chmod(0o711)
    guards_of(NOBODY)
    office.socket, office.state = own / "gateway.sock", own / "state"
    office.under = ["/usr/bin/python3", HERE / "unit.py"]
    office.start()
    net.client.reaches(GATEWAY)
    yield office
    office.stop()
    office.under = []
    # A gateway of root takes over what is another user's before it gives up what passes by permissions.
    office.socket, office.state = before
    office.start()
    net.client.reaches(GATEWAY)
    told = json.loads(office.ask("status", "--json").stdout)["guards"]
    assert all(guard["pin"] for guard in told), told


def guards_of(user):
    """What the unit's ExecStartPre= do."""
    guards = Path(os.environ["WIRERATE_GUARDS"])
    guards.parent.chmod(0o711)
    guards.mkdir(0o700, exist_ok=True)
    subprocess.run(["chown", "-R", f"{user}:{user}", guards], check=True)


def test_it_does_all_that_it_is_for(net, packaged):
    """A system call that the unit does not name would end it."""
    transfer(net.client, net.remote, REMOTE, 80, upload=200_000, download=200_000)
    net.client.reaches(GATEWAY6)
    packaged.apply()
    packaged.ask("status")
    packaged.ask("save", net.logs / "saved")
    packaged.ask("load", net.logs / "saved")
    # An interface that goes and comes is opened by another thread, at another time.
    net.gateway.run("ip", "link", "set", "lan", "down")
    net.gateway.run("ip", "link", "set", "lan", "up")
    net.client.reaches(GATEWAY)
    with net.remote.listen(81) as listener, net.client.connect(REMOTE, 81) as client:
        there, _ = listener.accept()
        with there:
            packaged.stop()
            assert packaged.process.returncode == 0
            packaged.start()
            net.client.reaches(GATEWAY)
            client.sendall(b"after a restart")
            assert there.recv(100) == b"after a restart"


def test_its_system_calls_are_few(net, packaged):
    """The filter is on: /proc says so of every thread."""
    running = threads(packaged.process)
    assert running
    for thread in running:
        assert thread["Seccomp"] == "2"
        assert thread["NoNewPrivs"] == "1"
        assert thread["Uid"].split() == [str(NOBODY)] * 4
    confinement = json.loads(packaged.ask("status", "--json").stdout)["confinement"]
    assert confinement["landlock"] and confinement["seccomp"], confinement


def test_systemd_understands_the_unit(tmp_path):
    """No key is misspelt, and no system call unknown."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("SKIPPED: there is no systemd-analyze")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/usr/local/bin/wirerate", "/bin/true"))
    told = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
    about = [line for line in told.stderr.splitlines() if UNIT.name in line]
    assert not about, about
