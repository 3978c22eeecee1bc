"""Flow records and NAT events are conserved: each that is made has come, or is counted as lost, whatever the collector does.

The truth is what Linux has counted behind the gateway. Connections are TCP's shortest: a SYN, and the reset of a host that does not listen.
"""

import contextlib
import json
import signal
import time
from types import SimpleNamespace

import packet
import pytest
import wait
from collector import Counting
from topology import CLIENT, REMOTE

pytestmark = [
    pytest.mark.without("nftables", why="Linux exports nothing by itself"),
    pytest.mark.longest(180),
]

DPORT = 7020
PORT = 4739
MANY = 3_000
"""Connections between two looks."""

HEARD = """
table inet heard {
    counter asked { }
    counter answered { }
    chain seen {
        type filter hook prerouting priority -400;
        tcp dport 7020 tcp flags & (syn | rst) == syn counter name asked
        tcp sport 7020 tcp flags & rst == rst counter name answered
    }
}
"""


@pytest.fixture
def lab(net):
    """Counters at both hosts, a cable to the collector that no policy knows, and the gateway's own policy afterwards."""
    for host in (net.remote, net.client):
        host.run("nft", "-f", "-", input=HEARD)
    net.gateway.ip(
        f"link add mgmt type veth peer name mgmt netns {net.server.namespace}",
        "addr add 10.255.0.1/30 dev mgmt",
        "link set mgmt up",
    )
    net.server.ip("addr add 10.255.0.2/30 dev mgmt", "link set mgmt up")
    net.client.reaches(REMOTE)
    made = SimpleNamespace(net=net, wire=net.client.wire("eth0"), sent=0, collector=None)
    yield made
    made.wire.close()
    if made.collector:
        # Also where it stands still.
        made.collector.kill()
    net.office.ask("flows", "kill", "--port", DPORT, check=False)
    net.office.apply()
    for host in (net.remote, net.client):
        host.run("nft", "delete", "table", "inet", "heard")
    net.gateway.ip("link del mgmt")
    net.server.run("nft", "flush", "ruleset")


@pytest.fixture(params=["udp", "tcp"])
def transport(request):
    return request.param


def apply(net, transport):
    net.office.write()
    text = net.office.policy.read_text()
    keys = [f'ipfix = "{transport}:10.255.0.2:{PORT}"', 'ipfix-records = ["flow", "nat"]', 'ipfix-active-timeout = "1h"']
    net.office.policy.write_text(text.replace("[gateway]\n", "\n".join(["[gateway]", *keys, ""]), 1))
    net.office.ask("apply", net.office.policy)


def status(net):
    return json.loads(net.office.ask("status", "--json").stdout)["ipfix"]


def begin(lab, transport, **options):
    """A collector, and what the gateway has counted before."""
    counting = lab.collector = Counting(lab.net.server, lab.net.logs, transport, "10.255.0.2", PORT, **options)
    # What has begun before would end meanwhile.
    lab.net.office.ask("flows", "kill", "--host", CLIENT, check=False)
    apply(lab.net, transport)
    wait.until(lambda: status(lab.net)["collector"] == "up", "the collector is reached")
    quiet(lab.net)
    lab.before, lab.counted = status(lab.net), counting.counts.all()
    return counting


def talk(lab, many=MANY, rate=2_000):
    """So many connections more, each of its own port."""
    mac, own = lab.net.gateway.mac("lan"), lab.net.client.mac()
    begun = time.monotonic()
    for number in range(lab.sent, lab.sent + many):
        segment = packet.tcp(CLIENT, REMOTE, 2_000 + number, DPORT, packet.SYN, seq=number)
        lab.wire.send(packet.ethernet(mac, own, packet.ipv4(CLIENT, REMOTE, packet.TCP, segment)))
        time.sleep(max(0, begun + (number - lab.sent) / rate - time.monotonic()))
    lab.sent += many


def end_flows(lab):
    """Ends the connections, each of which has a record for each direction then, and an event."""
    lab.net.office.ask("flows", "kill", "--port", DPORT, check=False)


def quiet(net):
    def is_same():
        before = status(net)
        time.sleep(0.5)
        after = status(net)
        return (before["records"], before["lost"]) == (after["records"], after["lost"])

    wait.until(is_same, "all records are sent", deadline=40)


def heard(host, name):
    listed = json.loads(host.run("nft", "-j", "list", "counter", "inet", "heard", name).stdout)["nftables"]
    return next(item["counter"]["packets"] for item in listed if "counter" in item)


