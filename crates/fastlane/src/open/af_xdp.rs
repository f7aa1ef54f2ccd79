//! Ports over AF_XDP, on an interface that Linux keeps: steering programs first, then the sockets
//! of each lane.

use std::sync::Arc;

use fastlane_af_xdp as af_xdp;
use fastlane_core::Queue;
use fastlane_kernel::reentry::Method;
use fastlane_kernel::{Interface, XdpHolder};
use fastlane_steer::{ProgramError, Rules};

use super::reopened::{LaneMemory, Reopened, ReopenedDevice};
use super::{Devices, InheritedPorts, OpenContext, agent_lanes, kernel_path, preflight};
use crate::Error;
use crate::agent::records::{Attach, Attached, SharedDriver};
use crate::agent::{AgentClient, Interfaces, RemoteSteering};
use crate::config::plan::{Plan, PortPlan};
use crate::config::raw::{self, AfXdpMode};

/// Method of re-entry. In generic XDP mode a redirect would run the program again; mirred works in
/// all modes.
pub(super) const REENTRY: Method = Method::Mirred;

/// Attaches the steering program. [`open_sockets`] follows once all devices are attached.
pub(super) fn attach(
    context: &mut OpenContext<'_>,
    port: &PortPlan,
    xdp: &raw::AfXdp,
) -> Result<(), Error> {
    let interface = preflight::of_af_xdp(context.plan, port, xdp, &context.devices.interfaces)?;
    preflight::warn_if_down(port, &interface);
    advise_on_tags(context.plan.carries_vlans(port), port, &interface);
    let settings = xdp.device_settings(&interface);
    let agent = context.devices.agent.clone();
    let rules = context.plan.applied_rules(port).map_err(|error| Error::port(&port.name, error))?;
    let port = &PortPlan { rules: rules.clone(), ..port.clone() };
    let inherited = context.inherited.as_mut().filter(|inherited| inherited.has_sockets());
    let (device, queues) = match inherited {
        Some(inherited) => {
            let device = inherited.device(port, settings, interface.mtu, agent);
            let device = device.map_err(|reason| Error::port(&port.name, reason))?;
            (device, inherited.count_queues(usize::from(port.id.0)))
        }
        None => {
            let opened = open_device(context.plan, port, xdp, &interface, agent.as_ref())?;
            if opened.0.is_native() {
                preflight::warn_of_uncounted_loss(port, &interface);
            }
            opened
        }
    };
    kernel_path::open_shared(context, port, &interface, REENTRY, queues)?;
    context.devices.af_xdp.push((usize::from(port.id.0), device));
    context.xdp_queues.push(queues);
    context.shares(port, interface, rules);
    Ok(())
}

/// Logs what a user should know about the tags of VLANs, which are ports or not.
fn advise_on_tags(has_vlans: bool, port: &PortPlan, interface: &Interface) {
    let (port, name) = (&port.name, &interface.name);
    if has_vlans && interface.driver == "veth" {
        tracing::info!(
            "port `{port}`: {name} is one end of a veth pair; if Linux has VLANs at the other end, \
             it must send their tags in the frames: run `ethtool -K PEER txvlan off` there"
        );
    }
    if !has_vlans && preflight::removes_tags(interface) {
        tracing::warn!(
            "port `{port}`: {name} removes VLAN tags from frames, so AF_XDP does not see them; if \
             there are VLANs, run `ethtool -K {name} rxvlan off`"
        );
    }
}

/// Attaches the steering program to an interface, by the agent if there is one. Returns the device
/// and the number of its queues.
fn open_device(
    plan: &Plan,
    port: &PortPlan,
    xdp: &raw::AfXdp,
    interface: &Interface,
    agent: Option<&Arc<AgentClient>>,
) -> Result<(af_xdp::Device, u32), Error> {
    let (settings, queues) = (xdp.device_settings(interface), interface.receive_queues);
    let longest = af_xdp::longest_frame(plan.frame_size);
    let Some(agent) = agent else {
        let device = af_xdp::Device::open(settings, &port.rules, longest);
        let refused = |error| Error::port(&port.name, xdp.refusal(interface, &error));
        return Ok((device.map_err(refused)?, queues));
    };
    let refuse = |reason: String| Error::port(&port.name, reason);
    let attach = Attach {
        driver: SharedDriver::AfXdp(xdp.clone()),
        steer: port.rules.as_slice().iter().map(Into::into).collect(),
        max_length: u32::try_from(longest).unwrap_or(u32::MAX),
        sockets: 0,
    };
    let (attached, _) = agent.attach(attach).map_err(refuse)?;
    let Attached { device, words, queues: granted, notes } = attached;
    notes.iter().for_each(|note| tracing::info!("port `{}`: {note}", port.name));
    let description = af_xdp::DeviceDescription::from_words(&words);
    let description = description.ok_or_else(|| refuse("the agent's response is wrong".into()))?;
    if granted < queues {
        tracing::warn!(
            "port `{}`: the agent grants {granted} of {queues} queues of {name}; frames of the \
             others stay in Linux: add them to its pool, or run `ethtool -L {name} combined \
             {granted}`",
            port.name,
            name = interface.name
        );
    }
    let steering = Box::new(RemoteSteering::new(Arc::clone(agent), device));
    let device = af_xdp::Device::with_steering(settings, &description, interface.mtu, steering);
    Ok((device, granted.min(queues)))
}

