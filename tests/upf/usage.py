"""Usage reports without a query: case 51."""

import time

import ie
import packets
from change import usage
from lab import DN, mark
from rules import urr
from suite import case, equal

GROUP = "session"
PERIO, VOLTH, TIMTH, QUHTI, START, STOPT = 1, 2, 4, 8, 16, 32
VOLQU, TIMQU = 0x100, 0x200
# The trigger of a usage report has its own order of bits (8.2.41).
REPORT_MONIT = 0x1000


@case(51, "quota, threshold, monitoring time, period, start and stop of traffic, inactivity", GROUP)
def reports(lab):
    """5.2.2, 5.11: a quota stops and reports; a threshold reports and goes on; a monitoring time
    splits; a period reports by time; start and stop of traffic are events; inactivity is UPIR."""
    for part in (quota, threshold, periodic, start_of_traffic, monitoring, inactivity, time_quota):
        lab.smf.forget()
        part(lab)


def next_usage(lab, within=15):
    """Returns the next usage report of the UPF, by URR."""
    found = lab.smf.reports(within, until=lambda them: any(it.get(ie.USAGE_SRR) for it in them))
    assert found, f"no usage report in {within} s"
    assert found[-1].get(ie.REPORT_TYPE)[0] & 2, "Report Type says USAR"
    return usage(found[-1], ie.USAGE_SRR)


def quota(lab):
    """Exactly as many packets as the quota has room for: not one too many, and then none."""
    size = 28 + 24
    session = lab.session(urrs=[1], more=[urr(1, ie.volume(ie.VOLUME_QUOTA, total=5 * size), triggers=VOLQU)])
    lab.drain()
    for _ in range(12):
        lab.uplink(session, packets.udp(session.v4, DN, mark()))
    lab.fence()
    come = [it for it in lab.n6.take() if b"<" in it]
    equal(len(come), 5, "packets that pass a quota of five")
    equal(next_usage(lab), {1: (0, 0x100, [5 * size, 5 * size, 0])}, "the report")
    # Zero stops all; a new quota lets pass again.
    session.modify(urr(1, ie.volume(ie.VOLUME_QUOTA, total=10 * size * lab.burst), triggers=VOLQU, kind=ie.UPDATE_URR))
    lab.goes(session)
    session.delete()


def threshold(lab):
    size = 28 + 24
    session = lab.session(urrs=[1], more=[urr(1, ie.volume(ie.VOLUME_THRESHOLD, total=3 * size), triggers=VOLTH)])
    for _ in range(3):
        lab.goes_up(session)
    number, trigger, volumes = next_usage(lab)[1]
    equal((number, trigger & 0xFF), (0, VOLTH), "number and trigger")
    assert volumes[0] >= 3 * size, volumes
    for _ in range(3):
        lab.goes_up(session)
    equal(next_usage(lab)[1][0], 1, "the second report's number")
    session.delete()


def periodic(lab):
    more = [urr(1, ie.u32(ie.MEASUREMENT_PERIOD, 1), triggers=PERIO)]
    start = time.monotonic()
    session = lab.session(urrs=[1], more=more)
    first = next_usage(lab)[1]
    second = next_usage(lab)[1]
    equal((first[0], second[0], first[1] & 0xFF), (0, 1, PERIO), "numbers and trigger")
    assert 1.5 < time.monotonic() - start < 15, "two periods of a second"
    session.delete()


def start_of_traffic(lab):
    more = [urr(1, ie.u32(ie.INACTIVITY_DETECTION_TIME, 1), method=1 | 2 | 4, triggers=START | STOPT)]
    session = lab.session(urrs=[1], more=more)
    assert not lab.smf.reports(0.5), "a report before any traffic"
    lab.goes_up(session)
    assert next_usage(lab)[1][1] & START, "start of traffic"
    assert next_usage(lab)[1][1] & STOPT, "stop of traffic"
    session.delete()


def monitoring(lab):
    """The usage before and after the moment comes in reports of their own."""
    ntp = int(time.time()) + 2_208_988_800
    session = lab.session(urrs=[1], more=[urr(1, ie.u32(ie.MONITORING_TIME, ntp + 4))])
    size = lab.octets(lab.goes_up(session))
    time.sleep(max(ntp + 5.5 - 2_208_988_800 - time.time(), 0))
    lab.goes_up(session)
    lab.goes_up(session)
    answer = session.delete()
    both = [ie.read_volume(it.get(ie.VOLUME_MEASUREMENT)) for it in answer.all(ie.USAGE_SDR)]
    marks = [int.from_bytes(it.get(ie.USAGE_REPORT_TRIGGER), "little") for it in answer.all(ie.USAGE_SDR)]
    equal(sorted(it[1] for it in both), [size, 2 * size], "uplink octets before and after")
    assert any(it & REPORT_MONIT for it in marks), f"no trigger MONIT: {marks}"


def inactivity(lab):
    session = lab.session(more=[ie.u32(ie.INACTIVITY_TIMER, 1)])
    found = lab.smf.reports(15, until=bool)
    assert found and found[0].get(ie.REPORT_TYPE)[0] & 8, f"no UPIR: {found}"
    equal(found[0].seid, session.seid, "header SEID")
    lab.goes(session)
    session.delete()


def time_quota(lab):
    session = lab.session(urrs=[1], more=[urr(1, ie.u32(ie.TIME_QUOTA, 1), method=1, triggers=TIMQU)])
    lab.goes_up(session)
    number, trigger, _ = next_usage(lab)[1]
    equal((number, trigger & 0x200), (0, TIMQU), "number and trigger")
    lab.is_dropped_up(session)
    session.delete()
