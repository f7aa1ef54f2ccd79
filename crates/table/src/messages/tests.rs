use super::*;

const CAPACITY: usize = 4096;

struct Ends {
    memory: Arc<SharedMemory>,
    bells: Bells,
    lane: Channel,
    slow: Channel,
}

fn clone(bells: &Bells) -> Bells {
    Bells { lane: bells.lane.try_clone().unwrap(), slow: bells.slow.try_clone().unwrap() }
}

/// Lane 1 of two.
fn ends(capacity: usize) -> Ends {
    let memory = Arc::new(SharedMemory::create("messages-test", size(2, capacity)).unwrap());
    let bells = Bells { lane: Bell::create().unwrap(), slow: Bell::create().unwrap() };
    assert!(Channel::create(&memory, 0, capacity, clone(&bells)).is_some());
    let lane = Channel::create(&memory, 1, capacity, clone(&bells)).unwrap();
    let slow = Channel::attach_slow(&memory, 1, clone(&bells)).unwrap();
    bells.lane.drain();
    Ends { memory, bells, lane, slow }
}

fn all(receiver: &mut Receiver) -> Vec<(u32, Vec<u8>)> {
    let mut messages = Vec::new();
    while let Some(message) = receiver.receive().unwrap() {
        messages.push((message.kind, message.body.to_vec()));
    }
    messages
}

#[test]
fn messages_go_both_ways_once_published() {
    let Ends { mut lane, mut slow, .. } = ends(CAPACITY);
    for (one, other) in [(&mut lane, &mut slow.receiver), (&mut slow, &mut lane.receiver)]
        .map(|(one, other)| (&mut one.sender, other))
    {
        let bodies = [&b""[..], b"a", b"12345678", b"123456789", &[7; 1000]];
        for (kind, body) in bodies.into_iter().enumerate() {
            assert!(one.send(kind as u32, body));
        }
        assert_eq!(all(other), []);
        one.publish();
        let expected: Vec<_> =
            bodies.iter().enumerate().map(|(kind, body)| (kind as u32, body.to_vec())).collect();
        assert_eq!(all(other), expected);
        assert_eq!(all(other), []);
    }
}
