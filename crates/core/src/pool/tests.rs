use std::os::fd::AsFd;

use super::*;

fn pool(frames: usize) -> Pool {
    let memory = SharedMemory::create("pool-test", frames * 2048).unwrap();
    Pool::new(memory, 2048, 192).unwrap()
}

#[test]
fn frames_go_out_and_come_back() {
    let mut pool = pool(4);
    let frames: Vec<Frame> = std::iter::from_fn(|| pool.take()).collect();
    assert_eq!((frames.len(), pool.free()), (4, 0));
    for frame in frames {
        pool.give(frame);
    }
    assert_eq!(pool.free(), 4);
}

#[test]
fn a_frame_of_another_pool_is_not_accepted() {
    let (mut ours, mut other) = (pool(2), pool(2));
    let foreign = other.take().unwrap();
    let foreign = ours.packet(foreign, 256, 60, PortId(0)).unwrap_err();
    ours.give(foreign);
    assert_eq!((ours.free(), other.free()), (2, 1));
}

#[test]
fn a_packet_outside_its_frame_is_refused() {
    let mut pool = pool(1);
    let mut frame = pool.take().unwrap();
    for (offset, length) in [(0, 60), (63, 60), (64, 1985), (2048, 1), (4096, 0), (usize::MAX, 1)] {
        frame = pool.packet(frame, offset, length, PortId(0)).unwrap_err();
    }
    let mut packet = pool.packet(frame, 64, 1984, PortId(0)).unwrap();
    assert_eq!((packet.headroom(), packet.tailroom(), packet.len()), (0, 0, 1984));
    pool.release(&mut packet);
    pool.release(&mut packet); // has no frame any more
    assert_eq!(pool.free(), 1);
}

#[test]
fn a_packet_outlives_its_pool_safely() {
    let mut pool = pool(1);
    let frame = pool.take().unwrap();
    let mut packet = pool.packet(frame, 256, 60, PortId(0)).unwrap();
    drop(pool);
    packet.bytes_mut().fill(7);
    assert_eq!(packet.bytes()[59], 7);
}

#[test]
fn lent_frames_are_known_by_their_addresses() {
    let mut pool = pool(3);
    let frame = pool.take().unwrap();
    let packet = pool.packet(frame, 300, 60, PortId(0)).unwrap();
    let address = pool.offset_of(&packet).unwrap();
    assert_eq!(address % 2048, 300);
    let mut packet = packet;
    let frame = packet.take_frame().unwrap();
    assert_eq!(pool.lend(frame), Some(address - 300));
    // SAFETY: the frame was lent above and is reclaimed once.
    let frame = unsafe { pool.reclaim(address) }.unwrap();
    // SAFETY: the offset is outside the memory, so no frame is created.
    assert!(unsafe { pool.reclaim(3 * 2048) }.is_none());
    pool.give(frame);
    assert_eq!(pool.free(), 3);
}

#[test]
fn odd_sizes_are_refused_with_the_reason() {
    for (size, headroom, expected) in [
        (1000, 0, PoolError::FrameSize(1000)),
        (256, 0, PoolError::FrameSize(256)),
        (131_072, 0, PoolError::FrameSize(131_072)),
        (512, 400, PoolError::Headroom { headroom: 400, limit: 192 }),
        (8192, 0, PoolError::Size { length: 4096, frame_size: 8192 }),
    ] {
        let memory = SharedMemory::create("pool-test", 4096).unwrap();
        assert_eq!(Pool::new(memory, size, headroom).unwrap_err(), expected);
    }
}

#[test]
fn two_pools_cannot_have_the_same_memory() {
    let share = |of: &SharedMemory| of.as_fd().try_clone_to_owned().unwrap();
    let memory = SharedMemory::create("pool-test", 4096).unwrap();
    let (file, second) = (share(&memory), SharedMemory::attach_writable(share(&memory)).unwrap());
    assert_eq!(Pool::new(memory, 2048, 192).unwrap_err(), PoolError::Shared);
    let pool = Pool::new(second, 2048, 192).unwrap();
    assert!(SharedMemory::attach_writable(file.try_clone().unwrap()).is_err());
    assert!(SharedMemory::attach_read_only(file.try_clone().unwrap()).is_err());
    drop(pool);
    assert!(Pool::new(SharedMemory::attach_writable(file).unwrap(), 2048, 192).is_ok());
}

#[test]
fn an_adopted_pool_lacks_what_is_lent() {
    let memory = SharedMemory::create("pool-test", 70 * 2048).unwrap();
    let mut pool = Pool::adopt(memory, 2048, 192, &|index| index % 3 == 0).unwrap();
    assert_eq!((pool.frames(), pool.free(), pool.missing()), (70, 46, 24));
    let taken: Vec<Frame> = std::iter::from_fn(|| pool.take()).collect();
    assert!(taken.iter().all(|frame| frame.index() % 3 != 0));
    let capacity = pool.free.capacity();
    taken.into_iter().for_each(|frame| pool.give(frame));
    for index in (0..70).step_by(3) {
        // SAFETY: the frame was lent when the pool was adopted, and is reclaimed once.
        let frame = unsafe { pool.reclaim(index * 2048 + 300) }.unwrap();
        pool.give(frame);
    }
    assert_eq!((pool.free(), pool.missing(), pool.free.capacity()), (70, 0, capacity));
}

#[test]
fn the_memory_stays_mapped_while_a_layout_exists() {
    let memory = SharedMemory::create("layout", 4 * 2048).unwrap();
    let start = memory.start().as_ptr().addr();
    let pool = Pool::new(memory, 2048, 192).unwrap();
    let layout = pool.layout();
    drop(pool);
    assert_eq!((layout.start(), layout.frames(), layout.frame_size()), (start, 4, 2048));
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let is_mapped = maps.lines().any(|line| line.starts_with(&format!("{start:x}-")));
    assert!(is_mapped, "{maps}");
}

#[test]
fn released_frames_of_a_driver_wait_for_it() {
    let mut pool = pool(4);
    let region = pool.register_region(8).unwrap();
    pool.external_received(region, 2);
    assert!(!pool.has_released());
    for index in [5, 6] {
        pool.give(Frame::of(region, index));
    }
    assert!(pool.has_released());
    let mut frames = Vec::with_capacity(1); // takes one at a time
    pool.take_released(region, &mut frames);
    assert_eq!((frames.as_slice(), pool.has_released(), pool.missing()), (&[6][..], true, 1));
    frames.clear();
    pool.take_released(region, &mut frames);
    assert_eq!((frames.as_slice(), pool.has_released(), pool.missing()), (&[5][..], false, 0));
}

#[test]
fn a_driver_may_count_frames_as_sent_before_it_counts_them_as_received() {
    let mut pool = pool(4);
    let region = pool.register_region(8).unwrap();
    pool.external_sent(region, 3);
    assert_eq!(pool.missing(), 3, "a defect if it stays so");
    pool.external_received(region, 3);
    assert_eq!(pool.missing(), 0);
}
