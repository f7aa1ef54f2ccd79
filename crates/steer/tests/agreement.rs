//! The eBPF programs agree with the reference matcher: random rules, random frames, through the
//! kernel's BPF_PROG_TEST_RUN.

mod support;

use std::{
    cell::{Cell, RefCell},
    os::fd::AsFd,
};

use fastlane_steer::{Counts, MAX_RULES, Program, ProgramName, Rule, Rules, Settings};
use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{Config, TestCaseError, TestError, TestRunner},
};
use support::{
    frames::{self, Frame},
    machine, random_rules,
};

/// Number of lists of rules, and frames per list: 102,400 pairs.
const LISTS: u32 = 400;
const FRAMES: usize = 256;
/// Frames per list for the two programs on socket buffers. The kernel accepts such frames up to
/// about 3,500 octets only; XDP frames may be longer and then have several fragments.
const BUFFERS: usize = 32;

const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;
const TC_ACT_SHOT: u32 = 2;
const TC_ACT_UNSPEC: u32 = u32::MAX;
const WHOLE_FRAME: u32 = 0x40000;
const ANY_LENGTH: Settings = Settings { max_length: u32::MAX, mark: 0, reenter_ifindex: 0 };

/// Number of frames with each outcome.
#[derive(Default)]
struct Outcomes {
    fast: Cell<u64>,
    slow: Cell<u64>,
}

impl Outcomes {
    fn add(&self, fast: bool) {
        let which = if fast { &self.fast } else { &self.slow };
        which.set(which.get() + 1);
    }

    /// Fails if nearly all frames have the same outcome, which would prove little.
    fn assert_mixed(&self, least: u64) {
        let (fast, slow) = (self.fast.get(), self.slow.get());
        println!("{fast} fast, {slow} not");
        assert!(fast + slow >= least, "{fast} + {slow} pairs, {least} wanted");
        let tenth = (fast + slow) / 10;
        assert!(fast >= tenth && slow >= tenth, "one-sided: {fast} fast, {slow} not");
    }
}

/// Compares `judge` with the reference over `LISTS` lists of rules and `frames` frames per list.
fn compare(
    program: &RefCell<Program>,
    frames: impl Strategy<Value = Vec<Frame>>,
    judge: impl Fn(&mut Program, &[u8]) -> bool,
) -> Outcomes {
    let outcomes = Outcomes::default();
    // A whole list fails at its first frame; `smallest` reduces it better than shrinking does.
    let config = Config {
        cases: LISTS,
        max_shrink_iters: 0,
        failure_persistence: None,
        ..Config::default()
    };
    let result =
        TestRunner::new(config).run(&(random_rules::rules(), frames), |(rules, frames)| {
            let program = &mut *program.borrow_mut();
            program.replace_rules(&rules).expect("the table takes them");
            for Frame(frame) in &frames {
                let fast = rules.matches(frame);
                if judge(program, frame) != fast {
                    let (rules, frame) = smallest(rules, frame.clone(), |rules, frame| {
                        program.replace_rules(rules).expect("the table takes them");
                        judge(program, frame) != rules.matches(frame)
                    });
                    let reason =
                        format!("fast: {}, {rules:?} {:?}", rules.matches(&frame), Frame(frame));
                    return Err(TestCaseError::fail(reason));
                }
                outcomes.add(fast);
            }
            Ok(())
        });
    match result {
        Ok(()) => outcomes,
        Err(TestError::Fail(reason, _)) => panic!("the programs disagree; {reason}"),
        Err(abort) => panic!("{abort}"),
    }
}

/// Removes rules and trailing octets as long as `fails` returns true.
fn smallest(
    mut rules: Rules,
    mut frame: Vec<u8>,
    mut fails: impl FnMut(&Rules, &[u8]) -> bool,
) -> (Rules, Vec<u8>) {
    for index in (0..rules.as_slice().len()).rev() {
        let mut fewer = rules.as_slice().to_vec();
        fewer.remove(index);
        let fewer = Rules::new(fewer).expect("they were sound before");
        if fails(&fewer, &frame) {
            rules = fewer;
        }
    }
    while frame.len() > 15 && fails(&rules, &frame[..frame.len() - 1]) {
        frame.pop();
    }
    (rules, frame)
}

