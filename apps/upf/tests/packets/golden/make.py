"""Makes arrives.pcap and leaves.pcap with scapy, which knows nothing of this UPF.

Each packet of the one is what a base station or a server sends, the packet in the same place of the
other what must leave: `python3 make.py` in a Python with scapy 2.8.
"""
from scapy.contrib.gtp import GTP_U_Header, GTPPDUSessionContainer
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import wrpcap

OUR3, GNB3 = "02:00:00:00:03:01", "02:00:00:00:03:09"
OUR6, BEYOND6 = "02:00:00:00:06:01", "02:00:00:00:06:09"
USER, SERVER, GNB, OUR = "10.45.0.5", "192.0.2.7", "10.3.0.9", "10.3.0.1"
USER6, SERVER6 = "2001:db8:45:5::1", "2001:db8:7::7"
# Session 261 of 1024, generation 3.
TEID, GNB_TEID = 3 << 10 | 261, 0x900

arrives, leaves = [], []


def up(inner, routed, outer=None, **header):
    """From the base station to the data network."""
    outer = outer or IP(src=GNB, dst=OUR, ttl=60)
    frame = Ether(src=GNB3, dst=OUR3) / outer / UDP(sport=33333, dport=2152)
    arrives.append(frame / GTP_U_Header(teid=TEID, **header) / inner)
    leaves.append(Ether(src=OUR6, dst=BEYOND6) / routed)


def container(qfi):
    return GTPPDUSessionContainer(type=1, QFI=qfi)


def down(inner, routed):
    """From the data network to the base station."""
    arrives.append(Ether(src=BEYOND6, dst=OUR6) / inner)
    outer = IP(src=OUR, dst=GNB, ttl=64, id=0, flags="DF", tos=routed.tos if IP in routed else routed.tc)
    header = GTP_U_Header(teid=GNB_TEID) / GTPPDUSessionContainer(type=0, QFI=9)
    leaves.append(Ether(src=OUR3, dst=GNB3) / outer / UDP(sport=2152, dport=2152, chksum=0) / header / routed)


def both4(payload, **fields):
    """A user's packet to the server before and behind us."""
    return [IP(src=USER, dst=SERVER, ttl=ttl, **fields) / payload for ttl in (64, 63)]


def both6(payload, **fields):
    return [IPv6(src=USER6, dst=SERVER6, hlim=hops, **fields) / payload for hops in (64, 63)]


up(*both4(UDP(sport=1, dport=53) / Raw(b"query")))
up(*both4(TCP(sport=4000, dport=80, flags="S")), E=1, S=1, seq=7)
up(container(5) / both4(ICMP() / Raw(b"ping"))[0], both4(ICMP() / Raw(b"ping"))[1])
up(container(5) / both6(UDP(sport=1, dport=53) / Raw(b"six"))[0], both6(UDP(sport=1, dport=53) / Raw(b"six"))[1])
up(*both4(UDP(sport=1, dport=53) / Raw(bytes(1400)), tos=0xb8), outer=IP(src=GNB, dst=OUR, tos=0x2e, options=[]))
up(*both6(IPv6ExtHdrDestOpt() / UDP(sport=1, dport=9) / Raw(b"options")))
up(*both6(ICMPv6EchoRequest(data=b"ping")), outer=IPv6(src="fd03::9", dst="fd03::1"))
up(*both4(Raw(bytes(24)), proto=17, frag=3, id=99))
up(*both6(IPv6ExtHdrFragment(nh=17, offset=3, m=1, id=5) / Raw(bytes(24))))
up(*both4(Raw(bytes(range(40))), proto=50))


def back4(payload, **fields):
    return [IP(src=SERVER, dst=USER, ttl=ttl, **fields) / payload for ttl in (64, 63)]


def back6(payload, **fields):
    return [IPv6(src=SERVER6, dst=USER6, hlim=hops, **fields) / payload for hops in (64, 63)]


down(*back4(UDP(sport=53, dport=1) / Raw(b"answer")))
down(*back4(TCP(sport=80, dport=4000, flags="SA"), flags="DF", id=3))
down(*back6(UDP(sport=53, dport=1) / Raw(b"answer in six"), tc=0x22))
down(*back4(UDP(sport=53, dport=1) / Raw(bytes(1400)), tos=0xb9))
down(*back4(ICMP(type=0) / Raw(b"pong")))
down(*back6(IPv6ExtHdrFragment(nh=17, offset=3, m=0, id=5) / Raw(bytes(24))))

wrpcap("arrives.pcap", arrives)
wrpcap("leaves.pcap", leaves)
