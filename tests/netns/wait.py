"""Waiting for what must come true, and no longer than that."""

import time


def until(condition, what, deadline=10.0, pause=0.02):
    """Calls `condition` until it gives something true, and returns that; fails after `deadline` seconds."""
    end = time.monotonic() + deadline
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"waited {deadline:.0f} s in vain: {what}")
        time.sleep(pause)
