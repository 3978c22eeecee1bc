"""The gateways in the middle: Linux with nftables, the reference, and wirerate by each of its drivers.

Each starts, stops, takes another policy, and says in words what it knows about a fault. A policy is `office.toml` or
`office.nft`, with the lines of the variants that a test names.
"""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import wait
from host import Failed, stop
from isolation import inside

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def variant(text, names):
    """The text with the lines `#? NAME: LINE` of the names given, and without the others'."""
    lines = []
    for line in text.splitlines():
        optional = re.match(r"(\s*)#\? ([\w-]+): (.*)", line)
        if not optional:
            lines.append(line)
        elif optional[2] in names:
            lines.append(optional[1] + optional[3])
    return "\n".join(lines) + "\n"


class Linux:
    """The kernel forwards, nftables judges and translates."""

    name = "nftables"
    everywhere = True
    guests = "lan"
    owns_frames = False

    def __init__(self, net, _variants=()):
        self.net = net
        self.host = net.gateway
        self._vlan = None

    def start(self):
        self.host.sysctl({"net/ipv4/ip_forward": 1, "net/ipv6/conf/all/forwarding": 1})
        # As wirerate's `pickup = "refuse"`: only a SYN opens a connection.
        self.host.sysctl({"net/netfilter/nf_conntrack_tcp_loose": 0})
        self.addresses("lan")
        self.guest_network()
        self.addresses("wan")
        self.apply()

    def addresses(self, interface):
        """Gives an interface that is new its addresses, and the routes by it."""
        given = {
            "lan": ["192.168.1.1/24", "2001:db8:1::1/64"],
            "guest": ["192.168.20.1/24", "2001:db8:20::1/64"],
            "wan": ["203.0.113.2/24", "2001:db8:ffff::2/64"],
        }[interface]
        self.host.ip(
            f"link set {interface} up", *[f"addr add {address} dev {interface}" for address in given]
        )
        if interface == "wan":
            self.host.ip("route add default via 203.0.113.1", "route add default via 2001:db8:ffff::1")

    def guest_network(self):
        """The VLAN of the guests, which goes with the interface that it is on."""
        if self._vlan:
            stop(self._vlan)
        self._vlan = self.net.vlan(self.host, "lan", "guest", 20)
        self.addresses("guest")

    def restored(self, interface):
        """An interface was down: Linux has thrown the routes by it away, and IPv6 addresses."""
        self.host.run("ip", "addr", "flush", "dev", interface, "scope", "global")
        self.addresses(interface)

    def returned(self, interface):
        """An interface was deleted and made anew."""
        self.addresses(interface)
        if interface == "lan":
            self.guest_network()

    def apply(self, *variants):
        rules = variant((HERE / "office.nft").read_text(), variants)
        self.host.run("nft", "-f", "-", input=rules)

    def refuses(self, text):
        """Whether a policy with a fault is refused."""
        return self.host.run("nft", "-f", "-", input=text, check=False).returncode != 0

    def alive(self):
        return True

    def counters(self):
        """Linux has no such account."""

    def evidence(self):
        commands = ["nft list ruleset", "conntrack -L"]
        return "\n".join(said(self.host, command) for command in commands[:1])

    def stop(self):
        pass


