"""Packets of UEs and GTP-U messages around them, by scapy."""

import socket
import struct

from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

GTPU = 2152


def udp(source, destination, payload=b"payload", sport=4000, dport=5000, **fields):
    """Builds a UDP packet of either family."""
    layer = IPv6 if ":" in source else IP
    return bytes(layer(src=source, dst=destination, **fields)
                 / UDP(sport=sport, dport=dport) / Raw(payload))


def tcp(source, destination, sport=4000, dport=80, **fields):
    layer = IPv6 if ":" in source else IP
    return bytes(layer(src=source, dst=destination, **fields) / TCP(sport=sport, dport=dport))


def gtpu(teid, payload, kind=255, sequence=None, pdu=None, extensions=(), flags=None, pn=None):
    """A GTP-U message as bytes: `sequence` number, N-PDU number `pn`, octets `pdu` of a PDU session
    container, other `extensions` as pairs of type and content (TS 29.281 clause 5)."""
    chain = list(extensions)
    if pdu is not None:
        chain.append((0x85, bytes(pdu)))
    first = 0x30 | (4 if chain else 0) | (2 if sequence is not None else 0) | (1 if pn is not None else 0)
    optional = b""
    if first & 7:
        optional = struct.pack("!HBB", sequence or 0, pn or 0, chain[0][0] if chain else 0)
    for at, (_, content) in enumerate(chain):
        following = chain[at + 1][0] if at + 1 < len(chain) else 0
        assert (len(content) + 2) % 4 == 0, "an extension header is a multiple of four octets"
        optional += bytes([(len(content) + 2) // 4]) + content + bytes([following])
    head = struct.pack("!BBHI", first if flags is None else flags, kind, len(optional) + len(payload), teid)
    return head + optional + payload


def tunnelled(source, destination, message, sport=GTPU, dport=GTPU, **fields):
    """Returns the outer packet."""
    return udp(source, destination, message, sport, dport, **fields)


class Tunnelled:
    """A GTP-U message of the UPF, with its outer header."""

    def __init__(self, packet):
        layer = IPv6 if packet[0] >> 4 == 6 else IP
        self.packet, self.outer = packet, layer(packet)
        self.message = bytes(self.outer[UDP].payload)
        self.sport, self.dport = self.outer[UDP].sport, self.outer[UDP].dport
        first, self.kind, length, self.teid = struct.unpack_from("!BBHI", self.message)
        assert first >> 4 == 3, f"GTP version and type {first:#x}"
        assert length + 8 == len(self.message), f"length {length} of {len(self.message)}"
        at, following = 8, 0
        self.sequence = None
        self.extensions = []
        if first & 7:
            self.sequence, _, following = struct.unpack_from("!HBB", self.message, at)
            at += 4
            following = following if first & 4 else 0
        while following:
            size = self.message[at] * 4
            assert size, "an extension header of no length"
            self.extensions.append((following, self.message[at + 1:at + size - 1]))
            following = self.message[at + size - 1]
            at += size
        self.payload = self.message[at:]

    @property
    def pdu(self):
        """Returns the content of the PDU session container, or None."""
        return dict(self.extensions).get(0x85)


def read(packet):
    """Returns the GTP-U message in a packet, or None."""
    try:
        if packet[0] >> 4 == 4:
            is_udp, at = packet[9] == 17 and not struct.unpack_from("!H", packet, 6)[0] & 0x1FFF, 20
        else:
            is_udp, at = packet[6] == 17, 40
        if not is_udp or GTPU not in struct.unpack_from("!HH", packet, at):
            return None
        return Tunnelled(packet)
    except (struct.error, IndexError):
        return None


def checksum(data):
    """Returns the Internet checksum over octets (RFC 1071), 0 if they contain a valid one."""
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def is_sound(ip):
    """Returns true if the checksums of an IP packet with UDP are valid."""
    if ip[0] >> 4 == 4:
        if checksum(ip[:20]) != 0:
            return False
        udp_part, pseudo = ip[20:], ip[12:20] + struct.pack("!BBH", 0, 17, len(ip) - 20)
        return udp_part[6:8] == b"\0\0" or checksum(pseudo + udp_part) == 0
    udp_part = ip[40:]
    pseudo = ip[8:40] + struct.pack("!IHBB", len(udp_part), 0, 0, 17)
    return udp_part[6:8] != b"\0\0" and checksum(pseudo + udp_part) == 0


def tunnelled_fast(source, destination, message):
    """Builds many UDP packets over IPv4, without UDP checksum."""
    udp_part = struct.pack("!HHHH", GTPU, GTPU, len(message) + 8, 0) + message
    head = struct.pack("!BBHHHBBH", 0x45, 0, len(udp_part) + 20, 0, 0, 64, 17, 0)
    head += socket.inet_aton(source) + socket.inet_aton(destination)
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + udp_part
