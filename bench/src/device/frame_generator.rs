//! Generators of frames: BPF programs that write each frame anew and send it by an interface.

use std::time::{Duration, Instant};

use aya::maps::{Array, MapData};
use aya::programs::{TestRunAttrs, TestRunOptions, Xdp, XdpMode};
use aya::{Ebpf, Pod, TestRun, include_bytes_aligned};

use crate::Result;
use crate::device::cpu_time::{other_core, pinned};
use crate::device::router_links::{BATCH, CPU, Direction};

/// Frames that are made before they are sent.
const BULK: u32 = 64;
/// Length of the headers of Ethernet, IPv4 and TCP.
const HEADERS: usize = 54;
/// Shortest frame, without the frame check sequence.
const SHORTEST: usize = 60;

/// Packets of a TCP connection, in order, by their direction: it is opened, carries a request and a
/// response, and is closed.
pub const CONNECTION: [Direction; 8] = [
    Direction::ToServer, // SYN
    Direction::ToClient,
    Direction::ToServer, // established
    Direction::ToServer, // the request
    Direction::ToClient, // the response
    Direction::ToServer, // FIN
    Direction::ToClient, // FIN
    Direction::ToServer,
];

/// Time in which the frames must have passed the router for the last time.
const PATIENCE: Duration = Duration::from_secs(5);

/// The programs of `bpf/generator.bpf.c`.
struct Programs(Ebpf);

impl Programs {
    /// Loads a program and attaches it to an interface that receives nothing: the kernel would
    /// patch its list of programs before and after each batch otherwise, and wait for all CPUs.
    fn load(name: &str, unused: &str) -> Result<Self> {
        let object = include_bytes_aligned!("../../bpf/generator.bpf.o");
        let mut programs = Self(Ebpf::load(object)?);
        programs.attach(name, unused)?;
        Ok(programs)
    }

    fn attach(&mut self, name: &str, interface: &str) -> Result<()> {
        let program: &mut Xdp = self.0.program_mut(name).ok_or("no program")?.try_into()?;
        program.load()?;
        program.attach(interface, XdpMode::Driver)?;
        Ok(())
    }

    fn set<T: Pod>(&mut self, map: &str, settings: T) -> Result<()> {
        let map = self.0.map_mut(map).ok_or("no settings")?;
        let mut map: Array<&mut MapData, T> = Array::try_from(map)?;
        Ok(map.set(0, settings, 0)?)
    }

    fn get<T: Pod>(&self, map: &str) -> Result<T> {
        let map: Array<&MapData, T> = Array::try_from(self.0.map(map).ok_or("no counts")?)?;
        Ok(map.get(&0, 0)?)
    }

    /// Makes and sends a batch of frames, each with the length of this one.
    fn send(&mut self, name: &str, frame: &[u8]) -> Result<()> {
        let program: &mut Xdp = self.0.program_mut(name).ok_or("no program")?.try_into()?;
        let mut options = TestRunOptions::new();
        options.data_in = Some(frame);
        options.repeat = BATCH;
        options.attrs = TestRunAttrs::new().xdp_live_frames(BULK);
        program.test_run(options)?;
        Ok(())
    }
}

/// Generator of UDP: one packet of each flow, then packets of random ones. It makes a batch of
/// frames; what leaves the router comes back as packets of other flows.
pub struct FlowGenerator {
    programs: Programs,
    flows: u32,
    /// Flow with which the next length begins, or their number.
    next: u32,
    interface: u32,
    /// Length of frames.
    length: usize,
}

impl FlowGenerator {
    /// Creates a generator that sends by an interface, with programs on the one where frames have
    /// left the router, and on one that receives nothing.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses a program.
    pub fn new(flows: u32, interface: u32, [sink, unused]: [&str; 2]) -> Result<Self> {
        let mut programs = Programs::load("generate", unused)?;
        programs.attach("circulate", sink)?;
        Ok(Self { programs, flows, next: 0, interface, length: 0 })
    }

    /// Sets the length of frames, without the frame check sequence.
    pub fn set_length(&mut self, length: usize) {
        self.length = length;
    }

    /// Returns the number of packets that have left the router.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses it.
    pub fn passed(&self) -> Result<u64> {
        let [all, _] = self.programs.get::<[u64; 2]>("passed")?;
        Ok(all)
    }

    /// Lets frames pass the router while `wait` runs, each once at least. The first time, each flow
    /// gets one. Returns the number of packets.
    ///
    /// # Errors
    /// Returns the error of `wait`, or an error if packets are missing.
    pub fn circulate(&mut self, wait: impl FnOnce(&Self) -> Result<()>) -> Result<u64> {
        let [all_before, last_before] = self.programs.get::<[u64; 2]>("passed")?;
        self.set(false)?;
        self.next = self.flows;
        self.programs.send("generate", &vec![0; self.length])?;
        pinned(other_core(CPU), || {
            wait(self)?;
            self.set(true)?;
            let end = Instant::now() + PATIENCE;
            loop {
                let [all, last] = self.programs.get::<[u64; 2]>("passed")?;
                let left = last - last_before;
                if left == u64::from(BATCH) {
                    return Ok(all - all_before);
                }
                if Instant::now() > end {
                    return Err(format!("{left} of {BATCH} frames have left the router").into());
                }
                std::thread::sleep(Duration::from_micros(50));
            }
        })
    }

    fn set(&mut self, ends: bool) -> Result<()> {
        let length = self.length as u32 - 14;
        let settings = [self.flows, self.next, self.interface, length, u32::from(ends), 0];
        self.programs.set("settings", settings)
    }
}

/// Generator of TCP connections from 10.A.B.C:4000 to 20.A.B.C:80, where A.B.C is the number of the
/// connection. The server's packets are those to a client behind 20.255.0.1.
pub struct ConnectionGenerator {
    programs: Programs,
    /// Bytes of the request, and of the response.
    payload: usize,
}

impl ConnectionGenerator {
    /// Creates a generator. Its program stays attached to an unused interface.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses the program.
    pub fn new(payload: usize, unused: &str) -> Result<Self> {
        Ok(Self { programs: Programs::load("connect", unused)?, payload })
    }

    /// Sends packet `step` of [`CONNECTION`] of a batch of connections, the first of which has the
    /// number `first`.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses it.
    pub fn send(&mut self, step: usize, first: u32, interface: u32) -> Result<()> {
        let payload = if matches!(step, 3 | 4) { self.payload } else { 0 };
        let frame = vec![0; (HEADERS + payload).max(SHORTEST)];
        self.programs.set("connections", [first, interface, step as u32, self.payload as u32])?;
        self.programs.send("connect", &frame)
    }
}
