//! Sends a datagram of its own every period: timers, packets of the application, and settings.
//!
//! ```sh
//! cd crates/fastlane/examples
//! socat -u UDP-RECV:7003,bind=127.0.0.1 - &            # prints the datagrams (apt: socat)
//! cargo run --example timers -- timers.json
//! cargo run --example timers -- timers.json --set app.period-ms=10
//! ```
//! A lane without work sleeps until the next timer expires, so the application costs next to no CPU
//! time between two datagrams.

use std::net::SocketAddrV4;

use fastlane::wire::checksum::{fill_ipv4_header, fill_transport};
use fastlane::wire::{EtherType, Ethernet, IpProtocol, Ipv4, Layers, MacAddress, U16, Udp};
use fastlane::{App, LaneInfo, Packet, PortId, Turn, Verdict};
use serde::Deserialize;

/// Key of the only timer. An application with several timers tells them apart by their keys.
const BEACON: u64 = 1;
/// Length of the headers before the payload, in bytes.
const HEADERS: usize = Ethernet::LENGTH + Ipv4::LENGTH + Udp::LENGTH;

/// Object `app` of the configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    /// Source address and port.
    from: SocketAddrV4,
    /// Destination address and port.
    to: SocketAddrV4,
    /// Time between two datagrams, in milliseconds.
    period_ms: u64,
}

/// Sender of periodic datagrams.
struct Beacon {
    settings: Settings,
    port: PortId,
    sent: u64,
}

impl App for Beacon {
    fn process(&mut self, packets: &mut [Packet], _: &mut Turn) {
        packets.iter_mut().for_each(|packet| packet.set_verdict(Verdict::Drop));
    }

    fn turn(&mut self, turn: &mut Turn) {
        if turn.number() == 1 {
            self.send(turn);
        }
        while let Some(key) = turn.expired() {
            if key == BEACON {
                self.send(turn);
            }
        }
    }
}

impl Beacon {
    /// Sends a datagram and starts the timer of the next one.
    fn send(&mut self, turn: &mut Turn) {
        self.sent += 1;
        let payload = format!("beacon {}\n", self.sent);
        // Without a free frame this datagram is omitted. The lane counts it as `new_refused`.
        if let Some(packet) = turn.new_packet(self.port) {
            let written = write(packet, self.settings.from, self.settings.to, payload.as_bytes());
            if written.is_none() {
                packet.set_verdict(Verdict::Drop);
            }
        }
        // The only timer, so it is never refused.
        let _ = turn.start_timer(self.settings.period_ms * 1_000_000, BEACON);
    }
}

/// Writes a UDP datagram into an empty packet. Returns `None` if it does not fit.
fn write(packet: &mut Packet, from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> Option<()> {
    packet.append(HEADERS + payload.len())?[HEADERS..].copy_from_slice(payload);
    let udp_length = u16::try_from(Udp::LENGTH + payload.len()).ok()?;
    *packet.header()? = Ethernet {
        destination: MacAddress([0xff; 6]),
        source: MacAddress([2, 0, 0, 0, 0, 1]),
        ethertype: U16::new(EtherType::IPV4),
    };
    *packet.header_at(Ethernet::LENGTH)? = Ipv4 {
        version_ihl: 0x45,
        total_length: U16::new(Ipv4::LENGTH as u16 + udp_length),
        time_to_live: 64,
        protocol: IpProtocol::UDP,
        source: from.ip().octets(),
        destination: to.ip().octets(),
        ..Ipv4::default()
    };
    *packet.header_at(Ethernet::LENGTH + Ipv4::LENGTH)? = Udp {
        source_port: U16::new(from.port()),
        destination_port: U16::new(to.port()),
        length: U16::new(udp_length),
        checksum: U16::ZERO,
    };
    let layers = Layers::parse(packet.bytes()).ok()?;
    fill_ipv4_header(packet.bytes_mut(), &layers).ok()?;
    fill_transport(packet.bytes_mut(), &layers).ok()
}

/// Creates the application of a lane.
fn beacon(lane: &LaneInfo<'_>) -> Result<Beacon, fastlane::Error> {
    Ok(Beacon { settings: lane.settings()?, port: lane.require_port("wire")?, sent: 0 })
}

fn main() -> std::process::ExitCode {
    fastlane::main(beacon)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use fastlane::counters::Counters;
    use fastlane::table::SharedMemory;
    use fastlane::wire::checksum::{verify_ipv4_header, verify_transport};
    use fastlane_core::{Lane, LaneConfig, Pool, Port};
    use fastlane_testing::lists::{Frames, lists};

    use super::*;

    #[test]
    fn each_period_sends_a_valid_datagram() {
        let to = Frames::default();
        let counters = Counters::create(1, 1).unwrap();
        let memory = SharedMemory::create("frames", 64 * 2048).unwrap();
        let queues = vec![lists(PortId(0), &Frames::default(), &to)];
        let port = Port { queues, kernel: None, filter: None, counters: counters.port(0, 0) };
        let pool = Pool::new(memory, 2048, 192).unwrap();
        let config = LaneConfig::new(pool, vec![port], counters.lane(0));
        let settings = Settings {
            from: "192.0.2.1:7002".parse().unwrap(),
            to: "192.0.2.2:7003".parse().unwrap(),
            period_ms: 2,
        };
        let mut lane = Lane::new(Beacon { settings, port: PortId(0), sent: 0 }, config);

        let start = Instant::now();
        let mut sent = Vec::new();
        while sent.len() < 3 && start.elapsed() < Duration::from_secs(10) {
            lane.turn();
            sent.extend(to.take());
        }
        assert!(start.elapsed() >= Duration::from_millis(4), "two periods");
        for (frame, text) in sent.iter().zip(["beacon 1\n", "beacon 2\n", "beacon 3\n"]) {
            let layers = Layers::parse(frame).unwrap();
            assert_eq!(layers.ports(frame), Some((7002, 7003)));
            assert!(verify_ipv4_header(frame, &layers).unwrap());
            assert!(verify_transport(frame, &layers).unwrap());
            assert_eq!(&frame[HEADERS..], text.as_bytes());
        }
        assert_eq!((sent.len(), lane.close()), (3, 0));
    }
}
