"""PFCP node procedures: cases 1 to 21."""

import subprocess
import time

import ie
import packets
from lab import DN, mark
from suite import case, equal, eventually

GROUP = "node"
# Version Not Supported Responses: at once, and a second.
VERSIONS, VERSIONS_PER_S = 10, 10


@case(1, "heartbeat before and after association", GROUP)
def heartbeat(lab):
    """6.2.2, 7.4.2: answered with our recovery time stamp and the same number, also before an
    association (a peer may probe first)."""
    stranger = lab.add_smf("10.40.0.3")
    before = stranger.heartbeat()
    after = lab.smf.heartbeat()
    assert before.number(ie.RECOVERY_TIME_STAMP) == after.number(ie.RECOVERY_TIME_STAMP) > 3_900_000_000
    equal(before.seid, None, "a node message has no SEID")


@case(2, "heartbeat without recovery time stamp", GROUP)
def heartbeat_without_stamp(lab):
    """7.6.6: the mandatory IE is missing, and a Heartbeat Response has no Cause to say so: discarded.
    An answer is right too (it changes nothing)."""
    lab.smf.send(ie.message(ie.HEARTBEAT, lab.smf.sequence()))
    lab.smf.send(ie.message(ie.HEARTBEAT, lab.smf.sequence(), ie.u16(ie.RECOVERY_TIME_STAMP, 7)))
    lab.smf.heartbeat()


@case(3, "association setup", GROUP)
def setup(lab):
    """6.2.6, 8.2.25: the features say what works. FTUP, UEIP, end markers and suggested buffering
    packets counts do (cases 40, 42, 67, 77), and so does redirection to an address or a URL; PFD
    management, header enrichment, activation times, numbers of reports and several UE addresses in a
    PDI do not."""
    answer = lab.smf.associate()
    features = answer.get(ie.UP_FUNCTION_FEATURES).ljust(6, b"\0")
    assert answer.get(ie.NODE_ID) and answer.number(ie.RECOVERY_TIME_STAMP)
    works = [(0, 0x10, "FTUP"), (0, 0x80, "TREU"), (1, 0x01, "EMPU"), (1, 0x04, "UDBC"), (1, 0x20, "FRRT"), (2, 0x04, "UEIP")]
    for octet, bit, name in works:
        assert features[octet] & bit, f"{name} is not advertised: {features.hex()}"
    lacks = [(0, 0x20, "PFDM"), (0, 0x40, "HEEU"), (1, 0x10, "TRACE"), (2, 0x01, "DPDRA"), (3, 0x08, "NORP"), (3, 0x20, "IP6PL")]
    for octet, bit, name in lacks:
        assert not features[octet] & bit, f"{name} is advertised: {features.hex()}"


def refused_setup(lab, parts, offending):
    smf = lab.smf
    answer = smf.request(ie.SETUP, *parts)
    equal((answer.cause, answer.offending), (66, offending), "cause and offending IE")
    assert answer.get(ie.NODE_ID), "the answer has our Node ID"


@case(4, "setup without Node ID", GROUP)
def setup_without_node_id(lab):
    """7.6.6: cause 66, Offending IE 60."""
    refused_setup(lab, [ie.recovery(lab.smf.started)], ie.NODE_ID)


@case(5, "setup without recovery time stamp", GROUP)
def setup_without_stamp(lab):
    """7.6.6: cause 66, Offending IE 96."""
    refused_setup(lab, [ie.node_id(lab.smf.name)], ie.RECOVERY_TIME_STAMP)


@case(6, "setup for a known Node ID, session retention", GROUP)
def setup_again(lab):
    """6.2.6.2.2: with the same or a newer time stamp the association is replaced and its sessions
    are deleted; with Session Retention Information they are kept, and PSREI says so."""
    smf = lab.smf
    first = lab.session()
    lab.goes(first)
    smf.associate()
    equal(smf.request(ie.DELETE, seid=first.up_seid).cause, 65, "deletion after the second setup")
    kept = lab.session()
    retention = ie.ie(ie.SESSION_RETENTION, ie.ie(ie.CP_ENTITY_ADDRESS, b"\x01" if ie.is_v6(smf.address) else b"\x02",
                                             ie.octets(smf.address)))
    answer = smf.associate(retention, started=smf.started + 1)
    flags = answer.get(ie.ASRSP_FLAGS)
    assert flags and flags[0] & 1, f"PSREI is not set: {answer}"
    lab.goes(kept)
    kept.delete()


