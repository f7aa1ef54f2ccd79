//! What client and application say to each other: one hello, one answer; then any number of
//! requests, one at a time, each with its answer.
//!
//! ```text
//! hello    8 magic "FLsessn1"   4 version   4 length of the name, 0 to 64
//!          then the name of the client's program, UTF-8
//! message  8 magic "FLsessn1"   4 version   4 kind   4 length   4 descriptors
//!          then `length` bytes; the descriptors come with the first byte of the message
//! ```
//!
//! | kind | of the client | of the application |
//! |---|---|---|
//! | 1 application | | what it is; the counters |
//! | 2 refusal | | why not, UTF-8; after what is no request it says nothing more |
//! | 3 capture | what to copy | what is copied; the rings. Any byte of the client ends it |
//! | 4 tables | | the tables and their parts; a descriptor for each part, to read |
//! | 5 write | the names of tables | as 4, to write, for as long as the client is connected |
//! | 6 messages | | the rings, and what wakes whom |
//! | 7 rules | a port and its rules | what became of them |
//! | 8 shards | what to move, or nothing | which lane has which shard |
//! | 9 keep | from which descriptor on | what a successor needs |
//! | 10 reload | the text of a configuration | what has changed |
//!
//! All bodies but the refusal's are JSON. Numbers are little endian. Magic, version and the form of
//! a refusal are the same in every version, so that either side can say which one it wanted.

/// The version of this protocol.
pub(super) const VERSION: u32 = 3;
const MAGIC: [u8; 8] = *b"FLsessn1";
/// Bytes of a hello before the name.
pub(super) const HELLO: usize = 16;
/// The most bytes of the name in a hello.
pub(super) const NAME_LIMIT: usize = 64;
/// Bytes of a message's header.
pub(super) const HEADER: usize = 24;
/// The most bytes after a header.
pub(super) const LIMIT: usize = 1 << 20;
/// The most bytes of a request: a filter of the greatest length fits, and a long configuration.
pub(super) const REQUEST_LIMIT: usize = 1 << 18;
/// The most descriptors of a message; the kernel's own limit is 253 (unix(7), SCM_MAX_FD).
pub(super) const DESCRIPTORS: usize = 250;

/// The first bytes from a client that speaks `version` and runs the program `name`.
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

/// How long the name behind this hello is, or why the client that sent it is not let in.
pub(super) fn greeting(hello: &[u8; HELLO]) -> Result<usize, String> {
    if hello[..8] != MAGIC {
        return Err("the client does not speak the session protocol (wrong magic)".to_owned());
    }
    let version = u32_at(hello, 8);
    if version != VERSION {
        return Err(format!(
            "the client speaks version {version} of the session, this application version \
             {VERSION}; use both of one release"
        ));
    }
    let length = u32_at(hello, 12) as usize;
    let too_long = || format!("a name of {length} bytes; at most {NAME_LIMIT} are taken");
    (length <= NAME_LIMIT).then_some(length).ok_or_else(too_long)
}

/// What a message carries.
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
    Keep = 9,
    Reload = 10,
}

impl Kind {
    const ALL: [Self; 10] = [
        Self::Application,
        Self::Refusal,
        Self::Capture,
        Self::Tables,
        Self::Write,
        Self::Messages,
        Self::Rules,
        Self::Shards,
        Self::Keep,
        Self::Reload,
    ];

    /// Whether a client may say it.
    pub(super) fn is_request(self) -> bool {
        !matches!(self, Self::Application | Self::Refusal)
    }
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) kind: Kind,
    /// Bytes that follow, at most [`LIMIT`].
    pub(super) length: usize,
    /// Descriptors that come with it, at most [`DESCRIPTORS`].
    pub(super) descriptors: usize,
}

impl Header {
    /// Reads a header, or says what is wrong with it.
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

/// A whole message, or `None` when `body` is longer than [`LIMIT`] or there are more than
/// [`DESCRIPTORS`].
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
    fn what_is_written_is_read() {
        for kind in Kind::ALL {
            let message = message(kind, b"no", 7).unwrap();
            let header = Header::read(message[..HEADER].try_into().unwrap()).unwrap();
            assert_eq!(header, Header { version: VERSION, kind, length: 2, descriptors: 7 });
            assert_eq!(&message[HEADER..], b"no");
        }
        let hello = hello(VERSION, "slow");
        assert_eq!(greeting(hello[..HELLO].try_into().unwrap()), Ok(4));
        assert_eq!(&hello[HELLO..], b"slow");
    }

    #[test]
    fn a_long_name_is_cut_where_a_letter_ends() {
        let hello = hello(VERSION, &format!("{}ä", "x".repeat(NAME_LIMIT - 1)));
        assert_eq!(greeting(hello[..HELLO].try_into().unwrap()), Ok(NAME_LIMIT - 1));
        assert_eq!(hello.len(), HELLO + NAME_LIMIT - 1);
    }

    #[test]
    fn bad_hellos_are_refused() {
        let of = |bytes: Vec<u8>| greeting(bytes[..HELLO].try_into().unwrap()).unwrap_err();
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
