"""PFCP session establishment: cases 22 to 43."""

import time

import ie
from lab import DN, DN6
from rules import (Session, far, fresh_tunnel, pdi_downlink, pdi_uplink, pdr, qer, to_core,
                   to_tunnel)
from suite import case, equal

GROUP = "session"


def refused(lab, parts, cause, offending=None, rule=None, seid=None):
    """Asserts that an establishment with these parts is refused; returns the response."""
    seid = next(lab.smf.seids) if seid is None else seid
    answer = lab.smf.establish(*parts, seid=seid)
    assert answer.cause == cause, f"cause {answer.cause}, not {cause}: {answer}"
    if offending is not None:
        equal(answer.offending, offending, "offending IE")
    if rule is not None:
        equal(answer.get(ie.FAILED_RULE_ID), rule, "Failed Rule ID")
    equal(answer.seid, seid, "header SEID")
    assert answer.get(ie.F_SEID) is None, "a refusal has no F-SEID of ours"
    return answer


def draft(lab, **how):
    return lab.session(draft=True, **how)


def works(lab, **how):
    """Asserts that a session with these parts is established and forwards in both directions."""
    session = lab.session(**how)
    lab.goes(session)
    session.delete()


@case(22, "establishment without association", GROUP)
def without_association(lab):
    """6.3.2, 7.2.2: cause 72; the header has the SEID of the request's CP F-SEID."""
    stranger = lab.add_smf("10.40.0.3")
    answer = stranger.establish(*draft(lab, smf=stranger).parts(), seid=0x1122334455667788)
    equal((answer.cause, answer.seid), (72, 0x1122334455667788), "cause and SEID")
    stranger.close()


@case(23, "establishment without Node ID", GROUP)
def without_node_id(lab):
    """7.6.6: cause 66, Offending IE 60."""
    smf = lab.smf
    answer = smf.request(ie.ESTABLISH, smf.f_seid(991), *draft(lab).parts(), seid=0)
    equal((answer.cause, answer.offending, answer.seid), (66, ie.NODE_ID, 991), "cause, IE, SEID")


@case(24, "establishment without CP F-SEID", GROUP)
def without_f_seid(lab):
    """7.6.6: cause 66, Offending IE 57; the header's SEID is 0, for none is known."""
    answer = lab.smf.request(ie.ESTABLISH, ie.node_id(lab.smf.name), *draft(lab).parts(), seid=0)
    equal((answer.cause, answer.offending, answer.seid), (66, ie.F_SEID, 0), "cause, IE, SEID")


@case(25, "establishment without Create PDR", GROUP)
def without_pdr(lab):
    """7.5.2, 7.6.6: cause 66, Offending IE 1."""
    refused(lab, draft(lab).fars(), 66, ie.CREATE_PDR)


@case(26, "establishment without Create FAR", GROUP)
def without_far(lab):
    """7.5.2, 7.6.6: cause 66, Offending IE 3."""
    refused(lab, draft(lab).pdrs(), 66, ie.CREATE_FAR)


@case(27, "PDR without PDI", GROUP)
def without_pdi(lab):
    """7.5.2.2: cause 66, Offending IE 2."""
    session = draft(lab)
    refused(lab, [*session.parts(), pdr(3, b"", 1)], 66, ie.PDI)


@case(28, "PDR without PDR ID; without Precedence", GROUP)
def without_pdr_id(lab):
    """7.5.2.2: cause 66, Offending IE 56 and 29. A FAR ID is conditional (it may follow from predefined
    rules): without it cause 67, Offending IE 108. (Another UPF takes it, and crashes on the first
    packet.)"""
    session = draft(lab)
    pdi = pdi_downlink(session.user(True))
    no_id = ie.ie(ie.CREATE_PDR, ie.u32(ie.PRECEDENCE, 1), pdi, ie.u32(ie.FAR_ID, 2))
    no_precedence = ie.ie(ie.CREATE_PDR, ie.u16(ie.PDR_ID, 3), pdi, ie.u32(ie.FAR_ID, 2))
    refused(lab, [*session.fars(), no_id], 66, ie.PDR_ID)
    refused(lab, [*session.fars(), no_precedence], 66, ie.PRECEDENCE)
    refused(lab, [*session.parts(), pdr(3, pdi, None)], 67, ie.FAR_ID)


