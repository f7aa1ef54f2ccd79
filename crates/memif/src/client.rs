//! The client's side of the handshake, and the memory that it creates.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

use crate::MemifSettings;
use crate::agreement::{Agreement, BelledRing, PROGRAM, Step};
use crate::channel::{Channel, Received};
use crate::layout::{Buffers, Layout};
use crate::message::{AddRing, ETHERNET, Hello, Init, Message, VERSION};
use crate::region::{Region, Regions};
use crate::ring::Ring;

/// Maximum number of rings of the next attempt, per direction. A server may have fewer rings than
/// its hello says, as DPDK's does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) to_server: usize,
    pub(crate) to_client: usize,
}

/// State of a client during the handshake.
#[derive(Debug)]
pub(crate) struct Client {
    settings: MemifSettings,
    limits: Limits,
    /// Name of the server's program.
    server: String,
    memory: Option<ClientMemory>,
    /// Messages still to be sent.
    messages: VecDeque<Message>,
    /// The last message that was sent, for [`lower_limit`](Self::lower_limit).
    sent: Option<Message>,
}

/// The region and the rings of a client.
#[derive(Debug)]
struct ClientMemory {
    layout: Layout,
    regions: Arc<Regions>,
    to_server: Vec<BelledRing>,
    to_client: Vec<BelledRing>,
}

impl Client {
    pub(crate) fn new(settings: &MemifSettings, limits: Limits) -> Self {
        let (server, messages) = (String::new(), VecDeque::new());
        Self { settings: settings.clone(), limits, server, memory: None, messages, sent: None }
    }

    /// Returns the next step after a message of the server.
    ///
    /// # Errors
    /// Returns the reason to refuse the server.
    pub(crate) fn advance(&mut self, received: Received) -> Result<Step, String> {
        match received.message {
            Message::Hello(hello) if self.memory.is_none() => {
                self.hello(hello)?;
                Ok(Step::Next)
            }
            Message::Ack if !self.messages.is_empty() => Ok(Step::Next),
            Message::Connected { name } if self.messages.is_empty() => {
                let memory = self.memory.take().ok_or("connected before hello")?;
                Ok(Step::Agreed(self.agree(memory, name)))
            }
            Message::Disconnect { reason, .. } => {
                self.lower_limit();
                Err(format!("the server: {reason}"))
            }
            message => Err(format!("{} from the server", message.kind())),
        }
    }

    /// Returns the limits for the next attempt, lowered by the refusals of this one.
    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// Lowers a limit if the server refused a ring: it has only the rings before that one.
    fn lower_limit(&mut self) {
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
            return Err("the server does not support version 2.0".to_owned());
        }
        let rings =
            |last: u16, limit: usize| self.settings.queues.min(limit).min(1 + last as usize);
        let layout = Layout {
            to_server: rings(hello.last_ring_to_server, self.limits.to_server),
            to_client: rings(hello.last_ring_to_client, self.limits.to_client),
            slots: self.settings.slots().min(hello.max_slots.max(1)),
            buffer_size: self.settings.buffer_size,
        };
        let memory = ClientMemory::new(layout)
            .map_err(|error| format!("cannot create the shared memory: {error}"))?;
        self.messages = memory.messages(&self.settings);
        self.server = hello.name;
        self.memory = Some(memory);
        Ok(())
    }

    /// Sends the next message, with its descriptor.
    pub(crate) fn send_next(&mut self, channel: &Channel) -> Result<(), String> {
        let (Some(message), Some(memory)) = (self.messages.pop_front(), &self.memory) else {
            return Ok(());
        };
        let file = match &message {
            Message::AddRegion { .. } => memory.regions.0.first().map(AsFd::as_fd),
            Message::AddRing(ring) => {
                let rings = if ring.to_server { &memory.to_server } else { &memory.to_client };
                rings.get(usize::from(ring.index)).map(|(_, doorbell)| doorbell.as_fd())
            }
            _ => None,
        };
        channel.send(&message, file)?;
        self.sent = Some(message);
        Ok(())
    }

    fn agree(&self, memory: ClientMemory, name: String) -> Agreement {
        let ClientMemory { layout, regions, to_server, to_client } = memory;
        let some = |rings: Vec<_>| rings.into_iter().map(Some).collect();
        Agreement {
            regions,
            receive: some(to_client),
            transmit: some(to_server),
            peer: format!("{name} ({})", self.server),
            buffers: Some(layout),
            last: None,
        }
    }
}

impl ClientMemory {
    fn new(layout: Layout) -> std::io::Result<Self> {
        let region = Region::create("memif-region", layout.length())?;
        let regions = Arc::new(Regions(vec![region]));
        let ring = |number: usize| -> std::io::Result<BelledRing> {
            let offset = layout.ring_offset(number) as u32;
            let ring = Ring::new(Arc::clone(&regions), Buffers::REGION, offset, layout.slots)
                .ok_or(std::io::ErrorKind::InvalidInput)?;
            ring.initialize();
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
