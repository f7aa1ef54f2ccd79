//! Bodies of the fuzz targets, here so that the tests replay the corpus through the same functions.
//! Not for applications: the functions panic when an invariant is violated.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fastlane_core::{Burst, Pool, PortId, Sent, Statistics};

use crate::layout::Buffers;
use crate::message::{LENGTH, Message};
use crate::receiver::Receiver;
use crate::region::{Region, Regions, Span};
use crate::ring::{Descriptor, Ring, ring_length};
use crate::transmitter::Transmitter;

/// Decodes records of 128 octets, the last one padded with zeros, and checks that each survives
/// encoding and decoding.
pub fn messages(data: &[u8]) {
    for piece in data.chunks(LENGTH) {
        let mut record = [0; LENGTH];
        record[..piece.len()].copy_from_slice(piece);
        if let Ok(message) = Message::decode(&record) {
            assert_eq!(Message::decode(&message.encode()).as_ref(), Ok(&message));
        }
    }
}

const SLOTS: u8 = 4;
const REGION: usize = 16384;
const BUFFER: u32 = 256;

/// Runs a lane's operations on its rings while `data` scripts the peer's writes to the memory.
/// Checks that every frame of `pool` comes back, and that no packet exceeds a frame.
pub fn rings(data: &[u8], pool: &mut Pool) {
    let before = pool.missing();
    for client in [false, true] {
        run_script(data, pool, client);
    }
    assert_eq!(pool.missing(), before, "frames that did not come back");
}

/// Script of operations. Yields its octets, then zeros.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn octets<const N: usize>(&mut self) -> [u8; N] {
        let (front, rest) = self.0.split_at(N.min(self.0.len()));
        self.0 = rest;
        let mut octets = [0; N];
        octets[..front.len()].copy_from_slice(front);
        octets
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.octets())
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.octets())
    }
}

fn run_script(data: &[u8], pool: &mut Pool, client: bool) {
    let Ok(region) = Region::create("memif-fuzz", REGION) else { return };
    let regions = Arc::new(Regions(vec![region]));
    let ring = |number: usize| {
        let offset = number * ring_length(1 << SLOTS);
        Ring::new(Arc::clone(&regions), 0, offset as u32, SLOTS)
            .expect("the region holds two rings")
    };
    let buffers = |number| Buffers { start: 4096 + number * (BUFFER << SLOTS), size: BUFFER };
    let buffers = |number| client.then(|| buffers(number));
    let mut receiver = Receiver::new(ring(0), buffers(0));
    let mut transmitter = Transmitter::new(ring(1), buffers(1));
    let (mut burst, mut statistics) = (Burst::new(8), Statistics::default());
    let mut script = Script(data);
    while !script.0.is_empty() {
        let [step, which] = script.octets();
        let ring = if which & 1 == 0 { receiver.ring() } else { transmitter.ring() };
        let valid = match step % 6 {
            0 => {
                ring.head().store(script.u16(), Ordering::Relaxed);
                true
            }
            1 => {
                ring.tail().store(script.u16(), Ordering::Relaxed);
                true
            }
            2 => {
                let (slot, more) = (u16::from(which >> 2), which & 2 != 0);
                let (region, length, offset) = (script.u16(), script.u32(), script.u32());
                ring.write_descriptor(
                    slot,
                    Descriptor { span: Span { region, offset, length }, more },
                );
                true
            }
            3 => receiver.freeze().is_ok(),
            4 => {
                let valid = receiver.receive(&mut burst, pool, PortId(3), &mut statistics).is_ok();
                let packets = burst.packets().iter();
                packets.for_each(|packet| assert!((1..=pool.room()).contains(&packet.len())));
                valid
            }
            _ => {
                let packet = pool.alloc_packet(usize::from(which) * 8, PortId(3));
                packet.into_iter().for_each(|packet| {
                    if let Err(mut packet) = burst.push(packet) {
                        pool.release(&mut packet);
                    }
                });
                let mut sent = Sent::default();
                let valid = transmitter.transmit(burst.packets(), pool, &mut sent).is_ok();
                assert!(sent.packets <= sent.taken && sent.taken <= burst.len());
                assert!(transmitter.unread() <= 1 << SLOTS);
                valid
            }
        };
        if step % 6 > 3 {
            burst.clear(pool);
        }
        if !valid {
            break; // the queue drops its rings
        }
    }
}
