"""GTP-U itself: cases 57 to 67."""

import time

import ie
import packets
from lab import DN, GNB, mark
from packets import IP, gtpu
from rules import far, fresh_tunnel, qer, to_tunnel
from suite import case, equal, eventually

GROUP = "data"
UNKNOWN = 0x00DE_AD01


def families(lab):
    """Returns the addresses of a gNB and of the UPF, of each family that N3 has."""
    return [(GNB, lab.upf)] + ([("fd30:1::2", lab.upf6)] if lab.upf6 else [])


@case(57, "echo request with and without sequence number", GROUP)
def echo(lab):
    """4.4, 7.2.1: the response goes to the port that the request came from; the same sequence number,
    Recovery 0. Over IPv4 and IPv6."""
    for source, destination in families(lab):
        for sequence, port in ((0x1234, 2152), (None, 2152), (7, 33_333)):
            lab.drain()
            lab.gnb(gtpu(0, b"", 1, sequence=sequence), source, destination, sport=port)
            found = packets.read(lab.n3.find(lambda it: (got := packets.read(it)) and got.kind == 2))
            equal((found.sport, found.dport), (2152, port), "ports")
            equal((found.outer.src, found.outer.dst), (destination, source), "addresses")
            assert sequence is None or found.sequence == sequence, f"sequence {found.sequence}"
            equal((found.payload, found.teid), (b"\x0e\0", 0), "Recovery and TEID")
            assert packets.is_sound(found.packet), "checksums"
    # Trap: a sender whose device completes checksums, and a peer without a program of its own.
    said = lab.kernel_echo()
    equal(said[1], 2, "an echo of a socket of Linux, with its checksum left to the device")


def error_indications(seen):
    found = [packets.read(it) for it in seen]
    return [it for it in found if it and it.kind == 26]


@case(58, "G-PDU for an unknown TEID", GROUP)
def unknown_teid(lab):
    """7.3.1: Error Indication to port 2152 with TEID Data I and our address of the tunnel; it may have
    a UDP port extension header. At most so many a second. (Quiet after a restart: case 82's group.)"""
    for source, destination in families(lab):
        lab.drain()
        lab.gnb(gtpu(UNKNOWN, packets.udp("10.47.9.9", DN)), source, destination, sport=3333)
        found = error_indications([lab.n3.find(lambda it: bool(error_indications([it])))])[0]
        equal((found.dport, found.teid, found.outer.dst), (2152, 0, source), "port, TEID, address")
        address = ie.octets(destination)
        wanted = b"\x10" + UNKNOWN.to_bytes(4, "big") + b"\x85" + len(address).to_bytes(2, "big") + address
        equal(found.payload, wanted, "TEID Data I and peer address")
        if 0x40 in dict(found.extensions):
            equal(dict(found.extensions)[0x40][:2], (3333).to_bytes(2, "big"), "UDP port extension header")
    start, count = time.monotonic(), 3000
    message = packets.tunnelled(GNB, lab.upf, gtpu(UNKNOWN, packets.udp("10.47.9.9", DN)))
    lab.drain()
    for _ in range(count):
        lab.n3.send(message)
    answers = len(error_indications(lab.fence()))
    limit = lab["errors-per-s"] * (time.monotonic() - start + 2)
    assert 1 <= answers <= limit < count, f"{answers} answers, limit {limit:.0f}"
    time.sleep(1.2)


@case(59, "end marker for an unknown TEID", GROUP)
def unknown_end_marker(lab):
    """7.3.2: discarded silently."""
    lab.is_dropped(lambda: lab.gnb(gtpu(UNKNOWN, b"", 254)))


@case(60, "GTP version 0 and 2, GTP', unknown message type", GROUP)
def versions(lab):
    """5.1, 11: discarded, also for a tunnel that exists."""
    session = lab.session()
    inner = packets.udp(session.v4, DN, mark())
    for flags in (0x10, 0x50, 0x70, 0xF0, 0x20, 0x00):
        lab.is_dropped(lambda: lab.gnb(gtpu(session.teid, inner, flags=flags)))
    lab.is_dropped(lambda: lab.gnb(gtpu(0, b"", 1, flags=0x22)))
    for kind in (0, 3, 4, 99, 200):
        lab.is_dropped(lambda: lab.gnb(gtpu(session.teid, inner, kind)))
    lab.goes(session)


