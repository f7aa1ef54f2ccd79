//! User plane of the mutants: frames on N3 and N6.

use std::time::{Duration, Instant};

use fastlane_testing::Peer;
use fastlane_testing::namespace::Wire;
use fastlane_tests::{Host, PATIENCE};

use crate::live_sessions::LiveSessions;
use crate::packets::{Kind, downlink, echo_request, echo_response, uplink};
use crate::random::Random;

/// Source port of Echo Requests. No mutant has it.
const PORT: u16 = 40_152;
/// Retransmission interval of Echo Requests. The UPF limits their rate.
const RETRANSMIT: Duration = Duration::from_millis(100);
/// Number of frames per downlink frame.
const DOWNLINKS: usize = 8;

/// The interfaces on N3 and N6.
#[derive(Debug)]
pub(crate) struct UserPlane {
    n3: Wire,
    n6: Wire,
    macs: [[u8; 6]; 2],
    echo: u16,
    /// Number of GTP-U frames to the UPF on N3.
    pub(crate) sent: u64,
    /// Number of other frames: on N3 with mutated outer headers, on N6 possibly to unknown
    /// addresses.
    pub(crate) strays: u64,
    /// Number of mutated frames on N3.
    pub(crate) mutants: u64,
}

impl UserPlane {
    /// Opens `n3` and `n6` of a host, towards these MAC addresses of the UPF.
    pub(crate) fn new(host: &Host, macs: [[u8; 6]; 2]) -> Self {
        let open = |name: &str| host.enter(|| Wire::open(name)).expect("a raw socket");
        let (n3, n6) = (open("n3"), open("n6"));
        Self { n3, n6, macs, echo: 0, sent: 0, strays: 0, mutants: 0 }
    }

    /// Sends `count` frames of gNBs, some of the data network, and an Echo Request behind them.
    /// Returns the frames.
    pub(crate) fn send(
        &mut self,
        random: &mut Random,
        live: &LiveSessions,
        count: usize,
    ) -> Vec<Vec<u8>> {
        let mut batch = Vec::with_capacity(count);
        for _ in 0..count {
            let (frame, kind) = uplink(random, self.macs[0], live);
            let is_sent = u64::from(self.n3.send(&frame));
            self.mutants += if kind == Kind::Valid { 0 } else { is_sent };
            *(if kind == Kind::Stray { &mut self.strays } else { &mut self.sent }) += is_sent;
            batch.push(frame);
            if random.is_one_in(DOWNLINKS) {
                let frame = downlink(random, self.macs[1], live);
                self.strays += u64::from(self.n6.send(&frame));
                batch.push(frame);
            }
        }
        self.send_echo_request();
        batch
    }

    fn send_echo_request(&mut self) {
        self.echo = self.echo.wrapping_add(1);
        let frame = echo_request(self.macs[0], PORT, self.echo);
        self.sent += u64::from(self.n3.send(&frame));
    }

    /// Waits for the response to the last Echo Request: the lane has processed everything before
    /// it. Returns false if there is none.
    #[must_use]
    pub(crate) fn wait(&mut self) -> bool {
        let end = Instant::now() + PATIENCE;
        let mut again = Instant::now() + RETRANSMIT;
        loop {
            let is_complete = self.drain(Duration::from_millis(10));
            if is_complete || Instant::now() > end {
                return is_complete;
            }
            if Instant::now() > again {
                again = Instant::now() + RETRANSMIT;
                self.send_echo_request();
            }
        }
    }

    /// Discards frames of the UPF, waiting for up to `wait`. Returns true if one of them responds
    /// to the last Echo Request.
    fn drain(&mut self, wait: Duration) -> bool {
        let mut is_complete = false;
        let mut wait = wait;
        while let Some(frame) = self.n3.receive(wait) {
            if echo_response(&frame, PORT) == Some(self.echo) {
                is_complete = true;
                wait = Duration::ZERO;
            }
        }
        while self.n6.receive(Duration::ZERO).is_some() {}
        is_complete
    }
}
