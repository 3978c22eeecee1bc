"""Tunnels whose keys an unmodified IKE daemon agrees on: strongSwan's charon beside wirerate, and one that carries ESP by itself at the other site.

    client 192.168.1.10 ── lan GATEWAY wan ── provider 203.0.113.1, and 10.2.0.1 behind it

The gateway's charon has the preload library or the plugin `kernel-wirerate`; the provider's has `kernel-libipsec`: tunnel mode, ESP
in UDP.
"""

import functools
import itertools
import json
import re
import shutil
import signal
from pathlib import Path

import ike
import pytest
import wait
from edge import CLIENT, PROVIDER, Edge
from gateway import missing
from host import Host
from sites import Sites, gateway_with
from transfer import transfer

NEAR = "203.0.113.2"
FAR = "10.2.0.1"

POLICY = """
[gateway]
driver = "packet"
workers = {workers}
xfrm = "{xfrm}"

[interface.lan]
zone = "lan"
addresses = ["192.168.1.1/24"]

[interface.wan]
zone = "wan"
addresses = ["203.0.113.2/24"]

[interface.site]
zone = "vpn"
addresses = ["10.9.0.1/30"]
mss = "mtu"

[interface.site.esp]
local = "203.0.113.2"
remote = "203.0.113.1"
keys = "ike"

[[route]]
to = "10.2.0.0/16"
interface = "site"

[[rule]]
name = "ike"
from = "wan"
to = "self"
protocol = "udp"
dport = [500, 4500]
action = "accept"

[default]
"lan > vpn" = "accept"
"vpn > lan" = "accept"
"vpn > self" = "accept"
"lan > self" = "accept"
"""

NETS = {"local_net": "192.168.1.0/24", "remote_net": "10.2.0.0/16"}
TURNED = {"local_net": "10.2.0.0/16", "remote_net": "192.168.1.0/24"}
ESP = "aes128gcm16-x25519"


class Office:
    """The gateway, its daemon, and the peer's."""

    def __init__(self, preload, means, workers):
        self.edge = Edge()
        edge = self.edge
        edge.gateway.ip(f"addr add {NEAR}/24 dev wan")
        # kernel-libipsec wants an address of its own network.
        edge.provider.ip(f"addr add {FAR}/32 dev lo")
        self.preload, self.xfrm = preload, edge.logs / "xfrm"
        text = POLICY.format(workers=workers, xfrm=self.xfrm)

        self.text = text
        self.gateway = gateway_with(edge, text)
        self.near = ike.Daemon(edge.gateway, edge.logs, means(self.xfrm))
        self.far = ike.Daemon(edge.provider, edge.logs)

    def start(self, near=NETS, far=TURNED):
        self.gateway.start()
        self.start_near(**near)
        self.start_far(**far)

    def start_near(self, **nets):
        self.near.start(local=NEAR, remote=PROVIDER, **{"esp": ESP, **nets})

    def start_far(self, **nets):
        self.far.start(local=PROVIDER, remote=NEAR, **{"esp": ESP, **nets})
        # What `install_routes` would do, in a table of its own.
        self.edge.provider.ip(f"route replace 192.168.1.0/24 dev ipsec0 src {FAR}")

    def up(self, daemon=None):
        (daemon or self.near).ask("--initiate", "--child", "net")
        return wait.until(self.settled, "both ends have the same SAs, and wirerate has them")

    def sas(self):
        return json.loads(self.gateway.ask("sa", "--json").stdout)

    def spis(self):
        return {sa["spi"] for sa in self.sas()}

    def settled(self, but=()):
        """SPIs in and out where charon and wirerate agree, and they are none of those before."""
        pair = self.near.pair()
        return pair if pair and set(pair) == self.spis() and not set(pair) & set(but) else None

    def keys(self):
        """Keys of the SAs that wirerate has, as `ip xfrm` is told them."""
        words = ["env", f"LD_PRELOAD={self.preload}", f"WIRERATE_XFRM={self.xfrm}", "ip", "xfrm", "state"]
        listed = self.edge.gateway.run(*words, "list").stdout
        found = re.findall(r"(?m)^src (\S+) dst (\S+)\n\tproto esp spi (0x[0-9a-f]+) .*\n(?:\t(?!aead).*\n)*\taead", listed)
        shown = [
            self.edge.gateway.run(*words, "get", "src", source, "dst", destination, "proto", "esp", "spi", spi).stdout
            for source, destination, spi in found
        ]
        return [bytes.fromhex(re.search(r"aead \S+ 0x([0-9a-f]+)", text)[1]) for text in shown]

    def drops(self):
        told = json.loads(self.gateway.ask("drops", "--json").stdout)
        return {drop["reason"]: drop["dropped"] for drop in told}

    def crosses(self):
        """Both ways, each begun at its side."""
        self.edge.client.reaches(FAR)
        wait.until(lambda: self.edge.provider.ping(CLIENT, "-I", FAR), "a ping from the other site")

    def close(self):
        for daemon in [self.near, self.far]:
            print(f"-- charon of {daemon.host}\n{daemon.evidence()}")
        print(self.gateway.evidence())
        self.near.stop()
        self.far.stop()
        self.gateway.stop()
        self.edge.close()
        shutil.rmtree(self.edge.logs, ignore_errors=True)


