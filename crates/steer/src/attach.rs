//! Puts the programs on interfaces and sockets.

use std::{
    fmt, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    thread,
    time::Duration,
};

use aya::{
    programs::{LinkOrder, ProgramError as AyaError, TcAttachType, tc},
    util::KernelVersion,
};

use crate::{
    error::{self, ProgramError},
    link,
    program::Program,
};

/// How often an interface that is taken is tried, and the time between.
const BUSY_TRIES: u32 = 5;
const BUSY_PAUSE: Duration = Duration::from_millis(25);

/// Who runs the XDP program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// The driver, before the kernel allocates a socket buffer.
    Native,
    /// The kernel's network stack: slower, works with every driver.
    Generic,
}

impl Program {
    /// Attaches `fastlane_xdp` to an interface, and takes it off the one it was on. The BPF link
    /// ends with this value.
    ///
    /// Waits up to a tenth of a second for an interface that is taken: when the link before was
    /// closed while some thread was starting a program, the child holds it until it has started.
    ///
    /// # Errors
    /// [`ProgramError::InterfaceBusy`], [`ProgramError::NoNativeXdp`],
    /// [`ProgramError::NoInterface`] or [`ProgramError::NoPrivilege`].
    pub fn attach_xdp(&mut self, interface: &str, mode: XdpMode) -> Result<(), ProgramError> {
        check_name(interface)?;
        self.xdp_link = None;
        let mut tries = BUSY_TRIES;
        loop {
            tries -= 1;
            match self.link_xdp(interface, mode) {
                Ok(link) => {
                    self.xdp_link = Some(link);
                    return Ok(());
                }
                Err(ProgramError::InterfaceBusy { .. }) if tries > 0 => thread::sleep(BUSY_PAUSE),
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes `fastlane_xdp` off its interface; nothing happens when it is on none.
    pub fn detach_xdp(&mut self) {
        self.xdp_link = None;
    }

    /// Attaches `fastlane_claim` to the ingress of an interface, before all others: what the
    /// AF_PACKET sockets with [`Program::attach_select`] take is kept from Linux.
    ///
    /// Since Linux 6.6 this is a tcx link and ends with this value. Before, it is a filter on the
    /// clsact queueing discipline: that one survives SIGKILL, and Linux then gets no fast frames on
    /// the interface until the next start, which removes what is left over. So on these kernels two
    /// ports on one interface are not possible. The clsact discipline itself stays.
    ///
    /// # Errors
    /// [`ProgramError::NoInterface`], [`ProgramError::NoPrivilege`] or [`ProgramError::Kernel`].
    pub fn attach_claim(&mut self, interface: &str) -> Result<(), ProgramError> {
        self.attach_ingress("fastlane_claim", interface, has_tcx())
    }

    /// Attaches `fastlane_reenter` to the ingress of the re-entry TAP: what is written to it
    /// arrives on the interface of `Settings::reenter_ifindex`, with the mark of the settings.
    /// Generic-mode XDP there would see the frame again, an endless loop when it is fast; native
    /// mode does not. Lifetime and errors as with [`Program::attach_claim`].
    ///
    /// # Errors
    /// See [`Program::attach_claim`].
    pub fn attach_reenter(&mut self, tap: &str) -> Result<(), ProgramError> {
        self.attach_ingress("fastlane_reenter", tap, has_tcx())
    }

    /// Attaches `fastlane_select` to an AF_PACKET socket of type SOCK_RAW: it receives the fast
    /// frames that arrive, none that leave and none that re-enter. It stays until the socket is
    /// closed.
    ///
    /// # Errors
    /// [`ProgramError::NoPrivilege`], or [`ProgramError::Kernel`] when `socket` is no socket.
    pub fn attach_select(&mut self, socket: BorrowedFd<'_>) -> Result<(), ProgramError> {
        self.select()?.attach(socket).map_err(|error| {
            ProgramError::new("attaching the filter to an AF_PACKET socket", error)
        })
    }

    fn link_xdp(&mut self, interface: &str, mode: XdpMode) -> Result<OwnedFd, ProgramError> {
        let action = format!("attaching the {mode} XDP program to `{interface}`");
        let program = self.xdp()?;
        let program = program.fd().map_err(|error| ProgramError::new(action.as_str(), error))?;
        link::index_of(interface)
            .and_then(|index| link::attach(program.as_fd(), index, mode))
            .map_err(|source| {
                let refused = no_device(interface, ProgramError::system(action, source));
                xdp_error(interface, mode, refused)
            })
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
    no_device(interface, ProgramError::new(action, error))
}

fn no_device(interface: &str, refused: ProgramError) -> ProgramError {
    match refused.number() {
        Some(error::ENODEV) => ProgramError::NoInterface { interface: interface.to_owned() },
        _ => refused,
    }
}

/// The kernel's rule for names (IFNAMSIZ), checked because the loader panics at a NUL.
fn check_name(interface: &str) -> Result<(), ProgramError> {
    match interface.is_empty() || interface.len() > 15 || interface.contains('\0') {
        true => Err(ProgramError::NoInterface { interface: interface.to_owned() }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;
