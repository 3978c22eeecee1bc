"""VRFs: two customers with one network, and a WAN for both. See docs/vrf.md."""

import json
import shutil

import pytest
import wait
from gateway import missing
from vrfs import (
    BEHIND,
    CUSTOMER,
    GATEWAY,
    KINDS,
    OTHER,
    OTHER6,
    OUTSIDE,
    REMOTE,
    Linux,
    Vrfs,
    office_of,
)


def pytest_generate_tests(metafunc):
    if "site" in metafunc.fixturenames:
        named = metafunc.config.getoption("gateway") or list(KINDS)
        kinds = [name for name in KINDS if name in named]
        metafunc.parametrize("site", kinds, indirect=True, scope="module")


def started(made, kind):
    """A gateway of that kind on a map, running."""
    made.office = Linux(made) if kind is Linux else office_of(made, kind)
    made.office.start()
    return made


def ended(made):
    made.office.stop()
    made.close()
    shutil.rmtree(made.logs, ignore_errors=True)


@pytest.fixture(scope="module")
def site(request):
    if lacking := missing(request.param):
        pytest.skip(f"SKIPPED: {lacking}")
    made = Vrfs()
    try:
        yield started(made, KINDS[request.param])
        print(made.office.evidence())
        assert made.office.alive(), "the gateway died"
    finally:
        ended(made)


def is_linux(site):
    return isinstance(site.office, Linux)


def talk(site, names, sport):
    """Connections of customers from one port to the provider's server, at one time: what the server sees of each."""
    seen = {}
    with site.provider.listen(80, address=REMOTE) as server:
        pairs = {}
        for name in names:
            near = site.customers[name].connect(REMOTE, 80, sport=sport)
            far, (address, port) = server.accept()
            far.settimeout(5)
            pairs[name] = (near, far)
            seen[name] = (address, port)
        for turn in range(3):
            # Those who were first are asked last.
            for name, (near, far) in reversed(pairs.items()):
                near.sendall(f"{name} {turn}".encode())
                assert far.recv(100) == f"{name} {turn}".encode()
                far.sendall(f"to {name} {turn}".encode())
                assert near.recv(100) == f"to {name} {turn}".encode()
        for near, far in pairs.values():
            near.close()
            far.close()
    return seen


def test_both_reach_the_wan_from_one_address_and_port(site):
    for host in site.customers.values():
        host.reaches(REMOTE)
    seen = talk(site, ["red", "blue"], 40_001)
    assert [address for address, _ in seen.values()] == [OUTSIDE, OUTSIDE]
    assert seen["red"] != seen["blue"]


def test_datagrams_in_fragments_find_the_way_back(site):
    for name, host in site.customers.items():
        assert host.ping(REMOTE, "-s", 4000, "-M", "dont", count=2), name


def test_customers_do_not_reach_one_another(site):
    # The address is a host's of the other customer, and nobody's here.
    assert not site.red.ping(OTHER)
    if not is_linux(site):
        assert not site.red.ping(OTHER6)
    # Nor does the provider reach either by its own address.
    site.provider.ip(f"route add 192.168.1.0/24 via {OUTSIDE}")
    try:
        assert not site.provider.ping(CUSTOMER)
    finally:
        site.provider.ip(f"route del 192.168.1.0/24 via {OUTSIDE}")


def test_each_customer_has_routes_of_its_own(site):
    # By red's router; blue's way there is the default route.
    with site.red.listen(80, address=BEHIND):
        near = site.red.connect(BEHIND, 80, source=CUSTOMER)
        near.close()
    seen = site.provider.sniff("wan")
    assert not site.blue.ping(BEHIND)
    wait.until(lambda: any(bytes([10, 1, 0, 9]) in frame for frame in frames(seen)), "blue's packet leaves by the WAN")
    seen.close()


def frames(sniffer):
    """Frames that a socket has seen so far."""
    found = []
    sniffer.setblocking(False)
    while True:
        try:
            found.append(sniffer.recv(2048))
        except BlockingIOError:
            return found


def test_the_first_hop_of_each_answers(site):
    if is_linux(site):
        pytest.skip("SKIPPED: without VRF devices, what Linux itself sends goes by the main table")
    for name, host in site.customers.items():
        done = host.run("traceroute", "-n", "-q", "1", "-w", "2", "-m", "2", REMOTE)
        hops = [line.split()[1] for line in done.stdout.splitlines()[1:]]
        assert hops == [GATEWAY, REMOTE], f"{name}: {done.stdout}"


def test_a_port_forward_leads_into_its_vrf(site):
    with site.blue.listen(80) as server:
        near = site.provider.connect(OUTSIDE, 8080)
        far, (address, _port) = server.accept()
        near.sendall(b"hello")
        assert far.recv(100) == b"hello"
        assert address == "203.0.113.1"
        near.close()
        far.close()
    with pytest.raises(OSError):
        site.red.connect(OUTSIDE, 8080, timeout=1)


