//! Opening that must fail: each error names its reason and the remedy, and nothing stays behind.

mod support;

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fastlane_af_xdp::{
    BoundMode, BusyPoll, Device, Error, Mode, OpenRequest, Settings, longest_frame, open_lane,
};
use fastlane_core::{Pool, PortId, Queue};
use fastlane_steer::Rules;
use fastlane_table::SharedMemory;
use fastlane_testing::namespace::{ip, veth};
use rustix::process::{Resource, Rlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};
use support::{device, in_namespace, open, pool, settings};

fn refusal(pool: &mut Pool, device: &mut Device, queues: Vec<u32>) -> Error {
    let free = pool.free();
    let requests = &mut [OpenRequest { device, port: PortId(0), queues }];
    let error = open_lane(pool, requests).expect_err("it is refused");
    assert_eq!(pool.free(), free, "a refusal gives all frames back");
    error
}

#[test]
fn zero_copy_on_veth_is_refused_and_auto_falls_back_to_copy() {
    in_namespace("zero_copy_on_veth_is_refused", || {
        veth("ours", "peer", 1);
        let mut pool = pool(256);
        let mut zero_copy = device(settings("ours", Mode::ZeroCopy));
        let error = refusal(&mut pool, &mut zero_copy, vec![0]);
        assert!(matches!(error, Error::ModeUnavailable { .. }), "{error:?}");
        assert_eq!(
            error.to_string(),
            "zero-copy is not available on `ours` (the driver refuses zero-copy as it is \
             configured now: Operation not supported (os error 95)); use \"mode\": \"auto\""
        );
        drop(zero_copy);
        let mut auto = device(settings("ours", Mode::Auto));
        let mut opened = open(&mut pool, &mut auto, vec![0]);
        assert_eq!((opened[0].mode, auto.is_native()), (BoundMode::NativeCopy, true));
        assert_eq!(opened[0].mode.to_string(), "native copy");
        let reason = "copies, because the driver refuses zero-copy as it is configured now: \
                      Operation not supported (os error 95)";
        assert_eq!(opened[0].notes, [reason]);
        opened[0].handle.close(&mut pool);

        // The loopback interface has no XDP of its own.
        ip("link set lo up");
        let native = Device::open(settings("lo", Mode::NativeCopy), &Rules::default(), 1792);
        let error = native.expect_err("lo runs no XDP");
        assert!(error.to_string().starts_with("native copy is not available on `lo`"), "{error}");
        let mut auto = device(settings("lo", Mode::Auto));
        let mut opened = open(&mut pool, &mut auto, vec![0]);
        assert_eq!((opened[0].mode, auto.is_native()), (BoundMode::GenericCopy, false));
        let notes = &opened[0].notes;
        assert!(
            matches!(&notes[..], [note] if note.starts_with("generic mode, because")),
            "{notes:?}"
        );
        opened[0].handle.close(&mut pool);
        assert_eq!(pool.free(), 256);
    });
}

#[test]
fn a_queue_that_is_held_and_one_that_is_not_there_are_named() {
    in_namespace("a_queue_that_is_held", || {
        veth("ours", "peer", 2);
        let (mut pool, mut other) = (pool(256), pool(256));
        let mut device = device(settings("ours", Mode::Auto));
        let mut opened = open(&mut pool, &mut device, vec![1]);
        // Queue 0 is free; it must be closed again when 1 is refused.
        let error = refusal(&mut other, &mut device, vec![0, 1]);
        assert!(matches!(&error, Error::QueueBusy { queue: 1, .. }), "{error:?}");
        assert!(error.to_string().starts_with("queue 1 of `ours` is busy"), "{error}");
        let error = refusal(&mut other, &mut device, vec![2]);
        assert!(matches!(&error, Error::NoQueue { queue: 2, .. }), "{error:?}");
        assert!(error.to_string().contains("ethtool -L ours"), "{error}");

        let second = Device::open(settings("ours", Mode::Auto), &Rules::default(), 1792);
        let error = second.expect_err("there is a program already").to_string();
        assert!(error.contains("another XDP program is attached to `ours`"), "{error}");
        let mut opened_again = open(&mut other, &mut device, vec![0]);
        opened_again[0].handle.close(&mut other);
        opened[0].handle.close(&mut pool);
        ip("link delete ours");
        let error = refusal(&mut other, &mut device, vec![0]);
        assert!(matches!(&error, Error::NoInterface { .. }), "{error:?}");
    });
}

#[test]
fn sizes_that_af_xdp_does_not_have_are_refused() {
    in_namespace("sizes_that_af_xdp_does_not_have", || {
        veth("ours", "peer", 1);
        let odd = Settings { receive_ring: 1000, ..settings("ours", Mode::Auto) };
        let error = Device::open(odd, &Rules::default(), 1792).expect_err("no power of two");
        assert_eq!(
            error.to_string(),
            "`ours`: receive-ring of 1000 slots: it must be a power of two from 64 to 32768"
        );
        let memory = SharedMemory::create("small-frames", 64 * 1024).expect("memory");
        let mut small = Pool::new(memory, 1024, 192).expect("a pool");
        let mut device = device(settings("ours", Mode::Auto));
        let error = refusal(&mut small, &mut device, vec![0]);
        assert!(matches!(error, Error::FrameSize { size: 1024, .. }), "{error:?}");
        assert_eq!(longest_frame(2048), 1792);
    });
}

