"""Fragments, buffering, and what must not disturb: cases 76, 77, 79, 80."""

import time

import ie
import packets
from lab import DN, GNB, mark
from packets import IP, UDP, IPv6, Raw, gtpu
from rules import bar, far, pdi_uplink, pdr, qer, to_tunnel
from scapy.layers.inet import fragment
from smf import accept_report, report_answer
from suite import case, equal, eventually

GROUP = "data"


def whole(session, marker, size=600, dport=5000, number=77):
    return IP(src=session.v4, dst=DN, id=number) / UDP(sport=4000, dport=dport) / Raw(marker.ljust(size, b"f"))


def parts(packet, size=200):
    return [bytes(it) for it in fragment(packet, size)]


@case(76, "fragments, inner IPv6, inner garbage", GROUP,
      changed="inner fragments that come ahead of the first one are dropped and counted, not kept for it",
      short="that a first fragment is forgotten after 30 s is not waited for")
def fragments(lab):
    """TS 29.244 5.2.1: fragments that are not the first follow the first one's rule: no way round a
    filter. Those that come before it, or 30 s after it, are dropped and counted. Outer fragments are
    reassembled, in any order, and counted. Inner IPv6 is forwarded for a session that has it; what is no IP is
    dropped and counted."""
    shared = ie.choose(number=1)
    draft = lab.session(draft=True, v6=True)
    more = [pdr(3, pdi_uplink(shared, draft.user(False), ie.sdf("permit out 17 from any 6666 to assigned")), 3,
                precedence=10, removal=[0]), far(3, ie.DROP)]
    session = lab.session(v4=draft.v4, v6=draft.v6, tunnel=shared, more=more)
    number = 100
    for order, early in (([0, 1, 2, 3], 0), ([0, 3, 1, 2], 0), ([2, 0, 3, 1], 1), ([3, 2, 1, 0], 3)):
        for dport, fate in ((5000, "forwarded_uplink"), (6666, "action_drop")):
            number += 1
            pieces = parts(whole(session, mark(), 600, dport, number))
            equal(len(pieces), len(order), "fragments")
            before = lab.outcomes()
            seen = lab.comes_of(lambda: [lab.uplink(session, pieces[it]) for it in order])
            found = [it for it in seen.get("n6", []) if it[4:6] == number.to_bytes(2, "big")]
            wanted = [pieces[it][6:8] for it in order[early:]] if fate == "forwarded_uplink" else []
            equal([it[6:8] for it in found], wanted, f"fragments in order {order} to port {dport}")
            unknown = {"fragment_unknown": early} if early else {}
            lab.have_grown(before, **{fate: len(pieces) - early}, **unknown)
    if lab.is_soak:
        pieces = parts(whole(session, mark(), 600, 5000, number + 1))
        lab.comes_of(lambda: lab.uplink(session, pieces[0]))
        time.sleep(30.5)
        lab.is_counted(lambda: lab.uplink(session, pieces[1]), fragment_unknown=1)
    for number, order in enumerate(([0, 1, 2], [2, 0, 1])):
        marker = mark(900)
        outer = IP(src=GNB, dst=lab.upf, id=9 + number) / UDP(sport=2152, dport=2152, chksum=0) / Raw(
            gtpu(session.teid, packets.udp(session.v4, DN, marker), pdu=(0x10, 1)))
        pieces = parts(outer, 400)
        equal(len(pieces), 3, "outer fragments")
        before = lab.outcomes()
        for piece in order:
            lab.n3.send(pieces[piece])
        lab.at_dn(marker)
        # The last one is the packet that it completes, unless another lane has its session.
        taken = 2 if lab.lanes == 1 else None
        lab.have_grown(before, outer_fragment=taken, reassembled=1, forwarded_uplink=1)
    lab.goes_up(session, source=session.v6)
    garbage = packets.udp(session.v4, DN, mark())
    for first in (0x05, 0x15, 0x75, 0xF5, 0x44, 0x4F):
        lab.is_counted(lambda: lab.uplink(session, bytes([first]) + garbage[1:]), malformed=1)
    for broken in (garbage[:19], garbage[:2] + b"\xff\xff" + garbage[4:], garbage[:2] + b"\0\1" + garbage[4:]):
        lab.is_counted(lambda: lab.uplink(session, broken), malformed=1)
    six = bytes(IPv6(src=session.v6, dst="fd60:1::2") / UDP(sport=1, dport=2) / Raw(mark()))
    for broken in (six[:39], six[:4] + b"\xff\xff" + six[6:]):
        lab.is_counted(lambda: lab.uplink(session, broken), malformed=1)
    four_only = lab.session()
    lab.is_counted(lambda: lab.uplink(four_only, six), foreign_source=1)
    lab.goes(session)


