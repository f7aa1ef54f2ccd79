//! Missing and wrong elements are named in the fault. Case numbers are those of the UPF's
//! conformance cases.

use fastlane_pfcp::ie::*;
use fastlane_pfcp::{
    Cause, Fault, Header, HeaderError, Ie, IeType, Message, MessageType, Writer, fuzz,
};

use crate::samples;

/// Function that puts the elements of a group back into their message.
type Wrap<'a> = &'a dyn Fn(Vec<Node>) -> Vec<Node>;
/// Function that gets the elements of a group, the index of one of them, and its [`Wrap`].
type Change<'a> = &'a mut dyn FnMut(&[Node], usize, Wrap<'_>);

/// Message as a tree of elements.
#[derive(Clone, Debug)]
enum Node {
    Fields(IeType, Vec<u8>),
    Group(IeType, Vec<Self>),
}

impl Node {
    const fn ie_type(&self) -> IeType {
        match self {
            Self::Fields(ie_type, _) | Self::Group(ie_type, _) => *ie_type,
        }
    }

    fn write(&self, w: &mut Writer<'_>) {
        match self {
            Self::Fields(ie_type, value) => w.raw(*ie_type, value),
            Self::Group(ie_type, inside) => {
                w.group(*ie_type, |w| inside.iter().for_each(|node| node.write(w)));
            }
        }
    }
}

fn read(body: &[u8]) -> Vec<Node> {
    let node = |ie: fastlane_pfcp::RawIe<'_>| match fuzz::again(ie.ie_type, ie.value) {
        Some(_) => Node::Fields(ie.ie_type, ie.value.to_vec()),
        None => Node::Group(ie.ie_type, read(ie.value)),
    };
    fastlane_pfcp::Ies::new(body).map(|ie| node(ie.unwrap())).collect()
}

fn verdict(header: Header, body: &[Node]) -> Result<(), Fault> {
    let mut datagram = Vec::new();
    Writer::new(&mut datagram).message(header, |w| body.iter().for_each(|node| node.write(w)));
    Message::parse(&datagram).unwrap().0.check()
}

/// Calls `change` with the elements of each group and the index of each element.
fn everywhere(body: &[Node], change: Change<'_>) {
    inside(body, &|changed| changed, change);
}

fn inside(nodes: &[Node], wrap: Wrap<'_>, change: Change<'_>) {
    for at in 0..nodes.len() {
        change(nodes, at, wrap);
        if let Node::Group(ie_type, below) = &nodes[at] {
            let wrap = |changed: Vec<Node>| {
                let mut all = nodes.to_vec();
                all[at] = Node::Group(*ie_type, changed);
                wrap(all)
            };
            inside(below, &wrap, change);
        }
    }
}

/// Changes every sample at each element of each of its groups.
fn each_changed(
    mut change: impl FnMut(&[Node], usize) -> Vec<Node>,
    mut judge: impl FnMut(&str, &Node, Result<(), Fault>),
) -> usize {
    let mut changes = 0;
    for (name, datagram) in samples::all() {
        let (message, _) = Message::parse(&datagram).unwrap();
        everywhere(&read(message.body), &mut |nodes, at, wrap| {
            let body = wrap(change(nodes, at));
            judge(name, &nodes[at], verdict(message.header, &body));
            changes += 1;
        });
    }
    changes
}

#[test]
fn every_sample_is_right() {
    for (name, datagram) in samples::all() {
        let (message, rest) = Message::parse(&datagram).unwrap();
        assert!(rest.is_empty());
        assert_eq!(message.check(), Ok(()), "{name}");
        assert_eq!(verdict(message.header, &read(message.body)), Ok(()), "{name}");
    }
}

#[test]
fn an_element_that_is_missing_is_named() {
    let mut named = 0;
    let drop = |nodes: &[Node], at: usize| {
        let gone = nodes[at].ie_type();
        nodes.iter().filter(|node| node.ie_type() != gone).cloned().collect()
    };
    let changes = each_changed(drop, |name, node, verdict| {
        if let Err(fault) = verdict {
            let causes = [Cause::MANDATORY_IE_MISSING, Cause::CONDITIONAL_IE_MISSING];
            assert!(causes.contains(&fault.cause), "{name}: {fault}");
            assert_eq!(fault.offending, Some(node.ie_type()), "{name}");
            named += 1;
        }
    });
    assert!(changes > 300 && named > 90, "{named} of {changes}");
}

