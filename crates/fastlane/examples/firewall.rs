//! Drops packets from blocked IPv4 addresses and counts them: a fast path and its slow path.
//!
//! `firewall CONFIG` runs the lanes. `firewall block ADDRESS` and `firewall list` are the slow
//! path: other processes, which attach to the running one. They may end or be killed at any time.
//! The configuration needs no privilege: its port is a UDP socket. Without a login session, set
//! `XDG_RUNTIME_DIR` to a folder of yours for all of them.
//!
//! ```sh
//! cd crates/fastlane/examples
//! cargo run --example firewall -- firewall.json &
//! echo hello > /dev/udp/127.0.0.1/7001                     # passes (bash)
//! cargo run --example firewall -- block 127.0.0.1
//! echo hello > /dev/udp/127.0.0.1/7001                     # is dropped
//! cargo run --example firewall -- list                     # 127.0.0.1: 1 packets
//! ```
//! Packets that pass are Linux's. A UDP socket has no path into Linux unless it is given a TAP, so
//! they are dropped and counted as `drop_no_kernel_peer`. On a network interface they continue
//! there, as root:
//!
//! ```sh
//! firewall firewall.json --set ports.wire.driver='{"af-xdp": {"interface": "eth0"}}'
//! ```

use std::error::Error;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::Duration;

use fastlane::table::{HashReader, LaneState};
use fastlane::wire::Layers;
use fastlane::{App, LaneInfo, Packet, Shape, Turn, Verdict};

/// Time that the slow path waits for the fast path to start.
const START: Duration = Duration::from_secs(10);

/// Fast path: one instance in each lane.
struct Firewall {
    blocked: HashReader<[u8; 4], u64>,
    hits: LaneState<1>,
}

impl App for Firewall {
    fn process(&mut self, packets: &mut [Packet], turn: &mut Turn) {
        for packet in packets {
            let source = Layers::parse(packet.bytes())
                .ok()
                .and_then(|layers| layers.ipv4(packet.bytes()).map(|ipv4| ipv4.source));
            let blocked = source.and_then(|source| self.blocked.get(turn, &source));
            if let Some(blocked) = blocked {
                self.hits.at(blocked.entry).add(0, 1);
            }
            packet.set_verdict(if blocked.is_some() { Verdict::Drop } else { Verdict::Kernel });
        }
    }
}

/// Creates the application of a lane.
fn firewall(lane: &LaneInfo<'_>) -> Result<Firewall, fastlane::Error> {
    let hits = lane.state("blocked", Shape::PerLane)?;
    Ok(Firewall { blocked: lane.hash("blocked")?, hits })
}

/// Blocks an address from the next packet on. The entry outlives this process.
fn block(application: &str, address: &str) -> Result<(), Box<dyn Error>> {
    let address: Ipv4Addr = address.parse()?;
    let slow = fastlane::slow::attach_wait(application, START)?;
    let mut blocked = slow.hash_writer::<[u8; 4], u64>("blocked")?; // one writer at a time
    blocked.insert(&address.octets(), &1)?;
    Ok(())
}

/// Returns the blocked addresses and the number of packets that were dropped for each.
fn list(application: &str) -> Result<Vec<(Ipv4Addr, u64)>, Box<dyn Error>> {
    let slow = fastlane::slow::attach_wait(application, START)?;
    let hits = slow.state::<1>("blocked")?;
    let blocked = slow.hash::<[u8; 4], u64>("blocked")?;
    let entries = blocked.copies();
    Ok(entries.map(|(address, entry, _)| (address.into(), hits.read(entry)[0])).collect())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["block", address] => block("firewall", address),
        ["list"] => list("firewall").map(|blocked| {
            blocked.iter().for_each(|(address, hits)| println!("{address}: {hits} packets"));
        }),
        _ => return fastlane::main(firewall),
    };
    if let Err(error) = result {
        eprintln!("firewall: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use fastlane::PortId;
    use fastlane::counters::Counters;
    use fastlane::table::{HashWriter, Readers, SharedMemory, Spec, State};
    use fastlane_core::{KernelPath, Lane, LaneConfig, Pool, Port};
    use fastlane_testing::lists::{Frames, lists};
    use fastlane_testing::{Addresses, STRANGER_IP, Tag};

    use super::*;

    #[test]
    fn a_blocked_address_is_dropped_and_counted_and_all_else_goes_to_linux() {
        let counters = Counters::create(1, 1).unwrap();
        let table = Spec::hash::<[u8; 4], u64>("blocked", 16).create().unwrap();
        let readers = Arc::new(Readers::unknown());
        let mut writer = HashWriter::<[u8; 4], u64>::attach(&table, &readers).unwrap();
        let state =
            State::<1>::attach(&Spec::state::<1>("blocked", 16, 1).create().unwrap()).unwrap();
        let app = Firewall { blocked: HashReader::attach(&table).unwrap(), hits: state.lane(0) };

        let (from, to, linux) = (Frames::default(), Frames::default(), Frames::default());
        let pool = SharedMemory::create("frames", 64 * 2048).unwrap();
        let port = Port {
            queues: vec![lists(PortId(0), &from, &to)],
            kernel: Some(KernelPath {
                queue: lists(PortId(0), &Frames::default(), &linux),
                receives: false,
            }),
            filter: None,
            counters: counters.port(0, 0),
        };
        let pool = Pool::new(pool, 2048, 192).unwrap();
        let mut lane = Lane::new(app, LaneConfig::new(pool, vec![port], counters.lane(0)));

        let frame = Tag { test: 0, sequence: 0 }.frame(Addresses::default(), 60);
        from.extend(&[frame.clone(), vec![0; 60]]);
        lane.turn();
        assert_eq!(linux.take(), [frame.clone(), vec![0; 60]]);

        let entry = writer.insert(&STRANGER_IP, &1).unwrap();
        from.extend(&[frame, vec![0; 60]]);
        lane.turn();
        assert_eq!(linux.take(), [vec![0; 60]], "in force from the next packet on");
        assert_eq!(state.read(entry), [1]);
        assert_eq!((to.take().len(), lane.close()), (0, 0));
    }

    #[test]
    fn the_slow_path_blocks_in_a_running_fast_path() {
        let directory = tempfile::tempdir().unwrap();
        let session = directory.path().join("firewall.sock").display().to_string();
        // A port that is free a moment before.
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let configuration = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/firewall.json");
        let arguments = [
            "firewall".to_owned(),
            configuration.to_owned(),
            format!("--set=session={session}"),
            format!("--set=ports.wire.driver.udp.address={port}"),
        ];
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&stop);
        let fast = std::thread::spawn(move || {
            fastlane::main_from(arguments.map(Into::into), &theirs, firewall)
        });

        block(&session, "127.0.0.1").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        let end = Instant::now() + START;
        let localhost = Ipv4Addr::LOCALHOST;
        while list(&session).unwrap() == [(localhost, 0)] && Instant::now() < end {
            client.send_to(b"hello", port).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        let blocked = list(&session).unwrap();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(fast.join().unwrap(), 0);
        assert!(matches!(blocked[..], [(address, 1..)] if address == localhost), "{blocked:?}");
    }
}