def test_the_gateway_says_which_vrf(site):
    if is_linux(site):
        pytest.skip("SKIPPED: Linux has no such command")
    status = json.loads(site.office.ask("status", "--json").stdout)
    assert status["vrfs"] == [
        {"name": "red", "interfaces": ["red0"]},
        {"name": "blue", "interfaces": ["blue0"]},
    ]
    assert "vrf        red: red0" in site.office.ask("status").stdout
    with site.provider.listen(80, address=REMOTE) as server:
        near = site.blue.connect(REMOTE, 80, sport=40_002)
        far, _ = server.accept()
        flows = json.loads(site.office.ask("flows", "--port", "40002", "--json").stdout)["flows"]
        assert [(flow["interface"], flow["vrf"]) for flow in flows] == [("blue0", "blue")]
        assert f"{CUSTOMER}:40002 in blue" in site.office.ask("flows", "--port", "40002").stdout
        # Other tables: the flow is found in its VRF.
        site.office.apply_more("")
        near.sendall(b"still here")
        assert far.recv(100) == b"still here"
        near.close()
        far.close()
    told = site.office.ask("explain", "--live", f"red0 udp {CUSTOMER}:1000 > {BEHIND}:9").stdout
    assert "in the VRF red" in told and "the route to 10.1.0.0/16 is the best" in told, told
    told = site.office.ask("explain", "--live", f"blue0 udp {CUSTOMER}:1000 > {BEHIND}:9").stdout
    assert "in the VRF blue" in told and "leaves by wan to the router 203.0.113.1" in told, told


def test_connections_outlive_the_process(site):
    if is_linux(site):
        pytest.skip("SKIPPED: Linux goes on")
    with site.provider.listen(80, address=REMOTE) as server:
        pairs = []
        for host in site.customers.values():
            near = host.connect(REMOTE, 80, sport=40_003)
            pairs.append((near, server.accept()[0]))
        site.office.stop()
        site.office.start()
        for number, (near, far) in enumerate(pairs):
            far.settimeout(5)
            far.sendall(f"for {number}".encode())
            assert near.recv(100) == f"for {number}".encode()
            near.sendall(b"thanks")
            assert far.recv(100) == b"thanks"
            near.close()
            far.close()


def test_vrfs_that_linux_lacks_are_noted(site):
    if is_linux(site):
        pytest.skip("SKIPPED: Linux has no policy")
    notes = json.loads(site.office.ask("status", "--json").stdout)["notes"]
    assert [note for note in notes if 'no VRF device "red"' in note]


@pytest.fixture(scope="module")
def devices(request):
    """The map with VRF devices, where the kernel has them."""
    named = request.config.getoption("gateway") or ["wirerate-packet"]
    if "wirerate-packet" not in named:
        pytest.skip("drivers do not matter to routes")
    if lacking := missing("wirerate-packet"):
        pytest.skip(f"SKIPPED: {lacking}")
    probe = Vrfs()
    done = probe.gateway.run("ip", "link", "add", "probe", "type", "vrf", "table", "99", check=False)
    probe.close()
    if done.returncode != 0:
        pytest.skip(f"SKIPPED: this kernel has no VRF devices (CONFIG_NET_VRF): {done.stdout.strip()}")
    made = Vrfs(devices=True)
    try:
        yield started(made, KINDS["wirerate-packet"])
        print(made.office.evidence())
        assert made.office.alive(), "the gateway died"
    finally:
        ended(made)


def test_with_vrf_devices_the_gateway_itself_answers_each(devices):
    for name, host in devices.customers.items():
        host.reaches(REMOTE)
        assert host.ping(GATEWAY), name
    seen = talk(devices, ["red", "blue"], 40_010)
    assert seen["red"] != seen["blue"]
    notes = json.loads(devices.office.ask("status", "--json").stdout)["notes"]
    assert not [note for note in notes if "VRF" in note], notes


def test_routes_of_a_vrf_device_are_taken(devices):
    devices.gateway.ip("route add 10.2.0.0/16 vrf red via 192.168.1.254")
    told = lambda: devices.office.ask("explain", "--live", f"red0 udp {CUSTOMER}:1 > 10.2.0.9:9").stdout
    wait.until(lambda: "192.168.1.254" in told(), "the route is taken")
    blue = devices.office.ask("explain", "--live", f"blue0 udp {CUSTOMER}:1 > 10.2.0.9:9").stdout
    assert "203.0.113.1" in blue, blue
    # The policy's own are in Linux's tables.
    assert "default via 203.0.113.1 dev wan" in devices.gateway.run("ip", "route", "show", "vrf", "blue").stdout


def test_an_interface_that_leaves_its_vrf_device_is_noted(devices):
    devices.gateway.ip("link set blue0 nomaster")
    try:
        notes = lambda: json.loads(devices.office.ask("status", "--json").stdout)["notes"]
        wait.until(lambda: [note for note in notes() if '"blue0" is in the VRF "blue" by the policy' in note], "a note")
    finally:
        devices.gateway.ip("link set blue0 master blue")