@case(29, "PDR to an unknown FAR, QER, URR; FAR to an unknown BAR", GROUP)
def unknown_rules(lab):
    """8.2.80: cause 73, and the Failed Rule ID is the rule that cannot be made: the one that refers.
    Nothing is installed: the user's address is free afterwards."""
    session = draft(lab)
    down = pdi_downlink(session.user(True))
    for wrong in (pdr(3, down, 99), pdr(3, down, 2, qers=[9]), pdr(3, down, 2, urrs=[9])):
        refused(lab, [*session.parts(), wrong], 73, rule=b"\0\0\3")
    wrong = far(3, ie.BUFF, None, ie.u8(ie.BAR_ID, 9))
    refused(lab, [*session.parts(), wrong], 73, rule=b"\1\0\0\0\3")
    works(lab, v4=session.v4)


@case(30, "duplicate PDR ID", GROUP)
def duplicate(lab):
    """8.2.36: numbers are unique in a session: cause 73, Failed Rule ID that PDR."""
    session = draft(lab)
    refused(lab, [*session.parts(), session.pdrs()[1]], 73, rule=b"\0\0\2")
    works(lab, v4=session.v4)


@case(31, "grouped IE that overruns", GROUP)
def overrun(lab):
    """7.6.7: an invalid length: cause 68. So is that of an IE that overruns the message itself, of
    which the header can be read."""
    session = draft(lab)
    pdi = pdi_downlink(session.user(True))
    good = pdr(3, pdi, 2)
    at = good.index(pdi)
    inner = good[:at + 2] + b"\x03\xff" + good[at + 4:]
    refused(lab, [*session.parts(), inner], 68)
    refused(lab, [*session.parts(), good[:2] + b"\x03\xff" + good[4:]], 68)
    works(lab, v4=session.v4)


@case(32, "zero-length Outer Header Creation, F-TEID, MBR", GROUP)
def zero_length(lab):
    """7.6.7: an IE with an invalid length: cause 68, and the Offending IE names it. (Another UPF aborts
    on the first.)"""
    session = draft(lab)
    empty = ie.ie(ie.OUTER_HEADER_CREATION)
    wrong = ie.ie(ie.FORWARDING, ie.u8(ie.DESTINATION_INTERFACE, 0), empty)
    refused(lab, [*session.parts(), far(3, ie.FORW, wrong)], 68, ie.OUTER_HEADER_CREATION)
    wrong = pdr(3, pdi_uplink(ie.ie(ie.F_TEID)), 1)
    refused(lab, [*session.parts(), wrong], 68, ie.F_TEID)
    wrong = qer(3, ie.ie(ie.MBR))
    refused(lab, [*session.parts(), wrong], 68, ie.MBR)
    works(lab, v4=session.v4)


@case(33, "bad SDF text, empty SDF text, too many filters", GROUP)
def bad_sdf(lab):
    """8.2.5, 7.6.8: text that is no flow description is a semantically incorrect IE: cause 69, Offending
    IE 23. A text longer than its IE is an invalid length: 68. More filters than there is room for
    are a rule that cannot be made: 73, Failed Rule ID that PDR. (Another UPF asserts on it.)"""
    session = draft(lab)
    for text in ("", "nonsense", "permit out ip from any", "permit out 999 from any to assigned",
                 "permit out ip from 10.0.0.0/33 to assigned", "permit out 17 from any 70000 to assigned",
                 "permit out 17 from any 9-3 to assigned", "permit out ip from fd00::/129 to assigned",
                 "permit out ip from any to assigned " + "x" * 2000, "\0\xff"):
        wrong = pdr(3, pdi_downlink(session.user(True), ie.sdf(text)), 2)
        refused(lab, [*session.parts(), wrong], 69, ie.SDF_FILTER)
    over = pdi_downlink(session.user(True), ie.ie(ie.SDF_FILTER, b"\1\0\xff\xff", b"permit out ip"))
    refused(lab, [*session.parts(), pdr(3, over, 2)], 68, ie.SDF_FILTER)
    many = [ie.sdf(f"permit out 17 from any {port} to assigned") for port in range(1, lab["filters"] + 2)]
    refused(lab, [*session.parts(), pdr(3, pdi_downlink(session.user(True), *many), 2)], 73, ie.SDF_FILTER,
            rule=b"\0\0\3")
    works(lab, v4=session.v4)

