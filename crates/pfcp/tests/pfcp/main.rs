//! Tests of the codec: properties, message faults, and decoding by tshark and scapy.

mod corpus;
mod message_faults;
mod properties;
mod samples;
mod scapy;
mod tshark;
