"""PFCP sessions that change and end: cases 44 to 50, 53, 54."""

import time

import ie
import packets
from lab import DN, mark
from node import gone_within
from rules import far, fresh_tunnel, pdi_downlink, pdr, to_tunnel, urr
from suite import case, equal

GROUP = "session"


@case(44, "exact retransmission, and the same after N1 x T1", GROUP)
def retransmission(lab):
    """6.4: the same bytes are answered with the same bytes and nothing is done twice; when the
    answer is not kept any more, it is a new request."""
    smf, draft = lab.smf, lab.session(draft=True)
    sequence = smf.sequence()
    request = ie.message(ie.ESTABLISH, sequence, ie.node_id(smf.name), smf.f_seid(draft.seid), *draft.parts(), seid=0)
    answers = []
    for _ in range(4):
        answers.append(smf.exchange(request).bytes)
    equal(len(set(answers)), 1, "different answers to one request")
    draft.learn(ie.Message(answers[0]))
    lab.goes(draft)
    change = ie.message(ie.MODIFY, smf.sequence(), far(2, ie.DROP, kind=ie.UPDATE_FAR), seid=draft.up_seid)
    equal(smf.exchange(change).bytes, smf.exchange(change).bytes, "answers to a modification")
    deletion = ie.message(ie.DELETE, smf.sequence(), seid=draft.up_seid)
    first = smf.exchange(deletion)
    equal((first.cause, smf.exchange(deletion).bytes), (1, first.bytes), "deletion repeated")
    time.sleep(lab["n1"] * lab["t1-ms"] / 1000 * 2 + 0.5)
    equal(smf.exchange(deletion).cause, 65, "deletion after the answer is forgotten")
    again = lab.session(v4=draft.v4)
    lab.goes(again)


@case(45, "unknown SEID; a report answered with cause 65", GROUP)
def unknown_seid(lab):
    """7.2.2: modification and deletion are answered with cause 65, SEID 0. A Session Report Response
    with cause 65 is never answered: the UPF deletes its session, for nobody knows it any more."""
    for kind in (ie.MODIFY, ie.DELETE):
        for seid in (0, 0xFFFF_FFFF_FFFF_FFFF, 0x1234_0000_0001):
            answer = lab.smf.request(kind, seid=seid)
            equal((answer.cause, answer.seid), (65, 0), f"type {kind}, SEID {seid:#x}")
    session = lab.session()
    session.modify(far(2, ie.BUFF | ie.NOCP, kind=ie.UPDATE_FAR))
    lab.smf.on_report = lambda smf, request: ie.message(
        ie.REPORT + 1, request.sequence, ie.u8(ie.CAUSE, 65), seid=smf.lab.up_seid(smf, request.seid))
    lab.n6.send(packets.udp(DN, session.v4, mark()))
    assert lab.smf.reports(10, until=bool), "no downlink data report"
    gone_within(lab, session, 10)
    equal(lab.smf.request(ie.DELETE, seid=session.up_seid).cause, 65, "deletion afterwards")


@case(46, "from buffering to forwarding with a new tunnel", GROUP)
def flush(lab):
    """5.2.4: what is held leaves by the rules in force then, in order, before what comes later."""
    session = lab.session()
    session.modify(far(2, ie.BUFF | ie.NOCP, kind=ie.UPDATE_FAR))
    marks = [mark() for _ in range(8)]
    lab.drain()
    for it in marks[:6]:
        lab.n6.send(packets.udp(DN, session.v4, it))
    assert not lab.fence(), "held packets came"
    tunnel = fresh_tunnel()
    session.modify(far(2, ie.FORW, to_tunnel(tunnel, session.gnb, group=ie.UPDATE_FORWARDING), kind=ie.UPDATE_FAR))
    for it in marks[6:]:
        lab.n6.send(packets.udp(DN, session.v4, it))
    come = [lab.at_gnb(b"<") for _ in marks]
    equal([next(it for it in marks if it in found.payload) for found in come], marks, "order")
    equal({it.teid for it in come}, {tunnel}, "TEID")


@case(47, "modification that fails half-way", GROUP)
def half_way(lab):
    """6.3.3, 8.2.80: cause 73, the Failed Rule ID, and the session is as it was."""
    session = lab.session()
    new = far(2, ie.FORW, to_tunnel(fresh_tunnel(), session.gnb, group=ie.UPDATE_FORWARDING), kind=ie.UPDATE_FAR)
    wrong = pdr(9, pdi_downlink(session.user(True)), 99)
    answer = session.modify(new, far(7, ie.DROP), wrong, cause=73)
    equal(answer.get(ie.FAILED_RULE_ID), b"\0\0\x09", "Failed Rule ID")
    lab.goes(session)
    session.modify(far(7, ie.DROP))
    unknown = far(55, ie.DROP, kind=ie.UPDATE_FAR)
    answer = session.modify(new, unknown, cause=73)
    equal(answer.get(ie.FAILED_RULE_ID), b"\1\0\0\0\x37", "Failed Rule ID")
    lab.goes(session)


