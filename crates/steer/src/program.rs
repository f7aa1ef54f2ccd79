//! Loads the eBPF programs, updates their tables and hands them over to another process.
//!
//! The object is compiled ahead (`lab/build-bpf`) and committed, so no compiler is needed. The
//! oldest supported kernel is Linux 6.1. Since Linux 5.11 the memory of maps and programs does not
//! count against RLIMIT_MEMLOCK.
//!
//! Rules and settings are encoded as `struct steering` in `bpf/steer.bpf.c`: a plain array of
//! words, so it is passed to the kernel without unsafe code. Words are in the machine's byte order,
//! addresses in network byte order.

use std::{
    fmt,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use aya::{
    Ebpf, EbpfLoader,
    maps::{Array, ArrayOfMaps, Map, MapData, MapError, PerCpuArray, XskMap},
    programs::{ProgramError as AyaError, SchedClassifier, SocketFilter, Xdp},
};

use crate::{
    error::{self, ProgramError},
    link,
    rules::{MAX_RULES, Rule, Rules},
    settings::{Counts, Settings},
};

/// Names in `bpf/steer.bpf.c` of the tables that a handover includes.
const NAMES: [&str; 3] = ["steering", "sockets", "counts"];

/// Number of words of `struct rule`.
const RULE_WORDS: usize = 22;
/// Number of words of `struct steering` before its rules.
const HEAD_WORDS: usize = 4;

/// Position of `max_length` in `struct steering`.
const MAX_LENGTH_WORD: usize = 1;

/// `struct steering` as words.
type EncodedSteering = [u32; HEAD_WORDS + MAX_RULES * RULE_WORDS];

/// Flag of rules with a prefix. The others skip the comparison of addresses.
const HAS_PREFIX: u32 = 1 << 16;
/// Flag of rules that match fragments.
const HAS_FRAGMENTS: u32 = 1 << 17;
/// Fields of both IP versions, which no frame has.
const NEEDS_MORE_THAN_EXISTS: u32 = 0b11;
/// Marker for any IP protocol.
const ANY_PROTOCOL: u32 = 0x100;

/// Number of slots in the table of AF_XDP sockets. Queue numbers must be lower.
pub const MAX_QUEUES: u32 = 1024;

/// Descriptors by which a successor takes over an attached program. The program runs, with its
/// tables unchanged, as long as one process holds the link.
#[derive(Debug)]
pub struct ProgramHandover<T> {
    /// BPF link that holds the program on its interface.
    pub link: T,
    /// Table with the rules in force.
    pub steering: T,
    /// Table of AF_XDP sockets. It holds no references to them, so the sockets must be handed over
    /// too.
    pub sockets: T,
    /// Table of counts.
    pub counts: T,
}

/// eBPF programs of one port, with their tables.
///
/// Dropping it detaches everything, and so does any end of the process, with one exception: see
/// [`Program::attach_claim`]. All methods act in the network namespace of the calling thread. They
/// are not for lanes: every method makes at least one system call.
pub struct Program {
    /// Loaded programs; `None` if another process loaded them and this one took them over.
    pub(crate) programs: Option<Ebpf>,
    pub(crate) tables: Tables,
    pub(crate) settings: Settings,
    pub(crate) xdp_link: Option<OwnedFd>,
    /// Link of `fastlane_claim`; `None` on kernels before 6.6.
    pub(crate) claim_link: Option<OwnedFd>,
    /// Link of `fastlane_reenter`, likewise.
    pub(crate) reenter_link: Option<OwnedFd>,
}

impl Program {
    /// Creates the tables and fills in `rules` and `settings`. The kernel verifies each program
    /// when it is first attached.
    ///
    /// # Errors
    /// Returns [`ProgramError::NoPrivilege`] without CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON. The
    /// verifier requires the last one for arithmetic on packet pointers (linux/capability.h).
    pub fn load(rules: &Rules, settings: Settings) -> Result<Program, ProgramError> {
        let object = aya::include_bytes_aligned!("../bpf/steer.bpf.o");
        // The programs read no kernel structures, so they do not need the kernel's type
        // information.
        let action = "creating the tables of the steering program";
        let programs = EbpfLoader::new().btf(None).load(object);
        let programs = programs.map_err(|error| ProgramError::opening(action, error))?;
        let tables = Tables::of(&programs)?;
        let mut program = Program::new(Some(programs), tables, settings);
        program.replace_rules(rules)?;
        Ok(program)
    }

    fn new(programs: Option<Ebpf>, tables: Tables, settings: Settings) -> Self {
        let (xdp_link, claim_link, reenter_link) = (None, None, None);
        Self { programs, tables, settings, xdp_link, claim_link, reenter_link }
    }

    /// Replaces the rules at any time. Each frame is evaluated with the old list or the new one,
    /// never with a mixture. Frames that the AF_PACKET sockets take are hidden from Linux, and no
    /// others. After the return no frame is evaluated with the old list. The call takes some
    /// milliseconds (an RCU grace period). Only one thread and process at a time may call it.
    ///
    /// # Errors
    /// Returns [`ProgramError::Kernel`] if the kernel refuses. The old rules stay in force then.
    pub fn replace_rules(&mut self, rules: &Rules) -> Result<(), ProgramError> {
        self.tables.replace(rules, &self.settings)
    }

    /// Sets another [`Settings::max_length`], with the rules in force.
    ///
    /// # Errors
    /// Returns [`ProgramError::Kernel`] if the kernel refuses. The old length stays in force then.
    pub fn set_max_length(&mut self, max_length: u32) -> Result<(), ProgramError> {
        if max_length != self.settings.max_length {
            self.tables.replace_max_length(max_length)?;
            self.settings.max_length = max_length;
        }
        Ok(())
    }

    /// Claims nothing from now on: all frames go to Linux. Otherwise as
    /// [`replace_rules`](Self::replace_rules).
    ///
    /// # Errors
    /// Returns [`ProgramError::Kernel`] if the kernel refuses. The old rules stay in force then.
    pub fn release(&mut self) -> Result<(), ProgramError> {
        self.tables.claim_nothing(&self.settings)
    }

    /// Makes `socket`, an AF_XDP socket with its rings set up, the target of the queue's claimed
    /// frames. It must be bound to that queue of the interface; otherwise the kernel drops them.
    /// The table holds no reference: closing the socket removes it.
    ///
    /// # Errors
    /// Returns [`ProgramError::QueueOutOfRange`], or [`ProgramError::Kernel`] (EOPNOTSUPP) if
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

    /// Removes the socket of `queue`, if there is one. From then on its frames stay in Linux and
    /// count as uncovered.
    ///
    /// # Errors
    /// Returns [`ProgramError::QueueOutOfRange`], or [`ProgramError::Kernel`] if the kernel
    /// refuses.
    pub fn remove_socket(&mut self, queue: u32) -> Result<(), ProgramError> {
        check_queue(queue)?;
        let action = format!("removing the AF_XDP socket of queue {queue}");
        self.tables.sockets.unset(queue).map_err(|error| error::table_error(&action, error))
    }

    /// Returns the counts. Each is exact, but they are not of one instant.
    ///
    /// # Errors
    /// Returns [`ProgramError::Kernel`] if the kernel refuses.
    pub fn counts(&self) -> Result<Counts, ProgramError> {
        // Keys of `enum count` in `bpf/steer.bpf.c`.
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

    /// Returns true if an interface that a program was attached to by a link exists no longer: the
    /// kernel has detached the program then. Another interface may have its index.
    ///
    /// # Errors
    /// Returns [`ProgramError::Kernel`] if the kernel does not tell.
    pub fn has_lost_interface(&self) -> Result<bool, ProgramError> {
        for link in [&self.xdp_link, &self.claim_link].into_iter().flatten() {
            let interface = link::interface(link.as_fd());
            let failed = |error| ProgramError::system("querying a BPF link", error);
            if interface.map_err(failed)?.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
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

    /// Returns the descriptors to be duplicated, passed to another process or pinned: those of the
    /// XDP program, else of the claim program. Returns `None` if neither is attached by a link.
    #[must_use]
    pub fn handover(&self) -> Option<ProgramHandover<BorrowedFd<'_>>> {
        let link = self.xdp_link.as_ref().or(self.claim_link.as_ref())?.as_fd();
        let [steering, sockets, counts] = self.tables.descriptors();
        Some(ProgramHandover { link, steering, sockets, counts })
    }

    /// Takes over the XDP or claim program of a process that has ended. Checks that it is attached
    /// to `interface` (an index). It runs meanwhile: rules and sockets stay, and counts continue.
    /// `settings` must be those with which it was loaded; they apply when the rules are next
    /// [replaced](Program::replace_rules).
    ///
    /// The successor cannot attach it again, nor attach the other programs.
    ///
    /// # Errors
    /// Returns [`ProgramError::NotAdoptable`] if the descriptors are not those of a program on that
    /// interface, and [`ProgramError::Kernel`] if the kernel refuses.
    pub fn adopt(
        handover: ProgramHandover<OwnedFd>,
        interface: u32,
        settings: Settings,
    ) -> Result<Program, ProgramError> {
        let ProgramHandover { link, steering, sockets, counts } = handover;
        let attached = link::interface(link.as_fd()).map_err(|source| {
            ProgramError::system("querying a BPF link of the handover", source)
        })?;
        if attached != Some(interface) {
            let reason = match attached {
                Some(other) => format!("its BPF link is on interface {other}, not {interface}"),
                None => {
                    format!("interface {interface} is removed, or the descriptor is no BPF link")
                }
            };
            return Err(ProgramError::NotAdoptable { reason });
        }
        let tables = Tables::open([steering, sockets, counts]).map_err(|error| {
            let reason = format!("its tables are not those of this version ({error})");
            ProgramError::NotAdoptable { reason }
        })?;
        Ok(Program { xdp_link: Some(link), ..Program::new(None, tables, settings) })
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

/// Returns a program that this process has loaded.
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

/// Maximum number of attempts to load a program when a signal interrupts the kernel.
const MAX_LOADS: usize = 10;

/// Loads a program into the kernel, which verifies and compiles it, unless it is loaded already.
fn loaded(
    already: bool,
    mut load: impl FnMut() -> Result<(), AyaError>,
    name: &str,
) -> Result<(), ProgramError> {
    if already {
        return Ok(());
    }
    let mut result = load();
    for _ in 1..MAX_LOADS {
        // A signal to the thread, such as the end of a child process, makes the verifier fail with
        // EAGAIN (kernel/bpf/verifier.c, do_check). libbpf retries too.
        let interrupted = matches!(&result, Err(AyaError::LoadError { io_error, .. })
            if io_error.kind() == std::io::ErrorKind::WouldBlock);
        if !interrupted {
            break;
        }
        result = load();
    }
    result.map_err(|error| ProgramError::new(format!("loading {name}"), error))
}

/// Tables of a port's programs.
pub(crate) struct Tables {
    steering: ArrayOfMaps<MapData, Array<MapData, EncodedSteering>>,
    /// Current value of `steering`, if this process knows it.
    current: Option<Array<MapData, EncodedSteering>>,
    /// Content of `current`, if this process has written it.
    written: Option<Box<EncodedSteering>>,
    pub(crate) sockets: XskMap<MapData>,
    pub(crate) counts: PerCpuArray<MapData, u64>,
    /// Descriptors in the order of `NAMES`.
    descriptors: [OwnedFd; 3],
}

impl Tables {
    /// Returns the tables that the loader created for a program. The loader keeps its own
    /// descriptors.
    pub(crate) fn of(programs: &Ebpf) -> Result<Self, ProgramError> {
        let mut descriptors = Vec::with_capacity(NAMES.len());
        for name in NAMES {
            let (Map::ArrayOfMaps(table) | Map::XskMap(table) | Map::PerCpuArray(table)) =
                programs.map(name).ok_or_else(|| error::absent(name))?
            else {
                return Err(error::absent(name));
            };
            descriptors.push(duplicate(table.fd().as_fd())?);
        }
        let descriptors = descriptors.try_into().map_err(|_| error::absent("a table"))?;
        Self::open(descriptors)
    }

    /// Opens the tables by their descriptors: steering, sockets, counts.
    pub(crate) fn open(descriptors: [OwnedFd; 3]) -> Result<Self, ProgramError> {
        let [steering, sockets, counts] = &descriptors;
        let steering: ArrayOfMaps<MapData, _> = table(steering, ArrayOfMaps::try_from)?;
        let sockets = table(sockets, XskMap::try_from)?;
        let counts = table(counts, PerCpuArray::try_from)?;
        // Requires CAP_SYS_ADMIN, which may be missing: see `replace`.
        let current = steering.get(&0, 0).ok();
        Ok(Self { steering, current, written: None, sockets, counts, descriptors })
    }

    /// Returns the descriptors in the order of `NAMES`.
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        self.descriptors.each_ref().map(OwnedFd::as_fd)
    }

    /// Puts rules and settings in force, from one frame to the next.
    pub(crate) fn replace(
        &mut self,
        rules: &Rules,
        settings: &Settings,
    ) -> Result<(), ProgramError> {
        self.store(encode(rules, settings))
    }

    /// Puts another maximum length in force, from one frame to the next. In a process that took the
    /// tables over it takes effect with the next rules.
    pub(crate) fn replace_max_length(&mut self, max_length: u32) -> Result<(), ProgramError> {
        let Some(mut words) = self.written.as_deref().copied() else { return Ok(()) };
        words[MAX_LENGTH_WORD] = max_length;
        self.store(words)
    }

    /// Claims nothing, from one frame to the next.
    pub(crate) fn claim_nothing(&mut self, settings: &Settings) -> Result<(), ProgramError> {
        // An empty list claims everything; this one has a rule for frames that do not exist.
        let mut words = encode(&Rules::default(), settings);
        words[0] = 1;
        words[HEAD_WORDS] = NEEDS_MORE_THAN_EXISTS;
        self.store(words)
    }

    fn store(&mut self, words: EncodedSteering) -> Result<(), ProgramError> {
        let action = "writing the steering rules";
        let refused = |error| error::table_error(action, error);
        let mut table = Array::create(1, 0).map_err(refused)?;
        table.set(0, words, 0).map_err(refused)?;
        self.steering.set(0, &table, 0).map_err(refused)?;
        // Dropped only now, when no program uses the old table any more. Kernels without the fix
        // for CVE-2023-52447 would free a table under a running program if its last descriptor were
        // closed earlier.
        self.current = Some(table);
        self.written = Some(Box::new(words));
        Ok(())
    }
}

/// Encodes `rules` and `settings` for the map.
fn encode(rules: &Rules, settings: &Settings) -> EncodedSteering {
    let mut words = [0; _];
    let rules = rules.as_slice();
    // At most MAX_RULES, checked by Rules::new.
    let count = rules.len() as u32;
    let head = [count, settings.max_length, settings.mark, settings.reenter_ifindex];
    words[..HEAD_WORDS].copy_from_slice(&head);
    for (encoded, rule) in words[HEAD_WORDS..].chunks_exact_mut(RULE_WORDS).zip(rules) {
        encoded.copy_from_slice(&encode_rule(rule));
    }
    words
}

/// `struct rule` as words.
type EncodedRule = [u32; RULE_WORDS];

fn encode_rule(rule: &Rule) -> EncodedRule {
    let mut words = [0; RULE_WORDS];
    let ports = rule.ports();
    let flag = |is_set, flag| if is_set { flag } else { 0 };
    words[0] = rule.needs() | flag(rule.has_prefix(), HAS_PREFIX);
    words[0] |= flag(rule.fragments, HAS_FRAGMENTS);
    // No EtherType is 0, so 0 means any.
    words[1] = rule.ethertype.map_or(0, u32::from);
    let protocol = if rule.fragments { rule.ip_protocol() } else { rule.protocol };
    words[2] = protocol.map_or(ANY_PROTOCOL, u32::from);
    words[3] = u32::from(ports.first);
    words[4] = u32::from(ports.last);
    // No VLAN is 0, so 0 means none.
    words[5] = rule.vlan.map_or(0, u32::from);
    for (offset, prefix) in [(6, rule.source), (14, rule.destination)] {
        let Some(prefix) = prefix else { continue };
        copy_octets(&mut words[offset..offset + 4], prefix.octets());
        copy_octets(&mut words[offset + 4..offset + 8], prefix.mask());
    }
    words
}

fn copy_octets(words: &mut [u32], octets: [u8; 16]) {
    let (chunks, _) = octets.as_chunks::<4>();
    for (word, octets) in words.iter_mut().zip(chunks) {
        *word = u32::from_ne_bytes(*octets);
    }
}

fn duplicate(descriptor: BorrowedFd<'_>) -> Result<OwnedFd, ProgramError> {
    descriptor
        .try_clone_to_owned()
        .map_err(|source| ProgramError::system("duplicating a steering table", source))
}

fn table<T>(
    descriptor: &OwnedFd,
    convert: impl FnOnce(Map) -> Result<T, MapError>,
) -> Result<T, ProgramError> {
    let descriptor = duplicate(descriptor.as_fd())?;
    MapData::from_fd(descriptor)
        .and_then(Map::from_map_data)
        .and_then(convert)
        .map_err(|error| error::table_error("opening a table of the steering program", error))
}
