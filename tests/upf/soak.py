"""Mutated input, PFCP and GTP-U: case 56. All is seeded: the number of a run names its inputs."""

import random
import struct
import time

import ie
import packets
from lab import DN, GNB
from rules import bar, far, fresh_tunnel, pdi_downlink, pdr, qer, to_tunnel, urr
from smf import MADE_UP
from suite import case, equal

GROUP = "soak"
ROUND = 256
# Growth that 20,000 inputs may leave behind, the heap being in pieces: 100 octets each.
GROWTH_KIB = 2048


def seeds(lab, session):
    """Returns valid messages of every type, with many IEs."""
    smf = lab.smf
    draft = lab.session(draft=True, v6=True)
    rich = [*draft.pdrs(), *draft.fars(), urr(1, ie.volume(ie.VOLUME_THRESHOLD, 1, 2, 3), ie.u32(ie.TIME_QUOTA, 9)),
            qer(1, rate=(1000, 1000), qfi=9), bar(1, ie.u8(ie.SUGGESTED_PACKETS, 3)), ie.u8(ie.PDN_TYPE, 3),
            pdr(3, pdi_downlink(draft.user(True), ie.sdf("permit out 17 from 10.0.0.0/8 1-2,5 to assigned 9", number=3),
                                ie.ie(ie.FRAMED_ROUTE, b"10.98.0.0/24 0.0.0.0 1")), 2, qers=[1], urrs=[1])]
    node, start = ie.node_id(smf.name), ie.recovery(smf.started)
    tunnel = to_tunnel(fresh_tunnel(), "10.30.1.2", group=ie.UPDATE_FORWARDING, flags=2)
    queried = ie.ie(ie.QUERY_URR, ie.u32(ie.URR_ID, 1))
    return [
        ie.message(ie.HEARTBEAT, 1, start), ie.message(ie.SETUP, 1, node, start, ie.u8(ie.CP_FUNCTION_FEATURES, 3)),
        ie.message(ie.UPDATE, 1, node), ie.message(ie.PFD, 1), ie.message(ie.RELEASE, 1, ie.node_id("nobody.example")),
        ie.message(ie.SET_DELETION, 1, node, ie.ie(ie.FQ_CSID, b"\1\x0a\x28\0\x02\0\1")),
        *[ie.message(ie.ESTABLISH, 1, node, smf.f_seid(1), *rich, seid=0)] * 6,
        *[ie.message(ie.MODIFY, 1, far(2, ie.FORW, tunnel, kind=ie.UPDATE_FAR), queried, seid=session.up_seid)] * 4,
        ie.message(ie.MODIFY, 1, far(2, 12, kind=ie.UPDATE_FAR), ie.u8(ie.SMREQ_FLAGS, 7), seid=session.up_seid),
        ie.message(ie.DELETE, 1, seid=session.up_seid),
        ie.message(57, 1, ie.u8(ie.CAUSE, 1), seid=session.up_seid), ie.message(2, 1, start),
    ]


def user_seeds(session):
    inner = packets.udp(session.v4, DN)
    six = packets.udp("fd47::5", "fd60:1::2")
    return [packets.gtpu(session.teid, inner), packets.gtpu(session.teid, inner, pdu=(0x10, 1)),
            packets.gtpu(session.teid, six, sequence=5, pn=7), packets.gtpu(0, b"", 1, sequence=1),
            packets.gtpu(session.teid, inner, extensions=[(0x40, b"\0\1"), (0xC0, b"\0\1")]),
            packets.gtpu(0, b"\x10\0\0\0\1\x85\0\4\x0a\x1e\1\2", 26, sequence=0),
            packets.gtpu(session.teid, b"", 254), packets.gtpu(0, b"\x8d\1\x85", 31, sequence=0)]