#[test]
fn an_element_without_octets_is_named() {
    let mut named = 0;
    let empty = |nodes: &[Node], at: usize| {
        let mut nodes = nodes.to_vec();
        nodes[at] = Node::Fields(nodes[at].ie_type(), Vec::new());
        nodes
    };
    each_changed(empty, |name, node, verdict| {
        let expected = match node {
            Node::Fields(ie_type, _) => match fuzz::again(*ie_type, &[]) {
                Some(Ok(_)) => return,
                Some(Err(cause)) => Fault::of(cause, *ie_type),
                None => unreachable!("it has fields"),
            },
            // An empty group lacks its first mandatory element, if it has one.
            Node::Group(..) => return,
        };
        assert_eq!(expected.cause, Cause::INVALID_LENGTH);
        assert_eq!(verdict, Err(expected), "{name}");
        named += 1;
    });
    assert!(named > 250, "{named}");
}

#[test]
fn case_31_an_element_that_overruns_its_group_is_named() {
    for (name, datagram) in samples::all() {
        let (message, _) = Message::parse(&datagram).unwrap();
        let Some(last) = message.ies().map(Result::unwrap).last() else { continue };
        let mut longer = datagram.clone();
        let length_at = longer.len() - last.value.len() - 2;
        longer[length_at..length_at + 2].copy_from_slice(&u16::MAX.to_be_bytes());
        let fault = Message::parse(&longer).unwrap().0.check();
        assert_eq!(fault, Err(Fault::of(Cause::INVALID_LENGTH, last.ie_type)), "{name}");
    }
    // Inside a group: the remaining octets are no element.
    let fault = establishment(|w| {
        w.group(IeType::CREATE_PDR, |w| {
            w.put(&PdrId(1));
            w.group(IeType::PDI, |w| w.raw(IeType::SDF_FILTER, &[0; 2]));
        });
    });
    assert_eq!(fault, missing(IeType::SOURCE_INTERFACE));
}

#[test]
fn case_36_unknown_elements_are_ignored_everywhere() {
    for stranger in [
        Node::Fields(IeType(999), vec![1, 2, 3]),
        Node::Fields(IeType(0x8001), vec![0, 9, 1]),
        Node::Fields(IeType(0), Vec::new()),
        // A known element, in a group where it does not belong.
        Node::Fields(IeType::MULTIPLIER, Vec::new()),
    ] {
        let insert = |nodes: &[Node], at: usize| {
            let mut nodes = nodes.to_vec();
            nodes.insert(at, stranger.clone());
            nodes
        };
        each_changed(insert, |name, node, verdict| {
            if !name.contains("modification") || stranger.ie_type() != IeType::MULTIPLIER {
                // In Aggregated URRs a multiplier belongs, and the first one counts.
                let belongs = [IeType::AGGREGATED_URR_ID, IeType::MULTIPLIER];
                if stranger.ie_type() != IeType::MULTIPLIER || !belongs.contains(&node.ie_type()) {
                    assert_eq!(verdict, Ok(()), "{name} before {node:?}");
                }
            }
        });
    }
}

#[test]
fn case_37_the_first_of_two_counts() {
    let twice = |nodes: &[Node], at: usize| {
        let mut nodes = nodes.to_vec();
        nodes.insert(at, nodes[at].clone());
        nodes
    };
    each_changed(twice, |name, node, verdict| assert_eq!(verdict, Ok(()), "{name} {node:?}"));
    let mut datagram = Vec::new();
    Writer::new(&mut datagram).message(Header::node(MessageType::HEARTBEAT_REQUEST, 1), |w| {
        w.put(&RecoveryTimeStamp(1));
        w.put(&RecoveryTimeStamp(2));
        w.raw(IeType::RECOVERY_TIME_STAMP, &[]);
    });
    let (message, _) = Message::parse(&datagram).unwrap();
    assert_eq!(message.check(), Ok(()));
    assert_eq!(message.group().need::<RecoveryTimeStamp>(), Ok(RecoveryTimeStamp(1)));
    assert_eq!(message.group().all::<RecoveryTimeStamp>().count(), 3);
}

fn missing(ie_type: IeType) -> Result<(), Fault> {
    Err(Fault::of(Cause::MANDATORY_IE_MISSING, ie_type))
}

