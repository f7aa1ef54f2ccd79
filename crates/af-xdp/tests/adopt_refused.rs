//! Adoption that must fail: each refusal names its reason, and the queues can be opened anew.

mod support;

use std::time::{Duration, Instant};

use fastlane_af_xdp::{BoundMode, Error, Mode, QueueDescription, Settings};
use fastlane_core::{Burst, PortId, Queue};
use fastlane_steer::{Rule, Rules};
use fastlane_table::SharedMemory;
use fastlane_testing::Peer;
use fastlane_testing::namespace::{command, ip, quieten, set_link, veth, wait_until_up};
use support::handover::Handover;
use support::{
    count_new, datagram, device, echo, frame, in_namespace, map_as_before_linux_6_4, open, pool,
    settings, until, until_idle_for, wire,
};

const FRAMES: usize = 256;

fn ours() -> Settings {
    Settings { receive_ring: 1024, transmit_ring: 1024, ..settings("ours", Mode::Auto) }
}

/// Returns the handover of a lane on `ours` whose process has ended.
fn kept() -> Handover {
    let mut device = device(ours());
    let mut pool = pool(FRAMES);
    let opened = open(&mut pool, &mut device, vec![0]);
    Handover::after(pool, device, opened)
}

fn refusal(kept: &Handover, settings: Settings) -> Error {
    kept.adopt(settings).map(drop).expect_err("it cannot be taken over")
}

#[test]
fn other_sizes_are_refused() {
    in_namespace("other_sizes_are_refused", || {
        veth("ours", "peer", 1);
        let mut kept = kept();
        let is = kept.queues[0];
        assert_eq!((is.mode, is.umem, is.is_first), (BoundMode::NativeCopy, 0, true));
        let mut says = |queue: QueueDescription, settings: Settings, words: &str| {
            kept.queues[0] = queue;
            let error = refusal(&kept, settings);
            assert!(matches!(error, Error::NotAdoptable { queue: 0, .. }), "{error:?}");
            let beginning = format!("queue 0 of `ours` cannot be taken over: {words}");
            assert!(error.to_string().starts_with(&beginning), "{error}");
        };
        // The description contradicts the configuration.
        says(is, Settings { receive_ring: 512, ..ours() }, "the size of its receive ring was 1024");
        let fewer = Settings { transmit_ring: 512, ..ours() };
        says(is, fewer, "the size of its transmit ring was 1024 and is 512");
        says(is, Settings { need_wakeup: false, ..ours() }, "the use of wake-up flags was 1");
        says(QueueDescription { frames: 255, ..is }, ours(), "the number of frames was 255");
        says(QueueDescription { frame_size: 4096, ..is }, ours(), "the size of frames was 4096");
        // The description contradicts the socket.
        let rings = "its rings do not have the sizes written down";
        for size in [64, 512, 2048, 32768] {
            let (receive, transmit) = (
                Settings { receive_ring: size, ..ours() },
                Settings { transmit_ring: size, ..ours() },
            );
            says(QueueDescription { receive_ring: size, ..is }, receive, rings);
            says(QueueDescription { transmit_ring: size, ..is }, transmit, rings);
        }
        let mode = "its socket is not in the mode that was written down";
        says(QueueDescription { mode: BoundMode::ZeroCopy, ..is }, ours(), mode);
        kept.queues[0] = is;
        let memory = |bytes| SharedMemory::create("too-small", bytes).expect("memory");
        let half = kept.adopt_with(ours(), memory(FRAMES * 1024), 2048).map(drop);
        let error = half.expect_err("half of the frames").to_string();
        assert!(error.contains("the number of frames was 256 and is 128"), "{error}");
        for size in [0, 1024, 3000, 1 << 20] {
            let error = kept.adopt_with(ours(), memory(FRAMES * 2048), size).map(drop);
            assert!(matches!(error, Err(Error::FrameSize { .. })), "{error:?}");
        }
        // The true description is accepted.
        let (_device, mut pool, mut opened) = kept.adopt(ours()).expect("the description is true");
        opened[0].handle.close(&mut pool);
        assert_eq!(pool.missing(), 0);
    });
}

