//! Two hosts joined by a veth pair, in network namespaces of the test's thread.
#![allow(dead_code, unreachable_pub, reason = "each test program uses its part")]

pub mod packet_socket;

use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use fastlane_core::{Pool, Statistics};
use fastlane_kernel::Interface;
use fastlane_table::SharedMemory;
use fastlane_testing::namespace::{self, Wire};
use rustix::thread::LinkNameSpaceType;

pub const DEVICE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// A network namespace; it ends with the last thread, socket or `Namespace` in it.
pub struct Namespace(File);

impl Namespace {
    /// Creates a namespace and enters it; `None` after a skip without the privilege.
    pub fn new() -> Option<Self> {
        let thread = std::thread::current();
        let test = format!("kernel/{}", thread.name().unwrap_or("test"));
        let made = namespace::private(&test);
        made.then(|| Self(File::open("/proc/thread-self/ns/net").expect("procfs")))
    }

    /// Moves the thread into the namespace.
    pub fn enter(&self) {
        let kind = Some(LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(self.0.as_fd(), kind).expect("root");
    }

    /// Returns a path that other processes can open.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

/// The host with the device under test and the host at the other end of the wire.
///
/// `d0` is 02:..:01 and 192.0.2.1/24, `p0` is 02:..:02 and 192.0.2.2/24; they know each other's
/// Ethernet address.
pub struct Hosts {
    pub device: Namespace,
    pub peer: Namespace,
}

impl Hosts {
    /// Creates both hosts and enters the device's. `options` configure both ends of the veth.
    /// `None` after a skip.
    pub fn new(options: &str) -> Option<Self> {
        let peer = Namespace::new()?;
        let device = Namespace::new()?;
        let path = peer.path();
        run(&format!(
            "ip link add d0 address 02:00:00:00:00:01 {options} type veth \
             peer name p0 netns {path} address 02:00:00:00:00:02 {options}"
        ));
        host("d0", 1, 2);
        let hosts = Self { device, peer };
        hosts.at_peer(|| host("p0", 2, 1));
        // What IPv6 says of its own accord when a link comes up.
        std::thread::sleep(Duration::from_millis(20));
        Some(hosts)
    }

    /// Runs `what` at the other host.
    pub fn at_peer<T>(&self, what: impl FnOnce() -> T) -> T {
        self.peer.enter();
        let result = what();
        self.device.enter();
        result
    }
}

fn host(name: &str, own: u8, other: u8) {
    run(&format!("ip link set {name} addrgenmode none"));
    run(&format!("ip link set {name} up"));
    run(&format!("ip address add 192.0.2.{own}/24 dev {name}"));
    run(&format!("ip neighbour add 192.0.2.{other} lladdr 02:00:00:00:00:0{other} dev {name}"));
}

/// Runs a command in the thread's namespace; spaces separate its words.
#[track_caller]
pub fn run(command: &str) {
    output(command);
}

/// Runs a command and returns its output.
#[track_caller]
pub fn output(command: &str) -> String {
    let (program, arguments) = command.split_once(' ').expect("a command with arguments");
    namespace::command(program, arguments)
}

/// Opens an interface as a wire.
pub fn wire(interface: &str) -> Wire {
    Wire::open(interface).expect("a raw socket on the interface")
}

/// Returns true if `holds` becomes true within ten seconds. Closed files may live on for a moment:
/// a child process of another test has them until it runs its program.
pub fn soon(holds: impl Fn() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(10);
    while !holds() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

pub fn pool(frames: usize) -> Pool {
    let memory = SharedMemory::create("kernel tests", frames * 2048).expect("memory");
    Pool::new(memory, 2048, 192).expect("the frame size is allowed")
}

/// Opens a UDP socket in the thread's namespace with a timeout of one second.
pub fn udp(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind(address).unwrap_or_else(|error| panic!("{address}: {error}"));
    socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a time limit");
    socket
}

pub fn interface(name: &str) -> Interface {
    Interface::query(name).expect("it exists")
}

/// Returns the sum of all losses.
pub fn losses(statistics: Statistics) -> u64 {
    let Statistics {
        no_frame,
        receive_length,
        device_full,
        device_invalid,
        transmit_error,
        device_no_frames,
    } = statistics;
    no_frame + receive_length + device_full + device_invalid + transmit_error + device_no_frames
}
