//! The file descriptor store of the service manager (systemd), as a holder of a handover.
//!
//! Each descriptor has a name of its own: `fastlane-0` and so on in the order of the manifest. The
//! manifest is in a sealed memfd, `fastlane-description`. It is stored last and removed first, so a
//! store without a manifest is incomplete.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use fastlane_kernel::inherited;
use rustix::fs::{MemfdFlags, SealFlags};

use super::{Handover, Manifest};
use crate::service_manager::ServiceManager;

/// Prefix of all names in the store.
const PREFIX: &str = "fastlane-";
/// Name of the memfd that contains the manifest.
const MANIFEST: &str = "fastlane-description";
/// Maximum length of a manifest in bytes.
const MAX_MANIFEST: u64 = 1 << 20;

/// Contents of the store when this process started. The service manager still has them.
#[derive(Debug, Default)]
pub(crate) struct FdStore {
    names: Vec<String>,
    /// The manifest, if it could be read.
    pub(super) manifest: Option<Manifest>,
}

impl FdStore {
    /// Takes the descriptors that the service manager passed to this process. A second call finds
    /// none.
    pub(super) fn take() -> (Self, Result<Vec<OwnedFd>, String>) {
        let taken = inherited::take(|name| name.starts_with(PREFIX));
        let mut store =
            Self { names: taken.iter().map(|it| it.0.clone()).collect(), ..Self::default() };
        let descriptors = store.read(taken);
        (store, descriptors)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Reads the manifest and sorts the descriptors into its order.
    fn read(&mut self, taken: Vec<(String, OwnedFd)>) -> Result<Vec<OwnedFd>, String> {
        let (mut texts, parts): (Vec<_>, Vec<_>) =
            taken.into_iter().partition(|(name, _)| name == MANIFEST);
        let (Some((_, text)), None) = (texts.pop(), texts.pop()) else {
            return Err("the service manager passed no manifest, or two".to_owned());
        };
        let manifest = read(text)?;
        let mut slots: Vec<Option<OwnedFd>> = Vec::new();
        slots.resize_with(manifest.descriptors.min(parts.len()), || None);
        for (name, descriptor) in parts {
            let index = name.strip_prefix(PREFIX).and_then(|number| number.parse::<usize>().ok());
            let slot = index.and_then(|index| slots.get_mut(index)).filter(|it| it.is_none());
            let slot = slot.ok_or_else(|| {
                format!("the service manager passed more than the manifest names: {name}")
            })?;
            *slot = Some(descriptor);
        }
        let descriptors: Option<Vec<OwnedFd>> = slots.into_iter().collect();
        let complete = descriptors.filter(|complete| complete.len() == manifest.descriptors);
        let complete = complete.ok_or("the service manager passed less than the manifest names")?;
        self.manifest = Some(manifest);
        Ok(complete)
    }

    /// Makes the service manager close everything in the store.
    pub(super) fn remove(&mut self, service_manager: &ServiceManager) {
        self.manifest = None;
        if self.names.is_empty() {
            return;
        }
        self.names.sort_unstable_by_key(|name| name != MANIFEST);
        let names = std::mem::take(&mut self.names);
        let removed = names.iter().try_for_each(|name| service_manager.remove(name));
        if let Err(error) = removed.and_then(|()| service_manager.wait()) {
            tracing::warn!("the service manager did not close unused descriptors: {error}");
        }
    }

    /// Makes the service manager close everything, because the start has failed. Otherwise the
    /// sockets would go on claiming frames that nobody receives.
    pub(super) fn give_up(&mut self, service_manager: Option<&ServiceManager>) {
        let Some(service_manager) = service_manager.filter(|_| !self.names.is_empty()) else {
            return;
        };
        tracing::warn!(
            "the start fails, so what the service manager keeps of the previous process is closed; \
             its frames go to Linux"
        );
        self.remove(service_manager);
    }

    /// Replaces the contents of the store by `handover`. If the same resources are stored already
    /// they stay, because the service manager ignores a descriptor that it has under another name.
    /// Returns true if the service manager has them, as far as it says: before systemd 254 it does
    /// not tell whether it has a store.
    pub(super) fn replace(
        &mut self,
        service_manager: &ServiceManager,
        handover: &Handover,
    ) -> bool {
        if handover.is_inherited
            && self.manifest.as_ref().is_some_and(|it| it.equals(&handover.offer().manifest))
        {
            return true;
        }
        self.remove(service_manager);
        let needed = handover.offer().descriptors.len() + 1;
        if needed == 1 || service_manager.limit == Some(0) {
            return false;
        }
        if let Some(limit) = service_manager.limit.filter(|limit| *limit < needed) {
            tracing::warn!(
                "the service manager stores at most {limit} descriptors and {needed} are needed, \
                 so nothing is stored; write `FileDescriptorStoreMax={needed}` in the unit"
            );
            return false;
        }
        let stored = store(service_manager, handover);
        match &stored {
            Ok(()) => tracing::info!("the service manager stores {needed} descriptors"),
            Err(error) => {
                tracing::warn!("the service manager did not store the handover: {error}");
            }
        }
        stored.is_ok()
    }
}

/// Replaces the contents of the store, which are this number of descriptors and their manifest, by
/// what is left of the handover.
pub(super) fn store_again(
    service_manager: &ServiceManager,
    descriptors: usize,
    handover: &Handover,
) {
    let names = (0..descriptors).map(|index| format!("{PREFIX}{index}"));
    let names = names.chain([MANIFEST.to_owned()]).collect();
    FdStore { names, manifest: None }.remove(service_manager);
    if handover.offer().descriptors.is_empty() {
        return;
    }
    if let Err(error) = store(service_manager, handover) {
        tracing::warn!("the service manager did not store the rest of the handover: {error}");
    }
}

fn store(service_manager: &ServiceManager, handover: &Handover) -> std::io::Result<()> {
    let offer = handover.offer();
    for (index, descriptor) in offer.descriptors.iter().enumerate() {
        service_manager.store(&format!("{PREFIX}{index}"), descriptor.as_fd())?;
    }
    service_manager.store(MANIFEST, write(&offer.manifest)?.as_fd())
}

/// Writes the manifest to a memfd that is sealed against changes.
fn write(manifest: &Manifest) -> std::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(rustix::fs::memfd_create(MANIFEST, flags)?);
    file.write_all(&serde_json::to_vec(manifest)?)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file.into())
}

