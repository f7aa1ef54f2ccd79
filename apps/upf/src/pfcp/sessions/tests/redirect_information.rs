//! Redirect Information (TS 29.244 clause 8.2.20).

use fastlane_pfcp::ie::{RedirectAddress as Kind, RedirectInformation};

use super::establish::{down, refused};
use super::*;
use crate::session::Redirect;

const FOUR: &str = "203.0.113.7";
const SIX: &str = "2001:db8:113::7";

/// Appends a FAR that redirects.
fn far(w: &mut Writer<'_>, address_type: Kind, address: &str, other: &str) {
    down(w);
    w.group(IeType::CREATE_FAR, |w| {
        w.put(&ie::FarId(2));
        w.put(&ie::ApplyAction::FORW);
        w.group(IeType::FORWARDING_PARAMETERS, |w| {
            w.put(&ie::DestinationInterface::CORE);
            let (address, other) = (address.as_bytes(), other.as_bytes());
            w.put(&RedirectInformation { address_type, address, other });
        });
    });
}

#[test]
fn an_address_of_each_family_in_any_order() {
    let both = Redirect::Both(FOUR.parse().unwrap(), SIX.parse().unwrap());
    let one = |address: &str| Redirect::Address(address.parse().unwrap());
    for (kind, address, other, expected) in [
        (Kind::V4, FOUR, "", one(FOUR)),
        (Kind::V6, SIX, "", one(SIX)),
        (Kind::V4V6, FOUR, SIX, both.clone()),
        (Kind::V4V6, SIX, FOUR, both),
    ] {
        let mut world = SessionTestbed::new();
        let answered = world.ask(&establishment(1, 77, &|w| far(w, kind, address, other)));
        assert_eq!(answered.cause, 1, "{answered:?}");
        world.restart();
        let forwarding = world.only().fars.remove(0).forwarding.unwrap();
        assert_eq!(forwarding.redirect, Some(expected));
    }
}

#[test]
fn a_sip_uri_is_refused_by_name() {
    let mut world = SessionTestbed::new();
    let why = refused(&mut world, &|w| far(w, Kind::SipUri, "sip:portal@example.org", ""));
    assert_eq!(why, (76, Some(38), None));
}

#[test]
fn what_is_no_address_of_its_kind_is_refused() {
    let mut world = SessionTestbed::new();
    for (kind, address, other) in [
        (Kind::V4, "portal.example", ""),
        (Kind::V4V6, FOUR, ""),
        (Kind::V4V6, FOUR, FOUR),
        (Kind::V4V6, SIX, SIX),
        (Kind::V4V6, "", SIX),
        (Kind::V4V6, FOUR, "portal.example"),
        (Kind::Url, "http://portal.example/a b", ""),
        (Kind::Url, "", ""),
    ] {
        let why = refused(&mut world, &|w| far(w, kind, address, other));
        assert_eq!(why, (69, Some(38), None), "{kind:?} {address} {other}");
    }
}
