"""PFCP messages as octets: encoding and decoding of information elements, by the tables of
TS 29.244, so that each octet can also be wrong. Scapy and tshark judge the result."""

import ipaddress
import struct

CREATE_PDR, PDI, CREATE_FAR, FORWARDING, DUPLICATING, CREATE_URR, CREATE_QER = 1, 2, 3, 4, 5, 6, 7
CREATED_PDR, UPDATE_PDR, UPDATE_FAR, UPDATE_FORWARDING = 8, 9, 10, 11
UPDATE_URR, UPDATE_QER, REMOVE_PDR, REMOVE_FAR, REMOVE_URR, REMOVE_QER = 13, 14, 15, 16, 17, 18
CAUSE, SOURCE_INTERFACE, F_TEID, NETWORK_INSTANCE, SDF_FILTER = 19, 20, 21, 22, 23
GATE_STATUS, MBR, GBR, PRECEDENCE, TRANSPORT_LEVEL_MARKING = 25, 26, 27, 29, 30
VOLUME_THRESHOLD, TIME_THRESHOLD, MONITORING_TIME = 31, 32, 33
SUBSEQUENT_VOLUME_THRESHOLD, INACTIVITY_DETECTION_TIME, REPORTING_TRIGGERS = 34, 36, 37
REPORT_TYPE, OFFENDING_IE, DESTINATION_INTERFACE, UP_FUNCTION_FEATURES = 39, 40, 42, 43
APPLY_ACTION, NOTIFICATION_DELAY, BUFFERING_DURATION, SUGGESTED_PACKETS_DL = 44, 46, 47, 48
SMREQ_FLAGS, SRRSP_FLAGS, UPDATE_BAR_IN_REPORT = 49, 50, 12
LOAD_CONTROL, SEQUENCE_NUMBER, METRIC, OVERLOAD_CONTROL = 51, 52, 53, 54
PDR_ID, F_SEID, NODE_ID = 56, 57, 60
MEASUREMENT_METHOD, USAGE_REPORT_TRIGGER, MEASUREMENT_PERIOD, FQ_CSID = 62, 63, 64, 65
VOLUME_MEASUREMENT, DURATION_MEASUREMENT, QUOTA_HOLDING_TIME, VOLUME_QUOTA, TIME_QUOTA = 66, 67, 71, 73, 74
QUERY_URR, USAGE_SMR, USAGE_SDR, USAGE_SRR, URR_ID, LINKED_URR_ID = 77, 78, 79, 80, 81, 82
DOWNLINK_DATA_SERVICE = 45
DOWNLINK_DATA_REPORT, OUTER_HEADER_CREATION, CREATE_BAR, UPDATE_BAR, REMOVE_BAR, BAR_ID = 83, 84, 85, 86, 87, 88
CP_FUNCTION_FEATURES, UE_IP_ADDRESS, OUTER_HEADER_REMOVAL, RECOVERY_TIME_STAMP = 89, 93, 95, 96
ERROR_INDICATION_REPORT, MEASUREMENT_INFORMATION, UR_SEQN = 99, 100, 104
NODE_REPORT_TYPE, PATH_FAILURE, REMOTE_GTP_U_PEER, PATH_RECOVERY = 101, 102, 103, 187
FAR_ID, QER_ID, PDN_TYPE, FAILED_RULE_ID, INACTIVITY_TIMER = 108, 109, 113, 114, 117
ASSOCIATION_RELEASE_REQUEST, GRACEFUL_RELEASE_PERIOD = 111, 112
RQI, QFI, SUGGESTED_PACKETS, USER_ID, FRAMED_ROUTE, FRAMED_IPV6_ROUTE = 123, 124, 140, 141, 153, 155
PAGING_POLICY_INDICATOR, INTERFACE_TYPE, SESSION_RETENTION, ASRSP_FLAGS, CP_ENTITY_ADDRESS = 158, 160, 183, 184, 185

HEARTBEAT, PFD, SETUP, UPDATE, RELEASE, VERSION, NODE_REPORT, SET_DELETION = 1, 3, 5, 7, 9, 11, 12, 14
ESTABLISH, MODIFY, DELETE, REPORT = 50, 52, 54, 56

ACCESS, CORE, SGI_LAN, CP_FUNCTION = 0, 1, 2, 3
DROP, FORW, BUFF, NOCP, DUPL = 1, 2, 4, 8, 16

