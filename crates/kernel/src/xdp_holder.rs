//! XDP programs that others have attached to an interface.

use std::fmt;

use fastlane_netlink::{Request, ask, attribute, link_header, number};
use fastlane_steer::{program_link, program_name};

/// Attribute of linux/if_link.h with the programs of an interface.
const IFLA_XDP: u16 = 43;
/// Attributes inside it with the ids of the programs, their mode, and its word for ip-link(8).
const MODES: [(u16, &str, &str); 3] =
    [(5, "native", "xdpdrv"), (6, "generic", "xdpgeneric"), (7, "offloaded", "xdpoffload")];
/// Length of `struct ifinfomsg`.
const LINK_HEADER: usize = 16;
/// Name of the program by which libxdp runs several others.
const DISPATCHER: &str = "xdp_dispatcher";

/// XDP program on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpHolder {
    /// Name of the interface.
    pub interface: String,
    /// Id of the program.
    pub id: u32,
    /// Name of the program; `None` without CAP_SYS_ADMIN, or if it has none.
    pub name: Option<String>,
    /// Mode: `native`, `generic` or `offloaded`.
    pub mode: &'static str,
    /// Word of `ip link set dev` for the mode.
    off: &'static str,
    /// Id of the BPF link that holds it; `None` if it was attached by netlink, or is not known.
    pub link: Option<u32>,
}

impl XdpHolder {
    /// Returns the XDP programs on an interface of the calling thread's network namespace, as far
    /// as the kernel tells them.
    #[must_use]
    pub fn all_on(interface: &str, index: u32) -> Vec<Self> {
        let request = Request::new(libc::RTM_GETLINK, 0, &link_header(index, 0, 0));
        let replies = ask(request).unwrap_or_default();
        let xdp = replies.iter().find_map(|body| attribute(body.get(LINK_HEADER..)?, IFLA_XDP));
        let Some(xdp) = xdp else { return Vec::new() };
        let ids = MODES.iter().filter_map(|(kind, mode, off)| {
            Some((attribute(xdp, *kind).and_then(number).filter(|id| *id > 0)?, *mode, *off))
        });
        let holder = |(id, mode, off)| {
            let interface = interface.to_owned();
            Self { interface, id, name: program_name(id), mode, off, link: program_link(id) }
        };
        ids.map(holder).collect()
    }

    /// Returns true if it is the program of libxdp that runs others.
    #[must_use]
    pub fn is_dispatcher(&self) -> bool {
        self.name.as_deref() == Some(DISPATCHER)
    }
}

/// Program, its mode, and the command that takes it off.
impl fmt::Display for XdpHolder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { interface, id, name, mode, off, link } = self;
        match name {
            _ if self.is_dispatcher() => formatter.write_str("libxdp's dispatcher")?,
            Some(name) => write!(formatter, "the XDP program `{name}`")?,
            None => formatter.write_str("an XDP program")?,
        }
        write!(formatter, " (id {id}, {mode} mode) is attached to `{interface}`")?;
        if self.is_dispatcher() {
            return write!(
                formatter,
                ", and Fastlane does not run below it: unload its programs with `xdp-loader unload \
                 {interface} --all`"
            );
        }
        match (link, name) {
            (Some(link), _) => write!(
                formatter,
                ": end the process that holds its link, or run `bpftool link detach id {link}`"
            ),
            (None, Some(_)) => {
                write!(formatter, ": take it off with `ip link set dev {interface} {off} off`")
            }
            (None, None) => write!(
                formatter,
                ": `bpftool prog show id {id}` names it as root; stop its owner, or take it off \
                 with `ip link set dev {interface} {off} off`"
            ),
        }
    }
}
