//! Changes of the queues of a port.

/// Change of the queues that a lane has of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueChange {
    /// The lane gives up all queues of the port and has the installed ones.
    #[default]
    Replace,
    /// Packets leave by the installed queues from now on. Those before them only receive.
    Join,
    /// The lane gives up the queues that only receive, in a turn in which they have nothing to
    /// receive or to send.
    Settle,
    /// The lane gives up the queues that have joined; packets leave by those before them again.
    Withdraw,
}