class Wirerate:
    """`wirerate run`."""

    owns_frames = True
    fast_path = "off"
    # Tried by all tests, not only by those that name it.
    everywhere = True

    def __init__(self, net, variants=()):
        self.net = net
        self.variants = list(variants)
        self.host = net.gateway
        self.policy = net.logs / "policy.toml"
        self.socket = net.logs / "gateway.sock"
        self.state = net.logs / "state"
        self.process = None
        # A command that it is run by, and further options of its own.
        self.under = []
        self.options = []

    def start(self, *variants):
        self.launch(*variants)
        wait.until(lambda: not self.alive() or self.answers(), "wirerate answers on its socket")
        if not self.alive():
            raise Failed(f"wirerate ended at once:\n{tail(self.process.log)}")

    def launch(self, *variants):
        """Starts it, and does not wait."""
        self.write(*variants)
        command = [binary(), "run", self.policy, "--socket", self.socket, "--state", self.state]
        command += self.options
        self.process = self.host.start(*self.under, *command, log="wirerate")

    def restored(self, interface):
        """Nothing to do: what the policy says is kept."""

    def returned(self, interface):
        """Nothing to do: wirerate takes an interface that is there again."""

    def write(self, *variants):
        jumbo = ["jumbo", f"jumbo-{self.net.guests}"] if self.net.mtu == 9000 else []
        always = [f"by-{self.net.guests}", *jumbo, *self.variants]
        text = variant((HERE / "office.toml").read_text(), [*always, *variants])
        for key in ("driver", "fast_path"):
            word = key.replace("_", "-")
            text = text.replace(f'{word} = "auto"', f'{word} = "{getattr(self, key)}"')
        self.policy.write_text(text)

    def apply(self, *variants, confirm=None):
        self.write(*variants)
        self.ask("apply", self.policy, *(["--confirm", confirm] if confirm else []))

    def refuses(self, text):
        """Whether a policy with a fault is refused."""
        faulty = self.net.logs / "faulty.toml"
        faulty.write_text(text)
        return self.ask("apply", faulty, check=False).returncode == 1

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def answers(self):
        return self.ask("status", check=False).returncode == 0

    def ask(self, command, *arguments, check=True, timeout=10, **options):
        words = [binary(), command, *arguments, "--socket", self.socket]
        return self.host.run(*words, check=check, timeout=timeout, **options)

    def counters(self):
        """The account of frames: received, forwarded, delivered, answered, dropped, held."""
        return json.loads(self.ask("status", "--json").stdout)

    def log(self):
        """What all processes of this gateway have said so far."""
        return self.process.log.read_text(errors="replace")

    def evidence(self):
        told = []
        if self.alive():
            told += [
                said(self.host, f"{binary()} {command} --socket {self.socket}")
                for command in ["status", "ports", "drops"]
            ]
        elif self.process:
            told.append(f"-- wirerate is dead, exit code {self.process.returncode}")
        if self.process:
            told.append(f"-- the end of {self.process.log}\n{tail(self.process.log)}")
        return "\n".join(told)

    def pins(self):
        """What keeps guards on the interfaces of this host: a file for each program."""
        with inside(self.host.namespace):
            own = Path(os.environ["WIRERATE_GUARDS"]) / f"net-{os.stat('/proc/thread-self/ns/net').st_ino}"
        return sorted(own.iterdir()) if own.exists() else []

    def kill(self):
        """As a crash would have it."""
        # `ip netns exec` becomes the program that it runs, so this is wirerate's own process.
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process:
            stop(self.process, signal.SIGTERM)


class Packet(Wirerate):
    """Frames come and go by AF_PACKET."""

    name = "wirerate-packet"
    driver = "packet"
    guests = "lan"


class Xdp(Wirerate):
    """Frames come and go by AF_XDP.

    The guests' VLAN has a cable of its own, by AF_PACKET: Linux keeps tags beside the frames of interfaces without
    hardware, where XDP does not see them.
    """

    name = "wirerate-xdp"
    driver = "xdp"
    guests = "trunk"


class Fast(Packet):
    """Linux's kernel carries established flows."""

    name = "wirerate-fast"
    fast_path = "tc"


class FastXdp(Xdp):
    """Linux's kernel carries established flows, as frames, in front of AF_XDP."""

    name = "wirerate-fast-xdp"
    fast_path = "xdp"
    everywhere = False

    def launch(self, *variants):
        # A veth takes frames from XDP while its peer has GRO.
        for interface in ["lan", "wan"]:
            self.net.switch.run("ethtool", "-K", f"gw-{interface}", "gro", "on")
        super().launch(*variants)


MAKERS = {maker.name: maker for maker in [Linux, Packet, Xdp, Fast, FastXdp]}


def binary():
    """The command `wirerate`: what WIRERATE names, else the build that the other tests use."""
    target = os.environ.get("CARGO_TARGET_DIR") or ROOT / "target"
    return os.environ.get("WIRERATE") or str(Path(target) / "debug" / "wirerate")


def missing(name):
    """Why a gateway cannot be tried here, or None."""
    if name == "nftables":
        return None
    try:
        done = subprocess.run(
            [binary(), "run", "--help"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    except OSError as error:
        return f"no {binary()} ({error.strerror}): cargo build --release, or say in WIRERATE where it is"
    if done.returncode != 0:
        return f"{binary()} has no command `run`"
    return None


def tail(path, lines=60):
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


def said(host, command):
    """A command and what it printed, for evidence: never an error."""
    try:
        return f"-- {command}\n{host.run(*command.split(), check=False, timeout=5).stdout.rstrip()}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"-- {command}\n{error}"
