//! Control plane functions that stand in for silent ones (TS 29.244 clause 5.22): members of an SMF
//! set, or other addresses of the same SMF.

use std::collections::HashMap;
use std::net::IpAddr;

use fastlane_pfcp::ie::FSeid;
use fastlane_pfcp::{Header, IeType, Message, Writer};

use crate::session::{CpFSeid, Session};

/// Maximum number of detours. Reports to further silent addresses are redirected one by one.
const MOST: usize = 1024;

/// Session reports that go to another address than that of the CP F-SEID, by the association of the
/// session and that address.
#[derive(Debug, Default)]
pub struct Detours {
    all: HashMap<(u16, IpAddr), Detour>,
}

#[derive(Clone, Copy, Debug)]
struct Detour {
    to: IpAddr,
    /// End of the detour, in nanoseconds of `CLOCK_MONOTONIC`.
    until: u64,
}

impl Detours {
    /// Sends reports for `silent` to `to` until a time.
    pub fn begin(&mut self, peer: u16, silent: IpAddr, to: IpAddr, until: u64) {
        if self.all.len() < MOST {
            self.all.insert((peer, silent), Detour { to, until });
        }
    }

    /// Ends the detours around an address, which was heard.
    pub fn end(&mut self, heard: IpAddr) {
        if !self.all.is_empty() {
            self.all.retain(|(_, silent), _| *silent != heard);
        }
    }

    /// Ends the detour around an address: what stood in for it is silent, too.
    pub fn end_one(&mut self, peer: u16, silent: IpAddr) {
        self.all.remove(&(peer, silent));
    }

    /// Returns the address for reports of a session, if it is not that of its CP F-SEID.
    #[must_use]
    pub fn find(&self, session: &Session, now: u64) -> Option<IpAddr> {
        if self.all.is_empty() {
            return None;
        }
        let found = self.all.get(&(session.peer, session.cp_fseid.address))?;
        (found.until > now).then_some(found.to)
    }
}

/// Returns a session report request as it is sent to another control plane function than that of
/// the CP F-SEID: the session has no SEID there (clause 7.2.2.4.2), and the request carries the old
/// CP F-SEID (table 7.5.8.1-1). The sequence number is the same.
#[must_use]
pub fn redirect(request: &[u8], old: CpFSeid) -> Vec<u8> {
    let Ok((message, _)) = Message::parse(request) else { return request.to_vec() };
    let (v4, v6) = match old.address {
        IpAddr::V4(v4) => (Some(v4), None),
        IpAddr::V6(v6) => (None, Some(v6)),
    };
    let header = Header::session(message.header.message_type, 0, message.header.sequence);
    let mut bytes = Vec::with_capacity(request.len() + 32);
    Writer::new(&mut bytes).message(header, |to| {
        for ie in message.group().ies().flatten().filter(|ie| ie.ie_type != IeType::F_SEID) {
            to.raw(ie.ie_type, ie.value);
        }
        to.put(&FSeid { seid: old.seid, v4, v6 });
    });
    bytes
}

#[cfg(test)]
mod tests {
    use fastlane_pfcp::MessageType;
    use fastlane_pfcp::ie::{RecoveryTimeStamp, ReportType};

    use super::*;

    #[test]
    fn a_redirected_request_has_no_seid_but_the_old_one_as_an_element() {
        let mut request = Vec::new();
        let header = Header::session(MessageType::SESSION_REPORT_REQUEST, 7, 99);
        Writer::new(&mut request).message(header, |to| {
            to.put(&ReportType::UPIR);
            to.put(&RecoveryTimeStamp(5));
        });
        let old = CpFSeid { seid: 7, address: "192.0.2.100".parse().unwrap() };
        let bytes = redirect(&request, old);
        let (message, _) = Message::parse(&bytes).unwrap();
        assert_eq!((message.header.seid, message.header.sequence), (Some(0), 99));
        let found: FSeid = message.group().need().unwrap();
        assert_eq!((found.seid, found.v4.map(IpAddr::V4)), (7, Some(old.address)));
        assert_eq!(message.group().need(), Ok(ReportType::UPIR));
        // Once more, it is the same.
        assert_eq!(redirect(&bytes, old), bytes);
    }

    #[test]
    fn detours_are_bounded() {
        let mut detours = Detours::default();
        let address = |number: u32| IpAddr::V4(number.into());
        for number in 0..5000 {
            detours.begin(1, address(number), address(number + 1), u64::MAX);
        }
        assert_eq!(detours.all.len(), MOST);
        detours.end(address(0));
        assert_eq!(detours.all.len(), MOST - 1);
    }
}
