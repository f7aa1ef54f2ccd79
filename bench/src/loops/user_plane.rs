//! The cost of a User Plane Function on a memory port, compared with swapping addresses.
//!
//! Linux has the routes to the gNB and to the data network, in a separate namespace, and the user
//! plane looks them up in a mirror as the program `upf` does. Both contenders first overwrite each
//! frame, in the order of a list that selects sessions at random. A returning packet therefore
//! equals a new one.

pub mod counted_packets;
pub(crate) mod frames;
mod nat;
pub(crate) mod sessions;

use std::io::Write;
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;

use fastlane::mirror::{Family, IngressInterface, ReversePath, RouteLookup, TableId};
use fastlane::{PortId, Turn};
use fastlane_core::{App, Packet};
use fastlane_kernel::Interface;
use fastlane_mirror::{Follower, Mirror, MirrorSettings};
use fastlane_table::{EntryId, Readers, State};
use upf::datapath::{DROP_REASON_WORDS, Routes};
use upf::rules::layout::drop_reason::{DROP_REASONS, DropReason};

pub use frames::Direction;
use frames::Template;
pub use nat::{compare_nat, forward_flows};
pub use sessions::{Flows, Hit, Sessions, Shape};

use crate::Result;
use crate::device::memory_lane::{MemoryLane, macswap};
use crate::device::veth_pair::Veth;
use crate::slices::{Contender, Effort, Pairs, pair};

/// Maximum number of packets in a burst.
pub(crate) const BURST: usize = 32;
/// Destination Ethernet address of the packets.
pub(crate) const STATION: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Mirror of the Linux routes to the gNB and to the data network.
pub struct RouteMirror(Follower);

impl RouteMirror {
    /// Configures the routes in the network namespace of the calling thread and mirrors them.
    ///
    /// # Errors
    /// Returns an error if `ip` or the kernel refuses.
    pub fn new(veth: &Veth) -> Result<Self> {
        let name = &veth.name;
        ip(&format!(
            "address add 10.255.0.1/24 dev {name}\naddress add fd00::1/64 dev {name} nodad\n\
             neigh replace 10.255.0.2 lladdr 02:00:00:00:aa:02 dev {name} nud permanent\n\
             neigh replace 10.255.0.3 lladdr 02:00:00:00:aa:03 dev {name} nud permanent\n\
             neigh replace fd00::3 lladdr 02:00:00:00:aa:03 dev {name} nud permanent\n\
             route replace default via 10.255.0.2\n"
        ))?;
        let link = Interface::query(name)?.index;
        let readers = Arc::new(Readers::unknown());
        Ok(Self(Follower::open(MirrorSettings::new("bench"), &[(link, PortId(0))], &readers)?))
    }
}

pub(crate) fn ip(text: &str) -> Result<()> {
    let mut child = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().ok_or("no pipe")?;
    input.write_all(text.as_bytes())?;
    drop(input);
    match child.wait()? {
        status if status.success() => Ok(()),
        status => Err(format!("ip -batch: {status}").into()),
    }
}

/// Routes of the mirror, behind an interface with forwarding enabled.
pub(crate) struct MirrorRoutes(Mirror);

impl Routes for MirrorRoutes {
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

    fn next_hop(&self, turn: &Turn, table: Option<u32>, to: IpAddr, flow: u32) -> RouteLookup {
        let _ = table;
        match to {
            IpAddr::V4(to) => self.0.route4(turn, to, flow),
            IpAddr::V6(to) => self.0.route6(turn, to, flow),
        }
    }

    fn next_hops<A: Family + Into<IpAddr>>(
        &self,
        turn: &Turn,
        table: Option<u32>,
        to: &[A],
        flows: &[u32],
        answers: &mut [RouteLookup],
    ) {
        let _ = table;
        self.0.route_many(turn, TableId::default(), to, flows, answers);
    }
}

/// Application that overwrites each packet with a frame of the list before it is processed.
pub(crate) struct Renewed<'a, A> {
    app: A,
    frames: &'a Template,
    next: usize,
}

impl<'a, A> Renewed<'a, A> {
    pub(crate) fn new(app: A, frames: &'a Template) -> Self {
        Self { app, frames, next: 0 }
    }
}

impl<A: App> App for Renewed<'_, A> {
    fn process(&mut self, packets: &mut [Packet], turn: &mut Turn) {
        for packet in packets.iter_mut() {
            self.frames.write(packet, self.next);
            self.next = (self.next + 1) % self.frames.count();
        }
        self.app.process(packets, turn);
    }
}

/// Compares the CPU time per packet of the user plane in one direction with that of macswap on the
/// same frames.
///
/// # Errors
/// Returns an error if there is not enough memory or a packet is not forwarded.
pub fn compare(
    ways: &RouteMirror,
    sessions: &Sessions,
    direction: Direction,
    effort: Effort,
) -> Result<Pairs> {
    let frames = Template::new(sessions, direction);
    let mut pairs = Pairs::default();
    for _ in 0..effort.pairs {
        let causes = sessions.causes()?;
        let mut ours = MemoryLane::new(
            Renewed::new(sessions.user_plane(lane(ways)?)?, &frames),
            BURST,
            frames.length(),
        )?;
        let mut rival = MemoryLane::new(Renewed::new(macswap, &frames), BURST, frames.length())?;
        let warm_up = effort.slice / 5;
        ours.run(warm_up)?;
        rival.run(warm_up)?;
        pair(&mut pairs, effort.slice, &mut ours, &mut rival)?;
        all_forwarded(&causes)?;
    }
    Ok(pairs)
}

pub(crate) fn lane(ways: &RouteMirror) -> Result<MirrorRoutes> {
    Ok(MirrorRoutes(Mirror::attach(ways.0.memories())?))
}

pub(crate) fn all_forwarded(causes: &State<DROP_REASON_WORDS>) -> Result<()> {
    for (cause, packets) in counts(causes) {
        let is_forwarded =
            matches!(cause, DropReason::ForwardedUplink | DropReason::ForwardedDownlink);
        if !is_forwarded && cause != DropReason::NatMappingMade {
            return Err(format!("{packets} packets were not forwarded: {}", cause.name()).into());
        }
    }
    Ok(())
}

/// Returns the outcomes of packets with their nonzero packet counts.
pub(crate) fn counts(causes: &State<DROP_REASON_WORDS>) -> impl Iterator<Item = (DropReason, u64)> {
    let packets = |cause: &DropReason| (*cause, causes.read(EntryId(*cause as u32))[0]);
    DROP_REASONS.iter().map(packets).filter(|(_, packets)| *packets > 0)
}
