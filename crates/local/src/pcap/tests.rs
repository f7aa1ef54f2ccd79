use fastlane_core::{Partial, Verdict};
use fastlane_table::SharedMemory;
use proptest::prelude::*;

use super::cursor::Order;
use super::*;

const PORT: PortId = PortId(2);

fn pool(frames: usize) -> Pool {
    let memory = SharedMemory::create("pcap-test", frames * 512).unwrap();
    Pool::new(memory, 512, 64).unwrap()
}

struct Builder {
    order: Order,
    file: Vec<u8>,
}

impl Builder {
    fn u32(&mut self, value: u32) -> &mut Self {
        self.file.extend(match self.order {
            Order::Little => value.to_le_bytes(),
            Order::Big => value.to_be_bytes(),
        });
        self
    }

    fn u16(&mut self, value: u16) -> &mut Self {
        self.file.extend(match self.order {
            Order::Little => value.to_le_bytes(),
            Order::Big => value.to_be_bytes(),
        });
        self
    }

    fn classic(order: Order, magic: u32, link_type: u32, frames: &[Vec<u8>]) -> Vec<u8> {
        let mut file = Self { order, file: Vec::new() };
        file.u32(magic).u16(2).u16(4).u32(0).u32(0).u32(65_535).u32(link_type);
        for frame in frames {
            let length = frame.len() as u32;
            file.u32(1).u32(2).u32(length).u32(length).file.extend(frame);
        }
        file.file
    }

    fn section(&mut self) -> &mut Self {
        self.u32(blocks::SECTION_HEADER).u32(28).u32(blocks::BYTE_ORDER).u16(1).u16(0);
        self.u32(u32::MAX).u32(u32::MAX).u32(28)
    }

    fn interface(&mut self, link_type: u16, snap_length: u32) -> &mut Self {
        self.u32(blocks::INTERFACE).u32(20).u16(link_type).u16(0).u32(snap_length).u32(20)
    }

    fn padded(&mut self, frame: &[u8]) -> &mut Self {
        self.file.extend(frame);
        self.file.resize(self.file.len().next_multiple_of(4), 0);
        self
    }

    fn enhanced(&mut self, interface: u32, frame: &[u8]) -> &mut Self {
        let (length, comment) = (frame.len() as u32, b"note");
        let total = 32 + length.next_multiple_of(4) + 12;
        self.u32(blocks::ENHANCED_PACKET).u32(total).u32(interface).u32(0).u32(0);
        self.u32(length).u32(length).padded(frame);
        self.u16(1).u16(4).padded(comment).u32(0).u32(total)
    }

    fn simple(&mut self, original: u32, frame: &[u8]) -> &mut Self {
        let total = 16 + (frame.len() as u32).next_multiple_of(4);
        self.u32(3).u32(total).u32(original).padded(frame).u32(total)
    }
}

fn contents(file: &[u8]) -> Result<Vec<Vec<u8>>, FormatError> {
    let spans = parse(file)?;
    Ok(spans
        .into_iter()
        .map(|FrameSpan { start, length }| file[start..start + length].into())
        .collect())
}

fn some_frames() -> Vec<Vec<u8>> {
    [60, 61, 62, 63, 14, 1514].iter().map(|length| vec![*length as u8; *length]).collect()
}

#[test]
fn classic_files_of_all_kinds_are_read() {
    for order in [Order::Little, Order::Big] {
        for magic in [0xa1b2_c3d4, 0xa1b2_3c4d] {
            let file = Builder::classic(order, magic, 1, &some_frames());
            assert_eq!(contents(&file).unwrap(), some_frames(), "{order:?} {magic:#x}");
        }
    }
}

#[test]
fn sections_of_both_orders_unknown_blocks_and_simple_packets_are_read() {
    let frames = some_frames();
    let mut file = Builder { order: Order::Big, file: Vec::new() };
    file.section().interface(1, 0).interface(1, 100).u32(0x0bad).u32(16).u32(7).u32(16);
    frames.iter().for_each(|frame| _ = file.enhanced(1, frame).simple(frame.len() as u32, frame));
    file.order = Order::Little;
    file.section().interface(1, 20).simple(1000, &[5; 20]);
    let mut expected: Vec<_> = frames.iter().flat_map(|f| [f.clone(), f.clone()]).collect();
    expected.push(vec![5; 20]);
    assert_eq!(contents(&file.file).unwrap(), expected);
}

