"""A server of HTTP that answers well, badly or not at all, as a file says at each request: `answerer.py ADDRESS PORT MODE [CERTIFICATE KEY]`.

    ok        200, with its address as body             error     500
    redirect  302, to where nobody listens              hang      nothing, for as long as the client waits
    half      half of a status line, then nothing       garbage   bytes without an end that are no HTTP
    huge      200, and a body of a gigabyte             reset     a reset in the place of an answer
    flap      500, 500, 200, and so on
"""

import itertools
import os
import socket
import socketserver
import ssl
import struct
import sys
from pathlib import Path

ADDRESS, PORT, MODE = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
TURNS = itertools.cycle([500, 500, 200])


def head(status, length=0, more=""):
    return f"HTTP/1.1 {status} As told\r\ncontent-length: {length}\r\n{more}connection: close\r\n\r\n".encode()


class Answer(socketserver.BaseRequestHandler):
    def handle(self):
        try:
            self.request.recv(4096)
            self.answer(MODE.read_text())
        except OSError:
            pass

    def answer(self, mode):
        send = self.request.sendall
        if mode == "ok":
            send(head(200, len(ADDRESS)) + ADDRESS.encode())
        elif mode == "error":
            send(head(500))
        elif mode == "flap":
            send(head(next(TURNS)))
        elif mode == "redirect":
            send(head(302, more="location: http://192.0.2.99/\r\n"))
        elif mode == "hang":
            self.request.recv(1)
        elif mode == "half":
            send(b"HTTP/1.1 20")
            self.request.recv(1)
        elif mode == "huge":
            send(head(200, 1_000_000_000))
            for _ in range(1000):
                send(bytes(1_000_000))
        elif mode == "garbage":
            while True:
                send(os.urandom(65_536))
        elif mode == "reset":
            self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128
    address_family = socket.AF_INET6 if ":" in ADDRESS else socket.AF_INET

    def shutdown_request(self, request):
        # Without a FIN before the reset.
        request.close()

    def get_request(self):
        connection, peer = super().get_request()
        if len(sys.argv) > 4:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*sys.argv[4:6])
            connection = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, peer


Server((ADDRESS, PORT), Answer).serve_forever()
