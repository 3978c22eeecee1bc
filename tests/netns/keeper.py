"""Runs a program as systemd runs a service with `Restart=always`: when it ends it is started again a while later.

    keeper.py SECONDS COMMAND...

SIGTERM ends both for good.
"""

import signal
import subprocess
import sys
import time


def main():
    pause, command = float(sys.argv[1]), sys.argv[2:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        process = subprocess.Popen(command)
        try:
            process.wait()
        finally:
            process.kill()
            process.wait()
        time.sleep(pause)


if __name__ == "__main__":
    main()
