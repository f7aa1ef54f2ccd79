//! The messages of the memif protocol, version 2.0.
//!
//! Each is one record of 128 octets on a Unix socket of type SOCK_SEQPACKET, in host byte order: a
//! type of two octets, then the packed fields of that type, then zeros. The layouts are those of
//! FD.io's libmemif (FDio/vpp, extras/libmemif/src/memif.h) and of DPDK (DPDK/dpdk,
//! drivers/net/memif/memif.h).

/// Octets of a message.
pub(crate) const LENGTH: usize = 128;
/// Supported version; the major number is the upper octet.
pub(crate) const VERSION: u16 = 2 << 8;
/// Octets of a name field, including the terminating zero.
pub(crate) const NAME: usize = 32;
/// Octets of a secret field.
pub(crate) const SECRET: usize = 24;
/// Octets of the reason field of disconnect.
const REASON: usize = 96;
/// Mode of frames with an Ethernet header, the only supported mode.
pub(crate) const ETHERNET: u8 = 0;

const ACK: u16 = 1;
const HELLO: u16 = 2;
const INIT: u16 = 3;
const ADD_REGION: u16 = 4;
const ADD_RING: u16 = 5;
const CONNECT: u16 = 6;
const CONNECTED: u16 = 7;
const DISCONNECT: u16 = 8;

/// Flag of add ring: the ring carries frames from the client to the server.
const TO_SERVER: u16 = 1;

/// A message of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// The server accepted the last message.
    Ack,
    /// The server's first message.
    Hello(Hello),
    /// The client's first message.
    Init(Init),
    /// A memory region. Its memfd is attached.
    AddRegion { index: u16, size: u64 },
    /// A ring. Its eventfd is attached.
    AddRing(AddRing),
    /// The client has sent all regions and rings.
    Connect { name: String },
    /// The server has mapped all regions and rings.
    Connected { name: String },
    /// The connection ends.
    Disconnect { code: u32, reason: String },
}

/// Versions and limits of a server. The numbers of regions and rings are the highest indices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) name: String,
    pub(crate) lowest_version: u16,
    pub(crate) highest_version: u16,
    pub(crate) last_region: u16,
    pub(crate) last_ring_to_client: u16,
    pub(crate) last_ring_to_server: u16,
    /// Number of slots, as a power of two.
    pub(crate) max_slots: u8,
}

/// Identity of a client, and the interface that it wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Init {
    pub(crate) version: u16,
    pub(crate) id: u32,
    pub(crate) mode: u8,
    pub(crate) secret: [u8; SECRET],
    pub(crate) name: String,
}

/// Position and size of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddRing {
    pub(crate) to_server: bool,
    pub(crate) index: u16,
    pub(crate) region: u16,
    pub(crate) offset: u32,
    /// Number of slots, as a power of two.
    pub(crate) slots: u8,
}