# Flow descriptions, packets that match (far address, its port, the user's port), and that do not.
FORMS = [
    ("permit out ip from any to assigned", [(DN, 5000, 4000)], []),
    ("permit out 17 from any to any", [(DN, 5000, 4000)], []),
    ("permit out 6 from any to assigned", [], [(DN, 5000, 4000)]),
    ("permit out ip from 10.60.1.0/24 to assigned", [(DN, 1, 2), ("10.60.1.200", 1, 2)], [("10.60.2.2", 1, 2)]),
    ("permit out ip from 10.60.1.2 to any", [(DN, 1, 2)], [("10.60.1.3", 1, 2)]),
    ("permit out 17 from any 5000 to assigned", [(DN, 5000, 9)], [(DN, 5001, 9)]),
    ("permit out 17 from any 5000-5010 to assigned 4000", [(DN, 5010, 4000)], [(DN, 5011, 4000), (DN, 5000, 1)]),
    ("permit out 17 from any 5300,5005-5010 to assigned 1,7-9", [(DN, 5300, 8), (DN, 5007, 1)], [(DN, 5301, 8), (DN, 5300, 2)]),
    ("permit out 17 from any to assigned 4000-4001", [(DN, 1, 4001)], [(DN, 1, 4002)]),
    ("permit out 17 from 10.60.0.0/16 5000 to 10.47.0.0/16", [(DN, 5000, 1)], [(DN, 4999, 1)]),
    ("permit out ip from fd60:1::/64 to assigned", [(DN6, 1, 2)], [("fd60:2::2", 1, 2), (DN, 1, 2)]),
    ("permit out 17 from fd60:1::2 5000-5001 to assigned 4000", [(DN6, 5000, 4000)], [(DN6, 5002, 4000)]),
]


@case(34, "every form of flow description", GROUP)
def sdf_forms(lab):
    """8.2.5, TS 29.212 5.4.2, RFC 6733 4.3.1: downlink as written; uplink with the ends exchanged
    (5.2.1A.2A). Who matches goes into a tunnel of its own, and uplink nowhere."""
    for text, matching, others in FORMS:
        tunnel = fresh_tunnel()
        session = draft(lab, v6=True)
        rules = [pdr(3, pdi_uplink(ie.choose(), session.user(False), ie.sdf(text)), 3, precedence=10, removal=[0]),
                 pdr(4, pdi_downlink(session.user(True), ie.sdf(text)), 4, precedence=10),
                 far(3, ie.DROP), far(4, ie.FORW, to_tunnel(tunnel, session.gnb))]
        # PDR 3 shares the tunnel of PDR 1.
        shared = ie.choose(number=1)
        rules[0] = pdr(3, pdi_uplink(shared, session.user(False), ie.sdf(text)), 3, precedence=10, removal=[0])
        session = lab.session(v4=session.v4, v6=session.v6, tunnel=shared, more=rules)
        for address, far_port, user_port in matching + others:
            user = session.v6 if ":" in address else session.v4
            found = lab.goes_down(session, address, user, sport=far_port, dport=user_port)
            is_match = (address, far_port, user_port) in matching
            wanted = tunnel if is_match else session.gnb_teid
            equal(found.teid, wanted, f"`{text}` and {address} {far_port} to {user_port}")
            if is_match:
                lab.is_dropped_up(session, user, address, sport=user_port, dport=far_port)
            else:
                lab.goes_up(session, address, user, sport=user_port, dport=far_port)
        session.delete()


