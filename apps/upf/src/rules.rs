//! The rules of sessions as the user plane reads them: one life, from layout to publication.
//!
//! [`layout`] is the shared-memory format of both processes, [`compile`] makes it of a session, and
//! [`publish`] writes it into the shared [`tables`].

pub mod compile;
pub mod layout;
pub mod publish;
pub mod tables;
