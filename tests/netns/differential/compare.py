"""Two outcomes held against each other, and the differences that are meant."""

import json
import re
from pathlib import Path

from differential.outcome import answer, canonical, quoting_no_code_point

DOCUMENTED = json.loads(Path(__file__).with_name("documented.json").read_text())


class Difference:
    """A frame of which the kernel and wirerate did not make the same."""

    def __init__(self, step, packet, kernel, wirerate, first, what):
        self.step = step
        self.packet = packet
        self.kernel, self.wirerate = kernel, wirerate
        self.reason = wirerate.reason
        # Of a later fragment, what became of its datagram's first.
        self.first = first
        self.what = what

    @property
    def opens(self):
        """Whether wirerate lets pass what the kernel does not."""
        return self.wirerate.kind in ("forwarded", "delivered") and self.kernel.kind in ("dropped", "answered")

    def __str__(self):
        return f"{self.step.name} ({self.packet.said()}, by {self.step.interface}): {self.what}"

    def same_but_source(self):
        """Whether both sent an answer that differs in its source address alone."""
        forms = []
        for fate in (self.kernel, self.wirerate):
            blank = lambda data: data[:12] + data[16:] if data[0] >> 4 == 4 else data[:8] + data[24:]  # noqa: E731
            sent = sorted(answer(interface, packet) for interface, packet in fate.answered)
            forms.append([(interface, blank(data), note) for interface, data, note in sent])
        return forms[0] == forms[1]

    def same_but_quoted_code_point(self):
        """Whether both sent an answer that differs in the code point alone of the packet that it quotes."""
        forms = [
            sorted(quoting_no_code_point(interface, packet) for interface, packet in fate.answered)
            for fate in (self.kernel, self.wirerate)
        ]
        return forms[0] == forms[1]

    def is_of_one_first(self):
        """Whether it is a later fragment, of whose datagram's first both made the same."""
        if self.first is None:
            return False
        here, there = ("refused" if fate.kind in ("dropped", "answered") else fate.kind for fate in self.first)
        return here == there

    def documented(self, notes):
        """Why it is meant, if it is."""
        for entry in DOCUMENTED:
            fits = (
                self.kernel.kind in entry["kernel"]
                and self.wirerate.kind in entry["wirerate"]
                and re.search(entry.get("reason", ""), self.reason)
                and re.search(entry.get("frame", ""), self.step.name)
                and re.search(entry.get("note", ""), notes)
                and ("source" not in entry or self.same_but_source())
                and ("quoted" not in entry or self.same_but_quoted_code_point())
                and ("datagram" not in entry or self.is_of_one_first())
            )
            if fits:
                return entry["why"]
        return None


def differences(kernel, wirerate):
    found = []
    for step in kernel.plan.steps:
        here, there = kernel.fates.get(step.name), wirerate.fates.get(step.name)
        if here is None or there is None:
            # An answer to what one of them did not pass on: that is a difference of its own.
            continue
        what = None
        if here.kind != there.kind:
            what = f"{said(here)} by the kernel, {said(there)} by wirerate ({there.reason or 'no reason'})"
        else:
            mine, theirs = form(here, kernel.packets[step.name]), form(there, wirerate.packets[step.name])
            if mine != theirs:
                what = f"{here.kind} by both, but\n  kernel   {shown(mine)}\n  wirerate {shown(theirs)}"
        if what:
            first = first_of(step, kernel, wirerate)
            found.append(Difference(step, kernel.packets[step.name], here, there, first, what))
    return found


def first_of(step, kernel, wirerate):
    """What both made of the first fragment of a later one's datagram."""
    tag = getattr(step, "shares", None)
    if tag is None or kernel.packets[step.name].first:
        return None
    for other in kernel.plan.steps:
        sent = kernel.packets.get(other.name)
        same = getattr(other, "shares", None) == tag and sent and sent.version == kernel.packets[step.name].version
        if same and sent.first:
            return kernel.fates[other.name], wirerate.fates[other.name]
    return None


def form(fate, original):
    if fate.kind == "forwarded":
        return sorted(canonical(interface, packet, original) for interface, packet in fate.forwarded)
    if fate.kind == "answered":
        return sorted(answer(interface, packet) for interface, packet in fate.answered)
    return []


def shown(packets):
    return "; ".join(f"{interface} {data.hex()}{note}" for interface, data, note in packets)


def said(fate):
    where = fate.forwarded or fate.answered
    return fate.kind + "".join(f" by {interface}: {packet.said()}" for interface, packet in where[:1])
