use std::collections::VecDeque;

use fastlane_core::{
    App, Burst, Frame, Idle, Lane, LaneConfig, Packet, PacketOwnership, Pool, Port, Queue, Sent,
    Turn,
};
use fastlane_table::SharedMemory;
use fastlane_table::counters::Counters;
use fastlane_table::journal::{JournalReader, size};

use super::*;

const RING: usize = 1 << 16;

/// Queue that receives the frames of `arrivals` and sends at most `space` packets a turn.
struct Wire {
    port: PortId,
    arrivals: VecDeque<Vec<u8>>,
    space: usize,
    in_flight: Vec<Frame>,
}

impl Queue for Wire {
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        while burst.room() > 0
            && let Some(bytes) = self.arrivals.pop_front()
        {
            let mut packet = pool.alloc_packet(bytes.len(), self.port).unwrap();
            packet.bytes_mut().copy_from_slice(&bytes);
            burst.push(packet).unwrap();
        }
    }

    fn transmit(&mut self, packets: &mut [Packet], _: &mut Pool) -> Sent {
        let mut sent = Sent::default();
        for packet in packets {
            if self.in_flight.len() == self.space {
                break;
            }
            sent.taken += 1;
            sent.packets += usize::from(packet.len() < 1000);
            self.in_flight.extend(packet.take_frame());
        }
        sent
    }

    fn flush(&mut self, pool: &mut Pool) -> bool {
        self.in_flight.drain(..).for_each(|frame| pool.give(frame));
        false
    }

    fn close(&mut self, pool: &mut Pool) {
        self.flush(pool);
    }
}

/// Lane with three ports and a capture of it. The first port receives `frames`; the last has no
/// queue.
struct Bench<A> {
    lane: Lane<A>,
    mailbox: Arc<CaptureMailbox>,
    capture: Arc<Capture>,
    reader: JournalReader,
}

impl<A: App> Bench<A> {
    fn new(app: A, frames: &[Vec<u8>], space: usize, selection: Selection) -> Self {
        let counters = Counters::create(1, 3).unwrap();
        let port = |number: u16| {
            let arrivals = if number == 0 { frames.iter().cloned().collect() } else { [].into() };
            let wire = Wire { port: PortId(number), arrivals, space, in_flight: vec![] };
            let queues: Vec<Box<dyn Queue>> =
                if number < 2 { vec![Box::new(wire)] } else { vec![] };
            let counters = counters.port(0, number.into());
            Port { queues, kernel: None, filter: None, counters }
        };
        let memory = SharedMemory::create("capture-test", 256 * 2048).unwrap();
        let pool = Pool::new(memory, 2048, 192).unwrap();
        let parts = LaneConfig {
            kernel_budget: 8,
            idle: Idle::Busy,
            ..LaneConfig::new(pool, (0..3).map(port).collect(), counters.lane(0))
        };
        let mut lane = Lane::new(app, parts);
        let mailbox = Arc::<CaptureMailbox>::default();
        lane.observe(Box::new(Recorder::new(Arc::clone(&mailbox), 32)));
        let memory = Arc::new(SharedMemory::create("capture-test", size(RING)).unwrap());
        let ring = JournalWriter::create(&memory, 0, RING).unwrap();
        let reader = JournalReader::attach(&memory, 0).unwrap();
        let capture = Arc::new(Capture { selection, ring });
        assert!(mailbox.put(Some(Arc::clone(&capture))).is_none());
        Self { lane, mailbox, capture, reader }
    }

