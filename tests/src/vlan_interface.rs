//! VLAN interfaces of hosts, also where the kernel has none.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use fastlane_testing::Peer;
use fastlane_testing::namespace::Wire;

use crate::Host;

/// EtherType of IEEE 802.1Q tags.
const TAG_TYPE: [u8; 2] = [0x81, 0x00];

/// A VLAN interface: one of Linux, or, on a kernel without VLANs (8021q), a veth pair between which
/// and the link a thread adds and removes the tags. Dropping it removes the interface.
#[derive(Debug)]
pub struct Vlan {
    /// Path of the namespace with the link, and the interface to remove there.
    removed: (String, String),
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Vlan {
    /// Adds VLAN `id` of an interface of the host `on`, as the interface `name` of `host`, which is
    /// down.
    ///
    /// # Panics
    /// When the kernel refuses.
    #[track_caller]
    #[must_use]
    pub fn add(on: &Host, interface: &str, id: u16, name: &str, host: &Host) -> Self {
        let number = id.to_string();
        let words = ["ip", "link", "add", "link", interface, "name", name, "type", "vlan", "id"];
        let added = on.attempt(&[&words[..], &[&number]].concat());
        let end = Arc::<AtomicBool>::default();
        if added.status.success() {
            if on.path() != host.path() {
                on.run(&["ip", "link", "set", name, "netns", &host.path()]);
            }
            return Self { removed: (host.path(), name.to_owned()), end, thread: None };
        }
        let refusal = String::from_utf8_lossy(&added.stderr).into_owned();
        assert!(refusal.contains("Unknown device type"), "{words:?}: {refusal}");
        let inner = format!("{name}t");
        let mac = on.mac(interface);
        let words = ["ip", "link", "add", &inner, "type", "veth", "peer", "name", name];
        on.run(&[&words[..], &["address", &mac, "netns", &host.path()]].concat());
        on.run(&["ip", "link", "set", &inner, "addrgenmode", "none", "up"]);
        host.run(&["ethtool", "-K", name, "tx", "off", "tso", "off", "gso", "off"]);
        let open = |name: &str| Wire::open(name).expect("a raw socket");
        let wires = on.enter(|| [open(interface), open(&inner)]);
        let is_over = Arc::clone(&end);
        let thread = std::thread::spawn(move || relay(wires, id, &is_over));
        Self { removed: (on.path(), inner), end, thread: Some(thread) }
    }

    /// Returns true if the kernel has VLAN interfaces.
    #[must_use]
    pub fn is_of_linux(&self) -> bool {
        self.thread.is_none()
    }
}

impl Drop for Vlan {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let (namespace, name) = &self.removed;
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={namespace}")).args(["--", "ip", "link", "delete", name]);
        let _ = command.output(); // it may have ended with its link
    }
}

/// Passes frames of a VLAN between a link and an interface without tags.
fn relay([mut link, mut inner]: [Wire; 2], id: u16, is_over: &AtomicBool) {
    let [high, low] = id.to_be_bytes();
    while !is_over.load(Ordering::Relaxed) {
        let mut is_idle = true;
        while let Some(mut frame) = link.receive(Duration::ZERO) {
            is_idle = false;
            let is_mine = frame.len() >= 18
                && frame[12..14] == TAG_TYPE
                && [frame[14] & 0x0f, frame[15]] == [high, low];
            if is_mine {
                frame.drain(12..16);
                inner.send(&frame);
            }
        }
        while let Some(mut frame) = inner.receive(Duration::ZERO) {
            is_idle = false;
            frame.splice(12..12, [TAG_TYPE[0], TAG_TYPE[1], high, low]);
            link.send(&frame);
        }
        if is_idle {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}
