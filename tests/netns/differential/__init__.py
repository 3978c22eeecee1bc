"""The kernel as an oracle for imports: random rulesets, the same frames through nftables and through wirerate.

`ruleset` makes rules from a seed, `traffic` the frames, `kernel` sends them through a namespace, `replay` through the
imported policy, and `compare` holds the two against each other. `documented.json` lists the differences that are meant.
"""