    /// Runs one turn and returns what it captured.
    fn turn(&mut self) -> Vec<Captured> {
        self.lane.turn();
        let (mut record, mut all) = (vec![], vec![]);
        while self.reader.next(&mut record).unwrap() {
            let Record { port, event, verdict, length, bytes, .. } = Record::read(&record).unwrap();
            let verdict = verdict.map(|verdict| verdict.verdict().unwrap());
            all.push(Captured { port: port.0, event, verdict, length, bytes: bytes.to_vec() });
        }
        self.reader.release();
        all
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Captured {
    port: u16,
    event: Event,
    verdict: Option<Verdict>,
    length: u32,
    bytes: Vec<u8>,
}

fn frames(count: u8) -> Vec<Vec<u8>> {
    (0..count).map(|number| vec![number; 60 + usize::from(number)]).collect()
}

fn all() -> Selection {
    Selection::default()
}

/// Application that labels by the first byte, overwrites the packet and reverses the burst.
struct Reverser;

impl Reverser {
    fn verdict_of(number: u8) -> Verdict {
        match number % 5 {
            0 => Verdict::Reflect,
            1 => Verdict::Forward(PortId(1)),
            2 => Verdict::Drop,
            3 => Verdict::Kernel,
            _ => Verdict::Forward(PortId(2)),
        }
    }
}

impl App for Reverser {
    fn process(&mut self, packets: &mut [Packet], _: &mut Turn) {
        for packet in packets.iter_mut() {
            packet.set_verdict(Self::verdict_of(packet.bytes()[0]));
            packet.bytes_mut().iter_mut().for_each(|byte| *byte += 100);
        }
        packets.reverse();
    }
}

#[test]
fn arrivals_are_copied_as_they_were_with_their_verdict_in_any_order() {
    let mut bench = Bench::new(Reverser, &frames(20), 100, all());
    let captured = bench.turn();
    let (arrived, left) = captured.split_at(20);
    for (number, copy) in (0..).zip(arrived) {
        let expected = Captured {
            port: 0,
            event: Event::Arrived,
            verdict: Some(Reverser::verdict_of(number)),
            length: 60 + u32::from(number),
            bytes: frames(20)[usize::from(number)].clone(),
        };
        assert_eq!(*copy, expected);
    }
    assert_eq!(left.len(), 4 * 3);
    for copy in left {
        let number = copy.bytes[0] - 100;
        assert!(copy.bytes.iter().all(|byte| *byte == number + 100), "as it leaves");
        assert_eq!(copy.verdict, Some(Reverser::verdict_of(number)));
        let (port, event) = match number % 5 {
            0 => (0, Event::Sent),
            1 => (1, Event::Sent),
            _ => (2, Event::NoQueue),
        };
        assert_eq!((copy.port, copy.event), (port, event), "{number}");
    }
    assert_eq!(bench.lane.close(), 0);
}

#[test]
fn packets_that_a_port_does_not_take_have_the_reason() {
    let mut long = frames(6);
    long[1] = vec![9; 1200];
    let mut bench = Bench::new(|_: &mut Packet| Verdict::Forward(PortId(1)), &long, 2, all());
    let events: Vec<_> = bench.turn().into_iter().map(|copy| copy.event).skip(6).collect();
    let mut expected = [Event::SentUnlessLength; 6];
    expected[4..].fill(Event::Full); // two, a flush, two more
    assert_eq!(events, expected);
}

/// Application that swaps each packet with a copy that has new content.
struct Swapper;

impl App for Swapper {
    fn process(&mut self, packets: &mut [Packet], turn: &mut Turn) {
        for packet in packets {
            let copy = turn.copy(packet).unwrap();
            copy.bytes_mut().fill(77);
            copy.set_verdict(Verdict::Forward(PortId(1)));
            std::mem::swap(copy, packet);
            copy.set_verdict(Verdict::Reflect);
        }
    }
}

#[test]
fn replaced_packets_have_no_verdict_and_new_ones_are_captured_as_they_leave() {
    let mut bench = Bench::new(Swapper, &frames(3), 100, all());
    let captured = bench.turn();
    assert_eq!(captured.len(), 9);
    assert!(captured[..3].iter().all(|copy| copy.verdict.is_none() && copy.bytes[0] < 3));
    let by_port = |port| captured[3..].iter().filter(move |copy| copy.port == port);
    assert!(by_port(1).all(|copy| copy.bytes[0] == 77) && by_port(1).count() == 3);
    assert!(by_port(0).all(|copy| copy.bytes[0] < 3) && by_port(0).count() == 3);
    assert_eq!(bench.lane.close(), 0);
}

#[test]
fn only_selected_packets_are_copied() {
    let accept_third = Program::new(&[
        Instruction { code: 0x30, jump_true: 0, jump_false: 0, operand: 0 },
        Instruction { code: 0x94, jump_true: 0, jump_false: 0, operand: 3 },
        Instruction { code: 0x15, jump_true: 0, jump_false: 1, operand: 0 },
        Instruction { code: 0x06, jump_true: 0, jump_false: 0, operand: 1 },
        Instruction { code: 0x06, jump_true: 0, jump_false: 0, operand: 0 },
    ])
    .unwrap();
    let count =
        |selection: Selection| Bench::new(Reverser, &frames(30), 100, selection).turn().len();
    assert_eq!(count(all()), 30 + 18);
    assert_eq!(count(Selection { leaving: false, ..all() }), 30);
    assert_eq!(count(Selection { arriving: false, ..all() }), 18);
    assert_eq!(count(Selection { ports: vec![PortId(1)], ..all() }), 6);
    assert_eq!(count(Selection { ports: vec![PortId(0), PortId(2)], ..all() }), 30 + 12);
    assert_eq!(count(Selection { verdicts: VerdictSet::DROP, ..all() }), 6);
    let verdicts = VerdictSet::FORWARD.union(VerdictSet::KERNEL);
    assert_eq!(count(Selection { verdicts, ..all() }), 18 + 12);
    assert_eq!(count(Selection { verdicts: VerdictSet::INVALID, ..all() }), 0);
    assert_eq!(count(Selection { sample: 7, leaving: false, ..all() }), 5);
    let program = Some(accept_third);
    assert_eq!(count(Selection { program: program.clone(), leaving: false, ..all() }), 10);
    assert_eq!(count(Selection { program, sample: 3, leaving: false, ..all() }), 4);
}

#[test]
fn packets_are_truncated_and_keep_their_length() {
    let selection = Selection { snap_length: 61, leaving: false, ..all() };
    let mut bench = Bench::new(Reverser, &frames(3), 100, selection);
    let lengths: Vec<_> = bench.turn().iter().map(|copy| (copy.length, copy.bytes.len())).collect();
    assert_eq!(lengths, [(60, 60), (61, 61), (62, 61)]);
}

/// Runs a lane until all packets are processed, without a reader. Returns the number of packets, of
/// captured ones and of lost ones.
fn overflow(verdicts: VerdictSet) -> (u64, usize, u64) {
    let app = |packet: &mut Packet| {
        if packet.bytes()[0] == 0 { Verdict::Reflect } else { Verdict::Drop }
    };
    let selection = Selection { verdicts, leaving: false, ..all() };
    let received: Vec<_> = (0..3000).flat_map(|_| frames(2)).collect();
    let mut bench = Bench::new(app, &received, 100, selection);
    while bench.lane.turn() > 0 {}
    let mut count = 0;
    let mut record = vec![];
    while bench.reader.next(&mut record).unwrap() {
        count += 1;
    }
    assert_eq!(bench.lane.close(), 0);
    (6000, count, bench.reader.lost())
}

#[test]
fn selected_packets_without_room_are_counted() {
    let (packets, captured, lost) = overflow(VerdictSet::ALL);
    assert!(captured > 500 && lost > 0, "{captured} {lost}");
    assert_eq!(captured as u64 + lost, packets);
    let (packets, captured, lost) = overflow(VerdictSet::REFLECT);
    assert_eq!(captured as u64 + lost, packets / 2);
    assert_eq!(overflow(VerdictSet::FORWARD), (6000, 0, 0), "other packets take no room");
}

#[test]
fn a_capture_ends_and_the_lane_drops_it() {
    let received: Vec<_> = (0..100).flat_map(|_| frames(1)).collect();
    let mut bench = Bench::new(Reverser, &received, 100, all());
    assert_eq!(bench.turn().len(), 64);
    assert!(bench.reader.has_started());
    assert_eq!(Arc::strong_count(&bench.capture), 2);
    assert!(bench.mailbox.put(None).is_none());
    assert_eq!(bench.turn().len(), 0);
    assert_eq!(Arc::strong_count(&bench.capture), 1);
    assert!(bench.mailbox.put(Some(Arc::clone(&bench.capture))).is_none());
    drop(bench.lane);
    assert_eq!(Arc::strong_count(&bench.capture), 2, "never taken: it is still in the mailbox");
}
