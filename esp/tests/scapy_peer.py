"""The other end of a tunnel, by scapy's IPsec layer. A line in is a packet of ours, with keys and inner packet; the line out is the inner
packet that scapy finds in it, or its complaint, and scapy's own ESP packet with the same inner one.

What scapy does not do is done here from the RFCs, with the library below it: AES-GMAC, and extended numbers under an HMAC.
"""

import hmac
import sys
import warnings

warnings.simplefilter("ignore")

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.ipsec import ESP, SecurityAssociation
from scapy.packet import Raw, raw

CIPHERS = {"gcm": "AES-GCM", "poly1305": "CHACHA20-POLY1305", "null": "NULL", "3des": "3DES", "des": "DES"}
HASHES = {
    "hmac-sha1-96": ("HMAC-SHA1-96", "sha1", 12),
    "hmac-sha256-128": ("SHA2-256-128", "sha256", 16),
    "hmac-sha384-192": ("SHA2-384-192", "sha384", 24),
    "hmac-sha512-256": ("SHA2-512-256", "sha512", 32),
    "hmac-md5-96": ("HMAC-MD5-96", "md5", 12),
}


class Peer:
    def __init__(self, line):
        words = ["" if word == "-" else word for word in line.split()]
        self.algorithm, self.auth, key, auth_key, spi, number, esn, outer, udp, inner, packet = words
        self.key, self.auth_key = bytes.fromhex(key), bytes.fromhex(auth_key)
        self.spi, self.number, self.esn = int(spi), int(number), esn == "on"
        self.version = IP if outer == "4" else IPv6
        self.udp = udp == "yes"
        self.inner, self.packet = bytes.fromhex(inner), bytes.fromhex(packet)
        self.high, self.low = self.number >> 32, self.number & 0xFFFFFFFF
        # scapy signs the lower half only.
        self.signs_here = self.esn and bool(self.auth) and self.auth != "none"

    def association(self):
        name, _, mode = self.algorithm.partition("-")
        cipher = CIPHERS.get(mode) or CIPHERS.get(name) or "AES-CBC"
        auth = None if self.signs_here or self.auth in ("", "none") else HASHES[self.auth][0]
        header = IP(src="192.0.2.1", dst="198.51.100.1") if self.version is IP else IPv6(src="2001:db8::1", dst="2001:db8::2")
        return SecurityAssociation(
            ESP,
            spi=self.spi,
            crypt_algo=cipher,
            crypt_key=self.key or None,
            auth_algo=auth,
            auth_key=self.auth_key or None,
            tunnel_header=header,
            nat_t_header=UDP(sport=4500, dport=4500) if self.udp else None,
            esn_en=self.esn,
            esn=self.high,
        )

    def code(self, data):
        _, digest, length = HASHES[self.auth]
        return hmac.new(self.auth_key, data + self.high.to_bytes(4, "big"), digest).digest()[:length]

    def gmac(self, iv, text):
        number = self.number.to_bytes(8, "big") if self.esn else self.low.to_bytes(4, "big")
        covered = self.spi.to_bytes(4, "big") + number + iv + text
        return AESGCM(self.key[:-4]).encrypt(self.key[-4:] + iv, b"", covered)

    def around(self, esp):
        """ESP in scapy's headers."""
        header = self.association().tunnel_header
        return header / UDP(sport=4500, dport=4500, chksum=0) / Raw(esp) if self.udp else header / Raw(esp)

    def seal(self):
        if self.algorithm.endswith("gmac"):
            iv = b"scapy iv"
            pad = -(len(self.inner) + 2) % 4
            text = self.inner + bytes(range(1, pad + 1)) + bytes([pad, 4 if self.inner[0] >> 4 == 4 else 41])
            front = self.spi.to_bytes(4, "big") + self.low.to_bytes(4, "big")
            return front + iv + text + self.gmac(iv, text)
        version = IP if self.inner[0] >> 4 == 4 else IPv6
        sealed = self.association().encrypt(version(self.inner), seq_num=self.low)
        esp = raw(sealed[ESP])
        return esp + self.code(esp) if self.signs_here else esp

    def open(self):
        packet = self.version(self.packet)
        headers = len(self.packet) - len(raw(packet[ESP]))
        if headers != (20 if self.version is IP else 40) + (8 if self.udp else 0):
            return "headers of %d bytes" % headers
        if self.version is IP and packet.chksum != IP(raw(packet.__class__(**{**packet.fields, "chksum": None}) / packet.payload)).chksum:
            return "checksum of the outer header"
        esp = raw(packet[ESP])
        if self.algorithm.endswith("gmac"):
            iv, text, code = esp[8:16], esp[16:-16], esp[-16:]
            if code != self.gmac(iv, text):
                return "ICV"
            return text[: -2 - text[-2]].hex()
        if self.signs_here:
            length = HASHES[self.auth][2]
            if esp[-length:] != self.code(esp[:-length]):
                return "ICV"
            packet[ESP].data = packet[ESP].data[:-length]
        return raw(self.association().decrypt(packet)).hex()


for line in sys.stdin:
    peer = Peer(line)
    try:
        opened = peer.open()
    except Exception as error:
        opened = "%s: %s" % (type(error).__name__, error)
    print("%s %s" % (opened.replace(" ", "_") or "-", peer.seal().hex()), flush=True)
