//! Properties of a device, its refusals, and the treatment of single packets.

mod support;

use std::process::Command;
use std::time::{Duration, Instant};

use fastlane_core::{Burst, Packet, PacketOwnership, Partial, Pool, PortId, Queue, Verdict};
use fastlane_dpdk::{Device, DeviceSettings, DpdkQueue, Error, LaneMemory, Steering};
use fastlane_steer::{Rule, Rules};
use fastlane_testing::namespace::{self, Wire};
use fastlane_testing::{Addresses, Peer, Spec, Tag};
use fastlane_wire::checksum;
use support::{DpdkPeer, environment, lanes, open, packet, queues, unique};

/// One queue of a device, with its device, pool and memory.
struct Single {
    queue: DpdkQueue,
    device: Device,
    pool: Pool,
    memory: LaneMemory,
}

impl Single {
    fn open(device: &str) -> Option<Self> {
        let environment = environment()?;
        let mut lanes = lanes(&environment, &Spec::default());
        let mut device = open(&environment, &DeviceSettings::new(device), &lanes, 1);
        let queue = queues(&mut device).pop().expect("one queue");
        let (pool, memory) = lanes.pop().expect("one lane");
        Some(Self { queue, device, pool, memory })
    }

    /// Closes the queue and the device, and asserts that all frames are free.
    fn close(mut self) {
        self.queue.close(&mut self.pool);
        assert_eq!(self.pool.missing(), 0, "frames of packets");
        drop((self.queue, self.device));
        assert_eq!(self.memory.in_use(), 0, "frames of the memory");
    }
}

#[test]
fn a_null_device_gives_bursts_and_takes_them() {
    let Some(mut null) = Single::open(&format!("net_null{},size=64,copy=0", unique())) else {
        return;
    };
    assert_eq!((null.device.driver().as_str(), null.device.mtu()), ("net_null", 1500));
    let mut burst = Burst::new(48);
    for round in 0..1000 {
        null.queue.receive(&mut burst, &mut null.pool);
        assert_eq!(burst.len(), 48);
        let packet = &burst.packets()[round % 48];
        assert_eq!((packet.len(), packet.headroom(), packet.port()), (64, 64, PortId(0)));
        assert_eq!(packet.headroom() + packet.len() + packet.tailroom() + 64, 128 + 2048);
        if round % 2 == 0 {
            let sent = null.queue.transmit(burst.packets(), &mut null.pool);
            assert_eq!((sent.taken, sent.packets, sent.bytes), (48, 48, 48 * 64));
            assert!(burst.packets().iter().all(|packet| !packet.has_frame() && packet.len() == 0));
        }
        burst.clear(&mut null.pool);
        null.queue.flush(&mut null.pool);
    }
    assert_eq!(null.queue.statistics(), fastlane_core::Statistics::default());
    null.close();
}

#[test]
fn what_cannot_be_is_refused_with_the_remedy() {
    let Some(environment) = environment() else { return };
    let mut pool = Spec::default().pool();
    let mut memory = |frames, room| {
        LaneMemory::new(&environment, &mut pool, frames, room, -1).expect("a memory")
    };
    let (few, short, enough) = (memory(2000, 2048), memory(4000, 1000), memory(4000, 2048));
    let refusal = |device: &str, mtu, memories: &[LaneMemory]| {
        let settings = DeviceSettings { mtu, ..DeviceSettings::new(device) };
        Device::open(&environment, &settings, memories, &Rules::default()).unwrap_err()
    };
    let null = || format!("net_null{}", unique());
    let error = refusal(&null(), None, std::slice::from_ref(&few));
    assert!(matches!(error, Error::FewFrames { needed: 2944, frames: 2000, .. }), "{error}");
    let error = refusal(&null(), None, std::slice::from_ref(&short)).to_string();
    assert!(error.contains("take 1518 bytes") && error.contains("982 at most"), "{error}");
    let error = refusal(&null(), Some(3000), std::slice::from_ref(&enough)).to_string();
    assert!(error.contains("MTU 3000 take 3018"), "{error}");
    let ring = format!("net_ring{}", unique());
    let error = refusal(&ring, None, &vec![enough.clone(); 17]).to_string();
    assert!(error.contains("1 to 16 queues, not 17"), "{error}");
    let error = refusal("net_nothing0", None, std::slice::from_ref(&enough)).to_string();
    assert!(error.contains("net_nothing0") && error.contains("rte_dev_probe"), "{error}");
    // None of the refusals has kept a frame.
    assert_eq!((few.in_use(), short.in_use(), enough.in_use()), (0, 0, 0));
    assert!(refusal(&null(), None, &[]).to_string().contains("not 0"));
}

