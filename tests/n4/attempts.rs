//! Ways to take over the association or the sessions of another SMF.

use std::slice::from_ref;

use crate::octets::{
    DELETE, HEARTBEAT, MODIFY, RELEASE, SET_DELETION, SETUP, UPDATE, alternative, f_seid, features,
    fq_csid, ie, node_id_mapped, node_id_name, node_id_v4, node_message, recovery, retention,
    session_message, smf_set,
};

/// Address and Node ID of the SMF that is known by its address.
pub(crate) const BY_ADDRESS: [u8; 4] = [10, 40, 0, 2];
/// Address of the SMF that is known by a name.
pub(crate) const BY_NAME: [u8; 4] = [10, 40, 0, 3];
/// Node ID of the SMF that is known by a name.
pub(crate) const NAME: &str = "smf-1.set.example";
/// SMF Set ID of the SMF that is known by a name.
pub(crate) const SET: &str = "set1.smfset.example";
/// Time at which the SMFs have started.
pub(crate) const STARTED: u32 = 3_900_000_000;
/// FQ-CSID of the session of the SMF that is known by a name.
pub(crate) const CSID: u16 = 77;
/// A time later than their start, as after a restart.
const LATER: u32 = STARTED + 1000;
/// An address of the attacker.
pub(crate) const ATTACKER: [u8; 4] = [10, 41, 0, 2];

/// Socket of the attacker from which a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Socket {
    /// IPv4 and the port of PFCP.
    Ordinary,
    /// Another port.
    OtherPort,
    /// IPv6 and the port of PFCP.
    V6,
}

/// A request in the name of another SMF.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    /// Name in messages of the test.
    pub(crate) name: &'static str,
    /// Socket from which it is sent.
    pub(crate) socket: Socket,
    /// Octets of the request, with any sequence number.
    pub(crate) request: Vec<u8>,
}

/// Returns all ways against sessions with these SEIDs of the UPF: of the SMF known by its address,
/// and of the one known by its name.
pub(crate) fn all(seids: [u64; 2], establishment: &[u8]) -> Vec<Attempt> {
    use Socket::{Ordinary, OtherPort, V6};
    let way = |name, socket, request| Attempt { name, socket, request };
    let setup = |ies: &[Vec<u8>]| node_message(SETUP, 0, ies);
    let by_address = || node_id_v4(BY_ADDRESS);
    let by_name = || node_id_name(NAME, &[]);
    let later = || recovery(LATER);
    let mut ways = vec![
        way("setup, newer start", Ordinary, setup(&[by_address(), later()])),
        way("setup, same start", Ordinary, setup(&[by_address(), recovery(STARTED)])),
        way("setup, older start", Ordinary, setup(&[by_address(), recovery(STARTED - 9)])),
        way("setup, other port", OtherPort, setup(&[by_address(), later()])),
        way("setup, other family", V6, setup(&[by_address(), later()])),
        way("setup, mapped Node ID", V6, setup(&[node_id_mapped(BY_ADDRESS), later()])),
        way("setup retains all", Ordinary, setup(&[by_address(), later(), retention(None)])),
        way(
            "setup retains those of its address",
            OtherPort,
            setup(&[by_address(), later(), retention(Some(BY_ADDRESS))]),
        ),
        way("setup, FQDN", Ordinary, setup(&[by_name(), later()])),
        way("setup, FQDN of other case", V6, setup(&[other_case(&[]), later()])),
        way("setup, FQDN with root label", Ordinary, setup(&[other_case(&[0]), later()])),
        way(
            "setup, own address as alternative",
            Ordinary,
            setup(&[by_address(), later(), alternative(ATTACKER)]),
        ),
        way("setup, SMF Set ID", Ordinary, setup(&[by_name(), later(), smf_set(SET)])),
        way("update of features", Ordinary, node_message(UPDATE, 0, &[by_address(), features(0)])),
        way(
            "update of addresses",
            OtherPort,
            node_message(UPDATE, 0, &[by_name(), alternative(ATTACKER), smf_set(SET)]),
        ),
        way("release", Ordinary, node_message(RELEASE, 0, &[by_address()])),
        way("release, other family", V6, node_message(RELEASE, 0, &[node_id_mapped(BY_ADDRESS)])),
        way("release, FQDN of other case", OtherPort, node_message(RELEASE, 0, &[other_case(&[])])),
        way(
            "set deletion",
            Ordinary,
            node_message(SET_DELETION, 0, &[by_name(), fq_csid(BY_NAME, CSID)]),
        ),
        way("establishment", Ordinary, establishment.to_vec()),
    ];
    ways.extend(against_sessions(seids));
    ways.push(way("heartbeat, newer start", Ordinary, node_message(HEARTBEAT, 0, &[later()])));
    ways
}

fn other_case(end: &[u8]) -> Vec<u8> {
    node_id_name(&NAME.to_ascii_uppercase(), end)
}

/// Returns the requests to established sessions.
fn against_sessions(seids: [u64; 2]) -> Vec<Attempt> {
    use Socket::{Ordinary, OtherPort, V6};
    let way = |name, socket, request| Attempt { name, socket, request };
    // Update FAR 1 with the action DROP: no uplink packet passes any more.
    let drop = ie(10, &[ie(108, &[0, 0, 0, 1]), ie(44, &[1, 0])].concat());
    let takeover = || f_seid(1, ATTACKER);
    vec![
        way("modification", Ordinary, session_message(MODIFY, seids[0], 0, from_ref(&drop))),
        way("modification, other port", OtherPort, session_message(MODIFY, seids[0], 0, &[drop])),
        way(
            "modification of the CP F-SEID",
            Ordinary,
            session_message(MODIFY, seids[0], 0, &[takeover()]),
        ),
        way(
            "modification with Node ID",
            Ordinary,
            session_message(MODIFY, seids[0], 0, &[node_id_v4(BY_ADDRESS), takeover()]),
        ),
        way("deletion", Ordinary, session_message(DELETE, seids[0], 0, &[])),
        way("deletion, other family", V6, session_message(DELETE, seids[1], 0, &[])),
    ]
}