#[test]
fn faults_name_the_byte_and_the_reason() {
    let classic = Builder::classic(Order::Little, 0xa1b2_c3d4, 1, &[vec![1; 60], vec![2; 60]]);
    let wifi = Builder::classic(Order::Big, 0xa1b2_c3d4, 105, &[]);
    let checked = Builder::classic(Order::Big, 0xa1b2_c3d4, 0x2400_0001, &[]);
    let mut long = classic.clone();
    long[32..36].copy_from_slice(&300_000_u32.to_le_bytes());
    let mut version = classic.clone();
    version[4] = 9;
    let next = |build: &dyn Fn(&mut Builder)| {
        let mut file = Builder { order: Order::Big, file: Vec::new() };
        file.section();
        build(&mut file);
        file.file
    };
    let cases: [(Vec<u8>, usize, &str); 14] = [
        (Vec::new(), 0, "neither pcap nor pcapng"),
        (b"GIF89a".to_vec(), 0, "neither pcap nor pcapng"),
        (classic[..20].to_vec(), 0, "ends inside the file header"),
        (classic[..110].to_vec(), 100, "ends inside a record header"),
        (classic[..150].to_vec(), 116, "ends inside a frame: 60 bytes wanted, 34 left"),
        (wifi, 20, "link type 105, expected 1"),
        (checked, 20, "check sequence"),
        (long, 32, "a record of 300000 bytes"),
        (version, 4, "version 9.4"),
        (next(&|file| _ = file.interface(105, 0)), 36, "link type 105"),
        (next(&|file| _ = file.enhanced(0, &[1; 60])), 36, "interface 0, and there are 0"),
        (next(&|file| _ = file.simple(60, &[1; 60])), 36, "before any interface"),
        (next(&|file| _ = file.u32(5).u32(14)), 32, "a block of 14 bytes"),
        (next(&|file| _ = file.u32(5).u32(16).u32(0).u32(20)), 40, "says 20 at its end"),
    ];
    for (file, offset, what) in cases {
        let error = contents(&file).unwrap_err();
        assert!(error.offset == offset && error.reason.contains(what), "{what}: {error:?}");
    }
    let cut = next(&|file| _ = file.interface(1, 0).enhanced(0, &[1; 60]));
    let error = contents(&cut[..cut.len() - 1]).unwrap_err();
    assert!(error.reason.contains("ends inside"), "{error:?}");
}

#[test]
fn an_error_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("not-a-capture");
    std::fs::write(&path, "text").unwrap();
    let error = |read: Option<&Path>, write: Option<&Path>| {
        let (read, write) = (read.map(PathBuf::from), write.map(PathBuf::from));
        open(&PcapSettings { read, write, repeat: 1 }, PORT).unwrap_err().to_string()
    };
    let said = error(Some(&path), None);
    assert!(said.starts_with(path.to_str().unwrap()) && said.contains("byte 0: neither"), "{said}");
    let absent = folder.path().join("absent");
    assert!(error(Some(&absent), None).contains("absent: cannot be read"));
    assert!(error(None, Some(folder.path())).contains("cannot be written"));
    assert!(error(None, None).contains("needs a file"));
    std::fs::write(&path, Builder::classic(Order::Big, 0xa1b2_c3d4, 1, &[])).unwrap();
    assert!(error(Some(&path), Some(&path)).contains("cannot write the file that it reads"));
    let link = path.with_extension("link");
    std::fs::hard_link(&path, &link).unwrap();
    assert!(error(Some(&path), Some(&link)).contains("cannot write the file that it reads"));
    assert!(std::fs::metadata(&path).unwrap().len() > 0, "and it is still there");
}

/// Receives all packets and sends them back. Returns their number.
fn reflect(pcap: &mut Pcap, pool: &mut Pool, at_most: usize) -> usize {
    let (mut burst, mut count) = (Burst::new(7), 0);
    while !pcap.is_finished() && count < at_most {
        pcap.receive(&mut burst, pool);
        count += burst.len();
        for packet in burst.packets() {
            assert_eq!((packet.port(), packet.verdict()), (PORT, Verdict::Kernel.into()));
        }
        let sent = pcap.transmit(burst.packets(), pool);
        assert_eq!((sent.taken, sent.packets), (burst.len(), burst.len()));
        burst.clear(pool);
        assert!(!pcap.flush(pool));
    }
    count
}

