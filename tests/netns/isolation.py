"""Keeps a run apart from the machine: its namespaces live and die with the process.

The process moves into a network namespace and a mount namespace of its own before anything is made. So names cannot
clash with another run's, nothing of the machine's own network is within reach, no packet can leave, and when the
process ends, however it ends, the kernel takes everything down.
"""

import ctypes
import os
import signal
import subprocess
import tempfile
from contextlib import contextmanager

CLONE_NEWNS = 0x00020000
CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result, call):
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{call}: {os.strerror(error)}")


def isolate():
    """Moves this process into empty namespaces. Needs root, and that no other thread was begun."""
    _checked(_libc.unshare(CLONE_NEWNS | CLONE_NEWNET), "unshare")
    os.makedirs("/run/netns", exist_ok=True)
    for command in [
        "mount --make-rprivate /",
        "mount -t tmpfs -o mode=755 netns /run/netns",
        "ip link set lo up",
    ]:
        subprocess.run(command.split(), check=True)
    # In /sys each program would see another one: `ip netns exec` mounts it anew.
    pins = tempfile.mkdtemp(prefix="netns-pins-")
    subprocess.run(["mount", "-t", "bpf", "bpf", pins], check=True)
    os.environ["WIRERATE_GUARDS"] = os.path.join(pins, "wirerate")


@contextmanager
def inside(namespace):
    """Puts this thread into a named namespace. A socket that is opened there stays there."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        _checked(_libc.setns(there, CLONE_NEWNET), f"setns {namespace}")
        try:
            yield
        finally:
            _checked(_libc.setns(home, CLONE_NEWNET), "setns back")
    finally:
        os.close(there)
        os.close(home)


def die_with_parent():
    """For `preexec_fn`: the child is killed when this process dies, even by kill -9."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
