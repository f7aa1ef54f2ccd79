//! Handover of ports: AF_XDP sockets with their steering programs, the memory of the lanes' pools,
//! and TAP devices.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use fastlane_af_xdp as af_xdp;
use fastlane_kernel::tap::{self, Tap, TapQueue};
use fastlane_steer as steer;
use fastlane_table::SharedMemory;
use serde::{Deserialize, Serialize};

use crate::agent::records::{Resume, Rights};
use crate::agent::{AgentClient, RemoteSteering};
use crate::config::plan::PortPlan;

/// Pool of a lane with AF_XDP queues.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct PoolFacts {
    lane: usize,
    descriptor: usize,
}

/// Device with its steering program.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct DeviceFacts {
    port: usize,
    words: [u32; af_xdp::DeviceDescription::WORDS],
    /// Index of the first of four descriptors: link, rules, sockets, counts.
    descriptor: usize,
}

/// Connection to the agent, with the devices that it has.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct AgentFacts {
    rights: Rights,
    devices: Vec<Resume>,
    descriptor: usize,
}

/// AF_XDP queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct QueueFacts {
    lane: usize,
    port: usize,
    words: [u32; af_xdp::QueueDescription::WORDS],
    descriptor: usize,
}

/// TAP device: a port, or the kernel peer of one.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct TapFacts {
    port: usize,
    /// Index of the first descriptor.
    descriptor: usize,
    /// Number of queues, with one descriptor each.
    queues: usize,
}

/// Ports of a handover. Descriptors are indices into a list.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct PortManifest {
    pools: Vec<PoolFacts>,
    devices: Vec<DeviceFacts>,
    agent: Option<AgentFacts>,
    queues: Vec<QueueFacts>,
    taps: Vec<TapFacts>,
}

impl PortManifest {
    /// Returns the names of the drivers, for log messages. `None` if there are no ports.
    fn drivers(&self) -> Option<&'static str> {
        match (self.queues.is_empty(), self.taps.is_empty()) {
            (true, true) => None,
            (true, false) => Some("TAP"),
            (false, true) => Some("AF_XDP"),
            (false, false) => Some("AF_XDP and TAP"),
        }
    }
}

/// Descriptors of open ports that a successor can take over.
#[derive(Debug, Default)]
pub(crate) struct PortHandover {
    pub(crate) manifest: PortManifest,
    pub(crate) descriptors: Vec<Arc<OwnedFd>>,
}

impl PortHandover {
    /// Adds a duplicate of a descriptor. Returns its index.
    fn add(&mut self, descriptor: BorrowedFd<'_>) -> std::io::Result<usize> {
        self.descriptors.push(Arc::new(descriptor.try_clone_to_owned()?));
        Ok(self.descriptors.len() - 1)
    }

    /// Adds the pool and the AF_XDP queues of a lane.
    pub(super) fn add_lane(
        &mut self,
        lane: usize,
        pool: &SharedMemory,
        queues: &[af_xdp::OpenedQueue],
    ) {
        let added = self.try_add_lane(lane, pool, queues);
        self.check(added);
    }

    fn try_add_lane(
        &mut self,
        lane: usize,
        pool: &SharedMemory,
        queues: &[af_xdp::OpenedQueue],
    ) -> std::io::Result<()> {
        let descriptor = self.add(pool.as_fd())?;
        self.manifest.pools.push(PoolFacts { lane, descriptor });
        for queue in queues {
            let Some((description, socket)) = queue.handle.handover() else { continue };
            let descriptor = self.add(socket)?;
            let (port, words) = (usize::from(queue.port.0), description.to_words());
            self.manifest.queues.push(QueueFacts { lane, port, words, descriptor });
        }
        Ok(())
    }

