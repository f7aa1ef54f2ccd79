//! Re-entry: a frame that was taken from an interface arrives on it again, as if for the first
//! time.
//!
//! It goes through a TAP device of its own, quiet and without addresses, whose ingress is
//! redirected to the interface's. So Linux sees its Ethernet header, its interface and its VLAN
//! tag. The TAP ends with its last queue, and with the process.

use std::os::fd::{BorrowedFd, OwnedFd};

use fastlane_steer::{Program, Rules, Settings, has_tcx};

use crate::error::{Error, NET_ADMIN};
use crate::interface::Interface;
use crate::link;
use crate::tap::{self, TapQueue, TapSettings};
use fastlane_netlink::{self as netlink, Request};

/// Mechanism that moves frames from the TAP to the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The tc action `mirred`. Generic-mode XDP on the interface does not see the frame again, but
    /// an AF_PACKET port on it would. It stops working when the Ethernet address of the interface
    /// changes.
    Mirred,
    /// An eBPF program that marks the frame before it redirects it. AF_PACKET ports let frames with
    /// the mark pass, and native-mode XDP does not see them. Generic-mode XDP would loop.
    Redirect {
        /// Mark (SO_MARK) of [`AfPacketSettings`](crate::af_packet::AfPacketSettings); 0 for none.
        mark: u32,
    },
}

/// Maximum MTU of a TAP device: `MAX_MTU` of Linux's tun driver without the Ethernet header.
const MOST_MTU: u32 = 65521;

/// Re-entry into an interface, for its owner outside of the lanes: it follows changes of the
/// interface. Dropping it ends the redirection.
#[derive(Debug)]
pub struct Reentry {
    method: Method,
    tap: TapName,
    /// Program that redirects, or with `mirred` one that marks frames [for a
    /// time](Self::enter_beside_both).
    program: Option<Program>,
    /// Interface, once frames are redirected to it.
    target: Option<Interface>,
    /// Method before a time [beside both](Self::enter_beside_both).
    before: Option<Method>,
}

/// Index and name of a TAP device.
#[derive(Debug)]
struct TapName {
    index: u32,
    name: String,
}

impl Reentry {
    /// Takes over the re-entry that another process has opened and that ended, by one of its
    /// queues. It must be [redirected](Self::redirect_to) next.
    ///
    /// # Errors
    /// [`Error::Unfit`] if the descriptor is no queue of a TAP device in the network namespace of
    /// the calling thread.
    pub fn of_queue(queue: BorrowedFd<'_>, method: Method) -> Result<Self, Error> {
        let name = tap::name_here(queue)?;
        let index = link::index(&name).map_err(|error| {
            Error::kernel(format!("finding the index of {name}"), NET_ADMIN, error)
        })?;
        let tap = TapName { index, name };
        Ok(Self { method, tap, program: None, target: None, before: None })
    }

    /// Gives the TAP device the Ethernet address of the interface. Without that, Linux takes
    /// frames to the new address for somebody else's, and `mirred` drops them.
    ///
    /// # Errors
    /// [`Error::Kernel`].
    pub fn follow_mac(&self, interface: &Interface) -> Result<(), Error> {
        if interface.mac == [0; 6] {
            return Ok(());
        }
        link::set_mac(self.tap.index, interface.mac).map_err(|error| {
            let name = &interface.name;
            Error::kernel(format!("re-entry into {name}: setting the MAC"), NET_ADMIN, error)
        })
    }

    /// Pins the program that redirects in a directory of a BPF file system, under a number: then it
    /// works on without this process. `mirred` does anyway.
    ///
    /// # Errors
    /// [`Error::Kernel`].
    pub fn pin(&self, directory: &std::path::Path, number: usize) -> Result<(), Error> {
        let pinned = self.program.as_ref().map_or(Ok(()), |it| it.pin_reentry(directory, number));
        pinned.map_err(|error| Error::kernel("pinning the re-entry", NET_ADMIN, error))
    }

    /// Redirects to another interface, which has taken the place of a removed one.
    ///
    /// # Errors
    /// Those of [`open`]. Frames do not re-enter then; the call can be repeated.
    pub fn redirect_to(&mut self, interface: &Interface) -> Result<(), Error> {
        check_mac(interface, self.method)?;
        self.follow_mac(interface)?;
        self.program = None;
        if self.method == Method::Mirred {
            remove_mirred(self.tap.index, interface)?;
        }
        self.program = redirect(&self.tap, interface, self.method)?;
        (self.target, self.before) = (Some(interface.clone()), None);
        Ok(())
    }

