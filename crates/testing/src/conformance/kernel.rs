//! Linux behind the port.

use std::time::Duration;

use fastlane_core::{RawVerdict, Verdict};
use fastlane_table::counters::PortCounter;

use super::bench::{Bench, Entry, not_applicable};
use super::labeller;
use super::receipt::Receipt;
use crate::{Rig, Spec, Tag};

/// Time in which a looping frame would arrive again.
const QUIET: Duration = Duration::from_millis(100);

fn every_other(sequence: u32) -> RawVerdict {
    if sequence.is_multiple_of(2) { Verdict::Kernel.into() } else { Verdict::Reflect.into() }
}

/// Checks that each frame labelled `Kernel` arrives in Linux once and at the application once.
pub fn kernel_gets_each_frame_once<R: Rig>() {
    const FRAMES: usize = 1000;
    if !R::HAS_KERNEL {
        return not_applicable("kernel_gets_each_frame_once", "path into Linux");
    }
    let spec = Spec { kernel: true, ..Spec::default() };
    let Some(mut bench) = Bench::<R>::open(spec, labeller::to_kernel) else { return };
    bench.window = 32;
    bench.exchange(Entry::Peer, FRAMES, 200);
    bench.settle(QUIET);
    bench.at_kernel.assert_complete("frames labelled Kernel");
    assert_eq!(bench.at_peer.distinct(), 0, "frames to Linux do not go back to the peer");
    assert_eq!(bench.processed(), FRAMES, "frames at the application");
    assert_eq!(bench.count(PortCounter::ToKernelPackets), FRAMES as u64);
    bench.close();
    drop(bench);

    let Some(mut bench) = Bench::<R>::open(spec, every_other) else { return };
    bench.window = 32;
    let range = bench.next()..bench.next() + FRAMES as u32;
    bench.exchange(Entry::Peer, FRAMES, 200);
    bench.settle(QUIET);
    let (even, odd): (Vec<u32>, Vec<u32>) = range.partition(|number| number % 2 == 0);
    assert_eq!(bench.at_kernel.numbers_received(1), even, "at Linux");
    assert_eq!(bench.at_peer.numbers_received(1), odd, "at the peer");
    assert_eq!(bench.processed(), FRAMES, "frames at the application");
    bench.close();
}

/// Checks that frames from Linux through the kernel peer leave by the port, once and in order.
pub fn kernel_sends_through_the_port<R: Rig>() {
    const FRAMES: usize = 500;
    if !R::HAS_KERNEL {
        return not_applicable("kernel_sends_through_the_port", "path into Linux");
    }
    let spec = Spec { kernel: true, ..Spec::default() };
    let Some(mut bench) = Bench::<R>::open(spec, labeller::reflect) else { return };
    for (sent, number) in bench.begin(FRAMES).enumerate() {
        let frame = bench.frame(number, 200);
        if !bench.rig.kernel().is_some_and(|kernel| kernel.send(&frame)) {
            assert_eq!(sent, 0, "Linux could send {sent} frames and then no more");
            return not_applicable(
                "kernel_sends_through_the_port",
                "lane in the path of Linux's frames",
            );
        }
        if !bench.until(|bench| bench.at_peer.distinct() + 16 > sent) {
            break; // a frame was lost; the assertion below reports it
        }
    }
    bench.until(|bench| bench.at_peer.distinct() == FRAMES);
    bench.settle(QUIET);
    bench.at_peer.assert_complete("frames from Linux");
    assert_eq!(bench.processed(), 0, "frames from Linux do not pass the application");
    assert!(bench.count(PortCounter::FromKernelPackets) >= FRAMES as u64);
    bench.close();
}

/// Checks that datagrams with a partial checksum return with a valid one.
pub fn partial_checksums_are_completed<R: Rig>() {
    if !R::HAS_SOCKET {
        return not_applicable("partial_checksums_are_completed", "peer with a socket");
    }
    let Some(mut bench) = Bench::<R>::open(Spec::default(), labeller::reflect) else { return };
    let Some(socket) = bench.rig.socket() else { panic!("HAS_SOCKET, but no socket") };
    socket.set_nonblocking(true).expect("a socket");
    bench.applications(|application| application.echoes = true);
    let range = bench.begin(200);
    let mut echoes = Receipt::new(range.clone());
    let mut datagram = [0; 2048];
    for sequence in range {
        let payload = Tag { test: bench.test, sequence }.payload(16 + sequence as usize * 7);
        socket.send(&payload).expect("the peer's socket sends");
        let before = echoes.distinct();
        let is_echoed = bench.until(|bench| {
            let received = socket.recv(&mut datagram);
            received.iter().for_each(|length| echoes.record(bench.test, &datagram[..*length]));
            echoes.distinct() > before
        });
        if !is_echoed {
            break; // a frame was lost; the assertion below reports it
        }
    }
    echoes.assert_complete("echoes of datagrams with partial checksums");
    bench.close();
}
