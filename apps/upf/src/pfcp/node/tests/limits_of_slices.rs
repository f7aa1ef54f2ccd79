//! Limits of slices and SMFs: sessions, and establishments per second.

use fastlane_pfcp::ie::{
    ApnDnn, FTeid, FarId, NetworkInstance, PdrId, Precedence, SourceInterface,
};
use fastlane_pfcp::ie::{ApplyAction, DestinationInterface, FSeid};
use fastlane_pfcp::{Cause, IeType};
use serde_json::json;

use super::session_requests::{control, deletion, seid_of};
use super::*;
use crate::pfcp::node::EstablishmentOutcome;
use crate::session::SNssai;

const SLICE: SNssai = SNssai { sst: 1, sd: 0x01_0203 };
const NEIGHBOUR: SNssai = SNssai { sst: 1, sd: SNssai::NO_SD };
const OTHER_NAME: &[u8] = b"\x05other\x03smf";

/// An establishment with an uplink tunnel of a subscriber in a slice.
struct Establishment<'a> {
    smf: &'a [u8],
    slice: Option<SNssai>,
    dnn: &'a [u8],
    instance: &'a [u8],
}

impl Establishment<'_> {
    fn bytes(&self, sequence: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        let header = Header::session(MessageType::SESSION_ESTABLISHMENT_REQUEST, 0, sequence);
        Writer::new(&mut bytes).message(header, |to| {
            to.put(&NodeId::Name(self.smf));
            to.put(&FSeid { seid: sequence.into(), ..control(7, 100) });
            to.group(IeType::CREATE_PDR, |to| {
                to.put(&PdrId(1));
                to.put(&Precedence(100));
                to.group(IeType::PDI, |to| {
                    to.put(&SourceInterface(0));
                    to.put(&FTeid { choose_v4: true, ..Default::default() });
                    to.maybe(
                        (!self.instance.is_empty()).then_some(&NetworkInstance(self.instance)),
                    );
                });
                to.put(&FarId(1));
            });
            to.group(IeType::CREATE_FAR, |to| {
                to.put(&FarId(1));
                to.put(&ApplyAction::FORW);
                to.group(IeType::FORWARDING_PARAMETERS, |to| to.put(&DestinationInterface(1)));
            });
            to.maybe((!self.dnn.is_empty()).then_some(&ApnDnn(self.dnn)));
            to.maybe(self.slice.as_ref());
        });
        bytes
    }
}

const OF_SLICE: Establishment<'static> =
    Establishment { smf: SMF_NAME, slice: Some(SLICE), dnn: b"internet", instance: b"" };
const OF_NEIGHBOUR: Establishment<'static> = Establishment { slice: Some(NEIGHBOUR), ..OF_SLICE };
const OF_OTHER_SMF: Establishment<'static> =
    Establishment { smf: OTHER_NAME, slice: None, ..OF_SLICE };

/// A node with two SMFs; `slices` and `limits` are those of the settings.
struct Limited {
    world: NodeTestbed,
    sequence: u32,
}

impl Limited {
    fn new(slices: &serde_json::Value, limits: &serde_json::Value) -> Self {
        Self::with_room(64, slices, limits)
    }

    fn with_room(sessions: u32, slices: &serde_json::Value, limits: &serde_json::Value) -> Self {
        let mut world = NodeTestbed::new(json!({ "limits": limits }));
        world.settings.sessions = sessions;
        let capacities = Capacities::of(&world.settings).with_answers(4096);
        world.memory = Private::new(capacities, sleeping_lane());
        world.settings.slices = serde_json::from_value(slices.clone()).unwrap();
        world.kill();
        world.associate(SMF, 1, SMF_NAME, STARTED);
        world.associate(OTHER, 2, OTHER_NAME, STARTED);
        Self { world, sequence: 100 }
    }

    fn establish(&mut self, establishment: &Establishment<'_>) -> Vec<u8> {
        self.sequence += 1;
        let from = if establishment.smf == SMF_NAME { SMF } else { OTHER };
        self.world.ask(from, &establishment.bytes(self.sequence))
    }

    /// Returns the causes of the responses.
    fn causes(&mut self, establishment: &Establishment<'_>, count: usize) -> Vec<u8> {
        (0..count).map(|_| cause(&self.establish(establishment))).collect()
    }

    fn delete(&mut self, from: SocketAddr, seid: u64) {
        self.sequence += 1;
        let answer = self.world.ask(from, &deletion(self.sequence, seid));
        assert_eq!(cause(&answer), 1);
    }