    /// Redirects to an interface by this method. Frames on their way are redirected by the former
    /// one or by this.
    ///
    /// # Errors
    /// Those of [`open`]. The call can be repeated.
    pub fn enter(&mut self, interface: &Interface, method: Method) -> Result<(), Error> {
        check_mac(interface, method)?;
        self.follow_mac(interface)?;
        let before = std::mem::replace(&mut self.method, method);
        let target = self.target.take(); // none until this has succeeded
        let is_same = target.is_some_and(|it| it.index == interface.index);
        // The program comes before the filter of `mirred`, so both may be there. Older kernels
        // keep both in one queueing discipline.
        match (before, method) {
            (Method::Mirred, Method::Mirred) if is_same => self.program = None,
            (Method::Redirect { .. }, Method::Mirred) if has_tcx() => {
                redirect_by_mirred(self.tap.index, interface)?;
                self.program = None;
            }
            (Method::Mirred, Method::Redirect { .. }) if has_tcx() => {
                self.program = redirect(&self.tap, interface, method)?;
                remove_mirred(self.tap.index, interface)?;
            }
            _ => {
                self.program = None;
                remove_mirred(self.tap.index, interface)?;
                self.program = redirect(&self.tap, interface, method)?;
            }
        }
        (self.target, self.before) = (Some(interface.clone()), None);
        Ok(())
    }

    /// Enters so that neither generic-mode XDP on the interface nor an AF_PACKET port with this
    /// mark sees the frame again: for a change to the method `next`, in which frames would
    /// circulate by either one. Linux sees the mark while no AF_PACKET port removes it. Kernels
    /// without tcx (before 6.6) go on as before.
    ///
    /// # Errors
    /// Those of [`open`]. The call can be repeated.
    pub fn enter_beside_both(&mut self, next: Method, mark: u32) -> Result<(), Error> {
        let Some(interface) = self.target.as_ref().filter(|_| self.method != next && has_tcx())
        else {
            return Ok(());
        };
        check_mac(interface, Method::Mirred)?;
        if self.method != Method::Mirred {
            redirect_by_mirred(self.tap.index, interface)?;
        }
        self.before.get_or_insert(self.method);
        self.method = Method::Mirred;
        // Without an interface it marks frames, and the filter after it redirects them.
        self.program = Some(reentry_program(&self.tap, mark, 0)?);
        Ok(())
    }

    /// Enters by the method before a change that did not come about.
    ///
    /// # Errors
    /// Those of [`open`].
    pub fn enter_as_before(&mut self) -> Result<(), Error> {
        match (self.before.take(), self.target.clone()) {
            (Some(method), Some(interface)) => self.enter(&interface, method),
            _ => Ok(()),
        }
    }
}

/// Checks that the interface has an Ethernet address if the method needs one.
fn check_mac(interface: &Interface, method: Method) -> Result<(), Error> {
    if method == Method::Mirred && interface.mac == [0; 6] {
        return Err(Error::Unfit {
            subject: format!("re-entry into {}", interface.name),
            reason: "it has no Ethernet address, by which Linux would know its frames".to_owned(),
            remedy: "use an interface that has one, or AF_PACKET".to_owned(),
        });
    }
    Ok(())
}

/// Redirects the frames of a TAP device to an interface.
fn redirect(
    tap: &TapName,
    interface: &Interface,
    method: Method,
) -> Result<Option<Program>, Error> {
    match method {
        Method::Mirred => redirect_by_mirred(tap.index, interface).map(|()| None),
        Method::Redirect { mark } => reentry_program(tap, mark, interface.index).map(Some),
    }
}

/// Attaches the program that marks the frames of a TAP device and redirects them to an interface,
/// if it has an index.
fn reentry_program(tap: &TapName, mark: u32, interface: u32) -> Result<Program, Error> {
    let settings = Settings { max_length: 0, mark, reenter_ifindex: interface };
    let mut program = Program::load(&Rules::default(), settings)?;
    program.attach_reenter(&tap.name)?;
    Ok(program)
}

/// Opens re-entry queues of `interface`: a packet transmitted on one arrives on the interface, as
/// long as the [`Reentry`] exists.
///
/// # Errors
/// Those of [`tap::open`]; [`Error::Unfit`] if the kernel lacks what `method` needs;
/// [`Error::Program`].
pub fn open(
    interface: &Interface,
    method: Method,
    queues: usize,
) -> Result<(Reentry, Vec<TapQueue>), Error> {
    check_mac(interface, method)?;
    let tap = tap::open(TapSettings {
        // With another address Linux would take the frames for somebody else's.
        mac: (interface.mac != [0; 6]).then_some(interface.mac),
        mtu: Some(interface.mtu.clamp(1500, MOST_MTU)),
        queues,
        quiet: true,
        ..TapSettings::default()
    })?;
    let (queues, tap) = (tap.queues, TapName { index: tap.index, name: tap.name });
    let program = redirect(&tap, interface, method)?;
    let queues = queues.into_iter().map(TapQueue::for_reentry).collect();
    let target = Some(interface.clone());
    Ok((Reentry { method, tap, program, target, before: None }, queues))
}

