"""A gateway that cannot do its work ends, and says why."""

import json
import signal
import socket

import pytest
import wait
from gateway import binary
from isolation import inside
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


def test_without_bpf_it_says_that_and_names_no_other_gateway(net):
    """As where a container's seccomp profile forbids bpf(2): guards fail, and are tried again when the port is opened."""
    net.gateway.ip("link add spare type veth peer name spare-far", "link set spare up", "link set spare-far up")
    try:
        policy = net.logs / "spare.toml"
        policy.write_text('[interface.spare]\nzone = "a"\naddresses = ["192.0.2.1/24"]\n')
        rights = ["setpriv", "--bounding-set=-all,+net_admin,+net_raw,+ipc_lock"]
        ended = begin(net, policy, *rights, name="spare")
        assert ended.returncode == NO_GATEWAY, ended.stdout
        assert "none of its interfaces could be opened (spare)\n" in ended.stdout, ended.stdout
        assert "another gateway" not in ended.stdout, ended.stdout
        assert "CAP_BPF" in ended.stdout, ended.stdout
    finally:
        net.gateway.ip("link del spare")


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


def test_a_policy_without_interfaces_is_begun_with_a_warning(net):
    """Its file may be an empty one that is still being written; the control socket takes the next."""
    policy = net.logs / "empty.toml"
    policy.write_text("")
    socket = net.logs / "empty.sock"
    process = net.gateway.start(binary(), "run", policy, "--socket", socket, "--no-state", log="empty")
    try:
        asked = ["status", "--json", "--socket", socket]
        wait.until(lambda: net.gateway.run(binary(), *asked, check=False).returncode == 0, "it answers")
        assert "the policy has no interface" in process.log.read_text()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)


METRICS = "127.0.0.1:9470"


@pytest.fixture
def policy(net):
    """Writes the policy of an interface that is not there yet, with lines of `[gateway]`."""

    def write(*lines):
        path = net.logs / "fault.toml"
        gateway = "\n".join(["[gateway]", *lines])
        path.write_text(f'{gateway}\n[interface.absent]\nzone = "a"\naddresses = ["192.0.2.1/24"]\n')
        return path

    return write


def faulty(net, policy, *names):
    """Begins a gateway that cannot; says why it could not, in which these names come, and the control socket does not."""
    ended = begin(net, policy, name="faulty")
    assert ended.returncode == NO_GATEWAY, ended.stdout
    why = ended.stdout.splitlines()[-1]
    for name in names:
        assert str(name) in ended.stdout, ended.stdout
    assert "faulty.sock" not in ended.stdout and "control socket" not in ended.stdout, why
    assert not (net.logs / "faulty.sock").exists()


def test_an_occupied_address_of_metrics_is_named(net, policy):
    with inside(net.gateway.namespace), socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 9470))
        other.listen()
        faulty(net, policy(f'metrics = "{METRICS}"'), METRICS, "in use")


def test_an_address_of_metrics_that_is_not_this_machines_is_named(net, policy):
    token = net.logs / "token"
    token.write_text("a token of some length")
    elsewhere = "192.0.2.200:9470"
    faulty(net, policy(f'metrics = "{elsewhere}"', f'metrics-token = "{token}"'), elsewhere, "no address of this machine")


def test_a_file_of_metrics_that_cannot_be_used_is_named(net, policy):
    absent = net.logs / "absent-file"
    faulty(net, policy(f'metrics = "{METRICS}"', f'metrics-token = "{absent}"'), absent, "metrics-token")
    own = ["-subj", "/CN=metrics", "-keyout", net.logs / "own.key", "-out", net.logs / "own.crt"]
    other = ["-subj", "/CN=other", "-keyout", net.logs / "other.key", "-out", net.logs / "other.crt"]
    for names in [own, other]:
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        net.gateway.run("openssl", "req", "-x509", *curve, *names)

    def access(certificate, key):
        files = f'metrics-certificate = "{net.logs / certificate}"', f'metrics-key = "{net.logs / key}"'
        return policy(f'metrics = "{METRICS}"', *files)

    faulty(net, access("absent-file", "own.key"), absent, "metrics-certificate")
    faulty(net, access("own.crt", "absent-file"), absent, "metrics-key")
    faulty(net, access("own.crt", "other.key"), "other.key", "metrics-key")
    faulty(net, access("own.key", "own.key"), "own.key", "metrics-certificate")


def test_a_place_for_the_control_socket_that_cannot_be_had_is_named(net, policy):
    net.logs.joinpath("plain").write_text("no directory")
    place = net.logs / "plain" / "control.sock"
    ended = net.gateway.run(binary(), "run", policy(), "--socket", place, "--no-state", check=False, timeout=20)
    assert ended.returncode == NO_GATEWAY, ended.stdout
    assert f"the directory of the control socket, {place.parent}" in ended.stdout, ended.stdout
