//! A lane of the router with flows, in a thread, on AF_XDP ports.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use fastlane::Turn;
use fastlane::mirror::flows::{FLOW_WORDS, FlowKey, FlowRecord, FlowStatus};
use fastlane::mirror::{
    FallbackReason, IngressInterface, NextHop, ReturnRoute, ReversePath, RouteLookup,
};
use fastlane_af_xdp as af_xdp;
use fastlane_core::{Idle, Lane, LaneConfig, Pool, Port, PortId};
use fastlane_kernel::Interface;
use fastlane_steer::Rules;
use fastlane_table::counters::Counters;
use fastlane_table::{
    HashReader, HashWriter, Readers, RecordReader, RecordWriter, SharedMemory, Spec, State,
};
use router::counts::Counts;
use router::flows::LaneFlows;
use router::{FlowHash, Router, Routes};
use rustix::event::epoll;
use rustix::thread::{Pid, gettid};

use crate::Result;
use crate::device::cpu_time::pin;
use crate::device::router_links::{CPU, ROUTER_MAC};
use crate::device::translated_flows::{living_status, translated_flows};
use crate::rivals::ffi;

/// Number of slots in each ring.
const RING: u32 = 2048;
/// Number of frames in the pool.
const FRAMES: usize = 16_384;
/// Size of a frame in bytes.
const FRAME_SIZE: usize = 2048;

/// A lane between two interfaces. It ends when this is dropped.
pub struct RouterLane {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    id: Pid,
}

impl RouterLane {
    /// Starts a lane between two interfaces of the calling thread's network namespace, with flows
    /// whose source is translated.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses something.
    pub fn start(ends: [&str; 2], flows: u32) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (send, started) = mpsc::channel();
        let (ends, stopping) = (ends.map(str::to_owned), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            pin(CPU);
            let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
            match Parts::open(&ends, flows) {
                Ok(mut parts) => {
                    let _ = send.send(Ok(gettid()));
                    parts.lane.run(&stopping);
                }
                Err(error) => drop(send.send(Err(error))),
            }
        });
        let started = started.recv().unwrap_or_else(|_| Err("the lane panicked".into()));
        Ok(Self { stop, thread: Some(thread), id: started? })
    }

    /// Returns the CPU time of the lane in nanoseconds.
    ///
    /// # Errors
    /// Returns an error if the lane has ended.
    pub fn cpu(&self) -> Result<u64> {
        Ok(ffi::cpu_of_thread(self.id)?)
    }
}

