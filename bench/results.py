"""What the scripts of bench/ share: building wirerate, describing the machine, sections of RESULTS.md."""

import contextlib
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULTS = os.path.join(ROOT, "bench", "RESULTS.md")

HUGE_PAGES = "/proc/sys/vm/nr_hugepages"
HUGE_PAGES_NEEDED = 1024

VPP = os.path.join(ROOT, "..", "shared", "peers", "vpp", "vppbench.sh")

# Packets over which instructions are counted.
PACKETS = 131_072


def say(text):
    """To standard error: standard output is for results."""
    print(text, file=sys.stderr, flush=True)


def output(*command, **options):
    """What a command prints, or None where it cannot be run or fails."""
    try:
        done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def vpp_is_there():
    """Whether VPP can be measured here; says so where it cannot."""
    is_there = os.access(VPP, os.X_OK) and os.getuid() == 0
    if not is_there:
        say(f"SKIPPED: VPP (needs root, and {os.path.relpath(VPP, ROOT)})")
    return is_there


def vpp(core, *words):
    """Millions of packets a second of VPP's, by time of the processor, or None."""
    words = [str(word) for word in words]
    done = subprocess.run([VPP, *words], env={**os.environ, "CORE": str(core), "JSON": "1"}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not rows:
        say(f"SKIPPED: VPP, {' '.join(words)}: {(done.stderr or done.stdout).strip()[-300:]}")
        return None
    return rows[0]["mpps_cpu"]


def cargo(*arguments, root=ROOT, target=None, flags=None, variables=None):
    """Runs cargo and gives the path of the executable that it built last."""
    environment = {**os.environ, **(variables or {})}
    environment["PATH"] = os.path.expanduser("~/.cargo/bin") + ":" + environment["PATH"]
    if target:
        environment["CARGO_TARGET_DIR"] = target
    command = ["cargo", *arguments, "--locked", "--message-format=json-render-diagnostics"]
    say("building: " + " ".join(command[:-2]))
    if flags:
        # Beside what .cargo/config.toml has: RUSTFLAGS would take its place.
        command += ["--config", f'target."cfg(all())".rustflags = ["{flags}"]']
    built = subprocess.run(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True)
    if built.returncode:
        sys.exit(f"bench: {' '.join(command)} failed")
    found = None
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("reason") == "compiler-artifact" and message.get("executable"):
            found = message["executable"]
    return found


def wirerate(**options):
    """Builds the command, optimised, and gives its path."""
    return cargo("build", "--release", "--package", "wirerate", "--bin", "wirerate", **options)


def machine(command, dpdk=False):
    """Where and how it was measured: lines of a list."""
    model = "unknown"
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        for line in info:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    fields = {}
    for line in (output("lscpu") or "").splitlines():
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    cores = os.sysconf("SC_NPROCESSORS_ONLN")
    cpu = f"{model} (family {fields.get('CPU family', '?')}, model {fields.get('Model', '?')}), {cores} cores"
    if fields.get("Hypervisor vendor"):
        cpu += f", a guest of {fields['Hypervisor vendor']}"
    caches = ", ".join(f"{name} {fields[name + ' cache']}" for name in ("L1d", "L2", "L3") if name + " cache" in fields)
    commit = output("git", "rev-parse", "--short", "HEAD", cwd=ROOT) or "unknown"
    if output("git", "status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/RESULTS.md", cwd=ROOT):
        commit += " with changes"
    return [
        f"- processor: {cpu}; caches: {caches}",
        f"- kernel: {platform.system()} {platform.release()}",
        f"- compilers: {output('rustc', '--version') or 'rustc unknown'}; {(output('cc', '--version') or 'no cc').splitlines()[0]}",
        *([f"- DPDK: {output('pkg-config', '--modversion', 'libdpdk') or 'none'}"] if dpdk else []),
        f"- commit {commit}, {datetime.date.today().isoformat()}",
        f"- command: `{command}`",
    ]


def instructions(binary, scenario, flows, packets=PACKETS):
    """Native instructions a packet, or None without valgrind: what twice the packets take more than once them.

    All that comes before the packets (policy, tables, flows set up, the load) is the same in both runs and
    falls out, whatever it is. The same binary gives the same number to within a ten-thousandth.
    """
    counts = [executed(binary, scenario, flows, times * packets) for times in (1, 2)]
    return None if None in counts else (counts[1] - counts[0]) / packets


def executed(binary, scenario, flows, packets):
    """Instructions of a whole run of `wirerate bench forward`."""
    with tempfile.NamedTemporaryFile() as profile:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={profile.name}", binary, "bench", "forward",
                   "--json", "--scenario", scenario, "--flows", str(flows), "--packets", str(packets)]
        try:
            done = subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        except OSError:
            return None
        except subprocess.CalledProcessError as error:
            sys.exit(f"bench: {' '.join(command)}: {error.stderr}")
    return int(re.search(r"Collected : (\d+)", done.stderr).group(1))


