"""Random rulesets of nftables, made from a seed, as lists of rules that can be taken away one by one."""

import random
import re
from dataclasses import dataclass, field

from differential.world import HOSTS, INTERFACES, MACS, POOL, own

NETS = {
    4: ["192.168.1.0/24", "192.168.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "10.0.0.0/8"],
    6: ["2001:db8:1::/64", "2001:db8:2::/64", "2001:db8:beef::/48", "2001:db8:ffff::/64"],
}
PORTS = [22, 53, 80, 443, 2222, 8080]
IP = {4: "ip", 6: "ip6"}
STRANGER = "02:00:00:00:00:99"
"""A source address that no frame has."""


@dataclass
class Chain:
    name: str
    head: str = ""
    rules: list = field(default_factory=list)


@dataclass
class Table:
    family: str
    name: str
    objects: list = field(default_factory=list)
    chains: list = field(default_factory=list)

    def text(self):
        lines = [f"table {self.family} {self.name} {{"]
        lines += [f"  {each}" for each in self.objects]
        for chain in self.chains:
            lines.append(f"  chain {chain.name} {{")
            lines += [f"    {line}" for line in [chain.head, *chain.rules] if line]
            lines.append("  }")
        return "\n".join([*lines, "}"]) + "\n"


@dataclass
class Ruleset:
    seed: int
    stateful: bool
    tables: list
    importer: str = "nft"
    versions: tuple = (4, 6)

    def load(self, kernel):
        return kernel.load(self.text())

    def listing(self, kernel):
        return kernel.listing()

    def text(self):
        return "".join(table.text() for table in self.tables)

    def without(self, said):
        """Takes out the rules that nft refuses, by what it said; whether there were any."""
        lines = self.text().splitlines()
        wrong = {lines[int(number) - 2].strip() for number in re.findall(r"/dev/stdin:(\d+):", said)}
        before = len(self.rules())
        for table in self.tables:
            for chain in table.chains:
                chain.rules = [rule for rule in chain.rules if rule not in wrong]
        return len(self.rules()) < before

    def rules(self):
        """Where each rule is."""
        return [(chain, at) for table in self.tables for chain in table.chains for at in range(len(chain.rules))]


def make(seed):
    return Maker(seed).ruleset()


class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.seed = seed
        self.stateful = self.random.random() < 0.8
        # Draws of its own, so that other rules of a seed stay as they are.
        self.moving = random.Random(seed ^ 0x5E75)
        self.both = random.Random(seed ^ 0x1C3F)
        self.translated = random.Random(seed ^ 0xD4A7)
        self.marking = random.Random(seed ^ 0xD5C9)

    def often(self, share):
        return self.random.random() < share

    def one(self, choices):
        return self.random.choice(choices)

    def some(self, choices, least=2, most=4):
        return self.random.sample(choices, min(len(choices), self.random.randint(least, most)))

    def ruleset(self):
        layout = self.one(["inet", "inet", "split", "split", "both"])
        families = {"inet": ["inet"], "split": ["ip", "ip6"], "both": ["inet", self.one(["ip", "ip6"])]}[layout]
        tables = [self.filter(family, place) for place, family in enumerate(families)]
        if self.stateful and self.often(0.6):
            tables += [self.nat(family) for family in self.one([["ip"], ["ip", "ip6"], ["inet"]])]
        return Ruleset(self.seed, self.stateful, tables)

    # ---- Tables

    def filter(self, family, place):
        self.family = family
        self.versions = {"ip": [4], "ip6": [6], "inet": [4, 6]}[family]
        table = Table(family, f"filter{place}")
        self.sets(table)
        self.moves = self.stateful and self.moving.random() < 0.4
        if self.moves:
            for version in self.versions:
                kind = "ipv4_addr" if version == 4 else "ipv6_addr"
                table.objects.append(f"set moving{version} {{ type {kind}; flags dynamic,timeout; timeout 1h; }}")
        self.others = [f"c{index}" for index in range(self.random.randint(0, 3))]
        hooks = [hook for hook, share in [("input", 0.8), ("forward", 0.95)] if self.often(share)]
        if self.often(0.25):
            hooks.append("prerouting")
        if self.often(0.2):
            hooks.append("postrouting")
        if self.often(0.3):
            hooks.append("output")
        for hook in hooks:
            table.chains.append(self.base(hook, place))
        # Where each packet meets the rules, it has its own code point.
        if not self.stateful and self.marking.random() < 0.7:
            self.marks(table, place)
        for index, name in enumerate(self.others):
            chain = Chain(name)
            # Chains lead to later ones only, so that no circle arises.
            chain.rules = [
                self.rule(self.others[index + 1 :], ("input",)) for _ in range(self.random.randint(1, 4))
            ]
            # Flood protection: up to a rate packets go on, and the rest is dropped.
            if self.translated.random() < 0.2:
                where = self.translated.choice(["", "udp dport 53 ", "tcp flags == syn "])
                burst = self.translated.randint(1, 6)
                chain.rules += [f"{where}limit rate 5/day burst {burst} packets return", f"{where}drop"]
            table.chains.append(chain)
        # Translations that ask for what rules of the same table add.
        if self.moves and self.moving.random() < 0.6:
            self.nat_of_moving(table)
        return table

    def nat_of_moving(self, table):
        """Chains of translations that ask for a set whose elements come and go."""
        draw = self.moving
        for name, hook, priority, rule in [
            ("moved-pre", "prerouting", -102, self.forward_of_moving),
            ("moved-post", "postrouting", 98, self.source_of_moving),
        ]:
            if draw.random() < 0.75:
                # Before those of tables for translations alone, and never at one priority with them.
                chain = Chain(name, f"type nat hook {hook} priority {priority}; policy accept;")
                chain.rules = [rule() for _ in range(draw.randint(1, 3))]
                table.chains.append(chain)

    def moving_match(self, sides):
        draw = self.moving
        version = draw.choice(self.versions)
        return version, f"{IP[version]} {draw.choice(sides)} {draw.choice(['', '', '!= '])}@moving{version}"

    def forward_of_moving(self):
        draw = self.moving
        version, asks = self.moving_match(["saddr", "saddr", "daddr"])
        ip, to = IP[version], draw.choice(HOSTS["dmz"][version])
        dnat = f"dnat {ip} to" if self.family == "inet" else "dnat to"
        bracketed = f"[{to}]" if version == 6 else to
        if "saddr" in asks and draw.random() < 0.7:
            where = f'iifname "wan" {ip} daddr {own("wan", version)} {asks}'
            return draw.choice(
                [
                    f"{where} tcp dport 8080 {dnat} {bracketed}:80",
                    f"{where} tcp dport {{ 80, 443, 2222 }} {dnat} {to}",
                    f"{where} udp dport 53 {dnat} {to}",
                ]
            )
        return f'iifname "lan" {asks} tcp dport {draw.choice(["{ 80, 443 }", "8080"])} redirect to :22'

    def source_of_moving(self):
        draw = self.moving
        version, asks = self.moving_match(["saddr", "saddr", "daddr"])
        ip = IP[version]
        snat = f"snat {ip} to" if self.family == "inet" else "snat to"
        return draw.choice(
            [
                f'oifname "wan" {asks} masquerade',
                f'iifname "lan" oifname "wan" {asks} {snat} {POOL[version]}',
                f'oifname "wan" {asks} accept',
                f'iifname "wan" oifname "dmz" {asks} masquerade',
            ]
        )

    def base(self, hook, place):
        priority = {"prerouting": -150, "postrouting": 50}.get(hook, 0) + place
        drops = hook in ("input", "forward") and self.often(0.6)
        chain = Chain(hook, f"type filter hook {hook} priority {priority}; policy {'drop' if drops else 'accept'};")
        if hook == "output":
            chain.rules = ["ct state established accept"] if self.stateful and self.often(0.5) else ["accept"]
            return chain
        if self.stateful:
            chain.rules += self.one(
                [
                    ["ct state established,related accept", "ct state invalid drop"],
                    ["ct state invalid drop", "ct state { established, related } accept"],
                    ["ct state vmap { established : accept, related : accept, invalid : drop }"],
                    ["ct state established,related accept"],
                ]
            )
        for _ in range(self.random.randint(1, 7)):
            chain.rules.append(self.rule(self.others, (hook,)))
        # ICMP of one version, or of both, leads on to the chains of the other's tables.
        if self.family == "inet" and hook in ("input", "forward") and self.both.random() < 0.3:
            for _ in range(self.both.randint(1, 2)):
                chain.rules.insert(self.both.randint(0, len(chain.rules)), self.of_both_icmp())
        # Where packets of connections, and those that are invalid, come to rules, they add to sets there, and not here.
        if hook in ("input", "forward") and self.moves and any("invalid" in rule for rule in chain.rules[:2]):
            first = sum("ct state" in rule for rule in chain.rules[:2])
            for _ in range(self.moving.randint(2, 4)):
                chain.rules.insert(self.moving.randint(first, len(chain.rules)), self.of_moving())
        # Connections whose destination a translation has changed, as firewalls let them in that open ports by translations alone.
        if self.stateful and hook in ("input", "forward") and self.translated.random() < 0.4:
            first = sum("ct state" in rule for rule in chain.rules[:2])
            for _ in range(self.translated.randint(1, 2)):
                chain.rules.insert(self.translated.randint(first, len(chain.rules)), self.of_translated())
        return chain

    def marks(self, table, place):
        """Rules that give packets code points: among those that decide, or in a chain of their own before or behind them."""
        draw = self.marking
        for chain in table.chains:
            if chain.name in ("forward", "prerouting", "postrouting") and draw.random() < 0.6:
                for _ in range(draw.randint(1, 3)):
                    chain.rules.insert(draw.randint(0, len(chain.rules)), self.mark(chain.name))
        for name, hook, priority in [("early", "forward", -150), ("late", "postrouting", 52)]:
            if draw.random() < 0.5:
                chain = Chain(name, f"type filter hook {hook} priority {priority + place}; policy accept;")
                chain.rules = [self.mark(hook) for _ in range(draw.randint(1, 4))]
                table.chains.append(chain)

    def mark(self, hook):
        others, self.random = self.random, self.marking
        try:
            self.version = self.one(self.versions)
            self.protocol = self.one(["tcp", "udp", "icmp", "l4"])
            matches = dict(self.match((hook,)) for _ in range(self.random.choice([0, 0, 1, 1, 2])))
            # What a rule changes another one must not ask for, or few rulesets are translated.
            without = ("vmap", "meta", "dscp") if self.often(0.8) else ("vmap", "meta")
            words = [text for kind, text in matches.items() if kind not in without]
            code_point = self.one(["cs0", "cs1", "ef", "af21", "0x0b"])
            return " ".join([*words, f"{IP[self.version]} dscp set {code_point}", self.one(["", "", "", "accept"])]).strip()
        finally:
            self.random = others

    def of_both_icmp(self):
        """A rule for the ICMP of either version, or of both, in a chain that both come to."""
        kind = self.both.choice(["icmp", "ipv6-icmp", "{ icmp, ipv6-icmp }"])
        leads = [f"jump {name}" for name in self.others]
        return f"meta l4proto {kind} {self.both.choice(['accept', 'accept', 'drop', *leads])}"

    def of_translated(self):
        """A rule for connections whose destination was translated, or for all others."""
        draw = self.translated
        where = draw.choice(["", "", f'iifname "{draw.choice(INTERFACES)}"', f"tcp dport {draw.choice(PORTS)}"])
        asks = draw.choice(["ct status dnat", "ct status dnat", "ct status & dnat == dnat", "ct status ! dnat", "ct status & dnat != dnat"])
        return f"{where} {asks} {draw.choice(['accept', 'accept', 'drop'])}".strip()

    def of_moving(self):
        """A rule that adds to a set whose elements come and go, or asks for it."""
        draw = self.moving
        version = draw.choice(self.versions)
        ip, name = IP[version], f"@moving{version}"
        add = f"{draw.choice(['add', 'add', 'update'])} {name} {{ {ip} saddr{draw.choice(['', '', ' timeout 2h'])} }}"
        verdict = draw.choice(["accept", "drop", "drop", ""])
        asks = f"{ip} {draw.choice(['saddr', 'saddr', 'daddr'])} {draw.choice(['', '', '!= '])}{name}"
        where = draw.choice([f'iifname "{draw.choice(INTERFACES)}"', "", f"tcp dport {draw.choice(PORTS)}", "udp dport 53"])
        return " ".join(
            draw.choice(
                [
                    f"{where} {add} {verdict}",
                    f"{where} {add} {verdict}",
                    f"{where} {asks} {draw.choice(['accept', 'drop'])}",
                    f"{where} {asks} {draw.choice(['accept', 'drop'])}",
                    f"{ip} saddr {name} {add} {verdict}",
                ]
            ).split()
        )

    def sets(self, table):
        """Named sets and maps, for rules to use."""
        self.named = {4: [], 6: [], "ports": [], "verdicts": [], "macs": []}
        for version in self.versions:
            if self.often(0.5):
                name = f"hosts{version}"
                kind = "ipv4_addr" if version == 4 else "ipv6_addr"
                items = self.some([host for side in HOSTS.values() for host in side[version]] + NETS[version][:3])
                items = apart(items)
                table.objects.append(
                    f"set {name} {{ type {kind}; flags interval; elements = {{ {', '.join(items)} }}; }}"
                )
                self.named[version].append(name)
        if self.often(0.4):
            items = ", ".join(str(port) for port in sorted(self.some(PORTS)))
            table.objects.append(f"set ports {{ type inet_service; elements = {{ {items} }}; }}")
            self.named["ports"].append("ports")
        if self.often(0.3):
            items = ", ".join(
                f"{port} : {self.one(['accept', 'drop'])}" for port in sorted(self.some(PORTS))
            )
            table.objects.append(f"map verdicts {{ type inet_service : verdict; elements = {{ {items} }}; }}")
            self.named["verdicts"].append("verdicts")

        if self.often(0.4):
            items = self.one([sorted(self.some([*MACS, STRANGER])), ["02:00:00:00:00:10-02:00:00:00:00:1f", MACS[4]]])
            table.objects.append(f"set macs {{ type ether_addr; flags interval; elements = {{ {', '.join(items)} }}; }}")
            self.named["macs"].append("macs")

    def nat(self, family):
        self.family = family
        self.versions = {"ip": [4], "ip6": [6], "inet": [4, 6]}[family]
        table = Table(family, "nat")
        if self.often(0.7):
            chain = Chain("pre", "type nat hook prerouting priority -100; policy accept;")
            chain.rules = [self.forward() for _ in range(self.random.randint(1, 3))]
            table.chains.append(chain)
        if self.often(0.8) or not table.chains:
            chain = Chain("post", "type nat hook postrouting priority 100; policy accept;")
            chain.rules = [self.source() for _ in range(self.random.randint(1, 2))]
            table.chains.append(chain)
        return table

    # ---- Rules

    def forward(self):
        version = self.one(self.versions)
        ip, to = IP[version], self.one(HOSTS["dmz"][version])
        dnat = f"dnat {ip} to" if self.family == "inet" else "dnat to"
        where = f'iifname "wan" {ip} daddr {own("wan", version)}'
        bracketed = f"[{to}]" if version == 6 else to
        redirect = f'iifname "lan" {ip} daddr != {self.one(NETS[version])}'
        return self.one(
            [
                f"{redirect} tcp dport {{ 80, 443 }} redirect to :22",
                f"{redirect} udp dport 53 redirect",
                f"{where} tcp dport 8080 {dnat} {bracketed}:80",
                f"{where} udp dport 53 {dnat} {to}",
                f"{where} tcp dport {{ 2222, 443 }} {dnat} {to}",
                f"{where} {dnat} tcp dport map {{ 22 : {to}, 80 : {HOSTS['dmz'][version][0]} }}",
                f"{where} tcp dport vmap {{ 8080 : accept }}" if self.often(0.2) else f"{where} tcp dport 80 {dnat} {to}",
            ]
        )

    def source(self):
        version = self.one(self.versions)
        ip = IP[version]
        snat = f"snat {ip} to" if self.family == "inet" else "snat to"
        net = self.one(NETS[version][:2])
        return self.one(
            [
                'oifname "wan" masquerade',
                f'iifname "lan" oifname "wan" {ip} saddr {net} masquerade',
                f'{ip} saddr {net} oifname "wan" {snat} {POOL[version]}',
                f'{ip} saddr {net} {ip} daddr {self.one(NETS[version])} accept',
            ]
        )

    def rule(self, chains, hooks):
        # All of one IP version and protocol, or nft refuses the rule.
        self.version = self.one(self.versions)
        self.protocol = self.one(["tcp", "tcp", "udp", "icmp", "l4"])
        matches = [self.match(hooks) for _ in range(self.random.choice([0, 1, 1, 1, 2, 2, 3]))]
        # Two of a kind often contradict each other, or nft refuses them.
        kinds, kept = set(), []
        for kind, text in matches:
            if kind not in kinds:
                kinds.add(kind)
                kept.append(text)
        kept.sort(key=lambda text: " vmap " in text)
        words = [*kept]
        if self.often(0.15):
            words.append("counter")
        if "vmap" in kinds:
            return " ".join(words)
        if not kept and self.often(0.9):
            words.append(self.match(hooks, simple=True)[1])
        return " ".join([*words, self.verdict(chains, hooks, kinds)])

    def verdict(self, chains, hooks, kinds):
        roll = self.random.random()
        if roll < 0.40:
            return "accept"
        if roll < 0.62:
            return "drop"
        if roll < 0.76 and hooks[0] in ("input", "forward"):
            choices = ["reject"]
            pinned = kinds & {"address", "dscp", "vmap", "concat", "icmp", "meta"}
            # nft writes a frame's source and the protocol of such an answer as one match of bytes, and forgets the answer.
            framed = self.family == "inet" and "mac" in kinds
            if self.family != "ip6" and not framed and (not pinned or self.version == 4 and "meta" not in kinds):
                choices.append(f"reject with icmp type {self.one(['port-unreachable', 'admin-prohibited', 'host-unreachable'])}")
            if self.family != "ip" and not framed and (not pinned or self.version == 6 and "meta" not in kinds):
                choices.append(f"reject with icmpv6 type {self.one(['port-unreachable', 'admin-prohibited', 'addr-unreachable'])}")
            if self.family == "inet":
                choices.append(f"reject with icmpx type {self.one(['port-unreachable', 'admin-prohibited'])}")
                if not pinned:
                    choices.append(self.one(["meta nfproto ipv6 reject", "meta nfproto ipv4 reject"]))
            if "tcp" in kinds:
                # nft leaves `meta nfproto` out of its listing before a reset, and the import notes it.
                choices = ["drop"] if "meta" in kinds else ["reject with tcp reset"]
            return self.one(choices)
        if roll < 0.88 and chains:
            return f"{self.one(['jump', 'jump', 'goto'])} {self.one(chains)}"
        if roll < 0.92:
            return "return"
        # An addition and a limit are seldom one rule here.
        if roll < 0.96 and self.often(0.7) and not self.moves:
            rate = f"{self.random.randint(1, 9)}/day burst {self.random.randint(1, 6)} packets"
            return f"limit rate over {rate} drop" if self.translated.random() < 0.4 else f"limit rate {rate} accept"
        return "accept"

    def match(self, hooks, simple=False):
        version = self.version
        ip = IP[version]
        addresses = [host for side in HOSTS.values() for host in side[version]]
        kinds = ["inward", "source", "destination", "mac"]
        kinds += {"tcp": ["tcp", "tcp"], "udp": ["l4", "l4"], "icmp": ["icmp"], "l4": ["l4b"]}[self.protocol]
        if not simple:
            kinds += ["meta", "vmap", "dscp"]
            kinds += ["flags", "flags", "concat"] if self.protocol == "tcp" else []
        if hooks[0] in ("forward", "postrouting"):
            kinds += ["outward", "outward"]
        if hooks[0] in ("input", "forward") and not simple:
            kinds.append("type")
        kind = self.one(kinds)
        no = self.one(["", "", "", "!= "])
        if kind in ("inward", "outward"):
            word = "iifname" if kind == "inward" else "oifname"
            several = '{ "lan", "dmz" }'
            return kind, f"{word} {no}{self.one([*[chr(34) + name + chr(34) for name in INTERFACES], several])}"
        if kind in ("source", "destination"):
            word = "saddr" if kind == "source" else "daddr"
            choices = [self.one(addresses), self.one(NETS[version]), "{ " + ", ".join(apart(self.some(addresses))) + " }"]
            choices += [f"@{name}" for name in self.named[version]] * 2
            return "address", f"{ip} {word} {no}{self.one(choices)}"
        if kind == "type":
            local = ["local"] if hooks == ["input"] else []
            word = self.one(["fib daddr type", "meta pkttype"])
            # Linux tells types of packets by link-layer addresses: those of the gateway, here.
            mine = local if word.startswith("fib") else ["host", "{ host, other }"]
            return kind, f"{word} {no}{self.one([*mine, 'multicast', 'broadcast', '{ broadcast, multicast }'])}"
        if kind == "mac":
            return kind, self.source_mac(no)
        if kind == "tcp":
            choices = [self.one(PORTS), "{ " + ", ".join(str(port) for port in sorted(self.some(PORTS))) + " }", "1-1023"]
            choices += [f"@{name}" for name in self.named["ports"]]
            side = self.one(["dport", "dport", "dport", "sport"])
            return "tcp", f"tcp {side} {no}{self.one(choices)}"
        if kind == "l4":
            return "l4", f"udp dport {no}{self.one([53, '{ 53, 80 }', '1024-65535'])}"
        if kind == "l4b":
            return "l4", self.one(
                ["meta l4proto { tcp, udp }", "meta l4proto { tcp, udp } th dport { 53, 80 }", "meta l4proto gre"]
                + [f"meta l4proto {'icmp' if version == 4 else 'ipv6-icmp'}"]
            )
        if kind == "icmp":
            names = ["echo-request", "echo-reply", "destination-unreachable"]
            word = "icmp" if version == 4 else "icmpv6"
            choices = [f"type {no}{self.one(names)}", "type { echo-request, echo-reply }"]
            return "icmp", f"{word} {self.one(choices)}"
        if kind == "flags":
            return "tcp", self.one(
                [
                    "tcp flags syn",
                    "tcp flags == syn",
                    "tcp flags != syn",
                    "tcp flags { syn, syn | ack }",
                    "tcp flags != { syn, syn | ack }",
                    "tcp flags & (fin|syn|rst|ack) == syn",
                    "tcp flags & (fin|syn|rst|ack) != syn",
                    "tcp flags & (fin|syn) != 0",
                    "tcp flags & (syn|ack) == 0",
                    "tcp flags ! fin,rst",
                    "tcp flags & (fin|syn|rst|ack) { syn, ack, rst }",
                    "tcp flags syn / syn,ack",
                ]
            )
        if kind == "meta":
            if len(self.versions) == 1:
                return "meta", f"{ip} dscp != cs1"
            return "meta", self.one(
                ["meta nfproto ipv4", "meta nfproto ipv6", "meta protocol ip", "meta protocol ip6", "meta protocol { ip, ip6 }"]
            )
        if kind == "vmap":
            choices = [f"{ip} saddr vmap {{ {addresses[0]} : accept, {addresses[4]} : drop }}"]
            choices += ['iifname vmap { "lan" : accept, "wan" : drop }']
            choices += [f"ether saddr vmap {{ {MACS[0]} : accept, {MACS[1]} : drop, {STRANGER} : accept }}"]
            if self.protocol == "tcp":
                choices += [f"tcp dport vmap @{name}" for name in self.named["verdicts"]] * 2
                choices += ["tcp flags vmap { syn : accept, fin : drop, syn | ack : drop }"]
                choices += ["tcp dport vmap { 22 : drop, 80 : accept, 443 : accept }"]
            return "vmap", self.one(choices)
        if kind == "concat":
            return "tcp", self.one(
                [
                    f"{ip} daddr . tcp dport {{ {addresses[2]} . 80, {addresses[4]} . 22 }}",
                    f"ether saddr . tcp dport {{ {MACS[0]} . 80, {MACS[1]} . 80, {MACS[2]} . 22 }}",
                ]
            )
        return "dscp", f"{ip} dscp {self.one(['cs0', 'cs1', 'af11'])}"

    def source_mac(self, no):
        one = self.one([*MACS, STRANGER])
        choices = [one, one, "{ " + ", ".join(self.some([*MACS, STRANGER])) + " }"]
        choices += ["02:00:00:00:00:11-02:00:00:00:00:99", "02:00:00:00:00:00/40"]
        choices += [f"@{name}" for name in self.named["macs"]] * 2
        if self.often(0.15):
            mask, value = self.one([("ff:ff:ff:ff:ff:00", MACS[3][:15] + "00"), ("08:00:00:00:00:00", "08:00:00:00:00:00")])
            return f"ether saddr & {mask} {no or '== '}{value}"
        if self.often(0.1):
            return self.one(["ether saddr > 02:00:00:00:00:11", "ether type ip", "ether type ip6", "meta iiftype ether"])
        return f"ether saddr {no}{self.one(choices)}"


def apart(items):
    """Those of the items that do not overlap an earlier one: nft refuses such sets."""
    import ipaddress

    kept = []
    for item in items:
        net = ipaddress.ip_network(item)
        if not any(net.overlaps(other) for _, other in kept):
            kept.append((item, net))
    return [item for item, _ in kept]