GROUPED = {CREATE_PDR, PDI, CREATE_FAR, FORWARDING, DUPLICATING, CREATE_URR, CREATE_QER,
           CREATED_PDR, UPDATE_PDR, UPDATE_FAR, UPDATE_FORWARDING, UPDATE_URR, UPDATE_QER,
           REMOVE_PDR, REMOVE_FAR, REMOVE_URR, REMOVE_QER, LOAD_CONTROL, OVERLOAD_CONTROL,
           QUERY_URR, USAGE_SMR, USAGE_SDR, USAGE_SRR, DOWNLINK_DATA_REPORT, CREATE_BAR,
           UPDATE_BAR, REMOVE_BAR, ERROR_INDICATION_REPORT, SESSION_RETENTION}


def ie(kind, *parts):
    """Encodes an information element of a type from the parts of its value."""
    value = b"".join(parts)
    return struct.pack("!HH", kind, len(value)) + value


def u8(kind, value):
    return ie(kind, bytes([value]))


def u16(kind, value):
    return ie(kind, struct.pack("!H", value))


def u32(kind, value):
    return ie(kind, struct.pack("!I", value))


def octets(address):
    """Returns the octets of an address in text form, nothing for None."""
    return ipaddress.ip_address(address).packed if address else b""


def is_v6(address):
    return ":" in address


def node_id(name):
    """Node ID (8.2.38): an address, or a name as labels."""
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        labels = b"".join(bytes([len(it)]) + it.encode() for it in name.split("."))
        return ie(NODE_ID, b"\x02", labels)
    return ie(NODE_ID, bytes([0 if address.version == 4 else 1]), address.packed)


def recovery(seconds):
    """Recovery Time Stamp (8.2.65): seconds since 1900."""
    return u32(RECOVERY_TIME_STAMP, seconds & 0xFFFF_FFFF)


def f_seid(seid, v4=None, v6=None):
    """Clause 8.2.37."""
    flags = (2 if v4 else 0) | (1 if v6 else 0)
    return ie(F_SEID, struct.pack("!BQ", flags, seid), octets(v4), octets(v6))


def f_teid(teid, v4=None, v6=None):
    """F-TEID (8.2.3) chosen by the control plane."""
    flags = (1 if v4 else 0) | (2 if v6 else 0)
    return ie(F_TEID, struct.pack("!BI", flags, teid), octets(v4), octets(v6))


def choose(v4=True, v6=False, number=None):
    """F-TEID (8.2.3) that the UPF chooses, one for each CHOOSE ID."""
    flags = 4 | (1 if v4 else 0) | (2 if v6 else 0) | (8 if number is not None else 0)
    return ie(F_TEID, bytes([flags]), b"" if number is None else bytes([number]))


def ue_address(v4=None, v6=None, destination=False, more=0):
    """Clause 8.2.62."""
    flags = (2 if v4 else 0) | (1 if v6 else 0) | (4 if destination else 0) | more
    return ie(UE_IP_ADDRESS, bytes([flags]), octets(v4), octets(v6))


def creation(teid, address):
    """Outer Header Creation (clause 8.2.56), GTP-U."""
    word = 0x0200 if is_v6(address) else 0x0100
    return ie(OUTER_HEADER_CREATION, struct.pack("!HI", word, teid), octets(address))


def sdf(flow=None, tos=None, spi=None, label=None, number=None):
    """An SDF filter (clause 8.2.5)."""
    flags, parts = 0, []
    if flow is not None:
        text = flow.encode()
        flags |= 1
        parts.append(struct.pack("!H", len(text)) + text)
    if tos is not None:
        flags |= 2
        parts.append(bytes(tos))
    if spi is not None:
        flags |= 4
        parts.append(struct.pack("!I", spi))
    if label is not None:
        flags |= 8
        parts.append(struct.pack("!I", label)[1:])
    if number is not None:
        flags |= 16
        parts.append(struct.pack("!I", number))
    return ie(SDF_FILTER, bytes([flags, 0]), *parts)


def volume(kind, total=None, uplink=None, downlink=None):
    """Clauses 8.2.13 and 8.2.50."""
    values = (total, uplink, downlink)
    flags = sum(1 << at for at, value in enumerate(values) if value is not None)
    words = [struct.pack("!Q", value) for value in values if value is not None]
    return ie(kind, bytes([flags]), *words)


