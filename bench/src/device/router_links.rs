//! Links of a router to a client's and a server's side, in a network namespace of their own. What
//! arrives by a link is processed by a thread of the kernel, whose CPU time is counted.
//!
//! ```text
//! client ═ inside ─► NAPI thread ─► router ─► outside ═ server
//! ```
//!
//! All take turns on one CPU: a generator with real-time priority fills the queue of a link, so
//! nobody wakes another one for each packet. Then it waits on another CPU until the router has
//! polled the queue, and the other side has dropped what left or has sent it again. If it woke up
//! where the router is, the kernel would count the router's time until its next turn as that of the
//! waking thread (`rq_clock_skip_update`), as it cannot be interrupted while it polls.

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fastlane_kernel::Interface;

use crate::Result;
use crate::device::cpu_time::{other_core, pinned};
use crate::device::measured_program::cpu_of;
use crate::device::napi_thread::{poll_by_thread, run, succeed};
use crate::rivals::ffi;

/// Frames that are queued at once. The queue of a veth has room for 256.
pub const BATCH: u32 = 128;
/// CPU of the generator, the router and the sides.
pub const CPU: usize = 1;
/// Ethernet address of the router.
pub const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// Time in which a batch must have been dropped by the other side.
const PATIENCE: Duration = Duration::from_secs(5);

/// Direction of packets through the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client's side to the server's.
    ToServer,
    /// From the server's side to the client's.
    ToClient,
}

/// Two veth pairs. The router's ends have 10.255.0.1/8 and 20.255.0.1/8; the client's side has
/// 10.0.0.0/9 and the server's side 20.0.0.0/9, with permanent neighbours that drop all packets:
/// their Ethernet addresses are others.
pub struct RouterLinks {
    namespace: OwnedFd,
    /// Table of the interfaces' counters, of the namespace.
    counters: File,
    /// Ends: the client's, the router's two, the server's.
    client: String,
    inside: String,
    outside: String,
    server: String,
    /// An interface that receives nothing.
    unused: String,
    /// Folders in `/proc` of the threads that poll the router's ends.
    threads: Vec<PathBuf>,
}

