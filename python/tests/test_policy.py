"""Policies: read, checked, compared."""

import errno

import pytest

import wirerate

HOME_OFFICE = "policies/home-office.toml"


def test_a_policy_is_read_and_its_text_reads_as_an_equal_one(root):
    policy = wirerate.Policy.read(root / HOME_OFFICE)
    assert wirerate.Policy.parse(policy.to_toml()) == policy
    assert policy != wirerate.Policy.read(root / "policies/isp-edge.toml")
    assert "home-office.toml" in repr(policy)


def test_a_wrong_policy_raises_all_its_diagnostics_with_their_places():
    with pytest.raises(wirerate.PolicyError) as raised:
        wirerate.Policy.parse('[interface.lan]\nzone = "lan"\nadresses = ["192.0.2.1/33"]\nmtu = "x"\n', "bad.toml")
    found = raised.value.diagnostics
    assert len(found) >= 2
    assert {diagnostic.line for diagnostic in found} >= {3, 4}
    assert all(diagnostic.file == "bad.toml" and diagnostic.column >= 1 for diagnostic in found)
    assert isinstance(raised.value, wirerate.Error)
    assert "bad.toml:3" in str(raised.value)


def test_a_file_that_is_not_there_is_an_error_of_the_system(tmp_path):
    with pytest.raises(OSError) as raised:
        wirerate.Policy.read(tmp_path / "none.toml")
    assert isinstance(raised.value, wirerate.ReadError)
    assert raised.value.errno == errno.ENOENT
    assert raised.value.filename == str(tmp_path / "none.toml")
