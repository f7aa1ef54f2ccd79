//! What scapy makes of our messages.
