//! PFCP messages octet by octet (TS 29.244 clauses 7.2.2 and 8.1.1).

/// Message types.
pub(crate) const HEARTBEAT: u8 = 1;
pub(crate) const SETUP: u8 = 5;
pub(crate) const UPDATE: u8 = 7;
pub(crate) const RELEASE: u8 = 9;
pub(crate) const SET_DELETION: u8 = 14;
pub(crate) const MODIFY: u8 = 52;
pub(crate) const DELETE: u8 = 54;
pub(crate) const REPORT: u8 = 56;

/// Element types.
const CAUSE: u16 = 19;
const UP_FEATURES: u16 = 43;
const F_SEID: u16 = 57;
const NODE_ID: u16 = 60;
const FQ_CSID: u16 = 65;
const CP_FEATURES: u16 = 89;
const RECOVERY: u16 = 96;
const INACTIVITY: u16 = 117;
const ALTERNATIVE: u16 = 178;
const SMF_SET: u16 = 180;
const RETENTION: u16 = 183;
const CP_ADDRESS: u16 = 185;

/// Writes an element.
pub(crate) fn ie(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = value.len() as u16;
    [&kind.to_be_bytes()[..], &length.to_be_bytes(), value].concat()
}

/// Writes a node related message.
pub(crate) fn node_message(kind: u8, sequence: u32, ies: &[Vec<u8>]) -> Vec<u8> {
    let body = ies.concat();
    let length = (body.len() + 4) as u16;
    let head = [&[0x20, kind][..], &length.to_be_bytes(), &sequence.to_be_bytes()[1..], &[0]];
    [&head.concat()[..], &body].concat()
}

/// Writes a session related message.
pub(crate) fn session_message(kind: u8, seid: u64, sequence: u32, ies: &[Vec<u8>]) -> Vec<u8> {
    let body = ies.concat();
    let length = (body.len() + 12) as u16;
    let head = [&[0x21, kind][..], &length.to_be_bytes(), &seid.to_be_bytes()].concat();
    [&head[..], &sequence.to_be_bytes()[1..], &[0], &body].concat()
}

/// Writes a Node ID that is an IPv4 address.
pub(crate) fn node_id_v4(address: [u8; 4]) -> Vec<u8> {
    ie(NODE_ID, &[&[0][..], &address].concat())
}

/// Writes a Node ID that is an IPv4 address mapped into IPv6.
pub(crate) fn node_id_mapped(address: [u8; 4]) -> Vec<u8> {
    ie(NODE_ID, &[&[1][..], &[0; 10], &[0xff; 2], &address].concat())
}

/// Writes a Node ID that is a domain name, with what follows the last label.
pub(crate) fn node_id_name(name: &str, end: &[u8]) -> Vec<u8> {
    let mut value = vec![2];
    for label in name.split('.') {
        value.push(label.len() as u8);
        value.extend(label.as_bytes());
    }
    value.extend(end);
    ie(NODE_ID, &value)
}

/// Writes a Recovery Time Stamp.
pub(crate) fn recovery(stamp: u32) -> Vec<u8> {
    ie(RECOVERY, &stamp.to_be_bytes())
}

/// Writes CP Function Features.
pub(crate) fn features(bits: u8) -> Vec<u8> {
    ie(CP_FEATURES, &[bits])
}

/// Writes a Cause.
pub(crate) fn cause_of(cause: u8) -> Vec<u8> {
    ie(CAUSE, &[cause])
}

/// Writes a User Plane Inactivity Timer.
pub(crate) fn inactivity(seconds: u32) -> Vec<u8> {
    ie(INACTIVITY, &seconds.to_be_bytes())
}

/// Writes a CP F-SEID.
pub(crate) fn f_seid(seid: u64, address: [u8; 4]) -> Vec<u8> {
    ie(F_SEID, &[&[2][..], &seid.to_be_bytes(), &address].concat())
}

