//! Manual: how to write, divide, distribute and operate an application, in seven short chapters.
//!
//! | chapter | subject |
//! |---|---|
//! | [First application](_01_first_application) | verdicts, headers, settings, a test |
//! | [Two processes](_02_two_processes) | fast path and slow path: attaching, messages, restarts |
//! | [Tables](_03_tables) | the kinds of tables, lane state, pending events |
//! | [Sharding](_04_sharding) | several lanes: RSS, keys, workers |
//! | [Writing a driver](_05_writing_a_driver) | the trait `Queue` and its obligations |
//! | [Operating](_06_operating) | command line, exit statuses, tools, hot restart |
//! | [Glossary](_07_glossary) | our words and those of DPDK, Linux, VPP and 3GPP |
//!
//! The folder `examples` of this crate has a whole program for each subject. The reference of an
//! item is its own page; the manual does not repeat it.

pub mod _01_first_application;
pub mod _02_two_processes;
pub mod _03_tables;
pub mod _04_sharding;
pub mod _05_writing_a_driver;
pub mod _06_operating;
pub mod _07_glossary;