@pytest.fixture(scope="module")
def preload(tmp_path_factory):
    if lacking := missing("wirerate-packet"):
        pytest.skip(f"SKIPPED: {lacking}")
    return ike.library(tmp_path_factory.mktemp("xfrm"))


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    return ike.plugin(tmp_path_factory.mktemp("plugin"))


@pytest.fixture
def means(request, preload):
    """Makes what leads a daemon's SAs to a socket."""
    if request.param == "plugin":
        return functools.partial(ike.Plugin, request.getfixturevalue("plugin"))
    return functools.partial(ike.Preload, preload)


each_means = pytest.mark.parametrize("means", ["preload", "plugin"], indirect=True)

KINDS = {"one-worker": (1, "preload"), "two-workers": (2, "preload"), "plugin": (2, "plugin")}


@pytest.fixture
def office(workers, means, preload):
    made = Office(preload, means, workers)
    try:
        yield made
    finally:
        made.close()


def pytest_generate_tests(metafunc):
    if "office" in metafunc.fixturenames:
        metafunc.parametrize("workers, means", KINDS.values(), ids=KINDS, indirect=["means"])


_streams = itertools.count(1)


class Stream:
    """Pings without pause, each of which must be answered."""

    def __init__(self, host, to, *options):
        log = f"stream-{next(_streams)}"
        self.process = host.start("ping", "-i", "0.01", "-W", "2", *options, to, log=log)

    def answered(self):
        return self.process.log.read_text().count("icmp_seq=")

    def goes_on(self, packets=20):
        """Waits until some more have been answered."""
        before = self.answered()
        wait.until(lambda: self.answered() >= before + packets, "answers go on")

    def lost(self):
        """Ends it, some time after its start. Returns the numbers of packets that were not answered; the last one may have been
        under way."""
        wait.until(lambda: self.answered() > 50, "half a second has been seen")
        self.process.send_signal(signal.SIGINT)
        self.process.wait(10)
        text = self.process.log.read_text()
        sent = int(re.search(r"(\d+) packets transmitted", text)[1])
        return set(range(1, sent)) - {int(number) for number in re.findall(r"icmp_seq=(\d+) ttl", text)}


def lost_to_libipsec(office, streams, before):
    """Whether all packets of streams came, but for one of each at most that the gateway has not dropped: between the policies of the old
    SA and of the new one libipsec has none. Two gateways lose nothing, see `test_wirerate_at_both_ends`."""
    lost = [stream.lost() for stream in streams]
    assert office.drops() == before, lost
    return all(len(numbers) <= 1 for numbers in lost)


def test_up_and_traffic_both_ways(office):
    office.start()
    assert office.sas() == []
    # Nothing goes in clear while there is no key.
    assert not office.edge.client.ping(FAR)
    assert office.drops()["sa-missing"] >= 1
    pair = office.up()
    office.crosses()
    listed = {sa["direction"]: sa for sa in office.sas()}
    assert {sa["origin"] for sa in listed.values()} == {"ike"} and listed["out"]["remote"] == PROVIDER
    assert (listed["in"]["spi"], listed["out"]["spi"]) == pair
    assert all(sa["packets"] >= 2 and sa["udp"] for sa in listed.values()), listed
    assert set(office.far.pair()) == set(pair)