@case(7, "setup with a newer time stamp, then heartbeat with the same", GROUP)
def setup_newer(lab):
    """6.2.6.2.2, 8.2.65: the old sessions are gone, there is one answer; a heartbeat with the time
    stamp that the setup had deletes nothing (a trap of other UPFs)."""
    smf = lab.smf
    old = lab.session()
    smf.started += 10
    sequence = smf.sequence()
    smf.request(ie.SETUP, ie.node_id(smf.name), ie.recovery(smf.started), sequence=sequence)
    new = lab.session()
    smf.heartbeat()
    lab.goes(new)
    assert sequence not in smf.answers, "a second answer to one setup"
    equal(smf.request(ie.DELETE, seid=old.up_seid).cause, 65, "the old session")
    new.delete()


@case(8, "heartbeat response with a newer time stamp", GROUP)
def restoration(lab):
    """6.2.2, TS 23.527 4.3: the control plane has restarted, its sessions are deleted."""
    smf = lab.smf
    session = lab.session()
    lab.goes(session)
    smf.started += 100
    smf.request_of(ie.HEARTBEAT, 30)
    gone_within(lab, session, 10)


def gone_within(lab, session, seconds):
    """Waits until packets of a session no longer pass."""
    end = time.monotonic() + seconds
    while True:
        marker = mark()
        inner = packets.udp(session.v4, DN, marker)
        seen = lab.comes_of(lambda: lab.uplink(session, inner))
        if not any(marker in it for it in seen.get("n6", [])):
            return
        assert time.monotonic() < end, f"the session is still there after {seconds} s"
        time.sleep(0.1)


@case(9, "association release", GROUP)
def release(lab):
    """6.2.8: answered, the sessions are gone; an establishment after it is refused by cause 72."""
    session = lab.session()
    answer = lab.smf.release()
    equal(answer.cause, 1, "cause")
    assert answer.get(ie.NODE_ID)
    gone_within(lab, session, 5)
    equal(lab.smf.establish(*session.parts()).cause, 72, "establishment after release")


@case(10, "association update", GROUP)
def update(lab):
    """6.2.7: answered with cause 1; sessions stay. From a stranger: cause 72."""
    session = lab.session()
    answer = lab.smf.request(ie.UPDATE, ie.node_id(lab.smf.name), ie.u8(ie.CP_FUNCTION_FEATURES, 1))
    equal(answer.cause, 1, "cause")
    lab.goes(session)
    stranger = lab.add_smf("10.40.0.4")
    equal(stranger.request(ie.UPDATE, ie.node_id(stranger.name)).cause, 72, "cause for a stranger")


# Seconds. The pause between two attempts grows up to a minute.
LONGER_THAN_THE_PAUSE = 90


@case(11, "association set up by the UPF, the peer silent at first", GROUP)
def initiated(lab):
    """6.2.6.3, 6.4: the same request N1 times, T1 apart; when the peer answers at last there is an
    association, in which sessions can be established."""
    smf = lab.add_smf("10.40.0.9", is_deaf_to_setup=True)
    # Who was late for one of them sees the next one come early: that does not happen every time.
    for _ in range(4):
        request, gaps = series(lab, smf)
        if min(gaps) > lab["t1-ms"] / 1000 * 0.6:
            break
    else:
        raise AssertionError(f"repeated after {min(gaps):.3f} s")
    assert request.get(ie.NODE_ID) and request.number(ie.RECOVERY_TIME_STAMP)
    smf.is_deaf_to_setup = False
    smf.request_of(ie.SETUP, LONGER_THAN_THE_PAUSE)
    draft = lab.session(smf=smf, draft=True)
    eventually(lambda: smf.establish(*draft.parts()).cause == 1, "an association")
    smf.release()
    smf.close()


def series(lab, smf):
    """Receives the same setup request N1 times; returns the last one and the intervals in s."""
    times, of = [], None
    end = time.monotonic() + LONGER_THAN_THE_PAUSE
    while len(times) < lab["n1"]:
        request = smf.request_of(ie.SETUP, max(end - time.monotonic(), 0.1))
        if request.sequence != of:
            times, of = [], request.sequence
        times.append(request.came)
    return request, [after - before for before, after in zip(times, times[1:])]


