"""Ends of wires: raw sockets in the network namespaces of the lab, which also keep what they saw
in a capture file. Nothing here knows the UPF."""

import collections
import ctypes
import os
import select
import socket
import struct
import time

_libc = ctypes.CDLL(None, use_errno=True)
_NEWNET = 0x4000_0000


class _Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class _Header(ctypes.Structure):
    """struct msghdr of sendmsg(2)."""
    _fields_ = [("name", ctypes.c_void_p), ("name_length", ctypes.c_uint), ("parts", ctypes.POINTER(_Iovec)),
                ("part_count", ctypes.c_size_t), ("control", ctypes.c_void_p), ("control_length", ctypes.c_size_t),
                ("flags", ctypes.c_int)]


class _Message(ctypes.Structure):
    """struct mmsghdr of sendmmsg(2)."""
    _fields_ = [("header", _Header), ("sent", ctypes.c_uint)]


class Burst:
    """Frames that are sent by one system call, as often as wanted."""

    def __init__(self, frames):
        self.count, self.octets = len(frames), b"".join(frames)
        self.buffer = ctypes.create_string_buffer(self.octets, len(self.octets))
        self.parts = (_Iovec * self.count)()
        self.messages = (_Message * self.count)()
        at = ctypes.addressof(self.buffer)
        for frame, part, message in zip(frames, self.parts, self.messages):
            part.base, part.length = at, len(frame)
            message.header.parts, message.header.part_count = ctypes.pointer(part), 1
            at += len(frame)

    def send(self, to):
        """Sends all frames by a socket."""
        done = 0
        while done < self.count:
            first = ctypes.byref(self.messages, done * ctypes.sizeof(_Message))
            sent = _libc.sendmmsg(to.fileno(), first, self.count - done, 0)
            if sent > 0:
                done += sent
            elif ctypes.get_errno() in (11, 105):  # EAGAIN, ENOBUFS
                select.select([], [to], [], 0.01)
            else:
                raise OSError(ctypes.get_errno(), "sendmmsg")


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
        """A UDP datagram that a socket has received, with addresses and ports."""
        udp = struct.pack("!HHHH", source[1], destination[1], len(data) + 8, 0) + data
        if ":" in source[0]:
            addresses = b"".join(socket.inet_pton(socket.AF_INET6, it[0]) for it in (source, destination))
            pseudo = struct.unpack(f"!{len(addresses) // 2}H", addresses), (len(udp), 17)
            words = struct.unpack(f"!{(len(udp) + 1) // 2}H", udp + b"\0" * (len(udp) % 2))
            total = sum(pseudo[0]) + sum(pseudo[1]) + sum(words)
            while total >> 16:
                total = (total & 0xFFFF) + (total >> 16)
            udp = udp[:6] + struct.pack("!H", ~total & 0xFFFF or 0xFFFF) + data
            self.add(struct.pack("!IHBB", 0x6000_0000, len(udp), 17, 64) + addresses + udp)
            return
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
            # SO_RCVBUFFORCE last, because SO_RCVBUF has net.core.rmem_max as its limit.
            for option in (socket.SO_RCVBUF, 33):
                self.socket.setsockopt(socket.SOL_SOCKET, option, 64 << 20)
            self.socket.bind((place["interface"], 3))
        self.socket.setblocking(False)
        # Packets that were received ahead of one that was waited for.
        self.kept = collections.deque()
        # A function that takes a packet and says whether that was all.
        self.intercept = None

    def send(self, ip):
        """Sends an IP packet to the UPF."""
        self.frame(self.framed(ip))

    def framed(self, ip):
        """Returns the frame of an IP packet to the UPF."""
        kind = b"\x86\xdd" if ip[0] >> 4 == 6 else b"\x08\x00"
        return self.peer + self.mac + kind + ip

    def burst(self, packets):
        """Returns IP packets to the UPF as a burst."""
        return Burst([self.framed(it) for it in packets])

    def at_once(self, packets):
        """Sends IP packets to the UPF by one system call."""
        self.burst(packets).send(self.socket)

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
        while not self.kept:
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
            packet = trimmed(frame[14:])
            if self.intercept is None or not self.intercept(self, packet):
                return packet
        return self.kept.popleft()

    def take_behind(self, marker, until):
        """Returns the packets ahead of the one with the marker, or None if it has not come at the time
        `until`: then they are received again."""
        ahead = []
        while (packet := self.receive(until)) is not None:
            if marker in packet:
                return ahead
            ahead.append(packet)
        self.kept.extend(ahead)
        return None

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
