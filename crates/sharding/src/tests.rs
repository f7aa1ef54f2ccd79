//! Order of packets while the shard table changes within a burst.

use std::sync::Arc;

use fastlane_core::{App, Lane, LaneConfig, Packet, Pool, Port, PortId, Queue, Turn, Verdict};
use fastlane_local::memory::Memory;
use fastlane_table::SharedMemory;
use fastlane_table::counters::Counters;

use super::{ExchangeConfig, LaneBy, MigrationBuffer, Offer, ShardExchange, Shards};

const SHARD: u8 = 7;
const PACKETS: u8 = 4;

/// Application that ends the migration of the shard to its own lane in the middle of a burst.
struct EndsMigration {
    shards: Shards,
    classified: u8,
    shown: Vec<u8>,
}

impl App for EndsMigration {
    fn process(&mut self, packets: &mut [Packet], _: &mut Turn) {
        for packet in packets {
            self.shown.push(packet.bytes()[0]);
            packet.set_verdict(Verdict::Drop);
        }
    }

    fn shard(&mut self, _: &Packet, _: &Turn) -> u8 {
        self.classified += 1;
        if self.classified == PACKETS / 2 {
            self.shards.assign(SHARD, 0, false);
            self.shards.advance();
        }
        SHARD
    }
}

fn pool() -> Pool {
    Pool::new(SharedMemory::create("sharding-test", 16 * 1024).unwrap(), 1024, 64).unwrap()
}

#[test]
fn a_migration_that_ends_within_a_burst_keeps_the_order() {
    let memory = Arc::new(SharedMemory::create("shards", Shards::bytes(2)).unwrap());
    let shards = Shards::new(&memory, 2, &[0, 1]).unwrap();
    shards.assign(SHARD, 1, true);
    shards.advance();

    let (counters, mut pool_of_lane) = (Counters::create(2, 1).unwrap(), pool());
    let mut port = Memory::new(PortId(0), usize::from(PACKETS));
    for number in 0..PACKETS {
        let mut packet = pool_of_lane.alloc_packet(60, PortId(0)).unwrap();
        packet.bytes_mut().fill(number);
        port.transmit(std::slice::from_mut(&mut packet), &mut pool_of_lane);
    }
    let queues: Vec<Box<dyn Queue>> = vec![Box::new(port)];
    let port = Port { queues, kernel: None, filter: None, counters: counters.port(0, 0) };
    let config = LaneConfig::new(pool_of_lane, vec![port], counters.lane(0));
    let exchange = ExchangeConfig {
        lane: 0,
        rings: vec![None, None],
        lane_by: vec![LaneBy::Application],
        carriers: vec![None],
        has_application: true,
        shards: shards.clone(),
        migration_pool: pool(),
    };
    let app = EndsMigration { shards, classified: 0, shown: Vec::new() };
    let burst = config.burst;
    let mut lane = Lane::new(app, config);
    lane.join(Box::new(ShardExchange::new(exchange, burst)));
    lane.turn();
    lane.turn();
    assert_eq!(lane.app().shown, (0..PACKETS).collect::<Vec<_>>());
    assert_eq!(lane.close(), 0);
}

#[test]
fn a_long_packet_waits_with_less_headroom_and_one_beyond_a_frame_is_emptied() {
    let memory = SharedMemory::create("lane", 8 * 2048).unwrap();
    let mut lane = Pool::new(memory, 2048, 64).unwrap();
    let mut buffer = MigrationBuffer::new(pool());
    let mut run = [950, 1500, 60].map(|length| lane.alloc_packet(length, PortId(0)).unwrap());
    run.iter().for_each(|_| buffer.expect(SHARD));
    assert_eq!(buffer.store(SHARD, &mut run, &mut lane), run.len());
    buffer.look_again();
    let mut lengths = Vec::new();
    buffer.release(&mut lane, |_, packet, _| {
        lengths.push(packet.len());
        Offer::Accepted
    });
    assert_eq!(lengths, [950, 0, 60]);
    assert_eq!((buffer.close(|_| ()), lane.missing()), (0, 0));
}
