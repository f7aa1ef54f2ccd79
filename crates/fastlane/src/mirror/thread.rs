//! Thread that applies netlink events to the mirror's tables.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use fastlane_mirror::{Follower, FollowerStatistics};
use fastlane_table::Doorbell;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::ingress::IngressTable;
use super::netconf::Netconf;
use super::statistics::MirrorMetrics;
use super::vlan_interfaces::VlanInterfaces;

/// Interval between attempts after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// Handle of the thread `mirror`. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct MirrorThread {
    signal: Arc<Signal>,
    statistics: Arc<Mutex<FollowerStatistics>>,
    thread: Option<JoinHandle<()>>,
}

impl MirrorThread {
    pub(super) fn start(
        follower: Follower,
        netconf: Netconf,
        ingress: Arc<IngressTable>,
        interfaces: VlanInterfaces,
    ) -> io::Result<Self> {
        let signal = Arc::new(Signal {
            doorbell: Doorbell::create()?,
            stop: AtomicBool::new(false),
            linux_interfaces: Mutex::default(),
        });
        let statistics = Arc::new(Mutex::new(follower.statistics()));
        let (theirs, shown) = (Arc::clone(&signal), Arc::clone(&statistics));
        let following = FollowLoop { follower, netconf, ingress, interfaces, shown };
        following.publish();
        let body = move || following.run(&theirs);
        let thread = std::thread::Builder::new().name("mirror".to_owned()).spawn(body)?;
        Ok(Self { signal, statistics, thread: Some(thread) })
    }

    /// Replaces the index of each port's interface in Linux, after an interface was created again.
    pub(crate) fn set_interfaces(&self, linux_interfaces: Vec<Option<u32>>) {
        *self.signal.lock() = Some(linux_interfaces);
        self.signal.doorbell.ring();
    }

    /// Returns the collector of its statistics, which stays valid after the end of the thread.
    pub(crate) fn metrics(&self) -> MirrorMetrics {
        MirrorMetrics::new(Arc::clone(&self.statistics))
    }
}

impl Drop for MirrorThread {
    fn drop(&mut self) {
        self.signal.stop.store(true, Ordering::Relaxed);
        self.signal.doorbell.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic has printed its message
        }
    }
}

/// Requests to the thread.
#[derive(Debug)]
struct Signal {
    doorbell: Doorbell,
    stop: AtomicBool,
    /// New interfaces of the ports.
    linux_interfaces: Mutex<Option<Vec<Option<u32>>>>,
}

impl Signal {
    fn lock(&self) -> MutexGuard<'_, Option<Vec<Option<u32>>>> {
        self.linux_interfaces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// State of the thread.
struct FollowLoop {
    follower: Follower,
    netconf: Netconf,
    ingress: Arc<IngressTable>,
    interfaces: VlanInterfaces,
    shown: Arc<Mutex<FollowerStatistics>>,
}

impl FollowLoop {
    fn run(mut self, signal: &Signal) {
        let mut failing = false;
        loop {
            let done = match self.wait(&signal.doorbell, failing) {
                Ok(true) if signal.stop.load(Ordering::Relaxed) => return,
                Ok(true) => {
                    signal.doorbell.drain();
                    self.replace_interfaces(signal.lock().take(), failing);
                    continue;
                }
                Ok(false) => self.step(),
                Err(error) => Err(error),
            };
            match done {
                Ok(()) if failing => {
                    failing = false;
                    tracing::info!("mirror: it follows Linux again");
                    self.publish();
                }
                Ok(()) => {}
                Err(error) if failing => tracing::debug!("mirror: {error}"),
                Err(error) => {
                    // The tables may be outdated from now on.
                    failing = true;
                    self.ingress.clear();
                    tracing::error!("mirror: {error}; meanwhile everything is left to Linux");
                }
            }
        }
    }

    /// Follows the interfaces of the ports. While the mirror fails, they are published later.
    fn replace_interfaces(&mut self, linux_interfaces: Option<Vec<Option<u32>>>, failing: bool) {
        let Some(linux_interfaces) = linux_interfaces else { return };
        self.interfaces.set_configured(linux_interfaces);
        self.interfaces.resolve(&self.follower);
        self.follower.set_ports(&super::ports_of(self.interfaces.interfaces()));
        if !failing {
            self.publish();
        }
    }

    /// Publishes the ingress interface of each port.
    fn publish(&self) {
        let takes_ipv6 = |link| self.follower.state().takes_ipv6(link);
        self.ingress.publish(self.interfaces.interfaces(), &self.netconf.conf, takes_ipv6);
    }

    /// Waits for events or a timeout. Returns true if the thread is signalled.
    fn wait(&self, signal: &Doorbell, failing: bool) -> Result<bool, String> {
        let timeouts = [self.follower.timeout(), self.netconf.timeout()];
        let timeout = if failing { Some(RETRY) } else { timeouts.into_iter().flatten().min() };
        let timeout = timeout.map(|time| Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        let mut files = vec![PollFd::new(signal, PollFlags::IN)];
        if !failing {
            files.push(PollFd::new(&self.follower, PollFlags::IN));
            files.push(PollFd::new(&self.netconf, PollFlags::IN));
        }
        match poll(&mut files, timeout.as_ref()) {
            Ok(_) => Ok(!files[0].revents().is_empty()),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(format!("waiting for netlink events failed ({error})")),
        }
    }

    fn step(&mut self) -> Result<(), String> {
        // Forwarding settings first: packets that Linux no longer forwards must stop at once.
        if self.netconf.step().map_err(|error| error.to_string())? {
            self.publish();
        }
        let done = self.follower.step().map_err(|error| error.to_string());
        if done.is_ok() {
            if self.interfaces.resolve(&self.follower) {
                self.follower.set_ports(&super::ports_of(self.interfaces.interfaces()));
            }
            self.publish(); // an interface may have begun to take IPv6 packets, or have ended it
        }
        self.follower.take_notices().iter().for_each(|notice| tracing::warn!("{notice}"));
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = self.follower.statistics();
        done
    }
}
