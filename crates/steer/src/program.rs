//! Loads the eBPF programs, attaches them and feeds their tables.
//!
//! The object is compiled ahead (`bpf/build`) and committed, so no compiler is needed. Linux 6.1 is
//! the oldest supported. Memory of maps and programs does not count against RLIMIT_MEMLOCK since
//! Linux 5.11.

use std::{
    fmt,
    os::fd::{BorrowedFd, OwnedFd},
};

use aya::{
    Ebpf, EbpfLoader,
    programs::{ProgramError as AyaError, SchedClassifier, SocketFilter, Xdp},
};

use crate::{
    Rules, encode,
    error::{self, ProgramError},
    tables::Tables,
};

/// Places in the table of AF_XDP sockets: queue numbers go from 0 to one less.
pub const MAX_QUEUES: u32 = 1024;

/// What the programs need to know besides the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Longest frame that the fast path takes, in octets from the Ethernet header on, VLAN tags
    /// included. A longer one is left to Linux and counted.
    pub max_length: u32,
    /// Mark (`skb->mark`, SO_MARK) of frames that re-enter; 0 marks none.
    pub mark: u32,
    /// Interface on which frames re-enter, by its index; 0 when none do.
    pub reenter_ifindex: u32,
}

/// Frames counted by the programs since they were loaded, summed over the CPUs.
///
/// `fastlane_xdp` and `fastlane_select` count each frame they see exactly once, in one of the first
/// four. Several AF_PACKET sockets that are not in one fanout group count it once each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Given to the fast path.
    pub claimed: u64,
    /// No rule matched: left to Linux.
    pub passed: u64,
    /// A rule matched, but no AF_XDP socket is on the queue: left to Linux.
    pub uncovered: u64,
    /// A rule matched, but the frame is longer than [`Settings::max_length`]: left to Linux.
    pub too_long: u64,
    /// Sent by the re-entry TAP to the interface's ingress.
    pub reentered: u64,
}

/// The eBPF programs of one port, with their tables.
///
/// Dropping it detaches everything, and so does the end of the process however it comes, with one
/// exception: see [`Program::attach_claim`]. All methods act in the network namespace of the
/// calling thread. Not for lanes: every method is a system call or more.
pub struct Program {
    /// `None` for a program that was adopted: another process has loaded it.
    pub(crate) programs: Option<Ebpf>,
    pub(crate) tables: Tables,
    pub(crate) settings: Settings,
    pub(crate) xdp_link: Option<OwnedFd>,
}

impl Program {
    /// Creates the tables and fills in `rules` and `settings`. The programs themselves are verified
    /// by the kernel when they are first attached.
    ///
    /// # Errors
    /// [`ProgramError::NoPrivilege`] without CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON (the
    /// verifier lets nobody compute with packet pointers without the last, see linux/capability.h).
    pub fn load(rules: &Rules, settings: Settings) -> Result<Program, ProgramError> {
        let object = aya::include_bytes_aligned!("../bpf/steer.bpf.o");
        // The programs read no kernel structures, so the kernel's type information is not needed.
        let programs = EbpfLoader::new().btf(None).load(object).map_err(error::open_error)?;
        let tables = Tables::of(&programs)?;
        let mut program = Program { programs: Some(programs), tables, settings, xdp_link: None };
        program.replace_rules(rules)?;
        Ok(program)
    }

    /// Replaces the rules, at any time: each frame is judged by the old list or by the new one,
    /// never by a mixture, and so that what the AF_PACKET sockets take is kept from Linux and the
    /// rest is not. When it returns no frame is judged by the old list any more; that takes some
    /// milliseconds (an RCU grace period). Not for several threads or processes at once.
    ///
    /// # Errors
    /// [`ProgramError::Kernel`] when the kernel refuses; then the old rules stay in force.
    pub fn replace_rules(&mut self, rules: &Rules) -> Result<(), ProgramError> {
        self.tables.replace(encode::steering(rules, &self.settings))
    }

    /// Makes `socket`, an AF_XDP socket with its rings set up, the target of the queue's fast
    /// frames. It must be bound to that queue of the interface, else the kernel drops them. The
    /// table holds no reference: closing the socket takes it out.
    ///
    /// # Errors
    /// [`ProgramError::QueueOutOfRange`], or [`ProgramError::Kernel`] (EOPNOTSUPP) when
    /// `socket` is no AF_XDP socket or has no receive ring and no UMEM yet.
    pub fn insert_socket(
        &mut self,
        queue: u32,
        socket: BorrowedFd<'_>,
    ) -> Result<(), ProgramError> {
        check_queue(queue)?;
        let action = format!("steering queue {queue} to its AF_XDP socket");
        self.tables
            .sockets
            .set(queue, socket, 0)
            .map_err(|error| error::table_error(&action, error))
    }

