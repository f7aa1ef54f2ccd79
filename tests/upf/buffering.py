"""Fragments, buffering, and what must not disturb: cases 76, 77, 79, 80."""

import time

import ie
import packets
from lab import DN, GNB, mark
from packets import IP, UDP, IPv6, Raw, gtpu
from rules import bar, far, pdi_uplink, pdr, to_tunnel
from scapy.layers.inet import fragment
from suite import case, equal

GROUP = "data"


def whole(session, marker, size=600, dport=5000, number=77):
    return IP(src=session.v4, dst=DN, id=number) / UDP(sport=4000, dport=dport) / Raw(marker.ljust(size, b"f"))


def parts(packet, size=200):
    return [bytes(it) for it in fragment(packet, size)]


@case(76, "fragments, inner IPv6, inner garbage", GROUP)
def fragments(lab):
    """TS 29.244 5.2.1: fragments that are not the first follow the first one's rule, also when they
    come before it (bounded, timed): no way round a filter. Outer fragments: reassembled or counted.
    Inner IPv6 is forwarded for a session that has it; what is no IP is dropped."""
    shared = ie.choose(number=1)
    draft = lab.session(draft=True, v6=True)
    more = [pdr(3, pdi_uplink(shared, draft.user(False), ie.sdf("permit out 17 from any 6666 to assigned")), 3,
                precedence=10, removal=[0]), far(3, ie.DROP)]
    session = lab.session(v4=draft.v4, v6=draft.v6, tunnel=shared, more=more)
    number = 100
    for order in ([0, 1, 2, 3], [0, 3, 1, 2], [3, 2, 1, 0]):
        for dport, passes in ((5000, True), (6666, False)):
            number += 1
            pieces = parts(whole(session, mark(), 600, dport, number))
            order = [it for it in order if it < len(pieces)]
            seen = lab.comes_of(lambda: [lab.uplink(session, pieces[it]) for it in order])
            found = [it for it in seen.get("n6", []) if it[4:6] == number.to_bytes(2, "big")]
            if not passes:
                assert not found, f"fragments pass a closed filter in order {order}"
            elif order[0] == 0:
                equal(sorted(it[6:8] for it in found), sorted(it[6:8] for it in pieces), f"fragments in order {order}")
            else:
                lost = len(pieces) - len(found)
                assert lost in (0, len(pieces) - 1), f"{len(found)} of {len(pieces)} fragments out of order"
    outer = IP(src=GNB, dst=lab.upf, id=9) / UDP(sport=2152, dport=2152, chksum=0) / Raw(
        gtpu(session.teid, packets.udp(session.v4, DN, mark(900)), pdu=(0x10, 1)))
    for piece in parts(outer, 400):
        lab.n3.send(piece)
    lab.fence()
    lab.goes_up(session, source=session.v6)
    garbage = packets.udp(session.v4, DN, mark())
    for first in (0x05, 0x15, 0x75, 0xF5, 0x44, 0x4F):
        lab.is_dropped(lambda: lab.uplink(session, bytes([first]) + garbage[1:]))
    for broken in (garbage[:19], garbage[:2] + b"\xff\xff" + garbage[4:], garbage[:2] + b"\0\1" + garbage[4:]):
        lab.is_dropped(lambda: lab.uplink(session, broken))
    six = bytes(IPv6(src=session.v6, dst="fd60:1::2") / UDP(sport=1, dport=2) / Raw(mark()))
    for broken in (six[:39], six[:4] + b"\xff\xff" + six[6:]):
        lab.is_dropped(lambda: lab.uplink(session, broken))
    four_only = lab.session()
    lab.is_dropped(lambda: lab.uplink(four_only, six))
    lab.goes(session)


