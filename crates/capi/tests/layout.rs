//! Tests that the packet layouts of C and Rust are the same 32 bytes.
#![allow(unsafe_code, reason = "two views of one packet")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fastlane::{HoldKey, Partial, PortId, RawVerdict, Turn, Verdict};
use fastlane_c::packet::{
    FL_DROP, FL_FORWARD, FL_FROM_KERNEL, FL_HOLD, FL_HOLD_MOST, FL_KERNEL, FL_MOVED, FL_PARTIAL,
    FL_PUNT, FL_REFLECT, Packet,
};

/// Application that compares both views of each packet.
struct Compare(Arc<AtomicUsize>);

impl fastlane::App for Compare {
    fn process(&mut self, packets: &mut [fastlane::Packet], turn: &mut Turn) {
        for packet in packets {
            same(packet);
            for step in [0, 1, 2, 3] {
                change(packet, |packet| packet.token &= !FL_MOVED);
                let is_done = match step {
                    0 => packet.prepend(8).is_some(),
                    1 => packet.append(4).is_some(),
                    2 => packet.trim_front(20),
                    _ => packet.truncate(30),
                };
                assert!(is_done && seen(packet).token & FL_MOVED != 0, "step {step}");
                same(packet);
            }
            labels(packet);
            flags(packet);
            // What C writes is what Rust reads.
            let token = seen(packet).token;
            change(packet, |packet| packet.token = u64::MAX);
            assert!(!packet.has_frame());
            change(packet, |packet| packet.token = token);
            assert!(packet.has_frame());
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        turn.end();
    }
}

fn seen(packet: &fastlane::Packet) -> Packet {
    // SAFETY: that both are laid out alike is what is tested; every bit pattern is one of `Packet`.
    unsafe { std::ptr::from_ref(packet).cast::<Packet>().read() }
}

fn change(packet: &mut fastlane::Packet, change: impl FnOnce(&mut Packet)) {
    // SAFETY: as in `seen`; no change here makes `data` null.
    change(unsafe { &mut *std::ptr::from_mut(packet).cast::<Packet>() });
}

#[track_caller]
fn same(packet: &fastlane::Packet) {
    let seen = seen(packet);
    assert_eq!(seen.data, packet.data().as_ptr());
    assert_eq!(seen.length as usize, packet.len());
    assert_eq!(usize::from(seen.headroom), packet.headroom());
    assert_eq!(usize::from(seen.tailroom), packet.tailroom());
    assert_eq!(PortId(seen.port), packet.port());
    assert_eq!(RawVerdict(seen.verdict), packet.verdict());
    assert_eq!(packet.port(), PortId(1), "`wire` comes after `other`");
}

fn labels(packet: &mut fastlane::Packet) {
    for (word, verdict) in [
        (FL_KERNEL, Verdict::Kernel),
        (FL_DROP, Verdict::Drop),
        (FL_REFLECT, Verdict::Reflect),
        (FL_FORWARD, Verdict::Forward(PortId(0))),
        (FL_FORWARD | 0xffff, Verdict::Forward(PortId(u16::MAX))),
        (FL_HOLD | 1, Verdict::Hold(HoldKey::new(1).unwrap())),
        (FL_HOLD | FL_HOLD_MOST, Verdict::Hold(HoldKey::new(HoldKey::MAX).unwrap())),
    ] {
        packet.set_verdict(verdict);
        assert_eq!(seen(packet).verdict, word);
        change(packet, |packet| packet.verdict = !word);
        assert_ne!(packet.verdict().verdict(), Some(verdict));
        change(packet, |packet| packet.verdict = word);
        assert_eq!(packet.verdict().verdict(), Some(verdict));
    }
}

fn flags(packet: &mut fastlane::Packet) {
    assert_eq!(seen(packet).flags & (FL_PARTIAL | FL_FROM_KERNEL), 0);
    packet.set_partial_checksum(Some(Partial { start: 14, offset: 2 }));
    assert_eq!(seen(packet).flags & (FL_PARTIAL | FL_FROM_KERNEL), FL_PARTIAL);
    packet.set_partial_checksum(None);
    assert!(!packet.is_from_kernel());
    change(packet, |packet| packet.flags |= FL_FROM_KERNEL);
    assert!(packet.is_from_kernel());
    change(packet, |packet| packet.flags &= !FL_FROM_KERNEL);
}

#[test]
fn both_sides_see_the_same_packet() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("configuration.json");
    let configuration = serde_json::json!({
        "ports": {
            "wire": { "driver": { "memory": { "fill": { "frames": 8, "length": 60 } } } },
            "other": { "driver": { "memory": {} } },
        },
        "session": folder.path().join("session.sock"),
    });
    std::fs::write(&path, configuration.to_string()).unwrap();
    let compared = Arc::new(AtomicUsize::new(0));
    let arguments = ["layout".into(), path.into_os_string()];
    let factory = |_: &fastlane::LaneInfo<'_>| Ok(Compare(Arc::clone(&compared)));
    assert_eq!(fastlane::main_from(arguments, &Arc::default(), factory), 0);
    assert_eq!(compared.load(Ordering::Relaxed), 8);
    assert_eq!(FL_PUNT, fastlane::PUNT);
}