def rate(uplink, downlink):
    """Maximum bit rate in kbit/s (clause 8.2.8)."""
    return ie(MBR, uplink.to_bytes(5, "big"), downlink.to_bytes(5, "big"))


def gate(uplink_closed=False, downlink_closed=False):
    """Clause 8.2.7."""
    return u8(GATE_STATUS, (1 if downlink_closed else 0) | (4 if uplink_closed else 0))


def interface_type(value):
    """Clause 8.2.118: 11 N3, 15 N9, 17 N6."""
    return u8(INTERFACE_TYPE, value)


def triggers(value):
    """Reporting triggers (clause 8.2.19), octet 5 in the lowest bits."""
    return ie(REPORTING_TRIGGERS, value.to_bytes(3, "little"))


def message(kind, sequence, *parts, seid=None, version=1, flags=0):
    """Encodes a message (7.2.2)."""
    body = b"".join(parts)
    tail = struct.pack("!I", sequence << 8) + body
    if seid is not None:
        tail = struct.pack("!Q", seid) + tail
    first = version << 5 | flags | (1 if seid is not None else 0)
    return struct.pack("!BBH", first, kind, len(tail)) + tail


def parse(value):
    """Returns the information elements of a group in order, as pairs of type and value."""
    found, at = [], 0
    while at < len(value):
        kind, length = struct.unpack_from("!HH", value, at)
        end = at + 4 + length
        assert end <= len(value), f"information element {kind} overruns"
        found.append((kind, value[at + 4:end]))
        at = end
    return found


class Group:
    """A group of information elements."""

    def __init__(self, value):
        self.ies = parse(value)

    def all(self, kind):
        """Returns all values of this type, grouped IEs as groups."""
        make = Group if kind in GROUPED else bytes
        return [make(value) for found, value in self.ies if found == kind]

    def get(self, kind):
        """Returns the first value of this type, or None."""
        found = self.all(kind)
        return found[0] if found else None

    def number(self, kind):
        """Returns the first value of this type as a number, or None."""
        value = self.get(kind)
        return None if value is None else int.from_bytes(value, "big")


class Message(Group):
    """A received message."""

    def __init__(self, data):
        self.bytes = bytes(data)
        assert len(data) >= 8, "shorter than a header"
        self.first, self.kind, length = struct.unpack_from("!BBH", data)
        assert length + 4 == len(data), f"length {length} in {len(data)} octets"
        has_seid = self.first & 1
        self.seid = struct.unpack_from("!Q", data, 4)[0] if has_seid else None
        at = 12 if has_seid else 4
        self.sequence = struct.unpack_from("!I", data, at)[0] >> 8
        super().__init__(data[at + 4:])

    @property
    def cause(self):
        return self.number(CAUSE)

    @property
    def offending(self):
        return self.number(OFFENDING_IE)

    def __repr__(self):
        return (f"message {self.kind} seid {self.seid} cause {self.cause} offending"
                f" {self.offending} {self.bytes.hex()}")


def read_f_teid(value):
    """Returns TEID, IPv4 and IPv6 address, None for absent ones."""
    flags, (teid,), at = value[0], struct.unpack_from("!I", value, 1), 5
    v4 = v6 = None
    if flags & 1:
        v4, at = str(ipaddress.ip_address(value[at:at + 4])), at + 4
    if flags & 2:
        v6 = str(ipaddress.ip_address(value[at:at + 16]))
    return teid, v4, v6


def read_f_seid(value):
    return struct.unpack_from("!Q", value, 1)[0]


def read_ue(value):
    """Returns IPv4 and IPv6 address of a UE IP Address."""
    flags, at, v4, v6 = value[0], 1, None, None
    if flags & 2:
        v4, at = str(ipaddress.ip_address(value[at:at + 4])), at + 4
    if flags & 1:
        v6 = str(ipaddress.ip_address(value[at:at + 16]))
    return v4, v6


def read_volume(value):
    """Returns total, uplink and downlink octets of a measurement, None for absent ones."""
    flags, at, values = value[0], 1, []
    for bit in range(3):
        if flags & 1 << bit:
            values.append(struct.unpack_from("!Q", value, at)[0])
            at += 8
        else:
            values.append(None)
    return values
