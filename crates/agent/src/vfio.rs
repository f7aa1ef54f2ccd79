//! PCI devices that clients drive through VFIO.
//!
//! DPDK opens the device node of an IOMMU group by its path. So the agent adds the user of a client
//! to the access control list of the node, as udev does for users at the machine, and removes it
//! when the connection ends. The node is that of root, so the agent needs no capability.
//!
//! A client of a grant is in a pod, which has device nodes of its own: the container runtime made
//! them. It only gets the right to the group, which one client at a time has.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fastlane::kernel::PciDevice;
use rustix::fs::XattrFlags;

use crate::config::Pool;
use crate::owner::Owner;
use crate::registry::{Holder, Lease};
use crate::shared::Shared;

/// Extended attribute with the access control list (acl(5), linux/posix_acl_xattr.h).
const ACL: &str = "system.posix_acl_access";
/// Mode of the node of a group as the kernel makes it.
const MODE: u32 = 0o600;

/// IOMMU group that a client has. Dropping it closes the node to its user.
#[derive(Debug)]
pub(crate) struct ClientGroup {
    _opened: Option<OpenedNode>,
    _lease: Lease,
}

/// Device node that a user may open.
#[derive(Debug)]
struct OpenedNode {
    path: PathBuf,
    /// Permissions that it had before.
    before: u32,
}

impl ClientGroup {
    /// Gives the group of a device to a client.
    ///
    /// # Errors
    /// Names the process that has it, or the reason of the kernel.
    pub(crate) fn give(
        shared: &Shared,
        device: &PciDevice,
        group: u32,
        holder: Holder,
        user: u32,
    ) -> Result<Self, String> {
        let is_in_pod = matches!(holder.owner, Owner::Grant(_));
        let lease = shared.groups.take(group, holder).map_err(|Holder { process, .. }| {
            let address = device.address();
            format!("process {process} has IOMMU group {group} of `{address}`; end it first")
        })?;
        let node = device.vfio_node().filter(|_| !is_in_pod);
        let opened = node.map(|node| OpenedNode::open(node, user)).transpose()?;
        Ok(Self { _opened: opened, _lease: lease })
    }
}

impl OpenedNode {
    fn open(path: PathBuf, user: u32) -> Result<Self, String> {
        let failed = |error: std::io::Error| {
            format!("{} cannot be opened to user {user}: {error}", path.display())
        };
        let status = std::fs::metadata(&path).map_err(failed)?;
        let before = status.permissions().mode() & 0o777;
        let list = access_list(before, user);
        let set = rustix::fs::setxattr(&path, ACL, &list, XattrFlags::empty());
        set.map_err(|error| failed(error.into()))?;
        Ok(Self { path, before })
    }
}

impl Drop for OpenedNode {
    fn drop(&mut self) {
        close(&self.path, self.before);
    }
}

/// Removes the access control list of a node.
fn close(path: &Path, mode: u32) {
    // A device that was removed has no node any more.
    let _ = rustix::fs::removexattr(path, ACL);
    let _ = std::fs::set_permissions(path, Permissions::from_mode(mode));
}

/// Closes the nodes that an agent before this one has opened. Their clients have them open, and
/// open them again with a new connection only.
pub(crate) fn close_all(pools: &[Arc<Pool>]) {
    let devices = pools.iter().flat_map(|pool| &pool.pci).filter_map(|it| PciDevice::at(it));
    devices.filter_map(|device| device.vfio_node()).for_each(|node| close_left(&node));
}

/// Closes a node if it has an access control list.
fn close_left(node: &Path) {
    if rustix::fs::getxattr(node, ACL, &mut [0; 1024]).is_ok() {
        close(node, MODE);
    }
}

