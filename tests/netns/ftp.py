"""A client of FTP: fetches a file several times by one control connection, in one of four ways, and prints its length and digest each time.

    ftp.py SERVER WAY FILE [TIMES]
"""

import ftplib
import hashlib
import sys

WAYS = ["active", "extended-active", "passive", "extended-passive"]


class Client(ftplib.FTP):
    """Goes where it is told to, as clients once did: what stands in replies must be right."""

    trust_server_pasv_ipv4_address = True

    def __init__(self, server, way):
        super().__init__(server, timeout=8)
        self.way = way
        self.set_pasv(way.endswith("passive"))

    def sendport(self, host, port):
        return self.sendeprt(host, port) if self.way == "extended-active" else super().sendport(host, port)

    def makepasv(self):
        if self.way == "extended-passive":
            return ftplib.parse229(self.sendcmd("EPSV"), self.sock.getpeername())
        return super().makepasv()


def main(server, way, name, times=1):
    assert way in WAYS, way
    with Client(server, way) as client:
        client.login()
        for _ in range(int(times)):
            digest, length = hashlib.sha256(), 0

            def take(data, digest=digest):
                nonlocal length
                digest.update(data)
                length += len(data)

            client.retrbinary(f"RETR {name}", take)
            print(length, digest.hexdigest())


if __name__ == "__main__":
    main(*sys.argv[1:])