@case(12, "heartbeats not answered", GROUP)
def silent_peer(lab):
    """6.2.2, 6.4: after N1 requests without an answer the association is down. Our policy
    (`keep-sessions-s` 0): its sessions are deleted at once, an establishment is refused by cause 72."""
    smf = lab.add_smf("10.40.0.5")
    smf.associate()
    session = lab.session(smf=smf)
    lab.goes(session)
    smf.is_silent = True
    gone_within(lab, session, 60)
    equal(smf.establish(*session.parts()).cause, 72, "establishment afterwards")
    smf.close()


@case(13, "two SMFs with equal SEIDs and rule IDs", GROUP)
def two_smfs(lab):
    """5.6.2: a session is identified by the UPF's SEID; those of the control planes may be equal."""
    other = lab.add_smf("10.40.0.6")
    other.associate()
    one, two = lab.session(seid=77), lab.session(smf=other, seid=77)
    assert one.up_seid != two.up_seid and one.teid != two.teid
    lab.goes(one)
    lab.goes(two)
    one.delete()
    lab.goes(two)
    other.release()
    other.close()


@case(14, "PFCP version other than 1", GROUP)
def version(lab):
    """7.6.2: Version Not Supported Response (11), with the sequence number; only the header."""
    for number in (0, 2, 7):
        for kind, seid in ((ie.HEARTBEAT, None), (ie.ESTABLISH, 0)):
            sequence = lab.smf.sequence()
            answer = lab.smf.exchange(ie.message(kind, sequence, ie.recovery(1), version=number, seid=seid))
            equal((answer.kind, answer.first, answer.ies), (ie.VERSION, 0x20, []), f"version {number}")
    # A Version Not Supported Response of another version is not answered: two would never end.
    lab.smf.is_ignored(ie.message(ie.VERSION, lab.smf.sequence(), version=2))


@case(15, "flood of version 2", GROUP)
def version_flood(lab):
    """7.6.2 sets no limit; ours is 10 a second and 10 at once, so that nobody uses us to flood a third."""
    smf, count = lab.smf, 5000
    smf.forget()
    time.sleep(VERSIONS / VERSIONS_PER_S)  # what earlier cases have used
    start = time.monotonic()
    for number in range(count):
        smf.send(ie.message(ie.HEARTBEAT, 0x700000 + number, ie.recovery(1), version=2))
    smf.heartbeat()
    # Datagrams are handled in their order: all answers have come before the heartbeat's.
    limit = VERSIONS + VERSIONS_PER_S * (time.monotonic() - start)
    answers = sum(len(it) for key, it in smf.answers.items() if key >= 0x700000)
    assert VERSIONS <= answers <= limit < count, f"{answers} answers to {count}, limit {limit:.1f}"


@case(16, "wrong length in the header, short datagrams", GROUP)
def lengths(lab):
    """7.6.3: a length that is more than what came, or less than the header needs, is an invalid
    length: the message is discarded. A request of which the header can be read may also be answered
    with cause 68."""
    smf = lab.smf
    good = ie.message(ie.HEARTBEAT, smf.sequence(), ie.recovery(1))
    smf.is_ignored(b"", good[:3], good[:7], good[:2] + b"\0\0" + good[4:], good[:2] + b"\xff\xff" + good[4:])
    setup = ie.message(ie.SETUP, smf.sequence(), ie.node_id(smf.name), ie.recovery(1))
    smf.forget()
    smf.send(setup[:2] + b"\x01\x00" + setup[4:])
    smf.heartbeat()
    causes = [it.cause for found in smf.answers.values() for it in found]
    assert causes in ([], [68]), f"causes {causes}"


@case(17, "unknown message type", GROUP)
def unknown_type(lab):
    """7.6.4: discarded."""
    sequence = lab.smf.sequence
    lab.smf.is_ignored(*(ie.message(kind, sequence()) for kind in (0, 20, 49, 99, 255)),
                       *(ie.message(kind, sequence(), seid=1) for kind in (50 + 20, 99, 255)))


