//! IPsec policies of Linux (XFRM, `linux/xfrm.h`): packets that it transforms, or drops unless they
//! arrived transformed. Lanes know nothing of them, so such packets are Linux's.

mod ipsec_policy;
mod policy_reader;

pub use ipsec_policy::{IpsecPolicies, IpsecPolicy};
pub use policy_reader::PolicyReader;