def test_rekey_under_traffic_loses_nothing(office):
    office.start()
    first = office.up()
    office.crosses()
    before = office.drops()
    streams = [Stream(office.edge.client, FAR), Stream(office.edge.provider, CLIENT, "-I", FAR)]
    for daemon in [office.near, office.far, office.near]:
        daemon.ask("--rekey", "--child", "net")
        first = wait.until(lambda: office.settled(first), "the SAs are those of the rekeying")
        daemon.ask("--rekey", "--ike", "site")
        wait.until(lambda: daemon.ask("--list-sas").stdout.count("ESTABLISHED") == 1, "one IKE_SA is left")
    assert lost_to_libipsec(office, streams, before)


def test_delete_and_dead_peers(office):
    """What either side deletes carries nothing; a peer that is gone is found out, and one that is idle is not taken for dead."""
    office.start()
    first = office.up()
    office.crosses()
    office.near.ask("--terminate", "--child", "net")
    wait.until(lambda: office.sas() == [], "nothing is left of what was deleted")
    assert not office.edge.client.ping(FAR)
    second = office.up(office.far)
    assert not set(second) & set(first)
    office.crosses()
    office.far.ask("--terminate", "--ike", "site")
    wait.until(lambda: office.sas() == [], "nothing is left of what the peer deleted")
    # By request of the operator: charon hears that the lifetime has ended.
    third = office.up()
    office.gateway.ask("sa", "delete", "site", "--direction", "in", "--spi", str(third[0]))
    wait.until(lambda: office.settled(third), "charon has replaced it")
    office.crosses()
    # DPD asks after two seconds without packets, and gives up after three questions.
    office.far.kill()
    wait.until(lambda: office.sas() == [], "the dead peer is found out", deadline=40)


def test_restarts_of_either_side(office):
    office.start()
    first = office.up()
    office.crosses()
    # The gateway, killed: the library gives policies anew, and has charon rekey.
    office.gateway.kill()
    office.gateway.start()
    second = wait.until(lambda: office.settled(first), "there are new SAs", deadline=25)
    office.crosses()
    # In good order: no file has a key, nor do SAs come back by themselves.
    secrets = {sa["spi"]: sa for sa in office.sas()}
    keys = office.keys()
    assert len(keys) == len(secrets) == 2
    office.gateway.stop()
    for file in office.edge.logs.rglob("*"):
        if file.is_file():
            found = file.read_bytes()
            for key in keys:
                assert key not in found and key.hex().encode() not in found.lower(), f"{file} has a key"
    office.gateway.start()
    third = wait.until(lambda: office.settled(second), "there are new SAs", deadline=25)
    office.crosses()
    # The daemon here, and then the peer's: killed and up again.
    office.near.kill()
    office.start_near(**NETS)
    office.near.ask("--initiate", "--child", "net")
    wait.until(lambda: (office.near.pair() or (0,))[0] in office.spis() - set(third), "the daemon's new SAs are here")
    office.crosses()
    office.far.kill()
    office.start_far(**TURNED)
    office.far.ask("--initiate", "--child", "net")
    wait.until(lambda: set(office.far.pair() or (0,)) <= office.spis(), "the peer's new SAs are here")
    office.crosses()


def test_a_packet_initiates(office):
    """With a trap policy the first packet begins it all."""
    office.start(near={**NETS, "more": "start_action = trap"})
    assert office.sas() == []
    wait.until(lambda: office.edge.client.ping(FAR), "packets cross", deadline=15)
    assert office.drops()["sa-missing"] >= 1
    office.crosses()


def test_reload_in_between(office):
    """SAs stay over a reload; they are in reserve while their tunnel is away, and rekeyed there."""
    office.start()
    pair = office.up()
    office.crosses()
    stream = Stream(office.edge.client, FAR)
    for mtu in range(1290, 1300):
        office.gateway.put(office.text.replace('mss = "mtu"', f'mss = "mtu"\nmtu = {mtu}'))
        stream.goes_on()
    office.gateway.put(office.text)
    assert stream.lost() == set(), office.drops()
    assert office.settled() == pair
    without = re.sub(r"(?s)\[interface.site\].*?(?=\[\[rule)", "", office.text)
    office.gateway.put("".join(line for line in without.splitlines(True) if "vpn" not in line))
    assert office.sas() == []
    office.near.ask("--rekey", "--child", "net")
    wait.until(lambda: office.near.pair() not in (None, pair), "it is rekeyed in reserve")
    assert office.sas() == []
    office.gateway.put(office.text)
    wait.until(lambda: set(office.near.pair()) <= office.spis(), "the tunnel has them")
    office.crosses()


