"""Two gateways that stand in for one another, by keepalived, between a client and a server.

    client 192.168.1.10 ─┬─ lan ONE wan ─┬─ server 203.0.113.1, and 198.51.100.7 behind it
                         │     │ sync    │
                         └─ lan TWO wan ─┘

ONE has .2 on both sides, TWO .3; the active one has 192.168.1.1 and 203.0.113.10, which keepalived moves. They synchronise by a
cable of their own, 10.0.0.1 and 10.0.0.2. The switch of both sides is a namespace, too: to pull a gateway's cables is to crash it.
"""

import contextlib
import itertools
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import gateway as gateways
import wait
from host import Host, stop

CLIENT, SERVER, MOVED, MOVED_LAN = "192.168.1.10", "198.51.100.7", "203.0.113.10", "192.168.1.1"
SYNC = {1: "10.0.0.1", 2: "10.0.0.2"}
PORT = 9480

POLICY = """
[gateway]
driver = "{driver}"
fast-path = "{fast_path}"
workers = {workers}
sync = "{side}:10.0.0.1:9480"
sync-certificate = "{files}/{name}.crt"
sync-key = "{files}/{name}.key"
sync-ca = "{files}/ca.crt"

[interface.lan]
zone = "lan"
addresses = ["192.168.1.{own}/24"]
virtual-addresses = ["192.168.1.1"]

[interface.wan]
zone = "wan"
addresses = ["203.0.113.{own}/24"]
virtual-addresses = ["203.0.113.10"]

[[route]]
to = "0.0.0.0/0"
via = "203.0.113.1"

[[nat]]
name = "out"
kind = "masquerade"
to = "wan"
source = "192.168.1.0/24"
random = true
{asks}
[[nat]]
name = "web"
kind = "forward"
from = "wan"
outside = "203.0.113.10"
protocol = "tcp"
port = 8080
target = "192.168.1.10"

{rules}
[[rule]]
name = "vrrp"
to = "self"
protocol = 112
action = "{vrrp}"

[[rule]]
name = "web"
from = "wan"
to = "lan"
protocol = "tcp"
dport = 8080
action = "accept"

[default]
"lan > wan" = "accept"
"lan > self" = "accept"
{more}
"""

KEEPALIVED = """
global_defs {{
    router_id {name}
    vrrp_version 3
    vrrp_garp_master_refresh 1
    vrrp_garp_master_repeat 3
    script_user root
    enable_script_security
}}
vrrp_script alive {{
    script "{binary} status --socket {socket}"
    interval 1
    timeout 1
    rise 1
    fall 1
}}
vrrp_sync_group both {{
    group {{
        lan
        wan
    }}
    track_script {{
        alive
    }}
}}
vrrp_instance lan {{
    state BACKUP
    {preempt}
    interface lan
    virtual_router_id 51
    priority {priority}
    advert_int 0.1
    virtual_ipaddress {{
        192.168.1.1/24
    }}
}}
vrrp_instance wan {{
    state BACKUP
    {preempt}
    interface wan
    virtual_router_id 52
    priority {priority}
    advert_int 0.1
    virtual_ipaddress {{
        203.0.113.10/24
    }}
}}
"""

_runs = itertools.count(1)


