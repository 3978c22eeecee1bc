"""A gateway that cannot do its work ends, and says why."""

import json
import signal

import pytest
import wait
from gateway import binary
from topology import GATEWAY

pytestmark = [
    pytest.mark.without("nftables", why="Linux has no process that could fail to begin"),
    pytest.mark.usefixtures("running"),
]

NO_GATEWAY = 4


def begin(net, policy, *before, name="second"):
    """Runs another gateway to its end, and gives that."""
    options = ["--socket", net.logs / f"{name}.sock", "--state", net.logs / f"{name}.state"]
    return net.gateway.run(*before, binary(), "run", policy, *options, check=False, timeout=20)


def test_a_second_gateway_on_the_same_interfaces_ends(net):
    """It says which interfaces it could not have, and the first one goes on."""
    ended = begin(net, net.office.policy)
    assert ended.returncode == NO_GATEWAY, ended.stdout
    assert "none of its interfaces could be opened" in ended.stdout, ended.stdout
    assert "lan" in ended.stdout and "wan" in ended.stdout
    assert "another gateway has them" in ended.stdout, ended.stdout
    assert net.office.alive()
    net.client.reaches(GATEWAY)
    assert not (net.logs / "second.sock").exists()
    # The guards are still the first one's: it opens and closes them, and by them it is reached.
    told = json.loads(net.office.ask("status", "--json").stdout)["guards"]
    states = {guard["interface"]: guard["state"] for guard in told}
    assert (states["lan"], states["wan"]) == ("open", "open"), told
    net.gateway.ip("link set lan down", "link set lan up")
    net.client.reaches(GATEWAY)


def test_without_privileges_it_ends(net):
    """Nothing that it waits for could ever come."""
    policy = net.logs / "absent.toml"
    policy.write_text('[interface.absent]\nzone = "a"\naddresses = ["192.0.2.1/24"]\n')
    for path in [net.logs, policy]:
        path.chmod(0o755)
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    ended = begin(net, policy, *user, name="unprivileged")
    assert ended.returncode == NO_GATEWAY, ended.stdout
    assert "CAP_NET_ADMIN" in ended.stdout, ended.stdout


def test_an_interface_that_is_not_there_yet_is_waited_for(net):
    """As at boot."""
    policy = net.logs / "absent.toml"
    policy.write_text('[interface.absent]\nzone = "a"\naddresses = ["192.0.2.1/24"]\n')
    socket = net.logs / "waiting.sock"
    options = ["--socket", socket, "--no-state"]
    process = net.gateway.start(binary(), "run", policy, *options, log="waiting")

    def ports():
        told = net.gateway.run(binary(), "ports", "--json", "--socket", socket, check=False)
        return [port["state"] for port in json.loads(told.stdout)] if told.returncode == 0 else []

    try:
        wait.until(lambda: ports() == ["absent"], "it answers")
        net.gateway.run("ip", "link", "add", "absent", "type", "veth", "peer", "name", "far")
        net.gateway.ip("link set far up", "link set absent up")
        wait.until(lambda: ports() == ["up"], "the interface is opened")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)
        net.gateway.run("ip", "link", "del", "absent", check=False)
