//! N4 of the UPF under attack and in operation: who may speak for an SMF, floods, peers by name,
//! and the end of associations on request of the UPF. Messages are written octet by octet,
//! independent of the codec of the UPF.

mod attempts;
mod hijack;
mod octets;
mod raw_node;