@case(61, "truncated header, wrong lengths, extension headers that do not end", GROUP)
def broken(lab):
    """5.2, 11: discarded and counted, each as malformed; nothing is answered and the tunnel goes on."""
    session = lab.session()
    inner = packets.udp(session.v4, DN, mark())
    good = gtpu(session.teid, inner, pdu=(0x10, 1))
    plain = gtpu(session.teid, inner)
    bad = [good[:5], good[:8], good[:11], good[:13], b"", good[:2] + b"\xff\xff" + good[4:],
           good[:2] + (len(good) - 7).to_bytes(2, "big") + good[4:],
           good[:12] + b"\0" + good[13:],  # an extension header of no length
           good[:12] + b"\xff" + good[13:],
           good[:15] + b"\x85" + good[16:],  # the inner packet is no extension header
           plain[:2] + b"\0\0" + plain[4:], gtpu(session.teid, b""), gtpu(session.teid, inner[:10])]
    chain = gtpu(session.teid, inner, extensions=[(0x3E, b"\0\0")] * 200)
    for message in [*bad, chain[:-len(inner)]]:
        lab.is_counted(lambda: lab.gnb(message), malformed=1)
    lab.goes(session)


@case(62, "unknown extension headers", GROUP)
def extensions(lab):
    """5.2.1, 7.2.3: we are the endpoint, so comprehension bits 11 and 10 mean type 31 with what we
    know, and the packet goes no further; 00 and 01 are skipped. On a tunnel that exists."""
    session = lab.session()
    inner = packets.udp(session.v4, DN, mark())
    for kind in (0xFE, 0xBE):
        seen = lab.comes_of(lambda: lab.gnb(gtpu(session.teid, inner, extensions=[(kind, b"\0\0")])))
        found = [packets.read(it) for it in seen.pop("n3", [])]
        equal(([it.kind for it in found], seen), ([31], {}), f"answer to extension header {kind:#x}")
        equal((found[0].dport, found[0].payload[0]), (2152, 141), "port and Extension Header Type List")
        assert 0x85 in found[0].payload[2:], "the list has the PDU session container"
    for kind in (0x3E, 0x7E):
        lab.goes_up(session, extensions=[(kind, b"\0\0"), (kind, b"\0" * 6)])
    lab.goes(session)


@case(63, "E, S and PN in all combinations", GROUP)
def flags(lab):
    """5.1: one flag set means that all three fields are there; those that are not flagged are not
    evaluated."""
    session = lab.session()
    for bits in range(8):
        marker = mark()
        inner = packets.udp(session.v4, DN, marker)
        optional = b""
        if bits:
            optional = b"\x12\x34\x56" + (b"\x85" if bits & 4 else b"\x99")
        if bits & 4:
            optional += b"\x01\x10\x01\x00"
        message = bytes([0x30 | bits, 255]) + (len(optional) + len(inner)).to_bytes(2, "big")
        lab.gnb(message + session.teid.to_bytes(4, "big") + optional + inner)
        equal(IP(lab.at_dn(marker)).payload.payload.load, marker, f"flags {bits}")


@case(64, "PDU session container, both ways", GROUP)
def container(lab):
    """5.2.2.7, TS 38.415: downlink type 0 with the QFI of the QER; RQI and PPI when the QER asks for
    them. Uplink: the QFI must be one of the PDR's, if it has any."""
    session = lab.session(uplink=[ie.u8(ie.QFI, 9)], qers=[1], more=[qer(1, qfi=9)])
    lab.goes_up(session, pdu=(0x10, 9))
    lab.is_dropped_up(session, pdu=(0x10, 8))
    lab.is_dropped_up(session, pdu=None)
    equal(lab.goes_down(session).pdu, b"\x00\x09", "container")
    session.modify(qer(1, ie.u8(ie.RQI, 1), qfi=9, kind=ie.UPDATE_QER))
    equal(lab.goes_down(session).pdu, b"\x00\x49", "container with RQI")
    session.delete()
    paging = lab.session(qers=[1], more=[qer(1, ie.u8(ie.PAGING_POLICY_INDICATOR, 5), qfi=7)])
    found = lab.goes_down(paging).pdu
    equal((found[:3], len(found) % 4), (b"\x00\x87\xa0", 2), "container with PPI")


@case(65, "error indication received, and a spoofed one", GROUP)
def error_indication(lab):
    """TS 29.244 5.10: Session Report ERIR with the remote F-TEID. One whose peer address is not the
    far end of the tunnel, or that names no tunnel, is ignored and counted: in the lane if the sender
    is not the peer that it names, else by the control plane, which knows the tunnels."""
    session = lab.session()
    lab.goes(session)

    def indicate(teid, peer, source=None):
        body = b"\x10" + teid.to_bytes(4, "big") + b"\x85\0\4" + ie.octets(peer)
        lab.gnb(gtpu(0, body, 26, sequence=0), source or peer)
    lab.smf.forget()
    unknown = 'upf_error_indications_ignored_total'
    before, ignored = lab.outcomes(), lab.metrics()[unknown]
    indicate(session.gnb_teid, "10.30.1.66")
    indicate(0x00AB_CDEF, session.gnb)
    indicate(session.gnb_teid, "10.30.1.66", session.gnb)
    lab.fence()
    lab.have_grown(before, error_indication_received=2, error_indication_ignored=1)
    eventually(lambda: lab.metrics()[unknown] == ignored + 2, "both unknown tunnels are counted")
    assert not lab.smf.reports(0.5), "a report of a spoofed error indication"
    indicate(session.gnb_teid, session.gnb)
    found = lab.smf.reports(10, until=bool)
    assert found and found[0].get(ie.REPORT_TYPE)[0] & 4, f"no ERIR: {found}"
    remote = found[0].get(ie.ERROR_INDICATION_REPORT).get(ie.F_TEID)
    equal(ie.read_f_teid(remote)[:2], (session.gnb_teid, session.gnb), "remote F-TEID")
    equal(found[0].seid, session.seid, "header SEID")
    lab.have_grown(before, error_indication_received=3, error_indication_ignored=1)
    equal(lab.metrics()[unknown], ignored + 2, "unknown tunnels")