    /// Returns the establishments by slice, DNN and outcome.
    fn counted(&self) -> Vec<(String, String, &'static str, u64)> {
        let all = self.world.node.statistics().establishments.iter();
        all.map(|((labels, outcome), count)| {
            (labels.slice.clone(), labels.dnn.clone(), outcome.name(), *count)
        })
        .collect()
    }
}

fn row(
    slice: &str,
    dnn: &str,
    outcome: EstablishmentOutcome,
    count: u64,
) -> (String, String, &'static str, u64) {
    (slice.to_owned(), dnn.to_owned(), outcome.name(), count)
}

#[test]
fn a_full_slice_refuses_its_sessions_and_no_others() {
    let slice = json!([{ "s-nssai": { "sst": 1, "sd": "010203" }, "sessions": 2 }]);
    let mut limited = Limited::new(&slice, &json!([]));
    let first = seid_of(&limited.establish(&OF_SLICE));
    assert_eq!(limited.causes(&OF_SLICE, 3), [1, 75, 75]);
    assert_eq!(limited.causes(&OF_NEIGHBOUR, 3), [1, 1, 1], "the SST alone is another slice");
    assert_eq!(limited.causes(&OF_OTHER_SMF, 1), [1]);
    let elsewhere = Establishment { dnn: b"ims", ..OF_SLICE };
    assert_eq!(limited.causes(&elsewhere, 1), [75], "the limit is for all DNNs of the slice");
    assert!(!limited.world.node.is_congested(limited.world.now));
    use EstablishmentOutcome::{Accepted, SliceSessions};
    assert_eq!(
        limited.counted(),
        [
            row("", "internet", Accepted, 1),
            row("1", "internet", Accepted, 3),
            row("1-010203", "internet", Accepted, 2),
            row("1-010203", "internet", SliceSessions, 2),
            row("1-010203", "other", SliceSessions, 1),
        ]
    );
    let most = limited.world.node.limited_slices();
    assert_eq!((most[0].name.as_str(), most[0].sessions, most[0].most), ("1-010203", 2, Some(2)));
    limited.delete(SMF, first);
    assert_eq!(limited.causes(&OF_SLICE, 2), [1, 75], "a deleted session makes room");
}

#[test]
fn a_successor_counts_the_sessions_that_it_finds() {
    let slice = json!([{ "s-nssai": { "sst": 1, "sd": "010203" }, "sessions": 2 }]);
    let limits = json!([{ "smf": "192.0.2.0/24", "sessions": 5 }]);
    let mut limited = Limited::new(&slice, &limits);
    let first = seid_of(&limited.establish(&OF_SLICE));
    limited.causes(&OF_SLICE, 1);
    limited.causes(&OF_NEIGHBOUR, 1);
    limited.world.kill();
    let found = limited.world.node.sessions().find(first).unwrap();
    assert_eq!(found.s_nssai, Some(SLICE));
    assert_eq!(limited.causes(&OF_SLICE, 1), [75], "before all sessions are followed");
    assert_eq!(limited.causes(&OF_OTHER_SMF, 3), [1, 1, 75], "both SMFs share the entry");
    limited.world.pass(1);
    limited.delete(SMF, first);
    assert_eq!(limited.causes(&OF_SLICE, 2), [1, 75]);
    assert_eq!(limited.world.node.limited_smfs()[0].sessions, 5);
}

#[test]
fn an_smf_has_limits_of_its_own() {
    let limits = json!([
        { "smf": "other.smf", "sessions": 1 },
        { "smf": "192.0.2.0/24", "sessions": 2 },
    ]);
    let mut limited = Limited::new(&json!([]), &limits);
    assert_eq!(limited.causes(&OF_OTHER_SMF, 2), [1, 75], "the first entry that covers it");
    assert_eq!(limited.causes(&OF_SLICE, 3), [1, 1, 75]);
    let refused = &limited.world.node.statistics().smfs_refused;
    let refused: Vec<_> =
        refused.iter().map(|((smf, it), count)| (smf.as_str(), it.name(), *count)).collect();
    assert_eq!(refused, [("192.0.2.0/24", "smf_sessions", 1), ("other.smf", "smf_sessions", 1)]);
}

