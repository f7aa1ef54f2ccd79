"""Sessions of an SMF: an uplink and a downlink rule with optional parts."""

import itertools

import ie

_users = itertools.count(10)
_tunnels = itertools.count(0x1001)


def network(instance):
    """Network Instance (8.2.4): text, or octets as they are."""
    octets = instance if isinstance(instance, bytes) else instance.encode()
    return ie.ie(ie.NETWORK_INSTANCE, octets)


def pdi_uplink(tunnel, *more, instance="access", kind=11, source=ie.ACCESS):
    """Returns the PDI of a rule for packets from a tunnel."""
    parts = [ie.u8(ie.SOURCE_INTERFACE, source), tunnel]
    if instance:
        parts.append(network(instance))
    parts.extend(more)
    if kind is not None:
        parts.append(ie.interface_type(kind))
    return ie.ie(ie.PDI, *parts)


def pdi_downlink(user, *more, instance="internet", kind=17):
    """Returns the PDI of a rule for packets from the data network."""
    parts = [ie.u8(ie.SOURCE_INTERFACE, ie.CORE)]
    if instance:
        parts.append(network(instance))
    parts.append(user)
    parts.extend(more)
    if kind is not None:
        parts.append(ie.interface_type(kind))
    return ie.ie(ie.PDI, *parts)


def pdr(number, pdi, far, *more, precedence=100, removal=None, qers=(), urrs=(), kind=ie.CREATE_PDR):
    """Create (or Update) PDR."""
    parts = [ie.u16(ie.PDR_ID, number), ie.u32(ie.PRECEDENCE, precedence), pdi]
    if removal is not None:
        parts.append(ie.ie(ie.OUTER_HEADER_REMOVAL, bytes(removal)))
    if far is not None:
        parts.append(ie.u32(ie.FAR_ID, far))
    parts.extend(ie.u32(ie.URR_ID, it) for it in urrs)
    parts.extend(ie.u32(ie.QER_ID, it) for it in qers)
    return ie.ie(kind, *parts, *more)


def far(number, action, forwarding=None, *more, kind=ie.CREATE_FAR):
    """Create (or Update) FAR; the action as octets or as a number of two octets."""
    octets = bytes([action, 0]) if isinstance(action, int) else bytes(action)
    parts = [ie.u32(ie.FAR_ID, number), ie.ie(ie.APPLY_ACTION, octets)]
    if forwarding is not None:
        parts.append(forwarding)
    return ie.ie(kind, *parts, *more)


def to_core(*more, instance="internet", kind=17, group=ie.FORWARDING):
    """Forwarding parameters towards the data network."""
    parts = [ie.u8(ie.DESTINATION_INTERFACE, ie.CORE)]
    if instance:
        parts.append(network(instance))
    if kind is not None:
        parts.append(ie.interface_type(kind))
    return ie.ie(group, *parts, *more)


def to_tunnel(teid, address, *more, destination=ie.ACCESS, instance="access", group=ie.FORWARDING,
              flags=None):
    """Forwarding parameters into a tunnel."""
    parts = [ie.u8(ie.DESTINATION_INTERFACE, destination)]
    if instance:
        parts.append(network(instance))
    if teid is not None:
        parts.append(ie.creation(teid, address))
    if flags is not None:
        parts.append(ie.u8(ie.SMREQ_FLAGS, flags))
    return ie.ie(group, *parts, *more)


def qer(number, *more, closed=(False, False), rate=None, qfi=None, kind=ie.CREATE_QER):
    """Create (or Update) QER; `closed` and `rate` are uplink and downlink."""
    parts = [ie.u32(ie.QER_ID, number), ie.gate(*closed)]
    if rate is not None:
        parts.append(ie.rate(*rate))
    if qfi is not None:
        parts.append(ie.u8(ie.QFI, qfi))
    return ie.ie(kind, *parts, *more)


def urr(number, *more, method=2, triggers=0, kind=ie.CREATE_URR):
    """Create (or Update) URR; measures volume unless another method is named."""
    parts = [ie.u32(ie.URR_ID, number), ie.u8(ie.MEASUREMENT_METHOD, method)]
    return ie.ie(kind, *parts, ie.triggers(triggers), *more)


