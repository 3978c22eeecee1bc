"""A machine with Debian and systemd, in a host's namespace: the files of this one, or others, below a layer that is thrown away, and none of its
services.

systemd-nspawn starts it, with all capabilities, as those of a machine of its own. What it has more of than a container: the network
is the host's namespace, with whatever cables the test has put into it.
"""

import re
import shutil
import subprocess
from pathlib import Path

import wait
from host import Failed
from isolation import die_with_parent

# Mounts are the process' own, and end with it. The services that this machine has enabled are none of the new one's.
LAYER = r"""
set -e
mount -t tmpfs layer "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay root -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" "$1/root"
etc="$1/root/etc/systemd"
rm -rf "$etc"/system/*.wants "$1"/root/etc/wirerate "$1"/root/var/lib/wirerate "$1"/root/var/log/wirerate
# An image of a container lets no package start or stop a service.
rm -f "$1/root/usr/sbin/policy-rc.d"
mkdir -p "$etc/system-generators"
ln -s /dev/null "$etc/system-generators/systemd-sysv-generator"
: >"$1/root/etc/machine-id"
# systemd mounts it itself, but for containers.
mkdir -p "$etc/system/sysinit.target.wants"
printf '%s\n' '[Unit]' DefaultDependencies=no Before=sysinit.target '[Service]' Type=oneshot RemainAfterExit=yes \
    'ExecStart=/bin/mount -t bpf -o mode=700 bpf /sys/fs/bpf' >"$etc/system/bpf.service"
ln -s ../bpf.service "$etc/system/sysinit.target.wants"
echo ready
exec sleep infinity
"""


def missing():
    """The tool that is not here, if any."""
    return next((tool for tool in ("systemd-nspawn", "nsenter") if not shutil.which(tool)), None)


REBOOT = 133
"""Exit code of systemd-nspawn, where what it ran is to begin again."""

CALLS = "bpf perf_event_open landlock_create_ruleset landlock_add_rule landlock_restrict_self"
"""System calls that it has more of than other containers."""


class Machine:
    """A machine that has booted; `close` ends it."""

    def __init__(self, host, logs, files="/"):
        self.host = host
        self.layer = Path(logs) / "layer"
        self.layer.mkdir()
        self.log = Path(logs) / "machine.log"
        self.keeper = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "bash", "-c", LAYER, "layer", self.layer, files],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,
        )
        assert self.keeper.stdout.readline() == "ready\n"
        self.boot()

    def boot(self):
        name = re.sub("[^a-z0-9-]", "-", self.host.namespace)
        with open(self.log, "ab") as output:
            self.process = subprocess.Popen(
                [
                    "nsenter", "--mount", f"--target={self.keeper.pid}",
                    "systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", "--console=pipe", "--capability=all",
                    "--link-journal=no", f"--machine={name}", f"--network-namespace-path=/run/netns/{self.host.namespace}",
                    "--bind=/dev/net/tun", f"--system-call-filter={CALLS}", f"--directory={self.layer}/root",
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent,
            )  # fmt: skip
        self.up()

    def up(self):
        """Waits until all services have started that should."""
        try:
            wait.until(lambda: self.state() in ("running", "degraded"), "the machine is up", 60)
        except BaseException:
            print(self.log.read_text(), self.process.poll())
            raise

    def leader(self):
        """Number of its first process."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return next(iter(children), None)

    def state(self):
        return self.run("systemctl", "is-system-running", check=False).stdout.strip()

    def run(self, *command, check=True, timeout=120.0, **options):
        """Runs a program in it, as its root, to its end. What it printed is in `stdout`, both streams together."""
        leader = self.leader()
        words = [str(word) for word in command]
        done = subprocess.run(
            ["nsenter", "--all", "--target", leader or "0", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", *words],
            stdin=None if "input" in options else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            preexec_fn=die_with_parent,
            **options,
        )
        if check and done.returncode != 0:
            raise Failed(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}")
        return done

    def put(self, path, into):
        """Copies a file of the test into the machine."""
        self.run("sh", "-c", f"cat > {into}", input=Path(path).read_bytes().decode("latin-1"), encoding="latin-1")

    def reboot(self):
        self.run("systemctl", "reboot", check=False)
        assert self.process.wait(60) == REBOOT
        self.boot()

    def journal(self, unit="wirerate"):
        return self.run("journalctl", "--no-pager", "-u", unit, check=False).stdout

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.keeper.kill()
        self.keeper.wait()