    /// Adds AF_XDP devices with their steering programs, or the connection to the agent that has
    /// them.
    pub(super) fn add_devices(
        &mut self,
        devices: &[(usize, af_xdp::Device)],
        agent: Option<&AgentClient>,
    ) {
        let connected = agent.and_then(|agent| Some((agent.rights(), agent.handover()?)));
        if let Some((rights, (connection, devices))) = connected {
            let rights = rights.clone();
            self.descriptors.push(Arc::new(connection));
            let descriptor = self.descriptors.len() - 1;
            self.manifest.agent = Some(AgentFacts { rights, devices, descriptor });
        }
        let added = devices.iter().try_for_each(|(port, device)| self.add_device(*port, device));
        self.check(added);
    }

    fn add_device(&mut self, port: usize, device: &af_xdp::Device) -> std::io::Result<()> {
        let Some((description, kept)) = device.handover() else { return Ok(()) };
        let descriptor = self.add(kept.link)?;
        self.add(kept.steering)?;
        self.add(kept.sockets)?;
        self.add(kept.counts)?;
        let words = description.to_words();
        self.manifest.devices.push(DeviceFacts { port, words, descriptor });
        Ok(())
    }

    /// Adds the TAP device of a port.
    pub(super) fn add_tap(&mut self, port: usize, queues: &[TapQueue]) {
        let added = self.try_add_tap(port, queues);
        self.check(added);
    }

    fn try_add_tap(&mut self, port: usize, queues: &[TapQueue]) -> std::io::Result<()> {
        let first = self.descriptors.len();
        for queue in queues {
            let closed = || std::io::Error::from(std::io::ErrorKind::NotConnected);
            self.add(queue.kept().ok_or_else(closed)?)?;
        }
        self.manifest.taps.push(TapFacts { port, descriptor: first, queues: queues.len() });
        Ok(())
    }

    /// Drops the whole handover if a descriptor could not be added: a part of it is useless.
    fn check(&mut self, added: std::io::Result<()>) {
        if let Err(error) = added {
            tracing::warn!(
                "the ports cannot be handed over and a successor will reopen them ({error}); raise \
                 `ulimit -n`"
            );
            *self = Self::default();
        }
    }
}

/// Ports inherited from the previous process.
#[derive(Debug)]
pub(crate) struct InheritedPorts {
    manifest: PortManifest,
    descriptors: Vec<Option<OwnedFd>>,
}

impl InheritedPorts {
    /// Creates them from descriptors in the order of the manifest. `None` if there are neither
    /// ports nor a connection to the agent, which has those on AF_PACKET.
    pub(crate) fn new(manifest: PortManifest, descriptors: Vec<Option<OwnedFd>>) -> Option<Self> {
        let is_some = manifest.drivers().is_some() || manifest.agent.is_some();
        is_some.then_some(Self { manifest, descriptors })
    }

