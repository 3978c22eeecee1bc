"""A real Prometheus beside the gateway, with the alerts and the dashboard that are packaged: it scrapes, every query has an answer, alerts fire."""

import json
import re
import shutil
import subprocess
import urllib.parse

import pytest
import wait
from gateway import ROOT
from host import stop
from topology import OUTSIDE, REMOTE, SERVER

MONITORING = ROOT / "packaging" / "monitoring"
METRICS = "127.0.0.1:9478"
PROMETHEUS = "127.0.0.1:9090"

VARIANTS = ["classes", "queues"]

pytestmark = [
    pytest.mark.only("wirerate-packet", "wirerate-fast", why="drivers give the same metrics"),
    pytest.mark.longest(150),
]


@pytest.fixture(scope="module")
def tools(request):
    lacking = [tool for tool in ("prometheus", "promtool") if not shutil.which(tool)]
    if lacking:
        why = f"SKIPPED: not installed: {' '.join(lacking)} (./setup test)"
        (pytest.fail if request.config.getoption("must_run") else pytest.skip)(why)


@pytest.fixture(scope="module")
def prometheus(net, tools):
    """The gateway with metrics, and Prometheus, which asks each second and does not wait with alerts."""
    office = net.office
    office.stop()
    before = office.write

    def with_metrics(*variants):
        before(*variants)
        text = office.policy.read_text().replace("[gateway]\n", f'[gateway]\nmetrics = "{METRICS}"\nipfix = "udp:{SERVER}:4739"\n', 1)
        office.policy.write_text(text)

    office.write = with_metrics
    office.start()
    rules = net.logs / "wirerate.rules.yml"
    rules.write_text(re.sub(r"\bfor: \w+", "for: 2s", (MONITORING / "wirerate.rules.yml").read_text()))
    configuration = net.logs / "prometheus.yml"
    text = (MONITORING / "prometheus.yml").read_text()
    text = text.replace("/usr/share/wirerate/monitoring/wirerate.rules.yml", str(rules)).replace("15s", "1s")
    configuration.write_text(text)
    process = office.host.start(
        *["prometheus", f"--config.file={configuration}", f"--storage.tsdb.path={net.logs / 'tsdb'}"],
        f"--web.listen-address={PROMETHEUS}",
    )
    try:
        wait.until(lambda: asked(net, 'up{job="wirerate"} == 1'), "Prometheus has scraped the gateway", 30)
        yield process
    finally:
        stop(process)
        office.write = before


def fetched(net, path):
    done = net.office.host.run("curl", "-s", "-m", "5", f"http://{PROMETHEUS}{path}", check=False)
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"status": "away", "said": done.stdout}


def asked(net, query):
    """What Prometheus answers to a query, as a list of series."""
    told = fetched(net, "/api/v1/query?" + urllib.parse.urlencode({"query": query}))
    return told["data"]["result"] if told["status"] == "success" else []


def firing(net):
    alerts = fetched(net, "/api/v1/alerts")
    found = alerts["data"]["alerts"] if alerts["status"] == "success" else []
    return {(alert["labels"]["alertname"], alert["labels"].get("port")) for alert in found if alert["state"] == "firing"}


def queries():
    """Queries of the dashboard, by the titles of their panels."""
    dashboard = json.loads((MONITORING / "grafana.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for note in dashboard["annotations"]["list"]:
        yield note["name"], note["expr"]


def families(text):
    """Names of metrics in a query or in rules."""
    return set(re.findall(r"\bwirerate_\w+", text))


def test_the_alerts_do_as_their_cases_say(tools):
    """Each fires for what it is about, and for nothing less: promtool plays made-up series."""
    done = subprocess.run(
        ["promtool", "test", "rules", "wirerate.rules.test.yml"],
        cwd=MONITORING,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    named = re.findall(r"alert: (\w+)", (MONITORING / "wirerate.rules.yml").read_text())
    tried = (MONITORING / "wirerate.rules.test.yml").read_text()
    assert len(named) > 10
    for name in named:
        cases = tried.count(f'- expr: \'ALERTS{{alertname="{name}", ')
        assert cases == 2, f"{name}: a case where it fires, and one where not"


def test_every_metric_that_they_name_is_one_of_the_gateway(net, prometheus):
    told = net.office.host.run("curl", "-s", f"http://{METRICS}/metrics").stdout
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", told, re.MULTILINE))
    exported = {f"{name}_total" if kind == "counter" else name for name, kind in types.items()}
    if net.office.fast_path == "off":
        exported |= {f"wirerate_fast_path_{name}" for name in ["flows", "packets_total", "lost_packets_total", "kept_packets_total"]}
    # There is no second gateway here; test_sync.py looks for them where there is.
    exported |= {"wirerate_sync_up", "wirerate_sync_both_active"}
    texts = [query for _, query in queries()] + [(MONITORING / "wirerate.rules.yml").read_text()]
    for text in texts:
        assert families(text) <= exported, families(text) - exported


def test_every_query_of_the_dashboard_has_an_answer(net, prometheus):
    """No tunnel, no WAN, no dynamic set and no server is here, and nothing is lost: of those the query alone is tried."""
    instance = asked(net, 'wirerate_uptime_seconds{job="wirerate"}')[0]["metric"]["instance"]

    def seen():
        net.client.reaches(REMOTE)
        # One is accepted by a rule, one by none, and a rule rejects the last.
        net.remote.reaches(OUTSIDE)
        net.remote.run("curl", "-s", "-m", "0.2", f"http://{OUTSIDE}:81", check=False)
        net.client.run("curl", "-s", "-m", "0.2", f"http://{REMOTE}:25", check=False)
        rates = [f"rate(wirerate_{name}_packets_total[10s]) > 0" for name in ["answered", "dropped", "rule"]]
        return all(asked(net, query) for query in rates)

    wait.until(seen, "packets are counted", 30)
    without = {"Security associations", "Tunnels", "Refused", "Lost at interfaces", "Dropped and marked by queues", "Policy applied"}
    without |= {"WANs", "Round trips", "Checks without an answer"}
    without |= {"Servers up", "Time of checks", "Failed checks"}
    without |= {"Elements", "Fill", "Expired and refused", "Age of lists"}
    for title, query in queries():
        query = query.replace("$__rate_interval", "10s").replace("$instance", instance)
        told = fetched(net, "/api/v1/query?" + urllib.parse.urlencode({"query": query}))
        assert told["status"] == "success", (title, query, told)
        expected = title not in without and not ("fast_path" in query and net.office.fast_path == "off")
        assert told["data"]["result"] or not expected, (title, query)


def test_alerts_fire_and_end(net, prometheus):
    wait.until(lambda: ("WirerateRestarted", None) in firing(net), "the alert of a start fires", 20)
    told = firing(net)
    assert ("WirerateNoCarrier", "wan") not in told and ("WirerateDown", None) not in told
    net.switch.ip("link set gw-wan down")
    try:
        wait.until(lambda: ("WirerateNoCarrier", "wan") in firing(net), "the alert of a link without carrier fires", 20)
        assert ("WirerateNoCarrier", "lan") not in firing(net)
    finally:
        net.switch.ip("link set gw-wan up")
    wait.until(lambda: ("WirerateNoCarrier", "wan") not in firing(net), "the alert ends with the carrier", 20)
    net.office.stop()
    try:
        wait.until(lambda: ("WirerateDown", None) in firing(net), "the alert of a gateway that is away fires", 20)
    finally:
        net.office.start()
    wait.until(lambda: ("WirerateDown", None) not in firing(net), "the alert ends with the gateway's start", 20)
