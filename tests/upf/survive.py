"""Restarts of fast and slow path: cases 81, 82, and the quiet time of case 58."""

import os
import signal
import time

import ie
import packets
from change import usage
from lab import DN, mark
from packets import gtpu
from rules import qer, urr
from suite import case, equal

GROUP = "survive"


def kill(lab, half):
    """Kills the fast or slow path (SIGKILL); returns when it was restarted."""
    before = lab.processes()[half]
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


@case(81, "URR octets add up", GROUP)
def exact(lab):
    """TS 29.244 5.2.2: octets of inner IP packets that passed all gates and meters; with MBQE those
    before them. Reported = arrived, exactly, also when the slow half is killed in between."""
    session = lab.session(urrs=[1, 2], qers=[1], more=[
        urr(1), urr(2, ie.u8(ie.MEASUREMENT_INFORMATION, 1)), qer(1)])
    up = down = 0
    for step in range(3):
        for size in (20, 99, 400):
            up += len(lab.goes_up(session))
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
    lab.is_dropped(lambda: lab.uplink(session, blocked))
    report = usage(session.delete(), ie.USAGE_SDR)
    one, two = up - before[0], down - before[1]
    equal(report[1], (1, 0x800, [one + two, one, two]), "what passed")
    offered = up + len(blocked)
    equal(report[2], (0, 0x800, [offered + down, offered, down]), "what was offered (MBQE)")


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


