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


HOST_MAC = "02:00:00:00:00:01"
"""Where the gateway sends to all hosts, and where some of their frames come from."""

MACS = (HOST_MAC, "02:00:00:00:00:11", "02:00:00:00:00:12", "02:00:00:00:07:01", "0a:11:22:33:44:55")
"""Where frames come from. Rules name these and others."""


def mac_bytes(mac):
    return bytes.fromhex(mac.replace(":", ""))


def own(interface, version):
    return OWN[interface][version].split("/")[0]
