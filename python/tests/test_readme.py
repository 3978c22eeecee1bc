"""The three lines of the README."""

import re


def test_the_lines_of_the_readme_work(root, office, monkeypatch):
    monkeypatch.chdir(office.captures["lan"].parent)
    for page in ("README.md", "python/README.md", "docs/python.md"):
        lines = re.search(r"```python\n(import wirerate\n.*?)```", (root / page).read_text(), re.DOTALL)[1]
        assert lines.count("\n") == 3
        first, second, third = lines.splitlines()
        names = {}
        exec(first, names)
        policy = re.search(r'read\("([^"]*)"\)', second)[1]
        names_of = {"policies/home-office.toml": str(office.policy), "home-office.toml": str(office.policy)}
        exec(second.replace(f'"{policy}"', repr(names_of[policy])), names)
        # Verdicts without a reason are no group.
        sizes = eval(third, names)
        assert sizes.sum() == sum(office.told["reasons"].values())
