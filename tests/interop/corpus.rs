//! The recorded messages and mutants of them as inputs of the PFCP fuzzer, and so of the mutants
//! that a running UPF gets (`tests/upf_mutants`).

use fastlane_pfcp::{Header, Message, MessageType, Writer};

use crate::life::{Life, Part, Step};

/// Element of a message: its type and value.
type Element<'a> = (fastlane_pfcp::IeType, &'a [u8]);

/// Returns the messages about sessions of a life with their mutants, each with its name.
pub(crate) fn inputs(name: &str, life: &Life) -> Vec<(String, Vec<u8>)> {
    let requests = life.steps.iter().filter_map(|step| match step {
        Step::Request(request, parts) => Some((request, filled(parts))),
        Step::Uplink(_) | Step::Action(_) => None,
    });
    requests
        .filter(|(_, datagram)| is_about_rules(datagram))
        .flat_map(|(request, datagram)| {
            let mutants = mutants(&datagram);
            let name = format!("smf-{name}-{request}");
            let mutants = mutants.map(|(change, mutant)| (format!("{name}-{change}"), mutant));
            std::iter::once((name.clone(), datagram)).chain(mutants).collect::<Vec<_>>()
        })
        .collect()
}

/// Returns a message with 1 for each value that the UPF gives.
fn filled(parts: &[Part]) -> Vec<u8> {
    let octets = parts.iter().flat_map(|part| match part {
        Part::Octets(octets) => octets.clone(),
        Part::UpSeid => 1_u64.to_be_bytes().to_vec(),
        Part::Teid(_) => 1_u32.to_be_bytes().to_vec(),
    });
    octets.collect()
}

fn is_about_rules(datagram: &[u8]) -> bool {
    let (message, _) = Message::parse(datagram).expect("PFCP");
    let establishes = MessageType::SESSION_ESTABLISHMENT_REQUEST;
    [establishes, MessageType::SESSION_MODIFICATION_REQUEST].contains(&message.header.message_type)
}

/// Returns three mutants: the last element lost, the last one twice, and the elements in reverse
/// order. TS 29.244 (7.2.2) lets elements come in any order.
fn mutants(datagram: &[u8]) -> [(&'static str, Vec<u8>); 3] {
    let (message, _) = Message::parse(datagram).expect("PFCP");
    let elements = message.ies().map(|ie| ie.expect("a whole element"));
    let elements: Vec<Element<'_>> = elements.map(|ie| (ie.ie_type, ie.value)).collect();
    let (last, rest) = elements.split_last().expect("an element");
    let twice = [&elements[..], &[*last]].concat();
    let reversed: Vec<_> = elements.iter().rev().copied().collect();
    [
        ("lost", encode(message.header, rest)),
        ("twice", encode(message.header, &twice)),
        ("reversed", encode(message.header, &reversed)),
    ]
}

fn encode(header: Header, elements: &[Element<'_>]) -> Vec<u8> {
    let mut datagram = Vec::new();
    Writer::new(&mut datagram)
        .message(header, |to| elements.iter().for_each(|(kind, value)| to.raw(*kind, value)));
    datagram
}
