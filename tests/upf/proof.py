"""The library against itself: what it builds, scapy takes apart and puts together again to the same
octets, and tshark does not call malformed."""

import os
import subprocess
import tempfile

import ie
import packets
import soak
from rules import Session
from scapy.contrib.gtp import GTP_U_Header
from scapy.contrib.pfcp import PFCP
from scapy.packet import Padding, Raw
from wire import Capture


class Nobody:
    """An SMF that sends nothing."""
    name = address = "10.40.0.2"
    started = 3_900_000_000
    seids = iter(range(1, 100))

    def f_seid(self, seid):
        return ie.f_seid(seid, v4=self.address)


class Nowhere:
    """A lab without a UPF: sessions are drafts."""
    smf = Nobody()

    def session(self, **how):
        return Session(self.smf, **{"draft": True, **how})


def run():
    lab = Nowhere()
    session = lab.session()
    session.up_seid, session.teid = 0x1_0000_0007, 0x0102_0304
    control = soak.seeds(lab, session)
    with tempfile.TemporaryDirectory() as folder:
        capture = Capture(os.path.join(folder, "own.pcap"), 101)
        for data in control:
            read = PFCP(data)
            assert bytes(read) == data, f"scapy makes something else of {data.hex()}"
            assert not read.haslayer(Padding), f"scapy does not know what this is: {data.hex()}"
            assert ie.Message(data).kind == read.message_type
            capture.datagram(("10.40.0.2", 8805), ("10.40.0.1", 8805), data)
        for data in soak.user_seeds(session):
            read = GTP_U_Header(data)
            assert bytes(read) == data, f"scapy makes something else of {data.hex()}"
            assert packets.Tunnelled(packets.tunnelled("10.30.1.2", "10.30.0.1", data)).teid == read.teid
            capture.datagram(("10.30.1.2", 2152), ("10.30.0.1", 2152), data)
        capture.flush()
        done = subprocess.run(["tshark", "-r", capture.path, "-Y", "_ws.malformed"], capture_output=True, text=True)
        assert done.returncode == 0 and not done.stdout.strip(), done.stdout + done.stderr
        counted = subprocess.run(["tshark", "-r", capture.path, "-Y", "pfcp or gtp"], capture_output=True, text=True)
        assert len(counted.stdout.splitlines()) == len(control) + 8, counted.stdout
    assert not isinstance(PFCP(control[0]).payload, Raw)
    print("the library agrees with scapy and tshark")