#[test]
fn a_memory_counts_what_all_its_queues_may_hold() {
    let Some(environment) = environment() else { return };
    let mut pool = Spec::default().pool();
    let memory = support::memory(&environment, &mut pool, 1);
    let settings = |number| DeviceSettings::new(format!("net_null{number}"));
    let memories = [memory];
    let no_rules = Rules::default();
    let first = Device::open(&environment, &settings(unique()), &memories, &no_rules).unwrap();
    let second = Device::open(&environment, &settings(unique()), &memories, &no_rules);
    assert!(matches!(second, Err(Error::FewFrames { .. })), "{second:?}");
    drop(first);
    Device::open(&environment, &settings(unique()), &memories, &no_rules).unwrap();
}

/// Opens one of two ports over a ring for `size` packets, and a peer at the other.
fn ring(size: u32) -> Option<(Single, DpdkPeer)> {
    let environment = environment()?;
    let [ours, theirs] = environment.ring_pair(&format!("ring{}", unique()), 1, size).unwrap();
    let single = Single::open(&ours)?;
    Some((single, DpdkPeer::open(&environment, &DeviceSettings::new(theirs), 1)))
}

/// Returns different contents of different lengths.
fn contents(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| (0..60 + number).map(|at| (at ^ number) as u8).collect()).collect()
}

/// Receives all packets that the peer has sent.
fn receive_all(single: &mut Single, count: usize) -> Burst {
    let mut burst = Burst::new(count);
    while burst.len() < count {
        let before = burst.len();
        single.queue.receive(&mut burst, &mut single.pool);
        assert!(burst.len() > before, "{before} of {count}");
    }
    burst
}

#[test]
fn bursts_of_all_sizes_pass_unchanged() {
    let Some((mut single, mut peer)) = ring(256) else { return };
    for count in (1..=70).chain([127, 128, 129, 200]) {
        let sent = contents(count);
        assert!(sent.iter().all(|content| peer.send(content)));
        let mut burst = receive_all(&mut single, count);
        let bytes: usize = sent.iter().map(Vec::len).sum();
        for (packet, content) in burst.packets().iter().zip(&sent) {
            assert_eq!((packet.bytes(), packet.port()), (&content[..], Spec::PORT));
            assert_eq!(packet.verdict(), Verdict::Kernel.into());
            assert_eq!((packet.headroom(), packet.is_from_kernel()), (64, false));
            assert_eq!(64 + packet.len() + packet.tailroom() + 64, 128 + support::ROOM);
        }
        let back = single.queue.transmit(burst.packets(), &mut single.pool);
        assert_eq!((back.taken, back.packets, back.bytes), (count, count, bytes as u64));
        assert!(burst.packets().iter().all(|packet| !packet.has_frame() && packet.len() == 0));
        single.queue.flush(&mut single.pool);
        for content in &sent {
            assert_eq!(peer.receive(Duration::ZERO).as_ref(), Some(content), "of {count}");
        }
    }
    drop(peer);
    single.close();
}

/// Change of one packet in a burst, and the content afterwards. `None` if it cannot be sent.
type Change = fn(&mut Single, &mut Packet) -> Option<Vec<u8>>;

const CHANGES: [Change; 8] = [
    |_, packet| {
        assert!(packet.trim_front(4));
        Some(packet.bytes().to_vec())
    },
    |_, packet| {
        packet.prepend(64)?.fill(7);
        Some(packet.bytes().to_vec())
    },
    |_, packet| {
        packet.append(3)?.fill(9);
        Some(packet.bytes().to_vec())
    },
    |_, packet| {
        let length = packet.len();
        assert!(packet.trim_front(2) && packet.append(2).is_some());
        assert_eq!(packet.len(), length, "only the headroom differs");
        packet.bytes_mut()[length - 2..].fill(5);
        Some(packet.bytes().to_vec())
    },
    |_, packet| {
        assert!(packet.truncate(packet.len() - 1));
        Some(packet.bytes().to_vec())
    },
    |_, packet| {
        assert!(packet.truncate(0));
        None
    },
    |_, packet| {
        let longer = 1519 - packet.len();
        packet.append(longer)?.fill(1);
        None
    },
    |single, packet| {
        single.pool.release(packet);
        *packet = single.pool.alloc_packet(60, PortId(0))?;
        None
    },
];

