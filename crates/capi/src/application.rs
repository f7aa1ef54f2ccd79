//! Applications whose functions are in C.
//!
//! What is trusted. Every value of `verdict` and `port` is checked by the lane, as it is for
//! applications in Rust: counted, not obeyed. The window (`data`, `length`, `headroom`, `tailroom`)
//! and the `token` are trusted in a release, as DPDK and VPP trust theirs: a program that writes
//! past its packet corrupts the frame pool anyway, and to compare every packet costs 1.6 ns of the
//! 4 that a macswap takes in memory, where the boundary itself cannot be told from none. `checked`
//! pays that (`check.rs`); a debug build always does.
#![allow(unsafe_code, reason = "calls into C")]

use std::ffi::{c_int, c_void};

use fastlane::{Error, LaneInfo, Turn};

use crate::check::Check;
use crate::{Lane, Packet};

/// A network application: its functions, of which only `process` is required. Create it with
/// designated initialisers, or zero it first: members may be added at the end.
///
/// Each lane is a thread with a state of its own that nobody else touches, so none of these
/// functions needs a lock. They must not block, and in C++ they must not throw.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct App {
    /// Labels the `count` packets of a burst, 1 or more, all of one port. Called in the lane's
    /// thread. The array and the bytes are valid until it returns.
    pub process: Option<
        unsafe extern "C" fn(
            packets: *mut Packet,
            count: usize,
            turn: *mut Turn,
            state: *mut c_void,
        ),
    >,
    /// Called once per turn of the lane after its packets, even if nothing arrived: for timers and
    /// new packets. Called in the lane's thread. NULL: nothing to do.
    pub turn: Option<unsafe extern "C" fn(turn: *mut Turn, state: *mut c_void)>,
    /// Creates the state of one lane and stores it in `*state`, which is NULL before. Called once
    /// for each lane in the thread of fl_main, before any port is open. Returns 0, or another value
    /// to refuse, which ends the run: give the reason with fl_refuse. Memory that lanes write
    /// should share no cache line: aligned_alloc(64, ...). NULL: the state is NULL.
    pub start: Option<unsafe extern "C" fn(lane: *mut Lane<'_>, state: *mut *mut c_void) -> c_int>,
    /// Frees the state of one lane. Called once for each lane for which `start` returned 0: in the
    /// lane's thread at its end, or in the thread of fl_main if the lane never began. NULL: nothing
    /// to free.
    pub stop: Option<unsafe extern "C" fn(state: *mut c_void)>,
    /// Checks each packet that `process` was given after it: a packet with invalid changes other
    /// than bytes and verdict is restored, dropped and counted as `drop_bad_verdict`. Costs about
    /// two nanoseconds per packet; a debug build of the library always checks.
    pub checked: bool,
}

type Process = unsafe extern "C" fn(*mut Packet, usize, *mut Turn, *mut c_void);

/// Instance of the application in one lane.
#[derive(Debug)]
struct Instance {
    process: Process,
    turn: Option<unsafe extern "C" fn(*mut Turn, *mut c_void)>,
    stop: Option<unsafe extern "C" fn(*mut c_void)>,
    state: *mut c_void,
    check: Option<Check>,
}

// SAFETY: the header says that the state is made in one thread and used and freed in another, one
// at a time; an instance is never shared.
unsafe impl Send for Instance {}

/// Creates the application instance of one lane.
///
/// # Errors
/// When it has no function for packets, or refuses.
///
/// # Safety
/// The functions of `app` must keep to what the header says, and must stay where they are.
pub unsafe fn application(
    app: &App,
    info: &LaneInfo<'_>,
) -> Result<impl fastlane::App + Send + use<>, Error> {
    let process = app.process.ok_or_else(|| {
        Error::application("the struct fl_app has no function `process`; set it before fl_main")
    })?;
    let mut state = std::ptr::null_mut();
    if let Some(start) = app.start {
        let mut lane = Lane::new(info);
        // SAFETY: the caller answers for the function; both pointers live through the call.
        let refused = unsafe { start(&raw mut lane, &raw mut state) } != 0;
        if refused {
            return Err(lane.refusal());
        }
    }
    let check = (app.checked || cfg!(debug_assertions)).then(Check::default);
    Ok(Instance { process, turn: app.turn, stop: app.stop, state, check })
}

impl fastlane::App for Instance {
    #[inline]
    fn process(&mut self, packets: &mut [fastlane::Packet], turn: &mut Turn) {
        let (first, count): (*mut Packet, _) = (packets.as_mut_ptr().cast(), packets.len());
        if let Some(check) = &mut self.check {
            // SAFETY: the two packets have one layout, which is tested; nobody else has the array.
            check.remember(unsafe { std::slice::from_raw_parts(first, count) });
        }
        // SAFETY: as above; it stays ours alone until the call returns, and whoever made the
        // instance answers for the function.
        unsafe { (self.process)(first, count, turn, self.state) }
        if let Some(check) = &mut self.check {
            // SAFETY: as above; the function has kept nothing.
            check.restore(unsafe { std::slice::from_raw_parts_mut(first, count) });
        }
    }

    #[inline]
    fn turn(&mut self, turn: &mut Turn) {
        if let Some(function) = self.turn {
            // SAFETY: as in `process`.
            unsafe { function(turn, self.state) }
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Some(stop) = self.stop {
            // SAFETY: `start` made the state and nobody uses it again.
            unsafe { stop(self.state) }
        }
    }
}
