//! Interfaces with an attached steering program.

use std::os::fd::{AsFd, BorrowedFd};

use fastlane_steer::{Counts, Program, ProgramError, Rules, XdpMode};

use crate::mtu::TransmitLength;
use crate::socket::Socket;
use crate::steering::Steering;
use crate::{DeviceDescription, Error, Mode, Settings};

/// Device of one port: an interface with the steering program attached.
///
/// A BPF link holds the program, so it is detached when this value is dropped or the process is
/// killed, unless another process holds the [descriptors](Self::handover) for a successor. The
/// value must be used in the network namespace in which it was opened, and not by lanes.
#[derive(Debug)]
pub struct Device {
    pub(crate) settings: Settings,
    pub(crate) steering: Box<dyn Steering>,
    pub(crate) attached: XdpMode,
    /// True if zero-copy is not tried: it was refused on a queue, or its driver has a defect.
    pub(crate) copies: bool,
    /// Longest frame that the pool can hold.
    pub(crate) max_length: u32,
    /// Longest frame that its queues transmit.
    pub(crate) transmit_length: TransmitLength,
    /// Reasons for slower modes than the best one, until the next opened queue reports them.
    pub(crate) fallbacks: Vec<String>,
}

impl Device {
    /// Loads the steering program with these rules and attaches it in the driver. If the driver
    /// does not support XDP and the mode allows it, attaches it in the network stack. No frame is
    /// claimed before a queue is opened. `max_length` is the maximum length of a claimed frame, see
    /// [`longest_frame`](crate::longest_frame); longer frames stay in Linux.
    ///
    /// # Errors
    /// Returns the errors of the steering program, [`Error::ModeUnavailable`] and
    /// [`Error::RingSize`].
    pub fn open(settings: Settings, rules: &Rules, max_length: usize) -> Result<Self, Error> {
        for (ring, size) in
            [("receive-ring", settings.receive_ring), ("transmit-ring", settings.transmit_ring)]
        {
            if !size.is_power_of_two() || !(64..=32768).contains(&size) {
                return Err(Error::RingSize { interface: settings.interface, ring, size });
            }
        }
        let max_length = u32::try_from(max_length).unwrap_or(u32::MAX);
        let steering = fastlane_steer::Settings { max_length, mark: 0, reenter_ifindex: 0 };
        let mut program = Program::load(rules, steering)?;
        let mut fallbacks = Vec::new();
        let attached = attach(&mut program, &settings, &mut fallbacks)?;
        let transmit_length = TransmitLength::of_interface(settings.index);
        let defect = settings.zero_copy_defect.filter(|_| settings.mode == Mode::Auto);
        if let (Some(defect), XdpMode::Native) = (defect, attached) {
            fallbacks.push(format!("copies, because {defect}"));
        }
        let (copies, steering) = (defect.is_some(), Box::new(program));
        let mut device =
            Self { settings, steering, attached, copies, max_length, transmit_length, fallbacks };
        device.limit_claims()?;
        Ok(device)
    }

    /// Creates the device of an interface whose steering program another process has attached and
    /// controls. That process also binds the sockets ([`open_bound_lane`](crate::open_bound_lane)).
    /// The interface, with this MTU in bytes, may be in the network namespace of that process.
    #[must_use]
    pub fn with_steering(
        settings: Settings,
        description: &DeviceDescription,
        mtu: u32,
        steering: Box<dyn Steering>,
    ) -> Self {
        let &DeviceDescription { is_native, copies, max_length, .. } = description;
        let attached = if is_native { XdpMode::Native } else { XdpMode::Generic };
        let transmit_length = TransmitLength::of_mtu(mtu);
        let fallbacks = Vec::new();
        Self { settings, steering, attached, copies, max_length, transmit_length, fallbacks }
    }

    /// Follows another MTU of the interface: from now on its queues drop longer frames, as the
    /// kernel does.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses to steer by it.
    pub fn set_mtu(&mut self, mtu: u32) -> Result<(), Error> {
        self.transmit_length.set_mtu(mtu);
        self.limit_claims()
    }

