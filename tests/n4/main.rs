//! N4 of the UPF under attack: who may speak for an SMF, one request at a time and as a flood.
//! Messages of the attacker are written octet by octet, independent of the codec of the UPF.

mod attempts;
mod hijack;
mod octets;
mod raw_node;
