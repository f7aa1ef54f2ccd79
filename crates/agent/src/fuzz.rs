//! Bodies of the fuzz targets, here so that a test replays the corpora through the same functions.
//! Not for applications: a function panics when an invariant is violated.

use fastlane::agent::records::{self, Request};

/// Decodes a record of a client as the agent does, resolves its rules, and checks that it survives
/// encoding and decoding.
pub fn record(data: &[u8]) {
    let Ok((number, request)) = records::decode::<Request>(data) else { return };
    match &request {
        Request::Attach(attach) => drop(fastlane::config::resolve_rules(&attach.steer)),
        Request::Resume(resume) => drop(fastlane::config::resolve_rules(&resume.attach.steer)),
        Request::ReplaceRules { steer, .. } => drop(fastlane::config::resolve_rules(steer)),
        _ => {}
    }
    // Defaults that the client left out may make the record longer than a record can be.
    let Some(encoded) = records::encode(number, &request) else { return };
    let decoded = records::decode::<Request>(&encoded);
    let (again, decoded) = decoded.expect("an encoded record can be decoded");
    assert_eq!(again, number);
    assert_eq!(records::encode(number, &decoded), Some(encoded));
}

/// Parses a record of the handshake.
pub fn handshake(data: &[u8]) {
    crate::handshake::fuzz(data);
}
