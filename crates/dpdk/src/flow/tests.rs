use fastlane_steer::RuleError;

use super::*;

/// Returns the flow rules that a device is offered for these rules.
fn translated(rules: Vec<Rule>) -> Result<Vec<FlowRule>, RuleError> {
    let mut offered = Vec::new();
    let steering = offer(&Rules::new(rules)?, |flow| {
        offered = flow.to_vec();
        Ok(())
    });
    assert_eq!(steering, Steering::Device);
    Ok(offered)
}

#[test]
fn a_device_that_refuses_leaves_the_rules_to_software() {
    let rules = Rules::new(vec![Rule { protocol: Some(17), ..Rule::default() }]).unwrap();
    let steering = offer(&rules, |_| Err("rule 1: Function not implemented".to_owned()));
    assert_eq!(steering.to_string(), "software (rte_flow: rule 1: Function not implemented)");
    let none = offer(&Rules::default(), |_| panic!("there is nothing to give"));
    assert_eq!(none, Steering::Everything);
}

#[test]
fn ports_mean_both_versions_of_ip_unless_something_fixes_one() {
    let rule = Rule { udp_port: Some(PortRange { first: 53, last: 60 }), ..Rule::default() };
    let both = translated(vec![rule.clone()]).unwrap();
    assert_eq!(both.iter().map(|rule| rule.version).collect::<Vec<_>>(), [4, 6]);
    for flow in &both {
        assert_eq!(flow.fields, fields::PORT | fields::PROTOCOL);
        assert_eq!((flow.protocol, flow.first_port, flow.last_port), (UDP, [0, 53], [0, 60]));
    }
    let fixed = translated(vec![Rule { ethertype: Some(IPV6), ..rule }]).unwrap();
    assert_eq!(fixed.iter().map(|rule| rule.version).collect::<Vec<_>>(), [6]);
    let tcp = Rule { tcp_port: Some(80.into()), ..Rule::default() };
    assert_eq!(translated(vec![tcp]).unwrap()[0].protocol, TCP);
}

#[test]
fn gtp_u_is_udp_to_its_port() {
    let both = translated(vec![Rule { gtp_u: true, ..Rule::default() }]).unwrap();
    for flow in &both {
        assert_eq!(flow.fields, fields::PORT | fields::PROTOCOL | fields::GTP_U);
        assert_eq!((flow.protocol, flow.first_port), (UDP, 2152_u16.to_be_bytes()));
        assert_eq!(flow.first_port, flow.last_port);
    }
    assert_eq!(both.len(), 2);
}

#[test]
fn prefixes_become_addresses_and_masks() {
    let prefix = |text: &str, length| Prefix { address: text.parse().unwrap(), length };
    let v4 = Rule {
        source: Some(prefix("10.32.0.0", 11)),
        destination: Some(prefix("0.0.0.0", 0)),
        ..Rule::default()
    };
    let v6 = Rule { destination: Some(prefix("2001:db8::1", 128)), ..Rule::default() };
    let flow = translated(vec![v4, v6]).unwrap();
    assert_eq!(flow.iter().map(|rule| rule.version).collect::<Vec<_>>(), [4, 6]);
    assert_eq!(flow[0].source[..4], [10, 32, 0, 0]);
    assert_eq!(flow[0].source_mask[..4], [0xff, 0xe0, 0, 0]);
    assert_eq!(flow[0].destination_mask[..4], [0; 4]);
    assert_eq!((flow[1].destination_mask, flow[1].source_mask), ([0xff; 16], [0; 16]));
    assert_eq!(flow[1].destination[..4], [0x20, 0x01, 0x0d, 0xb8]);
    assert_eq!(flow[1].fields, 0);
}

#[test]
fn a_rule_about_ethernet_alone_is_one_of_no_version() {
    let flow = translated(vec![Rule { ethertype: Some(0x88f7), ..Rule::default() }]).unwrap();
    assert_eq!((flow[0].version, flow[0].ethertype), (0, [0x88, 0xf7]));
    assert_eq!((flow[0].fields, flow.len()), (fields::ETHERTYPE, 1));
}
