#!/usr/bin/python3
"""A VLAN for kernels without 802.1Q: the TAP device NAME is VLAN ID of the interface PARENT.

usage: vlan.py PARENT NAME ID

Run inside the namespace. What Linux sends by NAME leaves PARENT with a tag; what comes in by PARENT with that tag is
received by NAME without it. The program prints `ready` once the device is there; the device goes when the program ends.
Slow, some 50,000 frames a second, and complete: tests of VLANs need no more. Packets whose checksum or segmentation is left to a card
stay so: each has the header in front by which Linux says what is left (virtio's).
"""

import fcntl
import os
import select
import socket
import struct
import sys

TUNSETIFF = 0x400454CA
SIOCGIFHWADDR, SIOCSIFHWADDR = 0x8927, 0x8924
IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
ETH_P_ALL, ETH_P_8021Q = 0x0003, 0x8100
SOL_PACKET, PACKET_AUXDATA, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 8, 15, 23
SO_RCVBUFFORCE = 33
TP_STATUS_VLAN_VALID = 0x10
"""Linux takes tags out of frames before it shows them, and tells of them beside the frame: `struct tpacket_auxdata`."""
AUXDATA = struct.Struct("=IIIHHHH")
LEFT = struct.Struct("=BBHHHH")
"""`struct virtio_net_hdr`: flags, kind and length of headers, size of segments, and where the checksum begins and goes."""


def main(parent, name, vlan):
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI | IFF_VNET_HDR))
    cable = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    cable.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
    cable.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    cable.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    cable.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
    cable.bind((parent, ETH_P_ALL))
    cable.setblocking(False)
    # A VLAN has its parent's link-layer address.
    address = fcntl.ioctl(cable, SIOCGIFHWADDR, struct.pack("16s24x", parent.encode()))[16:24]
    fcntl.ioctl(cable, SIOCSIFHWADDR, struct.pack("16s8s16x", name.encode(), address))
    print("ready", flush=True)

    tag = struct.pack("!HH", ETH_P_8021Q, vlan)
    poll = select.poll()
    poll.register(tap, select.POLLIN)
    poll.register(cable, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            try:
                if fd == tap:
                    for _ in range(64):
                        left, frame = split(os.read(tap, 1 << 17))
                        cable.send(moved(left, 4) + frame[:12] + tag + frame[12:])
                else:
                    for _ in range(64):
                        message, beside = cable.recvmsg(1 << 17, 64)[:2]
                        frame = untagged(*split(message), beside, vlan)
                        if frame:
                            os.write(tap, frame)
            except OSError:
                # Nothing more to read, or a device that is down for now: frames are lost on it, as on a cable.
                pass


def split(message):
    """What is left to be done of a frame, and the frame."""
    return message[: LEFT.size], message[LEFT.size :]


def moved(left, by):
    """What is left to be done of a frame that has so many bytes more in front of its checksum."""
    flags, kind, headers, size, start, offset = LEFT.unpack(left)
    needs_checksum = flags & 1
    return LEFT.pack(flags, kind, headers + by if kind else 0, size, start + by if needs_checksum else 0, offset)


def untagged(left, frame, beside, vlan):
    """The frame as it is within the VLAN, with what is left to be done of it; None where it is of another, or of none."""
    for level, kind, data in beside:
        if level == SOL_PACKET and kind == PACKET_AUXDATA:
            status, _, _, _, _, tci, _ = AUXDATA.unpack_from(data)
            if status & TP_STATUS_VLAN_VALID:
                return left + frame if tci & 0xFFF == vlan else None
    kind, tci = struct.unpack_from("!HH", frame, 12)
    if kind == ETH_P_8021Q and tci & 0xFFF == vlan:
        return moved(left, -4) + frame[:12] + frame[16:]
    return None


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
