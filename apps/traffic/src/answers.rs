//! A closed loop: no more than so many packets on their way.

use std::sync::Arc;

use crate::progress::Progress;

/// The window of one sender.
#[derive(Debug)]
pub(crate) struct Answers {
    progress: Arc<Progress>,
    sender: usize,
    limit: u64,
    timeout: u64,
    answered: u64,
    given_up: u64,
    /// When something last left or came back.
    moved_at: u64,
}

impl Answers {
    /// At most `limit` packets of this sender on their way; after `timeout` nanoseconds in which
    /// none has come back all of them are given up.
    pub(crate) fn new(progress: Arc<Progress>, sender: usize, limit: u64, timeout: u64) -> Self {
        Self { progress, sender, limit, timeout, answered: 0, given_up: 0, moved_at: 0 }
    }

    /// How many more may leave at `now`, when `sent` have left.
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

    /// Something has left at `now`.
    #[inline]
    pub(crate) fn sent(&mut self, now: u64) {
        self.moved_at = now;
    }

    /// When what is on its way will be given up, in nanoseconds.
    pub(crate) fn deadline(&self) -> u64 {
        self.moved_at.saturating_add(self.timeout)
    }

    /// Packets given up so far.
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
        progress.answer(0, 1090); // one that was given up: no place for another
        assert_eq!(answers.room(10, 1192), 0);
        progress.answer(0, 1191);
        assert_eq!(answers.room(10, 1193), 1);
    }
}
