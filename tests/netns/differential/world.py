"""Who is where: the interfaces of the gateway, its addresses, and the hosts beyond them."""

INTERFACES = ("lan", "dmz", "wan")

OWN = {
    "lan": {4: "192.168.1.1/24", 6: "2001:db8:1::1/64"},
    "dmz": {4: "192.168.2.1/24", 6: "2001:db8:2::1/64"},
    "wan": {4: "203.0.113.2/24", 6: "2001:db8:ffff::2/64"},
}

HOSTS = {
    "lan": {4: ["192.168.1.10", "192.168.1.77"], 6: ["2001:db8:1::10", "2001:db8:1::77"]},
    "dmz": {4: ["192.168.2.10", "192.168.2.20"], 6: ["2001:db8:2::10", "2001:db8:2::20"]},
    "wan": {4: ["203.0.113.9", "198.51.100.7"], 6: ["2001:db8:ffff::9", "2001:db8:beef::7"]},
}

MTU = {"lan": 1500, "dmz": 1500, "wan": 1400}

GATEWAY_OF_LAST_RESORT = {4: "203.0.113.1", 6: "2001:db8:ffff::1"}

POOL = {4: "203.0.113.50", 6: "2001:db8:ffff::50"}
"""An address that source translations may take, beside the gateway's own."""


def own(interface, version):
    return OWN[interface][version].split("/")[0]
