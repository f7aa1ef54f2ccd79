//! Attaches the programs to interfaces and sockets.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    thread,
    time::Duration,
};

use aya::{
    programs::{ProgramError as AyaError, TcAttachType, tc},
    util::KernelVersion,
};

use crate::{
    error::{self, ProgramError},
    link::{self, XdpMode},
    pins,
    program::Program,
};

/// Number of attempts on a busy interface, and the time between them.
const BUSY_TRIES: u32 = 5;
const BUSY_PAUSE: Duration = Duration::from_millis(25);

impl Program {
    /// Attaches `fastlane_xdp` to an interface and detaches it from the previous one. The BPF link
    /// ends when this value is dropped.
    ///
    /// Waits up to a tenth of a second for a busy interface. If the previous link was closed while
    /// another thread was starting a child process, the child holds the link until it has started.
    ///
    /// # Errors
    /// Returns [`ProgramError::InterfaceBusy`], [`ProgramError::NoNativeXdp`],
    /// [`ProgramError::NoInterface`] or [`ProgramError::NoPrivilege`].
    pub fn attach_xdp(&mut self, interface: &str, mode: XdpMode) -> Result<(), ProgramError> {
        check_name(interface)?;
        self.xdp_link = None;
        let program = self.xdp()?;
        let program = program.fd().map_err(|error| ProgramError::new("attaching XDP", error))?;
        self.xdp_link = Some(link_xdp(program.as_fd(), interface, mode)?);
        Ok(())
    }

    /// Detaches `fastlane_xdp` from its interface, also if another process has a descriptor of its
    /// link. Does nothing if it is not attached.
    pub fn detach_xdp(&mut self) {
        let Some(link) = self.xdp_link.take() else { return };
        // A refusal says that the interface has been removed.
        let _ = link::detach(link.as_fd());
    }

    /// Attaches `fastlane_claim` to the ingress of an interface, before all other programs. It
    /// hides the frames that the AF_PACKET sockets of [`Program::attach_select`] take from Linux.
    ///
    /// Since Linux 6.6 this is a tcx link, which ends when this value is dropped. On older kernels
    /// it is a filter on the clsact queueing discipline, which survives SIGKILL. Linux then
    /// receives no claimed frames on the interface until the next start, which removes the
    /// leftover. For this reason two ports on one interface are impossible on these kernels. The
    /// clsact discipline itself stays.
    ///
    /// # Errors
    /// Returns [`ProgramError::NoInterface`], [`ProgramError::NoPrivilege`] or
    /// [`ProgramError::Kernel`].
    pub fn attach_claim(&mut self, interface: &str) -> Result<(), ProgramError> {
        self.claim_link = None;
        self.claim_link = self.attach_ingress("fastlane_claim", interface, has_tcx())?;
        Ok(())
    }

    /// Attaches `fastlane_reenter` to the ingress of the re-entry TAP. Frames written to it arrive
    /// on the interface `Settings::reenter_ifindex`, with the mark of the settings. Generic-mode
    /// XDP on that interface would see the frame again, which is an endless loop for claimed
    /// frames; native mode does not. Lifetime as for [`Program::attach_claim`].
    ///
    /// # Errors
    /// Returns the errors of [`Program::attach_claim`].
    pub fn attach_reenter(&mut self, tap: &str) -> Result<(), ProgramError> {
        self.reenter_link = None;
        self.reenter_link = self.attach_ingress("fastlane_reenter", tap, has_tcx())?;
        Ok(())
    }

    /// Pins the link of `fastlane_reenter` in the directory of a port's pins, under a number, in
    /// place of one that is there. Does nothing if it is not attached by a link.
    ///
    /// # Errors
    /// Returns the refusal of the kernel.
    pub fn pin_reentry(&self, directory: &Path, number: usize) -> io::Result<()> {
        let link = self.reenter_link.as_ref();
        link.map_or(Ok(()), |link| pins::pin_reentry(link.as_fd(), directory, number))
    }