def test_two_children_of_one_tunnel(office):
    """Two CHILD_SAs with traffic selectors of their own: each carries what was agreed for it, rekeyed or not, and nothing else."""
    office.edge.provider.ip("addr add 10.2.0.2/32 dev lo", "addr add 10.2.0.3/32 dev lo")

    def ends(host, turned):
        local, remote = ("192.168.1.0/24", f"{host}/32")[:: -1 if turned else 1]
        return {"local_net": local, "remote_net": remote, "esp": ESP}

    children = ["10.2.0.1", "10.2.0.2"]
    near, far = ([ends(host, turned) for host in children] for turned in (False, True))
    office.start(near={**near[0], "also": {"second": near[1]}}, far={**far[0], "also": {"second": far[1]}})
    client, provider = office.edge.client, office.edge.provider
    office.near.ask("--initiate", "--child", "net")
    first = wait.until(lambda: office.near.pair(), "the first child is up")
    client.reaches(children[0])
    assert not client.ping(children[1]) and office.drops()["tunnel-selector"] >= 1
    before = office.drops()
    streams = [Stream(client, children[0]), Stream(provider, CLIENT, "-I", children[0])]
    office.near.ask("--initiate", "--child", "second")
    second = wait.until(lambda: office.near.pair("second"), "the second child is up")
    client.reaches(children[1])
    streams += [Stream(client, children[1]), Stream(provider, CLIENT, "-I", children[1])]
    for daemon, child in [(office.near, "net"), (office.far, "second")]:
        daemon.ask("--rekey", "--child", child)
    wait.until(lambda: office.near.pair() not in (None, first), "the first is rekeyed")
    wait.until(lambda: office.near.pair("second") not in (None, second), "the second is rekeyed")
    spis = [spi for child in ["net", "second"] for spi in office.near.pair(child)]

    def counted():
        return {sa["spi"]: sa["packets"] for sa in office.sas()}

    wait.until(lambda: all(counted()[spi] > 50 for spi in spis), "each carries packets")
    assert lost_to_libipsec(office, streams, before)
    assert {sa["state"] for sa in office.sas() if sa["direction"] == "out"} == {"active"}
    assert not client.ping("10.2.0.3"), "nobody has agreed on that one"


ROAD = "10.55.0.2"
ELSEWHERE = "203.0.113.9"


def translate(provider, ports):
    """The provider translates what comes from behind it to ports of this range."""
    provider.run(
        "nft",
        f"""flush ruleset
        table ip nat {{
            chain post {{
                type nat hook postrouting priority 100;
                ip saddr 10.55.0.0/24 oifname "wan" udp sport 1-65535 masquerade to :{ports}
            }}
        }}""",
    )


def on_the_road(office):
    """The peer, and its daemon, behind a NAT of the provider's."""
    provider = office.edge.provider
    road = Host(provider.namespace.replace("provider", "road"), office.edge.logs)
    office.edge.hosts.append(road)
    provider.ip(
        f"link add road type veth peer name eth0 netns {road.namespace}",
        "link set road up",
        "addr add 10.55.0.1/24 dev road",
        f"addr del {FAR}/32 dev lo",
    )
    road.ip(
        "link set eth0 up", f"addr add {ROAD}/24 dev eth0", "route add default via 10.55.0.1", f"addr add {FAR}/32 dev lo"
    )
    translate(provider, "20000-20100")
    office.far = ike.Daemon(road, office.edge.logs)
    return road


def initiate(office, road):
    """The peer begins."""
    office.far.start(local=ROAD, remote=NEAR, esp=ESP, **TURNED)
    road.ip(f"route replace 192.168.1.0/24 dev ipsec0 src {FAR}")
    office.far.ask("--initiate", "--child", "net")
    return wait.until(office.settled, "it is up")