fn check(message_type: MessageType, body: impl FnOnce(&mut Writer<'_>)) -> Result<(), Fault> {
    let seid = message_type.is_session().then_some(0);
    let mut datagram = Vec::new();
    let header = Header { seid, ..Header::node(message_type, 1) };
    Writer::new(&mut datagram).message(header, body);
    Message::parse(&datagram).unwrap().0.check()
}

fn establishment(rules: impl FnOnce(&mut Writer<'_>)) -> Result<(), Fault> {
    check(MessageType::SESSION_ESTABLISHMENT_REQUEST, |w| {
        w.put(&NodeId::V4(samples::V4));
        w.put(&FSeid { seid: 1, v4: Some(samples::V4), v6: None });
        rules(w);
    })
}

#[test]
fn cases_4_and_5_an_association_without_its_node_or_time() {
    let setup = MessageType::ASSOCIATION_SETUP_REQUEST;
    assert_eq!(check(setup, |w| w.put(&RecoveryTimeStamp(1))), missing(IeType::NODE_ID));
    let node = NodeId::V4(samples::V4);
    assert_eq!(check(setup, |w| w.put(&node)), missing(IeType::RECOVERY_TIME_STAMP));
}

#[test]
fn cases_23_to_28_an_establishment_with_something_missing() {
    let kind = MessageType::SESSION_ESTABLISHMENT_REQUEST;
    assert_eq!(check(kind, |_| {}), missing(IeType::NODE_ID));
    let node = NodeId::V4(samples::V4);
    assert_eq!(check(kind, |w| w.put(&node)), missing(IeType::F_SEID));
    assert_eq!(establishment(|_| {}), missing(IeType::CREATE_PDR));
    let pdr = |w: &mut Writer<'_>| {
        w.put(&PdrId(1));
        w.put(&Precedence(1));
        w.group(IeType::PDI, |w| w.put(&SourceInterface::ACCESS));
    };
    let fault = establishment(|w| {
        w.group(IeType::CREATE_PDR, |w| {
            pdr(w);
            w.put(&FarId(1));
        });
    });
    assert_eq!(fault, missing(IeType::CREATE_FAR));
    let no_far = establishment(|w| w.group(IeType::CREATE_PDR, pdr));
    assert_eq!(no_far, Err(Fault::of(Cause::CONDITIONAL_IE_MISSING, IeType::FAR_ID)));
    let no_pdi = establishment(|w| {
        w.group(IeType::CREATE_PDR, |w| {
            w.put(&PdrId(1));
            w.put(&Precedence(1));
        });
    });
    assert_eq!(no_pdi, missing(IeType::PDI));
    let empty = establishment(|w| w.group(IeType::CREATE_PDR, |_| {}));
    assert_eq!(empty, missing(IeType::PDR_ID));
}

#[test]
fn case_32_a_zero_length_is_invalid() {
    let wrong = |ie_type| Err(Fault::of(Cause::INVALID_LENGTH, ie_type));
    let far = establishment(|w| {
        w.group(IeType::CREATE_FAR, |w| {
            w.group(IeType::FORWARDING_PARAMETERS, |w| w.raw(IeType::OUTER_HEADER_CREATION, &[]));
        });
    });
    assert_eq!(far, wrong(IeType::OUTER_HEADER_CREATION));
    let mbr = establishment(|w| w.group(IeType::CREATE_QER, |w| w.raw(IeType::MBR, &[])));
    assert_eq!(mbr, wrong(IeType::MBR));
    let pdr = establishment(|w| {
        w.group(IeType::CREATE_PDR, |w| w.group(IeType::PDI, |w| w.raw(IeType::F_TEID, &[])));
    });
    assert_eq!(pdr, wrong(IeType::F_TEID));
}

#[test]
fn cases_38_and_39_short_and_long_forms() {
    for value in [&[2][..], &[2, 0], &[2, 0, 9]] {
        assert_eq!(ApplyAction::decode(value).map(|a| a.has(ApplyAction::FORW)), Ok(true));
    }
    let removal = |extension_headers| Ok(OuterHeaderRemoval { description: 6, extension_headers });
    assert_eq!(OuterHeaderRemoval::decode(&[6]), removal(0));
    assert_eq!(OuterHeaderRemoval::decode(&[6, 1]), removal(1));
}

#[test]
fn conditions_that_a_message_shows() {
    let conditional = |ie_type| Err(Fault::of(Cause::CONDITIONAL_IE_MISSING, ie_type));
    let far = |action: ApplyAction| {
        establishment(|w| {
            w.group(IeType::CREATE_FAR, |w| {
                w.put(&FarId(1));
                w.put(&action);
            });
        })
    };
    assert_eq!(far(ApplyAction::FORW), conditional(IeType::FORWARDING_PARAMETERS));
    assert_eq!(far(ApplyAction::DUPL), conditional(IeType::DUPLICATING_PARAMETERS));
    assert_eq!(far(ApplyAction::DROP), missing(IeType::CREATE_PDR));
    let urr = |triggers: ReportingTriggers| {
        establishment(|w| {
            w.group(IeType::CREATE_URR, |w| {
                w.put(&UrrId(1));
                w.put(&MeasurementMethod::VOLUM);
                w.put(&triggers);
            });
        })
    };
    assert_eq!(urr(ReportingTriggers::VOLTH), conditional(IeType::VOLUME_THRESHOLD));
    assert_eq!(urr(ReportingTriggers::PERIO), conditional(IeType::MEASUREMENT_PERIOD));
    assert_eq!(urr(ReportingTriggers::VOLQU), missing(IeType::CREATE_PDR));
    let report = check(MessageType::SESSION_REPORT_REQUEST, |w| w.put(&ReportType::USAR));
    assert_eq!(report, conditional(IeType::USAGE_REPORT_IN_REPORT));
}

/// SD-Core sets neither V4 nor V6: the UPF chooses the families, too.
#[test]
fn choose_without_a_family_is_choose_of_any() {
    let any = FTeid { choose_v4: true, choose_v6: true, ..FTeid::default() };
    assert_eq!(FTeid::decode(&[4]), Ok(any));
    assert_eq!(FTeid::decode(&[12, 9]), Ok(FTeid { choose_id: Some(9), ..any }));
    assert_eq!(FTeid::decode(&[0, 0, 0, 0, 1]), Err(Cause::MANDATORY_IE_INCORRECT));
}

#[test]
fn cases_14_16_20_and_21_headers() {
    let error = |datagram: &[u8]| Message::parse(datagram).unwrap_err();
    let message_type = MessageType::HEARTBEAT_REQUEST;
    let other = HeaderError::Version { version: 2, message_type, sequence: 0x0001_0203 };
    assert_eq!(error(&[0x40, 1, 0, 4, 1, 2, 3, 0]), other);
    assert_eq!(error(&[0x20, 1, 0]), HeaderError::TooShort);
    assert_eq!(error(&[0x20, 1, 0, 4, 0, 0, 1]), HeaderError::TooShort);
    let header = Header::node(message_type, 1);
    assert_eq!(error(&[0x20, 1, 0, 5, 0, 0, 1, 0]), HeaderError::Length(header));
    assert_eq!(error(&[0x20, 1, 0, 3, 0, 0, 1, 0]), HeaderError::Length(header));
    // Some peers send node messages with a SEID, which is skipped.
    let with = [0x21, 1, 0, 12, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 1, 0];
    assert_eq!(Message::parse(&with).map(|(message, _)| message.header), Ok(header));
    let deletion = MessageType::SESSION_DELETION_REQUEST;
    let without = HeaderError::SeidFlag(Header::node(deletion, 1));
    assert_eq!(error(&[0x20, 54, 0, 4, 0, 0, 1, 0]), without);
    // Octets after a message are another message only if the header says so.
    let two = [0x24, 1, 0, 4, 0, 0, 1, 0, 0x20, 2, 0, 4, 0, 0, 2, 0];
    let (first, rest) = Message::parse(&two).unwrap();
    assert!(first.header.follow_on);
    let (second, rest) = Message::parse(rest).unwrap();
    assert_eq!((second.header.sequence, rest), (2, &[][..]));
}

#[test]
fn requests_have_responses() {
    let types = (0..=255).map(MessageType).filter(|kind| kind.name().is_some());
    for kind in types {
        assert_eq!(kind.response().is_some(), kind.name().unwrap().ends_with("Request"), "{kind}");
        assert_eq!(kind.is_response(), kind.name().unwrap().ends_with("Response"), "{kind}");
        if let Some(response) = kind.response() {
            let request = kind.name().unwrap().strip_suffix("Request").unwrap();
            assert_eq!(response.name().unwrap().strip_suffix("Response"), Some(request));
            assert_eq!(response.is_session(), kind.is_session());
        }
    }
}

#[test]
fn names_are_text_or_labels() {
    let instance = NetworkInstance(b"Internet");
    assert!(instance.is("internet") && !instance.is("internets"));
    let labels = ApnDnn(b"\x08internet\x03mnc");
    assert!(labels.is("internet.mnc") && !labels.is("internet") && !labels.is("internet.mnc.x"));
    assert!(ApnDnn(b"\x08internet\x00").is("internet"));
    assert!(!ApnDnn(b"\xffinternet").is("internet"));
}

#[test]
fn durations_are_rounded_up() {
    for (seconds, coded) in [(0, 0), (1, 2), (62, 62), (63, 120), (1861, 2400), (3600, 3600)] {
        assert_eq!(Duration5::at_least(seconds).seconds(), Some(coded));
    }
    assert_eq!(Duration5::at_least(u32::MAX).seconds(), None);
    assert_eq!(Duration5::INFINITE.seconds(), None);
}

#[test]
fn durations_that_are_promised_are_rounded_down() {
    for (seconds, coded) in [
        (0, 0),
        (1, 0),
        (20, 20),
        (21, 20),
        (63, 62),
        (119, 62),
        (120, 120),
        (601, 600),
        (1900, 1860),
        (u32::MAX, 31 * 36_000),
    ] {
        assert_eq!(Duration5::at_most(seconds).seconds(), Some(coded), "{seconds}");
    }
}
