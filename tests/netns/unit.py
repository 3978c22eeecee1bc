"""Runs a program as packaging/wirerate.service has systemd run it: as a user of its own, with the capabilities, the system calls
and the address families that the unit names, and no others. A system call that it does not name ends the program.

    unit.py COMMAND...

What of the unit takes a running systemd (slices, the file system's protection, devices) is left out.
"""

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

UNIT = Path(__file__).parent.parent.parent / "packaging" / "wirerate.service"

NOBODY = 65534
"""The user, in the place of systemd's dynamic one."""


def settings(text):
    """The settings of a unit, each with its values in their order."""
    found = {}
    for line in text.splitlines():
        if "=" in line and not line.startswith("#"):
            key, value = line.split("=", 1)
            found.setdefault(key, []).append(value)
    return found


def members(name):
    """The system calls of a name, which may be that of a group."""
    if not name.startswith("@"):
        return {name}
    told = subprocess.run(["systemd-analyze", "syscall-filter", name], check=True, capture_output=True, text=True)
    names = [line.strip() for line in told.stdout.splitlines()[1:]]
    return set().union(*(members(name) for name in names if name and not name.startswith("#")))


def allowed(lines):
    """The system calls that are left by `SystemCallFilter=`, whose first line says that the list is of what is allowed
    (systemd.exec(5))."""
    assert not lines[0].startswith("~"), lines
    calls = set()
    for line in lines:
        named = set().union(*(members(name) for name in line.removeprefix("~").split()))
        calls = calls - named if line.startswith("~") else calls | named
    # What no filter of systemd's takes away.
    return calls | {"execve", "exit", "exit_group", "rt_sigreturn"}


def restrict(unit):
    import seccomp

    filtered = seccomp.SyscallFilter(defaction=seccomp.KILL_PROCESS)
    for call in sorted(allowed(unit["SystemCallFilter"]) - {"socket"}):
        try:
            filtered.add_rule(seccomp.ALLOW, call)
        except RuntimeError:
            # Another architecture's.
            continue
    for family in unit["RestrictAddressFamilies"][0].split():
        filtered.add_rule(seccomp.ALLOW, "socket", seccomp.Arg(0, seccomp.EQ, FAMILIES[family]))
    filtered.load()


FAMILIES = {
    "AF_UNIX": 1,
    "AF_INET": 2,
    "AF_INET6": 10,
    "AF_NETLINK": 16,
    "AF_PACKET": 17,
    "AF_XDP": 44,
}


def everybody_may_make_devices():
    """udev gives /dev/net/tun to everybody; a machine without it may not."""
    if os.stat("/dev/net/tun").st_mode & 0o006 == 0o006:
        return
    node = Path(tempfile.mkdtemp()) / "tun"
    os.mknod(node, 0o020666, os.makedev(10, 200))
    os.chmod(node, 0o666)
    # `ip netns exec` has given this process mounts of its own.
    subprocess.run(["mount", "--bind", node, "/dev/net/tun"], check=True)


def main():
    if sys.argv[1] != "--restricted":
        everybody_may_make_devices()
        unit = settings(UNIT.read_text())
        capabilities = unit["CapabilityBoundingSet"][0].split()
        assert unit["LimitMEMLOCK"] == ["infinity"]
        try:
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        except ValueError:
            # Root in a container may not raise it; this passes the bound by.
            capabilities.append("CAP_IPC_LOCK")
        wanted = ",".join("+" + name.removeprefix("CAP_").lower() for name in capabilities)
        user = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs"]
        may = [f"--inh-caps=-all,{wanted}", f"--ambient-caps=-all,{wanted}", f"--bounding-set=-all,{wanted}"]
        again = [sys.executable, __file__, "--restricted", *sys.argv[1:]]
        os.execvp("setpriv", ["setpriv", *user, *may, *again])
    restrict(settings(UNIT.read_text()))
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
