//! Tests of URRs alone, and on real tables.

mod arithmetic;
mod kills;
mod pool;
mod scenarios;
mod sums;
mod table_backend;
mod testbed;
