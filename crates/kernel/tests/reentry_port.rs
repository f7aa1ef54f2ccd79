//! Tests of frames that re-enter the interface they were taken from.

mod support;

use std::time::Duration;

use fastlane_core::{Burst, PortId, Queue};
use fastlane_kernel::af_packet::{AfPacketSettings, Device};
use fastlane_kernel::reentry::{self, Method};
use fastlane_kernel::tap::TapQueue;
use fastlane_steer::{Program, Rules, Settings, XdpMode, has_tcx};
use fastlane_testing::{Addresses, Peer, Tag};
use support::packet_socket::{Datagrams, bound_udp};
use support::{Hosts, Namespace, interface, output, pool, run, wire};

const MARK: u32 = 0x464c;
const QUIET: Duration = Duration::from_millis(50);

/// Transmits frames for re-entry and returns what Linux receives on `d0`.
fn reenter(queue: &mut TapQueue, frames: usize, linux: &mut Datagrams) -> usize {
    let mut pool = pool(64);
    for sequence in 0..frames as u32 {
        let content = Tag { test: 1, sequence }.frame(Addresses::default(), 100);
        let frame = pool.take().unwrap();
        let packet = pool.packet(frame, pool.data_offset(), content.len(), PortId(0));
        let mut packet = packet.unwrap();
        packet.bytes_mut().copy_from_slice(&content);
        let sent = queue.transmit(std::slice::from_mut(&mut packet), &mut pool);
        assert_eq!((sent.taken, sent.packets), (1, 1));
    }
    assert_eq!(pool.free(), pool.frames());
    std::iter::from_fn(|| linux.receive(QUIET)).count()
}

#[test]
fn both_ways_lead_into_the_interface_once() {
    let Some(_hosts) = Hosts::new("") else { return };
    // An address like that of other interfaces; the MTU of a jumbo network.
    run("ip link set d0 mtu 9000");
    let mut wire = wire("d0");
    let mut linux = Datagrams(bound_udp("0.0.0.0:40000", "d0"));
    for how in [Method::Mirred, Method::Redirect { mark: MARK }, Method::Redirect { mark: 0 }] {
        let before = output("ip -brief link");
        let (_reentry, mut queues) = reentry::open(&interface("d0"), how, 2).unwrap();
        assert_eq!(queues.len(), 2);
        for queue in &mut queues {
            assert_eq!(reenter(queue, 20, &mut linux), 20, "{how:?}");
            let seen = std::iter::from_fn(|| wire.receive(Duration::ZERO)).count();
            assert_eq!(seen, 20, "{how:?}: as tcpdump sees it");
        }
        queues.iter_mut().for_each(|queue| queue.close(&mut pool(1)));
        drop(queues);
        let gone = support::soon(|| output("ip -brief link") == before);
        assert!(gone, "{how:?}: the TAP is still there");
    }
}

#[test]
fn an_interface_without_address_is_refused() {
    let Some(_namespace) = Namespace::new() else { return };
    let message = reentry::open(&interface("lo"), Method::Mirred, 1).unwrap_err().to_string();
    assert!(message.starts_with("re-entry into lo: it has no Ethernet address"), "{message}");
    assert!(reentry::open(&interface("lo"), Method::Redirect { mark: MARK }, 1).is_ok());
}

#[test]
fn linux_keeps_quiet_on_the_way_back() {
    let Some(_hosts) = Hosts::new("") else { return };
    let (_reentry, mut queues) = reentry::open(&interface("d0"), Method::Mirred, 1).unwrap();
    let links = output("ip -details link show type tun");
    assert!(links.contains("addrgenmode none") && links.contains("NOARP"), "{links}");
    assert!(!links.contains("MULTICAST"), "{links}");
    assert!(!output("ip address show type tun").contains("inet"), "no address");
    std::thread::sleep(Duration::from_millis(300));
    let (mut burst, mut pool) = (Burst::new(8), pool(8));
    queues[0].receive(&mut burst, &mut pool);
    let said: Vec<_> = burst.packets().iter().map(|packet| packet.bytes().to_vec()).collect();
    assert!(said.is_empty(), "{said:x?}");
}