#[test]
fn each_change_of_a_packet_in_a_burst_is_seen() {
    let Some((mut single, mut peer)) = ring(64) else { return };
    for (number, change) in CHANGES.into_iter().enumerate() {
        for (count, at) in (1..=17).flat_map(|count| (0..count).map(move |at| (count, at))) {
            let mut contents: Vec<_> = contents(count).into_iter().map(Some).collect();
            assert!(contents.iter().flatten().all(|content| peer.send(content)));
            let mut burst = receive_all(&mut single, count);
            contents[at] = change(&mut single, &mut burst.packets()[at]);
            let sent = single.queue.transmit(burst.packets(), &mut single.pool);
            let leaving: Vec<_> = contents.iter().flatten().collect();
            let bytes: usize = leaving.iter().map(|content| content.len()).sum();
            let expected = (count, leaving.len(), bytes as u64);
            let place = format!("change {number} of packet {at} of {count}");
            assert_eq!((sent.taken, sent.packets, sent.bytes), expected, "{place}");
            assert!(burst.packets().iter().all(|packet| !packet.has_frame()), "{place}");
            single.queue.flush(&mut single.pool);
            for content in leaving {
                assert_eq!(peer.receive(Duration::ZERO).as_ref(), Some(content), "{place}");
            }
            assert!(peer.receive(Duration::ZERO).is_none(), "{place}");
        }
    }
    drop(peer);
    single.close();
}

#[test]
fn unchanged_packets_that_are_empty_or_too_long_are_not_sent() {
    let Some((mut single, mut peer)) = ring(64) else { return };
    for count in [1, 8, 9] {
        let mut packets: Vec<_> =
            (0..count).map(|_| packet(&mut single.queue, &mut single.pool, &[])).collect();
        let sent = single.queue.transmit(&mut packets, &mut single.pool);
        assert_eq!((sent.taken, sent.packets, sent.bytes), (count, 0, 0));
        assert!(packets.iter().all(|packet| !packet.has_frame()));
    }
    assert!(peer.receive(Duration::ZERO).is_none());
    drop(peer);
    single.close();
    // The device gives longer packets than it takes.
    let mut null = Single::open(&format!("net_null{},size=1519,copy=0", unique())).unwrap();
    for count in [1, 8, 9] {
        let mut burst = Burst::new(count);
        null.queue.receive(&mut burst, &mut null.pool);
        assert_eq!((burst.len(), burst.packets()[0].len()), (count, 1519));
        let sent = null.queue.transmit(burst.packets(), &mut null.pool);
        assert_eq!((sent.taken, sent.packets, sent.bytes), (count, 0, 0));
        burst.clear(&mut null.pool);
    }
    null.close();
}

#[test]
fn packets_that_a_full_device_does_not_take_stay_as_they_are() {
    let Some((mut single, mut peer)) = ring(32) else { return };
    let contents = contents(40);
    let total = |contents: &[Vec<u8>]| contents.iter().map(Vec::len).sum::<usize>() as u64;
    // The windows of new packets are not those of their mbufs, and those of received ones are.
    for are_new in [true, false] {
        let mut burst = Burst::new(40);
        for contents in contents.chunks(20) {
            for content in contents {
                if are_new {
                    let packet = packet(&mut single.queue, &mut single.pool, content);
                    burst.push(packet).unwrap();
                } else {
                    assert!(peer.send(content));
                }
            }
            single.queue.receive(&mut burst, &mut single.pool);
        }
        let packets = burst.packets();
        let tokens: Vec<_> = packets.iter().map(Packet::token).collect();
        assert_eq!(tokens.len(), 40);
        let sent = single.queue.transmit(packets, &mut single.pool);
        assert_eq!((sent.taken, sent.packets, sent.bytes), (31, 31, total(&contents[..31])));
        for (at, packet) in packets.iter().enumerate().skip(31) {
            assert_eq!((packet.bytes(), packet.token()), (&contents[at][..], tokens[at]));
            assert_eq!(packet.headroom(), 64);
        }
        let sent = single.queue.transmit(&mut packets[31..], &mut single.pool);
        assert_eq!((sent.taken, sent.packets, sent.bytes), (0, 0, 0));
        for content in &contents[..31] {
            assert_eq!(peer.receive(Duration::ZERO).as_ref(), Some(content));
        }
        let sent = single.queue.transmit(&mut packets[31..], &mut single.pool);
        assert_eq!((sent.taken, sent.packets, sent.bytes), (9, 9, total(&contents[31..])));
        for content in &contents[31..] {
            assert_eq!(peer.receive(Duration::ZERO).as_ref(), Some(content));
        }
        burst.clear(&mut single.pool);
    }
    drop(peer);
    single.close();
}