class Certificates:
    """An authority, and what it signs; another one, too, that nobody should trust."""

    def __init__(self):
        self.files = Path(tempfile.mkdtemp(prefix="sync-crt-"))
        self.files.chmod(0o755)
        for name in ["ca", "forger"]:
            self._run(
                f"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {name}.key -out {name}.crt "
                f"-days 30 -subj /CN={name}"
            )
        for name in ["one", "two"]:
            self.sign(name)
        self.sign("forged", by="forger")
        self.sign("expired", expired=True)

    def sign(self, name, by="ca", expired=False, lasts=None):
        """A certificate; one that `lasts` so many seconds is valid until then."""
        curve = "-newkey ec -pkeyopt ec_paramgen_curve:P-256"
        self._run(f"req {curve} -nodes -keyout {name}.new -out {name}.csr -subj /CN={name}")
        (self.files / "san").write_text("subjectAltName=IP:10.0.0.1,IP:10.0.0.2\n")
        # `x509` of older releases has no word for a time in the past; `ca` has.
        ends = "20200201000000Z" if expired else "20450101000000Z"
        if lasts:
            ends = time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + lasts))
        self._run(
            f"ca -batch -config {self._config(by)} -in {name}.csr -out {name}.crt -startdate 20200101000000Z "
            f"-enddate {ends} -extfile san -notext"
        )
        os.replace(self.files / f"{name}.new", self.files / f"{name}.key")
        (self.files / f"{name}.key").chmod(0o644)

    def _config(self, by):
        (self.files / "index").write_text("")
        (self.files / "serial").write_text("7001\n")
        (self.files / "ca.cnf").write_text(
            "[ca]\ndefault_ca=own\n[own]\ndatabase=index\nserial=serial\nnew_certs_dir=.\ndefault_md=sha256\npolicy=any\n"
            f"certificate={by}.crt\nprivate_key={by}.key\n[any]\ncommonName=supplied\n"
        )
        return "ca.cnf"

    def _run(self, words):
        done = subprocess.run(["openssl", *words.split()], cwd=self.files, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"openssl {words}\n{done.stderr}"


class Box:
    """One of the two gateways: its namespace, its daemon, its keepalived."""

    mtu = 1500
    guests = "lan"

    def __init__(self, number, prefix, certificates, preempts=True, **about):
        self.number = number
        self.preempts = preempts
        self.name = ["one", "two"][number - 1]
        self.logs = Path(tempfile.mkdtemp(prefix=f"box{number}-"))
        self.logs.chmod(0o755)
        self.gateway = Host(f"{prefix}-{self.name}", self.logs)
        self.gateway.sysctl({"net/ipv6/conf/all/disable_ipv6": 1, "net/ipv4/ip_forward": 0, "net/ipv4/conf/all/arp_ignore": 1})
        self.keepalived = None
        own = {
            "side": "listen" if number == 1 else "connect",
            "own": number + 1,
            "name": self.name,
            "files": certificates.files,
            "workers": 1,
            "more": "",
            "rules": "",
            "asks": "",
            "vrrp": "accept",
            "fast_path": "off",
        }
        self.daemon = daemon_of(self, {**own, **about})

    def start(self):
        self.daemon.start()

    def elect(self):
        """Starts keepalived."""
        run = self.logs / "keepalived"
        run.mkdir(exist_ok=True)
        config = run / "keepalived.conf"
        config.write_text(
            KEEPALIVED.format(
                name=self.name,
                priority=[150, 100][self.number - 1],
                preempt="" if self.preempts else "nopreempt",
                socket=self.daemon.socket,
                binary=gateways.binary(),
            )
        )
        config.chmod(0o644)
        words = ["keepalived", "-n", "-l", "-D", "-P", "-f", config, "-p", run / "pid", "-r", run / "vrrp.pid"]
        self.keepalived = self.gateway.start(*words, log="keepalived")

    def status(self):
        return self.daemon.counters()["sync"]

    def metrics(self):
        return self.gateway.run("curl", "-s", "--unix-socket", self.daemon.socket, "http://gateway/metrics").stdout

    def addresses(self):
        found = self.gateway.run("ip", "-o", "-4", "addr").stdout
        return {word for word in found.split() if "/" in word}

    def is_active(self):
        return {"192.168.1.1/24", "203.0.113.10/24"} <= self.addresses()

    def mac(self, interface):
        return self.gateway.run("cat", f"/sys/class/net/{interface}/address").stdout.strip()

    def forget_addresses(self):
        """A machine that comes up again has only its own."""
        for interface, address in [("lan", "192.168.1.1/24"), ("wan", "203.0.113.10/24")]:
            self.gateway.run("ip", "addr", "del", address, "dev", interface, check=False)

    def kill_keepalived(self):
        """Parent and child: neither has a word of farewell, and the addresses stay."""
        files = [self.logs / "keepalived" / name for name in ["pid", "vrrp.pid"]]
        for file in files:
            if self.keepalived and file.exists():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(file.read_text()), signal.SIGKILL)
                file.unlink()
        if self.keepalived:
            self.keepalived.wait()
        self.keepalived = None

    def end_keepalived(self):
        if self.keepalived:
            stop(self.keepalived, signal.SIGTERM)
            self.keepalived = None