def mutated(chance, seed):
    """Returns a seed with one to four mutations."""
    data = bytearray(seed)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 4))):
        at = chance.randrange(len(data)) if data else 0
        kind = chance.randrange(7)
        if kind == 0 and data:
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 1 and data:
            data[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        elif kind == 2:
            del data[at:]
        elif kind == 3:
            data[at:at] = chance.randbytes(chance.randrange(1, 9))
        elif kind == 4:
            end = min(at + chance.randrange(1, 40), len(data))
            data[at:at] = data[at:end]
        elif kind == 5:
            del data[at:at + chance.randrange(1, 9)]
        elif len(data) >= at + 2:
            struct.pack_into("!H", data, at, chance.choice((0, 1, 3, 4, 0xFFFF, chance.randrange(2000))))
    return data


def pfcp(chance, seed, number):
    """A mutated message, mostly with a length that is right and a number of its own. Never with one
    of the SMF's: the answer would be taken for the one that the SMF waits for."""
    data = mutated(chance, seed)
    at = 12 if data and data[0] & 1 else 4
    if len(data) >= 16 and chance.random() < 0.95:
        struct.pack_into("!H", data, 2, len(data) - 4)
        struct.pack_into("!I", data, at, number % MADE_UP << 8)
    if len(data) > at:
        data[at] &= MADE_UP - 1 >> 16
    return bytes(data)


@case(56, "random mutation soak", GROUP,
      changed="200,000 inputs, and memory grows by less than 2 MiB; ten million are sent by `tests/upf_mutants`, "
              "where it grows by less than 16 MiB",
      short="20,000 inputs")
def soak(lab):
    """Own: no crash; sessions, memory and frames return. Half of the inputs are PFCP. Frames are counted by
    the program itself when it ends."""
    count = lab["mutants"]
    before = lab.processes()
    hammer(lab, max(4000, count // 5), 1)
    settled = memory_after(lab)
    hammer(lab, count, 2)
    equal(lab.processes(), before, "the processes: one has crashed")
    after = memory_after(lab)
    equal(int(lab.metrics()["upf_sessions"]), 0, "sessions that are left")
    assert after < settled + GROWTH_KIB, f"memory grew from {settled} to {after} KiB"
    capacity(lab)


def hammer(lab, count, seed):
    chance, smf = random.Random(seed), lab.smf
    session = None
    for start in range(0, count, ROUND):
        if start % (ROUND * 8) == 0 or session is None:
            # What went before may have released the association.
            smf.associate(started=smf.started + 1)
            session = lab.session()
            control, user = seeds(lab, session), user_seeds(session)
        for number in range(start, start + ROUND):
            if number % 2:
                smf.socket.sendto(pfcp(chance, chance.choice(control), number), smf.upf)
            else:
                message = bytes(mutated(chance, chance.choice(user)))
                lab.n3.send(packets.tunnelled_fast(GNB, lab.upf, message))
        smf.heartbeat()
        smf.forget()
        lab.drain()
    lab.fence()


def memory_after(lab):
    """Memory when all associations have ended, those of made-up nodes too, and answers are forgotten."""
    # Made-up nodes have the SMF's address: heartbeats that are answered would keep them there.
    lab.smf.is_silent = True
    time.sleep(lab["heartbeat-s"] + lab["n1"] * lab["t1-ms"] / 1000 * 3 + 1)
    lab.smf.is_silent = False
    return lab.memory()


def capacity(lab):
    """Establishes the maximum number of sessions: earlier ones have left nothing behind."""
    lab.smf.associate(started=lab.smf.started + 1)
    end = time.monotonic() + 60
    while True:
        causes = [lab.session(check=False).answer.cause for _ in range(lab["sessions"])]
        if causes.count(1) == lab["sessions"]:
            break
        assert time.monotonic() < end, f"{causes.count(1)} sessions of {lab['sessions']}: {set(causes)}"
        lab.smf.associate(started=lab.smf.started + 1)
        time.sleep(5)
    lab.smf.associate(started=lab.smf.started + 1)
    # Places rest for as long as a request can be repeated.
    time.sleep(lab["n1"] * lab["t1-ms"] / 1000 + 3)
    lab.goes(lab.session())