/// Returns an access control list by which a user may read and write a file of this mode too.
fn access_list(mode: u32, user: u32) -> Vec<u8> {
    /// Version of the attribute.
    const VERSION: u32 = 2;
    const READ_WRITE: u16 = 6;
    const NOBODY: u32 = u32::MAX;
    let bits = |shift: u32| (mode >> shift & 7) as u16;
    let entries = [
        (0x01, bits(6), NOBODY),              // ACL_USER_OBJ
        (0x02, READ_WRITE, user),             // ACL_USER
        (0x04, bits(3), NOBODY),              // ACL_GROUP_OBJ
        (0x10, READ_WRITE | bits(3), NOBODY), // ACL_MASK
        (0x20, bits(0), NOBODY),              // ACL_OTHER
    ];
    let mut list = VERSION.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        let _: u16 = tag;
        list.extend(tag.to_le_bytes());
        list.extend(permissions.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}

/// Returns a device of the pools with its IOMMU group.
///
/// # Errors
/// The reason why a client cannot have it, with the remedy.
pub(crate) fn check(pools: &[Arc<Pool>], address: &str) -> Result<(PciDevice, u32), String> {
    let pool = pools.iter().find(|pool| pool.pci.iter().any(|it| it == address));
    let pool = pool.ok_or_else(|| {
        let all: Vec<&str> = pools.iter().flat_map(|pool| &pool.pci).map(String::as_str).collect();
        format!("this client may not use PCI device `{address}`, only [{}]", all.join(", "))
    })?;
    vfio_device(address, &pool.name, &pool.pci)
}

/// Returns a PCI device of a pool, which has these, with its IOMMU group.
///
/// # Errors
/// The reason why an application cannot drive it through VFIO, with the remedy.
pub fn vfio_device(
    address: &str,
    pool: &str,
    devices: &[String],
) -> Result<(PciDevice, u32), String> {
    let device = PciDevice::at(address)
        .ok_or_else(|| format!("there is no PCI device `{address}`; see `lspci -D`"))?;
    if !device.is_of_vfio() {
        let driver = device.driver().map(|driver| format!("the driver `{driver}` has it"));
        let driver = driver.unwrap_or_else(|| "no driver has it".to_owned());
        return Err(format!(
            "PCI device `{address}` is not bound to vfio-pci: {driver}; run `driverctl \
             set-override {address} vfio-pci`"
        ));
    }
    let group = device.iommu_group().ok_or_else(|| {
        format!(
            "PCI device `{address}` has no IOMMU group, so nothing confines it to the memory of \
             an application; switch the IOMMU on (`intel_iommu=on`, or in the firmware)"
        )
    })?;
    for member in device.group_members() {
        let other = member.address();
        let shares = format!("PCI device `{address}` shares IOMMU group {group} with `{other}`");
        if !devices.iter().any(|ours| ours == other) {
            return Err(format!(
                "{shares}, which is not in pool `{pool}`; add it there, or put the device into a \
                 slot with a group of its own"
            ));
        }
        if let Some(driver) = member.driver().filter(|_| !member.is_of_vfio()) {
            return Err(format!(
                "{shares}, which the driver `{driver}` has; run `driverctl set-override {other} \
                 vfio-pci`"
            ));
        }
    }
    Ok((device, group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_list_opens_a_file_to_one_user_until_it_is_closed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mode = || std::fs::metadata(file.path()).unwrap().permissions().mode() & 0o777;
        let before = mode();
        let opened = match OpenedNode::open(file.path().to_owned(), 65534) {
            Ok(opened) => opened,
            // The file system has no access control lists.
            Err(error) if error.contains("not supported") => return,
            Err(error) => panic!("{error}"),
        };
        let mut list = [0; 64];
        let length = rustix::fs::getxattr(file.path(), ACL, &mut list).unwrap();
        assert_eq!(list[..length], *access_list(before, 65534));
        drop(opened);
        assert!(rustix::fs::getxattr(file.path(), ACL, &mut list).is_err());
        assert_eq!(mode(), before);
        // The next agent closes what one that was killed has left.
        close_left(file.path());
        assert_eq!(mode(), before);
        std::mem::forget(OpenedNode::open(file.path().to_owned(), 65534).unwrap());
        close_left(file.path());
        assert!(rustix::fs::getxattr(file.path(), ACL, &mut list).is_err());
        assert_eq!(mode(), MODE);
    }

    #[test]
    fn a_device_that_is_in_no_pool_or_absent_is_refused_by_name() {
        let settings = serde_json::json!({"pci": ["ffff:ff:1f.7"], "steer": [], "users": [5]});
        let settings = serde_json::from_value(settings).unwrap();
        let pools = [Arc::new(crate::config::resolve_pool("a", settings).unwrap())];
        let refused = check(&pools, "0000:00:00.0").unwrap_err();
        assert!(refused.contains("`0000:00:00.0`, only [ffff:ff:1f.7]"), "{refused}");
        let refused = check(&pools, "ffff:ff:1f.7").unwrap_err();
        assert!(refused.contains("no PCI device `ffff:ff:1f.7`"), "{refused}");
    }
}
