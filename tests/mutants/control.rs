//! The control plane that works, beside the mutants.

use std::time::{Duration, Instant};

use crate::messages::{Version, Wish};
use crate::place::Place;
use crate::smf::{Session, Smf};

/// Packets of a session that is checked, in each direction.
const PACKETS: u64 = 10;

/// An SMF and its sessions.
pub(crate) struct Control {
    pub(crate) smf: Smf,
    turned: Instant,
    number: u32,
    /// Packets that were sent.
    pub(crate) offered: u64,
}

impl Control {
    /// Without an association.
    #[track_caller]
    pub(crate) fn new(place: &Place) -> Self {
        let smf = place.smf();
        Self { smf, turned: Instant::now(), number: 0, offered: 0 }
    }

    /// Hears what the UPF asks, now and then.
    pub(crate) fn turn(&mut self) {
        if self.turned.elapsed() > Duration::from_millis(100) {
            self.turned = Instant::now();
            (0..4).for_each(|_| self.smf.turn());
        }
    }

    /// Sets up a session whose rules need a block.
    #[track_caller]
    pub(crate) fn establish(&mut self) -> Session {
        self.number += 1;
        let version = Version {
            peer: [10, 30, 0, 2].into(),
            teid: 0x1000 + self.number,
            marking: 4,
            qfi: 1,
            is_open: true,
            is_held: false,
        };
        let cp_seid = self.number.into();
        let wish = Wish { cp_seid, version, threshold: 1 << 40, is_complex: true };
        self.smf.establish_when_there_is_room(&wish)
    }

    /// A session forwards both ways, all of it.
    #[track_caller]
    pub(crate) fn goes(&mut self, place: &Place, session: &Session) {
        let mut traffic = place.traffic();
        for _ in 0..PACKETS {
            traffic.up(session);
            traffic.down(session);
        }
        let came = traffic.take().map(|it| it.len() as u64);
        assert_eq!(came, traffic.offered, "of session {}, up and down", session.cp_seid);
        self.offered += traffic.offered.iter().sum::<u64>();
        // That took a while, and heartbeats wait.
        (0..20).for_each(|_| self.smf.turn());
    }

    /// An association and a session are set up; the session forwards both ways, and goes.
    #[track_caller]
    pub(crate) fn check(&mut self, place: &Place) {
        self.smf.associate();
        let session = self.establish();
        self.goes(place, &session);
        self.smf.delete(&session);
    }
}
