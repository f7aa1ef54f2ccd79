//! Redirections in rule blocks.

use std::net::IpAddr;

use zerocopy::FromBytes;

use super::Redirect;
use crate::rules::layout::session_rules::{Block, OuterPath, RedirectEntry, forwarding, redirect};

/// Returns the redirection of a path, if it has one, for a family (4 or 6).
#[inline]
pub(super) fn of<'t>(block: &'t Block, path: &OuterPath, family: u8) -> Option<Redirect<'t>> {
    if path.forwarding.what & forwarding::REDIRECT == 0 { None } else { read(block, path, family) }
}

#[cold]
fn read<'t>(block: &'t Block, path: &OuterPath, family: u8) -> Option<Redirect<'t>> {
    let place = u16::from_ne_bytes([path.peer6[0], path.peer6[1]]);
    let bytes = block.text().get(usize::from(place)..)?;
    let (mut entry, mut rest) = RedirectEntry::read_from_prefix(bytes).ok()?;
    if entry.kind & redirect::IPV4 != 0 && family == 6 {
        let other = rest.get(usize::from(entry.length)..)?;
        (entry, rest) = RedirectEntry::read_from_prefix(other).ok()?;
    }
    let RedirectEntry { kind, length, .. } = entry;
    let text = rest.get(..usize::from(length))?;
    let address = || match length {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(text).ok()?)),
        _ => Some(IpAddr::from(<[u8; 16]>::try_from(text).ok()?)),
    };
    match kind & !redirect::IPV4 {
        redirect::ADDRESS => Some(Redirect::Address(address()?)),
        _ => Some(Redirect::Url(text)),
    }
}
