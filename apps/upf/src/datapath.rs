//! The user plane application that runs on each lane.
//!
//! A burst passes through stages, so that memory which a stage needs is prefetched by an earlier
//! one: `parse` parses frames (`outer_header`), `lookup` looks up sessions and prefetches
//! their rules and state, `apply` applies the rules (`classify`), `forward` encapsulates
//! (`encap`, `ip_header`), `egress` routes packets to the data network, and `deferred` does
//! the rare work that was deferred (`deferred_queue`). `charge` accounts for a packet once
//! nothing can prevent it from leaving. `gtpu_control` handles GTP-U messages without user data,
//! `http_redirect` answers redirected HTTP clients, `control_tunnels` exchanges packets with
//! control plane functions by the slow path, and `slow_path` exchanges messages with it.
//!
//! `Datapath` composes these parts. Calls go only down: the datapath calls the parts, those call
//! the `Forwarder`, and it calls routes, buffer, queue and tables.

mod apply;
mod charge;
pub mod classify;
mod control_tunnels;
mod deferred;
mod deferred_queue;
mod dl_buffer;
mod egress;
mod encap;
mod forward;
mod gtpu_control;
mod gtpu_message;
mod http_redirect;
mod icmp;
mod inner_packet;
mod ip_fragment;
mod ip_header;
mod lane_tables;
mod lookup;
mod nat;
mod nat_arrivals;
mod nat_departures;
mod network_map;
mod next_hop;
mod outcome;
mod outer_header;
mod parse;
mod port_map;
mod rate_limiter;
mod reassembly;
mod routes;
mod slow_path;
mod tunnel_fields;

use fastlane::mirror::Mirror;
use fastlane::{App, Error, LaneInfo, Packet, PortId, Turn};

use self::control_tunnels::ControlTunnels;
use self::deferred_queue::DeferredQueue;
use self::dl_buffer::DlBuffer;
use self::forward::Forwarder;
use self::gtpu_control::GtpuControl;
use self::http_redirect::HttpRedirector;
use self::icmp::IcmpLimiter;
use self::ip_fragment::FragmentTable;
use self::lane_tables::{BurstContext, DestinationAddress, TurnContext};
use self::lookup::Batch;
use self::nat::NatInterfaces;
use self::network_map::{MapUpdates, NetworkMap};
use self::next_hop::NextHopCache;
use self::outcome::ForwardedCounters;
use self::outer_header::FrameKind;
use self::reassembly::Reassembler;
use self::routes::BATCH;
use self::slow_path::SlowPath;
use crate::config::Settings;
use crate::config::running::{ConfigurationRecord, RunningConfig};
use crate::rules::layout::{TeidLayout, table};

#[cfg(feature = "control-plane")]
pub(crate) use gtpu_message::GtpuMessage;
pub use lane_tables::{DROP_REASON_WORDS, LaneTables};
pub use routes::Routes;

/// User plane application of one lane.
pub struct Upf<R = Mirror> {
    tables: LaneTables,
    datapath: Datapath<R>,
    batch: Box<Batch>,
    /// Reloads of the configuration, in an application.
    updates: Option<MapUpdates>,
}

/// State of the datapath besides the tables.
struct Datapath<R> {
    forwarder: Forwarder<R>,
    teid_layout: TeidLayout,
    fragments: FragmentTable,
    reassembler: Reassembler,
    gtpu: GtpuControl,
    icmp: IcmpLimiter,
    http: HttpRedirector,
    control: ControlTunnels,
    slow_path: SlowPath,
    /// Second queue, which takes work that is deferred while the first one runs.
    spare: DeferredQueue,
}

/// Creates the user plane of a lane from its configuration: the one in the table `configuration`,
/// with which a former process worked, or that of the file.
///
/// # Errors
/// If the settings are invalid, name an unknown port, or a table or the mirror is missing.
pub fn upf(lane: &LaneInfo<'_>) -> Result<Upf, Error> {
    let record = lane.record::<ConfigurationRecord>(table::CONFIGURATION)?;
    let stored = record.copy().and_then(|record| RunningConfig::read(&record).ok());
    let (settings, generation) = match stored {
        Some(stored) => (stored.settings, stored.generation),
        None => (lane.settings()?, 0),
    };
    let ports: Vec<String> = lane.port_names().map(str::to_owned).collect();
    let (tables, routes) = (LaneTables::of(lane)?, lane.mirror()?);
    let port = |name: &str| lane.require_port(name);
    let mut upf = Upf::new(&settings, ports.len(), tables, routes, port)?;
    upf.tables.publish_generation(generation);
    let updates = MapUpdates::start(record, ports, generation);
    let failed = |error| Error::Run(format!("cannot start the thread `configuration`: {error}"));
    upf.updates = Some(updates.map_err(failed)?);
    Ok(upf)
}

