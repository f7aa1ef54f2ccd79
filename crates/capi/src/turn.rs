//! Lane services for an application in C during a turn.
#![allow(unsafe_code, reason = "called from C")]

use std::ffi::c_void;
use std::ptr;

use fastlane::{HoldKey, PortId, Turn};

use crate::Packet;

/// A message from the slow path.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Message {
    /// Contents: valid until the next fl_receive, and no longer than the turn.
    pub body: *const c_void,
    /// Length of the contents in bytes.
    pub length: usize,
    /// Kind of the message.
    pub kind: u32,
}

/// Returns the time of this turn in nanoseconds of CLOCK_MONOTONIC. The clock is read once per
/// turn, at the first call: all packets of the turn get the same time.
///
/// # Safety
/// `turn` is the one that `process` or `turn` was given, which has not returned yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_now(turn: *const Turn) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { &*turn }.now()
}

/// Returns the number of this turn of the lane; the first is 1.
///
/// # Safety
/// As `fl_now`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_turn_number(turn: *const Turn) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { &*turn }.number()
}

/// Returns a new, empty packet with the verdict fl_forward(port), to be filled by fl_append. It
/// leaves in this turn and may be used until the calling function returns. Returns NULL, which is
/// counted, if the lane has no frame or the turn has already created a burst of packets.
///
/// # Safety
/// As `fl_now`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_new_packet(turn: *mut Turn, port: u16) -> *mut Packet {
    // SAFETY: the caller's promise.
    let made = unsafe { &mut *turn }.new_packet(PortId(port));
    made.map_or(ptr::null_mut(), |packet| ptr::from_mut(packet).cast())
}

/// Returns a copy of a packet with the verdict FL_DROP until another is set. Otherwise like
/// fl_new_packet; also returns NULL if the packet does not fit a frame.
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

/// Returns the number of packets that this turn can still create.
///
/// # Safety
/// As `fl_now`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_new_packets_left(turn: *const Turn) -> usize {
    // SAFETY: the caller's promise.
    unsafe { &*turn }.new_packets_left()
}

/// Starts a timer of this lane: fl_expired returns `key` in the first turn that begins at least
/// `after` nanoseconds from now, never in this turn. Returns false, which is counted, if 65,536
/// timers are pending.
///
/// # Safety
/// As `fl_now`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_start_timer(turn: *mut Turn, after: u64, key: u64) -> bool {
    // SAFETY: the caller's promise.
    unsafe { &mut *turn }.start_timer(after, key)
}

/// Stores the key of the next expired timer in `*key`. Returns false without a change if there is
/// none. Call it in the application's `turn`.
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

/// Passes all packets held under a key to `process` again, with the bytes as the application left
/// them; returns their number. This happens in this turn after the calling function has returned,
/// before the packets that it has just labelled are sent: so they stay ahead of later packets of
/// the key. Packets that are held again go to the end.
///
/// # Safety
/// As `fl_now`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_resume(turn: *mut Turn, key: u32) -> usize {
    // SAFETY: the caller's promise.
    HoldKey::new(key).map_or(0, |key| unsafe { &mut *turn }.resume(key))
}

/// Drops and counts all packets held under a key; returns their number.
///
/// # Safety
/// As `fl_now`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_discard(turn: *mut Turn, key: u32) -> usize {
    // SAFETY: the caller's promise.
    HoldKey::new(key).map_or(0, |key| unsafe { &mut *turn }.discard(key))
}

/// Returns the number of packets held under a key. Packets labelled since the application was
/// called are not included yet.
///
/// # Safety
/// As `fl_now`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_held(turn: *const Turn, key: u32) -> usize {
    // SAFETY: the caller's promise.
    HoldKey::new(key).map_or(0, |key| unsafe { &*turn }.held(key))
}

/// Sends a message of `length` bytes to the slow path at the end of this turn. The bytes are
/// copied. Returns false, which is counted, if the ring is full, the message is longer than 65,536
/// bytes or half of the ring, or the configuration has no `messages`.
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

/// Sends a packet in its current form to the slow path, with its origin, the time and the
/// application's reason: a message of the kind FL_PUNT, otherwise like fl_send. A packet that is
/// too long for a message is cut off. The verdict of the packet is separate.
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

/// Stores the next message from the slow path in `*message`. Returns false without a change if
/// there is none. Call it in the application's `turn` until it returns false. A turn receives at
/// most 256: the rest follows in the next turn, which begins at once.
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

/// Returns the bytes as a slice.
///
/// # Safety
/// `bytes` has `length` bytes, or is NULL when there are none, for as long as the slice is used.
unsafe fn bytes<'a>(bytes: *const c_void, length: usize) -> &'a [u8] {
    if bytes.is_null() || length == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(bytes.cast(), length) }
}

/// Keeps the lane awake after this turn: the application has work to do soon.
///
/// # Safety
/// As `fl_now`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_keep_awake(turn: *mut Turn) {
    // SAFETY: the caller's promise.
    unsafe { &mut *turn }.keep_awake();
}

/// Ends the application: after this turn all lanes send what waits in their ports, drop packets
/// that are held, and stop.
///
/// # Safety
/// As `fl_now`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_end(turn: *mut Turn) {
    // SAFETY: the caller's promise.
    unsafe { &mut *turn }.end();
}

/// Completes a partial checksum of the packet (FL_PARTIAL: Linux leaves it to a device). Call it
/// before reading the checksum or changing bytes that it covers. Returns true also if there was
/// nothing to do, and false if the checksum is outside of the packet: drop it then.
///
/// # Safety
/// `packet` is one that the application has in this turn.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_complete_checksum(packet: *mut Packet) -> bool {
    // SAFETY: the caller's promise, and one layout.
    unsafe { &mut *packet.cast::<fastlane::Packet>() }.complete_checksum()
}
