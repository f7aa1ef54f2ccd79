//! One client: its requests, its devices and its memory.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use fastlane::agent::records::{
    self, Attach, Attached, BindLane, BoundQueue, DESCRIPTORS, DeviceCounts, LaneQueues, Request,
    Response, Resume, SharedDriver,
};
use fastlane::agent::seqpacket::{self, Received};
use fastlane::kernel::Interface;
use fastlane::kernel::peer::Peer;
use fastlane::kernel::reentry::Reentry;
use fastlane_af_xdp::{self as af_xdp, OpenRequest};
use fastlane_core::PortId;

mod kernel_path;

use crate::answer::Answer;
use crate::config::Pool;
use crate::device::{AttachedDevice, ClientDevice, WantedDevice, allowed};
use crate::elsewhere;
use crate::owner::Owner;
use crate::pool_memory::{FileId, PoolMemory};
use crate::registry::Holder;
use crate::shared::Shared;
use crate::taps::ClientTaps;
use crate::token::{is_token, new_token};
use crate::vfio::{self, ClientGroup};

/// Time within which a client must take a response.
const PATIENCE: Duration = Duration::from_secs(5);
/// Number of refusals of a client that are logged as warnings. A hostile one causes any number.
const MAX_WARNINGS: usize = 10;
/// Maximum number of devices of a client. Each takes descriptors of the agent.
const MAX_DEVICES: usize = 16;

/// Client with everything that it has. Dropping it detaches its programs.
#[derive(Debug)]
pub(crate) struct Client {
    shared: Arc<Shared>,
    peer: Peer,
    owner: Owner,
    /// Pools that the client may use.
    pools: Vec<Arc<Pool>>,
    devices: BTreeMap<String, ClientDevice>,
    /// Re-entries by their numbers, each with the index of its interface. Its TAP ends with the
    /// client's queues.
    reentries: BTreeMap<u32, (u32, Reentry)>,
    taps: ClientTaps,
    /// IOMMU groups by their numbers.
    groups: BTreeMap<u32, ClientGroup>,
    /// Memory that is or was a UMEM, with its length. It is pinned as long as a socket has it.
    memory: BTreeMap<FileId, u64>,
}

impl Client {
    pub(crate) fn new(
        shared: Arc<Shared>,
        peer: Peer,
        owner: Owner,
        pools: Vec<Arc<Pool>>,
    ) -> Self {
        let (devices, memory) = (BTreeMap::new(), BTreeMap::new());
        let (reentries, taps, groups) = (BTreeMap::new(), ClientTaps::default(), BTreeMap::new());
        Self { shared, peer, owner, pools, devices, reentries, taps, groups, memory }
    }

    /// Serves the client until it closes the connection or violates the protocol.
    pub(crate) fn serve(mut self, socket: &OwnedFd) {
        let who = self.to_string();
        tracing::debug!("{who} has connected");
        let mut refusals = 0;
        let reason = loop {
            let Received { bytes, descriptors } = match seqpacket::receive(socket, None) {
                Ok(Some(received)) => received,
                Ok(None) => break None,
                Err(error) => break Some(error.to_string()),
            };
            let (number, request) = match records::decode::<Request>(&bytes) {
                Ok(decoded) => decoded,
                Err(reason) => break Some(reason),
            };
            drop(bytes);
            let answer = self.handle(request, descriptors, socket);
            let (response, sockets) = answer.unwrap_or_else(|reason| {
                refusals += 1;
                match refusals <= MAX_WARNINGS {
                    true => tracing::warn!("{who}: {reason}"),
                    false => tracing::debug!("{who}: {reason}"),
                }
                (Response::Refused(reason), vec![])
            });
            let sockets: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
            let Some(record) = records::encode(number, &response) else {
                break Some("the response is too long".to_owned());
            };
            if let Err(error) = seqpacket::send(socket, &record, &sockets, PATIENCE) {
                break Some(format!("the response is not taken: {error}"));
            }
        };
        match reason {
            None => tracing::debug!("{who} has gone"),
            Some(reason) => {
                tracing::warn!("{who} is disconnected: {reason}");
                refuse(socket, &reason);
            }
        }
    }

