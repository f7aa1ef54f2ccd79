"""The user plane: cases 68 to 75, and 78."""

import time

import ie
import packets
from lab import DN, DN6, mark
from packets import IP, IPv6
from rules import far, fresh_tunnel, pdi_downlink, pdi_uplink, pdr, qer, to_core, to_tunnel
from scapy.layers.inet6 import ICMPv6ND_RA, ICMPv6ND_RS
from suite import case, equal

GROUP = "data"


@case(68, "UE source address, framed route, router solicitation", GROUP)
def source_address(lab):
    """TS 29.244 5.3, 5.16: an uplink packet whose source is not the session's (IPv4, IPv6 prefix) is
    dropped and counted; framed routes are the session's too; a Router Solicitation from a link-local address goes
    to the control plane (N4-u) as it is, and the Router Advertisement comes back as it is."""
    session = lab.session(v6=True)
    host = session.v6.replace("::5", "::abcd:1")
    lab.goes_up(session, source=host)
    for source, destination in (("10.47.200.1", DN), ("10.60.1.9", DN), ("fd47:0:0:ffff::5", DN6)):
        inner = packets.udp(source, destination, mark())
        lab.is_counted(lambda: lab.uplink(session, inner), foreign_source=1)
    session.delete()
    routes = [ie.ie(ie.FRAMED_ROUTE, b"10.99.1.0/24 0.0.0.0 1"), ie.ie(ie.FRAMED_IPV6_ROUTE, b"fd99:1::/48 :: 1")]
    framed = lab.session(v6=True, uplink=routes, downlink=routes)
    for address in ("10.99.1.7", "fd99:1:0:2::7"):
        lab.goes_up(framed, source=address)
        equal(lab.goes_down(framed, user=address).teid, framed.gnb_teid, f"downlink to {address}")
    lab.is_dropped_up(framed, "10.99.2.7")
    framed.delete()
    solicitation(lab)


def solicitation(lab):
    draft, control = lab.session(draft=True, v4=False, v6=True), fresh_tunnel()
    shared = ie.choose(number=1)
    text = ie.sdf("permit out 58 from ff02::2/128 to assigned")
    more = [pdr(3, pdi_uplink(shared, text), 3, precedence=10, removal=[0]),
            far(3, ie.FORW, to_tunnel(control, "10.30.1.40", destination=ie.CP_FUNCTION)),
            pdr(4, pdi_uplink(ie.choose(), kind=None, source=ie.CP_FUNCTION), 2, precedence=10, removal=[0])]
    session = lab.session(v4=False, v6=draft.v6, tunnel=shared, more=more)
    asking = bytes(IPv6(src="fe80::77", dst="ff02::2", hlim=255) / ICMPv6ND_RS())
    lab.drain()
    lab.uplink(session, asking)
    found = packets.read(lab.n3.find(lambda it: asking in it))
    equal((found.teid, found.outer.dst, found.payload), (control, "10.30.1.40", asking), "N4-u")
    back = next(ie.read_f_teid(it.get(ie.F_TEID)) for it in session.answer.all(ie.CREATED_PDR)
                if it.number(ie.PDR_ID) == 4)
    advert = bytes(IPv6(src="fe80::1", dst="fe80::77", hlim=255) / ICMPv6ND_RA())
    lab.gnb(packets.gtpu(back[0], advert), "10.30.1.40", back[1])
    found = packets.read(lab.n3.find(lambda it: advert in it))
    equal((found.teid, found.payload), (session.gnb_teid, advert), "the advertisement")