    /// Returns the names of the drivers, for log messages. `None` if there are no ports.
    pub(crate) fn drivers(&self) -> Option<&'static str> {
        self.manifest.drivers()
    }

    /// Returns true if AF_XDP sockets were inherited.
    pub(super) fn has_sockets(&self) -> bool {
        !self.manifest.queues.is_empty()
    }

    fn take(&mut self, index: usize) -> Result<OwnedFd, String> {
        let descriptor = self.descriptors.get_mut(index).and_then(Option::take);
        descriptor.ok_or_else(|| "a descriptor is missing".to_owned())
    }

    /// Takes over the connection to the agent, if there is one.
    pub(super) fn agent(&mut self, path: &Path) -> Option<Arc<AgentClient>> {
        let AgentFacts { rights, devices, descriptor } = self.manifest.agent.clone()?;
        let connection = self.take(descriptor).ok()?;
        Some(Arc::new(AgentClient::adopt(path, connection, rights, devices)))
    }

    /// Returns the number of queues of a port.
    pub(super) fn count_queues(&self, port: usize) -> u32 {
        self.manifest.queues.iter().filter(|facts| facts.port == port).count() as u32
    }

    /// Takes over the device of a port, whose interface has this MTU in bytes, and replaces its
    /// rules by those of the plan.
    pub(super) fn device(
        &mut self,
        port: &PortPlan,
        settings: af_xdp::Settings,
        mtu: u32,
        agent: Option<Arc<AgentClient>>,
    ) -> Result<af_xdp::Device, String> {
        let mut device = match (&self.manifest.agent, agent) {
            (Some(facts), Some(agent)) => {
                let mut devices = facts.devices.iter();
                let mine = devices.find(|device| device.words[0] == settings.index);
                let mine = mine.ok_or("the agent has no device on its interface")?;
                let description = af_xdp::DeviceDescription::from_words(&mine.words);
                let description = description.ok_or("the description of the device is invalid")?;
                let steering = Box::new(RemoteSteering::new(agent, mine.device.clone()));
                af_xdp::Device::with_steering(settings, &description, mtu, steering)
            }
            _ => self.own_device(port, settings)?,
        };
        device.replace_rules(&port.rules).map_err(|error| error.to_string())?;
        Ok(device)
    }

    /// Takes over a device whose steering program this process controls.
    fn own_device(
        &mut self,
        port: &PortPlan,
        settings: af_xdp::Settings,
    ) -> Result<af_xdp::Device, String> {
        let number = usize::from(port.id.0);
        let facts = self.manifest.devices.iter().find(|facts| facts.port == number);
        let facts = facts.ok_or("the steering program is missing")?.clone();
        let description = af_xdp::DeviceDescription::from_words(&facts.words);
        let description = description.ok_or("the description of the device is invalid")?;
        let mut next = facts.descriptor..;
        let mut take = || self.take(next.next().unwrap_or(usize::MAX));
        let kept = steer::ProgramHandover {
            link: take()?,
            steering: take()?,
            sockets: take()?,
            counts: take()?,
        };
        af_xdp::Device::adopt(settings, &description, kept).map_err(|error| error.to_string())
    }

    /// Takes the sockets of a lane on a port.
    pub(super) fn queues(
        &mut self,
        lane: usize,
        port: usize,
    ) -> Result<Vec<(af_xdp::QueueDescription, OwnedFd)>, String> {
        let mine = |facts: &&QueueFacts| facts.lane == lane && facts.port == port;
        let queues: Vec<QueueFacts> = self.manifest.queues.iter().filter(mine).cloned().collect();
        let queue = |facts: QueueFacts| {
            let description = af_xdp::QueueDescription::from_words(&facts.words);
            let description = description.ok_or("the description of a queue is invalid")?;
            Ok((description, self.take(facts.descriptor)?))
        };
        queues.into_iter().map(queue).collect()
    }

    /// Takes over the next TAP device of a port. A TAP port may have another TAP as kernel peer;
    /// both are opened in the same order each time.
    pub(super) fn tap(&mut self, port: usize, queues: usize) -> Result<Tap, String> {
        let exists = |index: usize| self.descriptors.get(index).is_some_and(Option::is_some);
        let next = |facts: &&TapFacts| facts.port == port && exists(facts.descriptor);
        let facts = self.manifest.taps.iter().find(next);
        let facts = facts.ok_or("its TAP device is missing")?.clone();
        if facts.queues != queues {
            return Err(format!("its TAP device has {} queues, not {queues}", facts.queues));
        }
        let indices = (facts.descriptor..).take(queues);
        let files = indices.map(|index| self.take(index)).collect::<Result<_, _>>()?;
        tap::adopt(files).map_err(|error| error.to_string())
    }

    pub(super) fn pool(&mut self, lane: usize) -> Result<SharedMemory, String> {
        let facts = self.manifest.pools.iter().find(|facts| facts.lane == lane);
        let index = facts.ok_or("the memory of a lane is missing")?.descriptor;
        SharedMemory::attach_writable(self.take(index)?).map_err(|error| error.to_string())
    }
}
