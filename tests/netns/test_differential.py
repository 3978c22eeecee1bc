"""What an import does is what the kernel did: random rulesets and the same frames through both.

Twenty rulesets, or 2,000 with WIRERATE_LONG=1; `SEED` begins elsewhere. By hand, with what each frame became:

    /usr/bin/python3 tests/netns/test_differential.py [iptables] SEED [HOW-MANY]
"""

import collections
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest  # noqa: E402
from differential import compare, replay, ruleset, saved, traffic  # noqa: E402
from differential.kernel import Kernel  # noqa: E402

LONG = os.environ.get("WIRERATE_LONG") == "1"
COUNT = 2_000 if LONG else 20
BEGIN = int(os.environ.get("SEED", "1"))


class Tried:
    """A ruleset that both have tried."""

    def __init__(self, kernel, rules, directory):
        self.rules = rules
        self.refused = rules.load(kernel)
        while self.refused and rules.without(self.refused):
            self.refused = rules.load(kernel)
        self.imported, self.found, self.plan = None, [], None
        if self.refused:
            return
        self.plan = traffic.Plan(rules.seed, rules.versions)
        here = kernel.play(self.plan)
        self.imported = replay.Imported(rules.importer, rules.listing(kernel), directory)
        if self.imported.untranslated:
            return
        self.found = compare.differences(here, replay.play(self.imported, self.plan, directory))

    def wrong(self):
        """Differences that nothing documents."""
        return [difference for difference in self.found if not difference.documented(self.imported.notes)]


def smaller(kernel, rules, directory, like):
    """The ruleset with as few rules as still show a difference like that one."""
    for chain, at in reversed(rules.rules()):
        taken = chain.rules.pop(at)
        try:
            tried = Tried(kernel, rules, directory)
            same = any(each.step.name == like.step.name and each.opens == like.opens for each in tried.wrong())
        except AssertionError:
            same = False
        if not same:
            chain.rules.insert(at, taken)
    return rules


def told(tried, kernel, directory):
    worst = sorted(tried.wrong(), key=lambda difference: not difference.opens)[0]
    lines = [f"{len(tried.wrong())} differences", *[str(each) for each in tried.wrong()[:8]]]
    rules = smaller(kernel, tried.rules, directory, worst)
    again = Tried(kernel, rules, directory)
    lines += ["with fewer rules:", rules.text(), again.imported.text, again.imported.notes]
    lines += [str(each) for each in again.wrong()[:3]]
    return "\n".join(lines)


def trial(kernel, maker, seed, directory):
    tried = Tried(kernel, maker.make(seed), directory)
    assert not tried.refused, f"seed {seed}: the kernel refuses its own:\n{tried.refused}\n{tried.rules.text()}"
    faults = tried.imported.faults()
    assert not faults, f"seed {seed}: check refuses what import wrote:\n{faults}\n{tried.imported.text}"
    return tried


@pytest.fixture(scope="module")
def kernel(request):
    if any(request.config.missing.values()) and not [why for why in request.config.missing.values() if not why]:
        pytest.skip(next(iter(request.config.missing.values())))
    made = Kernel()
    yield made
    made.close()


@pytest.mark.longest(7_200 if LONG else 300)
@pytest.mark.parametrize("maker", [ruleset, saved], ids=["nft", "iptables"])
def test_imports_do_what_the_kernel_did(kernel, maker, tmp_path):
    compared = frames = 0
    for seed in range(BEGIN, BEGIN + COUNT):
        tried = trial(kernel, maker, seed, tmp_path)
        if tried.wrong():
            pytest.fail(f"seed {seed}: {told(tried, kernel, tmp_path)}")
        compared += not tried.imported.untranslated
        frames += 0 if tried.imported.untranslated else len(tried.plan.steps)
    # An importer that translates nothing would differ in nothing.
    assert compared >= COUNT * 3 // 5, f"only {compared} of {COUNT} rulesets could be compared"
    print(f"{compared} of {COUNT} rulesets, {frames} frames")


def main():
    from isolation import isolate

    isolate()
    maker = saved if "iptables" in sys.argv else ruleset
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    first, count = numbers[0], numbers[1] if len(numbers) > 1 else 1
    directory = Path(tempfile.mkdtemp())
    kernel = Kernel()
    tally = collections.Counter()
    kinds = collections.Counter()
    documented = collections.Counter()
    for seed in range(first, first + count):
        try:
            tried = trial(kernel, maker, seed, directory)
        except AssertionError as error:
            tally["broken"] += 1
            print(f"== seed {seed}: {str(error)[:2_000]}")
            continue
        if tried.imported.untranslated:
            tally["untranslated"] += 1
            for line in tried.imported.untranslated:
                kinds[line.split(": ")[2 if maker is saved else 3][:60]] += 1
                if count == 1:
                    print(line)
            continue
        tally["compared"] += 1
        tally["frames"] += len(tried.plan.steps)
        wrong = tried.wrong()
        tally["differences"] += len(wrong)
        tally["documented"] += len(tried.found) - len(wrong)
        for each in tried.found:
            documented[each.documented(tried.imported.notes) or "NOT"] += 1
        if wrong:
            tally["rulesets that differ"] += 1
            if count == 1:
                print(told(tried, kernel, directory))
            else:
                for each in sorted(wrong, key=lambda d: not d.opens)[:3]:
                    print(f"seed {seed}{' OPENS' if each.opens else ''}: {each}")
    print(dict(tally))
    for why, number in documented.most_common():
        print(f"{number:6} {why}")
    for why, number in kinds.most_common(12):
        print(f"{number:6} not translated: {why}")
    kernel.close()


if __name__ == "__main__":
    main()
