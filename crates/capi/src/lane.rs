//! Lane properties for an application in C before its lane starts.
#![allow(unsafe_code, reason = "called from C")]

use std::ffi::{CStr, CString, c_char, c_int};

use fastlane::{Error, LaneInfo, PortId};

/// The lane for which `start` creates a state. Valid until `start` returns, as are the texts that
/// it returns.
#[derive(Debug)]
pub struct Lane<'a> {
    info: &'a LaneInfo<'a>,
    refusal: Option<Error>,
    texts: Vec<CString>,
}

impl<'a> Lane<'a> {
    pub(crate) fn new(info: &'a LaneInfo<'a>) -> Self {
        Self { info, refusal: None, texts: Vec::new() }
    }

    /// Returns the reason why the application refuses, or a general one.
    pub(crate) fn refusal(self) -> Error {
        let index = self.info.index();
        self.refusal.unwrap_or_else(|| {
            Error::application(format!(
                "the application refuses to start lane {index} without a reason; a function \
                 `start` that returns other than 0 gives one by fl_refuse"
            ))
        })
    }

    fn text(&mut self, text: String) -> *const c_char {
        let Ok(text) = CString::new(text) else { return std::ptr::null() };
        self.texts.push(text);
        self.texts.last().map_or(std::ptr::null(), |text| text.as_ptr())
    }
}

/// Returns the lane's number among those with the application, from 0.
///
/// # Safety
/// `lane` is the one that `start` was given, which has not returned yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_lane_index(lane: *const Lane<'_>) -> usize {
    // SAFETY: the caller's promise.
    unsafe { &*lane }.info.index()
}

/// Returns the number of lanes with the application: all, or the workers in master-worker.
///
/// # Safety
/// As `fl_lane_index`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_lane_count(lane: *const Lane<'_>) -> usize {
    // SAFETY: the caller's promise.
    unsafe { &*lane }.info.count()
}

/// Returns the number of the port of this name, from 0 to 65535, or -1 if it does not exist. If
/// `start` then refuses without a reason of its own, the reason is the missing port.
///
/// # Safety
/// As `fl_lane_index`; `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_port(lane: *mut Lane<'_>, name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    let (lane, name) = unsafe { (&mut *lane, CStr::from_ptr(name)) };
    match lane.info.require_port(&name.to_string_lossy()) {
        Ok(PortId(number)) => number.into(),
        Err(error) => {
            lane.refusal = Some(error);
            -1
        }
    }
}

/// Returns the number of ports. They are numbered from 0 in the order of their names.
///
/// # Safety
/// As `fl_lane_index`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_port_count(lane: *const Lane<'_>) -> usize {
    // SAFETY: the caller's promise.
    unsafe { &*lane }.info.port_names().count()
}

/// Returns the name of a port, valid until `start` returns, or NULL if it does not exist.
///
/// # Safety
/// As `fl_lane_index`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_port_name(lane: *mut Lane<'_>, port: u16) -> *const c_char {
    // SAFETY: the caller's promise.
    let lane = unsafe { &mut *lane };
    let name = lane.info.port_names().nth(port.into()).map(str::to_owned);
    name.map_or(std::ptr::null(), |name| lane.text(name))
}

/// Returns the object `app` of the configuration as JSON text in UTF-8 on one line, valid until
/// `start` returns; `{}` if it is absent. NULL if it is not an object, which then is the reason if
/// `start` refuses.
///
/// # Safety
/// As `fl_lane_index`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_settings(lane: *mut Lane<'_>) -> *const c_char {
    // SAFETY: the caller's promise.
    let lane = unsafe { &mut *lane };
    match lane.info.settings::<serde_json::Map<String, serde_json::Value>>() {
        Ok(settings) => lane.text(serde_json::Value::Object(settings).to_string()),
        Err(error) => {
            lane.refusal = Some(error);
            std::ptr::null()
        }
    }
}

/// Sets the reason why `start` refuses and returns -1, for `start` to return. `key` is the wrong
/// key of the configuration, as `app.limit`: the exit status is 3. With NULL the fault is
/// elsewhere: the exit status is 4. Both texts are copied.
///
/// # Safety
/// As `fl_lane_index`; `key` is NULL or a string, `reason` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_refuse(
    lane: *mut Lane<'_>,
    key: *const c_char,
    reason: *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    let (lane, reason) = unsafe { (&mut *lane, CStr::from_ptr(reason)) };
    let what = reason.to_string_lossy().into_owned();
    lane.refusal = Some(if key.is_null() {
        Error::Application(what)
    } else {
        // SAFETY: the caller's promise.
        let path = unsafe { CStr::from_ptr(key) }.to_string_lossy().into_owned();
        Error::Value { path, what, meant: None }
    });
    -1
}
