"""FRR on a host: zebra and bgpd, with files of their own."""

import shutil
import tempfile
from pathlib import Path

from host import stop

DAEMONS = Path("/usr/lib/frr")


def missing():
    """Why FRR cannot be run here, or None."""
    lacking = [name for name in ("zebra", "bgpd") if not (DAEMONS / name).exists()]
    return "not installed: frr (./setup test)" if lacking or not shutil.which("vtysh") else None


class Frr:
    """zebra and bgpd on a host, which listen at one of its addresses or at all."""

    def __init__(self, host, bgp, listen=None):
        self.host = host
        # They give up their privileges: it is theirs, in a directory that everybody may pass.
        self.directory = directory = Path(tempfile.mkdtemp(prefix="frr-", dir="/run"))
        for name, text in [("vtysh", ""), ("zebra", ""), ("bgpd", bgp)]:
            (directory / f"{name}.conf").write_text(text)
        for path in [directory, *directory.iterdir()]:
            shutil.chown(path, "frr", "frr")
        common = ["-u", "frr", "-g", "frr", "--vty_socket", directory, "-A", "127.0.0.1", "-P", "0", "-z", directory / "zserv.api"]
        self.daemons = [
            host.start(DAEMONS / name, "-f", directory / f"{name}.conf", "-i", directory / f"{name}.pid", *common, *more)
            for name, more in [("zebra", []), ("bgpd", ["-l", listen] if listen else [])]
        ]

    def ask(self, *commands):
        """What vtysh prints of commands, one after the other."""
        words = [word for command in commands for word in ("-c", command)]
        done = self.host.run("vtysh", "--vty_socket", self.directory, "--config_dir", self.directory, *words, check=False, timeout=120)
        return done.stdout

    def stop(self):
        for daemon in reversed(self.daemons):
            stop(daemon)
        shutil.rmtree(self.directory, ignore_errors=True)