impl Drop for RouterLane {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The lane, and the devices whose steering keeps frames coming; they are dropped after it.
struct Parts {
    lane: Lane<Router<TwoLinks>>,
    _devices: Vec<af_xdp::Device>,
}

impl Parts {
    fn open(ends: &[String; 2], flows: u32) -> Result<Self> {
        let memory = SharedMemory::create("bench-router", FRAMES * FRAME_SIZE)?;
        let mut pool = Pool::new(memory, FRAME_SIZE, 192)?;
        let mut devices = Vec::new();
        for end in ends {
            let interface = Interface::query(end)?;
            let settings = af_xdp::Settings {
                mode: af_xdp::Mode::NativeCopy,
                receive_ring: RING,
                transmit_ring: RING,
                virtual_device: true,
                ..af_xdp::Settings::new(&interface.name, interface.index)
            };
            // Without rules all frames are the lane's.
            let longest = af_xdp::longest_frame(FRAME_SIZE);
            devices.push(af_xdp::Device::open(settings, &Rules::default(), longest)?);
        }
        let mut requests: Vec<_> = devices
            .iter_mut()
            .zip(0..)
            .map(|(device, port)| af_xdp::OpenRequest {
                device,
                port: PortId(port),
                queues: vec![0],
            })
            .collect();
        let queues = af_xdp::open_lane(&mut pool, &mut requests)?;
        let counters = Counters::create(1, 2)?;
        let port = |(number, queue): (usize, af_xdp::OpenedQueue)| Port {
            queues: vec![Box::new(queue.handle)],
            kernel: None,
            filter: None,
            counters: counters.port(0, number),
        };
        let ports = queues.into_iter().enumerate().map(port).collect();
        let config = LaneConfig::new(pool, ports, counters.lane(0));
        let mut lane = Lane::new(router(flows)?, config);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for interrupt in lane.interrupts().ok_or("a port without interrupt")? {
            epoll::add(&epoll, interrupt, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        // The generator sends in batches: the lane sleeps between them.
        lane.wait_on(epoll, Idle::Interrupt);
        Ok(Self { lane, _devices: devices })
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.lane.close();
    }
}

/// Creates a router with a table of flows.
fn router(flows: u32) -> Result<Router<TwoLinks>> {
    let capacity = 2 * flows as usize;
    let table = Spec::hash::<FlowKey, FlowRecord>("flows", capacity).create()?;
    let readers = Arc::new(Readers::unknown());
    let mut writer = HashWriter::attach(&table, &readers)?;
    for (key, record) in translated_flows(flows) {
        writer.insert(&key, &record)?;
    }
    let status = Spec::record::<FlowStatus>("offload").create()?;
    RecordWriter::attach(&status, &readers)?.set(&living_status())?;
    let state = State::attach(&Spec::state::<FLOW_WORDS>("flows", capacity, 1).create()?)?;
    let causes = State::<2>::attach(&Spec::state::<2>("causes", router::CAUSES, 1).create()?)?;
    let (table, status) = (HashReader::attach(&table)?, RecordReader::attach(&status)?);
    let flows = LaneFlows::new(table, state.lane(0), status, vec![0; 2]);
    let counts = Counts::new(causes.lane(0), None);
    Ok(Router::new(TwoLinks, counts, FlowHash::random()).with_flows(flows))
}

/// Routes in one generation: the client's side is behind port 0, the server's behind port 1.
struct TwoLinks;

impl TwoLinks {
    fn is_clients(address: Ipv4Addr) -> bool {
        address.octets()[0] == 10
    }
}

impl Routes for TwoLinks {
    fn ingress(&self, _: &Turn, port: PortId) -> Option<IngressInterface> {
        Some(IngressInterface {
            link: u32::from(port.0),
            mac: ROUTER_MAC,
            forwards4: true,
            forwards6: true,
            is_in_vrf: false,
            reverse_path: ReversePath::Any,
        })
    }

    fn ways4(&self, _: &Turn, to: &[Ipv4Addr], _: &[u32], lookups: &mut [RouteLookup]) {
        for (lookup, to) in lookups.iter_mut().zip(to) {
            let port = PortId(u16::from(!Self::is_clients(*to)));
            let (source, destination) = (ROUTER_MAC, [2, 0, 0, 0, 0, 9]);
            let (mtu, link, route) = (1500, u32::from(port.0), 0);
            let is_divided = false;
            let hop = NextHop { port, source, destination, mtu, link, route, is_divided };
            *lookup = RouteLookup::Forward(hop);
        }
    }

    fn ways6(&self, _: &Turn, _: &[Ipv6Addr], _: &[u32], lookups: &mut [RouteLookup]) {
        lookups.fill(RouteLookup::Fallback(FallbackReason::NoRoute));
    }

    fn returns4(&self, _: &Turn, from: &[Ipv4Addr], _: &[u32], returns: &mut [ReturnRoute]) {
        for (back, from) in returns.iter_mut().zip(from) {
            let link = u32::from(!Self::is_clients(*from));
            *back = ReturnRoute { link: Some(link), reason: None, is_divided: false };
        }
    }

    fn returns6(&self, _: &Turn, _: &[Ipv6Addr], _: &[u32], returns: &mut [ReturnRoute]) {
        returns.fill(ReturnRoute::UNKNOWN);
    }

    fn generation(&self) -> Option<u64> {
        Some(2)
    }

    fn is_own(&self, _: &Turn, _: IpAddr) -> bool {
        false
    }
}
