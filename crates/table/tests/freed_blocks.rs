//! Large blocks of the heap, which are given back when they are freed. The only test of its
//! process: nobody else maps memory where they were.

use std::fs;

use fastlane_table::ProcessMemory;

/// Returns true if memory is mapped at an address.
fn is_mapped(address: usize) -> bool {
    let maps = fs::read_to_string("/proc/self/maps").expect("/proc is mounted");
    maps.lines().any(|line| {
        let (range, _) = line.split_once(' ').expect("addresses and properties");
        let (start, end) = range.split_once('-').expect("two addresses");
        let of = |text| usize::from_str_radix(text, 16).expect("hexadecimal");
        (of(start)..of(end)).contains(&address)
    })
}

#[test]
fn the_heap_keeps_no_large_block_that_was_freed() {
    const LENGTH: usize = 4 << 20;
    ProcessMemory::return_freed();
    // By default, glibc would take later blocks from the heap after it has freed the first.
    for round in 0..3 {
        let block = vec![1_u8; LENGTH];
        let inside = block.as_ptr().addr() + LENGTH / 2;
        assert!(is_mapped(inside));
        let after = vec![2_u8; 4096]; // keeps the top of the heap
        drop(block);
        assert!(!is_mapped(inside), "round {round}");
        drop(after);
    }
}
