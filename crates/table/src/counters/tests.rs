use super::*;

#[test]
fn names_fit_and_are_in_the_order_of_memory() {
    for (index, counter) in LaneCounter::ALL.into_iter().enumerate() {
        assert_eq!(counter as usize, index);
        assert!(counter.name().len() < NAME_WORDS * 8);
    }
    for (index, counter) in PortCounter::ALL.into_iter().enumerate() {
        assert_eq!(counter as usize, index);
        assert!(counter.name().len() < NAME_WORDS * 8);
    }
}

#[test]
fn a_reader_sees_what_each_writer_counted() {
    let counters = Counters::create(2, 3).unwrap();
    for lane in 0..2 {
        for port in 0..3 {
            let amount = (lane * 10 + port) as u64;
            counters.port(lane, port).add(PortCounter::ReceivedPackets, amount);
        }
        counters.lane(lane).publish(LaneCounter::Turn, 100 + lane as u64);
    }
    counters.shared_port(2).store(PortCounter::SteerClaimed, 9);

    let file = rustix::io::dup(counters.memory()).unwrap();
    let reader = Counters::attach(SharedMemory::attach_read_only(file).unwrap()).unwrap();
    assert_eq!((reader.lanes(), reader.ports()), (2, 3));
    assert_eq!(reader.lane(1).load(LaneCounter::Turn), 101);
    assert_eq!(reader.port(1, 2).load(PortCounter::ReceivedPackets), 12);
    assert_eq!(reader.port_total(2, PortCounter::ReceivedPackets), 14);
    assert_eq!(reader.port_total(2, PortCounter::SteerClaimed), 9);
    reader.port(1, 2).add(PortCounter::ReceivedPackets, 1); // read-only: no effect, no fault
    assert_eq!(counters.port(1, 2).load(PortCounter::ReceivedPackets), 12);
}

#[test]
fn foreign_memory_is_refused() {
    let attach = |memory: SharedMemory| Counters::attach(memory).unwrap_err().to_string();
    let memory = SharedMemory::create("foreign", 4096).unwrap();
    assert!(attach(memory).ends_with("wrong magic"));
    assert!(attach(SharedMemory::create("tiny", 16).unwrap()).ends_with("too small"));

    // A header with greater numbers than its memory must be refused.
    let memory = Arc::new(SharedMemory::create("liar", 4096).unwrap());
    let header = SharedWords::new(&memory, 0, HEADER_WORDS).unwrap();
    let layout = CounterLayout::of(4096, 4096);
    let fields = [MAGIC, VERSION, 4096, 4096, 0];
    let sizes = [layout.lane_words, layout.port_words, layout.names, layout.blocks];
    for (index, field) in fields.into_iter().chain(sizes.map(|n| n as u64)).enumerate() {
        header.store(index, field);
    }
    drop(header);
    let message = attach(Arc::into_inner(memory).unwrap());
    assert!(message.ends_with("smaller than its header says"), "{message}");
}
