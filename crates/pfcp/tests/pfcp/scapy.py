"""scapy reads messages (`read`: lines of name and octets on standard input) or makes some (`make`)."""

import sys

from scapy.contrib import pfcp as p
from scapy.packet import NoPayload, Packet


def below(packet):
    """The packets inside this one, not deeper."""
    for value in packet.fields.values():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Packet):
                yield item
    if not isinstance(packet.payload, NoPayload):
        yield packet.payload


def walk(packet):
    yield packet
    for inside in below(packet):
        yield from walk(inside)


def forget(packet):
    """Makes scapy build it from its fields, not from the octets that it read."""
    for inside in walk(packet):
        inside.raw_packet_cache = inside.raw_packet_cache_fields = None


def strange(packet):
    """The elements that scapy does not know, or of which it does not know all."""
    for inside in walk(packet):
        if isinstance(inside, p.IE_NotImplemented) or inside.fields.get("extra_data"):
            yield str(inside.ietype)
        elif type(inside).__name__ in ("Raw", "Padding"):
            yield "raw"


def read():
    for line in sys.stdin:
        name, octets = line.split()
        packet = p.PFCP(bytes.fromhex(octets))
        unknown = ",".join(sorted(set(strange(packet))))
        forget(packet)
        try:
            again = bytes(packet).hex()
        except Exception:  # Its own encoder fails on what it does not know.
            again = "-"
        print(name, again == octets, unknown or "-")


def rules():
    user = p.IE_UE_IP_Address(ipv4="10.1.2.3", V4=1)
    return [
        p.IE_CreatePDR(IE_list=[
            p.IE_PDR_Id(id=1), p.IE_Precedence(precedence=100),
            p.IE_PDI(IE_list=[
                p.IE_SourceInterface(interface="Access"),
                p.IE_FTEID(CH=1, V4=1, CHID=1, choose_id=3),
                p.IE_NetworkInstance(instance="access"), user,
                p.IE_SDF_Filter(FD=1, flow_description="permit out ip from any to assigned"),
                p.IE_QFI(QFI=9)]),
            p.IE_OuterHeaderRemoval(header="GTP-U/UDP/IPv4"),
            p.IE_FAR_Id(id=7), p.IE_QER_Id(id=5), p.IE_URR_Id(id=6)]),
        p.IE_CreateFAR(IE_list=[
            p.IE_FAR_Id(id=7), p.IE_ApplyAction(FORW=1),
            p.IE_ForwardingParameters(IE_list=[
                p.IE_DestinationInterface(interface="Access"),
                p.IE_OuterHeaderCreation(GTPUUDPIPV4=1, TEID=0x01020304, ipv4="192.0.2.9")])]),
        p.IE_CreateQER(IE_list=[
            p.IE_QER_Id(id=5), p.IE_GateStatus(ul="OPEN", dl="CLOSED"),
            p.IE_MBR(ul=1000, dl=2000), p.IE_QFI(QFI=9)]),
        p.IE_CreateURR(IE_list=[
            p.IE_URR_Id(id=6), p.IE_MeasurementMethod(VOLUM=1, DURAT=1),
            p.IE_ReportingTriggers(volume_threshold=1, volume_quota=1),
            p.IE_VolumeThreshold(TOVOL=1, total=1000),
            p.IE_VolumeQuota(TOVOL=1, total=4000)]),
    ]


def make():
    node = p.IE_NodeId(id_type="IPv4", ipv4="192.0.2.7")
    seid = p.IE_FSEID(seid=0x0102030405060708, v4=1, ipv4="192.0.2.7")
    time = p.IE_RecoveryTimeStamp(timestamp=3900000000)
    establish = [node, seid, *rules(), p.IE_PDNType(pdn_type="IPv4")]
    messages = {
        "heartbeat": p.PFCP(S=0, seq=5) / p.PFCPHeartbeatRequest(IE_list=[time]),
        "association": p.PFCP(S=0, seq=6) / p.PFCPAssociationSetupRequest(
            IE_list=[node, time, p.IE_CPFunctionFeatures(OVRL=1)]),
        "establishment": p.PFCP(S=1, seid=0, seq=7, MP=1, priority=3)
        / p.PFCPSessionEstablishmentRequest(IE_list=establish),
        "deletion": p.PFCP(S=1, seid=9, seq=8) / p.PFCPSessionDeletionRequest(),
    }
    for name, message in messages.items():
        print(name, bytes(message).hex())


{"read": read, "make": make}[sys.argv[1]]()
