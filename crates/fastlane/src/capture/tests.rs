//! Requests and the replies of an application.

use super::captures::Captures;
use super::*;
use fastlane_capture::CaptureMailbox;
use std::sync::Arc;

/// Returns captures of an application with two lanes, which do not run, and three ports.
fn captures() -> (Captures, Vec<Arc<CaptureMailbox>>) {
    let mailboxes: Vec<Arc<CaptureMailbox>> = (0..2).map(|_| Arc::default()).collect();
    (Captures::new(mailboxes.clone(), 3), mailboxes)
}

fn small() -> Request {
    Request { ring_bytes: 1 << 20, ..Request::default() }
}

fn start(captures: &mut Captures, request: &Request) -> Result<Vec<usize>, String> {
    let (answer, rings) = captures.start(&serde_json::to_vec(request).unwrap(), 77)?;
    let granted: CaptureGrant = serde_json::from_slice(&answer).unwrap();
    assert!(CaptureStream::attach(rings, &granted.lanes).is_ok());
    Ok(granted.lanes)
}

#[test]
fn there_is_one_capture_and_it_is_kept_until_the_lanes_have_let_go() {
    let (mut captures, mailboxes) = captures();
    let some_lanes = Request { lanes: vec![1, 1], ports: vec![2], ..small() };
    assert_eq!(start(&mut captures, &some_lanes), Ok(vec![1]));
    assert!(mailboxes[0].take().is_none());
    let held = mailboxes[1].take().unwrap();
    let refused = start(&mut captures, &small()).unwrap_err();
    assert!(refused.contains("captured already by process 77"), "{refused}");
    captures.stop();
    assert!(captures.are_held());
    assert!(mailboxes[1].take().unwrap().is_none(), "the lane is told to end");
    drop(held);
    captures.sweep();
    assert!(!captures.are_held());
    assert_eq!(start(&mut captures, &small()), Ok(vec![0, 1]));
}

#[test]
fn lanes_that_hold_on_are_not_given_ever_more() {
    let (mut captures, mailboxes) = captures();
    let held: Vec<_> = (0..4)
        .map(|_| {
            start(&mut captures, &small()).unwrap();
            let held = mailboxes[0].take().unwrap();
            captures.stop();
            held
        })
        .collect();
    let refused = start(&mut captures, &small()).unwrap_err();
    assert!(refused.contains("try again"), "{refused}");
    drop(held);
    assert!(start(&mut captures, &small()).is_ok());
}

#[test]
fn requests_that_cannot_be_are_refused() {
    let (mut captures, mailboxes) = captures();
    let accept = (0x06, 0, 0, 1);
    for (request, reason) in [
        (Request { lanes: vec![0, 2], ..small() }, "no lane 2"),
        (Request { ports: vec![3], ..small() }, "no port 3"),
        (Request { arriving: false, leaving: false, ..small() }, "neither"),
        (Request { program: Some(vec![]), ..small() }, "0 instructions"),
        (Request { program: Some(vec![accept; 4097]), ..small() }, "4097 instructions"),
        (Request { program: Some(vec![(0x05, 0, 0, 9), accept]), ..small() }, "jumps out"),
        (Request { ring_bytes: 0, ..small() }, "a ring of 0 bytes"),
        (Request { ring_bytes: (1 << 20) + 8, ..small() }, "a power of two"),
        (Request { ring_bytes: 1 << 29, ..small() }, "1 to 256 MiB"),
    ] {
        let refused = start(&mut captures, &request).unwrap_err();
        assert!(refused.contains(reason), "{refused}");
    }
    for nonsense in [&b""[..], b"{}", b"[[[[[[", b"\xff", br#"{"lanes":[-1]}"#] {
        let refused = captures.start(nonsense, 77).map(drop).unwrap_err();
        assert!(refused.contains("cannot be read"), "{refused}");
    }
    assert!(mailboxes.iter().all(|mailbox| mailbox.take().is_none()));
    assert!(start(&mut captures, &Request { sample: 0, snap_length: 0, ..small() }).is_ok());
    let mut nobody = Captures::default();
    assert!(start(&mut nobody, &small()).unwrap_err().contains("cannot be captured"));
}
