//! What is behind the node: sessions.

use std::net::IpAddr;

use fastlane_pfcp::Message;

use super::answer::refuse_session;
use crate::slow::{Context, Now, RequestKey};

#[derive(Debug, Default)]
pub struct Behind;

impl Behind {
    pub fn answer(&self, _now: Now, _key: &RequestKey) -> Option<Vec<u8>> {
        None
    }

    pub fn request(&mut self, message: &Message<'_>, context: &Context<'_>) -> Vec<u8> {
        let cause = match (message.header.message_type.0, context.peer) {
            (50, None) => fastlane_pfcp::Cause::NO_ESTABLISHED_PFCP_ASSOCIATION,
            (50, _) => fastlane_pfcp::Cause::SERVICE_NOT_SUPPORTED,
            _ => fastlane_pfcp::Cause::SESSION_CONTEXT_NOT_FOUND,
        };
        refuse_session(message, cause)
    }

    pub fn remove_of_peer(
        &mut self,
        _now: Now,
        _place: u16,
        _keep: &dyn Fn(IpAddr) -> bool,
    ) -> u64 {
        0
    }

    pub fn remove_set(
        &mut self,
        _now: Now,
        _place: u16,
        _set: &fastlane_pfcp::ie::FqCsid<'_>,
    ) -> u64 {
        0
    }
}