impl raw::AfXdp {
    /// Returns the reason why the device cannot be opened on an interface of the calling thread's
    /// network namespace. If other XDP programs are attached to it, it names them.
    #[must_use]
    pub fn refusal(&self, interface: &Interface, error: &af_xdp::Error) -> String {
        let is_busy = matches!(error, af_xdp::Error::Program(ProgramError::InterfaceBusy { .. }));
        let holders =
            if is_busy { XdpHolder::all_on(&self.interface, interface.index) } else { vec![] };
        if holders.is_empty() {
            return error.to_string();
        }
        let holders: Vec<String> = holders.iter().map(ToString::to_string).collect();
        holders.join("; ")
    }

    /// Returns the settings of the device on an interface.
    #[must_use]
    pub fn device_settings(&self, interface: &Interface) -> af_xdp::Settings {
        af_xdp::Settings {
            interface: interface.name.clone(),
            index: interface.index,
            mode: match self.mode {
                AfXdpMode::Auto if preflight::is_aggregate(interface) => af_xdp::Mode::GenericCopy,
                AfXdpMode::Auto => af_xdp::Mode::Auto,
                AfXdpMode::ZeroCopy => af_xdp::Mode::ZeroCopy,
                AfXdpMode::NativeCopy => af_xdp::Mode::NativeCopy,
                AfXdpMode::GenericCopy => af_xdp::Mode::GenericCopy,
            },
            receive_ring: self.receive_ring,
            transmit_ring: self.transmit_ring,
            need_wakeup: self.need_wakeup,
            busy_poll: self
                .busy_poll
                .map(|poll| af_xdp::BusyPoll { microseconds: poll.time_us, budget: poll.budget }),
            virtual_device: interface.is_virtual,
            zero_copy_defect: preflight::zero_copy_defect(interface, self.busy_poll.is_some()),
        }
    }
}

/// Opens the port again, on an interface that has taken the place of a removed one or has other
/// queues. The device claims nothing for a queue before its lane has it.
pub(super) fn reopen(
    plan: &Plan,
    port: &PortPlan,
    xdp: &raw::AfXdp,
    rules: &Rules,
    memory: &LaneMemory<'_>,
) -> Result<Reopened, Error> {
    let interfaces = Interfaces::of(memory.agent.as_ref());
    let interface = preflight::of_af_xdp(plan, port, xdp, &interfaces)?;
    let port = &PortPlan { rules: rules.clone(), ..port.clone() };
    let (mut device, count) = open_device(plan, port, xdp, &interface, memory.agent.as_ref())?;
    let (mut queues, mut sockets, mut modes) = (Vec::new(), Vec::new(), String::new());
    for (lane, layout) in memory.layouts.iter().enumerate() {
        let mine = (0..count).filter(|queue| Plan::lane_of(port, *queue as usize) == lane);
        let mine: Vec<u32> = mine.collect();
        if mine.is_empty() {
            continue;
        }
        let total = memory.other_queues[lane] + mine.len();
        let request = af_xdp::OpenRequest { device: &mut device, port: port.id, queues: mine };
        let opened = match &memory.agent {
            Some(agent) => agent_lanes::reopen(agent, lane, layout, total, request),
            None => af_xdp::reopen(layout, total, request).map_err(|error| error.to_string()),
        };
        for opened in opened.map_err(|reason| Error::port(&port.name, reason))? {
            tracing::info!("port `{}`: queue {}: {}", port.name, opened.queue, opened.mode);
            add_mode(&mut modes, &opened);
            let socket = opened.handle.interrupt().map(|socket| socket.try_clone_to_owned());
            let socket = socket.transpose().map_err(|error| {
                let reason = format!("duplicating a socket: {error}; raise `ulimit -n`");
                Error::port(&port.name, reason)
            })?;
            sockets.extend(socket.map(|socket| (opened.queue, socket)));
            queues.push((lane, Box::new(opened.handle) as Box<dyn Queue>));
        }
    }
    let interface = Some(interface);
    let device = ReopenedDevice::AfXdp { device, rules: rules.clone(), sockets };
    Ok(Reopened { interface, mode: modes, queues, device })
}

/// Adds the mode of a queue to those of its port.
fn add_mode(modes: &mut String, queue: &af_xdp::OpenedQueue) {
    let bound = queue.mode.to_string();
    if !modes.contains(&bound) {
        modes.push_str(if modes.is_empty() { "" } else { " and " });
        modes.push_str(&bound);
    }
}