    /// Attaches `fastlane_select` to an AF_PACKET socket of type SOCK_RAW. The socket then receives
    /// arriving frames that a rule claims, but no outgoing and no re-entered ones. The filter stays
    /// until the socket is closed.
    ///
    /// # Errors
    /// Returns [`ProgramError::NoPrivilege`], or [`ProgramError::Kernel`] if `socket` is no socket.
    pub fn attach_select(&mut self, socket: BorrowedFd<'_>) -> Result<(), ProgramError> {
        self.select()?.attach(socket).map_err(|error| {
            ProgramError::new("attaching the filter to an AF_PACKET socket", error)
        })
    }

    /// Attaches a program to the ingress of an interface. Returns its link, or `None` for a filter.
    fn attach_ingress(
        &mut self,
        name: &str,
        interface: &str,
        tcx: bool,
    ) -> Result<Option<OwnedFd>, ProgramError> {
        check_name(interface)?;
        let action = format!("attaching {name} to the ingress of `{interface}`");
        let classifier = self.classifier(name)?;
        if tcx {
            let program = classifier.fd();
            let program = program.map_err(|error| ProgramError::new(action.as_str(), error))?;
            return link_ingress(program.as_fd(), interface).map(Some);
        }
        let refused = |error| attach_error(interface, &action, error);
        prepare_clsact(interface, name).map_err(|error| refused(error.into()))?;
        let options = tc::NlOptions { priority: 1, ..tc::NlOptions::default() };
        let options = tc::TcAttachOptions::Netlink(options);
        let attached = classifier.attach_with_options(interface, TcAttachType::Ingress, options);
        attached.map(|_| None).map_err(refused)
    }
}

/// Attaches a loaded XDP program to an interface. The returned BPF link ends with its last
/// descriptor. Waits for a busy interface as [`Program::attach_xdp`] does.
///
/// # Errors
/// Returns the errors of [`Program::attach_xdp`].
pub fn link_xdp(
    program: BorrowedFd<'_>,
    interface: &str,
    mode: XdpMode,
) -> Result<OwnedFd, ProgramError> {
    let action = format!("attaching the {mode} XDP program to `{interface}`");
    let mut tries = BUSY_TRIES;
    loop {
        tries -= 1;
        let link = link::index_of(interface).and_then(|it| link::attach(program, it, mode));
        let error = match link {
            Ok(link) => return Ok(link),
            Err(error) => no_device(interface, ProgramError::system(action.as_str(), error)),
        };
        match xdp_error(interface, mode, error) {
            ProgramError::InterfaceBusy { .. } if tries > 0 => thread::sleep(BUSY_PAUSE),
            error => return Err(error),
        }
    }
}

/// Attaches a loaded program to the ingress of an interface, before all others (Linux 6.6 and
/// later). The returned BPF link ends with its last descriptor.
///
/// # Errors
/// Returns [`ProgramError::NoInterface`] if there is no such interface, [`ProgramError::Kernel`] if
/// the kernel refuses.
pub fn link_ingress(program: BorrowedFd<'_>, interface: &str) -> Result<OwnedFd, ProgramError> {
    let action = format!("attaching a program to the ingress of `{interface}`");
    let refused = |source| no_device(interface, ProgramError::system(action, source));
    link::index_of(interface)
        .and_then(|index| link::attach_ingress(program, index))
        .map_err(refused)
}

/// Returns true if the kernel attaches programs to an interface's ingress by a link (tcx). They
/// then come before the filters of `tc`.
#[must_use]
pub fn has_tcx() -> bool {
    // LINUX_VERSION_CODE of Linux 6.6.
    KernelVersion::current().is_ok_and(|version| version.code() >= 6 << 16 | 6 << 8)
}

/// Prepares an interface for a netlink filter: adds the queueing discipline and removes leftovers.
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

/// Checks an interface name by the kernel's rule (IFNAMSIZ), because the loader panics at a NUL.
fn check_name(interface: &str) -> Result<(), ProgramError> {
    match interface.is_empty() || interface.len() > 15 || interface.contains('\0') {
        true => Err(ProgramError::NoInterface { interface: interface.to_owned() }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;
