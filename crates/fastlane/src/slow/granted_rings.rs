//! Message rings that an application has granted to this process.

use std::sync::Arc;

use fastlane_table::{Doorbell, SharedMemory};

use super::SlowError;
use crate::session::{Client, Kind, MessageRingList};
use crate::write_lock;

/// The granted rings. They outlive a [`Messages`](super::Messages), so that another can be created.
#[derive(Debug)]
pub(super) struct GrantedRings {
    pub(super) memory: Arc<SharedMemory>,
    /// Doorbell of the slow path.
    pub(super) slow: Doorbell,
    /// Doorbells of the lanes.
    pub(super) lanes: Vec<Doorbell>,
    /// True while a [`Messages`](super::Messages) uses them.
    pub(super) is_used: bool,
}

impl GrantedRings {
    /// Asks the application for the rings.
    pub(super) fn request(client: &Client) -> Result<Self, SlowError> {
        let (rings, descriptors): (MessageRingList, _) = client.ask(Kind::Messages, &())?;
        let mut descriptors = descriptors.into_iter();
        let missing = || failed(std::io::ErrorKind::UnexpectedEof.into());
        let mut next = || descriptors.next().ok_or_else(missing);
        let memory = write_lock::attach(next()?).map_err(|source| {
            let what = "the message rings".to_owned();
            match write_lock::writer(&source) {
                Some(writer) => SlowError::Written { what, writer: writer.to_owned() },
                None => SlowError::Map { what, source },
            }
        })?;
        let slow = Doorbell::attach(next()?).map_err(failed)?;
        let lanes = rings.lanes.min(client.application.lanes.len());
        let lanes = (0..lanes).map(|_| Doorbell::attach(next()?).map_err(failed));
        let lanes = lanes.collect::<Result<_, SlowError>>()?;
        Ok(Self { memory: Arc::new(memory), slow, lanes, is_used: false })
    }
}

/// Returns the error of a ring or doorbell that cannot be mapped.
pub(super) fn failed(source: std::io::Error) -> SlowError {
    SlowError::Map { what: "the message rings".to_owned(), source }
}
