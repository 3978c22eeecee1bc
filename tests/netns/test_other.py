"""What Linux forwards from an interface that the policy does not name out by one that it names."""

import json

import pytest
import wait
from host import Host
from topology import GATEWAY, REMOTE

pytestmark = pytest.mark.without("nftables", why="every interface is Linux's there")

CONTAINER, BRIDGE = "172.17.0.2", "172.17.0.1"

MASQUERADE = """
table ip container {
  chain out {
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr 172.17.0.0/24 oifname "wan" masquerade
  }
}
"""


@pytest.fixture(scope="module")
def container(net):
    """A host behind the gateway machine whose cable the policy does not name, and whose packets Linux translates."""
    host = Host(f"{net.gateway.namespace.rsplit('-', 1)[0]}-container", net.logs)
    net.gateway.sysctl({"net/ipv4/ip_forward": 1})
    net.gateway.ip(
        f"link add docker0 type veth peer name eth0 netns {host.namespace}",
        f"addr add {BRIDGE}/24 dev docker0",
        "link set docker0 up",
    )
    host.ip(f"addr add {CONTAINER}/24 dev eth0", "link set eth0 up", f"route add default via {BRIDGE}")
    net.gateway.run("nft", "-f", "-", input=MASQUERADE)
    yield host
    net.gateway.run("nft", "delete", "table", "ip", "container", check=False)
    net.gateway.run("ip", "link", "del", "docker0", check=False)
    net.gateway.sysctl({"net/ipv4/ip_forward": 0})
    host.close()


def drops(net):
    told = json.loads(net.office.ask("drops", "--json").stdout)
    return sum(drop["dropped"] for drop in told if drop["reason"] == "other-drop")


def test_it_is_dropped_and_counted(net, container):
    """The source is the gateway's own by then, as Linux has translated it."""
    assert container.ping(BRIDGE), "the machine itself is reached"
    before = drops(net)
    with net.remote.listen(80), pytest.raises(TimeoutError):
        container.connect(REMOTE, 80, timeout=0.5)
    assert drops(net) > before
    net.gateway.reaches(REMOTE)
    status = net.office.ask("status").stdout
    assert "forwards" in status and "docker0" in status


RULE = """
[[rule]]
name = "containers"
from = "other"
to = "wan"
protocol = "tcp"
dport = 80
action = "accept"
"""

WAYS = {
    "default": lambda text: text.replace("[default]\n", '[default]\n"other > wan" = "accept"\n'),
    "rule": lambda text: text + RULE,
}


@pytest.mark.parametrize("way", WAYS)
def test_it_passes_where_the_policy_says_so(net, container, way):
    policy = net.office.policy
    text = policy.read_text()
    policy.write_text(WAYS[way](text))
    net.office.ask("apply", policy)
    if way == "rule":
        with net.remote.listen(81), pytest.raises(TimeoutError):
            container.connect(REMOTE, 81, timeout=0.5)
    with net.remote.listen(80) as listener:
        with container.connect(REMOTE, 80) as client:
            server, _ = listener.accept()
            with server:
                for one, other in [(client, server), (server, client)]:
                    one.sendall(b"word")
                    assert other.recv(100) == b"word"
            policy.write_text(text)
            net.office.ask("apply", policy)
            before = drops(net)
            client.sendall(b"no more")
            wait.until(lambda: drops(net) > before, "what was let in is dropped again")
    net.client.reaches(GATEWAY)


def test_what_linux_does_not_translate_is_answered_too(net, container):
    """As of a VPN of Linux's that routers on the street know: answers are for no address of the gateway's own."""
    policy = net.office.policy
    text = policy.read_text()
    net.gateway.run("nft", "flush", "table", "ip", "container")
    net.router.ip("route replace 172.17.0.0/24 via 203.0.113.2")
    try:
        with net.remote.listen(80) as listener:
            with pytest.raises(TimeoutError):
                container.connect(REMOTE, 80, timeout=0.5)
            policy.write_text(text + RULE)
            net.office.ask("apply", policy)
            with container.connect(REMOTE, 80) as client:
                server, (peer, _) = listener.accept()
                with server:
                    assert peer == CONTAINER
                    for one, other in [(client, server), (server, client)]:
                        one.sendall(b"word")
                        assert other.recv(100) == b"word"
        # Nobody on the street begins a connection to it.
        with container.listen(80), pytest.raises((TimeoutError, OSError)):
            net.remote.connect(CONTAINER, 80, timeout=0.5)
    finally:
        net.router.ip("route del 172.17.0.0/24")
        net.gateway.run("nft", "-f", "-", input=MASQUERADE)
        policy.write_text(text)
        net.office.ask("apply", policy)
