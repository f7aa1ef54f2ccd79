//! URRs by themselves, and on real tables.

mod arithmetic;
mod kept;
mod kills;
mod pool;
mod scenarios;
mod sums;
mod world;
