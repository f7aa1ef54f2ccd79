//! Forwarding and reverse-path settings of interfaces (`/proc/sys/net/ipv4/conf`,
//! `/proc/sys/net/ipv6/conf`), followed by netlink events.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use fastlane_mirror::message::{Message, Netconf as Settings};
use fastlane_mirror::{NetconfEvents, NetconfListener};

/// Interval after which an interrupted read is repeated.
const RETRY: Duration = Duration::from_secs(1);

/// Current settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Conf {
    /// IPv4 forwarding and `rp_filter` by interface, including [`Settings::ALL`].
    four: BTreeMap<i32, (bool, u8)>,
    /// IPv6 forwarding by interface.
    six: BTreeMap<i32, bool>,
}

impl Conf {
    /// Returns true if Linux forwards IPv4 packets that arrive on the interface.
    pub(super) fn forwards4(&self, link: u32) -> bool {
        self.four.get(&(link as i32)).is_some_and(|(forwards, _)| *forwards)
    }

    /// Returns `rp_filter` of an interface: the maximum of its own and that of `all`
    /// (`IN_DEV_MAXCONF`).
    pub(super) fn reverse_path(&self, link: u32) -> u8 {
        let of = |link| self.four.get(&link).map_or(0, |(_, reverse_path)| *reverse_path);
        of(link as i32).max(of(Settings::ALL))
    }

    /// Returns true if Linux forwards IPv6 packets (`ip6_forward` in `net/ipv6/ip6_output.c`).
    pub(super) fn forwards6(&self) -> bool {
        self.six.get(&Settings::ALL).copied().unwrap_or(false)
    }

    pub(super) fn say4(&mut self, link: i32, forwards: Option<bool>, reverse_path: Option<u8>) {
        let known = self.four.entry(link).or_default();
        *known = (forwards.unwrap_or(known.0), reverse_path.unwrap_or(known.1));
    }

    pub(super) fn say6(&mut self, link: i32, forwards: bool) {
        self.six.insert(link, forwards);
    }

    /// Applies a netlink message.
    fn take(&mut self, message: &Message) {
        match message {
            Message::Netconf(said) if !said.ipv6 => {
                self.say4(said.link, said.forwards, said.reverse_path);
            }
            Message::Netconf(said) => {
                if let Some(forwards) = said.forwards {
                    self.say6(said.link, forwards);
                }
            }
            Message::NetconfRemoved(gone) if gone.ipv6 => {
                self.six.remove(&gone.link);
            }
            Message::NetconfRemoved(gone) => {
                self.four.remove(&gone.link);
            }
            _ => {}
        }
    }
}

/// Listener that keeps the settings up to date, in the network namespace in which it was opened.
#[derive(Debug)]
pub(super) struct Netconf {
    listener: NetconfListener,
    /// True if everything must be read again, because an event may have been lost.
    unread: bool,
    pub(super) conf: Conf,
}

impl Netconf {
    pub(super) fn open() -> io::Result<Self> {
        // Subscribe before the first read, so that no event is missed.
        let listener = NetconfListener::open()?;
        let mut this = Self { listener, unread: true, conf: Conf::default() };
        this.read()?;
        Ok(this)
    }

    /// Applies all queued events. Returns true if a setting may have changed.
    pub(super) fn step(&mut self) -> io::Result<bool> {
        let heard = self.listener.hear(|message| self.conf.take(&message));
        self.unread |= matches!(heard, Err(_) | Ok(NetconfEvents::Lost));
        let heard = heard?;
        let unread = self.unread;
        if unread {
            self.read()?;
        }
        Ok(unread || heard != NetconfEvents::Nothing)
    }

    /// Returns the time until the next step is due without an event; `None` if none is due.
    pub(super) fn timeout(&self) -> Option<Duration> {
        self.unread.then_some(RETRY)
    }

    /// Reads all settings. A missing interface counts as not forwarding, so its packets go to
    /// Linux.
    fn read(&mut self) -> io::Result<()> {
        let mut fresh = Conf::default();
        self.unread = !self.listener.read(|message| fresh.take(&message))?;
        self.conf = fresh;
        Ok(())
    }
}

impl AsFd for Netconf {
    /// Returns the netlink socket, readable when events are queued.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

#[cfg(test)]
mod tests;
