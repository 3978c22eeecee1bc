"""What bench/live, bench/fast, bench/frames, bench/stream and bench/qos share: network namespaces around a router that is Linux or wirerate, and their command line.

Three namespaces: one that sends, one with the router, one that receives; veth between them. All routers get the same interfaces,
addresses and packets. Needs root and two cores; leaves nothing behind.
"""

import argparse
import contextlib
import fcntl
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from results import ROOT, wirerate

SENDER, ROUTER = "0", "1"
MAC = "02:00:00:00:00:01"


class Spaces:
    """The namespaces, and the cables between them."""

    def __init__(self, directory):
        self.directory, self.load = directory, os.path.join(directory, "load")
        self.names = {role: f"wr-{role}-{os.getpid()}" for role in ("from", "router", "to")}

    def __enter__(self):
        for name in self.names.values():
            run("ip", "netns", "add", name)
        self.cable("from", "out", "02:00:00:00:00:09", "router", "lan", MAC)
        self.cable("router", "wan", "02:00:00:00:00:02", "to", "in", "02:00:00:00:00:0a")
        # Straight from the one to the other: what the measuring itself takes.
        self.cable("from", "straight", "02:00:00:00:00:19", "to", "across", "02:00:00:00:00:1a")
        for role in self.names:
            self.sh(role, "for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 > $f; done")
        self.ip("address", "add", "10.0.0.1/24", "dev", "lan")
        self.ip("address", "add", "203.0.113.2/24", "dev", "wan")
        self.ip("route", "add", "default", "via", "203.0.113.1")
        self.ip("route", "add", "10.0.0.0/8", "via", "10.0.0.2")
        self.ip("neighbour", "add", "203.0.113.1", "lladdr", "02:00:00:00:00:0a", "dev", "wan")
        self.ip("neighbour", "add", "10.0.0.2", "lladdr", "02:00:00:00:00:09", "dev", "lan")
        self.sh("router", "for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done")
        return self

    def __exit__(self, *_):
        for name in self.names.values():
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)

    def cable(self, here, name, mac, there, peer, peer_mac):
        run("ip", "-n", self.names[here], "link", "add", name, "address", mac, "type", "veth", "peer", "name", peer,
            "address", peer_mac, "netns", self.names[there])
        for role, interface in ((here, name), (there, peer)):
            run("ip", "-n", self.names[role], "link", "set", interface, "up")

    def ip(self, *words):
        run("ip", "-n", self.names["router"], *words)

    def inside(self, role, *command):
        return ["ip", "netns", "exec", self.names[role], *command]

    def sh(self, role, script):
        subprocess.run(self.inside(role, "sh", "-c", script), stderr=subprocess.DEVNULL)

    def sending(self, flows, seconds, rate, interface="out", mac=MAC):
        return self.inside("from", "taskset", "-c", SENDER, self.load, "send", interface, mac, str(flows), str(seconds), str(rate))

    def establish(self, flows):
        """Each flow's first packet and its answer, slowly enough that none is lost."""
        echo = subprocess.Popen(self.inside("to", "taskset", "-c", SENDER, self.load, "echo", "in"), stdout=subprocess.PIPE, text=True)
        echo.stdout.readline()
        self.send_all(flows, flows + flows // 4 + 10_000, 50_000)
        # What it has not answered yet waits in its socket.
        before = None
        while before != (now := busy(echo)):
            before = now
            time.sleep(0.3)
        echo.terminate()
        echo.wait()

    def go_on(self, flows, times, rate=200_000):
        """So many more packets of each flow, one flow after the other."""
        self.send_all(flows, times * flows, rate)

    def send_all(self, flows, count, rate):
        """So many packets, however long it takes."""
        answer([*self.sending(flows, 3600, rate), "64", str(count)])

    def rate(self, flows, seconds):
        """Packets a second that arrive while as many are sent as the sender can."""
        self.establish(flows)
        seen = self.watched(flows, seconds, 0)
        return seen["came"] / seen["seconds"]

    def watched(self, flows, seconds, rate, interfaces=("out", "in"), mac=MAC, meanwhile=None):
        """What arrived of packets sent at a rate, and when. `meanwhile` is called while they are under way."""
        out, inward = interfaces
        watch = subprocess.Popen(self.inside("to", "taskset", "-c", SENDER, self.load, "watch", inward, str(seconds + 600)),
                                 stdout=subprocess.PIPE, text=True)
        try:
            watch.stdout.readline()
            sender = subprocess.Popen(self.sending(flows, seconds, rate, out, mac), stdout=subprocess.PIPE, text=True)
            if meanwhile:
                meanwhile()
                sender.send_signal(signal.SIGTERM)
            sent = json.loads(sender.communicate()[0])
            time.sleep(0.5)
        finally:
            watch.send_signal(signal.SIGTERM)
        seen = json.loads(watch.communicate()[0].splitlines()[-1])
        return {**seen, **sent, "lost": sent["sent"] - seen["came"]}


def busy(process):
    """Ticks of the clock that a process has had a core."""
    with open(f"/proc/{process.pid}/stat", encoding="utf-8") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


class Linux:
    """The kernel's own forwarding, with rules of nftables."""

    def __init__(self, spaces, rules):
        self.spaces, self.rules = spaces, rules

    def __enter__(self):
        self.spaces.sh("router", "nft flush ruleset; echo 1 > /proc/sys/net/ipv4/ip_forward")
        if self.rules:
            subprocess.run(self.spaces.inside("router", "nft", "-f", "-"), input=self.rules, text=True, check=True)
        return self

    def __exit__(self, *_):
        self.spaces.sh("router", "nft flush ruleset")


class Redirect:
    """A program at the interface that the sender's packets come by, at TCX ingress or at XDP, which redirects each of them as it is."""

    def __init__(self, spaces, hook="tc"):
        self.spaces, self.hook = spaces, hook

    def __enter__(self):
        program = os.path.join(ROOT, "bench", "peers", "redirect.py")
        command = self.spaces.inside("router", sys.executable, program, self.hook, "lan", "wan")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if not self.process.stdout.readline():
            sys.exit("bench: no program redirects")
        return self

    def __exit__(self, *_):
        self.process.communicate()


class Gateway:
    """`wirerate run`."""

    def __init__(self, spaces, binary, policy):
        self.spaces, self.binary, self.directory = spaces, binary, spaces.directory
        self.policy = self.write("policy.toml", policy)
        self.socket = os.path.join(self.directory, "socket")

    def write(self, name, text):
        path = os.path.join(self.directory, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def __enter__(self):
        # What does not go through the gateway must not count for it.
        self.spaces.sh("router", "nft flush ruleset; echo 0 > /proc/sys/net/ipv4/ip_forward")
        log = open(os.path.join(self.directory, "log"), "w", encoding="utf-8")
        # As its systemd unit has it.
        command = ["nice", "-n", "-20", self.binary, "run", self.policy, "--socket", self.socket, "--no-state"]
        self.process = subprocess.Popen(self.spaces.inside("router", *command), stderr=log)
        for _ in range(200):
            asked = subprocess.run([self.binary, "ports", "--json", "--socket", self.socket], stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, text=True)
            if asked.returncode == 0 and all(port["state"] == "up" for port in json.loads(asked.stdout)):
                break
            time.sleep(0.05)
        else:
            sys.exit(f"bench: the gateway does not answer: {open(log.name, encoding='utf-8').read()}")
        for thread in os.listdir(f"/proc/{self.process.pid}/task"):
            # One that has done its work may be gone.
            with contextlib.suppress(OSError), open(f"/proc/{self.process.pid}/task/{thread}/comm", encoding="utf-8") as file:
                core = ROUTER if file.read().startswith("worker") else SENDER
                subprocess.run(["taskset", "-pc", core, thread], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(20)

    def ask(self, *words):
        return json.loads(subprocess.run([self.binary, *words, "--json", "--socket", self.socket], check=True,
                                         stdout=subprocess.PIPE, text=True).stdout)

    def apply(self, path):
        command = ["taskset", "-c", SENDER, self.binary, "apply", path, "--socket", self.socket]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def resident(self):
        """Bytes of memory that the process has."""
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def used(self):
        """Seconds of processor time so far."""
        return busy(self.process) / os.sysconf("SC_CLK_TCK")


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"bench: {' '.join(command)}: {done.stderr.strip()}")


def answer(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"bench: {' '.join(command)} failed")
    return json.loads(done.stdout)


@contextlib.contextmanager
def kernel_setting(path, change):
    """A file of the kernel's has what `change` makes of its value, and its value again afterwards."""
    with open(path, "r+", encoding="ascii") as file:
        before = file.read()
        file.seek(0)
        file.write(change(before))
    try:
        yield
    finally:
        with open(path, "w", encoding="ascii") as file:
            file.write(before)


@contextlib.contextmanager
def room_for_connections(most):
    """Lets Linux track so many connections, in as many buckets: both are the whole machine's."""
    files = ["/sys/module/nf_conntrack/parameters/hashsize", "/proc/sys/net/netfilter/nf_conntrack_max"]
    if shutil.which("modprobe"):
        subprocess.run(["modprobe", "nf_conntrack"], stderr=subprocess.DEVNULL)
    with contextlib.ExitStack() as stack:
        for path in files:
            stack.enter_context(kernel_setting(path, lambda before: str(max(most, int(before)))))
        yield


@contextlib.contextmanager
def kept_free():
    """Keeps every thread that can be elsewhere off the router's core, as an operator does by `isolcpus` or `AllowedCPUs`."""
    queues = "/sys/devices/virtual/workqueue/cpumask"
    with open(queues, encoding="ascii") as file:
        before = file.read()
    moved = {}
    try:
        for thread in glob.glob("/proc/[0-9]*/task/[0-9]*"):
            number = int(os.path.basename(thread))
            # Some are gone by now, and some are the kernel's for one core.
            with contextlib.suppress(OSError):
                cores = os.sched_getaffinity(number)
                if {int(SENDER), int(ROUTER)} <= cores:
                    os.sched_setaffinity(number, cores - {int(ROUTER)})
                    moved[number] = cores
        with open(queues, "w", encoding="ascii") as file:
            file.write(f"{int(before.replace(',', ''), 16) & ~(1 << int(ROUTER)):x}")
        yield
    finally:
        with open(queues, "w", encoding="ascii") as file:
            file.write(before)
        for number, cores in moved.items():
            with contextlib.suppress(OSError):
                os.sched_setaffinity(number, cores)

def command_line(description, options):
    """Parses the command line: `options` are those of one script alone, with their defaults and explanations."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, (default, explanation) in options.items():
        parser.add_argument(f"--{name}", type=type(default), default=default, help=f"{explanation} ({default})" if default else explanation)
    parser.add_argument("--binary", help="measure this command, and build none")
    parser.add_argument("--no-save", action="store_true", help="print, and leave RESULTS.md as it is")
    parser.add_argument("--exclusive", metavar="FILE", action="append", default=[],
                        help="hold a lock (flock) on this file while measuring; may be given several times")
    return parser.parse_args()


def told(script, given):
    """The command, as RESULTS.md has it."""
    options = [f"--{name} {value}" for name, value in vars(given).items()
               if value and name not in ("exclusive", "no_save", "binary", "multi_buffer", "only")]
    return " ".join([f"bench/{script}", *options])


def without_program_statistics():
    """Has the kernel take no time of BPF programs: it reads the clock twice for each run, which routers that have programs would pay for."""
    path = "/proc/sys/kernel/bpf_stats_enabled"
    return kernel_setting(path, lambda _: "0") if os.path.exists(path) else contextlib.nullcontext()


@contextlib.contextmanager
def laboratory(given, *tools):
    """The command that is measured, and the namespaces; `tools` are programs without which nothing can be measured, with their
    packages."""
    missing = [f"{tool} (Debian: {package})" for tool, package in tools if not shutil.which(tool)]
    if os.getuid() or missing or (os.cpu_count() or 1) < 2:
        sys.exit(f"bench: needs root, two cores{''.join(f', {tool}' for tool in missing)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    binary = given.binary or wirerate()
    build = tempfile.mkdtemp()
    try:
        subprocess.run(["make", "--silent", "-C", os.path.join(ROOT, "bench", "peers"), f"BUILD={build}", "load", "frames"], check=True)
        with without_program_statistics(), Spaces(build) as spaces:
            yield binary, spaces
    finally:
        shutil.rmtree(build)


@contextlib.contextmanager
def exclusive(given):
    """Holds the locks that were asked for."""
    with contextlib.ExitStack() as stack:
        for lock in given.exclusive:
            fcntl.flock(stack.enter_context(open(lock, "a", encoding="utf-8")), fcntl.LOCK_EX)
        yield
