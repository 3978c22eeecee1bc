"""Nothing passes that the policy did not let pass, whatever becomes of ports, interfaces and the process: Linux would forward
all of it, and the guards keep it from that."""

import json
import os

import pytest
import wait
from leak import Leak
from topology import CLIENT, GATEWAY, REMOTE, ROUTER, SERVER

pytestmark = [
    pytest.mark.without("nftables", why="Linux has no ports and no process that could be away"),
    pytest.mark.usefixtures("running"),
]

REPEATS = 20 if os.environ.get("WIRERATE_LONG") else 3

ONLY_LAN = """
[gateway]
driver = "packet"
[interface.lan]
zone = "lan"
addresses = ["192.168.1.1/24", "2001:db8:1::1/64"]
[default]
"lan > self" = "accept"
"""


@pytest.fixture(scope="module", autouse=True)
def forwarding(net):
    """Linux would forward, and knows where to: also what it forgets with an interface."""
    if net.office.name == "nftables":
        yield
        return
    net.gateway.sysctl({"net/ipv4/ip_forward": 1})
    know(net)
    yield
    net.gateway.sysctl({"net/ipv4/ip_forward": 0})
    net.gateway.run("ip", "neigh", "del", ROUTER, "dev", "wan", check=False)
    for host in [CLIENT, SERVER]:
        net.gateway.run("ip", "neigh", "del", host, "dev", "lan", check=False)


def know(net):
    """Gives Linux neighbours for good, so that nothing waits for ARP, and a route back to who floods."""
    net.gateway.ip(
        f"neigh replace {CLIENT} lladdr {net.client.mac()} dev lan nud permanent",
        f"neigh replace {SERVER} lladdr {net.server.mac()} dev lan nud permanent",
        f"neigh replace {ROUTER} lladdr {net.router.mac('wan')} dev wan nud permanent",
    )


@pytest.fixture
def leak(net):
    flood = Leak(net)
    yield flood
    flood.close()


def works(net):
    net.client.reaches(GATEWAY)
    net.client.reaches(REMOTE)


def port(net, interface="wan"):
    """The state of a port."""
    ports = json.loads(net.office.ask("ports", "--json").stdout)
    return next(port for port in ports if port["interface"] == interface)


def resize(net, leak, mtu):
    net.gateway.ip(f"link set wan mtu {mtu}")
    leak.flows(400)
    net.gateway.ip("link set wan mtu 1500")
    wait.until(lambda: port(net)["state"] == "up", "the port is open again")
    leak.flows()


def mtu_past_the_slot(net, leak):
    resize(net, leak, 2000)


def mtu_that_fits(net, leak):
    resize(net, leak, 1600)


def change_of_driver(net, leak):
    other = "packet" if net.office.driver == "xdp" else "xdp"
    text = net.office.policy.read_text()
    own = f'wan = "{other}"'
    if "drivers = { " in text:
        changed = text.replace("drivers = { ", f"drivers = {{ {own}, ")
    else:
        changed = text.replace("[gateway]\n", f"[gateway]\ndrivers = {{ {own} }}\n")
    before = port(net)["driver"]
    for policy in [changed, text]:
        net.office.policy.write_text(policy)
        net.office.ask("apply", net.office.policy)
        leak.flows(200)
        assert port(net)["state"] == "up" and (port(net)["driver"] == before) == (policy == text)


def link_down_and_up(net, leak):
    for interface in ["wan", "lan"]:
        net.gateway.ip(f"link set {interface} down", f"link set {interface} up")
        know(net)
        leak.flows(150)
        wait.until(lambda interface=interface: port(net, interface)["state"] == "up", "the port is open again")


def deleted_and_made_anew(net, leak):
    for interface in ["wan", "lan"]:
        net.gateway.ip(f"link del {interface}")
        leak.flows(20)
        net.plug_gateway(interface)
        know(net)
        leak.flows(200)
        wait.until(lambda interface=interface: port(net, interface)["state"] == "up", "the port is open again")


def policy_without_the_interface(net, leak):
    text = net.office.policy.read_text()
    net.office.policy.write_text(ONLY_LAN)
    net.office.ask("apply", net.office.policy)
    leak.flows(300)
    net.office.policy.write_text(text)
    net.office.ask("apply", net.office.policy)
    leak.flows()


def ended(net, leak):
    net.office.stop()
    leak.flows(300)
    net.office.start()


def killed(net, leak):
    net.office.kill()
    leak.flows(300)
    net.office.start()


WAYS = [
    mtu_past_the_slot,
    mtu_that_fits,
    change_of_driver,
    link_down_and_up,
    deleted_and_made_anew,
    policy_without_the_interface,
    ended,
    killed,
]


@pytest.mark.longest(600)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_nothing_leaks(net, leak, way):
    works(net)
    assert leak.leaked() == [0, 0], "leaked while all was well"
    for number in range(REPEATS):
        way(net, leak)
        assert leak.leaked() == [0, 0], f"leaked at repeat {number}"
    works(net)


@pytest.mark.longest(600)
def test_nothing_leaks_while_it_starts_on_interfaces_that_are_there(net, leak):
    """From the moment on at which both guards are on."""
    for _ in range(REPEATS):
        net.office.stop()
        for pin in net.office.pins():
            pin.unlink()
        # Linux has the interfaces now, and forwards: the counters do count.
        wait.until(lambda: min(leak.leaked()) > 0, "the floods pass")
        net.office.launch()
        wait.until(lambda: len(net.office.pins()) >= 4, "the guards are on")
        leak.flows(10)
        before = leak.leaked()
        wait.until(net.office.answers, "wirerate answers")
        leak.flows(200)
        assert leak.leaked() == before
    works(net)
