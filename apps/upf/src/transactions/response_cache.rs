//! Responses to node related requests, kept while a retransmission may arrive. Responses to session
//! requests are in the session store; those that changed an association are also in its record.

use std::collections::{HashMap, VecDeque};

use super::RequestKey;
use crate::time::Now;

/// Maximum number of responses; the oldest are evicted.
const MOST: usize = 4096;

/// Stored responses by request.
#[derive(Debug)]
pub struct ResponseCache {
    life: u64,
    given: HashMap<RequestKey, Vec<u8>>,
    /// Time of each response, oldest first.
    order: VecDeque<(u64, RequestKey)>,
}

impl ResponseCache {
    /// Creates a cache whose responses live for `life` nanoseconds.
    #[must_use]
    pub fn new(life: u64) -> Self {
        Self { life, given: HashMap::new(), order: VecDeque::new() }
    }

    /// Returns the response to a retransmitted request.
    pub fn find(&mut self, now: Now, key: &RequestKey) -> Option<&[u8]> {
        self.forget(now);
        self.given.get(key).map(Vec::as_slice)
    }

    /// Stores a response.
    pub fn keep(&mut self, now: Now, key: RequestKey, bytes: Vec<u8>) {
        self.forget(now);
        if self.given.insert(key, bytes).is_none() {
            self.order.push_back((now.monotonic, key));
        }
    }

    fn forget(&mut self, now: Now) {
        while let Some(&(at, key)) = self.order.front() {
            let is_old = now.monotonic.saturating_sub(at) >= self.life;
            if !is_old && self.order.len() < MOST {
                break;
            }
            self.order.pop_front();
            self.given.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn key(sequence: u32) -> RequestKey {
        let peer = (Ipv4Addr::LOCALHOST, 8805).into();
        RequestKey { peer, sequence, message_type: 5, digest: 0 }
    }

    fn at(monotonic: u64) -> Now {
        Now { monotonic, real: 0 }
    }

    #[test]
    fn an_answer_is_kept_for_its_life() {
        let mut answers = ResponseCache::new(100);
        answers.keep(at(7), key(1), vec![1]);
        assert_eq!(answers.find(at(106), &key(1)), Some(&[1][..]));
        assert_eq!(answers.find(at(106), &key(2)), None);
        assert_eq!(answers.find(at(107), &key(1)), None);
        assert!(answers.given.is_empty() && answers.order.is_empty());
    }

    #[test]
    fn there_are_never_too_many() {
        let mut answers = ResponseCache::new(100);
        for sequence in 0..10_000 {
            answers.keep(at(0), key(sequence), vec![0; 8]);
            assert!(answers.given.len() <= MOST && answers.order.len() <= MOST);
        }
        assert!(answers.find(at(0), &key(9_999)).is_some());
        assert!(answers.find(at(0), &key(0)).is_none());
    }
}
