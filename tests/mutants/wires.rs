//! The user plane of the mutants: frames on N3 and N6.

use std::time::{Duration, Instant};

use fastlane_testing::Peer;
use fastlane_testing::namespace::Wire;
use fastlane_tests::{Host, PATIENCE};

use crate::chance::Chance;
use crate::live::Live;
use crate::packets::{Kind, downlink, echo, echoed, uplink};

/// The UDP port that echo requests are sent from, which no mutant is.
const PORT: u16 = 40_152;
/// After so long an echo request that is not answered is sent again: their rate is limited.
const AGAIN: Duration = Duration::from_millis(100);
/// Of so many frames one is of the data network.
const DOWNLINKS: usize = 8;

/// Both.
#[derive(Debug)]
pub(crate) struct Wires {
    n3: Wire,
    n6: Wire,
    macs: [[u8; 6]; 2],
    echo: u16,
    /// Frames on N3 that are GTP-U to the UPF.
    pub(crate) sent: u64,
    /// All others: on N3 those that are changed all over, on N6 those to addresses of no pool.
    pub(crate) strays: u64,
    /// Frames on N3 that are mutants.
    pub(crate) mutants: u64,
}

impl Wires {
    /// On the interfaces `n3` and `n6` of a host, towards these addresses of the UPF.
    pub(crate) fn new(host: &Host, macs: [[u8; 6]; 2]) -> Self {
        let open = |name: &str| host.enter(|| Wire::open(name)).expect("a raw socket");
        let (n3, n6) = (open("n3"), open("n6"));
        Self { n3, n6, macs, echo: 0, sent: 0, strays: 0, mutants: 0 }
    }

    /// Sends so many frames of base stations and some of the data network, and an echo request
    /// behind them. Returns them.
    pub(crate) fn send(&mut self, chance: &mut Chance, live: &Live, count: usize) -> Vec<Vec<u8>> {
        let mut batch = Vec::with_capacity(count);
        for _ in 0..count {
            let (frame, kind) = uplink(chance, self.macs[0], live);
            let is_sent = u64::from(self.n3.send(&frame));
            self.mutants += if kind == Kind::Valid { 0 } else { is_sent };
            *(if kind == Kind::Stray { &mut self.strays } else { &mut self.sent }) += is_sent;
            batch.push(frame);
            if chance.is_one_in(DOWNLINKS) {
                let frame = downlink(chance, self.macs[1], live);
                self.strays += u64::from(self.n6.send(&frame));
                batch.push(frame);
            }
        }
        self.ask();
        batch
    }

    fn ask(&mut self) {
        self.echo = self.echo.wrapping_add(1);
        let frame = echo(self.macs[0], PORT, self.echo);
        self.sent += u64::from(self.n3.send(&frame));
    }

    /// Waits until the last echo request is answered: the lane has dealt with what was before it.
    /// False when it is not.
    #[must_use]
    pub(crate) fn wait(&mut self) -> bool {
        let end = Instant::now() + PATIENCE;
        let mut again = Instant::now() + AGAIN;
        loop {
            let is_answered = self.drain(Duration::from_millis(10));
            if is_answered || Instant::now() > end {
                return is_answered;
            }
            if Instant::now() > again {
                again = Instant::now() + AGAIN;
                self.ask();
            }
        }
    }

    /// Takes what the UPF has sent, after waiting a moment at most. Whether an answer to the last
    /// echo request is among it.
    fn drain(&mut self, wait: Duration) -> bool {
        let mut is_answered = false;
        let mut wait = wait;
        while let Some(frame) = self.n3.receive(wait) {
            if echoed(&frame, PORT) == Some(self.echo) {
                is_answered = true;
                wait = Duration::ZERO;
            }
        }
        while self.n6.receive(Duration::ZERO).is_some() {}
        is_answered
    }
}
