//! Control of a device's steering program: by this process, which has loaded it, or by another one
//! that has the privilege.

use std::fmt;
use std::os::fd::BorrowedFd;

use fastlane_steer::{Counts, Program, ProgramHandover, Rules};

use crate::Error;

/// Control of the steering program of one device. Not for lanes.
///
/// Errors of all methods are the refusals of the kernel or of the process that has the program.
#[allow(clippy::missing_errors_doc, reason = "they are the same for all methods")]
pub trait Steering: fmt::Debug + Send {
    /// Replaces the rules; on an error the old ones stay in force.
    fn replace_rules(&mut self, rules: &Rules) -> Result<(), Error>;

    /// Leaves all frames to Linux from now on.
    fn release(&mut self) -> Result<(), Error>;

    /// Leaves longer frames to Linux.
    fn set_max_length(&mut self, length: u32) -> Result<(), Error>;

    /// Redirects the claimed frames of a queue to a socket that is bound to it.
    fn insert_socket(&mut self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Error>;

    /// Returns the counters, summed over all queues.
    fn counts(&self) -> Result<Counts, Error>;

    /// Returns true if the interface of the program exists no longer, as far as this process can
    /// tell.
    fn has_lost_interface(&self) -> bool {
        false
    }

    /// Detaches the program, also if another process has a descriptor of its link, and if dropping
    /// this value does not.
    fn detach(&mut self) {}

    /// Returns the descriptors of the program for a successor, if this process has them.
    fn handover(&self) -> Option<ProgramHandover<BorrowedFd<'_>>> {
        None
    }
}

impl Steering for Program {
    fn replace_rules(&mut self, rules: &Rules) -> Result<(), Error> {
        Ok(Program::replace_rules(self, rules)?)
    }

    fn release(&mut self) -> Result<(), Error> {
        Ok(Program::release(self)?)
    }

    fn set_max_length(&mut self, length: u32) -> Result<(), Error> {
        Ok(Program::set_max_length(self, length)?)
    }

    fn insert_socket(&mut self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        Ok(Program::insert_socket(self, queue, socket)?)
    }

    fn counts(&self) -> Result<Counts, Error> {
        Ok(Program::counts(self)?)
    }

    fn detach(&mut self) {
        self.detach_xdp();
    }

    fn has_lost_interface(&self) -> bool {
        Program::has_lost_interface(self).unwrap_or(false)
    }

    fn handover(&self) -> Option<ProgramHandover<BorrowedFd<'_>>> {
        Program::handover(self)
    }
}
