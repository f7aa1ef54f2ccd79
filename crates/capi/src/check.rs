//! Check of packets that an application in C has changed.

use crate::Packet;
use crate::packet::FL_MOVED;

/// Invalid verdict: the lane drops the packet and counts it as `drop_bad_verdict`.
const BAD_VERDICT: u32 = u32::MAX;

/// Copy of a burst as it was before the application saw it.
#[derive(Debug, Default)]
pub(crate) struct Check {
    before: Vec<Packet>,
    has_reported: bool,
}

impl Check {
    pub(crate) fn remember(&mut self, packets: &[Packet]) {
        self.before.clear();
        self.before.extend_from_slice(packets);
    }

    /// Restores packets with forbidden changes. The first one is reported on standard error, for
    /// those who turned the check on.
    pub(crate) fn restore(&mut self, packets: &mut [Packet]) {
        for (place, (packet, before)) in packets.iter_mut().zip(&self.before).enumerate() {
            let Some(wrong) = wrong(before, packet) else { continue };
            *packet = Packet { verdict: BAD_VERDICT, ..*before };
            if !std::mem::replace(&mut self.has_reported, true) {
                eprintln!(
                    "packet {place} of a burst: the application has changed {wrong}; it and all \
                     like it are dropped as drop_bad_verdict; move a packet's ends by fl_prepend, \
                     fl_append, fl_trim_front and fl_truncate only"
                );
            }
        }
    }
}

/// Returns the forbidden change of a packet, if there is one.
fn wrong(before: &Packet, after: &Packet) -> Option<&'static str> {
    let start = |it: &Packet| (it.data as usize).wrapping_sub(it.headroom.into());
    let room = |it: &Packet| u64::from(it.headroom) + u64::from(it.length) + u64::from(it.tailroom);
    let ends = |it: &Packet| (it.headroom, it.length, it.tailroom);
    // The bit can be set, and nothing else of the token changes.
    if after.token != before.token && after.token != before.token | FL_MOVED {
        Some("its token")
    } else if after.port != before.port {
        Some("its port")
    } else if after.flags & !before.flags != 0 {
        Some("its flags")
    } else if start(after) != start(before) {
        Some("where its frame begins")
    } else if room(after) > room(before) {
        Some("where its frame ends")
    } else if ends(after) != ends(before) && after.token & FL_MOVED == 0 {
        Some("its ends by writing them")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: Packet = Packet {
        data: std::ptr::without_provenance_mut(0x1_0100),
        token: 7,
        length: 60,
        headroom: 192,
        tailroom: 1732,
        port: 1,
        flags: crate::packet::FL_PARTIAL,
        verdict: crate::packet::FL_KERNEL,
    };

    fn after(change: impl FnOnce(&mut Packet)) -> Packet {
        let mut check = Check::default();
        check.remember(&[BEFORE]);
        let mut packet = BEFORE;
        change(&mut packet);
        check.restore(std::slice::from_mut(&mut packet));
        packet
    }

    #[test]
    fn what_the_header_offers_is_allowed() {
        let same = |change: fn(&mut Packet)| {
            let mut expected = BEFORE;
            change(&mut expected);
            assert_eq!(after(change), expected);
        };
        same(|packet| packet.verdict = 0xdead_beef); // the lane's to judge
        same(|packet| packet.flags = 0);
        moved(|packet| {
            packet.data = packet.data.wrapping_sub(8);
            packet.headroom -= 8;
            packet.length += 8;
        });
        moved(|packet| {
            packet.data = packet.data.wrapping_add(60);
            packet.headroom += 60;
            packet.length = 0;
        });
        moved(|packet| {
            packet.length += u32::from(packet.tailroom);
            packet.tailroom = 0;
        });
        moved(|packet| {
            packet.length = 0;
            packet.tailroom += 60;
        });
    }

    /// Asserts that a change of the ends is allowed with its bit, and without it is none.
    #[track_caller]
    fn moved(change: fn(&mut Packet)) {
        let mut expected = Packet { token: BEFORE.token | FL_MOVED, ..BEFORE };
        change(&mut expected);
        let with_bit = |packet: &mut Packet| {
            change(packet);
            packet.token |= FL_MOVED;
        };
        assert_eq!(after(with_bit), expected);
        assert_eq!(after(change), Packet { verdict: BAD_VERDICT, ..BEFORE });
    }

    #[test]
    fn everything_else_is_put_back_and_no_verdict() {
        let dropped = Packet { verdict: BAD_VERDICT, ..BEFORE };
        let changes: [fn(&mut Packet); 11] = [
            |packet| packet.token = 8,
            |packet| packet.token = 8 | FL_MOVED,
            |packet| packet.token = u64::MAX,
            |packet| packet.port = 0,
            |packet| packet.flags |= 4,
            |packet| packet.length += 1,
            |packet| packet.length = u32::MAX,
            |packet| packet.tailroom += 1,
            |packet| packet.headroom += 1,
            |packet| packet.data = packet.data.wrapping_add(1),
            |packet| packet.data = std::ptr::null_mut(),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            assert_eq!(after(change), dropped, "change {number}");
        }
    }
}
