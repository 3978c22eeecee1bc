"""Runs a program on a machine where everybody may make TAP devices, as udev has it, with variables of the environment; with
`--system-user NAME` that machine has such a user, too.

    user.py [--system-user NAME] [NAME=VALUE...] COMMAND...
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from unit import everybody_may_make_devices

UID = 4711
"""Number of the user, and of its group."""


def main():
    everybody_may_make_devices()
    words = sys.argv[1:]
    if words[0] == "--system-user":
        users = Path(tempfile.mkdtemp()) / "passwd"
        users.write_text(Path("/etc/passwd").read_text() + f"{words[1]}:x:{UID}:{UID}::/:/usr/sbin/nologin\n")
        users.chmod(0o644)
        users.parent.chmod(0o755)
        # `ip netns exec` has given this process mounts of its own.
        subprocess.run(["mount", "--bind", users, "/etc/passwd"], check=True)
        words = words[2:]
    while "=" in words[0]:
        os.environ.update([words.pop(0).split("=", 1)])
    os.execvp(words[0], words)


if __name__ == "__main__":
    main()
