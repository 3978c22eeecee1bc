"""Another policy while connections are under way."""

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
import wait
from topology import CLIENT, OUTSIDE, REMOTE, REMOTE6
from transfer import transfer

CHAT = 6667
"""What the variant `no-chat` of the policy forbids."""


@pytest.fixture(autouse=True)
def as_before(net):
    yield
    net.office.apply()


def says(here, there, data):
    here.sendall(data)
    return there.recv(100) == data


def chats(net):
    """Whether a new connection to the chat server opens."""
    with net.remote.listen(CHAT) as server:
        try:
            with net.client.connect(REMOTE, CHAT, timeout=0.5):
                server.accept()[0].close()
                return True
        except socket.timeout:
            return False


def test_a_new_policy_decides_about_new_connections(net):
    assert chats(net)
    net.office.apply("no-chat")
    wait.until(lambda: not chats(net), "chat is forbidden")
    net.office.apply()
    wait.until(lambda: chats(net), "chat is allowed again")


@pytest.mark.parametrize("to", [REMOTE, REMOTE6], ids=["ipv4", "ipv6"])
def test_a_connection_outlives_a_reload(net, to):
    """With the same translation: the server sees the same port."""
    with net.remote.listen(80, v6=":" in to) as server, net.client.connect(to, 80) as client:
        there, _ = server.accept()
        with there:
            for variants in [("no-chat",), (), ("no-chat",), ()]:
                net.office.apply(*variants)
                assert says(client, there, b"up")
                assert says(there, client, b"down")


def test_a_forward_and_a_mapping_outlive_a_reload(net):
    with net.server.listen(443) as server, net.remote.connect(OUTSIDE, 443) as outside:
        with net.remote.udp(port=5000) as remote, net.client.udp(CLIENT, 4646) as client:
            there, _ = server.accept()
            client.sendto(b"before", (REMOTE, 5000))
            peer = remote.recvfrom(100)[1]
            net.office.apply("no-chat")
            with there:
                assert says(outside, there, b"in")
                assert says(there, outside, b"out")
            remote.sendto(b"an answer", peer)
            assert client.recv(100) == b"an answer"
            client.sendto(b"after", (REMOTE, 5000))
            assert remote.recvfrom(100) == (b"after", peer)


def test_data_flows_through_many_reloads(net):
    """Twenty reloads during a transfer: it ends, every byte as it was sent."""
    with ThreadPoolExecutor(1) as pool:
        moving = pool.submit(
            transfer, net.client, net.remote, REMOTE, 80, upload=30_000_000, download=30_000_000
        )
        for number in range(20):
            net.office.apply(*["no-chat"] * (number % 2))
        moving.result(timeout=60)


@pytest.mark.without("nftables", why="Linux lets a connection live that its rules would no longer open")
def test_what_is_no_longer_allowed_ends(net):
    """A flow is revalidated by the new policy."""
    with net.remote.listen(CHAT) as server, net.client.connect(REMOTE, CHAT) as client:
        there, _ = server.accept()
        with there:
            assert says(client, there, b"allowed")
            net.office.apply("no-chat")
            client.sendall(b"forbidden")
            there.settimeout(1)
            with pytest.raises(socket.timeout):
                there.recv(100)


@pytest.mark.without("nftables", why="nft has no trial")
def test_a_policy_on_trial_goes_unless_it_is_confirmed(net):
    net.office.apply("no-chat", confirm="2s")
    assert not chats(net)
    wait.until(lambda: chats(net), "the policy of before is back", 5)
    net.office.apply("no-chat", confirm="2s")
    net.office.ask("confirm")
    assert not chats(net)
    net.office.apply(confirm="60s")
    assert chats(net)
    net.office.ask("rollback")
    wait.until(lambda: not chats(net), "the policy that was confirmed is back", 5)


def test_a_policy_with_a_fault_changes_nothing(net):
    assert net.office.refuses("this is no policy")
    assert chats(net)
    assert net.client.ping(REMOTE)