@case(35, "SDF filter with ID, referred to by another PDR", GROUP)
def sdf_reference(lab):
    """8.2.5: a filter that has only an ID is the filter of that ID, wherever the text is; an ID that
    nobody defines is a rule that cannot be made: cause 73."""
    session = draft(lab)
    text = ie.sdf("permit out 17 from any 5000 to assigned", number=7)
    shared, tunnel = ie.choose(number=1), fresh_tunnel()
    rules = [pdr(3, pdi_uplink(shared, session.user(False), text), 3, precedence=10, removal=[0]),
             pdr(4, pdi_downlink(session.user(True), ie.sdf(number=7)), 4, precedence=10),
             far(3, ie.DROP), far(4, ie.FORW, to_tunnel(tunnel, session.gnb))]
    both = lab.session(v4=session.v4, tunnel=shared, more=rules)
    equal(lab.goes_down(both, sport=5000).teid, tunnel, "by the reference")
    equal(lab.goes_down(both, sport=5001).teid, both.gnb_teid, "another port")
    lab.is_dropped_up(both, dport=5000)
    lab.goes_up(both, dport=5001)
    both.delete()
    refused(lab, [*session.parts(), pdr(3, pdi_downlink(session.user(True), ie.sdf(number=8)), 2)], 73,
            ie.SDF_FILTER, rule=b"\0\0\3")


@case(36, "unknown and enterprise IEs", GROUP)
def unknown_ies(lab):
    """7.6.9, 8.1.1: ignored, at the top and in groups; also when they are empty."""
    strange = [ie.ie(999, b"what"), ie.ie(0x8001, b"\0\x0aours"), ie.ie(32767)]
    works(lab, more=strange, pdr=strange, uplink=strange, downlink=strange)


@case(37, "non-repeatable IE repeated", GROUP)
def repeated(lab):
    """7.6.10: the first is used."""
    session = draft(lab)
    teid = fresh_tunnel()
    first, second = to_tunnel(session.gnb_teid, session.gnb), to_tunnel(teid, session.gnb)
    again = far(2, ie.FORW, first, ie.ie(ie.APPLY_ACTION, b"\1\0"), second)
    session.how["fars"] = [session.fars()[0], again]
    made = lab.session(v4=session.v4, fars=session.how["fars"])
    equal(lab.goes_down(made).teid, session.gnb_teid, "the first tunnel")
    lab.goes_up(made)


@case(38, "Apply Action of 1, 2 and 3 octets", GROUP)
def apply_action(lab):
    """8.2.26: octets were added by releases; who sends fewer or more means the same (a trap: another
    UPF drops the message)."""
    for octets in (b"\2", b"\2\0", b"\2\0\0"):
        session = draft(lab)
        fars = [far(1, octets, to_core()), far(2, octets, to_tunnel(session.gnb_teid, session.gnb))]
        made = lab.session(v4=session.v4, fars=fars)
        lab.goes_up(made)
        equal(lab.goes_down(made).teid, session.gnb_teid, "TEID")


@case(39, "Outer Header Removal of 1 and 2 octets", GROUP)
def outer_header_removal(lab):
    """8.2.64: octet 6 came with release 16; both are right. Also the description 6 (GTP-U/UDP/IP)."""
    for octets in ([0], [0, 1], [6], [6, 1]):
        works(lab, removal=octets)


@case(40, "F-TEID CHOOSE, CHOOSE ID", GROUP)
def choose(lab):
    """5.5, 8.2.3: Created PDR has an F-TEID of ours, each other; one CHOOSE ID is one TEID, another
    is another. Neither 0 nor all ones."""
    seen = set()
    for _ in range(20):
        session = lab.session()
        assert session.teid not in seen and session.teid not in (0, 0xFFFF_FFFF)
        equal(session.upf, lab.upf, "the address of the F-TEID")
        seen.add(session.teid)
    session = draft(lab)
    user = session.user(False)
    text = ie.sdf("permit out 17 from any 1 to assigned")
    more = [pdr(number, pdi_uplink(ie.choose(number=choice), user, text), 1, removal=[0], precedence=number)
            for number, choice in ((3, 5), (4, 6))]
    made = lab.session(v4=session.v4, tunnel=ie.choose(number=5), more=more)
    teids = {it.number(ie.PDR_ID): ie.read_f_teid(it.get(ie.F_TEID))[0]
             for it in made.answer.all(ie.CREATED_PDR) if it.get(ie.F_TEID)}
    assert teids[1] == teids[3] != teids[4], teids
    lab.goes(made)


