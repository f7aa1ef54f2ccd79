//! What an application in C can ask of its lane.
#![allow(unsafe_code, reason = "called from C")]

use std::ffi::c_void;
use std::ptr;

use fastlane::{HoldKey, PortId, Turn};

use crate::Packet;

/// A message from the slow path.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Message {
    /// What it says: valid until the next fl_receive, and no longer than the turn.
    pub body: *const c_void,
    /// Bytes of it.
    pub length: usize,
    /// What it is.
    pub kind: u32,
}

/// The time of this turn, in nanoseconds of CLOCK_MONOTONIC. The clock is read once a turn, when it
/// is first asked for: all packets of the turn get the same time.
///
/// # Safety
/// `turn` is the one that `process` or `turn` was given, which has not returned yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_now(turn: *const Turn) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { &*turn }.now()
}

/// The number of this turn of the lane; the first is 1.
///
/// # Safety
/// As `fl_now`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_turn_number(turn: *const Turn) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { &*turn }.number()
}

/// A new, empty packet, already labelled fl_forward(port): give it content by fl_append. It leaves
/// in this turn, and is the application's until the function that asked for it returns. NULL, which
/// is counted, when the lane has no frame or the turn has made its share (a burst size) already.
///
/// # Safety
/// As `fl_now`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_new_packet(turn: *mut Turn, port: u16) -> *mut Packet {
    // SAFETY: the caller's promise.
    let made = unsafe { &mut *turn }.new_packet(PortId(port));
    made.map_or(ptr::null_mut(), |packet| ptr::from_mut(packet).cast())
}

/// A copy of a packet, with the label FL_DROP until it gets another; else as fl_new_packet, NULL
/// also when it does not fit a frame.
///
/// # Safety
/// As `fl_now`; `packet` is one that the application has in this turn.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_copy(turn: *mut Turn, packet: *const Packet) -> *mut Packet {
    // SAFETY: the caller's promise, and one layout. A copy of the 32 bytes, which owns nothing, so
    // that a packet made in this turn, which lies in it, may be copied too.
    let packet = unsafe { ptr::read(packet.cast::<fastlane::Packet>()) };
    // SAFETY: the caller's promise.
    let made = unsafe { &mut *turn }.copy(&packet);
    made.map_or(ptr::null_mut(), |packet| ptr::from_mut(packet).cast())
}

/// How many packets this turn can still make.
///
/// # Safety
/// As `fl_now`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_new_packets_left(turn: *const Turn) -> usize {
    // SAFETY: the caller's promise.
    unsafe { &*turn }.new_packets_left()
}

/// Starts a timer of this lane: `key` comes out of fl_expired in the first turn that begins `after`
/// nanoseconds from now or later, never in this one. False, which is counted, when 65,536 are
/// pending.
///
/// # Safety
/// As `fl_now`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_start_timer(turn: *mut Turn, after: u64, key: u64) -> bool {
    // SAFETY: the caller's promise.
    unsafe { &mut *turn }.start_timer(after, key)
}

/// Puts the key of the next timer that has expired into `*key`; false, and no change, when there is
/// none. For the application's `turn`.
///
/// # Safety
/// As `fl_now`; `key` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_expired(turn: *mut Turn, key: *mut u64) -> bool {
    // SAFETY: the caller's promise.
    match unsafe { &mut *turn }.expired() {
        Some(expired) => {
            // SAFETY: the caller's promise.
            unsafe { key.write(expired) };
            true
        }
        None => false,
    }
}

/// Shows all packets that are held under a key at this moment to `process` again, as they were
/// received, with what the application has written into them; returns how many. That happens in
/// this turn, when the function that calls this has returned, and before the packets that it has
/// just labelled go anywhere: so they stay ahead of all of that key that came after them. What is
/// held again goes to the end.
///
/// # Safety
/// As `fl_now`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_resume(turn: *mut Turn, key: u32) -> usize {
    // SAFETY: the caller's promise.
    HoldKey::new(key).map_or(0, |key| unsafe { &mut *turn }.resume(key))
}