#[test]
fn busy_polling_that_is_refused_is_a_note() {
    in_namespace("busy_polling_that_is_refused", || {
        veth("ours", "peer", 1);
        let busy_poll = Some(BusyPoll { microseconds: 20, budget: 64 });
        let mut device = device(Settings { busy_poll, ..settings("ours", Mode::Auto) });
        for privileged in [true, false] {
            if !privileged {
                without(CapabilitySet::NET_ADMIN);
            }
            let mut pool = pool(256);
            let requests =
                &mut [OpenRequest { device: &mut device, port: PortId(0), queues: vec![0] }];
            let mut opened = open_lane(&mut pool, requests).expect("it opens all the same");
            let is_refused = opened[0].notes.iter().any(|note| note.contains("BUSY_POLL"));
            assert_eq!(is_refused, !privileged, "{:?}", opened[0].notes);
            opened[0].handle.close(&mut pool);
        }
    });
}

/// Removes capabilities from this thread.
fn without(taken: CapabilitySet) {
    let now = rustix::thread::capabilities(None).expect("capabilities");
    let effective = now.effective.difference(taken);
    rustix::thread::set_capabilities(None, CapabilitySets { effective, ..now }).expect("fewer");
}

#[test]
fn a_missing_capability_is_named() {
    in_namespace("a_missing_capability", || {
        veth("ours", "peer", 1);
        let mut ours = device(settings("ours", Mode::Auto));
        without(CapabilitySet::NET_RAW);
        let mut pool = pool(64);
        let error = refusal(&mut pool, &mut ours, vec![0]);
        assert!(error.to_string().starts_with("CAP_NET_RAW missing"), "{error}");
        // CAP_SYS_ADMIN includes CAP_NET_ADMIN for BPF.
        without(CapabilitySet::NET_ADMIN | CapabilitySet::SYS_ADMIN);
        let error = Device::open(settings("peer", Mode::Auto), &Rules::default(), 1792);
        let error = error.expect_err("no privilege").to_string();
        assert!(error.contains("CAP_NET_ADMIN missing"), "{error}");
    });
}

#[test]
fn a_small_limit_of_locked_memory_is_named() {
    in_namespace("a_small_limit_of_locked_memory", || {
        veth("ours", "peer", 1);
        let mut device = device(settings("ours", Mode::Auto));
        // The limit is the process's; the other tests' threads have CAP_IPC_LOCK, which lifts it.
        let limit = Rlimit { current: Some(64 * 1024), maximum: Some(64 * 1024) };
        rustix::process::setrlimit(Resource::Memlock, limit).expect("a lower limit");
        let mut pool = pool(256);
        let mut opened = open(&mut pool, &mut device, vec![0]);
        opened[0].handle.close(&mut pool);
        without(CapabilitySet::IPC_LOCK);
        let error = refusal(&mut pool, &mut device, vec![0]);
        assert_eq!(
            error.to_string(),
            "out of locked memory: `ulimit -l` is 64 KiB for all lanes together, the pool of one \
             needs 512 KiB; raise the limit (systemd: LimitMEMLOCK=), give the program \
             CAP_IPC_LOCK, or configure fewer \"frames\""
        );
    });
}

/// Set for the process that [`after_a_kill_the_interface_is_free_at_once`] kills.
const HOLD: &str = "FASTLANE_AF_XDP_HOLD";

#[test]
fn hold_until_killed() {
    if std::env::var_os(HOLD).is_none() {
        return; // it is not that process
    }
    let mut pool = pool(256);
    let mut device = device(settings("ours", Mode::Auto));
    let _opened = open(&mut pool, &mut device, vec![0]);
    println!("holding");
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn after_a_kill_the_interface_is_free_at_once() {
    in_namespace("after_a_kill", || {
        veth("ours", "peer", 1);
        for _ in 0..3 {
            let program = std::env::current_exe().expect("this program");
            let mut child = Command::new(program)
                .args(["--exact", "hold_until_killed", "--nocapture", "--test-threads=1"])
                .env(HOLD, "1")
                .stdout(Stdio::piped())
                .spawn()
                .expect("a process");
            let (mut said, mut piece) = (Vec::new(), [0; 256]);
            let output = child.stdout.as_mut().expect("its output");
            while !said.windows(7).any(|word| word == b"holding") {
                let length = output.read(&mut piece).expect("output");
                assert!(length > 0, "it ended: {}", String::from_utf8_lossy(&said));
                said.extend_from_slice(&piece[..length]);
            }
            child.kill().expect("SIGKILL");
            child.wait().expect("its end");
            let start = Instant::now();
            let mut device = loop {
                let opened = Device::open(settings("ours", Mode::Auto), &Rules::default(), 1792);
                match opened {
                    Ok(device) => break device,
                    // The kernel ends a link shortly after its process.
                    Err(error) => assert!(start.elapsed() < Duration::from_secs(3), "{error}"),
                }
            };
            let mut pool = pool(256);
            let mut opened = open(&mut pool, &mut device, vec![0]);
            opened[0].handle.close(&mut pool);
        }
    });
}