@case(41, "who chooses TEIDs: the UPF or the SMF, side by side", GROUP)
def own_teid(lab):
    """5.5.1: FTUP is announced, but there are SMFs that choose their TEIDs all the same: accepted.
    Those of the UPF are of another range. (The same under `teid: smf`: the other part of this case.)"""
    made = lab.session(tunnel=ie.f_teid(0x77001, v4=lab.upf), check=False)
    equal(made.answer.cause, 1, "a TEID of the SMF")
    made.learn(made.answer)
    made.teid, made.upf = 0x77001, lab.upf
    other = lab.session()
    assert other.teid >= 1 << 31, f"{other.teid:#x}"
    for session in (made, other):
        lab.goes(session)
        session.delete()


@case(42, "UE IP address chosen by the UPF, pool exhausted", GROUP)
def ue_ip(lab):
    """5.21, 8.2.62: Created PDR says the address; when all are taken, six of a /29, cause 79 (all dynamic
    addresses are occupied); those of deleted sessions come back."""
    def chosen(more):
        smf, tunnel = lab.smf, fresh_tunnel()
        parts = [pdr(1, pdi_uplink(ie.choose(), instance="access"), 1, removal=[0]),
                 pdr(2, pdi_downlink(ie.ue_address(destination=True, more=more), instance="ims"), 2),
                 far(1, ie.FORW, to_core(instance="ims")), far(2, ie.FORW, to_tunnel(tunnel, "10.30.1.2"))]
        session = Session(smf, draft=True, v4=False, instance="ims")
        session.gnb_teid = tunnel
        answer = smf.establish(*parts, seid=session.seid)
        if answer.cause == 1:
            session.learn(answer)
            users = [it.get(ie.UE_IP_ADDRESS) for it in answer.all(ie.CREATED_PDR) if it.get(ie.UE_IP_ADDRESS)]
            assert users, f"no UE IP address in a Created PDR: {answer}"
            session.v4, session.v6 = ie.read_ue(users[0])
        return session, answer.cause
    made = []
    while len(made) < 20:
        session, cause = chosen(0x10)
        if cause != 1:
            break
        made.append(session)
    equal(cause, 79, "cause when the pool is exhausted")
    equal({it.v4 for it in made}, {f"10.46.0.{host}" for host in range(1, 7)}, "addresses")
    equal(len(made), 6, "addresses of a /29")
    one = made.pop()
    lab.goes_up(one, DN, wire=lab.ims)
    equal(lab.goes_down(one, wire=lab.ims).teid, one.gnb_teid, "downlink")
    one.delete()
    end = time.monotonic() + 20
    while chosen(0x10)[1] != 1:
        assert time.monotonic() < end, "the address does not come back"
        time.sleep(0.2)
    six, cause = chosen(0x20)
    equal(cause, 1, "an IPv6 prefix")
    assert six.v6 and six.v6.startswith("fd46:"), six.v6
    host = six.v6.split("::")[0] + "::9"
    lab.goes_up(six, DN6, host, wire=lab.ims)
    equal(lab.goes_down(six, user=host, wire=lab.ims).teid, six.gnb_teid, "downlink, IPv6")


@case(43, "UE address in use, in one network instance and in another", GROUP)
def ue_ip_twice(lab):
    """5.21: cause 73 in the same network instance; in another one the same address is another user."""
    first = lab.session()
    second = draft(lab, v4=first.v4)
    refused(lab, second.parts(), 73)
    other = lab.session(v4=first.v4, instance="ims")
    lab.goes(first)
    lab.goes_up(other, wire=lab.ims)
    equal(lab.goes_down(other, wire=lab.ims).teid, other.gnb_teid, "downlink of the other instance")
