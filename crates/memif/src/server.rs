//! The server's side of the handshake.
//!
//! The client is not trusted: it may send any message in any order, with any descriptor. Everything
//! is checked here, before a lane sees a ring, and a client that fails a check is disconnected.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crate::MemifSettings;
use crate::agreement::{Agreement, Doorbell, PROGRAM, Step};
use crate::channel::Received;
use crate::message::{AddRing, ETHERNET, Hello, Init, Message, SECRET, VERSION};
use crate::region::{Region, Regions};
use crate::ring::Ring;
use crate::settings::{MAX_MEMORY, MAX_SLOTS};

/// Maximum number of regions of a client.
const MAX_REGIONS: usize = 16;

/// State of a server during the handshake: everything that the client has sent so far.
#[derive(Debug)]
pub(crate) struct Server {
    id: u32,
    secret: [u8; SECRET],
    name: String,
    /// Name of the client's program, once it has sent init.
    client: Option<String>,
    regions: Vec<Region>,
    to_server: Vec<Option<(AddRing, Doorbell)>>,
    to_client: Vec<Option<(AddRing, Doorbell)>>,
}

impl Server {
    pub(crate) fn new(settings: &MemifSettings) -> Self {
        let rings = || (0..settings.queues).map(|_| None).collect();
        Self {
            id: settings.id,
            secret: settings.secret(),
            name: settings.name.clone(),
            client: None,
            regions: Vec::new(),
            to_server: rings(),
            to_client: rings(),
        }
    }

    /// Returns the first message, which offers the server's limits.
    pub(crate) fn hello(&self) -> Message {
        let last_ring = (self.to_server.len() - 1) as u16;
        Message::Hello(Hello {
            name: PROGRAM.to_owned(),
            lowest_version: VERSION,
            highest_version: VERSION,
            last_region: MAX_REGIONS as u16 - 1,
            last_ring_to_client: last_ring,
            last_ring_to_server: last_ring,
            max_slots: MAX_SLOTS,
        })
    }

    /// Returns the next step after a message of the client.
    ///
    /// # Errors
    /// Returns the reason to refuse the client.
    pub(crate) fn advance(&mut self, received: Received) -> Result<Step, String> {
        let Received { message, file } = received;
        match message {
            Message::Init(init) if self.client.is_none() => self.init(init)?,
            _ if self.client.is_none() => return Err(format!("{} before init", message.kind())),
            Message::AddRegion { index, size } => self.add_region(index, size, file)?,
            Message::AddRing(ring) => self.add_ring(ring, file)?,
            Message::Connect { name } => return self.connect(name).map(Step::Agreed),
            Message::Disconnect { reason, .. } => return Err(format!("the client: {reason}")),
            _ => return Err(format!("{} from a client", message.kind())),
        }
        Ok(Step::Reply(Message::Ack))
    }

    fn init(&mut self, init: Init) -> Result<(), String> {
        if init.version != VERSION {
            return Err(format!("version {:#06x} is not supported", init.version));
        }
        if init.id != self.id {
            return Err(format!("no interface {}", init.id));
        }
        if init.mode != ETHERNET {
            return Err("only the mode ethernet is supported".to_owned());
        }
        if self.secret != [0; SECRET] && init.secret != self.secret {
            return Err("the secret is wrong".to_owned());
        }
        self.client = Some(init.name);
        Ok(())
    }

    fn add_region(&mut self, index: u16, size: u64, file: Option<OwnedFd>) -> Result<(), String> {
        // A client that adds regions without end would exhaust our descriptors and mappings.
        if usize::from(index) != self.regions.len() || self.regions.len() >= MAX_REGIONS {
            return Err(format!("region {index} is not the next one, or there are too many"));
        }
        let file = file.ok_or("a region without its descriptor")?;
        // The pages of a region may be charged to whoever touches them first, so a client could
        // exhaust this process's memory limit: the sum of all regions is bounded.
        let mapped: usize = self.regions.iter().map(Region::len).sum();
        if mapped as u64 + size.min(MAX_MEMORY) > MAX_MEMORY {
            return Err(format!("more than {} MiB of regions", MAX_MEMORY >> 20));
        }
        self.regions.push(Region::attach(file, size)?);
        Ok(())
    }

    fn add_ring(&mut self, ring: AddRing, file: Option<OwnedFd>) -> Result<(), String> {
        let doorbell = file.ok_or("a ring without its eventfd")?;
        // Writing to another kind of descriptor, such as a full pipe or a socket, could block our
        // thread or have effects elsewhere. So only eventfds are accepted.
        if !is_eventfd(&doorbell) {
            return Err("the descriptor of a ring is no eventfd".to_owned());
        }
        let rings = if ring.to_server { &mut self.to_server } else { &mut self.to_client };
        match rings.get_mut(usize::from(ring.index)) {
            Some(entry @ None) => *entry = Some((ring, doorbell)),
            Some(_) => return Err(format!("ring {} was added a second time", ring.index)),
            None => return Err(format!("no ring {}", ring.index)),
        }
        Ok(())
    }

    fn connect(&mut self, name: String) -> Result<Agreement, String> {
        let regions = Arc::new(Regions(std::mem::take(&mut self.regions)));
        let rings = |described: &mut Vec<Option<(AddRing, Doorbell)>>| {
            let rings = std::mem::take(described).into_iter().map(|ring| {
                ring.map(|(ring, doorbell)| Ok((open_ring(&regions, ring)?, doorbell))).transpose()
            });
            rings.collect::<Result<Vec<_>, String>>()
        };
        let receive = rings(&mut self.to_server)?;
        let transmit = rings(&mut self.to_client)?;
        let peer = format!("{} ({})", name, self.client.take().unwrap_or_default());
        let connected = Message::Connected { name: self.name.clone() };
        Ok(Agreement { regions, receive, transmit, peer, buffers: None, last: Some(connected) })
    }
}

/// Opens a ring that the client has described, and empties it.
///
/// The client chooses region, offset and size, so the whole ring must be inside of a mapped region:
/// a lane accesses it without any further check. The cookie only detects mistakes.
fn open_ring(regions: &Arc<Regions>, described: AddRing) -> Result<Ring, String> {
    let AddRing { index, region, offset, slots, .. } = described;
    let ring = Ring::new(Arc::clone(regions), region, offset, slots)
        .ok_or_else(|| format!("ring {index} is not inside its region"))?;
    if !ring.has_cookie() {
        return Err(format!("ring {index} has no cookie"));
    }
    ring.reset();
    Ok(ring)
}

/// Returns true if the descriptor is an eventfd.
fn is_eventfd(file: impl AsFd) -> bool {
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file.as_fd()));
    std::fs::read_link(path).is_ok_and(|target| target.as_os_str() == "anon_inode:[eventfd]")
}