    fn handle(
        &mut self,
        request: Request,
        mut descriptors: Vec<OwnedFd>,
        connection: &OwnedFd,
    ) -> Answer {
        let (least, most) = match request {
            Request::BindLane(_) | Request::Claim { .. } | Request::Redirect { .. } => (1, 1),
            Request::Tap(_) => (0, 2),
            _ => (0, 0),
        };
        if !(least..=most).contains(&descriptors.len()) {
            return Err(format!("{} descriptors came instead of {most}", descriptors.len()));
        }
        let failed = |error: af_xdp::Error| error.to_string();
        match request {
            Request::Rights => return elsewhere::rights(&self.pools, connection),
            Request::Interface { name, index } => {
                let has = |index| {
                    let mut devices = self.devices.values();
                    devices.any(|it| it.interface.index == index)
                };
                return elsewhere::interface(&self.pools, &name, index, has);
            }
            Request::Attach(attach) => return self.attach(&attach),
            Request::Resume(resume) => self.resume(&resume)?,
            Request::BindLane(lane) => {
                return self.bind_lane(&lane, descriptors.pop().ok_or("no descriptor")?);
            }
            Request::Claim { device, queue } => {
                let socket = descriptors.pop().ok_or("no descriptor")?;
                let device = self.device(&device)?;
                check_queue(device, queue)?;
                device.xdp()?.claim_for(queue, socket.as_fd()).map_err(failed)?;
            }
            Request::ReplaceRules { device, steer } => {
                let device = self.device(&device)?;
                let rules = allowed(&device.pool, &steer)?;
                device.replace_rules(&rules)?;
            }
            Request::Release { device } => {
                self.device(&device)?.release()?;
            }
            Request::SetMaxLength { device, length } => {
                self.device(&device)?.xdp()?.set_max_length(length).map_err(failed)?;
            }
            Request::Counts { device } => {
                let counts = self.device(&device)?.counts()?;
                let af_xdp::Counts { claimed, passed, uncovered, too_long, reentered } = counts;
                let counts = [claimed, passed, uncovered, too_long, reentered];
                let changes = self.shared.changes.count();
                return Ok((Response::Counts(DeviceCounts { counts, changes }), vec![]));
            }
            Request::Tap(_)
            | Request::SetTapDown { .. }
            | Request::Follow { .. }
            | Request::Reenter { .. }
            | Request::Redirect { .. } => {
                return self.handle_kernel_path(request, &descriptors, connection);
            }
            Request::Detach { device } => {
                self.device(&device)?;
                self.devices.remove(&device);
            }
            Request::Vfio { address } => self.open_group(&address)?,
        }
        Ok((Response::Done, vec![]))
    }

    fn device(&mut self, token: &str) -> Result<&mut ClientDevice, String> {
        self.devices.get_mut(token).ok_or_else(|| "there is no such device".to_owned())
    }

    /// Returns the present properties of the interface of a device.
    fn interface(&mut self, token: &str) -> Result<Interface, String> {
        let index = self.device(token)?.interface.index;
        let now = Interface::with_index(index).map_err(|error| error.to_string())?;
        now.ok_or_else(|| "the interface was removed".to_owned())
    }

    fn attach(&mut self, attach: &Attach) -> Answer {
        if self.devices.len() >= MAX_DEVICES {
            return Err(format!("a client has at most {MAX_DEVICES} devices"));
        }
        let wanted = WantedDevice::new(&self.pools, attach)?;
        let is_packet = matches!(attach.driver, SharedDriver::AfPacket(_));
        let sockets = usize::from(is_packet)..=if is_packet { DESCRIPTORS } else { 0 };
        if !sockets.contains(&(attach.sockets as usize)) {
            return Err(format!("a device of AF_PACKET has 1 to {DESCRIPTORS} sockets"));
        }
        let rings = wanted.ring_memory(attach)?;
        self.check_memory(wanted.pool(), self.memory.values().sum(), rings)?;
        let holder = Holder { owner: self.owner.clone(), process: self.peer.process };
        let lease = self.shared.registry.take(wanted.interface(), holder);
        let lease = lease.map_err(|Holder { process, .. }| {
            let name = attach.driver.interface();
            match process {
                0 => format!("`{name}` is reserved for a client of the agent before this one"),
                _ => format!("process {process} has `{name}`; end it first"),
            }
        })?;
        let token = new_token()?;
        let pins = self.owner.directory(&self.shared.pins, &token);
        let AttachedDevice { description, mut device, sockets } =
            wanted.attach(attach, lease, &pins)?;
        tracing::info!("{self} has `{}`", attach.driver.interface());
        let (words, queues) = (description.to_words(), device.queues);
        let notes = device.xdp().map(af_xdp::Device::take_notes).unwrap_or_default();
        self.devices.insert(token.clone(), device);
        Ok((Response::Attached(Attached { device: token, words, queues, notes }), sockets))
    }

    /// Gives the client the IOMMU group of a PCI device.
    fn open_group(&mut self, address: &str) -> Result<(), String> {
        let (device, group) = vfio::check(&self.pools, address)?;
        if !self.groups.contains_key(&group) {
            let holder = Holder { owner: self.owner.clone(), process: self.peer.process };
            let user = self.peer.user;
            let given = ClientGroup::give(&self.shared, &device, group, holder, user)?;
            tracing::info!("{self} has PCI device `{address}`, IOMMU group {group}");
            self.groups.insert(group, given);
        }
        Ok(())
    }