#[test]
fn descriptors_of_something_else_are_refused() {
    in_namespace("descriptors_of_something_else_are_refused", || {
        veth("ours", "peer", 1);
        let mut kept = kept();
        let memory = kept.descriptors[0].try_clone().expect("a descriptor");
        let socket = std::mem::replace(&mut kept.descriptors[5], memory);
        let error = refusal(&kept, ours()).to_string();
        assert!(error.contains("its descriptor is no AF_XDP socket"), "{error}");
        kept.descriptors[5] = socket;
        veth("other", "opeer", 1);
        let error = refusal(&kept, settings("other", Mode::Auto)).to_string();
        assert!(error.contains("its BPF link is on interface"), "{error}");
        // Two maps exchanged: kernel objects of the right kind with the wrong contents.
        kept.descriptors.swap(2, 3);
        let error = refusal(&kept, ours()).to_string();
        assert!(error.contains("its tables are not those of this version"), "{error}");
        kept.descriptors.swap(2, 3);
        ip("link delete ours");
        let error =
            refusal(&kept, Settings { index: kept.device.interface, ..settings("lo", Mode::Auto) });
        assert!(error.to_string().contains("is removed"), "{error}");
    });
}

#[test]
fn before_linux_6_4_the_caller_opens_anew() {
    in_namespace("before_linux_6_4_the_caller_opens_anew", || {
        veth("ours", "peer", 1);
        let kept = kept();
        map_as_before_linux_6_4();
        let error = refusal(&kept, ours());
        assert!(matches!(error, Error::AdoptionTooOld { .. }), "{error:?}");
        assert_eq!(
            error.to_string(),
            "the queues of `ours` cannot be taken over: that needs Linux 6.4; close their \
             descriptors and open them anew"
        );
    });
    in_namespace("after_a_refusal_the_caller_opens_anew", || {
        veth("ours", "peer", 1);
        let kept = kept();
        refusal(&kept, Settings { receive_ring: 64, ..ours() });
        drop(kept);
        let (mut pool, mut device) = (pool(FRAMES), device(ours()));
        let mut opened = open(&mut pool, &mut device, vec![0]);
        opened[0].handle.close(&mut pool);
        assert_eq!(pool.missing(), 0);
    });
}

#[test]
fn frames_in_flight_are_waited_for() {
    const SENT: usize = 40;
    in_namespace("frames_in_flight_are_waited_for", || {
        veth("ours", "peer", 1);
        // Frames that reach the peer leave by `hold` at 20 frames per second, and stay in flight of
        // the sender until then.
        veth("hold", "held", 1);
        ip("link add between type bridge");
        quieten("between");
        for port in ["peer", "hold"] {
            ip(&format!("link set {port} master between"));
        }
        command("tc", "qdisc add dev hold root tbf rate 160kbit burst 1600 limit 1mb");
        set_link("between", true);
        wait_until_up("between");
        let mut end = wire("held");
        let mut device = device(ours());
        let mut pool = pool(FRAMES);
        let mut opened = open(&mut pool, &mut device, vec![0]);
        for number in 0..SENT {
            let mut packet = pool.alloc_packet(1000, PortId(0)).expect("a frame");
            packet.bytes_mut().copy_from_slice(&frame(number as u32, 1000));
            packet.bytes_mut()[5] = 0x99; // of no interface here
            let sent = opened[0].handle.transmit(std::slice::from_mut(&mut packet), &mut pool);
            assert_eq!(sent.packets, 1);
            opened[0].handle.flush(&mut pool);
        }
        let kept = Handover::after(pool, device, opened);
        let start = Instant::now();
        let error = refusal(&kept, ours()).to_string();
        assert!(error.contains("frames are in flight and do not come back"), "{error}");
        assert!(start.elapsed() > Duration::from_millis(490), "it did not wait");
        let mut came = 0;
        let all = until(
            || 1,
            || {
                came += count_new(&mut end);
                came == SENT || start.elapsed() > Duration::from_secs(20)
            },
        );
        assert!(all && came == SENT, "{came} of {SENT} arrived");
        let (_device, mut pool, mut opened) = kept.adopt(ours()).expect("all are back");
        assert_eq!(pool.free(), FRAMES / 2, "what was sent is free");
        opened[0].handle.close(&mut pool);
        assert_eq!(pool.missing(), 0);
    });
}