@case(18, "response that nobody asked for", GROUP)
def unasked(lab):
    """7.6.5: discarded."""
    session = lab.session()
    accepted, sequence = ie.u8(ie.CAUSE, 1), lab.smf.sequence
    node = [ie.node_id(lab.smf.name), accepted, ie.recovery(1)]
    lab.smf.is_ignored(*(ie.message(kind, sequence(), *node) for kind in (2, 4, 6, 8, 10, 13, 15)),
                       *(ie.message(kind, sequence(), accepted, seid=session.up_seid) for kind in (51, 53, 55)),
                       ie.message(57, sequence(), ie.u8(ie.CAUSE, 65), seid=session.up_seid))
    lab.goes(session)


@case(19, "PFD management, not advertised", GROUP)
def pfd(lab):
    """6.2.5, 8.2.25: refused by cause 76."""
    equal(lab.smf.request(ie.PFD).cause, 76, "cause")


@case(20, "S flag wrong for the message type", GROUP,
      changed="a node message with a SEID is answered without one, as some SMFs need it")
def s_flag(lab):
    """7.2.2: session messages have a SEID; else the message is discarded: there is no header in which
    it could be answered. A node message with a SEID, as some SMFs send it, is answered without."""
    smf = lab.smf
    body = [ie.node_id(smf.name), ie.recovery(smf.started)]
    for kind, parts in ((ie.HEARTBEAT, [ie.recovery(smf.started)]), (ie.SETUP, body)):
        answer = smf.exchange(ie.message(kind, smf.sequence(), *parts, seid=1))
        equal((answer.kind, answer.first & 1), (kind + 1, 0), "type and S flag of the answer")
    smf.is_ignored(ie.message(ie.ESTABLISH, smf.sequence(), body[0], smf.f_seid(1)),
                   ie.message(ie.DELETE, smf.sequence()))


@case(21, "bundled messages", GROUP)
def bundled(lab):
    """7.2.2: with FO each message of the datagram is handled and answered; one that is cut short
    behind them does no harm to those before."""
    smf = lab.smf
    first, second = smf.sequence(), smf.sequence()
    both = [ie.message(ie.HEARTBEAT, it, ie.recovery(1), flags=flag) for it, flag in ((first, 4), (second, 0))]
    smf.send(b"".join(both))
    smf.answers_to(first)
    smf.answers_to(second)
    third = smf.sequence()
    smf.send(ie.message(ie.HEARTBEAT, third, ie.recovery(1), flags=4) + both[0][:9])
    smf.heartbeat()


@case(83, "release requested by the UPF", GROUP)
def requested_release(lab):
    """6.2.7, 6.2.8, 8.2.77, 8.2.78: an Association Update Request with SARR and the Graceful Release
    Period. New sessions and associations are refused (no cause is named: ours is 75); those that exist
    are served until the SMF deletes them and releases. Taken back, everything is accepted again."""
    smf, session = lab.smf, lab.session()
    api = ["curl", "--silent", "--show-error", "--fail", "http://127.0.0.1:8805/drain", "--request"]
    smf.forget()
    lab.in_upf(*api[:4], api[4] + "?period_s=30", *api[5:], "PUT")
    try:
        request = smf.request_of(ie.UPDATE)
        equal((request.seid, request.get(ie.NODE_ID)), (None, ie.node_id(lab["n4"])[4:]), "SEID and Node ID")
        equal(request.get(ie.ASSOCIATION_RELEASE_REQUEST), b"\x01", "SARR")
        equal(request.get(ie.GRACEFUL_RELEASE_PERIOD), b"\x0f", "15 times 2 s")
        lab.goes(session)
        equal(smf.establish(*lab.session(draft=True).parts()).cause, 75, "establishment")
        refused = smf.request(ie.SETUP, ie.node_id(smf.name), ie.recovery(smf.started))
        equal(refused.cause, 75, "association setup")
        lab.goes(session)
        session.delete()
        equal(smf.release().cause, 1, "release")
        equal(lab.metrics()["upf_draining"], 1, "upf_draining")
    finally:
        lab.in_upf(*api, "DELETE")
    equal(lab.metrics()["upf_draining"], 0, "upf_draining")
    smf.associate()
    lab.goes(lab.session())
    lab.n4.flush()
    asked = ["-Y", "pfcp.msg_type == 7 && pfcp.assoc_rel_req.sarr == 1", "-V"]
    shown = subprocess.run(["tshark", "-r", lab.n4.path, *asked], capture_output=True, text=True).stdout
    assert "Graceful Release Period : 30 s" in shown, f"tshark: {shown[-1500:]}"
