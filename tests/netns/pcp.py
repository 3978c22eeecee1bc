"""A client of PCP (RFC 6887) and NAT-PMP (RFC 6886), by hand, from the tables of the RFCs: what natpmpc has no word for."""

import ipaddress
import os
import struct

PORT = 5351
TCP, UDP = 6, 17
ANNOUNCE, MAP, PEER = 0, 1, 2
THIRD_PARTY, PREFER_FAILURE = 1, 2

SUCCESS, UNSUPP_VERSION, NOT_AUTHORIZED, MALFORMED_REQUEST = 0, 1, 2, 3
UNSUPP_OPCODE, UNSUPP_OPTION, UNSUPP_PROTOCOL = 4, 5, 9
USER_EX_QUOTA, CANNOT_PROVIDE_EXTERNAL, ADDRESS_MISMATCH = 10, 11, 12

NONCE = bytes(range(12))


class Response:
    """A response of PCP; of a MAP with its data."""

    def __init__(self, data):
        version, opcode, _, self.result, self.lifetime, self.epoch = struct.unpack("!BBBBII", data[:12])
        assert version == 2 and opcode & 0x80, data.hex()
        self.opcode = opcode & 0x7F
        self.options = data[60:]
        if self.opcode == MAP and len(data) >= 60:
            self.nonce = data[24:36]
            self.protocol, self.inside_port, self.port = struct.unpack("!BxxxHH", data[36:44])
            self.address = str(ipaddress.IPv6Address(data[44:60]).ipv4_mapped)

    def __repr__(self):
        return f"Response({vars(self)})"


def mapped(address):
    return ipaddress.IPv6Address(f"::ffff:{address}").packed


def header(client, opcode, lifetime, version=2):
    return struct.pack("!BBHI", version, opcode, 0, lifetime) + mapped(client)


def option(code, data=b""):
    return struct.pack("!BBH", code, 0, len(data)) + data


def map_request(client, protocol, inside, outside=0, lifetime=600, nonce=NONCE, options=b"", address="0.0.0.0"):
    data = nonce + struct.pack("!BxxxHH", protocol, inside, outside) + mapped(address)
    return header(client, MAP, lifetime) + data + options


def exchange(host, gateway, request, timeout=2.0, source=None):
    """The answer to a request, or None."""
    with host.udp(source) as socket:
        socket.settimeout(timeout)
        socket.sendto(request, (gateway, PORT))
        try:
            return socket.recv(2000)
        except (TimeoutError, ConnectionRefusedError):
            return None


def ask(host, gateway, request):
    """The response to a request of PCP."""
    answer = exchange(host, gateway, request)
    assert answer is not None, "no answer"
    return Response(answer)


def garbage(count):
    """Bytes of any kind and length, many of which begin as requests do."""
    for number in range(count):
        length = 1 + number * 7 % 1200
        bytes_ = bytearray(os.urandom(length))
        bytes_[0] = [0, 2, 1, 255][number % 4]
        if length > 1:
            bytes_[1] = [0, 1, 2, 3, 128, 129][number // 4 % 6]
        yield bytes(bytes_)