/// Writes an FQ-CSID of one set.
pub(crate) fn fq_csid(address: [u8; 4], number: u16) -> Vec<u8> {
    ie(FQ_CSID, &[&[1][..], &address, &number.to_be_bytes()].concat())
}

/// Writes an Alternative SMF IP Address.
pub(crate) fn alternative(address: [u8; 4]) -> Vec<u8> {
    ie(ALTERNATIVE, &[&[2][..], &address].concat())
}

/// Writes an SMF Set ID.
pub(crate) fn smf_set(name: &str) -> Vec<u8> {
    let labels = name.split('.').map(|label| [&[label.len() as u8], label.as_bytes()].concat());
    ie(SMF_SET, &[vec![0], labels.collect::<Vec<_>>().concat()].concat())
}

/// Writes Session Retention Information, of all sessions or of those of an address.
pub(crate) fn retention(address: Option<[u8; 4]>) -> Vec<u8> {
    let address = address.map(|it| ie(CP_ADDRESS, &[&[2][..], &it].concat()));
    ie(RETENTION, &address.unwrap_or_default())
}

/// Returns an establishment of another writer under another Node ID and CP F-SEID address, with
/// an FQ-CSID. Its first elements are a Node ID of IPv4 and a CP F-SEID.
pub(crate) fn under_name(
    establishment: &[u8],
    node_id: &[u8],
    address: [u8; 4],
    fq_csid: &[u8],
) -> Vec<u8> {
    let (head, body) = establishment.split_at(16);
    assert_eq!(body[..4], [0, 60, 0, 5], "a Node ID of IPv4");
    let (f_seid, rest) = body[9..].split_at(17);
    assert_eq!(f_seid[..4], [0, 57, 0, 13], "a CP F-SEID of IPv4");
    let body = [node_id, &f_seid[..13], &address, rest, fq_csid].concat();
    let length = (body.len() + 12) as u16;
    [&head[..2], &length.to_be_bytes(), &head[4..], &body].concat()
}

/// Returns the position of the sequence number.
const fn sequence_offset(datagram: &[u8]) -> usize {
    if datagram[0] & 1 == 1 { 12 } else { 4 }
}

/// Returns the sequence number of a message.
pub(crate) fn sequence(datagram: &[u8]) -> u32 {
    let at = sequence_offset(datagram);
    u32::from_be_bytes([0, datagram[at], datagram[at + 1], datagram[at + 2]])
}

/// Writes another sequence number into a message.
pub(crate) fn set_sequence(datagram: &mut [u8], sequence: u32) {
    let at = sequence_offset(datagram);
    datagram[at..at + 3].copy_from_slice(&sequence.to_be_bytes()[1..]);
}

/// Returns the value of the first element of a type.
fn find(datagram: &[u8], wanted: u16) -> Option<&[u8]> {
    let mut rest = datagram.get(sequence_offset(datagram) + 4..)?;
    while let [high, low, first, second, after @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*first, *second]));
        let value = after.get(..length)?;
        if u16::from_be_bytes([*high, *low]) == wanted {
            return Some(value);
        }
        rest = &after[length..];
    }
    None
}

/// Returns the cause of a response, if it has one.
pub(crate) fn cause(datagram: &[u8]) -> Option<u8> {
    find(datagram, CAUSE)?.first().copied()
}

/// Returns the UP Function Features of a message.
pub(crate) fn up_features(datagram: &[u8]) -> Option<&[u8]> {
    find(datagram, UP_FEATURES)
}

/// Returns the SEID in the header of a session related message.
pub(crate) fn header_seid(datagram: &[u8]) -> u64 {
    u64::from_be_bytes(*datagram[4..].first_chunk().expect("a header with SEID"))
}

/// Returns the value of the F-SEID of a message.
pub(crate) fn f_seid_value(datagram: &[u8]) -> Option<&[u8]> {
    find(datagram, F_SEID)
}

/// Returns the SEID of the UPF in the response to an establishment.
pub(crate) fn up_seid(datagram: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*find(datagram, F_SEID)?.get(1..)?.first_chunk()?))
}
