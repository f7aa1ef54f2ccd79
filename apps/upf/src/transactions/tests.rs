use std::net::{Ipv4Addr, SocketAddr};

use super::*;
use crate::time::SECOND;

const TAG: Tag = Tag::Report(SessionIndex(7));

fn peer() -> SocketAddr {
    (Ipv4Addr::new(192, 0, 2, 1), 8805).into()
}

fn at(monotonic: u64) -> Now {
    Now { monotonic, real: 0 }
}

fn request(sequence: u32) -> Request {
    Request { bytes: vec![0x20, 56, 0, 4], sequence, to: peer(), local: None, tag: TAG }
}

#[test]
fn a_request_is_sent_n1_times_each_t1_and_then_given_up() {
    let (mut requests, mut out) = (Requests::new(3 * SECOND, 3, 5), Outbox::new());
    let sequence = requests.sequence();
    assert_eq!(sequence, 5);
    requests.send(at(0), request(sequence), &mut out).unwrap();
    let mut sent = vec![(0, out.datagrams.len())];
    let mut given_up = None;
    for tenth in 1..=200 {
        let now = at(tenth * SECOND / 10);
        out.clear();
        if let Some(found) = requests.tick(now, &mut out) {
            assert_eq!(given_up.replace((tenth, found)), None);
        }
        if !out.datagrams.is_empty() {
            assert_eq!(out.datagrams[0].bytes, request(5).bytes);
            sent.push((tenth, out.datagrams.len()));
        }
    }
    assert_eq!(sent, [(0, 1), (30, 1), (60, 1)]);
    let given_up = given_up.map(|(tenth, found)| (tenth, found.tag, found.sequence));
    assert_eq!(given_up, Some((90, TAG, 5)));
    assert!(requests.is_empty() && requests.deadline().is_none());
}

#[test]
fn an_answer_is_taken_once_and_only_from_whom_it_was_asked() {
    let (mut requests, mut out) = (Requests::new(SECOND, 3, 0), Outbox::new());
    requests.send(at(0), request(9), &mut out).unwrap();
    assert_eq!(requests.send(at(0), request(9), &mut out), Err(Busy));
    let other: SocketAddr = (Ipv4Addr::new(192, 0, 2, 2), 8805).into();
    assert_eq!(requests.answered(other, 9, 57), None);
    assert_eq!(requests.answered(peer(), 8, 57), None);
    assert_eq!(requests.answered(peer(), 9, 56), None);
    assert_eq!(requests.answered(peer(), 9, 57).map(|it| it.tag), Some(TAG));
    assert_eq!(requests.answered(peer(), 9, 57), None);
    // Its old deadline does not affect a later request with the same number.
    requests.send(at(SECOND / 2), request(9), &mut out).unwrap();
    out.clear();
    assert_eq!(requests.tick(at(SECOND), &mut out), None);
    assert!(out.datagrams.is_empty());
    assert_eq!(requests.deadline(), Some(SECOND * 3 / 2));
}

#[test]
fn numbers_wrap_and_pass_over_those_that_wait() {
    let (mut requests, mut out) = (Requests::new(SECOND, 3, SEQUENCES - 1), Outbox::new());
    requests.send(at(0), request(0), &mut out).unwrap();
    assert_eq!([requests.sequence(), requests.sequence()], [SEQUENCES - 1, 1]);
}

#[test]
fn whoever_does_not_answer_leaves_room_for_others() {
    let (mut requests, mut out) = (Requests::new(SECOND, 3, 0), Outbox::new());
    let to = |host: u8| SocketAddr::from(([10, 0, 7, host], 8805));
    let mut fill = |requests: &mut Requests, host| {
        let mut sent = Vec::new();
        loop {
            let sequence = requests.sequence();
            let request =
                Request { to: to(host), tag: Tag::Report(SessionIndex(1)), ..request(sequence) };
            match requests.send(at(0), request, &mut out) {
                Ok(()) => sent.push(sequence),
                Err(Busy) => return sent,
            }
        }
    };
    let first = fill(&mut requests, 1);
    assert_eq!(first.len(), WINDOW / 2);
    assert_eq!(fill(&mut requests, 2).len(), WINDOW / 4);
    assert_eq!(requests.room_for(to(3)), WINDOW / 4);
    // Freed room is shared by all peers.
    first.iter().for_each(|sequence| requests.cancel(*sequence));
    assert_eq!(requests.room_for(to(1)), WINDOW * 3 / 4);
    assert_eq!(fill(&mut requests, 3).len(), WINDOW * 3 / 8);
    for second in 1..=3 {
        while requests.tick(at(second * SECOND), &mut Outbox::new()).is_some() {}
    }
    assert_eq!((requests.len(), requests.room_for(to(2))), (0, WINDOW));
}

#[test]
fn the_window_is_bounded() {
    let (mut requests, mut out) = (Requests::new(SECOND, 3, 0), Outbox::new());
    for _ in 0..WINDOW / 2 {
        let sequence = requests.sequence();
        requests.send(at(0), request(sequence), &mut out).unwrap();
    }
    let sequence = requests.sequence();
    assert_eq!(requests.send(at(0), request(sequence), &mut out), Err(Busy));
    requests.cancel(sequence - 1);
    assert_eq!(requests.send(at(0), request(sequence), &mut out), Ok(()));
}

fn key(sequence: u32) -> RequestKey {
    let peer = (Ipv4Addr::LOCALHOST, 8805).into();
    RequestKey { peer, sequence, message_type: 5, digest: 0 }
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

#[test]
fn a_lookup_evicts_no_response_that_may_be_sought() {
    let mut answers = ResponseCache::new(100);
    for sequence in 0..MOST as u32 {
        answers.keep(at(0), key(sequence), vec![0; 8]);
    }
    for sequence in 0..MOST as u32 {
        assert!(answers.find(at(99), &key(sequence)).is_some(), "{sequence}");
    }
}
