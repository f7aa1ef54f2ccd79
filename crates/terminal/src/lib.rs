//! Tables of numbers on a terminal, as `fastlane top` and `upf top` show them: a [`Page`] of
//! [`Table`]s as plain text ([`plain`]) or on a live [`screen`], and the formats of [`number`]s.
//!
//! # Examples
//! ```
//! use fastlane_terminal::{Page, Table, number, plain};
//!
//! let row = vec!["wire".to_owned(), number::short(1_234_500.0), String::new()];
//! let table = Table::new(&["port", "rx/s", ""], 1, vec![row]);
//! let page = Page { title: "macswap".to_owned(), tables: vec![table] };
//! assert_eq!(plain(&page), "macswap\nport    rx/s\nwire  1.23 M\n\n");
//! ```

pub mod number;
pub mod screen;
mod table;

pub use table::{Page, Table, plain};
