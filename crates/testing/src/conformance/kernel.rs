//! Linux behind the port.

use std::time::Duration;

use fastlane_core::{RawVerdict, Verdict};
use fastlane_table::counters::PortCounter;

use super::bench::{Bench, Entry, not_for_this_rig};
use super::labeller;
use super::receipt::Receipt;
use crate::{Rig, Spec, Tag};

/// Long enough for a frame that goes round to come again.
const QUIET: Duration = Duration::from_millis(100);

fn every_other(sequence: u32) -> RawVerdict {
    if sequence.is_multiple_of(2) { Verdict::Kernel.into() } else { Verdict::Reflect.into() }
}

/// Linux gets each frame labelled `Kernel` exactly once, and the application sees it once.
pub fn kernel_gets_each_frame_once<R: Rig>() {
    const FRAMES: usize = 1000;
    if !R::HAS_KERNEL {
        return not_for_this_rig("kernel_gets_each_frame_once", "way into Linux");
    }
    let spec = Spec { kernel: true, ..Spec::default() };
    let Some(mut bench) = Bench::<R>::open(spec, labeller::to_kernel) else { return };
    bench.window = 32;
    bench.exchange(Entry::Peer, FRAMES, 200);
    bench.settle(QUIET);
    bench.at_kernel.assert_complete("frames labelled Kernel");
    assert_eq!(bench.at_peer.distinct(), 0, "what Linux gets does not go back");
    assert_eq!(bench.seen(), FRAMES, "frames shown to the application");
    assert_eq!(bench.count(PortCounter::ToKernelPackets), FRAMES as u64);
    bench.close();
    drop(bench);

    let Some(mut bench) = Bench::<R>::open(spec, every_other) else { return };
    bench.window = 32;
    let range = bench.next()..bench.next() + FRAMES as u32;
    bench.exchange(Entry::Peer, FRAMES, 200);
    bench.settle(QUIET);
    let (even, odd): (Vec<u32>, Vec<u32>) = range.partition(|number| number % 2 == 0);
    assert_eq!(bench.at_kernel.seen(1), even, "at Linux");
    assert_eq!(bench.at_peer.seen(1), odd, "at the peer");
    assert_eq!(bench.seen(), FRAMES, "frames shown to the application");
    bench.close();
}

/// What Linux sends through the kernel peer of a port leaves by the port, once and in order.
pub fn kernel_sends_through_the_port<R: Rig>() {
    const FRAMES: usize = 500;
    if !R::HAS_KERNEL {
        return not_for_this_rig("kernel_sends_through_the_port", "way into Linux");
    }
    let spec = Spec { kernel: true, ..Spec::default() };
    let Some(mut bench) = Bench::<R>::open(spec, labeller::reflect) else { return };
    for (sent, number) in bench.begin(FRAMES).enumerate() {
        let frame = bench.frame(number, 200);
        if !bench.rig.kernel().is_some_and(|kernel| kernel.send(&frame)) {
            assert_eq!(sent, 0, "Linux could send {sent} frames and then no more");
            return not_for_this_rig("kernel_sends_through_the_port", "part in what Linux sends");
        }
        if !bench.until(|bench| bench.at_peer.distinct() + 16 > sent) {
            break; // one was lost, and the check below says so
        }
    }
    bench.until(|bench| bench.at_peer.distinct() == FRAMES);
    bench.settle(QUIET);
    bench.at_peer.assert_complete("frames from Linux");
    assert_eq!(bench.seen(), 0, "the application does not see what Linux sends");
    assert!(bench.count(PortCounter::FromKernelPackets) >= FRAMES as u64);
    bench.close();
}

/// A socket whose device leaves checksums partial gets valid answers.
pub fn partial_checksums_are_completed<R: Rig>() {
    if !R::HAS_SOCKET {
        return not_for_this_rig("partial_checksums_are_completed", "peer with a socket");
    }
    let Some(mut bench) = Bench::<R>::open(Spec::default(), labeller::reflect) else { return };
    let Some(socket) = bench.rig.socket() else { panic!("the rig says that it has a socket") };
    socket.set_nonblocking(true).expect("a socket");
    bench.applications(|application| application.answers = true);
    let range = bench.begin(200);
    let mut answers = Receipt::new(range.clone());
    let mut datagram = [0; 2048];
    for sequence in range {
        let payload = Tag { test: bench.test, sequence }.payload(16 + sequence as usize * 7);
        socket.send(&payload).expect("the peer's socket sends");
        let came = answers.distinct();
        let answered = bench.until(|bench| {
            let received = socket.recv(&mut datagram);
            received.iter().for_each(|length| answers.note(bench.test, &datagram[..*length]));
            answers.distinct() > came
        });
        if !answered {
            break; // one was lost, and the check below says so
        }
    }
    answers.assert_complete("answers to datagrams with partial checksums");
    bench.close();
}