    /// Leaves frames that are longer than `length` bytes to Linux.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses; the old length stays in force.
    pub fn set_max_length(&mut self, length: u32) -> Result<(), Error> {
        self.steering.set_max_length(length)
    }

    /// Leaves longer frames than the interface has to Linux if the network stack runs the program:
    /// it shows several TCP segments as one frame (GRO, and GSO of a sender on the same machine),
    /// which only Linux can split.
    pub(crate) fn limit_claims(&mut self) -> Result<(), Error> {
        if self.attached == XdpMode::Native {
            return Ok(());
        }
        let longest = self.transmit_length.with_two_tags();
        let longest = u32::try_from(longest).unwrap_or(u32::MAX).min(self.max_length);
        self.steering.set_max_length(longest)
    }

    /// Replaces the rules while frames arrive. Each frame is matched against either the old or the
    /// new list, see [`Program::replace_rules`]. Frames that were claimed before stay claimed.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses; the old rules stay in force.
    pub fn replace_rules(&mut self, rules: &Rules) -> Result<(), Error> {
        self.steering.replace_rules(rules)
    }

    /// Leaves all frames to Linux from now on, before the queues are closed. Frames that were
    /// claimed before are in the receive rings when it returns.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses; the rules stay in force.
    pub fn release(&mut self) -> Result<(), Error> {
        self.steering.release()
    }

    /// Returns true if the interface exists no longer, also if another one has its index now. A
    /// device whose steering program another process controls cannot tell.
    #[must_use]
    pub fn has_lost_interface(&self) -> bool {
        self.steering.has_lost_interface()
    }

    /// Lets the steering program redirect the frames of a queue to a socket that was
    /// [reopened](crate::reopen).
    ///
    /// # Errors
    /// Returns an error if the kernel refuses; the frames of the queue stay in Linux.
    pub fn claim_for(&mut self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        self.steering.insert_socket(queue, socket)
    }

    /// Lets the steering program redirect the queue's frames to a socket.
    pub(crate) fn insert(&mut self, queue: u32, socket: &Socket) -> Result<(), Error> {
        self.steering.insert_socket(queue, socket.as_fd())
    }

    /// Takes the reasons for slower modes than the best one, which the next opened queue would
    /// report.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.fallbacks)
    }

    /// Detaches the steering program, also if another process holds it for a successor.
    pub fn close(mut self) {
        self.steering.detach();
    }

    /// Returns the counters of the steering program, summed over all queues.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses to read the map.
    pub fn counts(&self) -> Result<Counts, Error> {
        self.steering.counts()
    }

    /// Returns where the steering program runs: in the driver or in the network stack.
    #[must_use]
    pub fn attached(&self) -> XdpMode {
        self.attached
    }

    /// Returns true if the driver runs the steering program, false if the network stack does.
    #[must_use]
    pub fn is_native(&self) -> bool {
        self.attached == XdpMode::Native
    }

    /// Returns the settings with which the device was opened.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}

/// Attaches the program in the best mode of the settings. Appends the reason for a fallback.
fn attach(
    program: &mut Program,
    settings: &Settings,
    fallbacks: &mut Vec<String>,
) -> Result<XdpMode, Error> {
    let interface = &settings.interface;
    if settings.mode != Mode::GenericCopy {
        match program.attach_xdp(interface, XdpMode::Native) {
            Ok(()) => return Ok(XdpMode::Native),
            Err(ProgramError::NoNativeXdp { source, .. }) if settings.mode == Mode::Auto => {
                fallbacks.push(format!(
                    "generic mode, because the driver does not run XDP as it is configured now: \
                     {source}"
                ));
            }
            Err(ProgramError::NoNativeXdp { source, .. }) => {
                return Err(Error::ModeUnavailable {
                    interface: interface.clone(),
                    mode: settings.mode,
                    reason: format!(
                        "the driver does not run XDP as it is configured now: {source}"
                    ),
                });
            }
            Err(other) => return Err(other.into()),
        }
    }
    program.attach_xdp(interface, XdpMode::Generic)?;
    Ok(XdpMode::Generic)
}
