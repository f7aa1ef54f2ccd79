//! Commands `upf drain` and `upf undrain`.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::client::{ClientError, fetch_by, pretty};
use super::view::{DrainStage, DrainView};

/// Interval between two looks at the state.
const STEP: Duration = Duration::from_millis(500);

/// Starts a drain. With `wait`, control plane functions are told this period, and the call returns
/// when all associations are released. Returns the reply as text or JSON.
///
/// # Errors
/// There is no reply, or associations are left at the end.
pub fn drain(
    address: SocketAddr,
    wait: Option<Duration>,
    is_json: bool,
) -> Result<String, ClientError> {
    let period = wait.map(|wait| format!("?period_s={}", wait.as_secs())).unwrap_or_default();
    let mut view: DrainView = fetch_by("PUT", address, &format!("/drain{period}"))?;
    let Some(wait) = wait else { return Ok(shown(&view, is_json)) };
    let end = Instant::now() + wait;
    while !view.is_drained {
        let left = end.saturating_duration_since(Instant::now());
        if view.state == DrainStage::Serving {
            return Err(ClientError::Refused("the drain was ended by another command".to_owned()));
        }
        if left.is_zero() {
            return Err(ClientError::Refused(format!(
                "{} sessions of {} associations are left after {} s; they are served until the \
                 process ends",
                view.sessions,
                view.associations,
                wait.as_secs()
            )));
        }
        std::thread::sleep(left.min(STEP));
        view = fetch_by("GET", address, "/drain")?;
    }
    Ok(shown(&view, is_json))
}

/// Ends a drain. Returns the reply as text or JSON.
///
/// # Errors
/// There is no reply, or the process is ending.
pub fn undrain(address: SocketAddr, is_json: bool) -> Result<String, ClientError> {
    fetch_by("DELETE", address, "/drain").map(|view| shown(&view, is_json))
}

fn shown(view: &DrainView, is_json: bool) -> String {
    if is_json {
        return pretty(view);
    }
    let state = match view.state {
        DrainStage::Serving => "serving",
        DrainStage::Draining if view.is_drained => "drained",
        DrainStage::Draining => "draining",
        DrainStage::Exiting => "exiting",
    };
    let left = view.period_left_s.map_or(String::new(), |left| format!(", {left} s left"));
    format!("{state}: {} sessions of {} associations{left}\n", view.sessions, view.associations)
}
