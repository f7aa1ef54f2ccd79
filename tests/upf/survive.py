"""Restarts of fast and slow path: cases 81, 82, and the quiet time of case 58."""

import os
import signal
import time

import ie
import packets
from change import usage
from lab import DN, mark
from packets import gtpu
from rules import far, qer, urr
from suite import case, equal

GROUP = "survive"


def kill(lab, half):
    """Kills the fast or slow path (SIGKILL); returns when it was restarted."""
    before = lab.processes()[half]
    if half == "fast":
        lab.beyond = None  # its sessions may be lost
    os.kill(before, signal.SIGKILL)
    end = time.monotonic() + 30
    while lab.processes().get(half, before) == before:
        assert time.monotonic() < end, f"the {half} half does not come back"
        time.sleep(0.02)


def answered(lab, within=30):
    """Waits until the slow path responds again."""
    end = time.monotonic() + within
    while True:
        try:
            return lab.smf.request(ie.HEARTBEAT, ie.recovery(lab.smf.started), within=0.3)
        except AssertionError:
            assert time.monotonic() < end, "no heartbeat response"


@case(58, "G-PDU for an unknown TEID", GROUP)
def quiet(lab):
    """TS 23.527 4.2.2: for the set time after a restart of the user plane there are no error
    indications: the control plane may be about to restore the sessions. Then there are."""
    def is_indicated():
        seen = lab.comes_of(lambda: lab.gnb(gtpu(0x00DE_0001, packets.udp("10.47.9.9", DN))))
        return any((it := packets.read(one)) and it.kind == 26 for one in seen.get("n3", []))
    kill(lab, "fast")
    start = time.monotonic()
    lab.until_forwarding()
    if time.monotonic() - start < lab["quiet-s"] - 1:
        assert not is_indicated(), "an error indication just after the restart"
    while not is_indicated():
        assert time.monotonic() < start + lab["quiet-s"] + 20, "no error indication after the quiet time"
        time.sleep(0.3)


@case(81, "URR octets add up", GROUP,
      changed="no packet is lost at a full transmit queue here; a killed fast path process is judged by "
              "`tests/upf_survival`", short="one account of four sessions instead of 20")
def exact(lab):
    """TS 29.244 5.2.2: octets of inner IP packets that passed all gates and meters; with MBQE those
    before them. Reported = arrived, exactly, also when the slow half is killed in between; and all
    packets that are offered, on all lanes, have their outcome: forwarded and reported, or dropped and
    counted by reason. Held packets of a session that is deleted are neither reported nor lost."""
    session = lab.session(urrs=[1, 2], qers=[1], more=[
        urr(1), urr(2, ie.u8(ie.MEASUREMENT_INFORMATION, 1)), qer(1)])
    up = down = 0
    for step in range(3):
        for size in (20, 99, 400):
            up += lab.octets(lab.goes_up(session))
            marker = mark(size)
            lab.n6.send(packets.udp(DN, session.v4, marker))
            down += len(lab.at_gnb(marker).payload)
        if step == 0:
            kill(lab, "slow")
            answered(lab)
        if step == 1:
            report = usage(session.modify(ie.ie(ie.QUERY_URR, ie.u32(ie.URR_ID, 1))), ie.USAGE_SMR)
            equal(report, {1: (0, 0x80, [up + down, up, down])}, "after the slow half was killed")
            before = up, down
    session.modify(qer(1, closed=(True, True), kind=ie.UPDATE_QER))
    blocked = packets.udp(session.v4, DN, mark())
    lab.is_counted(lambda: lab.uplink(session, blocked), gate_closed=1)
    report = usage(session.delete(), ie.USAGE_SDR)
    one, two = up - before[0], down - before[1]
    equal(report[1], (1, 0x800, [one + two, one, two]), "what passed")
    offered = up + len(blocked)
    equal(report[2], (0, 0x800, [offered + down, offered, down]), "what was offered (MBQE)")
    for _ in range(20 if lab.is_soak else 1):
        account(lab)


