//! What client and application say to each other: one hello, one answer; then, if the client wants
//! copies of packets, one request, one answer.
//!
//! ```text
//! hello    8 magic "FLsessn1"   4 version   4 zero
//! message  8 magic "FLsessn1"   4 version   4 kind   4 length   4 zero   then `length` bytes:
//!            kind 1: the application, as JSON; the counters' descriptor comes with the first byte
//!            kind 2: a refusal, UTF-8; the application says nothing more
//!            kind 3: of a client, a request to capture, as JSON; of the application, the granted
//!                    capture, as JSON, and the rings' descriptor comes with the first byte
//! ```
//! Numbers are little endian. Magic, version and the form of a refusal are the same in every
//! version, so that either side can say which one it wanted.

/// The version of this protocol.
pub(super) const VERSION: u32 = 2;
const MAGIC: [u8; 8] = *b"FLsessn1";
/// Bytes of a hello.
pub(super) const HELLO: usize = 16;
/// Bytes of a message's header.
pub(super) const HEADER: usize = 24;
/// The most bytes after a header.
pub(super) const LIMIT: usize = 1 << 20;
/// The most bytes of a request: a filter of the greatest length fits.
pub(super) const REQUEST_LIMIT: usize = 1 << 18;

/// The first bytes from a client that speaks `version`.
pub(super) fn hello(version: u32) -> [u8; HELLO] {
    let mut bytes = [0; HELLO];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    bytes
}

/// Why the client that sent this hello is not let in.
pub(super) fn refusal(hello: &[u8; HELLO]) -> Option<String> {
    if hello[..8] != MAGIC {
        return Some("the client does not speak the session protocol (wrong magic)".to_owned());
    }
    let version = u32_at(hello, 8);
    (version != VERSION).then(|| {
        format!(
            "the client speaks version {version} of the session, this application version \
             {VERSION}; use both of one release"
        )
    })
}

/// What a message carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Application,
    Refusal,
    Capture,
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) kind: Kind,
    /// Bytes that follow, at most [`LIMIT`].
    pub(super) length: usize,
}

impl Header {
    /// Reads a header, or says what is wrong with it.
    pub(super) fn read(bytes: &[u8; HEADER]) -> Result<Self, String> {
        if bytes[..8] != MAGIC {
            return Err("wrong magic".to_owned());
        }
        let kind = match u32_at(bytes, 12) {
            1 => Kind::Application,
            2 => Kind::Refusal,
            3 => Kind::Capture,
            other => return Err(format!("a message of unknown kind {other}")),
        };
        let length = u32_at(bytes, 16) as usize;
        if length > LIMIT {
            return Err(format!("a message of {length} bytes; at most {LIMIT} are accepted"));
        }
        Ok(Self { version: u32_at(bytes, 8), kind, length })
    }
}

/// A whole message, or `None` when `body` is longer than [`LIMIT`].
pub(super) fn message(kind: Kind, body: &[u8]) -> Option<Vec<u8>> {
    let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= LIMIT)?;
    let kind: u32 = match kind {
        Kind::Application => 1,
        Kind::Refusal => 2,
        Kind::Capture => 3,
    };
    let mut bytes = MAGIC.to_vec();
    for field in [VERSION, kind, length, 0] {
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
        let message = message(Kind::Refusal, b"no").unwrap();
        let header = Header::read(message[..HEADER].try_into().unwrap()).unwrap();
        assert_eq!(header, Header { version: VERSION, kind: Kind::Refusal, length: 2 });
        assert_eq!(&message[HEADER..], b"no");
        assert_eq!(refusal(&hello(VERSION)), None);
        assert!(refusal(&hello(9)).unwrap().contains("version 9"));
        assert!(refusal(&[0; HELLO]).unwrap().contains("magic"));
    }

    #[test]
    fn bad_headers_are_refused() {
        let good: [u8; HEADER] = message(Kind::Application, b"").unwrap().try_into().unwrap();
        for (at, what) in [(0, "magic"), (12, "kind"), (19, "bytes")] {
            let mut bad = good;
            bad[at] ^= 0xff;
            assert!(Header::read(&bad).unwrap_err().contains(what), "byte {at}");
        }
        assert!(message(Kind::Application, &vec![0; LIMIT + 1]).is_none());
    }
}
