//! Start and end of a run.
#![allow(unsafe_code, reason = "called from C")]

use std::ffi::{CStr, OsStr, OsString, c_char, c_int};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::packet::FL_ABI;
use crate::{App, application};

/// Exit status of a run that failed.
const RUN_FAILED: c_int = 5;

/// Stop flag of the run, once it exists.
static RUN: OnceLock<Arc<AtomicBool>> = OnceLock::new();
/// True once fl_stop was called, perhaps before the run exists.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// Runs the application for fl_main, which passes the structure size and version that the program
/// was compiled with.
///
/// # Safety
/// `argv` holds `argc` strings, `app` has `size` bytes, and its functions keep to the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_main_abi(
    argc: c_int,
    argv: *const *mut c_char,
    app: *const App,
    size: usize,
    abi: u32,
) -> c_int {
    if abi != FL_ABI || size > size_of::<App>() {
        eprintln!(
            "the program was compiled with another fastlane.h (version {abi}, {size} bytes) than \
             this library's (version {FL_ABI}, {} bytes); compile it again with the header that \
             came with the library",
            size_of::<App>()
        );
        return RUN_FAILED;
    }
    let stop = Arc::new(AtomicBool::new(false));
    if app.is_null() || RUN.set(Arc::clone(&stop)).is_err() {
        eprintln!("fl_main needs an application, and can be called once in a process");
        return RUN_FAILED;
    }
    if STOPPED.load(Ordering::SeqCst) {
        stop.store(true, Ordering::SeqCst);
    }
    // SAFETY: the caller's promises.
    let (app, arguments) = unsafe { (whole(app, size), words(argc, argv)) };
    // SAFETY: the caller answers for the functions, which are no data of `app` and stay.
    let factory = |info: &fastlane::LaneInfo<'_>| unsafe { application(&app, info) };
    fastlane::abort_on_panic();
    c_int::from(fastlane::main_from(arguments, &stop, factory))
}

/// Ends the run as SIGINT does: the lanes send what waits in their ports and fl_main returns. It
/// may be called from any thread and signal handler at any time. Called before fl_main, it makes
/// fl_main end right after its start.
#[unsafe(no_mangle)]
pub extern "C" fn fl_stop() {
    STOPPED.store(true, Ordering::SeqCst);
    if let Some(stop) = RUN.get() {
        stop.store(true, Ordering::SeqCst);
    }
}

/// Copies the application into the structure of this library version: members that the program does
/// not have are zero.
///
/// # Safety
/// `app` has `size` bytes, at most as many as [`App`].
unsafe fn whole(app: *const App, size: usize) -> App {
    let mut whole = MaybeUninit::<App>::zeroed();
    // SAFETY: both have `size` bytes; zeros are an application without functions, and what a
    // compiler of C has put into the members is valid for them.
    unsafe {
        std::ptr::copy_nonoverlapping(app.cast::<u8>(), whole.as_mut_ptr().cast(), size);
        whole.assume_init()
    }
}

/// Copies the command line.
///
/// # Safety
/// `argv` holds `argc` strings.
unsafe fn words(argc: c_int, argv: *const *mut c_char) -> Vec<OsString> {
    let count = if argv.is_null() { 0 } else { usize::try_from(argc).unwrap_or(0) };
    let word = |place| {
        // SAFETY: the caller's promise.
        let word = unsafe { CStr::from_ptr(*argv.add(place)) };
        OsStr::from_bytes(word.to_bytes()).to_owned()
    };
    (0..count).map(word).collect()
}
