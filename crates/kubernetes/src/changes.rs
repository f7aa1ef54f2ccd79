//! Waiting for changes without polling: of interfaces by netlink, of directories by inotify.
//!
//! Each has a period after which it returns anyway, for what the kernel does not tell. It is short
//! if the kernel refuses the subscription.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use fastlane::kernel::LinkEvents;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::net::unix::pipe::Receiver;

/// Period while the kernel tells the changes.
const SLOW: Duration = Duration::from_secs(30);
/// Period if it does not.
const FAST: Duration = Duration::from_secs(1);

/// Changes of interfaces or of a directory. What has changed is for the caller to look at.
#[derive(Debug)]
pub(crate) struct Changes(Option<Receiver>);

impl Changes {
    /// Follows the interfaces in the network namespace of this thread from now on.
    pub(crate) fn of_interfaces() -> Self {
        let events = || LinkEvents::open()?.as_fd().try_clone_to_owned();
        Self::told(events(), "interfaces")
    }

    /// Follows the entries of a directory, which exists, from now on.
    pub(crate) fn of_directory(directory: &Path) -> Self {
        let events = || {
            let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            let entries = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVE;
            let itself = WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
            inotify::add_watch(&events, directory, entries | itself)?;
            Ok(events)
        };
        Self::told(events(), &directory.display().to_string())
    }

    /// Waits for the descriptor of a subscription as for a pipe: it is read in the same way.
    fn told(events: io::Result<OwnedFd>, what: &str) -> Self {
        let events = events.and_then(Receiver::from_owned_fd_unchecked);
        let report = |error: &io::Error| {
            let period = FAST.as_secs();
            tracing::warn!("{what}: changes are looked for every {period} s: {error}");
        };
        Self(events.inspect_err(report).ok())
    }

    /// Waits until something may have changed.
    pub(crate) async fn next(&mut self) {
        let Some(events) = &self.0 else { return tokio::time::sleep(FAST).await };
        if tokio::time::timeout(SLOW, events.readable()).await.is_err() {
            return;
        }
        let mut texts = [0; 4096];
        loop {
            match events.try_read(&mut texts) {
                Ok(length) if length > 0 => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Events were lost, or the subscription has ended.
                _ => return tokio::time::sleep(FAST).await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than the short period, shorter than the long one.
    const BETWEEN: Duration = Duration::from_millis(1500);
    const LONG: Duration = Duration::from_secs(20);

    fn run(story: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(story);
    }

    #[test]
    fn an_entry_of_a_directory_wakes_and_nothing_else_does() {
        let directory = tempfile::tempdir().unwrap();
        run(async {
            let mut changes = Changes::of_directory(directory.path());
            let socket = directory.path().join("kubelet.sock");
            for _ in 0..2 {
                assert!(tokio::time::timeout(BETWEEN, changes.next()).await.is_err());
                std::fs::write(&socket, "").unwrap();
                assert!(tokio::time::timeout(LONG, changes.next()).await.is_ok());
                std::fs::remove_file(&socket).unwrap();
                assert!(tokio::time::timeout(LONG, changes.next()).await.is_ok());
            }
        });
    }

    #[test]
    fn a_change_of_an_interface_wakes_and_nothing_else_does() {
        let namespace = || {
            if !fastlane_testing::namespace::private("interface changes") {
                return;
            }
            run(async {
                let mut changes = Changes::of_interfaces();
                for state in ["down", "up"] {
                    assert!(tokio::time::timeout(BETWEEN, changes.next()).await.is_err());
                    fastlane_testing::namespace::ip(&format!("link set lo {state}"));
                    assert!(tokio::time::timeout(LONG, changes.next()).await.is_ok());
                }
            });
        };
        std::thread::spawn(namespace).join().unwrap();
    }

    #[test]
    fn without_a_subscription_the_period_is_short() {
        run(async {
            let mut changes = Changes::of_directory(Path::new("/fastlane/none"));
            assert!(tokio::time::timeout(LONG, changes.next()).await.is_ok());
        });
    }
}
