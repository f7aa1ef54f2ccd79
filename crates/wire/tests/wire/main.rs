//! Tests through the public interface: real frames, built frames, arbitrary bytes, the corpus.

mod built;
mod checksums;
mod corpus;
mod gtp_messages;
mod parse_layers;
mod properties;
mod real;
mod seeds;
