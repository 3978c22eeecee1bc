"""Who fills dynamic sets from outside: an HTTP server of lists, fail2ban, and CrowdSec with its bouncer."""

import http.server
import os
import shutil
import threading
from pathlib import Path

import wait
from isolation import inside

ROOT = Path(__file__).resolve().parents[2]


def missing(*tools):
    """Packages of tools that are not installed."""
    packages = {"fail2ban-server": "fail2ban", "crowdsec": "crowdsec", "crowdsec-custom-bouncer": "crowdsec-custom-bouncer"}
    return sorted({packages[tool] for tool in tools if not shutil.which(tool)})


class Lists:
    """An HTTP server in a host: `text` is its list. `answers` says what it sent: status codes, in order."""

    def __init__(self, host, address, port=8000):
        self.text = b""
        self.tag = 0
        self.status = 200
        self.answers = []
        lists = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):  # noqa: N802
                tag = f'"{lists.tag}"'
                same = lists.status == 200 and self.headers.get("If-None-Match") == tag
                status = 304 if same else lists.status
                body = b"" if same else lists.text
                lists.answers.append(status)
                self.send_response(status)
                self.send_header("ETag", tag)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        with inside(host.namespace):
            self.server = http.server.ThreadingHTTPServer((address, port), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def give(self, text, status=200):
        self.text, self.status = text.encode(), status
        self.tag += 1

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


class Fail2ban:
    """fail2ban with the action of packaging/ and one jail, which reads a log of failed logins."""

    def __init__(self, host, directory, command, bantime="600"):
        self.host = host
        self.directory = directory
        self.log = directory / "auth.log"
        self.log.write_text("")
        etc = directory / "etc"
        for part in ["action.d", "filter.d"]:
            (etc / part).mkdir(parents=True)
        shutil.copy(ROOT / "packaging/fail2ban/wirerate.conf", etc / "action.d")
        (etc / "filter.d/login.conf").write_text("[Definition]\nfailregex = ^login failed from <HOST>$\n")
        (etc / "fail2ban.conf").write_text(
            f"[Definition]\nloglevel = INFO\nlogtarget = {directory}/fail2ban.log\nsyslogsocket = auto\n"
            f"socket = {directory}/fail2ban.sock\npidfile = {directory}/fail2ban.pid\ndbfile = None\ndbpurgeage = 1d\n"
        )
        (etc / "jail.conf").write_text(
            f"[login]\nenabled = true\nfilter = login\nlogpath = {self.log}\nbackend = polling\nmaxretry = 3\n"
            f'findtime = 600\nbantime = {bantime}\nusedns = no\ndatepattern = {{NONE}}\naction = wirerate[wirerate="{command}"]\n'
        )
        self.server = host.start("fail2ban-server", "-f", "-c", etc, "-s", directory / "fail2ban.sock", "-p", directory / "fail2ban.pid", "start")
        # To ask for a jail that is not there yet is an error in its log.
        wait.until(lambda: "login" in self.ask("status", check=False).stdout, "fail2ban watches the log")

    def ask(self, *words, check=True):
        return self.host.run("fail2ban-client", "-s", self.directory / "fail2ban.sock", *words, check=check)

    def fail(self, address, times=3):
        with open(self.log, "a", encoding="ascii") as log:
            log.write(f"login failed from {address}\n" * times)

    def said(self):
        return (self.directory / "fail2ban.log").read_text(errors="replace")

    def stop(self):
        self.ask("stop", check=False)
        self.server.wait(20)


class CrowdSec:
    """CrowdSec's local API, with decisions by hand, and the bouncer that has them carried out."""

    def __init__(self, host, directory, socket):
        self.host = host
        self.directory = directory
        for part in ["db", "hub", "data", "conf/acquis.d", "conf/notifications", "plugins"]:
            (directory / part).mkdir(parents=True)
        conf = directory / "conf"
        (conf / "config.yaml").write_text(
            f"""
common: {{daemonize: false, log_media: stdout, log_level: info, working_dir: .}}
config_paths:
  {{config_dir: {conf}, data_dir: {directory}/data, simulation_path: {conf}/simulation.yaml, hub_dir: {directory}/hub,
  index_path: {directory}/hub/.index.json, notification_dir: {conf}/notifications, plugin_dir: {directory}/plugins}}
crowdsec_service: {{acquisition_path: {conf}/acquis.yaml, parser_routines: 1}}
cscli: {{output: raw, hub_branch: master}}
db_config: {{log_level: info, type: sqlite, db_path: {directory}/db/crowdsec.db, use_wal: false}}
api:
  client: {{insecure_skip_verify: false, credentials_path: {conf}/local.yaml}}
  server: {{log_level: info, listen_uri: "127.0.0.1:8080", profiles_path: {conf}/profiles.yaml, console_path: {conf}/console.yaml}}
prometheus: {{enabled: false}}
plugin_config: {{user: root, group: root}}
"""
        )
        (conf / "profiles.yaml").write_text(
            "name: default\nfilters:\n - Alert.Remediation == true\ndecisions:\n - type: ban\n   duration: 4h\non_success: break\n"
        )
        (conf / "simulation.yaml").write_text("simulation: false\n")
        (conf / "console.yaml").write_text("share_manual_decisions: false\n")
        (directory / "hub/.index.json").write_text("{}\n")
        for name in ["acquis.yaml", "local.yaml"]:
            (conf / name).write_text("")
        self.cscli("machines", "add", "tester", "--password", "secret", "-u", "http://127.0.0.1:8080", "-f", conf / "local.yaml")
        self.cscli("bouncers", "add", "gateway", "-k", "0123456789abcdef")
        self.agent = host.start("crowdsec", "-c", conf / "config.yaml", "-no-cs")
        wait.until(lambda: self.decisions("list", check=False).returncode == 0, "CrowdSec answers", 30)
        bouncer = directory / "bouncer"
        bouncer.write_text(f'#!/bin/sh\nexec {ROOT}/packaging/crowdsec/wirerate-bouncer --socket {socket} "$@"\n')
        bouncer.chmod(0o755)
        shipped = (ROOT / "packaging/crowdsec/wirerate-bouncer.yaml").read_text()
        for before, after in [
            ("/usr/share/wirerate/crowdsec/wirerate-bouncer", str(bouncer)),
            ("API_KEY", "0123456789abcdef"),
            ("update_frequency: 10s", "update_frequency: 1s"),
            ("log_mode: file", "log_mode: stdout"),
            ("piddir: /run", f"piddir: {directory}"),
            ("daemonize: true", "daemonize: false"),
        ]:
            assert before in shipped, before
            shipped = shipped.replace(before, after)
        (directory / "bouncer.yaml").write_text(shipped)
        self.bouncer = host.start("crowdsec-custom-bouncer", "-c", directory / "bouncer.yaml")

    def cscli(self, *words, check=True):
        return self.host.run("cscli", "-c", self.directory / "conf/config.yaml", *words, check=check, env={**os.environ, "HOME": str(self.directory)})

    def decisions(self, *words, check=True):
        return self.cscli("decisions", *words, check=check)

    def stop(self):
        for process in [self.bouncer, self.agent]:
            process.terminate()
            process.wait(20)