@case(69, "overlapping SDF filters, both directions", GROUP)
def precedence(lab):
    """TS 29.244 5.2.1, 8.2.11: of the PDRs that match, the one with the lowest precedence value."""
    shared = ie.choose(number=1)
    draft = lab.session(draft=True)
    tunnels = {20: fresh_tunnel(), 10: fresh_tunnel(), 30: fresh_tunnel()}
    texts = {20: "permit out 17 from any 5000-5010 to assigned", 10: "permit out 17 from any 5005 to assigned",
             30: "permit out 17 from any 5000-5100 to assigned"}
    more = []
    for number, (value, text) in enumerate(texts.items()):
        up, down = 10 + number, 20 + number
        more += [pdr(up, pdi_uplink(shared, draft.user(False), ie.sdf(text)), up, precedence=value, removal=[0]),
                 far(up, ie.DROP if value != 20 else ie.FORW, to_core() if value == 20 else None),
                 pdr(down, pdi_downlink(draft.user(True), ie.sdf(text)), down, precedence=value),
                 far(down, ie.FORW, to_tunnel(tunnels[value], draft.gnb))]
    session = lab.session(v4=draft.v4, tunnel=shared, more=more)
    for port, value in ((5005, 10), (5001, 20), (5050, 30)):
        equal(lab.goes_down(session, sport=port).teid, tunnels[value], f"downlink from port {port}")
        if value == 20:
            lab.goes_up(session, dport=port)
        else:
            lab.is_dropped_up(session, dport=port)
    equal(lab.goes_down(session, sport=9).teid, session.gnb_teid, "downlink from another port")
    lab.goes_up(session, dport=9)


@case(70, "gates, and MBR of session and flow", GROUP,
      changed="a rate is measured up to 12 times, again only if the machine held the program or the test up for "
              "more than 2 % of the time",
      short="rates over 3 s instead of 10")
def gates_and_rates(lab):
    """TS 29.244 8.2.7, 8.2.8: each gate closes its direction; the rate of each direction is kept within
    5 % over 10 s (3 s in `make test`), both directions at once; at once passes what 100 ms of the rate
    are, and no more; of two QERs both apply. A PDR without QER forwards (a trap)."""
    session = lab.session(qers=[1], more=[qer(1)])
    lab.goes(session)
    session.modify(qer(1, closed=(True, False), kind=ie.UPDATE_QER))
    lab.is_dropped_up(session)
    lab.goes_down(session)
    session.modify(qer(1, closed=(False, True), kind=ie.UPDATE_QER))
    lab.goes_up(session)
    lab.is_dropped_down(session)
    session.delete()
    seconds = 10 if lab.is_soak else 3
    # Session AMBR and flow MBR in kbit/s, uplink and downlink: the lower one of each direction holds.
    for rates in ([(800, 1200)], [(800, 4000), (4000, 1200)]):
        more = [qer(number, rate=rate) for number, rate in enumerate(rates, 1)]
        limited = lab.session(qers=range(1, len(rates) + 1), more=more)
        wanted = {"uplink": min(up for up, _ in rates), "downlink": min(down for _, down in rates)}
        lab.until_right(lambda: passed(lab, limited, seconds, wanted), lambda found: rate_fault(found, wanted))
        lab.until_right(lambda: pass_at_once(lab, limited), lambda found: burst_fault(found, wanted))
        limited.delete()


# Octets of an inner packet of a rate, and ms of the rate that pass at once.
SIZE, BURST_MS = 500, 100


def rate_packets(lab, session):
    """Returns packets of which the inner ones have SIZE octets: uplink at the gNB, downlink at N6."""
    inner = packets.udp(session.v4, DN, b"R" * (SIZE - 28))
    message = packets.gtpu(session.teid, inner, pdu=(0x10, 1))
    up = packets.tunnelled(session.gnb, session.upf, message)
    return {"uplink": (lab.n3, up), "downlink": (lab.n6, packets.udp(DN, session.v4, b"R" * (SIZE - 28)))}


def rate_arrivals(lab):
    """Returns the numbers of packets of a rate that have come."""
    return {"uplink": sum(b"RRRR" in it for it in lab.n6.take()), "downlink": sum(b"RRRR" in it for it in lab.n3.take())}