@case(66, "type 31 and echo response received", GROUP)
def informative(lab):
    """7.2.3: ignored. Where the UPF probes its paths (a run of `make test` has that) the peer that falls
    silent is told to the SMF by its address (TS 29.244 7.4.5.1, 7.4.5.1.2), and again when it is back."""
    lab.is_dropped(lambda: (lab.gnb(gtpu(0, b"\x8d\x01\x85", 31, sequence=0)),
                            lab.gnb(gtpu(0, b"\x0e\0", 2, sequence=77)), lab.gnb(gtpu(0, b"", 31)),
                            lab.gnb(gtpu(0, b"\x0e", 2, sequence=77))))
    if lab["probe-s"]:
        probed(lab)


def probed(lab):
    peer = "10.30.1.77"
    session = lab.session(gnb=peer)
    eventually(lambda: lab.fence() is not None and lab.probes[peer], "an Echo Request to the gNB")
    lab.goes(session)
    lab.mute.add(peer)
    for kind, report in ((1, ie.PATH_FAILURE), (2, ie.PATH_RECOVERY)):
        eventually(lambda: lab.fence() is not None and path_report(lab, peer, kind, report), "the node report", 60)
        lab.goes(session)
        lab.mute.discard(peer)


def path_report(lab, peer, kind, report):
    """Returns true if a node report of this type about the peer has come."""
    while not lab.smf.requests.empty():
        request = lab.smf.requests.get_nowait()
        if request.kind != ie.NODE_REPORT or not request.get(ie.NODE_REPORT_TYPE)[0] & kind:
            continue
        found = [ie.Group(it).get(ie.REMOTE_GTP_U_PEER) for it in request.all(report)]
        if any(ie.octets(peer) in it for it in found):
            return True
    return False


@case(67, "end marker when a FAR changes tunnels", GROUP)
def end_marker(lab):
    """7.3.2, TS 23.501 5.8.2.9: with SNDEM one end marker goes to the old tunnel, behind its last packet;
    what comes later goes to the new one."""
    session = lab.session()
    old, new = session.gnb_teid, fresh_tunnel()
    lab.goes_down(session)
    lab.drain()
    there = to_tunnel(new, "10.30.1.3", group=ie.UPDATE_FORWARDING, flags=2)
    session.modify(far(2, ie.FORW, there, kind=ie.UPDATE_FAR))
    found = lab.goes_down_until(session, new)
    markers = [(it.teid, it.outer.dst) for it in found if it.kind == 254]
    equal(markers, [(old, session.gnb)], "end markers")
    # A packet by the new tunnel may be ahead of it: that is another path.
    kinds = [it.kind for it in found if it.teid == old]
    equal(kinds[kinds.index(254):], [254], "nothing for the old tunnel behind it")
    # Without the flag there is none.
    session.modify(far(2, ie.FORW, to_tunnel(old, session.gnb, group=ie.UPDATE_FORWARDING), kind=ie.UPDATE_FAR))
    found = lab.goes_down_until(session, old)
    assert not [it for it in found if it.kind == 254], "an end marker that nobody asked for"
    # Each tunnel that moves gets its own, also the one to another UPF.
    n9 = {"destination": ie.CORE, "instance": "n9"}
    old = {"n3": fresh_tunnel(), "n9": fresh_tunnel()}
    session = lab.session(fars=[far(1, ie.FORW, to_tunnel(old["n9"], "10.90.1.2", **n9)),
                                far(2, ie.FORW, to_tunnel(old["n3"], GNB))])
    lab.drain()
    session.modify(far(1, ie.FORW, to_tunnel(fresh_tunnel(), "10.90.1.3", group=ie.UPDATE_FORWARDING, flags=2, **n9),
                       kind=ie.UPDATE_FAR),
                   far(2, ie.FORW, to_tunnel(fresh_tunnel(), "10.30.1.3", group=ie.UPDATE_FORWARDING, flags=2),
                       kind=ie.UPDATE_FAR))
    for name, wire, peer in (("n3", lab.n3, GNB), ("n9", lab.n9, "10.90.1.2")):
        marker = packets.read(wire.find(lambda it: getattr(packets.read(it), "kind", None) == 254))
        equal((marker.teid, marker.outer.dst), (old[name], peer), f"the end marker on {name}")


