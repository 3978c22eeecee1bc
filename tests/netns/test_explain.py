"""What a running gateway says it would do with a packet, and what it then does."""

import json

import pytest
import wait
from packet import UDP, Packet, drain
from topology import CLIENT, OUTSIDE, REMOTE, ROUTER2, SERVER

pytestmark = pytest.mark.without("nftables", why="Linux explains nothing")


def explain(net, packet):
    return json.loads(net.office.ask("explain", "--live", "--json", packet).stdout)


def stage(told, name):
    return " ".join(next(stage["says"] for stage in told["stages"] if stage["stage"] == name))


def test_of_a_first_packet_the_port_is_not_invented(net):
    net.client.reaches(REMOTE)
    before = net.office.counters()
    told = explain(net, f"lan udp {CLIENT}:40123 > {REMOTE}:5001")
    assert told["verdict"] == "forwarded"
    assert [nat["name"] for nat in told["nats"]] == ["house"]
    (sent,) = told["sent"]
    assert (sent["interface"], sent["packet"]["source"], sent["packet"]["sport"]) == ("wan", OUTSIDE, "?")
    assert f"{OUTSIDE}:? > {REMOTE}:5001" in sent["packet"]["words"]
    assert told["flow"]["reply"] is None
    assert told["live"]["flow"] is None
    assert "free port" in told["live"]["unknown"][0]
    assert f"{OUTSIDE} and a free port" in stage(told, "snat")
    # Nothing came of it.
    after = net.office.counters()
    assert before["flows_begun"] <= after["flows_begun"]
    assert not json.loads(net.office.ask("flows", "--port", 40123, "--json").stdout)["flows"]
    text = net.office.ask("explain", "--live", f"lan udp {CLIENT}:40123 > {REMOTE}:5001").stdout
    assert "The gateway has no flow that it belongs to." in text and "Not known: " in text, text


def test_of_a_flow_that_is_there_all_is_known(net):
    """Both ways, and what a second destination is told: the mapping is the same."""
    with net.remote.udp(port=5000) as remote, net.stranger.udp(port=5000), net.client.udp(CLIENT, 4747) as here:
        here.sendto(b"first", (REMOTE, 5000))
        peer = remote.recvfrom(100)[1]
        for to in [REMOTE, "198.51.100.66"]:
            told = explain(net, f"lan udp {CLIENT}:4747 > {to}:5000")
            assert told["verdict"] == "forwarded", told
            assert told["sent"][0]["packet"]["sport"] == str(peer[1])
            assert told["live"]["unknown"] == []
            assert (told["live"]["flow"] is not None) == (to == REMOTE)
        told = explain(net, f"wan udp {REMOTE}:5000 > {OUTSIDE}:{peer[1]}")
        assert told["verdict"] == "forwarded"
        packet = told["sent"][0]["packet"]
        assert (packet["destination"], packet["dport"]) == (CLIENT, "4747")
        assert packet["link-destination"] == net.client.mac(), "the neighbour that Linux knows"
        assert "not answered yet" in told["flow"]["state"] or told["flow"]["state"] == "answered"
        assert told["live"]["flow"]["validated"] and told["live"]["flow"]["age_seconds"] < 60
        # And so it comes.
        with net.client.sniff("eth0") as sniffer:
            remote.sendto(b"an answer", peer)
            assert here.recv(100) == b"an answer"
            seen = [packet for packet in map(Packet.read, drain(sniffer)) if packet and packet.protocol == UDP]
            assert any((packet.source, packet.to, packet.dport) == (REMOTE, CLIENT, 4747) for packet in seen)
        # A stranger's is not of the flow.
        told = explain(net, f"wan udp 198.51.100.66:5000 > {OUTSIDE}:{peer[1]}")
        assert told["verdict"] == "dropped"


def test_a_segment_of_a_capture_belongs_to_its_connection(net, tmp_path):
    capture = tmp_path / "lan.pcap"
    with net.remote.listen(80) as listener, net.client.sniff("eth0") as sniffer:
        with net.client.connect(REMOTE, 80) as here:
            there, peer = listener.accept()
            with there:
                here.sendall(b"hello")
                assert there.recv(100) == b"hello"
                port = here.getsockname()[1]
                frames = []

                def sent():
                    frames.extend(drain(sniffer))
                    return len(frames) >= 3

                wait.until(sent, "the segments were seen")
                own = [frame for frame in frames if (packet := Packet.read(frame)) and packet.sport == port]
                pcap(capture, own)
                told = json.loads(
                    net.office.ask("explain", "--live", "--json", f"lan={capture}:{len(own)}").stdout
                )
                assert told["verdict"] == "forwarded", told
                assert told["sent"][0]["packet"]["sport"] == str(peer[1])
                assert told["flow"]["state"] == "established"
                # A segment that nobody sent is outside of the window.
                told = explain(net, f"lan tcp {CLIENT}:{port} > {REMOTE}:80 ack seq 7 ackno 7")
                assert (told["verdict"], told["live"]["flow"] is not None) == ("dropped", True), told


def pcap(path, frames):
    import struct

    with open(path, "wb") as file:
        file.write(struct.pack("=IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 1 << 18, 1))
        for frame in frames:
            file.write(struct.pack("=IIII", 1, 0, len(frame), len(frame)) + frame)


def test_a_forward(net):
    net.gateway.reaches(SERVER)
    told = explain(net, f"wan tcp {REMOTE}:50000 > {OUTSIDE}:443 syn")
    assert (told["verdict"], told["rule"]["name"]) == ("forwarded", "web-in"), told
    assert told["sent"][0]["packet"]["destination"] == SERVER
    assert told["live"]["unknown"] == []


def test_routes_of_linux_count(net):
    net.gateway.run("ping", "-c", 1, "-W", 1, ROUTER2, check=False)
    packet = f"lan udp {CLIENT}:1000 > 100.64.9.9:1000"
    net.gateway.ip(f"route add 100.64.9.0/24 via {ROUTER2}")
    try:
        told = wait.until(
            lambda: (found := explain(net, packet)) and ROUTER2 in stage(found, "route") and found,
            "the route is known",
        )
        assert told["sent"][0]["packet"]["link-destination"] == net.router2.mac("wan")
    finally:
        net.gateway.ip("route del 100.64.9.0/24")


def test_a_neighbour_that_is_not_known_is_waited_for(net):
    told = explain(net, f"lan udp {CLIENT}:1000 > 203.0.113.99:1000")
    assert (told["verdict"], told["reason"]["name"]) == ("held", "neighbour-waits"), told


def test_what_is_wrong_is_told(net, tmp_path):
    done = net.office.ask("explain", "--live", "nowhere tcp 1.1.1.1:1 > 2.2.2.2:2", check=False)
    assert done.returncode == 2 and "interface" in done.stdout, done.stdout
    done = net.office.ask("explain", "--live", check=False)
    assert done.returncode == 2, done.stdout