def passed(lab, session, seconds, wanted):
    """Returns the rates in kbit/s (inner octets) that pass of twice the rates, the burst of the
    beginning left out: measured between the first arrival after a second and the last."""
    sent = {name: [wire.burst([packet]), wire, 0, SIZE * 8 / (2000 * wanted[name])]
            for name, (wire, packet) in rate_packets(lab, session).items()}
    lab.drain()
    start, arrivals = time.monotonic(), {name: [] for name in sent}
    while (now := time.monotonic()) < start + seconds + 1:
        for it in sent.values():
            frame, wire, number, gap = it
            while now > start + number * gap:
                frame.send(wire.socket)
                number += 1
            it[2] = number
        for name, count in rate_arrivals(lab).items():
            arrivals[name] += [time.monotonic()] * count
        time.sleep(0.001)
    late = {name: [it for it in times if it > start + 1] for name, times in arrivals.items()}
    assert all(len(times) > 10 for times in late.values()), f"packets that passed: {late}"
    return {name: (len(times) - 1) * SIZE * 8 / 1000 / (times[-1] - times[0]) for name, times in late.items()}


def rate_fault(found, wanted):
    wrong = {name: round(rate) for name, rate in found.items() if not 0.95 < rate / wanted[name] < 1.05}
    return f"{wrong} kbit/s, not {wanted}" if wrong else None


def pass_at_once(lab, session):
    """Returns for each direction the packets that pass of 200 at once, and how long in s it took."""
    found = {}
    for name, (wire, packet) in rate_packets(lab, session).items():
        lab.fence()
        time.sleep(2 * BURST_MS / 1000)  # what was used is there again
        lab.drain()
        start = time.monotonic()
        wire.at_once([packet] * 100)
        wire.at_once([packet] * 100)
        seen = lab.fence() if name == "downlink" else (lab.fence(), lab.n6.take())[1]
        found[name] = sum(b"RRRR" in it for it in seen), time.monotonic() - start
    return found


def burst_fault(found, wanted):
    for name, (count, seconds) in found.items():
        # The packet that finds the burst used up exactly still passes.
        least = BURST_MS * wanted[name] // (8 * SIZE) + 1
        most = least + 1 + seconds * 1000 * wanted[name] / (8 * SIZE)
        if not least <= count <= most:
            return f"{name}: {count} packets at once, not {least} to {most:.1f}"
        if most >= 200:
            return f"{name}: it took {seconds:.2f} s"
    return None


@case(71, "TTL and hop limit", GROUP)
def time_to_live(lab):
    """RFC 1812 5.3.1, RFC 8200 3: one less each way; a packet that has none left is answered with an
    ICMP error, which goes the way back."""
    session = lab.session(v6=True)
    for user, far_end in ((session.v4, DN), (session.v6, DN6)):
        layer, limit = (IPv6, "hlim") if ":" in user else (IP, "ttl")
        marker = mark()
        lab.uplink(session, packets.udp(user, far_end, marker, **{limit: 9}))
        equal(getattr(layer(lab.at_dn(marker)), limit), 8, "uplink")
        marker = mark()
        lab.n6.send(packets.udp(far_end, user, marker, **{limit: 9}))
        equal(getattr(layer(lab.at_gnb(marker).payload), limit), 8, "downlink")
        marker = mark()
        lab.uplink(session, packets.udp(user, far_end, marker, **{limit: 1}))
        error = lab.at_gnb(marker)
        equal(error.teid, session.gnb_teid, "the error's tunnel")
        is_exceeded(error.payload, user)
        marker = mark()
        lab.n6.send(packets.udp(far_end, user, marker, **{limit: 1}))
        is_exceeded(lab.at_dn(marker), far_end)


def is_exceeded(packet, destination):
    layer = IPv6 if packet[0] >> 4 == 6 else IP
    error = layer(packet)
    equal(error.dst, destination, "the error's destination")
    kind = packet[40] if layer is IPv6 else packet[20]
    equal(kind, 3 if layer is IPv6 else 11, "ICMP type: time exceeded")
    if layer is IP:
        equal((packets.checksum(packet[:20]), packets.checksum(packet[20:])), (0, 0), "checksums")


def downlink_of(lab, user, size, **fields):
    """Builds a downlink UDP packet of `size` octets."""
    far_end, head = (DN6, 48) if ":" in user else (DN, 28)
    return packets.udp(far_end, user, mark().ljust(size - head, b"x"), **fields)