def daemon_of(box, about):
    class Daemon(gateways.Wirerate):
        name = f"wirerate-{about['driver']}"

        def write(self, *_, **changed):
            self.policy.write_text(POLICY.format(**{**about, **changed}))

    Daemon.driver = about["driver"]
    daemon = Daemon(box)
    daemon.about = about
    return daemon


class Boxes:
    """Everything; `close` takes it down."""

    def __init__(self, driver="packet", fast_path="off", workers=(1, 1), preempts=True, **about):
        prefix = f"wy{os.getpid()}-{next(_runs)}"
        self.logs = Path(tempfile.mkdtemp(prefix="boxes-"))
        self.certificates = Certificates()
        self.switch, self.client, self.server = (Host(f"{prefix}-{name}", self.logs) for name in ["switch", "client", "server"])
        self.boxes = [
            Box(
                number,
                prefix,
                self.certificates,
                preempts,
                driver=driver,
                fast_path=fast_path,
                workers=workers[number - 1],
                **about,
            )
            for number in (1, 2)
        ]
        self.one, self.two = self.boxes
        self.switch.ip(*[f"link add {name} type bridge forward_delay 0\nlink set {name} up" for name in ["br-lan", "br-wan"]])
        for side, host, interface in [("lan", self.client, "eth0"), ("wan", self.server, "wan")]:
            self._cable(host, interface, side, f"host-{side}")
        for box in self.boxes:
            for side in ["lan", "wan"]:
                self._cable(box.gateway, side, side, f"{box.name}-{side}")
        self.one.gateway.ip(f"link add sync type veth peer name sync netns {self.two.gateway.namespace}")
        for box in self.boxes:
            box.gateway.ip("link set sync up", f"addr add {SYNC[box.number]}/24 dev sync")
        self.client.ip(f"addr add {CLIENT}/24 dev eth0", f"route add default via {MOVED_LAN}")
        self.server.ip(
            "addr add 203.0.113.1/24 dev wan",
            "link add behind type veth peer name unused",
            "link set behind up",
            f"addr add {SERVER}/32 dev behind",
        )

    def _cable(self, host, interface, side, port):
        self.switch.ip(
            f"link add {port} numrxqueues 2 numtxqueues 2 type veth peer name {interface} numrxqueues 2 numtxqueues 2 netns {host.namespace}",
            f"link set {port} master br-{side}",
            f"link set {port} up",
        )
        host.ip(f"link set {interface} up")

    def start(self):
        for box in self.boxes:
            box.start()
        self.synchronised()
        self.one.elect()
        wait.until(self.one.is_active, "the first gateway becomes active")
        self.two.elect()

    def synchronised(self):
        for box in self.boxes:
            wait.until(lambda box=box: box.status()["state"] == "incremental", f"{box.name} synchronises", deadline=20)

    def cables(self, box, state):
        self.switch.ip(*[f"link set {box.name}-{side} {state}" for side in ["lan", "wan"]])

    def crash(self, box):
        """As if its power went: nothing is told to anybody, and no packet comes from there any more."""
        self.cables(box, "down")
        box.daemon.kill()
        box.kill_keepalived()

    def revive(self, box):
        """It boots."""
        box.forget_addresses()
        self.cables(box, "up")
        box.start()
        self.synchronised()
        box.elect()

    def evidence(self):
        told = [box.daemon.evidence() for box in self.boxes]
        for box in self.boxes:
            for log in box.logs.glob("*.keepalived.log"):
                told.append(f"-- {log}\n{gateways.tail(log)}")
        return "\n".join(told)

    @contextlib.contextmanager
    def running(self):
        try:
            self.start()
            yield self
        except BaseException:
            print(self.evidence())
            raise
        finally:
            self.close()

    def close(self):
        for box in self.boxes:
            box.end_keepalived()
            box.daemon.stop()
            box.gateway.close()
        for host in [self.client, self.server, self.switch]:
            host.close()