impl RouterLinks {
    /// Creates the links. The calling thread is in their network namespace afterwards.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses something: it takes root.
    pub fn new() -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        ffi::unshare_network()?;
        let namespace: OwnedFd = File::open("/proc/thread-self/ns/net")?.into();
        // All processes of the machine share the names of threads.
        let number =
            format!("{}{}", std::process::id() % 10_000, NEXT.fetch_add(1, Ordering::Relaxed));
        let [client, inside, outside, server, unused] =
            ["c", "i", "o", "s", "u"].map(|it| it.to_owned() + &number);
        run(&format!("ip link add {unused} type veth"))?;
        for (near, far, net) in [(&inside, &client, 10), (&outside, &server, 20)] {
            run(&format!("ip link add {near} address 02:00:00:00:00:01 type veth peer {far}"))?;
            for end in [near, far] {
                run(&format!("ip link set {end} addrgenmode none up"))?;
                // Then the end has a NAPI thread, and takes redirected frames.
                run(&format!("ethtool -K {end} gro on tso off"))?;
            }
            run(&format!("ip address add {net}.255.0.1/8 dev {near}"))?;
            let to = "lladdr 02:00:00:00:00:09";
            run(&format!("ip neigh add {net}.255.0.2 {to} dev {near} nud permanent"))?;
            run(&format!("ip route add {net}.0.0.0/9 via {net}.255.0.2"))?;
        }
        for (key, value) in [
            ("ipv4/ip_forward", "1"),
            ("ipv4/conf/all/rp_filter", "0"),
            ("netfilter/nf_conntrack_udp_timeout", "3600"),
        ] {
            fs::write(format!("/proc/sys/net/{key}"), value)?;
        }
        let counters = File::open("/proc/thread-self/net/dev")?;
        let threads = Vec::new();
        Ok(Self { namespace, counters, client, inside, outside, server, unused, threads })
    }

    /// Gives each end a thread on [`CPU`]; those of the sides run when nobody else does. Programs
    /// must be attached to the ends before.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses it.
    pub fn poll_by_threads(&mut self) -> Result<()> {
        for (name, is_routers) in [
            (&self.client, false),
            (&self.inside, true),
            (&self.outside, true),
            (&self.server, false),
        ] {
            let thread = poll_by_thread(name, CPU)?;
            if is_routers {
                self.threads.push(thread);
            } else {
                let id = thread.file_name().unwrap_or_default().to_string_lossy().into_owned();
                run(&format!("chrt -i -p 0 {id}"))?;
            }
        }
        Ok(())
    }

    /// Returns the names of the router's ends: the client's and the server's link.
    #[must_use]
    pub fn ends(&self) -> [&str; 2] {
        [&self.inside, &self.outside]
    }

    /// Returns the name of the server's end.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Returns the name of an interface that receives nothing.
    #[must_use]
    pub fn unused(&self) -> &str {
        &self.unused
    }

    /// Returns the index of the interface by which a side sends.
    ///
    /// # Errors
    /// Returns an error if the calling thread is in another namespace.
    pub fn sender(&self, direction: Direction) -> Result<u32> {
        let name = match direction {
            Direction::ToServer => &self.client,
            Direction::ToClient => &self.server,
        };
        Ok(Interface::query(name)?.index)
    }

    /// Adds rules of nftables. `INSIDE` and `OUTSIDE` stand for the router's ends.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses them.
    pub fn add_rules(&self, rules: &str) -> Result<()> {
        let rules = rules.replace("INSIDE", &self.inside).replace("OUTSIDE", &self.outside);
        match rules.is_empty() {
            true => Ok(()),
            false => succeed(Command::new("nft").arg(rules), "nft"),
        }
    }

    /// Moves the calling thread to the namespace.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses it.
    pub fn enter(&self) -> Result<()> {
        Ok(rustix::thread::move_into_link_name_space(self.namespace.as_fd(), None)?)
    }

    /// Sends a batch by `send` and waits until all of it was dropped by the other side.
    ///
    /// # Errors
    /// Returns the error of `send`, or an error if packets are missing.
    pub fn pass(&mut self, direction: Direction, send: impl FnOnce() -> Result<()>) -> Result<()> {
        let (entrance, sink) = match direction {
            Direction::ToServer => (self.inside.clone(), self.server.clone()),
            Direction::ToClient => (self.outside.clone(), self.client.clone()),
        };
        let end = Instant::now() + PATIENCE;
        let wanted = self.polled([&entrance, &sink])?.map(|it| it + u64::from(BATCH));
        send()?;
        pinned(other_core(CPU), || {
            loop {
                let polled = self.polled([&entrance, &sink])?;
                if polled[0] >= wanted[0] && polled[1] >= wanted[1] {
                    return Ok(());
                }
                if Instant::now() > end {
                    let missing = [wanted[0].saturating_sub(polled[0]), wanted[1] - polled[1]];
                    return Err(
                        format!("{entrance} and {sink}: {missing:?} packets are missing").into()
                    );
                }
                std::thread::sleep(Duration::from_micros(50));
            }
        })
    }

    /// Returns the numbers of packets that two ends have polled.
    fn polled(&mut self, names: [&str; 2]) -> Result<[u64; 2]> {
        let mut text = String::new();
        self.counters.rewind()?;
        self.counters.read_to_string(&mut text)?;
        let mut counts = [0; 2];
        for (count, name) in counts.iter_mut().zip(names) {
            let line = text.lines().find_map(|line| line.trim_start().strip_prefix(name));
            let word = line.and_then(|it| it.trim_start_matches(':').split_whitespace().nth(1));
            *count = word.ok_or("an interface is not in /proc/net/dev")?.parse()?;
        }
        Ok(counts)
    }

    /// Returns the CPU time of the threads that poll the router's ends, in nanoseconds.
    ///
    /// # Errors
    /// Returns an error if a thread does not exist any more.
    pub fn cpu(&self) -> Result<u64> {
        let mut sum = 0;
        for thread in &self.threads {
            sum += cpu_of(thread)?;
        }
        Ok(sum)
    }
}
