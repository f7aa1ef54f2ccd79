//! What of open ports a successor can take over: AF_XDP sockets and steering programs, the memory
//! of the lanes' pools, and TAP devices.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use fastlane_af_xdp as af_xdp;
use fastlane_core::PortId;
use fastlane_kernel::tap::{self, Tap, TapQueue};
use fastlane_steer as steer;
use fastlane_table::SharedMemory;
use serde::{Deserialize, Serialize};

use super::Opening;
use crate::Error;
use crate::config::plan::{Plan, PortPlan};

/// The memory of a lane with AF_XDP queues.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct PoolFacts {
    lane: usize,
    descriptor: usize,
}

/// A device with its steering program.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct DeviceFacts {
    port: usize,
    words: [u32; af_xdp::DeviceDescription::WORDS],
    /// The first of four descriptors: link, rules, sockets, counts.
    descriptor: usize,
}

/// A queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct QueueFacts {
    lane: usize,
    port: usize,
    words: [u32; af_xdp::QueueDescription::WORDS],
    descriptor: usize,
}

/// A TAP device: a port, or what stands for one in Linux.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct TapFacts {
    port: usize,
    /// The first descriptor, and how many: one for each queue.
    descriptor: usize,
    queues: usize,
}

/// What there is; descriptors are places in a list.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct PortsKept {
    pools: Vec<PoolFacts>,
    devices: Vec<DeviceFacts>,
    queues: Vec<QueueFacts>,
    taps: Vec<TapFacts>,
}

impl PortsKept {
    /// What it is, for people.
    pub(crate) fn words(&self) -> &'static str {
        match (self.queues.is_empty(), self.taps.is_empty()) {
            (true, true) => "nothing",
            (true, false) => "TAP",
            (false, true) => "AF_XDP",
            (false, false) => "AF_XDP and TAP",
        }
    }
}

/// What a running application has to be kept of its ports.
#[derive(Debug, Default)]
pub(crate) struct Keeping {
    pub(crate) facts: PortsKept,
    pub(crate) descriptors: Vec<Arc<OwnedFd>>,
}

impl Keeping {
    /// Adds a duplicate; its place.
    fn add(&mut self, descriptor: BorrowedFd<'_>) -> std::io::Result<usize> {
        self.descriptors.push(Arc::new(descriptor.try_clone_to_owned()?));
        Ok(self.descriptors.len() - 1)
    }

    pub(super) fn add_pool(&mut self, lane: usize, memory: &SharedMemory) -> std::io::Result<()> {
        let descriptor = self.add(memory.as_fd())?;
        self.facts.pools.push(PoolFacts { lane, descriptor });
        Ok(())
    }

    pub(super) fn add_device(&mut self, port: usize, of: &af_xdp::Device) -> std::io::Result<()> {
        let Some((description, kept)) = of.handover() else { return Ok(()) };
        let descriptor = self.add(kept.link)?;
        self.add(kept.steering)?;
        self.add(kept.sockets)?;
        self.add(kept.counts)?;
        self.facts.devices.push(DeviceFacts { port, words: description.to_words(), descriptor });
        Ok(())
    }

    pub(super) fn add_queue(
        &mut self,
        lane: usize,
        port: PortId,
        queue: &af_xdp::XskQueue,
    ) -> std::io::Result<()> {
        let Some((description, socket)) = queue.handover() else { return Ok(()) };
        let descriptor = self.add(socket)?;
        let (port, words) = (usize::from(port.0), description.to_words());
        self.facts.queues.push(QueueFacts { lane, port, words, descriptor });
        Ok(())
    }

    fn add_tap(&mut self, port: usize, queues: &[TapQueue]) -> std::io::Result<()> {
        let first = self.descriptors.len();
        for queue in queues {
            let closed = || std::io::Error::from(std::io::ErrorKind::NotConnected);
            self.add(queue.kept().ok_or_else(closed)?)?;
        }
        self.facts.taps.push(TapFacts { port, descriptor: first, queues: queues.len() });
        Ok(())
    }
}

/// What was kept of the ports of an application before this one.
#[derive(Debug)]
pub(crate) struct Inherited {
    facts: PortsKept,
    descriptors: Vec<Option<OwnedFd>>,
}

impl Inherited {
    /// Of descriptors whose places the facts name; `None` when there is nothing.
    pub(crate) fn new(facts: PortsKept, descriptors: Vec<Option<OwnedFd>>) -> Option<Self> {
        let is_some = !facts.queues.is_empty() || !facts.taps.is_empty();
        is_some.then_some(Self { facts, descriptors })
    }

