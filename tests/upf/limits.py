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


@case(41, "who chooses TEIDs: the UPF or the SMF, side by side", GROUP,
      changed="CHOOSE without FTUP, and a TEID of the SMF under FTUP, are accepted instead of refused with cause 71, "
              "for there are SMFs that do so")
def smf_teid(lab):
    """5.5.1: under `teid: smf` FTUP is not advertised; CHOOSE is accepted all the same; the SMF's TEID is
    accepted and works; one that another session uses is refused by cause 73, Failed Rule ID that PDR."""
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
    equal((second.answer.cause, second.answer.offending, second.answer.get(ie.FAILED_RULE_ID)),
          (73, ie.F_TEID, b"\0\0\1"), "a TEID in use: cause, IE, rule")
    lab.goes(first)
    third = own(lab, v4=second.v4)
    lab.goes(third)
    first.delete()
    again = own(lab, teid=first.teid)
    lab.goes(again)
    lab.goes_up(third, DN)


@case(52, "sessions over the limit", GROUP,
      changed="4096 sessions; a million are set up by `make bench` (upf-control)", short="64 sessions")
def too_many(lab):
    """8.2.1: the session beyond the limit is refused by cause 75, nothing else happens; when one is
    deleted (and its place is free again) another one is accepted. The limit is 64, in `make soak` 4096.
    (Another UPF crashes at its 4097th.)"""
    places_are_free(lab)
    made = []
    while len(made) <= lab["sessions"]:
        session = own(lab)
        if session.answer.cause != 1:
            break
        made.append(session)
    equal((len(made), session.answer.cause), (lab["sessions"], 75), "sessions, and the cause of the next")
    equal(int(lab.metrics()["upf_sessions"]), lab["sessions"], "sessions that the program counts")
    lab.goes(made[0])
    lab.goes(made[-1])
    made[0].delete()
    end = time.monotonic() + 30
    while own(lab).answer.cause != 1:
        assert time.monotonic() < end, "the place does not come back"
        time.sleep(0.2)
    lab.goes(made[-1])


@case(55, "establishment flood", GROUP, short="40 establishments a second instead of 200")
def flood(lab):
    """6.2.4: at five times the configured rate as many as the rate are accepted, and a tenth of a second
    of it at once; all others are refused by cause 74, each with overload control information (6.2.4,
    table 7.5.3.2-1): one sequence number for each metric, which is what is too much. Below the rate
    all are accepted again."""
    lab.until_right(lambda: at_five_times(lab), lambda it: flood_fault(lab, *it), tries=5)
    lab.smf.associate(started=lab.smf.started + 1)
    places_are_free(lab)
    lab.goes(own(lab))


def at_five_times(lab):
    """Sends establishments at five times the rate; returns the answers, the number that a limiter of the
    rate would accept of requests at these times, and the time in s from the first request to the last answer."""
    lab.smf.associate(started=lab.smf.started + 1)
    places_are_free(lab)
    smf, rate, sent, times = lab.smf, lab["establishments-per-s"], [], []
    count = 5 * rate * 10 // 8  # 1.25 s; those that are accepted fit into the limit of sessions
    start = time.monotonic()
    for number in range(count):
        draft = lab.session(draft=True, tunnel=ie.f_teid(next(_tunnels), v4=lab.upf))
        sequence = smf.sequence()
        request = ie.message(ie.ESTABLISH, sequence, ie.node_id(smf.name), smf.f_seid(draft.seid), *draft.parts(),
                             seid=0)
        time.sleep(max(start + number / (5 * rate) - time.monotonic(), 0))
        times.append(time.monotonic())
        smf.send(request)
        sent.append(sequence)
    answers = [smf.answers_to(sequence)[0] for sequence in sent]
    return answers, limited(times, rate), max(it.came for it in answers) - start


def limited(times, rate):
    """Returns the number of events that a limiter accepts, with a tenth of a second of the rate at once
    (generic cell rate algorithm, ITU-T I.371)."""
    accepted, due = 0, 0.0
    for now in times:
        if max(due, now) <= now + (max(rate // 10, 1) - 1) / rate:
            accepted, due = accepted + 1, max(due, now) + 1 / rate
    return accepted


def flood_fault(lab, answers, expected, answered):
    """Returns what is wrong with the answers, or None."""
    rate = lab["establishments-per-s"]
    refused = [it for it in answers if it.cause != 1]
    equal({it.cause for it in refused}, {74}, "causes of refusals")
    controls = [it.get(ie.OVERLOAD_CONTROL) for it in refused]
    assert all(controls), "a refusal without overload control information"
    told = [(it.number(ie.SEQUENCE_NUMBER), it.number(ie.METRIC)) for it in controls]
    assert told == sorted(told, key=lambda it: it[0]), f"sequence numbers go back: {told}"
    equal(len({number for number, _ in told}), len(set(told)), "metrics with one sequence number")
    accepted, burst = len(answers) - len(refused), max(rate // 10, 1)
    most = burst + 1 + rate * answered
    assert accepted <= most < len(answers), f"{accepted} of {len(answers)} accepted, at most {most:.1f}"
    if not 0.95 * expected - 1 <= accepted <= 1.05 * expected + 1:
        return f"{accepted} accepted, a limiter of the rate lets {expected} pass"
    # What is offered is told in the second of the offer and the one before.
    if told[-1][1] not in (70, 75, 80, 85):
        return f"metric {told[-1][1]} %, not 80"
    return None


def places_are_free(lab):
    """Waits until the places of sessions that are gone may be used again: they rest for as long as a
    request can be repeated."""
    time.sleep(lab["n1"] * lab["t1-ms"] / 1000 + 3)
