//! Tests through the public interface: real frames, built frames, arbitrary bytes, the corpus.

mod built;
mod checksum;
mod corpus;
mod gtpu;
mod layers;
mod properties;
mod real;
mod seeds;
