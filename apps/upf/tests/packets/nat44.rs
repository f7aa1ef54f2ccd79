//! NAT44 on N6: the behaviour that RFC 4787, 5382, 5508 and 6888 require, by their numbers, and a
//! comparison with a simple reference model.

mod mapping_model;
mod model;
mod nat_events;
mod nat_headers;
mod nat_input;
mod nat_lane;
mod rfc4787;
mod rfc5382;
mod rfc5508;
mod users;

use fastlane_wire::checksum;
use serde_json::json;

use crate::frames::{ethernet, ipv4};
use crate::test_lane::*;
use nat_lane::*;
