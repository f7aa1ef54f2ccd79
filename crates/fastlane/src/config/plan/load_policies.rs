//! Checks of the policies that switch ports by their load.

use super::{Plan, PortPlan, refuse, within};
use crate::Error;
use crate::config::raw::{Load, LoadBounds, SwitchPolicy};

/// Longest time of a policy in seconds: a day.
const LONGEST: usize = 86_400;

/// Checks the policies of all ports: the bounds, and that each port can change to its other driver
/// and back.
///
/// # Errors
/// The first value that is not allowed.
pub(super) fn check(plan: &Plan) -> Result<(), Error> {
    for port in &plan.ports {
        if let Some(policy) = &port.switch {
            check_policy(plan, port, policy)?;
        }
    }
    Ok(())
}

fn check_policy(plan: &Plan, port: &PortPlan, policy: &SwitchPolicy) -> Result<(), Error> {
    let at = |key: &str| format!("ports.{}.switch.{key}", port.name);
    let LoadBounds { load, above, below, above_s, below_s } = policy.when;
    within(&at("when.above-s"), above_s as usize, 1, LONGEST)?;
    within(&at("when.below-s"), below_s as usize, 1, LONGEST)?;
    if load == Load::CpuPercent {
        if plan.idle == fastlane_core::Idle::Busy {
            let what = "with `\"idle\": \"busy\"` a lane uses its whole CPU at any load; write \
                        `packets-per-second`";
            return Err(refuse(at("when.load"), what));
        }
        within(&at("when.above"), above as usize, 1, 99)?;
    }
    if below >= above {
        let what = format!("{below} is not allowed; write less than `above`, which is {above}");
        return Err(refuse(at("when.below"), what));
    }
    let number = usize::from(port.id.0);
    let to = plan.with_driver(number, policy.to.clone(), plan.ports.iter());
    let to = to.map_err(|error| refuse(at("to"), error.to_string()))?;
    let there = plan.check_change(port, port, &to);
    let back = there.and_then(|()| plan.check_change(port, &to, port));
    back.map_err(|what| refuse(at("to"), what))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn refusal(change: impl FnOnce(&mut Value)) -> String {
        let xdp = json!({"af-xdp": {"interface": "x"}});
        let when = json!({"load": "packets-per-second", "above": 1000, "below": 100});
        let mut raw = json!({"ports": {"wire": {
            "driver": {"af-packet": {"interface": "x"}}, "switch": {"to": xdp, "when": when},
        }}});
        change(&mut raw);
        let raw = serde_json::from_value(raw).unwrap();
        Plan::new(raw, "test").map_or_else(|error| error.to_string(), |_| String::new())
    }

    fn with(path: &str, value: Value) -> String {
        refusal(|raw| *raw.pointer_mut(&format!("/ports/wire/{path}")).unwrap() = value)
    }

    #[test]
    fn bounds_that_cannot_be_are_refused() {
        assert_eq!(refusal(|_| ()), "");
        let below = with("switch/when/below", json!(1000));
        let expected = "1000 is not allowed; write less than `above`, which is 1000";
        assert_eq!(below, format!("ports.wire.switch.when.below: {expected}"));
        let zero = refusal(|raw| raw["ports"]["wire"]["switch"]["when"]["above-s"] = json!(0));
        assert_eq!(zero, "ports.wire.switch.when.above-s: 0 is not allowed; write 1 to 86400");
        let cpu = with("switch/when/load", json!("cpu-percent"));
        assert_eq!(cpu, "ports.wire.switch.when.above: 1000 is not allowed; write 1 to 99");
        let busy = refusal(|raw| {
            raw["ports"]["wire"]["switch"]["when"]["load"] = json!("cpu-percent");
            raw["lanes"] = json!({"idle": "busy"});
        });
        assert!(
            busy.starts_with("ports.wire.switch.when.load: with `\"idle\": \"busy\"`"),
            "{busy}"
        );
    }

    #[test]
    fn drivers_between_which_no_port_can_be_switched_are_refused() {
        let to = |driver| with("switch/to", driver);
        let memory = to(json!({"memory": {}}));
        assert!(
            memory.contains("ports.wire.switch.to: this driver can only be opened"),
            "{memory}"
        );
        let same = to(json!({"af-packet": {"interface": "x"}}));
        assert!(same.contains("ports.wire.switch.to: it is on af-packet on x already"), "{same}");
        let ring = to(json!({"af-xdp": {"interface": "x", "receive-ring": 100}}));
        assert!(ring.contains("ports.wire.switch.to: ") && ring.contains("100 is not allowed"));
        let steered = refusal(|raw| {
            raw["ports"]["wire"]["steer"] = json!([{"udp-port": 2152}]);
            raw["ports"]["wire"]["switch"]["to"] =
                json!({"memif": {"socket": "@a", "role": "client"}});
        });
        assert!(steered.contains("its `steer` list is matched in Linux"), "{steered}");
        let pcap = with("driver", json!({"pcap": {"write": "x"}}));
        assert!(pcap.contains("this driver can only be opened at the start"), "{pcap}");
    }
}