#[test]
fn what_is_read_comes_as_often_as_wanted_and_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from.pcap"), folder.path().join("to.pcapng"));
    let frames = some_frames(); // one does not fit a frame of the pool
    std::fs::write(&from, Builder::classic(Order::Little, 0xa1b2_c3d4, 1, &frames)).unwrap();
    for repeat in [1, 3] {
        let mut pool = pool(4);
        let settings = PcapSettings { read: Some(from.clone()), write: Some(to.clone()), repeat };
        let mut pcap = open(&settings, PORT).unwrap();
        assert_eq!(pcap.frames(), 6);
        assert_eq!(reflect(&mut pcap, &mut pool, usize::MAX), 5 * repeat as usize);
        let lost = Statistics { receive_length: repeat, ..Statistics::default() };
        assert_eq!(pcap.statistics(), lost);
        pcap.close(&mut pool);
        assert_eq!((pcap.statistics(), pool.free()), (lost, 4));
        let written = contents(&std::fs::read(&to).unwrap()).unwrap();
        let expected = vec![&frames[..5]; repeat as usize].concat();
        assert_eq!(written, expected);
    }
    let mut pool = pool(4);
    let settings = PcapSettings { read: Some(from), repeat: 0, ..PcapSettings::default() };
    let mut endless = open(&settings, PORT).unwrap();
    assert!(reflect(&mut endless, &mut pool, 10_000) >= 10_000);
    assert!(!endless.is_finished());
    let unwritten = endless.statistics().transmit_error;
    assert!(unwritten >= 10_000, "nowhere to write to is counted: {unwritten}");
}

#[test]
fn partial_checksums_are_completed_and_empty_packets_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("to.pcapng");
    let settings = PcapSettings { write: Some(to.clone()), ..PcapSettings::default() };
    let (mut pcap, mut pool) = (open(&settings, PORT).unwrap(), pool(3));
    assert!(pcap.is_finished());
    let mut packets: Vec<_> = [60, 0, 60]
        .map(|length| {
            let frame = pool.take().unwrap();
            pool.packet(frame, pool.data_offset(), length, PORT).unwrap()
        })
        .into();
    packets[0].set_partial_checksum(Some(Partial { start: 34, offset: 6 }));
    packets[2].set_partial_checksum(Some(Partial { start: 59, offset: 6 }));
    let sent = pcap.transmit(&mut packets, &mut pool);
    assert_eq!(sent, Sent { taken: 3, packets: 1, bytes: 60 });
    pcap.close(&mut pool);
    let written = contents(&std::fs::read(&to).unwrap()).unwrap();
    assert_eq!((written.len(), &written[0][40..42]), (1, &[0xff, 0xff][..]));
    assert_eq!(pool.free(), 3);
}

#[test]
fn a_burst_longer_than_the_space_is_written_in_parts() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut writer = Writer::new(file.reopen().unwrap()).unwrap();
    let frames: Vec<_> = (0..1000).map(|number| vec![number as u8; 1000 + number % 5]).collect();
    frames.iter().for_each(|frame| writer.add(frame, write::now()));
    assert!(file.as_file().metadata().unwrap().len() > 500_000);
    writer.write_out();
    assert_eq!(writer.lost(), 0);
    assert!(contents(&std::fs::read(file.path()).unwrap()).unwrap() == frames);
}

fn some_file() -> impl Strategy<Value = Vec<u8>> {
    let frames = prop::collection::vec(prop::collection::vec(any::<u8>(), 1..80), 0..6);
    (frames, any::<bool>(), any::<bool>()).prop_map(|(frames, big, classic)| {
        let order = if big { Order::Big } else { Order::Little };
        if classic {
            return Builder::classic(order, 0xa1b2_3c4d, 1, &frames);
        }
        let mut file = Builder { order, file: Vec::new() };
        file.section().interface(1, 0);
        frames
            .iter()
            .for_each(|frame| _ = file.enhanced(0, frame).simple(frame.len() as u32, frame));
        file.file
    })
}

proptest! {
    // Parsing random bytes ends with an error, or with spans inside the file.
    #[test]
    fn parsing_is_total(
        mut file in some_file(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        for (at, value) in damage {
            let at = at.index(file.len());
            file[at] = value;
        }
        file.truncate(cut.index(file.len()) + 1);
        match parse(&file) {
            Ok(spans) => for FrameSpan { start, length } in spans {
                prop_assert!(length > 0 && start + length <= file.len());
            },
            Err(error) => prop_assert!(error.offset <= file.len() && !error.reason.is_empty()),
        }
    }

    #[test]
    fn any_bytes_have_an_answer(file in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse(&file);
    }

    #[test]
    fn written_frames_are_read_again(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..200), 0..12),
    ) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut writer = Writer::new(file.reopen().unwrap()).unwrap();
        frames.iter().for_each(|frame| writer.add(frame, write::now()));
        writer.write_out();
        prop_assert_eq!(writer.lost(), 0);
        prop_assert_eq!(contents(&std::fs::read(file.path()).unwrap()).unwrap(), frames);
    }
}