def save(section, text, path=RESULTS):
    """Puts a text in the place of a section of RESULTS.md; the rest of the file is left as it is."""
    begin, end = f"<!-- {section}: written by bench/{section} -->", f"<!-- end of {section} -->"
    body = f"{begin}\n{text.strip()}\n{end}\n"
    old = ""
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            old = file.read()
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end) + "\n", re.DOTALL)
    new = pattern.sub(lambda _: body, old) if pattern.search(old) else old.rstrip("\n") + "\n\n" + body
    with open(path, "w", encoding="utf-8") as file:
        file.write(new.lstrip("\n"))
    say(f"written: section {section} of {os.path.relpath(path)}")


def table(head, rows):
    """A Markdown table, its columns in line."""
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    line = lambda cells: "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths)) + " |"
    return "\n".join([line(head), "|" + "|".join("-" * (width + 2) for width in widths) + "|", *map(line, rows)])


@contextlib.contextmanager
def huge_pages():
    """Reserves huge pages for DPDK; gives whether there are enough."""
    try:
        with open(HUGE_PAGES, encoding="ascii") as file:
            before = file.read().strip()
        with open(HUGE_PAGES, "w", encoding="ascii") as file:
            file.write(str(max(int(before), HUGE_PAGES_NEEDED)))
        with open(HUGE_PAGES, encoding="ascii") as file:
            given = int(file.read())
    except OSError as error:
        say(f"note: no huge pages for DPDK ({error}); it runs with small ones, and is slower for it")
        yield False
        return
    try:
        yield given >= HUGE_PAGES_NEEDED
    finally:
        with open(HUGE_PAGES, "w", encoding="ascii") as file:
            file.write(before)


def ticks():
    """Ticks of all cores: busy, all, stolen."""
    with open("/proc/stat", encoding="ascii") as file:
        fields = [int(field) for field in file.readline().split()[1:9]]
    idle = fields[3] + fields[4]
    return sum(fields) - idle, sum(fields), fields[7]


def busy(span):
    """The share of all cores that is busy while we do nothing."""
    before = ticks()
    time.sleep(span)
    after = ticks()
    return (after[0] - before[0]) / max(after[1] - before[1], 1)


def steal():
    """Seconds stolen by the host since it started."""
    return ticks()[2] / os.sysconf("SC_CLK_TCK")


def tell_quiet(share):
    """Says whether others work on this machine."""
    load = os.getloadavg()[0]
    if share < 0.05:
        say(f"the machine is quiet: {share:.0%} busy (load {load:.2f})")
    else:
        say(f"WARNING: the machine is not quiet: {share:.0%} busy (load {load:.2f}); figures will be too low")


def spread(found, places=None):
    """Median, lowest and highest, to so many places, or three digits or so."""
    def shown(value):
        return f"{value:.{(3 if value < 1 else 2 if value < 10 else 1) if places is None else places}f}"

    middle = shown(statistics.median(found))
    lowest, highest = shown(min(found)), shown(max(found))
    return middle if lowest == highest else f"{middle} ({lowest}-{highest})"
