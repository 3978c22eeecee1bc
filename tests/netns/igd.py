"""A client of UPnP-IGD by hand, from the UPnP Device Architecture and WANIPConnection: what upnpc has no word for."""

import re
import socket
import struct
import time

GROUP, PORT = "239.255.255.250", 1900

ROOT = "urn:schemas-upnp-org:device:InternetGatewayDevice:"
SERVICE = "urn:schemas-upnp-org:service:WANIPConnection:"

ENVELOPE = "http://schemas.xmlsoap.org/soap/envelope/"


class Answer:
    """A response of HTTP."""

    def __init__(self, data):
        self.head, _, self.body = data.decode(errors="replace").partition("\r\n\r\n")
        self.status = int(self.head.split()[1]) if self.head else None

    def __repr__(self):
        return f"{self.head}\n{self.body}"

    def value(self, name):
        found = re.search(f"<{name}>(.*?)</{name}>", self.body, re.S)
        return found and found[1]

    @property
    def error(self):
        return self.value("errorCode") and int(self.value("errorCode"))


def search_text(target, mx="1", man='"ssdp:discover"', to=GROUP):
    lines = ["M-SEARCH * HTTP/1.1", f"HOST: {to}:{PORT}", f"MAN: {man}", f"MX: {mx}", f"ST: {target}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def search(host, target, interface="eth0", to=GROUP, wait=1.2, data=None):
    """The answers to a search, each with its headers by name, and where they came from."""
    with inside_socket(host, interface) as asking:
        asking.sendto(search_text(target, to=to) if data is None else data, (to, PORT))
        return heard(asking, wait)


def inside_socket(host, interface):
    asking = host.udp()
    asking.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
    asking.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 2)
    return asking


def heard(listening, wait):
    """Messages of the time from now on."""
    all_, end = [], time.monotonic() + wait
    while (left := end - time.monotonic()) > 0:
        listening.settimeout(left)
        try:
            data, source = listening.recvfrom(4000)
        except (TimeoutError, ConnectionRefusedError):
            continue
        first, *lines = data.decode().split("\r\n")
        headers = dict(line.split(": ", 1) if ": " in line else (line.rstrip(":"), "") for line in lines if line)
        all_.append({"first": first, "from": source[0], **headers})
    return all_


def member(host, address):
    """A socket that hears announcements."""
    listening = host.udp(GROUP, PORT)
    request = struct.pack("4s4s", socket.inet_aton(GROUP), socket.inet_aton(address))
    listening.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
    return listening


def exchange(host, gateway, request, timeout=5.0):
    """The answer to bytes sent by TCP, or None where there is no connection, or nothing comes."""
    try:
        with host.connect(gateway, PORT, timeout=timeout) as connection:
            connection.settimeout(timeout)
            connection.sendall(request)
            data = b""
            while piece := connection.recv(65536):
                data += piece
    except OSError:
        return None
    return Answer(data) if data else None


def get(host, gateway, path, headers=""):
    return exchange(host, gateway, f"GET {path} HTTP/1.1\r\nHost: {gateway}:{PORT}\r\n{headers}\r\n".encode())


def post(host, gateway, body, action, path="/1/ip", service=SERVICE + "1", headers="", named=None):
    """A request of SOAP, with the headers of programs."""
    data = body.encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {named or gateway}:{PORT}\r\nContent-Type: text/xml\r\n"
        f'SOAPAction: "{service}#{action}"\r\nContent-Length: {len(data)}\r\n{headers}\r\n'
    )
    return exchange(host, gateway, head.encode() + data)


def envelope(action, service=SERVICE + "1", **arguments):
    inner = "".join(f"<{name}>{value}</{name}>" for name, value in arguments.items())
    return (
        f'<?xml version="1.0"?><s:Envelope xmlns:s="{ENVELOPE}" s:encodingStyle="http://schemas.xmlsoap.org/soap/encoding/">'
        f'<s:Body><u:{action} xmlns:u="{service}">{inner}</u:{action}></s:Body></s:Envelope>'
    )


def ask(host, gateway, action, version=1, **arguments):
    service = SERVICE + str(version)
    return post(host, gateway, envelope(action, service, **arguments), action, f"/{version}/ip", service)


def add(host, gateway, client, inside, outside, protocol="TCP", lease=600, action="AddPortMapping", version=1, **more):
    arguments = {
        "NewRemoteHost": "",
        "NewExternalPort": outside,
        "NewProtocol": protocol,
        "NewInternalPort": inside,
        "NewInternalClient": client,
        "NewEnabled": 1,
        "NewPortMappingDescription": "by hand",
        "NewLeaseDuration": lease,
    }
    return ask(host, gateway, action, version, **{**arguments, **more})


def delete(host, gateway, outside, protocol="TCP"):
    named = {"NewRemoteHost": "", "NewExternalPort": outside, "NewProtocol": protocol}
    return ask(host, gateway, "DeletePortMapping", **named)
