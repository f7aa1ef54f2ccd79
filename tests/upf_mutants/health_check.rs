//! A well-behaved SMF beside the mutants: its sessions must keep working.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastlane_tests::DropFlag;
use fastlane_tests::upf::messages::{RuleVersion, SessionRequest};
use fastlane_tests::upf::{Session, Smf, UpfLab};

/// Packets per direction to check a session.
const PACKETS: u64 = 10;

/// An SMF whose sessions are checked.
pub(crate) struct HealthCheck {
    pub(crate) smf: Smf,
    turned: Instant,
    number: u32,
    /// Number of packets sent.
    pub(crate) offered: u64,
}

impl HealthCheck {
    /// Creates the SMF, without an association.
    #[track_caller]
    pub(crate) fn new(lab: &UpfLab) -> Self {
        let smf = lab.smf();
        Self { smf, turned: Instant::now(), number: 0, offered: 0 }
    }

    /// Responds to requests of the UPF, at most every 100 ms.
    pub(crate) fn turn(&mut self) {
        if self.turned.elapsed() > Duration::from_millis(100) {
            self.turned = Instant::now();
            (0..4).for_each(|_| self.smf.poll());
        }
    }

    /// Establishes a session whose rules need a block.
    #[track_caller]
    pub(crate) fn establish(&mut self) -> Session {
        self.number += 1;
        let version = RuleVersion {
            peer: [10, 30, 0, 2].into(),
            teid: 0x1000 + self.number,
            tos: 4,
            qfi: 1,
            is_open: true,
            is_buffering: false,
        };
        let cp_seid = self.number.into();
        let request =
            SessionRequest { cp_seid, version, threshold: 1 << 40, is_complex: true, slice: None };
        self.smf.establish_when_possible(&request)
    }

    /// Asserts that a session forwards all packets in both directions.
    #[track_caller]
    pub(crate) fn assert_forwards(&mut self, lab: &UpfLab, session: &Session) {
        let (received, offered) = self.while_responding(|| {
            let mut traffic = lab.traffic();
            for _ in 0..PACKETS {
                traffic.send_uplink(session);
                traffic.send_downlink(session);
            }
            (traffic.collect().map(|it| it.len() as u64), traffic.offered)
        });
        assert_eq!(received, offered, "session {}: uplink, downlink", session.cp_seid);
        self.offered += offered.iter().sum::<u64>();
    }

    /// Returns what a closure returns, and responds to the UPF meanwhile: it ends an association
    /// whose SMF is silent for a few seconds.
    fn while_responding<T>(&mut self, task: impl FnOnce() -> T) -> T {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    self.smf.poll();
                }
            });
            let _end = DropFlag(&is_over);
            task()
        })
    }

    /// Sets up an association and a session, checks the session and deletes it.
    #[track_caller]
    pub(crate) fn check(&mut self, lab: &UpfLab) {
        self.smf.associate();
        let session = self.establish();
        self.assert_forwards(lab, &session);
        self.smf.delete(&session);
    }
}