@case(72, "downlink longer than the MTU of N3", GROUP)
def path_mtu(lab):
    """TS 29.281 13: with DF an ICMP error with the MTU that passes (IPv6: packet too big): a packet of
    that size passes, one octet more does not. Without DF it arrives all the same: our policy is in
    the README."""
    session = lab.session(v6=True)
    for user in (session.v4, session.v6):
        long = downlink_of(lab, user, 1500, **({} if ":" in user else {"flags": "DF"}))
        seen = lab.comes_of(lambda: lab.n6.send(long))
        assert not [it for it in seen.get("n3", []) if packets.read(it)], "it went into the tunnel"
        # It may come later than what is behind it on N3.
        error = seen["n6"][0] if "n6" in seen else lab.n6.find(lambda it: True)
        if ":" in user:
            equal(error[40], 2, "ICMPv6 type: packet too big")
            mtu = int.from_bytes(error[44:48], "big")
        else:
            equal((error[20], error[21]), (3, 4), "ICMP: fragmentation needed")
            mtu = int.from_bytes(error[26:28], "big")
        assert 1400 <= mtu <= 1464, f"MTU {mtu}"
        fields = {} if ":" in user else {"flags": "DF"}
        fits, over = downlink_of(lab, user, mtu, **fields), downlink_of(lab, user, mtu + 1, **fields)
        lab.n6.send(fits)
        found = packets.read(lab.n3.find(lambda it: getattr(packets.read(it), "kind", None) == 255))
        equal(len(found.payload), mtu, "octets that pass")
        assert len(found.packet) <= 1500, f"outer packet of {len(found.packet)} octets"
        seen = lab.comes_of(lambda: lab.n6.send(over))
        assert not [it for it in seen.get("n3", []) if packets.read(it)], "one octet more passed"
        if "n6" not in seen:
            lab.n6.find(lambda it: True)  # as above; it would be taken for the next user's
    whole = downlink_of(lab, session.v4, 1500)
    lab.drain()
    lab.n6.send(whole)
    equal(reassembled(lab.fence()), whole[28:], "octets of a packet without DF")


def reassembled(seen):
    """The UDP payload in GTP-U messages, one of which may be outer fragments, or whose inner packets
    may be."""
    outer = [it for it in seen if it[0] >> 4 == 4 and it[9] == 17]
    outer.sort(key=lambda it: int.from_bytes(it[6:8], "big") & 0x1FFF)
    split = [it for it in outer if int.from_bytes(it[6:8], "big") & 0x3FFF]
    if split:
        body = b"".join(it[20:] for it in split)
        at = body.index(b"\x45\x00\x05\xdc")
        return body[at + 28:]
    inner = [packets.read(it).payload for it in outer if packets.read(it)]
    inner.sort(key=lambda it: int.from_bytes(it[6:8], "big") & 0x1FFF)
    return b"".join(it[20:] for it in inner)[8:]


@case(73, "fields of the outer header", GROUP)
def outer_header(lab):
    """4.4, TS 29.244 8.2.12: checksums are right (UDP over IPv4 may have none, over IPv6 never); DSCP
    from the Transport Level Marking; ECN is copied in and out (RFC 6040)."""
    draft = lab.session(draft=True)
    six = "fd30:1::2"
    marking = ie.ie(ie.TRANSPORT_LEVEL_MARKING, b"\xb8\xfc")
    for gnb in (draft.gnb, six) if lab.upf6 else (draft.gnb,):
        teid = fresh_tunnel()
        fars = [far(1, ie.FORW, to_core()), far(2, ie.FORW, to_tunnel(teid, gnb, marking))]
        session = lab.session(fars=fars, outer6=gnb == six, gnb=gnb)
        for ecn in (0, 3):
            marker = mark()
            lab.n6.send(packets.udp(DN, session.v4, marker, tos=ecn))
            found = lab.at_gnb(marker)
            tos = found.outer.tc if gnb == six else found.outer.tos
            equal((found.teid, tos), (teid, 0xB8 | ecn), "TEID, traffic class")
            assert packets.is_sound(found.packet), f"checksums of {found.packet.hex()}"
            equal(found.outer.dst, gnb, "far end")
        marker = mark()
        message = packets.gtpu(session.teid, packets.udp(session.v4, DN, marker, tos=1), pdu=(0x10, 1))
        key = "tc" if gnb == six else "tos"
        lab.gnb(message, gnb, session.upf_v6 if gnb == six else session.upf, **{key: 3})
        inner = lab.at_dn(marker)
        equal(inner[1] & 3, 3, "ECN of the inner packet")
        assert packets.is_sound(inner), "checksums of the inner packet"