#[test]
fn rates_are_limited_apart_and_responses_are_repeated() {
    let slice = json!([{ "s-nssai": { "sst": 1, "sd": "010203" }, "establishments-per-s": 1 }]);
    let limits = json!([{ "smf": "other.smf", "establishments-per-s": 10 }]);
    let mut limited = Limited::new(&slice, &limits);
    assert_eq!(limited.causes(&OF_SLICE, 3), [1, 74, 74]);
    assert_eq!(limited.causes(&OF_NEIGHBOUR, 3), [1, 1, 1]);
    assert_eq!(limited.causes(&OF_OTHER_SMF, 2), [1, 74], "a tenth of a second's");
    // A retransmission is not admitted later, and counts once.
    limited.sequence += 1;
    let request = OF_SLICE.bytes(limited.sequence);
    let refused = limited.world.ask(SMF, &request);
    assert_eq!(cause(&refused), 74);
    assert!(!parse(&refused).group().has(IeType::OVERLOAD_CONTROL_INFORMATION));
    limited.world.pass(20);
    assert_eq!(limited.world.ask(SMF, &request), refused);
    assert!(!limited.world.node.is_congested(limited.world.now), "load balancers go on");
    assert_eq!(limited.causes(&OF_SLICE, 2), [1, 74]);
    assert_eq!(limited.causes(&OF_OTHER_SMF, 1), [1]);
    let answered = &limited.world.node.statistics().answered;
    let response = MessageType::SESSION_ESTABLISHMENT_RESPONSE.0;
    assert_eq!(answered[&(response, Cause::PFCP_ENTITY_IN_CONGESTION.0)], 5);
}

/// An SMF invents slices and DNNs: they are counted together once all groups are given, and a
/// configured slice keeps a group of its own.
#[test]
fn names_are_bounded() {
    let slice = json!([{ "s-nssai": { "sst": 1, "sd": "010203" }, "sessions": 1000 }]);
    let mut limited = Limited::with_room(512, &slice, &json!([]));
    for number in 0..200_u32 {
        let dnn = format!("dnn{number}");
        let slice = Some(SNssai { sst: 7, sd: number });
        let invented = Establishment { slice, dnn: dnn.as_bytes(), ..OF_SLICE };
        let seid = seid_of(&limited.establish(&invented));
        limited.delete(SMF, seid);
    }
    assert_eq!(limited.causes(&OF_SLICE, 1), [1]);
    let counted = limited.counted();
    let names: std::collections::BTreeSet<_> =
        counted.iter().map(|(slice, dnn, ..)| (slice, dnn)).collect();
    assert!(names.len() <= 128, "{} names", names.len());
    let accepted = |slice: &str, dnn: &str| row(slice, dnn, EstablishmentOutcome::Accepted, 1);
    assert!(counted.contains(&accepted("7-000000", "dnn0")));
    assert!(counted.contains(&accepted("1-010203", "other")), "{counted:?}");
    let others = counted.iter().find(|(slice, ..)| slice == "other").unwrap();
    assert_eq!(others.3, 200 - (128 - 3), "what has got no group");
    // A slice that gets a limit only now is counted with the others, and limited nevertheless.
    limited.world.settings.slices = serde_json::from_value(json!([
        { "s-nssai": { "sst": 1 }, "sessions": 1 },
    ]))
    .unwrap();
    limited.world.kill();
    assert_eq!(limited.causes(&OF_NEIGHBOUR, 2), [1, 75]);
    let neighbour = row("other", "other", EstablishmentOutcome::Accepted, 1);
    assert_eq!(limited.counted()[0], neighbour);
    // A successor finds the same groups.
    limited.world.kill();
    let invented =
        Establishment { slice: Some(SNssai { sst: 7, sd: 0 }), dnn: b"dnn0", ..OF_SLICE };
    limited.causes(&invented, 1);
    let again = row("7-000000", "dnn0", EstablishmentOutcome::Accepted, 1);
    assert!(limited.counted().contains(&again), "a process counts from its start");
}

#[test]
fn a_session_without_a_dnn_is_counted_by_its_network_instance() {
    let mut limited = Limited::new(&json!([]), &json!([]));
    let by_instance = Establishment { dnn: b"", instance: b"access", slice: None, ..OF_SLICE };
    assert_eq!(limited.causes(&by_instance, 1), [1]);
    let labelled = Establishment { dnn: b"\x03ims\x06mnc001", ..by_instance };
    assert_eq!(limited.causes(&labelled, 1), [1]);
    let without = Establishment { instance: b"", dnn: b"", ..by_instance };
    assert_eq!(limited.causes(&without, 1), [1]);
    use EstablishmentOutcome::Accepted;
    assert_eq!(
        limited.counted(),
        [
            row("", "", Accepted, 1),
            row("", "access", Accepted, 1),
            row("", "ims.mnc001", Accepted, 1)
        ]
    );
}