@case(77, "buffering: one notification, order, limits, DROBU", GROUP)
def buffering(lab):
    """TS 29.244 5.2.4: one Downlink Data Report for the first packet, with its QFI (8.2.27); order is
    kept; not more packets than the BAR suggests, and not longer than the DL Buffering Duration of the answer to the report
    says; DROBU throws them away; memory is bounded, by packets of a session and of a lane."""
    count = 5
    session = lab.session(qers=[1], more=[bar(1, ie.u8(ie.SUGGESTED_PACKETS, count)), qer(1, qfi=9)])
    hold = far(2, ie.BUFF | ie.NOCP, None, ie.u8(ie.BAR_ID, 1), kind=ie.UPDATE_FAR)
    session.modify(hold)
    lab.smf.forget()
    marks = [mark() for _ in range(20)]
    held = lab.n6.burst([packets.udp(DN, session.v4, it) for it in marks])
    lab.drain()
    before = lab.outcomes()
    held.send(lab.n6.socket)
    assert not lab.fence(), "held packets came"
    # A packet is held anew, and counted so, when the rules have changed: by the answer to a report.
    lab.have_grown(before, held=None, hold_limit=len(marks) - count)
    found = lab.smf.reports(10, until=bool) + lab.smf.reports(1)
    equal(len(found), 1, "downlink data reports")
    assert found[0].get(ie.REPORT_TYPE)[0] & 1, "Report Type says DLDR"
    data = found[0].get(ie.DOWNLINK_DATA_REPORT)
    equal(data.number(ie.PDR_ID), 2, "the PDR")
    service = data.get(ie.DOWNLINK_DATA_SERVICE)
    assert service and service[0] & 2, f"Downlink Data Service Information without a QFI: {service}"
    equal(service[-1], 9, "the QFI")
    forward = far(2, ie.FORW, to_tunnel(session.gnb_teid, session.gnb, group=ie.UPDATE_FORWARDING), kind=ie.UPDATE_FAR)
    session.modify(forward)
    later = lab.goes_down(session)
    assert later.payload, "what comes later passes"
    session.modify(hold)
    lab.drain()
    held.send(lab.n6.socket)
    lab.fence()
    session.modify(forward)
    equal(payloads(lab.fence()), marks[:count], "what was held, in order")
    session.modify(far(2, ie.BUFF, None, kind=ie.UPDATE_FAR))
    before = lab.outcomes()
    held.send(lab.n6.socket)
    lab.fence()
    session.modify(ie.u8(ie.SMREQ_FLAGS, 1), forward)
    come = payloads(lab.fence())
    assert not come, f"{len(come)} packets that DROBU should have dropped"
    lab.have_grown(before, held=count, hold_limit=len(marks) - count, hold_discarded=count)
    lab.goes(session)
    held_for_a_time(lab, session, hold, forward)
    session.delete()
    room_for_held_packets(lab)


def payloads(seen):
    """Returns the UDP payloads of users' packets in GTP-U messages."""
    return [it.payload[28:] for it in map(packets.read, seen) if it and it.kind == 255]


def held_for_a_time(lab, session, hold, forward):
    """A DL Buffering Duration of 2 s (8.2.47) in the answer to the report ends the hold."""
    update = ie.ie(ie.UPDATE_BAR_IN_REPORT, ie.u8(ie.BAR_ID, 1), ie.u8(ie.BUFFERING_DURATION, 1))
    lab.smf.on_report = lambda smf, request: report_answer(request, update, seid=smf.lab.up_seid(smf, request.seid))
    session.modify(hold)
    lab.smf.forget()
    lab.n6.send(packets.udp(DN, session.v4, mark()))
    reports = lab.smf.reports(10, until=bool)
    assert reports, "no downlink data report"
    lab.smf.on_report = accept_report
    lab.smf.heartbeat()  # the answer is behind
    before, start = lab.outcomes(), time.monotonic()
    lab.n6.send(packets.udp(DN, session.v4, mark()))
    eventually(lambda: lab.outcomes()["hold_discarded"] > before["hold_discarded"], "the hold ends")
    # The time begins with the answer: after the report came, and before the heartbeat was answered.
    most, least = time.monotonic() - reports[-1].came, time.monotonic() - start
    assert 1.8 <= most and least <= 5, f"held for {least:.2f} to {most:.2f} s, it was to end after 2 s"
    assert not payloads(lab.fence()), "what was held too long came"
    # The paging has failed: another packet is a reason for another one.
    lab.smf.forget()

    def is_told():
        lab.n6.send(packets.udp(DN, session.v4, mark()))
        return lab.smf.reports(1, until=bool)

    eventually(is_told, "another downlink data report")
    session.modify(forward)
    lab.goes(session)


