//! Counters and their names, in the order of their words in memory, and where drops are counted.
//!
//! # Where each drop is counted
//! * `drop_bad_verdict`, `drop_no_port`, `drop_hold`, `drop_transmit_full`, `drop_transmit_length`,
//!   `drop_copy_no_frame`: core's `egress.rs`, when a verdict is carried out.
//! * `drop_no_kernel_peer`, `drop_kernel_budget`, `drop_kernel_full`, and `drop_copy_no_frame` of
//!   packets for Linux: core's `egress/kernel_path.rs`.
//! * `drop_pass_full`, `drop_park`: `lib.rs` of sharding. Packets for the lane of an exit: core's
//!   `egress.rs`.
//! * `drop_no_frame`, `drop_receive_length`, `drop_device_full`, `drop_device_invalid`,
//!   `drop_transmit_error`: the queue of the driver, in its `Statistics` (core's `losses.rs`).
//! * `drop_resume_no_frame`: core's `lane.rs`. `drop_held_at_end`, `new_refused`,
//!   `timers_refused`: core's `turn.rs`. `messages_lost`: core's `turn/messaging.rs`.
//!
//! An application counts its own decisions by reasons of its own.

/// Counters of a lane. The first eight words are one cache line, which other threads watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum LaneCounter {
    /// Number of the last finished turn; never decreases.
    Turn,
    /// 1 while the lane sleeps and must be woken, otherwise 0.
    Asleep,
    /// Thread id of the lane, for its CPU time; 0 before it runs.
    Thread,
    /// The CPU that the lane is pinned to.
    Cpu,
    /// 1 once the lane has returned all its frames and ended.
    Ended,
    /// Number of frames in the lane's pool.
    PoolFrames,
    /// Number of free frames in the lane's pool, as of the last publication.
    PoolFree,
    /// Reserved word.
    Reserved,
    /// Turns with work.
    BusyTurns,
    /// Times that the lane went to sleep.
    Sleeps,
    /// Time slept, in nanoseconds.
    SleptNanoseconds,
    /// Packets that the application requested and did not get: no free frame, or too many in one
    /// turn.
    NewRefused,
    /// Timers that the application requested and did not get, because there were too many.
    TimersRefused,
    /// Packets that the application created.
    NewPackets,
    /// Packets in the hold area now.
    HeldPackets,
    /// Held packets that were resumed: shown to the application again.
    ResumedPackets,
    /// Held packets that were dropped at the application's request.
    DiscardedPackets,
    /// Held packets that were lost because no frame was free to resume them in.
    DropResumeNoFrame,
    /// Packets that were still held when the lane ended.
    DropHeldAtEnd,
    /// Packets that waited while their shard migrated to another lane.
    ParkedPackets,
    /// Messages sent to the slow path.
    MessagesSent,
    /// Messages to the slow path that did not fit into the ring.
    MessagesLost,
    /// Messages received from the slow path.
    MessagesReceived,
    /// 1 once the slow path has written an invalid message. None of its messages is read after
    /// that.
    MessagesRefused,
    /// Share of the busiest shard in the packets that this lane gave to their lanes, in
    /// thousandths, as of the last publication.
    BusiestShard,
    /// Page faults of the lane's thread since its first turn that needed no device. The process
    /// reads them from the kernel and writes this word, not the lane.
    MinorPageFaults,
    /// Page faults since the first turn that waited for a device, such as a disk. Written by the
    /// process too.
    MajorPageFaults,
}

impl LaneCounter {
    /// All counters, in the order of memory.
    pub const ALL: [Self; 27] = [
        Self::Turn,
        Self::Asleep,
        Self::Thread,
        Self::Cpu,
        Self::Ended,
        Self::PoolFrames,
        Self::PoolFree,
        Self::Reserved,
        Self::BusyTurns,
        Self::Sleeps,
        Self::SleptNanoseconds,
        Self::NewRefused,
        Self::TimersRefused,
        Self::NewPackets,
        Self::HeldPackets,
        Self::ResumedPackets,
        Self::DiscardedPackets,
        Self::DropResumeNoFrame,
        Self::DropHeldAtEnd,
        Self::ParkedPackets,
        Self::MessagesSent,
        Self::MessagesLost,
        Self::MessagesReceived,
        Self::MessagesRefused,
        Self::BusiestShard,
        Self::MinorPageFaults,
        Self::MajorPageFaults,
    ];

