//! AF_XDP on veth pairs, each test in a network namespace of its own.

mod support;

use fastlane_af_xdp::{Mode, Obtained};
use fastlane_core::{Burst, Queue};
use support::{Peer, device, echo, frame, in_namespace, number, open, pair, pool, settings, until};

const COPIES: [(Mode, Obtained); 2] =
    [(Mode::NativeCopy, Obtained::NativeCopy), (Mode::GenericCopy, Obtained::GenericCopy)];

#[test]
fn the_tail_comes_back() {
    in_namespace("the_tail_comes_back", || {
        pair("ours", "peer", 1);
        let peer = Peer::new("peer");
        for (mode, obtained) in COPIES {
            for burst in [1, 32, 64, 256] {
                let mut pool = pool(4096);
                let mut device = device(settings("ours", mode));
                let mut opened = open(&mut pool, &mut device, vec![0]);
                assert_eq!(opened[0].mode, obtained);
                let queue = &mut opened[0].handle;
                let mut burst = Burst::new(burst);
                for count in [1, 32, 33, 64, 65, 128, 256, 512, 1000] {
                    (0..count).for_each(|number| assert!(peer.send(&frame(number, 60))));
                    let mut next = 0;
                    let back = until(
                        || echo(queue, &mut burst, &mut pool),
                        || {
                            while let Some(frame) = peer.receive() {
                                assert_eq!(number(&frame), Some(next), "{mode} {count}");
                                next += 1;
                            }
                            next == count
                        },
                    );
                    assert!(back, "{mode}: {next} of {count} came back");
                }
                queue.close(&mut pool);
                assert_eq!(pool.free(), pool.frames());
            }
        }
    });
}
