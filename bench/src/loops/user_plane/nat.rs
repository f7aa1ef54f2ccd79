//! The user plane with NAT on N6: flows of users, their mappings, and the comparison with the user
//! plane without NAT.

use std::net::{Ipv4Addr, SocketAddrV4};

use fastlane_table::EntryId;
use upf::config::nat_plan::BUCKET;
use upf::rules::layout::nat_tables::{NAT_PORTS, PortSlot, Protocol};

use crate::Result;
use crate::device::memory_lane::MemoryLane;
use crate::loops::user_plane::counted_packets::OneWay;
use crate::loops::user_plane::frames::{Direction, Template};
use crate::loops::user_plane::sessions::{Flows, Sessions, Shape};
use crate::loops::user_plane::{BURST, Renewed, RouteMirror, all_forwarded, lane};
use crate::slices::{Contender, Effort, Pairs, pair};

impl Sessions {
    /// Publishes sessions whose users NAT translates, and makes the mappings of all their flows.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory or a packet is not forwarded.
    pub(crate) fn with_nat(flows: Flows) -> Result<Self> {
        let sessions = Self::new_with(flows.sessions, Shape::Simple, true)?;
        let causes = sessions.causes()?;
        let all = Template::of_each_flow(&sessions, flows);
        let app = Renewed::new(sessions.user_plane(OneWay)?, &all);
        MemoryLane::new(app, BURST, all.length())?.turns(all.count() as u64);
        all_forwarded(&causes)?;
        Ok(sessions)
    }

    /// Returns the external address and port of a flow; those of the user without NAT.
    pub(crate) fn external(&self, session: u32, port: u16) -> Result<Option<SocketAddrV4>> {
        let Some(user) = self.nat_user(session) else { return Ok(None) };
        let ports = self.nat_ports()?;
        let wanted = PortSlot::new(user.generation, Protocol::Udp, port, 0);
        for bucket in 0..user.buckets {
            let words = ports.read(EntryId(user.bucket + bucket));
            if let Some(index) = words.iter().position(|word| PortSlot(*word).is_of(wanted)) {
                let offset = (bucket * BUCKET) as u16 + index as u16;
                let address = Ipv4Addr::from(user.external);
                return Ok(Some(SocketAddrV4::new(address, user.first_port + offset)));
            }
        }
        Err(format!("session {session} has no mapping of port {port} in {NAT_PORTS}").into())
    }
}

/// Compares the CPU time per packet of the user plane with NAT in one direction with that of the
/// user plane without it.
///
/// # Errors
/// Returns an error if there is not enough memory or a packet is not forwarded.
pub fn compare_nat(
    ways: &RouteMirror,
    flows: Flows,
    direction: Direction,
    effort: Effort,
) -> Result<Pairs> {
    let plain = Sessions::new(flows.sessions, Shape::Simple)?;
    let translated = Sessions::with_nat(flows)?;
    let [theirs, ours] = [&plain, &translated].map(|it| Template::of_flows(it, direction, flows));
    let (theirs, ours) = (theirs?, ours?);
    let mut pairs = Pairs::default();
    for _ in 0..effort.pairs {
        let causes = [plain.causes()?, translated.causes()?];
        let with = Renewed::new(translated.user_plane(lane(ways)?)?, &ours);
        let mut with = MemoryLane::new(with, BURST, ours.length())?;
        let without = Renewed::new(plain.user_plane(lane(ways)?)?, &theirs);
        let mut without = MemoryLane::new(without, BURST, theirs.length())?;
        let warm_up = effort.slice / 5;
        with.run(warm_up)?;
        without.run(warm_up)?;
        pair(&mut pairs, effort.slice, &mut with, &mut without)?;
        causes.iter().try_for_each(all_forwarded)?;
    }
    Ok(pairs)
}

/// Forwards `packets` packets of 1,000 sessions in one direction with NAT on N6 or without, of
/// flows whose checksums have to be updated.
///
/// # Errors
/// Returns an error if there is not enough memory or a packet is not forwarded.
pub fn forward_flows(direction: &str, has_nat: bool, packets: u64) -> Result<u64> {
    let flows = Flows { sessions: 1000, each: 10 };
    let sessions = match has_nat {
        true => Sessions::with_nat(flows)?,
        false => Sessions::new(flows.sessions, Shape::Simple)?,
    };
    let is_uplink = direction == "uplink";
    let direction = if is_uplink { Direction::Uplink } else { Direction::Downlink };
    let frames = Template::of_flows(&sessions, direction, flows)?;
    let causes = sessions.causes()?;
    let user_plane = Renewed::new(sessions.user_plane(OneWay)?, &frames);
    let moved = MemoryLane::new(user_plane, BURST, frames.length())?.turns(packets);
    all_forwarded(&causes)?;
    Ok(moved)
}
