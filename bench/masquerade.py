"""Masquerading, as bench/fast and bench/frames measure it: the policy, nftables' rules that do the same, and its flows."""

import time

from results import say
from veth import Gateway, Linux

POLICY = """
[gateway]
driver = "{driver}"
fast-path = "{fast}"

[interface.lan]
zone = "lan"
addresses = ["10.0.0.1/24"]

[interface.wan]
zone = "wan"
addresses = ["203.0.113.2/24"]

[default]
"lan > wan" = "accept"

[limit]
flows = {limit}
flows-per-source = 65536

[[route]]
to = "0.0.0.0/0"
via = "203.0.113.1"

[[route]]
to = "10.0.0.0/8"
via = "10.0.0.2"

[[nat]]
name = "out"
from = "lan"
to = "wan"
"""

MASQUERADE = 'kind = "masquerade"\n'
POOL = 'kind = "source"\npool = ["203.0.113.16-203.0.113.31"]\n'
NFT = "table ip nat {{ chain out {{ type nat hook postrouting priority srcnat; oifname wan {}; }}; }}\n"

# An inside endpoint has two flows, and keeps its outside port for both (RFC 4787): one address has ports for twice as many flows.
MASQUERADED = 120_000


def policy(fast, flows):
    """wirerate's policy, for a fast path of that kind."""
    text = POLICY.format(driver="xdp" if fast == "xdp" else "packet", fast=fast, limit=max(flows * 21 // 20, 16_384))
    return text + (MASQUERADE if flows <= MASQUERADED else POOL)


def router(spaces, binary, name, flows):
    """A router by its name among the columns."""
    if name == "nftables":
        action = "masquerade" if flows <= MASQUERADED else "snat to 203.0.113.16-203.0.113.31"
        return Linux(spaces, NFT.format(action))
    return Gateway(spaces, binary, policy(name, flows))


def published(gateway):
    """Flows on the fast path."""
    path = gateway.ask("status")["fast_path"]
    return path["flows"] if path else 0


def establish(spaces, through, name, flows):
    """Opens the flows; on the fast path until nearly all are there. Gives the share that is."""
    spaces.establish(flows)
    if name not in ("tc", "xdp"):
        spaces.go_on(flows, 2)
        return None
    for _ in range(6):
        spaces.go_on(flows, 8)
        time.sleep(0.2)
        share = published(through) / flows
        if share >= 0.99:
            break
        say(f"  {share:.1%} of {flows} flows are on the fast path")
    # Behind its publication a flow's next packet is still the worker's.
    spaces.go_on(flows, 2)
    return share


def carried(gateway):
    """Packets that went by the fast path."""
    # The worker looks after its flows in turn, 80,000 a second.
    time.sleep(1.2 + published(gateway) / 70_000)
    return gateway.ask("status")["fast_path"]["packets"]
