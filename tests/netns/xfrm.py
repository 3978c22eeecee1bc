"""Messages of XFRM (linux/xfrm.h) on the gateway's socket, made by hand: for what `ip xfrm` has no word for."""

import itertools
import socket
import struct

NEWSA, DELSA, GETSA, ALLOCSPI, ACQUIRE, UPDPOLICY, SUBSCRIBE = 16, 17, 18, 22, 23, 25, 15
REQUEST, ACK, DUMP = 1, 4, 0x300
ERROR, DONE = 2, 3
TMPL, AEAD, SA_PCPU = 5, 18, 35
ESP, TUNNEL, AF_INET = 50, 1, 2
CPU_ACQUIRE = 4
"""Flag of a policy: each CPU asks for an SA of its own."""
OUT = 1
FOREVER = struct.pack("=4Q", *[2**64 - 1] * 4) + bytes(32)
"""`struct xfrm_lifetime_cfg` without bounds."""


def address(text):
    return socket.inet_aton(text).ljust(16, b"\0")


def attribute(kind, value):
    return (struct.pack("=HH", 4 + len(value), kind) + value).ljust(-(-(4 + len(value)) // 4) * 4, b"\0")


def attributes(data):
    """Values by kind."""
    found = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        found[kind] = data[4:length]
        data = data[-(-length // 4) * 4 :]
    return found


def name(to, spi):
    """`struct xfrm_id`."""
    return address(to) + struct.pack("!IB3x", spi, ESP)


def selector(source, to):
    """`struct xfrm_selector` of two networks."""
    (near, near_len), (far, far_len) = (net.split("/") for net in (source, to))
    lengths = struct.pack("=HBBB3xiI", AF_INET, int(far_len), int(near_len), 0, 0, 0)
    return address(far) + address(near) + bytes(8) + lengths


def sa_info(source, to, spi, reqid):
    """`struct xfrm_usersa_info` of a tunnel for any packet."""
    use = bytes(32) + bytes(12) + struct.pack("=IIHBBB7x", 0, reqid, AF_INET, TUNNEL, 32, 0)
    return bytes(56) + name(to, spi) + address(source) + FOREVER + use


def cpu_of(attributes):
    """Number in XFRMA_SA_PCPU, or None."""
    value = attributes.get(SA_PCPU)
    return value and struct.unpack("=I", value)[0]


class Xfrm:
    """A connection to the socket, as a daemon's."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(10)
        self.socket.connect(str(path))
        self.numbers = itertools.count(1)

    def send(self, kind, body, flags=ACK):
        """Sends a request; its number."""
        number = next(self.numbers)
        self.socket.send(struct.pack("=IHHII", 16 + len(body), kind, REQUEST | flags, number, 0) + body)
        return number

    def messages(self):
        """Kinds, numbers and bodies of the messages of one datagram."""
        data, found = self.socket.recv(1 << 16), []
        while data:
            length, kind, _, number, _ = struct.unpack_from("=IHHII", data)
            found.append((kind, number, data[16:length]))
            data = data[-(-length // 4) * 4 :]
        return found

    def ask(self, kind, body):
        """A request, which must be carried out."""
        number = self.send(kind, body)
        [(answer, of, said)] = self.messages()
        assert (answer, of) == (ERROR, number) and struct.unpack_from("=i", said)[0] == 0, said

    def add(self, source, to, spi, key, reqid, cpu=None):
        """An SA of AES-GCM, for that CPU."""
        info = sa_info(source, to, spi, reqid)
        cipher = b"rfc4106(gcm(aes))".ljust(64, b"\0") + struct.pack("=II", len(key) * 8, 128) + key
        more = b"" if cpu is None else attribute(SA_PCPU, struct.pack("=I", cpu))
        self.ask(NEWSA, info + attribute(AEAD, cipher) + more)

    def allocate(self, source, to, reqid, cpu):
        """CPU that the SA of a new SPI has, or a negative error number."""
        asked = sa_info(source, to, 0, reqid) + struct.pack("=II", 0x1000, 0x1FFF) + attribute(SA_PCPU, struct.pack("=I", cpu))
        self.send(ALLOCSPI, asked, 0)
        [(kind, _, said)] = self.messages()
        return struct.unpack_from("=i", said)[0] if kind == ERROR else cpu_of(attributes(said[224:]))

    def delete(self, to, spi):
        self.ask(DELSA, address(to) + struct.pack("!I", spi) + struct.pack("=HBx", AF_INET, ESP))

    def policy(self, nets, ends, reqid, flags=0):
        """An outbound policy for a tunnel between two ends."""
        info = selector(*nets) + FOREVER + bytes(32) + struct.pack("=IIBBBB4x", 100, 0, OUT, 0, flags, 0)
        source, to = ends
        template = name(to, 0) + struct.pack("=H2x", AF_INET) + address(source)
        template += struct.pack("=IBBBx3I", reqid, TUNNEL, 0, 0, *[2**32 - 1] * 3)
        self.ask(UPDPOLICY, info + attribute(TMPL, template))

    def cpus(self):
        """CPUs of all SAs by SPI, as a dump has them."""
        number, found = self.send(GETSA, b"", DUMP), {}
        while True:
            for kind, of, body in self.messages():
                assert of == number
                if kind == DONE:
                    return found
                found[struct.unpack_from("!I", body, 56 + 16)[0]] = cpu_of(attributes(body[224:]))


class Linux(Xfrm):
    """The same of Linux, in a host's namespace."""

    def __init__(self, host, groups=0):
        self.socket = host.open(socket.AF_NETLINK, socket.SOCK_RAW, 6)
        self.socket.bind((0, groups))
        self.numbers = itertools.count(1)


class Listener(Xfrm):
    """A connection that hears ACQUIRE."""

    def __init__(self, path):
        super().__init__(path)
        self.send(SUBSCRIBE, struct.pack("=I", 1), 0)
        self.socket.setblocking(False)
        self.heard = []

    def acquired(self):
        """CPUs that an SA was asked for so far, in order; None is one for all."""
        try:
            while True:
                for kind, _, body in self.messages():
                    # `struct xfrm_user_acquire`.
                    size = 24 + 16 + 56 + 168 + 16
                    assert kind == ACQUIRE and len(body) > size
                    self.heard.append(cpu_of(attributes(body[size:])))
        except BlockingIOError:
            return self.heard

    def close(self):
        self.socket.close()