def test_a_peer_without_an_address(office):
    """Neither the policy nor the daemon knows before where the peer is: its SAs are the tunnel's by their number."""
    road = on_the_road(office)
    office.gateway.text = office.text.replace(f'remote = "{PROVIDER}"', 'remote = "any"\nreqid = 7')
    office.gateway.start()
    office.near.start(local=NEAR, remote="%any", remote_id=ROAD, esp=ESP, more="reqid = 7", **NETS)
    pair = initiate(office, road)
    office.edge.client.reaches(FAR)
    assert road.ping(CLIENT, "-I", FAR)
    assert {sa["remote"] for sa in office.sas() if sa["direction"] == "out"} == {PROVIDER}
    office.near.ask("--rekey", "--child", "net")
    wait.until(lambda: office.settled(pair), "it is rekeyed")
    office.edge.client.reaches(FAR)


def test_a_peer_behind_a_nat_that_forgets(office):
    """The peer's NAT gives it another port: packets follow at once, and the daemon hears of it."""
    provider, road = office.edge.provider, on_the_road(office)
    office.gateway.start()
    # Behind the NAT it is known by its name.
    office.start_near(**NETS, remote_id=ROAD)
    initiate(office, road)

    def crosses():
        office.edge.client.reaches(FAR)
        assert road.ping(CLIENT, "-I", FAR)

    def ports():
        """Of the peer, as charon knows it."""
        return int(re.search(rf"remote '[^']+' @ {PROVIDER}\[(\d+)\]", office.near.ask("--list-sas").stdout)[1])

    crosses()
    assert 20000 <= ports() <= 20100
    # Without its address it forgets.
    provider.ip(f"addr del {PROVIDER}/24 dev wan")
    translate(provider, "30000-30100")
    provider.ip(f"addr add {PROVIDER}/24 dev wan")
    # Its own packets open the way back: the first ones may still leave by the old port, as Linux forgets in its own time.
    is_at = re.compile(rf"peer is at {PROVIDER}:30\d\d\d now")
    wait.until(lambda: road.ping(CLIENT, "-I", FAR) and is_at.search(office.gateway.log()), "packets cross by the new port")
    crosses()
    wait.until(lambda: 30000 <= ports() <= 30100, "charon knows the new port")
    pair = office.settled()
    office.near.ask("--rekey", "--child", "net")
    wait.until(lambda: office.settled(pair), "it is rekeyed by the new port")
    crosses()


def test_a_peer_that_goes_elsewhere(office):
    """MOBIKE (RFC 4555): the peer leaves its address for another one, and tells; its SAs follow, and are rekeyed where its own ESP cannot."""
    provider = office.edge.provider
    # An address stays when the first one of its network goes.
    provider.sysctl({"net/ipv4/conf/all/promote_secondaries": 1})
    office.gateway.text = office.text.replace(f'remote = "{PROVIDER}"', 'remote = "any"\nreqid = 7')
    office.gateway.start()
    office.near.start(local=NEAR, remote="%any", remote_id=PROVIDER, esp=ESP, more="reqid = 7", **NETS)
    office.far.start(local="%any", local_id=PROVIDER, remote=NEAR, esp=ESP, **TURNED)
    provider.ip(f"route replace 192.168.1.0/24 dev ipsec0 src {FAR}")
    pair = office.up(office.far)
    office.crosses()
    for before, after in [(PROVIDER, ELSEWHERE), (ELSEWHERE, PROVIDER)]:
        provider.ip(f"addr add {after}/24 dev wan", f"addr del {before}/24 dev wan")
        provider.ip(f"route replace 192.168.1.0/24 dev ipsec0 src {FAR}")

        def remotes():
            return {sa["remote"] for sa in office.sas() if sa["direction"] == "out"}

        wait.until(lambda: remotes() == {after}, "SAs lead to where the peer is", deadline=20)
        office.crosses()
        moved = rf"updating SAD entry with SPI {pair[1]:08x} from {NEAR}\[4500\]..{before}\[4500\] to {NEAR}\[4500\]..{after}\[4500\]"
        assert re.search(moved, office.near.log.read_text())
        pair = wait.until(lambda: office.settled(pair), "the peer has rekeyed: libipsec changes no SA")
        office.crosses()
    assert office.drops().get("replayed", 0) == 0
    office.near.ask("--rekey", "--child", "net")
    wait.until(lambda: office.settled(pair), "it is rekeyed")
    office.crosses()