impl Message {
    /// Returns the name of the message type, for error texts.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::Hello(_) => "hello",
            Self::Init(_) => "init",
            Self::AddRegion { .. } => "add region",
            Self::AddRing(_) => "add ring",
            Self::Connect { .. } => "connect",
            Self::Connected { .. } => "connected",
            Self::Disconnect { .. } => "disconnect",
        }
    }

    /// Encodes the message. Truncates names and reasons that are too long.
    pub(crate) fn encode(&self) -> [u8; LENGTH] {
        let mut writer = Writer { octets: [0; LENGTH], at: 0 };
        match self {
            Self::Ack => writer.put(&ACK.to_ne_bytes()),
            Self::Hello(hello) => {
                writer.put(&HELLO.to_ne_bytes());
                writer.text(&hello.name, NAME);
                writer.put(&hello.lowest_version.to_ne_bytes());
                writer.put(&hello.highest_version.to_ne_bytes());
                writer.put(&hello.last_region.to_ne_bytes());
                writer.put(&hello.last_ring_to_client.to_ne_bytes());
                writer.put(&hello.last_ring_to_server.to_ne_bytes());
                writer.put(&[hello.max_slots]);
            }
            Self::Init(init) => {
                writer.put(&INIT.to_ne_bytes());
                writer.put(&init.version.to_ne_bytes());
                writer.put(&init.id.to_ne_bytes());
                writer.put(&[init.mode]);
                writer.put(&init.secret);
                writer.text(&init.name, NAME);
            }
            Self::AddRegion { index, size } => {
                writer.put(&ADD_REGION.to_ne_bytes());
                writer.put(&index.to_ne_bytes());
                writer.put(&size.to_ne_bytes());
            }
            Self::AddRing(ring) => {
                writer.put(&ADD_RING.to_ne_bytes());
                writer.put(&if ring.to_server { TO_SERVER } else { 0 }.to_ne_bytes());
                writer.put(&ring.index.to_ne_bytes());
                writer.put(&ring.region.to_ne_bytes());
                writer.put(&ring.offset.to_ne_bytes());
                writer.put(&[ring.slots]);
            }
            Self::Connect { name } => {
                writer.put(&CONNECT.to_ne_bytes());
                writer.text(name, NAME);
            }
            Self::Connected { name } => {
                writer.put(&CONNECTED.to_ne_bytes());
                writer.text(name, NAME);
            }
            Self::Disconnect { code, reason } => {
                writer.put(&DISCONNECT.to_ne_bytes());
                writer.put(&code.to_ne_bytes());
                writer.text(reason, REASON);
            }
        }
        writer.octets
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// Returns an error if the type is unknown.
    pub(crate) fn decode(octets: &[u8; LENGTH]) -> Result<Self, Unknown> {
        let mut reader = Reader { octets, at: 0 };
        Ok(match reader.u16() {
            ACK => Self::Ack,
            HELLO => Self::Hello(Hello {
                name: reader.text(NAME),
                lowest_version: reader.u16(),
                highest_version: reader.u16(),
                last_region: reader.u16(),
                last_ring_to_client: reader.u16(),
                last_ring_to_server: reader.u16(),
                max_slots: reader.u8(),
            }),
            INIT => Self::Init(Init {
                version: reader.u16(),
                id: reader.u32(),
                mode: reader.u8(),
                secret: reader.take(),
                name: reader.text(NAME),
            }),
            ADD_REGION => Self::AddRegion { index: reader.u16(), size: reader.u64() },
            ADD_RING => Self::AddRing(AddRing {
                to_server: reader.u16() & TO_SERVER != 0,
                index: reader.u16(),
                region: reader.u16(),
                offset: reader.u32(),
                slots: reader.u8(),
            }),
            CONNECT => Self::Connect { name: reader.text(NAME) },
            CONNECTED => Self::Connected { name: reader.text(NAME) },
            DISCONNECT => Self::Disconnect { code: reader.u32(), reason: reader.text(REASON) },
            other => return Err(Unknown(other)),
        })
    }
}

/// Error of decoding a message of an unknown type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown type {0} of a message")]
pub(crate) struct Unknown(u16);

struct Writer {
    octets: [u8; LENGTH],
    at: usize,
}

impl Writer {
    fn put(&mut self, octets: &[u8]) {
        self.octets[self.at..self.at + octets.len()].copy_from_slice(octets);
        self.at += octets.len();
    }

    /// Writes a text into a field of `room` octets, whose last octet stays zero.
    fn text(&mut self, text: &str, room: usize) {
        let length = text.len().min(room - 1);
        self.octets[self.at..self.at + length].copy_from_slice(&text.as_bytes()[..length]);
        self.at += room;
    }
}

