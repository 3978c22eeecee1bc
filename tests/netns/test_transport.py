"""Transport mode between two live gateways: what they themselves say to each other leaves in ESP behind its own header, and nothing of it in clear."""

import pytest
from sites import Sites
from test_esp import associations, drops, is_esp, is_neighbour
from transfer import exchange

POLICY = """
[gateway]
driver = "packet"
workers = {workers}

[interface.wan]
zone = "wan"
addresses = ["192.0.2.{own}/24", "2001:db8:ff::{own}/64"]

[interface.four]
zone = "peer"
[interface.four.esp]
local = "192.0.2.{own}"
remote = "192.0.2.{other}"
mode = "transport"
udp = "{udp}"
[[interface.four.esp.sa]]
direction = "out"
spi = {out}
algorithm = "aes128-gcm"
key-file = "keys/{own}"
[[interface.four.esp.sa]]
direction = "in"
spi = {in_}
algorithm = "aes128-gcm"
key-file = "keys/{other}"

[interface.six]
zone = "peer"
[interface.six.esp]
local = "2001:db8:ff::{own}"
remote = "2001:db8:ff::{other}"
mode = "transport"
udp = "{udp}"
[[interface.six.esp.sa]]
direction = "out"
spi = {out6}
algorithm = "aes128-gcm"
key-file = "keys/{own6}"
[[interface.six.esp.sa]]
direction = "in"
spi = {in6}
algorithm = "aes128-gcm"
key-file = "keys/{other6}"

[default]
"peer > self" = "accept"
"""


def policy(own, workers, udp):
    other = 3 - own
    numbers = {"own": own, "other": other, "own6": own + 2, "other6": other + 2}
    spis = {"out": 0x1000 + own, "in_": 0x1000 + other, "out6": 0x2000 + own, "in6": 0x2000 + other}
    return POLICY.format(workers=workers, udp=udp, **numbers, **spis)


@pytest.fixture(scope="module", params=[(1, "no"), (2, "yes")], ids=lambda param: "-".join(map(str, param)))
def sites(request):
    workers, udp = request.param
    sites = Sites()
    gateways = sites.gateways("packet", workers)
    for gateway, own in zip(gateways, (1, 2)):
        gateway.write = lambda *_, gateway=gateway, own=own: gateway.policy.write_text(policy(own, workers, udp))
    with sites.run(gateways, works):
        sites.udp = udp
        yield sites


def works(sites):
    one, two = sites.ends
    one.gateway.reaches("192.0.2.2")
    two.gateway.reaches("2001:db8:ff::1")


def is_protected(frame):
    """ESP, in UDP or not."""
    at = 14 + (20 if frame[12:14] == b"\x08\x00" else 40)
    protocol = frame[14 + 9] if frame[12:14] == b"\x08\x00" else frame[14 + 6]
    return is_esp(frame) or protocol == 17 and frame[at : at + 4] == (4500).to_bytes(2, "big") * 2


def test_nothing_crosses_in_clear(sites):
    one, two = sites.ends
    with two.gateway.sniff("wan") as wire:
        assert one.gateway.ping("192.0.2.2", "-i", "0.2", count=3)
        assert one.gateway.ping("2001:db8:ff::2", "-i", "0.2", count=3)
        wire.settimeout(0.3)
        frames = []
        try:
            while True:
                frames.append(wire.recv(4096))
        except OSError:
            pass
    ip = [frame for frame in frames if frame[12:14] in (b"\x08\x00", b"\x86\xdd") and not is_neighbour(frame)]
    assert len(ip) >= 6 and all(map(is_protected, ip)), [frame.hex() for frame in ip if not is_protected(frame)][:3]
    # The header is the packet's own: 64 hops, as Linux sends it.
    assert all(frame[14 + (8 if frame[12:14] == b"\x08\x00" else 7)] == 64 for frame in ip)


@pytest.mark.parametrize("address", ["192.0.2.2", "2001:db8:ff::2"])
def test_connections_of_the_gateways_themselves(sites, address):
    one, two = sites.ends
    spi = 0x2001 if ":" in address else 0x1001
    before = associations(sites.running[0], "out")[spi]["packets"]
    with two.gateway.listen(8000, address) as listener, one.gateway.connect(address, 8000) as here:
        there, _ = listener.accept()
        with there:
            exchange(here, there, upload=1 << 20, download=1 << 20)
    assert associations(sites.running[0], "out")[spi]["packets"] > before + 100


def test_what_is_too_large_is_fragmented_afterwards(sites):
    one, two = sites.ends
    # Linux itself makes no fragments while it does not know better.
    one.gateway.forget_paths()
    two.gateway.forget_paths()
    assert one.gateway.ping("192.0.2.2", "-M", "dont", "-s", 1472)
    assert one.gateway.ping("192.0.2.2", "-M", "do", "-s", 1400)
    assert not one.gateway.ping("192.0.2.2", "-M", "do", "-s", 1472)


def test_a_packet_in_clear_is_refused(sites):
    """The peer's gateway is away, and Linux answers for itself: in clear."""
    one, two = sites.ends
    gateway, far = sites.running
    far.stop()
    try:
        assert not two.gateway.ping("192.0.2.1")
        assert drops(gateway).get("tunnel-required", 0) > 0
    finally:
        far.start()
    works(sites)
