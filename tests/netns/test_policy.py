"""What was applied: kept over a restart, listed, saved; and what Linux has that has no effect."""

import json

import pytest
import wait
from topology import GATEWAY

pytestmark = pytest.mark.without("nftables", why="Linux keeps no policies")

TOKEN = "a-token-of-26-characters.."


@pytest.fixture(autouse=True)
def as_before(net):
    yield
    begin(net)
    # What was applied last would be in force after the next start, too.
    net.office.apply()


def begin(net):
    """Starts the gateway with the policy file as it is."""
    if net.office.alive():
        net.office.stop()
    net.office.start()
    net.client.reaches(GATEWAY)


def again(net):
    """A restart, without a change of the policy file."""
    before = net.office.policy.read_bytes()
    net.office.stop()
    write, net.office.write = net.office.write, lambda *_: None
    try:
        net.office.start()
    finally:
        net.office.write = write
    assert net.office.policy.read_bytes() == before
    net.client.reaches(GATEWAY)


def applied(net, rule, *options):
    """Applies a policy of another file, with one more rule."""
    text = net.office.policy.read_text()
    path = net.logs / "applied.toml"
    path.write_text(text + f'\n[[rule]]\nname = "{rule}"\nfrom = "lan"\nto = "wan"\naction = "accept"\n')
    net.office.ask("apply", path, *options)


def rules(net):
    return [rule["name"] for rule in json.loads(net.office.ask("rules", "--json").stdout)]


def policy(net, *words):
    return net.office.ask("policy", *words).stdout


def history(net):
    return json.loads(policy(net, "history", "--json"))


def test_an_applied_policy_survives_a_restart(net):
    begin(net)
    applied(net, "survivor", "--comment", "for the test")
    last = history(net)["entries"][-1]
    assert (last["origin"], last["user"], last["comment"]) == ("apply", "root", "for the test")
    again(net)
    assert "survivor" in rules(net)
    assert f"policy {last['number']}, applied at" in net.office.log()
    assert "survivor" in policy(net, "show", "--number", str(last["number"]))
    # The file is another now: it is what counts.
    net.office.policy.write_text(net.office.policy.read_text() + "\n# changed\n")
    again(net)
    assert "survivor" not in rules(net)


def test_a_policy_on_trial_is_kept_once_it_is_confirmed(net):
    begin(net)
    entries = len(history(net)["entries"])
    applied(net, "on-trial", "--confirm", "60s")
    assert history(net)["on_trial"]
    assert len(history(net)["entries"]) == entries
    assert net.office.ask("policy", "save", check=False).returncode != 0
    again(net)
    assert "on-trial" not in rules(net)
    applied(net, "confirmed", "--confirm", "60s")
    net.office.ask("confirm")
    again(net)
    assert "confirmed" in rules(net)


def test_saved_it_is_the_file_s(net):
    begin(net)
    applied(net, "saved")
    policy(net, "save")
    assert 'name = "saved"' in net.office.policy.read_text()
    again(net)
    assert "saved" in rules(net)
    copy = net.logs / "copy.toml"
    policy(net, "save", str(copy))
    assert copy.read_text() == net.office.policy.read_text() == policy(net, "show")


def test_a_damaged_entry_keeps_no_gateway_from_starting(net):
    begin(net)
    applied(net, "damaged")
    number = history(net)["entries"][-1]["number"]
    entry = net.logs / "policy" / f"{number:06}.toml"
    entry.write_bytes(entry.read_bytes()[:-9])
    again(net)
    assert "damaged" not in rules(net)
    assert "of no use" in net.office.log()


def notes(net):
    return json.loads(net.office.ask("status", "--json").stdout)["notes"]