/// Reader of the fields of a record, from the front. The fields of every message are shorter than a
/// record.
struct Reader<'a> {
    octets: &'a [u8; LENGTH],
    at: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut taken = [0; N];
        if let Some(octets) = self.octets.get(self.at..self.at + N) {
            taken.copy_from_slice(octets);
        }
        self.at += N;
        taken
    }

    fn u8(&mut self) -> u8 {
        u8::from_ne_bytes(self.take())
    }

    fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.take())
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.take())
    }

    /// Reads the text of a field of `room` octets, up to the first zero; the last octet counts as
    /// one. Replaces octets that cannot be printed: the peer's text goes into our logs.
    fn text(&mut self, room: usize) -> String {
        let field = self.octets.get(self.at..self.at + room - 1).unwrap_or_default();
        self.at += room;
        let printable = |octet: &u8| match octet {
            b' '..=b'~' => char::from(*octet),
            _ => '?',
        };
        field.iter().take_while(|octet| **octet != 0).map(printable).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(room: usize) -> impl Strategy<Value = String> {
        proptest::collection::vec(b' '..=b'~', 0..room)
            .prop_map(|octets| octets.into_iter().map(char::from).collect())
    }

    fn hello() -> impl Strategy<Value = Message> {
        (text(NAME), any::<[u16; 5]>(), any::<u8>()).prop_map(|(name, numbers, max_slots)| {
            let [lowest_version, highest_version, last_region, to_client, to_server] = numbers;
            Message::Hello(Hello {
                name,
                lowest_version,
                highest_version,
                last_region,
                last_ring_to_client: to_client,
                last_ring_to_server: to_server,
                max_slots,
            })
        })
    }

    fn message() -> impl Strategy<Value = Message> {
        let init = (any::<(u16, u32, u8)>(), any::<[u8; SECRET]>(), text(NAME)).prop_map(
            |((version, id, mode), secret, name)| {
                Message::Init(Init { version, id, mode, secret, name })
            },
        );
        let ring = any::<(bool, u16, u16, u32, u8)>().prop_map(
            |(to_server, index, region, offset, slots)| {
                Message::AddRing(AddRing { to_server, index, region, offset, slots })
            },
        );
        prop_oneof![
            Just(Message::Ack),
            hello(),
            init,
            any::<(u16, u64)>().prop_map(|(index, size)| Message::AddRegion { index, size }),
            ring,
            text(NAME).prop_map(|name| Message::Connect { name }),
            text(NAME).prop_map(|name| Message::Connected { name }),
            (any::<u32>(), text(REASON))
                .prop_map(|(code, reason)| Message::Disconnect { code, reason }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(message in message()) {
            prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
        }

        #[test]
        fn every_record_is_a_message_or_refused(
            kind in 0u16..12,
            rest in proptest::collection::vec(any::<u8>(), LENGTH - 2),
        ) {
            let mut record = [0; LENGTH];
            record[..2].copy_from_slice(&kind.to_ne_bytes());
            record[2..].copy_from_slice(&rest);
            match Message::decode(&record) {
                Ok(message) => prop_assert_eq!(Message::decode(&message.encode()), Ok(message)),
                Err(Unknown(unknown)) => prop_assert!(unknown == kind && !(1..=8).contains(&kind)),
            }
        }
    }

    #[test]
    fn fields_lie_where_others_look_for_them() {
        let ring = AddRing { to_server: true, index: 2, region: 3, offset: 4, slots: 10 };
        let record = Message::AddRing(ring).encode();
        assert_eq!(record[..13], [5, 0, 1, 0, 2, 0, 3, 0, 4, 0, 0, 0, 10]);
        let record = Message::AddRegion { index: 1, size: 0x1_0000_0002 }.encode();
        assert_eq!(record[..12], [4, 0, 1, 0, 2, 0, 0, 0, 1, 0, 0, 0]);
    }

    #[test]
    fn a_long_name_is_cut_and_a_wild_one_can_be_printed() {
        let record = Message::Connect { name: "n".repeat(40) }.encode();
        assert_eq!(record[2 + NAME..], [0; LENGTH - 2 - NAME]);
        let mut record = Message::Connect { name: "abc".to_owned() }.encode();
        record[3] = 0x1b;
        assert_eq!(Message::decode(&record), Ok(Message::Connect { name: "a?c".to_owned() }));
    }
}