def test_linux_hears_what_packets_need():
    """With `xfrm = "linux"`, whether or not that has ESP: a policy of Linux's, a packet for it, and what Linux tells its daemons."""
    if lacking := missing("wirerate-packet"):
        pytest.skip(f"SKIPPED: {lacking}")
    edge = Edge()
    edge.gateway.ip(f"addr add {NEAR}/24 dev wan")
    gateway = gateway_with(edge, POLICY.format(workers=2, xfrm="linux"))
    try:
        gateway.start()
        monitor = edge.gateway.start("ip", "xfrm", "monitor", "acquire", log="monitor")
        ends = f"src {NEAR} dst {PROVIDER} proto esp reqid 7 mode tunnel"
        policy = f"src 192.168.1.0/24 dst 10.2.0.0/16 dir out tmpl {ends}"
        edge.gateway.ip(f"xfrm policy add {policy}")

        def told():
            edge.client.ping(FAR)
            return "acquire" in monitor.log.read_text()

        wait.until(told, "Linux tells of the packet")
        text = monitor.log.read_text()
        assert f"sel src {CLIENT}/32 dst {FAR}/32" in text and "reqid 7" in text, text
        assert json.loads(gateway.ask("sa", "--json").stdout) == []
    finally:
        print(gateway.evidence())
        gateway.stop()
        edge.close()
        shutil.rmtree(edge.logs, ignore_errors=True)


class Both:
    """Two gateways with wirerate, each under its own charon: ESP as it is, without UDP."""

    def __init__(self, means, workers):
        self.sites = Sites()
        self.daemons, self.gateways = [], []
        for end in self.sites.ends:
            own, other = end.number, 3 - end.number
            end.gateway.ip(f"addr add 192.0.2.{own}/24 dev wan")
            xfrm = end.logs / "xfrm"
            turned = {
                "192.168.1.1/24": f"10.{own}.0.1/16",
                "203.0.113.2": f"192.0.2.{own}",
                "203.0.113.1": f"192.0.2.{other}",
                "10.2.0.0/16": f"10.{other}.0.0/16",
                "10.9.0.1/30": f"10.9.0.{own}/30",
            }
            text = POLICY.format(workers=workers, xfrm=xfrm)
            self.gateways.append(gateway_with(end, functools.reduce(lambda text, pair: text.replace(*pair), turned.items(), text)))
            self.daemons.append(ike.Daemon(end.gateway, end.logs, means(xfrm)))

    def start(self, first=None, **child):
        """`first`: what the child of the first site has besides."""
        for end, gateway, daemon in zip(self.sites.ends, self.gateways, self.daemons):
            own, other = end.number, 3 - end.number
            gateway.start()
            nets = {} if "local_net" in child else {"local_net": f"10.{own}.0.0/16", "remote_net": f"10.{other}.0.0/16"}
            more = first if own == 1 and first else {}
            daemon.start(local=f"192.0.2.{own}", remote=f"192.0.2.{other}", encap="no", **nets, **child, **more)

    def sas(self, which):
        return json.loads(self.gateways[which].ask("sa", "--json").stdout)

    def settled(self, but=()):
        pair = self.daemons[0].pair()
        has_all = pair and all({sa["spi"] for sa in self.sas(which)} == set(pair) for which in (0, 1))
        return pair if has_all and not set(pair) & set(but) else None

    def close(self):
        for daemon, gateway in zip(self.daemons, self.gateways):
            print(f"-- charon of {daemon.host}\n{daemon.evidence()}\n{gateway.evidence()}")
            daemon.stop()
            gateway.stop()
        self.sites.close()


@each_means
def test_wirerate_at_both_ends(preload, means):
    """ESP without UDP, extended numbers, AES-CBC with HMAC; rekeyed under traffic without a lost packet."""
    both = Both(means, 2)
    try:
        both.start(esp="aes256-sha256-x25519-esn")
        one, two = both.sites.ends
        both.daemons[0].ask("--initiate", "--child", "net")
        pair = wait.until(both.settled, "both have the SAs")
        one.client.reaches("10.2.0.10")
        two.client.reaches("10.1.0.10")
        listed = both.sas(0)
        assert {(sa["algorithm"], sa["auth"], sa["udp"]) for sa in listed} == {("aes256-cbc", "hmac-sha256-128", False)}
        shown = ["env", f"LD_PRELOAD={preload}", f"WIRERATE_XFRM={one.logs / 'xfrm'}", "ip", "xfrm", "state", "list"]
        assert one.gateway.run(*shown).stdout.count("flag af-unspec esn") == 2
        streams = [Stream(one.client, "10.2.0.10"), Stream(two.client, "10.1.0.10")]
        for which in (0, 1):
            both.daemons[which].ask("--rekey", "--child", "net")
            pair = wait.until(lambda: both.settled(pair), "it is rekeyed")
        assert [stream.lost() for stream in streams] == [set(), set()]
        transfer(one.client, two.client, "10.2.0.10", 5001, upload=4 << 20, download=4 << 20)
    finally:
        both.close()


