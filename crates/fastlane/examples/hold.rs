//! Holds the packets of a client until it is admitted, then shows them again in order: `Hold` and
//! `Turn::resume`.
//!
//! A client is a UDP source port. Its first packet starts the admission, which is a timer here. A
//! real application asks its slow path, as a user plane does to have a UE paged. All packets of the
//! client are held meanwhile. Then the application echoes them, and later ones at once.
//!
//! ```sh
//! cd crates/fastlane/examples
//! cargo run --example hold -- hold.json
//! socat - UDP:127.0.0.1:7004              # the first lines return after a second, in order
//! ```
//! `lanes.hold` limits the number of held packets. Packets beyond it are dropped and counted.

use fastlane::wire::{Ethernet, Ipv4, Layers, Udp};
use fastlane::{App, HoldKey, LaneInfo, Packet, Turn, Verdict};
use serde::Deserialize;

/// Object `app` of the configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    /// Time from the first packet of a client to its admission, in milliseconds.
    delay_ms: u64,
}

/// State of a client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Client {
    Unknown,
    Waiting,
    Admitted,
}

/// Echo service that admits clients after a delay.
struct Admission {
    delay_ms: u64,
    /// State of each client, by UDP port.
    clients: Vec<Client>,
}

impl Admission {
    fn new(delay_ms: u64) -> Self {
        Self { delay_ms, clients: vec![Client::Unknown; 1 << 16] }
    }
}

impl App for Admission {
    fn process(&mut self, packets: &mut [Packet], turn: &mut Turn) {
        for packet in packets {
            let Some(port) = client(packet) else {
                packet.set_verdict(Verdict::Drop);
                continue;
            };
            let client = &mut self.clients[usize::from(port)];
            // Without a timer the client stays unknown, and its next packet tries again.
            if *client == Client::Unknown
                && turn.start_timer(self.delay_ms * 1_000_000, port.into())
            {
                *client = Client::Waiting;
            }
            let verdict = match client {
                Client::Unknown => Verdict::Drop,
                Client::Waiting => Verdict::Hold(key(port)),
                Client::Admitted => echo(packet).unwrap_or(Verdict::Drop),
            };
            packet.set_verdict(verdict);
        }
    }

    fn turn(&mut self, turn: &mut Turn) {
        while let Some(expired) = turn.expired() {
            let port = expired as u16; // `process` started the timer with it
            self.clients[usize::from(port)] = Client::Admitted;
            turn.resume(key(port)); // `process` sees them in this turn, ahead of later packets
        }
    }
}

/// Returns the key under which the packets of a client are held.
fn key(port: u16) -> HoldKey {
    HoldKey::new(port.into()).unwrap_or_default() // a key has 24 bits, so every port is one
}

/// Returns the client of a packet: its UDP source port over IPv4.
fn client(packet: &Packet) -> Option<u16> {
    let layers = Layers::parse(packet.bytes()).ok()?;
    layers.ipv4(packet.bytes())?;
    Some(layers.udp(packet.bytes())?.source_port.get())
}

/// Turns a UDP packet round. Swapped addresses and ports leave the checksums valid.
fn echo(packet: &mut Packet) -> Option<Verdict> {
    let layers = Layers::parse(packet.bytes()).ok()?;
    let ethernet = packet.header::<Ethernet>()?;
    std::mem::swap(&mut ethernet.source, &mut ethernet.destination);
    let ipv4 = packet.header_at::<Ipv4>(layers.network.into())?;
    std::mem::swap(&mut ipv4.source, &mut ipv4.destination);
    let udp = packet.header_at::<Udp>(layers.transport.into())?;
    std::mem::swap(&mut udp.source_port, &mut udp.destination_port);
    Some(Verdict::Reflect)
}

/// Creates the application of a lane.
fn admission(lane: &LaneInfo<'_>) -> Result<Admission, fastlane::Error> {
    let settings: Settings = lane.settings()?;
    Ok(Admission::new(settings.delay_ms))
}

fn main() -> std::process::ExitCode {
    fastlane::main(admission)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use fastlane::PortId;
    use fastlane::counters::{Counters, LaneCounter};
    use fastlane::table::SharedMemory;
    use fastlane_core::{Lane, LaneConfig, Pool, Port};
    use fastlane_hold::{HoldArea, HoldLimits};
    use fastlane_testing::lists::{Frames, lists};
    use fastlane_testing::{Addresses, Tag};

    use super::*;

    #[test]
    fn packets_of_a_waiting_client_are_held_and_echoed_in_order() {
        let (from, to) = (Frames::default(), Frames::default());
        let counters = Counters::create(1, 1).unwrap();
        let memory = SharedMemory::create("frames", 64 * 2048).unwrap();
        let pool = Pool::new(memory, 2048, 192).unwrap();
        let hold = HoldArea::new(HoldLimits { packets: 16, per_key: 8 }, pool.frame_size());
        let queues = vec![lists(PortId(0), &from, &to)];
        let port = Port { queues, kernel: None, filter: None, counters: counters.port(0, 0) };
        let config = LaneConfig {
            hold: Some(Box::new(hold)),
            ..LaneConfig::new(pool, vec![port], counters.lane(0))
        };
        let mut lane = Lane::new(Admission::new(1), config);

        // Frames of one client, told apart by the number of the test.
        let frame = |test| Tag { test, sequence: 7 }.frame(Addresses::default(), 60);
        from.extend(&[frame(0), frame(1), frame(2)]);
        lane.turn();
        assert!(to.take().is_empty());
        assert_eq!(counters.lane(0).load(LaneCounter::HeldPackets), 3);

        let end = Instant::now() + Duration::from_secs(10);
        let mut echoed = Vec::new();
        while echoed.is_empty() && Instant::now() < end {
            lane.turn();
            echoed = to.take();
        }
        from.extend(&[frame(3)]);
        lane.turn();
        echoed.extend(to.take());
        let order = echoed.iter().map(|frame| Tag::find(frame).unwrap().0.test);
        assert_eq!(order.collect::<Vec<_>>(), [0, 1, 2, 3]);
        let layers = Layers::parse(&echoed[0]).unwrap();
        assert_eq!(layers.ports(&echoed[0]), Some((40_000, 50_007)), "back to the client");
        assert_eq!(lane.close(), 0);
    }
}
