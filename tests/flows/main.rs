//! A router that forwards established connections beside Linux, with its rules, NAT and connection
//! tracking. Tests are named by the requirements that they show (`apps/router/README.md`).

mod addresses;
mod bonded_ports;
mod both_tiers;
mod bridged_ports;
mod closing;
mod deletion;
mod egress;
mod firewall;
mod flood;
mod flowtable;
mod growth;
mod ingress;
mod kernel_tier;
mod left_to_linux;
mod rates;
mod routes;
mod standstill;
mod survival;
mod timeouts;
mod tools;
mod vrf;