#[test]
fn what_waits_in_the_rings_is_received_and_sent() {
    in_namespace("what_waits_in_the_rings_is_received_and_sent", || {
        veth("ours", "peer", 1);
        let mut peer = wire("peer");
        let mut device = device(ours());
        let mut pool = pool(FRAMES);
        let mut opened = open(&mut pool, &mut device, vec![0]);
        // Put into the transmit ring and never sent, because the link is down.
        set_link("ours", false);
        for number in 0..20 {
            let mut packet = pool.alloc_packet(80, PortId(0)).expect("a frame");
            packet.bytes_mut().copy_from_slice(&frame(number, 80));
            opened[0].handle.transmit(std::slice::from_mut(&mut packet), &mut pool);
            opened[0].handle.flush(&mut pool);
        }
        let kept = Handover::after(pool, device, opened);
        let (_, pool, opened) = kept.adopt(ours()).expect("a link that is down is no hindrance");
        assert_eq!(pool.free(), FRAMES / 2 - 20);
        drop((pool, opened));
        set_link("ours", true);
        wait_until_up("ours");
        (100..130).for_each(|number| assert!(peer.send(&frame(number, 60))));
        let claimed = || {
            let (device, ..) = kept.adopt(ours()).expect("as often as one likes");
            device.counts().expect("counts").claimed
        };
        assert!(until(|| 1, || claimed() == 30), "Linux has not taken them yet");
        let mut numbers: Vec<u32> = Vec::new();
        let (_device, mut pool, mut opened) = kept.adopt(ours()).expect("the description is true");
        let mut burst = Burst::new(8);
        let all = until(
            || echo(&mut opened[0].handle, &mut burst, &mut pool),
            || {
                while let Some(frame) = peer.receive(Duration::ZERO) {
                    numbers.extend(support::number(&frame));
                }
                numbers.len() >= 50
            },
        );
        assert!(all, "{numbers:?}");
        assert_eq!(numbers, (0..20).chain(100..130).collect::<Vec<_>>());
        while opened[0].handle.flush(&mut pool) {}
        assert_eq!(pool.free(), FRAMES / 2);
        opened[0].handle.close(&mut pool);
        assert_eq!(pool.missing(), 0);
    });
}

#[test]
fn an_adopted_device_counts_on_and_takes_new_rules() {
    in_namespace("an_adopted_device_counts_on_and_takes_new_rules", || {
        veth("ours", "peer", 1);
        let (mut sender, mut peer) = (wire("peer"), wire("peer"));
        let kept = kept();
        let (mut device, mut pool, mut opened) =
            kept.adopt(ours()).expect("the description is true");
        drop(kept);
        let mut burst = Burst::new(8);
        // Sends a datagram and another frame; returns how many come back before a second without
        // traffic.
        let mut back = || {
            assert!(sender.send(&datagram(1)) && sender.send(&frame(1, 60)));
            let mut came = 0;
            until_idle_for(
                Duration::from_secs(1),
                || echo(&mut opened[0].handle, &mut burst, &mut pool),
                || {
                    came += count_new(&mut peer);
                    false
                },
            );
            came
        };
        assert_eq!(back(), 2);
        let udp = Rule { udp_port: Some(40000.into()), ..Rule::default() };
        device.replace_rules(&Rules::new(vec![udp]).expect("a sound rule")).expect("rules");
        assert_eq!(back(), 1, "the datagram is fast, the other Linux's");
        let counts = device.counts().expect("counts");
        assert_eq!((counts.claimed, counts.passed), (3, 1));
        assert!(device.handover().is_some(), "it can be handed over again");
        opened[0].handle.close(&mut pool);
        assert!(opened[0].handle.handover().is_none());
        assert_eq!(pool.missing(), 0);
    });
}