def room_for_held_packets(lab):
    """A session holds 64 packets, a lane 1024 (the limits of the configuration): no more are held, the
    others are dropped and counted, and those that are held come when they may."""
    each, of_lane, before = lab["held-packets"], lab["held-packets-per-lane"], lab.outcomes()
    full = of_lane * lab["lanes"] // each
    sessions = [lab.session() for _ in range(full + 2)]
    for it in sessions:
        it.modify(far(2, ie.BUFF, None, kind=ie.UPDATE_FAR))
    for it in sessions:
        lab.n6.at_once([packets.udp(DN, it.v4, mark())] * (each + 6))
        lab.fence()
    offered, room = len(sessions) * (each + 6), full * each
    lab.have_grown(before, held=room, hold_limit=offered - room)
    lab.drain()
    for it in sessions:
        it.modify(far(2, ie.FORW, to_tunnel(it.gnb_teid, it.gnb, group=ie.UPDATE_FORWARDING), kind=ie.UPDATE_FAR))
    # A lane looks at a few sessions in each turn, so an echo may pass some of what was held.
    come, end = payloads(lab.fence()), time.monotonic() + 10
    while len(come) < room and time.monotonic() < end:
        come += payloads(lab.fence())
    equal(len(come), room, "packets that were held")
    for it in sessions:
        lab.goes(it)


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


@case(80, "flood of echo requests and unknown TEIDs", GROUP,
      changed="the flood is as fast as the lane takes it, so that nothing is lost; delays beside a flood are "
              "measured by `make bench` (upf-flood), for no test judges by the clock",
      short="2 s instead of 20")
def flood(lab):
    """A flow of an established session loses nothing beside a flood that is as fast as the lane takes
    it: 256 of its packets for each one of the flow. Replies stay within their rates, each request has
    its outcome, and nothing is logged in the packet path: the fast path process writes nothing. (For
    that another UPF fails.)"""
    session = lab.session()
    flow = packets.tunnelled(session.gnb, session.upf, packets.gtpu(
        session.teid, packets.udp(session.v4, DN, mark()), pdu=(0x10, 1)))
    junk = [packets.tunnelled(GNB, lab.upf, gtpu(0, b"", 1, sequence=1)),
            packets.tunnelled(GNB, lab.upf, gtpu(0x00FE_0001, packets.udp("10.47.9.9", DN)))]
    each = 128
    burst = lab.n3.burst([*junk * each, flow])
    lab.goes_up(session)
    lab.fence()
    time.sleep(1.2)  # replies of before
    lab.drain()
    before, written, fences = lab.outcomes(), octets_written(lab), lab.fences
    start, rounds, replies = time.monotonic(), 0, []
    while rounds < 50 or time.monotonic() < start + (20 if lab.is_soak else 2):
        burst.send(lab.n3.socket)
        rounds += 1
        # The next one is sent when the flow's packet has come: no ring overflows.
        packet = lab.n6.receive(time.monotonic() + 10)
        assert packet is not None and b"<" in packet, f"of {rounds} packets of the flow the last did not come"
        replies += lab.n3.take()
    seconds = time.monotonic() - start
    replies += lab.fence()
    kinds = [it.kind for it in map(packets.read, replies) if it]
    echoes, errors = kinds.count(2), kinds.count(26)
    offered = rounds * each
    for name, count, rate in (("echo responses", echoes, "echoes-per-s"), ("error indications", errors, "errors-per-s")):
        # A tenth of a second of the rate may be answered at once.
        limit = lab[rate] * lab["lanes"] * (time.monotonic() - start + 0.1) + 1
        assert 1 <= count <= limit < offered, f"{count} {name} for {offered} in {seconds:.1f} s, limit {limit:.0f}"
    lab.have_grown(before, forwarded_uplink=rounds, unknown_tunnel=offered, error_indication_sent=errors,
                   error_indication_suppressed=offered - errors)
    after, asked = lab.outcomes(), lab.fences - fences
    answered, suppressed = (after[it] - before[it] for it in ("echo_answered", "echo_suppressed"))
    equal(answered + suppressed, offered + asked, "outcomes of echo requests")
    assert echoes <= answered <= echoes + asked, f"{answered} answered, {echoes} of the flood's came"
    # A wake-up of the peer is a write of eight octets, on memif up to four in a round; a line of a log
    # is longer, and each round has 256 packets to write about.
    most, written = 1000 + 32 * rounds, octets_written(lab) - written
    assert written < most, f"{written} octets written in the packet path, at most {most}"
    time.sleep(1.2)


def octets_written(lab):
    """Returns the octets that the fast path process has written, to files and pipes."""
    with open(f"/proc/{lab.processes()['fast']}/io") as file:
        return next(int(it.split()[1]) for it in file if it.startswith("wchar"))