    /// Returns the name that is used in memory and in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Asleep => "asleep",
            Self::Thread => "thread",
            Self::Cpu => "cpu",
            Self::Ended => "ended",
            Self::PoolFrames => "pool_frames",
            Self::PoolFree => "pool_free",
            Self::Reserved => "reserved",
            Self::BusyTurns => "busy_turns",
            Self::Sleeps => "sleeps",
            Self::SleptNanoseconds => "slept_nanoseconds",
            Self::NewRefused => "new_refused",
            Self::TimersRefused => "timers_refused",
            Self::NewPackets => "new_packets",
            Self::HeldPackets => "held_packets",
            Self::ResumedPackets => "resumed_packets",
            Self::DiscardedPackets => "discarded_packets",
            Self::DropResumeNoFrame => "drop_resume_no_frame",
            Self::DropHeldAtEnd => "drop_held_at_end",
            Self::ParkedPackets => "parked_packets",
            Self::MessagesSent => "messages_sent",
            Self::MessagesLost => "messages_lost",
            Self::MessagesReceived => "messages_received",
            Self::MessagesRefused => "messages_refused",
            Self::BusiestShard => "busiest_shard",
            Self::MinorPageFaults => "minor_page_faults",
            Self::MajorPageFaults => "major_page_faults",
        }
    }
}

/// Counters of a port in a lane.
///
/// Each time a packet is shown to the application it is counted under exactly one verdict, or under
/// `drop_bad_verdict` if its verdict is invalid. Over all ports and lanes, `received_packets` plus
/// the lanes' `resumed_packets` therefore equal the verdicts plus `drop_bad_verdict` plus the
/// losses on the way to another lane (`drop_pass_full`, `drop_park`).
///
/// A held packet (`verdict_hold` without `drop_hold`, and the application's own packets labelled
/// `Hold`) is either in `held_packets`, or was counted once under `resumed_packets`,
/// `discarded_packets`, `drop_resume_no_frame` or `drop_held_at_end`.
///
/// A packet that did not leave as its verdict requires is also counted under exactly one `drop_`
/// counter. It is a counter of the exit port if that port refused it, otherwise of the port on
/// which it arrived. Packets that the application created or Linux sent are counted under no
/// verdict, but under the same drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum PortCounter {
    /// Packets received and shown to the application.
    ReceivedPackets,
    /// Bytes of the received packets, without the frame check sequence.
    ReceivedBytes,
    /// Packets handed to the port for transmission, whatever port they arrived on.
    SentPackets,
    /// Bytes of the transmitted packets.
    SentBytes,
    /// Packets received here and labelled `Reflect`.
    VerdictReflect,
    /// Packets received here and labelled `Forward`.
    VerdictForward,
    /// Packets received here and labelled `Kernel`.
    VerdictKernel,
    /// Packets received here and labelled `Drop`: the application's own decision.
    VerdictDrop,
    /// Packets received here and labelled `Hold`.
    VerdictHold,
    /// Packets passed to Linux.
    ToKernelPackets,
    /// Packets from Linux transmitted on this port.
    FromKernelPackets,
    /// Packets with an invalid verdict.
    DropBadVerdict,
    /// Packets labelled `Forward` to a port that the lane does not have.
    DropNoPort,
    /// Packets for which the transmit queue was full, after a retry too.
    DropTransmitFull,
    /// Packets that needed a copy into the exit port's memory, where no frame was free.
    DropCopyNoFrame,
    /// Packets that are too long for the exit port, empty, or whose checksum cannot be completed.
    DropTransmitLength,
    /// Packets labelled `Kernel` on a port without a kernel peer.
    DropNoKernelPeer,
    /// Packets labelled `Kernel` beyond the limit per turn.
    DropKernelBudget,
    /// Packets labelled `Kernel` that Linux did not accept.
    DropKernelFull,
    /// Packets labelled `Hold` beyond the limit in all or of the key.
    DropHold,
    /// Packets that arrived while the lane's pool had no free frame.
    DropNoFrame,
    /// Packets that arrived longer than a frame of the pool.
    DropReceiveLength,
    /// Packets that the kernel or the device dropped because its queue was full.
    DropDeviceFull,
    /// Packets that the kernel or the device dropped as invalid.
    DropDeviceInvalid,
    /// Packets handed over that the device refused to send (link down, peer disconnected).
    DropTransmitError,
    /// Times that the device needed a frame to receive into and there was none.
    DeviceNoFrames,
    /// Frames that steering claimed for the fast path.
    SteerClaimed,
    /// Frames that steering left to Linux.
    SteerPassed,
    /// Claimed frames on a queue that no lane covers, left to Linux.
    SteerUncovered,
    /// Claimed frames longer than a frame of the pool, left to Linux.
    SteerTooLong,
    /// Packets received here and passed to the lane that owns their key, which counts their
    /// verdicts.
    PassedPackets,
    /// Packets to another lane whose ring was full.
    DropPassFull,
    /// Packets that had to wait for their shard's migration and found the buffer full.
    DropPark,
    /// Number of the [`DownReason`], or 0 while the port is up. The process writes it outside of
    /// the lanes; it does not only grow.
    DownReason,
}

