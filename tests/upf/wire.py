"""Ends of wires: raw sockets in the network namespaces of the lab, which also keep what they saw
in a capture file. Nothing here knows the UPF."""

import ctypes
import os
import select
import socket
import struct
import time

_libc = ctypes.CDLL(None, use_errno=True)
_NEWNET = 0x4000_0000


class Inside:
    """Enters the namespace at a path for everything opened within. One thread at a time."""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        self.before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        self._enter(self.path)

    def __exit__(self, *_):
        self._set(self.before)
        os.close(self.before)

    def _enter(self, path):
        there = os.open(path, os.O_RDONLY)
        self._set(there)
        os.close(there)

    def _set(self, descriptor):
        if _libc.setns(descriptor, _NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns {self.path}")


class Capture:
    """A classic capture file (pcap-savefile(5)); link type 1 Ethernet, 101 raw IP. It ends at a size:
    a soak would fill the disk."""

    LONGEST = 64 << 20

    def __init__(self, path, link=1):
        self.path = path
        self.file, self.size = open(path, "wb"), 0
        self.file.write(struct.pack("=IHHIIII", 0xA1B2_C3D4, 2, 4, 0, 0, 65_535, link))

    def add(self, frame):
        self.size += len(frame) + 16
        if self.size > self.LONGEST:
            return
        now = time.time()
        head = (int(now), int(now % 1 * 1e6), len(frame), len(frame))
        self.file.write(struct.pack("=IIII", *head) + frame)

    def datagram(self, source, destination, data):
        """A UDP datagram over IPv4 that a socket has received, with addresses as pairs."""
        udp = struct.pack("!HHHH", source[1], destination[1], len(data) + 8, 0) + data
        head = struct.pack("!BBHHHBBH", 0x45, 0, len(udp) + 20, 0, 0, 64, 17, 0)
        addresses = socket.inet_aton(source[0]) + socket.inet_aton(destination[0])
        self.add(head + addresses + udp)

    def flush(self):
        self.file.flush()


class Wire:
    """A raw socket at the far end of one of the UPF's ports."""

    def __init__(self, lab, name):
        place = lab["wires"][name]
        self.mac = bytes.fromhex(place["mac"].replace(":", ""))
        self.peer = bytes.fromhex(place["upf-mac"].replace(":", ""))
        self.capture = Capture(os.path.join(lab["directory"], f"{lab['group']}-{name}.pcap"))
        with Inside(place["namespace"]):
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            for option in (33, socket.SO_RCVBUF):  # SO_RCVBUFFORCE
                self.socket.setsockopt(socket.SOL_SOCKET, option, 64 << 20)
            self.socket.bind((place["interface"], 3))
        self.socket.setblocking(False)

    def send(self, ip):
        """Sends an IP packet to the UPF."""
        kind = b"\x86\xdd" if ip[0] >> 4 == 6 else b"\x08\x00"
        self.frame(self.peer + self.mac + kind + ip)

    def frame(self, frame):
        """Sends a frame unchanged."""
        while True:
            try:
                self.socket.send(frame)
                return
            except (BlockingIOError, OSError) as error:
                if error.errno not in (11, 105):  # EAGAIN, ENOBUFS
                    raise
                select.select([], [self.socket], [], 0.01)

    def receive(self, until):
        """Returns the next IP packet from the UPF, or None at the time `until` (monotonic)."""
        while True:
            try:
                frame, where = self.socket.recvfrom(65_536)
            except BlockingIOError:
                left = until - time.monotonic()
                if left <= 0:
                    return None
                select.select([self.socket], [], [], left)
                continue
            if where[2] == 4 or frame[12:14] not in (b"\x08\x00", b"\x86\xdd"):
                continue  # our own, and what is not IP
            if frame[12:14] == b"\x86\xdd" and (frame[22] == 0xFE or not any(frame[22:38])):
                continue  # Linux looks for neighbours
            if frame[12:14] == b"\x86\xdd" and frame[20:22] == b"\x3a\xff" and 133 <= frame[54] <= 137:
                continue  # or tells them where it is
            self.capture.add(frame)
            return trimmed(frame[14:])

    def take(self):
        """Returns all received IP packets."""
        taken = []
        while (packet := self.receive(0)) is not None:
            taken.append(packet)
        return taken

    def find(self, wanted, within=5.0):
        """The first packet that is wanted; what comes before is dropped. Fails without one."""
        until, seen = time.monotonic() + within, []
        while (packet := self.receive(until)) is not None:
            if wanted(packet):
                return packet
            seen.append(packet)
        raise AssertionError(f"not come; instead {[it.hex() for it in seen[:4]]}")


def trimmed(ip):
    """Removes the padding of a short Ethernet frame."""
    if ip and ip[0] >> 4 == 4 and len(ip) >= 4:
        return ip[:struct.unpack_from("!H", ip, 2)[0]]
    if len(ip) >= 40:
        return ip[:40 + struct.unpack_from("!H", ip, 4)[0]]
    return ip
