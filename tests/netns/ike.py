"""strongSwan's charon, unmodified, in a host of its own: started, told by `swanctl` what to do, asked what it has.

On the gateway it has the preload library of `packaging/xfrm` or the plugin of `packaging/strongswan`, and so gives its SAs to
wirerate. A peer has `kernel-libipsec`, which carries ESP in charon's own process, and needs no support in the kernel.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import wait
from host import stop

# Debian's strongSwan, or another: STRONGSWAN is the directory that it was installed below (./configure --prefix=DIRECTORY --with-piddir=/run
# --enable-kernel-libipsec), STRONGSWAN_SOURCE that of its source, for the plugin.
PREFIX = os.environ.get("STRONGSWAN")
CHARON = f"{PREFIX}/libexec/ipsec/charon" if PREFIX else "/usr/lib/ipsec/charon"
LIBRARIES = Path(f"{PREFIX}/lib/ipsec/plugins" if PREFIX else "/usr/lib/ipsec/plugins")
SWANCTL = f"{PREFIX}/sbin/swanctl" if PREFIX else "swanctl"
PACKAGING = Path(__file__).parents[2] / "packaging"
SOURCE = PACKAGING / "xfrm" / "libwirerate_xfrm.c"

PLUGINS = (
    "random nonce aes sha1 sha2 hmac gcm kdf curve25519 openssl pem pkcs1 pkcs8 x509 pubkey"
    " {kernel} socket-default vici updown"
)

DAEMON = """
charon {{
  load_modular = no
  load = {plugins}
  install_routes = no
  retransmit_timeout = 1.0
  retransmit_tries = 3
  delete_rekeyed_delay = 1
  filelog {{
    log {{
      path = {log}
      default = 1
      knl = 2
      flush_line = yes
    }}
  }}
  plugins {{
    vici {{
      socket = unix://{vici}
    }}
    {more}
  }}
}}
"""

CONNECTION = """
connections {{
  site {{
    version = 2
    local_addrs = {local}
    remote_addrs = {remote}
    proposals = aes128gcm16-prfsha256-x25519
    encap = {encap}
    dpd_delay = 2s
    local {{
      auth = psk
      id = {local_id}
    }}
    remote {{
      auth = psk
      id = {remote_id}
    }}
    children {{
{children}
    }}
  }}
}}
secrets {{
  ike-1 {{
    secret = "between two sites"
  }}
}}
"""


CHILD = """
      {name} {{
        local_ts = {local_net}
        remote_ts = {remote_net}
        esp_proposals = {esp}
        rekey_time = 1h
        {more}
      }}
"""


def lacking():
    """Why no IKE daemon can be tried here, or None."""
    if not Path(CHARON).exists() or not shutil.which(SWANCTL):
        return "not installed: strongswan-charon strongswan-swanctl (./setup test)"
    if not shutil.which("cc"):
        return "not installed: gcc (./setup)"
    return None


def version():
    """That of strongSwan, as "5.9.8"."""
    return re.match(r"strongSwan (\S+) swanctl", subprocess.run([SWANCTL, "--help"], capture_output=True, text=True).stdout)[1]


class Userland:
    """charon carries ESP in its own process."""

    kernel = "kernel-libipsec kernel-netlink"
    more = prepare = ""
    environment = ()


class Preload:
    """charon's sockets of NETLINK_XFRM lead to wirerate by the preload library, compiled as the packaging says."""

    kernel = "kernel-netlink"
    more = prepare = ""

    def __init__(self, library, xfrm):
        self.environment = (f"LD_PRELOAD={library}", f"WIRERATE_XFRM={xfrm}")


class Plugin:
    """charon has the plugin `kernel-wirerate`, installed below a directory; its configuration keeps `kernel-netlink` out."""

    kernel = "kernel-wirerate kernel-netlink"
    environment = ()

    def __init__(self, root, xfrm):
        self.prepare = f"mount --bind {root}{LIBRARIES} {LIBRARIES} && "
        conf = (root / "etc/strongswan.d/charon/kernel-wirerate.conf").read_text()
        assert "/run/wirerate/xfrm" in conf
        self.more = conf.replace("/run/wirerate/xfrm", str(xfrm))