fn read(memory: OwnedFd) -> Result<Manifest, String> {
    let wrong = |error: std::io::Error| format!("the manifest cannot be read ({error})");
    // Reopened because the descriptors share one file offset, which another process may have moved.
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&memory));
    let file = File::open(path).map_err(wrong)?;
    let mut text = Vec::new();
    file.take(MAX_MANIFEST).read_to_end(&mut text).map_err(wrong)?;
    serde_json::from_slice(&text).map_err(|error| wrong(error.into()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;
    use std::sync::Arc;

    use serde_json::Value;

    use super::super::{Offer, Takeover};
    use super::*;

    fn manifest(descriptors: usize) -> Manifest {
        let (release, program) = ("1".to_owned(), "test".to_owned());
        let configuration = Value::Null;
        let (tables, ports, messages) = Default::default();
        Manifest { release, program, configuration, tables, ports, messages, descriptors }
    }

    fn file() -> OwnedFd {
        rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap()
    }

    /// Reads a store with these names, whose manifest names this number of descriptors.
    fn read_names(names: &[&str], descriptors: usize) -> Result<Vec<OwnedFd>, String> {
        let taken = names.iter().map(|name| {
            let is_manifest = *name == MANIFEST;
            let memory = || write(&manifest(descriptors)).unwrap();
            ((*name).to_owned(), if is_manifest { memory() } else { file() })
        });
        FdStore::default().read(taken.collect())
    }

    #[test]
    fn only_a_complete_store_is_used_in_any_order() {
        let of = |names: &[&str], count| read_names(names, count).map(|whole| whole.len());
        let (zero, one, all) = ("fastlane-0", "fastlane-1", MANIFEST);
        assert_eq!(of(&[all, one, zero], 2), Ok(2));
        assert_eq!(of(&[zero, all], 1), Ok(1));
        for (names, count, reason) in [
            (&[zero, one][..], 2, "no manifest"),
            (&[all, all, zero], 1, "or two"),
            (&[all, zero], 2, "less"),
            (&[all, zero], usize::MAX, "less"),
            (&[all, zero, zero], 2, "more"),
            (&[all, zero, one], 1, "more"),
            (&[all, zero, "fastlane-x"], 2, "more"),
        ] {
            let error = of(names, count).unwrap_err();
            assert!(error.contains(reason), "{names:?}: {error}");
        }
    }

    #[test]
    fn a_manifest_can_be_read_often_and_not_changed() {
        let memory = write(&manifest(7)).unwrap();
        for _ in 0..2 {
            assert_eq!(read(memory.try_clone().unwrap()).unwrap().descriptors, 7);
        }
        assert!(rustix::io::pwrite(&memory, b"x", 0).is_err());
        assert!(rustix::fs::ftruncate(&memory, 0).is_err());
        assert!(read(file()).unwrap_err().contains("cannot be read"));
    }

    /// Returns true if a handover is held after it was offered to a service manager whose store has
    /// this capacity, if it is known.
    fn is_held(capacity: Option<usize>) -> bool {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        // It reads all messages, and drops their descriptors, up to the barrier.
        let manager = std::thread::spawn(move || {
            let mut text = [0; 256];
            while let Ok(length @ 1..) = theirs.recv(&mut text) {
                if text[..length].starts_with(b"STOPPING=1") {
                    return;
                }
            }
        });
        let offer = Offer { manifest: manifest(1), descriptors: vec![Arc::new(file())] };
        let handover = Handover { is_inherited: false, ..Handover::of(offer) };
        let mut takeover = Takeover::default();
        takeover.service_manager = Some(ServiceManager::of(ours, capacity));
        let service_manager = takeover.finish(&handover).expect("the connection");
        service_manager.notify("STOPPING=1");
        manager.join().unwrap();
        handover.is_held()
    }

    #[test]
    fn a_handover_is_held_only_if_the_service_manager_has_room_for_it() {
        assert!(is_held(None) && is_held(Some(2)));
        // Who believes that it is held goes on claiming frames that no successor will get.
        assert!(!is_held(Some(0)), "there is no store");
        assert!(!is_held(Some(1)), "it has room for a part");
    }
}
