"""Shares of HTB: what the kernel gives classes that borrow, and what a gateway gives them by the policy that is imported from it."""

import shutil
import subprocess
import time

import pytest
from edge import CLIENT, PROVIDER, REMOTE, Edge
from gateway import Wirerate, binary, missing

BYTES, HEADERS = 1_000, 28
COUNTED = BYTES + 14
"""Bytes of a packet as tc counts them."""

CLASSES = {5010: "rate 4mbit ceil 8mbit", 5020: "rate 2mbit ceil 3mbit", 5030: "rate 1mbit ceil 8mbit"}

# Megabits a second: guarantees first, and of the eighth of the link that is left all the same.
BUSY = {5010: 4 + 1 / 3, 5020: 2 + 1 / 3, 5030: 1 + 1 / 3}
# The first has nothing to send: the second goes up to its ceiling, and the last has the rest.
IDLE = {5020: 3, 5030: 5}

SETTLED, MEASURED = 0.4, 1.6
"""Seconds until all queues are full, and of the measurement behind that."""

ATTEMPTS = 5


class Gateway(Wirerate):
    """`wirerate run` with a policy that is given."""

    name, driver = "wirerate-packet", "packet"

    def __init__(self, net, text):
        super().__init__(net)
        self.text = text

    def write(self, *_):
        self.policy.write_text(self.text)


@pytest.fixture
def edge():
    if lacking := missing("wirerate-packet"):
        pytest.skip(f"SKIPPED: {lacking}")
    if not shutil.which("tc"):
        pytest.skip("SKIPPED: not installed: tc (./setup test)")
    made = Edge()
    try:
        made.gateway.ip(
            "addr add 203.0.113.2/24 dev wan",
            "addr add 192.168.1.1/24 dev lan",
            f"route add default via {PROVIDER}",
        )
        made.provider.ip("route add 192.168.1.0/24 via 203.0.113.2")
        yield made
    finally:
        made.close()
        shutil.rmtree(made.logs, ignore_errors=True)


def htb(edge):
    """Classes in the kernel; false where it has no HTB."""

    def tc(words, check=True):
        return edge.gateway.run("tc", *words.split(), check=check)

    if tc("qdisc add dev wan root handle 1: htb default 30", check=False).returncode != 0:
        return False
    tc("class add dev wan parent 1: classid 1:1 htb rate 8mbit")
    for port, rates in CLASSES.items():
        number = port - 5000
        tc(f"class add dev wan parent 1:1 classid 1:{number} htb {rates} quantum 1514")
        tc(f"qdisc add dev wan parent 1:{number} handle {number}: pfifo limit 40")
        match = f"match ip protocol 17 0xff match ip dport {port} 0xffff"
        tc(f"filter add dev wan parent 1: protocol ip prio 1 u32 {match} flowid 1:{number}")
    return True


def imported(edge):
    """The policy that the kernel's classes become."""
    said = ""
    for what in ["qdisc", "class", "filter"]:
        said += f"tc {what} show dev wan\n"
        said += edge.gateway.run("tc", "-j", "-d", what, "show", "dev", "wan").stdout + "\n"
    listing = edge.logs / "queues.tc"
    listing.write_text(said)
    # What it notes is for people.
    text = edge.gateway.run(binary(), "import", "tc", listing, stderr=subprocess.DEVNULL).stdout
    assert 'zone = "wan"\n' in text, text
    text = text.replace('zone = "wan"\n', 'zone = "wan"\naddresses = ["203.0.113.2/24"]\n')
    return text + (
        '\n[interface.lan]\nzone = "lan"\naddresses = ["192.168.1.1/24"]\n'
        '[gateway]\ndriver = "packet"\n'
        '[default]\n"any > any" = "accept"\n'
        f'[[route]]\nto = "0.0.0.0/0"\nvia = "{PROVIDER}"\n'
    )


def rates(edge, ports):
    """Megabits a second that arrive by each port, of a flood of 10 to each."""
    receivers = {port: edge.provider.udp(REMOTE, port) for port in ports}
    sender = edge.client.udp(CLIENT, 0)
    arrived = dict.fromkeys(ports, 0)
    try:
        for receiver in receivers.values():
            receiver.setblocking(False)
        began = now = time.monotonic()
        sent = 0
        while now < began + SETTLED + MEASURED:
            if sent * BYTES * 8 < (now - began) * 10e6:
                for port in ports:
                    sender.sendto(bytes(BYTES - HEADERS), (REMOTE, port))
                sent += 1
            else:
                time.sleep(0.0002)
            for port, receiver in receivers.items():
                try:
                    while receiver.recv(2048):
                        arrived[port] += now >= began + SETTLED
                except BlockingIOError:
                    pass
            now = time.monotonic()
    finally:
        for made in [sender, *receivers.values()]:
            made.close()
    return {port: count * COUNTED * 8 / 1e6 / (now - began - SETTLED) for port, count in arrived.items()}


def measured(edge, *wanted):
    """Rates with all classes busy, and with the first idle. A machine that is busy with other things holds the sender back, or the gateway:
    what is not near all that is wanted is measured again, a few times."""
    for _ in range(ATTEMPTS):
        found = rates(edge, list(BUSY)), rates(edge, list(IDLE))
        if all(is_near(here, due) for dues in wanted for here, due in zip(found, dues)):
            break
    return found


def is_near(found, due):
    """Within 7 %: the measured time begins and ends within a packet of each class."""
    return all(abs(found[port] / rate - 1) < 0.07 for port, rate in due.items())


def near(found, due, what):
    assert is_near(found, due), f"{what}: {found} where {due} is due"


def test_an_imported_tree_shares_as_the_kernel_does(edge):
    if not htb(edge):
        pytest.skip("SKIPPED: the kernel has no HTB")
    edge.gateway.sysctl({"net/ipv4/ip_forward": 1})
    edge.client.reaches(REMOTE)
    kernel = measured(edge, (BUSY, IDLE))
    text = imported(edge)
    edge.gateway.run("tc", "qdisc", "del", "dev", "wan", "root")
    edge.gateway.sysctl({"net/ipv4/ip_forward": 0})
    office = Gateway(edge, text)
    try:
        office.start()
        edge.client.reaches(REMOTE)
        ours = measured(edge, (BUSY, IDLE), kernel)
        told = office.evidence()
    finally:
        office.stop()
    for here, there, due in zip(ours, kernel, [BUSY, IDLE]):
        near(there, due, "the kernel")
        near(here, due, f"the gateway, by\n{text}\n{told}")
        near(here, there, "the gateway beside the kernel")