#[test]
fn an_af_packet_port_does_not_see_its_own_frames_again() {
    let Some(hosts) = Hosts::new("") else { return };
    let settings = AfPacketSettings { mark: MARK, ..AfPacketSettings::new(interface("d0")) };
    let mut device = Device::open(&settings, &Rules::default()).unwrap();
    let mut queue = device.queue(PortId(0), 0).unwrap();
    let (_reentry, mut back) =
        reentry::open(&interface("d0"), Method::Redirect { mark: MARK }, 1).unwrap();
    let mut linux = Datagrams(bound_udp("0.0.0.0:40000", "d0"));
    let mut peer = hosts.at_peer(|| wire("p0"));
    let (mut burst, mut pool) = (Burst::new(32), pool(64));
    const FRAMES: u32 = 100;
    for sequence in 0..FRAMES {
        assert!(peer.send(&Tag { test: 1, sequence }.frame(Addresses::default(), 100)));
    }
    let mut seen = 0;
    for _ in 0..50 {
        queue.receive(&mut burst, &mut pool);
        seen += burst.len();
        let given = back[0].transmit(burst.packets(), &mut pool);
        assert_eq!(given.packets, burst.len());
        burst.clear(&mut pool);
        std::thread::sleep(Duration::from_millis(1));
    }
    let received = std::iter::from_fn(|| linux.receive(QUIET)).count();
    assert_eq!((seen, received), (FRAMES as usize, FRAMES as usize));
    assert_eq!(peer.receive(QUIET), None, "Linux did not answer that nobody is there");
    queue.close(&mut pool);
    assert_eq!(pool.free(), pool.frames());
}

#[test]
fn neither_xdp_nor_af_packet_sees_frames_again_during_a_change() {
    let Some(_hosts) = Hosts::new("") else { return };
    if !has_tcx() {
        println!("SKIP neither_xdp_nor_af_packet_sees_frames_again_during_a_change: no tcx");
        return;
    }
    let mut linux = Datagrams(bound_udp("0.0.0.0:40000", "d0"));
    let (mirred, redirect) = (Method::Mirred, Method::Redirect { mark: MARK });
    let (mut reentry, mut back) = reentry::open(&interface("d0"), mirred, 1).unwrap();
    // Without sockets it counts the frames that it would claim, and lets them pass.
    let settings = Settings { max_length: 9000, mark: 0, reenter_ifindex: 0 };
    let mut xdp = Program::load(&Rules::default(), settings).unwrap();
    xdp.attach_xdp("d0", XdpMode::Generic).unwrap();
    let settings = AfPacketSettings { mark: MARK, ..AfPacketSettings::new(interface("d0")) };
    let mut device = Device::open(&settings, &Rules::default()).unwrap();
    let mut queue = device.queue(PortId(0), 0).unwrap();
    let (mut burst, mut pool) = (Burst::new(32), pool(64));
    let mut enter_20 = || {
        let before = xdp.counts().unwrap().uncovered;
        let by_linux = reenter(&mut back[0], 20, &mut linux) as u64;
        queue.receive(&mut burst, &mut pool);
        let by_af_packet = burst.len() as u64;
        burst.clear(&mut pool);
        Arrivals { by_linux, by_xdp: xdp.counts().unwrap().uncovered - before, by_af_packet }
    };
    let once = Arrivals { by_linux: 20, by_xdp: 0, by_af_packet: 0 };
    let again_by_af_packet = Arrivals { by_linux: 0, by_af_packet: 20, ..once };
    let again_by_xdp = Arrivals { by_xdp: 20, ..once };
    assert_eq!(enter_20(), again_by_af_packet, "by mirred");
    reentry.enter_beside_both(redirect, MARK).unwrap();
    assert_eq!(enter_20(), once, "from mirred to the redirection");
    reentry.enter(&interface("d0"), redirect).unwrap();
    assert_eq!(enter_20(), again_by_xdp, "by the redirection");
    reentry.enter_beside_both(redirect, MARK).unwrap();
    assert_eq!(enter_20(), again_by_xdp, "no change is needed");
    reentry.enter_beside_both(mirred, MARK).unwrap();
    assert_eq!(enter_20(), once, "from the redirection to mirred");
    reentry.enter_as_before().unwrap();
    assert_eq!(enter_20(), again_by_xdp, "the change did not come about");
    reentry.enter_beside_both(mirred, MARK).unwrap();
    reentry.enter(&interface("d0"), mirred).unwrap();
    assert_eq!(enter_20(), again_by_af_packet, "by mirred at the end");
    queue.close(&mut pool);
    assert_eq!(pool.free(), pool.frames());
}

/// Numbers of frames that re-entered, by receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arrivals {
    by_linux: u64,
    by_xdp: u64,
    by_af_packet: u64,
}
