//! Generators of frames: BPF programs that write each frame anew and send it by an interface.

use aya::maps::{Array, MapData};
use aya::programs::{TestRunAttrs, TestRunOptions, Xdp, XdpMode};
use aya::{Ebpf, Pod, TestRun, include_bytes_aligned};

use crate::Result;
use crate::device::router_links::{BATCH, Direction};

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

/// The programs of `bpf/generator.bpf.c`.
struct Programs(Ebpf);

impl Programs {
    /// Loads a program and attaches it to an interface that receives nothing: the kernel would
    /// patch its list of programs before and after each batch otherwise, and wait for all CPUs.
    fn load(name: &str, unused: &str) -> Result<Self> {
        let object = include_bytes_aligned!("../../bpf/generator.bpf.o");
        let mut programs = Ebpf::load(object)?;
        let program: &mut Xdp = programs.program_mut(name).ok_or("no program")?.try_into()?;
        program.load()?;
        program.attach(unused, XdpMode::Driver)?;
        Ok(Self(programs))
    }

    fn set<T: Pod>(&mut self, map: &str, settings: T) -> Result<()> {
        let map = self.0.map_mut(map).ok_or("no settings")?;
        let mut map: Array<&mut MapData, T> = Array::try_from(map)?;
        Ok(map.set(0, settings, 0)?)
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

/// Generator of UDP: one packet of each flow, then packets of random ones.
pub struct FlowGenerator {
    programs: Programs,
    flows: u32,
    /// Flow with which the next length begins, or their number.
    next: u32,
    interface: u32,
    frame: Vec<u8>,
}

impl FlowGenerator {
    /// Creates a generator that sends by an interface. Its program stays attached to an unused one.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses the program.
    pub fn new(flows: u32, interface: u32, unused: &str) -> Result<Self> {
        let programs = Programs::load("generate", unused)?;
        Ok(Self { programs, flows, next: 0, interface, frame: Vec::new() })
    }

    /// Sets the length of frames, without the frame check sequence. The first time, each flow gets
    /// one.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses it.
    pub fn set_length(&mut self, length: usize) -> Result<()> {
        self.frame = vec![0; length];
        let next = std::mem::replace(&mut self.next, self.flows);
        self.programs.set("settings", [self.flows, next, self.interface, length as u32 - 14])
    }

    /// Sends a batch.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses it.
    pub fn send(&mut self) -> Result<()> {
        self.programs.send("generate", &self.frame)
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
