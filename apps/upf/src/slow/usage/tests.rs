mod arithmetic;
mod kills;
mod pool;
mod scenarios;
mod sums;
mod world;
