//! Linux's interfaces of the ports, those of VLANs included.

use fastlane_local::vlan::VlanPort;
use fastlane_mirror::Follower;

/// Index of each port's interface in Linux. Those of VLANs change when Linux creates or removes
/// VLAN interfaces.
#[derive(Debug)]
pub(super) struct VlanInterfaces {
    vlans: Vec<VlanPort>,
    /// Interfaces of the ports as they were opened, without those of VLANs.
    configured: Vec<Option<u32>>,
    interfaces: Vec<Option<u32>>,
}

impl VlanInterfaces {
    pub(super) fn new(vlans: Vec<VlanPort>) -> Self {
        Self { vlans, configured: Vec::new(), interfaces: Vec::new() }
    }

    /// Replaces the interfaces of the ports that were opened. [`resolve`](Self::resolve) must
    /// follow.
    pub(super) fn set_configured(&mut self, configured: Vec<Option<u32>>) {
        self.configured = configured;
    }

    /// Finds the interfaces of VLANs among those that Linux has. Returns true if one has changed.
    pub(super) fn resolve(&mut self, follower: &Follower) -> bool {
        let mut now = self.configured.clone();
        for vlan in &self.vlans {
            let port = usize::from(vlan.port.0);
            // A VLAN with a TAP of its own has that.
            if self.configured[port].is_none() {
                let carrier = self.configured[usize::from(vlan.carrier.0)];
                now[port] = carrier.and_then(|it| follower.vlan_interface(it, vlan.id));
            }
        }
        let is_changed = now != self.interfaces;
        self.interfaces = now;
        is_changed
    }

    /// Returns the index of each port's interface in Linux, if it has one.
    pub(super) fn interfaces(&self) -> &[Option<u32>] {
        &self.interfaces
    }
}
