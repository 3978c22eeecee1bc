"""What people use a gateway for: names, pages, large files, speed."""

import hashlib
import json
import random

import pytest
import wait
from host import stop
from topology import OUTSIDE, REMOTE, REMOTE6, SERVER6

FILE = 50 * 1024 * 1024


@pytest.fixture(scope="module")
def names(net):
    """A name server at the remote host."""
    process = net.remote.start(
        "dnsmasq", "--keep-in-foreground", "--no-resolv", "--no-hosts", "--conf-file=/dev/null",
        "--log-facility=-", "--user=root",
        "--pid-file=", "--edns-packet-max=4096", "--host-record=www.example,198.51.100.7,2001:db8:aaaa::7",
        *[f"--txt-record=large.example,{chr(97 + number) * 200}" for number in range(12)],
    )  # fmt: skip
    # Refused as long as nobody listens.
    question = ("dig", "+short", "+time=1", "+tries=1", "@127.0.0.1", "www.example")
    wait.until(
        lambda: net.remote.run(*question, check=False).stdout.strip() == REMOTE,
        "dnsmasq answers",
    )
    yield
    stop(process)


@pytest.fixture(scope="module")
def page(net, tmp_path_factory):
    """A web server at the remote host, and one at the server inside; the checksum of the file that both have."""
    directory = tmp_path_factory.mktemp("page")
    data = random.Random(50).randbytes(FILE)
    (directory / "file").write_bytes(data)
    started = []
    for host, port in [(net.remote, 80), (net.server, 443)]:
        started.append(
            host.start(
                "/usr/bin/python3",
                "-m",
                "http.server",
                "--bind",
                "::",
                "--directory",
                directory,
                port,
                log=f"http-{port}",
            )
        )
        wait.until(lambda host=host, port=port: host.listens(port), f"{host} serves pages")
    yield hashlib.sha256(data).hexdigest()
    for process in started:
        stop(process)


@pytest.fixture(scope="module")
def meter(net):
    process = net.remote.start("iperf3", "-s")
    wait.until(lambda: net.remote.listens(5201), "iperf3 listens")
    yield
    stop(process)


def dig(host, *question, check=True):
    return host.run(
        "dig", "+short", "+time=2", "+tries=2", f"@{REMOTE}", *question, check=check
    ).stdout.split()


@pytest.mark.parametrize("how", [[], ["+tcp"]], ids=["udp", "tcp"])
@pytest.mark.parametrize("who", ["client", "guest", "gateway"])
def test_dig(net, names, who, how):
    """Also by guests, who may do little more, and by the gateway itself."""
    host = getattr(net, who)
    assert dig(host, "www.example", "A", *how) == [REMOTE]
    assert dig(host, "www.example", "AAAA", *how) == [REMOTE6]


def test_dig_by_ipv6(net, names):
    assert net.client.run("dig", "+short", "+time=2", f"@{REMOTE6}", "www.example").stdout.split() == [REMOTE]


def test_dig_of_what_comes_in_fragments(net, names):
    """2,400 bytes by UDP."""
    done = net.client.run(
        "dig", "+notcp", "+ignore", "+bufsize=4096", "+short", "+time=2", f"@{REMOTE}", "large.example", "TXT"
    )
    assert len(done.stdout.split()) == 12


def test_dig_of_a_name_that_is_not_there(net, names):
    done = net.client.run("dig", "+time=2", f"@{REMOTE}", "nowhere.example")
    assert "status: REFUSED" in done.stdout or "status: NXDOMAIN" in done.stdout


@pytest.mark.parametrize("who, url", [
    ("client", f"http://{REMOTE}/file"),
    ("client", f"http://[{REMOTE6}]/file"),
    ("remote", f"http://{OUTSIDE}:443/file"),
    ("remote", f"http://[{SERVER6}]:443/file"),
    ("client", f"http://{OUTSIDE}:443/file"),
    ("gateway", f"http://{REMOTE}/file"),
], ids=["out", "out6", "forwarded", "in6", "hairpin", "gateway"])  # fmt: skip
def test_curl_of_50_megabytes(net, page, who, url, tmp_path):
    got = tmp_path / "file"
    getattr(net, who).run("curl", "-sS", "-f", "-m", "60", "-o", got, url, timeout=70)
    assert hashlib.sha256(got.read_bytes()).hexdigest() == page


def test_curl_of_a_hundred_pages(net, page):
    """A connection each."""
    urls = [f"http://{REMOTE}/?{number}" for number in range(100)]
    done = net.client.run(
        "curl",
        "-sS",
        "-f",
        "--no-keepalive",
        "-H",
        "Connection: close",
        "-w",
        "%{http_code}\n",
        *[word for url in urls for word in ("-o", "/dev/null", url)],
        timeout=60,
    )
    assert done.stdout.split() == ["200"] * 100


def iperf(host, to, *options):
    done = host.run("iperf3", "-J", "-c", to, *options, check=False, timeout=40)
    report = json.loads(done.stdout)
    assert "error" not in report, report["error"]
    return report["end"]


@pytest.mark.parametrize("direction", [[], ["-R"]], ids=["up", "down"])
@pytest.mark.parametrize("to", [REMOTE, REMOTE6], ids=["ipv4", "ipv6"])
def test_iperf_of_tcp(net, meter, to, direction):
    """How fast is measured elsewhere; here something must move."""
    end = iperf(net.client, to, "-n", "30M", *direction)
    assert end["sum_received"]["bits_per_second"] > 1e6


@pytest.mark.parametrize("streams", [8])
def test_iperf_of_several_connections_both_ways(net, meter, streams):
    end = iperf(net.client, REMOTE, "-P", streams, "--bidir", "-n", "30M")
    assert end["sum_received"]["bytes"] > 0
    assert end["sum_received_bidir_reverse"]["bytes"] > 0


@pytest.mark.parametrize("direction", [[], ["-R"]], ids=["up", "down"])
@pytest.mark.parametrize("to", [REMOTE, REMOTE6], ids=["ipv4", "ipv6"])
def test_udp_at_a_low_rate_loses_nothing(net, meter, to, direction):
    end = iperf(net.client, to, "-u", "-b", "1M", "-l", "1000", "-n", "100K", *direction)
    assert end["sum"]["packets"] >= 100
    assert end["sum"]["lost_packets"] == 0