BOUNDS = {
    "bytes": "rekey_bytes = 60000\nlife_bytes = 2000000\nrand_bytes = 0",
    "packets": "rekey_packets = 600\nlife_packets = 20000\nrand_packets = 0",
}


@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
def test_bounds_of_use_have_charon_rekey(preload, bounds):
    """Under traffic, again and again, and without a lost packet: the gateway tells of the soft bound long before the hard one."""
    both = Both(functools.partial(ike.Preload, preload), 2)
    try:
        both.start(esp=ESP, first={"more": bounds})
        one, two = both.sites.ends
        both.daemons[0].ask("--initiate", "--child", "net")
        pair = wait.until(both.settled, "both have the SAs")
        one.client.reaches("10.2.0.10")
        two.client.reaches("10.1.0.10")
        streams = [Stream(one.client, "10.2.0.10"), Stream(two.client, "10.1.0.10")]
        for _ in range(3):
            pair = wait.until(lambda: both.settled(pair), "it is rekeyed", deadline=30)
        assert [stream.lost() for stream in streams] == [set(), set()]
        for gateway in both.gateways:
            assert json.loads(gateway.ask("drops", "--json").stdout) == []
        assert both.daemons[0].log.read_text().count("creating rekey job for CHILD_SA ESP") >= 3
        assert both.gateways[0].log().count("soft lifetime of a security association reached") >= 3
    finally:
        both.close()


@each_means
def test_an_sa_for_each_worker(means):
    """RFC 9611, negotiated by strongSwan 6 (`per_cpu_sas`): the first packet brings an SA of all, and each worker asks for one of its own,
    without a lost packet; a rekeying of one leaves the others alone."""
    if why := ike.lacking():
        pytest.skip(f"SKIPPED: {why}")
    if ike.version().startswith("5."):
        pytest.skip("strongSwan 5 has no `per_cpu_sas`: STRONGSWAN says where another is")
    both = Both(means, 2)
    try:
        both.start(esp=ESP, more="per_cpu_sas = yes\n        start_action = trap")
        one, two = both.sites.ends
        # Flows belong to a worker by their source: these are not all of one.
        sources = [f"10.1.0.{number}" for number in range(100, 108)]
        one.client.ip(*[f"addr add {source}/16 dev eth0" for source in sources])
        wait.until(lambda: one.client.ping("10.2.0.10"), "the trap has brought an SA", deadline=15)
        streams = [Stream(one.client, "10.2.0.10", "-I", source) for source in sources]

        def own(which):
            """SPIs of the SAs in use of each worker's own at a gateway."""
            out = [sa for sa in both.sas(which) if sa["direction"] == "out" and sa["packets"] > 0]
            return {sa["cpu"]: sa["spi"] for sa in sorted(out, key=lambda sa: sa["spi"]) if sa.get("cpu") is not None}

        first = wait.until(lambda: len(own(0)) == 2 and own(0), "each worker has an SA of its own", deadline=20)
        for stream in streams:
            stream.goes_on(50)
        assert set(first) == {0, 1}, both.sas(0)
        assert [stream.lost() for stream in streams] == [set()] * len(streams)
    finally:
        both.close()


