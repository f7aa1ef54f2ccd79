//! The client's side of the handshake.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

use crate::MemifSettings;
use crate::channel::{Channel, Received};
use crate::handshake::{Agreed, Bell, PROGRAM, Step};
use crate::message::{AddRing, ETHERNET, Hello, Init, Message, VERSION};
use crate::region::{Region, Regions};
use crate::ring::{Ring, octets};
use crate::transmitter::Buffers;

/// How many rings of what size, and where they and their buffers lie in the one region: first all
/// rings, those to the server before those to the client, then their buffers in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    to_server: usize,
    to_client: usize,
    /// As a power of two.
    slots: u8,
    buffer_size: usize,
}

impl Layout {
    fn rings(self) -> usize {
        self.to_server + self.to_client
    }

    /// Rings begin at cache lines.
    fn ring_octets(self) -> usize {
        octets(1 << self.slots).next_multiple_of(64)
    }

    fn ring_offset(self, ring: usize) -> usize {
        ring * self.ring_octets()
    }

    /// Buffers begin at pages.
    fn buffer_offset(self, ring: usize) -> usize {
        let rings = (self.rings() * self.ring_octets()).next_multiple_of(4096);
        rings + ((ring * self.buffer_size) << self.slots)
    }

    fn length(self) -> usize {
        self.buffer_offset(self.rings())
    }

    /// The buffers of the ring to the server with this number.
    pub(crate) fn to_server(self, index: usize) -> Buffers {
        Buffers { start: self.buffer_offset(index) as u32, size: self.buffer_size as u32 }
    }

    /// The buffers of the ring to the client with this number.
    pub(crate) fn to_client(self, index: usize) -> Buffers {
        self.to_server(self.to_server + index)
    }
}

/// The most rings of the next attempt, to the server and to the client: a server may have fewer
/// than it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) to_server: usize,
    pub(crate) to_client: usize,
}

/// What there is still to be told.
#[derive(Debug)]
pub(crate) struct Client {
    settings: MemifSettings,
    limits: Limits,
    server: String,
    made: Option<Made>,
    messages: VecDeque<Message>,
    /// The last message that was sent.
    sent: Option<Message>,
}

/// What the client has made.
#[derive(Debug)]
struct Made {
    layout: Layout,
    regions: Arc<Regions>,
    to_server: Vec<(Ring, Bell)>,
    to_client: Vec<(Ring, Bell)>,
}

impl Client {
    pub(crate) fn new(settings: &MemifSettings, limits: Limits) -> Self {
        let (server, messages) = (String::new(), VecDeque::new());
        Self { settings: settings.clone(), limits, server, made: None, messages, sent: None }
    }

    /// What follows from a message; the reason when the server is refused.
    pub(crate) fn advance(&mut self, received: Received) -> Result<Step, String> {
        match received.message {
            Message::Hello(hello) if self.made.is_none() => {
                self.hello(hello)?;
                Ok(Step::Next)
            }
            Message::Ack if !self.messages.is_empty() => Ok(Step::Next),
            Message::Connected { name } if self.messages.is_empty() => {
                let made = self.made.take().ok_or("connected before hello")?;
                Ok(Step::Agreed(self.agree(made, name)))
            }
            Message::Disconnect { reason, .. } => {
                self.learn();
                Err(format!("the server: {reason}"))
            }
            message => Err(format!("{} from the server", message.kind())),
        }
    }

    /// What the next attempt should keep to, after what this one was refused.
    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// A server that refuses a ring has only those before it.
    fn learn(&mut self) {
        if let Some(Message::AddRing(AddRing { to_server, index, .. })) = self.sent
            && index > 0
        {
            let limit =
                if to_server { &mut self.limits.to_server } else { &mut self.limits.to_client };
            *limit = usize::from(index);
        }
    }

    fn hello(&mut self, hello: Hello) -> Result<(), String> {
        if !(hello.lowest_version..=hello.highest_version).contains(&VERSION) {
            return Err("the server does not speak version 2.0".to_owned());
        }
        let rings =
            |last: u16, limit: usize| self.settings.queues.min(limit).min(1 + last as usize);
        let layout = Layout {
            to_server: rings(hello.last_ring_to_server, self.limits.to_server),
            to_client: rings(hello.last_ring_to_client, self.limits.to_client),
            slots: self.settings.slots().min(hello.most_slots.max(1)),
            buffer_size: self.settings.buffer_size,
        };
        let made = Made::new(layout).map_err(|error| format!("no memory: {error}"))?;
        self.messages = made.messages(&self.settings);
        self.server = hello.name;
        self.made = Some(made);
        Ok(())
    }

    /// Sends the next message.
    pub(crate) fn send_next(&mut self, channel: &Channel) -> Result<(), String> {
        let (Some(message), Some(made)) = (self.messages.pop_front(), &self.made) else {
            return Ok(());
        };
        let file = match &message {
            Message::AddRegion { .. } => made.regions.0.first().map(AsFd::as_fd),
            Message::AddRing(ring) => {
                let rings = if ring.to_server { &made.to_server } else { &made.to_client };
                rings.get(usize::from(ring.index)).map(|(_, bell)| bell.as_fd())
            }
            _ => None,
        };
        channel.send(&message, file)?;
        self.sent = Some(message);
        Ok(())
    }

    fn agree(&self, made: Made, name: String) -> Agreed {
        let Made { layout, regions, to_server, to_client } = made;
        let some = |rings: Vec<_>| rings.into_iter().map(Some).collect();
        Agreed {
            regions,
            receive: some(to_client),
            transmit: some(to_server),
            peer: format!("{name} ({})", self.server),
            buffers: Some(layout),
            last: None,
        }
    }
}

impl Made {
    fn new(layout: Layout) -> std::io::Result<Self> {
        let region = Region::create("memif-region", layout.length())?;
        let regions = Arc::new(Regions(vec![region]));
        let ring = |number: usize| -> std::io::Result<(Ring, OwnedFd)> {
            let offset = layout.ring_offset(number) as u32;
            let ring = Ring::new(Arc::clone(&regions), Buffers::REGION, offset, layout.slots)
                .ok_or(std::io::ErrorKind::InvalidInput)?;
            ring.initialise();
            Ok((ring, eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
        };
        let to_server = (0..layout.to_server).map(ring).collect::<Result<Vec<_>, _>>()?;
        let to_client = (layout.to_server..layout.rings()).map(ring).collect::<Result<_, _>>()?;
        Ok(Self { layout, regions, to_server, to_client })
    }

    fn messages(&self, settings: &MemifSettings) -> VecDeque<Message> {
        let layout = self.layout;
        let ring = |number: usize| {
            let to_server = number < layout.to_server;
            let index = if to_server { number } else { number - layout.to_server };
            Message::AddRing(AddRing {
                to_server,
                index: index as u16,
                region: Buffers::REGION,
                offset: layout.ring_offset(number) as u32,
                slots: layout.slots,
            })
        };
        let init = Message::Init(Init {
            version: VERSION,
            id: settings.id,
            mode: ETHERNET,
            secret: settings.secret(),
            name: PROGRAM.to_owned(),
        });
        let region = Message::AddRegion { index: 0, size: layout.length() as u64 };
        let mut messages = VecDeque::from([init, region]);
        messages.extend((0..layout.rings()).map(ring));
        messages.push_back(Message::Connect { name: settings.name.clone() });
        messages
    }
}
