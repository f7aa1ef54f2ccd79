//! Recorded messages of SMFs (`tests/interop/messages`), as far as a node needs them: the requests
//! of a life, without what users' packets do.

use std::path::Path;

/// Requests of a recorded life in their order.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) name: String,
    pub(crate) requests: Vec<Request>,
}

/// A recorded request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) name: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug)]
enum Part {
    Octets(Vec<u8>),
    /// SEID that the UPF gave.
    UpSeid,
    /// TEID that the UPF chose for a PDR.
    Teid(u16),
}

impl Request {
    /// Returns the request with what the UPF gave.
    pub(crate) fn filled(&self, up_seid: u64, teid: &dyn Fn(u16) -> u32) -> Vec<u8> {
        let octets = self.parts.iter().flat_map(|part| match part {
            Part::Octets(octets) => octets.clone(),
            Part::UpSeid => up_seid.to_be_bytes().to_vec(),
            Part::Teid(pdr) => teid(*pdr).to_be_bytes().to_vec(),
        });
        octets.collect()
    }
}

/// Reads all recorded lives, sorted by name.
pub(crate) fn lives() -> Vec<Life> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/interop/messages");
    let files = std::fs::read_dir(folder).expect("the folder").flatten();
    let mut lives: Vec<Life> = files
        .filter_map(|file| {
            let name = file.file_name().into_string().ok()?;
            let name = name.strip_suffix(".hex")?.to_owned();
            let text = std::fs::read_to_string(file.path()).expect("a life");
            Some(Life { name, requests: text.lines().filter_map(request).collect() })
        })
        .collect();
    lives.sort_by(|one, other| one.name.cmp(&other.name));
    assert!(lives.len() >= 12, "{} lives", lives.len());
    lives
}

/// Parses a line `> NAME HEX`, where the octets may have `{UPSEID}` and `{TEID:n}` in between.
fn request(line: &str) -> Option<Request> {
    let (name, text) = line.strip_prefix("> ")?.split_once(' ')?;
    let mut parts = Vec::new();
    for piece in text.split_inclusive(['{', '}']) {
        match piece.strip_suffix('}') {
            Some("UPSEID") => parts.push(Part::UpSeid),
            Some(teid) => {
                let pdr = teid.strip_prefix("TEID:").expect("a TEID");
                parts.push(Part::Teid(pdr.parse().expect("a PDR ID")));
            }
            None => parts.push(Part::Octets(octets(piece.trim_end_matches('{')))),
        }
    }
    Some(Request { name: name.to_owned(), parts })
}

fn octets(text: &str) -> Vec<u8> {
    let pairs = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("digits"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("two digits")).collect()
}
