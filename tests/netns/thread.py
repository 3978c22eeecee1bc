"""Threads of a process, as /proc has them."""

import contextlib
import os


def threads(process):
    """What /proc says of each thread of a process, but for those that end meanwhile."""
    told = []
    for thread in os.listdir(f"/proc/{process.pid}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            with open(f"/proc/{process.pid}/task/{thread}/status", encoding="ascii") as file:
                told.append({key: value.strip() for key, value in (line.split(":", 1) for line in file)})
    return told
