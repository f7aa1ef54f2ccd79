//! Tests of the codec: properties, the grammar, and what tshark and scapy make of its messages.

mod corpus;
mod grammar;
mod properties;
mod samples;
mod scapy;
mod tshark;