/// Takes the re-entry queues that another process has opened, which has the [`Reentry`].
///
/// # Errors
/// Those of [`tap::adopt`].
pub fn adopt(files: Vec<OwnedFd>) -> Result<Vec<TapQueue>, Error> {
    Ok(tap::adopt(files)?.queues.into_iter().map(TapQueue::for_reentry).collect())
}

// Of `linux/pkt_sched.h`, `linux/pkt_cls.h` and `linux/tc_act/tc_mirred.h`.
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TC_H_CLSACT: u32 = 0xffff_fff1;
const CLSACT_HANDLE: u32 = 0xffff_0000;
const INGRESS: u32 = 0xffff_fff2;
const TCA_U32_SEL: u16 = 5;
const TCA_U32_ACT: u16 = 7;
const TC_U32_TERMINAL: u8 = 1;
const TCA_ACT_KIND: u16 = 1;
const TCA_ACT_OPTIONS: u16 = 2;
const TCA_MIRRED_PARMS: u16 = 2;
const TCA_INGRESS_REDIR: u32 = 3;
const TC_ACT_STOLEN: u32 = 4;

/// Runs `tc qdisc add dev TAP clsact`, then `tc filter add dev TAP ingress u32 match u32 0 0 action
/// mirred ingress redirect dev INTERFACE`.
fn redirect_by_mirred(tap: u32, interface: &Interface) -> Result<(), Error> {
    let ask = |what: &str, needs: &str, request: Request| {
        netlink::ask(request).map(drop).map_err(|error| {
            let name = &interface.name;
            match error.kind() {
                // No module of that name.
                std::io::ErrorKind::NotFound => Error::Unfit {
                    subject: format!("re-entry into {name}"),
                    reason: format!("this kernel has no {needs}"),
                    remedy: "load the module, or use native-mode XDP or AF_PACKET".to_owned(),
                },
                _ => Error::kernel(format!("re-entry into {name}: {what}"), NET_ADMIN, error),
            }
        })
    };
    let new = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let discipline =
        Request::new(libc::RTM_NEWQDISC, new, &tc_header(tap, CLSACT_HANDLE, TC_H_CLSACT, 0))
            .attribute(TCA_KIND, b"clsact\0");
    ask("adding the clsact queueing discipline", "sch_ingress", discipline)?;

    // Priority 1, all protocols in the byte order of the network.
    let about = 1 << 16 | u32::from((libc::ETH_P_ALL as u16).to_be());
    let filter = Request::new(libc::RTM_NEWTFILTER, new, &tc_header(tap, 0, INGRESS, about))
        .attribute(TCA_KIND, b"u32\0")
        .nest(TCA_OPTIONS, |options| {
            options
                .nest(TCA_U32_ACT, |actions| {
                    actions.nest(1, |first| mirred(first, interface.index))
                })
                .attribute(TCA_U32_SEL, &match_all())
        });
    ask("adding the filter that redirects", "cls_u32 or act_mirred", filter)
}

/// Removes the queueing discipline of an earlier [`redirect_by_mirred`], with its filter.
fn remove_mirred(tap: u32, interface: &Interface) -> Result<(), Error> {
    let header = tc_header(tap, CLSACT_HANDLE, TC_H_CLSACT, 0);
    match netlink::ask(Request::new(libc::RTM_DELQDISC, 0, &header)) {
        // An attempt that failed had removed it.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL)) => Ok(()),
        other => other.map(drop).map_err(|error| {
            let name = &interface.name;
            Error::kernel(format!("re-entry into {name}: removing the filter"), NET_ADMIN, error)
        }),
    }
}

fn mirred(action: Request, interface: u32) -> Request {
    // `struct tc_mirred`: index, capab, action, refcnt, bindcnt, eaction, ifindex.
    let words = [0, 0, TC_ACT_STOLEN, 0, 0, TCA_INGRESS_REDIR, interface];
    let parameters: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    action
        .attribute(TCA_ACT_KIND, b"mirred\0")
        .nest(TCA_ACT_OPTIONS, |options| options.attribute(TCA_MIRRED_PARMS, &parameters))
}

/// Builds a `struct tc_u32_sel` with one key and an empty mask, which matches every frame.
fn match_all() -> [u8; 32] {
    let mut selector = [0; 32];
    selector[0] = TC_U32_TERMINAL;
    selector[2] = 1; // keys
    selector
}

/// Builds a `struct tcmsg`.
fn tc_header(interface: u32, handle: u32, parent: u32, about: u32) -> [u8; 20] {
    let mut header = [0; 20];
    for (place, word) in [interface, handle, parent, about].into_iter().enumerate() {
        header[4 + 4 * place..8 + 4 * place].copy_from_slice(&word.to_ne_bytes());
    }
    header
}