def bar(number, *more, kind=ie.CREATE_BAR):
    return ie.ie(kind, ie.u8(ie.BAR_ID, number), *more)


def fresh_user():
    """An IPv4 and an IPv6 address that no other session has: of the pool that the SMF gives out."""
    number = next(_users)
    return f"10.47.{number >> 8}.{number & 255}", f"fd47:0:0:{number:x}::5"


def fresh_tunnel():
    return next(_tunnels)


class Session:
    """A session of the usual form: PDR 1 and FAR 1 uplink, PDR 2 and FAR 2 downlink.

    Keywords: `v4`, `v6` the user's addresses (False for none), `gnb` the address of the far end,
    `uplink` and `downlink` more parts of the two PDIs, `pdrs` more parts of both PDRs, `more` other
    parts of the request, `fars` instead of the two FARs,
    `draft` to send nothing: its `parts` are wanted."""

    def __init__(self, smf, **how):
        self.smf = smf
        four, six = fresh_user()
        self.v4 = four if how.get("v4") is None else how["v4"]
        self.v6 = how.get("v6") and (six if how["v6"] is True else how["v6"])
        self.gnb, self.gnb_teid = how.get("gnb", "10.30.1.2"), fresh_tunnel()
        self.instance = how.get("instance", "internet")
        self.seid = how.get("seid") or next(smf.seids)
        self.how = how
        if how.get("draft"):
            return
        self.answer = smf.establish(*self.parts(), seid=self.seid)
        if how.get("check", True):
            assert self.answer.cause == 1, f"establishment: {self.answer}"
            self.learn(self.answer)

    def learn(self, answer):
        """Takes the values of the Session Establishment Response."""
        self.answer = answer
        assert answer.seid == self.seid, f"header SEID {answer.seid}, not {self.seid}"
        self.up_seid = ie.read_f_seid(answer.get(ie.F_SEID))
        self.smf.lab.know(self.smf, self.seid, self.up_seid)
        self.teid = self.upf = None
        for created in answer.all(ie.CREATED_PDR):
            if created.number(ie.PDR_ID) == 1 and created.get(ie.F_TEID):
                self.teid, four, six = ie.read_f_teid(created.get(ie.F_TEID))
                self.upf, self.upf_v6 = four, six

    def user(self, destination):
        return ie.ue_address(self.v4 or None, self.v6 or None, destination)

    def pdrs(self):
        how = self.how
        qers, urrs = how.get("qers", ()), how.get("urrs", ())
        tunnel = how.get("tunnel") or ie.choose(v6=bool(how.get("outer6")), v4=not how.get("outer6"))
        up_user = [self.user(False)] if how.get("check_source", True) else []
        types = (11, 17) if how.get("types", True) else (None, None)
        up = pdi_uplink(tunnel, *up_user, *how.get("uplink", ()), kind=types[0])
        down = pdi_downlink(self.user(True), *how.get("downlink", ()), instance=self.instance,
                            kind=types[1])
        removal = how.get("removal", [0])
        return [pdr(1, up, 1, *how.get("pdr", ()), removal=removal, qers=qers, urrs=urrs),
                pdr(2, down, 2, *how.get("pdr", ()), qers=qers, urrs=urrs)]

    def fars(self):
        kind = 17 if self.how.get("types", True) else None
        return [far(1, ie.FORW, to_core(instance=self.instance, kind=kind)),
                far(2, ie.FORW, to_tunnel(self.gnb_teid, self.gnb))]

    def parts(self):
        fars = self.how.get("fars")
        fars = self.fars() if fars is None else fars
        return [*self.pdrs(), *fars, *self.how.get("more", ())]

    def modify(self, *parts, cause=1):
        answer = self.smf.request(ie.MODIFY, *parts, seid=self.up_seid)
        assert answer.cause == cause, f"modification: {answer}"
        assert answer.seid == self.seid, f"header SEID {answer.seid}, not {self.seid}"
        return answer

    def delete(self, cause=1):
        answer = self.smf.request(ie.DELETE, seid=self.up_seid)
        assert answer.cause == cause, f"deletion: {answer}"
        return answer