@case(77, "buffering: one notification, order, limits, DROBU", GROUP)
def buffering(lab):
    """TS 29.244 5.2.4: one Downlink Data Report for the first packet; order is kept; not more packets
    than the BAR suggests; DROBU throws them away; memory is bounded."""
    count = 5
    session = lab.session(more=[bar(1, ie.u8(ie.SUGGESTED_PACKETS, count))])
    session.modify(far(2, ie.BUFF | ie.NOCP, None, ie.u8(ie.BAR_ID, 1), kind=ie.UPDATE_FAR))
    lab.smf.forget()
    marks = [mark() for _ in range(20)]
    lab.drain()
    for it in marks:
        lab.n6.send(packets.udp(DN, session.v4, it))
    assert not lab.fence(), "held packets came"
    found = lab.smf.reports(10, until=bool) + lab.smf.reports(1)
    equal(len(found), 1, "downlink data reports")
    assert found[0].get(ie.REPORT_TYPE)[0] & 1, "Report Type says DLDR"
    equal(found[0].get(ie.DOWNLINK_DATA_REPORT).number(ie.PDR_ID), 2, "the PDR")
    forward = far(2, ie.FORW, to_tunnel(session.gnb_teid, session.gnb, group=ie.UPDATE_FORWARDING), kind=ie.UPDATE_FAR)
    session.modify(forward)
    later = lab.goes_down(session)
    assert later.payload, "what comes later passes"
    session.modify(far(2, ie.BUFF | ie.NOCP, None, ie.u8(ie.BAR_ID, 1), kind=ie.UPDATE_FAR))
    lab.drain()
    for it in marks:
        lab.n6.send(packets.udp(DN, session.v4, it))
    lab.fence()
    session.modify(forward)
    come = [packets.read(it) for it in lab.fence()]
    numbers = [it.payload[28:] for it in come if it and it.kind == 255]
    equal(numbers, marks[:count], "what was held, in order")
    session.modify(far(2, ie.BUFF, None, kind=ie.UPDATE_FAR))
    for it in marks:
        lab.n6.send(packets.udp(DN, session.v4, it))
    lab.fence()
    session.modify(ie.u8(ie.SMREQ_FLAGS, 1), forward)
    come = [it for it in lab.fence() if b"<" in it]
    assert not come, f"{len(come)} packets that DROBU should have dropped"
    lab.goes(session)


@case(79, "packets for a session that is being deleted", GROUP)
def while_deleted(lab):
    """Dropped, or answered with an error indication; nothing else of it is seen, and who comes after
    it is not disturbed."""
    other = lab.session()
    for _ in range(30):
        session = lab.session()
        inner, back = packets.udp(session.v4, DN, mark()), packets.udp(DN, session.v4, mark())
        for at in range(20):
            lab.uplink(session, inner)
            lab.n6.send(back)
            if at == 10:
                lab.smf.send(ie.message(ie.DELETE, lab.smf.sequence(), seid=session.up_seid))
        lab.smf.heartbeat()
        seen = lab.comes_of(lambda: (lab.uplink(session, inner), lab.n6.send(back)))
        kinds = {packets.read(it).kind for it in seen.get("n3", []) if packets.read(it)}
        assert kinds <= {26} and "n6" not in seen, f"after the deletion: {seen}"
    lab.goes(other)


@case(80, "flood of echo requests and unknown TEIDs", GROUP)
def flood(lab):
    """A flow of an established session loses nothing beside a flood, and replies stay within their
    rate. (The delays are measured by `make bench`: no test judges by the clock.) The reason that
    another UPF fails: it logs in the packet path."""
    session = lab.session()
    junk = [packets.tunnelled(GNB, lab.upf, gtpu(0, b"", 1, sequence=1)),
            packets.tunnelled(GNB, lab.upf, gtpu(0x00FE_0001, packets.udp("10.47.9.9", DN)))]
    lab.goes_up(session)
    lab.drain()
    start, come, answers, good = time.monotonic(), 0, 0, 300
    for number in range(good):
        for it in junk * 15:
            lab.n3.send(it)
        lab.uplink(session, packets.udp(session.v4, DN, mark()))
        time.sleep(0.002)
        come += sum(b"<" in it for it in lab.n6.take())
        # No more is under way than a ring holds, however slow the machine is.
        while number + 1 - come > 16:
            packet = lab.n6.receive(time.monotonic() + 5)
            assert packet is not None, f"of {number + 1} packets of the flow {come} came"
            come += b"<" in packet
        answers += len(lab.n3.take())
    answers += len(lab.fence())
    come += sum(b"<" in it for it in lab.n6.take())
    equal(come, good, "packets of the flow that came")
    limit = (lab["errors-per-s"] + lab["echoes-per-s"]) * (time.monotonic() - start + 2)
    assert answers < limit, f"{answers} replies, limit {limit:.0f}"
    time.sleep(1.2)


