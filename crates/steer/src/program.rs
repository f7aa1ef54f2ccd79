//! Loads the eBPF programs, attaches them and feeds their tables.
//!
//! The object is compiled ahead (`bpf/build`) and committed, so no compiler is needed. Linux 6.1 is
//! the oldest supported. Memory of maps and programs does not count against RLIMIT_MEMLOCK since
//! Linux 5.11.

use std::{fmt, io, os::fd::BorrowedFd, time::Duration};

use aya::{
    Ebpf, EbpfLoader,
    maps::{Array, MapData, MapError, PerCpuArray, XskMap},
    programs::{
        LinkOrder, ProgramError as AyaError, SchedClassifier, SocketFilter, TcAttachType, TestRun,
        TestRunOptions, Xdp, links::FdLink, tc, xdp::XdpMode as AyaMode,
    },
    util::KernelVersion,
};

use crate::{
    Rules,
    encode::{self, Steering},
    error::{self, ProgramError},
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

/// Who runs the XDP program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// The driver, before the kernel allocates a socket buffer.
    Native,
    /// The kernel's network stack: slower, works with every driver.
    Generic,
}

/// One of the programs in the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// `fastlane_xdp`: returns XDP_REDIRECT (4) or XDP_PASS (2).
    Xdp,
    /// `fastlane_claim`: returns TC_ACT_SHOT (2) or TC_ACT_UNSPEC (-1).
    Claim,
    /// `fastlane_select`: returns the length to keep, or 0.
    Select,
    /// `fastlane_reenter`: returns TC_ACT_REDIRECT (7).
    Reenter,
}

/// What one trial of a program gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The program's return value, see [`Entry`].
    pub returned: u32,
    /// Mean time of one run, whole nanoseconds.
    pub duration: Duration,
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
/// exception: see [`Program::attach_claim`]. All methods act in the network namespace of the calling
/// thread. Not for lanes: every method is a system call or more.
pub struct Program {
    programs: Ebpf,
    steering: Array<MapData, Steering>,
    sockets: XskMap<MapData>,
    counts: PerCpuArray<MapData, u64>,
    settings: Settings,
    xdp_link: Option<FdLink>,
}

impl Program {
    /// Creates the tables and fills in `rules` and `settings`. The programs themselves are verified
    /// by the kernel when they are first attached.
    ///
    /// # Errors
    /// [`ProgramError::NoPrivilege`] without CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON (the verifier lets
    /// nobody compute with packet pointers without the last, see linux/capability.h).
    pub fn load(rules: &Rules, settings: Settings) -> Result<Program, ProgramError> {
        let object = aya::include_bytes_aligned!("../bpf/steer.bpf.o");
        // The programs read no kernel structures, so the kernel's type information is not needed.
        let mut programs = EbpfLoader::new().btf(None).load(object).map_err(error::open_error)?;
        let steering = table(&mut programs, "steering", Array::try_from)?;
        let sockets = table(&mut programs, "sockets", XskMap::try_from)?;
        let counts = table(&mut programs, "counts", PerCpuArray::try_from)?;
        let mut program = Program { programs, steering, sockets, counts, settings, xdp_link: None };
        program.set_rules(rules)?;
        Ok(program)
    }

    /// Replaces the rules. While it is copied, frames may be judged by a mixture of both lists.
    ///
    /// # Errors
    /// [`ProgramError::Kernel`] when the kernel refuses.
    pub fn set_rules(&mut self, rules: &Rules) -> Result<(), ProgramError> {
        let words = encode::steering(rules, &self.settings);
        self.steering
            .set(0, words, 0)
            .map_err(|error| error::table_error("writing the steering rules", error))
    }

