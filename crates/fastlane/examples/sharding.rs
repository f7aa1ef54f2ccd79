//! Echoes the first packets of each client, on two lanes without a lock: sharding by key.
//!
//! The device, here the kernel, spreads packets over the lanes by a hash of its own. With
//! `"lane-by": "application"` the lane of arrival asks [`App::shard`] and passes the packet to the
//! lane of that shard. So each client's quota is a plain variable of one lane.
//!
//! ```sh
//! cd crates/fastlane/examples
//! cargo run --example sharding -- sharding.json            # two CPUs: 0 and 1
//! socat - UDP:127.0.0.1:7005                               # the first ten lines return
//! fastlane top sharding                                    # packets by lane
//! fastlane shards sharding --move 7=0                      # moves a shard, in order
//! ```
//! A field of the packet is a key as well, without code:
//! `"lane-by": { "key": { "field": "source-address" } }`, or `"flow"`.
//!
//! A shard that moves begins with new quotas in its new lane. State that must move with it belongs
//! in tables and lane state.

use fastlane::wire::{Ethernet, Ipv4, Layers, Udp};
use fastlane::{App, LaneInfo, Packet, Turn, Verdict};
use serde::Deserialize;

/// Object `app` of the configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    /// Number of packets of each client that are echoed.
    quota: u32,
}

/// Echo service with a quota for each client.
struct Quota {
    /// Packets that each client has left, by UDP port. A lane uses those of its own shards.
    left: Vec<u32>,
}

impl Quota {
    fn new(quota: u32) -> Self {
        Self { left: vec![quota; 1 << 16] }
    }
}

impl App for Quota {
    fn process(&mut self, packets: &mut [Packet], _: &mut Turn) {
        for packet in packets {
            let left = client(packet).map(|port| &mut self.left[usize::from(port)]);
            let verdict = left.filter(|left| **left > 0).and_then(|left| {
                *left -= 1;
                echo(packet)
            });
            packet.set_verdict(verdict.unwrap_or(Verdict::Drop));
        }
    }

    /// Depends on the packet only, so every lane returns the same shard.
    fn shard(&mut self, packet: &Packet, _: &Turn) -> u8 {
        client(packet).map_or(0, |port| port as u8)
    }
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
fn quota(lane: &LaneInfo<'_>) -> Result<Quota, fastlane::Error> {
    let settings: Settings = lane.settings()?;
    Ok(Quota::new(settings.quota))
}

fn main() -> std::process::ExitCode {
    fastlane::main(quota)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fastlane::PortId;
    use fastlane::counters::Counters;
    use fastlane::table::SharedMemory;
    use fastlane_core::{Lane, LaneConfig, Pool, Port};
    use fastlane_local::ring;
    use fastlane_sharding::{ExchangeConfig, LaneBy, LaneRing, ShardExchange, Shards};
    use fastlane_testing::lists::{Frames, lists};
    use fastlane_testing::{Addresses, Tag};

    use super::*;

    const FRAME_SIZE: usize = 2048;

    fn pool() -> Pool {
        let memory = SharedMemory::create("frames", 64 * FRAME_SIZE).unwrap();
        Pool::new(memory, FRAME_SIZE, 192).unwrap()
    }

    /// Returns two lanes with a port each, which pass packets to each other by shard.
    fn lanes(from: &[Frames; 2], to: &[Frames; 2]) -> Vec<Lane<Quota>> {
        let counters = Counters::create(2, 1).unwrap();
        let memory = Arc::new(SharedMemory::create("shards", Shards::bytes(2)).unwrap());
        let shards = Shards::new(&memory, 2, &[0, 1]).unwrap(); // even shards: lane 0
        let doorbells = ring::doorbells(2).unwrap();
        let ends = ring::lane_ring([&doorbells[0], &doorbells[1]], 64, FRAME_SIZE);
        let lanes = ends.into_iter().enumerate().map(|(number, end)| {
            let mut rings: Vec<Option<Box<dyn LaneRing>>> = vec![None, None];
            rings[1 - number] = Some(Box::new(end));
            let exchange = ExchangeConfig {
                lane: number,
                rings,
                lane_by: vec![LaneBy::Application],
                carriers: vec![None],
                has_application: true,
                shards: shards.clone(),
                migration_pool: pool(),
            };
            let queues = vec![lists(PortId(0), &from[number], &to[number])];
            let counted = counters.port(number, 0);
            let port = Port { queues, kernel: None, filter: None, counters: counted };
            let config = LaneConfig::new(pool(), vec![port], counters.lane(number));
            let burst = config.burst;
            let mut lane = Lane::new(Quota::new(3), config);
            lane.join(Box::new(ShardExchange::new(exchange, burst)));
            lane
        });
        lanes.collect()
    }

    #[test]
    fn the_quota_of_a_client_holds_whatever_lanes_its_packets_arrive_at() {
        let from = [Frames::default(), Frames::default()];
        let to = [Frames::default(), Frames::default()];
        let mut lanes = lanes(&from, &to);
        // Four clients, whose packets arrive at both lanes.
        for client in 0..4 {
            let frame = |test| Tag { test, sequence: client }.frame(Addresses::default(), 60);
            from.iter().for_each(|from| from.extend(&[frame(0), frame(1), frame(2)]));
        }
        for _ in 0..4 {
            lanes.iter_mut().for_each(|lane| {
                lane.turn();
            });
        }
        for (lane, to) in to.iter().enumerate() {
            let mut echoed = [0; 4];
            for frame in to.take() {
                echoed[Tag::find(&frame).unwrap().0.sequence as usize] += 1;
            }
            // The ports 50,000 to 50,003 are the shards 80 to 83.
            let expected = if lane == 0 { [3, 0, 3, 0] } else { [0, 3, 0, 3] };
            assert_eq!(echoed, expected, "lane {lane}");
        }
        assert_eq!(lanes.iter_mut().map(Lane::close).collect::<Vec<_>>(), [0, 0]);
    }
}