@case(48, "remove a PDR in use; remove a FAR still referenced", GROUP,
      changed="the FAR: refused by cause 73, so that no rule points nowhere")
def removal(lab):
    """5.6.3, 7.5.4.6: a PDR goes, with its packets, at once. The text does not say what becomes of a
    PDR whose FAR is removed: we refuse the whole modification (cause 73), for a PDR must have a FAR.
    Removed together with its PDRs the FAR goes."""
    session = lab.session()
    lab.goes(session)
    session.modify(ie.ie(ie.REMOVE_FAR, ie.u32(ie.FAR_ID, 2)), cause=73)
    lab.goes(session)
    session.modify(ie.ie(ie.REMOVE_PDR, ie.u16(ie.PDR_ID, 2)))
    lab.is_dropped_down(session)
    lab.goes_up(session)
    session.modify(ie.ie(ie.REMOVE_PDR, ie.u16(ie.PDR_ID, 1)), ie.ie(ie.REMOVE_FAR, ie.u32(ie.FAR_ID, 1)))
    lab.is_dropped(lambda: lab.n6.send(packets.udp(DN, session.v4, mark())))


def usage(answer, kind):
    """Returns the usage reports of a message by URR: number, trigger bits, volumes."""
    found = {}
    for it in answer.all(kind):
        trigger = int.from_bytes(it.get(ie.USAGE_REPORT_TRIGGER), "little")
        measured = it.get(ie.VOLUME_MEASUREMENT)
        volumes = ie.read_volume(measured) if measured else None
        found[it.number(ie.URR_ID)] = it.number(ie.UR_SEQN), trigger, volumes
    return found


@case(49, "Query URR, QAURR", GROUP)
def query(lab):
    """5.2.2, 8.2.31: usage reports in the answer, trigger IMMER, octets since the last report; with
    QAURR of every URR."""
    session = lab.session(urrs=[1, 2], more=[urr(1), urr(2)])
    up = lab.goes_up(session)
    down = lab.goes_down(session)
    length, back = lab.octets(up), lab.octets(down.payload)
    answer = session.modify(ie.ie(ie.QUERY_URR, ie.u32(ie.URR_ID, 1)))
    equal(usage(answer, ie.USAGE_SMR), {1: (0, 0x80, [length + back, length, back])}, "URR 1")
    lab.goes_up(session)
    answer = session.modify(ie.u8(ie.SMREQ_FLAGS, 4))
    wanted = {1: (1, 0x80, [length, length, 0]), 2: (0, 0x80, [2 * length + back, 2 * length, back])}
    equal(usage(answer, ie.USAGE_SMR), wanted, "all URRs")


@case(50, "deletion reports what is left", GROUP)
def final(lab):
    """5.2.2, 7.5.7, 8.2.71: usage reports with trigger TERMR, UR-SEQN one more each; so does the
    removal of a URR."""
    session = lab.session(urrs=[1, 2], more=[urr(1), urr(2)])
    up = lab.octets(lab.goes_up(session))
    session.modify(ie.ie(ie.QUERY_URR, ie.u32(ie.URR_ID, 1)))
    down = lab.octets(lab.goes_down(session).payload)
    tail = session.delete()
    wanted = {1: (1, 0x800, [down, 0, down]), 2: (0, 0x800, [up + down, up, down])}
    equal(usage(tail, ie.USAGE_SDR), wanted, "final reports")


@case(53, "CP F-SEID changed by a modification", GROUP)
def new_f_seid(lab):
    """5.22, 7.5.4: answers and requests go to the new one from then on; also to its address."""
    session = lab.session()
    session.seid = next(lab.smf.seids) + 5000
    lab.know(lab.smf, session.seid, session.up_seid)
    session.modify(lab.smf.f_seid(session.seid))
    other = lab.add_smf("10.40.0.7")
    lab.know(other, session.seid, session.up_seid)
    session.modify(other.f_seid(session.seid), far(2, ie.BUFF | ie.NOCP, kind=ie.UPDATE_FAR))
    lab.n6.send(packets.udp(DN, session.v4, mark()))
    found = other.reports(10, until=bool)
    assert found and found[0].seid == session.seid, f"the report at the new address: {found}"
    session.delete()
    other.close()


@case(54, "session set deletion by FQ-CSID", GROUP)
def set_deletion(lab):
    """7.4.6, TS 23.007: cause 1; the sessions of that FQ-CSID are gone, others stay. SSET is not
    advertised, so a take-over by another SMF of the set is not asked for."""
    def csid(number):
        return ie.ie(ie.FQ_CSID, b"\x01", ie.octets("10.40.0.2"), number.to_bytes(2, "big"))
    gone, stays = lab.session(more=[csid(1)]), lab.session(more=[csid(2)])
    answer = lab.smf.request(ie.SET_DELETION, ie.node_id(lab.smf.name), csid(1))
    equal(answer.cause, 1, "cause")
    gone_within(lab, gone, 5)
    lab.goes(stays)
    equal(lab.smf.request(ie.DELETE, seid=gone.up_seid).cause, 65, "the set's session")