def test_a_queueing_discipline_is_noted(net):
    assert not [note for note in notes(net) if "queueing discipline" in note]
    net.gateway.run("tc", "qdisc", "add", "dev", "wan", "root", "tbf", "rate", "1mbit", "burst", "10k", "latency", "50ms")
    try:
        (note,) = [note for note in notes(net) if "queueing discipline" in note]
        assert note.startswith("wan has the queueing discipline tbf, which the gateway's frames bypass")
        wait.until(lambda: note in net.office.log(), "it is logged")
        # Usual ones, and those that queue nothing, are not.
        net.gateway.run("tc", "qdisc", "replace", "dev", "wan", "root", "pfifo_fast")
        assert not [note for note in notes(net) if "queueing discipline" in note]
    finally:
        net.gateway.run("tc", "qdisc", "del", "dev", "wan", "root", check=False)


@pytest.mark.parametrize("version", ["-4", "-6"])
def test_a_routing_rule_is_noted(net, version):
    assert not [note for note in notes(net) if "rule`" in note]
    rule = ["pref", "1000", "fwmark", "7", "lookup", "100"]
    net.gateway.run("ip", version, "rule", "add", *rule)
    try:
        (note,) = [note for note in notes(net) if "rule`" in note]
        assert "1000 (table 100) is not followed" in note
        assert ("-6" in note) == (version == "-6")
    finally:
        net.gateway.run("ip", version, "rule", "del", *rule)


@pytest.fixture
def certificate(net):
    """A certificate for the gateway's inside address, and its key."""
    paths = net.logs / "metrics.crt", net.logs / "metrics.key"
    net.gateway.run(
        *["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"],
        *["-keyout", paths[1], "-out", paths[0], "-days", "2", "-subj", "/CN=gateway"],
        *["-addext", f"subjectAltName=IP:{GATEWAY}"],
    )
    return paths


def with_metrics(net, *keys):
    """Starts the gateway with other keys of `[gateway]`."""
    net.office.stop()
    net.office.write()
    text = net.office.policy.read_text()
    text = text.replace("[gateway]\n", "[gateway]\n" + "".join(f"{key}\n" for key in keys), 1)
    net.office.policy.write_text(text)
    again(net)


def fetched(net, *options, scheme="http"):
    """Status and text of what another machine is given."""
    done = net.client.run(
        *["curl", "-s", "-m", "5", "-w", "\n%{http_code}", *options, f"{scheme}://{GATEWAY}:9478/metrics"],
        check=False,
    )
    text, _, code = done.stdout.rpartition("\n")
    return int(code), text


def test_metrics_with_a_token(net):
    path = net.logs / "metrics.token"
    path.write_text(TOKEN + "\n")
    with_metrics(net, f'metrics = "{GATEWAY}:9478"', f'metrics-token = "{path}"')
    assert fetched(net)[0] == 401
    assert fetched(net, "-H", "Authorization: Bearer another-token-of-length-26")[0] == 401
    assert fetched(net, "-H", f"Authorization: Basic {TOKEN}")[0] == 401
    code, text = fetched(net, "-H", f"Authorization: Bearer {TOKEN}")
    assert (code, "wirerate_received_packets_total" in text or "wirerate_packets_total" in text) == (200, True)


def test_metrics_by_tls(net, certificate):
    crt, key = certificate
    with_metrics(
        net,
        f'metrics = "{GATEWAY}:9478"',
        f'metrics-certificate = "{crt}"',
        f'metrics-key = "{key}"',
    )
    code, text = fetched(net, "--cacert", str(crt), scheme="https")
    assert (code, "wirerate_log_records_total" in text) == (200, True)
    # Not in the clear, and not by a certificate that nobody knows.
    assert fetched(net)[0] != 200
    assert fetched(net, scheme="https")[0] == 0


def test_a_key_of_another_certificate_is_told(net, certificate):
    crt, key = certificate
    key.write_text("no key\n")
    net.office.stop()
    net.office.write()
    text = net.office.policy.read_text()
    keys = f'metrics = "{GATEWAY}:9478"\nmetrics-certificate = "{crt}"\nmetrics-key = "{key}"\n'
    net.office.policy.write_text(text.replace("[gateway]\n", "[gateway]\n" + keys, 1))
    write, net.office.write = net.office.write, lambda *_: None
    try:
        net.office.launch()
        assert net.office.process.wait(10) == 4
    finally:
        net.office.write = write
    assert str(key) in net.office.log()