def account(lab):
    """Offers four sessions more than their meters let pass, sources that are not theirs, packets of
    nobody, and packets that are held when their session ends; compares what was offered, has come and
    was reported with the counters."""
    more = [urr(1), urr(2, ie.u8(ie.MEASUREMENT_INFORMATION, 1)), qer(1, rate=(80, 160))]
    sessions = [lab.session(urrs=[1, 2], qers=[1], more=more) for _ in range(4)]
    equal({it.up_seid % lab.lanes for it in sessions}, set(range(lab.lanes)), "lanes of the sessions")
    each, foreign, size = 100, 7, 28 + 24
    lab.drain()
    before, arrived = lab.outcomes(), {"n3": [], "n6": []}
    for session in sessions:
        inner = packets.udp(session.v4, DN, mark())
        ups = [tunnel(session, inner)] * each + [tunnel(session, packets.udp("10.47.250.1", DN, mark()))] * foreign
        downs = [packets.udp(DN, session.v4, mark())] * each
        # Not more at once than a ring holds.
        for at in range(0, len(ups), 50):
            lab.n3.at_once(ups[at:at + 50] + [packets.tunnelled(session.gnb, session.upf, gtpu(0x00DE_0002, inner))])
            lab.n6.at_once(downs[at:at + 50] + [packets.udp(DN, "10.47.250.2", mark())])
            arrived["n3"] += lab.fence()
            arrived["n6"] += lab.n6.take()
    # An echo goes round on N3 only, so packets on N6 and those of the other lane may come after it.
    end = time.monotonic() + 10
    while True:
        up = [it for it in arrived["n6"] if b"<" in it]
        down = [it for it in map(packets.read, arrived["n3"]) if it and it.kind == 255]
        now = lab.outcomes()
        sent = [now[name] - before[name] for name in ("forwarded_uplink", "forwarded_downlink")]
        if [len(up), len(down)] == sent or time.monotonic() > end:
            break
        time.sleep(0.05)
        arrived["n3"] += lab.fence()
        arrived["n6"] += lab.n6.take()
    nobodys = 3 * len(sessions)
    exceeded = 2 * each * len(sessions) - len(up) - len(down)
    assert up and down and exceeded > 0, f"{len(up)} uplink, {len(down)} downlink, {exceeded} above the rate"
    so_far = dict(
        forwarded_uplink=len(up), forwarded_downlink=len(down), rate_exceeded=exceeded,
        foreign_source=foreign * len(sessions), unknown_tunnel=nobodys, unknown_user=nobodys,
        error_indication_sent=None, error_indication_suppressed=None, icmp_sent=None, icmp_suppressed=None)
    lab.have_grown(before, **so_far)
    kill(lab, "slow")
    answered(lab)
    for session in sessions:
        session.modify(far(2, ie.BUFF, None, kind=ie.UPDATE_FAR))
    each_held, held = 10, 10 * len(sessions)
    for session in sessions:
        lab.n6.at_once([packets.udp(DN, session.v4, mark())] * each_held)
    # A packet that comes after the end of its session is nobody's.
    lab.have_grown(before, held=held, **so_far)
    assert not [it for it in map(packets.read, lab.fence()) if it and it.kind == 255], "held packets came"
    passed, offered = [0, 0], [0, 0]
    for session in sessions:
        report = usage(session.delete(), ie.USAGE_SDR)
        for of, sums in ((1, passed), (2, offered)):
            total, *both = report[of][2]
            equal(total, sum(both), "total octets")
            sums[:] = [one + more for one, more in zip(sums, both)]
    equal(passed, [len(up) * size, len(down) * size], "octets that are reported")
    equal(offered, [each * len(sessions) * size] * 2, "octets before the meters (MBQE)")
    lab.fence()
    lab.have_grown(before, held=held, hold_discarded=held, **so_far)


def tunnel(session, inner):
    """Returns an uplink packet as the gNB sends it."""
    return packets.tunnelled(session.gnb, session.upf, gtpu(session.teid, inner, pdu=(0x10, 1)))


@case(82, "a half crashes", GROUP)
def crash(lab):
    """TS 23.527: the slow half killed loses no packet and no session, keeps the recovery time stamp,
    and answers a repeated request with the same octets. The fast half killed: sessions are in shared
    memory, or the recovery time stamp says that they are gone."""
    smf, session = lab.smf, lab.session()
    stamp = smf.heartbeat().number(ie.RECOVERY_TIME_STAMP)
    change = ie.message(ie.MODIFY, smf.sequence(), seid=session.up_seid)
    first = smf.exchange(change).bytes
    lab.drain()
    victim, count = lab.processes()["slow"], 300
    for at in range(count):
        lab.uplink(session, packets.udp(session.v4, DN, mark()))
        if at == 100:
            os.kill(victim, signal.SIGKILL)
        time.sleep(0.003)
    assert answered(lab).number(ie.RECOVERY_TIME_STAMP) == stamp, "the recovery time stamp has changed"
    lab.fence()
    equal(sum(b"<" in it for it in lab.n6.take()), count, "packets while the slow half was killed")
    equal(smf.exchange(change).bytes, first, "the answer to a repeated request")
    lab.goes(session)
    lab.goes(lab.session())
    kill(lab, "fast")
    lab.until_forwarding()
    now = answered(lab).number(ie.RECOVERY_TIME_STAMP)
    if now == stamp:
        lab.goes(session)
        session.delete()
    else:
        assert now > stamp, "the recovery time stamp goes back"
        smf.associate(started=smf.started + 1)
    lab.goes(lab.session())