    /// What it is, for people.
    pub(crate) fn words(&self) -> &'static str {
        self.facts.words()
    }

    /// Whether the ports on AF_XDP are there.
    pub(super) fn has_sockets(&self) -> bool {
        !self.facts.queues.is_empty()
    }

    fn take(&mut self, place: usize) -> Result<OwnedFd, String> {
        let descriptor = self.descriptors.get_mut(place).and_then(Option::take);
        descriptor.ok_or_else(|| "a descriptor is missing".to_owned())
    }

    /// The device of a port, with the rules of the plan.
    pub(super) fn device(
        &mut self,
        port: &PortPlan,
        settings: af_xdp::Settings,
    ) -> Result<af_xdp::Device, String> {
        let number = usize::from(port.id.0);
        let facts = self.facts.devices.iter().find(|facts| facts.port == number);
        let facts = facts.ok_or("the steering program is missing")?.clone();
        let description = af_xdp::DeviceDescription::from_words(&facts.words);
        let description = description.ok_or("the device is described wrongly")?;
        let mut next = facts.descriptor..;
        let mut take = || self.take(next.next().unwrap_or(usize::MAX));
        let kept = steer::ProgramHandover {
            link: take()?,
            steering: take()?,
            sockets: take()?,
            counts: take()?,
        };
        let mut device = af_xdp::Device::adopt(settings, &description, kept)
            .map_err(|error| error.to_string())?;
        device.replace_rules(&port.rules).map_err(|error| error.to_string())?;
        Ok(device)
    }

    /// The sockets of a lane on a port.
    fn queues(
        &mut self,
        lane: usize,
        port: usize,
    ) -> Result<Vec<(af_xdp::QueueDescription, OwnedFd)>, String> {
        let mine = |facts: &&QueueFacts| facts.lane == lane && facts.port == port;
        let queues: Vec<QueueFacts> = self.facts.queues.iter().filter(mine).cloned().collect();
        let queue = |facts: QueueFacts| {
            let description = af_xdp::QueueDescription::from_words(&facts.words);
            let description = description.ok_or("a queue is described wrongly")?;
            Ok((description, self.take(facts.descriptor)?))
        };
        queues.into_iter().map(queue).collect()
    }

    /// The next TAP device of a port, with so many queues: a port that is one may have another that
    /// stands for it in Linux, and they are opened in the same order each time.
    pub(super) fn tap(&mut self, port: usize, queues: usize) -> Result<Tap, String> {
        let is_there = |place: usize| self.descriptors.get(place).is_some_and(Option::is_some);
        let next = |facts: &&TapFacts| facts.port == port && is_there(facts.descriptor);
        let facts = self.facts.taps.iter().find(next);
        let facts = facts.ok_or("its TAP device is missing")?.clone();
        if facts.queues != queues {
            return Err(format!("its TAP device has {} queues, not {queues}", facts.queues));
        }
        let places = (facts.descriptor..).take(queues);
        let files = places.map(|place| self.take(place)).collect::<Result<_, _>>()?;
        tap::adopt(files).map_err(|error| error.to_string())
    }

    fn pool(&mut self, lane: usize) -> Result<SharedMemory, String> {
        let facts = self.facts.pools.iter().find(|facts| facts.lane == lane);
        let place = facts.ok_or("the memory of a lane is missing")?.descriptor;
        SharedMemory::attach_writable(self.take(place)?).map_err(|error| error.to_string())
    }
}

impl Opening<'_> {
    /// Remembers the pool and the AF_XDP queues of a lane.
    pub(super) fn keep_pool(&mut self, lane: usize, opened: &[af_xdp::OpenedQueue]) {
        // Memory of DPDK's own is in the pool, too, and cannot be kept.
        if opened.is_empty() || self.dpdk.is_some() {
            return;
        }
        let mut added = self.keeping.add_pool(lane, self.lanes[lane].pool.memory());
        for queue in opened {
            added = added.and_then(|()| self.keeping.add_queue(lane, queue.port, &queue.handle));
        }
        self.check_keeping(added);
    }

    /// Remembers the devices with their steering programs.
    pub(super) fn keep_devices(&mut self) {
        if self.dpdk.is_some() {
            return; // as above: nobody has their sockets
        }
        let mut added = Ok(());
        for (port, device) in &self.devices.af_xdp {
            added = added.and_then(|()| self.keeping.add_device(*port, device));
        }
        self.check_keeping(added);
    }

    /// Remembers the TAP device of a port.
    pub(super) fn keep_tap(&mut self, port: usize, queues: &[TapQueue]) {
        let added = self.keeping.add_tap(port, queues);
        self.check_keeping(added);
    }

    fn check_keeping(&mut self, added: std::io::Result<()>) {
        if let Err(error) = added {
            tracing::warn!("a successor will open its ports anew: {error}; raise `ulimit -n`");
            self.keeping = Keeping::default();
        }
    }

    /// Takes over the AF_XDP queues of a lane, and its pool with them.
    pub(super) fn adopt_lane(
        &mut self,
        lane: usize,
        inherited: &mut Inherited,
    ) -> Result<Vec<af_xdp::OpenedQueue>, Error> {
        let refuse = |reason: String| Error::Lane { lane, reason };
        let mut parts = Vec::new();
        for ((number, device), count) in self.devices.af_xdp.iter_mut().zip(&self.xdp_queues) {
            let port = &self.plan.ports[*number];
            let mine = (0..*count).filter(|queue| Plan::lane_of(port, *queue as usize) == lane);
            let queues = inherited.queues(lane, *number).map_err(refuse)?;
            if queues.len() != mine.count() {
                return Err(refuse(format!("port `{}` has other queues", port.name)));
            }
            if !queues.is_empty() {
                parts.push(af_xdp::AdoptRequest { device, port: port.id, queues });
            }
        }
        if parts.is_empty() {
            return Ok(vec![]);
        }
        let memory = inherited.pool(lane).map_err(refuse)?;
        let (size, headroom) = (self.plan.frame_size, self.plan.headroom);
        let (pool, opened) = af_xdp::adopt_lane(memory, size, headroom, parts)
            .map_err(|error| refuse(error.to_string()))?;
        if pool.frames() != self.plan.frames {
            return Err(refuse("its pool has another size".to_owned()));
        }
        self.lanes[lane].pool = pool;
        Ok(opened)
    }
}
