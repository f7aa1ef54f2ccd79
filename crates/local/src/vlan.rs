//! VLANs of ports as ports: [`Vlans`].
//!
//! A frame whose outermost tag is an 802.1Q tag with the identifier of a VLAN arrives at the port
//! of that VLAN, without the tag. A packet that leaves by such a port gets the tag, with priority
//! 0. All other frames are the carrier's as they are: untagged ones, those with a priority tag
//! (identifier 0) and those of other VLANs.

use fastlane_core::{LogicalPorts, Packet, PacketOwnership, PortId};

/// EtherType of an 802.1Q tag (IEEE 802.1Q 9.6).
const TAG_TYPE: [u8; 2] = [0x81, 0x00];
/// Length of a tag in bytes.
pub const TAG: usize = 4;
/// Offset of the tag: the length of two Ethernet addresses.
const ADDRESSES: usize = 12;
/// Length of an Ethernet header.
const HEADER: usize = 14;
/// Highest identifier of a VLAN (IEEE 802.1Q 9.6: 0 and 4095 are none).
pub const MAX_ID: u16 = 4094;

/// Port of a VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanPort {
    /// Port of the VLAN.
    pub port: PortId,
    /// Port that carries it.
    pub carrier: PortId,
    /// VLAN identifier, 1 to [`MAX_ID`].
    pub id: u16,
    /// True if packets labelled `Kernel` take the path of the carrier, with the tag. Otherwise the
    /// port has its own path, or none.
    pub shares_kernel_path: bool,
}

/// VLANs of the ports of a lane.
///
/// # Examples
/// ```
/// use fastlane_core::{LogicalPorts, PacketOwnership, Pool, PortId};
/// use fastlane_local::vlan::{VlanPort, Vlans};
/// use fastlane_table::SharedMemory;
///
/// let (port, carrier) = (PortId(0), PortId(1));
/// let mut vlans = Vlans::new(&[VlanPort { port, carrier, id: 100, shares_kernel_path: true }]);
/// let mut pool = Pool::new(SharedMemory::create("frames", 2048)?, 2048, 192)?;
/// let mut packets = [pool.alloc_packet(64, carrier).expect("a frame is free")];
/// packets[0].bytes_mut()[12..16].copy_from_slice(&[0x81, 0x00, 0x00, 100]);
/// assert!(vlans.decapsulate(1, &mut packets));
/// assert_eq!((packets[0].port(), packets[0].len()), (port, 60));
/// assert_eq!(vlans.encapsulate(0, &mut packets), 1);
/// assert_eq!(packets[0].bytes()[12..16], [0x81, 0x00, 0x00, 100]);
/// # pool.release(&mut packets[0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Vlans {
    /// VLAN of each port that is one.
    vlans: Vec<Option<VlanPort>>,
    /// Port of each identifier, for each port that carries VLANs.
    carried: Vec<Option<Ids>>,
}

impl Vlans {
    /// Creates the VLANs of a lane.
    #[must_use]
    pub fn new(ports: &[VlanPort]) -> Self {
        let numbers = ports.iter().flat_map(|vlan| [vlan.port.0, vlan.carrier.0]);
        let count = numbers.max().map_or(0, |last| usize::from(last) + 1);
        let mut vlans = vec![None; count];
        let mut carried: Vec<Option<Ids>> = (0..count).map(|_| None).collect();
        for vlan in ports {
            vlans[usize::from(vlan.port.0)] = Some(*vlan);
            let ids = carried[usize::from(vlan.carrier.0)].get_or_insert_with(Ids::new);
            ids.0[usize::from(vlan.id & ID)] = Some(vlan.port);
        }
        Self { vlans, carried }
    }

    fn get(&self, port: usize) -> Option<&VlanPort> {
        self.vlans.get(port)?.as_ref()
    }
}

/// Bits of the identifier in the tag control information.
const ID: u16 = 0x0fff;

/// Port of each VLAN identifier.
#[derive(Debug)]
struct Ids(Box<[Option<PortId>; ID as usize + 1]>);

impl Ids {
    fn new() -> Self {
        Self(Box::new([None; ID as usize + 1]))
    }

    /// Returns the port of a frame, if its VLAN is a port.
    #[inline]
    fn port_of(&self, frame: &[u8]) -> Option<PortId> {
        let header = frame.first_chunk::<{ HEADER + TAG }>()?;
        let [.., first, second, high, low, _, _] = *header;
        if [first, second] != TAG_TYPE {
            return None;
        }
        self.0[usize::from(u16::from_be_bytes([high, low]) & ID)]
    }
}

impl LogicalPorts for Vlans {
    fn decapsulate(&mut self, carrier: usize, packets: &mut [Packet]) -> bool {
        let Some(Some(ids)) = self.carried.get(carrier) else { return false };
        let mut has_any = false;
        for packet in packets {
            let Some(port) = ids.port_of(packet.bytes()) else { continue };
            packet.bytes_mut().copy_within(..ADDRESSES, TAG);
            if packet.trim_front(TAG) {
                packet.set_port(port);
                packet.set_unclaimed();
                has_any = true;
            }
        }
        has_any
    }

    fn encapsulate(&mut self, port: usize, run: &mut [Packet]) -> usize {
        let Some(vlan) = self.get(port) else { return run.len() };
        let [high, low] = vlan.id.to_be_bytes();
        let tag = [TAG_TYPE[0], TAG_TYPE[1], high, low];
        let (mut tagged, mut end) = (0, run.len());
        while tagged < end {
            if add_tag(&mut run[tagged], tag) {
                tagged += 1;
            } else {
                end -= 1;
                run.swap(tagged, end);
            }
        }
        tagged
    }

    fn carrier(&self, port: usize) -> Option<usize> {
        self.get(port).map(|vlan| usize::from(vlan.carrier.0))
    }

    fn shares_kernel_path(&self, port: usize) -> bool {
        self.get(port).is_some_and(|vlan| vlan.shares_kernel_path)
    }

    fn overhead(&self, port: usize) -> usize {
        if self.get(port).is_some() { TAG } else { 0 }
    }
}

/// Adds a tag. Returns false and changes nothing if there is no room, or no Ethernet header.
#[inline]
fn add_tag(packet: &mut Packet, tag: [u8; TAG]) -> bool {
    if packet.len() < HEADER || packet.prepend(TAG).is_none() {
        return false;
    }
    let bytes = packet.bytes_mut();
    bytes.copy_within(TAG..TAG + ADDRESSES, 0);
    bytes[ADDRESSES..ADDRESSES + TAG].copy_from_slice(&tag);
    true
}

#[cfg(test)]
mod tests;