@case(74, "UE to UE", GROUP)
def hairpin(lab):
    """TS 23.501 5.8.2: by the rules of N6, both ways (another UPF crashes)."""
    one, two = lab.session(v6=True), lab.session(v6=True)
    for here, there in ((one, two), (two, one)):
        for source, destination in ((here.v4, there.v4), (here.v6, there.v6)):
            marker = mark()
            lab.uplink(here, packets.udp(source, destination, marker))
            found = lab.at_gnb(marker)
            equal(found.teid, there.gnb_teid, "TEID")


@case(75, "N9, uplink classifier", GROUP)
def n9(lab):
    """TS 23.501 5.6.4: what a tunnel takes on to the next UPF has its octets kept; a filter takes some
    of it to the data network here; downlink from N9 goes on to the gNB."""
    shared, remote, draft = ie.choose(number=1), fresh_tunnel(), lab.session(draft=True)
    anchor = "10.90.1.2"
    text = ie.sdf("permit out ip from 10.60.1.0/24 to assigned")
    fars = [far(1, ie.FORW, to_tunnel(remote, anchor, destination=ie.CORE, instance="n9")),
            far(2, ie.FORW, to_tunnel(draft.gnb_teid, draft.gnb)), far(3, ie.FORW, to_core())]
    more = [pdr(3, pdi_uplink(shared, draft.user(False), text), 3, precedence=10, removal=[0]),
            pdr(4, pdi_uplink(ie.choose(), source=ie.CORE, instance="n9", kind=15), 2, precedence=50, removal=[0])]
    session = lab.session(v4=draft.v4, tunnel=shared, fars=fars, more=more)
    session.gnb_teid = draft.gnb_teid
    marker = mark()
    inner = packets.udp(session.v4, "10.77.7.7", marker)
    lab.uplink(session, inner)
    found = lab.at_gnb(marker, wire=lab.n9)
    equal((found.teid, found.outer.dst, found.payload), (remote, anchor, inner), "on N9")
    lab.goes_up(session)
    from_n9 = next(ie.read_f_teid(it.get(ie.F_TEID)) for it in session.answer.all(ie.CREATED_PDR)
                   if it.number(ie.PDR_ID) == 4)
    marker = mark()
    inner = packets.udp("10.77.7.7", session.v4, marker)
    lab.n9.send(packets.tunnelled(anchor, from_n9[1], packets.gtpu(from_n9[0], inner)))
    found = lab.at_gnb(marker)
    equal((found.teid, found.payload), (session.gnb_teid, inner), "from N9")
    equal(lab.goes_down(session).teid, session.gnb_teid, "from the local data network")


@case(78, "IPv4v6 session", GROUP)
def dual_stack(lab):
    """TS 23.501 5.6: one session, both families, both ways; also without the optional interface types
    (a trap: another UPF does not forward then), and with a network instance written as labels of a
    name (as some SMFs do)."""
    for types, instance in ((True, "internet"), (False, "internet"), (True, b"\x08internet")):
        session = lab.session(v6=True, types=types, instance=instance, more=[ie.u8(ie.PDN_TYPE, 3)])
        for user in (session.v4, session.v6):
            lab.goes_up(session, source=user)
            equal(lab.goes_down(session, user=user).teid, session.gnb_teid, "TEID")