impl<R: Routes> Upf<R> {
    /// Creates the user plane of a lane with `ports` ports; `port` finds a port by name.
    ///
    /// # Errors
    /// Errors of `port`, and invalid settings.
    pub fn new(
        settings: &Settings,
        ports: usize,
        tables: LaneTables,
        routes: R,
        port: impl Fn(&str) -> Result<PortId, Error>,
    ) -> Result<Self, Error> {
        let NetworkMap { ports, pools, instances, only_instance } =
            NetworkMap::new(settings, ports, port)?;
        let (gtp, sessions) = (&settings.gtp, settings.session_room() as usize);
        let teid_layout = TeidLayout::of(sessions);
        let forwarder = Forwarder {
            routes,
            ports,
            pools,
            next_hops: NextHopCache::new(),
            only_instance,
            instances,
            buffer: DlBuffer::new(sessions, settings.limits.held_packets_per_lane as usize),
            queue: DeferredQueue::new(),
            nat: NatInterfaces::new(settings),
            counters: ForwardedCounters::default(),
        };
        let datapath = Datapath {
            forwarder,
            teid_layout,
            fragments: FragmentTable::new(),
            reassembler: Reassembler::new(settings.limits.reassemblies_per_lane, gtp.reassembly_ms),
            gtpu: GtpuControl::new(gtp, teid_layout),
            icmp: IcmpLimiter::new(gtp.icmp_per_s),
            http: HttpRedirector::new(),
            control: ControlTunnels::new(),
            slow_path: SlowPath::new(),
            spare: DeferredQueue::new(),
        };
        tables.count_lost();
        Ok(Self { tables, datapath, batch: Box::new(Batch::new()), updates: None })
    }

    /// Processes packets that arrived on one port.
    fn batch(&mut self, packets: &mut [Packet], turn: &mut Turn) {
        let Self { tables, datapath, batch, .. } = self;
        batch.clear();
        datapath.parse(tables, batch, packets, turn);
        if batch.count > 0 {
            let burst = BurstContext { tables, turn, now: turn.now() };
            let mut found = batch.find(tables, turn);
            datapath.apply_rules(batch, &mut found, packets, burst);
            datapath.forwarder.route_all(batch, &found, packets, burst);
            if !datapath.forwarder.queue.is_empty() {
                datapath.run_deferred(tables, batch, packets, turn);
            }
        }
        datapath.forwarder.counters.publish(tables);
    }

    /// Returns the shard of a packet: that of its session, or of the outer packet whose fragment it
    /// is. `None` if any lane may count or answer it.
    fn shard_of(&self, packet: &Packet, turn: &Turn) -> Option<u8> {
        let role = self.datapath.forwarder.ports.of(packet.port())?;
        let frame = packet.bytes();
        let session = match outer_header::read(frame, role, None) {
            FrameKind::Data(tunnel) | FrameKind::Control(tunnel) => {
                let found = self.tables.by_tunnel(turn, self.datapath.teid_layout, tunnel.teid);
                found.map(|(session, _)| session)
            }
            FrameKind::Ip { is_v6 } => {
                let instance = role.instance_of(frame);
                let forwarder = &self.datapath.forwarder;
                if nat_arrivals::is_for_nat(forwarder, frame, role, is_v6) {
                    return nat_arrivals::shard_of(forwarder, frame, instance, &self.tables, turn);
                }
                let to = DestinationAddress::of(frame, is_v6)?;
                self.tables.owner(turn, instance, to)
            }
            FrameKind::Fragment => return Some(reassembly::shard(frame)),
            FrameKind::Linux | FrameKind::Drop(_) => None,
        };
        session.map(|session| session.0 as u8)
    }
}

impl<R: Routes> App for Upf<R> {
    fn process(&mut self, packets: &mut [Packet], turn: &mut Turn) {
        self.datapath.forwarder.buffer.begin_burst(turn.burst());
        // Packets from another lane may have arrived on several ports.
        for packets in packets.chunk_by_mut(|one, other| one.port() == other.port()) {
            for packets in packets.chunks_mut(BATCH) {
                self.batch(packets, turn);
            }
        }
        self.datapath.forwarder.buffer.publish(&self.tables, turn);
    }

    fn shard(&mut self, packet: &Packet, turn: &Turn) -> u8 {
        self.shard_of(packet, turn).unwrap_or(0)
    }

    fn turn(&mut self, turn: &mut Turn) {
        let Self { tables, datapath, updates, .. } = self;
        let Datapath { forwarder, reassembler, control, slow_path, .. } = datapath;
        let context = &mut TurnContext { tables, turn };
        if let Some(generation) = slow_path.receive(forwarder, control, context)
            && let Some(updates) = updates
        {
            updates.announce(generation);
        }
        let exchange = |map: &mut NetworkMap| forwarder.exchange(map);
        if let Some(generation) = updates.as_ref().and_then(|updates| updates.take(exchange)) {
            context.tables.publish_generation(generation);
        }
        forwarder.buffer.poll(context);
        if !reassembler.is_empty() {
            context.turn.keep_awake(); // the time of outer packets may be over
            reassembler.expire(context.turn.now(), context.tables);
        }
    }
}