    /// Attaches `fastlane_xdp` to an interface, by a BPF link that ends with this value.
    ///
    /// # Errors
    /// [`ProgramError::InterfaceBusy`], [`ProgramError::NoNativeXdp`], [`ProgramError::NoInterface`]
    /// or [`ProgramError::NoPrivilege`].
    pub fn attach_xdp(&mut self, interface: &str, mode: XdpMode) -> Result<(), ProgramError> {
        check_name(interface)?;
        let action = format!("attaching the {mode} XDP program to `{interface}`");
        let aya_mode = match mode {
            XdpMode::Native => AyaMode::Driver,
            XdpMode::Generic => AyaMode::Skb,
        };
        let program = self.xdp()?;
        let link = program
            .attach(interface, aya_mode)
            .and_then(|id| program.take_link(id))
            .map_err(|error| xdp_error(interface, mode, attach_error(interface, &action, error)))?;
        // The loader falls back to netlink, which would survive SIGKILL: let go of such a one.
        let link = FdLink::try_from(link).map_err(|_| ProgramError::Object {
            action,
            reason: "the kernel gave no BPF link".to_owned(),
        })?;
        self.xdp_link = Some(link);
        Ok(())
    }

    /// Takes `fastlane_xdp` off its interface; nothing happens when it is on none.
    pub fn detach_xdp(&mut self) {
        self.xdp_link = None;
    }

    /// Makes `socket`, an AF_XDP socket with its rings set up, the target of the queue's fast frames.
    /// It must be bound to that queue of the interface, else the kernel drops them. The table holds
    /// no reference: closing the socket takes it out.
    ///
    /// # Errors
    /// [`ProgramError::QueueOutOfRange`], or [`ProgramError::Kernel`] (EOPNOTSUPP) when `socket` is no
    /// AF_XDP socket or has no receive ring and no UMEM yet.
    pub fn insert_socket(
        &mut self,
        queue: u32,
        socket: BorrowedFd<'_>,
    ) -> Result<(), ProgramError> {
        check_queue(queue)?;
        let action = format!("steering queue {queue} to its AF_XDP socket");
        self.sockets.set(queue, socket, 0).map_err(|error| error::table_error(&action, error))
    }

    /// Takes the socket of `queue` out, if one is there: its frames stay in Linux from now on, counted
    /// uncovered.
    ///
    /// # Errors
    /// [`ProgramError::QueueOutOfRange`], or [`ProgramError::Kernel`] when the kernel refuses.
    pub fn remove_socket(&mut self, queue: u32) -> Result<(), ProgramError> {
        check_queue(queue)?;
        let action = format!("taking the AF_XDP socket off queue {queue}");
        self.sockets.unset(queue).map_err(|error| error::table_error(&action, error))
    }

    /// Attaches `fastlane_claim` to the ingress of an interface, before all others: what the AF_PACKET
    /// sockets with [`Program::attach_select`] take is kept from Linux.
    ///
    /// Since Linux 6.6 this is a tcx link and ends with this value. Before, it is a filter on the
    /// clsact queueing discipline: that one survives SIGKILL, and Linux then gets no fast frames on the
    /// interface until the next start, which removes what is left over. So on these kernels two ports
    /// on one interface are not possible. The clsact discipline itself stays.
    ///
    /// # Errors
    /// [`ProgramError::NoInterface`], [`ProgramError::NoPrivilege`] or [`ProgramError::Kernel`].
    pub fn attach_claim(&mut self, interface: &str) -> Result<(), ProgramError> {
        self.attach_ingress("fastlane_claim", interface, has_tcx())
    }

    /// Attaches `fastlane_reenter` to the ingress of the re-entry TAP: what is written to it arrives on
    /// the interface of [`Settings::reenter_ifindex`]. Generic-mode XDP there would see the frame
    /// again; native mode does not. Lifetime and errors as with [`Program::attach_claim`].
    ///
    /// # Errors
    /// See [`Program::attach_claim`].
    pub fn attach_reenter(&mut self, tap: &str) -> Result<(), ProgramError> {
        self.attach_ingress("fastlane_reenter", tap, has_tcx())
    }