/// Drops all packets that are held under a key; returns how many, which are counted.
///
/// # Safety
/// As `fl_now`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_discard(turn: *mut Turn, key: u32) -> usize {
    // SAFETY: the caller's promise.
    HoldKey::new(key).map_or(0, |key| unsafe { &mut *turn }.discard(key))
}

/// How many packets are held under a key. Those that were labelled since the application was called
/// are not among them yet.
///
/// # Safety
/// As `fl_now`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_held(turn: *const Turn, key: u32) -> usize {
    // SAFETY: the caller's promise.
    HoldKey::new(key).map_or(0, |key| unsafe { &*turn }.held(key))
}

/// Sends a message of `length` bytes to the slow path; it leaves with this turn. The bytes are
/// copied. False, which is counted, when there is no room for it, when it is longer than 65,536
/// bytes, or when nobody listens at all.
///
/// # Safety
/// As `fl_now`; `body` has `length` bytes, or is NULL when there are none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_send(
    turn: *mut Turn,
    kind: u32,
    body: *const c_void,
    length: usize,
) -> bool {
    // SAFETY: the caller's promises.
    unsafe { (&mut *turn).send(kind, bytes(body, length)) }
}

/// Shows a packet, as it is now, to the slow path, with where and when it came and the reason that
/// the application gives: a message of the kind FL_PUNT, else as fl_send. What the lane does with
/// the packet is for its label to say.
///
/// # Safety
/// As `fl_copy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_punt(turn: *mut Turn, packet: *const Packet, reason: u32) -> bool {
    // SAFETY: as in `fl_copy`.
    let packet = unsafe { ptr::read(packet.cast::<fastlane::Packet>()) };
    // SAFETY: the caller's promise.
    unsafe { &mut *turn }.punt(&packet, reason)
}

/// Puts the next message from the slow path into `*message`; false, and no change, when there is
/// none. Best called in the application's `turn`, until it is false. A turn has at most 256: what
/// is left comes in the next one, which follows at once.
///
/// # Safety
/// As `fl_now`; `message` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_receive(turn: *mut Turn, message: *mut Message) -> bool {
    // SAFETY: the caller's promise.
    let Some(received) = unsafe { &mut *turn }.receive() else { return false };
    let fastlane::Message { kind, body } = received;
    // SAFETY: the caller's promise.
    unsafe { message.write(Message { body: body.as_ptr().cast(), length: body.len(), kind }) };
    true
}

/// # Safety
/// `bytes` has `length` bytes, or is NULL when there are none, for as long as the slice is used.
unsafe fn bytes<'a>(bytes: *const c_void, length: usize) -> &'a [u8] {
    if bytes.is_null() || length == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(bytes.cast(), length) }
}

/// Keeps the lane from sleeping after this turn: the application has work of its own to do soon.
///
/// # Safety
/// As `fl_now`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_keep_awake(turn: *mut Turn) {
    // SAFETY: the caller's promise.
    unsafe { &mut *turn }.keep_awake();
}

/// Ends the whole application: after this turn all lanes send what they hold, and stop.
///
/// # Safety
/// As `fl_now`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_end(turn: *mut Turn) {
    // SAFETY: the caller's promise.
    unsafe { &mut *turn }.end();
}

/// Completes a checksum of the packet that is only partial (FL_PARTIAL: Linux leaves that to a
/// device), before the application reads it or changes what it covers. True also when there was
/// nothing to do; false when the place of the checksum is outside of the packet: drop it.
///
/// # Safety
/// `packet` is one that the application has in this turn.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_complete_checksum(packet: *mut Packet) -> bool {
    // SAFETY: the caller's promise, and one layout.
    unsafe { &mut *packet.cast::<fastlane::Packet>() }.complete_checksum()
}
