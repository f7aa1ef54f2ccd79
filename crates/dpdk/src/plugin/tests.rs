use fastlane_core::{PacketOwnership, Pool};
use fastlane_table::SharedMemory;

use super::abi::LAYOUT;
use super::*;

#[test]
fn the_layout_is_that_of_packets_as_core_makes_them() {
    let memory = SharedMemory::create("layout", 4096).unwrap();
    let mut pool = Pool::new(memory, 2048, 192).unwrap();
    let mut packet = pool.alloc_packet(0x0123, PortId(0x4567)).unwrap();
    packet.set_raw_verdict(fastlane_core::RawVerdict(0x89ab_cdef));
    packet.set_partial_checksum(Some(fastlane_core::Partial { start: 34, offset: 6 }));
    let bytes = std::ptr::from_ref(&packet).cast::<u8>();
    let field = |index: usize, length: usize| -> u64 {
        let offset = LAYOUT[1 + index] as usize;
        assert!(offset + length <= LAYOUT[0] as usize);
        // SAFETY: a packet has no padding, and the bytes lie inside of it.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.add(offset), length) };
        bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    };
    assert_eq!(field(0, 8), packet.data().as_ptr().addr() as u64);
    assert_eq!(field(1, 8) >> 48, token_base(pool.region()) >> 48, "the region of the frame");
    assert_eq!(field(2, 4), 0x0123);
    assert_eq!(field(3, 2), packet.headroom() as u64);
    assert_eq!(field(4, 2), packet.tailroom() as u64);
    assert_eq!((field(5, 2), field(6, 2), field(7, 4)), (0x4567, 1, 0x89ab_cdef));
    // The metadata is at the offset that C uses.
    let before = packet.headroom() + fastlane_core::METADATA_LENGTH;
    // SAFETY: the metadata lies before the head room of the packet.
    let metadata = unsafe { packet.data().sub(before).cast::<[u16; 2]>().as_ref() };
    assert_eq!(*metadata, [34 + packet.headroom() as u16, 6]);
    packet.set_partial_checksum(None);
    let _ = packet.take_frame().map(|frame| pool.give(frame));
    assert_eq!(field(1, 8), u64::MAX, "a packet without frame");
}

#[test]
fn the_plugin_is_looked_for_where_it_is_named_or_beside_the_program() {
    assert_eq!(candidates(Some("/a/b.so".into()), false), [PathBuf::from("/a/b.so")]);
    let candidates = candidates(None, false);
    let program = std::env::current_exe().unwrap();
    assert_eq!(candidates[0], program.with_file_name(FILE));
    assert_eq!(candidates[1], program.parent().unwrap().with_file_name(FILE));
    assert!(candidates.contains(&PathBuf::from("/usr/lib/fastlane/libfastlane_dpdk.so")));
}

#[test]
fn a_privileged_program_looks_in_folders_of_the_system_only() {
    let installed =
        ["/usr/lib/fastlane", "/usr/local/lib/fastlane"].map(|folder| Path::new(folder).join(FILE));
    for named in [None, Some("/a/b.so".into())] {
        assert_eq!(candidates(named, true), installed);
    }
    assert!(!is_privileged(), "tests run as their caller");
}

#[test]
fn a_file_that_is_no_plugin_is_refused_by_its_path() {
    let program = std::env::current_exe().unwrap();
    let text = program.with_extension("no-plugin");
    std::fs::write(&text, "no library").unwrap();
    let error = Plugin::open(&text).err().map(|error| error.to_string());
    std::fs::remove_file(&text).unwrap();
    let error = error.expect("a text is no library");
    assert!(error.contains("no-plugin") && error.contains("apt install dpdk"), "{error}");
    let other = Plugin::open(Path::new("libc.so.6")).err().expect("another library");
    assert!(other.to_string().contains("no symbol fastlane_dpdk"), "{other}");
}

#[test]
fn another_version_or_layout_is_refused() {
    let Ok(plugin) = Plugin::load() else {
        return eprintln!("the plugin is not installed; tests/single_queue.rs reports it");
    };
    let with = |change: fn(&mut Table)| {
        let mut table = plugin.table.clone();
        change(&mut table);
        table.check()
    };
    assert_eq!(with(|_| {}), None);
    let (version, size) = (plugin.table.version, plugin.table.size);
    assert_eq!(check_header([version, size]), None);
    assert!(check_header([version + 1, size]).unwrap().contains("version"));
    assert!(check_header([version, size - 8]).unwrap().contains("bytes"));
    assert!(with(|table| table.layout[3] += 2).unwrap().contains("packet layout"));
    assert!(with(|table| table.metadata = 32).unwrap().contains("packet layout"));
}