    /// Attaches `fastlane_select` to an AF_PACKET socket of type SOCK_RAW: it receives the fast frames
    /// that arrive, none that leave and none that re-enter. It stays until the socket is closed.
    ///
    /// # Errors
    /// [`ProgramError::NoPrivilege`], or [`ProgramError::Kernel`] when `socket` is no socket.
    pub fn attach_select(&mut self, socket: BorrowedFd<'_>) -> Result<(), ProgramError> {
        self.select()?.attach(socket).map_err(|error| {
            ProgramError::new("attaching the filter to an AF_PACKET socket", error)
        })
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
                .counts
                .get(&key, 0)
                .map_err(|error| error::table_error("reading the steering counts", error))?;
            *sum = values.iter().sum();
        }
        let [claimed, passed, uncovered, too_long, reentered] = sums;
        Ok(Counts { claimed, passed, uncovered, too_long, reentered })
    }

    /// Runs one of the programs on `frame` without any interface, `repeat` times, as if it carried
    /// `mark` (not for [`Entry::Xdp`]), and counts it: kernel document bpf/bpf_prog_run.
    ///
    /// # Errors
    /// [`ProgramError::Kernel`] (EINVAL) for a frame shorter than the kernel accepts: 14 octets for
    /// XDP, 15 for the others.
    pub fn try_frame(
        &mut self,
        entry: Entry,
        frame: &[u8],
        mark: u32,
        repeat: u32,
    ) -> Result<Trial, ProgramError> {
        // The beginning of struct __sk_buff: length, packet type, mark.
        let mut context = [0; 12];
        context[8..].copy_from_slice(&mark.to_ne_bytes());
        let mut options = TestRunOptions::new();
        options.data_in = Some(frame);
        options.repeat = repeat;
        options.ctx_in = (entry != Entry::Xdp).then_some(&context[..]);
        let result = match entry {
            Entry::Xdp => self.xdp()?.test_run(options),
            Entry::Claim => self.classifier("fastlane_claim")?.test_run(options),
            Entry::Reenter => self.classifier("fastlane_reenter")?.test_run(options),
            Entry::Select => self.select()?.test_run(options),
        };
        result
            .map(|result| Trial { returned: result.return_value, duration: result.duration })
            .map_err(|error| ProgramError::new("trying a frame", error))
    }

    fn xdp(&mut self) -> Result<&mut Xdp, ProgramError> {
        let name = "fastlane_xdp";
        let program: &mut Xdp = typed(self.programs.program_mut(name), name)?;
        loaded(program.fd().is_ok(), || program.load(), name)?;
        Ok(program)
    }

    fn select(&mut self) -> Result<&mut SocketFilter, ProgramError> {
        let name = "fastlane_select";
        let program: &mut SocketFilter = typed(self.programs.program_mut(name), name)?;
        loaded(program.fd().is_ok(), || program.load(), name)?;
        Ok(program)
    }

    fn classifier(&mut self, name: &str) -> Result<&mut SchedClassifier, ProgramError> {
        let program: &mut SchedClassifier = typed(self.programs.program_mut(name), name)?;
        loaded(program.fd().is_ok(), || program.load(), name)?;
        Ok(program)
    }

    fn attach_ingress(
        &mut self,
        name: &str,
        interface: &str,
        tcx: bool,
    ) -> Result<(), ProgramError> {
        check_name(interface)?;
        let action = format!("attaching {name} to the ingress of `{interface}`");
        let refused = |error| attach_error(interface, &action, error);
        if !tcx {
            prepare_clsact(interface, name).map_err(|error| refused(error.into()))?;
        }
        let options = match tcx {
            true => tc::TcAttachOptions::TcxOrder(LinkOrder::first()),
            false => tc::TcAttachOptions::Netlink(tc::NlOptions {
                priority: 1,
                ..tc::NlOptions::default()
            }),
        };
        self.classifier(name)?
            .attach_with_options(interface, TcAttachType::Ingress, options)
            .map(|_| ())
            .map_err(refused)
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Program").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl fmt::Display for XdpMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            XdpMode::Native => "native",
            XdpMode::Generic => "generic",
        })
    }
}

