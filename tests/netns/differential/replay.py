"""Frames through the imported policy: `wirerate import`, addresses and routes filled in, and `wirerate replay`."""

import json
import re
import struct
import subprocess

import gateway as gateways
from differential.outcome import Fate, Outcomes
from differential.world import GATEWAY_OF_LAST_RESORT, INTERFACES, MTU, OWN, mac_bytes
from pcapng import Capture

BEGIN = 1_700_000_000_000_000_000
APART = 1_000_000
"""Nanoseconds between two frames."""


class Imported:
    """A policy, and what the import said."""

    def __init__(self, importer, listing, directory):
        source = directory / "rules"
        source.write_text(listing)
        done = subprocess.run(
            [gateways.binary(), "import", importer, str(source)], capture_output=True, text=True, check=False
        )
        self.code = done.returncode
        self.notes = done.stderr
        self.untranslated = [line for line in done.stderr.splitlines() if line.startswith("error:")]
        self.policy = directory / "policy.toml"
        self.policy.write_text(filled(done.stdout))
        self.text = done.stdout

    def faults(self):
        """What `check` has against the policy as it was written, without addresses."""
        bare = self.policy.with_name("bare.toml")
        bare.write_text(self.text)
        done = subprocess.run([gateways.binary(), "check", str(bare)], capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else done.stdout + done.stderr


def filled(text):
    """The policy with the world's addresses, MTUs and routes. The source check is Linux's, which is off there."""
    stand_in = '[interface.elsewhere]\nzone = "elsewhere"\n'
    unnamed = [interface for interface in INTERFACES if f"[interface.{interface}]\n" not in text]
    stands = stand_in in text
    # The import has an interface that stands for those of a pattern, and one for all that no rule names.
    zones = {}
    for interface in unnamed:
        patterns = [beginning for beginning in re.findall(r"\[interface\.(\w+)0\]", text) if interface.startswith(beginning)]
        zones[interface] = f"{patterns[0]}0" if patterns else "elsewhere" if stands else interface
    if "elsewhere" in zones.values():
        text = text.replace(stand_in, "")
    text = re.sub(r"\[interface\.\w+0\]\nzone = .*\n", "", text)
    for interface in INTERFACES:
        zone = zones.get(interface, interface)
        lines = [
            f'zone = "{zone}"',
            f'addresses = ["{OWN[interface][4]}", "{OWN[interface][6]}"]',
            f"mtu = {MTU[interface]}",
            'source-check = "off"',
        ]
        head = f"[interface.{interface}]\n"
        if head in text:
            text = re.sub(rf"(\[interface\.{interface}\]\n)zone = .*\n", lambda found: found[1] + "\n".join(lines) + "\n", text)
        else:
            text += "\n" + head + "\n".join(lines) + "\n"
    for destination, version in [("0.0.0.0/0", 4), ("::/0", 6)]:
        text += f'\n[[route]]\nto = "{destination}"\nvia = "{GATEWAY_OF_LAST_RESORT[version]}"\n'
    return text


def play(imported, plan, directory):
    """Plays the rounds: each is a replay of all frames so far, as answers are made from what came out."""
    outcomes = Outcomes(plan, exact=True)
    inputs = []
    for turn in range(plan.rounds()):
        steps = [step for step in plan.steps if step.round <= turn]
        for step in steps:
            made = outcomes.input(step) if step.round == turn else None
            if made:
                inputs.append((step, *made))
        outcomes.fates = {name: Fate() for name in outcomes.fates}
        run(imported, inputs, outcomes, directory)
    return outcomes


def run(imported, inputs, outcomes, directory):
    out = directory / "out"
    arguments = []
    for interface in INTERFACES:
        path = directory / f"{interface}.pcap"
        with open(path, "wb") as file:
            file.write(struct.pack("=IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 1 << 18, 1))
            for place, (step, where, packet) in enumerate(inputs):
                if where == interface:
                    kind = b"\x08\x00" if packet[0] >> 4 == 4 else b"\x86\xdd"
                    frame = b"\x02\0\0\0\0\2" + mac_bytes(step.mac) + kind + packet
                    at = BEGIN + place * APART
                    file.write(struct.pack("=IIII", at // 10**9, at % 10**9, len(frame), len(frame)) + frame)
        arguments.append(f"{interface}={path}")
    done = subprocess.run(
        [gateways.binary(), "replay", str(imported.policy), *arguments, "--out", str(out), "--json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise AssertionError(f"replay ended with {done.returncode}:\n{done.stderr}\n{imported.policy.read_text()}")
    summary = json.loads(done.stdout)["frames"]
    settled = set()
    for interface in INTERFACES:
        for packet in Capture(out / f"{interface}.pcapng").packets:
            place = min((packet.nanoseconds - BEGIN) // APART, len(inputs) - 1)
            outcomes.output(interface, packet.frame[14:], inputs[place][0])
            settled.add(place)
    for packet in Capture(out / "dropped.pcapng").packets:
        place = min((packet.nanoseconds - BEGIN) // APART, len(inputs) - 1)
        settled.add(place)
        outcomes.fates[inputs[place][0].name].reason = packet.comment
    # What neither left nor was dropped was for the gateway itself.
    for place, (step, _, _) in enumerate(inputs):
        fate = outcomes.fates[step.name]
        if place not in settled and not fate.forwarded and not fate.answered:
            fate.delivered += 1
    return summary
