//! Handing something to a lane that is running.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// A place for one thing, put there by a thread that may wait and taken by a lane that may not.
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
    /// Puts something in; returns what was there and not yet taken. It may wait, for as long as it
    /// takes another thread to move one `T`.
    pub fn put(&self, content: T) -> Option<T> {
        let mut place = self.content.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let before = place.replace(content);
        self.full.store(true, Ordering::Release);
        before
    }

    /// Takes what is there. It never waits: when somebody is putting something in just then, the
    /// next call finds it. One load when there is nothing.
    #[inline]
    pub fn take(&self) -> Option<T> {
        if self.full.load(Ordering::Relaxed) { self.take_now() } else { None }
    }

    #[cold]
    fn take_now(&self) -> Option<T> {
        let mut place = self.content.try_lock().ok()?;
        self.full.store(false, Ordering::Relaxed);
        place.take()
    }

    /// For a thread that may wait: takes what is there.
    pub fn take_for_sure(&self) -> Option<T> {
        let mut place = self.content.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.full.store(false, Ordering::Relaxed);
        place.take()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_was_not_taken_comes_back_to_who_puts() {
        let mailbox = Mailbox::default();
        assert_eq!((mailbox.take(), mailbox.put(1), mailbox.put(2)), (None, None, Some(1)));
        assert_eq!((mailbox.take(), mailbox.take(), mailbox.put(3)), (Some(2), None, None));
        assert_eq!((mailbox.take_for_sure(), mailbox.take_for_sure()), (Some(3), None));
    }

    #[test]
    fn everything_put_is_taken_or_comes_back_once() {
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
