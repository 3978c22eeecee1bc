"""Fixtures: a topology around each gateway, evidence when a test fails, and an end to what hangs. See README.md."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from isolation import isolate  # noqa: E402
from topology import GATEWAY, GATEWAY6, GUEST_GATEWAY, Topology  # noqa: E402

import gateway as gateways  # noqa: E402

TOOLS = {
    "ip": "iproute2",
    "nft": "nftables",
    "iperf3": "iperf3",
    "curl": "curl",
    "ping": "iputils-ping",
    "dig": "bind9-dnsutils",
    "dnsmasq": "dnsmasq-base",
    "traceroute": "traceroute",
    "tracepath": "iputils-tracepath",
    "nmap": "nmap",
    "tcpdump": "tcpdump",
    "bird": "bird2",
    "birdc": "bird2",
    "ethtool": "ethtool",
    "openssl": "openssl",
}
"""What the hosts run, each with its Debian package."""

LONGEST = 90
"""Seconds that a test may take unless its mark `longest` says otherwise. What takes longer hangs."""

broken = {}
"""Gateways that did not begin to work, and where."""


def pytest_addoption(parser):
    parser.addoption(
        "--gateway",
        action="append",
        choices=list(gateways.MAKERS),
        help="only this gateway; may be given again",
    )
    parser.addoption("--must-run", action="store_true", help="fail, do not skip, where something is missing")


def pytest_configure(config):
    config.addinivalue_line("markers", "only(*gateways, why): the test is of these gateways alone")
    config.addinivalue_line("markers", "longest(seconds): the test may take so long")
    config.addinivalue_line("markers", "without(*gateways, why): the test is not of these gateways")
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    lacking = sorted({package for tool, package in TOOLS.items() if not shutil.which(tool)})
    named = config.getoption("gateway")
    config.missing = {name: gateways.missing(name) for name in named or gateways.MAKERS}
    if os.geteuid() != 0:
        config.missing = dict.fromkeys(config.missing, "network namespaces need root")
    elif lacking:
        config.missing = dict.fromkeys(config.missing, f"not installed: {' '.join(lacking)} (./setup test)")
    faults = [f"{name} cannot be tried: {why}" for name, why in config.missing.items() if why]
    if faults and (named or config.getoption("must_run")):
        raise pytest.UsageError(*faults)
    if len(faults) < len(config.missing):
        isolate()
        # An end in good order, as by Ctrl-C.
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_report_header(config):
    return [f"wirerate: {gateways.binary()}", *verdicts(config)]


def pytest_terminal_summary(terminalreporter, config):
    for line in verdicts(config):
        terminalreporter.write_line(line)


def verdicts(config):
    return [f"{name}: {f'SKIPPED, {why}' if why else 'tried'}" for name, why in config.missing.items()]


def pytest_generate_tests(metafunc):
    if "net" in metafunc.fixturenames:
        there = [name for name, why in metafunc.config.missing.items() if not why]
        metafunc.parametrize("net", there, indirect=True, scope="module")


def pytest_collection_modifyitems(config, items):
    for item in items:
        name = getattr(item, "callspec", None) and item.callspec.params.get("net")
        if not name:
            continue
        if not gateways.MAKERS[name].everywhere and not item.get_closest_marker("only"):
            item.add_marker(pytest.mark.skip(reason="only what names this gateway is tried with it"))
        for mark in item.iter_markers():
            applies = name in mark.args if mark.name == "only" else name not in mark.args
            if mark.name in ("only", "without") and not applies:
                item.add_marker(pytest.mark.skip(reason=mark.kwargs["why"]))


@pytest.fixture(scope="module")
def net(request):
    """A topology with a gateway that works, shared by the tests of a module.

    A module's MTU is the topology's, its VARIANTS are those of wirerate's policy.
    """
    if request.param in broken:
        pytest.fail(broken[request.param])
    maker = gateways.MAKERS[request.param]
    topology = Topology(mtu=getattr(request.module, "MTU", 1500), guests=maker.guests)
    try:
        topology.office = maker(topology, getattr(request.module, "VARIANTS", ()))
        topology.watch()
        try:
            begin(topology)
        except Exception as error:
            # It will not work in the next module either; to try it in each would only take time.
            broken[request.param] = (
                f"{request.param} did not even begin to work for {request.module.__name__}"
            )
            raise AssertionError(f"{request.param} does not work:\n{error}\n{evidence(topology)}") from error
        yield topology
    finally:
        if hasattr(topology, "office"):
            topology.office.stop()
        topology.close()
        shutil.rmtree(topology.logs, ignore_errors=True)


def begin(topology):
    """Starts the gateway and waits until it works."""
    topology.office.start()
    topology.client.reaches(GATEWAY)
    topology.client.reaches(GATEWAY6)
    topology.guest.reaches(GUEST_GATEWAY)


@pytest.fixture(autouse=True)
def deadline(request):
    """A test that hangs fails."""
    mark = request.node.get_closest_marker("longest")
    longest = mark.args[0] if mark else LONGEST

    def late(*_):
        raise TimeoutError(f"the test took longer than {longest} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(longest)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def account(request):
    """Around each test: the gateway lives, also where the last test killed it; afterwards every frame has one fate."""
    if "net" not in request.fixturenames:
        yield
        return
    net = request.getfixturevalue("net")
    if not net.office.alive():
        begin(net)
    net.watch()
    yield
    assert net.office.alive(), "the gateway died"
    counted = net.office.counters()
    if counted is not None:
        fates = ["forwarded", "delivered", "answered", "dropped", "held", "queued"]
        assert counted["received"] + counted["copied"] == sum(counted[fate] for fate in fates), (
            f"frames are not conserved: {counted}"
        )


@pytest.fixture
def running(net):
    """Whatever a test did to it, a gateway runs when its account is looked at: for tests that end it."""
    yield
    if not net.office.alive():
        net.office.start()
        net.client.reaches(GATEWAY)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    topology = getattr(item, "funcargs", {}).get("net")
    if report.failed and isinstance(topology, Topology) and topology.hosts:
        report.sections.append(("the gateway and its cables", evidence(topology)))


def evidence(topology):
    """What one wants to see of a gateway that fails."""
    commands = ["ip -s -br link", "ip -br addr", "ip route", "ip -6 route", "ip neigh"]
    told = [topology.office.evidence()] + [gateways.said(topology.gateway, command) for command in commands]
    return "\n".join([*told, topology.evidence()])


@pytest.fixture
def full_disk(tmp_path):
    """A directory on a disk of 64 KiB, with no room left but by its file `filler`."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], check=True)
    with pytest.raises(OSError), open(disk / "filler", "wb", buffering=0) as filler:
        while True:
            filler.write(bytes(512))
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)
