"""Shared support of the cases: control plane, links, and checks that nothing was sent.

The lab's file (JSON, written by the harness) names the network namespaces, addresses, and the
process under test, so that another UPF can be put there."""

import collections
import itertools
import json
import os
import socket
import subprocess
import time

import packets
from rules import Session
from smf import Smf
from wire import Capture, Inside, Wire

DN = "10.60.1.2"
DN6 = "fd60:1::2"
GNB = "10.30.1.2"
# Who asks for echoes behind what was sent, and nothing else.
FENCE = "10.30.1.250"
# Outcomes that packets of fences and of Linux have.
OF_FENCES = ("echo_answered", "echo_suppressed", "echo_response", "not_ours")
_marks = itertools.count(1)


def mark(size=24):
    """Returns a unique payload."""
    return f"<{next(_marks):08d}>".encode().ljust(size, b".")


def fence_response(packet):
    """Returns the number of the fence that this message responds to, or None."""
    if packet[16:20] != socket.inet_aton(FENCE):
        return None
    found = packets.read(packet)
    return found.sequence if found and found.kind == 2 else None


class Lab:
    def __init__(self, path, group):
        with open(path) as file:
            self.facts = json.load(file)
        self.facts["group"] = group
        self.facts["directory"] = os.path.dirname(path)
        self.group, self.is_soak = group, bool(self.facts.get("soak"))
        self.grace = self.facts.get("grace", 0.05)
        capture = os.path.join(self.facts["directory"], f"{group}-n4.pcap")
        self.n4, self.faults, self._seids = Capture(capture, 101), [], {}
        self.n3, self.n6, self.ims, self.n9 = (Wire(self.facts, it) for it in ("n3", "n6", "ims", "n9"))
        self.upf, self.upf6 = self.facts["n3"], self.facts["n3-v6"]
        self.burst, self.lanes = self.facts["burst"], self.facts["lanes"]
        self.smfs, self.fences = [], 0
        # A session on the second lane: its packets go round behind those of others there.
        self.beyond, self.crossed = None, 0
        # Echo Requests of the UPF by gNB, and gNBs that do not respond to them.
        self.probes, self.mute = collections.Counter(), set()
        if self["probe-s"]:
            self.n3.intercept = self.n9.intercept = self.respond_to_probe
        self.smf = self.add_smf("10.40.0.2")

    def __getitem__(self, key):
        return self.facts[key]

    def control(self, address):
        """Returns the address on N4 for one that is written as IPv4."""
        return "fd40::" + address.rpartition(".")[2] if ":" in self["n4"] else address

    def add_smf(self, address, **how):
        smf = Smf(self, self.control(address), **how)
        self.smfs.append(smf)
        return smf

    # Between cases.

    def wait_until_up(self, within=60):
        """Waits for the response to a heartbeat."""
        end = time.monotonic() + within
        while True:
            try:
                return self.smf.request(1, b"\x00\x60\x00\x04" + b"\0\0\0\1", within=0.5)
            except AssertionError:
                if time.monotonic() > end:
                    raise

    def wait_for_lanes(self):
        """Until an echo is answered; those cases that need no lanes do not care."""
        try:
            self.until_forwarding(20)
        except AssertionError as error:
            self.faults.append(f"when the cases began: {error}")
        # Where the number of sessions is judged there is no room for another one.
        if self.lanes > 1 and self.group not in ("limits", "soak"):
            smf = self.add_smf("10.40.0.8")
            smf.associate()
            both = [self.session(smf=smf, gnb=FENCE) for _ in range(self.lanes)]
            self.beyond = next(it for it in both if it.up_seid % self.lanes == 1)

    def respond_to_probe(self, wire, packet):
        """Responds to an Echo Request of the UPF as a gNB does; returns true if it was one."""
        found = packets.read(packet)
        if found is None or found.kind != 1:
            return False
        self.probes[found.outer.dst] += 1
        if found.outer.dst not in self.mute:
            message = packets.gtpu(0, b"\x0e\0", 2, sequence=found.sequence)
            wire.send(packets.tunnelled(found.outer.dst, found.outer.src, message, dport=found.sport))
        return True

    def begin(self):
        """Sets up a new association and discards packets of earlier cases."""
        self.smf.is_silent = False
        self.smf.on_report = Smf.__init__.__globals__["accept_report"]
        self.smf.associate(started=self.smf.started + 1)
        self.drain()
        self.smf.forget()

    def end(self):
        faults, self.faults[:] = list(self.faults), []
        assert not faults, faults

    def recover(self):
        self.faults.clear()
        for smf in self.smfs:
            smf.is_silent = False

    def drain(self):
        for wire in self.wires():
            wire.take()

    def wires(self):
        return [self.n3, self.n6, self.ims, self.n9]

    def know(self, smf, seid, up_seid):
        self._seids[smf.address, seid] = up_seid

    def up_seid(self, smf, seid):
        return self._seids.get((smf.address, seid), 0)

    def session(self, **how):
        return Session(how.pop("smf", self.smf), **how)

    # The user plane. Inner packets are bytes.

    def uplink(self, session, inner, pdu=(0x10, 1), **how):
        """Sends a UE's packet through the session's tunnel."""
        self.n3.send(self.tunnelled(session, inner, pdu, **how))

    @staticmethod
    def tunnelled(session, inner, pdu=(0x10, 1), **how):
        """Returns a UE's packet in the session's tunnel."""
        message = packets.gtpu(session.teid, inner, pdu=pdu, **how)
        return packets.tunnelled(session.gnb, session.upf or session.upf_v6, message)

    def gnb(self, message, source=GNB, destination=None, **outer):
        """Sends a GTP-U message on N3."""
        self.n3.send(packets.tunnelled(source, destination or self.upf, message, **outer))

    def at_dn(self, marker, wire=None, within=5.0):
        """Returns the packet with the marker that arrives at the data network."""
        return (wire or self.n6).find(lambda it: marker in it, within)

    def at_gnb(self, marker, within=5.0, wire=None):
        """Returns the packet with the marker that arrives at the access network, as GTP-U."""
        return packets.read((wire or self.n3).find(lambda it: marker in it, within))

    def goes_up(self, session, destination=None, source=None, wire=None, **how):
        """Asserts that an uplink packet reaches the data network; returns it. It is the last one of a
        burst where the lab sends bursts; their order is kept."""
        source = source or session.v4 or session.v6
        destination = destination or (DN6 if ":" in source else DN)
        ports = {key: how.pop(key) for key in ("sport", "dport") if key in how}
        marks = [mark() for _ in range(self.burst)]
        inner = [packets.udp(source, destination, it, **ports) for it in marks]
        self.n3.at_once([self.tunnelled(session, it, **how) for it in inner])
        return [self.at_dn(it, wire) for it in marks][-1]

    def goes_down(self, session, source=None, user=None, wire=None, **ports):
        """Asserts that a downlink packet, or a burst in order, reaches the gNB; returns it as GTP-U."""
        user = user or session.v4 or session.v6
        source = source or (DN6 if ":" in user else DN)
        marks = [mark() for _ in range(self.burst)]
        (wire or self.n6).at_once([packets.udp(source, user, it, **ports) for it in marks])
        return [self.at_gnb(it) for it in marks][-1]

    def octets(self, packet):
        """Returns the octets of the burst of which this is a packet."""
        return len(packet) * self.burst

    def goes(self, session):
        """Asserts that uplink and downlink packets arrive."""
        self.goes_up(session)
        found = self.goes_down(session)
        assert found.teid == session.gnb_teid, f"TEID {found.teid:#x}, not {session.gnb_teid:#x}"

    def goes_down_until(self, session, teid, within=10):
        """Sends downlink packets until one arrives by this tunnel; returns all GTP-U packets."""
        found, end = [], time.monotonic() + within
        while time.monotonic() < end:
            marker = mark()
            self.n6.send(packets.udp(DN, session.v4, marker))
            until = time.monotonic() + 0.5
            while (packet := self.n3.receive(until)) is not None:
                if (message := packets.read(packet)) is not None:
                    found.append(message)
                if marker in packet:
                    break
            if found and found[-1].teid == teid and found[-1].kind == 255:
                return found + [it for it in map(packets.read, self.fence()) if it]
        raise AssertionError(f"no packet by tunnel {teid:#x}")

    def kernel_echo(self):
        """Returns the response to an Echo Request that a socket of Linux sends on N3."""
        with Inside(self["wires"]["n3"]["namespace"]):
            plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with plain:
            plain.settimeout(5)
            for _ in range(5):
                plain.sendto(packets.gtpu(0, b"", 1, sequence=5), (self.upf, packets.GTPU))
                try:
                    return plain.recv(1000)
                except TimeoutError:
                    continue
        raise AssertionError("no response to an echo request of Linux")

    def fence(self):
        """Until all that was sent before has been handled: an echo goes round behind it. Echoes are
        limited: one that is not answered is asked again. Returns what came before, without the
        responses to fences: one that was given up may be answered late."""
        seen, numbers, end = [], set(), time.monotonic() + 10
        while time.monotonic() < end:
            number = next(_marks) & 0xFFFF
            numbers.add(number)
            self.gnb(packets.gtpu(0, b"", 1, sequence=number), FENCE)
            self.fences += 1
            until = time.monotonic() + 0.5
            while (packet := self.n3.receive(until)) is not None:
                answered = fence_response(packet)
                if answered in numbers:
                    seen += self.cross() if self.beyond else []
                    time.sleep(self.grace)
                    return seen + [it for it in self.n3.take() if fence_response(it) is None]
                if answered is None:
                    seen.append(packet)
        raise AssertionError("no echo response in 10 s: the UPF does not answer")

    def cross(self):
        """Until the second lane has handled all that was sent before: packets go round behind it. Returns
        what came on N3 before."""
        end, behind = time.monotonic() + 10, None
        while time.monotonic() < end:
            self.crossed += 1
            marker = f"{{{self.crossed:08d}}}".encode()
            self.uplink(self.beyond, packets.udp(self.beyond.v4, DN, marker))
            self.n6.send(packets.udp(DN, self.beyond.v4, marker))
            ahead = self.n6.take_behind(marker, time.monotonic() + 2)
            behind = self.n3.take_behind(marker, time.monotonic() + 2)
            self.n6.kept.extend(ahead or [])
            if ahead is not None and behind is not None:
                return [it for it in behind if fence_response(it) is None]
        raise AssertionError("the second lane does not forward")

    def comes_of(self, send):
        """Returns the packets that leave on any link while a function sends, by name of the link."""
        self.drain()
        send()
        seen = {"n3": self.fence()}
        for name in ("n6", "ims", "n9"):
            seen[name] = getattr(self, name).take()
        return {name: found for name, found in seen.items() if found}

    def is_dropped(self, send):
        """Asserts that nothing leaves while a function sends."""
        seen = self.comes_of(send)
        assert not seen, f"came: { {name: [it.hex() for it in found[:3]] for name, found in seen.items()} }"

    def is_dropped_up(self, session, source=None, destination=DN, pdu=(0x10, 1), **ports):
        source = source or session.v4 or session.v6
        inner = packets.udp(source, destination, mark(), **ports)
        self.is_dropped(lambda: self.uplink(session, inner, pdu=pdu))

    def is_dropped_down(self, session, source=DN, user=None, **ports):
        inner = packets.udp(source, user or session.v4 or session.v6, mark(), **ports)
        self.is_dropped(lambda: self.n6.send(inner))

    # Counters.

    def metrics(self):
        """Returns the metrics of the program: numbers by name and labels, as they are written."""
        with Inside(self["upf-namespace"]):
            plain = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        with plain:
            plain.settimeout(10)
            plain.connect(("127.0.0.1", 8805))
            plain.sendall(b"GET /metrics HTTP/1.0\r\nHost: upf\r\n\r\n")
            page = b"".join(iter(lambda: plain.recv(65_536), b"")).decode()
        lines = page.partition("\r\n\r\n")[2].splitlines()
        pairs = (it.rsplit(" ", 1) for it in lines if it and it[0] != "#")
        return {name: float(value) for name, value in pairs}

    def outcomes(self):
        """Returns the packets by outcome or drop reason."""
        head = 'upf_packets_total{cause="'
        found = {name[len(head):-2]: int(count) for name, count in self.metrics().items() if name.startswith(head)}
        for name in ("forwarded_uplink", "forwarded_downlink"):
            found[name] -= self.crossed
        return found

    def is_counted(self, send, **wanted):
        """Asserts that nothing leaves while a function sends, and that the outcomes of its packets are
        these and no others."""
        before = self.outcomes()
        self.is_dropped(send)
        self.have_grown(before, **wanted)

    def have_grown(self, before, **wanted):
        """Asserts that the outcomes have grown by these numbers and no others, those of fences aside;
        None is any number."""
        end = time.monotonic() + 5
        while True:
            found = {name: count - before[name] for name, count in self.outcomes().items()
                     if count != before[name] and (name in wanted or name not in OF_FENCES)}
            if {**wanted, **found, **{name: None for name in wanted if wanted[name] is None}} == wanted:
                return
            assert time.monotonic() < end, f"outcomes {found}, not {wanted}"
            time.sleep(0.02)

    def stalled(self):
        """Returns the time in s that the machine has taken from its processors, and that it has let
        the threads of the program and this one wait for one."""
        with open("/proc/stat") as file:
            taken = int(file.readline().split()[8]) / os.sysconf("SC_CLK_TCK")
        waited = 0
        for pid in [*self.processes().values(), os.getpid()]:
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/schedstat") as file:
                    waited += int(file.read().split()[1])
        return taken + waited / 1e9

    def until_right(self, measure, fault, tries=12):
        """Measures until there is no fault; who is wrong while the machine was not held up has no
        other try. `fault` says what is wrong with a measurement, or None."""
        wrong = []
        for _ in range(tries):
            before, start = self.stalled(), time.monotonic()
            measured = measure()
            stalled, seconds = self.stalled() - before, time.monotonic() - start
            if (why := fault(measured)) is None:
                return measured
            wrong.append(f"{why} ({stalled / seconds:.1%} held up)")
            assert stalled > 0.02 * seconds, wrong
        raise AssertionError(wrong)

    # The program under test as a set of processes.

    def processes(self):
        """Returns the processes of the program under test by their first argument ("fast", "slow")."""
        found, waiting = {}, [self["pid"]]
        while waiting:
            pid = waiting.pop()
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
                found.setdefault(words[1].decode() if len(words) > 1 else "", pid)
                for task in os.listdir(f"/proc/{pid}/task"):
                    with open(f"/proc/{pid}/task/{task}/children") as file:
                        waiting.extend(int(it) for it in file.read().split())
            except (FileNotFoundError, ProcessLookupError):
                continue
        return found

    def until_forwarding(self, within=60):
        """Waits until an Echo Request has a response again."""
        end = time.monotonic() + within
        while True:
            try:
                return self.fence()
            except AssertionError:
                assert time.monotonic() < end, "the fast half does not come back"

    def memory(self):
        """Resident memory of all its processes in KiB: what is not of files and shared memory."""
        total = 0
        for pid in self.processes().values():
            with open(f"/proc/{pid}/status") as file:
                total += sum(int(it.split()[1]) for it in file if it.startswith("RssAnon"))
        return total

    def in_upf(self, *words):
        """Runs a program in the UPF's network namespace; returns its output."""
        command = ["nsenter", f"--net={self['upf-namespace']}", "--", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def judge(self):
        """What tshark calls malformed in what was seen, of each capture; none is right. Of the soak
        only PFCP: users' packets that were mutated come out as they went in."""
        wrong, wires = [], [] if self.group == "soak" else self.wires()
        for capture in [self.n4, *(it.capture for it in wires)]:
            capture.flush()
            command = ["tshark", "-r", capture.path, "-Y", "_ws.malformed"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode or done.stdout.strip():
                wrong.append(f"{capture.path}: {done.stdout[:1500]}{done.stderr[-300:] if done.returncode else ''}")
        return wrong
