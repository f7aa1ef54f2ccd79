//! What the service manager keeps: the file descriptor store of systemd.
//!
//! Each descriptor has a name of its own, `fastlane-0` and so on in the order of the description,
//! which lies in a sealed memfd, `fastlane-description`. It is stored last and removed first: what
//! has no description is incomplete.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use fastlane_kernel::inherited;
use rustix::fs::{MemfdFlags, SealFlags};

use super::{Description, Keepsakes};
use crate::manager::Manager;

/// What all names begin with.
const PREFIX: &str = "fastlane-";
const DESCRIPTION: &str = "fastlane-description";
/// The most bytes of a description.
const LONGEST: u64 = 1 << 20;

/// What the service manager had kept for us; it keeps it still.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    names: Vec<String>,
    /// What it is, if it was used.
    pub(super) description: Option<Description>,
}

impl Stored {
    /// Takes what there is. The second call finds nothing.
    pub(super) fn take() -> (Self, Result<Vec<OwnedFd>, String>) {
        let taken = inherited::take(|name| name.starts_with(PREFIX));
        let mut stored =
            Self { names: taken.iter().map(|it| it.0.clone()).collect(), ..Self::default() };
        let descriptors = stored.read(taken);
        (stored, descriptors)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Reads the description, and puts the descriptors in its order.
    fn read(&mut self, taken: Vec<(String, OwnedFd)>) -> Result<Vec<OwnedFd>, String> {
        let (mut texts, parts): (Vec<_>, Vec<_>) =
            taken.into_iter().partition(|(name, _)| name == DESCRIPTION);
        let (Some((_, text)), None) = (texts.pop(), texts.pop()) else {
            return Err("the service manager has not all of it".to_owned());
        };
        let description = read(text)?;
        let mut places: Vec<Option<OwnedFd>> = Vec::new();
        places.resize_with(description.descriptors.min(parts.len()), || None);
        for (name, descriptor) in parts {
            let place = name.strip_prefix(PREFIX).and_then(|number| number.parse::<usize>().ok());
            let place = place.and_then(|place| places.get_mut(place)).filter(|it| it.is_none());
            *place
                .ok_or_else(|| format!("the service manager has more than it should: {name}"))? =
                Some(descriptor);
        }
        let descriptors: Option<Vec<OwnedFd>> = places.into_iter().collect();
        let whole = descriptors.filter(|whole| whole.len() == description.descriptors);
        let whole = whole.ok_or("the service manager has less than it should")?;
        self.description = Some(description);
        Ok(whole)
    }

    /// Lets the service manager close it.
    pub(super) fn remove(&mut self, manager: &Manager) {
        self.description = None;
        if self.names.is_empty() {
            return;
        }
        self.names.sort_unstable_by_key(|name| name != DESCRIPTION);
        let names = std::mem::take(&mut self.names);
        let removed = names.iter().try_for_each(|name| manager.remove(name));
        if let Err(error) = removed.and_then(|()| manager.wait()) {
            tracing::warn!("the service manager still keeps what we do not use: {error}");
        }
    }

    /// Lets the service manager keep this, and nothing else. What it has already stays, for it
    /// would not notice that it has another name now.
    pub(super) fn replace(&mut self, manager: &Manager, keepsakes: &Keepsakes) {
        if keepsakes.is_kept
            && self.description.as_ref().is_some_and(|it| it.is(&keepsakes.description))
        {
            return;
        }
        self.remove(manager);
        let needed = keepsakes.descriptors.len() + 1;
        if needed == 1 || manager.limit == Some(0) {
            return;
        }
        if let Some(limit) = manager.limit.filter(|limit| *limit < needed) {
            tracing::warn!(
                "the service manager keeps {limit} descriptors, of {needed}: nothing is kept; \
                 write `FileDescriptorStoreMax={needed}` in the unit"
            );
            return;
        }
        match store(manager, keepsakes) {
            Ok(()) => tracing::info!("the service manager keeps {needed} descriptors"),
            Err(error) => tracing::warn!("the service manager keeps nothing for us: {error}"),
        }
    }
}

fn store(manager: &Manager, keepsakes: &Keepsakes) -> std::io::Result<()> {
    for (place, descriptor) in keepsakes.descriptors.iter().enumerate() {
        manager.store(&format!("{PREFIX}{place}"), descriptor.as_fd())?;
    }
    manager.store(DESCRIPTION, write(&keepsakes.description)?.as_fd())
}

/// The description in memory that nobody can change.
fn write(description: &Description) -> std::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(rustix::fs::memfd_create(DESCRIPTION, flags)?);
    file.write_all(&serde_json::to_vec(description)?)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file.into())
}

fn read(memory: OwnedFd) -> Result<Description, String> {
    let wrong = |error: std::io::Error| format!("its description cannot be read ({error})");
    // Another process may have moved the position that the descriptors share.
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&memory));
    let file = File::open(path).map_err(wrong)?;
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text).map_err(wrong)?;
    serde_json::from_slice(&text).map_err(|error| wrong(error.into()))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn description(descriptors: usize) -> Description {
        let (release, program) = ("1".to_owned(), "test".to_owned());
        let configuration = Value::Null;
        let (tables, ports, messages) = Default::default();
        Description { release, program, configuration, tables, ports, messages, descriptors }
    }

    fn file() -> OwnedFd {
        rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap()
    }

    /// What is made of descriptors with these names, of which a description says that there are so
    /// many.
    fn read_of(names: &[&str], descriptors: usize) -> Result<Vec<OwnedFd>, String> {
        let taken = names.iter().map(|name| {
            let is_description = *name == DESCRIPTION;
            let memory = || write(&description(descriptors)).unwrap();
            ((*name).to_owned(), if is_description { memory() } else { file() })
        });
        Stored::default().read(taken.collect())
    }

    #[test]
    fn only_what_is_whole_is_used_in_whatever_order_it_comes() {
        let of = |names: &[&str], count| read_of(names, count).map(|whole| whole.len());
        let (zero, one, all) = ("fastlane-0", "fastlane-1", DESCRIPTION);
        assert_eq!(of(&[all, one, zero], 2), Ok(2));
        assert_eq!(of(&[zero, all], 1), Ok(1));
        for (names, count, reason) in [
            (&[zero, one][..], 2, "has not all"),
            (&[all, all, zero], 1, "has not all"),
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
    fn a_description_can_be_read_by_many_and_changed_by_nobody() {
        let memory = write(&description(7)).unwrap();
        for _ in 0..2 {
            assert_eq!(read(memory.try_clone().unwrap()).unwrap().descriptors, 7);
        }
        assert!(rustix::io::pwrite(&memory, b"x", 0).is_err());
        assert!(rustix::fs::ftruncate(&memory, 0).is_err());
        assert!(read(file()).unwrap_err().contains("cannot be read"));
    }
}
