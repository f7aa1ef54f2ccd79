//! Tests of the XDP programs of others on an interface: they are named with the remedy.
#![allow(unsafe_code, reason = "bpf(2) has no safe form")]

mod support;

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use fastlane_kernel::XdpHolder;
use fastlane_netlink::{Request, ask, link_header};
use fastlane_steer::{Program, Rules, Settings, XdpMode};
use support::{Hosts, interface, run};

/// Constants of linux/bpf.h and linux/if_link.h.
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_TYPE_XDP: u32 = 6;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_FD: u16 = 1;
const IFLA_XDP_FLAGS: u16 = 3;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;

/// First fields of `union bpf_attr` for BPF_PROG_LOAD.
#[repr(C)]
struct Load {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

/// Loads an XDP program of this name that passes all frames, as libxdp loads its dispatcher.
fn load(name: &str) -> OwnedFd {
    // r0 = XDP_PASS; exit
    let code: [u64; 2] = [0x0000_0002_0000_00b7, 0x0000_0000_0000_0095];
    let mut request = Load {
        kind: BPF_PROG_TYPE_XDP,
        instructions: code.len() as u32,
        code: code.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name: [0; 16],
    };
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: the kernel reads the fields given by the size, and the memory that they name lives
    // through the call.
    let descriptor = unsafe {
        libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw const request, size_of::<Load>())
    };
    assert!(descriptor >= 0, "{}", io::Error::last_os_error());
    // SAFETY: the descriptor was just created.
    unsafe { OwnedFd::from_raw_fd(descriptor as i32) }
}

/// Attaches a program to an interface in generic mode by netlink, as ip-link(8) and libxdp do.
fn attach(program: &OwnedFd, index: u32) {
    let request = Request::new(libc::RTM_SETLINK, 0, &link_header(index, 0, 0));
    let request = request.nest(IFLA_XDP | libc::NLA_F_NESTED as u16, |xdp| {
        xdp.attribute(IFLA_XDP_FD, &program.as_raw_fd().to_ne_bytes())
            .attribute(IFLA_XDP_FLAGS, &XDP_FLAGS_SKB_MODE.to_ne_bytes())
    });
    ask(request).expect("the interface is free");
}

#[test]
fn the_program_that_holds_an_interface_is_named() {
    let Some(_hosts) = Hosts::new("") else { return };
    let index = interface("d0").index;
    assert_eq!(XdpHolder::all_on("d0", index), []);
    let settings = Settings { max_length: 1600, mark: 0, reenter_ifindex: 0 };
    let mut program = Program::load(&Rules::default(), settings).unwrap();
    program.attach_xdp("d0", XdpMode::Native).unwrap();
    let holders = XdpHolder::all_on("d0", index);
    let [XdpHolder { id, name, mode, link: Some(link), .. }] = &holders[..] else {
        panic!("{holders:?}")
    };
    assert_eq!((name.as_deref(), *mode), (Some("fastlane_xdp"), "native"));
    assert_eq!(
        holders[0].to_string(),
        format!(
            "the XDP program `fastlane_xdp` (id {id}, native mode) is attached to `d0`: end the \
             process that holds its link, or run `bpftool link detach id {link}`"
        )
    );
    drop(program);
    assert_eq!(XdpHolder::all_on("d0", index), []);
}

#[test]
fn a_program_without_a_link_is_taken_off_as_its_message_says() {
    let Some(_hosts) = Hosts::new("") else { return };
    let index = interface("d0").index;
    attach(&load("counts_frames"), index);
    let holders = XdpHolder::all_on("d0", index);
    assert_eq!(holders.len(), 1, "{holders:?}");
    let message = holders[0].to_string();
    let expected = format!(
        "the XDP program `counts_frames` (id {}, generic mode) is attached to `d0`: take it off \
         with `ip link set dev d0 xdpgeneric off`",
        holders[0].id
    );
    assert_eq!(message, expected);
    run(message.split('`').nth(5).expect("the command"));
    assert_eq!(XdpHolder::all_on("d0", index), []);
}

#[test]
fn the_dispatcher_of_libxdp_is_named_with_its_own_remedy() {
    let Some(_hosts) = Hosts::new("") else { return };
    let index = interface("d0").index;
    attach(&load("xdp_dispatcher"), index);
    let holders = XdpHolder::all_on("d0", index);
    assert!(holders[0].is_dispatcher(), "{holders:?}");
    assert_eq!(
        holders[0].to_string(),
        format!(
            "libxdp's dispatcher (id {}, generic mode) is attached to `d0`, and Fastlane does not \
             run below it: unload its programs with `xdp-loader unload d0 --all`",
            holders[0].id
        )
    );
}