#[test]
fn a_packet_that_a_full_device_did_not_take_is_changed_again() {
    let Some((mut single, mut peer)) = ring(32) else { return };
    let contents = contents(32);
    let (content, others) = contents.split_last().unwrap();
    assert!(others.iter().all(|content| peer.send(content)));
    let mut burst = receive_all(&mut single, 31);
    assert_eq!(single.queue.transmit(burst.packets(), &mut single.pool).taken, 31);
    assert!(peer.send(content));
    let mut burst = receive_all(&mut single, 1);
    burst.packets()[0].prepend(8).unwrap().fill(1);
    assert_eq!(single.queue.transmit(burst.packets(), &mut single.pool).taken, 0);
    // Its mbuf has the eight bytes now.
    assert!(burst.packets()[0].trim_front(8));
    for content in others {
        assert_eq!(peer.receive(Duration::ZERO).as_ref(), Some(content));
    }
    assert_eq!(single.queue.transmit(burst.packets(), &mut single.pool).taken, 1);
    assert_eq!(peer.receive(Duration::ZERO).as_ref(), Some(content));
    drop(peer);
    single.close();
}

/// Returns a UDP datagram with a partial checksum, and the position of the checksum.
fn partial() -> (Vec<u8>, Partial) {
    let mut frame = Tag { test: 1, sequence: 1 }.frame(Addresses::default(), 200);
    let (start, length) = (34, 200 - 34);
    let mut pseudo = frame[26..34].to_vec();
    pseudo.extend([0, 17, 0, length as u8]);
    let sum = !checksum::checksum(&pseudo);
    frame[start + 6..start + 8].copy_from_slice(&sum.to_be_bytes());
    (frame, Partial { start: 34, offset: 6 })
}

/// Returns true if the checksum of the datagram is correct.
fn is_complete(frame: &[u8]) -> bool {
    let datagram = &frame[34..];
    let mut whole = frame[26..34].to_vec();
    whole.extend([0, 17, 0, datagram.len() as u8]);
    whole.extend(datagram);
    checksum::checksum(&whole) == 0
}

fn send_partial(single: &mut Single) {
    let (frame, partial) = partial();
    assert!(!is_complete(&frame));
    let mut packets: Vec<_> =
        (0..5).map(|_| packet(&mut single.queue, &mut single.pool, &frame)).collect();
    for packet in &mut packets[1..4] {
        packet.set_partial_checksum(Some(partial));
    }
    // A packet whose checksum cannot be completed is dropped, and does not delay the others.
    packets[3].set_partial_checksum(Some(Partial { start: 250, offset: 6 }));
    let is_marked = |packet: &Packet| packet.partial_checksum().is_some();
    let sent: Vec<_> = packets
        .chunk_by_mut(|one, other| is_marked(one) == is_marked(other))
        .map(|run| single.queue.transmit(run, &mut single.pool))
        .map(|sent| (sent.taken, sent.packets, sent.bytes))
        .collect();
    assert_eq!(sent, [(1, 1, 200), (3, 2, 2 * 200), (1, 1, 200)]);
    assert!(packets.iter().all(|packet| !packet.has_frame()));
    single.queue.flush(&mut single.pool);
}

#[test]
fn partial_checksums_are_completed_where_the_device_does_not() {
    let Some(environment) = environment() else { return };
    let [ours, theirs] = environment.ring_pair(&format!("sum{}", unique()), 1, 256).unwrap();
    let mut single = Single::open(&ours).unwrap();
    let mut peer = DpdkPeer::open(&environment, &DeviceSettings::new(theirs), 1);
    assert!(!single.device.offloads_checksums());
    send_partial(&mut single);
    let complete: Vec<_> = std::iter::from_fn(|| peer.receive(Duration::ZERO))
        .map(|frame| is_complete(&frame))
        .collect();
    assert_eq!(complete, [false, true, true, false], "the first and the last were not marked");
    drop(peer);
    single.close();
}

