//! The names of the counters, in the order in which they lie in memory.

/// What a lane counts about itself. The first eight words are the cache line that others watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum LaneCounter {
    /// The number of the turn that the lane has finished last; never goes back.
    Turn,
    /// 1 while the lane sleeps and must be woken, else 0.
    Asleep,
    /// The kernel's id of the lane's thread, for its CPU time; 0 before it runs.
    Thread,
    /// The CPU that the lane is pinned to.
    Cpu,
    /// 1 once the lane has returned all its frames and ended.
    Ended,
    /// Frames of the lane's pool.
    PoolFrames,
    /// Frames of the lane's pool that nobody holds, as of the last publication.
    PoolFree,
    /// Reserved.
    Reserved,
    /// Turns that found work.
    BusyTurns,
    /// Times that the lane went to sleep.
    Sleeps,
    /// Nanoseconds slept.
    SleptNanoseconds,
    /// Packets that the application asked for and did not get: no frame, or too many in one turn.
    NewRefused,
    /// Timers that the application asked for and did not get: too many.
    TimersRefused,
    /// Packets that the application made.
    NewPackets,
    /// Packets in the hold area now.
    HeldPackets,
    /// Packets that were held and shown to the application again.
    ResumedPackets,
    /// Packets that were held and dropped because the application said so.
    DiscardedPackets,
    /// Packets that were held and lost because no frame was free to show them in.
    DropResumeNoFrame,
    /// Packets that were still held when the lane ended.
    DropHeldAtEnd,
    /// Packets that waited for their shard to move to another lane.
    ParkedPackets,
    /// Messages to the slow path.
    MessagesSent,
    /// Messages to the slow path for which there was no room.
    MessagesLost,
    /// Messages from the slow path.
    MessagesReceived,
    /// 1 once the slow path has written what is no message: none of its messages is read any more.
    MessagesRefused,
    /// The share of the busiest shard in the packets given to their lanes here, in thousandths, as
    /// of the last publication.
    BusiestShard,
}

impl LaneCounter {
    /// All, in the order of memory.
    pub const ALL: [Self; 25] = [
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
    ];

    /// The name, as it is in memory and in metrics.
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
        }
    }
}

/// What is counted about a port in a lane.
///
/// Each time that a packet is shown to the application it is counted under exactly one verdict, or
/// under `drop_bad_verdict` if its label is none. So over all ports and lanes `received_packets`
/// and the lanes' `resumed_packets` together are the verdicts, `drop_bad_verdict`, and what was
/// lost on its way to another lane (`drop_pass_full`, `drop_park`).
///
/// What was held (`verdict_hold` without `drop_hold`, and packets of the application's own that it
/// labelled `Hold`) is in `held_packets` now, or counted once under `resumed_packets`,
/// `discarded_packets`, `drop_resume_no_frame` or `drop_held_at_end`.
///
/// A packet that did not leave as its verdict said is also counted under exactly one `drop_`: of
/// the port that it should have left by when that port did not take it, else of the port that it
/// came from. Packets that the application made or Linux sent count under no verdict, but under the
/// same drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum PortCounter {
    /// Packets received and shown to the application.
    ReceivedPackets,
    /// Their bytes, without the frame check sequence.
    ReceivedBytes,
    /// Packets handed to the port for sending, whatever port they came from.
    SentPackets,
    /// Their bytes.
    SentBytes,
    /// Received here, labelled `Reflect`.
    VerdictReflect,
    /// Received here, labelled `Forward`.
    VerdictForward,
    /// Received here, labelled `Kernel`.
    VerdictKernel,
    /// Received here, labelled `Drop`: the application's own decision.
    VerdictDrop,
    /// Received here, labelled `Hold`.
    VerdictHold,
    /// Packets given to Linux.
    ToKernelPackets,
    /// Packets that Linux sent out through this port.
    FromKernelPackets,
    /// Labelled with a value that is no verdict.
    DropBadVerdict,
    /// Labelled `Forward` to a port that the lane does not have.
    DropNoPort,
    /// The port's transmit queue was full, also after a retry.
    DropTransmitFull,
    /// To be copied into the port's memory, where no frame was free.
    DropCopyNoFrame,
    /// Longer than the port can send, empty, or with a checksum that cannot be completed.
    DropTransmitLength,
    /// Labelled `Kernel`, but the port has no way into Linux.
    DropNoKernelPeer,
    /// Labelled `Kernel`, beyond what a turn may give to Linux.
    DropKernelBudget,
    /// Labelled `Kernel`, but Linux did not take it.
    DropKernelFull,
    /// Labelled `Hold`, beyond what can be held, in all or under the key.
    DropHold,
    /// Arrived while the lane's pool had no free frame.
    DropNoFrame,
    /// Arrived longer than a frame of the pool.
    DropReceiveLength,
    /// Dropped by the kernel or the device before the port saw it: its queue was full.
    DropDeviceFull,
    /// Dropped by the kernel or the device as invalid.
    DropDeviceInvalid,
    /// Handed over, but the device refused to send it (link down, peer gone).
    DropTransmitError,
    /// Times that the device wanted a frame to receive into and there was none.
    DeviceNoFrames,
    /// Steering: frames claimed as fast.
    SteerClaimed,
    /// Steering: frames left to Linux.
    SteerPassed,
    /// Steering: fast frames on a queue that no lane covers, left to Linux.
    SteerUncovered,
    /// Steering: fast frames longer than a frame of the pool, left to Linux.
    SteerTooLong,
    /// Received here and passed to the lane that owns their key, which counts their verdicts.
    PassedPackets,
    /// To be passed to another lane, whose ring was full.
    DropPassFull,
    /// To wait for their shard to move to another lane, where there was no room.
    DropPark,
}

impl PortCounter {
    /// All, in the order of memory.
    pub const ALL: [Self; 33] = [
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
    ];

    /// The name, as it is in memory and in metrics.
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
        }
    }

    /// Whether it counts packets lost against their sender's will.
    #[must_use]
    pub fn is_drop(self) -> bool {
        self.name().starts_with("drop_")
    }
}