/// Whether the kernel attaches to an interface's ingress by a link.
fn has_tcx() -> bool {
    // The kernel's LINUX_VERSION_CODE of 6.6.
    KernelVersion::current().is_ok_and(|version| version.code() >= 6 << 16 | 6 << 8)
}

/// Makes room for a netlink filter: the queueing discipline is there, a leftover of ours is not.
fn prepare_clsact(interface: &str, name: &str) -> Result<(), tc::TcError> {
    match tc::qdisc_add_clsact(interface) {
        Err(tc::TcError::NetlinkError(error)) if error.raw_os_error() == Some(error::EEXIST) => {}
        other => other?,
    }
    match tc::qdisc_detach_program(interface, TcAttachType::Ingress, name) {
        Err(tc::TcError::IoError(error)) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn xdp_error(interface: &str, mode: XdpMode, refused: ProgramError) -> ProgramError {
    let unfit = [error::EOPNOTSUPP, error::EINVAL, error::ERANGE, error::ENOSPC];
    let interface = interface.to_owned();
    match refused.number() {
        Some(error::EBUSY | error::EEXIST) => ProgramError::InterfaceBusy { interface },
        Some(number) if mode == XdpMode::Native && unfit.contains(&number) => {
            ProgramError::NoNativeXdp { interface, source: io::Error::from_raw_os_error(number) }
        }
        _ => refused,
    }
}

fn attach_error(interface: &str, action: &str, error: AyaError) -> ProgramError {
    if let AyaError::UnknownInterface { name } = error {
        return ProgramError::NoInterface { interface: name };
    }
    let sorted = ProgramError::new(action, error);
    match sorted.number() {
        Some(error::ENODEV) => ProgramError::NoInterface { interface: interface.to_owned() },
        _ => sorted,
    }
}

/// The kernel's rule for names (IFNAMSIZ), checked because the loader panics at a NUL.
fn check_name(interface: &str) -> Result<(), ProgramError> {
    match interface.is_empty() || interface.len() > 15 || interface.contains('\0') {
        true => Err(ProgramError::NoInterface { interface: interface.to_owned() }),
        false => Ok(()),
    }
}

fn check_queue(queue: u32) -> Result<(), ProgramError> {
    match queue < MAX_QUEUES {
        true => Ok(()),
        false => Err(ProgramError::QueueOutOfRange { queue, most: MAX_QUEUES }),
    }
}

fn table<T>(
    programs: &mut Ebpf,
    name: &str,
    convert: impl FnOnce(aya::maps::Map) -> Result<T, MapError>,
) -> Result<T, ProgramError> {
    programs
        .take_map(name)
        .ok_or_else(|| absent(name))
        .and_then(|map| convert(map).map_err(|error| error::table_error("opening a table", error)))
}

fn typed<'a, T>(
    program: Option<&'a mut aya::programs::Program>,
    name: &str,
) -> Result<T, ProgramError>
where
    T: TryFrom<&'a mut aya::programs::Program, Error = AyaError>,
{
    let program = program.ok_or_else(|| absent(name))?;
    T::try_from(program).map_err(|error| ProgramError::new(format!("opening {name}"), error))
}

/// Has the kernel verify and compile a program, once.
fn loaded(
    already: bool,
    load: impl FnOnce() -> Result<(), AyaError>,
    name: &str,
) -> Result<(), ProgramError> {
    match already {
        true => Ok(()),
        false => load().map_err(|error| ProgramError::new(format!("loading {name}"), error)),
    }
}

fn absent(name: &str) -> ProgramError {
    ProgramError::Object {
        action: format!("opening {name}"),
        reason: "it is not in the object".to_owned(),
    }
}

#[cfg(test)]
mod tests;
