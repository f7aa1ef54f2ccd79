mod arithmetic;
mod sums;