/// Opens or takes over the AF_XDP sockets, lane by lane.
pub(super) fn open_sockets(context: &mut OpenContext<'_>) -> Result<(), Error> {
    let mut inherited = context.inherited.take();
    let mut of_lanes = Vec::new();
    for lane in 0..context.lanes.len() {
        of_lanes.push(match inherited.as_mut().filter(|inherited| inherited.has_sockets()) {
            Some(inherited) => adopt_lane(context, lane, inherited)?,
            None => open_lane(context, lane)?,
        });
    }
    let may_hand_over = may_hand_over(context, &of_lanes);
    for (lane, opened) in of_lanes.into_iter().enumerate() {
        if may_hand_over && !opened.is_empty() {
            let pool = context.lanes[lane].pool.memory();
            context.handover.add_lane(lane, pool, &opened);
        }
        for queue in opened {
            let port = &context.plan.ports[usize::from(queue.port.0)];
            add_mode(&mut context.facts[usize::from(queue.port.0)].mode, &queue);
            queue.notes.iter().for_each(|note| tracing::info!("port `{}`: {note}", port.name));
            context.add(lane, port, Box::new(queue.handle));
        }
    }
    if may_hand_over {
        let Devices { af_xdp, agent, .. } = &context.devices;
        context.handover.add_devices(af_xdp, agent.as_deref());
    }
    context.inherited = inherited;
    Ok(())
}

/// Returns true if a successor can take over the queues of all lanes. It takes over all or none.
fn may_hand_over(context: &OpenContext<'_>, of_lanes: &[Vec<af_xdp::OpenedQueue>]) -> bool {
    // A pool with DPDK's memory cannot be handed over.
    if context.dpdk.is_some() {
        return false;
    }
    // While somebody has a duplicate of the socket, the driver keeps the queue: it receives for
    // nobody, and refuses the successor, which could not continue with it.
    let mut queues = of_lanes.iter().flatten();
    let zero_copy = queues.find(|queue| queue.mode == af_xdp::BoundMode::ZeroCopy);
    if let Some(queue) = zero_copy {
        tracing::info!(
            "port `{}`: its queues are in zero-copy, whose driver has frames that no ring names: a \
             successor opens all ports anew",
            context.plan.ports[usize::from(queue.port.0)].name
        );
    }
    zero_copy.is_none()
}

/// Opens the sockets of a lane. They share its pool.
///
/// # Errors
/// Returns the error of the first queue that failed to open; queues opened before it are closed.
fn open_lane(
    context: &mut OpenContext<'_>,
    lane: usize,
) -> Result<Vec<af_xdp::OpenedQueue>, Error> {
    let mut requests = Vec::new();
    for ((number, device), queues) in context.devices.af_xdp.iter_mut().zip(&context.xdp_queues) {
        let port = &context.plan.ports[*number];
        let mine = (0..*queues).filter(|queue| Plan::lane_of(port, *queue as usize) == lane);
        let queues: Vec<u32> = mine.collect();
        if !queues.is_empty() {
            requests.push(af_xdp::OpenRequest { device, port: port.id, queues });
        }
    }
    if requests.is_empty() {
        return Ok(vec![]);
    }
    let ports = requests.iter().map(|request| usize::from(request.port.0));
    let names: Vec<&str> = ports.map(|number| &*context.plan.ports[number].name).collect();
    let names = names.join("`, `");
    let pool = &mut context.lanes[lane].pool;
    match &context.devices.agent {
        Some(agent) => agent_lanes::open(agent, lane, pool, requests),
        None => af_xdp::open_lane(pool, &mut requests).map_err(|error| error.to_string()),
    }
    .map_err(|reason| Error::port(&names, reason))
}

/// Takes over the inherited AF_XDP queues of a lane, and its pool with them.
fn adopt_lane(
    context: &mut OpenContext<'_>,
    lane: usize,
    inherited: &mut InheritedPorts,
) -> Result<Vec<af_xdp::OpenedQueue>, Error> {
    let refuse = |reason: String| Error::Lane { lane, reason };
    let mut parts = Vec::new();
    for ((number, device), count) in context.devices.af_xdp.iter_mut().zip(&context.xdp_queues) {
        let port = &context.plan.ports[*number];
        let mine = (0..*count).filter(|queue| Plan::lane_of(port, *queue as usize) == lane);
        let queues = inherited.queues(lane, *number).map_err(refuse)?;
        if queues.len() != mine.count() {
            return Err(refuse(format!("the inherited queues of port `{}` are others", port.name)));
        }
        if !queues.is_empty() {
            parts.push(af_xdp::AdoptRequest { device, port: port.id, queues });
        }
    }
    if parts.is_empty() {
        return Ok(vec![]);
    }
    let memory = inherited.pool(lane).map_err(refuse)?;
    let (size, headroom) = (context.plan.frame_size, context.plan.headroom);
    let (pool, opened) = af_xdp::adopt_lane(memory, size, headroom, parts)
        .map_err(|error| refuse(error.to_string()))?;
    if pool.frames() != context.plan.frames {
        return Err(refuse("the inherited pool has another size".to_owned()));
    }
    context.lanes[lane].pool = pool;
    Ok(opened)
}
