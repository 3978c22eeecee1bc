"""Runs a program as systemd runs a service with `Restart=always` and `FileDescriptorStoreMax=`: when it ends it is
started again a while later, and gets back the file descriptors that it gave away to be kept (sd_notify(3), `FDSTORE=1`).

    keeper.py SECONDS COMMAND...

SIGTERM ends both for good.
"""

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

FIRST = 3
"""The number of the first descriptor that is passed on (sd_listen_fds(3))."""


def main():
    pause, command = float(sys.argv[1]), sys.argv[2:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    store = []
    with tempfile.TemporaryDirectory() as directory:
        notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notices.bind(os.path.join(directory, "notify"))
        while True:
            process = start(command, store, notices.getsockname())
            try:
                keep(process, notices, store)
            finally:
                process.kill()
            time.sleep(pause)


def start(command, store, notify):
    """The program, with what is kept as its descriptors from `FIRST` on."""
    environment = {**os.environ, "NOTIFY_SOCKET": notify, "LISTEN_FDS": str(len(store))}
    # Only the program itself knows its number; the shell becomes it.
    wrapper = ["sh", "-c", 'LISTEN_PID=$$ exec "$@"', "sh", *command]
    # Out of the way of the numbers that they are to have.
    high = [os.dup(descriptor) for descriptor in store]
    high = [move(descriptor, 200 + place) for place, descriptor in enumerate(high)]

    def number():
        for place, descriptor in enumerate(high):
            os.dup2(descriptor, FIRST + place)
            os.set_inheritable(FIRST + place, True)

    process = subprocess.Popen(wrapper, env=environment, preexec_fn=number, close_fds=False)
    for descriptor in high:
        os.close(descriptor)
    return process


def move(descriptor, number):
    os.dup2(descriptor, number, inheritable=False)
    os.close(descriptor)
    return number


def keep(process, notices, store):
    """Does what it says until it ends."""
    while process.poll() is None:
        if not select.select([notices], [], [], 0.02)[0]:
            continue
        message, descriptors, _, _ = socket.recv_fds(notices, 4096, 64)
        lines = message.decode().splitlines()
        if "FDSTOREREMOVE=1" in lines:
            while store:
                os.close(store.pop())
        if "FDSTORE=1" in lines:
            for descriptor in descriptors:
                store.append(move(descriptor, 100 + len(store)))


if __name__ == "__main__":
    main()
