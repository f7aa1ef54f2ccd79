"""A UPF with few sessions, few establishments a second, and the SMF's own TEIDs: the rest of case 41,
52, 55."""

import time

import ie
from lab import DN
from suite import case, equal

GROUP = "limits"
_tunnels = iter(range(0x0070_0001, 0x0070_FFFF))


def own(lab, teid=None, **how):
    """Establishes a session with a TEID of the SMF, at the allowed rate."""
    time.sleep(1 / lab["establishments-per-s"] * 1.5)
    teid = next(_tunnels) if teid is None else teid
    made = lab.session(tunnel=ie.f_teid(teid, v4=lab.upf), check=False, **how)
    if made.answer.cause == 1:
        made.learn(made.answer)
        made.teid, made.upf = teid, lab.upf
    return made


@case(41, "who chooses TEIDs: the UPF or the SMF, side by side", GROUP)
def smf_teid(lab):
    """5.5.1: under `teid: smf` FTUP is not advertised; CHOOSE is accepted all the same; the SMF's TEID is
    accepted and works; one that another session uses is refused by cause 73 (69 is right too)."""
    features = lab.smf.associate().get(ie.UP_FUNCTION_FEATURES)
    assert not features[0] & 0x10, "FTUP is advertised"
    time.sleep(1)
    chosen = lab.session(check=False)
    equal(chosen.answer.cause, 1, "CHOOSE without FTUP")
    chosen.learn(chosen.answer)
    chosen.delete()
    first = own(lab)
    lab.goes(first)
    second = own(lab, teid=first.teid)
    assert second.answer.cause in (73, 69), f"a TEID in use: {second.answer}"
    lab.goes(first)
    third = own(lab, v4=second.v4)
    lab.goes(third)
    first.delete()
    again = own(lab, teid=first.teid)
    lab.goes(again)
    lab.goes_up(third, DN)


@case(52, "sessions over the limit", GROUP)
def too_many(lab):
    """8.2.1: cause 75, nothing else happens; when one is deleted (and its place is free again) another
    one is accepted. (Another UPF crashes at its 4097th.)"""
    made = []
    while True:
        session = own(lab)
        if session.answer.cause != 1:
            break
        made.append(session)
        assert len(made) <= lab["sessions"], f"{len(made)} sessions of {lab['sessions']}"
    equal(session.answer.cause, 75, "cause")
    assert len(made) >= lab["sessions"] // 2, f"only {len(made)} sessions of {lab['sessions']}"
    lab.goes(made[0])
    lab.goes(made[-1])
    made[0].delete()
    end = time.monotonic() + 30
    while own(lab).answer.cause != 1:
        assert time.monotonic() < end, "the place does not come back"
        time.sleep(0.2)
    lab.goes(made[-1])


@case(55, "establishment flood", GROUP)
def flood(lab):
    """6.2.4: above the configured rate cause 74, with overload control information; below it again
    accepted."""
    smf, causes, overload = lab.smf, [], 0
    places_are_free(lab)
    sent = []
    for _ in range(lab["establishments-per-s"] * 3):
        draft = lab.session(draft=True, tunnel=ie.f_teid(next(_tunnels), v4=lab.upf))
        sequence = smf.sequence()
        smf.send(ie.message(ie.ESTABLISH, sequence, ie.node_id(smf.name), smf.f_seid(draft.seid), *draft.parts(),
                            seid=0))
        sent.append(sequence)
    for sequence in sent:
        answer = smf.answers_to(sequence)[0]
        causes.append(answer.cause)
        overload += answer.cause == 74 and bool(answer.all(ie.OVERLOAD_CONTROL))
    assert causes.count(74) >= lab["establishments-per-s"] // 2, f"causes {causes}"
    assert causes.count(1) >= 1 and set(causes) <= {1, 74, 75}, f"causes {causes}"
    assert overload or any(ie.OVERLOAD_CONTROL == kind for kind, _ in answer.ies), "no overload information"
    smf.associate(started=smf.started + 1)
    places_are_free(lab)
    lab.goes(own(lab))


def places_are_free(lab):
    """Waits until the places of sessions that are gone may be used again: they rest for as long as a
    request can be repeated."""
    time.sleep(lab["n1"] * lab["t1-ms"] / 1000 + 3)
