//! The server's side of the handshake.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crate::MemifSettings;
use crate::channel::Received;
use crate::handshake::{Agreed, Bell, Step};
use crate::message::{AddRing, ETHERNET, Hello, Init, Message, SECRET, VERSION};
use crate::region::{Region, Regions};
use crate::ring::Ring;
use crate::settings::{MOST_MEMORY, MOST_SLOTS};

/// The most regions of a client.
const MOST_REGIONS: usize = 16;

/// What a client has told so far.
#[derive(Debug)]
pub(crate) struct Server {
    id: u32,
    secret: [u8; SECRET],
    name: String,
    /// What the client says it is, once it has.
    client: Option<String>,
    regions: Vec<Region>,
    to_server: Vec<Option<(AddRing, Bell)>>,
    to_client: Vec<Option<(AddRing, Bell)>>,
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

    /// The first message.
    pub(crate) fn hello(&self) -> Message {
        let last_ring = (self.to_server.len() - 1) as u16;
        Message::Hello(Hello {
            name: crate::handshake::PROGRAM.to_owned(),
            lowest_version: VERSION,
            highest_version: VERSION,
            last_region: MOST_REGIONS as u16 - 1,
            last_ring_to_client: last_ring,
            last_ring_to_server: last_ring,
            most_slots: MOST_SLOTS,
        })
    }

    /// What follows from a message; the reason when the client is refused.
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
            return Err(format!("the version {:#06x} is not spoken here", init.version));
        }
        if init.id != self.id {
            return Err(format!("there is no interface {}", init.id));
        }
        if init.mode != ETHERNET {
            return Err("only the mode ethernet is spoken here".to_owned());
        }
        if self.secret != [0; SECRET] && init.secret != self.secret {
            return Err("the secret is wrong".to_owned());
        }
        self.client = Some(init.name);
        Ok(())
    }

    fn add_region(&mut self, index: u16, size: u64, file: Option<OwnedFd>) -> Result<(), String> {
        if usize::from(index) != self.regions.len() || self.regions.len() >= MOST_REGIONS {
            return Err(format!("region {index} is not the next, or too many"));
        }
        let file = file.ok_or("a region without its descriptor")?;
        let mapped: usize = self.regions.iter().map(Region::len).sum();
        if mapped as u64 + size.min(MOST_MEMORY) > MOST_MEMORY {
            return Err(format!("more than {} MiB of regions", MOST_MEMORY >> 20));
        }
        self.regions.push(Region::attach(file, size)?);
        Ok(())
    }

    fn add_ring(&mut self, ring: AddRing, file: Option<OwnedFd>) -> Result<(), String> {
        let bell = file.ok_or("a ring without its eventfd")?;
        if !is_eventfd(&bell) {
            return Err("the descriptor of a ring is no eventfd".to_owned());
        }
        let rings = if ring.to_server { &mut self.to_server } else { &mut self.to_client };
        match rings.get_mut(usize::from(ring.index)) {
            Some(place @ None) => *place = Some((ring, bell)),
            Some(_) => return Err(format!("ring {} for the second time", ring.index)),
            None => return Err(format!("there is no ring {}", ring.index)),
        }
        Ok(())
    }

    fn connect(&mut self, name: String) -> Result<Agreed, String> {
        let regions = Arc::new(Regions(std::mem::take(&mut self.regions)));
        let rings = |described: &mut Vec<Option<(AddRing, Bell)>>| {
            let rings = std::mem::take(described).into_iter().map(|ring| {
                ring.map(|(ring, bell)| Ok((open_ring(&regions, ring)?, bell))).transpose()
            });
            rings.collect::<Result<Vec<_>, String>>()
        };
        let receive = rings(&mut self.to_server)?;
        let transmit = rings(&mut self.to_client)?;
        let peer = format!("{} ({})", name, self.client.take().unwrap_or_default());
        let connected = Message::Connected { name: self.name.clone() };
        Ok(Agreed { regions, receive, transmit, peer, buffers: None, last: Some(connected) })
    }
}

fn open_ring(regions: &Arc<Regions>, described: AddRing) -> Result<Ring, String> {
    let AddRing { index, region, offset, slots, .. } = described;
    let ring = Ring::new(Arc::clone(regions), region, offset, slots)
        .ok_or_else(|| format!("ring {index} is not inside its region"))?;
    if !ring.is_marked() {
        return Err(format!("ring {index} has no cookie"));
    }
    ring.reset();
    Ok(ring)
}

/// Whether a descriptor is what it should be: others might make us wait.
fn is_eventfd(file: impl AsFd) -> bool {
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file.as_fd()));
    std::fs::read_link(path).is_ok_and(|target| target.as_os_str() == "anon_inode:[eventfd]")
}
