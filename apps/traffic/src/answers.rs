//! Closed loop: limits the number of packets of a sender that are on their way.

use std::sync::Arc;

use crate::progress::Progress;

/// Window of one sender.
#[derive(Debug)]
pub(crate) struct Answers {
    progress: Arc<Progress>,
    sender: usize,
    limit: u64,
    timeout: u64,
    answered: u64,
    given_up: u64,
    /// Time of the last departure or arrival, in nanoseconds.
    moved_at: u64,
}

impl Answers {
    /// Creates a window of `limit` packets for `sender`. When no packet has left or come back for
    /// `timeout` nanoseconds, a full window is given up.
    pub(crate) fn new(progress: Arc<Progress>, sender: usize, limit: u64, timeout: u64) -> Self {
        Self { progress, sender, limit, timeout, answered: 0, given_up: 0, moved_at: 0 }
    }

    /// Returns the number of packets that may leave at `now`, given that `sent` have left.
    #[inline]
    pub(crate) fn room(&mut self, sent: u64, now: u64) -> u64 {
        let answered = self.progress.answers(self.sender);
        if answered != self.answered {
            self.answered = answered;
            self.moved_at = now;
        }
        let open = sent.saturating_sub(self.given_up + answered);
        if open >= self.limit && now.saturating_sub(self.moved_at) >= self.timeout {
            self.progress.give_up(self.sender, now);
            self.given_up += open;
            return self.limit;
        }
        self.limit.saturating_sub(open)
    }

    /// Registers that packets left at `now`.
    #[inline]
    pub(crate) fn sent(&mut self, now: u64) {
        self.moved_at = now;
    }

    /// Returns the time at which the outstanding packets are given up, in nanoseconds.
    pub(crate) fn deadline(&self) -> u64 {
        self.moved_at.saturating_add(self.timeout)
    }

    /// Returns the number of packets given up so far.
    pub(crate) fn given_up(&self) -> u64 {
        self.given_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_opens_with_answers_and_after_a_timeout() {
        let progress = Arc::new(Progress::new(1, 1));
        let mut answers = Answers::new(Arc::clone(&progress), 0, 4, 100);
        assert_eq!(answers.room(0, 1000), 4);
        answers.sent(1000);
        assert_eq!(answers.room(4, 1050), 0);
        progress.answer(0, 1000);
        progress.answer(0, 1000);
        assert_eq!(answers.room(4, 1090), 2);
        answers.sent(1090);
        assert_eq!((answers.room(6, 1189), answers.deadline()), (0, 1190));
        assert_eq!((answers.room(6, 1190), answers.given_up()), (4, 4));
        answers.sent(1191);
        assert_eq!(answers.room(10, 1191), 0);
        progress.answer(0, 1090); // it was given up, so it frees no slot
        assert_eq!(answers.room(10, 1192), 0);
        progress.answer(0, 1191);
        assert_eq!(answers.room(10, 1193), 1);
    }
}
