//! The Packet Forwarding Control Protocol (3GPP TS 29.244).
