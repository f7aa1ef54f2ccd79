//! The user plane with fixed routes that need no Linux, for counting instructions.

use std::net::IpAddr;

use fastlane::mirror::{IngressInterface, ReversePath};
use fastlane::mirror::{NextHop, RouteLookup};
use fastlane::{PortId, Turn};
use upf::datapath::Routes;

use crate::Result;
use crate::device::memory_lane::{MemoryLane, macswap};
use crate::loops::user_plane::frames::Template;
use crate::loops::user_plane::{
    BURST, Direction, Renewed, STATION, Sessions, Shape, all_forwarded,
};

/// Routes with a single next hop.
pub(crate) struct OneWay;

impl Routes for OneWay {
    fn ingress(&self, _: &Turn, _: PortId) -> Option<IngressInterface> {
        let reverse_path = ReversePath::Any;
        Some(IngressInterface {
            link: 0,
            mac: STATION,
            forwards4: true,
            forwards6: true,
            is_in_vrf: false,
            reverse_path,
        })
    }

    fn address(&self, _: &Turn, _: PortId, _: bool) -> Option<IpAddr> {
        None
    }

    fn next_hop(&self, _: &Turn, _: Option<u32>, _: IpAddr, _: u32) -> RouteLookup {
        let destination = [2, 0, 0, 0, 0, 2];
        let (port, source, mtu) = (PortId(0), STATION, 1500);
        let (link, route, is_divided) = (0, 0, false);
        RouteLookup::Forward(NextHop { port, source, destination, mtu, link, route, is_divided })
    }
}

/// Forwards `packets` packets of 1,000 sessions in one direction. With the direction `none` it
/// swaps their addresses instead, which also writes each frame.
///
/// # Errors
/// Returns an error if there is not enough memory or a packet is not forwarded.
pub fn forward(direction: &str, shape: Shape, packets: u64) -> Result<u64> {
    let sessions = Sessions::new(1000, shape)?;
    let direction = match direction {
        "uplink" => Some(Direction::Uplink),
        "downlink" => Some(Direction::Downlink),
        _ => None,
    };
    let frames = Template::new(&sessions, direction.unwrap_or(Direction::Uplink));
    if direction.is_none() {
        let mut lane = MemoryLane::new(Renewed::new(macswap, &frames), BURST, frames.length())?;
        return Ok(lane.turns(packets));
    }
    let causes = sessions.causes()?;
    let user_plane = Renewed::new(sessions.user_plane(OneWay)?, &frames);
    let moved = MemoryLane::new(user_plane, BURST, frames.length())?.turns(packets);
    all_forwarded(&causes)?;
    Ok(moved)
}
