"""Two workers: what one does, two do together, though the packets of a flow and its answers may come to either."""

import json

import pytest

from test_forward import test_a_port_leads_to_the_server, test_inside_hosts_use_the_outside_address
from test_fragment import test_fragments_in_any_order, test_large_datagrams_from_inside
from test_icmp import test_the_quoted_packet_is_the_one_that_was_sent, test_traceroute_from_inside
from test_load import test_a_hundred_thousand_flows
from test_nat import (
    test_a_udp_port_is_mapped_alike_for_all_destinations,
    test_many_clients_have_connections_at_one_time,
    test_strangers_cannot_use_a_mapping,
    test_two_hosts_may_use_the_same_port,
)
from test_reload import test_a_forward_and_a_mapping_outlive_a_reload, test_data_flows_through_many_reloads
from test_restart import test_connections_outlive_a_restart
from test_self import test_it_has_connections_of_its_own
from topology import REMOTE

VARIANTS = ["two-workers"]

pytestmark = pytest.mark.without("nftables", why="Linux has no workers to set")


def test_both_workers_work(net):
    """Many flows are spread over both."""
    with net.remote.udp(port=5000) as server:
        for _ in range(64):
            with net.client.udp() as client:
                client.sendto(b"", (REMOTE, 5000))
                server.recv(100)
    workers = json.loads(net.office.ask("status", "--json").stdout)["workers"]
    assert len(workers) == 2
    assert all(worker["received"] > 0 for worker in workers), workers


__all__ = [
    "test_a_forward_and_a_mapping_outlive_a_reload",
    "test_a_hundred_thousand_flows",
    "test_a_port_leads_to_the_server",
    "test_a_udp_port_is_mapped_alike_for_all_destinations",
    "test_connections_outlive_a_restart",
    "test_data_flows_through_many_reloads",
    "test_fragments_in_any_order",
    "test_inside_hosts_use_the_outside_address",
    "test_it_has_connections_of_its_own",
    "test_large_datagrams_from_inside",
    "test_many_clients_have_connections_at_one_time",
    "test_strangers_cannot_use_a_mapping",
    "test_the_quoted_packet_is_the_one_that_was_sent",
    "test_traceroute_from_inside",
    "test_two_hosts_may_use_the_same_port",
]
