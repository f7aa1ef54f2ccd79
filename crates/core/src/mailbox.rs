//! Mailboxes: passing a value to a running lane.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Mailbox for one value, which a thread that may wait puts and a lane that must not wait takes.
#[derive(Debug)]
pub struct Mailbox<T> {
    full: AtomicBool,
    content: Mutex<Option<T>>,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Self { full: AtomicBool::new(false), content: Mutex::new(None) }
    }
}

impl<T> Mailbox<T> {
    /// Puts a value and returns the previous one if it was not taken. It may wait for as long as
    /// another thread moves one `T`.
    pub fn put(&self, content: T) -> Option<T> {
        let mut slot = self.content.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let before = slot.replace(content);
        self.full.store(true, Ordering::Release);
        before
    }

    /// Takes the value without waiting. If another thread is putting one at this moment, the next
    /// call finds it. An empty mailbox costs one load.
    #[inline]
    pub fn take(&self) -> Option<T> {
        if self.full.load(Ordering::Relaxed) { self.take_now() } else { None }
    }

    #[cold]
    fn take_now(&self) -> Option<T> {
        let mut slot = self.content.try_lock().ok()?;
        self.full.store(false, Ordering::Relaxed);
        slot.take()
    }

    /// Takes the value, for a thread that may wait.
    pub fn take_waiting(&self) -> Option<T> {
        let mut slot = self.content.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.full.store(false, Ordering::Relaxed);
        slot.take()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_value_that_was_not_taken_returns_to_the_sender() {
        let mailbox = Mailbox::default();
        assert_eq!((mailbox.take(), mailbox.put(1), mailbox.put(2)), (None, None, Some(1)));
        assert_eq!((mailbox.take(), mailbox.take(), mailbox.put(3)), (Some(2), None, None));
        assert_eq!((mailbox.take_waiting(), mailbox.take_waiting()), (Some(3), None));
    }

    #[test]
    fn every_value_is_taken_or_returned_once() {
        const COUNT: u64 = 100_000;
        let mailbox = Arc::new(Mailbox::default());
        let theirs = Arc::clone(&mailbox);
        let putter = std::thread::spawn(move || {
            (1..=COUNT).filter_map(|number| theirs.put(number)).sum::<u64>()
        });
        let (mut taken, mut last) = (0, 0);
        while !putter.is_finished() {
            if let Some(number) = mailbox.take() {
                assert!(number > last, "{number} after {last}");
                (taken, last) = (taken + number, number);
            }
        }
        taken += mailbox.take().unwrap_or(0);
        assert_eq!(taken + putter.join().unwrap(), COUNT * (COUNT + 1) / 2);
    }
}
