//! Compilation of FARs: destination, outer header, redirection.

use std::net::{IpAddr, SocketAddr};

use zerocopy::IntoBytes;

use super::CompileError;
use crate::rules::layout::session_rules::{
    ForwardingAction, OuterPath, RedirectEntry, forwarding, redirect,
};
use crate::session::{FarId, Forwarding, Qer, Redirect, Removal};

/// Maximum length of a URL in octets.
pub(super) const MAX_URL: usize = 512;

/// Returns the path of a FAR's forwarding parameters.
pub(super) fn path(far: FarId, forwarding: &Forwarding) -> Result<OuterPath, CompileError> {
    let mut path = OuterPath { forwarding: ForwardingAction::none(), peer6: [0; 16] };
    path.forwarding.instance = forwarding.instance.unwrap_or(forwarding::NO_INSTANCE);
    path.forwarding.what = forwarding.destination as u8;
    if let Some((value, mask)) = forwarding.marking {
        (path.forwarding.marking, path.forwarding.mask) = (value, mask);
    }
    let Some(outer) = &forwarding.outer else { return Ok(path) };
    let error = CompileError::OuterHeader { far };
    match (outer.teid, outer.port) {
        (Some(teid), _) => {
            path.forwarding.teid = teid;
            path.forwarding.what |= forwarding::GTPU;
        }
        (None, Some(port)) => {
            path.forwarding.teid = port.into();
            path.forwarding.what |= forwarding::UDP;
        }
        (None, None) => return Err(error),
    }
    match (outer.v4, outer.v6) {
        (Some(v4), _) => path.forwarding.peer = v4.octets(),
        (None, Some(v6)) => {
            path.peer6 = v6.octets();
            path.forwarding.what |= forwarding::V6;
        }
        (None, None) => return Err(error),
    }
    Ok(path)
}

/// Adds the outer header removal of a PDR.
pub(super) fn removing(mut path: OuterPath, removal: Option<Removal>) -> OuterPath {
    if let Some(removal) = removal {
        path.forwarding.what |= forwarding::REMOVE;
        path.forwarding.what |= if removal.extension { forwarding::REMOVE_EXTENSION } else { 0 };
    }
    path
}

/// Adds the marks of QERs; the first one that sets a mark wins.
pub(super) fn marked(mut path: OuterPath, qers: &[&Qer], qfi: Option<u8>) -> OuterPath {
    let quality = &mut path.forwarding.quality;
    if let Some(qfi) = qfi.or_else(|| qers.iter().find_map(|qer| qer.qfi)) {
        *quality |= u16::from(qfi & 63) + 1;
    }
    if qers.iter().any(|qer| qer.reflective) {
        *quality |= forwarding::REFLECTIVE;
    }
    if let Some(policy) = qers.iter().find_map(|qer| qer.paging_policy) {
        *quality |= forwarding::PAGING | u16::from(policy & 7) << forwarding::PAGING_SHIFT;
    }
    path
}

/// Encodes a redirection; `None` for one that is not supported. It occupies the space of an outer
/// header. With an outer header (`is_tunnelled`) packets cannot be forwarded to an address, so an
/// address becomes a URL. Two addresses become two entries, selected by the packet's family.
pub(super) fn redirection(
    far: FarId,
    redirect: &Redirect,
    is_tunnelled: bool,
) -> Result<Option<Vec<u8>>, CompileError> {
    let entry = |kind, bytes: &[u8]| {
        let length = u16::try_from(bytes.len()).map_err(|_| CompileError::Redirect { far })?;
        Ok([RedirectEntry { kind, reserved: 0, length }.as_bytes(), bytes].concat())
    };
    let address = |of, to: IpAddr| match to {
        _ if is_tunnelled => {
            let url = format!("http://{}/", SocketAddr::from((to, 80)));
            entry(redirect::URL | of, url.as_bytes())
        }
        IpAddr::V4(address) => entry(redirect::ADDRESS | of, &address.octets()),
        IpAddr::V6(address) => entry(redirect::ADDRESS | of, &address.octets()),
    };
    let bytes = match redirect {
        Redirect::Address(to) => address(0, *to)?,
        Redirect::Both(v4, v6) => {
            [address(redirect::IPV4, (*v4).into())?, address(0, (*v6).into())?].concat()
        }
        Redirect::Url(url) if url.len() > MAX_URL => return Err(CompileError::Redirect { far }),
        Redirect::Url(url) => entry(redirect::URL, url.as_bytes())?,
        Redirect::Sip(_) => return Ok(None),
    };
    Ok(Some(bytes))
}
