//! An interface with the steering program on it.

use std::os::fd::AsFd;

use fastlane_steer::{Counts, Program, ProgramError, Rules, XdpMode};

use crate::socket::Socket;
use crate::{Error, Mode, Settings};

/// The device of one port: an interface with the steering program attached.
///
/// The program is held by a BPF link, so it goes when this value is dropped, and also when the
/// process is killed, unless somebody else [keeps](Self::kept) it for a successor. To be used in
/// the network namespace that it was opened in; not by lanes.
#[derive(Debug)]
pub struct Device {
    pub(crate) settings: Settings,
    pub(crate) program: Program,
    pub(crate) attached: XdpMode,
    /// Zero-copy was refused on a queue: it is not tried again.
    pub(crate) copies: bool,
    pub(crate) max_length: u32,
}

impl Device {
    /// Loads the steering program with these rules and attaches it: in the driver, or where the
    /// mode allows it and the driver does not, in the network stack. No frame is claimed before a
    /// queue is opened. `max_length` is the longest frame that may be claimed, see
    /// [`longest_frame`](crate::longest_frame); a longer one stays in Linux.
    ///
    /// # Errors
    /// Those of the steering program, [`Error::ModeUnavailable`] and [`Error::RingSize`].
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
        let attached = attach(&mut program, &settings)?;
        Ok(Self { settings, program, attached, copies: false, max_length })
    }

    /// Replaces the rules while frames arrive: each frame is judged by the old list or by the new
    /// one, see [`Program::replace_rules`]. Frames that were claimed before stay claimed.
    ///
    /// # Errors
    /// When the kernel refuses; then the old rules stay in force.
    pub fn replace_rules(&mut self, rules: &Rules) -> Result<(), Error> {
        Ok(self.program.replace_rules(rules)?)
    }

    /// Lets the steering program send the queue's frames to a socket.
    pub(crate) fn insert(&mut self, queue: u32, socket: &Socket) -> Result<(), Error> {
        Ok(self.program.insert_socket(queue, socket.as_fd())?)
    }

    /// What the steering program has counted, on all queues.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn counts(&self) -> Result<Counts, Error> {
        Ok(self.program.counts()?)
    }

    /// Who runs the steering program.
    #[must_use]
    pub fn attached(&self) -> XdpMode {
        self.attached
    }

    /// Whether the driver runs the steering program, not the network stack.
    #[must_use]
    pub fn is_native(&self) -> bool {
        self.attached == XdpMode::Native
    }

    /// The settings that it was opened with.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}

fn attach(program: &mut Program, settings: &Settings) -> Result<XdpMode, Error> {
    let interface = &settings.interface;
    if settings.mode != Mode::GenericCopy {
        match program.attach_xdp(interface, XdpMode::Native) {
            Ok(()) => return Ok(XdpMode::Native),
            Err(ProgramError::NoNativeXdp { .. }) if settings.mode == Mode::Auto => {}
            Err(ProgramError::NoNativeXdp { source, .. }) => {
                return Err(Error::ModeUnavailable {
                    interface: interface.clone(),
                    mode: settings.mode,
                    reason: format!("the driver does not run XDP in the present setting: {source}"),
                });
            }
            Err(other) => return Err(other.into()),
        }
    }
    program.attach_xdp(interface, XdpMode::Generic)?;
    Ok(XdpMode::Generic)
}