#[test]
fn partial_checksums_are_left_to_a_device_that_completes_them() {
    if environment().is_none() || !namespace::private("dpdk") {
        return;
    }
    let number = unique();
    let Some(mut single) = Single::open(&format!("net_tap{number},iface=sum{number}")) else {
        return;
    };
    assert!(single.device.offloads_checksums(), "net_tap does");
    assert_eq!(single.device.steering(), &Steering::Everything);
    let mut wire = Wire::open(&format!("sum{number}")).expect("a wire");
    send_partial(&mut single);
    let mut complete = Vec::new();
    while let Some(frame) = wire.receive(Duration::from_millis(200)) {
        if frame.len() == 200 {
            complete.push(is_complete(&frame));
        }
    }
    assert_eq!(complete, [false, true, true, false], "the first and the last were not marked");
    single.close();
}

#[test]
fn rules_that_a_device_does_not_take_are_left_to_software() {
    let Some(environment) = environment() else { return };
    let rules = Rules::new(vec![Rule { gtp_u: true, ..Rule::default() }]).unwrap();
    let mut pool = Spec::default().pool();
    let memories = [support::memory(&environment, &mut pool, 1)];
    let settings = DeviceSettings::new(format!("net_null{}", unique()));
    let device = Device::open(&environment, &settings, &memories, &rules).unwrap();
    let steering = device.steering().to_string();
    assert!(steering.starts_with("software (rte_flow: "), "{steering}");
}

#[test]
fn a_queue_may_be_used_by_another_thread_than_the_one_that_opened_it() {
    let Some(null) = Single::open(&format!("net_null{}", unique())) else { return };
    let null = std::thread::spawn(move || {
        let mut null = null;
        let mut burst = Burst::new(32);
        for _ in 0..100 {
            null.queue.receive(&mut burst, &mut null.pool);
            burst.clear(&mut null.pool);
        }
        null.queue.flush(&mut null.pool);
        null
    });
    null.join().unwrap().close();
}

#[test]
fn a_hash_without_our_key_is_not_symmetric() {
    let Some(environment) = environment() else { return };
    let spec = Spec { lanes: 2, queues: 4, ..Spec::default() };
    let lanes = lanes(&environment, &spec);
    // The first device has a fixed hash key, the second has no hash.
    for device in ["net_null", "net_ring"] {
        let settings = DeviceSettings::new(format!("{device}{}", unique()));
        let mut device = open(&environment, &settings, &lanes, 4);
        assert_eq!((device.queues(), device.has_symmetric_rss()), (4, false), "{settings:?}");
        assert!(device.link_up() && device.link().is_up());
        assert!(queues(&mut device).iter().all(|queue| queue.interrupt().is_none()));
    }
}

#[test]
fn queues_are_given_out_once() {
    let Some(mut null) = Single::open(&format!("net_null{}", unique())) else { return };
    assert!(null.device.queue(PortId(0), 0).unwrap().is_none(), "it was given out");
    assert!(null.device.queue(PortId(0), 1).unwrap().is_none(), "there is no other");
    null.close();
}

/// Runs the conformance suite without any capability beside this process: memif and rings need
/// none.
#[test]
fn it_runs_without_privilege_beside_another() {
    let Some(_here) = environment() else { return };
    let conformance = std::env::current_exe().unwrap();
    let folder = conformance.parent().unwrap();
    let other = std::fs::read_dir(folder)
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_none())
        .filter(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("conformance-"))
        })
        .max_by_key(|path| path.metadata().and_then(|data| data.modified()).ok());
    let Some(other) = other else {
        return eprintln!("no program `conformance` beside this one: nothing to run");
    };
    let runtime = std::env::temp_dir().join(format!("fastlane-dpdk-{}", std::process::id()));
    std::fs::create_dir_all(&runtime).unwrap();
    std::os::unix::fs::chown(&runtime, Some(65534), Some(65534)).expect("root");
    // Copies, because another user may not enter the folders of the checkout, as below /root.
    let program = runtime.join("conformance");
    std::fs::copy(other, &program).unwrap();
    let plugin = folder.parent().unwrap().join("libfastlane_dpdk.so");
    if plugin.is_file() {
        std::fs::copy(&plugin, runtime.join("libfastlane_dpdk.so")).unwrap();
    }
    let began = Instant::now();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all"])
        .args(["--inh-caps=-all", "--no-new-privs"])
        .arg(program)
        .args(["memifs::every_frame_is_accounted_for", "rings::every_frame_is_accounted_for"])
        .env("XDG_RUNTIME_DIR", &runtime)
        .env("TMPDIR", &runtime)
        .output();
    std::fs::remove_dir_all(&runtime).unwrap();
    let output = output.expect("setpriv runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    let ran = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "after {:?}: {errors}{ran}", began.elapsed());
    assert!(!errors.contains("SKIP"), "{errors}");
}