#[test]
fn xdp_agrees_with_the_reference() {
    let name = "xdp_agrees_with_the_reference";
    let Some(mut program) = support::load(name, &Rules::default(), ANY_LENGTH) else { return };
    // A test run only redirects if there is a socket in the table.
    let socket = match machine::xdp_socket() {
        Ok(socket) => socket,
        Err(error) => return support::skip(name, &format!("no AF_XDP socket: {error}")),
    };
    program.insert_socket(0, socket.as_fd()).expect("the socket has memory and rings");

    let program = RefCell::new(program);
    let outcomes = compare(&program, vec(frames::frame(14..=9_000), FRAMES), |program, frame| {
        let trial =
            program.test_run(ProgramName::Xdp, frame, 0, 1).expect("the frame is long enough");
        assert!([XDP_REDIRECT, XDP_PASS].contains(&trial.returned));
        trial.returned == XDP_REDIRECT
    });
    let counts = program.borrow().counts().expect("counts");
    let wanted =
        Counts { claimed: outcomes.fast.get(), passed: outcomes.slow.get(), ..Counts::default() };
    assert_eq!(counts, wanted);
    outcomes.assert_mixed(100_000);
}

#[test]
fn socket_buffer_programs_agree_with_the_reference() {
    let name = "socket_buffer_programs_agree_with_the_reference";
    let Some(program) = support::load(name, &Rules::default(), ANY_LENGTH) else { return };
    let program = RefCell::new(program);
    let outcomes = compare(&program, vec(frames::frame(1..=3_000), BUFFERS), |program, frame| {
        let selected = select(program, frame);
        assert!([WHOLE_FRAME, 0].contains(&selected));
        if has_network_header(frame) {
            let claim = program.test_run(ProgramName::Claim, frame, 0, 1).expect("claim runs");
            let wanted = if selected == 0 { TC_ACT_UNSPEC } else { TC_ACT_SHOT };
            assert_eq!(claim.returned, wanted, "claim and select differ: {:02x?}", frame);
        }
        selected == WHOLE_FRAME
    });
    outcomes.assert_mixed(u64::from(LISTS) * BUFFERS as u64);
}

/// Returns true if the frame has a complete IP header or a payload: the kernel accepts no other
/// socket buffer.
fn has_network_header(frame: &[u8]) -> bool {
    let shortest = match frame.get(12..14) {
        Some([0x08, 0x00]) => 20,
        Some([0x86, 0xdd]) => 40,
        _ => 1,
    };
    frame.len() >= 14 + shortest
}

/// Runs `fastlane_select` on a frame. A test run of a socket filter removes the Ethernet header,
/// which a packet socket does not, so the frame gets a second one.
fn select(program: &mut Program, frame: &[u8]) -> u32 {
    let with_header = [&[0; 14], frame].concat();
    program.test_run(ProgramName::Select, &with_header, 0, 1).expect("select runs").returned
}

/// Returns a frame to a UDP port, and a rule for exactly that port.
fn to_port(port: u16) -> (Rule, Vec<u8>) {
    let rule = Rule { udp_port: Some(port.into()), ..Rule::default() };
    let mut frame = vec![0; 100];
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    frame[14] = 0x45;
    frame[23] = 17;
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    (rule, frame)
}

fn to_port_53() -> (Rules, Vec<u8>) {
    let (rule, frame) = to_port(53);
    (Rules::new(vec![rule]).expect("a sound rule"), frame)
}

#[test]
fn each_of_the_most_rules_is_judged() {
    let most = MAX_RULES as u16;
    let (list, frames): (Vec<Rule>, Vec<_>) = (1000..=1000 + most).map(to_port).unzip();
    let rules = Rules::new(list[..MAX_RULES].to_vec()).expect("sound rules");
    let name = "each_of_the_most_rules_is_judged";
    let Some(mut program) = support::load(name, &rules, ANY_LENGTH) else { return };
    for (index, frame) in frames.iter().enumerate() {
        let wanted = if index < MAX_RULES { WHOLE_FRAME } else { 0 };
        assert_eq!(select(&mut program, frame), wanted, "rule {index}");
        assert_eq!(rules.matches(frame), index < MAX_RULES, "rule {index}");
    }
}