def account(lab, counting):
    """What was made, by Linux's count; what the gateway says of it; and what has come."""

    def is_all_told():
        after, asked, answered = status(lab.net), heard(lab.net.remote, "asked"), heard(lab.net.client, "answered")
        told = after["records"] + after["lost"] - lab.before["records"] - lab.before["lost"]
        return told >= 3 * asked + answered

    with contextlib.suppress(AssertionError):
        wait.until(is_all_told, "the sum is what was made", deadline=40)
    quiet(lab.net)
    after, counts = status(lab.net), counting.counts.all()
    asked, answered = heard(lab.net.remote, "asked"), heard(lab.net.client, "answered")
    came = {name: counts[name] - lab.counted[name] for name in counts}
    return SimpleNamespace(
        packets=asked + answered,
        flows=asked + answered,
        events=2 * asked,
        made=asked + answered + 2 * asked,
        exported=after["records"] - lab.before["records"],
        lost=after["lost"] - lab.before["lost"],
        came=SimpleNamespace(**came, all=came["flows"] + came["events"]),
    )


def test_what_is_made_comes(lab, transport):
    counting = begin(lab, transport)
    talk(lab)
    end_flows(lab)
    told = account(lab, counting)
    assert told.made > 3.9 * MANY, told
    assert (told.exported, told.lost) == (told.made, 0), told
    assert (told.came.flows, told.came.events) == (told.flows, told.events), told
    assert told.came.packets == told.packets, told
    assert (told.came.missing, told.came.late, told.came.unknown) == (0, 0, 0), told


def test_a_collector_over_udp_vanishes_and_comes_back(lab):
    """Its host says that nobody listens, and what it says so of is counted; for the rest there are sequence numbers."""
    counting = begin(lab, "udp")
    talk(lab, 1_000)
    counting.kill()
    talk(lab, 1_000)
    end_flows(lab)
    counting.begin()
    talk(lab, 1_000)
    end_flows(lab)
    told = account(lab, counting)
    assert told.exported + told.lost == told.made, told
    assert 0 < told.lost < told.made, told
    # What has not come has had numbers, as have the exporter's own records that were lost meanwhile.
    assert told.made <= told.came.all + told.came.missing <= told.made + 100, told
    assert told.came.missing > 0 and told.came.unknown == 0, told


def test_a_collector_over_tcp_vanishes_and_comes_back(lab):
    """As if its power went while records are under way."""
    counting = begin(lab, "tcp")
    talk(lab, 1_000)
    quiet(lab.net)
    server, sent = lab.net.server, status(lab.net)["records"]
    server.run("nft", "add table netdev gone; add chain netdev gone in { type filter hook ingress device mgmt priority 0; }; "
                      "add rule netdev gone in ip protocol tcp drop")
    talk(lab, 1_000)
    end_flows(lab)
    # What Linux has taken by now nobody acknowledges.
    wait.until(lambda: status(lab.net)["records"] > sent, "records are under way")
    counting.kill()
    server.run("nft", "delete", "table", "netdev", "gone")
    wait.until(lambda: status(lab.net)["collector"] == "down", "its end is noticed", deadline=30)
    talk(lab, 1_000)
    counting.begin()
    wait.until(lambda: status(lab.net)["collector"] == "up", "it is reached again", deadline=40)
    end_flows(lab)
    told = account(lab, counting)
    assert told.exported + told.lost == told.made, told
    assert told.came.all == told.exported, told
    assert 0 < told.lost < told.made, told
    assert (told.came.missing, told.came.late) == (0, 0), told


def test_a_collector_reads_too_slowly(lab, transport):
    """Over TCP it is given up after two seconds, and reached anew; over UDP what its buffer has no room for is missing by sequence numbers."""
    net = lab.net
    net.gateway.sysctl({"net/ipv4/tcp_wmem": "4096 16384 32768"})
    counting = begin(lab, transport, room=16_384)
    counting.process.send_signal(signal.SIGSTOP)
    talk(lab)
    end_flows(lab)
    if transport == "tcp":
        wait.until(lambda: status(net)["lost"] > lab.before["lost"], "it is given up", deadline=30)
    quiet(net)
    counting.process.send_signal(signal.SIGCONT)
    wait.until(lambda: status(net)["collector"] == "up", "it is reached", deadline=60)
    talk(lab, 500)
    end_flows(lab)
    # The last message of so many may be missing, too; that of a few behind them comes, and has the number of all before.
    quiet(net)
    talk(lab, 5)
    end_flows(lab)
    told = account(lab, counting)
    wait.until(lambda: status(net)["collector"] == "up", "it is reached", deadline=60)
    assert told.exported + told.lost == told.made, told
    if transport == "tcp":
        assert told.came.all == told.exported and told.came.missing == 0, told
        assert told.lost > 0, told
    else:
        assert told.lost == 0 and told.came.missing > 0, told
        assert told.made <= told.came.all + told.came.missing <= told.made + 100, told


def test_a_gateway_that_ends_has_sent_all(lab, transport):
    """Connections that go on have their records as the process ends."""
    counting = begin(lab, transport)
    talk(lab, 2_000)
    before = counting.counts.flows - lab.counted["flows"]
    lab.net.office.stop()
    lab.net.office.start()
    asked, answered = heard(lab.net.remote, "asked"), heard(lab.net.client, "answered")
    came = counting.counts.flows - lab.counted["flows"]
    assert before < came == asked + answered, (before, counting.counts.all())
    assert counting.counts.missing == 0
