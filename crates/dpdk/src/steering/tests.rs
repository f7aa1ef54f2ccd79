use fastlane_steer::RuleError;

use super::*;

/// What a device gets for these rules.
fn flat(rules: Vec<Rule>) -> Result<Vec<FlatRule>, RuleError> {
    let mut given = Vec::new();
    let steering = give(&Rules::new(rules)?, |flat| {
        given = flat.to_vec();
        Ok(())
    });
    assert_eq!(steering, Steering::Device);
    Ok(given)
}

#[test]
fn a_device_that_refuses_leaves_the_rules_to_software() {
    let rules = Rules::new(vec![Rule { protocol: Some(17), ..Rule::default() }]).unwrap();
    let steering = give(&rules, |_| Err("rule 1: Function not implemented".to_owned()));
    assert_eq!(steering.to_string(), "software (rte_flow: rule 1: Function not implemented)");
    let none = give(&Rules::default(), |_| panic!("there is nothing to give"));
    assert_eq!(none, Steering::Everything);
}

#[test]
fn ports_mean_both_versions_of_ip_unless_something_fixes_one() {
    let rule = Rule { udp_port: Some(PortRange { first: 53, last: 60 }), ..Rule::default() };
    let both = flat(vec![rule.clone()]).unwrap();
    assert_eq!(both.iter().map(|rule| rule.version).collect::<Vec<_>>(), [4, 6]);
    for flat in &both {
        assert_eq!(flat.fields, fields::PORT | fields::PROTOCOL);
        assert_eq!((flat.protocol, flat.first_port, flat.last_port), (UDP, [0, 53], [0, 60]));
    }
    let fixed = flat(vec![Rule { ethertype: Some(IPV6), ..rule }]).unwrap();
    assert_eq!(fixed.iter().map(|rule| rule.version).collect::<Vec<_>>(), [6]);
    let tcp = Rule { tcp_port: Some(80.into()), ..Rule::default() };
    assert_eq!(flat(vec![tcp]).unwrap()[0].protocol, TCP);
}

#[test]
fn gtp_u_is_udp_to_its_port() {
    let both = flat(vec![Rule { gtp_u: true, ..Rule::default() }]).unwrap();
    for flat in &both {
        assert_eq!(flat.fields, fields::PORT | fields::PROTOCOL | fields::GTP_U);
        assert_eq!((flat.protocol, flat.first_port), (UDP, 2152_u16.to_be_bytes()));
        assert_eq!(flat.first_port, flat.last_port);
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
    let flat = flat(vec![v4, v6]).unwrap();
    assert_eq!(flat.iter().map(|rule| rule.version).collect::<Vec<_>>(), [4, 6]);
    assert_eq!(flat[0].source[..4], [10, 32, 0, 0]);
    assert_eq!(flat[0].source_mask[..4], [0xff, 0xe0, 0, 0]);
    assert_eq!(flat[0].destination_mask[..4], [0; 4]);
    assert_eq!((flat[1].destination_mask, flat[1].source_mask), ([0xff; 16], [0; 16]));
    assert_eq!(flat[1].destination[..4], [0x20, 0x01, 0x0d, 0xb8]);
    assert_eq!(flat[1].fields, 0);
}

#[test]
fn a_rule_about_ethernet_alone_is_one_of_no_version() {
    let flat = flat(vec![Rule { ethertype: Some(0x88f7), ..Rule::default() }]).unwrap();
    assert_eq!((flat[0].version, flat[0].ethertype), (0, [0x88, 0xf7]));
    assert_eq!((flat[0].fields, flat.len()), (fields::ETHERTYPE, 1));
}