#[test]
fn sockets_leave_the_table_when_taken_out_or_closed() {
    let name = "sockets_leave_the_table_when_taken_out_or_closed";
    let Some(mut program) = support::load(name, &Rules::default(), ANY_LENGTH) else { return };
    let socket = match machine::xdp_socket() {
        Ok(socket) => socket,
        Err(error) => return support::skip(name, &format!("no AF_XDP socket: {error}")),
    };
    let covered = |program: &mut Program| {
        let trial = program.test_run(ProgramName::Xdp, &[0; 60], 0, 1).expect("xdp runs");
        trial.returned == XDP_REDIRECT
    };
    assert!(!covered(&mut program));
    program.remove_socket(0).expect("an empty slot may be cleared");
    program.insert_socket(0, socket.as_fd()).expect("it has memory and rings");
    assert!(covered(&mut program));
    program.remove_socket(0).expect("it is there");
    assert!(!covered(&mut program));
    program.insert_socket(0, socket.as_fd()).expect("it may come back");
    program.insert_socket(0, socket.as_fd()).expect("and replace itself");
    assert!(covered(&mut program));
    drop(socket);
    assert!(!covered(&mut program));
    let wanted = Counts { claimed: 2, uncovered: 3, ..Counts::default() };
    assert_eq!(program.counts().expect("counts"), wanted);
}

#[test]
fn too_long_and_uncovered_frames_stay_in_linux_and_are_counted() {
    let (rules, frame) = to_port_53();
    let settings = Settings { max_length: 100, ..ANY_LENGTH };
    let name = "too_long_and_uncovered_frames_stay_in_linux_and_are_counted";
    let Some(mut program) = support::load(name, &rules, settings) else { return };
    let longer = [&frame[..], &[0]].concat();

    // No socket is in the table, so claimed frames are uncovered.
    for (frame, times) in [(&frame, 3), (&longer, 2)] {
        let is = program.test_run(ProgramName::Xdp, frame, 0, times).expect("xdp runs");
        assert_eq!(is.returned, XDP_PASS);
    }
    let wanted = Counts { uncovered: 3, too_long: 2, ..Counts::default() };
    assert_eq!(program.counts().expect("counts"), wanted);

    assert_eq!(select(&mut program, &frame), WHOLE_FRAME);
    assert_eq!(select(&mut program, &longer), 0);
    let wanted = Counts { claimed: 1, uncovered: 3, too_long: 3, ..Counts::default() };
    assert_eq!(program.counts().expect("counts"), wanted);
    for (frame, wanted) in [(&frame, TC_ACT_SHOT), (&longer, TC_ACT_UNSPEC)] {
        let is = program.test_run(ProgramName::Claim, frame, 0, 1).expect("claim runs");
        assert_eq!(is.returned, wanted);
    }
}

#[test]
fn marked_frames_are_known_again() {
    let (rules, frame) = to_port_53();
    let settings = Settings { mark: 0xfa57, reenter_ifindex: 1, ..ANY_LENGTH };
    let name = "marked_frames_are_known_again";
    let Some(mut program) = support::load(name, &rules, settings) else { return };
    let with_header = [&[0; 14], &frame[..]].concat();
    for (mark, claimed, selected) in [
        (0, TC_ACT_SHOT, WHOLE_FRAME),
        (0xfa57, TC_ACT_UNSPEC, 0),
        (0xfa58, TC_ACT_SHOT, WHOLE_FRAME),
    ] {
        let claim = program.test_run(ProgramName::Claim, &frame, mark, 1).expect("claim runs");
        assert_eq!(claim.returned, claimed, "mark {mark:#x}");
        let select =
            program.test_run(ProgramName::Select, &with_header, mark, 1).expect("select runs");
        assert_eq!(select.returned, selected, "mark {mark:#x}");
    }
    const TC_ACT_REDIRECT: u32 = 7;
    let reenter = program.test_run(ProgramName::Reenter, &frame, 0, 1).expect("reenter runs");
    assert_eq!(reenter.returned, TC_ACT_REDIRECT);
    assert_eq!(program.counts().expect("counts").reentered, 1);
}
