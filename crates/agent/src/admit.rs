//! Admission of clients: checks who connects, within limits, and serves each in a thread.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

use fastlane::kernel::peer::Peer;

use crate::client::{Client, refuse};
use crate::config::Pool;
use crate::grant::ActiveGrant;
use crate::handshake;
use crate::map_devices::MapDevices;
use crate::owner::Owner;
use crate::shared::{Shared, Slot};

/// Stack of the thread of a client, in bytes.
const STACK: usize = 256 << 10;

/// Serves a client that connected through the socket of the configuration, if its user may use a
/// pool.
pub(crate) fn by_user(shared: &Arc<Shared>, pools: &[Arc<Pool>], socket: OwnedFd) {
    let Ok(peer) = Peer::of(&socket) else { return };
    let (process, user, group) = (peer.process, peer.user, peer.group);
    let pools: Vec<_> = pools.iter().filter(|pool| pool.admits(user, group)).cloned().collect();
    if pools.is_empty() {
        let reason = format!("user {user} (group {group}) may use no pool of the agent");
        tracing::debug!("process {process}: {reason}");
        return refuse(&socket, &reason);
    }
    let owner = Owner::User(user);
    let Some(slot) = take_slot(shared, &owner, &socket) else { return };
    let client = Client::new(Arc::clone(shared), peer, owner, pools);
    spawn(process, move || {
        client.serve(&socket);
        drop(slot);
    });
}

/// Serves a client that connected through the socket of a grant.
pub(crate) fn by_grant(shared: &Arc<Shared>, grant: &Arc<ActiveGrant>, socket: OwnedFd) {
    let serving = (Arc::clone(shared), Arc::clone(grant));
    enter(shared, grant, socket, move |peer, socket| {
        let (shared, grant) = serving;
        let pools = vec![Arc::clone(&grant.pool)];
        Client::new(shared, peer, grant.owner.clone(), pools).serve(socket);
    });
}

/// Serves a client that connected through the socket of the handshake of a grant.
pub(crate) fn by_handshake(
    shared: &Arc<Shared>,
    grant: &Arc<ActiveGrant>,
    devices: &Arc<MapDevices>,
    socket: OwnedFd,
) {
    let devices = Arc::clone(devices);
    enter(shared, grant, socket, move |_, socket| handshake::serve(socket, &devices));
}

/// Runs `serve` in a thread for a connection of a grant, if the process is admitted.
fn enter(
    shared: &Arc<Shared>,
    grant: &Arc<ActiveGrant>,
    socket: OwnedFd,
    serve: impl FnOnce(Peer, &OwnedFd) + Send + 'static,
) {
    let Ok(peer) = Peer::of(&socket) else { return };
    let process = peer.process;
    let Some(slot) = take_slot(shared, &grant.owner, &socket) else { return };
    let socket = Arc::new(socket);
    let Some(connection) = grant.enter(&socket) else { return };
    let grant = Arc::clone(grant);
    spawn(process, move || {
        let admitted = grant.admission.as_ref().map_or(Ok(()), |it| it.admit(&peer));
        match admitted {
            Ok(()) => serve(peer, &socket),
            Err(reason) => {
                tracing::warn!("process {process} may not use {}: {reason}", grant.owner);
                refuse(&socket, &reason);
            }
        }
        drop((connection, slot));
    });
}

fn take_slot(shared: &Arc<Shared>, owner: &Owner, socket: &OwnedFd) -> Option<Slot> {
    let slot = Slot::take(shared, owner);
    if slot.is_none() {
        let reason = format!("{owner} has too many connections to the agent");
        tracing::debug!("{reason}");
        refuse(socket, &reason);
    }
    slot
}

fn spawn(process: u32, serve: impl FnOnce() + Send + 'static) {
    let thread = thread::Builder::new().name(format!("client-{process}")).stack_size(STACK);
    if let Err(error) = thread.spawn(serve) {
        tracing::warn!("no thread for process {process}: {error}");
    }
}
