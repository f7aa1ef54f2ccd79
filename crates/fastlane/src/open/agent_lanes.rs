//! AF_XDP queues of a lane whose sockets the agent binds.

use std::os::fd::AsFd;

use fastlane_af_xdp as af_xdp;
use fastlane_core::{Pool, PoolLayout, PortId};

use crate::agent::AgentClient;
use crate::agent::records::{BindLane, LaneQueues};

/// Opens the queues of a lane over its pool, and starts reception.
///
/// # Errors
/// The reason of the agent, or of the first queue that failed to open.
pub(super) fn open(
    agent: &AgentClient,
    lane: usize,
    pool: &mut Pool,
    requests: Vec<af_xdp::OpenRequest<'_>>,
) -> Result<Vec<af_xdp::OpenedQueue>, String> {
    let memory = pool.memory().as_fd().try_clone_to_owned();
    let memory = memory.map_err(|error| format!("duplicating a descriptor: {error}"))?;
    agent.set_memory(lane, memory);
    let (parts, notes) = bind(agent, lane, pool.frame_size(), requests)?;
    let opened = af_xdp::open_bound_lane(pool, parts);
    let mut opened = opened.map_err(|error| error.to_string())?;
    opened.iter_mut().take(1).for_each(|first| first.notes.extend(notes.clone()));
    Ok(opened)
}

/// Opens queues of a device again while the lane runs.
///
/// # Errors
/// The reason of the agent, or of the first queue that failed to open.
pub(super) fn reopen(
    agent: &AgentClient,
    lane: usize,
    pool: &PoolLayout,
    lane_queues: usize,
    request: af_xdp::OpenRequest<'_>,
) -> Result<Vec<af_xdp::OpenedQueue>, String> {
    let (parts, _) = bind(agent, lane, pool.frame_size(), vec![request])?;
    let take = |part| af_xdp::take_bound(pool, lane_queues, part);
    let opened: Result<Vec<_>, _> = parts.into_iter().map(take).collect();
    Ok(opened.map_err(|error| error.to_string())?.into_iter().flatten().collect())
}

/// Has the agent bind the sockets. Returns them by device, and the modes that were refused.
fn bind<'a>(
    agent: &AgentClient,
    lane: usize,
    frame_size: usize,
    requests: Vec<af_xdp::OpenRequest<'a>>,
) -> Result<(Vec<af_xdp::AdoptRequest<'a>>, Vec<String>), String> {
    let devices = requests.iter().map(|request| {
        let device = request.device.settings().index;
        let device = agent.token(device).ok_or("the agent does not know a device")?;
        Ok(LaneQueues { device, queues: request.queues.clone() })
    });
    let devices = devices.collect::<Result<_, String>>()?;
    let frame_size = u32::try_from(frame_size).unwrap_or(u32::MAX);
    let (bound, notes) = agent.bind_lane(lane, BindLane { frame_size, devices })?;
    let parts = requests.into_iter().zip(bound).map(|(request, queues)| {
        let (device, port): (&'a mut af_xdp::Device, PortId) = (request.device, request.port);
        af_xdp::AdoptRequest { device, port, queues }
    });
    Ok((parts.collect(), notes))
}
