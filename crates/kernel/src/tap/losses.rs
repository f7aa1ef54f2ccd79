//! What Linux could not put into a TAP device.

use std::io;

use crate::netlink::{self, Question, Request};

/// `IFLA_STATS_LINK_64`, which is also the first bit of the filter: `linux/if_link.h`.
const LINK_STATISTICS: u16 = 1;
/// Octets of `struct if_stats_msg`.
const HEADER: usize = 12;
/// Where `tx_dropped` stands in `struct rtnl_link_stats64`.
const TRANSMIT_DROPPED: usize = 7 * 8;

/// Asks for the frames that a TAP device dropped because nobody read them.
#[derive(Debug)]
pub(super) struct Losses {
    question: Question,
    last: u64,
}

impl Losses {
    pub(super) fn new(interface: u32) -> io::Result<Self> {
        let mut header = [0; HEADER];
        header[4..8].copy_from_slice(&interface.to_ne_bytes());
        header[8..].copy_from_slice(&1_u32.to_ne_bytes());
        let question = Question::new(Request::new(libc::RTM_GETSTATS, 0, &header))?;
        Ok(Self { question, last: 0 })
    }

    /// How many since the device was made; the last number known when the kernel does not answer.
    pub(super) fn read(&mut self) -> u64 {
        let mut buffer = [0; 1024];
        let answer = self.question.ask(&mut buffer);
        let dropped = answer.and_then(|answer| {
            let statistics = netlink::attribute(answer.get(HEADER..)?, LINK_STATISTICS)?;
            let word = statistics.get(TRANSMIT_DROPPED..)?.first_chunk()?;
            Some(u64::from_ne_bytes(*word))
        });
        self.last = dropped.unwrap_or(self.last);
        self.last
    }
}
