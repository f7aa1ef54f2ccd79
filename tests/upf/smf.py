"""An SMF: a PFCP client that responds to heartbeats and reports while it waits."""

import itertools
import queue
import random
import socket
import struct
import threading
import time

import ie
from ie import Message
from wire import Inside

PORT = 8805
PATIENCE = 10.0
# Sequence numbers below this are for messages that a case makes up; an SMF counts from here.
MADE_UP = 1 << 23


class Smf:
    """An SMF with one address and one Node ID. A thread responds to requests of the UPF, from the
    start, so a UPF that sets up associations itself may be faster than the next line."""

    def __init__(self, lab, address, upf=None, name=None, is_deaf_to_setup=False):
        self.lab, self.address, self.name = lab, address, name or address
        self.upf = (upf or lab["n4"], PORT)
        self.started = int(time.time()) + 2_208_988_800
        self.sequences = itertools.count(MADE_UP + random.randrange(1 << 20))
        self.seids = itertools.count(1)
        self.answers, self.requests = {}, queue.Queue()
        # Session reports that were taken, by sequence number.
        self.reported = set()
        self.arrived = threading.Condition()
        self.is_silent, self.is_deaf_to_setup = False, is_deaf_to_setup
        self.heartbeats = 0
        # How session reports are answered: a function of the request that makes the answer.
        self.on_report = accept_report
        with Inside(lab["smf-namespace"]):
            family = socket.AF_INET6 if ie.is_v6(address) else socket.AF_INET
            self.socket = socket.socket(family, socket.SOCK_DGRAM)
            self.socket.setsockopt(socket.SOL_SOCKET, 33, 32 << 20)
            self.socket.bind((address, PORT))
        self.is_open = True
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self):
        self.is_open = False
        self.socket.close()

    # What comes.

    def _listen(self):
        while self.is_open:
            try:
                data, origin = self.socket.recvfrom(65_536)
            except OSError:
                return
            if not self.is_open:
                return
            self.lab.n4.datagram(origin, (self.address, PORT), data)
            try:
                self._take(Message(data))
            except (AssertionError, struct.error) as error:
                self.lab.faults.append(f"the UPF sent {data.hex()}: {error}")

    def _take(self, message):
        message.came = time.monotonic()
        if message.kind in (ie.HEARTBEAT, ie.SETUP, ie.UPDATE, ie.RELEASE, ie.NODE_REPORT, ie.REPORT):
            self.requests.put(message)
            if message.kind == ie.HEARTBEAT:
                self.heartbeats += 1
            if not self.is_silent:
                self._answer(message)
            return
        with self.arrived:
            self.answers.setdefault(message.sequence, []).append(message)
            self.arrived.notify_all()

    def _answer(self, request):
        own = ie.node_id(self.name)
        accepted = ie.u8(ie.CAUSE, 1)
        if request.kind == ie.HEARTBEAT:
            parts, seid = [ie.recovery(self.started)], None
        elif request.kind == ie.REPORT:
            made = self.on_report(self, request)
            if made is not None:
                self.send(made)
            return
        elif request.kind == ie.SETUP:
            if self.is_deaf_to_setup:
                return
            parts, seid = [own, accepted, ie.recovery(self.started)], None
        else:
            parts, seid = [own, accepted], None
        self.send(ie.message(request.kind + 1, request.sequence, *parts, seid=seid))

    def reports(self, within=0.0, until=None):
        """Session reports that have come, each once, also if it is repeated later; `until` says of the
        list when it is enough."""
        found, end = [], time.monotonic() + within
        while True:
            left = end - time.monotonic()
            try:
                request = self.requests.get(timeout=max(left, 0.001))
            except queue.Empty:
                return found
            if request.kind == ie.REPORT and request.sequence not in self.reported:
                self.reported.add(request.sequence)
                found.append(request)
                if until and until(found):
                    return found

    def request_of(self, kind, within=PATIENCE):
        """Returns the next request of this type from the UPF."""
        end = time.monotonic() + within
        while (left := end - time.monotonic()) > 0:
            try:
                request = self.requests.get(timeout=left)
            except queue.Empty:
                break
            if request.kind == kind:
                return request
        raise AssertionError(f"no request of type {kind} in {within} s")

    def forget(self):
        """Discards all received messages."""
        while not self.requests.empty():
            self.requests.get_nowait()
        self.reported.clear()
        with self.arrived:
            self.answers.clear()

    # What is sent.

    def send(self, data):
        self.socket.sendto(data, self.upf)

    def sequence(self):
        return next(self.sequences) & 0xFF_FFFF

    def answers_to(self, sequence, count=1, within=PATIENCE):
        """Returns the first `count` responses to a sequence number."""
        end = time.monotonic() + within
        with self.arrived:
            while len(self.answers.get(sequence, [])) < count:
                left = end - time.monotonic()
                if left <= 0 or not self.arrived.wait(left):
                    got = self.answers.get(sequence, [])
                    raise AssertionError(f"{len(got)} answers to {sequence}, not {count}: {got}")
            return self.answers.pop(sequence)

    def request(self, kind, *parts, seid=None, within=PATIENCE, sequence=None):
        """Sends a request; returns its response, which must have the matching type."""
        sequence = self.sequence() if sequence is None else sequence
        self.send(ie.message(kind, sequence, *parts, seid=seid))
        answer = self.answers_to(sequence, within=within)[0]
        assert answer.kind == kind + 1, f"type {answer.kind} answers {kind}"
        return answer

    def exchange(self, data, within=PATIENCE):
        """Sends a message unchanged; returns the response to its sequence number."""
        at = 12 if data[0] & 1 else 4
        sequence = struct.unpack_from("!I", data, at)[0] >> 8
        self.send(data)
        return self.answers_to(sequence, within=within)[0]

    def heartbeat(self, *parts):
        return self.request(ie.HEARTBEAT, *(parts or (ie.recovery(self.started),)))

    def is_ignored(self, *datagrams):
        """Sends what must be discarded; a heartbeat behind it is answered, and nothing else is."""
        with self.arrived:
            self.answers.clear()
        for data in datagrams:
            self.send(data)
        self.heartbeat()
        with self.arrived:
            left = {key: value for key, value in self.answers.items() if value}
        assert not left, f"answered: {left}"

    def associate(self, *more, started=None):
        if started is not None:
            self.started = started
        answer = self.request(ie.SETUP, ie.node_id(self.name), ie.recovery(self.started), *more)
        assert answer.cause == 1, f"association refused: {answer}"
        return answer

    def release(self):
        return self.request(ie.RELEASE, ie.node_id(self.name))

    def f_seid(self, seid):
        return ie.f_seid(seid, **{"v6" if ie.is_v6(self.address) else "v4": self.address})

    def establish(self, *parts, seid=None, **how):
        """Sends a Session Establishment Request with Node ID and F-SEID; returns its response."""
        seid = next(self.seids) if seid is None else seid
        return self.request(ie.ESTABLISH, ie.node_id(self.name), self.f_seid(seid), *parts, seid=0, **how)


def report_answer(request, *parts, cause=1, seid=None):
    """The answer to a session report. Its header has the UPF's SEID, which only the SMF that made
    the session knows: sessions register it (see `Smf.sessions` of the lab)."""
    return ie.message(ie.REPORT + 1, request.sequence, ie.u8(ie.CAUSE, cause), *parts, seid=seid)


def accept_report(smf, request):
    return report_answer(request, seid=smf.lab.up_seid(smf, request.seid))
