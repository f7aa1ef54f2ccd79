//! Whether Linux forwards, and what it asks of sources: what stands under
//! `/proc/sys/net/ipv4/conf` and `/proc/sys/net/ipv6/conf`, and says when it changes.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use fastlane_mirror::message::{Message, Netconf as Settings};
use fastlane_mirror::{NetconfEvents, NetconfListener};

/// What could not be read whole is read again after this time.
const RETRY: Duration = Duration::from_secs(1);

/// What Linux has said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Conf {
    /// Of each interface, [`Settings::ALL`] is one: whether it forwards IPv4, and its `rp_filter`.
    four: BTreeMap<i32, (bool, u8)>,
    six: BTreeMap<i32, bool>,
}

impl Conf {
    /// Whether IPv4 packets that come in by an interface are forwarded.
    pub(super) fn forwards4(&self, link: u32) -> bool {
        self.four.get(&(link as i32)).is_some_and(|(forwards, _)| *forwards)
    }

    /// The greater of the interface's and that of all (`IN_DEV_MAXCONF`).
    pub(super) fn reverse_path(&self, link: u32) -> u8 {
        let of = |link| self.four.get(&link).map_or(0, |(_, reverse_path)| *reverse_path);
        of(link as i32).max(of(Settings::ALL))
    }

    /// Whether IPv6 packets are forwarded (`ip6_forward` in `net/ipv6/ip6_output.c`).
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

    /// Takes in what Linux says.
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

/// Follows what Linux says, in the network namespace in which it was opened.
#[derive(Debug)]
pub(super) struct Netconf {
    listener: NetconfListener,
    /// Whether everything has to be read anew: something may lack.
    unread: bool,
    pub(super) conf: Conf,
}

impl Netconf {
    pub(super) fn open() -> io::Result<Self> {
        // Events first, so that nothing is missed.
        let listener = NetconfListener::open()?;
        let mut this = Self { listener, unread: true, conf: Conf::default() };
        this.read()?;
        Ok(this)
    }

    /// Takes in the events that are there. Whether something may differ.
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

    /// How long nothing has to be done unless an event comes; `None`: for good.
    pub(super) fn timeout(&self) -> Option<Duration> {
        self.unread.then_some(RETRY)
    }

    /// Reads everything. An interface that lacks forwards no IPv4, so that its packets are Linux's.
    fn read(&mut self) -> io::Result<()> {
        let mut fresh = Conf::default();
        self.unread = !self.listener.read(|message| fresh.take(&message))?;
        self.conf = fresh;
        Ok(())
    }
}

impl AsFd for Netconf {
    /// Can be read when there are events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

#[cfg(test)]
mod tests;
