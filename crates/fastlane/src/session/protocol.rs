//! Session protocol: the client's hello and the application's greeting, then any number of
//! requests, one at a time, each with one reply.
//!
//! ```text
//! hello    8 magic "FLsessn1"   4 version   4 length of the name, 0 to 64
//!          then the name of the client's program, UTF-8
//! message  8 magic "FLsessn1"   4 version   4 kind   4 length   4 descriptors
//!          then `length` bytes; the descriptors come with the first byte of the message
//! ```
//!
//! | kind | request of the client | reply of the application |
//! |---|---|---|
//! | 1 application | | the description; the counters |
//! | 2 refusal | | the reason, UTF-8. After a malformed request the connection ends |
//! | 3 capture | the selection | the lanes captured; the rings. Any further byte ends the capture |
//! | 4 tables | | the tables and their parts; a read-only descriptor for each part |
//! | 5 write | names of tables | as 4, but writable, until the client disconnects |
//! | 6 messages | | the rings and the doorbells |
//! | 7 rules | a port and its rules | the rules before and after |
//! | 8 shards | a shard and its lane, or nothing | the lane of each shard |
//! | 9 handover | index of the first descriptor | the manifest; descriptors |
//! | 10 reload | the text of a configuration | the ports whose rules have changed |
//! | 11 switch | a port and its new driver | the report |
//!
//! All bodies are JSON, except that of a refusal. Numbers are little endian. Magic, version and the
//! form of a refusal are the same in every version, so that each side can report a mismatch.

/// Version of this protocol.
pub(super) const VERSION: u32 = 3;
/// First bytes of every message.
const MAGIC: [u8; 8] = *b"FLsessn1";
/// Length of a hello before the name, in bytes.
pub(super) const HELLO: usize = 16;
/// Maximum length of the name in a hello, in bytes.
pub(super) const NAME_LIMIT: usize = 64;
/// Length of a message header in bytes.
pub(super) const HEADER: usize = 24;
/// Maximum length of a body in bytes.
pub(crate) const LIMIT: usize = 1 << 20;
/// Maximum length of a request in bytes: enough for the longest filter and a long configuration.
pub(super) const REQUEST_LIMIT: usize = 1 << 18;
/// Maximum number of descriptors of a message. The kernel's limit is 253 (unix(7), SCM_MAX_FD).
pub(super) const DESCRIPTORS: usize = 250;

/// Returns the hello of a client with this protocol version and program name.
pub(super) fn hello(version: u32, name: &str) -> Vec<u8> {
    let mut end = name.len().min(NAME_LIMIT);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&(end as u32).to_le_bytes());
    bytes.extend_from_slice(&name.as_bytes()[..end]);
    bytes
}

/// Checks a hello. Returns the length of the name that follows.
///
/// # Errors
/// The reason to refuse the client.
pub(super) fn check_hello(hello: &[u8; HELLO]) -> Result<usize, String> {
    if hello[..8] != MAGIC {
        return Err("the client does not use the session protocol (wrong magic)".to_owned());
    }
    let version = u32_at(hello, 8);
    if version != VERSION {
        return Err(format!(
            "the client uses version {version} of the session protocol and this application \
             version {VERSION}; install both from one release"
        ));
    }
    let length = u32_at(hello, 12) as usize;
    let too_long = || format!("the name has {length} bytes; at most {NAME_LIMIT} are accepted");
    (length <= NAME_LIMIT).then_some(length).ok_or_else(too_long)
}

/// Kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    Application = 1,
    Refusal = 2,
    Capture = 3,
    Tables = 4,
    Write = 5,
    Messages = 6,
    Rules = 7,
    Shards = 8,
    Handover = 9,
    Reload = 10,
    Switch = 11,
}

impl Kind {
    const ALL: [Self; 11] = [
        Self::Application,
        Self::Refusal,
        Self::Capture,
        Self::Tables,
        Self::Write,
        Self::Messages,
        Self::Rules,
        Self::Shards,
        Self::Handover,
        Self::Reload,
        Self::Switch,
    ];