impl PortCounter {
    /// All counters, in the order of memory.
    pub const ALL: [Self; 34] = [
        Self::ReceivedPackets,
        Self::ReceivedBytes,
        Self::SentPackets,
        Self::SentBytes,
        Self::VerdictReflect,
        Self::VerdictForward,
        Self::VerdictKernel,
        Self::VerdictDrop,
        Self::VerdictHold,
        Self::ToKernelPackets,
        Self::FromKernelPackets,
        Self::DropBadVerdict,
        Self::DropNoPort,
        Self::DropTransmitFull,
        Self::DropCopyNoFrame,
        Self::DropTransmitLength,
        Self::DropNoKernelPeer,
        Self::DropKernelBudget,
        Self::DropKernelFull,
        Self::DropHold,
        Self::DropNoFrame,
        Self::DropReceiveLength,
        Self::DropDeviceFull,
        Self::DropDeviceInvalid,
        Self::DropTransmitError,
        Self::DeviceNoFrames,
        Self::SteerClaimed,
        Self::SteerPassed,
        Self::SteerUncovered,
        Self::SteerTooLong,
        Self::PassedPackets,
        Self::DropPassFull,
        Self::DropPark,
        Self::DownReason,
    ];

    /// Returns the name that is used in memory and in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ReceivedPackets => "received_packets",
            Self::ReceivedBytes => "received_bytes",
            Self::SentPackets => "sent_packets",
            Self::SentBytes => "sent_bytes",
            Self::VerdictReflect => "verdict_reflect",
            Self::VerdictForward => "verdict_forward",
            Self::VerdictKernel => "verdict_kernel",
            Self::VerdictDrop => "verdict_drop",
            Self::VerdictHold => "verdict_hold",
            Self::ToKernelPackets => "to_kernel_packets",
            Self::FromKernelPackets => "from_kernel_packets",
            Self::DropBadVerdict => "drop_bad_verdict",
            Self::DropNoPort => "drop_no_port",
            Self::DropTransmitFull => "drop_transmit_full",
            Self::DropCopyNoFrame => "drop_copy_no_frame",
            Self::DropTransmitLength => "drop_transmit_length",
            Self::DropNoKernelPeer => "drop_no_kernel_peer",
            Self::DropKernelBudget => "drop_kernel_budget",
            Self::DropKernelFull => "drop_kernel_full",
            Self::DropHold => "drop_hold",
            Self::DropNoFrame => "drop_no_frame",
            Self::DropReceiveLength => "drop_receive_length",
            Self::DropDeviceFull => "drop_device_full",
            Self::DropDeviceInvalid => "drop_device_invalid",
            Self::DropTransmitError => "drop_transmit_error",
            Self::DeviceNoFrames => "device_no_frames",
            Self::SteerClaimed => "steer_claimed",
            Self::SteerPassed => "steer_passed",
            Self::SteerUncovered => "steer_uncovered",
            Self::SteerTooLong => "steer_too_long",
            Self::PassedPackets => "passed_packets",
            Self::DropPassFull => "drop_pass_full",
            Self::DropPark => "drop_park",
            Self::DownReason => "down_reason",
        }
    }

    /// Returns true if it counts packets lost against the sender's will.
    #[must_use]
    pub fn is_drop(self) -> bool {
        self.name().starts_with("drop_")
    }
}

/// Reason why a port is down: it receives and sends nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum DownReason {
    /// The interface or the device was removed.
    Removed = 1,
    /// The interface is set down, or the device has no link.
    LinkDown = 2,
    /// The interface exists, and the port is being opened on it.
    Reopening = 3,
}

impl DownReason {
    /// Returns the reason with a number, or `None` while the port is up.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        [Self::Removed, Self::LinkDown, Self::Reopening]
            .into_iter()
            .find(|reason| *reason as u64 == number)
    }

    /// Returns the word that is used in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Removed => "removed",
            Self::LinkDown => "link-down",
            Self::Reopening => "reopening",
        }
    }
}
