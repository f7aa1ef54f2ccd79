//! A router with NAT for UDP flows, all of which are established: Linux, the kernel tier of flows,
//! or a lane on AF_XDP.

use std::time::Duration;

use fastlane::flow_tier::{InterfaceKind, KernelTier, TierHook, TierPort, XdpMode};
use fastlane::mirror::flows::{FlowTier, TierFlow};
use fastlane::table::EntryId;
use fastlane_kernel::Interface;

use crate::Result;
use crate::device::frame_generator::FlowGenerator;
use crate::device::router_lane::RouterLane;
use crate::device::router_links::{Direction, ROUTER_MAC, RouterLinks};
use crate::device::translated_flows::{living_status, translated_flows};
use crate::slices::{Contender, Slice};

const FORWARDED: &str = "
table ip filter {
    chain forward {
        type filter hook forward priority 0
        ct state established,related accept
    }
}
";
/// Masquerade behind the router's address on the server's link.
pub const MASQUERADE: &str = "
table ip nat {
    chain postrouting {
        type nat hook postrouting priority srcnat
        oifname \"OUTSIDE\" masquerade
    }
}
";

/// Work of a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Linux forwards.
    Forwarding,
    /// Linux forwards what its connection tracking knows.
    Tracking,
    /// Linux does so behind its own address.
    Masquerade,
    /// The kernel tier forwards behind its own address.
    KernelTier,
    /// A lane on AF_XDP forwards behind its own address.
    Lane,
}

impl Work {
    /// Returns the name for reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Forwarding => "Linux, forwarding",
            Self::Tracking => "Linux, + conntrack",
            Self::Masquerade => "Linux, + masquerade",
            Self::KernelTier => "kernel tier with NAT",
            Self::Lane => "lane on AF_XDP with NAT",
        }
    }

    fn rules(self) -> String {
        match self {
            Self::Forwarding | Self::KernelTier | Self::Lane => String::new(),
            Self::Tracking => FORWARDED.to_owned(),
            Self::Masquerade => FORWARDED.to_owned() + MASQUERADE,
        }
    }
}

/// A router between a generator and a sink.
pub struct NatRouter {
    links: RouterLinks,
    generator: FlowGenerator,
    lane: Option<RouterLane>,
    /// It forwards as long as this is open.
    _tier: Option<KernelTier>,
}

impl NatRouter {
    /// Creates a router for a number of flows, all of which have passed it once. The calling thread
    /// is in its network namespace afterwards.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses something: it takes root.
    pub fn new(work: Work, flows: u32) -> Result<Self> {
        let mut links = RouterLinks::new()?;
        links.add_rules(&work.rules())?;
        let tier = (work == Work::KernelTier).then(|| tier(&links, flows)).transpose()?;
        let is_lane = work == Work::Lane;
        let lane = is_lane.then(|| RouterLane::start(links.ends(), flows)).transpose()?;
        let sender = links.sender(Direction::ToServer)?;
        let generator = FlowGenerator::new(flows, sender, [links.server(), links.unused()])?;
        // Since they have programs.
        links.poll_by_threads()?;
        let mut router = Self { links, generator, lane, _tier: tier };
        router.set_length(64);
        router.generator.circulate(|generator| {
            while generator.passed()? < u64::from(flows) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        })?;
        Ok(router)
    }

    /// Sets the length of frames, with the frame check sequence that Linux does not show.
    pub fn set_length(&mut self, length: usize) {
        self.generator.set_length(length - 4);
    }

    fn cpu(&self) -> Result<u64> {
        Ok(self.links.cpu()? + self.lane.as_ref().map_or(Ok(0), RouterLane::cpu)?)
    }
}

impl Contender for NatRouter {
    fn run(&mut self, length: Duration) -> Result<Slice> {
        self.links.enter()?;
        let cpu = self.cpu()?;
        let packets = self.generator.circulate(|_| {
            std::thread::sleep(length);
            Ok(())
        })?;
        Ok(Slice { cpu: self.cpu()? - cpu, packets })
    }
}

/// Attaches a tier to the router's ends of links.
///
/// # Errors
/// Returns an error if the kernel refuses it.
pub fn attach(tier: &mut KernelTier, links: &RouterLinks) -> Result<()> {
    for interface in links.ends() {
        tier.attach(&TierPort {
            interface: interface.to_owned(),
            index: Interface::query(interface)?.index,
            mac: ROUTER_MAC,
            zone: 0,
            hook: Some(TierHook::Xdp(XdpMode::Native)),
            kind: InterfaceKind::Pair,
            forwards_back: false,
            takes_ipv6: true,
            is_closed: false,
            has_lanes: false,
        })?;
    }
    Ok(())
}

/// Loads the tier with flows whose source is translated to the router's address.
fn tier(links: &RouterLinks, flows: u32) -> Result<KernelTier> {
    let mut tier = KernelTier::load(flows as usize)?;
    attach(&mut tier, links)?;
    for ((key, record), entry) in translated_flows(flows).zip(0..) {
        tier.insert(&TierFlow { key, record, entry: EntryId(entry) })?;
    }
    tier.publish(&living_status())?;
    Ok(tier)
}
