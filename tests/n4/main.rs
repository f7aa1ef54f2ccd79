//! N4 of the UPF: who may speak for an SMF, one request at a time and as a flood; SMF sets and
//! alternative addresses; SMFs that are configured by name. Messages are written octet by octet,
//! independent of the codec of the UPF.

mod attempts;
mod hijack;
mod octets;
mod raw_node;
mod smf_names;
mod smf_sets;
