//! Two hosts joined by a veth pair.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::Host;

/// IPv4 address of the left host on `wire0`.
pub const LEFT: &str = "10.77.0.1";
/// IPv4 address of the right host on `wire0`.
pub const RIGHT: &str = "10.77.0.2";
/// MAC address of the left `wire0`.
pub const LEFT_MAC: &str = "02:00:00:00:77:01";
/// MAC address of the right `wire0`.
pub const RIGHT_MAC: &str = "02:00:00:00:77:02";

/// Two hosts joined by a veth pair with all offloads on: `wire0` in each. They also have `fd77::1`
/// and `fd77::2`.
#[derive(Debug)]
pub struct Lab {
    /// Host of the application under test.
    pub left: Host,
    /// Host of its peer.
    pub right: Host,
    directory: TempDir,
}

impl Lab {
    /// Creates both hosts. Their interfaces have `queues` queues. Returns `None` after a skip if
    /// that is not allowed.
    ///
    /// # Panics
    /// When the kernel refuses.
    #[track_caller]
    #[must_use]
    pub fn new(story: &str, queues: usize) -> Option<Self> {
        Self::beside(Host::new(story)?, story, queues)
    }

    /// Creates a lab with `left` as its left host, as [`new`](Self::new) does.
    pub(crate) fn beside(left: Host, story: &str, queues: usize) -> Option<Self> {
        let right = Host::new(story)?;
        let directory = TempDir::with_prefix("fastlane-story-").expect("a temporary directory");
        let lab = Self { left, right, directory };
        lab.join(queues, LEFT_MAC);
        Some(lab)
    }

    /// Creates the veth pair, whose left end has this MAC address; for a lab whose pair was
    /// removed.
    ///
    /// # Panics
    /// When the kernel refuses.
    #[track_caller]
    pub fn join(&self, queues: usize, left_mac: &str) {
        let count = queues.to_string();
        let end = ["numrxqueues", &count, "numtxqueues", &count];
        let far = self.right.path();
        let mut words = vec!["ip", "link", "add", "wire0", "address", left_mac];
        words.extend(end);
        words.extend(["type", "veth", "peer", "name", "wire0", "address", RIGHT_MAC]);
        words.extend(end);
        words.extend(["netns", &far]);
        self.left.run(&words);
        // The left end comes up last: from then on it carries traffic.
        for (host, four, six) in [(&self.right, RIGHT, "fd77::2"), (&self.left, LEFT, "fd77::1")] {
            host.run(&["ip", "address", "add", &format!("{four}/24"), "dev", "wire0"]);
            host.run(&["ip", "address", "add", &format!("{six}/64"), "dev", "wire0", "nodad"]);
            host.run(&["ip", "link", "set", "wire0", "up"]);
        }
    }

    /// Adds another veth pair without addresses, called `name` on both hosts.
    ///
    /// # Panics
    /// When the kernel refuses.
    #[track_caller]
    pub fn wire(&self, name: &str) {
        let far = self.right.path();
        let words = ["ip", "link", "add", name, "type", "veth", "peer", "name", name];
        self.left.run(&[&words[..], &["netns", &far]].concat());
        for host in [&self.left, &self.right] {
            host.run(&["ip", "link", "set", name, "addrgenmode", "none", "up"]);
        }
    }

    /// Creates a host without links. Returns `None` after a skip if that is not allowed.
    #[must_use]
    pub fn another(&self) -> Option<Host> {
        Host::new("another host")
    }

    /// Returns the directory of this lab's files. It is removed with the lab.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the path of a file of this lab.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory().join(name)
    }
}