    /// Takes the socket of `queue` out, if one is there: its frames stay in Linux from now on,
    /// counted uncovered.
    ///
    /// # Errors
    /// [`ProgramError::QueueOutOfRange`], or [`ProgramError::Kernel`] when the kernel refuses.
    pub fn remove_socket(&mut self, queue: u32) -> Result<(), ProgramError> {
        check_queue(queue)?;
        let action = format!("taking the AF_XDP socket off queue {queue}");
        self.tables.sockets.unset(queue).map_err(|error| error::table_error(&action, error))
    }

    /// Reads the counts. Each is exact; they are not of one instant.
    ///
    /// # Errors
    /// [`ProgramError::Kernel`] when the kernel refuses.
    pub fn counts(&self) -> Result<Counts, ProgramError> {
        // The keys of `enum count` in `bpf/steer.bpf.c`.
        let mut sums = [0; 5];
        for (key, sum) in (0..).zip(&mut sums) {
            let values = self
                .tables
                .counts
                .get(&key, 0)
                .map_err(|error| error::table_error("reading the steering counts", error))?;
            *sum = values.iter().sum();
        }
        let [claimed, passed, uncovered, too_long, reentered] = sums;
        Ok(Counts { claimed, passed, uncovered, too_long, reentered })
    }

    pub(crate) fn xdp(&mut self) -> Result<&mut Xdp, ProgramError> {
        let name = "fastlane_xdp";
        let program: &mut Xdp = typed(loader(&mut self.programs, name)?, name)?;
        loaded(program.fd().is_ok(), || program.load(), name)?;
        Ok(program)
    }

    pub(crate) fn select(&mut self) -> Result<&mut SocketFilter, ProgramError> {
        let name = "fastlane_select";
        let program: &mut SocketFilter = typed(loader(&mut self.programs, name)?, name)?;
        loaded(program.fd().is_ok(), || program.load(), name)?;
        Ok(program)
    }

    pub(crate) fn classifier(&mut self, name: &str) -> Result<&mut SchedClassifier, ProgramError> {
        let program: &mut SchedClassifier = typed(loader(&mut self.programs, name)?, name)?;
        loaded(program.fd().is_ok(), || program.load(), name)?;
        Ok(program)
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Program").field("settings", &self.settings).finish_non_exhaustive()
    }
}

fn check_queue(queue: u32) -> Result<(), ProgramError> {
    match queue < MAX_QUEUES {
        true => Ok(()),
        false => Err(ProgramError::QueueOutOfRange { queue, most: MAX_QUEUES }),
    }
}

/// A program that this process has loaded.
fn loader<'a>(
    programs: &'a mut Option<Ebpf>,
    name: &str,
) -> Result<&'a mut aya::programs::Program, ProgramError> {
    let adopted = || ProgramError::Adopted { program: name.to_owned() };
    let programs = programs.as_mut().ok_or_else(adopted)?;
    programs.program_mut(name).ok_or_else(|| error::absent(name))
}

fn typed<'a, T>(program: &'a mut aya::programs::Program, name: &str) -> Result<T, ProgramError>
where
    T: TryFrom<&'a mut aya::programs::Program, Error = AyaError>,
{
    T::try_from(program).map_err(|error| ProgramError::new(format!("opening {name}"), error))
}

/// How often a program is loaded again when a signal interrupted the kernel.
const LOADS: usize = 10;

/// Has the kernel verify and compile a program, once.
fn loaded(
    already: bool,
    mut load: impl FnMut() -> Result<(), AyaError>,
    name: &str,
) -> Result<(), ProgramError> {
    if already {
        return Ok(());
    }
    let mut result = load();
    for _ in 1..LOADS {
        // A signal to the thread, a child's end among them, makes the verifier give up with EAGAIN
        // (kernel/bpf/verifier.c, do_check); libbpf tries again too.
        let interrupted = matches!(&result, Err(AyaError::LoadError { io_error, .. })
            if io_error.kind() == std::io::ErrorKind::WouldBlock);
        if !interrupted {
            break;
        }
        result = load();
    }
    result.map_err(|error| ProgramError::new(format!("loading {name}"), error))
}