@each_means
def test_transport_mode(means):
    """Both gateways' own traffic behind its own header, by `mode = transport` of strongSwan's; rekeyed under it without a lost packet."""
    both = Both(means, 2)
    try:
        for gateway in both.gateways:
            text = re.sub(r"(?s)\[\[route\]\].*?(?=\[\[rule)", "", gateway.text)
            text = re.sub(r'addresses = \["10.9.0.\d/30"\]\nmss = "mtu"\n', "", text)
            gateway.text = text.replace('keys = "ike"', 'keys = "ike"\nmode = "transport"') + '"self > vpn" = "accept"\n'
        both.start(esp=ESP, local_net="dynamic", remote_net="dynamic", more="mode = transport")
        one, two = both.sites.ends
        both.daemons[0].ask("--initiate", "--child", "net")
        pair = wait.until(both.settled, "both have the SAs")
        one.gateway.reaches("192.0.2.2")
        stream = Stream(one.gateway, "192.0.2.2")
        for which in (0, 1):
            both.daemons[which].ask("--rekey", "--child", "net")
            pair = wait.until(lambda: both.settled(pair), "it is rekeyed")
        assert stream.lost() == set()
        shown = {(sa["direction"], sa["udp"]) for sa in both.sas(1)}
        assert shown == {("in", False), ("out", False)} and all(sa["packets"] > 0 for sa in both.sas(1))
        transfer(one.gateway, two.gateway, "192.0.2.2", 5001, upload=1 << 20, download=1 << 20)
    finally:
        both.close()


def page():
    """Policies and configurations of strongSwan that the manual has for two sites."""
    text = (Path(__file__).parents[2] / "docs" / "ipsec.md").read_text()
    section = text.split("## Two sites with strongSwan\n")[1].split("\n## ")[0]
    blocks = re.findall(r"(?s)```(toml|conf)\n(.*?)```", section)
    return [[block for kind, block in blocks if kind == wanted] for wanted in ("toml", "conf")]


@each_means
def test_what_the_manual_says(means):
    """Two sites by the page's own files, with a router between them; only the socket is elsewhere, as there is one for each."""
    sites, daemons, gateways = Sites(), [], []
    router = Host(sites.ends[0].gateway.namespace.replace("gateway1", "router"), sites.ends[0].logs)
    router.sysctl({"net/ipv4/ip_forward": 1})
    try:
        for end, net, policy, conf in zip(sites.ends, ["203.0.113", "198.51.100"], *page()):
            host, xfrm = end.gateway, end.logs / "xfrm"
            if end.number == 1:
                host.ip("link del wan")
            host.ip(f"link add wan type veth peer name to{end.number} netns {router.namespace}", "link set wan up")
            host.ip(f"addr add {net}.2/24 dev wan", f"route add default via {net}.1")
            router.ip(f"link set to{end.number} up", f"addr add {net}.1/24 dev to{end.number}")
            gateways.append(gateway_with(end, policy.replace("/run/wirerate/xfrm", str(xfrm))))
            gateways[-1].start()
            daemons.append(ike.Daemon(host, end.logs, means(xfrm)))
            daemons[-1].start()
            daemons[-1].load(conf)
        one, two = sites.ends
        # The first packet begins it.
        wait.until(lambda: one.client.ping("10.2.0.10"), "packets cross", deadline=15)
        two.client.reaches("10.1.0.10")
        daemons[1].ask("--initiate", "--child", "net", check=False)
        for gateway in gateways:
            listed = json.loads(gateway.ask("sa", "--json").stdout)
            assert {sa["direction"] for sa in listed} == {"in", "out"} and not any(sa["udp"] for sa in listed), listed
            assert {drop["reason"] for drop in json.loads(gateway.ask("drops", "--json").stdout)} <= {"sa-missing"}
    finally:
        for daemon, gateway in zip(daemons, gateways):
            print(f"-- charon of {daemon.host}\n{daemon.evidence()}\n{gateway.evidence()}")
            daemon.stop()
            gateway.stop()
        router.close()
        sites.close()


def test_no_sa_goes_to_linux_where_the_plugin_is_missing(plugin, tmp_path):
    """charon ends where its configuration names the plugin and the file is not there."""
    bare = tmp_path / "bare"
    shutil.copytree(plugin, bare, ignore=shutil.ignore_patterns("libstrongswan-kernel-wirerate.so"))
    edge = Edge()
    try:
        daemon = ike.Daemon(edge.gateway, edge.logs, ike.Plugin(bare, edge.logs / "xfrm"))
        daemon.launch()
        assert daemon.process.wait(20) != 0
        assert "kernel-ipsec" in daemon.evidence()
    finally:
        edge.close()
        shutil.rmtree(edge.logs, ignore_errors=True)
