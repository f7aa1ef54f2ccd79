//! Network namespaces of one test, with veth pairs and sockets.
//!
//! A namespace belongs to the thread that created it and to the threads and processes that this one
//! starts afterwards. It ends with the last of them, so there is nothing to remove. The machine's
//! own interfaces are not in it.

use std::net::{Ipv4Addr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::{Addresses, DEVICE_IP, PEER_IP, Peer, UDP_PORT, skip};

mod system;
mod wire;

pub use wire::Wire;

/// Moves the calling thread into a new network namespace with the loopback interface up. Returns
/// false after [`skip`] if that is not allowed.
#[must_use]
pub fn private(test: &str) -> bool {
    if let Err(error) = system::unshare_network() {
        skip(test, &format!("no network namespace ({error}): it takes CAP_SYS_ADMIN"));
        return false;
    }
    ip("link set lo up");
    true
}

/// Runs `ip` with these arguments, separated by blanks, in the thread's namespace.
///
/// # Panics
/// When it fails, with its error text.
#[track_caller]
pub fn ip(arguments: &str) {
    command("ip", arguments);
}

/// Runs a program with arguments separated by blanks, in the thread's namespace. Returns its
/// standard output.
///
/// # Panics
/// When it cannot be started or fails, with its error text.
#[track_caller]
pub fn command(program: &str, arguments: &str) -> String {
    let output = Command::new(program).args(arguments.split_whitespace()).output();
    let output = output.unwrap_or_else(|error| panic!("{program} cannot be started: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Creates a veth pair with `queues` queues on both ends and brings it up.
///
/// The interfaces have the default [`Addresses`], `name` that of the device. They have no IP
/// address and Linux sends nothing on its own, so that counts are exact.
///
/// # Panics
/// When the kernel refuses.
#[track_caller]
pub fn veth(name: &str, peer: &str, queues: usize) -> Addresses {
    let addresses = Addresses::default();
    let end = |name: &str, address: [u8; 6]| {
        let address = address.map(|byte| format!("{byte:02x}")).join(":");
        format!("{name} address {address} numrxqueues {queues} numtxqueues {queues}")
    };
    let (device, other) = (end(name, addresses.device), end(peer, addresses.peer));
    ip(&format!("link add {device} type veth peer name {other}"));
    for interface in [name, peer] {
        quieten(interface);
        set_link(interface, true);
    }
    wait_until_up(name);
    wait_until_up(peer);
    addresses
}

/// Waits until an interface that was brought up has its carrier. Linux sends nothing before that
/// and detects the carrier asynchronously.
///
/// # Panics
/// When that takes longer than 30 seconds.
#[track_caller]
pub fn wait_until_up(interface: &str) {
    let end = Instant::now() + Duration::from_secs(30);
    while !command("ip", &format!("-oneline link show dev {interface}")).contains("state UP") {
        assert!(Instant::now() < end, "{interface} does not come up");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Keeps Linux from sending on an interface on its own (IPv6 neighbour discovery).
///
/// # Panics
/// When there is no such interface.
#[track_caller]
pub fn quieten(interface: &str) {
    ip(&format!("link set {interface} addrgenmode none"));
}

/// Lets frames leave an interface in the order in which a socket has sent them. By default, Debian
/// has fq_codel there, which serves flows in turn: frames overtake those of other flows once the
/// device is slower than the sender.
///
/// # Panics
/// When there is no such interface.
#[track_caller]
pub fn keep_order(interface: &str) {
    command("tc", &format!("qdisc replace dev {interface} root pfifo"));
}

/// Takes an interface down or up.
///
/// # Panics
/// When there is no such interface.
#[track_caller]
pub fn set_link(interface: &str, up: bool) {
    ip(&format!("link set {interface} {}", if up { "up" } else { "down" }));
}

/// Assigns [`DEVICE_IP`] to the device under test and opens a socket for packets that Linux
/// receives on it, for [`Rig::kernel`](crate::Rig::kernel). Its `send` always returns false.
///
/// # Panics
/// When the kernel refuses.
#[track_caller]
pub fn linux(interface: &str) -> Linux {
    let address = Ipv4Addr::from(DEVICE_IP);
    ip(&format!("address add {address}/24 dev {interface}"));
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, UDP_PORT)).expect("a UDP port");
    system::bind_to_device(&socket, interface).expect("a socket bound to the interface");
    system::grow_receive_buffer(&socket);
    Linux(socket)
}

/// A UDP socket bound to one interface.
#[derive(Debug)]
pub struct Linux(UdpSocket);

impl Peer for Linux {
    fn send(&mut self, _: &[u8]) -> bool {
        false
    }

    fn receive(&mut self, within: Duration) -> Option<Vec<u8>> {
        let mut datagram = vec![0; 65_536];
        let length = system::receive(&self.0, &mut datagram, within)?;
        datagram.truncate(length);
        Some(datagram)
    }
}

/// Assigns [`PEER_IP`] and a permanent neighbour to the peer's interface and opens the socket for
/// [`Rig::socket`](crate::Rig::socket). No interface of the namespace may have [`DEVICE_IP`].
///
/// # Panics
/// When the kernel refuses.
#[track_caller]
pub fn socket(interface: &str, addresses: Addresses) -> UdpSocket {
    let (peer, device) = (Ipv4Addr::from(PEER_IP), Ipv4Addr::from(DEVICE_IP));
    let device_address = addresses.device.map(|byte| format!("{byte:02x}")).join(":");
    ip(&format!("address add {peer}/24 dev {interface}"));
    let neighbour = format!("neighbour replace {device} lladdr {device_address} nud permanent");
    ip(&format!("{neighbour} dev {interface}"));
    let socket = UdpSocket::bind((peer, 0)).expect("a UDP port");
    socket.connect((device, UDP_PORT)).expect("a route to the device");
    socket
}

#[cfg(test)]
mod tests;
