"""NPTv6 (RFC 6296): the addresses that Linux's SNPT and DNPT make, and what passes with them."""

import ipaddress
import random

import pytest
import wait
from topology import CLIENT6, OUTSIDE6, REMOTE6

PAIRS = [("fd01:203:405::/48", "2001:db8:7::/48"), ("fd99:1:2:3::/64", "2001:db8:8:9::/64")]


def shown(address):
    """The outside address of an inside one, by the words of RFC 6296, sections 3.1 to 3.5."""
    inside, outside = next(
        map(ipaddress.ip_network, pair) for pair in PAIRS if address in ipaddress.ip_network(pair[0])
    )

    def words(value):
        return [int(value) >> 112 - 16 * place & 0xFFFF for place in range(8)]

    def total(numbers):
        return sum(numbers) % 0xFFFF

    adjustment = total(words(inside.network_address)) - total(words(outside.network_address))
    mask = (1 << 128 - inside.prefixlen) - 1
    new = words(int(outside.network_address) | int(address) & mask)
    place = 3 if inside.prefixlen <= 48 else next(at for at in range(4, 8) if new[at] != 0xFFFF)
    new[place] = (new[place] + adjustment) % 0xFFFF
    return ipaddress.ip_address(sum(word << 112 - 16 * at for at, word in enumerate(new)))


def inside_addresses():
    numbers = random.Random(6296)
    for inside, _ in PAIRS:
        network = ipaddress.ip_network(inside)
        bits = 128 - network.prefixlen
        hosts = [numbers.getrandbits(bits) for _ in range(20)]
        # Words of all ones and of zeros.
        hosts += [1, 0xFFFF << 48 | 7, 0xFFFF_FFFF << 32 | 7, 0xFFFF_FFFF_FFFF << 16, numbers.getrandbits(bits) & ~0xFFFF]
        yield from (network[host] for host in hosts)


def passes(net, address):
    with net.remote.udp(REMOTE6, 7000) as there, net.client.udp(address) as here:
        here.sendto(b"first", (REMOTE6, 7000))
        there.settimeout(0.3)
        try:
            return there.recv(100) == b"first"
        except TimeoutError:
            return False


@pytest.fixture(scope="module", autouse=True)
def prefixes(net):
    net.office.apply("npt")
    net.client.run("sysctl", "-qw", "net.ipv6.ip_nonlocal_bind=1")
    for inside, outside in PAIRS:
        net.client.ip(f"route add local {inside} dev lo")
        net.gateway.ip(f"route add {inside} via {CLIENT6}")
        net.router.ip(f"route add {outside} via {OUTSIDE6}")
        if not net.office.owns_frames:
            table = ["ip6tables", "-t", "mangle"]
            net.gateway.run(*table, "-A", "POSTROUTING", "-o", "wan", "-s", inside, "-j", "SNPT", "--src-pfx", inside, "--dst-pfx", outside)
            net.gateway.run(*table, "-A", "PREROUTING", "-i", "wan", "-d", outside, "-j", "DNPT", "--src-pfx", outside, "--dst-pfx", inside)
    for inside, _ in PAIRS:
        first = str(ipaddress.ip_network(inside)[0x99])
        wait.until(lambda first=first: passes(net, first), f"the gateway knows the route to {inside}")
    yield
    for inside, outside in PAIRS:
        net.client.ip(f"route del local {inside} dev lo")
        net.gateway.ip(f"route del {inside}")
        net.router.ip(f"route del {outside}")
    if not net.office.owns_frames:
        net.gateway.run("ip6tables", "-t", "mangle", "-F")
    net.office.apply()


def test_addresses_are_those_of_linux_whoever_begins(net):
    for address in inside_addresses():
        outside = str(shown(address))
        with net.remote.udp(REMOTE6, 7000) as there, net.client.udp(str(address), 7001) as here:
            here.sendto(b"asked", (REMOTE6, 7000))
            data, peer = there.recvfrom(100)
            assert (data, peer[:2]) == (b"asked", (outside, 7001))
            there.sendto(b"answered", peer)
            assert here.recv(100) == b"answered"
        with net.remote.udp(REMOTE6) as there, net.client.udp(str(address), 7002) as here:
            there.sendto(b"asked", (outside, 7002))
            data, peer = here.recvfrom(100)
            assert (data, peer[0]) == (b"asked", REMOTE6)
            here.sendto(b"answered", peer)
            data, peer = there.recvfrom(100)
            assert (data, peer[:2]) == (b"answered", (outside, 7002))


@pytest.mark.without("nftables", why="its connection tracking does not know the translated packets")
def test_connections_pass_and_errors_are_understood(net):
    address = "fd01:203:405:1::1234"
    outside = str(shown(ipaddress.ip_address(address)))
    with net.remote.listen(7003, REMOTE6) as server, net.client.tcp(address) as here:
        here.connect((REMOTE6, 7003))
        there, peer = server.accept()
        with there:
            assert peer[0] == outside
            there.sendall(b"all of it" * 10_000)
            got = b""
            while len(got) < 90_000:
                got += here.recv(90_000)
    # Nobody listens: the error quotes the outside address, and reaches the socket by the inside one.
    with net.client.udp(address) as here:
        here.connect((REMOTE6, 7004))
        here.send(b"asked")
        with pytest.raises(ConnectionRefusedError):
            here.recv(100)