    fn resume(&mut self, resume: &Resume) -> Result<(), String> {
        let orphan = is_token(&resume.device)
            .then(|| self.shared.orphans.take(&self.owner, &resume.device))
            .flatten();
        let orphan = orphan.ok_or("no device waits for its client under this token")?;
        let device = WantedDevice::new(&self.pools, &resume.attach)?.resume(resume, orphan)?;
        tracing::info!("{self} has `{}` again", resume.attach.driver.interface());
        self.devices.insert(resume.device.clone(), device);
        Ok(())
    }

    /// Binds the sockets of a lane over the client's memory.
    fn bind_lane(&mut self, lane: &BindLane, memory: OwnedFd) -> Answer {
        let memory = PoolMemory::check(memory, self.peer.user)?;
        let first = lane.devices.first().ok_or("a lane has at least one queue")?;
        let pool = Arc::clone(&self.device(&first.device)?.pool);
        let others = self.memory.iter().filter(|(id, _)| **id != memory.id);
        self.check_memory(&pool, others.map(|(_, length)| length).sum(), memory.length)?;
        self.check_lane(lane)?;
        let (id, length) = (memory.id, memory.length);
        let layout = memory.map(lane.frame_size)?;
        let mut requests = Vec::new();
        for (token, device) in &mut self.devices {
            let mut mine = lane.devices.iter().enumerate();
            if let Some((index, part)) = mine.find(|(_, part)| part.device == *token) {
                let (device, port, queues) = (device.xdp()?, PortId(0), part.queues.clone());
                requests.push((index, OpenRequest { device, port, queues }));
            }
        }
        requests.sort_by_key(|(index, _)| *index);
        let mut requests: Vec<OpenRequest<'_>> = requests.into_iter().map(|(_, it)| it).collect();
        let bound = af_xdp::bind_lane(&layout, &mut requests).map_err(|error| error.to_string())?;
        self.memory.insert(id, length);
        for LaneQueues { device, queues } in &lane.devices {
            self.device(device)?.bound.extend(queues);
        }
        let parts = bound.into_iter().map(|af_xdp::BoundQueue { description, socket, notes }| {
            (BoundQueue { words: description.to_words(), notes }, socket)
        });
        let (queues, sockets) = parts.unzip();
        Ok((Response::Bound(queues), sockets))
    }

    /// Checks that a pool allows `more` bytes of memory besides `lanes` bytes of lanes and the
    /// rings of devices.
    fn check_memory(&self, pool: &Pool, lanes: u64, more: u64) -> Result<(), String> {
        let rings: u64 = self.devices.values().map(|device| device.ring_memory).sum();
        let (total, limit) = (lanes.saturating_add(rings).saturating_add(more), pool.memory);
        match total > limit {
            false => Ok(()),
            true => Err(format!(
                "the memory of its lanes and rings is {} MiB, and the pool allows {} MiB; use \
                 fewer `lanes.frames`, a smaller `ring`, or raise `memory-mib`",
                total >> 20,
                limit >> 20
            )),
        }
    }

    /// Checks that each device of a lane is named once and each queue is free.
    fn check_lane(&mut self, lane: &BindLane) -> Result<(), String> {
        let count: usize = lane.devices.iter().map(|part| part.queues.len()).sum();
        if count == 0 || count > DESCRIPTORS {
            return Err(format!("a lane has 1 to {DESCRIPTORS} queues, not {count}"));
        }
        for (index, LaneQueues { device: token, queues }) in lane.devices.iter().enumerate() {
            if lane.devices[..index].iter().any(|other| other.device == *token) {
                return Err("a device comes twice".to_owned());
            }
            let device = self.device(token)?;
            for (index, queue) in queues.iter().enumerate() {
                check_queue(device, *queue)?;
                if device.bound.contains(queue) || queues[..index].contains(queue) {
                    return Err(format!("queue {queue} is bound already"));
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Peer { process, user, .. } = self.peer;
        match &self.owner {
            Owner::User(_) => write!(formatter, "process {process} of user {user}"),
            grant @ Owner::Grant(_) => write!(formatter, "process {process} of {grant}"),
        }
    }
}

/// Checks that a client may have a queue.
fn check_queue(device: &ClientDevice, queue: u32) -> Result<(), String> {
    match queue < device.queues {
        true => Ok(()),
        false => Err(format!(
            "queue {queue} of `{}` is not in the pool, which has the first {}",
            device.interface.name, device.queues
        )),
    }
}

/// Tells a client why its connection ends. A client that does not listen is left alone.
pub(crate) fn refuse(socket: &OwnedFd, reason: &str) {
    if let Some(record) = records::encode(0, &Response::Refused(reason.to_owned())) {
        let _ = seqpacket::send(socket, &record, &[], Duration::ZERO);
    }
}
