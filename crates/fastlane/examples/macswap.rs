//! Swaps the Ethernet addresses of every packet and sends it back: the smallest application.
//!
//! ```sh
//! cd crates/fastlane/examples
//! cargo run --example macswap -- macswap.json          # 64 packets in memory, until Ctrl-C
//! cargo run --example macswap -- --check macswap.json  # prints the meaning, opens nothing
//! ```
//! Another mechanism is another word of the configuration. As root, on a network interface, where
//! the rule leaves all other packets to Linux. Without a rule each frame is swapped, also those of
//! your ssh session:
//!
//! ```sh
//! macswap macswap.json --set ports.wire.driver='{"af-xdp": {"interface": "eth0"}}' \
//!     --set ports.wire.steer='[{"udp-port": 2152}]'
//! ```

use fastlane::{Packet, Verdict, wire::Ethernet};

fn macswap(packet: &mut Packet) -> Verdict {
    let Some(ethernet) = packet.header::<Ethernet>() else {
        return Verdict::Drop; // a runt
    };
    std::mem::swap(&mut ethernet.source, &mut ethernet.destination);
    Verdict::Reflect
}

fn main() -> std::process::ExitCode {
    fastlane::main(|_lane| Ok(macswap))
}

#[cfg(test)]
mod tests {
    use fastlane::PortId;
    use fastlane::counters::{Counters, LaneCounter};
    use fastlane::table::SharedMemory;
    use fastlane_core::{Lane, LaneConfig, Pool, Port};
    use fastlane_testing::lists::{Frames, lists};

    use super::*;

    #[test]
    fn packets_return_with_swapped_addresses_and_runts_are_dropped() {
        let (from, to) = (Frames::default(), Frames::default());
        let counters = Counters::create(1, 1).unwrap();
        let memory = SharedMemory::create("frames", 64 * 2048).unwrap();
        let queues = vec![lists(PortId(0), &from, &to)];
        let port = Port { queues, kernel: None, filter: None, counters: counters.port(0, 0) };
        let pool = Pool::new(memory, 2048, 192).unwrap();
        let config = LaneConfig::new(pool, vec![port], counters.lane(0));
        let mut lane = Lane::new(macswap, config);

        from.extend(&[[&[1; 6][..], &[2; 6], b"\x88\xb5data"].concat(), vec![1; 13]]);
        lane.turn();
        assert_eq!(to.take(), [[&[2; 6][..], &[1; 6], b"\x88\xb5data"].concat()]);
        assert_eq!(lane.close(), 0, "every frame is back in the pool");
        assert_eq!(counters.lane(0).load(LaneCounter::Turn), 1);
    }
}