    /// Returns true if a client may send a message of this kind.
    pub(super) fn is_request(self) -> bool {
        !matches!(self, Self::Application | Self::Refusal)
    }
}

/// Header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) kind: Kind,
    /// Length of the body in bytes, at most [`LIMIT`].
    pub(super) length: usize,
    /// Number of descriptors of the message, at most [`DESCRIPTORS`].
    pub(super) descriptors: usize,
}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    /// The violation of the protocol.
    pub(super) fn read(bytes: &[u8; HEADER]) -> Result<Self, String> {
        if bytes[..8] != MAGIC {
            return Err("wrong magic".to_owned());
        }
        let number = u32_at(bytes, 12);
        let kind = Kind::ALL.into_iter().find(|kind| *kind as u32 == number);
        let kind = kind.ok_or_else(|| format!("a message of unknown kind {number}"))?;
        let length = u32_at(bytes, 16) as usize;
        if length > LIMIT {
            return Err(format!("a message of {length} bytes; at most {LIMIT} are accepted"));
        }
        let descriptors = u32_at(bytes, 20) as usize;
        if descriptors > DESCRIPTORS {
            return Err(format!("{descriptors} descriptors; at most {DESCRIPTORS} are accepted"));
        }
        Ok(Self { version: u32_at(bytes, 8), kind, length, descriptors })
    }
}

/// Returns a whole message, or `None` if `body` is longer than [`LIMIT`] or there are more than
/// [`DESCRIPTORS`] descriptors.
pub(super) fn message(kind: Kind, body: &[u8], descriptors: usize) -> Option<Vec<u8>> {
    let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= LIMIT)?;
    let descriptors = u32::try_from(descriptors).ok().filter(|_| descriptors <= DESCRIPTORS)?;
    let mut bytes = MAGIC.to_vec();
    for field in [VERSION, kind as u32, length, descriptors] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    bytes.extend_from_slice(body);
    Some(bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_messages_are_read_back() {
        for kind in Kind::ALL {
            let message = message(kind, b"no", 7).unwrap();
            let header = Header::read(message[..HEADER].try_into().unwrap()).unwrap();
            assert_eq!(header, Header { version: VERSION, kind, length: 2, descriptors: 7 });
            assert_eq!(&message[HEADER..], b"no");
        }
        let hello = hello(VERSION, "slow");
        assert_eq!(check_hello(hello[..HELLO].try_into().unwrap()), Ok(4));
        assert_eq!(&hello[HELLO..], b"slow");
    }

    #[test]
    fn a_long_name_is_cut_at_a_character_boundary() {
        let hello = hello(VERSION, &format!("{}ä", "x".repeat(NAME_LIMIT - 1)));
        assert_eq!(check_hello(hello[..HELLO].try_into().unwrap()), Ok(NAME_LIMIT - 1));
        assert_eq!(hello.len(), HELLO + NAME_LIMIT - 1);
    }

    #[test]
    fn bad_hellos_are_refused() {
        let of = |bytes: Vec<u8>| check_hello(bytes[..HELLO].try_into().unwrap()).unwrap_err();
        assert!(of(hello(9, "")).contains("version 9"));
        assert!(of(vec![0; HELLO]).contains("magic"));
        let mut long = hello(VERSION, "");
        long[12] = 65;
        assert!(of(long).contains("65 bytes"));
    }

    #[test]
    fn bad_headers_are_refused() {
        let good: [u8; HEADER] = message(Kind::Application, b"", 0).unwrap().try_into().unwrap();
        for (at, what) in [(0, "magic"), (12, "kind"), (19, "bytes"), (20, "descriptors")] {
            let mut bad = good;
            bad[at] ^= 0xff;
            assert!(Header::read(&bad).unwrap_err().contains(what), "byte {at}");
        }
        assert!(message(Kind::Application, &vec![0; LIMIT + 1], 0).is_none());
        assert!(message(Kind::Application, b"", DESCRIPTORS + 1).is_none());
    }
}
