"""A SIP phone, baresip, which answers all calls and sends a tone; and a registrar with a proxy, kamailio."""

import json
import re
import time

import wait

CONFIG = """
module_path /usr/lib/baresip/modules
module g711.so
module ausine.so
module aubridge.so
module_tmp uuid.so
module_tmp account.so
module_app menu.so
module_app ctrl_tcp.so
ctrl_tcp_listen 127.0.0.1:4444
sip_listen {address}:{port}
rtp_ports {first}-{last}
audio_source ausine,400
ausrc_srate 48000
ausrc_channels 2
audio_player aubridge,none
rtp_stats yes
call_max_calls 4
net_interface {interface}
"""

REGISTRAR = """
debug=1
log_stderror=yes
children=2
listen=udp:{address}:5060
disable_tcp=yes
mpath="/usr/lib/x86_64-linux-gnu/kamailio/modules/:/usr/lib/aarch64-linux-gnu/kamailio/modules/"
loadmodule "sl.so"
loadmodule "pv.so"
loadmodule "tm.so"
loadmodule "tmx.so"
loadmodule "rr.so"
loadmodule "usrloc.so"
loadmodule "registrar.so"
loadmodule "siputils.so"

request_route {{
    if (method == "REGISTER") {{
        save("location");
        exit;
    }}
    if (has_totag()) {{
        loose_route();
        t_relay();
        exit;
    }}
    if (method == "CANCEL") {{
        if (t_check_trans()) {{
            t_relay();
        }}
        exit;
    }}
    record_route();
    if (!lookup("location")) {{
        sl_send_reply("404", "Not Found");
        exit;
    }}
    t_relay();
}}
"""


def registrar(host, address, folder):
    """Starts the registrar on a host."""
    config = folder / "kamailio.cfg"
    config.write_text(REGISTRAR.format(address=address))
    words = ["kamailio", "-DD", "-E", "-f", config, "-m", "32", "-M", "4", "-Y", folder, "-P", folder / "pid"]
    process = host.start(*words)
    wait.until(lambda: f"{address}:5060" in host.run("ss", "-lun").stdout, "the registrar listens")
    return process


class Phone:
    """A phone of that name, registered at `registrar` unless there is none."""

    def __init__(self, host, name, address, folder, registrar=None, port=5060, rtp=4000):
        self.host, self.name, self.address = host, name, address
        own = folder / name
        own.mkdir(exist_ok=True)
        values = {"address": address, "port": port, "first": rtp, "last": rtp + 20}
        (own / "config").write_text(CONFIG.format(interface="eth0", **values))
        where, interval = (registrar, 60) if registrar else (f"{address}:{port}", 0)
        account = f"<sip:{name}@{where}>;auth_pass=x;answermode=auto;audio_codecs=PCMU;regint={interval}"
        (own / "accounts").write_text(account + "\n")
        self.process = host.start("baresip", "-f", own, log=name)
        self.control = wait.until(self._connect, f"{name} can be controlled")

    def _connect(self):
        assert self.process.poll() is None, self.said()
        try:
            return self.host.connect("127.0.0.1", 4444, timeout=1)
        except OSError:
            return None

    def said(self):
        return re.sub(r"\x1b\[[0-9;]*m", "", self.process.log.read_text(errors="replace"))

    def asks(self, command, params=""):
        text = json.dumps({"command": command, "params": params})
        self.control.sendall(f"{len(text)}:{text},".encode())

    def is_registered(self):
        return "200 OK" in self.said()

    def calls(self, to):
        self.asks("dial", to)

    def hangs_up(self):
        self.asks("hangup")

    def packets(self):
        """Of the last call that is over, packets of audio sent and received; none if there was no call."""
        found = re.findall(r"packets:\s+(\d+)\s+(\d+)", self.said())
        return tuple(int(count) for count in found[-1]) if found else None

    def close(self):
        self.control.close()
        self.process.kill()
        self.process.wait()


def talk(caller, called, to, seconds=2):
    """A call that lasts; what both have sent and received. `None` if there was none."""
    both = (caller, called)

    def more(words):
        before = [phone.said().count(words) for phone in both]
        return lambda: all(
            phone.said().count(words) > count for phone, count in zip(both, before, strict=True)
        )

    established, is_over = more("Call established"), more("packets:")
    caller.calls(to)
    try:
        wait.until(established, "the call is answered", deadline=5)
        time.sleep(seconds)
        caller.hangs_up()
        wait.until(is_over, "the call is over", deadline=5)
    except AssertionError:
        caller.hangs_up()
        return None
    return caller.packets(), called.packets()