def library(directory):
    """The preload library, compiled as the packaging says."""
    if why := lacking():
        pytest.skip(f"SKIPPED: {why}")
    built = Path(directory) / "libwirerate_xfrm.so"
    words = ["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o", built, SOURCE, "-ldl", "-lpthread"]
    subprocess.run(words, check=True)
    return built


def plugin(directory):
    """Where the plugin is installed, beside all of charon's."""
    if why := lacking() or (None if shutil.which("make") else "not installed: make (./setup)"):
        pytest.skip(f"SKIPPED: {why}")
    make = ["make", "--silent", "-C", PACKAGING / "strongswan"]
    if PREFIX:
        make += [f"VERSION={version()}", f"STRONGSWAN={PREFIX}/lib/ipsec", f"SOURCE={os.environ.get('STRONGSWAN_SOURCE', 'none')}"]
    if subprocess.run([*make, "--question", "source"]).returncode != 0:
        pytest.skip("SKIPPED: no source of strongSwan: make -C packaging/strongswan source (./setup test)")
    root = Path(directory)
    shutil.copytree(LIBRARIES, root / LIBRARIES.relative_to("/"))
    subprocess.run([*make, f"BUILD={root / 'build'}", f"DESTDIR={root}", "install"], check=True)
    return root


class Daemon:
    """charon on a host."""

    def __init__(self, host, logs, means=Userland):
        self.host = host
        self.place = logs / f"{host.name}-charon"
        self.place.mkdir()
        self.vici = self.place / "vici"
        self.log = self.place / "log"
        self.means = means
        self.environment = [f"STRONGSWAN_CONF={self.place / 'strongswan.conf'}", *means.environment]
        plugins = PLUGINS.format(kernel=means.kernel)
        text = DAEMON.format(plugins=plugins, log=self.log, vici=self.vici, more=means.more)
        (self.place / "strongswan.conf").write_text(text)
        self.process = None

    def start(self, local=None, remote=None, local_id=None, remote_id=None, encap="yes", also=(), **child):
        """With the ends of a connection, and its child `net`; `also` has further ones by name."""
        self.launch()
        wait.until(self.answers, "charon answers")
        if local:
            each = {"net": child, **dict(also)}
            children = [CHILD.format(**{"more": "", "name": name, **one}) for name, one in each.items()]
            ends = {"local": local, "remote": remote, "local_id": local_id or local, "remote_id": remote_id or remote}
            self.load(CONNECTION.format(**ends, encap=encap, children="".join(children)))

    def launch(self):
        self.vici.unlink(missing_ok=True)
        # Its file of process IDs has a fixed place below /run.
        script = f'mount -t tmpfs none /run && {self.means.prepare}exec env {" ".join(self.environment)} {CHARON}'
        self.process = self.host.start("unshare", "-m", "sh", "-c", script, log="charon")

    def load(self, text):
        """Has it take a configuration of `swanctl`."""
        conf = self.place / "swanctl.conf"
        conf.write_text(text)
        self.ask("--load-all", "--file", conf)

    def answers(self):
        return self.vici.exists() and self.ask("--stats", check=False).returncode == 0

    def ask(self, *words, check=True):
        return self.host.run(SWANCTL, *words, "--uri", f"unix://{self.vici}", check=check, timeout=20)

    def pair(self, child="net"):
        """SPIs in and out of the CHILD_SA in use, or None."""
        text = self.ask("--list-sas").stdout
        for block in re.split(rf"\n  {child}: ", text)[1:]:
            if "INSTALLED" in block.splitlines()[0]:
                return tuple(int(re.search(rf"{way} +([0-9a-f]{{8}})", block)[1], 16) for way in ["in", "out"])
        return None

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process:
            stop(self.process)

    def evidence(self):
        return self.log.read_text(errors="replace")[-4000:] if self.log.exists() else ""
