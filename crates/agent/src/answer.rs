//! Answer to a request of a client.

use std::os::fd::OwnedFd;

use fastlane::agent::records::Response;

/// Response with its descriptors, or the reason of a refusal.
pub(crate) type Answer = Result<(Response, Vec<OwnedFd>), String>;
