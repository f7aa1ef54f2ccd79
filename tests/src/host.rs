//! Hosts: network namespaces with the programs in them.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Output};

use fastlane_testing::namespace;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::Process;

/// A network namespace. It ends with its last reference.
#[derive(Debug)]
pub struct Host {
    namespace: File,
}

impl Host {
    /// Creates a namespace with `lo` only. Returns `None` after a skip if that is not allowed.
    ///
    /// # Panics
    /// When the kernel refuses for another reason.
    #[must_use]
    pub fn new(story: &str) -> Option<Self> {
        let create = || {
            let is_created = namespace::private(story);
            is_created
                .then(|| File::open("/proc/thread-self/ns/net").expect("the thread's namespace"))
        };
        let namespace = std::thread::scope(|scope| scope.spawn(create).join());
        namespace
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            .map(|namespace| Self { namespace })
    }

    /// Returns the host whose network namespace this file is.
    pub(crate) fn of(namespace: File) -> Self {
        Self { namespace }
    }

    /// Returns a path by which other processes can open the namespace while this process runs.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.namespace.as_raw_fd())
    }

    /// Returns a command in this namespace. Its process is the program itself.
    #[must_use]
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path())).arg("--").args(words);
        command.stdin(std::process::Stdio::null());
        command
    }

    /// Runs a program to its end, with any exit status.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    #[must_use]
    pub fn attempt(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("nsenter can be started")
    }

    /// Runs a program, which must succeed. Returns its standard output.
    ///
    /// # Panics
    /// When it fails, with its output.
    #[track_caller]
    pub fn run(&self, words: &[&str]) -> String {
        let output = self.attempt(words);
        let (stderr, stdout) =
            (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
        assert!(output.status.success(), "{words:?}: {}\n{stdout}{stderr}", output.status);
        stdout.into_owned()
    }

    /// Starts a program.
    #[track_caller]
    #[must_use]
    pub fn start(&self, words: &[&str]) -> Process {
        Process::start(self.command(words))
    }

    /// Runs a function on a thread in this namespace, so that its sockets belong to the namespace.
    ///
    /// # Panics
    /// When the function panics.
    pub fn enter<T: Send>(&self, function: impl FnOnce() -> T + Send) -> T {
        let enter = || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(self.namespace.as_fd(), kind).expect("the namespace is ours");
            function()
        };
        let done = std::thread::scope(|scope| scope.spawn(enter).join());
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Joins this host and another one by a veth pair. The interface has this name on both, and
    /// neither address nor offloads: a packet crosses the link at a time, with its checksum.
    ///
    /// # Panics
    /// When the kernel refuses.
    #[track_caller]
    pub fn connect(&self, far: &Self, name: &str) {
        let path = far.path();
        let words = ["ip", "link", "add", name, "type", "veth", "peer", "name", name];
        self.run(&[&words[..], &["netns", &path]].concat());
        for host in [self, far] {
            host.run(&["ip", "link", "set", name, "addrgenmode", "none", "up"]);
            let off = ["tx", "off", "tso", "off", "gso", "off", "gro", "off"];
            host.run(&[&["ethtool", "-K", name], &off[..]].concat());
        }
    }

    /// Adds an address with its prefix length to an interface.
    ///
    /// # Panics
    /// When the kernel refuses.
    #[track_caller]
    pub fn add_address(&self, interface: &str, address: &str) {
        self.run(&["ip", "address", "add", address, "dev", interface]);
    }

    /// Returns the MAC address of an interface.
    ///
    /// # Panics
    /// When there is no such interface.
    #[track_caller]
    #[must_use]
    pub fn mac(&self, interface: &str) -> String {
        let text = self.run(&["ip", "-j", "link", "show", "dev", interface]);
        let links: serde_json::Value = serde_json::from_str(&text).expect("JSON from ip");
        links[0]["address"].as_str().expect("a MAC address").to_owned()
    }

    /// Returns the counters of an interface as `ip -s -j link` prints them.
    ///
    /// # Panics
    /// When there is no such interface.
    #[track_caller]
    #[must_use]
    pub fn statistics(&self, interface: &str) -> serde_json::Value {
        let text = self.run(&["ip", "-s", "-j", "link", "show", "dev", interface]);
        let mut links: serde_json::Value = serde_json::from_str(&text).expect("JSON from ip");
        links[0]["stats64"].take()
    }
}
