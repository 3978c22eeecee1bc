"""Classifiers, held to a linear scan in NumPy."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import wirerate
from conftest import wirerate as command

ALGORITHMS = ["linear", "coded", "range_match", "tuple", "bdd", "tree"]


def prefix(word: str) -> tuple[int, int]:
    """First and last address."""
    address, length = word.split("/")
    first = int.from_bytes(bytes(map(int, address.split("."))), "big")
    mask = (1 << 32) - (1 << (32 - int(length)))
    return first & mask, (first & mask) | (0xFFFF_FFFF - mask)


def scan(rules: list[str], headers: dict[str, np.ndarray]) -> np.ndarray:
    """The first rule that matches each header, one rule after the other."""
    found = np.full(len(headers["src"]), -1, np.int32)
    for position, rule in enumerate(rules):
        words = rule.removeprefix("@").split()
        (source, destination), ports, (protocol, flags) = words[:2], words[2:8], words[8:10]
        matches = found == -1
        for name, (first, last) in (("src", prefix(source)), ("dst", prefix(destination)),
                                    ("sport", (int(ports[0]), int(ports[2]))), ("dport", (int(ports[3]), int(ports[5])))):
            if (first, last) not in ((0, 65_535), (0, 0xFFFF_FFFF)):
                matches &= (headers[name] >= first) & (headers[name] <= last)
        value, mask = (int(word, 16) for word in protocol.split("/"))
        matches &= (headers["protocol"] & mask) == (value & mask)
        value, mask = (int(word, 16) for word in flags.split("/"))
        matches &= (headers["tcp_flags"] & (mask >> 8)) == ((value & mask) >> 8)
        found[matches] = position
    return found


@pytest.fixture(scope="module")
def acl(tmp_path_factory):
    """Rules, as a file and as lines, without ICMP, whose types a scan would have to tell from ports."""
    path = tmp_path_factory.mktemp("rules") / "acl.rules"
    command("generate", "rules", "--like", "acl", "--count", 300, "--seed", 3, "--out", path)
    lines = [line for line in path.read_text().splitlines() if line.startswith("@") and "0x01/0xff" not in line.lower()]
    path.write_text("# A comment is no rule.\n" + "\n".join(lines) + "\n")
    return path, lines


def some_headers(rules: list[str], count: int) -> dict[str, np.ndarray]:
    """Headers, most of which some rule matches."""
    random = np.random.default_rng(1)
    picked = [rules[place].removeprefix("@").split() for place in random.integers(0, len(rules), count)]
    inside = lambda column: np.array([random.integers(*prefix(words[column]), endpoint=True) for words in picked], np.uint32)
    port = lambda column: np.array(
        [random.integers(int(words[column]), int(words[column + 2]), endpoint=True) for words in picked], np.uint16)
    return {"src": inside(0), "dst": inside(1), "sport": port(2), "dport": port(5),
            "protocol": np.array([int(words[8].split("/")[0], 16) or 17 for words in picked], np.uint8),
            "tcp_flags": np.where(random.integers(0, 2, count) == 1, 0x10, 0x02).astype(np.uint8)}


@pytest.mark.parametrize("algorithm", [None, *ALGORITHMS])
def test_every_algorithm_answers_as_a_scan_does(acl, algorithm):
    path, rules = acl
    headers = some_headers(rules, 3_000)
    headers["src"][::7] ^= 0x8000_0000
    expected = scan(rules, headers)
    assert len(set(expected)) > 50 and (expected == -1).any()
    found = wirerate.classify(path, headers, algorithm=algorithm)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(wirerate.classify(rules, headers, algorithm=algorithm), expected)


def test_headers_come_as_any_table(acl):
    path, rules = acl
    headers = some_headers(rules, 500)
    expected = wirerate.classify(path, headers)
    structured = np.empty(500, [(name, column.dtype) for name, column in headers.items()])
    for name, column in headers.items():
        structured[name] = column
    np.testing.assert_array_equal(wirerate.classify(path, structured), expected)
    np.testing.assert_array_equal(wirerate.classify(path, pa.table(headers)), expected)
    swapped = {name: column.astype(column.dtype.newbyteorder()) for name, column in headers.items()}
    np.testing.assert_array_equal(wirerate.classify(path, swapped), expected)
    strided = {name: np.repeat(column, 2)[::2] for name, column in headers.items()}
    np.testing.assert_array_equal(wirerate.classify(path, strided), expected)


def test_ipv6_has_addresses_of_sixteen_bytes():
    rules = ["@2001:db8::/32 ::/0 0 : 65535 443 : 443 0x06/0xff", "@::/0 ::/0 0 : 65535 0 : 65535 0x06/0xff"]
    source = np.zeros((2, 16), np.uint8)
    source[0, :4] = [0x20, 0x01, 0x0D, 0xB8]
    headers = {"src": source, "dst": np.zeros((2, 16), np.uint8), "sport": np.zeros(2, np.uint16),
               "dport": np.full(2, 443, np.uint16), "protocol": np.full(2, 6, np.uint8)}
    assert wirerate.classify(rules, headers).tolist() == [0, 1]


def test_no_header_has_no_position(acl):
    none = {name: column[:0] for name, column in some_headers(acl[1], 1).items()}
    assert wirerate.classify(acl[0], none).shape == (0,)


@pytest.mark.parametrize("name", ["src", "dst", "sport", "dport", "protocol"])
def test_a_column_of_the_wrong_type_or_none_is_named(acl, name):
    headers = some_headers(acl[1], 10)
    with pytest.raises(TypeError, match=f'"{name}" is float64'):
        wirerate.classify(acl[0], {**headers, name: headers[name].astype(float)})
    with pytest.raises(TypeError, match=f'"{name}" is int64'):
        wirerate.classify(acl[0], {**headers, name: headers[name].astype(np.int64)})
    with pytest.raises(TypeError, match=f'"{name}" is missing'):
        wirerate.classify(acl[0], {key: column for key, column in headers.items() if key != name})
    with pytest.raises(TypeError, match=f'"{name}"'):
        wirerate.classify(acl[0], {**headers, name: headers[name].reshape(2, 5)})


def test_columns_are_of_one_length(acl):
    headers = some_headers(acl[1], 10)
    with pytest.raises(TypeError, match='"dport" has 9 values, "src" has 10'):
        wirerate.classify(acl[0], {**headers, "dport": headers["dport"][:9]})


def test_bad_rules_and_algorithms_are_named(acl, tmp_path):
    headers = some_headers(acl[1], 10)
    with pytest.raises(ValueError, match="no algorithm \"trie\".*tree"):
        wirerate.classify(acl[0], headers, algorithm="trie")
    with pytest.raises(wirerate.PolicyError, match="line 2"):
        wirerate.classify(["@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x00/0x00", "@nonsense"], headers)
    with pytest.raises(wirerate.ReadError) as raised:
        wirerate.classify(tmp_path / "none.rules", headers)
    assert isinstance(raised.value, OSError) and raised.value.filename.endswith("none.rules")
    with pytest.raises(wirerate.PolicyError, match="no rules"):
        wirerate.classify([], headers)
